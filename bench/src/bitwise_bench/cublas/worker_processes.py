"""Work of several processes on each GPU, to overlap compilation and evaluation."""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

_VISIBLE = "CUDA_VISIBLE_DEVICES"
Work = Callable[[int, int, float, Any], Iterable[list[Any]]]
"""`work(start, step, deadline, given)` yields the rows of one process. It must be a module-level function."""


def numbered_rows(
    row_of: Callable[[int], list[Any] | None],
    start: int,
    step: int,
    deadline: float,
    failed: Callable[[int, str], list[Any]] = lambda _, reason: [f"failed: {reason}"],
) -> Iterator[list[Any]]:
    """Yield the rows of the numbers start + step, start + 2 step, ... until the deadline; None is no row.

    Where `row_of` raises, the row is that of `failed` for the number and the error.
    """
    number = start
    while time.time() < deadline:
        number += step
        try:
            row = row_of(number)
        except Exception as error:
            row = failed(number, f"{type(error).__name__}: {error}"[:300])
        if row is not None:
            yield row


class Parts:
    """Processes that run `work(part, parts, *given)`, a module-level function; leaving the context ends them."""

    def __init__(self, work: Callable[..., None], given: tuple[Any, ...], processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._workers = [
            context.Process(target=work, args=(part, processes, *given), daemon=True) for part in range(processes)
        ]

    def __enter__(self) -> Self:
        for each in self._workers:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._workers:
            each.terminate()

    def alive(self, part: int) -> bool:
        """Return whether the process of a part runs."""
        return self._workers[part].is_alive()


def visible_devices() -> list[str]:
    """The GPUs that processes may use, as values of CUDA_VISIBLE_DEVICES; one, unnamed, without PyTorch."""
    named = os.environ.get(_VISIBLE)
    if named is not None:
        return named.split(",")
    try:
        import torch
    except ImportError:
        return [""]
    return [str(each) for each in range(torch.cuda.device_count())] or [""]


def run_workers(
    work: Work, processes: int, seconds: float, given: Any, kept: Path | None = None
) -> tuple[list[list[Any]], list[str]]:
    """All rows in arbitrary order, and why processes ended early, of `processes` for each GPU.

    Rows are appended to the file `kept`, a line each, as they come. Waits at most half a minute after the deadline.
    """
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    devices = visible_devices()
    deadline = time.time() + seconds  # visible_devices() takes seconds where it imports PyTorch
    count = processes * len(devices)
    workers = [
        context.Process(
            target=_work, args=(work, start, count, deadline, given, results, devices[start % len(devices)]),
            daemon=True,
        )
        for start in range(count)
    ]  # fmt: skip
    for each in workers:
        each.start()
    rows: list[list[Any]] = []
    died: list[str] = []
    with nullcontext() if kept is None else kept.open("a", encoding="utf-8") as file:
        for found in _results(results, workers, deadline + 30):
            if isinstance(found, str):
                died.append(found)
                continue
            rows.append(found)
            if file is not None:
                file.write(json.dumps(found, separators=(",", ":")) + "\n")
                file.flush()
    for each in workers:
        each.terminate()
    return rows, died


def _results(results: Any, workers: list[Any], latest: float) -> Iterator[list[Any] | str]:
    """What processes send: rows, and why they ended early, until all have ended or it is too late."""
    ended = 0
    while ended < len(workers) and time.time() < latest:
        try:
            found = results.get(timeout=2)
        except queue.Empty:
            if not any(each.is_alive() for each in workers):
                yield "processes ended without a message"
                return
            continue
        if found is None:
            ended += 1
        else:
            yield found


def _work(work: Work, start: int, step: int, deadline: float, given: Any, results: Any, device: str) -> None:
    if device:
        os.environ[_VISIBLE] = device  # read when CUDA is initialised in this process
    try:
        for row in work(start, step, deadline, given):
            results.put(row)
    except BaseException as error:  # the parent process reports the failure
        results.put(f"{type(error).__name__}: {error}"[:500])
    results.put(None)
