"""PTX text line by line: statements parsed as far as needed to change one of them and write it back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

_STATEMENT = re.compile(r"^(\s*)(@!?%?\w+\s+)?([a-z][\w.:]*)(?:\s+([^;]*?))?\s*;\s*(?://.*)?$")
_REGISTER = re.compile(r"%[A-Za-z_]\w*(?:\.[xyzw])?")
_LABEL = re.compile(r"^\s*[$\w]+:\s*(?://.*)?$")
_SILENT = re.compile(r"^\s*(?://.*|\.loc\b.*|\$L__tmp\d+:\s*)?$")
_SPECIAL = ("%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%clock", "%globaltimer", "%cluster", "%smid")
_NO_RESULT = frozenset(
    {
        "st",
        "red",
        "bar",
        "barrier",
        "bra",
        "cp",
        "ret",
        "exit",
        "membar",
        "fence",
        "prefetch",
        "stmatrix",
        "trap",
        "call",
        "tensormap",
        "setmaxnreg",
        "griddepcontrol",
        "nanosleep",
    }
)


@dataclass(frozen=True)
class Statement:
    """One instruction on one line; `number` is the line number from 1, `guard` is such as `@%p1` or empty."""

    number: int
    indent: str
    guard: str
    opcode: str
    operands: tuple[str, ...]

    def text(self) -> str:
        """Return the line without its comment."""
        guard = f"{self.guard} " if self.guard else ""
        operands = f" {', '.join(self.operands)}" if self.operands else ""
        return f"{self.indent}{guard}{self.opcode}{operands};"

    def with_operand(self, index: int, operand: str) -> Statement:
        """Return the statement with one operand replaced."""
        return replace(self, operands=(*self.operands[:index], operand, *self.operands[index + 1 :]))

    def with_opcode(self, opcode: str) -> Statement:
        """Return the statement with another opcode."""
        return replace(self, opcode=opcode)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The components of the opcode."""
        return tuple(self.opcode.split("."))

    @property
    def first_source(self) -> int:
        """The index of the first source operand."""
        if self.parts[0] in _NO_RESULT or self.parts[:2] in (("mbarrier", "init"), ("mbarrier", "inval")):
            return 0
        return 1

    @cached_property
    def defines(self) -> frozenset[str]:
        """The registers that the statement writes."""
        return frozenset(registers(",".join(self.operands[: self.first_source])))

    @cached_property
    def uses(self) -> frozenset[str]:
        """The registers that the statement reads; for a guarded one also the guard and the destinations."""
        read = set(registers(",".join(self.operands[self.first_source :])))
        if self.guard:
            read |= set(registers(self.guard)) | self.defines
        if self.parts[0] == "wgmma":
            read |= self.defines
        return frozenset(read)


def registers(text: str) -> list[str]:
    """Return the registers of an operand, without special registers."""
    return [name for name in _REGISTER.findall(text) if not name.startswith(_SPECIAL)]


def split_operands(text: str) -> tuple[str, ...]:
    """Split at the commas outside brackets."""
    found, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0:
            found.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return (*found, last) if last else tuple(found)


@dataclass(frozen=True)
class Text:
    """The lines of a PTX text, and its statements in order."""

    lines: tuple[str, ...]
    statements: tuple[Statement, ...]

    @cached_property
    def defined_before(self) -> dict[str, int]:
        """The line of the first write of each register."""
        found: dict[str, int] = {}
        for statement in self.statements:
            for name in statement.defines:
                found.setdefault(name, statement.number)
        return found

    @cached_property
    def readers(self) -> dict[str, list[Statement]]:
        """The statements that read each register."""
        found: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for name in statement.uses:
                found.setdefault(name, []).append(statement)
        return found

    @cached_property
    def writers(self) -> dict[str, list[Statement]]:
        """The statements that write each register."""
        found: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for name in statement.defines:
                found.setdefault(name, []).append(statement)
        return found

    def with_lines(self, changes: dict[int, str | None]) -> str:
        """Return the text with some lines (numbered from 1) replaced, or removed where None."""
        return "\n".join(
            line if number not in changes else changes[number] or ""
            for number, line in enumerate(self.lines, start=1)
            if number not in changes or changes[number] is not None
        )

    def straight(self, first: Statement, second: Statement) -> bool:
        """Return whether no label and no branch is between two statements, so that both execute or neither."""
        between = self.lines[first.number : second.number - 1]
        labelled = any(_LABEL.match(line) and not _SILENT.match(line) for line in between)
        return not labelled and not any(re.search(r"\b(bra|ret|exit)\b", line) for line in between)

    def silent_between(self, first: Statement, second: Statement) -> bool:
        """Return whether only comments and debug lines are between two statements."""
        return all(_SILENT.match(line) for line in self.lines[first.number : second.number - 1])


def read_text(text: str) -> Text:
    """Parse the statements of the entries and functions of a PTX text."""
    lines = tuple(text.split("\n"))
    found = []
    for number, line in enumerate(lines, start=1):
        if line.startswith((".file", "\t.file", "\t.section", ".section")):
            break
        match = _STATEMENT.match(line)
        if match is None:
            continue
        indent, guard, opcode, operands = match.groups()
        found.append(Statement(number, indent, (guard or "").strip(), opcode, split_operands(operands or "")))
    return Text(lines, tuple(found))


def numbered(operand: str) -> bool:
    """Return whether an operand is one numbered register, such as %r12."""
    return re.fullmatch(r"%[a-z]+\d+", operand) is not None


def family(register: str) -> str:
    """Return the name of a register without its number."""
    return register.rstrip("0123456789")


def integer(operand: str) -> int | None:
    """Return the value of a decimal or hexadecimal literal, None for anything else."""
    return int(operand, 0) if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)", operand) else None


def consecutive(statements: Sequence[Statement]) -> list[tuple[Statement, Statement]]:
    """Return each statement with its successor."""
    return list(pairwise(statements))
