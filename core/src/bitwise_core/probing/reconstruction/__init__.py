"""Descriptors from outputs alone: an order that experiments reveal, and what fresh draws leave of its candidates."""

from __future__ import annotations

from bitwise_core.probing.reconstruction.equivalence import same
from bitwise_core.probing.reconstruction.products import Reconstruction, reconstruct_product
from bitwise_core.probing.reconstruction.sums import reconstruct_sum

__all__ = ["Reconstruction", "reconstruct_product", "reconstruct_sum", "same"]
