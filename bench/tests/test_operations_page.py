"""The reference page of operations is current."""

from __future__ import annotations

from pathlib import Path

from bitwise_bench.documentation.operations_page import page

ROOT = Path(__file__).parents[2]


def test_the_reference_page_is_current() -> None:
    assert (ROOT / "core" / "OPERATIONS.md").read_text() == page()
