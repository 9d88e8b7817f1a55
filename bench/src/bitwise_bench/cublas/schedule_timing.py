"""Timing of GEMMs of model layers: cuBLASLt against the launcher of descriptors with the same bytes.

    python -m bitwise_bench.cublas.schedule_timing --out timing.json

Every schedule of a shape must return cuBLASLt's bytes; the fastest one counts. `untuned` is the launcher's default
schedule. `plain` is a plain Triton GEMM with its fastest tile, which may return other bytes. Times are of consecutive
launches in a CUDA graph, in microseconds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.model_shapes import chosen

Shape = tuple[str, int, int, int]


class Bench:
    """One GPU: its library and profile, and the launcher with its schedules."""

    def __init__(self, given: argparse.Namespace) -> None:
        import torch

        from bitwise_cublas_profiles.library import Library
        from bitwise_cublas_profiles.profile import profile

        self.torch = torch
        self.library = Library(given.library)
        properties = torch.cuda.get_device_properties(0)
        self.profile = profile(self.library.version, f"{properties.major}.{properties.minor}")
        products = importlib.import_module(given.launcher)
        self.run, self.planned = products.run, products.planned
        self.candidates, self.most = importlib.import_module(given.schedules).candidates, given.most

    def problem(self, shape: Shape, *, drawn: bool = True) -> tuple[Any, Any, Any, Any, Any]:
        """A, B, an output, the descriptor of what cuBLASLt runs, and its heuristic result. Operands are uninitialised
        unless drawn.

        Raises CublasError.
        """
        from bitwise_cublas_profiles.describe import descriptor_of
        from bitwise_cublas_profiles.tensors import query_of_tensors

        torch = self.torch
        _, m, n, k = shape
        a, b, out = (torch.empty(*each, device="cuda", dtype=torch.float16) for each in ((m, k), (k, n), (m, n)))
        if drawn:
            generator = torch.Generator(device="cuda").manual_seed(m + n + k)
            a.normal_(generator=generator)
            b.normal_(std=1 / math.sqrt(k), generator=generator)
        query = query_of_tensors(a, b, out)
        result = self.library.heuristic(query)[0]
        return a, b, out, descriptor_of(query, result.configuration, self.profile), result

    def schedules(self, desc: Any, a: Any, b: Any, out: Any) -> list[Any]:
        """The schedules to try, without duplicates."""
        return list(dict.fromkeys(self.candidates(desc, self.planned(desc), a, b, out, self.most)))

    def compile(self, shapes: Sequence[Shape], part: int, parts: int) -> None:
        """Run a share of all schedules once, to fill the compiler's cache."""
        from bitwise_bench.cublas.kernels import gemm_baseline
        from bitwise_cublas_profiles.query import CublasError

        known: set[Any] = set()
        for shape in shapes:
            try:
                a, b, out, desc, _ = self.problem(shape, drawn=False)
            except CublasError:
                continue
            plan = self.planned(desc)
            ours = [(plan, each) for each in self.schedules(desc, a, b, out)]
            for planned, schedule in [*ours, *((None, each) for each in gemm_baseline.CONFIGURATIONS)]:
                # These values specialise the kernel, apart from the schedule.
                marks = [number % 16 == 0 for number in shape[1:]]
                slices = getattr(planned, "slices", None)
                names = ("short_first", "instruction_k8", "accumulator_k", "lanes", "lane_sum")
                fields = [getattr(planned, name, None) for name in names]
                span = 0 if slices is None else slices.span // getattr(schedule, "block_k", 1)
                key = (schedule, slices is not None and slices.number > 1, *fields, *marks, shape[1] == 1, span < 2)
                if key in known:
                    continue
                known.add(key)
                if len(known) % parts == part:
                    try:
                        if planned is None:
                            gemm_baseline.run(schedule, a, b, out)
                        else:
                            self.run(desc, a, b, out, schedule)
                    except Exception as error:
                        if "CUDA" in str(error):
                            raise
            self.torch.cuda.synchronize()

    def graph(self, launch: Callable[[], Any], most: int) -> tuple[Any, int]:
        """A CUDA graph of consecutive launches, and their number: about two milliseconds of them, at least two."""
        torch = self.torch
        launch()
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        count = max(2, min(most, int(2 / max(start.elapsed_time(end), 1e-3))))
        found = torch.cuda.CUDAGraph()
        with torch.cuda.graph(found):
            for _ in range(count):
                launch()
        return found, count

    def clock(self, graph: Any, count: int, rounds: int) -> float:
        """Microseconds of one launch in a graph: the median over replays, after a warm-up replay."""
        torch = self.torch
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(rounds)]
        graph.replay()
        for start, end in events:
            start.record()
            graph.replay()
            end.record()
        torch.cuda.synchronize()
        return float(sorted(start.elapsed_time(end) for start, end in events)[rounds // 2] * 1000 / count)

    def in_turn(self, launches: dict[str, Callable[[], Any]], rounds: int = 5) -> dict[str, float]:
        """Microseconds of launches timed round-robin, so that thermal conditions are equal."""
        graphs = {name: self.graph(each, 20) for name, each in launches.items()}
        times: dict[str, list[float]] = {name: [] for name in graphs}
        for _ in range(rounds):
            for name, (graph, count) in graphs.items():
                times[name].append(self.clock(graph, count, 3))
        return {name: sorted(each)[rounds // 2] for name, each in times.items()}

    def best(self, launches: Sequence[tuple[Any, Callable[[], Any]]], check: Callable[[], bool]) -> Best:
        """The fastest launch, the names of those that fail the check, and how many ran.

        All are timed quickly, then the three fastest round-robin.
        """
        times: list[tuple[float, int, Any, Callable[[], Any]]] = []
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
                times.append((self.clock(*self.graph(launch, 10), 3), len(times), name, launch))
            else:
                wrong.append(str(name))
        if not times:
            return Best(None, None, wrong, ran)
        _, _, names, found = zip(*sorted(times, key=lambda each: each[:2])[:3], strict=True)
        again = self.in_turn({str(place): each for place, each in enumerate(found)}, 3)
        place = min(range(len(found)), key=lambda each: again[str(each)])
        return Best(found[place], names[place], wrong, ran)

    def row(self, shape: Shape) -> dict[str, Any]:
        """The record of one shape."""
        from bitwise_bench.cublas.kernels import gemm_baseline
        from bitwise_cublas_profiles.query import CublasError

        torch = self.torch
        record: dict[str, Any] = dict(zip(("group", "m", "n", "k"), shape, strict=True))
        try:
            a, b, out, desc, result = self.problem(shape)
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
        own = [(each, partial(self.run, desc, a, b, out, each)) for each in self.schedules(desc, a, b, out)]
        ours = self.best(own, same)
        self.run(desc, a, b, out)
        wrong = [*ours.wrong, *([] if same() else ["untuned"])]
        tiles = [(each, partial(gemm_baseline.run, each, a, b, out)) for each in gemm_baseline.CONFIGURATIONS]
        simple = self.best(tiles, lambda: True)
        launches = {
            "cublas": partial(torch.mm, a, b, out=out), "ours": ours.launch,
            "untuned": partial(self.run, desc, a, b, out), "plain": simple.launch,
        }  # fmt: skip
        times = self.in_turn({name: each for name, each in launches.items() if each is not None})
        ratio = round(times["cublas"] / times["ours"], 3) if "ours" in times else None
        return {
            **record, **{name: round(each, 2) for name, each in times.items()}, "ratio": ratio,
            "schedule": _fields(ours.name), "plain tile": simple.name, "wrong": wrong, "ran": ours.ran + 1,
        }  # fmt: skip


@dataclass(frozen=True)
class Best:
    """The fastest launch, its name, the names of wrong ones, and how many ran."""

    launch: Callable[[], Any] | None
    name: Any
    wrong: list[str]
    ran: int


def _fields(schedule: Any) -> Any:
    return asdict(schedule) if is_dataclass(schedule) and not isinstance(schedule, type) else str(schedule)


def _compile(given: argparse.Namespace, shapes: list[Shape], part: int, parts: int) -> None:
    Bench(given).compile(shapes, part, parts)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of cuBLASLt's time over ours, by group and over all."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.get("ratio"):
            groups.setdefault(row["group"], []).append(row["ratio"])
    every = [ratio for ratios in groups.values() for ratio in ratios]

    def mean(ratios: Sequence[float]) -> float | None:
        return round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3) if ratios else None

    def over(name: str) -> float | None:
        return mean([row["cublas"] / row[name] for row in rows if row.get(name)])

    return {
        "all": mean(every), "shapes": len(every), "groups": {name: mean(each) for name, each in groups.items()},
        "untuned": over("untuned"), "plain": over("plain"),
        "schedules that ran": sum(row.get("ran", 0) for row in rows),
        "schedules whose bytes differ": sum(len(row.get("wrong", ())) for row in rows),
        "declined": sum("declined" in row for row in rows),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Time the shapes. The exit status is 1 if a schedule's bytes differ."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.schedule_timing", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, default=9, help="shapes of every group of layers (default 9)")
    parser.add_argument("--most", type=int, default=32, help="schedules tried of every shape (default 32)")
    parser.add_argument("--processes", type=int, default=14, help="compile processes (default 14)")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="start no new shape after this many seconds (default 120)"
    )
    parser.add_argument("--library", help="path of a libcublasLt (default: PyTorch's)")
    parser.add_argument("--launcher", default="bitwise_nvidia_sm90.gemm.run", help="module with run and planned")
    parser.add_argument(
        "--schedules", default="bitwise_nvidia_sm90.gemm.measured_schedules", help="module with candidates"
    )
    given = parser.parse_args(arguments)
    import torch
    import triton

    shapes = chosen(given.each)
    deadline = time.time() + given.seconds
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_compile, args=(given, shapes, part, given.processes)) for part in range(given.processes)
    ]
    for each in workers:
        each.start()
    for each in workers:
        each.join(max(1.0, deadline - 30 - time.time()))
        if each.is_alive():
            each.terminate()
    print(f"compiled; {deadline - time.time():.0f} s are left", file=sys.stderr, flush=True)
    bench = Bench(given)
    # Groups round-robin, so that an early end leaves some of each.
    order = sorted(range(len(shapes)), key=lambda place: place % given.each)
    rows: list[dict[str, Any]] = []
    found = {
        "environment": {
            "gpu": torch.cuda.get_device_properties(0).name, "library": bench.library.version,
            "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
        },
    }  # fmt: skip
    for place in order:
        if time.time() > deadline:
            break
        try:
            rows.append(bench.row(shapes[place]))
        except Exception as error:  # the CUDA context may be unusable: keep the rows so far
            print(f"{shapes[place]}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            rows.append({"group": shapes[place][0], "failed": str(error)[:300]})
            if "CUDA" in str(error):
                break
        text = json.dumps({**found, "summary": summary(rows), "rows": rows}, indent=1)
        given.out.write_text(text + "\n", encoding="utf-8")
    result = summary(rows)
    print(json.dumps(result, indent=1))
    return 1 if result["schedules whose bytes differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
