"""Matrix products of PyTorch tensors with the bits of a descriptor, of a library, or of a lock file, and attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_torch.attention_calls import (
        AttentionError,
        attention,
        attention_descriptor,
        attention_paged,
        attention_varlen,
    )
    from bitwise_torch.batch_invariance.mode import BatchVarianceError, BatchVarianceWarning, batch_invariant
    from bitwise_torch.epilogues import FusionWarning
    from bitwise_torch.product_arguments import NotCovered, ProductError
    from bitwise_torch.product_calls import addmm, addmm_activation, addmv, baddbmm, grouped_mm, scaled_mm
    from bitwise_torch.product_recording import recorded_products
    from bitwise_torch.product_replay import locked_products
    from bitwise_torch.product_runs import DroppedWarning
    from bitwise_torch.products import describe, matmul
    from bitwise_torch.transformers_attention import register_attention
    from bitwise_torch.tuning import tune

__all__ = [
    "AttentionError",
    "BatchVarianceError",
    "BatchVarianceWarning",
    "DroppedWarning",
    "FusionWarning",
    "NotCovered",
    "ProductError",
    "addmm",
    "addmm_activation",
    "addmv",
    "attention",
    "attention_descriptor",
    "attention_paged",
    "attention_varlen",
    "baddbmm",
    "batch_invariant",
    "describe",
    "grouped_mm",
    "locked_products",
    "matmul",
    "recorded_products",
    "register_attention",
    "scaled_mm",
    "tune",
]

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "attention_calls": (
                "AttentionError",
                "attention",
                "attention_descriptor",
                "attention_paged",
                "attention_varlen",
            ),
            "batch_invariance.mode": ("BatchVarianceError", "BatchVarianceWarning", "batch_invariant"),
            "epilogues": ("FusionWarning",),
            "product_arguments": ("NotCovered", "ProductError"),
            "product_calls": ("addmm", "addmm_activation", "addmv", "baddbmm", "grouped_mm", "scaled_mm"),
            "product_recording": ("recorded_products",),
            "product_replay": ("locked_products",),
            "product_runs": ("DroppedWarning",),
            "products": ("describe", "matmul"),
            "transformers_attention": ("register_attention",),
            "tuning": ("tune",),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
