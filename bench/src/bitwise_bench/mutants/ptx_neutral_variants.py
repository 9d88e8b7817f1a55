"""Changes of a PTX text that preserve the kernel: every variant must be Equal to the original."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from bitwise_bench.mutants.ptx_text import Statement, consecutive, read_text

Variant: TypeAlias = Callable[[str, random.Random], str]

_PURE = frozenset(
    {
        "mov",
        "add",
        "sub",
        "mul",
        "mad",
        "fma",
        "shl",
        "shr",
        "and",
        "or",
        "xor",
        "not",
        "setp",
        "selp",
        "cvt",
        "min",
        "max",
        "bfe",
        "bfi",
        "neg",
        "abs",
        "ex2",
        "lg2",
        "rcp",
        "sqrt",
        "rsqrt",
        "div",
        "rem",
        "prmt",
        "shf",
        "cvta",
        "sin",
        "cos",
        "tanh",
    }
)
_COMMUTES = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "fma", "mad"})


def rename(text: str, dice: random.Random) -> str:
    """Renumber the registers of each type."""
    for prefix, count in re.findall(r"\.reg\s+\.\w+\s+(%[a-z]+)<(\d+)>;", text):
        numbers = list(range(int(count)))
        dice.shuffle(numbers)
        table = {f"{prefix}{number}": f"{prefix}{other}" for number, other in enumerate(numbers)}
        text = _replaced(text, re.escape(prefix) + r"\d+\b", table)
    return text


def _replaced(text: str, pattern: str, table: Mapping[str, str]) -> str:
    return re.sub(pattern, lambda found: table.get(found[0], found[0]), text)


def relabel(text: str, dice: random.Random) -> str:
    """Rename every block label."""
    labels = list(dict.fromkeys(re.findall(r"^(\$L__BB\w+):", text, re.MULTILINE)))
    names = [f"$L__other_{index}" for index in range(len(labels))]
    dice.shuffle(names)
    table = dict(zip(labels, names, strict=True))
    return _replaced(text, r"\$L__BB\w+", table)


def strip(text: str, dice: random.Random) -> str:
    """Remove debug lines, debug labels and comments."""
    text = re.sub(r"\.section\s+\.debug_\w+\s*\{.*?\}", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*(\.loc\b|\.file\b|\$L__tmp\d+:).*$", "", text, flags=re.MULTILINE)
    text = text.replace(", debug", "")
    return "\n".join(line for line in re.sub(r"//[^\n]*", "", text).split("\n") if line.strip())


def commute(text: str, dice: random.Random) -> str:
    """Exchange the operands of about half of the commutative operations."""
    parsed = read_text(text)
    changes: dict[int, str | None] = {}
    for each in parsed.statements:
        equality = each.parts[0] == "setp" and each.parts[1] in ("eq", "ne") and len(each.parts) == 3
        if (each.parts[0] in _COMMUTES or equality) and len(each.operands) >= 3 and dice.random() < 0.5:
            left, right = each.operands[1:3]
            changes[each.number] = each.with_operand(1, right).with_operand(2, left).text()
    return parsed.with_lines(changes)


def _independent(first: Statement, second: Statement) -> bool:
    return not (first.defines & (second.uses | second.defines) or second.defines & first.uses)


def _movable(statement: Statement) -> bool:
    return statement.parts[0] in _PURE and not any(
        "clock" in operand or "timer" in operand for operand in statement.operands
    )


def _swapped(text: str, dice: random.Random, allowed: Callable[[Statement, Statement], bool], rounds: int) -> str:
    for _ in range(rounds):
        parsed = read_text(text)
        changes: dict[int, str | None] = {}
        for first, second in consecutive(parsed.statements):
            if first.number in changes or dice.random() < 0.4 or not allowed(first, second):
                continue
            if _independent(first, second) and parsed.silent_between(first, second):
                changes[first.number] = parsed.lines[second.number - 1]
                changes[second.number] = parsed.lines[first.number - 1]
        text = parsed.with_lines(changes)
    return text


def reorder(text: str, dice: random.Random) -> str:
    """Exchange neighbouring independent register operations, in several rounds."""
    return _swapped(text, dice, lambda first, second: _movable(first) and _movable(second), 4)


def reorder_loads(text: str, dice: random.Random) -> str:
    """Exchange neighbouring loads, and neighbouring asynchronous copies of one group."""

    def loads(statement: Statement) -> bool:
        plain = statement.parts[0] == "ld" and not {"volatile", "acquire", "relaxed"} & set(statement.parts)
        return plain or (statement.parts[:2] == ("cp", "async") and statement.parts[2] in ("ca", "cg"))

    def allowed(first: Statement, second: Statement) -> bool:
        return (loads(first) or _movable(first)) and (loads(second) or _movable(second))

    return _swapped(text, dice, allowed, 6)


VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        "registers renamed": rename,
        "labels renamed": relabel,
        "debug lines stripped": strip,
        "operands commuted": commute,
        "neighbours reordered": reorder,
        "loads reordered": reorder_loads,
    }
)
"""The function of each kind of neutral change."""
