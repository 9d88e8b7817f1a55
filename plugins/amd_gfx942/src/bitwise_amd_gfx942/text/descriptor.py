"""The kernel descriptor and the metadata: a kernel's initial state for the hardware, its arguments for the runtime."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitwise_core.assembly.module import AssemblyError, Parameter

_ENTRY = re.compile(r"(\s*)(- )?\s*(\.\w+):\s*(.*)")

_NUMERIC_FIELDS = ("user_sgpr", "kernarg", "system_", "float_", "ieee", "dx10", "fp16_overflow")
"""Prefixes of the descriptor fields whose values are numbers: they set the initial state of a wave."""

MAX_SEGMENT_BYTES = 1 << 16
"""The maximum size of a kernarg segment, in bytes."""

POINTER_KINDS = ("global_buffer", "dynamic_shared_pointer")


def parse_descriptor(lines: Sequence[tuple[int, str]], file: str) -> Mapping[str, str]:
    """Parse the fields between `.amdhsa_kernel` and `.end_amdhsa_kernel`; keys are without the prefix `.amdhsa_`.

    Raises AssemblyError.
    """
    found: dict[str, str] = {}
    for number, line in lines:
        name, _, value = line.partition(" ")
        if not name.startswith(".amdhsa_") or not value:
            raise AssemblyError(file, number, f"{line!r} is not a field of a kernel descriptor")
        field = name.removeprefix(".amdhsa_")
        found[field] = value.strip()
        if field.startswith(_NUMERIC_FIELDS):
            given = found[field]
            if not (given.isascii() and given.isdigit()):
                raise AssemblyError(file, number, f"{name} has the value {given!r}, which is not a number")
            if len(given) > 9 or int(given) > MAX_SEGMENT_BYTES:
                raise AssemblyError(file, number, f"{name} has the value {given[:24]}, which is out of range")
    return found


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel: the parameter, its byte offset in the kernarg segment, its `value_kind`."""

    parameter: Parameter
    offset: int
    kind: str

    @property
    def hidden(self) -> bool:
        """Whether the runtime provides it, not the launch."""
        return self.kind.startswith("hidden_")


def parse_arguments(lines: Sequence[tuple[int, str]], file: str) -> Mapping[str, tuple[Argument, ...]]:
    """Parse the arguments of each kernel from the metadata's YAML.

    The layout is the one that LLVM writes: a list of kernels, each with a list `.args` of mappings.  Raises
    AssemblyError.
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
                raise AssemblyError(file, number, "the metadata's list of arguments is malformed")
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
    if not (0 <= offset <= MAX_SEGMENT_BYTES and 0 <= size <= MAX_SEGMENT_BYTES):
        raise AssemblyError(file, number, "an argument in the metadata is beyond the maximum size of a kernarg segment")
    kind = entry.get(".value_kind", "")
    name = entry.get(".name", f"argument at byte {offset}")
    return Argument(Parameter(name, size, kind in POINTER_KINDS), offset, kind)
