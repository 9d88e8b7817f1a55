"""The GitHub Action and the pre-commit hook run the command that they name, with its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from workspace import ROOT

TOYS = ROOT / "examples" / "toy_arch" / "tests" / "samples" / "toy1" / "row_sum"
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def action_status(folder: Path, classes: list[list[str]]) -> int:
    """Run the last step of the action in a shell, with its inputs and their defaults."""
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    step = action["runs"]["steps"][-1]
    (folder / "classes.json").write_text(json.dumps({"schema": 1, "scope": "launch", "classes": classes}))
    given = {"kernels": str(TOYS), "expected": "classes.json"}
    inputs = {name: given.get(name, each.get("default")) for name, each in action["inputs"].items()}
    settings = {
        name: inputs[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step["env"].items()
    }
    command = ["bash", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(command, cwd=folder, env={**ENVIRONMENT, **settings}, capture_output=True).returncode


def test_the_action_has_the_status_of_the_comparison(tmp_path: Path) -> None:
    assert action_status(tmp_path, [["butterfly.toy", "renamed.toy"], ["halves_first.toy"]]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"classes.json", "bitwise.sarif", "bitwise-junit.xml"}
    assert action_status(tmp_path, [["butterfly.toy", "halves_first.toy"], ["renamed.toy"]]) == 1


@pytest.mark.parametrize(
    ("requirements", "installed"),
    [
        ("", [f"{ROOT}/core", *(f"{each}/" for each in sorted((ROOT / "plugins").iterdir()) if each.is_dir())]),
        ("bitwise-core[nvidia] triton", ["bitwise-core[nvidia]", "triton"]),
    ],
)
def test_the_action_installs_its_own_sources_by_default(
    requirements: str, installed: list[str], tmp_path: Path
) -> None:
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["inputs"]["requirements"]["default"] == ""
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    settings = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "SOURCES": str(ROOT),
        "REQUIREMENTS": requirements,
    }
    command = ["bash", "-eo", "pipefail", "-c", action["runs"]["steps"][0]["run"]]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-m", "pip", "install", *installed]


def test_the_page_uses_the_inputs_of_the_action_and_the_hook() -> None:
    page = (ROOT / "docs" / "guides" / "continuous-integration.md").read_text()
    steps, configuration = (yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    (ours,) = (step for step in steps if "/bitwise@" in step["uses"])
    required = {name for name, each in action["inputs"].items() if each.get("required")}
    assert required <= ours["with"].keys() <= action["inputs"].keys()
    assert steps[-1]["with"]["sarif_file"] == action["inputs"]["sarif"]["default"]
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (used,) = configuration["repos"][0]["hooks"]
    assert used["id"] == hook["id"]


def test_the_hook_is_a_command() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language"} <= hook.keys()
    done = subprocess.run([*hook["entry"].split(), "--help"], env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, "--expected" in done.stdout) == (0, True)
