"""Processes that multiprocessing starts in a lock, a recording or a mode: their products are covered or refused."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

import pytest

import started_work
from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_torch import batch_invariant, locked_products, recorded_products
from bitwise_torch.engine_hooks import process_mode
from bitwise_torch.locks import Lock, lock_of
from bitwise_torch.started_processes import EarlierProcessWarning

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

ANEW = multiprocessing.get_context("forkserver")
"""Starts processes that have nothing of this one, and have imported PyTorch already."""
ANEW.set_forkserver_preload(["bitwise_torch.product_replay", "bitwise_torch.batch_invariance.mode", "torch"])


@pytest.fixture(scope="module")
def lock() -> Lock:
    """Return a lock of the product of `started_work`, in an order that PyTorch has not."""
    desc = GEMMDesc(
        k=400, left_dtype="fp32", right_dtype="fp32", output_dtype="fp32", path="fma", k_cuts=(Cut(span=7),)
    )
    return lock_of([(GEMMProblem(m=4, n=6, k=400, a="fp32", b="fp32", out="fp32"), desc)], {})


@pytest.fixture(scope="module")
def locked(lock: Lock) -> Any:
    with locked_products(lock):
        found = started_work.product()
    assert found != started_work.product(), "the order of the lock is that of PyTorch"
    return found


def started(target: Callable[..., None], *arguments: Any, context: Any = ANEW, answers: int = 1) -> list[Any]:
    """Return what a process sends that is started here."""
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(there, *arguments))
    process.start()
    there.close()
    try:
        return [here.recv() if here.poll(60) else None for _ in range(answers)]
    finally:
        process.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_that_is_started_in_a_lock_has_it(lock: Lock, locked: Any, method: str) -> None:
    with locked_products(lock) as replay:
        assert started(started_work.products, context=multiprocessing.get_context(method)) == [locked]
    counted = 0 if method == "fork" else 1
    assert replay.processes == counted
    assert any("1 processes" in each for each in replay.report()) is bool(counted)


def test_a_process_that_is_started_outside_of_locks_or_that_a_lock_ignores_has_none(lock: Lock, locked: Any) -> None:
    library = started_work.product()
    with locked_products(lock):
        pass
    assert started(started_work.products) == [library]
    with locked_products(lock, other_threads="ignore") as replay:
        assert started(started_work.products) == [library]
    assert replay.processes == 0


def test_the_innermost_lock_computes_in_a_process(lock: Lock, locked: Any) -> None:
    with locked_products(lock_of([], {})), locked_products(lock):
        assert started(started_work.products) == [locked]


def test_a_recording_refuses_products_of_a_process_unless_it_enters_a_lock(lock: Lock, locked: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bitwise_torch.product_recording.lockable_profile", lambda *given: None)
        with recorded_products("toy", operators=False):
            sentences = started(started_work.products, lock, answers=3)
        with locked_products(lock), recorded_products("toy", operators=False):
            inside = started(started_work.products)
        with recorded_products("toy", operators=False, other_threads="ignore"):
            ignored = started(started_work.products)
    assert [isinstance(each, str) for each in sentences] == [True, False, True]
    assert sentences[1] == locked
    assert "its record ends with the process" in sentences[0]
    assert "its record ends with the process" in inside[0]
    assert ignored == [started_work.product()]


def test_a_process_that_a_thread_without_a_lock_starts_is_refused_or_covered(lock: Lock, locked: Any) -> None:
    found: list[Any] = []

    def start() -> None:
        found.extend(started(started_work.products))

    for other_threads in ("error", "cover"):
        with locked_products(lock, other_threads=other_threads):  # type: ignore[arg-type]
            thread = threading.Thread(target=start, name="loader")
            thread.start()
            thread.join()
    assert "the thread 'loader' started, which has no lock" in found[0]
    assert found[1:] == [locked]


def test_workers_of_a_data_loader_have_the_lock(lock: Lock, locked: Any) -> None:
    with locked_products(lock):
        loader = torch.utils.data.DataLoader(
            started_work.Products(), batch_size=None, num_workers=1, multiprocessing_context=ANEW
        )
        assert [each.tolist() for each in loader] == [locked, locked]


def test_a_process_of_a_class_with_its_own_run_has_the_lock(lock: Lock, locked: Any) -> None:
    with locked_products(lock):
        here, there = ANEW.Pipe(duplex=False)
        process = started_work.Worker(there)
        process.start()
        assert here.recv() == locked
        process.join()
    assert "run" not in vars(process)


def test_a_process_has_the_mode_once() -> None:
    with batch_invariant(strict=True):
        assert started(started_work.modes, answers=2) == [(True, False), False]
    with process_mode.held():
        assert started(started_work.modes, answers=2) == [(False, True), True]


def test_earlier_processes_are_named(lock: Lock) -> None:
    end = ANEW.Event()
    for name in ("early", "bitwise worker"):
        ANEW.Process(target=end.wait, name=name, daemon=True).start()
    try:
        with pytest.warns(EarlierProcessWarning, match="started before it: early;"), locked_products(lock):
            pass
    finally:
        end.set()
        for each in multiprocessing.active_children():
            each.join()
    with locked_products(lock):  # a warning would be an error
        pass
