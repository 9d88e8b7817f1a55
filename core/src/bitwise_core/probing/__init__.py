"""Numerical probes of any callable: the order in which it adds, determined from its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
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

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "accumulation_order": ("RevealedOrder", "reveal"),
            "elimination": ("Elimination", "eliminate"),
            "instrument": ("Instrument", "ProbeError", "product_instrument", "reduction_instrument"),
            "summation_tree": ("SumTree",),
            "tree_shapes": ("TreeShape", "describe_shape", "tree_shape"),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
