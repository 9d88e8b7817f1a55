"""Triton kernels of rows.  Their modules import Triton."""
