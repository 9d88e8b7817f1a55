"""The kernel descriptor and the metadata: what hardware and runtime are told of a kernel beside its instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bitwise_core.asm import AssemblyError, Parameter

_ENTRY = re.compile(r"(\s*)(- )?\s*(\.\w+):\s*(.*)")

POINTERS = ("global_buffer", "dynamic_shared_pointer")


def descriptor(lines: Sequence[tuple[int, str]], file: str) -> Mapping[str, str]:
    """The fields between `.amdhsa_kernel` and `.end_amdhsa_kernel`, by their name without the common beginning."""
    found: dict[str, str] = {}
    for number, line in lines:
        name, _, value = line.partition(" ")
        if not name.startswith(".amdhsa_") or not value:
            raise AssemblyError(file, number, f"{line!r} is no field of a kernel descriptor")
        found[name.removeprefix(".amdhsa_")] = value.strip()
    return found


def arguments(lines: Sequence[tuple[int, str]], file: str) -> Mapping[str, tuple[tuple[Parameter, int], ...]]:
    """By kernel, the parameters with their offsets in the argument segment, from the metadata's YAML.

    The form is the one that LLVM writes: a list of kernels, each with a list `.args` of mappings.
    """
    found: dict[str, tuple[tuple[Parameter, int], ...]] = {}
    parameters: list[dict[str, str]] = []
    inside, depth = False, 0
    for number, line in lines:
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            continue
        indent, key, value = len(entry[1]) + (2 if entry[2] else 0), entry[3], entry[4].strip()
        if key == ".args":
            inside, depth, parameters = True, indent, []
            continue
        if inside and indent > depth:
            if entry[2]:
                parameters.append({})
            if not parameters:
                raise AssemblyError(file, number, "the metadata's list of arguments is broken")
            parameters[-1][key] = value
            continue
        inside = False
        if key == ".name":
            found[value.strip("'\"")] = tuple(_parameter(each, file, number) for each in parameters)
            parameters = []
    return found


def _parameter(entry: Mapping[str, str], file: str, number: int) -> tuple[Parameter, int]:
    try:
        offset, size = int(entry[".offset"]), int(entry[".size"])
    except (KeyError, ValueError):
        raise AssemblyError(file, number, "an argument in the metadata has no offset or no size") from None
    pointer = entry.get(".value_kind", "") in POINTERS
    return Parameter(entry.get(".name", f"argument at byte {offset}"), size, pointer), offset
