"""Random loops that data ends: loops of one form return the same bytes."""

from __future__ import annotations

from functools import cache

from random_long_loops import Loop, family
from test_opcodes_long_loops import form, returned

from bitwise_core.execution.domains.domain import Unsupported

SEEDS = range(5)


def classes(seed: int, size: int) -> list[list[Loop]]:
    """Return loops in classes of one form; those that are Unknown are left out."""
    found: dict[str, list[Loop]] = {}
    for loop in dict.fromkeys(family(seed, size)):
        try:
            found.setdefault(str(sorted(form(loop.text()).items())), []).append(loop)
        except Unsupported:
            continue
    return list(found.values())


@cache
def merged() -> list[list[Loop]]:
    """Return the classes of several loops."""
    return [each for seed in SEEDS for each in classes(seed, 8) if len(each) > 1]


def test_loops_of_one_form_return_the_same_bytes() -> None:
    for members in merged():
        assert len({tuple(returned(each.text())) for each in members}) == 1, members


def test_some_loops_have_one_form() -> None:
    assert merged()
