"""The corpus on which the published checker was evaluated, in its published counts: kernels, classes and bytes."""
