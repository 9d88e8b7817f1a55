"""Lists in the documentation agree with the code."""

from __future__ import annotations

import re

from bitwise_core.plugins import hookspecs
from workspace import ROOT, distributions


def test_every_hook_is_documented() -> None:
    documented = re.findall(r"^\| `(bitwise_\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert documented == [name for name in vars(hookspecs) if name.startswith("bitwise_")]


def test_every_distribution_is_documented() -> None:
    documented = re.findall(r"^\| `(bitwise-[\w-]+)` \| `([\w/]+)/`", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted((found.name, str(found.folder.relative_to(ROOT))) for found in distributions())


def test_the_example_of_an_opcode_is_in_the_code() -> None:
    shown = re.search(r"<!-- opcode-diff -->\n```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert shown is not None
    _, *files = re.split(r"^--- (.*)\n", shown[1], flags=re.MULTILINE)
    for name, lines in zip(files[::2], files[1::2], strict=True):
        added = "".join(line.removeprefix("+") for line in lines.splitlines(keepends=True))
        assert added in (ROOT / name).read_text(), name


def test_every_session_is_documented() -> None:
    sessions = set(re.findall(r"^@nox\.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text(), re.MULTILINE))
    commands = re.findall(
        r"^\| `\.venv/bin/nox(?: -s)? ?([^`]*)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    named = {name.replace("-", "_") for command in commands for name in command.split()}
    # `tests` is the default session, and `build` is part of `install`.
    assert sessions - named == {"tests", "build"}
    assert named - sessions == set()
