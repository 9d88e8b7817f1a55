"""The orders of sums of batches of one element, which have kernels of their own, as trees that probes reveal.

    python -m bitwise_bench.cublas.orders.element_batches --out elements.json --seconds 60

A drawn batch of products of one row and one column is multiplied by `torch.bmm`, or by `torch.baddbmm` onto zeros.
Each element of the batch is a probe. A row has the number, function, type, k and batch, which operands are views of
transposed vectors, the type of the sums, the orders in which alpha multiplies (see `scale_orders`), for each layout
that the library may be asked for its configuration and whether the tree is that of the descriptor of one product in
it, the tree's shape in words, and the tree itself where the query of PyTorch's layout has another one. A row of one
that failed has its number and the reason. The exit status is 1 if a process failed or nothing was revealed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.addend_survey import descriptions
from bitwise_bench.cublas.orders.fp16_sum_orders import SMALL
from bitwise_bench.cublas.orders.order_survey import packed
from bitwise_bench.cublas.orders.summation_trees import tree_of
from bitwise_bench.cublas.product_forms import apply_flags, environment, form_of_product
from bitwise_bench.cublas.settings_parity import SETTINGS
from bitwise_bench.cublas.worker_processes import numbered_rows, run_workers
from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.problem import Finish, GEMMProblem
from bitwise_core.probing import describe_shape, product_instrument, reveal, tree_shape
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.pytorch_settings import current_settings
from bitwise_cublas_profiles.query import CublasError, query_of_problem
from bitwise_torch.operands import TensorArrays

_TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "tf32": "float32"}
_BATCHES = (3, 16, 64, 256)
_ALIGNMENT = (256, 256, 256)
_ALPHA, _CANCELLED = 0.1, 12
_LEAST, _MOST = 3, 2000
"""The values of k of a product: a tree has three leaves at least."""


def drawn(dice: random.Random, dtypes: Sequence[str]) -> tuple[str, str, int, int, str]:
    """Return a function, a type, k, a batch, and which operands are views."""
    k = round(math.exp(dice.uniform(math.log(_LEAST), math.log(_MOST))))
    views = dice.choice(("", "", "", "a", "b"))
    return dice.choice(("bmm", "baddbmm")), dice.choice(list(dtypes)), k, dice.choice(_BATCHES), views


def rows_of(start: int, step: int, deadline: float, given: tuple[int, Sequence[str], str]) -> Iterable[list[Any]]:
    """The rows of one process."""
    import torch

    from bitwise_cublas_profiles.library import Library

    seed, dtypes, setting = given
    apply_flags(setting)
    library = Library()
    known = profile(library.version, "{}.{}".format(*torch.cuda.get_device_capability()))

    def row(number: int) -> list[Any]:
        dice = random.Random(f"{seed}:{number}")
        return row_of(library, known, number, drawn(dice, dtypes), dice)

    return numbered_rows(row, start, step, deadline, lambda number, reason: [number, f"failed: {reason}"])


def row_of(
    library: Any, known: Any, number: int, given: tuple[str, str, int, int, str], dice: random.Random
) -> list[Any]:
    """The row of one batch."""
    import torch

    name, dtype, k, batch, views = given
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = getattr(torch, _TYPES[dtype])
    zeros = torch.zeros(batch, 1, 1, device="cuda", dtype=kind)
    function = torch.bmm if name == "bmm" else partial(torch.baddbmm, zeros)

    def multiply(a: Any, b: Any) -> Any:
        """The products of the rows of a (batch, k) and the only column of b (k, 1)."""
        rows, columns = a.contiguous(), b.t().repeat(batch, 1)
        left = rows[:, :, None].transpose(1, 2) if "a" in views else rows[:, None, :]
        right = columns[:, None, :].transpose(1, 2) if "b" in views else columns[:, :, None]
        return function(left, right)[:, 0]

    a, b = torch.ones(batch, 1, k, device="cuda", dtype=kind), torch.ones(batch, k, 1, device="cuda", dtype=kind)
    settings, problem = current_settings(), form_of_product("bmm", (a, b), {}).problem
    query = settings.applied(query_of_problem(problem, _ALIGNMENT))
    subject = product_instrument(multiply, batch, 1, k, _TYPES[dtype], arrays=TensorArrays("cuda"))
    revealed = reveal(subject)
    answers: list[list[Any]] = []
    desc = None
    for across in (query.transpose_a, not query.transpose_a):
        for down in (query.transpose_b, not query.transpose_b):
            asked = replace(query, transpose_a=across, transpose_b=down)
            found = library.heuristic(asked)[0]
            same = None
            with suppress(CublasError):
                one = replace(asked, batch=1, stride_a=None, stride_b=None, stride_c=None)
                each = descriptor_of(one, found.configuration, known, extrapolate=True, workspace=found.workspace)
                same = tree_of(each) == revealed.tree
                desc = each if not answers else desc
            answers.append([asked.transposes, list(found.configuration.record().values()), same])
    scaled = scale_orders(desc, problem, a, dice) if name == "baddbmm" and desc is not None else None
    row = [number, name, dtype, k, batch, views, sums_of(multiply, batch, k, a), scaled, answers]
    if revealed.tree is None:
        return [*row, revealed.unresolved[0]]
    shown = describe_shape(tree_shape(revealed.tree))[:120]
    return [*row, shown] if answers[0][2] else [*row, shown, packed(revealed.tree)]


def scale_orders(desc: GEMMDesc, problem: GEMMProblem, like: Any, dice: random.Random) -> list[str]:
    """Return the orders of `addend_survey.descriptions` that have the bytes of sums whose exact value is 0.

    Two values of k have the operands x and y, and y and -x, and all are multiplied by an alpha that has no exact
    products, so that the result consists of roundings: those of one operand's products with alpha, or none.
    """
    import torch

    from bitwise_torch.product_calls import product_of_form
    from bitwise_torch.product_forms import Form

    batch, _, k = like.shape
    fields = {each: getattr(problem, each) for each in type(problem).model_fields}
    finish = Finish(alpha=_ALPHA, beta=1.0, addend="matrix")
    one = GEMMProblem(**(fields | {"batch": None, "stride_a": None, "stride_b": None, "finish": finish}))
    kept: set[str] | None = None
    for _ in range(_CANCELLED):
        first, second = dice.sample(range(k), 2)
        x, y = (torch.tensor(dice.uniform(1, 2), dtype=like.dtype) for _ in range(2))
        a, b = like.new_zeros(batch, 1, k), like.new_zeros(batch, k, 1)
        a[:, 0, first], a[:, 0, second], b[:, first, 0], b[:, second, 0] = x, y, y, -x
        wanted = torch.baddbmm(like.new_zeros(batch, 1, 1), a, b, alpha=_ALPHA)[0].cpu()
        form = Form(a[0].cpu(), b[0].cpu(), (torch.zeros(1, 1, dtype=like.dtype),), one)
        found = set()
        for order, each in descriptions(desc, finish, desc.output_dtype, desc.left_dtype):
            with suppress(DescriptorError):
                if torch.equal(product_of_form(each, form).contiguous(), wanted):
                    found.add(order)
        kept = found if kept is None else kept & found
    return sorted(kept or ())


def sums_of(multiply: Callable[[Any, Any], Any], batch: int, k: int, like: Any) -> str:
    """Return the type of sums of fp16 products: fp32 keeps two halves of a unit in the last place in every order."""
    if str(like.dtype) != "torch.float16":
        return "fp32"
    ones = like.new_ones(k, 1)
    for first in range(3):
        a = like.new_zeros(batch, k)
        a[:, :3] = SMALL
        a[:, first] = 1.0
        if bool((multiply(a, ones) == 1.0).any()):
            return "fp16"
    return "fp32"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.orders.element_batches", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="where to write the record (JSON)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds (default 60)")
    parser.add_argument("--seed", type=int, default=51, help="seed of the batches (default 51)")
    parser.add_argument("--processes", type=int, default=2, help="processes for each GPU (default 2)")
    parser.add_argument("--types", nargs="+", choices=[*_TYPES], default=[*_TYPES], help="their types (default all)")
    parser.add_argument("--setting", choices=SETTINGS, default="defaults", help="PyTorch's settings (default: its own)")
    parser.add_argument("--rows", type=Path, help="a file of lines to which all rows are appended")
    given = parser.parse_args(arguments)
    os.environ.update(SETTINGS[given.setting].get("environment", {}))
    rows, died = run_workers(
        rows_of, given.processes, given.seconds, (given.seed, given.types, given.setting), kept=given.rows
    )
    rows.sort(key=lambda row: int(row[0]))
    record = {"environment": environment(), "seed": given.seed, "setting": given.setting, "rows": rows}
    given.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
    failed = [row for row in rows if len(row) == 2]
    counts: Counter[str] = Counter()
    for row in rows:
        if len(row) > 2:
            order = "the order of one product" if row[8][0][2] else "another order"
            kernel = f"algorithm {row[8][0][1][0]} custom {row[8][0][1][6]}"
            counts[f"{row[1]} {row[2]} views {row[5] or 'none'}, {kernel}: sums of {row[6]}, {order}, {row[7]}"] += 1
    for each, count in sorted(counts.items()):
        print(f"{each}: {count}")
    print(f"{len(rows)} batches, {len(failed)} failed; {[*died, *failed][:3]}")
    return 1 if died or len(failed) == len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
