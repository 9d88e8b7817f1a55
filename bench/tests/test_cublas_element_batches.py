"""The orders of sums of batches of one element, of a library on the CPU that adds in an order of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitwise_bench.cublas.orders import element_batches
from bitwise_bench.cublas.orders.element_batches import row_of, sums_of
from bitwise_bench.cublas.orders.order_survey import unpacked
from bitwise_core.plugins.installed import evaluate
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.query import Configuration, gemm_query
from bitwise_torch.operands import TensorArrays

torch = pytest.importorskip("torch")
KNOWN = profile("13.1.0", "9.0")
LANES = Configuration(13, 0, 0, 1, 0, 0, 10, 0, 0)


@pytest.mark.parametrize("k", [200, 9])
@pytest.mark.parametrize("custom", [10, 75])
def test_the_order_of_a_batch_is_compared_with_that_of_one_product(
    monkeypatch: pytest.MonkeyPatch, k: int, custom: int
) -> None:
    run = descriptor_of(gemm_query(1, 1, k, "fp16"), LANES, KNOWN)
    made = {name: getattr(torch, name) for name in ("ones", "zeros")}

    def product(a: Any, b: Any) -> Any:
        lines = [evaluate(run, *(each.numpy().view(np.uint16) for each in pair)) for pair in zip(a, b, strict=True)]
        return torch.from_numpy(np.stack(lines).view(np.float16))

    for name, make in made.items():
        monkeypatch.setattr(torch, name, lambda *shape, device, make=make, **more: make(*shape, **more))
    monkeypatch.setattr(torch, "bmm", product)
    monkeypatch.setattr(element_batches, "TensorArrays", lambda _: TensorArrays("cpu"))
    configuration = Configuration(13, 0, 0, 1, 0, 0, custom, 0, 0)
    library = SimpleNamespace(heuristic=lambda _: [SimpleNamespace(configuration=configuration, workspace=0)])
    row = row_of(library, KNOWN, 5, ("bmm", "fp16", k, 8))
    assert row[:5] == [5, "bmm", "fp16", k, 8]
    assert row[6] == "fp32"
    # CUSTOM_OPTION 75 deals values of k to lanes one by one, 10 in tiles of four.
    assert row[7] is (custom == 10)
    assert (len(row) == 9) is (custom == 10)
    if custom != 10:
        assert len(unpacked(row[9]).leaves) == k


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
