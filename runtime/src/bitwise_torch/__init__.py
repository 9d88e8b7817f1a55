"""Matrix products of PyTorch tensors with chosen bits: those of a descriptor, of a library, or of a lock file."""

from __future__ import annotations

from bitwise_torch.dispatch_mode import locked_products, recorded_products
from bitwise_torch.epilogues import FusionWarning
from bitwise_torch.product_calls import addmm, addmm_activation, baddbmm, grouped_mm, scaled_mm
from bitwise_torch.products import DroppedWarning, NotCovered, ProductError, describe, matmul
from bitwise_torch.tuning import tune

__all__ = [
    "DroppedWarning",
    "FusionWarning",
    "NotCovered",
    "ProductError",
    "addmm",
    "addmm_activation",
    "baddbmm",
    "describe",
    "grouped_mm",
    "locked_products",
    "matmul",
    "recorded_products",
    "scaled_mm",
    "tune",
]
