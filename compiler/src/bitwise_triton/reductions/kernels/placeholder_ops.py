"""Placeholder operations: reductions that are lowered after layout assignment.

A placeholder is one reduction whose combine is an inline assembly operation that names the steps. The compiler does not
interpret its text, and an assembler rejects it, so a placeholder that is not lowered cannot become a kernel.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import triton.language as tl

from bitwise_triton.reductions.kernels import steps as reduction_steps
from bitwise_triton.reductions.order import Pair, Step
from bitwise_triton.reductions.placeholder import Placeholder

_depth = [0]


@contextmanager
def deferred_lowering() -> Iterator[None]:
    """Emit placeholders for reductions whose combine has a name; `lowering.lower_placeholders` must follow."""
    _depth[0] += 1
    try:
        yield
    finally:
        _depth[0] -= 1


def can_defer(kind: str | None, steps: Sequence[Step]) -> bool:
    """Whether a reduction with these steps can be lowered later."""
    return bool(_depth[0] and kind and steps) and all(isinstance(step, Pair) for step in steps)


def placeholder_op(values: Sequence[Any], placeholder: Placeholder, semantic: Any) -> list[Any]:
    """The values reduced along the placeholder's axis by the placeholder."""

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        return [
            tl.inline_asm_elementwise(placeholder.text, "=r,r,r", [a, b], a.type.scalar, True, 1, _semantic=semantic)
            for a, b in zip(left, right, strict=True)
        ]

    return reduction_steps.emit_reduce(
        values, placeholder.axis, reduction_steps.combine_region(values, combine, semantic), semantic
    )
