"""The reference page of the command is current, and names every option that the help of a command names."""

from __future__ import annotations

import re

import pytest

from bitwise_bench.documentation.command_page import page
from bitwise_bench.documentation.example_names import run_command
from workspace import ROOT

TEXT = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^#+ bitwise (.*)\n((?:(?!^#).*\n?)*)", TEXT, re.MULTILINE))


def test_the_page_is_current() -> None:
    assert page() == TEXT, "run python -m bitwise_bench.documentation.command_page > docs/reference/command-line.md"


def test_every_command_has_a_section() -> None:
    _, shown, _ = run_command(["--help"])
    listed = re.findall(r"^  ([a-z]+)  ", shown.split("Commands:")[1], re.MULTILINE)
    assert len(listed) > 10
    assert [name for name in SECTIONS if " " not in name] == listed


@pytest.mark.parametrize("command", SECTIONS)
def test_the_page_has_the_options_of_the_help(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    status, shown, _ = run_command([*command.split(), "--help"])
    assert status == 0
    options = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", shown.partition("Options:")[2])) - {"--help"}
    documented = set(re.findall(r"`(--[\w-]+)`", SECTIONS[command]))
    # The texts of the help may name options of other commands.
    assert documented <= options
    assert set(re.findall(r"^  (--[\w-]+)", shown.partition("Options:")[2], re.MULTILINE)) - {"--help"} <= documented
