"""Places of a PTX text that can be changed, and what takes their lines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from bitwise_bench.mutants.ptx_text import Statement, Text

Changes: TypeAlias = dict[int, str | None]


@dataclass(frozen=True, slots=True)
class Site:
    """A place that can be changed: the line, and the new lines (None: left out)."""

    line: int
    changes: Changes


Finder: TypeAlias = Callable[[Text, random.Random], Iterator[Site]]


def site(*statements: Statement) -> Site:
    """The place of the first statement, with the lines of all of them exchanged."""
    return Site(statements[0].number, {each.number: each.text() for each in statements})
