"""Division idioms: the instruction sequences that compute one correctly rounded quotient.

The sequence scales numerator and denominator, approximates the reciprocal, refines the quotient with Newton iterations
in fused multiply-adds, and undoes the scaling.  With subnormal numbers kept and rounding to nearest, the sequence that
LLVM's AMDGPU backend emits for an IEEE division (`SITargetLowering::LowerFDIV32` and `LowerFDIV64`) returns the
quotient rounded once, for every error of the reciprocal below 1 ulp (below 2^29 ulp in fp64).  The exception are
denominators whose significand is all ones (P. Markstein): their reciprocal is next to the midpoint of two floats.
In fp32 the quotient by such a denominator is correct if v_rcp_f32 returns the nearer float, which LLVM assumes.  In
fp64 a reciprocal of that accuracy does not give the rounded quotient, so such quotients are a separate operation.
Only the exact sequence is matched, with each value used unmodified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bitwise_amd_gfx942.analyses.reaching_definitions import ReachingDefinitions
from bitwise_core.assembly.module import Immediate, Kernel, Modified, Operand, Register, Vector, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable, infos_of

_ONE = 0x3FF0000000000000
_VCC = Vector((Register("vcc_lo"), Register("vcc_hi")))


@dataclass(frozen=True, slots=True)
class DivisionSequences:
    """The lines of v_div_fixup that end a division, and of the instructions whose results only a division uses."""

    final_lines: frozenset[int]
    inner_lines: frozenset[int]


@once_a_kernel
def division_sequences(kernel: Kernel, opcodes: OpcodeTable) -> DivisionSequences:
    """Find the division sequences of a kernel."""
    final_lines, inner_lines = set(), set()
    fixups = [index for index, each in enumerate(kernel.instructions) if each.opcode.startswith("v_div_fixup_f")]
    if not fixups:
        return DivisionSequences(frozenset(), frozenset())
    definitions = ReachingDefinitions(kernel, infos_of(kernel, opcodes))
    for index in fixups:
        name = kernel.instructions[index].opcode
        if not name.startswith(("v_div_fixup_f32", "v_div_fixup_f64")):
            continue
        try:
            used = _Sequence(definitions, index, name[12:15]).instructions()
        except _NotADivision:
            continue
        final_lines.add(kernel.instructions[index].line)
        inner_lines |= {kernel.instructions[each].line for each in used}
    return DivisionSequences(frozenset(final_lines), frozenset(inner_lines))


class _NotADivision(Exception):
    """The instructions are not a division sequence."""


class _Use(NamedTuple):
    """An operand, and the index of the instruction that reads it."""

    operand: Operand
    reader: int


class _MultiplyAdd(NamedTuple):
    """The factors and the addend of a fused multiply-add."""

    left: _Use
    right: _Use
    addend: _Use


class _Sequence:
    """Matches one division sequence backwards from its v_div_fixup."""

    def __init__(self, definitions: ReachingDefinitions, index: int, kind: str) -> None:
        self.definitions, self.index, self.kind = definitions, index, kind
        self.first = index

    def instructions(self) -> set[int]:
        """Match the sequence; return v_div_fmas, v_rcp and both v_div_scale.  Raises _NotADivision."""
        _, approximate, divisor, dividend = self._operands(self.index, "v_div_fixup", 4)
        numerator, denominator = self._value(dividend), self._value(divisor)
        fmas = self._defined_by(approximate, "v_div_fmas", 4)
        _, error, reciprocal, quotient = self._operands(fmas, "v_div_fmas", 4)
        last = self._multiply_add(error)
        scaled_denominator, scaled_numerator = self._negated(last.left), last.addend
        if self._value(last.right) != self._value(quotient):
            raise _NotADivision
        product = quotient
        if self.kind == "f32":
            error, product = self._match_step(quotient, reciprocal)
            self._match_residual(error, scaled_denominator, product, scaled_numerator)
        self._match_product(product, scaled_numerator, reciprocal)
        rcp = self._match_reciprocal(reciprocal, scaled_denominator)
        denominator_scale = self._match_scale(scaled_denominator, denominator, denominator, numerator)
        numerator_scale = self._match_scale(scaled_numerator, numerator, denominator, numerator)
        if self._flag_definition(fmas) != numerator_scale:
            raise _NotADivision
        if not self.definitions.unwritten_between({"exec_lo", "exec_hi"}, self.first - 1, self.index):
            raise _NotADivision
        return {fmas, rcp, denominator_scale, numerator_scale}

    def _flag_definition(self, fmas: int) -> int:
        """The instruction that computed the lane mask that v_div_fmas reads from vcc, through s_mov_b64."""
        pair, index = _VCC, self.definitions.single_definition(_VCC, fmas)
        while index is not None and self.definitions.mnemonic(index) == "s_mov_b64":
            moved = self.definitions.instructions[index].operands[1]
            if not isinstance(moved, Vector):
                raise _NotADivision
            pair, index = moved, self.definitions.single_definition(moved, index)
        if index is None or self.definitions.instructions[index].operands[1:2] != (pair,):
            raise _NotADivision
        return index

    # -- parts of the sequence ---------------------------------------------------------------------------------------

    def _match_reciprocal(self, result: _Use, scaled: _Use) -> int:
        """Match the reciprocal after one Newton iteration (fp32) or two (fp64); return the index of v_rcp."""
        for _ in range(1 if self.kind == "f32" else 2):
            error, result = self._match_step(result, None)
            self._match_residual(error, scaled, result, None)
        rcp = self._defined_by(result, "v_rcp", 2)
        if self._value(self._operands(rcp, "v_rcp", 2)[1]) != self._value(scaled):
            raise _NotADivision
        return rcp

    def _match_step(self, result: _Use, factor: _Use | None) -> tuple[_Use, _Use]:
        """Match `old + error * factor`, `factor` None for old; return error and old."""
        left, right, old = self._multiply_add(result)
        wanted = self._value(old if factor is None else factor)
        for error, other in ((left, right), (right, left)):
            if not isinstance(other.operand, Modified) and self._value(other) == wanted:
                return error, old
        raise _NotADivision

    def _match_residual(self, result: _Use, scaled: _Use, factor: _Use, start: _Use | None) -> None:
        """Match `start - scaled * factor`, `start` None for 1."""
        left, right, addend = self._multiply_add(result)
        if self._value(self._negated(left)) != self._value(scaled):
            raise _NotADivision
        if self._value(right) != self._value(factor):
            raise _NotADivision
        if start is None:
            if addend.operand != Immediate(_ONE, "f64"):
                raise _NotADivision
        elif self._value(addend) != self._value(start):
            raise _NotADivision

    def _match_product(self, result: _Use, left: _Use, right: _Use) -> None:
        """Match `left * right`."""
        _, *factors = self._operands(self._defined_by(result, "v_mul", 3), "v_mul", 3)
        values, wanted = [self._value(each) for each in factors], [self._value(left), self._value(right)]
        if values not in (wanted, wanted[::-1]):
            raise _NotADivision

    def _match_scale(self, result: _Use, first: object, second: object, third: object) -> int:
        """Match a v_div_scale of sources with these values; return its index."""
        index = self._defined_by(result, "v_div_scale", 5)
        if [self._value(each) for each in self._operands(index, "v_div_scale", 5)[2:]] != [first, second, third]:
            raise _NotADivision
        return index

    # -- instructions ------------------------------------------------------------------------------------------------

    def _definition(self, use: _Use) -> int:
        """The index of the instruction that defines an operand."""
        index = self.definitions.single_definition(use.operand, use.reader)
        if index is None:
            raise _NotADivision
        self.first = min(self.first, index)
        return index

    def _defined_by(self, use: _Use, name: str, count: int) -> int:
        """The index of the instruction that defines an operand; it must have this name and number of operands."""
        index = self._definition(use)
        self._operands(index, name, count)
        return index

    def _operands(self, index: int, name: str, count: int) -> tuple[_Use, ...]:
        """The operands of an instruction, which must have this name and number of operands."""
        operands = self.definitions.instructions[index].operands
        if self.definitions.mnemonic(index) != f"{name}_{self.kind}" or len(operands) != count:
            raise _NotADivision
        return tuple(_Use(each, index) for each in operands)

    def _multiply_add(self, use: _Use) -> _MultiplyAdd:
        """The fused multiply-add that defines an operand."""
        index = self._definition(use)
        name = self.definitions.mnemonic(index)
        operands = tuple(_Use(each, index) for each in self.definitions.instructions[index].operands)
        if name == f"v_fma_{self.kind}" and len(operands) == 4:
            return _MultiplyAdd(operands[1], operands[2], operands[3])
        if name == f"v_fmac_{self.kind}" and len(operands) == 3:
            return _MultiplyAdd(operands[1], operands[2], operands[0])
        raise _NotADivision

    def _negated(self, use: _Use) -> _Use:
        """The operand under a neg modifier."""
        if not isinstance(use.operand, Modified) or use.operand.changes != ("neg",):
            raise _NotADivision
        return _Use(use.operand.operand, use.reader)

    def _value(self, use: _Use) -> object:
        """A key of an operand's value; see `ReachingDefinitions.value_identity`."""
        found = self.definitions.value_identity(use.operand, use.reader)
        if found is None:
            raise _NotADivision
        return found
