"""Registers that hold words of addresses: what an instruction reads of these as a number is undetermined.

In an analysis a buffer has an address of its own choice, which the launch does not give.  A word of an address may be
moved, an offset may be added to both words, and memory may be accessed at the address.  Its comparison with zero is
known, and so are its low 8 bits, since a buffer begins at a multiple of 256 bytes, and the order of two addresses in
one buffer.  What any other instruction makes of a word of an address is undetermined, and so is a word that is stored
as a number (`address_flow`).

Words of addresses come from the arguments of the kernel and from pointers among given contents.  Which loads return
some is found where they are executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from bitwise_amd_gfx942.addresses.address_flow import WITHOUT_READS, Sources, readers
from bitwise_amd_gfx942.addresses.address_moves import COMPARES_64, ENDS_64, UPPER_BITS
from bitwise_amd_gfx942.addresses.address_state import HIGH, LOW, names_of
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_amd_gfx942.opcodes.operands.operand_access import word_reader
from bitwise_amd_gfx942.registers import EXEC, SCC, lane_mask_key
from bitwise_core.assembly.module import Instruction, Kernel
from bitwise_core.execution.active_lanes import active_values
from bitwise_core.execution.alternatives import SharedByWays
from bitwise_core.execution.architecture import OpcodeTable
from bitwise_core.execution.launch import buffers_at
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.opcode_steps import step_with_registers
from bitwise_core.execution.races.undetermined import Cause, Kind, undetermined
from bitwise_core.execution.values.symbolic_vector import Array, Value

_REASON = "the address of a buffer, which the launch does not give, is read as a number"
POINTERS = "arguments that are addresses"
"""The key of `Machine.extra` for the numbers of the words of arguments that are the lower words of addresses."""
_LOADED = "loaded words of addresses"
_READERS = "readers of words of addresses"
"""The keys of `Machine.extra` for `_Loaded`, and for `readers` as long as no load has returned another word."""


@dataclass(slots=True)
class _Loaded(SharedByWays):
    """The words of addresses that loads of a run have returned, on any way, and those in registers at the start."""

    words: set[tuple[int, int, int]] = field(default_factory=set)
    preloaded: frozenset[tuple[str, int]] = frozenset()


def note_preloaded_words(machine: Machine, registers: Iterable[tuple[str, int]]) -> None:
    """Note registers that hold a word of an address at the start: 0 for a lower, 1 for an upper word."""
    found = frozenset((name, HIGH if upper else LOW) for name, upper in registers)
    _loaded(machine).preloaded |= found


def note_loaded_words(machine: Machine, instruction: Instruction, words: Iterable[tuple[int, int]]) -> None:
    """Note the words of a load's destination that hold a word of an address: 0 for a lower, 1 for an upper one."""
    known, key = _loaded(machine).words, id(instruction)
    found = {(key, number, HIGH if upper else LOW) for number, upper in words}
    if not found <= known:
        known |= found
        machine.extra.pop(_READERS, None)


def note_loaded_pointers(machine: Machine, instruction: Instruction, address: Array, words: int) -> None:
    """Note the words of a load from global memory that hold a word of a pointer which the launch gives there."""
    given = machine.memory.given
    if given.has_pointers:
        for number in range(words):
            for upper, lanes in enumerate(given.words_of_pointers(address + np.uint64(4 * number))):
                if active_values(lanes, machine.mask).any():
                    note_loaded_words(machine, instruction, [(number, upper)])


def note_argument_words(machine: Machine, instruction: Instruction, first: int, words: int) -> None:
    """Note the words of a load of arguments, from the `first` one on, that hold a word of an address."""
    pointers: frozenset[int] = machine.extra.get(POINTERS, frozenset())
    places = ((number, first + number) for number in range(words))
    found = [(number, upper) for number, place in places for upper in (0, 1) if place - upper in pointers]
    note_loaded_words(machine, instruction, found)


def _loaded(machine: Machine) -> _Loaded:
    found: _Loaded | None = machine.extra.get(_LOADED)
    if found is None:
        found = machine.extra[_LOADED] = _Loaded()
    return found


def reading_words(step: Step, instruction: Instruction, kernel: Kernel, opcodes: OpcodeTable) -> Step:
    """Return the step of an instruction, for which words of addresses are undetermined if it reads them as numbers."""
    if form(instruction.opcode).name in WITHOUT_READS:
        return step
    key, line = id(instruction), instruction.line

    def run(machine: Machine) -> Control | None:
        found: Mapping[int, frozenset[str]] | None = machine.extra.get(_READERS)
        if found is None:
            found = machine.extra[_READERS] = _readers_now(machine, kernel, opcodes)
        names = found.get(key)
        if names is None:
            return step(machine)
        known = getattr(machine.memory, "undetermined", None)
        if known is None or _in_one_buffer(machine, instruction) or _clears_upper_bits(machine, instruction, names):
            return step(machine)
        if not known.note(Cause(Kind.UNDEFINED, _REASON, line)):
            return step(machine)
        return _with_undetermined(step, machine, names)

    return run


def may_read_words(machine: Machine, instructions: frozenset[int]) -> bool:
    """Return whether one of these instructions, by identity, may read a word of an address as a number."""
    found: Mapping[int, frozenset[str]] | None = machine.extra.get(_READERS)
    return found is None or not instructions.isdisjoint(found)


def _with_undetermined(step: Step, machine: Machine, names: Iterable[str]) -> Control | None:
    """Execute a step that finds undetermined values in some registers, which keep their contents."""
    shape, recorder = (machine.blocks, machine.threads), machine.domain.recorder

    def unknown(key: str, _: Value) -> Value:
        return undetermined(1 if key == SCC or key.endswith(" mask") else 32, shape, recorder)

    return step_with_registers(step, {_key(machine, name) for name in names}, machine, unknown)


def _key(machine: Machine, name: str) -> str:
    """Return the key under which a register is held now."""
    key = SCC if name in ("scc", "src_scc") else lane_mask_key(name)
    return name if key is None or key not in machine.registers else key


def _in_one_buffer(machine: Machine, instruction: Instruction) -> bool:
    """Return whether an instruction compares addresses in one buffer, whose order the launch decides.

    An address may also be compared with zero, for equality.
    """
    name = form(instruction.opcode).name
    if not (name.startswith(COMPARES_64) and name.endswith(ENDS_64)):
        return False
    held: list[Array] = []
    for operand in instruction.operands[-2:]:
        words = [machine.known(word_reader(each, instruction)(machine)) for each in names_of(operand)]
        if len(words) != 2 or words[0] is None or words[1] is None:
            return False
        held.append(words[0].astype(np.uint64) | words[1].astype(np.uint64) << np.uint64(32))
    one, other = held
    known = (buffers_at(one) == buffers_at(other)) & (buffers_at(one) > 0)
    if name.rsplit("_", 2)[1] in ("eq", "ne", "lg"):
        known = known | (one == 0) | (other == 0)
    lanes, execution = machine.mask, machine.registers.get(EXEC)
    if name.startswith("v_") and isinstance(execution, np.ndarray):
        lanes = execution if lanes is None else lanes & execution
    return bool(active_values(known, lanes).all())


def _clears_upper_bits(machine: Machine, instruction: Instruction, names: frozenset[str]) -> bool:
    """Return whether an instruction only clears bits that no address has, by a mask in a pair of registers."""
    if form(instruction.opcode).name != "s_and_b64":
        return False
    masks = [each for each in map(names_of, instruction.operands[1:]) if names.isdisjoint(each)]
    if len(masks) != 1 or len(masks[0]) != 2:
        return False
    words = [machine.registers.get(each) for each in masks[0]]
    return all(
        isinstance(word, np.ndarray) and bool((word == np.uint32(wanted)).all())
        for word, wanted in zip(words, ((1 << 32) - 1, UPPER_BITS), strict=True)
    )


def _readers_now(machine: Machine, kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, frozenset[str]]:
    loaded = _loaded(machine)
    return readers(kernel, opcodes, Sources(frozenset(loaded.words), loaded.preloaded))
