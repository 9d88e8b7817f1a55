"""Divisions as compilers write them: which instructions together are one correctly rounded quotient.

The machine scales numerator and denominator, approximates a reciprocal, corrects the quotient by Newton's steps in
fused multiply-adds, and undoes the scaling.  With subnormal numbers kept and rounding to nearest, the sequence that
LLVM's AMDGPU backend emits for an IEEE division (`SITargetLowering::LowerFDIV32` and `LowerFDIV64`) returns the
quotient rounded once, whatever the reciprocal's error of less than one unit (of less than 2^29 units in fp64), but for
denominators whose digits are all ones (P. Markstein's exception): there the reciprocal lies next to the middle of two
numbers.  In fp32 these rest on v_rcp_f32, which must give the nearer one, as LLVM takes for granted; in fp64 a
reciprocal of that accuracy does not lead there, so that such quotients are operations of their own.
Only that very sequence counts, each of its values used as it was made.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_amd_gfx942.definitions import Definitions
from bitwise_core.assembly.module import Immediate, Kernel, Modified, Operand, Register, Vector, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable, infos_of

_ONE = 0x3FF0000000000000
_VCC = Vector((Register("vcc_lo"), Register("vcc_hi")))


@dataclass(frozen=True, slots=True)
class Divisions:
    """The lines of v_div_fixup that end a division, and of the instructions that only serve one."""

    ends: frozenset[int]
    inside: frozenset[int]


@once_a_kernel
def divisions_of(kernel: Kernel, opcodes: OpcodeTable) -> Divisions:
    """The divisions of a kernel."""
    ends, inside = set(), set()
    places = [index for index, each in enumerate(kernel.instructions) if each.opcode.startswith("v_div_fixup_f")]
    if not places:
        return Divisions(frozenset(), frozenset())
    definitions = Definitions(kernel, infos_of(kernel, opcodes))
    for place in places:
        name = kernel.instructions[place].opcode
        if not name.startswith(("v_div_fixup_f32", "v_div_fixup_f64")):
            continue
        try:
            used = _Sequence(definitions, place, name[12:15]).instructions()
        except _Other:
            continue
        ends.add(kernel.instructions[place].line)
        inside |= {kernel.instructions[each].line for each in used}
    return Divisions(frozenset(ends), frozenset(inside))


class _Other(Exception):
    """The instructions are another sequence."""


class _Sequence:
    """One division, followed backwards from its v_div_fixup."""

    def __init__(self, definitions: Definitions, place: int, kind: str) -> None:
        self.definitions, self.place, self.kind = definitions, place, kind
        self.first = place

    def instructions(self) -> set[int]:
        """The instructions that scale, approximate and undo the scaling.  Raises _Other."""
        fixup = self._operands(self.place, f"v_div_fixup_{self.kind}", 4)
        numerator, denominator = self._same(fixup[3], self.place), self._same(fixup[2], self.place)
        fmas = self._made(fixup[1], self.place, f"v_div_fmas_{self.kind}", 4)
        error, reciprocal, quotient = self._operands(fmas, f"v_div_fmas_{self.kind}", 4)[1:]
        last = self._fused(error, fmas)
        scaled = self._negated(last[0][0])
        if self._same(last[0][1], last[1]) != self._same(quotient, fmas):
            raise _Other
        if self.kind == "f32":
            above = self._step(quotient, fmas, reciprocal, fmas)
            self._residual(above[0], above[2], (scaled, last[1]), (last[0][2], last[1]), (above[1], above[2]))
            product = above[1], above[2]
        else:
            product = quotient, fmas
        self._product(product, (last[0][2], last[1]), (reciprocal, fmas))
        rcp = self._reciprocal((reciprocal, fmas), (scaled, last[1]))
        below = self._scale((scaled, last[1]), denominator, denominator, numerator)
        above_scale = self._scale((last[0][2], last[1]), numerator, denominator, numerator)
        if self._flags(fmas) != above_scale:
            raise _Other
        if not self.definitions.steady({"exec_lo", "exec_hi"}, self.first - 1, self.place):
            raise _Other
        return {fmas, rcp, below, above_scale}

    def _flags(self, fmas: int) -> int:
        """The instruction whose set of lanes v_div_fmas finds in vcc, be it moved there."""
        pair, place = _VCC, self.definitions.source(_VCC, fmas)
        while place is not None and self.definitions.name(place) == "s_mov_b64":
            moved = self.definitions.instructions[place].operands[1]
            if not isinstance(moved, Vector):
                raise _Other
            pair, place = moved, self.definitions.source(moved, place)
        if place is None or self.definitions.instructions[place].operands[1:2] != (pair,):
            raise _Other
        return place

    # -- parts of the sequence ---------------------------------------------------------------------------------------

    def _reciprocal(self, made: tuple[Operand, int], scaled: tuple[Operand, int]) -> int:
        """The reciprocal, after one of Newton's steps (fp32) or two (fp64); gives back v_rcp's place."""
        step = self._step(*made, None, 0)
        for _ in range(0 if self.kind == "f32" else 1):
            self._residual(step[0], step[2], scaled, None, (step[1], step[2]))
            step = self._step(step[1], step[2], None, 0)
        self._residual(step[0], step[2], scaled, None, (step[1], step[2]))
        rcp = self._made(step[1], step[2], f"v_rcp_{self.kind}", 2)
        if self._same(self._operands(rcp, f"v_rcp_{self.kind}", 2)[1], rcp) != self._same(*scaled):
            raise _Other
        return rcp

    def _step(self, operand: Operand, before: int, factor: Operand | None, at: int) -> tuple[Operand, Operand, int]:
        """`old + error * factor`: gives back error and old, and the place; `factor` None stands for old itself."""
        (left, right, old), place = self._fused(operand, before)
        wanted = self._same(old, place) if factor is None else self._same(factor, at)
        for error, other in ((left, right), (right, left)):
            if not isinstance(other, Modified) and self._same(other, place) == wanted:
                return error, old, place
        raise _Other

    def _residual(
        self,
        operand: Operand,
        before: int,
        scaled: tuple[Operand, int],
        start: tuple[Operand, int] | None,
        factor: tuple[Operand, int],
    ) -> None:
        """`start - scaled * factor`, or `1 - scaled * factor`."""
        (left, right, addend), place = self._fused(operand, before)
        if self._same(self._negated(left), place) != self._same(*scaled):
            raise _Other
        if self._same(right, place) != self._same(*factor):
            raise _Other
        if start is None:
            if addend != Immediate(_ONE, "f64"):
                raise _Other
        elif self._same(addend, place) != self._same(*start):
            raise _Other

    def _product(self, operand: tuple[Operand, int], left: tuple[Operand, int], right: tuple[Operand, int]) -> None:
        place = self._made(*operand, f"v_mul_{self.kind}", 3)
        factors = [self._same(each, place) for each in self._operands(place, f"v_mul_{self.kind}", 3)[1:]]
        wanted = [self._same(*left), self._same(*right)]
        if factors not in (wanted, wanted[::-1]):
            raise _Other

    def _scale(self, operand: tuple[Operand, int], first: object, second: object, third: object) -> int:
        place = self._made(*operand, f"v_div_scale_{self.kind}", 5)
        given = [self._same(each, place) for each in self._operands(place, f"v_div_scale_{self.kind}", 5)[2:]]
        if given != [first, second, third]:
            raise _Other
        return place

    # -- instructions ------------------------------------------------------------------------------------------------

    def _made(self, operand: Operand, before: int, name: str, count: int) -> int:
        place = self.definitions.source(operand, before)
        if place is None:
            raise _Other
        self._operands(place, name, count)
        return place

    def _operands(self, place: int, name: str, count: int) -> tuple[Operand, ...]:
        operands = self.definitions.instructions[place].operands
        if self.definitions.name(place) != name or len(operands) != count:
            raise _Other
        self.first = min(self.first, place)
        return operands

    def _fused(self, operand: Operand, before: int) -> tuple[tuple[Operand, Operand, Operand], int]:
        """Factors and addend of the fused multiply-add that made an operand, and its place."""
        place = self.definitions.source(operand, before)
        if place is None:
            raise _Other
        name, operands = self.definitions.name(place), self.definitions.instructions[place].operands
        self.first = min(self.first, place)
        if name == f"v_fma_{self.kind}" and len(operands) == 4:
            return (operands[1], operands[2], operands[3]), place
        if name == f"v_fmac_{self.kind}" and len(operands) == 3:
            return (operands[1], operands[2], operands[0]), place
        raise _Other

    def _negated(self, operand: Operand) -> Operand:
        if not isinstance(operand, Modified) or operand.changes != ("neg",):
            raise _Other
        return operand.operand

    def _same(self, operand: Operand, before: int) -> object:
        found = self.definitions.identity(operand, before)
        if found is None:
            raise _Other
        return found
