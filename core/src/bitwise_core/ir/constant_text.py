"""Constants of a tree as numbers, in the format that the operation over them reads."""

from __future__ import annotations

from functools import cache

from bitwise_core.ir.nodes import Constant, Node, OpaqueOperation, Operation
from bitwise_core.numerics import FloatFormat, UnknownOperation, operation
from bitwise_core.numerics.decimals import decimal


def constant_text(node: Constant, parent: Node | None, place: int) -> str:
    """Return a constant that is the operand `place` of `parent`: `-inf (0xff800000)`, `0x3` where it is no float."""
    form = None if parent is None else _form(parent, place)
    pattern = f"{node.value:#x}"
    return pattern if form is None or form.bits != node.bits else f"{decimal(form, node.value)} ({pattern})"


def _form(parent: Node, place: int) -> FloatFormat | None:
    known = _operand_forms(parent.name) if isinstance(parent, Operation | OpaqueOperation) else ()
    return known[place] if place < len(known) else None


@cache
def _operand_forms(name: str) -> tuple[FloatFormat | None, ...]:
    try:
        known = operation(name).operands
    except UnknownOperation:
        return ()
    return tuple(each if isinstance(each, FloatFormat) else None for each in known)
