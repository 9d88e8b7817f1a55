"""Values that the reading takes for one are one function: random programs against arithmetic on bit patterns."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from random_programs.forms import MAKERS, build, clashes

WIDE = st.integers(0, 2**16 - 1)


def statements(choices: int) -> st.SearchStrategy[list[tuple[int, int, int, int, int]]]:
    """Lists of statements; few choices of operands make values that meet again."""
    pick = st.integers(0, choices - 1)
    return st.lists(st.tuples(st.integers(0, len(MAKERS) - 1), pick, pick, pick, WIDE), min_size=8, max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.one_of(statements(3), statements(8), statements(200)), st.integers(0, 2**32 - 1))
def test_values_of_one_form_agree_on_every_draw(program: list[tuple[int, int, int, int, int]], seed: int) -> None:
    assert clashes(build(program, seed=seed)) == []
