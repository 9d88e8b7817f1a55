"""Dependence trees (expression DAGs): the operations that compute a value from the initial content of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_core.ir.evaluation import evaluate, evaluate_many
    from bitwise_core.ir.nodes import (
        Concat,
        Constant,
        Gather,
        Load,
        Matrix,
        Node,
        OpaqueOperation,
        Operation,
        Select,
        Slice,
        TreeError,
        Undefined,
        descendants,
    )
    from bitwise_core.ir.svg import to_svg
    from bitwise_core.ir.text import read, render, write

__all__ = [
    "Concat",
    "Constant",
    "Gather",
    "Load",
    "Matrix",
    "Node",
    "OpaqueOperation",
    "Operation",
    "Select",
    "Slice",
    "TreeError",
    "Undefined",
    "descendants",
    "evaluate",
    "evaluate_many",
    "read",
    "render",
    "to_svg",
    "write",
]

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "evaluation": ("evaluate", "evaluate_many"),
            "nodes": (
                "Concat",
                "Constant",
                "Gather",
                "Load",
                "Matrix",
                "Node",
                "OpaqueOperation",
                "Operation",
                "Select",
                "Slice",
                "TreeError",
                "Undefined",
                "descendants",
            ),
            "svg": ("to_svg",),
            "text": ("read", "render", "write"),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
