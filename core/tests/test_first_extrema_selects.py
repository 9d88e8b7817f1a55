"""The select of a number beside the select of its place: it never loses the mark of a race or of undefined memory."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.rewriting.result_facts import with_origin
from bitwise_core.execution.values.sets.first_extrema import FirstExtrema
from bitwise_core.execution.values.symbolic_vector import SymbolicVector
from bitwise_core.execution.values.term_hash import term

BLOCKS, THREADS = 1, 4
CONTEXT = TermContext(finite=False, recorder=None)


def loaded(number: int) -> SymbolicVector:
    return SymbolicVector(32, np.full((2, BLOCKS, THREADS), number, dtype=np.uint64), L.LOAD)


def selected(flags: int = 0) -> SymbolicVector:
    return term(32, "select", [loaded(1), loaded(2)], flags)


def condition() -> SymbolicVector:
    made = term(1, "lt.fp32", [loaded(1), loaded(2)])
    return with_origin("lt.fp32", made, [loaded(1), loaded(2)], CONTEXT)


@pytest.mark.parametrize("mark", [0, L.POISON, L.NONDETERMINISTIC, L.NAN_BITS, L.UNSPECIFIED_NAN])
def test_a_mark_stays(mark: int) -> None:
    firsts, first, kept = FirstExtrema(), condition(), selected()
    firsts.note_select(first, loaded(1), loaded(2), kept)
    found = firsts.as_selected(selected(mark), first, loaded(1), loaded(2))
    assert L.flags_of_every_lane(found) & mark == mark
    assert np.array_equal(found.words, kept.words)


def test_the_form_is_that_of_the_first_select() -> None:
    firsts, first = FirstExtrema(), condition()
    kept = with_origin("max.fp32", selected(), [loaded(1), loaded(2)], CONTEXT)
    firsts.note_select(first, loaded(1), loaded(2), kept)
    assert kept.origins
    assert firsts.as_selected(selected(), first, loaded(1), loaded(2)).origins == kept.origins
    assert firsts.as_selected(selected(), first, loaded(2), loaded(1)).origins == ()
    assert firsts.as_selected(selected(), condition(), loaded(1), loaded(3)).origins == ()


def test_the_numbers_of_a_condition_are_selected_once_inside_of_their_own_select() -> None:
    firsts, first, inner = FirstExtrema(), condition(), list[SymbolicVector | None]()

    def select(chosen: SymbolicVector, one: SymbolicVector, other: SymbolicVector) -> SymbolicVector:
        inner.append(firsts.selected_numbers(chosen, one, other, select))
        return selected()

    assert firsts.selected_numbers(first, loaded(1), loaded(2), select) is not None
    assert inner == [None]
    assert firsts.selected_numbers(first, loaded(1), loaded(2), select) is not None
