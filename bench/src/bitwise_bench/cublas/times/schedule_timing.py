"""Times of products: cuBLAS through torch.mm against the launcher of descriptors with the same bytes.

    python -m bitwise_bench.cublas.times.schedule_timing --set held-out --out records/cublas-held-out-sm90-h100.json
    python -m bitwise_bench.cublas.times.schedule_timing --set fitted --most 12 --times --out times.json
    python -m bitwise_bench.cublas.times.schedule_timing --set published --join part-*.json --out published.json
    python -m bitwise_bench.cublas.times.schedule_timing --set published --only-compile

A problem runs under the launcher's default schedule and, with --most, under that many candidates, whose fastest one
counts.  With --first-call, `first call` is the fastest of so many, as BITWISE_TIMED_SCHEDULES chooses it.  Each must
return cuBLAS's bytes.  Times are of consecutive launches in a CUDA graph, in microseconds, taken in
turn.  Memory that fits in the L2 cache stays there.  `plain` is a plain Triton GEMM with its fastest tile, which may
return other bytes.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.problem_sets import SETS, Problem
from bitwise_bench.cublas.worker_processes import Parts
from bitwise_nvidia_sm90.gemm.device_costs import properties_of
from bitwise_nvidia_sm90.gemm.driver_launches import DriverError
from bitwise_nvidia_sm90.gemm.graph_times import LaunchGraph, in_turn, launch_graph, times_in_turn
from bitwise_nvidia_sm90.gemm.measured_schedules import candidates
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.prepared_launches import compile_kernels
from bitwise_nvidia_sm90.gemm.run import planned, run, run_prepared
from bitwise_nvidia_sm90.gemm.schedule import Schedule, fallback
from bitwise_nvidia_sm90.gemm.tuning import firsts_of_kinds, tune, tune_at_first_call

_ROUNDS = 5
_QUICK_ROUNDS = 3
_KEPT = 10
"""Problems after which the record is written again."""
_DRAWN_FROM = 120
"""The candidates after the first ones, in their order, of which some are drawn."""
_RANKED = 4000
"""The candidates, in their order, among which the first ones of each kind are."""
_POLL_SECONDS = 0.02


class Bench:
    """One GPU: its library and profile, and how many schedules of a problem are tried."""

    def __init__(self, given: argparse.Namespace) -> None:
        import torch

        from bitwise_cublas_profiles.library import Library
        from bitwise_cublas_profiles.profile import profile

        self.torch = torch
        self.library = Library(given.library)
        properties = torch.cuda.get_device_properties(0)
        self.profile = profile(self.library.version, f"{properties.major}.{properties.minor}")
        self.most, self.drawn, self.rounds, self.plain = given.most, given.drawn, given.rounds, given.plain
        self.of_each_kind = given.of_each_kind
        self.first_call = given.first_call

    def problem(self, given: Problem, *, drawn: bool = True) -> tuple[Any, Any, Any, Any, Any]:
        """Return A, B, an output, the descriptor of what cuBLAS runs, and the heuristic result.

        Operands are uninitialised unless drawn.  Raises CublasError.
        """
        from bitwise_cublas_profiles.describe import descriptor_of
        from bitwise_cublas_profiles.tensors import query_of_tensors

        torch = self.torch
        m, n, k, dtype = given.m, given.n, given.k, getattr(torch, given.dtype)
        shapes = (
            shape[::-1] if axis == "t" else shape for axis, shape in zip(given.layout, ((m, k), (k, n)), strict=True)
        )
        a, b = (
            torch.empty(lines * (length + given.gap) + given.offset, device="cuda", dtype=dtype)[given.offset :]
            .view(lines, length + given.gap)[:, :length]
            for lines, length in shapes
        )  # fmt: skip
        out = torch.empty(m, n, device="cuda", dtype=dtype)
        if drawn:
            generator = torch.Generator(device="cuda").manual_seed(m + n + k)
            a.normal_(generator=generator)
            b.normal_(std=1 / math.sqrt(k), generator=generator)
        a, b = (each.t() if axis == "t" else each for axis, each in zip(given.layout, (a, b), strict=True))
        query = query_of_tensors(a, b, out)
        result = self.library.heuristic(query)[0]
        return a, b, out, descriptor_of(query, result.configuration, self.profile), result

    def schedules(self, given: Problem, desc: Any, a: Any, b: Any, out: Any) -> list[Schedule]:
        """Return the schedules to try, without duplicates.

        These are the first candidates, the first ones of each kind, and others drawn by the problem.  The kinds are
        those of consumers, which pack, gather, or do neither, and those without tensor maps.
        """
        if not self.most and not self.drawn:
            return []
        every = list(dict.fromkeys(candidates(desc, planned(desc), a, b, out, _RANKED)))
        ranked = every[:-1][: self.most + _DRAWN_FROM]
        others = ranked[self.most :]
        drawn = random.Random(str(given)).sample(others, min(self.drawn, len(others)))
        kinds: dict[tuple[bool, bool, bool], list[Schedule]] = {}
        for each in every:
            if each.consumers or not each.tma:
                kinds.setdefault((each.packed, bool(each.gathering), each.tma), []).append(each)
        firsts = [each for kind in kinds.values() for each in kind[: self.of_each_kind]]
        return list(dict.fromkeys([*ranked[: self.most], *firsts, *drawn]))

    def compiled(self, given: Problem) -> list[Schedule]:
        """Compile the kernels of a problem under each schedule to try and by default, to fill the compilers' caches.

        Nothing is launched, so that no time is disturbed.  Return the schedules whose kernels compile.
        """
        from bitwise_cublas_profiles.query import CublasError

        try:
            a, b, out, desc, _ = self.problem(given, drawn=False)
        except CublasError:
            return []
        plan, found = planned(desc), []
        for each in self.schedules(given, desc, a, b, out):
            with suppress(UnsupportedGEMM, DriverError):
                compile_kernels(plan, each, a, b, out)
                found.append(each)
        with suppress(UnsupportedGEMM, DriverError):  # whose bytes are compared with those of the default
            compile_kernels(plan, fallback(plan, given.m, given.n), a, b, out)
        for each in firsts_of_kinds(desc, a, b, out):
            with suppress(UnsupportedGEMM, DriverError):
                compile_kernels(plan, each, a, b, out)
        compiled = 0
        for each in candidates(desc, plan, a, b, out, 4 + self.first_call):
            with suppress(UnsupportedGEMM, DriverError):
                compile_kernels(plan, each, a, b, out)
                compiled += 1
            if compiled > self.first_call:
                break
        return found

    def best(self, launches: Sequence[tuple[Any, Callable[[], Any]]], check: Callable[[], bool]) -> Best:
        """Time every launch quickly in turn, and the three fastest longer; those that fail the check do not count."""
        graphs: list[tuple[Any, Callable[[], Any], LaunchGraph]] = []
        wrong, ran = [], 0
        for name, launch in launches:
            try:
                launch()
                self.torch.cuda.synchronize()
            except Exception as error:
                if "CUDA" in str(error):
                    raise
                continue
            ran += 1
            if check():
                graphs.append((name, launch, launch_graph(launch, 10)))
            else:
                wrong.append(str(name))
        if not graphs:
            return Best(None, None, wrong, ran, [])
        quickly = times_in_turn({str(place): each[2] for place, each in enumerate(graphs)}, _QUICK_ROUNDS, 2)
        times = list(quickly.values())
        quick = [(fields_of(name), round(each, 2)) for (name, *_), each in zip(graphs, times, strict=True)]
        order = sorted(range(len(graphs)), key=lambda place: times[place])[:3]
        again = in_turn({str(place): graphs[place][1] for place in order}, _QUICK_ROUNDS)
        place = min(order, key=lambda each: again[str(each)])
        return Best(graphs[place][1], graphs[place][0], wrong, ran, quick)

    def row(self, given: Problem, own: Sequence[Schedule], *, times: bool) -> dict[str, Any]:
        """Return the record of one problem under schedules; with `times`, the time of each that ran."""
        from bitwise_bench.cublas.kernels import gemm_baseline
        from bitwise_cublas_profiles.query import CublasError

        torch = self.torch
        record = asdict(given)
        try:
            a, b, out, desc, result = self.problem(given)
        except CublasError as error:
            return {**record, "declined": str(error)}
        record["configuration"] = result.configuration.record()
        torch.mm(a, b, out=out)
        wanted = out.clone()

        def same() -> bool:
            equal = bool(torch.equal(out.view(torch.int16), wanted.view(torch.int16)))
            out.fill_(-7.0)
            return equal

        out.fill_(-7.0)
        tuned = self.best([(each, partial(run, desc, a, b, out, each)) for each in own], same)
        tune_at_first_call(desc, a, b, out)
        chosen = run_prepared(desc, a, b, out).chosen
        wrong = [*tuned.wrong, *([] if same() else ["default"])]
        tiles = [(each, partial(gemm_baseline.run, each, a, b, out)) for each in gemm_baseline.CONFIGURATIONS]
        simple = self.best(tiles, lambda: True) if self.plain else Best(None, None, [], 0, [])
        launches = {
            "cublas": partial(torch.mm, a, b, out=out), "default": partial(run, desc, a, b, out, chosen),
            "tuned": tuned.launch, "plain": simple.launch,
        }  # fmt: skip
        if self.first_call:
            timed, _ = tune(desc, a, b, out, most=self.first_call + 1, path=Path(os.devnull))
            launches["first call"] = partial(run, desc, a, b, out, timed)
            record["first call schedule"] = fields_of(timed)
        found = in_turn({name: each for name, each in launches.items() if each is not None}, self.rounds)
        record |= {name: round(each, 2) for name, each in found.items()}
        record |= {"default schedule": fields_of(chosen)}
        record |= {"schedule": fields_of(tuned.name)} if tuned.launch else {}
        record |= {"plain tile": simple.name} if simple.launch else {}
        record |= {"maps columns": True, "gathers units": True, "times": tuned.times} if times else {}
        return {**record, "descriptor": desc.to_text(), "wrong": wrong, "ran": tuned.ran + 1}


@dataclass(frozen=True)
class Best:
    """The fastest launch, its name, the names of wrong ones, how many ran, and the time of each that is right."""

    launch: Callable[[], Any] | None
    name: Any
    wrong: list[str]
    ran: int
    times: list[tuple[Any, float]]


def fields_of(schedule: Any) -> Any:
    """Return the fields of a schedule that are not the usual ones, or the text of another name."""
    if not isinstance(schedule, Schedule):
        return str(schedule)
    usual = asdict(Schedule(0))
    return {name: each for name, each in asdict(schedule).items() if each != usual[name]}


def _compile(part: int, parts: int, given: argparse.Namespace, problems: list[Problem], ready: Any) -> None:
    """Compile a share of the problems, in order; `ready` holds the schedules of each by its place."""
    bench = Bench(given)
    for place in range(part, len(problems), parts):
        ready[place] = bench.compiled(problems[place])


def row_class(m: int) -> str:
    """Return the class of a product by the rows of its output."""
    return next((f"M <= {most}" for most in (1, 16, 64, 256, 1024, 4096) if m <= most), "M > 4096")


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return geometric means of cuBLAS's time over ours: of all, by group and by rows, and the slowest problems."""

    def means(name: str) -> dict[str, Any]:
        timed = [(row, row["cublas"] / row[name]) for row in rows if row.get(name)]
        slowest = sorted(timed, key=lambda each: each[1])[:5]
        return {
            "all": _mean(ratio for _, ratio in timed), "problems": len(timed),
            "groups": _by((row["group"], ratio) for row, ratio in timed),
            "rows": _by((row_class(row["m"]), ratio) for row, ratio in timed),
            "below 0.9": sum(ratio < 0.9 for _, ratio in timed),
            "slowest": [
                [row["group"], row["m"], row["n"], row["k"], row["layout"], row["dtype"], round(ratio, 3)]
                for row, ratio in slowest
            ],
        }  # fmt: skip

    timed = ("default", "first call", "tuned", "plain")
    return {
        **{name: means(name) for name in timed if any(name in row for row in rows)},
        "schedules that ran": sum(row.get("ran", 0) for row in rows),
        "schedules whose bytes differ": sum(len(row.get("wrong", ())) for row in rows),
        "declined": sum("declined" in row for row in rows), "failed": sum("failed" in row for row in rows),
    }  # fmt: skip


def _mean(ratios: Iterable[float]) -> float | None:
    logarithms = [math.log(each) for each in ratios]
    return round(math.exp(sum(logarithms) / len(logarithms)), 3) if logarithms else None


def _by(named: Iterable[tuple[str, float]]) -> dict[str, float | None]:
    groups: dict[str, list[float]] = {}
    for name, ratio in named:
        groups.setdefault(name, []).append(ratio)
    return {name: _mean(each) for name, each in groups.items()}


def _write(path: Path, head: dict[str, Any], rows: Sequence[dict[str, Any]], count: int) -> dict[str, Any]:
    """Write the record of the rows so far, of `count` problems, and return their summary."""
    result = {**summary(rows), "problems that were not reached": count - len(rows)}
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = json.dumps({**head, "summary": result}, indent=1)
    path.write_text(f'{text[:-2]},\n "rows": [\n{lines}\n]\n}}\n', encoding="utf-8")
    return result


def joined(paths: Sequence[Path], problems: Sequence[Problem]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what records of parts of a set have in common, and their rows in the order of the problems.

    Of several rows of a problem the first one counts.  Raises ValueError for records of other environments or sets.
    """
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    heads = [{name: each[name] for name in each if name not in ("summary", "rows")} for each in contents]
    if any(head != heads[0] for head in heads):
        raise ValueError("the records to join are of several environments, sets or numbers of rounds")
    rows = rows_of(paths)
    return heads[0], [rows[astuple(each)] for each in problems if astuple(each) in rows]


def rows_of(paths: Sequence[Path]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the rows of records by the fields of their problems; of several rows of a problem the first one."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in paths:
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            found.setdefault(tuple(row.get(each.name, each.default) for each in fields(Problem)), row)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Time the problems of a set.  The exit status is 1 if a schedule's bytes differ or a problem failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.times.schedule_timing", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, help="where to write the record; needed unless --only-compile is given")
    parser.add_argument(
        "--set", choices=sorted(SETS), default=["layers"], nargs="+", help="the sets of problems (default layers)"
    )
    parser.add_argument("--every", type=int, default=1, help="take every so many problems (default 1)")
    parser.add_argument("--skip", type=int, default=0, help="leave out this many problems before (default 0)")
    parser.add_argument("--without", type=Path, nargs="+", default=(), help="leave out the problems of these records")
    parser.add_argument("--most", type=int, default=0, help="schedules tried of every problem (default 0)")
    parser.add_argument("--drawn", type=int, default=0, help="schedules drawn from the other candidates (default 0)")
    parser.add_argument(
        "--of-each-kind",
        type=int,
        default=0,
        help="first schedules tried of each kind (default 0)",
    )
    parser.add_argument("--times", action="store_true", help="record the time of every schedule")
    parser.add_argument(
        "--first-call", type=int, default=0, help="time so many schedules as at a first call with tuning (default 0)"
    )
    parser.add_argument("--plain", action="store_true", help="time a plain Triton GEMM, too")
    parser.add_argument("--only-compile", action="store_true", help="fill the compilers' caches; time nothing")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"rounds of times in turn (default {_ROUNDS})")
    parser.add_argument("--processes", type=int, default=14, help="compile processes (default 14)")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="start no new problem after this many seconds (default 120)"
    )
    parser.add_argument("--library", help="path of a libcublasLt (default: PyTorch's)")
    parser.add_argument("--join", type=Path, nargs="+", help="join these records of parts of the set; time nothing")
    given = parser.parse_args(arguments)
    if not given.out and not given.only_compile:
        parser.error("give --out, the file to write the record to, or --only-compile")
    if given.join:
        problems = [problem for name in given.set for problem in SETS[name]()]
        head, parts_of_all = joined(given.join, problems)
        result = _write(given.out, head, parts_of_all, len(problems))
        print(json.dumps(result, indent=1))
        return 0
    import torch
    import triton

    known = rows_of(given.without)
    problems = [each for name in given.set for each in SETS[name]() if astuple(each) not in known]
    problems = problems[given.skip :: given.every]
    deadline = time.time() + given.seconds
    bench = Bench(given)
    rows: list[dict[str, Any]] = []
    found = {
        "environment": {
            "gpu": torch.cuda.get_device_properties(0).name, "library": bench.library.version,
            "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
        },
        "device": asdict(properties_of(0)), "set": " ".join(given.set), "rounds": given.rounds,
    }  # fmt: skip
    with (
        multiprocessing.Manager() as manager,
        Parts(_compile, (given, problems, ready := manager.dict()), given.processes) as parts,
    ):
        if given.only_compile:
            while (
                len(ready) < len(problems) and time.time() < deadline and any(map(parts.alive, range(given.processes)))
            ):
                time.sleep(_POLL_SECONDS)
            print(f"{len(ready)} of {len(problems)} problems compiled")
            return 0
        for place, problem in enumerate(problems):
            while place not in ready and time.time() < deadline and parts.alive(place % given.processes):
                time.sleep(_POLL_SECONDS)
            if time.time() > deadline:
                break
            try:
                rows.append(bench.row(problem, ready.get(place, ()), times=given.times))
            except Exception as error:  # the CUDA context may be unusable: keep the rows so far
                print(f"{problem}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                rows.append({**asdict(problem), "failed": f"{type(error).__name__}: {error}"[:300]})
                if "CUDA" in str(error):
                    break
            if place % _KEPT == 0:
                _write(given.out, found, rows, len(problems))
    result = _write(given.out, found, rows, len(problems))
    print(json.dumps(result, indent=1))
    return 1 if result["schedules whose bytes differ"] or result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
