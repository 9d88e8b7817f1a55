"""The segment of kernel arguments: what the launch gives, and what the runtime adds to it.

Source: LLVM's AMDGPU usage guide, "Code object V5 metadata: hidden arguments".
"""

from __future__ import annotations

from bitwise_core.assembly.module import Kernel
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT, Launch, ManifestError
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.memory.kernel_parameters import POINTER_BYTES, value_of
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value, width
from bitwise_core.execution.values.term_hash import poison

_POINTER_BITS = 48 - POINTER_SHIFT
"""A buffer's descriptor holds 48 bits of an address."""


def argument_words(machine: Machine, kernel: Kernel, launch: Launch) -> list[Value]:
    """The segment of arguments as words of 32 bits.  Raises ManifestError, Unsupported."""
    if len(launch.args) > len(kernel.parameters):
        raise ManifestError(
            f"the launch gives {len(launch.args)} arguments and the entry {kernel.name} takes {len(kernel.parameters)}"
        )
    if len(machine.buffers) + len(kernel.parameters) >= 1 << _POINTER_BITS:
        raise Unsupported("more buffers are given than addresses of 48 bits tell apart")
    words: list[Value] = [poison(32) for _ in range(-(-int(kernel.attributes.get("kernarg_size", "0")) // 4))]
    offsets = [int(each) for each in kernel.attributes["offsets"].split()]
    for index, (offset, parameter) in enumerate(zip(offsets, kernel.parameters, strict=True)):
        if index < len(launch.args):
            value = value_of(machine, launch.args[index], parameter)
        elif parameter.size == POINTER_BYTES and parameter.pointer:
            pointer = (len(machine.buffers) + 1 + index) << POINTER_SHIFT
            machine.extra.setdefault("scratch", set()).add(pointer >> POINTER_SHIFT)
            value = literal(pointer, 64)
        else:
            raise ManifestError(f"the parameter {parameter.name} has no argument in the launch")
        _place(words, value, offset, parameter.name)
    known = _hidden(launch, machine.block)
    for each in kernel.attributes["hidden"].split():
        kind, at, size = each.split(":")
        if kind in known and size in ("2", "4", "8"):
            _place(words, literal(known[kind], 8 * int(size)), int(at), kind)
    return words


def _place(words: list[Value], value: Value, offset: int, name: str) -> None:
    """Puts a value at a byte of the segment, which grows where the descriptor says less than the metadata."""
    size = width(value) // 8
    while len(words) * 4 < offset + size:
        words.append(poison(32))
    if offset % min(size, 4):
        raise Unsupported(f"the argument {name} does not lie at a multiple of its size")
    if size >= 4:
        for index in range(size // 4):
            words[offset // 4 + index] = extract(value, 32 * index, 32)
        return
    unit = 8 * size
    parts = [extract(words[offset // 4], low, unit) for low in range(0, 32, unit)]
    parts[offset % 4 // size] = value
    words[offset // 4] = concat(parts)


def _hidden(launch: Launch, threads: tuple[int, int, int]) -> dict[str, int]:
    """What the runtime tells a kernel of its launch, by the kind of argument."""
    found = {"hidden_grid_dims": max(1, sum(each > 1 for each in launch.grid))}
    for axis, blocks, size in zip("xyz", launch.grid, threads, strict=True):
        found[f"hidden_block_count_{axis}"] = blocks
        found[f"hidden_group_size_{axis}"] = size
        found[f"hidden_remainder_{axis}"] = 0
        found[f"hidden_global_offset_{axis}"] = 0
    if launch.shared is not None:
        found["hidden_dynamic_lds_size"] = launch.shared
    return found
