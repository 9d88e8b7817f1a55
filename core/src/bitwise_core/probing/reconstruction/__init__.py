"""Descriptors of a callable from its outputs: probes reveal the order, random inputs eliminate candidates."""

from __future__ import annotations

from bitwise_core.probing.reconstruction.equivalence import same_computation
from bitwise_core.probing.reconstruction.products import Reconstruction, reconstruct_product
from bitwise_core.probing.reconstruction.sums import reconstruct_sum

__all__ = ["Reconstruction", "reconstruct_product", "reconstruct_sum", "same_computation"]
