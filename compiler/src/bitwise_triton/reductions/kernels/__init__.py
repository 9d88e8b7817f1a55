"""Code that imports Triton: `functions` for use in kernels, implemented by `builtins`."""
