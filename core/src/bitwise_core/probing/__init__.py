"""Numerical probes of any callable: the order in which it adds, determined from its outputs."""

from __future__ import annotations

from bitwise_core.probing.accumulation_order import RevealedOrder, reveal
from bitwise_core.probing.elimination import Elimination, eliminate
from bitwise_core.probing.instrument import Instrument, ProbeError, product_instrument, reduction_instrument
from bitwise_core.probing.summation_tree import SumTree
from bitwise_core.probing.tree_shapes import TreeShape, describe_shape, tree_shape

__all__ = [
    "Elimination",
    "Instrument",
    "ProbeError",
    "RevealedOrder",
    "SumTree",
    "TreeShape",
    "describe_shape",
    "eliminate",
    "product_instrument",
    "reduction_instrument",
    "reveal",
    "tree_shape",
]
