"""Prove that two SASS listings are the same program up to the names of predicate registers.

ptxas allocates predicate registers to live ranges, and the machine code of two equivalent texts may differ only in that
allocation.  The theorem: from the same initial state, both programs execute the same steps and leave the same memory.

*Proof.*  Both listings have identical instructions at the same addresses, except for which of the predicates P0 to P6
each names.  Let both machines run under the same schedule.  For each instruction i, let R(i) be a relation between
predicate names with this invariant: whenever a thread is about to execute i, p of the first program equals q of the
second for all (p, q) in R(i), and all other state (registers, uniform registers and predicates, barriers, memory) is
equal in both.  At the entry R is the identity, since the initial state is the same.  A step preserves the invariant:
where i reads p in the first program and q in the second, (p, q) is in R(i), and the rest of the instruction is
identical, so both steps read equal values and write equal values, to the same places except for predicates; R(i + 1)
contains only pairs that the step wrote together or did not write.  A guarded step may write nothing, so a pair that it
writes is kept only if it held before.  If i has several predecessors, R(i) is the intersection of what they give: the
greatest fixed point of these rules.  Lanes and warps run in the same order in both runs, so values exchanged between
lanes are equal as well.

Which predicates an instruction reads and writes is taken from the disassembly, which prints every predicate except PT.
Only the instructions in `_SEQUENTIAL` and `_CONTROL` are accepted; only those in `_TWO_RESULTS` and `_NO_RESULT` may
name different predicates in their operands; an instruction that names all predicates at once (PR) requires R to contain
the identity.  The encodings are compared as well: all bits if the names agree, and otherwise all but as many bits as
the names have.  Stall counts, wait masks and register reuse (the top 23 bits) affect timing and not values in code that
ptxas generated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

_TWO_RESULTS = frozenset({"FSETP", "ISETP", "DSETP", "PLOP3"})
"""Opcodes that write the predicates of their first two operands and read those of the others."""

_NO_RESULT = frozenset({"FSEL", "SEL", "FMNMX", "FADD", "FMUL", "FFMA", "MOV", "MUFU"})
"""Opcodes that write no predicate."""

_CONTROL = frozenset({"BRA", "EXIT", "BSSY", "BSYNC"})

_SEQUENTIAL = _TWO_RESULTS | _NO_RESULT | {
    "BAR", "CCTL", "CS2R", "DADD", "DEPBAR", "DFMA", "DMMA", "DMUL", "ERRBAR", "F2F", "F2FP", "F2I", "FCHK",
    "FLO", "FRND", "HADD2", "HFMA2", "HMMA", "HMNMX2", "HMUL2", "HSETP2", "I2F", "I2FP", "IABS", "IADD3",
    "IMAD", "IMMA", "LDC", "LDG", "LDGDEPBAR", "LDGSTS", "LDL", "LDS", "LDSM", "LEA", "LOP3", "MEMBAR", "NOP",
    "P2R", "POPC", "PRMT", "R2P", "R2UR", "S2R", "S2UR", "SGXT", "SHF", "SHFL", "STG", "STL", "STS", "STSM",
    "UIADD3", "UIMAD", "UISETP", "ULDC", "ULEA", "ULOP3", "UMOV", "USEL", "USGXT", "USHF", "VIADD", "VIMNMX",
    "VOTE", "VOTEU",
}  # fmt: skip
"""Opcodes whose only successor is the next instruction."""

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
    """One SASS instruction: its address, its text without register-reuse hints, and its 128-bit encoding."""

    address: int
    text: str
    bits: int

    @cached_property
    def template(self) -> str:
        """The text with the number of each predicate replaced by a placeholder."""
        return _PREDICATE.sub("P_", self.text)

    @cached_property
    def predicates(self) -> tuple[int, ...]:
        """The numbers of the predicates in the text, in order."""
        return tuple(int(name) for name in _PREDICATE.findall(self.text))

    @cached_property
    def guard(self) -> str | None:
        """The guard's predicate as written, without negation."""
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
        """The operands as written."""
        _, _, rest = self.operation.partition(" ")
        return tuple(each.strip() for each in rest.split(",")) if rest.strip() else ()


def parse_listing(text: str) -> Mapping[str, tuple[MachineInstruction, ...]]:
    """Return the instructions of each function in the output of `cuobjdump -sass`.

    Raises ValueError for a line of code that does not parse.
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
            raise ValueError(f"this line of a SASS listing does not parse: {line.strip()}")
        code = " ".join(first[2].replace(".reuse", "").split())
        current.append(MachineInstruction(int(first[1], 16), code, int(first[3], 16) | int(second[1], 16) << 64))
    return {name: tuple(lines) for name, lines in functions.items()}


def equal_up_to_predicates(left: Sequence[MachineInstruction], right: Sequence[MachineInstruction]) -> bool:
    """Return whether two functions are proved to be the same program up to the names of predicates."""
    if len(left) != len(right) or not left:
        return False
    if not all(_same_up_to_predicates(one, other) for one, other in zip(left, right, strict=True)):
        return False
    indices = {line.address: index for index, line in enumerate(left)}
    reconvergence = [_target(line, indices) for line in left if line.opcode == "BSSY"]
    before: list[Pairs | None] = [None] * len(left)
    before[0] = _IDENTITY
    work = [0]
    while work:
        index = work.pop()
        held = before[index]
        assert held is not None
        after = _transfer(left[index], right[index], held)
        following = _successors(index, left[index], indices, reconvergence)
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
    """Return whether two instructions are the same up to the names of predicates, and of a supported opcode."""
    if one.address != other.address or one.template != other.template or one.opcode not in _SEQUENTIAL | _CONTROL:
        return False
    changed = sum(a != b for a, b in zip(one.predicates, other.predicates, strict=True))
    return ((one.bits ^ other.bits) & _SEMANTIC_BITS).bit_count() <= 3 * changed


def _target(line: MachineInstruction, indices: Mapping[int, int]) -> int | None:
    """Return the index of the instruction that a BRA or BSSY targets, None if unknown."""
    match = _TARGET.match(line.operands[-1]) if line.operands else None
    return indices.get(int(match[1], 16)) if match else None


def _successors(
    index: int, line: MachineInstruction, indices: Mapping[int, int], reconvergence: Iterable[int | None]
) -> list[int] | None:
    """Return a superset of the indices of the successors, None if they are unknown."""
    if line.opcode == "EXIT":
        return [] if line.operation == "EXIT" and line.guard is None else [index + 1]
    found: list[int | None] = [index + 1]
    if line.opcode == "BRA":
        found.append(_target(line, indices))
        if line.guard is None and line.operation.startswith("BRA 0x"):
            found = found[1:]
    if line.opcode == "BSYNC":
        found.extend(reconvergence)
    return None if None in found else [each for each in found if each is not None]


def _transfer(one: MachineInstruction, other: MachineInstruction, held: Pairs) -> Pairs | None:
    """Return the pairs that hold after a step of both programs, None if the step may read unequal predicates."""
    guard, others = _predicates_in(one.guard or ""), _predicates_in(other.guard or "")
    if not set(zip(guard, others, strict=True)) <= held:
        return None
    if _ALL_PREDICATES.search(one.operation) and not held >= _IDENTITY:
        return None
    if one.opcode in _TWO_RESULTS:
        results = [
            list(zip(_predicates_in(a), _predicates_in(b), strict=True))
            for a, b in zip(one.operands, other.operands, strict=True)
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
    # Which of these predicates are written is irrelevant: both programs name the same ones, equal before and after.
    if any(a != b for a, b in named):
        return None
    if _ALL_PREDICATES.search(one.operation):
        return _IDENTITY
    touched = {a for a, _ in named}
    return frozenset(pair for pair in held if pair[0] == pair[1] or not touched & set(pair))


def _after_write(held: Pairs, written: Sequence[tuple[int, int]], *, always: bool) -> Pairs:
    """Return `held` after these pairs were written, each with equal values; not `always` if the step is guarded."""
    overwritten = {a for a, _ in written}, {b for _, b in written}
    kept = {pair for pair in held if pair[0] not in overwritten[0] and pair[1] not in overwritten[1]}
    if len(overwritten[0]) < len(written) or len(overwritten[1]) < len(written):
        return frozenset(kept)
    return frozenset(kept | {pair for pair in written if always or pair in held})


def _predicates_in(text: str) -> tuple[int, ...]:
    return tuple(int(name) for name in _PREDICATE.findall(text))
