"""The commands of CONTRIBUTING.md that copy the example create a plugin that passes the conformance suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from workspace import ROOT


def commands() -> str:
    """Return the commands of CONTRIBUTING.md that copy the example."""
    blocks = re.findall(r"<!-- copy-commands -->\n```sh\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


def test_the_copied_example_passes_the_suite(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    shutil.copytree(ROOT / "examples", tmp_path / "bitwise" / "examples", ignore=ignored)
    subprocess.run(["bash", "-e", "-c", commands()], cwd=tmp_path / "bitwise", check=True)
    copy = tmp_path / "bitwise_mine"
    assert 'mine = "bitwise_mine.plugin"' in (copy / "pyproject.toml").read_text()
    named = [path for path in copy.rglob("*") if path.is_file() and "toy1" in path.read_text() + path.name]
    assert named == []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy / "src"), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "tests"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed, 4 skipped", done.stdout)
