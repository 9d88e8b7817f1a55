"""The tables of the README agree with the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitwise_bench.readme_tables import SOURCES, STATED, rewritten

ROOT = Path(__file__).parents[2]


def test_the_readme_is_not_stale() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page == rewritten(page, ROOT / "records"), "run python -m bitwise_bench.readme_tables"


def test_the_readme_has_every_table() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in (*SOURCES, *STATED) if f"<!-- table: {name} -->" not in page] == []


def test_a_table_is_replaced_between_its_markers() -> None:
    page = "before\n<!-- table: mutants -->\nold\n<!-- end table -->\nafter\n"
    found = rewritten(page, ROOT / "records")
    assert found.startswith("before\n<!-- table: mutants -->\n| change |")
    assert found.endswith("<!-- end table -->\nafter\n")
    assert "old" not in found


def test_a_table_without_a_generator_is_an_error() -> None:
    with pytest.raises(KeyError):
        rewritten("<!-- table: nothing -->\n<!-- end table -->", ROOT / "records")
