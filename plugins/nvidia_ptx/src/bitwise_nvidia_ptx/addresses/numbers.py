"""Instructions that read the address of a buffer as a number, which the launch does not give.

In an analysis a buffer has an address of its own choice.  An address may be moved, an offset may be added to it, and
memory may be accessed at it.  Its comparison with zero is known, since a buffer has memory; so are its low bits, since
a buffer begins at a multiple of 256 bytes, from which the launch states the offset of an argument; and so are the
distance and the order of two addresses in one buffer.  Any other number that is computed from an address is
undetermined: which buffer comes first, the distance of two buffers, other bits, and an address that is stored.

A number of 64 bits that is loaded is an address if it lies in a buffer: the launch gives no such number that is none.
From its own memory a block loads one only if the kernel stores one there (`stored`).

Compilers exchange the addresses of lanes as two words and put them together again (`exchanged`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from bitwise_core.assembly.module import Address, Immediate, Instruction, Kernel, Operand, Symbol, Vector, once_a_kernel
from bitwise_core.assembly.module import registers_of as registers_in
from bitwise_core.execution.active_lanes import active_values
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.launch import buffers_at, is_like_address
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.opcode_steps import step_with_registers
from bitwise_core.execution.races.undetermined import Cause, Kind, undetermined
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import poison
from bitwise_nvidia_ptx.addresses.exchanged import exchanged_addresses

_ALIGNMENT = 256
"""A buffer begins at a multiple of this number of bytes."""
_NUMBER = ""
"""The origin of a value that is no address, beside the names of parameters."""
_LOADED = " loaded"
"""The origin of a value that may be an address which was loaded, beside the names of parameters."""
Origins: TypeAlias = frozenset[str]
_NO_ADDRESS: Origins = frozenset({_NUMBER})
_PERHAPS_ADDRESS: Origins = frozenset({_NUMBER, _LOADED})
_CHOSEN_BY_DATA: Origins = frozenset({_LOADED, " chosen"})
"""The origins of a value that may be one of several loaded addresses."""
WORD = 32
"""The bits of half of an address."""
_LOADS = ("ld.", "ldu.")
_WIDE = (".b64", ".u64", ".s64", ".f64", ".b128")
"""The ends of opcodes that load addresses."""
OWN_SPACES = frozenset({"shared", "shared::cta", "shared::cluster", "local", "param"})
"""Spaces of memory that no output is in: what is stored there is read again."""
_MOVES = frozenset({"mov", "cvta", "selp", "shfl"})
_NOT_READING = _MOVES | {
    "ld", "ldu", "prefetch", "prefetchu", "isspacep", "call", "ret", "bra", "mapa", "getctarank", "createpolicy",
    "applypriority", "fence", "clusterlaunchcontrol",
}  # fmt: skip
"""Opcodes that move their operands, or take them as addresses."""
_ACCESSING = frozenset({"cp", "tensormap", "tcgen05", "wgmma", "mbarrier"})
"""Opcodes that take operands in brackets as addresses, and read others as numbers: sizes, coordinates, elements."""
REASON = "the address of a buffer, which the launch does not give, is read as a number"


def reading_addresses(step: Step, instruction: Instruction, kernel: Kernel, opcodes: OpcodeTable) -> Step:
    """Return the step of an instruction, for which registers that hold addresses are undetermined if it reads them."""
    held = _readers(kernel, opcodes).get(id(instruction))
    if held is None:
        return step
    line = instruction.line

    def run(machine: Machine) -> Control | None:
        known = getattr(machine.memory, "undetermined", None)
        if known is None and not hasattr(machine.memory, "pointers_in"):
            return step(machine)
        loaded = _loaded(held)
        names = _read_as_numbers(instruction, {name: _now(machine, name, each) for name, each in held.items()}, loaded)
        if not names:
            return step(machine)
        if known is None:  # for every launch, where addresses are symbols
            return step_with_registers(step, names, machine, lambda _, value: poison(width(value)))
        if not known.note(Cause(Kind.UNDEFINED, REASON, line)):
            return step(machine)
        shape, recorder = (machine.blocks, machine.threads), machine.domain.recorder
        return step_with_registers(step, names, machine, lambda _, value: undetermined(width(value), shape, recorder))

    return run


def _now(machine: Machine, name: str, origins: Origins) -> Origins:
    """Return the origins of what a register holds now: the buffers of known addresses, else those of its definitions.

    Parameters that are no pointers of the launch are none of them.  A value of 64 bits that depends on data is taken
    for a number in a register that holds no address but perhaps a loaded one.
    """
    value = machine.registers.get(name)
    wide = value is not None and width(value) == 2 * WORD
    if isinstance(value, np.ndarray) and wide:
        numbers = active_values(value, machine.mask)
        if _LOADED in origins:
            numbers = numbers[is_like_address(numbers, len(machine.buffers))]
        buffers = np.unique(buffers_at(numbers)).tolist()
        return frozenset(str(each) if each else _NUMBER for each in buffers) or _NO_ADDRESS
    pointers_in = getattr(machine.memory, "pointers_in", None)
    if wide and pointers_in is not None:
        return frozenset(map(str, pointers_in(value))) or _NO_ADDRESS
    if wide and origins <= _PERHAPS_ADDRESS:
        given = getattr(machine.memory, "given", None)
        chosen = given is not None and given.has_pointers and value is not None and not _is_loaded(value)
        return _CHOSEN_BY_DATA if chosen and _LOADED in origins else _NO_ADDRESS
    parameters = {each: machine.parameters.get(each) for each in origins}
    pointers = {
        each
        for each, held in parameters.items()
        if held is not None and machine.memory.buffer_of_pointer(held) is not None
    }
    return frozenset(pointers) or _NO_ADDRESS


def _is_loaded(value: Value) -> bool:
    """Return whether a value of 64 bits is the content of memory before the launch in all lanes."""
    return isinstance(value, SymbolicVector) and bool(np.all((value.flags & L.KIND) == L.LOAD))


@once_a_kernel
def _readers(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, Mapping[str, Origins]]:
    """Return the instructions that may read addresses as numbers, by identity, with the origins of what they read."""
    flow = flow_of(kernel, opcodes)
    origins = flow.origins
    loaded = _loaded(origins)
    found: dict[int, Mapping[str, Origins]] = {}
    last: list[dict[str, int]] | None = None
    for index in {each for name in origins for each in flow.uses.get(name, ())}:
        instruction = kernel.instructions[index]
        if not _read_as_numbers(instruction, origins, loaded) or keeps_upper_word(instruction, flow):
            continue
        if index in flow.widened_words:
            continue
        last = definitions_in_block(flow, kernel) if last is None else last
        held = {
            name: flow.written(last[index][name]) if name in last[index] else origins[name]
            for name in flow.infos[index].reads
            if name in origins
        }
        if _read_as_numbers(instruction, held, _loaded(held)):
            found[id(instruction)] = held
    return found


def _loaded(origins: Mapping[str, Origins]) -> frozenset[str]:
    """Return the registers that may hold an address which was loaded."""
    return frozenset(name for name, each in origins.items() if _LOADED in each)


def keeps_upper_word(instruction: Instruction, flow: Flow) -> bool:
    """Return whether an instruction takes the upper word of 64 bits only to store it in the block's own memory.

    A compiler stores an address so where 8 bytes have no alignment, in two words.
    """
    base, *parts = instruction.opcode.split(".")
    target, *sources = instruction.operands
    if base != "shr" or parts not in (["u64"], ["b64"]) or sources[1:] != [Immediate(WORD)]:
        return False
    uses = [flow.instructions[each] for name in registers_in(target) for each in flow.uses.get(name, ())]
    return bool(uses) and all(_is_store_of_word(each) and each.operands[1:] == (target,) for each in uses)


def _is_store_of_word(instruction: Instruction) -> bool:
    base, *parts = instruction.opcode.split(".")
    return base == "st" and not OWN_SPACES.isdisjoint(parts) and parts[-1] in ("b32", "u32")


class Flow:
    """The flow of addresses through the registers of a kernel."""

    def __init__(self, kernel: Kernel, opcodes: OpcodeTable) -> None:
        self.instructions = kernel.instructions
        self.pointers = frozenset(each.name for each in kernel.parameters if each.size == 2 * WORD // 8)
        """The parameters that may be addresses."""
        self.infos = infos_of(kernel, opcodes)
        self.uses: dict[str, list[int]] = {}
        self.definitions: dict[str, list[int]] = {}
        for index, info in enumerate(self.infos):
            for name in info.reads:
                self.uses.setdefault(name, []).append(index)
            for name in info.writes:
                self.definitions.setdefault(name, []).append(index)
        self._exchanged = exchanged_addresses(kernel, self.infos, self.definitions, self.uses)
        for index, (name, _) in self._exchanged.items():
            self.uses[name].append(index)
        self.widened_words = frozenset(each for _, words in self._exchanged.values() for each in words)
        """The instructions, by number, that widen a word of an address only to join both words."""

    @cached_property
    def origins(self) -> Mapping[str, Origins]:
        """For each register with addresses the parameters of which it may be one plus an offset.

        `_NUMBER` is among them if it may also be something else, and `_LOADED` if it may be loaded.
        """
        found = self._followed(own_memory=False)
        kept = any(stored_registers(each, found) for each in self.instructions if each.opcode.startswith("st."))
        return self._followed(own_memory=True) if kept else found

    def written(self, index: int) -> Origins:
        """Return the origins of what an instruction writes."""
        return self._result(self.origins, True, index)

    def _followed(self, *, own_memory: bool) -> Mapping[str, Origins]:
        """See `origins`; `own_memory`: the memory of the block and of its threads may hold addresses."""
        found: dict[str, Origins] = {}
        result = partial(self._result, found, own_memory)
        loads = (index for index, each in enumerate(self.instructions) if each.opcode.startswith(_LOADS))
        work = [index for index in loads if result(index) != _NO_ADDRESS]
        while work:
            while work:
                index = work.pop()
                self._add(index, result(index) - {_NUMBER}, found, work)
            for name in list(found):
                for index in self.definitions[name]:
                    if _NUMBER in result(index) and _NUMBER not in found[name]:
                        found[name] |= {_NUMBER}
                        work += self.uses.get(name, ())
        return found

    def _result(self, found: Mapping[str, Origins], own_memory: bool, index: int) -> Origins:
        """Return the origins of what an instruction writes, from those `found` of the registers."""
        instruction = self.instructions[index]
        if index in self._exchanged:
            return found.get(self._exchanged[index][0], _NO_ADDRESS)
        opcode, source = instruction.opcode, instruction.operands[1:2]
        if not opcode.startswith(_LOADS):
            return _result(instruction, found)
        base = source[0].base if source and isinstance(source[0], Address) else None
        if ".param" in opcode and isinstance(base, Symbol):
            return frozenset({base.name}) if opcode.endswith(_WIDE) or base.name in self.pointers else _NO_ADDRESS
        own = not OWN_SPACES.isdisjoint(opcode.split("."))
        return _PERHAPS_ADDRESS if opcode.endswith(_WIDE) and (own_memory or not own) else _NO_ADDRESS

    def _add(self, index: int, made: Origins, found: dict[str, Origins], work: list[int]) -> None:
        for name in self.infos[index].writes if made else ():
            if not made <= found.get(name, frozenset()):
                found[name] = found.get(name, frozenset()) | made
                work += self.uses.get(name, ())


@once_a_kernel
def flow_of(kernel: Kernel, opcodes: OpcodeTable) -> Flow:
    """Return the uses and definitions of the registers of a kernel."""
    return Flow(kernel, opcodes)


def definitions_in_block(flow: Flow, kernel: Kernel) -> list[dict[str, int]]:
    """Return for each instruction the definitions in its basic block that are the only ones to reach it.

    A register without one may have any of its definitions in the kernel.
    """
    starts = set(kernel.labels.values())
    found: list[dict[str, int]] = []
    last: dict[str, int] = {}
    for index, (instruction, info) in enumerate(zip(flow.instructions, flow.infos, strict=True)):
        if index in starts:
            last = {}
        found.append({name: last[name] for name in info.reads if name in last})
        for name in info.writes:
            if instruction.guard is None:
                last[name] = index
            else:
                last.pop(name, None)
    return found


def stored_registers(instruction: Instruction, origins: Mapping[str, Origins]) -> list[str]:
    """Return the registers that may hold addresses and that an instruction stores in memory which no output is in."""
    base, *parts = instruction.opcode.split(".")
    if base != "st" or "global" in parts:
        return []
    names = (name for each in instruction.operands[1:] for name in registers_in(each))
    return [name for name in names if origins.get(name, _NO_ADDRESS) != _NO_ADDRESS]


def _is_integer(kind: str) -> bool:
    return kind[:1] in "usb" and kind[1:] in ("32", "64")


def _result(instruction: Instruction, origins: Mapping[str, Origins]) -> Origins:
    """Return the origins of what an instruction writes."""
    base, *parts = instruction.opcode.split(".")
    sources = instruction.operands[1 : {"shfl": 2, "selp": 3}.get(base)]
    held = [_of(each, origins) for each in sources]
    if _widens(instruction):
        return _NO_ADDRESS
    if held and (base in _MOVES or (base == "cvt" and all(map(_is_integer, parts[-2:])))):
        every = frozenset[str]().union(*held)
        return (every - {_LOADED} if _narrows(instruction) else every) or _NO_ADDRESS
    if base in ("mad", "madc") and len(held) > 2:
        return held[2]
    if base in ("add", "addc") and len(held) > 1:
        either = held[0] | held[1]
        return either if _NUMBER in held[0] & held[1] else either - {_NUMBER}
    if base in ("sub", "subc") and len(held) > 1:
        # The second parameter may be a number in a launch, or the same buffer.
        return held[0] if held[1] == _NO_ADDRESS else held[0] | _NO_ADDRESS
    return _NO_ADDRESS


def _of(operand: Operand, origins: Mapping[str, Origins]) -> Origins:
    """Return the origins of an operand: those of all its registers."""
    names = registers_in(operand)
    return frozenset[str]().union(*(origins.get(each, _NO_ADDRESS) for each in names)) if names else _NO_ADDRESS


def _narrows(instruction: Instruction) -> bool:
    """Return whether an instruction returns words of what it reads."""
    base, *parts = instruction.opcode.split(".")
    if base == "cvt":
        return parts[-2:-1] not in (["b64"], ["u64"], ["s64"])
    return base == "mov" and isinstance(instruction.operands[0], Vector)


def _widens(instruction: Instruction) -> bool:
    """Return whether an instruction widens a word to 64 bits."""
    base, *parts = instruction.opcode.split(".")
    return base == "cvt" and parts[-2:-1] in (["b64"], ["u64"], ["s64"]) and not parts[-1].endswith("64")


def _read_as_numbers(
    instruction: Instruction, origins: Mapping[str, Origins], loaded: frozenset[str] = frozenset()
) -> set[str]:
    """Return the registers with addresses that an instruction reads as numbers.

    Words of an address that was `loaded` are numbers, and so is a word that is widened.
    """
    base, *parts = instruction.opcode.split(".")
    if base in ("cvt", "mov") and _narrows(instruction):
        names = loaded.intersection(*map(registers_in, instruction.operands[1:2]))
        words = {each for each in names if origins.get(each, _NO_ADDRESS) != _NO_ADDRESS}
        if words:
            return words
    if _widens(instruction):
        return {each for each in registers_in(instruction.operands[1]) if origins.get(each, _NO_ADDRESS) != _NO_ADDRESS}
    if base in _NOT_READING or (base == "cvt" and all(map(_is_integer, parts[-2:]))):
        return set()
    if base == "st" and not OWN_SPACES.isdisjoint(parts):
        return set()
    if base in _ACCESSING:
        plain = [each for each in instruction.operands if not isinstance(each, Address)]
        numbers = [] if "global_address" in parts else plain
        extra = [each for place in instruction.operands if isinstance(place, Address) for each in place.extra]
        read = {name for each in (*numbers, *extra) for name in registers_in(each)}
        return {each for each in read if origins.get(each, _NO_ADDRESS) != _NO_ADDRESS}
    operands = instruction.operands if base in ("st", "red") else instruction.operands[1:]
    addresses = [each for each in operands if not isinstance(each, Address) and _of(each, origins) != _NO_ADDRESS]
    if not addresses or _is_known(base, operands, addresses, origins):
        return set()
    return {name for each in addresses for name in registers_in(each) if origins.get(name, _NO_ADDRESS) != _NO_ADDRESS}


def _is_known(
    base: str, operands: Sequence[Operand], addresses: Sequence[Operand], origins: Mapping[str, Origins]
) -> bool:
    """Return whether what an instruction reads of these addresses, among its operands, is known."""
    alone = addresses[0] if len(addresses) == 1 else None
    if base in ("add", "addc"):
        return alone is not None
    if base in ("mad", "madc"):
        return alone is operands[-1]
    numbers = [each.value for each in operands if isinstance(each, Immediate)]
    if base == "and":
        return any(0 <= each < _ALIGNMENT for each in numbers)
    if base in ("sub", "subc", "setp", "set") and len(operands) > 1:
        one, other = (_of(each, origins) for each in operands[:2])
        in_one_buffer = one == other and len(one) == 1
        return in_one_buffer or (alone is operands[0] if base.startswith("sub") else 0 in numbers)
    return False
