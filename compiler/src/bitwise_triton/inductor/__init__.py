"""TorchInductor's autotuning restricted to configurations that return the same bits."""

from bitwise_triton.inductor.same_bits import SameBits, same_bits
from bitwise_triton.inductor.selection import DroppedConfiguration, KernelReport

__all__ = ["DroppedConfiguration", "KernelReport", "SameBits", "same_bits"]
