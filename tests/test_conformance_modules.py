"""Every plugin of this repository runs the conformance suite by the documented test module."""

from __future__ import annotations

import importlib
import re

import pytest

from bitwise_core.plugins import hookspecs
from workspace import Distribution, distributions


def claims(found: Distribution) -> bool:
    """Return whether a distribution has a plugin that provides more than tools of the machine, which need no suite."""
    modules = found.pyproject["project"].get("entry-points", {}).get("bitwise", {}).values()
    hooks = {name for module in modules for name in vars(importlib.import_module(module)) if name in HOOKS}
    return bool(hooks - {"bitwise_tools"})


HOOKS = {name for name in vars(hookspecs) if name.startswith("bitwise_")}
PLUGINS = {found.name: found for found in distributions() if claims(found)}


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_runs_the_suite(name: str) -> None:
    (module,) = PLUGINS[name].pyproject["project"]["entry-points"]["bitwise"].values()
    package, plugin = module.rsplit(".", 1)
    text = (PLUGINS[name].folder / "tests" / "test_conformance.py").read_text()
    documentation, *lines = (line for line in text.splitlines() if line)
    assert re.fullmatch('""".+"""', documentation)
    assert lines == [
        "from pathlib import Path",
        *sorted(["from bitwise_conformance.suite import *", f"from {package} import {plugin}"]),
        'SUITE = Suite(plugin, Path(__file__).parent / "samples")',
    ]


def test_the_example_is_small() -> None:
    folder = PLUGINS["bitwise-toy"].folder
    modules = [*folder.glob("src/**/*.py"), *folder.glob("tests/*.py")]
    assert sum(len(path.read_text().splitlines()) for path in modules) < 400
