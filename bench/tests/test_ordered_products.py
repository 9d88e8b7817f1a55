"""Random products in stated orders on gfx942, some of them again, and the record of many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitwise_amd_gfx942.products.plan import plan_product
from bitwise_bench.descriptors.ordered_products import Compiled, agrees, drawn

RECORD = Path(__file__).parents[2] / "records" / "ordered-products-gfx942.json"


@pytest.mark.usefixtures("without_machine_code")
@pytest.mark.parametrize("seed", [3000, 3001, 3002, 3003])
def test_a_simulated_kernel_stores_the_bytes_of_its_descriptor(seed: int) -> None:
    assert agrees(Compiled(), seed)


def test_every_random_product_has_a_plan() -> None:
    for seed in range(400):
        desc = drawn(seed).desc
        plan = plan_product(desc)
        assert plan.order is not None or not (desc.k_cuts or desc.k_loop_step)


def test_the_record() -> None:
    record = json.loads(RECORD.read_text())
    assert record["equal"] == record["products"] >= 1000
    assert record["different_seeds"] == []
    assert record["executed"] == "simulated on bit patterns, not on a device"
