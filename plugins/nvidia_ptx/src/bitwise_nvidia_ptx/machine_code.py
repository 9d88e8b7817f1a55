"""Whether two listings of machine code are one program but for the names of predicate registers.

ptxas chooses names for live ranges, and two texts that mean the same may differ in nothing else.  What is proved
here: run from any one initial state, both programs take the same steps and leave the same memory.

*Why.*  Both listings have the same instructions at the same addresses, letter for letter, but for which of the
predicates P0 to P6 each names.  So let both machines run under one schedule, and let R(i) be a relation between
predicate names, computed for every instruction i, such that "the first program's p equals the second's q" for all
(p, q) in R(i) whenever a thread is about to execute i, everything else (registers, uniform registers and predicates,
barriers, memory) being equal in both.  At the entry R is the identity, the machine being in one state.  One step keeps
the claim: where i reads p in the first program and q in the second, (p, q) is in R(i), and every other letter is the
same, so both steps read the same and write the same, to the same places but for predicates; and R(i + 1) holds only
pairs that the step wrote together, or that it left alone.  A step under a guard may write nothing, so it keeps a pair
that it writes only if the pair held before.  Where several steps may come before i, R(i) is what all of them give:
the greatest fixed point of these rules.  All lanes of a warp, and all warps, are in step in the two runs, so what
lanes exchange is equal as well.

What an instruction reads and writes is taken from the disassembler, which prints every predicate but PT; only the
instructions in `_ORDINARY` and `_CONTROL` are accepted, only those in `_TWO_RESULTS` and `_NO_RESULT` may name other
predicates in their operands, and one that names all predicates at once (PR) may meet no other than equal ones.  The
encodings are compared too: where the names agree every bit must, and where they do not, no more bits than the
names have; stalls, waits and register reuse (the top 23 bits) decide time, not values, in code that ptxas made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

_TWO_RESULTS = frozenset({"FSETP", "ISETP", "DSETP", "PLOP3"})
"""These write the predicates of their first two operands and read those of the others."""

_NO_RESULT = frozenset({"FSEL", "SEL", "FMNMX", "FADD", "FMUL", "FFMA", "MOV", "MUFU"})
"""These write no predicate."""

_CONTROL = frozenset({"BRA", "EXIT", "BSSY", "BSYNC"})

_SEQUENTIAL = _TWO_RESULTS | _NO_RESULT | {
    "BAR", "CCTL", "CS2R", "DADD", "DEPBAR", "DFMA", "DMMA", "DMUL", "ERRBAR", "F2F", "F2FP", "F2I", "FCHK",
    "FLO", "FRND", "HADD2", "HFMA2", "HMMA", "HMNMX2", "HMUL2", "HSETP2", "I2F", "I2FP", "IABS", "IADD3",
    "IMAD", "IMMA", "LDC", "LDG", "LDGDEPBAR", "LDGSTS", "LDL", "LDS", "LDSM", "LEA", "LOP3", "MEMBAR", "NOP",
    "P2R", "POPC", "PRMT", "R2P", "R2UR", "S2R", "S2UR", "SGXT", "SHF", "SHFL", "STG", "STL", "STS", "STSM",
    "UIADD3", "UIMAD", "UISETP", "ULDC", "ULEA", "ULOP3", "UMOV", "USEL", "USGXT", "USHF", "VIADD", "VIMNMX",
    "VOTE", "VOTEU",
}  # fmt: skip
"""Instructions after which the next one follows."""

_LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(\S.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_SECOND_LINE = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_FUNCTION = re.compile(r"\s*Function : (\S+)\s*$")
_GUARDED = re.compile(r"@(!?)(\w+)\s+(.*)")
_PREDICATE = re.compile(r"(?<![\w.])P([0-6])(?!\w)")
_ALL_PREDICATES = re.compile(r"(?<![\w.])PR(?!\w)")
_TARGET = re.compile(r"0x([0-9a-f]+)$")
_SEMANTIC_BITS = (1 << (64 + 41)) - 1

Pairs: TypeAlias = frozenset[tuple[int, int]]
_IDENTITY: Pairs = frozenset((each, each) for each in range(7))


@dataclass(frozen=True)
class MachineInstruction:
    """One instruction: its address, its text without hints on register reuse, and its 128 bits."""

    address: int
    text: str
    bits: int

    @cached_property
    def shape(self) -> str:
        """The text with a blank in the place of each predicate's number."""
        return _PREDICATE.sub("P_", self.text)

    @cached_property
    def names(self) -> tuple[int, ...]:
        """The predicates of the text in their order."""
        return tuple(int(name) for name in _PREDICATE.findall(self.text))

    @cached_property
    def guard(self) -> str | None:
        """The guard's predicate as it is written, without a negation."""
        match = _GUARDED.match(self.text)
        return match[2] if match else None

    @cached_property
    def operation(self) -> str:
        """The text without its guard."""
        match = _GUARDED.match(self.text)
        return match[3] if match else self.text

    @cached_property
    def opcode(self) -> str:
        """The mnemonic without modifiers."""
        return re.split(r"[\s.]", self.operation, maxsplit=1)[0]

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """What follows the mnemonic."""
        _, _, rest = self.operation.partition(" ")
        return tuple(each.strip() for each in rest.split(",")) if rest.strip() else ()


def parse_listing(text: str) -> Mapping[str, tuple[MachineInstruction, ...]]:
    """The instructions of every function in what `cuobjdump -sass` prints.

    Raises ValueError where a line of code is not understood.
    """
    functions: dict[str, list[MachineInstruction]] = {}
    current: list[MachineInstruction] | None = None
    rest = iter(text.splitlines())
    for line in rest:
        if function := _FUNCTION.match(line):
            current = functions.setdefault(function[1], [])
            continue
        if "/* 0x" not in line and not re.match(r"\s*/\*[0-9a-f]{4,}\*/", line):
            continue
        first, second = _LINE.match(line), _SECOND_LINE.match(next(rest, ""))
        if first is None or second is None or current is None:
            raise ValueError(f"this line of a listing of machine code is not understood: {line.strip()}")
        code = " ".join(first[2].replace(".reuse", "").split())
        current.append(MachineInstruction(int(first[1], 16), code, int(first[3], 16) | int(second[1], 16) << 64))
    return {name: tuple(lines) for name, lines in functions.items()}


def equal_up_to_predicates(left: Sequence[MachineInstruction], right: Sequence[MachineInstruction]) -> bool:
    """Whether two functions are one program but for names of predicates, as far as this module can prove it."""
    if len(left) != len(right) or not left:
        return False
    if not all(_same_up_to_predicates(one, other) for one, other in zip(left, right, strict=True)):
        return False
    places = {line.address: index for index, line in enumerate(left)}
    reconvergence = [_target(line, places) for line in left if line.opcode == "BSSY"]
    before: list[Pairs | None] = [None] * len(left)
    before[0] = _IDENTITY
    work = [0]
    while work:
        index = work.pop()
        held = before[index]
        assert held is not None
        after = _transfer(left[index], right[index], held)
        following = _successors(index, left[index], places, reconvergence)
        if after is None or following is None:
            return False
        for each in following:
            if each >= len(left):
                return False
            known = before[each]
            joined = after if known is None else known & after
            if joined != known:
                before[each] = joined
                work.append(each)
    return True


def _same_up_to_predicates(one: MachineInstruction, other: MachineInstruction) -> bool:
    """The same instruction but for names of predicates, of a kind that is understood."""
    if one.address != other.address or one.shape != other.shape or one.opcode not in _SEQUENTIAL | _CONTROL:
        return False
    changed = sum(a != b for a, b in zip(one.names, other.names, strict=True))
    return ((one.bits ^ other.bits) & _SEMANTIC_BITS).bit_count() <= 3 * changed


def _target(line: MachineInstruction, places: Mapping[int, int]) -> int | None:
    """The place of the instruction that a BRA or BSSY names."""
    match = _TARGET.match(line.operands[-1]) if line.operands else None
    return places.get(int(match[1], 16)) if match else None


def _successors(
    index: int, line: MachineInstruction, places: Mapping[int, int], reconvergence: Iterable[int | None]
) -> list[int] | None:
    """Every instruction that may follow, and perhaps more; None where that is not known."""
    if line.opcode == "EXIT":
        return [] if line.operation == "EXIT" and line.guard is None else [index + 1]
    found: list[int | None] = [index + 1]
    if line.opcode == "BRA":
        found.append(_target(line, places))
        if line.guard is None and line.operation.startswith("BRA 0x"):
            found = found[1:]
    if line.opcode == "BSYNC":
        found.extend(reconvergence)
    return None if None in found else [each for each in found if each is not None]


def _transfer(one: MachineInstruction, other: MachineInstruction, held: Pairs) -> Pairs | None:
    """The pairs that hold after a step of both programs, or None where they may read unequal predicates."""
    guard, others = _predicates_in(one.guard or ""), _predicates_in(other.guard or "")
    if not set(zip(guard, others, strict=True)) <= held:
        return None
    if _ALL_PREDICATES.search(one.operation) and not held >= _IDENTITY:
        return None
    if one.opcode in _TWO_RESULTS:
        results = [
            list(zip(_predicates_in(a), _predicates_in(b), strict=True)) for a, b in zip(one.operands, other.operands, strict=True)
        ]
        read = {pair for operand in results[2:] for pair in operand}
        if not read <= held:
            return None
        written = [pair for operand in results[:2] for pair in operand]
        return _after_write(held, written, always=one.guard is None)
    named = list(zip(_predicates_in(one.operation), _predicates_in(other.operation), strict=True))
    if not set(named) <= held:
        return None
    if one.opcode in _NO_RESULT:
        return held
    # Which of these the instruction writes is not asked: they are the same, equal before and equal after.
    if any(a != b for a, b in named):
        return None
    if _ALL_PREDICATES.search(one.operation):
        return _IDENTITY
    touched = {a for a, _ in named}
    return frozenset(pair for pair in held if pair[0] == pair[1] or not touched & set(pair))


def _after_write(held: Pairs, written: Sequence[tuple[int, int]], *, always: bool) -> Pairs:
    """`held` after these pairs were written together, each with one value, if the step was executed at all."""
    lost = {a for a, _ in written}, {b for _, b in written}
    kept = {pair for pair in held if pair[0] not in lost[0] and pair[1] not in lost[1]}
    if len(lost[0]) < len(written) or len(lost[1]) < len(written):
        return frozenset(kept)
    return frozenset(kept | {pair for pair in written if always or pair in held})


def _predicates_in(text: str) -> tuple[int, ...]:
    return tuple(int(name) for name in _PREDICATE.findall(text))
