"""The kernarg segment: the explicit arguments of the launch and the hidden arguments of the runtime.

Source: LLVM's AMDGPU usage guide, "Code object V5 metadata: hidden arguments".
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.addresses.address_words import POINTERS
from bitwise_core.assembly.module import Kernel
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT, Launch, ManifestError, is_like_address
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.memory.kernel_parameters import POINTER_BYTES, value_of
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value, width
from bitwise_core.execution.values.term_hash import poison

_POINTER_BITS = 48 - POINTER_SHIFT
"""The bits of a pointer that number the buffer: a buffer descriptor holds a 48-bit address."""


def kernarg_words(machine: Machine, kernel: Kernel, launch: Launch) -> list[Value]:
    """The kernarg segment as 32-bit words; bytes without an argument are undefined.

    Raises ManifestError where arguments and parameters do not match, Unsupported for too many buffers or an unaligned
    argument.
    """
    if len(launch.args) > len(kernel.parameters):
        raise ManifestError(
            f"the launch has {len(launch.args)} arguments and the entry {kernel.name} takes {len(kernel.parameters)}"
        )
    scratch = len(kernel.parameters) - len(launch.args)
    if len(machine.buffers) + scratch >= 1 << _POINTER_BITS:
        raise Unsupported("there are more buffers than 48-bit addresses can distinguish")
    words: list[Value] = [poison(32) for _ in range(-(-int(kernel.attributes.get("kernarg_size", "0")) // 4))]
    pointers: set[int] = set()
    offsets = [int(each) for each in kernel.attributes["offsets"].split()]
    for index, (offset, parameter) in enumerate(zip(offsets, kernel.parameters, strict=True)):
        if index < len(launch.args):
            value = value_of(machine, launch.args[index], parameter)
        elif parameter.size == POINTER_BYTES and parameter.pointer:
            pointer = (len(machine.buffers) + 1 + index - len(launch.args)) << POINTER_SHIFT
            machine.extra.setdefault("scratch", set()).add(pointer >> POINTER_SHIFT)
            value = literal(pointer, 64)
        else:
            raise ManifestError(f"the parameter {parameter.name} has no argument in the launch")
        _store(words, value, offset, parameter.name)
        known = value if isinstance(value, np.ndarray) and parameter.size == POINTER_BYTES else None
        if known is not None and is_like_address(known.astype(np.uint64), len(machine.buffers)).any():
            pointers.add(offset // 4)
    machine.extra[POINTERS] = frozenset(pointers)
    hidden = _hidden_arguments(launch, machine.block)
    for each in kernel.attributes["hidden"].split():
        kind, offset_text, size = each.split(":")
        if kind in hidden and size in ("2", "4", "8"):
            _store(words, literal(hidden[kind], 8 * int(size)), int(offset_text), kind)
    return words


def _store(words: list[Value], value: Value, offset: int, name: str) -> None:
    """Store a value at a byte offset; extend the segment where the descriptor's size is less than the metadata's."""
    size = width(value) // 8
    while len(words) * 4 < offset + size:
        words.append(poison(32))
    if offset % min(size, 4):
        raise Unsupported(f"the argument {name} is not aligned to its size")
    if size >= 4:
        for index in range(size // 4):
            words[offset // 4 + index] = extract(value, 32 * index, 32)
        return
    unit = 8 * size
    parts = [extract(words[offset // 4], low, unit) for low in range(0, 32, unit)]
    parts[offset % 4 // size] = value
    words[offset // 4] = concat(parts)


def _hidden_arguments(launch: Launch, threads: tuple[int, int, int]) -> dict[str, int]:
    """The hidden arguments by their `value_kind`: the launch's geometry and its dynamic shared memory."""
    found = {"hidden_grid_dims": max(1, sum(each > 1 for each in launch.grid))}
    for axis, blocks, size in zip("xyz", launch.grid, threads, strict=True):
        found[f"hidden_block_count_{axis}"] = blocks
        found[f"hidden_group_size_{axis}"] = size
        found[f"hidden_remainder_{axis}"] = 0
        found[f"hidden_global_offset_{axis}"] = 0
    if launch.shared is not None:
        found["hidden_dynamic_lds_size"] = launch.shared
    return found
