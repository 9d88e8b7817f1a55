"""The limit on the time of a run."""

from __future__ import annotations

import gc
import signal
import sys
import time
import weakref
from collections.abc import Callable

import pytest

from bitwise_conformance.suite.time_limit import TimeLimitExceeded, time_limit


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def in_a_callback_of_the_collector() -> None:
    def callback(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            busy(0.3)

    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)


def in_a_callback_of_a_weak_reference() -> None:
    class Referent:
        pass

    referent = Referent()
    reference = weakref.ref(referent, lambda _: busy(0.3))
    del referent
    assert reference() is None


def in_a_finalizer() -> None:
    class Finalized:
        def __del__(self) -> None:
            busy(0.3)

    Finalized()


@pytest.mark.parametrize(
    "discarding", [in_a_callback_of_the_collector, in_a_callback_of_a_weak_reference, in_a_finalizer]
)
def test_the_time_limit_ends_an_endless_run_where_python_discards_exceptions(discarding: Callable[[], None]) -> None:
    hook, handler = sys.unraisablehook, signal.getsignal(signal.SIGALRM)

    def endless() -> None:
        discarding()
        while True:
            pass

    with pytest.raises(TimeLimitExceeded), time_limit(0.1):
        endless()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert (sys.unraisablehook, signal.getsignal(signal.SIGALRM)) == (hook, handler)


def test_other_discarded_exceptions_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails:
        def __del__(self) -> None:
            raise ValueError("in a finalizer")

    reported: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda discarded: reported.append(discarded.exc_type))
    with time_limit(60.0):
        Fails()
    assert reported == [ValueError]
