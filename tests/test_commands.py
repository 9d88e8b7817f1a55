"""The two commands of the README, and the script that runs one of them verbatim, with lint and types beside it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from workspace import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = ROOT / ".ci" / "run"


def command(name: str) -> str:
    """Return the text of the code block that follows a marker of the README."""
    blocks = re.findall(rf"<!-- {name}-command -->\n```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


@pytest.mark.parametrize(("name", "session"), [("demo", "demo"), ("test", "tests")])
def test_each_command_is_one_line_that_creates_its_environment(name: str, session: str) -> None:
    assert command(name).count("\n") == 1
    assert command(name).startswith("python3 -m venv --without-pip .venv && ")
    assert command(name).endswith(f" && .venv/bin/nox -s {session}\n")


def run(tmp_path: Path, readme: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the script in a folder with this README, from another working directory; lint and types have a status."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci" / "run")
    nox = tmp_path / ".venv" / "bin" / "nox"
    nox.parent.mkdir(parents=True)
    nox.write_text(f'#!/bin/sh\necho "nox $*"; exit {status}\n')
    nox.chmod(0o755)
    (tmp_path / "README.md").write_text(readme)
    return subprocess.run(["bash", tmp_path / ".ci" / "run"], cwd="/", capture_output=True, text=True, check=False)


def test_the_script_can_be_run() -> None:
    assert os.access(SCRIPT, os.X_OK)


def test_the_script_runs_the_command_in_the_repository(tmp_path: Path) -> None:
    done = run(
        tmp_path, "```sh\nfalse\n```\n<!-- test-command -->\n```sh\npwd && echo '2 passed'\n```\n```sh\nfalse\n```\n"
    )
    setup, command = f"+ pwd\n{tmp_path}\n", f"+ pwd && echo '2 passed'\n{tmp_path}\n2 passed\n"
    assert (done.returncode, done.stdout) == (0, f"{setup}{command}nox -s lint types\n")


def test_the_script_fails_with_its_command(tmp_path: Path) -> None:
    done = run(tmp_path, "<!-- test-command -->\n\n```sh\ntrue && exit 7\n```\n")
    assert (done.returncode, done.stdout) == (7, "+ true\n+ true && exit 7\nnox -s lint types\n")


def test_the_script_fails_with_lint_or_types(tmp_path: Path) -> None:
    done = run(tmp_path, "<!-- test-command -->\n\n```sh\ntrue && echo '2 passed'\n```\n", status=3)
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (3, ["2 passed", "nox -s lint types"])


def test_the_script_stops_where_the_setup_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "<!-- test-command -->\n\n```sh\nexit 5 && true\n```\n")
    assert (done.returncode, done.stdout) == (5, "+ exit 5\n")


@pytest.mark.parametrize(
    "readme",
    [
        "",
        "```sh\ntrue\n```\n",
        "<!-- test-command -->\n```sh\n```\n",
        "<!-- test-command -->\n```sh\ntrue\ntrue\n```\n",
    ],
)
def test_the_script_refuses_anything_but_one_line(tmp_path: Path, readme: str) -> None:
    done = run(tmp_path, readme)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "README.md: the code block after <!-- test-command --> must hold exactly one line\n"
