"""Readings by the workers of a dask scheduler: a local cluster of processes, one of which is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_texts import launch, row_sum, write

pytest.importorskip("distributed", reason="needs dask.distributed")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

# After a line of input the first worker that has a kernel is killed.  A nanny starts another one in its place.
CLUSTER = """
import os, signal, sys, time
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        print(cluster.scheduler_address, flush=True)
        pids = client.run(os.getpid)
        if sys.stdin.readline():
            while not (busy := [worker for worker, keys in client.processing().items() if keys]):
                time.sleep(0.05)
            time.sleep(0.5)
            os.kill(pids[busy[0]], signal.SIGKILL)
            print("killed", flush=True)
            sys.stdin.read()
"""

# About a second of reading, after the import of the package.
LOOP = """mov.u32 %r8, 0;
AGAIN:
add.u32 %r8, %r8, 1;
setp.lt.u32 %p2, %r8, 20000;
@%p2 bra AGAIN;
.loc 1 6 0
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A scheduler with two workers.  Its first line of output is its address."""
    script = tmp_path_factory.mktemp("cluster") / "cluster.py"
    script.write_text(CLUSTER)
    # The workers are forked from a process that has imported the library.
    environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver"}
    with subprocess.Popen(
        [sys.executable, str(script)], env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        yield process
        process.communicate(timeout=60)


def bitwise(*arguments: str, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    """Run the command, which waits some seconds for a scheduler."""
    script = "from bitwise_core.checker.workers import executors; from bitwise_core.cli import main; "
    script += f"executors._SECONDS_TO_CONNECT = {seconds}; main()"
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def kernels(folder: Path, loop: str) -> Path:
    texts: dict[str, str | bytes] = {
        name: row_sum(**how).replace(".loc 1 6 0\n", loop)
        for name, how in {"a.ptx": {}, "b.ptx": {"swapped": True}, "c.ptx": {"neighbours": True}}.items()
    }
    folder.mkdir()
    write(folder, texts, [launch(name) for name in texts])
    return folder


def test_a_scheduler_reads_kernels_and_survives_the_loss_of_a_worker(
    tmp_path: Path, cluster: subprocess.Popen[str]
) -> None:
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    address = cluster.stdout.readline().strip()
    folder = kernels(tmp_path / "short", ".loc 1 6 0\n")
    done = bitwise("determinism", str(folder), "--scheduler", address, "--no-cache", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [each["outcome"] for each in json.loads(done.stdout)["kernels"]] == ["deterministic"] * 3

    folder = kernels(tmp_path / "long", LOOP)
    cluster.stdin.write("kill\n")
    cluster.stdin.flush()
    done = bitwise("partition", str(folder), "--scheduler", address, "--no-cache", "--json")
    assert cluster.stdout.readline() == "killed\n"
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["classes"], found["unknown"]) == ([["a.ptx", "b.ptx"], ["c.ptx"]], {})


def test_a_scheduler_that_does_not_answer(tmp_path: Path) -> None:
    folder = kernels(tmp_path / "kernels", ".loc 1 6 0\n")
    done = bitwise("partition", str(folder), "--scheduler", "tcp://127.0.0.1:1", "--no-cache", seconds=1)
    assert done.returncode == 2
    assert done.stderr.startswith("bitwise: --scheduler tcp://127.0.0.1:1: the scheduler does not answer")
    assert "Traceback" not in done.stderr
