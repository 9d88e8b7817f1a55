"""Descriptors of a callable from its outputs: probes reveal the order, random inputs eliminate candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_core.probing.reconstruction.equivalence import same_computation
    from bitwise_core.probing.reconstruction.products import Reconstruction, reconstruct_product
    from bitwise_core.probing.reconstruction.sums import reconstruct_sum

__all__ = ["Reconstruction", "reconstruct_product", "reconstruct_sum", "same_computation"]

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "equivalence": ("same_computation",),
            "products": ("Reconstruction", "reconstruct_product"),
            "sums": ("reconstruct_sum",),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
