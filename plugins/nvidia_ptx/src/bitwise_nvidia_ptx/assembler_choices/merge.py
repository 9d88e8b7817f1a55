"""What ptxas merges, and the lanes whose results may differ then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bitwise_core.assembly.module import Operand
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import FloatFormat


@dataclass(frozen=True, slots=True)
class Merge:
    """What ptxas merges, as the end of a sentence, and the lanes whose results may differ.

    `operand`: the operand that decides, of `bits` bits; None: every lane. `differs` takes its patterns. `form`: only a
    NaN of this format differs, of the operand, or of any one. `equal`: lanes in which two operands have one value.
    `unknown`: only lanes in which one of these operands is no known number. `between`: only lanes in which two of these
    operands may be -0 and -1 of fp32; with each comes whether the assembler may find its number where an execution does
    not know it. `opens`: a NaN of fp32 may be the canonical one; a number differs only where there is an `operand` that
    decides. `moves`: a NaN of fp32, of the format, may have other bits, and no number differs. `refused`: the machine
    code may read its result before it is computed. `makes_nan`: only a result that may be a NaN differs, of this format
    and number of elements.
    """

    what: str
    operand: Operand | None = None
    bits: int = 32
    differs: Callable[[Array], Array] | None = None
    form: FloatFormat | None = None
    equal: tuple[Operand, ...] = ()
    unknown: tuple[Operand, ...] = ()
    between: tuple[tuple[Operand, bool], ...] = ()
    opens: bool = False
    moves: bool = False
    refused: bool = False
    makes_nan: tuple[FloatFormat, int] | None = None
