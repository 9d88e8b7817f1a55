"""Matrix products of PyTorch tensors in bits that a descriptor decides, or those of a library."""

from __future__ import annotations

from bitwise_core.products.tensors import DroppedWarning, ProductError, Undescribed, describe, matmul

__all__ = ["DroppedWarning", "ProductError", "Undescribed", "describe", "matmul"]
