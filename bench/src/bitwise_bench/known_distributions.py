"""The table by which core names distributions to install: `python -m bitwise_bench.known_distributions` writes it.

Everything is read from metadata of the installed distributions and from the registry of their plugins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import distribution, entry_points
from typing import Any

from bitwise_core.cli.plugin_commands import GROUP
from bitwise_core.known_distributions import TABLE
from bitwise_core.plugins import registry
from bitwise_core.plugins.references import loaded

CORE = "bitwise-core"
_REQUIREMENT = re.compile(r"(?P<name>bitwise-[\w-]+)[^\[;]*(?:;.*extra == ['\"](?P<extra>\w+)['\"])?$")


def table() -> dict[str, dict[str, Any]]:
    """Return the distributions that extras of core install: the extra, the summary, and what they provide."""
    return {
        name: {"extra": extra, "summary": distribution(name).metadata["Summary"], "provides": _provided(name)}
        for name, extra in sorted(_requirements(CORE))
        if extra is not None
    }


def text() -> str:
    """Return the table as the file that core reads."""
    return json.dumps(table(), indent=1) + "\n"


def _requirements(name: str) -> Iterator[tuple[str, str | None]]:
    """Yield the distributions of this project that one requires, each with the extra that requires it, or None."""
    for requirement in distribution(name).requires or ():
        found = _REQUIREMENT.match(requirement)
        if found is not None and found["name"] != CORE:
            yield found["name"], found["extra"]


def _provided(name: str) -> dict[str, list[str]]:
    members = {name}
    waiting = [name]
    while waiting:
        found = {required for required, extra in _requirements(waiting.pop()) if extra is None} - members
        members |= found
        waiting += sorted(found)
    plugins = [each for each in registry.load().plugins if each.distribution in members]
    arches = [arch for plugin in plugins for arch in plugin.arches]
    commands = [each.name for each in entry_points(group=GROUP) if each.dist is not None and each.dist.name in members]
    found_sets: dict[str, set[str]] = {
        "architectures": {arch.name for arch in arches},
        "extensions": {arch.extension for arch in arches},
        "targets": {target for arch in arches for target in (arch.name, *arch.targets)},
        "matrix units": {unit.architecture for plugin in plugins for unit in plugin.matrix_units},
        "libraries": {
            getattr(each, "library", each.name) for plugin in plugins for each in map(loaded, plugin.profiles)
        },
        "commands": set(commands),
    }
    return {kind: sorted(each) for kind, each in found_sets.items() if each}


if __name__ == "__main__":
    TABLE.write_text(text(), encoding="utf-8")
