"""What `torch._addmm_activation` with relu returns where a sum is a NaN, by the library's configuration.

    python -m bitwise_bench.cublas.orders.relu_of_nans --out relu-of-nans.json --seconds 60
    python -m bitwise_bench.cublas.orders.relu_of_nans --out sums.json --setting "fp16 accumulation" --types fp16
    python -m bitwise_bench.cublas.orders.relu_of_nans --write

Random calls are those of `product_forms`.  Each gets rows of A and columns of B with NaNs of both signs and with
infinities, and NaNs in the addend.  Which sums are NaNs follows from the operands in every order of additions.  A row
of the record counts what the call returns there: NaNs, zeros, and other numbers.  --write makes the table `rectifiers`
of the data file of sm_90 of the records.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.addend_survey import Survey, answers
from bitwise_bench.cublas.product_forms import TYPES, apply_flags, environment, form_of_product
from bitwise_bench.cublas.row_evidence import with_tables
from bitwise_bench.cublas.settings_parity import FP16_ACCUMULATION, SETTINGS
from bitwise_bench.cublas.worker_processes import numbered_rows, run_workers
from bitwise_cublas_profiles.profile import profile

COLUMNS = (
    "dtype", "m", "n", "k", "transposes", "alpha", "configuration", "NaNs", "zeros", "others", "wrong numbers"
)  # fmt: skip
RECORDS = sorted((Path(__file__).parents[5] / "records").glob("cublas-relu-of-nans-sm90-h200-13.1*.json.xz"))
_PLACES = 3
"""The rows, and the columns, that get NaNs and infinities."""


class NanSurvey(Survey):
    """State of one process that asks what relu makes of NaNs."""

    def called(
        self, number: int, kind: str, dtype: str, about: list[Any], name: str, arguments: tuple[Any, ...],
        options: dict[str, Any], theirs: Callable[[], Any] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The row of a call with NaNs; its only item is a reason where there is none."""
        from bitwise_core.descriptors import DescriptorError
        from bitwise_core.descriptors.problem import Finish, GEMMProblem
        from bitwise_cublas_profiles.query import CublasError
        from bitwise_torch import NotCovered
        from bitwise_torch.tensor_problems import alignment_of

        torch = self.torch
        source = random.Random(f"{self.seed}:{number}:NaNs")
        for each in arguments:
            self.plant(each, source)
        try:
            found = getattr(torch, name)(*arguments, **options)
            form = form_of_product(name, arguments, options)
            problem, finish = form.problem, form.problem.finish or Finish()
            if problem.epilogue == "bias":
                fields = {each: getattr(problem, each) for each in type(problem).model_fields}
                problem = GEMMProblem(**fields | {"finish": finish, "epilogue": "none"})
            asked = answers(
                self.library, problem, finish, self.known, (alignment_of(form.a), alignment_of(form.b), 256)
            )
        except (RuntimeError, ValueError, NotCovered, CublasError, DescriptorError) as error:
            return [f"{type(error).__name__}: {error}"[-160:]]
        addend, a, b = (each.double() for each in arguments)
        sums = addend + options.get("alpha", 1.0) * (a @ b)
        there = found[sums.isnan()]
        counts = [int(each.sum()) for each in (there.isnan(), there == 0, (there != 0) & ~there.isnan())]
        wrong = int((found[~sums.isnan()].isnan() | (found[~sums.isnan()] < 0)).sum())
        query, answer = asked[0][1:]
        return [
            dtype, query.m, query.n, query.k, query.transposes, options.get("alpha", 1.0),
            list(answer.configuration.record().values()), *counts, wrong,
        ]  # fmt: skip

    def plant(self, tensor: Any, source: random.Random) -> None:
        """Put NaNs of both signs, and infinities, into a few rows and columns of an operand, one or two in each."""
        torch = self.torch
        special = torch.tensor([float("nan"), float("inf"), float("-inf")], device=tensor.device).to(tensor.dtype)
        quiet = special[:1]
        for _ in range(_PLACES):
            place = tuple(source.randrange(length) for length in tensor.shape)
            tensor[place] = source.choice((quiet, -quiet, special[1:2], special[2:3]))[0]


def work(
    start: int, step: int, deadline: float, given: tuple[int, Sequence[tuple[str, int]], str]
) -> Iterable[list[Any]]:
    """The rows of one process."""
    seed, types, setting = given
    apply_flags(setting)
    survey = NanSurvey(seed, types, undescribed=False)
    return numbered_rows(lambda number: survey.row(number, (("relu", 1),)), start, step, deadline)


def by_kernel(rows: Iterable[Sequence[Any]]) -> dict[str, dict[str, int]]:
    """What each kernel and type returns where sums are NaNs."""
    counts: dict[str, Counter[str]] = {}
    for each in rows:
        row = dict(zip(COLUMNS, each, strict=True))
        algorithm, _, _, split, reduction, *_ = row["configuration"]
        kernel = (
            f"{row['dtype']} algorithm {algorithm}, {'slices' if split > 1 else 'no slices'}, reduction {reduction}"
        )
        found = counts.setdefault(kernel, Counter())
        found["calls"] += 1
        found.update({name: row[name] for name in ("NaNs", "zeros", "others", "wrong numbers")})
    return {name: dict(counts[name]) for name in sorted(counts)}


def rows_of(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the table `rectifiers` that records show, with their calls.

    Raises ValueError if kernels of one row return both NaNs and zeros, or anything else.
    """
    found: dict[tuple[int, bool, str, str, str], tuple[set[int], int]] = {}
    ways: dict[tuple[int, bool, int, str, str], set[str]] = {}
    for record in records:
        sums = "fp16" if record.get("setting") == FP16_ACCUMULATION else "fp32"
        for each in record["rows"]:
            row = dict(zip(record["columns"], each, strict=True))
            algorithm, _, _, split, reduction, *_ = row["configuration"]
            if row["others"] or row["wrong numbers"]:
                raise ValueError(f"relu returns other numbers: {row}")
            here = ways.setdefault((algorithm, split > 1, reduction, row["dtype"], sums), set())
            here.update({name for name, count in (("kept", row["NaNs"]), ("zero", row["zeros"])) if count})
            if len(here) > 1:
                raise ValueError(f"kernels of one row return NaNs and zeros: {row}")
            for nan in here:
                reductions, calls = found.get((algorithm, split > 1, row["dtype"], sums, nan), (set(), 0))
                found[algorithm, split > 1, row["dtype"], sums, nan] = (reductions | {reduction}, calls + 1)
    joined: dict[tuple[int, bool, tuple[int, ...], str, str], tuple[list[str], int]] = {}
    for (algorithm, sliced, dtype, sums, nan), (reductions, calls) in sorted(found.items()):
        key = (algorithm, sliced, tuple(sorted(reductions)), sums, nan)
        dtypes, before = joined.get(key, ([], 0))
        joined[key] = ([*dtypes, dtype], before + calls)
    return [
        {"algorithm": algorithm, "sliced": sliced, "reductions": list(reductions), "dtypes": dtypes}
        | ({} if sums == "fp32" else {"sums": sums}) | {"nan": nan, "sampled": calls, "provenance": "measured"}
        for (algorithm, sliced, reductions, sums, nan), (dtypes, calls) in sorted(joined.items())
    ]  # fmt: skip


def rows_to_data_file() -> None:
    """Write the table `rectifiers` of the data file of sm_90."""
    records = [json.loads(lzma.decompress(path.read_bytes())) for path in RECORDS]
    data = Path(str(files("bitwise_cublas_profiles"))) / "data" / "sm_90-13.1.json"
    tables = {name: list(each) for name, each in profile("13.1", "9.0").tables.items() if each}
    tables["rectifiers"] = list(rows_of(records))
    data.write_text(with_tables(data.read_text(encoding="utf-8"), tables), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Survey, write the record and print its counts. The exit status is 1 if a process or a call failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.orders.relu_of_nans", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, help="where to write the rows (JSON)")
    parser.add_argument("--write", action="store_true", help="write the rows of the data file from the records")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds (default 60)")
    parser.add_argument("--seed", type=int, default=83, help="seed of the calls (default 83)")
    parser.add_argument("--processes", type=int, default=8, help="processes for each GPU (default 8)")
    parser.add_argument("--types", nargs="*", choices=[name for name, _ in TYPES], help="their types (default all)")
    parser.add_argument("--setting", choices=SETTINGS, default="defaults", help="PyTorch's settings (default: its own)")
    parser.add_argument("--calls", type=Path, help="a file of lines to which all rows are appended")
    given = parser.parse_args(arguments)
    if given.write:
        rows_to_data_file()
        return 0
    if given.out is None:
        parser.error("give --out, where to write the rows, or --write")
    os.environ.update(SETTINGS[given.setting].get("environment", {}))
    types = [each for each in TYPES if not given.types or each[0] in given.types]
    task = (given.seed, types, given.setting)
    found, died = run_workers(work, given.processes, given.seconds, task, kept=given.calls)
    rows = sorted((each for each in found if len(each) == len(COLUMNS)), key=str)
    others = Counter(each[0] for each in found if len(each) != len(COLUMNS))
    about = {"environment": environment(), "seed": given.seed, "setting": given.setting}
    record = {**about, "columns": COLUMNS, "by kernel": by_kernel(rows),
              "rows": rows, "not compared": dict(others.most_common(20))}  # fmt: skip
    given.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
    for name, each in by_kernel(rows).items():
        print(f"{name}: {json.dumps(each)}")
    for reason, count in others.most_common(20):
        print(f"  {count}: {reason}")
    return 1 if died or any(reason.startswith("failed") for reason in others) else 0


if __name__ == "__main__":
    sys.exit(main())
