"""Answers in JSON state the version of their form, the versions that made them, and every standing assumption."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bitwise_core.checker.wording import COMMON_NOTES
from bitwise_core.cli import app
from bitwise_core.cli.answer_forms import FORMS, DiffAnswer, PartitionAnswer

TOYS = Path(__file__).parents[2] / "examples/toy_arch/tests/samples/toy1/row_sum"
FILES = [str(TOYS / "butterfly.toy"), str(TOYS / "renamed.toy")]


COMMANDS = {
    "partition": ["partition", str(TOYS), "--assume", "finite", "--json"],
    "determinism": ["determinism", str(TOYS), "--assume", "finite", "--json"],
    "diff": ["diff", *FILES, "--assume", "finite", "--json"],
    "tree": ["tree", FILES[0], "--element", "y[0]", "--format", "json"],
    "run": ["run", FILES[0], "--inputs", "in.npz", "--out", "out.npz", "--json"],
    "gemm": ["gemm", "2", "2", "128", "--plan", "lane-tree-gemv", "--with", "lanes=4", "--json"],
    "probe": ["probe", "numpy:matmul", "2", "2", "6", "--dtype", "float32", "--json"],
    "plugins": ["plugins", "--json"],
    "cache-info": ["cache", "info", "--json"],
    "doctor": ["doctor", "--json"],
}


@pytest.mark.parametrize("command", FORMS)
def test_an_answer_says_what_made_it(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitwise_toy", reason="needs the example plugin")
    monkeypatch.chdir(tmp_path)
    np.savez("in.npz", x=np.zeros(16, np.float32), y=np.zeros(16, np.float32))
    done = CliRunner().invoke(app, COMMANDS[command])
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["schema"] == f"{command}/1"
    assert found["versions"]["bitwise-core"] == version("bitwise-core")
    assert found["versions"]["bitwise-toy"] == version("bitwise-toy")
    assert isinstance(found["tools"], list)
    assert FORMS[command].model_validate(found).form == found["schema"]
    if command in ("partition", "determinism", "diff"):
        assert set(COMMON_NOTES) <= set(found["notes"])
        assert found["conditions"] == ["finite"]


WRITES = {"run": {"in.npz", "out.npz"}}
"""The files that a command is asked to write or read, by the command; others have none."""


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_written_unasked(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitwise_toy", reason="needs the example plugin")
    monkeypatch.chdir(tmp_path)
    if command == "run":
        np.savez("in.npz", x=np.zeros(16, np.float32), y=np.zeros(16, np.float32))
    CliRunner().invoke(app, [each for each in COMMANDS[command] if each != "--json"])
    assert {path.name for path in tmp_path.iterdir()} == WRITES.get(command, set())


def test_the_tools_of_an_architecture_are_named() -> None:
    pytest.importorskip("triton", reason="needs the assembler of its wheel")
    samples = Path(__file__).parents[2] / "plugins/nvidia_sm90/tests/samples/sm_90/row_sum"
    found = json.loads(CliRunner().invoke(app, ["partition", str(samples), "--json"]).stdout)
    assert any(tool.startswith("ptxas of Triton ") for tool in found["tools"])


def test_answers_with_a_counterexample_and_with_differences_have_the_form(tmp_path: Path) -> None:
    pytest.importorskip("bitwise_toy", reason="needs the example plugin")
    other = [FILES[0], str(TOYS / "halves_first.toy")]
    found = DiffAnswer.model_validate_json(CliRunner().invoke(app, ["diff", *other, "--json"]).stdout)
    assert found.counterexample is not None
    assert found.divergence is not None
    expected = tmp_path / "classes.json"
    expected.write_text('{"schema": 1, "scope": "launch", "classes": [["butterfly.toy", "halves_first.toy"]]}')
    printed = CliRunner().invoke(app, ["partition", str(TOYS), "--expected", str(expected), "--json"]).stdout
    assert len(PartitionAnswer.model_validate_json(printed).unexpected or []) == 2
