"""Random shapes through cuBLASLt and through a launcher of descriptors: are the bytes equal?

    python -m bitwise_cublas_profiles.campaign --out sweep.jsonl --seconds 240 --seed 1

Every shape is asked of the heuristic, run exactly as answered and run from the descriptor of that answer, on ten draws,
flat and wide in turn.  The file has one line a shape, after a line that describes them; a file that is there is gone on
with.  A wrong descriptor of every sixteenth shape is run too, as a control.  Only PyTorch, Triton, NumPy and pydantic
are needed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import queue
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bitwise_cublas_profiles.library import Library, Pointers
from bitwise_cublas_profiles.profile import Declined, Profile, profile
from bitwise_cublas_profiles.question import Answer, CublasError, Question
from bitwise_cublas_profiles.shapes import MAXIMUM_OPERAND, REGIMES, Drawn, drawn

DRAWS = 10
CONTROL = 16
COLUMNS = (
    "number", "regime", "m", "n", "k", "a", "transposes", "c", "candidate", "algorithm", "tile", "stages", "split_k",
    "reduction", "custom", "cluster_shape", "outcome", "about", "control", "descriptor",
)  # fmt: skip
"""Columns of a line.  `candidate` is 1 where no row of the profile describes the question, and what ran is a guess from
the rows there are.  `outcome` is equal, different, declined, no answer or failed; `about` says more: why, or
[the draws that differ as bits, elements of the first that do, their first index, cuBLAS's bits there, ours]; `control`
is what was wrong, and on how many draws that showed; where bytes differ or a configuration has no row, it may be
"alternatives" and the descriptors, by name, that returned cuBLAS's bytes on every draw.  `descriptor` are the first
digits of a hash of the descriptor that ran."""


class Sweep:
    """What one process needs: the library, the profile, pools of random operands, and the launcher."""

    device = "cuda"

    def __init__(self, chosen: argparse.Namespace) -> None:
        import torch

        self.torch = torch
        self.chosen = chosen
        self.library = Library(chosen.library)
        properties = torch.cuda.get_device_properties(0)
        self.profile: Profile = profile(self.library.version, f"{properties.major}.{properties.minor}")
        module, _, name = str(chosen.launcher).partition(":")
        self.launch: Callable[..., Any] = getattr(importlib.import_module(module), name)
        self.pools: dict[tuple[str, bool], Any] = {}
        self.tried: Counter[tuple[Any, ...]] = Counter()
        self.space = torch.empty(64 << 20, dtype=torch.uint8, device=self.device)

    def pool(self, dtype: str, wide: bool) -> Any:
        """Random numbers of a type; with `wide`, magnitudes far apart, few enough that sums stay finite."""
        if (dtype, wide) not in self.pools:
            from bitwise_cublas_profiles.tensors import torch_type

            torch = self.torch
            generator = torch.Generator(device=self.device).manual_seed(self.chosen.seed * 16 + len(dtype) * 2 + wide)
            made = torch.empty(MAXIMUM_OPERAND + (1 << 22), dtype=torch_type(dtype), device=self.device)
            low, high = {"fp16": (-10, 3), "bf16": (-16, 5)}.get(dtype, (-5, 3))
            for start in range(0, made.numel(), 1 << 22):
                part = torch.randn(min(1 << 22, made.numel() - start), device=self.device, generator=generator)
                if wide:
                    part *= torch.randint(low, high, part.shape, device=self.device, generator=generator).float().exp2()
                made[start : start + part.numel()] = part.to(made.dtype)
            self.pools[dtype, wide] = made
        return self.pools[dtype, wide]

    def operands(self, asked: Question, number: int, draw: int) -> tuple[Any, Any]:
        """A and B of a draw: stretches of the pools."""
        source = random.Random(f"{self.chosen.seed}:{number}:{draw}")
        found = []
        for dtype, (rows, columns), transposed in (
            (asked.a, asked.stored_a, asked.transpose_a),
            (asked.b, asked.stored_b, asked.transpose_b),
        ):
            pool = self.pool(dtype, bool(draw % 2))
            start = source.randrange(0, (pool.numel() - rows * columns) // 256) * 256
            matrix = pool[start : start + rows * columns].view(rows, columns)
            found.append(matrix.t() if transposed else matrix)
        return found[0], found[1]

    def compare(self, each: Drawn, answer: Answer, desc: Any, draws: int = DRAWS) -> tuple[str, Any]:
        """Runs both on every draw: `equal`, or `different` and where."""
        torch, asked = self.torch, each.asked
        from bitwise_cublas_profiles.tensors import torch_type

        theirs = torch.full((asked.m, asked.n), -7.0, dtype=torch_type(asked.c), device=self.device)
        ours = torch.full_like(theirs, 5.0)
        counts = []
        for draw in range(draws):
            a, b = self.operands(asked, each.number, draw)
            self._both(asked, answer, desc, a, b, theirs, ours)
            counts.append((self._bits(theirs) != self._bits(ours)).sum())
        differ = torch.stack(counts).tolist()
        if not any(differ):
            return "equal", None
        mask, about = 0, None
        for draw in (draw for draw in range(draws) if differ[draw]):
            a, b = self.operands(asked, each.number, draw)
            self._both(asked, answer, desc, a, b, theirs, ours)
            # All NaNs are one value.
            wrong = (self._bits(theirs) != self._bits(ours)) & ~(theirs.isnan() & ours.isnan())
            count = int(wrong.sum())
            if count:
                mask |= 1 << draw
                if about is None:
                    first = int(wrong.flatten().nonzero()[0])
                    bits = [int(self._bits(side).flatten()[first]) for side in (theirs, ours)]
                    about = [count, first, *bits]
        return ("different", [mask, *about]) if about is not None else ("equal", None)

    def _both(self, asked: Question, answer: Answer, desc: Any, a: Any, b: Any, theirs: Any, ours: Any) -> None:
        pointers = Pointers(a.data_ptr(), b.data_ptr(), theirs.data_ptr(), self.space.data_ptr())
        self.library.run(asked, answer, pointers, self.torch.cuda.current_stream().cuda_stream)
        self.launch(desc, a, b, ours)

    def _bits(self, matrix: Any) -> Any:
        return matrix.view(self.torch.int32 if matrix.element_size() == 4 else self.torch.int16)

    def control(self, each: Drawn, answer: Answer, desc: Any) -> list[Any] | None:
        """Runs a wrong descriptor on every draw: what is wrong with it, and on how many draws that shows."""
        from bitwise_cublas_profiles.perturb import perturbed

        found = perturbed(desc, random.Random(f"{self.chosen.seed}:{each.number}:control"))
        if found is None:
            return None
        try:
            outcome, about = self.compare(each, answer, found[1])
        except Exception as error:  # the launcher refuses it
            if "CUDA" in str(error):
                raise
            return None
        return [found[0], about[0].bit_count() if outcome == "different" else 0]

    def others(self, each: Drawn, answer: Answer) -> list[Any] | None:
        """The alternatives that return cuBLAS's bytes, for the first shapes of every configuration."""
        from bitwise_cublas_profiles.perturb import alternatives

        found = answer.configuration
        key = (each.asked.a, found.algorithm, found.stages, found.custom, found.reduction, each.asked.letters)
        self.tried[key] += 1
        if self.tried[key] > 2:
            return None
        names: list[str] = []
        enough = time.time() + 8
        for name, desc in alternatives(each.asked, found.split_k):
            if time.time() > enough:
                names.append("unfinished")
                break
            try:
                if all(self.compare(each, answer, desc, draws)[0] == "equal" for draws in (2, DRAWS)):
                    names.append(name)
            except Exception as error:
                if "CUDA" in str(error):
                    raise
        return ["alternatives", names]

    def row(self, number: int) -> list[Any]:
        """One line of the file."""
        from bitwise_cublas_profiles.describe import descriptor_of
        from bitwise_cublas_profiles.provenance import digest

        each = drawn(self.chosen.seed, number, self.chosen.candidates)
        asked = each.asked
        row: list[Any] = [
            number, REGIMES.index(each.regime), asked.m, asked.n, asked.k, asked.a, asked.letters, asked.c, 0,
        ]  # fmt: skip
        try:
            answer = self.library.ask(asked)[0]
        except CublasError as error:
            return [*row, *[None] * 7, "no answer", str(error), None, None]
        found = answer.configuration
        row += [found.algorithm, found.tile, found.stages, found.split_k, found.reduction, found.custom,
                found.cluster_shape]  # fmt: skip
        control = ran = None
        try:
            try:
                desc = descriptor_of(asked, found, self.profile)
            except Declined:
                desc = descriptor_of(asked, found, self.profile, beyond=True)
                row[COLUMNS.index("candidate")] = 1
            ran = digest(desc)
            outcome, about = self.compare(each, answer, desc)
            if number % (CONTROL * len(REGIMES)) < len(REGIMES):
                control = self.control(each, answer, desc)
        except Declined as error:
            outcome, about = "declined", str(error).split(" is not described: ")[-1].split(" (algorithm")[0]
        except ValueError as error:
            outcome, about = "declined", f"the launcher refuses: {error}"
        except Exception as error:
            if "CUDA" in str(error):  # nothing more runs in this process
                raise
            outcome, about = "failed", f"{type(error).__name__}: {str(error)[:300]}"
        if outcome in ("different", "declined"):
            control = self.others(each, answer)
        return [*row, outcome, about, control, ran]


def _work(start: int, chosen: argparse.Namespace, done: frozenset[int], deadline: float, results: Any) -> None:
    """One process: its share of the numbers from `start` on, until the deadline."""
    number = start
    try:
        sweep = Sweep(chosen)
        while time.time() < deadline and number < chosen.count:
            if number not in done:
                results.put(("row", sweep.row(number)))
            number += chosen.processes
    except BaseException:
        results.put(("died", [number, traceback.format_exc(limit=6)]))
    results.put(("end", start))


def environment(chosen: argparse.Namespace) -> dict[str, Any]:
    """The GPU, the library and the compiler, as the first line of the file has them."""
    import torch
    import triton

    properties = torch.cuda.get_device_properties(0)
    with Library(chosen.library) as library:
        version = library.version
    return {
        "gpu": properties.name, "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count, "library": version, "torch": torch.__version__,
        "triton": triton.__version__, "seed": chosen.seed, "draws": DRAWS, "candidates": chosen.candidates,
        "regimes": list(REGIMES), "columns": list(COLUMNS),
    }  # fmt: skip


def summary(rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Outcomes by kind of operands and algorithm, reasons of declines, controls caught, and the first differences."""
    at = {name: place for place, name in enumerate(COLUMNS)}
    outcomes: Counter[str] = Counter()
    families: Counter[str] = Counter()
    declined: Counter[str] = Counter()
    controls: dict[str, list[int]] = {}
    alternative: dict[str, Counter[str]] = {}
    different: list[list[Any]] = []
    for row in rows:
        kind = ("candidate " if row[at["candidate"]] else "") + str(row[at["a"]])
        outcome = str(row[at["outcome"]])
        outcomes[f"{kind}: {outcome}"] += 1
        split = "split" if (row[at["split_k"]] or 1) > 1 else "single"
        families[f"algorithm {row[at['algorithm']]} {split} {row[at['a']]}: {outcome}"] += 1
        if outcome in ("declined", "no answer", "failed"):
            declined[str(row[at["about"]])[:120]] += 1
        if outcome == "different" and len(different) < 40:
            different.append(list(row))
        if row[at["control"]] and row[at["control"]][0] == "alternatives":
            key = f"algorithm {row[at['algorithm']]} stages {row[at['stages']]} custom {row[at['custom']]}"
            alternative.setdefault(key, Counter()).update(row[at["control"]][1] or ["none"])
        elif row[at["control"]]:
            name, shown = row[at["control"]]
            ran = controls.setdefault(f"{name} algorithm {row[at['algorithm']]}", [0, 0])
            ran[0] += 1
            ran[1] += shown > 0
    return {
        "outcomes": dict(sorted(outcomes.items())), "families": dict(sorted(families.items())),
        "not compared": dict(declined.most_common(30)), "controls run and caught": dict(sorted(controls.items())),
        "alternatives": {name: dict(count.most_common(8)) for name, count in alternative.items()},
        "different": different,
    }  # fmt: skip


def read_rows(path: Path) -> list[list[Any]]:
    """The lines of shapes of a file; one cut off in the middle is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, list):
            rows.append(content)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sweep; the exit status is 1 where bytes differ, or where a process died."""
    parser = argparse.ArgumentParser(
        prog="bitwise_cublas_profiles.campaign", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="the file, one line a shape; one that is there grows")
    parser.add_argument("--seconds", type=float, default=240.0, help="for how long shapes are begun (default 240)")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes and the draws (default 1)")
    parser.add_argument("--count", type=int, default=1 << 30, help="how many shapes the seed has (default: no end)")
    parser.add_argument("--processes", type=int, default=12, help="worker processes on the one GPU (default 12)")
    parser.add_argument("--candidates", type=float, default=0.1, help="share of unmeasured layouts (default 0.1)")
    parser.add_argument("--library", help="path of a libcublasLt (default: the one of the installed PyTorch)")
    parser.add_argument("--launcher", default="bitwise_nvidia_ptx.products.run:run", help="module:function to run one")
    chosen = parser.parse_args(arguments)

    rows = read_rows(chosen.out)
    died: list[str] = []
    with chosen.out.open("a", encoding="utf-8") as file:
        if not rows:
            file.write(json.dumps(environment(chosen)) + "\n")
        _Processes(chosen, rows, died, file).collect()
    found = summary(rows)
    print(json.dumps({**found, "died": died, "shapes": len(rows)}, indent=1))
    return 1 if found["different"] or died else 0


class _Processes:
    """The worker processes and what they hand over; one that dies is begun again behind the shape it died at."""

    def __init__(self, chosen: argparse.Namespace, rows: list[list[Any]], died: list[str], file: Any) -> None:
        self.chosen, self.rows, self.died, self.file = chosen, rows, died, file
        self.context = multiprocessing.get_context("spawn")
        self.results: Any = self.context.Queue()
        self.deadline = time.time() + chosen.seconds
        self.done = frozenset(int(row[0]) for row in rows)
        self.workers = [self._begin(index) for index in range(chosen.processes)]

    def _begin(self, start: int) -> Any:
        arguments = (start, self.chosen, self.done, self.deadline, self.results)
        worker = self.context.Process(target=_work, args=arguments, daemon=True)
        worker.start()
        return worker

    def collect(self) -> None:
        """Writes what the processes hand over until all have ended, or a minute after the deadline."""
        ended, told = 0, time.time()
        while ended < len(self.workers) and time.time() < self.deadline + 60:
            try:
                kind, content = self.results.get(timeout=2)
            except queue.Empty:
                if not any(each.is_alive() for each in self.workers):
                    break
                continue
            if kind == "row":
                self._write(content)
            elif kind == "died":
                self._died(*content)
            else:
                ended += 1
            if time.time() - told > 20:
                told = time.time()
                self.file.flush()
                print(f"{len(self.rows)} shapes, {len(self.workers) - ended} processes", file=sys.stderr, flush=True)
        for each in self.workers:
            each.terminate()

    def _write(self, row: list[Any]) -> None:
        self.rows.append(row)
        self.file.write(json.dumps(row, separators=(",", ":")) + "\n")

    def _died(self, number: int, why: str) -> None:
        self.died.append(f"at number {number}: {why}")
        print(self.died[-1], file=sys.stderr, flush=True)
        self._write([number, *[None] * (len(COLUMNS) - 5), "failed", why[-300:], None, None])
        if len(self.died) <= self.chosen.processes and time.time() < self.deadline - 20:
            self.workers.append(self._begin(number + self.chosen.processes))


if __name__ == "__main__":
    sys.exit(main())
