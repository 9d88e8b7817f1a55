"""Compare PyTorch's products, alone and with addends, activations, scales and groups, with what describes them.

    python -m bitwise_bench.cublas.product_forms --out forms.json --seconds 60 --elements

Random shapes, layouts, types, alpha and beta. An addend is random, or cancels the product, so that the result consists
of the roundings of both. With --elements nine elements of each result are compared with the call's description,
evaluated on the CPU; without, whole results with those of our kernels, for the calls that have functions of their own.
With --exponents, each operand is multiplied by a power of two, so that results underflow or overflow.
With --setting, PyTorch runs under a setting of `settings_parity`, with --regimes on shapes of some kinds. --calls
appends the call of each row to a file, and `product_form_records` makes a record of several of these. With --again,
the calls of such a record under the setting that were not equal are compared again, and so are its batches of one
element; a run is written for each of its seeds. The exit status is 1 if bytes differ, or if more than the share
`--declined` of the calls of a kind and type is declined.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.settings_parity import SETTINGS
from bitwise_bench.cublas.sweeps.random_queries import REGIMES, random_query, regime_of
from bitwise_bench.cublas.worker_processes import numbered_rows, run_workers
from bitwise_cublas_profiles.query import GemmQuery

ALPHAS = (1.0, 1.0, 1.0, 0.5, -1.3, 0.1)
BETAS = (1.0, 1.0, 1.0, 0.3, -2.0, 0.0)
FUSED = 8
"""One of so many calls is repeated."""
KINDS = (
    ("product", 30), ("products", 14), ("times a vector", 6), ("dot", 3), ("matrix", 26), ("vector", 10), ("line", 6),
    ("expanded", 8), ("in place", 6), ("column", 6), ("batch", 12), ("relu", 7), ("tensor", 9), ("row", 7),
    ("blocks", 6), ("grouped", 7), ("integers", 6),
)  # fmt: skip
"""The calls and their shares: products of matrices, of batches and of vectors; addends by shape, operations in place,
addmv, a batch of matrices; scales for each operand, for each row and column, or for each block of 128 values of k;
int8.  A line is an addend of shape (1, n)."""
PLAIN = {"product": "mm", "products": "bmm", "times a vector": "mv", "dot": "dot"}
"""The functions of products alone, which --elements compares, as it does integers."""
_TYPES = {"matrix", "vector", "line", "expanded", "in place", "column", "batch", "relu", *PLAIN}
TYPES = (("bf16", 8), ("fp16", 8), ("fp32", 6), ("tf32", 2))
"""The types of calls with addends and their shares."""
_LARGEST = 1 << 22
"""Elements of a matrix whose whole products are compared."""
_LARGEST_SAMPLED = 1 << 24
"""Elements of a matrix where elements of products are compared."""
_MOST_PRODUCTS = {False: 1 << 31, True: 1 << 34}
"""Multiplications of a call, by whether elements are compared."""
_PADDED = 0.15
"""The share of matrices with gaps between rows."""
UNFINISHED = "the run was ended before its time"
_FP8 = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_NAMES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", **_FP8}


def drawn(
    seed: int, number: int, kinds: Sequence[tuple[str, int]], types: Sequence[tuple[str, int]]
) -> tuple[random.Random, str, str, GemmQuery]:
    """The source of what else a numbered call draws, its kind and type, and its shape as a query."""
    source = random.Random(f"{seed}:{number}:forms")
    kind = source.choices([name for name, _ in kinds], [share for _, share in kinds])[0]
    dtype = source.choices(*zip(*types, strict=True))[0] if kind in _TYPES else "e4m3"
    return source, kind, dtype, random_query(seed, number, shares=(("fp32" if dtype == "tf32" else dtype, 1),)).query


def to_compare_again(run: Mapping[str, Any]) -> list[int]:
    """The numbers of a recorded run's calls that were not equal, and of its batches of one element."""
    found = []
    for outcome, distances in run["calls"].items():
        for number in itertools.accumulate(distances):
            _, kind, _, query = drawn(run["seed"], number, run["kinds"], run["types"])
            if outcome != "equal" or (kind in ("products", "batch") and query.m == query.n == 1):
                found.append(number)
    return sorted(found)


class Comparison:
    """State of one process: a generator of operands, and the shares of types of calls with addends."""

    device = "cuda"
    unaligned = 0.0
    """The share of padded matrices whose first element has no alignment."""
    sparse_vectors = False
    """Whether a product alone may have one row or one column with gaps."""

    def __init__(
        self, seed: int, *, elements: bool = False, types: Sequence[tuple[str, int]] = TYPES,
        exponents: Sequence[int] = (),
    ) -> None:  # fmt: skip
        import torch

        self.torch, self.seed, self.elements, self.types = torch, seed, elements, types
        self.exponents = tuple(exponents)
        """Exponents of two, of which each matrix is multiplied by one."""
        self.largest = _LARGEST_SAMPLED if elements else _LARGEST
        self.generator = torch.Generator(device=self.device)

    def matrix(
        self, rows: int, columns: int, dtype: str, transposed: bool, source: random.Random, *, padded: bool = False
    ) -> Any:
        """A random matrix, stored by columns if `transposed`; half of them have magnitudes over six binades more."""
        torch = self.torch
        shape = (columns, rows) if transposed else (rows, columns)
        gap = source.choice([1, 2, 8, 16, 64]) if padded and source.random() < _PADDED else 0
        stored = (shape[0], shape[1] + gap)
        found = torch.randn(stored, device=self.device, generator=self.generator)
        if source.random() < 0.5:
            found *= torch.randint(-4, 3, stored, device=self.device, generator=self.generator).float().exp2()
        if self.exponents:
            found *= 2.0 ** source.choice(self.exponents)
        first = 1 if gap and source.random() < self.unaligned else 0
        found = found.to(getattr(torch, _NAMES[dtype]))[:, first : first + shape[1]]
        return found.t() if transposed else found

    def row(self, number: int, kinds: Sequence[tuple[str, int]]) -> list[Any] | None:
        """The kind, types and outcome of a numbered call; None where its matrices are too large."""
        source, kind, dtype, query = drawn(self.seed, number, kinds, self.types)
        self.generator.manual_seed(number)
        if (
            query.m * query.n * query.k > _MOST_PRODUCTS[self.elements]
            or max(query.m * query.k, query.k * query.n, query.m * query.n) > self.largest
        ):
            return None
        self.torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        calls = {
            "tensor": self.scaled, "row": self.scaled, "blocks": self.scaled, "grouped": self.grouped,
            "integers": self.integers,
        }  # fmt: skip
        call = self.alone if kind in PLAIN else calls.get(kind, self.added)
        return call(number, kind, query, dtype, source)

    def integers(self, number: int, kind: str, query: GemmQuery, _: str, source: random.Random) -> list[Any]:
        """A call of `torch._int_mm`, of which elements are compared with exact sums."""
        torch = self.torch
        m, n, k = max(query.m, 17), 8 * -(-query.n // 8), 8 * -(-query.k // 8)
        across = source.random() < 0.5
        a, b = (
            torch.randint(-128, 128, shape, device=self.device, dtype=torch.int8, generator=self.generator)
            for shape in ((m, k), (n, k) if across else (k, n))
        )
        b = b.t() if across else b
        about = [m, n, k, 1, f"N{'NT'[across]}"]
        try:
            wanted = torch._int_mm(a, b)
        except RuntimeError as error:
            return [number, kind, "int8", "refused by PyTorch", about, str(error).split(" with ")[0][:200]]
        rows, columns = (
            torch.tensor(sorted({0, length - 1, source.randrange(length)}), device=self.device) for length in (m, n)
        )
        exact = a[rows].cpu().long() @ b.t()[columns].t().cpu().long()
        equal = torch.equal(exact, wanted[rows][:, columns].cpu().long())
        return [number, kind, "int8", "equal" if equal else "different", about, None]

    def alone(self, number: int, kind: str, query: GemmQuery, dtype: str, source: random.Random) -> list[Any] | None:
        """A call of a product alone, of matrices, a batch, or vectors."""
        batch = source.choice([2, 3, 8, 16]) if kind == "products" else 1
        if batch * max(query.m * query.k, query.k * query.n, query.m * query.n) > self.largest:
            return None
        m, n = (1 if kind == "dot" else query.m), (1 if kind in ("dot", "times a vector") else query.n)
        across, down = m > 1 and source.random() < 0.3, n > 1 and source.random() < 0.5
        about = [m, n, query.k, batch, f"{'NT'[across]}{'NT'[down]}"]
        if kind == "products":
            a = self.stacked([self.matrix(m, query.k, dtype, across, source) for _ in range(batch)], across)
            b = self.stacked([self.matrix(query.k, n, dtype, down, source) for _ in range(batch)], down)
        else:
            a = self.matrix(m, query.k, dtype, across, source, padded=m > 1 or self.sparse_vectors)
            b = self.matrix(query.k, n, dtype, down, source, padded=n > 1 or self.sparse_vectors)
            a = a[0].contiguous() if kind == "dot" else a
            b = b[:, 0].contiguous() if n == 1 and kind != "product" else b
        about.append([list(a.stride()), list(b.stride())])
        return self.called(number, kind, dtype, about, PLAIN[kind], (a, b), {})

    def added(self, number: int, kind: str, query: GemmQuery, dtype: str, source: random.Random) -> list[Any] | None:
        """A call with an addend."""
        torch = self.torch
        query = replace(
            query, transpose_a=query.m > 1 and source.random() < 0.3, transpose_b=query.n > 1 and source.random() < 0.5
        )
        alpha, beta = source.choice(ALPHAS), source.choice(BETAS)
        batch = source.choice([2, 3, 8, 16]) if kind == "batch" else 1
        if batch * max(query.m * query.k, query.k * query.n, query.m * query.n) > self.largest:
            return None
        padded = self.elements and kind not in ("batch", "column")
        lefts = [self.matrix(query.m, query.k, dtype, query.transpose_a, source, padded=padded) for _ in range(batch)]
        rights = [self.matrix(query.k, query.n, dtype, query.transpose_b, source, padded=padded) for _ in range(batch)]
        if kind == "batch":
            a, b = self.stacked(lefts, query.transpose_a), self.stacked(rights, query.transpose_b)
        else:
            (a,), (b,) = lefts, rights
        shape: tuple[int, ...] = (*a.shape[:-1], query.n)
        if kind in ("vector", "relu"):
            shape = (query.n,)
        elif kind == "column" and query.m == 1:
            return None
        elif kind == "column":
            b, shape = b[:, 0].contiguous(), (query.m,)
        elif kind == "expanded":
            if query.m == 1:
                return None
            shape = source.choice([(query.m, 1), (1, 1), (1,), ()])
        elif kind == "line":
            shape = (1, query.n)
        addend = torch.randn(shape, device=self.device, generator=self.generator).to(a.dtype)
        if source.random() < 0.6 and beta:
            product = alpha / beta * (a.float() @ b.float())
            row = source.randrange(query.m)
            for axis, length in enumerate(shape[::-1], 1):
                if length == 1 and product.dim() >= axis:
                    product = product.narrow(-axis, row % product.shape[-axis], 1)
            if product.dim() > len(shape):
                product = product[row % len(product)] if shape else product.reshape(-1)[0]
            addend = (-product).reshape(shape).to(a.dtype)
        about = [query.m, query.n, query.k, batch, query.transposes, alpha, beta, list(shape)]
        if kind == "relu":
            if query.n == 1:
                return None
            return self.called(number, kind, dtype, about, "_addmm_activation", (addend, a, b), {"alpha": alpha})
        name = {"batch": "baddbmm", "column": "addmv"}.get(kind, "addmm")
        options = {"alpha": alpha, "beta": beta}
        theirs = None
        if kind == "in place":
            theirs = lambda: addend.clone().addmm_(a, b, **options)  # noqa: E731
        return self.called(number, kind, dtype, about, name, (addend, a, b), options, theirs)

    def stacked(self, matrices: Sequence[Any], transposed: bool) -> Any:
        """The matrices as one batch, each stored as it is."""
        found = self.torch.stack([each.t() if transposed else each for each in matrices])
        return found.transpose(1, 2) if transposed else found

    def scaled(self, number: int, kind: str, query: GemmQuery, dtype: str, source: random.Random) -> list[Any]:
        """A call with scales of fp8 operands."""
        torch = self.torch
        left, right = source.choice([("e4m3", "e4m3"), ("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")])
        fast, output = source.random() < 0.5, source.choice(["bf16", "bf16", "fp16", "fp32"])
        blocks = source.choice([(1, 128), (1, 128), (128, 1), (1, 1)])
        if kind == "blocks":
            left = right = "e4m3"
            fast, k = False, 128 * -(-query.k // 128)
            query = replace(query, m=query.m if query.m < 3 else 4 * -(-query.m // 4), k=k, ld_a=None, ld_b=None)
        a = self.matrix(query.m, query.k, left, False, source)
        b = self.matrix(query.k, query.n, right, True, source)
        if kind == "blocks":
            scale_a, scale_b = self.block_scales(query.m, k, blocks[0]), self.block_scales(query.n, k, blocks[1]).t()
        else:
            shapes = ((1, 1), (1, 1)) if kind == "tensor" else ((query.m, 1), (1, query.n))
            scale_a, scale_b = (torch.rand(each, device=self.device, generator=self.generator) + 0.3 for each in shapes)
        target, bias = getattr(torch, _NAMES[output]), None
        if source.random() < 0.4 and output != "fp32":
            bias = torch.randn(query.n, device=self.device, generator=self.generator)
            if source.random() < 0.6:
                bias = -((a[source.randrange(query.m)].float() @ b.float()) * scale_a.mean() * scale_b.mean()).reshape(
                    -1
                )
            bias = bias.to(target)
        about = [query.m, query.n, query.k, 1, "NT", left, right, output, fast, bias is not None]
        about += [list(blocks)] if kind == "blocks" else []
        options = {"bias": bias, "out_dtype": target, "use_fast_accum": fast}
        return self.called(number, kind, output, about, "_scaled_mm", (a, b, scale_a, scale_b), options)

    def block_scales(self, rows: int, k: int, shared: int) -> Any:
        """Scales of blocks, as PyTorch takes them: of `shared` rows and 128 values of k each; some are negative."""
        torch = self.torch
        shape = (-(-rows // shared), k // 128)
        found = torch.rand(shape, device=self.device, generator=self.generator) + 0.01
        found *= torch.randint(-3, 4, shape, device=self.device, generator=self.generator).float().exp2()
        found *= torch.where(torch.rand(shape, device=self.device, generator=self.generator) < 0.1, -1.0, 1.0)
        if shared == 1:
            return found.t().contiguous().t()
        padded = torch.zeros((shape[0], 4 * -(-shape[1] // 4)), device=self.device)
        padded[:, : shape[1]] = found
        return padded[:, : shape[1]]

    def grouped(self, number: int, kind: str, query: GemmQuery, dtype: str, source: random.Random) -> list[Any]:
        """A call on groups: of bf16, or of e4m3 with scales."""
        import bitwise_torch as ours

        torch = self.torch
        form = source.choice(["2d3d", "3d3d", "2d2d", "3d2d", "scaled 2d3d", "scaled 2d3d", "scaled 2d2d"])
        dtype = "e4m3" if "scaled" in form else "bf16"
        groups, n, k = source.choice([1, 2, 4, 8]), 16 * source.randint(1, 64), 16 * source.randint(1, 96)
        grain = 16 if form.endswith("2d2d") or form == "3d2d" else 1
        ends = sorted(grain * source.randint(0, 400 // grain * (4 if grain > 1 else 1)) for _ in range(groups))
        ends[-1] = max(ends[-1], 16)
        total, m = ends[-1], 16 * source.randint(1, 30)
        several = form.split()[-1]

        def operand(shape: tuple[int, ...], transposed: bool) -> Any:
            stored = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
            found = torch.randn(stored, device=self.device, generator=self.generator).to(getattr(torch, _NAMES[dtype]))
            return found.transpose(-1, -2) if transposed else found

        across = dtype == "e4m3" or source.random() < 0.5
        shapes = {
            "2d3d": ((total, k), (groups, k, n)), "3d3d": ((groups, m, k), (groups, k, n)),
            "2d2d": ((m, total), (total, n)), "3d2d": ((groups, m, k), (k, total)),
        }[several]  # fmt: skip
        a, b = operand(shapes[0], False), operand(shapes[1], across)
        offsets = None if several == "3d3d" else torch.tensor(ends, dtype=torch.int32, device=self.device)
        about = [form, *map(list, shapes), ends, across]
        if dtype == "bf16":
            return self.compared(
                number, kind, form, about, lambda: torch._grouped_mm(a, b, offs=offsets),
                lambda: ours.grouped_mm(a, b, offsets, like="cublas"),
            )  # fmt: skip
        fast = source.random() < 0.5
        rows, columns = (total, groups * n) if several == "2d3d" else (groups * m, groups * n)
        scale_a, scale_b = (
            torch.rand(each, device=self.device, generator=self.generator) + 0.3 for each in (rows, columns)
        )
        given_b = scale_b.view(groups, n) if several == "2d3d" else scale_b
        options = {"offs": offsets, "out_dtype": torch.bfloat16, "use_fast_accum": fast}
        return self.compared(
            number, kind, f"{form}{' fast' if fast else ''}", about,
            lambda: torch._scaled_grouped_mm(a, b, scale_a, given_b, **options),
            lambda: ours.grouped_mm(
                a, b, offsets, scale_a=scale_a, scale_b=given_b, use_fast_accum=fast, like="cublas"
            ),
        )  # fmt: skip

    def called(
        self, number: int, kind: str, dtype: str, about: list[Any], name: str, arguments: tuple[Any, ...],
        options: dict[str, Any], theirs: Callable[[], Any] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The row of a call of PyTorch's function of a name: whole results, or elements, compared.

        `theirs` is another call with its result.
        """
        import bitwise_torch as ours

        theirs = theirs or partial(getattr(self.torch, name), *arguments, **options)
        if self.elements:
            return self.evaluated(number, [number, kind, dtype], about, name, arguments, options, theirs)
        mine = partial(getattr(ours, name.removeprefix("_")), *arguments, like="cublas", **options)
        return self.compared(number, kind, dtype, about, theirs, mine)

    def evaluated(
        self, number: int, head: list[Any], about: list[Any], name: str, arguments: tuple[Any, ...],
        options: dict[str, Any], theirs: Callable[[], Any],
    ) -> list[Any]:  # fmt: skip
        """The row of a call of which elements are compared with its description, evaluated on the CPU."""
        from bitwise_torch import NotCovered
        from bitwise_torch.product_calls import product_of_form

        torch = self.torch
        try:
            wanted = theirs()
        except (RuntimeError, ValueError) as error:
            return [*head, "refused by PyTorch", about, str(error).splitlines()[0][:200]]
        try:
            form, desc = described(name, arguments, options)
        except NotCovered as error:
            return [*head, "declined", about, str(error).split(" is not described: ")[-1][:200]]
        mine, there = self.sampled(number, form, as_matrix(wanted))
        found = product_of_form(desc, mine)
        bits = torch.int32 if wanted.element_size() == 4 else torch.int16
        equal = torch.equal(found.contiguous().view(bits), there.view(bits))
        return [*head, "equal" if equal else "different", about, None]

    def sampled(self, number: int, form: Any, wanted: Any) -> tuple[Any, Any]:
        """Return sampled rows and columns of a form on the CPU, and those of its result."""
        from bitwise_torch.product_forms import Form

        torch = self.torch
        source = random.Random(f"{self.seed}:{number}:places")
        matrix, *places = (sorted({0, length - 1, source.randrange(length)}) for length in (1, *wanted.shape[-2:]))
        if wanted.dim() > 2:
            matrix = [source.randrange(wanted.shape[0])]
        rows, columns = (torch.tensor(each, device=wanted.device) for each in places)
        batched = wanted.dim() > 2

        def part(tensor: Any, down: Any, across: Any) -> Any:
            """The sampled rows and columns of a matrix, or of the sampled matrix of a batch, on the CPU."""
            each = tensor[matrix[0]] if batched else tensor
            each = each if down is None else each[down]
            each = each if across is None else each.t()[across].t()
            each = each.cpu()
            return each[None] if batched else each

        finish = form.problem.finish
        axes = [(rows, columns)] * len(form.operands)
        if finish is not None and finish.blocks is not None:
            axes[:2] = [(rows // finish.blocks[0], None), (None, columns // finish.blocks[1])]
        operands = tuple(part(each, *of) for each, of in zip(form.operands, axes, strict=True))
        mine = Form(part(form.a, rows, None), part(form.b, None, columns), operands, form.problem)
        return mine, part(wanted, rows, columns).contiguous()

    def compared(self, number: int, kind: str, dtype: str, about: list[Any], theirs: Any, ours: Any) -> list[Any]:
        """The row of a call, with the library's result and ours compared."""
        from bitwise_torch import NotCovered

        torch = self.torch
        head = [number, kind, dtype]
        try:
            wanted = theirs()
        except (RuntimeError, ValueError) as error:
            return [*head, "refused by PyTorch", about, str(error).splitlines()[0][:200]]
        try:
            # A repeated call runs fused kernels, which are compiled for it.
            found = [ours() for _ in range(3 if number % FUSED == 0 else 1)]
        except NotCovered as error:
            return [*head, "declined", about, str(error).split(" is not described: ")[-1][:200]]
        bits = torch.int32 if wanted.element_size() == 4 else torch.int16
        equal = all(torch.equal(each.view(bits), wanted.view(bits)) for each in found)
        return [*head, "equal" if equal else "different", about, None]


def as_matrix(result: Any) -> Any:
    """The result of a product, with the axes of one row and one column where it is a vector or a number."""
    return result.reshape(-1, 1) if result.dim() < 2 else result


def form_of_product(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The form of a call of PyTorch's function of a name. Raises NotCovered."""
    from bitwise_core.plugins.profiles import NotCovered
    from bitwise_torch.intercepted_products import intercepted_product
    from bitwise_torch.product_forms import Form, NotLockable

    try:
        found = intercepted_product(name, "", arguments, options)
    except NotLockable as error:
        raise NotCovered(f"torch.{name}: {error}") from None
    operands = () if found.bias is None else (found.bias.expand(found.problem.m, found.problem.n),)
    return Form(found.a, found.b, found.operands or operands, found.problem)


def described(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
    """A call of PyTorch's function of a name as a form, and what cuBLAS computes for it. Raises NotCovered."""
    from bitwise_core.descriptors.problem import BiasedGEMM
    from bitwise_cublas_profiles.library_profile import PYTORCH_LIBRARY
    from bitwise_torch.product_forms import biased_product
    from bitwise_torch.tensor_problems import alignment_of

    form = form_of_product(name, arguments, options)
    alignment = alignment_of(form.a), alignment_of(form.b), 256
    found = PYTORCH_LIBRARY.describe_problem(form.problem, alignment, None, form.a.device)
    return form, biased_product(found) if isinstance(found, BiasedGEMM) else found


def work(
    start: int, step: int, deadline: float,
    given: tuple[
        int, Sequence[tuple[str, int]], bool, Sequence[tuple[str, int]], str, Sequence[int], Sequence[str]
    ],
) -> Iterable[list[Any]]:  # fmt: skip
    """The rows of one process."""
    seed, kinds, elements, types, setting, exponents, regimes = given
    apply_flags(setting)
    comparison = Comparison(seed, elements=elements, types=types, exponents=exponents)
    return numbered_rows(
        lambda number: comparison.row(number, kinds) if regime_of(number) in regimes else None, start, step, deadline,
        lambda number, reason: [number, "error", "", "failed", [], reason],
    )  # fmt: skip


def work_again(
    start: int, step: int, deadline: float, given: tuple[Sequence[Mapping[str, Any]], str]
) -> Iterable[list[Any]]:
    """The rows of one process's share of calls that are compared again, each after the number of its run."""
    runs, setting = given
    apply_flags(setting)
    for place, run in enumerate(runs):
        comparison = Comparison(run["seed"], elements=True, types=run["types"], exponents=run.get("exponents", ()))
        for number in to_compare_again(run)[start::step]:
            if time.time() > deadline:
                return
            try:
                found = comparison.row(number, run["kinds"])
            except Exception as error:
                found = [number, "error", "", "failed", [], f"{type(error).__name__}: {error}"[:300]]
            if found is not None:
                yield [place, found]


def apply_flags(name: str) -> None:
    """Give PyTorch the flags of a setting, whose environment variables this process has."""
    import torch

    setting = SETTINGS[name]
    for flag, value in setting.get("flags", {}).items():
        setattr(torch.backends.cuda.matmul, flag, value)
    if "prefer" in setting:
        torch.backends.cuda.preferred_blas_library(setting["prefer"])


def summary(rows: Iterable[list[Any]]) -> dict[str, dict[str, int]]:
    """The outcomes by kind and type."""
    counts: dict[str, Counter[str]] = {}
    for _, kind, dtype, outcome, *_ in rows:
        counts.setdefault(f"{kind} {dtype}".strip(), Counter())[outcome] += 1
    return {name: dict(counts[name]) for name in sorted(counts)}


def record_of(rows: list[list[Any]], died: list[str], environment: dict[str, Any], compared: str) -> dict[str, Any]:
    """The record of a run, or of several runs together."""
    unequal = [row for row in rows if row[3] in ("different", "failed")]
    reasons = Counter(row[5] for row in rows if row[3] in ("declined", "refused by PyTorch"))
    return {"environment": environment, "compared": compared, "outcomes": summary(rows),
            "different": sorted(unequal, key=str)[:50], "reasons": dict(reasons.most_common(60)),
            "died": died}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write the record and print the outcomes."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.product_forms", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, help="where to write the outcomes (JSON)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds (default 60)")
    parser.add_argument("--seed", type=int, default=61, help="seed of the calls (default 61)")
    parser.add_argument("--processes", type=int, default=8, help="processes for each GPU (default 8)")
    parser.add_argument("--elements", action="store_true", help="compare nine elements of each result on the CPU")
    parser.add_argument("--kinds", nargs="*", choices=[name for name, _ in KINDS], help="the calls (default all)")
    parser.add_argument("--types", nargs="*", choices=[name for name, _ in TYPES], help="their types (default all)")
    parser.add_argument("--setting", choices=SETTINGS, default="defaults", help="PyTorch's settings (default: its own)")
    parser.add_argument(
        "--regimes", nargs="+", choices=REGIMES, default=REGIMES, help="the kinds of shapes (default all)"
    )
    parser.add_argument("--calls", type=Path, help="a file of lines to which all rows are appended")
    parser.add_argument(
        "--exponents", type=int, nargs="*", default=[], help="powers of two for the operands, chosen at random"
    )
    parser.add_argument(
        "--declined", type=float, default=0.0005, help="largest share of declined calls (default 0.0005)"
    )
    parser.add_argument("--again", type=Path, help="NAME.jsonl.xz of a record whose calls are compared again")
    given = parser.parse_args(arguments)
    if given.again:
        return compare_again(given)
    kinds = [each for each in KINDS if not given.kinds or each[0] in given.kinds]
    sampled_only = {*PLAIN, "integers"}
    kinds = [each for each in kinds if (each[0] != "grouped" if given.elements else each[0] not in sampled_only)]
    types = [each for each in TYPES if not given.types or each[0] in given.types]
    os.environ.update(SETTINGS[given.setting].get("environment", {}))
    # Workers are new processes, whose environment this one's is.
    task = (given.seed, kinds, given.elements, types, given.setting, given.exponents, given.regimes)
    drawn = {"seed": given.seed, "setting": given.setting, "kinds": kinds, "types": types}
    drawn |= {"exponents": given.exponents} if given.exponents else {}
    drawn |= {"regimes": given.regimes} if given.regimes != REGIMES else {}
    about, compared = {**environment(), **drawn}, "elements" if given.elements else "outputs"
    if given.out is not None:  # a run that is ended early has a record, too
        given.out.write_text(
            json.dumps(record_of([], [UNFINISHED], about, compared), indent=1) + "\n", encoding="utf-8"
        )
    rows, died = run_workers(work, given.processes, given.seconds, task, kept=given.calls)
    record = record_of(rows, died, about, compared)
    counts, reasons = record["outcomes"], Counter(record["reasons"])
    unequal = [row for row in rows if row[3] in ("different", "failed")]
    if given.out is not None:
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name, each in counts.items():
        print(f"{name}: {json.dumps(each)}")
    for reason, count in reasons.most_common(12):
        print(f"  {count}: {reason}")
    most = max((each.get("declined", 0) / sum(each.values()) for each in counts.values()), default=1.0)
    print(f"{len(rows)} calls, {len(unequal)} different, at most {most:.2%} of a kind declined; {died[:3]}")
    return 1 if unequal or died or most > given.declined else 0


def compare_again(given: argparse.Namespace) -> int:
    """Compare calls of a record again, and write a run for each of its seeds. The exit status is that of `main`."""
    os.environ.update(SETTINGS[given.setting].get("environment", {}))
    recorded = [json.loads(line) for line in lzma.decompress(given.again.read_bytes()).decode().splitlines()]
    runs = [each for each in recorded if each["setting"] == given.setting]
    found, died = run_workers(work_again, given.processes, given.seconds, (runs, given.setting))
    missing = sum(len(to_compare_again(run)) for run in runs) - len(found)
    for place, run in enumerate(runs):
        rows = [row for of, row in found if of == place]
        about = environment() | {name: each for name, each in run.items() if name != "calls"}
        path = given.out.with_name(f"{given.out.stem}-{run['seed']}.json")
        path.write_text(json.dumps(record_of(rows, died, about, "elements"), indent=1) + "\n", encoding="utf-8")
        text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        path.with_suffix(".jsonl").write_text(text, encoding="utf-8")
    counts = Counter(row[3] for _, row in found)
    print(f"{given.setting}: {dict(counts)}, {missing} not reached; {died[:3]}")
    return 1 if died or missing or counts["different"] or counts["failed"] else 0


def environment() -> dict[str, str]:
    """Return the GPU, its driver, and the versions of PyTorch and of the library that it calls."""
    import torch

    from bitwise_cublas_profiles.driver import driver_version
    from bitwise_cublas_profiles.library import Library

    with Library() as library:
        return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "library": library.version,
                "driver": driver_version()}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
