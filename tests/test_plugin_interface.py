"""Plugins import the documented interface of core alone, and every module that it lists is needed and documented."""

from __future__ import annotations

import importlib
import re

import pytest

import bitwise_core
from workspace import Distribution, distribution, distributions, imports, package_of

CORE = distribution("bitwise-core")
PLUGINS = [found for found in distributions() if found.folder.parent.name in ("plugins", "examples") and found.package]


def table(page: str) -> list[str]:
    """Return the modules in the table on the page."""
    rows = page.split("<!-- plugin interface -->")[1].split("<!-- end -->")[0]
    return re.findall(r"`(bitwise_core[a-z_.]+)`", rows)


PUBLIC = bitwise_core.__all__
INTERFACE = table((CORE.folder / "README.md").read_text())


def module_of(target: str) -> str | None:
    """Return the module of the interface that an import names, or whose public name it imports; None if private."""
    module, _, name = target.rpartition(".")
    if target in INTERFACE:
        return target
    return module if module in INTERFACE and not name.startswith("_") else None


def imported(plugin: Distribution) -> dict[str, str | None]:
    """Return the modules of the interface by import of core, public names excluded, in the plugin's source."""
    found = [
        record.target
        for path in plugin.modules()
        for record in imports(path.read_text(), package_of(path, plugin))
        if record.target.split(".")[0] == "bitwise_core"
    ]
    return {target: module_of(target) for target in found if target.removeprefix("bitwise_core.") not in PUBLIC}


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_plugins_import_the_interface_alone(plugin: Distribution) -> None:
    assert [target for target, module in imported(plugin).items() if module is None] == []


def test_every_module_of_the_interface_is_used_and_documented() -> None:
    used = {module for plugin in PLUGINS for module in imported(plugin).values()}
    assert used == set(INTERFACE)
    assert len(INTERFACE) == len(set(INTERFACE))
    assert [name for name in INTERFACE if not importlib.import_module(name).__doc__] == []


def test_private_modules_and_names_are_found() -> None:
    assert module_of("bitwise_core.checker.analysis.Session") is None
    assert module_of("bitwise_core.execution.machine._lanes") is None
    assert module_of("bitwise_core.execution.machine.Machine") == "bitwise_core.execution.machine"
