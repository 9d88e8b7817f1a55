"""The pool of workers: order, lost workers, errors, executors, and an interrupt from the keyboard."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

import bitwise_core as bitwise
from bitwise_core.checker.partition import partition
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.workers import worker_pool
from bitwise_core.checker.workers.worker_pool import Lost, WorkerFailed, WorkerPool
from bitwise_core.cli import app
from bitwise_core.execution.launch import Launch

FORK = multiprocessing.get_context("fork")


def state() -> list[int]:
    """The state of a worker: the jobs that it did."""
    return []


def square(done: list[int], job: int) -> tuple[int, int, int]:
    done.append(job)
    return job * job, len(done), os.getpid()


def die(folder: str, done: list[int], job: int) -> int:
    """Jobs above 100 end their process; job 50 ends the first process that does it."""
    if job > 100:
        os.kill(os.getpid(), signal.SIGKILL)
    if job == 50:
        marker = Path(folder, "marker")
        if not marker.exists():
            marker.write_text("")
            os._exit(3)
    return job * job


def fail(done: list[int], job: int) -> int:
    if job == 3:
        raise ValueError("the job 3 is wrong")
    return job


def in_turn(folder: str, done: list[int], job: int) -> int:
    """The job 0 takes as long as the others, of which the last one leaves a mark."""
    if job == 3:
        Path(folder, "marker").write_text("")
    while job == 0 and not Path(folder, "marker").exists():
        time.sleep(0.01)
    return job


def sleep(done: list[int], job: float) -> float:
    time.sleep(job)
    return job


def threads(done: list[int], job: int) -> list[str]:
    """Read a kernel, and return the lines about threads of this process."""
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    bitwise.partition([row_sum()], launch("a.ptx"), audit_contraction=False, workers=1, cache=False)
    with open("/proc/self/status", encoding="ascii") as file:
        return [line.split()[1] for line in file if line.startswith("Threads:")]


def results(pool: WorkerPool[list[int]], task: Callable[[list[int], Any], Any], jobs: list[Any]) -> list[Any]:
    found: dict[int, Any] = {}
    for position, result in pool.stream(task, jobs):
        assert position not in found
        found[position] = result
    return [found[position] for position in range(len(jobs))]


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_job_is_done_once(count: int) -> None:
    with WorkerPool(state, count, 20) as pool:
        found = results(pool, square, list(range(20)))
        again = results(pool, square, list(range(5)))
    assert [each[0] for each in found] == [job * job for job in range(20)]
    assert len({each[2] for each in found}) <= count
    assert (os.getpid() in {each[2] for each in found}) == (count == 1)
    # The states persist: every process counts its jobs.
    assert max(each[1] for each in again) > 1


def test_the_most_expensive_jobs_are_started_first() -> None:
    for count in (1, 2):
        with WorkerPool(state, count, 6) as pool:
            order = [position for position, _ in pool.stream(square, range(6), [1, 5, 3, 6, 2, 4])]
        if count == 1:
            assert order == [3, 1, 5, 2, 4, 0]
        assert sorted(order) == list(range(6))
        assert set(order[:2]) <= {3, 1, 5}


def test_results_arrive_when_they_are_done(tmp_path: Path) -> None:
    with WorkerPool(state, 2, 4, time_limit=60.0) as pool:
        order = [position for position, _ in pool.stream(partial(in_turn, str(tmp_path)), range(4))]
    assert order[:2] == [1, 2]
    assert set(order[2:]) == {0, 3}


def test_processes_start_when_there_is_a_job() -> None:
    before = len(multiprocessing.active_children())
    with WorkerPool(state, 4, 4) as pool:
        assert results(pool, square, []) == []
        assert len(multiprocessing.active_children()) == before
        results(pool, square, [1])
        assert len(multiprocessing.active_children()) == before + 1


def test_a_worker_that_dies_loses_its_job_alone(tmp_path: Path) -> None:
    with WorkerPool(state, 2, 6) as pool:
        found = results(pool, partial(die, str(tmp_path)), [1, 101, 2, 102, 3, 4])
    assert [found[place] for place in (0, 2, 4, 5)] == [1, 4, 9, 16]
    assert isinstance(found[1], Lost)
    assert found[1].reason == (
        "its worker process was ended by the signal SIGKILL without a result in 2 attempts, most likely for lack of "
        "memory"
    )
    assert found[3] == found[1]


def test_a_job_whose_worker_died_is_given_to_another_worker(tmp_path: Path) -> None:
    with WorkerPool(state, 2, 6) as pool:
        assert results(pool, partial(die, str(tmp_path)), [1, 50, 2, 3]) == [1, 2500, 4, 9]
    assert (tmp_path / "marker").exists()


def test_an_exception_of_a_job_is_raised() -> None:
    with pytest.raises(WorkerFailed, match="ValueError: the job 3 is wrong"), WorkerPool(state, 2, 6) as pool:
        results(pool, fail, list(range(6)))
    with pytest.raises(ValueError, match="the job 3 is wrong"), WorkerPool(state, 1, 6) as pool:
        results(pool, fail, list(range(6)))


def test_a_worker_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_GRACE", 1.0)
    start = time.monotonic()
    with WorkerPool(state, 2, 3, time_limit=1.0) as pool:
        found = results(pool, sleep, [60.0, 0.0, 0.01])
    assert found[1:] == [0.0, 0.01]
    assert isinstance(found[0], Lost)
    assert found[0].reason.startswith("the time limit of 1 s for one kernel passed; the option --time-limit")
    assert time.monotonic() - start < 30


def test_a_worker_runs_one_thread() -> None:
    with WorkerPool(state, 2, 2) as pool:
        assert results(pool, threads, [0, 1]) == [["1"], ["1"]]


# -- executors ---------------------------------------------------------------------------------------------------------


class LossyExecutor(Executor):
    """A process for each job, of which the given ones end without a result."""

    def __init__(self, lost: set[int]) -> None:
        self.lost, self.submitted = lost, 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            number, self.submitted = self.submitted, self.submitted + 1

        def run() -> None:
            own, its = FORK.Pipe()
            process = FORK.Process(target=self._run, args=(its, number in self.lost, call, arguments))
            process.start()
            its.close()
            try:
                answer = own.recv()
            except EOFError:
                answer = None
            process.join()
            if answer is None:
                future.set_exception(ConnectionError("the worker was lost"))
            else:
                future.set_result(answer)

        threading.Thread(target=run).start()
        return future

    @staticmethod
    def _run(connection: Any, lost: bool, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if lost:
            os._exit(1)
        connection.send(call(*arguments))


def test_a_job_of_a_lost_worker_of_an_executor_is_submitted_again() -> None:
    executor = LossyExecutor({1, 4})
    with WorkerPool(state, None, 6, executor=executor) as pool:
        found = results(pool, square, list(range(6)))
    assert [each[0] for each in found] == [0, 1, 4, 9, 16, 25]
    assert executor.submitted == 8


def test_a_job_that_is_always_lost_has_a_reason() -> None:
    executor = LossyExecutor(set(range(100)))
    with WorkerPool(state, None, 1, executor=executor) as pool:
        assert results(pool, square, [1]) == [
            Lost("the executor has no result of it after 3 attempts (ConnectionError: the worker was lost)")
        ]
    assert executor.submitted == 3


@pytest.mark.parametrize(
    "make", [partial(ThreadPoolExecutor, 3), partial(ProcessPoolExecutor, 2, FORK)], ids=["threads", "processes"]
)
def test_an_executor_does_each_job_once(make: Callable[[], Executor]) -> None:
    with make() as executor, WorkerPool(state, None, 20, executor=executor) as pool:
        assert [each[0] for each in results(pool, square, list(range(20)))] == [job * job for job in range(20)]
        with pytest.raises(WorkerFailed, match="the job 3 is wrong"):
            results(pool, fail, list(range(6)))


def test_a_broken_executor_has_reasons_and_no_traceback(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, FORK) as executor, WorkerPool(state, None, 4, executor=executor) as pool:
        found = results(pool, partial(die, str(tmp_path)), [1, 101, 2, 3])
    assert isinstance(found[1], Lost)
    assert found[1].reason.startswith("the executor has no result of it after ")
    assert all(each == job * job or isinstance(each, Lost) for each, job in zip(found, [1, 101, 2, 3], strict=True))


TEXTS: dict[str, str | bytes] = {
    "a.ptx": row_sum(), "b.ptx": row_sum(swapped=True), "c.ptx": row_sum(neighbours=True)
}  # fmt: skip
LAUNCHES = [launch(name) for name in TEXTS]


def sources() -> list[Source]:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    return [Source(name, str(TEXTS[name]), Launch.model_validate(launch(name))) for name in TEXTS]


def test_a_partition_on_an_executor_that_loses_a_worker() -> None:
    found = partition(sources(), "sm_90", Options(audit_contraction=False), executor=LossyExecutor({1}))
    assert found.classes == (("a.ptx", "b.ptx"), ("c.ptx",))
    assert found.unknown == {}


def test_a_partition_by_the_public_function_on_an_executor() -> None:
    with ThreadPoolExecutor(2) as executor:
        found = bitwise.partition(sources(), executor=executor, audit_contraction=False)
    assert found.classes == (("a.ptx", "b.ptx"), ("c.ptx",))


def test_a_worker_of_other_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["this environment", "another environment"])
    monkeypatch.setattr("bitwise_core.checker.kernel_readings.environment", lambda: next(names))
    with ThreadPoolExecutor(1) as executor, pytest.raises(bitwise.BitwiseError, match="runs another version of bitw"):
        partition(sources()[:1], "sm_90", Options(audit_contraction=False), executor=executor)


def test_kernels_of_lost_workers_are_unknown() -> None:
    executor = LossyExecutor(set(range(100)))
    found = partition(sources()[:1], "sm_90", Options(audit_contraction=False), executor=executor)
    assert found.classes == (("a.ptx",),)
    assert found.unknown["a.ptx"].startswith("the executor has no result of it")


def test_without_dask_the_option_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources()
    monkeypatch.setitem(sys.modules, "distributed", None)
    folder = write(tmp_path, TEXTS, LAUNCHES)
    done = CliRunner().invoke(app, ["partition", str(folder), "--scheduler", "tcp://localhost:8786"])
    assert (done.exit_code, done.stderr) == (
        2,
        "bitwise: --scheduler tcp://localhost:8786: dask.distributed is not installed: "
        "pip install 'bitwise-core[distributed]'\n",
    )


# -- an interrupt ------------------------------------------------------------------------------------------------------

LOOP = """mov.u32 %r8, 0;
AGAIN:
add.u32 %r8, %r8, 1;
setp.lt.u32 %p2, %r8, 2000000;
@%p2 bra AGAIN;
.loc 1 6 0
"""


def cpu_seconds_of_group(group: int) -> float:
    """Return the CPU time that the processes of a group have used."""
    used = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            used += sum(map(int, fields[11:13])) if int(fields[2]) == group else 0
    return used / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupt_ends_the_command(tmp_path: Path, workers: str) -> None:
    sources()
    slow = row_sum().replace(".loc 1 6 0\n", LOOP)
    other = slow.replace("2000000", "2000001")
    folder = write(tmp_path, {"a.ptx": slow, "b.ptx": other}, [launch("a.ptx"), launch("b.ptx")])
    # A background job of a shell ignores interrupts, and its children do.
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", script + "from bitwise_core.cli import main; main()"]
    command += ["partition", str(folder), "--workers", workers, "--time-limit", "0", "--no-cache"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while cpu_seconds_of_group(process.pid) < 1.2:  # it takes less than half of this to start
        assert process.poll() is None
        time.sleep(0.05)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")
    assert time.monotonic() - start < 40
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_an_interrupt_waits_until_a_worker_is_started() -> None:
    """A worker does not inherit an interrupt that came before it ignores interrupts."""
    reached = []

    def start_a_worker() -> None:
        with worker_pool._without_interrupts():
            signal.raise_signal(signal.SIGINT)
            reached.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start_a_worker()
    finally:
        signal.signal(signal.SIGINT, before)
    assert [signal.SIGINT in mask for mask in reached] == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    sources()
    folder = write(tmp_path, TEXTS, LAUNCHES)
    script = f"""
import os, signal
from bitwise_core.checker import partition as p
from bitwise_core.checker.workers import worker_pool as w
from bitwise_core.api import partition
def killed(*arguments):
    print([each.process.pid for each in arguments[0]._workers], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
w.WorkerPool._wait = killed
partition({str(folder)!r}, workers=2, cache=False)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    workers = json.loads(done.stdout)
    assert len(workers) == 2
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}/cmdline").exists() for pid in workers):
        time.sleep(0.1)
    assert not [pid for pid in workers if Path(f"/proc/{pid}/cmdline").exists()]
