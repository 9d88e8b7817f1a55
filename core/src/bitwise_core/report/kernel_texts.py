"""The assembly and the source of a kernel for the page, with the source line of each line of the assembly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.visible_text import visible

MAXIMUM_LINES = 3000
"""The most lines of an assembly or a source that the page shows."""
CONTEXT = 12
"""The lines of a source that are shown before and behind those that the kernel was compiled from."""


def assembly_record(text: str, prepared: PreparedLaunch) -> dict[str, Any]:
    """Return the lines of a kernel's assembly from number `first` on, and their places in the source.

    `places` maps a line to the name of a file and a number: the line of the kernel's own file; `calls` to the lines of
    the functions that it calls.
    """
    kernel = prepared.kernel
    numbers = [each.line for each in kernel.instructions] or [kernel.line]
    first, last = min(kernel.line, *numbers), max(numbers)
    lines = [visible(line.replace("\t", "    ")) for line in text.split("\n")[first - 1 : last]]
    places: dict[int, tuple[str, int]] = {}
    calls: dict[int, tuple[str, ...]] = {}
    for each in kernel.instructions:
        if each.source is not None:
            own, *below = each.source.chain
            file, _, number = own.rpartition(":")
            places[each.line] = file, int(number)
            if below:
                calls[each.line] = tuple(below)
    return {"first": first, "lines": lines[:MAXIMUM_LINES], "left_out": max(len(lines) - MAXIMUM_LINES, 0),
            "places": places, "calls": calls}  # fmt: skip


def source_records(assemblies: Mapping[str, dict[str, Any]], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the parts of source files from which kernels were compiled; `texts` are the files' texts by name."""
    found = {}
    for name, text in texts.items():
        used = [number for each in assemblies.values() for file, number in each["places"].values() if file == name]
        lines = text.split("\n")
        used = [number for number in used if 0 < number <= len(lines)]
        if not used:
            continue
        first, last = max(min(used) - CONTEXT, 1), min(max(used) + CONTEXT, len(lines))
        shown = [visible(line.replace("\t", "    ")) for line in lines[first - 1 : last][:MAXIMUM_LINES]]
        found[name] = {"first": first, "lines": shown}
    return found
