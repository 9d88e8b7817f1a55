"""Constants of a tree as numbers, in the format that the operation over them reads."""

from __future__ import annotations

from functools import cache

from bitwise_core.ir.nodes import Constant, Node, OpaqueOperation, Operation
from bitwise_core.numerics import FloatFormat, Format, IntegerFormat, UnknownOperation, operation
from bitwise_core.numerics.decimals import decimal


def constant_text(node: Constant, parent: Node | None, place: int) -> str:
    """Return a constant that is the operand `place` of `parent`: `-inf (0xff800000)`, `-3`.

    It is its pattern, such as `0x30`, where the operation over it has no format.
    """
    form = None if parent is None else _form(parent, place)
    if isinstance(form, FloatFormat) and form.bits == node.bits:
        return f"{decimal(form, node.value)} ({node.value:#x})"
    if isinstance(form, IntegerFormat) and form.bits == node.bits and form.signed is not None:
        return str(node.value - (1 << form.bits) if node.value > form.largest else node.value)
    return f"{node.value:#x}" if node.value else "0"


def _form(parent: Node, place: int) -> Format | None:
    known = _operand_forms(parent.name) if isinstance(parent, Operation | OpaqueOperation) else ()
    return known[place] if place < len(known) else None


@cache
def _operand_forms(name: str) -> tuple[Format, ...]:
    try:
        return operation(name).operands
    except UnknownOperation:
        return ()
