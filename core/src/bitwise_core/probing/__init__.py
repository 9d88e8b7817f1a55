"""Numerical experiments on any callable: in which order it adds, read off its outputs alone."""

from __future__ import annotations

from bitwise_core.probing.accumulation_order import Revealed, reveal
from bitwise_core.probing.elimination import Elimination, eliminate
from bitwise_core.probing.instrument import Instrument, ProbeError, product_instrument, reduction_instrument
from bitwise_core.probing.summation_tree import SumTree
from bitwise_core.probing.tree_shapes import TreeShape, describe_shape, tree_shape

__all__ = [
    "Elimination",
    "Instrument",
    "ProbeError",
    "Revealed",
    "SumTree",
    "TreeShape",
    "describe_shape",
    "eliminate",
    "product_instrument",
    "reduction_instrument",
    "reveal",
    "tree_shape",
]
