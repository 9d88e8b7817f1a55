"""Random programs: values of equal canonical form have equal bits on every input."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from random_programs.forms import MAKERS, build, clashes

WIDE = st.integers(0, 2**16 - 1)


def statements(choices: int) -> st.SearchStrategy[list[tuple[int, int, int, int, int]]]:
    """Generate lists of statements; operands are drawn from few choices, so that equal values recur."""
    pick = st.integers(0, choices - 1)
    return st.lists(st.tuples(st.integers(0, len(MAKERS) - 1), pick, pick, pick, WIDE), min_size=8, max_size=60)


@settings(max_examples=60, deadline=None)
@given(st.one_of(statements(3), statements(8), statements(200)), st.integers(0, 2**32 - 1))
def test_values_of_equal_form_have_equal_bits(program: list[tuple[int, int, int, int, int]], seed: int) -> None:
    assert clashes(build(program, seed=seed)) == []
