"""What the number of an operand may have been computed from, behind operations that may leave it as it is.

Two operands may be one number for an assembler where they have a root in common, or are literals that it knows.  It
sees through moves, signs, selections, the memory of a thread, and operations on integers that undo each other.  Halves
that a move takes apart are told apart by their places, until another operation may have moved them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register, Vector, registers_of
from bitwise_nvidia_ptx.assembler_choices.sources import EXTREMUM_OF_FLOATS, Sources

_FLOAT = re.compile(r"\.(b?f|tf|e\d)\w*")
_KEEPING = frozenset(
    {"add", "sub", "and", "or", "xor", "not", "lop3", "shl", "shr", "shf", "prmt", "bfe", "bfi", "mov", "cvt", "neg"}
    | {"min", "max"}
)
"""Operations that, on integers, may leave a number as it is, or undo what another one did."""
_IN_PLACE = frozenset({"mov", "selp", "and", "or", "xor", "not", "lop3", "min", "max", "copysign"})
_SIGNS = frozenset({"neg", "abs"})
"""Operations that move no bit to another place of the register: these, and those on signs of floats."""

_REGISTER = re.compile(r"'%[^']*'")
_DEPTH = 4
"""Through how many instructions two computations of one text are compared."""

_Part: TypeAlias = tuple[int, int]
_WHOLE: _Part = 0, 1
"""A part of a register: its place, and the number of equal parts."""
_PARTS: tuple[_Part, ...] = tuple((place, count) for count in (1, 2, 4) for place in range(count))


def followed(operand: Operand, user: Instruction, sources: Sources) -> Iterator[tuple[str, Instruction | None]]:
    """Yield the registers, with their definitions, behind operations that may leave a number as it is.

    A register without a definition has None.
    """
    yield from dict.fromkeys((name, made) for name, made, _ in _walk(operand, user, sources))


def roots_of(operand: Operand, user: Instruction, sources: Sources) -> set[object]:
    """Return what an operand may have been computed from by operations that may leave a number as it is.

    Two computations of one text are one root: an assembler may compute both once.  What follows from literals is none.
    """
    found: set[object] = set()
    for name, made, part in _walk(operand, user, sources):
        parts = _PARTS if part is None else (part,)
        if made is None:
            found.update((name, each) for each in parts)
        elif not sources.follows_from_literals(sources.places[id(made)]):
            written = made.operands[0]
            place = written.items.index(Register(name)) if isinstance(written, Vector) else 0
            text = _computation(made, sources, _DEPTH)
            texts = [(text, version, place) for version in _versions(made, text, sources)]
            found.update(root for each in parts for root in ((name, id(made), each), *((one, each) for one in texts)))
    return found


def _versions(made: Instruction, text: Hashable, sources: Sources) -> Sequence[object]:
    """Return the versions of shared memory that an instruction may read, None for a version that is not known.

    A load of an unknown version may read each that others of its text read.  Where these are in several basic blocks,
    no version is known.
    """
    index = sources.places[id(made)]
    if index not in sources.versions_read:
        return (None,)
    if text not in sources.versions:
        instructions = sources.kernel.instructions
        alike = {
            version
            for place, version in sources.versions_read.items()
            if version is not None and _computation(instructions[place], sources, _DEPTH) == text
        }
        sources.versions[text] = alike if len({block for block, _ in alike}) == 1 else set()
    known, own = sources.versions[text], sources.versions_read[index]
    return (own,) if own in known else (None, *known)


def _computation(made: Instruction, sources: Sources, depth: int) -> Hashable:
    """Return a name of what an instruction computes, the same for two of one text that read the same.

    Moves are left out.  Below a number of instructions, registers of one name count as one.
    """
    key = id(made), depth
    if key not in sources.computations:
        read = tuple(_read_number(each, made, sources, depth) for each in made.operands[1:])
        sources.computations[key] = made.opcode, str(made.guard), read
    return sources.computations[key]


def _read_number(operand: Operand, user: Instruction, sources: Sources, depth: int) -> Hashable:
    text = repr(operand)
    names = sorted(registers_of(operand), key=lambda name: text.index(repr(name)))
    if not names or not depth:
        return text
    return _REGISTER.sub("", text), tuple(frozenset(_computations_of(name, user, sources, depth - 1)) for name in names)


def _computations_of(name: str, user: Instruction, sources: Sources, depth: int) -> Iterator[Hashable]:
    """Yield what the definitions of a register compute, behind moves."""
    pending, seen = [(name, user)], set[tuple[str, int]]()
    while pending:
        register, reader = pending.pop()
        definitions = list(sources.defined(Register(register), reader))
        if not definitions:
            yield register
        for made in definitions:
            if (register, id(made)) in seen:
                continue
            seen.add((register, id(made)))
            written, source = made.operands[0], made.operands[-1]
            if made.opcode.startswith("mov.") and isinstance(written, Register) and isinstance(source, Register):
                pending.append((source.name, made))
            else:
                place = written.items.index(Register(register)) if isinstance(written, Vector) else 0
                yield _computation(made, sources, depth), place


def literals_of(operand: Operand, user: Instruction, sources: Sources) -> set[int | None]:
    """Return the literals that an operand may be, None for a computed one; nothing if it may be another number."""
    if isinstance(operand, Immediate):
        return {operand.value & 0xFFFFFFFF}
    pending, seen, found = [(operand, user)], set[int](), set[int | None]()
    while pending:
        made = list(sources.defined(*pending.pop()))
        if not made:
            return set()
        for each in made:
            source = each.operands[-1]
            if id(each) in seen:
                continue
            seen.add(id(each))
            if each.opcode.startswith("mov.") and len(each.operands) == 2 and isinstance(source, Immediate):
                found.add(source.value & 0xFFFFFFFF)
            elif each.opcode.startswith("mov.") and len(each.operands) == 2 and isinstance(source, Register):
                pending.append((source, each))
            elif sources.follows_from_literals(sources.places[id(each)]) or sources.finds(each):
                found.add(None)
            else:
                return set()
    return found


def may_agree(
    one: Operand, user: Instruction, other: Operand, reader: Instruction, bits: int, sources: Sources
) -> bool:
    """Return whether two operands may be one number of some bits that an assembler knows."""
    ones = (1 << bits) - 1
    first, second = (
        {None if number is None else number & ones for number in literals_of(each, at, sources)}
        for each, at in ((one, user), (other, reader))
    )
    return bool(first & second) or (bool(first and second) and None in first | second)


def share_number(one: Operand, user: Instruction, other: Operand, reader: Instruction, sources: Sources) -> bool:
    """Return whether two operands may be one number that is no literal, or its negation or magnitude."""
    return not roots_of(one, user, sources).isdisjoint(roots_of(other, reader, sources))


def _walk(
    operand: Operand, user: Instruction, sources: Sources
) -> Iterator[tuple[str, Instruction | None, _Part | None]]:
    """Yield what `followed` does, with the part of each register that the operand may be; None: any part."""
    pending: list[tuple[str, Instruction, _Part | None]] = [(name, user, _WHOLE) for name in registers_of(operand)]
    seen: set[tuple[str, int, _Part | None]] = set()
    while pending:
        name, reader, part = pending.pop()
        definitions = list(sources.defined(Register(name), reader))
        if not definitions:
            yield name, None, part
        for made in definitions:
            if (name, id(made), part) in seen:
                continue
            seen.add((name, id(made), part))
            yield name, made, part
            if _may_keep(made, sources):
                pending += _read(name, made, part, sources)
            pending += [(each, sources.kernel.instructions[index], None) for each, index in sources.stored(made)]


def _may_keep(made: Instruction, sources: Sources) -> bool:
    """Return whether an instruction may leave a number as it is, or undo what another one did.

    An extremum of floats does so where its operands are one number, or where one is a literal that decides nothing.
    """
    base = made.opcode.partition(".")[0]
    keeps = base in _KEEPING and _FLOAT.search(made.opcode) is None
    if keeps or sources.is_invertible(made) or sources.passes_on(made):
        return True
    if base not in ("min", "max"):
        return False
    return id(made) in sources.of_one_number or any(literals_of(each, made, sources) for each in made.operands[1:3])


def extrema_of_one_number(sources: Sources) -> AbstractSet[int]:
    """Return the extrema of floats whose operands of different names may be one number, by their identities.

    That of one extremum may follow from that of another one, whose operand it then returns.
    """
    if not sources.knows_extrema:
        sources.knows_extrema = True
        pending = [each for each in sources.kernel.instructions if EXTREMUM_OF_FLOATS.fullmatch(each.opcode)]
        changed = True
        while changed:
            found = [each for each in pending if _is_of_one_number(each, sources)]
            changed = bool(found)
            sources.of_one_number.update(map(id, found))
            pending = [each for each in pending if id(each) not in sources.of_one_number]
    return sources.of_one_number


def _is_of_one_number(extremum: Instruction, sources: Sources) -> bool:
    one, other = extremum.operands[1:3]
    return one != other and share_number(one, extremum, other, extremum, sources)


def _read(
    name: str, made: Instruction, part: _Part | None, sources: Sources
) -> Iterator[tuple[str, Instruction, _Part | None]]:
    """Yield the registers, with their parts, of which a part of a result may be the number."""
    base, written, read = made.opcode.partition(".")[0], made.operands[0], made.operands[1:]
    if base == "selp" and not all(literals_of(each, made, sources) for each in read[:-1]):
        # A selection returns none of the bits of its predicate, unless it selects between literals.
        read = read[:-1]
    if base == "mov" and isinstance(written, Vector):
        part = (written.items.index(Register(name)), len(written.items)) if part == _WHOLE else None
    elif base == "mov" and isinstance(read[-1], Vector):
        whole = part is not None and part[1] == len(read[-1].items)
        read, part = (read[-1].items[part[0] : part[0] + 1], _WHOLE) if whole and part is not None else (read, None)
    elif base not in _IN_PLACE and not (base in _SIGNS and _FLOAT.search(made.opcode)):
        part = None
    yield from ((each, made, part) for source in read for each in registers_of(source))
