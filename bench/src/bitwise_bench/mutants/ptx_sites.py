"""Sites of a PTX text where one change is possible."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from bitwise_bench.mutants.ptx_text import Statement, Text

Changes: TypeAlias = dict[int, str | None]


@dataclass(frozen=True, slots=True)
class Site:
    """A possible change: the line to report, and the new text of each changed line (None: removed)."""

    line: int
    changes: Changes


Finder: TypeAlias = Callable[[Text, random.Random], Iterator[Site]]


def site(*statements: Statement) -> Site:
    """Return the site that replaces the lines of all these statements, reported at the first."""
    return Site(statements[0].number, {each.number: each.text() for each in statements})
