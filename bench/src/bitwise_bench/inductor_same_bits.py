"""Bytes and time of compiled models that TorchInductor tunes freely, and inside `same_bits`.

    python -m bitwise_bench.inductor_same_bits --record records/inductor-same-bits.json

A GPU is needed.  Each model is compiled, tuned and trained for one step in processes of their own with empty caches.
They tune side by side; when all have tuned, each measures its steps alone.  The record holds the digests of outputs and
gradients, what the proofs kept and dropped, and where the time of a step goes:

- step seconds: the median of steps that are waited for;
- host seconds: the time in which a step is issued, without waiting;
- GPU seconds: the sum of the kernels' times, and the kernels that take the most of it.

Of the modes, "free" and "same bits" are compared.  The others say where a difference comes from: "free library" is free
tuning whose products are calls of the library, and "same bits triton" is `same_bits(templates="triton")`.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment

MODELS = ("transformer block", "mlp")
MODES = ("free", "same bits", "free library", "same bits triton")
_STEPS, _BURST, _PROFILED = 200, 10, 5
_TOP = 10
_MEETING = "BITWISE_BENCH_MEETING"
"""The variable with the number of processes, the time until which they wait for each other, and a folder."""
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_MEASURE = 60


@dataclass(frozen=True)
class _Job:
    model: str
    mode: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or measure one model in this process."""
    parser = command_parser("inductor_same_bits", __doc__)
    parser.add_argument("--record", type=Path, help="write the result here, as JSON")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="by default all")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES[:2], help="by default the first two")
    parser.add_argument("--repeats", type=int, default=2, help="processes for each model and mode (default 2)")
    parser.add_argument("--free-repeats", type=int, help="processes of the free modes instead")
    parser.add_argument("--seconds", type=float, default=900.0, help="end after this time, with what is measured then")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "MODE"), help="measure in this process and print JSON")
    chosen = parser.parse_args(arguments)
    if chosen.one:
        print(json.dumps(_measured(_Job(*chosen.one))))
        return 0
    free = chosen.repeats if chosen.free_repeats is None else chosen.free_repeats
    jobs = [
        _Job(model, mode)
        for mode in chosen.modes
        for model in chosen.models
        for _ in range(free if mode.startswith("free") else chosen.repeats)
    ]
    found, missing = _side_by_side(jobs, time.time() + chosen.seconds)
    record = {"environment": {**analysis_environment(), **_gpu()}, "runs": found, "unfinished": missing}
    if chosen.record is not None:
        chosen.record.write_text(json.dumps(record, indent=1) + "\n")
    print(summary(record))
    return 1 if missing or any(_digests(record, model, "same bits") > 1 for model in chosen.models) else 0


def summary(record: dict[str, Any]) -> str:
    """Return digests, times and the most expensive kernels by model, as text."""
    lines = []
    for model in MODELS:
        times = {}
        for mode in MODES:
            runs = [run for run in record["runs"] if (run["model"], run["mode"]) == (model, mode)]
            if not runs:
                continue
            times[mode] = statistics.median(run["step seconds"] for run in runs)
            host, gpu, tuning, proof = (
                statistics.median(run[name] for run in runs)
                for name in ("host seconds", "GPU seconds", "tuning seconds", "proof seconds")
            )
            steps = ", ".join(f"{1000 * run['step seconds']:.3f}" for run in runs)
            lines.append(
                f"{model}, {mode}: {_digests(record, model, mode)} byte patterns in {len(runs)} processes; "
                f"a step takes {1000 * times[mode]:.3f} ms ({steps}), host {1000 * host:.3f} ms, "
                f"kernels {1000 * gpu:.3f} ms; {runs[0]['launchers']}; "
                f"tuned in {tuning:.0f} s, proofs {proof:.0f} s"
            )
            lines += [
                f"    {1e6 * one['seconds']:8.1f} us in {one['launches']:g} launches: {one['kernel'][:110]}"
                for one in runs[0]["kernels"][:_TOP]
            ]
        if {"free", "same bits"} <= times.keys():
            lines.append(f"{model}: same bits takes {times['same bits'] / times['free']:.3f} of the free time")
    lines += [f"{each['model']}, {each['mode']} has no result: {each['reason']}" for each in record["unfinished"]]
    return "\n".join(lines)


def _digests(record: dict[str, Any], model: str, mode: str) -> int:
    return len({run["digest"] for run in record["runs"] if (run["model"], run["mode"]) == (model, mode)})


def _side_by_side(jobs: Sequence[_Job], end: float) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Run each job in a process of its own, all at once.  Returns the results, and the jobs without one at `end`."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder, "meeting")
        meeting.mkdir()
        command = [sys.executable, "-m", "bitwise_bench.inductor_same_bits", "--one"]
        processes = []
        for number, job in enumerate(jobs):
            own = Path(folder, str(number))
            own.mkdir()
            environment = {
                **os.environ,
                "TORCHINDUCTOR_CACHE_DIR": f"{own}/inductor",
                "TRITON_CACHE_DIR": f"{own}/triton",
                "TORCHINDUCTOR_COMPILE_THREADS": str(_compilers(job, jobs)),
                _MEETING: f"{len(jobs)} {end - _SECONDS_TO_MEASURE} {meeting}",
            }
            with open(own / "output", "w") as output, open(own / "errors", "w") as errors:
                one = subprocess.Popen([*command, job.model, job.mode], env=environment, stdout=output, stderr=errors)
                processes.append(one)
        while any(each.poll() is None for each in processes):
            if time.time() > end:
                for each in processes:
                    each.kill()
            for number, each in enumerate(processes):
                if each.poll():  # nobody waits for a process that failed
                    (meeting / f"tuned-{number}-failed").touch()
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        found, missing = [], []
        for number, (job, process) in enumerate(zip(jobs, processes, strict=True)):
            named = {"model": job.model, "mode": job.mode}
            if process.returncode == 0:
                output_text = Path(folder, str(number), "output").read_text()
                found.append({**named, **json.loads(output_text.strip().splitlines()[-1])})
                continue
            errors_text = Path(folder, str(number), "errors").read_text().strip()
            missing.append({**named, "reason": errors_text[-3000:] if process.returncode > 0 else "no time was left"})
    return found, missing


def _compilers(job: _Job, jobs: Sequence[_Job]) -> int:
    """Return the number of compilers of a job: those that compile templates get most of the cores."""
    many = [each for each in jobs if _has_templates(each)]
    cores = os.cpu_count() or 1
    return max(2, cores // len(many)) if _has_templates(job) else 2


def _has_templates(job: _Job) -> bool:
    return job.mode in ("free", "same bits triton")


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until all processes of the meeting have tuned, or its time is over, and until no other one measures."""
    count, end, folder = os.environ.get(_MEETING, "1 0 ").split(" ", 2)
    if not folder:
        yield
        return
    Path(folder, f"tuned-{os.getpid()}").touch()
    while len(list(Path(folder).glob("tuned-*"))) < int(count) and time.time() < float(end):
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    with open(Path(folder, "measuring"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _gpu() -> dict[str, str]:
    import torch

    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}


def _measured(job: _Job) -> dict[str, Any]:
    """Compile and tune a model, and return the digest of a step's results and the times of a step."""
    import torch
    import torch._inductor.config as inductor_config

    from bitwise_triton.inductor import same_bits

    torch.manual_seed(7)
    network, batch = _block(torch) if job.model == MODELS[0] else _mlp(torch)
    reports: Any = []
    if job.mode == "free library":
        inductor_config.max_autotune_gemm_backends = "ATEN"
    elif job.mode != "free":
        reports = same_bits(templates="triton" if job.mode.endswith("triton") else "library").enable()
    compiled = torch.compile(network, mode="max-autotune-no-cudagraphs")
    start = time.perf_counter()
    digest = _step(torch, network, compiled, batch)
    tuning = time.perf_counter() - start
    again = _step(torch, network, compiled, batch)
    if again != digest:
        raise RuntimeError(
            "two steps of one process return different bytes: an operation of the model is not determined"
        )

    def step() -> None:
        compiled(batch).float().square().mean().backward()

    with _alone():
        return {
            "digest": digest,
            "launchers": _launchers(),
            **_times(torch, step),
            "tuning seconds": tuning,
            "proof seconds": sum(each.seconds for each in reports),
            "kernels tuned": len(reports),
            "kept": sum(len(each.kept) for each in reports),
            "references": sorted({(each.kernel, each.reference) for each in reports}),
            "dropped": [
                [each.kernel, one.configuration, one.outcome, one.reason[:200]]
                for each in reports
                for one in each.dropped
            ],
        }


def _launchers() -> dict[str, int]:
    """Return how many tuned kernels there are, how many are launched directly, and how many statically."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    tuned = [each for each in gc.get_objects() if type(each) is CachingAutotuner and len(each.launchers) == 1]
    direct = [vars(each)["_bitwise_tuned"].direct.launchers.values() for each in tuned if "run" in vars(each)]
    final = [*(one for launchers in direct for one in launchers), *(each.launchers[0] for each in tuned)]
    static = sum(getattr(each, "_is_static", False) for each in final)
    return {"kernels": len(tuned), "direct": len(direct), "static": static}


def _times(torch: Any, step: Callable[[], None]) -> dict[str, Any]:
    """Return the seconds of a step, of issuing it, and of its kernels on the GPU."""

    def waited(count: int) -> tuple[float, float]:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            step()
        issued = time.perf_counter() - start
        torch.cuda.synchronize()
        return issued / count, (time.perf_counter() - start) / count

    for _ in range(_BURST):
        step()
    steps = [waited(1)[1] for _ in range(_STEPS)]
    bursts = [waited(_BURST) for _ in range(_STEPS // _BURST)]
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        waited(_PROFILED)
    kernels = [
        {
            "kernel": each.key,
            "seconds": each.self_device_time_total / 1e6 / _PROFILED,
            "launches": each.count / _PROFILED,
        }
        for each in profile.key_averages()
        if each.self_device_time_total > 0
    ]
    kernels.sort(key=lambda each: -each["seconds"])
    return {
        "step seconds": statistics.median(steps),
        "host seconds": statistics.median(issued for issued, _ in bursts),
        "pipelined step seconds": statistics.median(all_of for _, all_of in bursts),
        "GPU seconds": sum(each["seconds"] for each in kernels),
        "kernels": kernels,
    }


def _step(torch: Any, network: Any, compiled: Any, batch: Any) -> str:
    """Return the digest of the outputs and of every gradient of a training step."""
    network.zero_grad()
    batch.grad = None
    output = compiled(batch)
    output.float().square().mean().backward()
    hasher = hashlib.sha256()
    for tensor in (output, batch.grad, *(each.grad for each in network.parameters())):
        hasher.update(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return hasher.hexdigest()


def _block(torch: Any) -> tuple[Any, Any]:
    """Return a transformer block in bf16, and its input: 8 sequences of 512 tokens of width 1,024."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 1024, heads: int = 16) -> None:
            super().__init__()
            self.heads = heads
            self.before, self.between = nn.LayerNorm(width), nn.RMSNorm(width)
            self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.gate, self.down = (nn.Linear(*each) for each in ((width, 2816), (width, 2816), (2816, width)))

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.projections(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            scores = (parts[0] @ parts[1].transpose(-1, -2)) * (width // self.heads) ** -0.5
            weights = torch.softmax(scores.float(), -1).to(x.dtype)
            mixed = (weights @ parts[2]).transpose(1, 2).reshape(batch, length, width)
            x = x + self.out(mixed)
            y = self.between(x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    network = Block().cuda().bfloat16()
    return network, torch.randn(8, 512, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def _mlp(torch: Any) -> tuple[Any, Any]:
    """Return a network of three layers in bf16 with norms and GELU, and its input of 4,096 rows."""
    nn = torch.nn
    layers: list[Any] = []
    for _ in range(3):
        layers += [nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)]
    network = nn.Sequential(*layers, nn.Softmax(-1)).cuda().bfloat16()
    return network, torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)


if __name__ == "__main__":
    sys.exit(main())
