"""The orders of alpha, beta and addends that have the bytes of PyTorch's calls, by the library's configuration.

    python -m bitwise_bench.cublas.addend_survey --out addends.json --seconds 60 --undescribed

Random calls are those of `product_forms`. For each, the library is asked for the configuration that PyTorch runs, and
the sums are described as those of a product alone. Sampled elements are evaluated on the CPU under every order of
`bitwise_cublas_profiles.finishes`; a row names the orders whose bytes are PyTorch's. `addend_orders` counts the rows.
With --undescribed, only calls that the profile declines are rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.product_forms import TYPES, Comparison, environment
from bitwise_bench.cublas.worker_processes import run_workers
from bitwise_core.descriptors import DescriptorError, Epilogue, GEMMDesc, Step
from bitwise_core.descriptors.problem import Finish, FinishedGEMM, GEMMProblem
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.finishes import plain_problem
from bitwise_cublas_profiles.profile import Profile, profile
from bitwise_cublas_profiles.pytorch_settings import current_settings
from bitwise_cublas_profiles.query import CublasError, GemmQuery, HeuristicResult, query_of_problem

KINDS = (("matrix", 4), ("vector", 6), ("relu", 3), ("batch", 6))
"""The calls of `product_forms` and their shares."""
COLUMNS = (
    "compared", "call", "dtype", "m", "n", "k", "batch", "transposes", "alpha", "beta", "configuration", "orders",
)  # fmt: skip


def answer(library: Any, problem: GEMMProblem, finish: Finish, known: Profile) -> tuple[GemmQuery, HeuristicResult]:
    """The query that PyTorch makes for a problem with a finish, and the library's answer. Raises CublasError."""
    import torch

    plain = plain_problem(problem, finish, known, torch.__version__)
    query = current_settings().applied(query_of_problem(plain, (256, 256, 256)))
    if finish.activation == "relu":
        query = replace(query, epilogue="relu_bias")
    return replace(query, epilogue="none"), library.heuristic(query)[0]


def descriptions(desc: GEMMDesc, finish: Finish, output: str, dtype: str) -> Iterator[tuple[str, FinishedGEMM]]:
    """The orders of a finish, and a description for each; `operand_a` and `operand_b` scale an operand by alpha."""
    fields = {name: getattr(desc, name) for name in type(desc).model_fields} | {"output_dtype": "fp32"}
    sums, converted = GEMMDesc(**fields), Step(name="convert", dtype=output)
    activation = ("relu",) if finish.activation == "relu" else ()

    def fused(alpha: float, fused: Any) -> Epilogue:
        step = Step(
            name="axpby", value=alpha, operand_value=finish.beta, fused=fused, operand_dtype=output
        )  # fmt: skip
        return Epilogue.of(step, *activation, converted)

    yield "product_fused", FinishedGEMM(product=sums, steps=fused(finish.alpha, "x"))
    yield "addend_fused", FinishedGEMM(product=sums, steps=fused(finish.alpha, "operand"))
    if finish.beta == 1.0:
        scale = () if finish.alpha == 1.0 else (Step(name="scale", value=finish.alpha),)
        steps = Epilogue.of(*scale, converted, "add", *activation)
        yield "rounded", FinishedGEMM(product=sums, steps=steps)
    if finish.alpha != 1.0 and desc.path == "fma":
        wide = GEMMDesc(**(fields | {"left_dtype": "fp32", "right_dtype": "fp32"}))
        for name in ("a", "b"):
            yield f"operand_{name}", FinishedGEMM(
                product=wide, steps=fused(1.0, "operand"), scaled=name, scale=finish.alpha, widened_from=dtype
            )  # fmt: skip


class Survey(Comparison):
    """State of one process: the library, and which calls are rows."""

    def __init__(self, seed: int, types: Sequence[tuple[str, int]], *, undescribed: bool) -> None:
        from bitwise_cublas_profiles.library import Library

        super().__init__(seed, elements=True, types=types)
        self.library, self.undescribed = Library(), undescribed
        capability = "{}.{}".format(*self.torch.cuda.get_device_capability())
        self.known = profile(self.library.version, capability)

    def called(
        self, number: int, kind: str, dtype: str, about: list[Any], name: str, arguments: tuple[Any, ...],
        options: dict[str, Any], theirs: Callable[[], Any] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The row of a call; its only item is a reason where there is none."""
        from bitwise_torch import NotCovered
        from bitwise_torch.product_calls import described_call, product_of_form
        from bitwise_torch.product_forms import Form, NotLockable, form_of
        from bitwise_torch.tensor_problems import problem_of

        torch = self.torch
        if self.undescribed:
            try:
                described_call(name, arguments, options, "cublas")
                return ["described"]
            except NotCovered:
                pass
        addend, a, b = arguments
        try:
            form = form_of(name, "", arguments, options)
            if form is None:  # a bias alone
                problem = problem_of(a, b, a.dtype)
                fields = {each: getattr(problem, each) for each in type(problem).model_fields}
                problem = GEMMProblem(**fields | {"finish": Finish(addend="vector", beta=1.0)})
                form = Form(a, b, (addend.expand(a.shape[0], b.shape[1]),), problem)
            finish = form.problem.finish
            if finish is None or finish.addend == "none":
                return ["no addend"]
            query, found = answer(self.library, form.problem, finish, self.known)
            desc = descriptor_of(query, found.configuration, self.known, extrapolate=True, workspace=found.workspace)
        except (NotLockable, CublasError, DescriptorError) as error:
            return [str(error)[-160:]]
        wanted = getattr(torch, name)(*arguments, **options)
        mine, there = self.sampled(number, form, wanted)
        bits = torch.int32 if wanted.element_size() == 4 else torch.int16
        orders = [
            order
            for order, each in descriptions(desc, finish, query.c, query.a)
            if torch.equal(product_of_form(each, mine).contiguous().view(bits), there.view(bits))
        ]
        orders += ["untried"] if finish.alpha != 1.0 and desc.path != "fma" else []
        call = "one row" if kind == "matrix" and query.m == 1 and finish.beta == 1.0 else kind
        return [
            "elements", call, dtype, query.m, query.n, query.k, query.batch, query.transposes, finish.alpha,
            finish.beta, list(found.configuration.record().values()), orders,
        ]  # fmt: skip


def work(
    start: int, step: int, deadline: float, given: tuple[int, Sequence[tuple[str, int]], Any, bool]
) -> Iterable[list[Any]]:
    """The rows of one process."""
    seed, kinds, types, undescribed = given
    survey, number = Survey(seed, types, undescribed=undescribed), start
    while time.time() < deadline:
        number += step
        try:
            row = survey.row(number, kinds)
        except Exception as error:
            row = [f"failed: {type(error).__name__}: {error}"[:300]]
        if row is not None:
            yield row


def by_kernel(rows: Iterable[Sequence[Any]]) -> dict[str, dict[str, int]]:
    """How many rows of each kernel, type and addend have each order."""
    counts: dict[str, Counter[str]] = {}
    for each in rows:
        row = dict(zip(COLUMNS, each, strict=True))
        algorithm, _, _, split, reduction, _, custom, *_ = row["configuration"]
        kernel = f"algorithm {algorithm}, {'slices' if split > 1 else 'no slices'}, reduction {reduction}"
        if algorithm in (11, 13, 14):
            kernel += f", custom {custom}"
        plain = "plain" if row["alpha"] == row["beta"] == 1 else "scaled"
        found = counts.setdefault(f"{row['call']} {row['dtype']} {plain}: {kernel}", Counter())
        found["calls"] += 1
        found.update(row["orders"] or ["none"])
    return {name: dict(counts[name]) for name in sorted(counts)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Survey, write the record and print its counts. The exit status is 1 if a process or a call failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.addend_survey", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write the rows (JSON)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds (default 60)")
    parser.add_argument("--seed", type=int, default=81, help="seed of the calls (default 81)")
    parser.add_argument("--processes", type=int, default=8, help="processes for each GPU (default 8)")
    parser.add_argument("--undescribed", action="store_true", help="leave out the calls that the profile describes")
    parser.add_argument("--kinds", nargs="*", choices=[name for name, _ in KINDS], help="the calls (default all)")
    parser.add_argument("--types", nargs="*", choices=[name for name, _ in TYPES], help="their types (default all)")
    given = parser.parse_args(arguments)
    kinds = [each for each in KINDS if not given.kinds or each[0] in given.kinds]
    types = [each for each in TYPES if not given.types or each[0] in given.types]
    found, died = run_workers(work, given.processes, given.seconds, (given.seed, kinds, types, given.undescribed))
    rows = sorted(each for each in found if len(each) == len(COLUMNS))
    others = Counter(each[0] for each in found if len(each) != len(COLUMNS))
    record = {"environment": environment(), "seed": given.seed, "columns": COLUMNS, "rows": rows}
    given.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
    for name, each in by_kernel(rows).items():
        print(f"{name}: {json.dumps(each)}")
    for reason, count in others.most_common(30):
        print(f"  {count}: {reason}")
    print(f"{len(found)} calls, {len(rows)} rows; {died[:3]}")
    return 1 if died or any(each.startswith("failed") for each in others) else 0


if __name__ == "__main__":
    sys.exit(main())
