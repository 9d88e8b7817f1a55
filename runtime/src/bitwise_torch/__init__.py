"""Matrix products of PyTorch tensors with chosen bits: those of a descriptor, of a library, or of a lock file."""

from __future__ import annotations

from bitwise_torch.epilogues import FusionWarning
from bitwise_torch.products import DroppedWarning, NotCovered, ProductError, describe, matmul
from bitwise_torch.program_products import locked_products, recorded_products
from bitwise_torch.tuning import tune

__all__ = [
    "DroppedWarning",
    "FusionWarning",
    "NotCovered",
    "ProductError",
    "describe",
    "locked_products",
    "matmul",
    "recorded_products",
    "tune",
]
