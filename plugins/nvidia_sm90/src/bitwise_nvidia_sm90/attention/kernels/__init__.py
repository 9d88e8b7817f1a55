"""The Triton functions of attention and of its gradients."""
