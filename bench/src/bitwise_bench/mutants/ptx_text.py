"""PTX line by line: statements taken apart just far enough to change one of them and write it back."""

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
        "discard",
    }
)


@dataclass(frozen=True)
class Statement:
    """One instruction on one line: `number` counts lines of the text from 1; `guard` is `@%p1` or empty."""

    number: int
    indent: str
    guard: str
    opcode: str
    operands: tuple[str, ...]

    def text(self) -> str:
        """The line, without a comment."""
        guard = f"{self.guard} " if self.guard else ""
        operands = f" {', '.join(self.operands)}" if self.operands else ""
        return f"{self.indent}{guard}{self.opcode}{operands};"

    def with_operand(self, index: int, operand: str) -> Statement:
        """The statement with one operand exchanged."""
        return replace(self, operands=(*self.operands[:index], operand, *self.operands[index + 1 :]))

    def with_opcode(self, opcode: str) -> Statement:
        """The statement with another mnemonic."""
        return replace(self, opcode=opcode)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The mnemonic's components."""
        return tuple(self.opcode.split("."))

    @property
    def first_source(self) -> int:
        """The index of the first operand that is read only."""
        if self.parts[0] in _NO_RESULT or self.parts[:2] in (("mbarrier", "init"), ("mbarrier", "inval")):
            return 0
        return 1

    @cached_property
    def defines(self) -> frozenset[str]:
        """The registers that it writes."""
        return frozenset(registers(",".join(self.operands[: self.first_source])))

    @cached_property
    def uses(self) -> frozenset[str]:
        """The registers that it reads, the guard and what a guarded statement leaves as it was included."""
        read = set(registers(",".join(self.operands[self.first_source :])))
        if self.guard:
            read |= set(registers(self.guard)) | self.defines
        if self.parts[0] == "wgmma":
            read |= self.defines
        return frozenset(read)


def registers(text: str) -> list[str]:
    """The registers in an operand, special registers left out."""
    return [name for name in _REGISTER.findall(text) if not name.startswith(_SPECIAL)]


def split_operands(text: str) -> tuple[str, ...]:
    """Operands at the commas that stand in no bracket."""
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
    """A PTX text as lines, with the statements among them in order."""

    lines: tuple[str, ...]
    statements: tuple[Statement, ...]

    @cached_property
    def defined_before(self) -> dict[str, int]:
        """The line in which each register is written first."""
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
        """The text with some lines (counted from 1) exchanged, or left out where None."""
        return "\n".join(
            line if number not in changes else changes[number] or ""
            for number, line in enumerate(self.lines, start=1)
            if number not in changes or changes[number] is not None
        )

    def straight(self, first: Statement, second: Statement) -> bool:
        """Whether no label and no branch stands between two statements, so that both run or neither."""
        between = self.lines[first.number : second.number - 1]
        labelled = any(_LABEL.match(line) and not _SILENT.match(line) for line in between)
        return not labelled and not any(re.search(r"\b(bra|ret|exit)\b", line) for line in between)

    def silent_between(self, first: Statement, second: Statement) -> bool:
        """Whether two statements are neighbours but for comments and debug lines."""
        return all(_SILENT.match(line) for line in self.lines[first.number : second.number - 1])


def read_text(text: str) -> Text:
    """The statements of the entries and functions of a PTX text."""
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
    """Whether an operand is one register of a numbered family, such as %r12."""
    return re.fullmatch(r"%[a-z]+\d+", operand) is not None


def family(register: str) -> str:
    """The letters of a register's name."""
    return register.rstrip("0123456789")


def integer(operand: str) -> int | None:
    """A decimal or hexadecimal literal's value, None for anything else."""
    return int(operand, 0) if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)", operand) else None


def consecutive(statements: Sequence[Statement]) -> list[tuple[Statement, Statement]]:
    """Each statement with the next one."""
    return list(pairwise(statements))
