"""The checker: analyses of kernels, verdicts, equivalence classes, divergences and counterexamples."""
