"""Addresses of buffers that a kernel stores in the memory of its block or of its threads, and loads again in words.

Compilers store an address in two words where 8 bytes have no alignment, and put the words together again.  A word of
an address, alone, is a number that the launch does not give.  So what is loaded in less than 64 bits from where an
address was stored may be moved up by 32 bits, and joined with the other word.  If the result is no address, or if
anything else reads such a word, it is undetermined.  So is what `ldmatrix` loads there.  Matrix instructions and copies
that read shared memory while it holds an address are Unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from bitwise_core.assembly.module import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Operand,
    Register,
    Vector,
    once_a_kernel,
)
from bitwise_core.assembly.module import registers_of as registers_in
from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.alternatives import Possibilities
from bitwise_core.execution.architecture import OpcodeTable
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import is_like_address
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.opcode_steps import step_with_registers
from bitwise_core.execution.races.undetermined import Cause, Kind, undetermined
from bitwise_core.execution.values.symbolic_vector import Array, width
from bitwise_core.execution.values.term_hash import poison
from bitwise_nvidia_ptx.addresses.numbers import (
    OWN_SPACES,
    REASON,
    WORD,
    flow_of,
    keeps_upper_word,
    stored_registers,
)
from bitwise_nvidia_ptx.special_registers import RANK_SHIFT

_PLACES = "places of stored addresses"
"""The bytes of memory that may hold a part of an address: a set of numbers in `Machine.extra`."""
_READ_ELSEWHERE = (
    "shared memory that may hold the address of a buffer, which the launch does not give, is read by another "
    "instruction than a load"
)
_IN_BLOCK = np.uint64((1 << RANK_SHIFT) - 1)
"""The bits of a shared address without the rank of its block: another block may have stored there."""
_ROW = 16
"""The bytes at each address of `ldmatrix`."""
_STARTS = frozenset({"global", "async", "tensor", "reduce"})
"""Parts of the opcodes of bulk copies, as opposed to commits and waits."""
_MULTIPLICATIONS = frozenset({"mma_async", "mma", "cp"})
"""Parts of the opcodes of instructions of matrix units that read shared memory."""
_WORDS = "registers with words of stored addresses"
"""The registers that may hold a word of an address: a set of names in `Machine.extra`."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The instructions of a kernel that store addresses, load words, and join words, by identity.

    `stores`: the registers with addresses, and of them the `halves`, which hold a word.  `apart`: the registers with
    words that something reads which joins none.  `others`: stores of anything else.  `rows`: loads of matrices.
    `readers`: instructions that read shared memory in other ways.
    """

    stores: Mapping[int, frozenset[str]]
    halves: frozenset[str]
    loads: frozenset[int]
    joins: Mapping[int, frozenset[str]]
    apart: frozenset[str]
    others: frozenset[int]
    rows: frozenset[int]
    readers: frozenset[int]

    def follows(self, instruction: Instruction) -> bool:
        """Return whether an instruction has a part in how stored addresses are followed."""
        key = id(instruction)
        return any(key in each for each in (self.stores, self.loads, self.joins, self.others, self.rows, self.readers))


def keeping_addresses(step: Step, instruction: Instruction, kernel: Kernel, opcodes: OpcodeTable) -> Step:
    """Return the step of an instruction, which follows the words of stored addresses."""
    plan = _plan(kernel, opcodes)
    if plan is None:
        return step
    if not plan.follows(instruction):
        return step
    stored, joined = plan.stores.get(id(instruction)), plan.joins.get(id(instruction))
    is_other, is_reader = id(instruction) in plan.others, id(instruction) in plan.readers
    loads_rows = id(instruction) in plan.rows

    def run(machine: Machine) -> Control | None:
        if getattr(machine.memory, "undetermined", None) is None:
            return _symbols_stored(step, machine, instruction, stored or frozenset(), plan.halves)
        if stored is not None:
            _note_places(machine, instruction, stored, plan.halves)
            return step(machine)
        if is_other:
            _drop_places(machine, instruction)
            return step(machine)
        if is_reader and machine.extra.get(_PLACES):
            raise Unsupported(f"{_READ_ELSEWHERE} ({instruction.opcode})", instruction.line)
        if is_reader:
            return step(machine)
        if loads_rows:
            held = _meets_places(machine, instruction.operands[1], _ROW)
            control = step(machine)
            for name in registers_in(instruction.operands[0]) if held else ():
                _forget(machine, name, instruction.line)
            return control
        words: set[str] = machine.extra.setdefault(_WORDS, Possibilities())
        held = not words.isdisjoint(joined or ())
        found = _loaded_words(machine, instruction) if joined is None else registers_in(instruction.operands[0])
        control = step(machine)
        for name in found if joined is None or held else ():
            if joined is not None and not _moves_word(instruction):
                apart = not _is_address(machine, name)
            else:
                words.add(name)
                apart = name in plan.apart
            if apart:
                _forget(machine, name, instruction.line)
        return control

    return run


def _symbols_stored(
    step: Step, machine: Machine, instruction: Instruction, stored: frozenset[str], halves: frozenset[str]
) -> Control | None:
    """Execute a step for every launch: an address in shared memory, where it would be no sum, is undefined."""
    pointers_in = getattr(machine.memory, "pointers_in", None)
    if pointers_in is None or ".local" in instruction.opcode:
        return step(machine)
    held = {name: machine.registers.get(name) for name in stored}
    names = [name for name, value in held.items() if value is not None and (name in halves or pointers_in(value))]
    return step_with_registers(step, names, machine, lambda _, value: poison(width(value))) if names else step(machine)


def _forget(machine: Machine, name: str, line: int) -> None:
    """What a register holds in the active lanes is undetermined."""
    known = machine.memory.undetermined
    value = machine.registers.get(name)
    if value is not None and known is not None and known.note(Cause(Kind.UNDEFINED, REASON, line)):
        shape = machine.blocks, machine.threads
        machine.write(Register(name), undetermined(width(value), shape, machine.domain.recorder))


def _is_address(machine: Machine, name: str) -> bool:
    value = machine.registers.get(name)
    known = None if value is None else machine.known(value)
    if known is None or known.dtype.itemsize != 2 * WORD // 8:
        return False
    return bool(is_like_address(active_values(known, machine.mask), len(machine.buffers)).all())


def _place(machine: Machine, operand: Operand) -> Array | None:
    """Return the known address of a memory operand in its block, None for an address that depends on data."""
    assert isinstance(operand, Address)
    base = np.zeros((1, 1), dtype=np.uint64) if operand.base is None else machine.known(machine.read(operand.base))
    if base is None:
        return None
    found: Array = (base.astype(np.uint64) + np.uint64(operand.offset & (1 << 64) - 1)) & _IN_BLOCK
    return found


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _note_places(machine: Machine, instruction: Instruction, stored: frozenset[str], halves: frozenset[str]) -> None:
    """Note where a store may leave a part of an address."""
    where = _place(machine, instruction.operands[0])
    if where is None:
        return
    size = int(instruction.opcode[-2:]) // 8
    places: set[int] = machine.extra.setdefault(_PLACES, Possibilities())
    for number, item in enumerate(_items(instruction.operands[1])):
        if not isinstance(item, Register) or item.name not in stored:
            continue
        lanes = active_lanes(machine.mask, where)
        if item.name not in halves:
            known = machine.known(machine.read(item))
            if known is None:
                continue
            lanes = active_lanes(machine.mask, where, known)
            lanes = lanes & is_like_address(known.astype(np.uint64), len(machine.buffers))
        places.update(_bytes_from(active_values(where, lanes) + np.uint64(number * size), size))


def _bytes_from(starts: Array, size: int) -> list[int]:
    """Return the numbers of `size` bytes from each of these addresses on."""
    first = np.unique(starts)
    found: list[int] = (first[:, None] + np.arange(size, dtype=np.uint64)).ravel().tolist()
    return found


def _drop_places(machine: Machine, instruction: Instruction) -> None:
    """Note that a store or copy of no address replaces what was at its places, where all blocks execute it alike."""
    places: set[int] = machine.extra.get(_PLACES, set())
    where = _place(machine, instruction.operands[0]) if places else None
    if where is None or machine.condition is not None:
        return
    lanes = active_lanes(machine.mask, where)
    if len(lanes) > 1:
        return
    size = _copied_bytes(instruction)
    if size is None:
        size = int(instruction.opcode.rsplit(".", 1)[1][1:]) // 8 * len(_items(instruction.operands[1]))
    # Until a copy has ended, a load there is in a race.
    places.difference_update(_bytes_from(active_values(where, lanes), size))


def _copied_bytes(instruction: Instruction) -> int | None:
    """Return how many bytes of shared memory a thread of a copy by threads fills, None for any other instruction."""
    if not instruction.opcode.startswith(("cp.async.ca.", "cp.async.cg.")):
        return None
    size = instruction.operands[2]
    return size.value if isinstance(size, Immediate) else None


def _meets_places(machine: Machine, operand: Operand, size: int) -> bool:
    """Return whether some active lane reads a part of an address among `size` bytes at a memory operand."""
    places: set[int] = machine.extra.get(_PLACES, set())
    if not places:
        return False
    where = _place(machine, operand)
    if where is None:
        return True
    read = _bytes_from(active_values(where, active_lanes(machine.mask, where)), size)
    return not places.isdisjoint(read)


def _reads_shared_memory(instruction: Instruction) -> bool:
    """Return whether an instruction may read shared memory, other than loads to registers."""
    base, *parts = instruction.opcode.split(".")
    if base == "cp":
        return "bulk" in parts and not _STARTS.isdisjoint(parts) and any(each.startswith("shared") for each in parts)
    if base in ("atom", "red"):
        return "global" not in parts
    return base in ("wgmma", "tcgen05") and not _MULTIPLICATIONS.isdisjoint(parts)


def _loaded_words(machine: Machine, instruction: Instruction) -> list[str]:
    """Return the registers to which a load of less than 64 bits may return a part of an address."""
    places: set[int] = machine.extra.get(_PLACES, set())
    if not places:
        return []
    where = _place(machine, instruction.operands[1])
    items = [each.name for each in _items(instruction.operands[0]) if isinstance(each, Register)]
    if where is None:
        return items
    start = active_values(where, active_lanes(machine.mask, where))
    size = int(instruction.opcode.rsplit(".", 1)[1][1:]) // 8
    return [
        name
        for number, name in enumerate(items)
        if not places.isdisjoint(_bytes_from(start + np.uint64(number * size), size))
    ]


def _moves_word(instruction: Instruction) -> bool:
    """Return whether an instruction returns one word, where it is or moved up by 32 bits."""
    base, *parts = instruction.opcode.split(".")
    sources = instruction.operands[1:]
    if any(isinstance(each, Vector) for each in instruction.operands):
        return False
    if base == "shl":
        return parts[-1] == "b64" and sources[1:] == (Immediate(WORD),)
    return base == "mov" or (base == "cvt" and parts[-2:-1] in (["u64"], ["b64"]) and parts[-1] in ("u32", "b32"))


def _joins(instruction: Instruction) -> bool:
    """Return whether an instruction may make an address of two words."""
    base, *parts = instruction.opcode.split(".")
    if base == "mov":
        return not isinstance(instruction.operands[0], Vector)
    return (base in ("or", "add") and parts[-1].endswith("64")) or _moves_word(instruction)


def _is_narrow_load(instruction: Instruction) -> bool:
    base, *parts = instruction.opcode.split(".")
    own = "param" not in parts and ("global" not in parts or not OWN_SPACES.isdisjoint(parts))
    return base == "ld" and own and parts[-1][1:] in ("8", "16", "32")


@once_a_kernel
def _plan(kernel: Kernel, opcodes: OpcodeTable) -> _Plan | None:
    """Return the instructions that follow stored addresses; None for a kernel that stores none."""
    flow = flow_of(kernel, opcodes)
    kept = {
        name
        for each in kernel.instructions
        if each.opcode.startswith("shr.") and len(each.operands) > 1 and keeps_upper_word(each, flow)
        for name in registers_in(each.operands[0])
    }
    stores: dict[int, frozenset[str]] = {}
    halves: set[str] = set(kept)
    for each in kernel.instructions:
        if not each.opcode.startswith("st.") or ".param" in each.opcode:
            continue
        names = stored_registers(each, flow.origins)
        names += [name for name in registers_of_source(each) if name in kept and name not in names]
        if names:
            stores[id(each)] = frozenset(names)
            halves.update(names if each.opcode[-2:] != "64" else ())
    if not stores:
        return None
    loads = [each for each in kernel.instructions if _is_narrow_load(each)]
    words = {name for each in loads for name in registers_in(each.operands[0])}
    work = list(words)
    joins: dict[int, frozenset[str]] = {}
    apart: set[str] = set()
    while work:
        name = work.pop()
        for index in flow.uses.get(name, ()):
            user = kernel.instructions[index]
            if not _joins(user):
                if name not in flow.infos[index].writes or name in registers_of_source(user):
                    apart.add(name)
                continue
            joins[id(user)] = joins.get(id(user), frozenset()) | {name}
            if _moves_word(user):
                fresh = [each for each in registers_in(user.operands[0]) if each not in words]
                words.update(fresh)
                work += fresh
    each_store = [each for each in kernel.instructions if each.opcode.startswith("st.") and ".param" not in each.opcode]
    in_shared = any(id(each) in stores and ".local" not in each.opcode for each in each_store)
    others = {id(each) for each in each_store if id(each) not in stores and "global" not in each.opcode.split(".")}
    others |= {id(each) for each in kernel.instructions if in_shared and _copied_bytes(each) is not None}
    rows = {id(each) for each in kernel.instructions if in_shared and each.opcode.startswith("ldmatrix.")}
    readers = {id(each) for each in kernel.instructions if in_shared and _reads_shared_memory(each)}
    followed = frozenset(map(id, loads)), joins, frozenset(apart)
    return _Plan(stores, frozenset(halves), *followed, frozenset(others), frozenset(rows), frozenset(readers))


def registers_of_source(instruction: Instruction) -> Iterable[str]:
    """Return the registers of all operands but the first."""
    return [name for each in instruction.operands[1:] for name in registers_in(each)]
