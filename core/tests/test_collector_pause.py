"""The garbage collector is paused while any analysis runs, and is then as it was."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from bitwise_core.checker.workers import collector_pause
from bitwise_core.checker.workers.collector_pause import (
    ANALYSES_BETWEEN_COLLECTIONS,
    GROWTH_BETWEEN_COLLECTIONS,
    CollectorPause,
    resident_bytes,
)
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.hashing import constant
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.numerics import operation


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before = gc.isenabled()
    yield
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_after_the_last_of_several_threads(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    pause, barrier = CollectorPause(), Barrier(4)

    def analysis(_: int) -> bool:
        with pause:
            barrier.wait()
            paused = not gc.isenabled()
            barrier.wait()
        return paused

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(analysis, range(4))) == [True] * 4
    assert gc.isenabled() is enabled


def test_an_error_ends_the_pause() -> None:
    gc.enable()
    pause = CollectorPause()
    with pytest.raises(ValueError, match="an error"), pause:
        raise ValueError("an error")
    assert gc.isenabled()
    with pause, pause:
        assert not gc.isenabled()
    assert gc.isenabled()


class Cycle:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """A process that froze no objects: the tests freeze those of their collection."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    gc.unfreeze()
    if frozen:
        gc.freeze()


@pytest.mark.usefixtures("unfrozen")
def test_cycles_that_analyses_leave_are_freed() -> None:
    gc.enable()
    pause = CollectorPause()
    left = []
    for _ in range(ANALYSES_BETWEEN_COLLECTIONS + 10):
        with pause:
            left.append(weakref.ref(Cycle()))
            pause.keep()
    assert sum(each() is not None for each in left) < 20


@pytest.mark.usefixtures("unfrozen")
def test_objects_that_the_application_froze_stay_frozen() -> None:
    gc.enable()
    gc.freeze()
    frozen = gc.get_freeze_count()
    pause = CollectorPause()
    with pause:
        pause.keep()
    assert gc.get_freeze_count() == frozen > 0


@pytest.mark.usefixtures("unfrozen")
def test_frozen_objects_are_not_counted_for_each_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count takes a millisecond for each 100,000 objects, more than many analyses."""
    gc.freeze()
    count, counted = gc.get_freeze_count, []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(count()) or counted[-1])
    pause = CollectorPause()
    for _ in range(ANALYSES_BETWEEN_COLLECTIONS - 1):
        with pause:
            pause.keep()
    assert len(counted) == 1
    with pause:
        pause.keep()
    gc.unfreeze()
    with pause:
        pause.keep()
    assert counted[1:] == [0]


def test_a_domain_is_freed_without_the_collector() -> None:
    """A domain holds tables of many megabytes, and the collector may come hundreds of analyses later."""

    def number(value: int) -> Array:
        return np.full((1, 1), value, dtype=np.uint32)

    gc.disable()
    domain = TermDomain()
    predicate = domain.integer(operation("lt.u32"), [SymbolicVector(32, constant("x"), L.TERM), number(5)])
    chosen = domain.integer(operation("add.b32"), [domain.select(predicate, number(7), number(9)), number(1)])
    reference = weakref.ref(domain)
    del domain, predicate, chosen
    assert reference() is None


def test_all_generations_are_collected_where_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    size, collections = 1 << 30, list[int]()
    monkeypatch.setattr(collector_pause, "resident_bytes", lambda: size)
    monkeypatch.setattr(collector_pause.gc, "collect", lambda: collections.append(size))
    pause = CollectorPause()
    for grown in (0, 1, GROWTH_BETWEEN_COLLECTIONS, 1, GROWTH_BETWEEN_COLLECTIONS - 1):
        size += grown
        with pause:
            pause.keep()
    assert collections == [(1 << 30) + 1 + GROWTH_BETWEEN_COLLECTIONS]


def test_the_size_of_the_process_is_known() -> None:
    assert resident_bytes() > 1 << 20
