"""The summary and the table of products with scales of blocks."""

from __future__ import annotations

from typing import Any

from bitwise_bench.cublas.times.scaled_block_timing import summary
from bitwise_bench.result_tables.product_tables import scaled_blocks


def test_the_summary_and_the_table_have_means_of_ratios() -> None:
    rows: list[dict[str, Any]] = [
        {"m": 1, "blocks": [1, 1], "cublas": 8.0, "default": 2.0, "wrong": []},
        {"m": 64, "blocks": [1, 128], "cublas": 3.0, "default": 3.0, "wrong": ["default"]},
        {"m": 16, "blocks": [1, 128], "declined": "why"},
    ]
    found = summary(rows)
    assert found == {
        "all": 2.0, "1x1": 4.0, "M <= 1": 4.0, "1x128": 1.0, "M <= 64": 1.0, "slowest": 1.0, "products": 2,
        "declined": 1, "other bytes": 1,
    }  # fmt: skip
    table = scaled_blocks([{"environment": {"gpu": "G"}, "summary": found}])
    assert "| G, layers | 2 | 2.00 | 1.00 | 4.00 | - | 4.00 | - | 1.00 | - | - | - | 1.00 | 1 |" in table
    assert scaled_blocks([]).startswith("This is not measured yet")
