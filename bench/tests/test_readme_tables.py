"""The tables of the README agree with the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitwise_bench.mode_costs import add_costs, no_costs
from bitwise_bench.model_tables import mode_costs
from bitwise_bench.readme_tables import PAGES, SOURCES, STATED, rewritten

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_not_stale(name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    assert page == rewritten(page, ROOT / "records"), "run python -m bitwise_bench.readme_tables"


def test_the_pages_have_every_table() -> None:
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
    assert [name for name in (*SOURCES, *STATED) if f"<!-- table: {name} -->" not in text] == []


def test_costs_without_a_record_name_the_command(tmp_path: Path) -> None:
    found = rewritten("<!-- table: mode-costs -->\n<!-- end table -->", tmp_path)
    assert "`nox -s bench-mode` writes one" in found


def test_costs_are_shown_beside_pytorch() -> None:
    content = {"environment": {"gpu": "G", "torch": "1"}, "batch_invariant_ops": "not installed", **no_costs()}
    add_costs(content, "x", {"prefill of 8": {"PyTorch": 1.0, "mode": 1.5}})
    add_costs(content, "rows", {"sum of 3 x 4, graph": {"PyTorch": 2.0, "mode": 1.0}})
    found = mode_costs(content)
    for line in (
        "| prefill | 1.500 |",
        "| prefill of 8 | 1.0 / 1.5 |",
        "| sum | 0.500 |",
        "not installed. G, torch 1.",
    ):
        assert line in found


def test_a_table_is_replaced_between_its_markers() -> None:
    page = "before\n<!-- table: mutants -->\nold\n<!-- end table -->\nafter\n"
    found = rewritten(page, ROOT / "records")
    assert found.startswith("before\n<!-- table: mutants -->\n| change |")
    assert found.endswith("<!-- end table -->\nafter\n")
    assert "old" not in found


def test_a_table_without_a_generator_is_an_error() -> None:
    with pytest.raises(KeyError):
        rewritten("<!-- table: nothing -->\n<!-- end table -->", ROOT / "records")
