"""The limit on the time of a run."""

from __future__ import annotations

import gc
import signal
import time

import pytest

from bitwise_conformance.suite.time_limit import TimeLimitExceeded, time_limit


def test_the_time_limit_ends_an_endless_run_during_garbage_collection() -> None:
    def endless(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and rings:
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                pass

    def run() -> None:
        gc.collect()
        rings.clear()
        while True:
            pass

    rings = [True]
    gc.callbacks.append(endless)
    try:
        with pytest.raises(TimeLimitExceeded), time_limit(0.1):
            run()
    finally:
        gc.callbacks.remove(endless)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
