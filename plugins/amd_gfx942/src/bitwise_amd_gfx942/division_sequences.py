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

from bitwise_amd_gfx942.reaching_definitions import ReachingDefinitions
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


class _Sequence:
    """Matches one division sequence backwards from its v_div_fixup."""

    def __init__(self, definitions: ReachingDefinitions, index: int, kind: str) -> None:
        self.definitions, self.index, self.kind = definitions, index, kind
        self.first = index

    def instructions(self) -> set[int]:
        """Match the sequence; return v_div_fmas, v_rcp and both v_div_scale.  Raises _NotADivision."""
        fixup = self._operands(self.index, f"v_div_fixup_{self.kind}", 4)
        numerator, denominator = self._value(fixup[3], self.index), self._value(fixup[2], self.index)
        fmas = self._defined_by(fixup[1], self.index, f"v_div_fmas_{self.kind}", 4)
        error, reciprocal, quotient = self._operands(fmas, f"v_div_fmas_{self.kind}", 4)[1:]
        last = self._fused(error, fmas)
        scaled = self._negated(last[0][0])
        if self._value(last[0][1], last[1]) != self._value(quotient, fmas):
            raise _NotADivision
        if self.kind == "f32":
            above = self._match_step(quotient, fmas, reciprocal, fmas)
            self._match_residual(above[0], above[2], (scaled, last[1]), (last[0][2], last[1]), (above[1], above[2]))
            product = above[1], above[2]
        else:
            product = quotient, fmas
        self._match_product(product, (last[0][2], last[1]), (reciprocal, fmas))
        rcp = self._match_reciprocal((reciprocal, fmas), (scaled, last[1]))
        below = self._match_scale((scaled, last[1]), denominator, denominator, numerator)
        above_scale = self._match_scale((last[0][2], last[1]), numerator, denominator, numerator)
        if self._flag_definition(fmas) != above_scale:
            raise _NotADivision
        if not self.definitions.unwritten_between({"exec_lo", "exec_hi"}, self.first - 1, self.index):
            raise _NotADivision
        return {fmas, rcp, below, above_scale}

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

    def _match_reciprocal(self, made: tuple[Operand, int], scaled: tuple[Operand, int]) -> int:
        """Match the reciprocal after one Newton iteration (fp32) or two (fp64); return the index of v_rcp."""
        step = self._match_step(*made, None, 0)
        for _ in range(0 if self.kind == "f32" else 1):
            self._match_residual(step[0], step[2], scaled, None, (step[1], step[2]))
            step = self._match_step(step[1], step[2], None, 0)
        self._match_residual(step[0], step[2], scaled, None, (step[1], step[2]))
        rcp = self._defined_by(step[1], step[2], f"v_rcp_{self.kind}", 2)
        if self._value(self._operands(rcp, f"v_rcp_{self.kind}", 2)[1], rcp) != self._value(*scaled):
            raise _NotADivision
        return rcp

    def _match_step(
        self, operand: Operand, before: int, factor: Operand | None, at: int
    ) -> tuple[Operand, Operand, int]:
        """Match `old + error * factor`, `factor` None for old; return error, old and the index of the instruction."""
        (left, right, old), index = self._fused(operand, before)
        wanted = self._value(old, index) if factor is None else self._value(factor, at)
        for error, other in ((left, right), (right, left)):
            if not isinstance(other, Modified) and self._value(other, index) == wanted:
                return error, old, index
        raise _NotADivision

    def _match_residual(
        self,
        operand: Operand,
        before: int,
        scaled: tuple[Operand, int],
        start: tuple[Operand, int] | None,
        factor: tuple[Operand, int],
    ) -> None:
        """Match `start - scaled * factor`, with 1 for `start` None."""
        (left, right, addend), index = self._fused(operand, before)
        if self._value(self._negated(left), index) != self._value(*scaled):
            raise _NotADivision
        if self._value(right, index) != self._value(*factor):
            raise _NotADivision
        if start is None:
            if addend != Immediate(_ONE, "f64"):
                raise _NotADivision
        elif self._value(addend, index) != self._value(*start):
            raise _NotADivision

    def _match_product(
        self, operand: tuple[Operand, int], left: tuple[Operand, int], right: tuple[Operand, int]
    ) -> None:
        index = self._defined_by(*operand, f"v_mul_{self.kind}", 3)
        factors = [self._value(each, index) for each in self._operands(index, f"v_mul_{self.kind}", 3)[1:]]
        wanted = [self._value(*left), self._value(*right)]
        if factors not in (wanted, wanted[::-1]):
            raise _NotADivision

    def _match_scale(self, operand: tuple[Operand, int], first: object, second: object, third: object) -> int:
        index = self._defined_by(*operand, f"v_div_scale_{self.kind}", 5)
        given = [self._value(each, index) for each in self._operands(index, f"v_div_scale_{self.kind}", 5)[2:]]
        if given != [first, second, third]:
            raise _NotADivision
        return index

    # -- instructions ------------------------------------------------------------------------------------------------

    def _defined_by(self, operand: Operand, before: int, name: str, count: int) -> int:
        index = self.definitions.single_definition(operand, before)
        if index is None:
            raise _NotADivision
        self._operands(index, name, count)
        return index

    def _operands(self, index: int, name: str, count: int) -> tuple[Operand, ...]:
        operands = self.definitions.instructions[index].operands
        if self.definitions.mnemonic(index) != name or len(operands) != count:
            raise _NotADivision
        self.first = min(self.first, index)
        return operands

    def _fused(self, operand: Operand, before: int) -> tuple[tuple[Operand, Operand, Operand], int]:
        """The factors and addend of the fused multiply-add that defines an operand, and its index."""
        index = self.definitions.single_definition(operand, before)
        if index is None:
            raise _NotADivision
        name, operands = self.definitions.mnemonic(index), self.definitions.instructions[index].operands
        self.first = min(self.first, index)
        if name == f"v_fma_{self.kind}" and len(operands) == 4:
            return (operands[1], operands[2], operands[3]), index
        if name == f"v_fmac_{self.kind}" and len(operands) == 3:
            return (operands[1], operands[2], operands[0]), index
        raise _NotADivision

    def _negated(self, operand: Operand) -> Operand:
        if not isinstance(operand, Modified) or operand.changes != ("neg",):
            raise _NotADivision
        return operand.operand

    def _value(self, operand: Operand, before: int) -> object:
        found = self.definitions.value_identity(operand, before)
        if found is None:
            raise _NotADivision
        return found
