"""The kernels of the corpus with their grids of configurations; the modules import Triton."""
