"""A pool of worker processes in which a job that crashes, hangs or corrupts its process affects no other job."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

Job: TypeAlias = Callable[[str, dict[str, Any]], dict[str, Any]]


class PoisonedProcess(RuntimeError):
    """A job failed and left its process unusable; the pool reports the failure and starts a new process."""


def run_all(
    job: Job,
    batches: Iterable[Sequence[str]],
    settings: dict[str, Any],
    *,
    processes: int,
    seconds: float,
    report: Callable[[str, dict[str, Any]], None],
) -> dict[str, dict[str, Any]]:
    """Call `job(name, settings)` for every name, each batch in one process, each call for at most `seconds`.

    Returns the answers by name; the answer of a failed job is `{"error": one line}`.  `report` is called once for each
    name, from several threads but never concurrently.  The job must be importable by the worker processes.
    """
    waiting: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()
    for batch in batches:
        waiting.put(batch)
    answers: dict[str, dict[str, Any]] = {}
    lock = threading.Lock()

    def serve() -> None:
        worker: _Worker | None = None
        while True:
            try:
                batch = waiting.get_nowait()
            except queue.Empty:
                break
            for name in batch:
                worker = worker or _Worker(job, settings)
                answer, alive = worker.ask(name, seconds)
                if not alive:
                    worker.stop()
                    worker = None
                with lock:
                    answers[name] = answer
                    report(name, answer)
        if worker is not None:
            worker.stop()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


class _Worker:
    def __init__(self, job: Job, settings: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=_work, args=(far, job, settings), daemon=True)
        self.process.start()
        far.close()

    def ask(self, name: str, seconds: float) -> tuple[dict[str, Any], bool]:
        """Return the answer, and whether the process is still usable."""
        try:
            self.pipe.send(name)
            if not self.pipe.poll(seconds):
                return {"error": f"no answer within {seconds:.0f} s; the process was stopped"}, False
            answer, alive = self.pipe.recv()
            return answer, alive
        except (EOFError, OSError):
            self.process.join(5)
            return {"error": f"the process died with exit code {self.process.exitcode}"}, False

    def stop(self) -> None:
        self.pipe.close()
        self.process.join(3)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _work(pipe: Connection, job: Job, settings: dict[str, Any]) -> None:
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        alive = True
        try:
            answer = job(name, settings)
        except PoisonedProcess as error:
            answer, alive = {"error": _one_line(error)}, False
        except Exception as error:  # any failure is the answer of its job
            answer = {"error": _one_line(error)}
            if settings.get("traceback"):
                traceback.print_exc()
        pipe.send((answer, alive))
        if not alive:
            return


def _one_line(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 600 else text[:450] + " ... " + text[-140:]
