"""Work of several processes on one GPU, to overlap compilation."""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections.abc import Callable, Iterable
from typing import Any

Work = Callable[[int, int, float, Any], Iterable[list[Any]]]
"""`work(start, step, deadline, given)` yields the rows of one process. It must be a module-level function."""


def run_parts(work: Callable[..., None], given: tuple[Any, ...], processes: int, seconds: float) -> None:
    """Run `work(part, parts, *given)`, a module-level function, in processes; end those that take longer."""
    context = multiprocessing.get_context("spawn")
    deadline = time.time() + seconds
    workers = [context.Process(target=work, args=(part, processes, *given), daemon=True) for part in range(processes)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(max(1.0, deadline - time.time()))
        if each.is_alive():
            each.terminate()


def run_workers(work: Work, processes: int, seconds: float, given: Any) -> tuple[list[list[Any]], list[str]]:
    """All rows in arbitrary order, and why processes ended early. Waits at most half a minute after the deadline."""
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    deadline = time.time() + seconds
    workers = [
        context.Process(target=_work, args=(work, start, processes, deadline, given, results), daemon=True)
        for start in range(processes)
    ]
    for each in workers:
        each.start()
    rows: list[list[Any]] = []
    died: list[str] = []
    ended = 0
    while ended < len(workers) and time.time() < deadline + 30:
        try:
            found = results.get(timeout=2)
        except queue.Empty:
            if not any(each.is_alive() for each in workers):
                died.append("processes ended without a message")
                break
            continue
        if found is None:
            ended += 1
        elif isinstance(found, str):
            died.append(found)
        else:
            rows.append(found)
    for each in workers:
        each.terminate()
    return rows, died


def _work(work: Work, start: int, step: int, deadline: float, given: Any, results: Any) -> None:
    try:
        for row in work(start, step, deadline, given):
            results.put(row)
    except BaseException as error:  # the parent process reports the failure
        results.put(f"{type(error).__name__}: {error}"[:500])
    results.put(None)
