"""Measure features without profile rows: batches, biases and padded rows.

    python -m bitwise_bench.cublas.unprofiled_features --out features.json --seconds 60

Each shape is queried with a batch, with a bias or with its own leading dimensions. The heuristic result is run and
compared with the descriptor of the same configuration without that feature. For a bias the descriptor's sum in fp32
plus the bias is rounded once; if that differs, other ways to add it are tried. PyTorch's own bmm, addmm and mm run too.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bitwise_bench.cublas.portable_operands import DRAWS, Operands
from bitwise_bench.cublas.sweeps.random_queries import DTYPES as SHARES
from bitwise_bench.cublas.sweeps.random_queries import random_query
from bitwise_bench.cublas.sweeps.sweep import share
from bitwise_bench.cublas.worker_processes import run_workers
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.k_axis import parts_of
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.query import FP8, CublasError, GemmQuery, HeuristicResult
from bitwise_cublas_profiles.workspaces import MEBIBYTE, WORKSPACE

COLUMNS = (
    "number", "kind", "m", "n", "k", "batch", "a", "transposes", "algorithm", "tile", "stages", "split_k", "reduction",
    "custom", "outcome", "torch", "about",
)  # fmt: skip
"""`outcome`: whether the descriptor returned the library's bytes on every draw. `torch`: the same for PyTorch's
functions.
"""
KINDS = ("bias", "batch", "gaps", "strided", "biased gaps")
ALLOWANCES = (WORKSPACE, MEBIBYTE)
"""Workspace limits that PyTorch may use for a fused bias."""
SLICES = 48
"""Largest number of slices that are summed one by one when other ways to add a bias are tried."""


def query_of_number(
    seed: int, number: int, shares: Sequence[tuple[str, float]] = SHARES
) -> tuple[str, GemmQuery] | None:  # fmt: skip
    """The query of a number: 16-bit and 32-bit types in all layouts; None if it is too large."""
    source = random.Random(f"{seed}:{number}:beyond")
    query = random_query(seed, number, shares=shares).query
    if query.a in FP8 or query.m * query.n * query.k > 1 << 32:
        return None
    first, second = source.choice([(False, True), (False, True), (False, False), (True, False), (True, True)])
    # A vector has one layout only.
    query = replace(query, transpose_a=first and query.m > 1, transpose_b=second and query.n > 1)
    kind = KINDS[source.randrange(len(KINDS))]
    if kind == "bias":
        return kind, replace(query, epilogue="bias", workspace=source.choice([WORKSPACE, MEBIBYTE, MEBIBYTE]))
    gaps = [source.choice([0, 1, 8, 8, 64, 1000]) for _ in "ab"]
    if kind in ("gaps", "biased gaps"):
        query = replace(
            query,
            ld_a=query.dense_ld["a"] + gaps[0],
            ld_b=query.dense_ld["b"] + gaps[1],
        )
        if kind == "biased gaps":
            query = replace(query, epilogue="bias", workspace=MEBIBYTE)
        return (kind, query) if max(query.stored_a[0] * query.dense_ld["a"], 1) < 1 << 23 and any(gaps) else None
    batch = source.choice([1, 2, 3, 4, 8, 16, 32, 64])
    whole = batch * max(query.m * query.k, query.k * query.n, query.m * query.n)
    fits = whole < 1 << 23 and batch * query.m * query.n * query.k < 1 << 33
    if kind == "strided" and fits:
        return kind, strided(replace(query, batch=max(2, batch)), source, gaps)
    return (kind, replace(query, batch=batch)) if fits else None


def strided(query: GemmQuery, source: random.Random, gaps: Sequence[int]) -> GemmQuery:
    """The batch with gaps between matrices, one matrix for all, or interleaved rows as in attention heads."""
    fields: dict[str, Any] = {}
    for name, gap in zip("ab", gaps, strict=True):
        rows, columns = query.stored_a if name == "a" else query.stored_b
        how = source.choice(["dense", "gaps", "one", "heads", "heads"])
        if how == "gaps":
            fields[f"ld_{name}"] = columns + gap
            fields[f"stride_{name}"] = rows * (columns + gap) + source.choice([0, 8, 64])
        elif how == "one":
            fields[f"stride_{name}"] = 0
        elif how == "heads":
            fields |= {f"ld_{name}": columns * query.batch, f"stride_{name}": columns}
    return replace(query, **fields)


class FeatureComparison:
    """State of one process: the library, its profile and operands."""

    def __init__(self, library: Any, capability: str, operands: Operands) -> None:
        import torch

        self.torch, self.library, self.operands = torch, library, operands
        self.profile = profile(library.version, capability)

    def row(self, number: int, kind: str, query: GemmQuery) -> list[Any]:
        """The row of COLUMNS for a query."""
        row: list[Any] = [number, kind, query.m, query.n, query.k, query.batch, query.multiplied, query.transposes]
        try:
            result = self.library.heuristic(query)[0]
        except CublasError as error:
            return [*row, *[None] * 6, "no answer", None, str(error)[:200]]
        found = result.configuration
        row += [found.algorithm, found.tile, found.stages, found.split_k, found.reduction, found.custom]
        try:
            return [*row, *self.compared(number, kind, query, result)]
        except (CublasError, ValueError) as error:
            why = str(error).split(" is not described: ")[-1].split(" (algorithm")[0]
            return [*row, "declined", None, why[:200]]

    def compared(self, number: int, kind: str, query: GemmQuery, result: HeuristicResult) -> tuple[str, Any, Any]:
        """Outcome, PyTorch's outcome, and the draws that differ. Raises CublasError and ValueError."""
        from bitwise_cublas_profiles.describe import descriptor_of
        from bitwise_cublas_profiles.tensors import run, torch_type
        from bitwise_torch import matmul

        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = query.compute == "tf32"
        plain = replace(query, batch=1, epilogue="none", ld_a=None, ld_b=None, stride_a=None, stride_b=None)
        desc = descriptor_of(plain, result.configuration, self.profile, extrapolate=True)
        wide = desc.model_copy(update={"output_dtype": "fp32"})
        dtype = torch_type(query.c)
        wrong: list[str] = []
        same: Counter[str] = Counter()
        other_ways: Counter[str] = Counter()
        for draw in DRAWS:
            a, b = self.operands_of(query, number, draw, batched=kind in ("batch", "strided"))
            many, bias = kind in ("batch", "strided"), None
            if query.epilogue == "bias":
                bias = self.operands.pool(query.c, draw)[number * 256 % (1 << 20) :][: query.n]
            shape = (query.batch, query.m, query.n) if many else (query.m, query.n)
            theirs = torch.full(shape, -7.0, dtype=dtype, device=self.operands.device)
            run(self.library, query, result, a, b, theirs, bias=bias)
            if many:
                ours = torch.full(shape, 5.0, dtype=dtype, device=self.operands.device)
                for left, right, out in zip(a, b, ours, strict=True):
                    matmul(left, right, desc=desc, out=out)
                other = torch.bmm(a, b)
            elif bias is None:
                ours, other = matmul(a, b, desc=desc), torch.mm(a, b)
            else:
                ours, other = self.biased(a, b, bias, desc, wide), torch.addmm(bias, a, b)
            if not self.equal(ours, theirs):
                wrong.append(draw)
            if bias is not None:
                for name, found in self.alternatives(desc, a, b, bias) if wrong else ():
                    other_ways[name] += self.equal(found, theirs)
                for allowed in ALLOWANCES:
                    again = self.allowed(query, allowed, a, b, bias)
                    same[f"allowed {allowed // MEBIBYTE}"] += again is not None and self.equal(other, again)
            else:
                same["library"] += self.equal(other, theirs)
        outcome = "equal" if not wrong else "different"
        about = {"draws": wrong, "other ways": dict(other_ways)} if wrong else None
        return outcome, {name: count == len(DRAWS) for name, count in same.items()}, about

    def biased(self, a: Any, b: Any, bias: Any, desc: GEMMDesc, wide: GEMMDesc) -> Any:
        """The fp32 sum plus a bias, rounded once. If no kernel has an fp32 output, the sum is rounded first, too."""
        from bitwise_torch import matmul

        try:
            sums = matmul(a, b, desc=wide)
        except ValueError:
            sums = matmul(a, b, desc=desc).float()
        return (sums + bias.float()).to(bias.dtype)

    def alternatives(self, desc: GEMMDesc, a: Any, b: Any, bias: Any) -> Iterator[tuple[str, Any]]:
        """Other ways to add a bias, by name, with their outputs."""
        from bitwise_torch import matmul

        dtype = bias.dtype
        yield "rounded first", (matmul(a, b, desc=desc).float() + bias.float()).to(dtype)
        axis = parts_of(desc)
        if not 1 < len(axis.parts) <= SLICES or desc.k_cuts[0].layout != "contiguous":
            return
        sums = []
        for part in axis.parts:
            low, length = int(part.positions[0]), len(part.positions)
            changed = {"k": length, "k_cuts": desc.k_cuts[1:], "k_dropped": 0, "output_dtype": "fp32"}
            each = GEMMDesc(**{**{name: getattr(desc, name) for name in type(desc).model_fields}, **changed})
            sums.append(matmul(a[:, low : low + length], b[low : low + length], desc=each))
        total = bias.float().expand_as(sums[0])
        for each_sum in sums:
            total = total + each_sum
        yield "bias first", total.to(dtype)
        total = sums[-1] + bias.float()
        for each_sum in reversed(sums[:-1]):
            total = total + each_sum
        yield "with the last slice, backward", total.to(dtype)
        total = sums[0].to(dtype).float()
        for each_sum in sums[1:]:
            total = total + each_sum.to(dtype).float()
        yield "slices rounded", (total + bias.float()).to(dtype)

    def allowed(self, query: GemmQuery, workspace: int, a: Any, b: Any, bias: Any) -> Any:
        """What the library returns with a given workspace limit, or None if it has no result."""
        from bitwise_cublas_profiles.tensors import run, torch_type

        changed = replace(query, workspace=workspace)
        out = self.torch.full((query.m, query.n), -7.0, dtype=torch_type(query.c), device=self.operands.device)
        try:
            run(self.library, changed, self.library.heuristic(changed)[0], a, b, out, bias=bias)
        except CublasError:
            return None
        return out

    def equal(self, one: Any, other: Any) -> bool:
        """Whether two outputs have the same bits. All NaNs count as one value."""
        torch = self.torch
        form = torch.int32 if one.element_size() == 4 else torch.int16
        differ = (one.view(form) != other.view(form)) & ~(one.isnan() & other.isnan())
        return not bool(differ.any())

    def operands_of(self, query: GemmQuery, number: int, draw: str, *, batched: bool) -> tuple[Any, Any]:
        """A and B, with a leading batch axis if there is one, and with the query's padding."""
        source = random.Random(f"{self.operands.seed}:{number}:{draw}:beyond")
        found = []
        for (rows, columns), transposed, leading, stride in (
            (query.stored_a, query.transpose_a, query.ld_a, query.stride_a),
            (query.stored_b, query.transpose_b, query.ld_b, query.stride_b),
        ):
            pool, leading = self.operands.pool(query.a, draw), leading or columns
            step = rows * leading if stride is None else stride
            size = (query.batch - 1) * step + rows * leading
            if size >= self.operands.size:
                raise CublasError("the operands are larger than the pool")
            start = source.randrange(0, (self.operands.size - size) // 256 + 1) * 256
            matrix = pool.as_strided((query.batch, rows, columns), (step, leading, 1), start)
            found.append(matrix.transpose(1, 2) if transposed else matrix)
        a, b = found
        return (a, b) if batched else (a[0], b[0])


def rows_of(start: int, step: int, deadline: float, given: argparse.Namespace) -> Iterator[list[Any]]:
    """The rows of one process."""
    import torch

    from bitwise_cublas_profiles.library import Library

    major, minor = torch.cuda.get_device_capability()
    comparison = FeatureComparison(Library(given.library), f"{major}.{minor}", Operands(given.seed))
    number = start
    while time.time() < deadline and number < given.count:
        found = query_of_number(given.seed, number, given.shares)
        if found is not None:
            yield comparison.row(number, *found)
        number += step


FEATURES = MappingProxyType({
    "batch": "batches", "bias": "biases", "gaps": "padded rows", "strided": "strided batches",
    "biased gaps": "biases with padded rows",
})  # fmt: skip
"""Profile names of the kinds."""
TYPES = ("fp16", "bf16", "fp32", "tf32")
MINIMUM_SHAPES = 16
"""Least number of shapes that support a row."""
MINIMUM_OUTPUTS = 1 << 16
"""Least number of output elements of those shapes: of sums rounded to 16 bits, one in hundreds reveals another order.
"""


ROUNDED = "biases added after rounding"
"""The feature of a bias that is added after the sum was rounded to the output type."""
ROUNDED_SLICES = 4
"""The reduction scheme without a kernel for fp32 sums: it was compared with sums rounded first only."""


def rounded_first(row: Mapping[str, Any]) -> bool | None:
    """Whether the sum of a row with a bias is rounded first; None if that was not tested."""
    if "bias" not in row["kind"] or row["split_k"] <= 1 or isinstance(row["about"], list):
        return None
    if row["outcome"] == "equal":
        return True if row["reduction"] == ROUNDED_SLICES else None
    ways = row["about"]["other ways"]
    # Alternatives are tried from the first draw that differed.
    tried = len(DRAWS) - DRAWS.index(row["about"]["draws"][0])
    return bool(ways["rounded first"] == tried)


def feature_rows(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a profile's table of features: those with enough equal shapes and no different one.

    Sums that are rounded before the bias have their own rows, by the reduction scheme of their slices. Vectors are
    excluded where PyTorch runs other kernels: one output for each matrix of a batch, a bias on one column, one padded
    row or column.
    """
    found: dict[tuple[str, int, bool, int], Counter[str]] = {}
    for run in runs:
        for values in run["rows"]:
            row = dict(zip(run["columns"], values, strict=True))
            m, n = row["m"], row["n"]
            vector = {"batch": m == 1 and n == 1, "bias": n == 1}.get(row["kind"], m == 1 or n == 1)
            if row["outcome"] not in ("equal", "different") or vector:
                continue
            sliced, rounded = row["split_k"] > 1, rounded_first(row)
            keys = {(FEATURES[row["kind"]], row["algorithm"], sliced, 0): row["outcome"] == "equal" and not rounded}
            if rounded is not None:
                keys[ROUNDED, row["algorithm"], sliced, row["reduction"]] = rounded
            for key, equal in keys.items():
                found.setdefault(key, Counter())["equal" if equal else "different"] += 1
                found[key][row["a"]] += 1
                found[key]["outputs"] += m * n * row["batch"]
    return [
        {"feature": feature, "algorithm": algorithm, "sliced": sliced,
         **({"reduction": reduction} if reduction else {}),
         "dtypes": [name for name in TYPES if count[name]], "provenance": "measured",
         "shapes": count["equal"], "draws": len(DRAWS) * count["equal"]}
        for (feature, algorithm, sliced, reduction), count in sorted(found.items())
        if not count["different"] and count["equal"] >= MINIMUM_SHAPES and count["outputs"] >= MINIMUM_OUTPUTS
    ]  # fmt: skip


FP32_KERNELS = (frozenset({10, 11, 13, 14, 20, 55}), frozenset({21, 23, 43, 63}))
"""Algorithms that multiply fp32 operands as they are, for tf32 as well, and those that round them to tf32."""


def fp32_feature_rows(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a profile's table of features for fp32 operands.

    Excluded are sums in place (REDUCTION_SCHEME 1), tiles that blocks share, sliced sums with a bias, whose order
    depends on the reduction scheme, and CUSTOM_OPTION 10 of algorithm 13, whose order was not known to these runs.
    """
    found = []
    for algorithms in FP32_KERNELS:
        kept = []
        for run in runs:
            at = {name: place for place, name in enumerate(run["columns"])}
            rows = [
                row for row in run["rows"]
                if row[at["algorithm"]] in algorithms and row[at["reduction"]] != 1 and row[at["split_k"]] != -1
                and (row[at["algorithm"]], row[at["custom"]]) != (13, 10)
                and not ("bia" in row[at["kind"]] and row[at["split_k"]] > 1)
            ]  # fmt: skip
            kept.append({**run, "rows": rows})
        found += feature_rows(kept)
    return found


def summary(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Outcomes by kind, and by kind and configuration, and whether PyTorch's functions have the same bytes."""
    at = {name: place for place, name in enumerate(COLUMNS)}
    outcomes: Counter[str] = Counter()
    families: Counter[str] = Counter()
    torch: Counter[str] = Counter()
    for row in rows:
        kind, outcome = row[at["kind"]], row[at["outcome"]]
        split = "split" if (row[at["split_k"]] or 1) > 1 else "single"
        outcomes[f"{kind}: {outcome}"] += 1
        families[f"{kind} algorithm {row[at['algorithm']]} {split} reduction {row[at['reduction']]}: {outcome}"] += 1
        for name, count in ((row[at["about"]] or {}).get("other ways", {}) if outcome == "different" else {}).items():
            families[f"{kind} algorithm {row[at['algorithm']]} {split}, {name}"] += count == len(DRAWS)
        for name, same in (row[at["torch"]] or {}).items():
            torch[f"{kind} {name}: {'same' if same else 'other'} bytes"] += 1
    return {"outcomes": dict(sorted(outcomes.items())), "families": dict(sorted(families.items())),
            "PyTorch": dict(sorted(torch.items()))}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure. The exit status is 1 if a process failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.unprofiled_features", description=(__doc__ or "").split("?")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=8, help="seed of the shapes and the operands (default 8)")
    parser.add_argument("--count", type=int, default=1 << 30, help="number of candidate queries (default: no limit)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="start no new shape after this many seconds (default 60)"
    )
    parser.add_argument("--processes", type=int, default=14, help="worker processes on the GPU (default 14)")
    parser.add_argument(
        "--shares", type=share, nargs="+", default=list(SHARES), metavar="TYPE=SHARE",
        help="frequency of each operand type (default: fp16=60 bf16=20, and fp8, which is skipped)",
    )  # fmt: skip
    parser.add_argument("--library", help="path of a libcublasLt (default: PyTorch's)")
    given = parser.parse_args(arguments)
    from bitwise_cublas_profiles.library_profile import PYTORCH_LIBRARY

    rows, died = run_workers(rows_of, given.processes, given.seconds, given)
    rows.sort(key=lambda row: int(row[0]))
    counted = summary(rows)
    head = json.dumps({**PYTORCH_LIBRARY.provenance(given.library), "seed": given.seed, **counted, "died": died,
                       "columns": list(COLUMNS)})  # fmt: skip
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    given.out.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(json.dumps({**counted, "died": died}, indent=1))
    return 1 if died else 0


if __name__ == "__main__":
    sys.exit(main())
