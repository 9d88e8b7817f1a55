"""Reductions whose tree is part of the program: the same additions in the same order in every configuration.

`Order` says in which order the bits of an element's index are folded; `bitwise_triton.reductions.kernels.functions`
(which imports Triton) has the functions for kernels; `pinned_reductions` rewrites kernels that cannot be edited.
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
