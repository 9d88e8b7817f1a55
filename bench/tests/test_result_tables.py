"""The tables of README.md and docs/ agree with the records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.models.mode_costs import add_costs, no_costs, no_times, widths_of
from bitwise_bench.result_tables.model_tables import lock_costs, mode_costs, receipts, replayed_locks
from bitwise_bench.result_tables.pages import COLLECTED, COMBINED, SOURCES, STATED, generations, pages, rewritten

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: page.name)
def test_no_table_is_stale(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == rewritten(text, ROOT / "records"), "run python -m bitwise_bench.result_tables"


def test_every_table_is_on_one_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in pages(ROOT))
    assert sorted(re.findall(r"<!-- table: ([\w-]+) -->", text)) == sorted((*SOURCES, *COMBINED, *COLLECTED, *STATED))


def test_costs_without_a_record_name_the_command(tmp_path: Path) -> None:
    found = rewritten("<!-- table: mode-costs -->\n<!-- end table -->", tmp_path)
    assert "`nox -s bench-mode` measures it" in found


def test_costs_are_shown_beside_pytorch() -> None:
    content = {"environment": {"gpu": "G", "torch": "1"}, "batch_invariant_ops": "not installed", **no_costs()}
    add_costs(content, "x", {"prefill of 8": {"PyTorch": [1.0], "mode": [1.5]}})
    add_costs(content, "rows", {"sum of 3 x 4, graph": {"PyTorch": [2.0], "mode": [1.0]}})
    found = mode_costs(content)
    for line in (
        "| prefill | 1.500 |",
        "| prefill of 8 | 1.0 / 1.5 |",
        "| sum | 0.500 |",
        "not installed. G, torch 1.",
    ):
        assert line in found


def test_held_out_models_have_their_own_means() -> None:
    content = {"environment": {"gpu": "G", "torch": "1"}, "batch_invariant_ops": "measured", **no_costs()}
    content["held out"] = ["y"]
    add_costs(content, "x", {"prefill of 8": {"PyTorch": [1.0], "mode": [1.0]}})
    add_costs(content, "y", {"prefill of 8": {"PyTorch": [1.0], "mode": [4.0]}})
    found = mode_costs(content)
    assert "| time beside PyTorch's | mode | mode, held-out models |" in found
    assert "| prefill | 2.000 | 4.000 |" in found


def test_costs_of_locks_have_their_spread() -> None:
    content: dict[str, Any] = {
        "environment": {"gpu": "G", "torch": "1"}, "held out": ["y compiled"], "turns": 3, **no_times(),
    }  # fmt: skip
    add_costs(content, "y compiled", {
        "compiled prefill, graph": {"PyTorch": [2.0, 1.0, 4.0], "lock": [1.0, 1.0, 1.0]},
    })  # fmt: skip
    found = lock_costs(content)
    line = (
        "| y compiled (held out) | compiled prefill, graph | 2.000 (1.500 to 3.000) | 1.000 (1.000 to 1.000) "
        "| 0.500 (0.375 to 0.750) |"
    )
    assert line in found
    assert "| prefill, torch.compile and CUDA graph | 0.500 |" in found
    assert "the median of 3 turns" in found


def test_replays_name_what_differs() -> None:
    found = {
        "samples": {"agrees": 7, "differs": ["aten::a", "aten::b"]}, "replayed": 40, "lock: other bytes": [],
        "library: other bytes": ["weights", "tokens"],
    }  # fmt: skip
    record = {"environment": {"gpu": "G", "torch": "1"}, "models": {"x": found, "y": {"error": "no sample"}}}
    text = replayed_locks(record)
    assert "| x | 40 | 7, differs: aten::a and aten::b | 0 | 2 |" in text
    assert "| y | no sample | - | - | - |" in text
    assert text.endswith("Replayed on: G, torch 1.")
    record["recorded by"] = {"gpu": "H", "torch": "1", "variables": {"A": ":0:0"}}
    assert replayed_locks(record).endswith("Replayed on: G, torch 1. Recorded on: H, torch 1, A=:0:0.")


def test_a_table_is_replaced_between_its_markers() -> None:
    page = "before\n<!-- table: mutants -->\nold\n<!-- end table -->\nafter\n"
    found = rewritten(page, ROOT / "records")
    assert found.startswith("before\n<!-- table: mutants -->\n| change |")
    assert found.endswith("<!-- end table -->\nafter\n")
    assert "old" not in found


def test_a_table_without_a_generator_is_an_error() -> None:
    with pytest.raises(KeyError):
        rewritten("<!-- table: nothing -->\n<!-- end table -->", ROOT / "records")


def test_kernels_that_keep_their_bits_are_counted_for_each_pair_of_architectures() -> None:
    results = ("equal", "equal", "alike", "unknown")
    entries = [{"result": each, "kind": "scans"} for each in results]
    entries.append({"result": "unknown", "kind": None})  # it does not compile
    record = {"targets": ["sm_90", "sm_100"], "configurations": entries}
    *_, row = generations([record]).splitlines()
    assert row == "| sm_90 and sm_100 | 4 | 2 | 0 | 1 | 0 | 0 | 1 |"


def test_drawn_models_are_named_by_their_widths_and_commands_of_receipts_by_their_statuses() -> None:
    content = {"environment": {"gpu": "G", "torch": "1"}, "batch_invariant_ops": "measured", **no_costs()}
    name = "drawn 1 0"
    content["drawn"] = {name: widths_of(name)}
    content["held out"] = [name]
    add_costs(content, name, {"prefill of 512": {"PyTorch": [2.0, 2.0], "mode": [1.0, 1.0]}})
    kind, fields = widths_of(name)
    heading = f"{kind.removesuffix('ForCausalLM')}, {fields['hidden_size']} x {fields['intermediate_size']}, "
    assert heading in mode_costs(content)
    record = {
        "environment": {"gpu": "G"}, "model": "llama", "products": 3, "digests": {"weights": "a", "logits": "b"},
        "commands": {"receipt verify": {"status": 3, "right": True}, "receipt diff": {"status": 0, "right": False}},
        "claims": {"x": "proved", "y": "assumed", "z": "assumed"}, "lock: other bytes": [],
        "library: other bytes": ["weights"],
    }  # fmt: skip
    text = receipts(record)
    assert "| receipt diff | 0 | wrong |" in text
    assert "| receipt verify | 3 |  |" in text
    assert "1 proved, 0 measured and 2 assumed" in text
    assert "Of 2 digests of the run, 0 differ under its lock in a library without workspaces, and 1 without" in text
