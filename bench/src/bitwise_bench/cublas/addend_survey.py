"""The orders of sums, alpha, beta and addends that have the bytes of PyTorch's calls, by the library's configuration.

    python -m bitwise_bench.cublas.addend_survey --out addends.json --seconds 60 --undescribed

Random calls are those of `product_forms`. For each, the library is asked for the configuration that PyTorch runs, and
the sums are described as those of a product alone; where the profile has no row for these, the descriptors of
`descriptor_mutations.alternatives` are tried. Sampled elements are evaluated on the CPU under every order of
`bitwise_cublas_profiles.finishes`; a row names the orders whose bytes are PyTorch's. `addend_orders` counts the rows.
With --undescribed, only calls that the profile declines are rows, with --algorithms only those by some algorithms of
the library; with --regimes shapes of some kinds are drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bitwise_bench.cublas.addend_orders import IN_FP16
from bitwise_bench.cublas.orders.descriptor_mutations import alternatives
from bitwise_bench.cublas.product_forms import KINDS as ALL_KINDS
from bitwise_bench.cublas.product_forms import (
    TYPES,
    Comparison,
    apply_flags,
    as_matrix,
    described,
    environment,
    form_of_product,
)
from bitwise_bench.cublas.settings_parity import SETTINGS
from bitwise_bench.cublas.sweeps.random_queries import REGIMES, regime_of
from bitwise_bench.cublas.worker_processes import numbered_rows, run_workers
from bitwise_core.descriptors import Cut, DescriptorError, Epilogue, GEMMDesc, Step
from bitwise_core.descriptors.problem import Finish, FinishedGEMM, GEMMProblem
from bitwise_cublas_profiles.describe import descriptor_of, from_first_slice
from bitwise_cublas_profiles.finishes import (
    accumulated,
    adds_row,
    in_fp16,
    plain_problem,
    scaled_query,
    scaled_steps,
    single_pass,
)
from bitwise_cublas_profiles.profile import Profile, profile
from bitwise_cublas_profiles.pytorch_settings import current_settings
from bitwise_cublas_profiles.query import CublasError, GemmQuery, HeuristicResult, query_of_problem

KINDS = tuple(each for each in ALL_KINDS if each[0] not in ("row", "grouped", "integers"))
"""The calls of `product_forms` and their shares."""
COLUMNS = (
    "compared", "call", "dtype", "m", "n", "k", "batch", "transposes", "alpha", "beta", "configuration", "orders",
)  # fmt: skip

_SECONDS = 3.0
"""The time for the orders of one call."""


def answers(
    library: Any, problem: GEMMProblem, finish: Finish, known: Profile, alignment: tuple[int, int, int]
) -> list[tuple[str, GemmQuery, HeuristicResult]]:
    """The queries that PyTorch may make for a problem with a finish, by name, and the library's answers.

    Raises CublasError.
    """
    import torch

    settings = current_settings()
    if finish.scales != "none":
        query = replace(scaled_query(problem, finish, settings.lt_workspace), alignment=alignment)
        return [("", replace(query, epilogue="none"), library.heuristic(query)[0])]
    plain = plain_problem(problem, finish, known, torch.__version__).model_copy(update={"dot": False})
    query = settings.applied(query_of_problem(plain, alignment), vector=problem.vector, dot=problem.dot)
    if finish.activation != "none":
        query = replace(query, epilogue=f"{finish.activation}_bias")
    asked = [("", query)]
    if adds_row(problem, finish):
        asked = [("", replace(query, epilogue="none")), ("bias: ", query)]
    return [(name, replace(each, epilogue="none"), library.heuristic(each)[0]) for name, each in asked]


def descriptions(desc: GEMMDesc, finish: Finish, output: str, dtype: str) -> Iterator[tuple[str, FinishedGEMM]]:
    """The orders of a finish, and a description for each; `operand_a` and `operand_b` scale an operand by alpha.

    Of sums of fp16, which only have orders of operations of fp16, the names end in IN_FP16.
    """
    if desc.accumulator_dtype == "fp16":
        finish = in_fp16(finish)
        yield from ((f"{name}{IN_FP16}", each) for name, each in _descriptions(desc, finish, output, dtype, "fp16"))
    else:
        yield from _descriptions(desc, finish, output, dtype, "fp32")


def _descriptions(
    desc: GEMMDesc, finish: Finish, output: str, dtype: str, arithmetic: Literal["fp16", "fp32"]
) -> Iterator[tuple[str, FinishedGEMM]]:
    fields = {name: getattr(desc, name) for name in type(desc).model_fields} | {"output_dtype": "fp32"}
    sums, converted = GEMMDesc(**fields), Step(name="convert", dtype=output)
    activation = ("relu",) if finish.activation == "relu" else ()

    def fused(alpha: float, fused: Any) -> Epilogue:
        step = Step(
            name="axpby", value=alpha, operand_value=finish.beta, fused=fused, operand_dtype=output,
            arithmetic=arithmetic,
        )  # fmt: skip
        return Epilogue.of(step, *activation, converted)

    if finish.addend == "none":
        scale = () if finish.alpha == 1.0 else (Step(name="scale", value=finish.alpha),)
        yield "scaled", FinishedGEMM(product=sums, steps=Epilogue.of(*scale, converted))
    else:
        yield "product_fused", FinishedGEMM(product=sums, steps=fused(finish.alpha, "x"))
        yield "addend_fused", FinishedGEMM(product=sums, steps=fused(finish.alpha, "operand"))
        if finish.alpha != 1.0 and finish.beta != 1.0:
            yield "both_rounded", FinishedGEMM(product=sums, steps=fused(finish.alpha, "none"))
        with suppress(DescriptorError):
            added = Step(name="add", operand_dtype=output)
            scaled = Step(
                name="axpby", value=finish.alpha, operand_value=0.0, fused="operand", operand_dtype=output,
                arithmetic=arithmetic,
            )  # fmt: skip
            yield "onto_itself", FinishedGEMM(
                product=from_first_slice(sums), steps=Epilogue.of(scaled, added, *activation, converted),
                onto_addend=True,
            )  # fmt: skip
    for name, one in (("onto_product_fused", "x"), ("onto_addend_fused", "operand"), ("onto_both_rounded", "none")):
        with suppress(DescriptorError):  # slices that are not consecutive
            yield name, FinishedGEMM(
                product=from_first_slice(sums), steps=fused(finish.alpha, one), onto_addend=True
            )  # fmt: skip
    if finish.addend == "none":
        return
    if finish.beta == 1.0:
        scale = () if finish.alpha == 1.0 else (Step(name="scale", value=finish.alpha),)
        steps = Epilogue.of(*scale, converted, "add", *activation)
        yield "rounded", FinishedGEMM(product=sums, steps=steps)
    if finish.alpha != 1.0 and desc.path == "fma" and arithmetic == "fp32":
        wide = GEMMDesc(**(fields | {"left_dtype": "fp32", "right_dtype": "fp32"}))
        for name in ("a", "b"):
            yield f"operand_{name}", FinishedGEMM(
                product=wide, steps=fused(1.0, "operand"), scaled=name, scale=finish.alpha, widened_from=dtype
            )  # fmt: skip


class Survey(Comparison):
    """State of one process: the library, and which calls are rows."""

    unaligned, sparse_vectors = 0.3, True

    def __init__(
        self, seed: int, types: Sequence[tuple[str, int]], *, undescribed: bool, algorithms: Sequence[int] = ()
    ) -> None:
        from bitwise_cublas_profiles.library import Library

        super().__init__(seed, elements=True, types=types)
        self.library, self.undescribed, self.algorithms = Library(), undescribed, algorithms
        capability = "{}.{}".format(*self.torch.cuda.get_device_capability())
        self.known = profile(self.library.version, capability)

    def called(
        self, number: int, kind: str, dtype: str, about: list[Any], name: str, arguments: tuple[Any, ...],
        options: dict[str, Any], theirs: Callable[[], Any] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The row of a call; its only item is a reason where there is none."""
        from bitwise_torch import NotCovered
        from bitwise_torch.product_calls import product_of_form
        from bitwise_torch.tensor_problems import alignment_of

        torch = self.torch
        try:
            wanted = getattr(torch, name)(*arguments, **options)
        except (RuntimeError, ValueError):
            return ["refused by PyTorch"]
        if self.undescribed:
            try:
                described(name, arguments, options)
                return ["described"]
            except NotCovered:
                pass
        try:
            form = form_of_product(name, arguments, options)
            problem = form.problem
            finish = problem.finish or Finish()
            if problem.epilogue == "bias":
                fields = {each: getattr(problem, each) for each in type(problem).model_fields}
                finish = Finish(addend="vector", beta=1.0)
                problem = GEMMProblem(**fields | {"finish": finish, "epilogue": "none"})
            alignment = alignment_of(form.a), alignment_of(form.b), 256
            asked = answers(self.library, problem, finish, self.known, alignment)
        except (NotCovered, CublasError, DescriptorError) as error:
            return [str(error)[-160:]]
        if self.algorithms and asked[0][2].configuration.algorithm not in self.algorithms:
            return ["another algorithm"]
        mine, there = self.sampled(number, form, as_matrix(wanted))
        orders: list[str] = []
        latest = time.time() + _SECONDS
        for way, query, found in asked:
            for others in (False, True):
                if others and orders:
                    break
                for sums, desc in self.sums(query, found, others=others):
                    for order, each in self.candidates(problem, finish, query, desc) if time.time() < latest else ():
                        with suppress(DescriptorError):  # no unit has these types
                            result = product_of_form(each, mine).contiguous()
                            if torch.equal(result.view(self.bits(wanted)), there.view(self.bits(wanted))):
                                orders.append(f"{way}{sums}{order}")
        query, found = asked[0][1:]
        call = "one row" if kind == "matrix" and query.m == 1 and finish.beta == 1.0 else kind
        padded = any(each not in (None, query.dense_ld[name]) for name, each in (("a", query.ld_a), ("b", query.ld_b)))
        call += " unaligned" if min(alignment) < 16 else " padded" if padded else ""
        return [
            "elements", call, dtype, query.m, query.n, query.k, query.batch, query.transposes, finish.alpha,
            finish.beta, list(found.configuration.record().values()), orders,
        ]  # fmt: skip

    def bits(self, result: Any) -> Any:
        """The integers of the width of a result's type."""
        return self.torch.int32 if result.element_size() == 4 else self.torch.int16

    def sums(self, query: GemmQuery, found: HeuristicResult, *, others: bool) -> list[tuple[str, GEMMDesc]]:
        """The descriptors of the sums of an answer: that of the profile, or with `others` alternatives by name."""
        split, plain = found.configuration.split_k, replace(query, fast_accumulation=False)
        if query.blocks is not None:
            product = single_pass(query.k, query.a, query.b, self.known, fast_accumulation=False)
            if split <= 1:
                return [("", product)]
            step = 512 if 128 in query.blocks else 128
            cuts = (Cut(span=-(-(query.k // split) // step) * step), *product.k_cuts)
            return [("", product.model_copy(update={"k_cuts": cuts}))]
        known: list[tuple[str, GEMMDesc]] = []
        with suppress(CublasError):
            desc = descriptor_of(plain, found.configuration, self.known, extrapolate=True, workspace=found.workspace)
            known.append(("", desc))
        if not others:
            return known
        chains = [desc for _, desc in known if desc.path == "fma"]
        made = [("rounded products", desc.model_copy(update={"path": "mul_add"})) for desc in chains]
        made += alternatives(plain, split)
        if query.compute == "fp16":
            made = [(name, with_fp16_sums(desc)) for name, desc in made] + [
                (f"{name} in fp32", desc) for name, desc in made
            ]
        return [(f"{name}: ", desc) for name, desc in made]

    def candidates(
        self, problem: GEMMProblem, finish: Finish, query: GemmQuery, desc: GEMMDesc
    ) -> Iterator[tuple[str, GEMMDesc | FinishedGEMM]]:
        """The descriptions of a call whose sums have a descriptor, by the name of the order."""
        if finish.scales == "tensor":
            product = accumulated(desc, finish.fast_accumulation)
            yield "addend_fused", FinishedGEMM(product=product, steps=scaled_steps(problem, ("multiply",)))
        elif finish.scales == "blocks":
            for order in ("product_first", "left_first"):
                yield order, FinishedGEMM(product=desc, steps=scaled_steps(problem, ()), block_scaling=order)
        elif finish == Finish():
            yield "plain", desc
        else:
            yield from descriptions(desc, finish, query.c, query.a)


def with_fp16_sums(desc: GEMMDesc) -> GEMMDesc:
    """A descriptor with sums of fp16."""
    fields = {name: getattr(desc, name) for name in type(desc).model_fields}
    cuts = tuple(each.model_copy(update={"partial_dtype": "fp16", "merge_dtype": "fp16"}) for each in desc.k_cuts)
    return GEMMDesc(**(fields | {"accumulator_dtype": "fp16", "k_cuts": cuts}))


def work(
    start: int, step: int, deadline: float,
    given: tuple[int, Sequence[tuple[str, int]], Any, bool, str, Sequence[str], Sequence[int]],
) -> Iterable[list[Any]]:  # fmt: skip
    """The rows of one process."""
    seed, kinds, types, undescribed, setting, regimes, algorithms = given
    apply_flags(setting)
    survey = Survey(seed, types, undescribed=undescribed, algorithms=algorithms)
    return numbered_rows(
        lambda number: survey.row(number, kinds) if regime_of(number) in regimes else None, start, step, deadline
    )


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
    parser.add_argument("--setting", choices=SETTINGS, default="defaults", help="PyTorch's settings (default: its own)")
    parser.add_argument(
        "--regimes", nargs="+", choices=REGIMES, default=REGIMES, help="the kinds of shapes (default all)"
    )
    parser.add_argument("--algorithms", type=int, nargs="+", default=[], help="algorithms (default all)")
    parser.add_argument("--calls", type=Path, help="a file of lines to which all rows are appended")
    given = parser.parse_args(arguments)
    os.environ.update(SETTINGS[given.setting].get("environment", {}))
    kinds = [each for each in KINDS if not given.kinds or each[0] in given.kinds]
    types = [each for each in TYPES if not given.types or each[0] in given.types]
    task = (given.seed, kinds, types, given.undescribed, given.setting, given.regimes, given.algorithms)
    found, died = run_workers(work, given.processes, given.seconds, task, kept=given.calls)
    rows = sorted((each for each in found if len(each) == len(COLUMNS)), key=str)
    others = Counter(each[0] for each in found if len(each) != len(COLUMNS))
    about = {"environment": environment(), "seed": given.seed, "setting": given.setting}
    about |= {"regimes": given.regimes} if given.regimes != REGIMES else {}
    about |= {"algorithms": given.algorithms} if given.algorithms else {}
    record = {**about, "columns": COLUMNS, "rows": rows}
    given.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
    for name, each in by_kernel(rows).items():
        print(f"{name}: {json.dumps(each)}")
    for reason, count in others.most_common(30):
        print(f"  {count}: {reason}")
    print(f"{len(found)} calls, {len(rows)} rows; {died[:3]}")
    return 1 if died or any(each.startswith("failed") for each in others) else 0


if __name__ == "__main__":
    sys.exit(main())
