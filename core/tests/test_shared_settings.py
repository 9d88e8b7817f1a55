"""A class is named by the settings that tell it from others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

from bitwise_core.cli import app
from bitwise_core.report.shared_settings import class_names, settings_of

CONFIGURATIONS = {f"{block}_{warps}": f"BLOCK={block}, num_warps={warps}" for block in (1, 2) for warps in (4, 8)}


def test_the_text_of_settings() -> None:
    assert settings_of("BLOCK=64, num_warps=4, fast") == {"BLOCK": "64", "num_warps": "4", "fast": "yes"}
    assert settings_of(None) == {}


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        ([["1_4", "2_4"], ["1_8", "2_8"]], ["num_warps=4", "num_warps=8"]),
        ([["1_4"], ["1_8", "2_8", "2_4"]], ["BLOCK=1, num_warps=4", ""]),
        ([["1_4", "2_4", "1_8", "2_8"]], [""]),
        ([["1_4", "1_4#2"], ["2_8"], ["unlisted"]], ["BLOCK=1, num_warps=4", "BLOCK=2, num_warps=8", ""]),
    ],
)
def test_a_class_is_named_by_what_it_shares(classes: list[list[str]], names: list[str]) -> None:
    assert class_names(classes, CONFIGURATIONS) == names


def test_a_class_without_every_combination_lists_those_that_it_has() -> None:
    settings = {
        f"{block}_{warps}_{order}": f"BLOCK={block}, num_warps={warps}, ORDER={order}"
        for block in (1, 2, 3)
        for warps in (1, 2, 4, 8)
        for order in "ab"
    }
    some = ["1_2_a", "1_4_a", "1_8_a", "3_2_a"]
    mixed = ["1_1_b", "1_2_b", "2_1_b", "3_1_b", "2_2_b", "2_4_b", "3_2_b"]
    scattered = ["1_1_a", "2_2_a", "1_4_b", "2_8_b"]
    taken = {*some, *mixed, *scattered}
    rest = [name for name in settings if name not in taken]
    assert class_names([some, mixed, scattered, rest], settings)[:3] == [
        "ORDER=a; BLOCK=1, num_warps=2|4|8 or BLOCK=3, num_warps=2",
        "num_warps=1|2|4, ORDER=b",
        "BLOCK=1|2",
    ]


def test_many_values_are_no_name() -> None:
    settings = {str(number): f"BLOCK={number}" for number in range(6)}
    assert class_names([["0", "1", "2", "3", "4"], ["5"]], settings) == ["", "BLOCK=5"]


def test_the_command_prints_the_names(tmp_path: Path) -> None:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    texts = {"a.ptx": row_sum(), "b.ptx": row_sum(swapped=True), "c.ptx": row_sum(neighbours=True)}
    folder = write(tmp_path, dict(texts), [launch(name) for name in texts])
    manifest = json.loads((folder / "manifest.json").read_text())
    settings = {"a.ptx": "ORDER=1, num_warps=1", "b.ptx": "ORDER=1, num_warps=2", "c.ptx": "ORDER=2, num_warps=2"}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "configurations": settings}))
    printed = CliRunner().invoke(app, ["partition", str(folder)]).stdout
    assert "class 1, 2 kernels: ORDER=1\n  a.ptx, b.ptx\nclass 2, 1 kernel: ORDER=2, num_warps=2\n  c.ptx\n" in printed
    found = json.loads(CliRunner().invoke(app, ["partition", str(folder), "--json"]).stdout)
    assert dict(zip(map(tuple, found["classes"]), found["shared"], strict=True)) == {
        ("a.ptx", "b.ptx"): "ORDER=1", ("c.ptx",): "ORDER=2, num_warps=2",
    }  # fmt: skip
