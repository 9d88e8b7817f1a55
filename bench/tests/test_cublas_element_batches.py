"""The orders of sums of batches of one element, of a library on the CPU that adds in an order of its own."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitwise_bench.cublas.orders import element_batches
from bitwise_bench.cublas.orders.element_batches import row_of, sums_of
from bitwise_bench.cublas.orders.order_survey import unpacked
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.plugins.installed import evaluate
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.query import Configuration, GemmQuery, gemm_query
from bitwise_torch.operands import TensorArrays

torch = pytest.importorskip("torch")
KNOWN = profile("13.1.0", "9.0")
LANES = Configuration(13, 0, 0, 1, 0, 0, 10, 0, 0)


def on_the_cpu(monkeypatch: pytest.MonkeyPatch, run: GEMMDesc) -> None:
    """Products of batches of one element on the CPU, in the order of a descriptor; alpha multiplies A."""
    made = {name: getattr(torch, name) for name in ("ones", "zeros")}

    def product(a: Any, b: Any) -> Any:
        patterns = (each.contiguous().numpy().view(np.uint16) for each in (a, b))
        return torch.from_numpy(np.stack([evaluate(run, *pair) for pair in zip(*patterns, strict=True)]).view("f2"))

    def scaled(addend: Any, a: Any, b: Any, alpha: float = 1.0) -> Any:
        if alpha == 1.0:
            return product(a, b)
        total = np.float32(0)
        for x, y in zip(a[0, 0].numpy(), b[0, :, 0].numpy(), strict=True):
            total = np.float32(np.float64(np.float32(np.float32(alpha) * x)) * np.float64(y) + np.float64(total))
        return addend + torch.tensor(total).half()

    for name, make in made.items():
        monkeypatch.setattr(torch, name, lambda *shape, make=make, **more: make(*shape, **more | {"device": "cpu"}))
    monkeypatch.setattr(torch, "bmm", product)
    monkeypatch.setattr(torch, "baddbmm", scaled)
    monkeypatch.setattr(element_batches, "TensorArrays", lambda _: TensorArrays("cpu"))


@pytest.mark.parametrize("k", [200, 9])
@pytest.mark.parametrize("custom", [10, 75])
def test_the_order_of_a_batch_is_compared_with_that_of_one_product(
    monkeypatch: pytest.MonkeyPatch, k: int, custom: int
) -> None:
    run = descriptor_of(gemm_query(1, 1, k, "fp16"), LANES, KNOWN)
    on_the_cpu(monkeypatch, run)

    def heuristic(query: GemmQuery) -> list[Any]:
        configuration = replace(LANES, custom=custom if query.transposes == "TT" else 83)
        return [SimpleNamespace(configuration=configuration, workspace=0)]

    library = SimpleNamespace(heuristic=heuristic)
    row = row_of(library, KNOWN, 5, ("bmm", "fp16", k, 8, ""), random.Random(1))
    assert row[:6] == [5, "bmm", "fp16", k, 8, ""]
    assert row[6:8] == ["fp32", None]
    assert [each[0] for each in row[8]] == ["TT", "TN", "NT", "NN"]
    # CUSTOM_OPTIONs 75 and 83 deal values of k to lanes one by one, 10 in tiles of four.
    assert [each[2] for each in row[8]] == [custom == 10, False, False, False]
    assert (len(row) == 10) is (custom == 10)
    if custom != 10:
        assert len(unpacked(row[10]).leaves) == k


def test_the_operand_that_alpha_multiplies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Configuration(16, 0, 0, 1, 0, 0, 0, 0, 0)
    on_the_cpu(monkeypatch, descriptor_of(gemm_query(1, 1, 20, "fp16"), chain, KNOWN))
    library = SimpleNamespace(heuristic=lambda _: [SimpleNamespace(configuration=chain, workspace=0)])
    row = row_of(library, KNOWN, 5, ("baddbmm", "fp16", 20, 2, ""), random.Random(1))
    assert row[7] == ["operand_a"]


def test_sums_of_fp16_lose_halves_of_a_unit_in_some_order() -> None:
    def added(dtype: Any) -> Any:
        def multiply(a: Any, b: Any) -> Any:
            total = torch.zeros(len(a), 1, dtype=dtype)
            for column in (a * b.t()).split(1, 1):
                total = total + column.to(dtype)
            return total.to(torch.float16)

        return multiply

    like = torch.zeros(1, dtype=torch.float16)
    assert sums_of(added(torch.float16), 2, 5, like) == "fp16"
    assert sums_of(added(torch.float32), 2, 5, like) == "fp32"
    assert sums_of(added(torch.float16), 2, 5, like.float()) == "fp32"
