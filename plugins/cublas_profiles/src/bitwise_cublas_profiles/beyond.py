"""What no row of a profile covers: batches, biases, and rows with gaps between them.

    python -m bitwise_cublas_profiles.beyond --out beyond.json --seconds 60

Each shape is asked with a batch, with a bias or with leading dimensions of its own, run as answered, and run from the
descriptor that the answer would have without: for a bias the descriptor's sum in fp32, plus the bias, rounded once.
Where a bias differs, other ways to add it are tried.  PyTorch's own bmm, addmm and mm run beside.
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

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.walk import parts_of
from bitwise_cublas_profiles.processes import together
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.question import MEBIBYTE, WORKSPACE, Answer, CublasError, Question
from bitwise_cublas_profiles.seeded import DRAWS, Operands
from bitwise_cublas_profiles.shapes import drawn

COLUMNS = (
    "number", "kind", "m", "n", "k", "batch", "a", "transposes", "algorithm", "tile", "stages", "split_k", "reduction",
    "custom", "outcome", "torch", "about",
)  # fmt: skip
"""`outcome`: did the descriptor return the answer's bytes on every draw?  `torch`: did PyTorch, of those that ran?"""
KINDS = ("bias", "batch", "gaps", "strided", "biased gaps")
ALLOWANCES = (WORKSPACE, MEBIBYTE)
"""Workspaces that PyTorch may allow where it adds a bias."""
SLICES = 48
"""Slices that are added one by one where another way to add a bias is looked for."""


def asked_for(seed: int, number: int) -> tuple[str, Question] | None:
    """The question of a number: 16-bit types in all layouts; None for one that is too large."""
    source = random.Random(f"{seed}:{number}:beyond")
    asked = drawn(seed, number).asked
    if asked.a not in ("fp16", "bf16") or asked.m * asked.n * asked.k > 1 << 32:
        return None
    first, second = source.choice([(False, True), (False, True), (False, False), (True, False), (True, True)])
    # A vector's one row lies as it is read.
    asked = replace(asked, transpose_a=first and asked.m > 1, transpose_b=second and asked.n > 1)
    kind = KINDS[source.randrange(len(KINDS))]
    if kind == "bias":
        return kind, replace(asked, epilogue="bias", workspace=source.choice([WORKSPACE, MEBIBYTE, MEBIBYTE]))
    gaps = [source.choice([0, 1, 8, 8, 64, 1000]) for _ in "ab"]
    if kind in ("gaps", "biased gaps"):
        asked = replace(asked, ld_a=asked.widths["a"] + gaps[0], ld_b=asked.widths["b"] + gaps[1])
        if kind == "biased gaps":
            asked = replace(asked, epilogue="bias", workspace=MEBIBYTE)
        return (kind, asked) if max(asked.stored_a[0] * asked.widths["a"], 1) < 1 << 23 and any(gaps) else None
    batch = source.choice([1, 2, 3, 4, 8, 16, 32, 64])
    whole = batch * max(asked.m * asked.k, asked.k * asked.n, asked.m * asked.n)
    fits = whole < 1 << 23 and batch * asked.m * asked.n * asked.k < 1 << 33
    if kind == "strided" and fits:
        return kind, strided(replace(asked, batch=max(2, batch)), source, gaps)
    return (kind, replace(asked, batch=batch)) if fits else None


def strided(asked: Question, source: random.Random, gaps: Sequence[int]) -> Question:
    """The batch with gaps between matrices, one matrix for all, or the rows of all matrices in turn, as heads lie."""
    fields: dict[str, Any] = {}
    for name, gap in zip("ab", gaps, strict=True):
        rows, columns = asked.stored_a if name == "a" else asked.stored_b
        how = source.choice(["dense", "gaps", "one", "heads", "heads"])
        if how == "gaps":
            fields[f"ld_{name}"] = columns + gap
            fields[f"stride_{name}"] = rows * (columns + gap) + source.choice([0, 8, 64])
        elif how == "one":
            fields[f"stride_{name}"] = 0
        elif how == "heads":
            fields |= {f"ld_{name}": columns * asked.batch, f"stride_{name}": columns}
    return replace(asked, **fields)


class Beyond:
    """One process: the library, its profile and operands."""

    def __init__(self, library: Any, capability: str, operands: Operands) -> None:
        import torch

        self.torch, self.library, self.operands = torch, library, operands
        self.profile = profile(library.version, capability)

    def row(self, number: int, kind: str, asked: Question) -> list[Any]:
        """The row of COLUMNS for a question."""
        row: list[Any] = [number, kind, asked.m, asked.n, asked.k, asked.batch, asked.a, asked.letters]
        try:
            answer = self.library.ask(asked)[0]
        except CublasError as error:
            return [*row, *[None] * 6, "no answer", None, str(error)[:200]]
        found = answer.configuration
        row += [found.algorithm, found.tile, found.stages, found.split_k, found.reduction, found.custom]
        try:
            return [*row, *self.compared(number, kind, asked, answer)]
        except (CublasError, ValueError) as error:
            why = str(error).split(" is not described: ")[-1].split(" (algorithm")[0]
            return [*row, "declined", None, why[:200]]

    def compared(self, number: int, kind: str, asked: Question, answer: Answer) -> tuple[str, Any, Any]:
        """Outcome, what PyTorch returned, and which draws differ.  Raises CublasError and ValueError."""
        from bitwise_cublas_profiles.describe import descriptor_of
        from bitwise_cublas_profiles.tensors import run, torch_type
        from bitwise_torch import matmul

        torch = self.torch
        plain = replace(asked, batch=1, epilogue="none", ld_a=None, ld_b=None, stride_a=None, stride_b=None)
        desc = descriptor_of(plain, answer.configuration, self.profile, beyond=True)
        wide = desc.model_copy(update={"output_dtype": "fp32"})
        dtype = torch_type(asked.c)
        wrong: list[str] = []
        same: Counter[str] = Counter()
        other_ways: Counter[str] = Counter()
        for draw in DRAWS:
            a, b = self.drawn(asked, number, draw, batched=kind in ("batch", "strided"))
            many, bias = kind in ("batch", "strided"), None
            if asked.epilogue == "bias":
                bias = self.operands.pool(asked.c, draw)[number * 256 % (1 << 20) :][: asked.n]
            shape = (asked.batch, asked.m, asked.n) if many else (asked.m, asked.n)
            theirs = torch.full(shape, -7.0, dtype=dtype, device=self.operands.device)
            run(self.library, asked, answer, a, b, theirs, bias=bias)
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
                for name, found in self.ways(desc, a, b, bias) if wrong else ():
                    other_ways[name] += self.equal(found, theirs)
                for allowed in ALLOWANCES:
                    again = self.allowed(asked, allowed, a, b, bias)
                    same[f"allowed {allowed // MEBIBYTE}"] += again is not None and self.equal(other, again)
            else:
                same["library"] += self.equal(other, theirs)
        outcome = "equal" if not wrong else "different"
        about = {"draws": wrong, "other ways": dict(other_ways)} if wrong else None
        return outcome, {name: count == len(DRAWS) for name, count in same.items()}, about

    def biased(self, a: Any, b: Any, bias: Any, desc: GEMMDesc, wide: GEMMDesc) -> Any:
        """The sum in fp32, plus a bias, rounded once; where no kernel leaves the sum in fp32, rounded before too."""
        from bitwise_torch import matmul

        try:
            sums = matmul(a, b, desc=wide)
        except ValueError:
            sums = matmul(a, b, desc=desc).float()
        return (sums + bias.float()).to(bias.dtype)

    def ways(self, desc: GEMMDesc, a: Any, b: Any, bias: Any) -> Iterator[tuple[str, Any]]:
        """Other ways to add a bias, by name, with what each returns."""
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

    def allowed(self, asked: Question, workspace: int, a: Any, b: Any, bias: Any) -> Any:
        """What the library returns with an allowance of workspace, None where it has no answer."""
        from bitwise_cublas_profiles.tensors import run, torch_type

        changed = replace(asked, workspace=workspace)
        out = self.torch.full((asked.m, asked.n), -7.0, dtype=torch_type(asked.c), device=self.operands.device)
        try:
            run(self.library, changed, self.library.ask(changed)[0], a, b, out, bias=bias)
        except CublasError:
            return None
        return out

    def equal(self, one: Any, other: Any) -> bool:
        """Whether two outputs have the same bits; all NaNs are one."""
        torch = self.torch
        differ = (one.view(torch.int16) != other.view(torch.int16)) & ~(one.isnan() & other.isnan())
        return not bool(differ.any())

    def drawn(self, asked: Question, number: int, draw: str, *, batched: bool) -> tuple[Any, Any]:
        """A and B, with a batch in front where there is one, and with gaps where the question has them."""
        source = random.Random(f"{self.operands.seed}:{number}:{draw}:beyond")
        found = []
        for (rows, columns), transposed, leading, stride in (
            (asked.stored_a, asked.transpose_a, asked.ld_a, asked.stride_a),
            (asked.stored_b, asked.transpose_b, asked.ld_b, asked.stride_b),
        ):
            pool, leading = self.operands.pool(asked.a, draw), leading or columns
            step = rows * leading if stride is None else stride
            size = (asked.batch - 1) * step + rows * leading
            if size >= self.operands.size:
                raise CublasError("the operands are larger than what was drawn")
            start = source.randrange(0, (self.operands.size - size) // 256 + 1) * 256
            matrix = pool.as_strided((asked.batch, rows, columns), (step, leading, 1), start)
            found.append(matrix.transpose(1, 2) if transposed else matrix)
        a, b = found
        return (a, b) if batched else (a[0], b[0])


def rows_of(start: int, step: int, deadline: float, given: argparse.Namespace) -> Iterator[list[Any]]:
    """The rows of one process."""
    import torch

    from bitwise_cublas_profiles.library import Library

    major, minor = torch.cuda.get_device_capability()
    beyond = Beyond(Library(given.library), f"{major}.{minor}", Operands(given.seed))
    number = start
    while time.time() < deadline and number < given.count:
        found = asked_for(given.seed, number)
        if found is not None:
            yield beyond.row(number, *found)
        number += step


FORMS = MappingProxyType({
    "batch": "batches", "bias": "biases", "gaps": "rows with gaps between them", "strided": "batches with gaps",
    "biased gaps": "biases of rows with gaps",
})  # fmt: skip
"""The names of kinds in a profile's table of forms."""
ENOUGH = 16
"""Shapes that a row of that table rests on at least."""
OUTPUTS = 1 << 16
"""Output elements of those shapes: rounded to 16 bits, one in hundreds shows that its sum had another order."""


ROUNDED = "biases of rounded sums"
"""The form of a bias that is added to what the sum is after its rounding to the output's type."""
ROUNDED_SLICES = 4
"""The reduction whose sums no kernel leaves in fp32: they were held against sums rounded first, and nothing else."""


def rounded_first(row: Mapping[str, Any]) -> bool | None:
    """Whether the sum of a row with a bias is rounded first; None where that was not looked at."""
    if "bias" not in row["kind"] or row["split_k"] <= 1 or isinstance(row["about"], list):
        return None
    if row["outcome"] == "equal":
        return True if row["reduction"] == ROUNDED_SLICES else None
    ways = row["about"]["other ways"]
    # Looked at from the first draw on that differed.
    looked = len(DRAWS) - DRAWS.index(row["about"]["draws"][0])
    return bool(ways["rounded first"] == looked)


def forms(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a profile's table of forms, from the content of files: where no shape differed, and enough were equal.

    Sums that are rounded before a bias have rows of their own, by the reduction of their slices.
    Vectors are left out where PyTorch runs others of the library's kernels for them: one output of a batch, a bias on
    one column, rows with gaps of one row or column.
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
            keys = {(FORMS[row["kind"]], row["algorithm"], sliced, 0): row["outcome"] == "equal" and not rounded}
            if rounded is not None:
                keys[ROUNDED, row["algorithm"], sliced, row["reduction"]] = rounded
            for key, equal in keys.items():
                found.setdefault(key, Counter())["equal" if equal else "different"] += 1
                found[key][row["a"]] += 1
                found[key]["outputs"] += m * n * row["batch"]
    return [
        {"form": form, "algorithm": algorithm, "sliced": sliced, **({"reduction": reduction} if reduction else {}),
         "dtypes": [name for name in ("fp16", "bf16") if count[name]], "provenance": "measured",
         "shapes": count["equal"], "draws": len(DRAWS) * count["equal"]}
        for (form, algorithm, sliced, reduction), count in sorted(found.items())
        if not count["different"] and count["equal"] >= ENOUGH and count["outputs"] >= OUTPUTS
    ]  # fmt: skip


def summary(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Outcomes by kind, and by kind and configuration; whether PyTorch runs what was answered."""
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
    """Measure; the exit status is 1 where a process died."""
    parser = argparse.ArgumentParser(prog="bitwise_cublas_profiles.beyond", description=(__doc__ or "").split("?")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=8, help="of the shapes and the operands (default 8)")
    parser.add_argument("--count", type=int, default=1 << 30, help="how many numbers to look at (default: no end)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long shapes are begun (default 60)")
    parser.add_argument("--processes", type=int, default=14, help="on the one GPU (default 14)")
    parser.add_argument("--library", help="path of a libcublasLt (default: the one of the installed PyTorch)")
    given = parser.parse_args(arguments)
    from bitwise_cublas_profiles.plugin import LOADED

    rows, died = together(rows_of, given.processes, given.seconds, given)
    rows.sort(key=lambda row: int(row[0]))
    counted = summary(rows)
    head = json.dumps({**LOADED.provenance(given.library), "seed": given.seed, **counted, "died": died,
                       "columns": list(COLUMNS)})  # fmt: skip
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    given.out.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(json.dumps({**counted, "died": died}, indent=1))
    return 1 if died else 0


if __name__ == "__main__":
    sys.exit(main())
