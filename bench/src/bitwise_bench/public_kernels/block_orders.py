"""Kernels whose blocks do each other's work: what a kernel returns must not depend on which block starts first."""

from __future__ import annotations

import math
import random
import re

_READ = re.compile(
    r"^(?P<before>[ \t]*(?:@!?%\w+[ \t]+)?)mov\.[ub]32[ \t]+(?P<into>%\w+),[ \t]*%ctaid\.(?P<axis>[xyz]);", re.M
)
_INDEX = re.compile(r"%ctaid\.[xyz]")
_OTHERS = re.compile(r"%(?:cluster|ncta|is_explicit_cluster)\w*|\.reqnctapercluster|\.explicitcluster")
_ATOMIC = re.compile(r"\b(?:atom|red)\.")


def has_atomic_operations(text: str) -> bool:
    """Return whether a PTX text has atomic operations on memory."""
    return _ATOMIC.search(text) is not None


def reordered(text: str, grid: tuple[int, int, int], dice: random.Random) -> str | None:
    """Return a PTX text whose block x does the work of block (a x + b) mod n, on each axis of n blocks of the grid.

    An execution of the result is one of the text in which blocks start in another order, which a GPU may choose too.
    None where the index of a block is read in another way than by a move, or blocks form clusters.
    """
    found = _READ.findall(text)
    if not found or len(found) != len(_INDEX.findall(text)) or _OTHERS.search(text):
        return None
    maps = {}
    for axis, count in zip("xyz", grid, strict=True):
        factor = dice.choice([each for each in range(1, count + 1) if math.gcd(each, count) == 1])
        maps[axis] = (factor, dice.randrange(count), count)

    def replaced(match: re.Match[str]) -> str:
        before, into = match["before"], match["into"]
        factor, first, count = maps[match["axis"]]
        moved = f"mad.lo.u32 {into}, {into}, {factor}, {first};"
        return f"{match[0]}\n{before}{moved}\n{before}rem.u32 {into}, {into}, {count};"

    return _READ.sub(replaced, text)
