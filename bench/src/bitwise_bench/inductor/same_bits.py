"""Bytes and time of compiled models that TorchInductor tunes freely, and inside `same_bits`.

    python -m bitwise_bench.inductor.same_bits --record records/inductor-tuned-models-sm90-h200.json

A GPU is needed.  Each model is compiled, tuned and run for one step in processes of their own with empty caches.
They tune side by side.  When all have tuned they measure in turns, one process at a time, round after round, so that
what slows the machine for a while slows every mode.  Each stage is printed when it ends, and the record is written
again then, so that a run that is cut keeps what it has.  The record holds the digests of outputs and gradients, what
the proofs kept and dropped, the configurations that were chosen, and for each round:

- step seconds: the median of steps that are waited for;
- host seconds: the time in which a step is issued, without waiting.  A step that takes hardly longer is host-bound: its
  time says nothing about kernels;
- GPU seconds: the sum of the kernels' times;
- graph seconds: a step as a CUDA graph, launch by launch the same, which no host slows.

A ratio between two modes is the median over the rounds, each with the times of that round.

Of the modes, "free" and "same bits" are compared.  The others say where a difference comes from: "free library" is free
tuning whose products are calls of the library, "same bits triton" is `same_bits(templates="triton")`, and "same bits
unpinned" is `same_bits(order=None)`.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_bench.inductor.models import MODELS, OPEN, built

MODES = ("free", "same bits", "free library", "same bits triton", "same bits unpinned")
_STEPS, _BURST, _PROFILED, _REPLAYS = 40, 10, 5, 50
"""Steps of a round: those waited for, those of each of four bursts, those profiled, and those as a graph."""
_TOP = 10
_HOST_BOUND = 0.9
"""The part of a step's time from which on issuing it decides its time."""
_SECONDS_TO_MEASURE = 25
_SECONDS_OF_A_TURN = 4
"""With less time left, no process is asked to measure: it keeps what it has measured."""
_TIMES = ("step seconds", "host seconds", "pipelined step seconds", "GPU seconds", "graph seconds")
_COMPARED = ("step seconds", "GPU seconds", "graph seconds")


@dataclass(frozen=True)
class _Job:
    model: str
    mode: str
    template_configurations: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or measure one model in this process."""
    parser = command_parser("inductor.same_bits", __doc__)
    parser.add_argument("--record", type=Path, help="write the result here, as JSON")
    parser.add_argument(
        "--models", nargs="+", choices=tuple(MODELS), default=tuple(OPEN), help="default: the open ones"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES[:2], help="by default the first two")
    parser.add_argument("--repeats", type=int, default=2, help="processes for each model and mode (default 2)")
    parser.add_argument("--free-repeats", type=int, help="processes of the free modes instead")
    parser.add_argument("--seconds", type=float, default=900.0, help="end after this time, with what is measured then")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each process to measure (default 5)")
    parser.add_argument(
        "--template-configurations", type=int, metavar="N", help="configurations of a product's template (default all)"
    )
    parser.add_argument(
        "--caches",
        type=Path,
        metavar="FOLDER",
        help="caches that another call finds (default: empty ones)",
    )
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep what the processes print, proofs as they end")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "MODE"), help="measure in this process, as asked on stdin")
    chosen = parser.parse_args(arguments)
    if chosen.one:
        model, mode = chosen.one
        _serve(_Job(model, mode, chosen.template_configurations))
        return 0
    free = chosen.repeats if chosen.free_repeats is None else chosen.free_repeats
    jobs = [
        _Job(model, mode, chosen.template_configurations)
        for mode in chosen.modes
        for model in chosen.models
        for _ in range(free if mode.startswith("free") else chosen.repeats)
    ]
    environment = {**analysis_environment(), **_gpu()}
    record: dict[str, Any] = {}

    def keep(found: Sequence[dict[str, Any]], missing: Sequence[dict[str, str]]) -> None:
        record.update({"environment": environment, "runs": list(found), "unfinished": list(missing)})
        record["template configurations"] = chosen.template_configurations
        if chosen.record is not None:
            chosen.record.write_text(json.dumps(record, indent=1) + "\n")

    _side_by_side(jobs, chosen.rounds, time.time() + chosen.seconds, keep, chosen.logs, chosen.caches)
    print(summary(record))
    return 1 if record["unfinished"] or any(_digests(record, model, "same bits") > 1 for model in chosen.models) else 0


def summary(record: dict[str, Any]) -> str:
    """Return digests, times, ratios and the most expensive kernels by model, as text."""
    lines = []
    for model in MODELS:
        by_mode: dict[str, list[dict[str, Any]]] = {}
        for run in record["runs"]:
            if run["model"] == model:
                by_mode.setdefault(run["mode"], []).append(run)
        for mode in filter(by_mode.__contains__, MODES):
            runs = by_mode[mode]
            tuning, proof = (
                statistics.median(run[name] for run in runs) for name in ("tuning seconds", "proof seconds")
            )
            lines.append(
                f"{model}, {mode}: {_digests(record, model, mode)} byte patterns in {len(runs)} processes; "
                f"{runs[0]['launchers']}; tuned in {tuning:.0f} s, proofs {proof:.0f} s"
            )
            for name in _TIMES:
                medians = [statistics.median(run[name]) for run in runs if run[name]]
                if medians:
                    lines.append(f"    {name}: {', '.join(f'{1000 * each:.3f}' for each in medians)} ms")
            steps, hosts = ([time for run in runs for time in run[name]] for name in ("step seconds", "host seconds"))
            if steps and statistics.median(hosts) >= _HOST_BOUND * statistics.median(steps):
                lines.append("    steps are host-bound")
            lines += [f"    no graph: {run['graph error']}" for run in runs if run["graph error"]]
            lines += [
                f"    {1e6 * one['seconds']:8.1f} us in {one['launches']:g} launches: {one['kernel'][:110]}"
                for one in runs[0]["kernels"][:_TOP]
            ]
        if {"free", "same bits"} <= by_mode.keys():
            for name in _COMPARED:
                ratios = rounds_ratio(by_mode["same bits"], by_mode["free"], name)
                if ratios:
                    lines.append(
                        f"{model}: same bits takes {statistics.median(ratios):.3f} of the free {name} "
                        f"({min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} rounds)"
                        + _noise(by_mode["free"], name)
                    )
    lines += [f"{each['model']}, {each['mode']} has no result: {each['reason']}" for each in record["unfinished"]]
    return "\n".join(lines)


def _noise(free: Sequence[dict[str, Any]], name: str) -> str:
    """Return the ratio of a second free run to the first one, as text."""
    ratios = rounds_ratio(free[1:2], free[:1], name) if len(free) > 1 else []
    return f"; another free run takes {statistics.median(ratios):.3f} of the first" if ratios else ""


def rounds_ratio(runs: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]], name: str) -> list[float]:
    """Return for each round that all have measured the median time of the runs by that of the others."""
    rounds = min(len(run[name]) for run in (*runs, *others))
    return [
        statistics.median(run[name][place] for run in runs) / statistics.median(run[name][place] for run in others)
        for place in range(rounds)
    ]


def _digests(record: dict[str, Any], model: str, mode: str) -> int:
    return len({run["digest"] for run in record["runs"] if (run["model"], run["mode"]) == (model, mode)})


@dataclass
class _Process:
    """A job in a process of its own, which tunes and then measures as often as it is asked to."""

    job: _Job
    folder: Path
    process: subprocess.Popen[bytes]
    result: dict[str, Any] | None = None

    @property
    def named(self) -> dict[str, str]:
        return {"model": self.job.model, "mode": self.job.mode}

    def answer(self, end: float) -> dict[str, Any] | None:
        """Return the next answer, None for a process that has failed or has none at `end`: it is ended then."""
        ready = _ready([self], end)
        assert self.process.stdout is not None
        line = self.process.stdout.readline() if ready else b""
        if line.endswith(b"\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        if not ready:
            self.process.kill()
        self.process.wait()
        self.result = None
        return None

    def ask(self, question: str, end: float) -> dict[str, Any] | None:
        """Return the answer to a question of `_serve`, None as `answer` does."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # there is no answer then
            self.process.stdin.write(f"{question}\n".encode())
        return self.answer(end)

    def reason(self) -> str:
        """Return why there is no result."""
        if self.process.returncode is None or self.process.returncode < 0:
            return "no time was left"
        return (self.folder / "errors").read_text().strip()[-3000:]


def _ready(processes: Sequence[_Process], end: float) -> list[_Process]:
    """Return the processes that have an answer or have ended, once there is one, or none at `end`."""
    by_output = {each.process.stdout: each for each in processes if each.process.stdout is not None}
    found, _, _ = select.select(list(by_output), [], [], max(0.0, end - time.time()))
    return [by_output[each] for each in found]


def _side_by_side(
    jobs: Sequence[_Job],
    rounds: int,
    end: float,
    keep: Callable[[Sequence[dict[str, Any]], Sequence[dict[str, str]]], None],
    logs: Path | None,
    kept_caches: Path | None = None,
) -> None:
    """Tune each job in a process of its own, all at once, and measure them in turns.

    After each stage `keep` gets the results, and the jobs without one.
    """
    with ExitStack() as stack:
        caches = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = caches if logs is None else logs
        caches = caches if kept_caches is None else kept_caches
        folder.mkdir(parents=True, exist_ok=True)
        began = time.time()

        def stage(what: str) -> None:
            keep(
                [{**each.named, **each.result} for each in processes if each.result is not None],
                [{**each.named, "reason": each.reason()} for each in processes if each.result is None],
            )
            print(f"{time.time() - began:6.1f} s: {what}", flush=True)

        # Those that tune for the longest time start first.
        ordered = sorted(jobs, key=lambda job: not _has_templates(job))
        processes = [
            _started(job, jobs, folder / str(number), caches / str(number)) for number, job in enumerate(ordered)
        ]
        for each in processes:
            stack.enter_context(each.process)
            stack.callback(each.process.kill)
        tuning = list(processes)
        while tuning:
            ready = _ready(tuning, end - _SECONDS_TO_MEASURE) or tuning
            for each in ready:
                each.result = each.answer(end - _SECONDS_TO_MEASURE)
                tuning.remove(each)
                said = each.reason() if each.result is None else _tuning_in_words(each.result)
                stage(f"{each.job.model}, {each.job.mode}: {said}")
        in_turns = sorted(processes, key=lambda each: each.job.model)
        for question in _QUESTIONS:
            for number in range(rounds):
                for each in in_turns:
                    if each.result is None or time.time() > end - _SECONDS_OF_A_TURN:
                        continue
                    found = each.ask(question, end)
                    if found is not None:
                        _add(each.result, found)
                stage(f"{question}, turn {number + 1}")


def _tuning_in_words(result: dict[str, Any]) -> str:
    return (
        f"digest {result['digest'][:12]}, tuned in {result['tuning seconds']:.1f} s, "
        f"proofs {result['proof seconds']:.1f} s for {result['kernels tuned']} choices"
    )


def _started(job: _Job, jobs: Sequence[_Job], folder: Path, caches: Path) -> _Process:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "bitwise_bench.inductor.same_bits", "--one", job.model, job.mode]
    if job.template_configurations is not None:
        command += ["--template-configurations", str(job.template_configurations)]
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "TRITON_CACHE_DIR": f"{caches}/triton",
        "TORCHINDUCTOR_COMPILE_THREADS": str(_compilers(job, jobs)),
    }
    with open(folder / "errors", "wb") as errors:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
        )
    return _Process(job, folder, process)


def _add(result: dict[str, Any], found: dict[str, Any]) -> None:
    """Add the times of a round; what else is found replaces what an earlier round found."""
    for name, value in found.items():
        if name in _TIMES:
            result[name].append(value)
        else:
            result[name] = value


def _compilers(job: _Job, jobs: Sequence[_Job]) -> int:
    """Return the number of compilers of a job: those that compile templates get most of the cores."""
    many = [each for each in jobs if _has_templates(each)]
    cores = len(os.sched_getaffinity(0))
    return max(2, cores // len(many)) if _has_templates(job) else 4


def _has_templates(job: _Job) -> bool:
    return job.mode in ("free", "same bits triton")


def _gpu() -> dict[str, str]:
    import torch

    from bitwise_bench.attention.timing import driver_version

    return {"gpu": torch.cuda.get_device_name(), "driver": driver_version(), "torch": torch.__version__}


def _serve(job: _Job) -> None:
    """Tune a model in this process, then answer the questions on stdin, each with one line of JSON on stdout."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what libraries print is no answer
        result, step = _tuned(job)
        _say(answers, result)
        graph: list[Any] = []
        for line in sys.stdin:
            _say(answers, _QUESTIONS[line.strip()](step, graph))


def _say(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _tuned(job: _Job) -> tuple[dict[str, Any], Callable[[], None]]:
    """Compile and tune a model.  Returns the digest of a step's results with the choices, and the step."""
    import torch
    import torch._inductor.config as inductor_config

    from bitwise_triton.inductor import same_bits

    torch.manual_seed(7)
    torch.backends.cudnn.deterministic = True
    workload = built(torch, job.model)
    reports: Any = []
    if job.template_configurations is not None:
        inductor_config.test_configs.max_mm_configs = job.template_configurations
    if job.mode == "free library":
        inductor_config.max_autotune_gemm_backends = "ATEN"
    elif job.mode != "free":
        templates: Any = "triton" if job.mode.endswith("triton") else "library"
        order = None if job.mode.endswith("unpinned") else "auto"
        reports = same_bits(templates=templates, order=order, report=_print_report).enable()
    compiled = torch.compile(workload.function, mode="max-autotune-no-cudagraphs")
    start = time.perf_counter()
    digest = _digest(torch, workload.results(compiled))
    tuning = time.perf_counter() - start
    again = _digest(torch, workload.results(compiled))
    if again != digest:
        raise RuntimeError(
            "two steps of one process return different bytes: an operation of the model is not determined"
        )

    def step() -> None:
        workload.step(compiled)

    result = {
        "digest": digest,
        "launchers": _launchers(),
        "chosen": _chosen(),
        "tuning seconds": tuning,
        "proof seconds": sum(each.seconds for each in reports),
        "kernels tuned": len(reports),
        "kept": sum(len(each.kept) for each in reports),
        "references": sorted({(each.kernel, each.reference) for each in reports}),
        "dropped": [
            [each.kernel, one.configuration, one.outcome, one.reason[:200]] for each in reports for one in each.dropped
        ],
        "costs": sorted((each.kernel, each.chosen, each.cost) for each in reports),
        "kernels": [],
        "graph error": "",
        **{name: [] for name in _TIMES},
    }
    return result, step


def _print_report(report: Any) -> None:
    """Print what a kernel may be chosen from, and the time of its proofs, to the log of this process."""
    outcomes = ", ".join(f"{each.configuration}: {each.outcome}" for each in report.dropped)
    print(
        f"{time.perf_counter():.1f} {report.kernel}: {len(report.kept)} kept, {len(report.slower)} slower, "
        f"{len(report.dropped)} dropped, {report.seconds:.2f} s, cost {report.cost:.3f} of {report.reference} by "
        f"{report.chosen}; {outcomes}",
        file=sys.stderr,
        flush=True,
    )


def _autotuners() -> Iterator[Any]:
    """Yield the autotuners of this process that have chosen."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    return (each for each in gc.get_objects() if type(each) is CachingAutotuner and len(each.launchers) == 1)


def _chosen() -> list[tuple[str, str]]:
    """Return the kernels with the configurations that were chosen for them."""
    return sorted({(each.fn.__name__, str(each.launchers[0].config)) for each in _autotuners()})


def _launchers() -> dict[str, int]:
    """Return how many tuned kernels there are, how many are launched directly, and how many statically."""
    tuned = list(_autotuners())
    direct = [vars(each)["_bitwise_tuned"].direct.launchers.values() for each in tuned if "run" in vars(each)]
    final = [*(one for launchers in direct for one in launchers), *(each.launchers[0] for each in tuned)]
    static = sum(getattr(each, "_is_static", False) for each in final)
    return {"kernels": len(tuned), "direct": len(direct), "static": static}


def _waited(run: Callable[[], Any], count: int) -> tuple[float, float]:
    """Return the seconds to issue a run, and until it has ended, each the mean of a burst."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        run()
    issued = time.perf_counter() - start
    torch.cuda.synchronize()
    return issued / count, (time.perf_counter() - start) / count


def _step_times(step: Callable[[], None], _: list[Any]) -> dict[str, Any]:
    """Return the seconds of a step, and of issuing it."""
    _waited(step, _BURST)
    steps = [_waited(step, 1)[1] for _ in range(_STEPS)]
    bursts = [_waited(step, _BURST) for _ in range(_STEPS // _BURST)]
    return {
        "step seconds": statistics.median(steps),
        "host seconds": statistics.median(issued for issued, _ in bursts),
        "pipelined step seconds": statistics.median(all_of for _, all_of in bursts),
    }


def _kernel_times(step: Callable[[], None], _: list[Any]) -> dict[str, Any]:
    """Return the seconds of a step's kernels on the GPU."""
    import torch

    _waited(step, _BURST)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        _waited(step, _PROFILED)
    kernels = [
        {
            "kernel": each.key.replace("#", ""),  # of the numbers of lambdas
            "seconds": each.self_device_time_total / 1e6 / _PROFILED,
            "launches": each.count / _PROFILED,
        }
        for each in profile.key_averages()
        if each.self_device_time_total > 0
    ]
    kernels.sort(key=lambda each: -each["seconds"])
    return {"GPU seconds": sum(each["seconds"] for each in kernels), "kernels": kernels}


def _graph_times(step: Callable[[], None], graph: list[Any]) -> dict[str, Any]:
    """Return the seconds of a step that is replayed as a CUDA graph, which the first call records into `graph`."""
    import torch

    try:
        if not graph:
            graph.append(None)
            graph[0] = _recorded(torch, step)
        if graph[0] is None:
            return {}
        replay = graph[0].replay
        _waited(replay, _BURST)
        return {"graph seconds": _waited(replay, _REPLAYS)[1]}
    except RuntimeError as error:
        return {"graph error": str(error)[:300]}


def _recorded(torch: Any, step: Callable[[], None]) -> Any:
    """Return a CUDA graph of a step."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph


_QUESTIONS: dict[str, Callable[[Callable[[], None], list[Any]], dict[str, Any]]] = {
    "steps": _step_times,
    "kernels": _kernel_times,
    # Last: a process in which recording fails may not launch any more.
    "graph": _graph_times,
}


def _digest(torch: Any, results: Sequence[Any]) -> str:
    """Return the digest of the results of a step."""
    hasher = hashlib.sha256()
    for tensor in results:
        hasher.update(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes())
    return hasher.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
