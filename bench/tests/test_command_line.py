"""The commands of the benches: the help of each names the module that runs it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import bitwise_bench

PACKAGE = Path(bitwise_bench.__file__).parent


def commands(source: str) -> list[object]:
    """Return the first arguments of the calls of `command_parser` in a module."""
    calls = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call)]
    named = [each for each in calls if isinstance(each.func, ast.Name) and each.func.id == "command_parser"]
    return [each.args[0].value for each in named if isinstance(each.args[0], ast.Constant)]


def named_by_path(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__main__" else parts)


COMMANDS = {
    path: found
    for path in sorted(PACKAGE.rglob("*.py"))
    if "command_parser(" in (source := path.read_text()) and (found := commands(source))
}


@pytest.mark.parametrize("path", COMMANDS, ids=named_by_path)
def test_the_help_of_a_command_names_its_module(path: Path) -> None:
    assert COMMANDS[path] == [named_by_path(path)]


def test_a_moved_module_is_found() -> None:
    assert commands('parser = command_parser("old.place", __doc__)') == ["old.place"]
    assert len(COMMANDS) > 30
