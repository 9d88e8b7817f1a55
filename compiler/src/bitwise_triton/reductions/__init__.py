"""Reductions with a fixed tree: the same additions in the same order in every configuration.

`Order` specifies the order in which the bits of an element's index are folded. The functions for kernels are in
`bitwise_triton.reductions.kernels.functions` (which imports Triton). `pinned_reductions` rewrites kernels that cannot
be edited.
"""

from __future__ import annotations

from bitwise_triton.reductions.order import Chain, Order, OrderError, Pair, evaluate, tree_of
from bitwise_triton.reductions.pinning import PinningReport, pinned_reductions
from bitwise_triton.reductions.rewriting import ReductionOutcome

__all__ = [
    "Chain",
    "Order",
    "OrderError",
    "Pair",
    "PinningReport",
    "ReductionOutcome",
    "evaluate",
    "pinned_reductions",
    "tree_of",
]
