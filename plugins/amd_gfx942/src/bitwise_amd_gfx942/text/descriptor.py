"""The kernel descriptor and the metadata: what hardware and runtime are told of a kernel beside its instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitwise_core.assembly.module import AssemblyError, Parameter

_ENTRY = re.compile(r"(\s*)(- )?\s*(\.\w+):\s*(.*)")

_NUMBERS = ("user_sgpr", "kernarg", "system_", "float_", "ieee", "dx10", "fp16_overflow")
"""Beginnings of the fields that say how a wave starts: numbers."""

SEGMENT = 1 << 16
"""The most bytes that arguments of a kernel may take."""

POINTERS = ("global_buffer", "dynamic_shared_pointer")


def descriptor(lines: Sequence[tuple[int, str]], file: str) -> Mapping[str, str]:
    """The fields between `.amdhsa_kernel` and `.end_amdhsa_kernel`, by their name without the common beginning."""
    found: dict[str, str] = {}
    for number, line in lines:
        name, _, value = line.partition(" ")
        if not name.startswith(".amdhsa_") or not value:
            raise AssemblyError(file, number, f"{line!r} is no field of a kernel descriptor")
        field = name.removeprefix(".amdhsa_")
        found[field] = value.strip()
        if field.startswith(_NUMBERS):
            given = found[field]
            if not (given.isascii() and given.isdigit()):
                raise AssemblyError(file, number, f"{name} is given {given!r}, which is no number")
            if len(given) > 9 or int(given) > SEGMENT:
                raise AssemblyError(file, number, f"{name} is given {given[:24]}, more than any field of it holds")
    return found


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel: the parameter, its offset in the segment, and what it holds (`value_kind`)."""

    parameter: Parameter
    offset: int
    kind: str

    @property
    def hidden(self) -> bool:
        """Whether the runtime gives it, and no launch."""
        return self.kind.startswith("hidden_")


def arguments(lines: Sequence[tuple[int, str]], file: str) -> Mapping[str, tuple[Argument, ...]]:
    """By kernel, the arguments from the metadata's YAML.

    The form is the one that LLVM writes: a list of kernels, each with a list `.args` of mappings.
    """
    found: dict[str, tuple[Argument, ...]] = {}
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
            found[value.strip("'\"")] = tuple(_argument(each, file, number) for each in parameters)
            parameters = []
    return found


def _argument(entry: Mapping[str, str], file: str, number: int) -> Argument:
    try:
        offset, size = int(entry[".offset"]), int(entry[".size"])
    except (KeyError, ValueError):
        raise AssemblyError(file, number, "an argument in the metadata has no offset or no size") from None
    if not (0 <= offset <= SEGMENT and 0 <= size <= SEGMENT):
        raise AssemblyError(file, number, "an argument in the metadata lies beyond what arguments may take")
    kind = entry.get(".value_kind", "")
    name = entry.get(".name", f"argument at byte {offset}")
    return Argument(Parameter(name, size, kind in POINTERS), offset, kind)
