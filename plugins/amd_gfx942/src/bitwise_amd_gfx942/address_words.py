"""Registers that hold words of addresses, and the instructions that read these as numbers.

In an analysis a buffer has an address of its own choice, which the launch does not give.  A word of an address may be
moved, an offset may be added to both words, and memory may be accessed at the address.  Its comparison with zero is
known, and so are its low 8 bits, since a buffer begins at a multiple of 256 bytes.  What any other instruction makes of
a word of an address is undetermined, and so is a word that is stored as a number.

A data-flow analysis over all paths of the kernel finds the registers.  A vector instruction leaves what a register
holds in the lanes that it does not write.  So each word is kept with the lanes for which it was written: a later write
replaces it only if it is known to write all of these lanes.  Lanes are those of a value of the execution mask
(`_Lanes`).

Words of addresses come from the arguments of the kernel and from pointers among given contents.  Which loads return
some is found where they are executed (`note_loaded_words`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from bitwise_amd_gfx942.control_flow import successors
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_amd_gfx942.registers import EXEC, SCC, lane_mask_key
from bitwise_core.assembly.module import (
    Immediate,
    Instruction,
    Kernel,
    Modified,
    Operand,
    Register,
    Symbol,
    Vector,
    once_a_kernel,
    registers_of,
)
from bitwise_core.execution.active_lanes import active_values
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.instruction_info import InstructionInfo
from bitwise_core.execution.launch import buffers_at
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.races.undetermined import Cause, Kind, undetermined
from bitwise_core.execution.values.symbolic_vector import Array

REASON = "the address of a buffer, which the launch does not give, is read as a number"
_LOW, _HIGH, _CARRY = 1, 2, 4
"""What a register may hold: the lower or the upper word of an address, or a carry out of a sum with one."""
_EITHER = _LOW | _HIGH
_ALIGNMENT = 256
_UPPER_BITS = 0xFFFF
"""The mask by which compilers clear the upper half of an upper word for the descriptor of a buffer."""

_Lanes: TypeAlias = tuple[tuple[object, ...], ...]
"""Lanes of a wave: a path from all lanes, `()`, to a part of the part before it; a prefix has at least its lanes."""
_ALL: _Lanes = ()
_UNKNOWN: _Lanes = (("unknown",),)
"""Lanes about which nothing is known but that they are lanes of the wave."""

_Entries: TypeAlias = Mapping[tuple[_Lanes, int], frozenset[_Lanes]]
"""What a register may hold, with the lanes for which it was written, and lanes for which it was overwritten since."""

_MOVES = frozenset({
    "v_mov_b32", "s_mov_b32", "v_readfirstlane_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32",
    "s_mov_b64", "v_mov_b64", "ds_swizzle_b32",
})  # fmt: skip
"""Instructions that return the words of their only source, of this lane or of another one."""
_SELECTS = frozenset({"v_cndmask_b32", "s_cselect_b32", "s_cselect_b64"})
_EXCHANGES = frozenset({"ds_bpermute_b32", "ds_permute_b32"})
_SUMS = {
    "s_add_u32": (1, 2), "s_add_i32": (1, 2), "s_addc_u32": (1, 2), "s_sub_u32": (1,), "s_sub_i32": (1,),
    "s_subb_u32": (1,), "s_addk_i32": (0,), "v_add_u32": (1, 2), "v_add_co_u32": (2, 3), "v_addc_co_u32": (2, 3),
    "v_sub_u32": (1,), "v_sub_co_u32": (2,), "v_subb_co_u32": (2,), "v_subrev_u32": (2,), "v_subrev_co_u32": (3,),
    "v_subbrev_co_u32": (3,), "v_add3_u32": (1, 2, 3), "v_lshl_add_u32": (3,), "v_lshl_add_u64": (3,),
    "v_mad_u64_u32": (4,), "v_mad_i64_i32": (4,), "v_add_lshl_u32": (), "s_lshl1_add_u32": (2,),
    "s_lshl2_add_u32": (2,), "s_lshl3_add_u32": (2,), "s_lshl4_add_u32": (2,),
}  # fmt: skip
"""Sums, with the positions of the operands of which one may be a word or the words of an address."""
_WITH_CARRY = frozenset({"s_addc_u32", "s_subb_u32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32"})
_COMPARES_64 = ("v_cmp_", "s_cmp_")
_ENDS_64 = ("_u64", "_i64")
_RESOURCES = ("buffer_load_", "buffer_store_", "buffer_atomic_")
_FLAT = ("global_load_", "global_store_", "global_atomic_", "flat_load_", "flat_store_", "flat_atomic_")
_SCALAR_LOADS = ("s_load_dword", "s_buffer_load_dword")
_CALLS = ("s_setpc_b64", "s_swappc_b64")
_PRIVATE = "private"
"""Private memory; with a number behind it, 4 bytes at this place."""
_WITHOUT_READS = frozenset({"s_waitcnt", "s_nop", "s_barrier", "s_endpgm", "s_setprio", "s_branch"})


@dataclass(slots=True)
class _State:
    """What is known before an instruction.

    `words`: what registers may hold, with the lanes for which it was written.  `lanes`: those of the execution mask.
    `masks`: pairs of scalar registers, by their first one, that hold these lanes.
    """

    words: dict[str, _Entries]
    lanes: _Lanes
    masks: dict[str, _Lanes]
    reads_every_lane: bool = False
    """Whether the current instruction may read lanes outside of the execution mask."""

    def copy(self) -> _State:
        return _State(dict(self.words), self.lanes, dict(self.masks))

    def kind(self, name: str) -> int:
        """Return what a register, or a place of private memory, may hold in a lane that is read."""
        found = 0
        for (_, kind), overwritten in self.words.get(name, _NOTHING).items():
            if self.reads_every_lane or not any(_includes(each, self.lanes) for each in overwritten):
                found |= kind
        return found

    def kind_with_parts(self, name: str) -> int:
        """Return what a register may hold in some lane, also in one that was written alone."""
        found, parts = self.kind(name), f"{name} "
        for each in self.words:
            if each.startswith(parts):
                found |= self.kind(each)
        return found

    def write(self, name: str, kind: int, *, partly: bool = False) -> None:
        """A register is written; `partly`: some of its bits or lanes may keep their content."""
        kept: dict[tuple[_Lanes, int], frozenset[_Lanes]] = {}
        if partly:
            kept.update(self.words.get(name, _NOTHING))
        elif _has_lanes(name):
            for (lanes, old), overwritten in self.words.get(name, _NOTHING).items():
                if not _includes(self.lanes, lanes):
                    kept[lanes, old] = overwritten | {self.lanes}
        if kind:
            kept[self.lanes if _has_lanes(name) else _ALL, kind] = frozenset()
        if kept:
            self.words[name] = kept
        else:
            self.words.pop(name, None)

    def forget_lanes(self, *steps: tuple[object, ...]) -> None:
        """Lanes that were named by a step are others from now on: what was written for them is kept for more."""
        for step in steps:
            for name, entries in self.words.items():
                if any(step in lanes or any(step in each for each in gone) for (lanes, _), gone in entries.items()):
                    self.words[name] = _renamed(entries, lambda lanes, step=step: _before(lanes, step), step)
            for name in [each for each, lanes in self.masks.items() if step in lanes]:
                del self.masks[name]

    def meet(self, place: tuple[object, ...]) -> None:
        """The lanes of this path are those of the place where it meets others, and are named by it from now on."""
        lanes, meeting = self.lanes, (place,)
        if lanes != meeting:
            for name, entries in self.words.items():
                self.words[name] = _renamed(
                    entries, lambda held: meeting if _includes(lanes, held) else _before(held, place), place, lanes
                )
        for name, held in list(self.masks.items()):
            if held == lanes:
                self.masks[name] = meeting
            elif place in held:
                del self.masks[name]
        self.lanes = meeting

    def join(self, other: _State) -> bool:
        """Add what is known on another path with the same lanes.  Return whether that changed anything."""
        changed = False
        for name, entries in other.words.items():
            known = self.words.get(name, _NOTHING)
            both = dict(known)
            for key, overwritten in entries.items():
                both[key] = overwritten & both[key] if key in both else overwritten
            if both != known:
                self.words[name], changed = both, True
        for name in [each for each, held in self.masks.items() if other.masks.get(each) != held]:
            del self.masks[name]
            changed = True
        return changed


_NOTHING: _Entries = {}


def _renamed(
    entries: _Entries,
    rename: Callable[[_Lanes], _Lanes],
    step: tuple[object, ...],
    arriving: _Lanes | None = None,
) -> _Entries:
    """Return entries whose lanes have other names; lanes of a step are forgotten where they were overwritten.

    `arriving`: lanes that are named by the step from now on.
    """
    found: dict[tuple[_Lanes, int], frozenset[_Lanes]] = {}
    for (lanes, kind), overwritten in entries.items():
        gone = frozenset(each for each in overwritten if step not in each)
        if arriving is not None and any(_includes(each, arriving) for each in overwritten):
            gone |= {(step,)}
        key = rename(lanes), kind
        found[key] = found[key] & gone if key in found else gone
    return found


def _before(lanes: _Lanes, step: tuple[object, ...]) -> _Lanes:
    """Return lanes without a step and those behind it: at least these lanes."""
    if step not in lanes:
        return lanes
    place = lanes.index(step)
    return lanes[:place] if place else _UNKNOWN


def _is_vector(name: str) -> bool:
    return name[0] in "va" and name[1:].isdigit()


def _has_lanes(name: str) -> bool:
    """Return whether each lane has its own content under a name: of a vector register, or of private memory."""
    return _is_vector(name) or name.startswith(_PRIVATE)


@dataclass(frozen=True, slots=True)
class Sources:
    """The words of addresses that instructions load: their kind by the instruction's number and the word's."""

    words: frozenset[tuple[int, int, int]]
    """(instruction, word of its destination, kind)."""
    preloaded: frozenset[tuple[str, int]] = frozenset()
    """Registers that hold such a word at the start of the kernel."""


@dataclass(slots=True)
class _Loaded:
    """The words of addresses that loads of a run have returned, and the readers that follow from them."""

    words: set[tuple[int, int, int]] = field(default_factory=set)
    preloaded: frozenset[tuple[str, int]] = frozenset()
    readers: tuple[int, Mapping[int, frozenset[str]]] | None = None


_LOADED = "loaded words of addresses"


def note_preloaded_words(machine: Machine, registers: Iterable[tuple[str, int]]) -> None:
    """Note registers that hold a word of an address at the start: 0 for a lower, 1 for an upper word."""
    found = frozenset((name, _HIGH if upper else _LOW) for name, upper in registers)
    _loaded(machine).preloaded |= found


def note_loaded_words(machine: Machine, instruction: Instruction, words: Iterable[tuple[int, int]]) -> None:
    """Note the words of a load's destination that hold a word of an address: 0 for a lower, 1 for an upper one."""
    found, key = _loaded(machine).words, id(instruction)
    for number, upper in words:
        found.add((key, number, _HIGH if upper else _LOW))


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


POINTERS = "arguments that are addresses"
"""The key of `Machine.extra` for the numbers of the words of arguments that are the lower words of addresses."""


def _loaded(machine: Machine) -> _Loaded:
    found: _Loaded | None = machine.extra.get(_LOADED)
    if found is None:
        found = machine.extra[_LOADED] = _Loaded()
    return found


def reading_words(step: Step, instruction: Instruction, kernel: Kernel, opcodes: OpcodeTable) -> Step:
    """Return the step of an instruction, for which words of addresses are undetermined if it reads them as numbers."""
    if id(instruction) not in _candidates(kernel, opcodes):
        return step
    line = instruction.line

    def run(machine: Machine) -> Control | None:
        known = getattr(machine.memory, "undetermined", None)
        if known is None:
            return step(machine)
        names = _readers_now(machine, kernel, opcodes).get(id(instruction))
        if not names or _in_one_buffer(machine, instruction) or _clears_upper_bits(machine, instruction, names):
            return step(machine)
        if not known.note(Cause(Kind.UNDEFINED, REASON, line)):
            return step(machine)
        return _with_undetermined(step, machine, names)

    return run


def _with_undetermined(step: Step, machine: Machine, names: Iterable[str]) -> Control | None:
    """Execute a step that finds undetermined values in some registers, which keep their contents."""
    shape, recorder = (machine.blocks, machine.threads), machine.domain.recorder
    keys = {_key(machine, name) for name in names}
    replaced = {
        key: undetermined(1 if key == SCC or key.endswith(" mask") else 32, shape, recorder)
        for key in keys
        if key in machine.registers
    }
    outer = machine.registers
    before = {**outer, **replaced}
    machine.registers = dict(before)
    try:
        return step(machine)
    finally:
        after, machine.registers = machine.registers, outer
        for key, value in after.items():
            if value is not before.get(key):
                outer[key] = value
        for key in before.keys() - after.keys():
            outer.pop(key, None)


def _key(machine: Machine, name: str) -> str:
    """Return the key under which a register is held now."""
    key = SCC if name in ("scc", "src_scc") else lane_mask_key(name)
    return name if key is None or key not in machine.registers else key


def _in_one_buffer(machine: Machine, instruction: Instruction) -> bool:
    """Return whether an instruction compares two addresses in one buffer, whose order the launch decides."""
    name = form(instruction.opcode).name
    if not (name.startswith(_COMPARES_64) and name.endswith(_ENDS_64)):
        return False
    held = []
    for operand in instruction.operands[-2:]:
        names = (
            [each.name for each in operand.items if isinstance(each, Register)] if isinstance(operand, Vector) else []
        )
        words = [machine.registers.get(each) for each in names]
        if len(words) != 2 or not all(isinstance(each, np.ndarray) for each in words):
            return False
        low, high = (np.asarray(each).astype(np.uint64) for each in words)
        lanes = machine.mask
        execution = machine.registers.get(EXEC)
        if name.startswith("v_") and isinstance(execution, np.ndarray):
            lanes = execution if lanes is None else lanes & execution
        held.append(np.unique(buffers_at(active_values(low | high << np.uint64(32), lanes))).tolist())
    return held[0] == held[1] and len(held[0]) == 1 and held[0] != [0]


def _clears_upper_bits(machine: Machine, instruction: Instruction, names: frozenset[str]) -> bool:
    """Return whether an instruction only clears bits that no address has, by a mask in a pair of registers."""
    if form(instruction.opcode).name != "s_and_b64":
        return False
    masks = [each for each in map(_names, instruction.operands[1:]) if names.isdisjoint(each)]
    if len(masks) != 1 or len(masks[0]) != 2:
        return False
    words = [machine.registers.get(each) for each in masks[0]]
    return all(
        isinstance(word, np.ndarray) and bool((word == np.uint32(wanted)).all())
        for word, wanted in zip(words, ((1 << 32) - 1, _UPPER_BITS), strict=True)
    )


def _readers_now(machine: Machine, kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, frozenset[str]]:
    loaded = _loaded(machine)
    if loaded.readers is None or loaded.readers[0] != len(loaded.words):
        sources = Sources(frozenset(loaded.words), loaded.preloaded)
        loaded.readers = len(loaded.words), readers(kernel, opcodes, sources)
    return loaded.readers[1]


@once_a_kernel
def _candidates(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[int]:
    """Return the instructions, by identity, that may read a word of an address as a number in some launch."""
    words, infos = set(), infos_of(kernel, opcodes)
    for instruction, info in zip(kernel.instructions, infos, strict=True):
        if _is_load(form(instruction.opcode).name) and instruction.operands:
            count = len(_names(instruction.operands[0])) if info.writes else 0
            words |= {(id(instruction), number, _EITHER) for number in range(count)}
    held = frozenset((f"s{number}", _EITHER) for number in range(_PRELOADED))
    return frozenset(readers(kernel, opcodes, Sources(frozenset(words), held)))


_PRELOADED = 32
"""More than the scalar registers that hold arguments at the start of a kernel."""


def _is_load(name: str) -> bool:
    return "_load_" in name and not name.startswith("scratch_")


@once_a_kernel
def readers(kernel: Kernel, opcodes: OpcodeTable, sources: Sources) -> Mapping[int, frozenset[str]]:
    """Return the instructions, by identity, that read words of addresses as numbers, with the registers."""
    if not kernel.instructions:
        return {}
    loaded: dict[int, list[tuple[int, int]]] = {}
    for key, number, kind in sources.words:
        loaded.setdefault(key, []).append((number, kind))
    flow = _Flow(kernel, infos_of(kernel, opcodes), loaded)
    first = _State({name: {(_ALL, kind): frozenset()} for name, kind in sources.preloaded}, _ALL, {})
    entry = f"s{_kernarg_register(kernel)}", f"s{_kernarg_register(kernel) + 1}"
    for name, kind in zip(entry, (_LOW, _HIGH), strict=True):
        first.write(name, kind)
    return flow.run(first, successors(kernel, opcodes))


def _kernarg_register(kernel: Kernel) -> int:
    """Return the number of the first scalar register that holds the address of the arguments."""
    number = 0
    for name, count in (("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2)):
        number += count * (kernel.attributes.get(f"user_sgpr_{name}", "0") == "1")
    return number


class _Flow:
    """The flow of words of addresses through the registers of a kernel."""

    def __init__(
        self, kernel: Kernel, infos: Sequence[InstructionInfo], loaded: Mapping[int, Sequence[tuple[int, int]]]
    ) -> None:
        self.kernel, self.infos, self.loaded = kernel, infos, loaded
        self.found: dict[int, frozenset[str]] = {}

    def run(self, first: _State, following: Sequence[tuple[int, ...]]) -> Mapping[int, frozenset[str]]:
        count = len(self.kernel.instructions)
        entries: dict[int, _State] = {0: first}
        arrivals = [0] * (count + 1)
        for places in following:
            for each in places:
                arrivals[each] += 1
        work = [0]
        while work:
            index = work.pop()
            state = entries[index].copy()
            while True:
                self._execute(index, state)
                places = following[index]
                if places == (index + 1,) and index + 1 < count and arrivals[index + 1] == 1:
                    index += 1
                    continue
                break
            for each in places:
                if each < count and _enter(entries, each, state):
                    work.append(each)
        return self.found

    def _execute(self, index: int, state: _State) -> None:
        """Add the registers that an instruction reads as numbers, and change the state by what it writes."""
        instruction, info = self.kernel.instructions[index], self.infos[index]
        name = form(instruction.opcode).name
        if name in _WITHOUT_READS:
            return
        mask = _written_mask(index, name, instruction, state)
        lanes = state.lanes
        state.reads_every_lane = _reads_every_lane(instruction)
        if not info.writes.isdisjoint(("exec_lo", "exec_hi")):
            lanes = _changed_lanes(index, name, instruction, state)
        read = _read_registers(name, instruction, info)
        held = frozenset(each for each in read if state.kind_with_parts(each))
        results: dict[str, int] | None = {}
        if held or name in _OF_LANES or name.startswith("scratch_load_"):
            results = _results(name, instruction, state)
        if results is None:
            results = _with_a_mask(name, instruction, state)
            numbers = held - _addresses(name, instruction)
            if numbers:
                self.found[id(instruction)] = self.found.get(id(instruction), frozenset()) | numbers
        for number, kind in self.loaded.get(id(instruction), ()):
            names = _names(instruction.operands[0])
            if number < len(names):
                results[names[number]] = results.get(names[number], 0) | kind
        partly = not _replaces(name, info)
        for each in info.writes | results.keys():
            kept = each == _PRIVATE or (partly and _is_vector(each))
            state.write(each, results.get(each, 0), partly=kept)
            if not _has_lanes(each):
                _forget_mask(state, each)
            elif each in info.writes and not partly and state.lanes == _ALL:
                for part in [other for other in state.words if other.startswith(f"{each} ")]:
                    del state.words[part]
        if mask is not None:
            state.masks[mask[0]] = mask[1]
        state.lanes = lanes
        state.reads_every_lane = False


_OF_LANES = frozenset({"v_writelane_b32", "v_readlane_b32"})


def _reads_every_lane(instruction: Instruction) -> bool:
    """Return whether an instruction may read lanes outside of the execution mask."""
    found = form(instruction.opcode)
    return (
        found.encoding.endswith("dpp") or found.name in _OF_LANES or "permlane" in found.name
        or found.name.startswith(("ds_", "v_mfma", "v_smfmac"))
    )  # fmt: skip


def _changed_lanes(index: int, name: str, instruction: Instruction, state: _State) -> _Lanes:
    """Return the lanes of the execution mask after an instruction that writes it."""
    step = ("part", index)
    state.forget_lanes(step, ("rest", index), ("some", index))
    sources = [_lanes_of(each, state) for each in instruction.operands[1:]]
    after: _Lanes | None = None
    if name == "s_mov_b64" and sources:
        after = sources[0]
    elif name.endswith("_saveexec_b64") and sources:
        after = _combined(name.removeprefix("s_").removesuffix("_saveexec_b64"), sources[0], state.lanes, step)
    elif len(sources) == 2 and name.startswith("s_"):
        after = _combined(name.removeprefix("s_").removesuffix("_b64"), *sources, step)
    return (("some", index),) if after is None else after


def _written_mask(index: int, name: str, instruction: Instruction, state: _State) -> tuple[str, _Lanes] | None:
    """Return the pair of scalar registers that an instruction writes with a known mask, and its lanes."""
    target = _names(instruction.operands[0]) if instruction.operands else []
    if len(target) != 2 or _is_vector(target[0]) or target[0].startswith("exec"):
        return None
    lanes: _Lanes | None = None
    if name.endswith("_saveexec_b64"):
        lanes = state.lanes
    elif name == "s_mov_b64":
        lanes = _lanes_of(instruction.operands[1], state)
    elif name in _MASKS and len(instruction.operands) == 3:
        step = ("part", index)
        state.forget_lanes(step, ("rest", index))
        one, other = (_lanes_of(each, state) for each in instruction.operands[1:])
        lanes = _combined(name.removeprefix("s_").removesuffix("_b64"), one, other, step)
    return None if lanes is None else (target[0], lanes)


_MASKS = frozenset({"s_xor_b64", "s_and_b64", "s_or_b64", "s_andn2_b64"})


def _enter(entries: dict[int, _State], place: int, state: _State) -> bool:
    """A path reaches an instruction.  Return whether it must be executed again."""
    known = entries.get(place)
    meeting = ("meeting", place)
    if known is None:
        entries[place] = state.copy()
        return True
    if known.lanes == state.lanes and known.lanes != (meeting,):
        return known.join(state)
    moved = known.lanes != (meeting,)
    if moved:  # the paths before came with other lanes
        known.meet(meeting)
    arriving = state.copy()
    arriving.meet(meeting)
    return known.join(arriving) or moved


def _combined(how: str, one: _Lanes | None, other: _Lanes | None, step: tuple[object, ...]) -> _Lanes | None:
    """Return the lanes that an operation on two masks leaves, None if nothing is known of them."""
    if how == "and":
        if one is not None and other is not None and _includes(one, other):
            return other
        if one is not None and other is not None and _includes(other, one):
            return one
        whole = one if other is None else other
        return None if whole is None else (*whole, step)
    if how == "andn2":  # one and not the other
        if one is None:
            return None
        return _rest(other) if other is not None and other[:-1] == one and other else (*one, step)
    if one is None or other is None:
        return None
    if how == "or":
        if _includes(one, other):
            return one
        if _includes(other, one):
            return other
        return one[:-1] if one and other == _rest(one) else None
    if how == "xor":
        if other and other[:-1] == one:
            return _rest(other)
        return _rest(one) if one and one[:-1] == other else None
    return None


def _includes(one: _Lanes, other: _Lanes) -> bool:
    """Return whether all lanes of the other are among those of the one."""
    return other[: len(one)] == one


def _rest(part: _Lanes) -> _Lanes:
    """Return the other lanes of the lanes of which these are a part."""
    kind, *number = part[-1]
    return (*part[:-1], ("part" if kind == "rest" else "rest", *number)) if kind in ("part", "rest") else part


def _lanes_of(operand: Operand, state: _State) -> _Lanes | None:
    """Return the lanes that an operand names as a mask."""
    if isinstance(operand, Immediate) and operand.value in (-1, (1 << 64) - 1):
        return _ALL
    names = _names(operand)
    if names == ["exec_lo", "exec_hi"]:
        return state.lanes
    return state.masks.get(names[0]) if len(names) == 2 else None


def _forget_mask(state: _State, name: str) -> None:
    """A scalar register is written: its pair holds no known mask any more."""
    key = lane_mask_key(name)
    if key is not None and state.masks:
        for each in [held for held in state.masks if lane_mask_key(held) == key]:
            del state.masks[each]


def _names(operand: Operand) -> list[str]:
    """Return the registers of an operand in order."""
    if isinstance(operand, Register):
        return [operand.name]
    return [each.name for each in operand.items if isinstance(each, Register)] if isinstance(operand, Vector) else []


_TWO_RESULTS = ("_co_u32", "v_mad_u64_u32", "v_mad_i64_i32")
"""The ends of mnemonics whose instructions write a result and a carry, and none of the two in part."""


def _replaces(name: str, info: InstructionInfo) -> bool:
    """Return whether an instruction writes all bits of its destination in all active lanes."""
    return 0 in info.overwritten or name.endswith(_TWO_RESULTS)


def _read_registers(name: str, instruction: Instruction, info: InstructionInfo) -> frozenset[str]:
    """Return the registers of which an instruction reads active lanes."""
    if name.endswith(_TWO_RESULTS):
        return info.reads - (info.writes - registers_of(*instruction.operands[2:]))
    return info.reads - info.retained


def _kinds(operand: Operand, state: _State) -> list[int]:
    return [state.kind_with_parts(name) for name in _names(operand)]


def _results(name: str, instruction: Instruction, state: _State) -> dict[str, int] | None:
    """Return what an instruction writes that only moves words of addresses, or adds numbers to them.

    None if it reads some as numbers.
    """
    operands = instruction.operands
    if any(isinstance(each, Modified) for each in operands) or form(instruction.opcode).encoding == "sdwa":
        return None
    if name in _MOVES and len(operands) > 1:
        return _moved(operands[0], [operands[1]], state)
    if name in _SELECTS and len(operands) > 2:
        condition = {*registers_of(*operands[3:]), *(("scc",) if name[0] == "s" else ("vcc_lo", "vcc_hi"))}
        if name[0] == "v" and len(operands) > 3:
            condition = registers_of(*operands[3:])
        return None if any(map(state.kind, condition)) else _moved(operands[0], operands[1:3], state)
    if name in _EXCHANGES and len(operands) > 2:
        return None if any(_kinds(operands[1], state)) else _moved(operands[0], [operands[2]], state)
    if name in _OF_LANES:
        return _of_lane(name, operands, state)
    if name.startswith("scratch_"):
        return _of_private_memory(name, instruction, state)
    if name in _SUMS:
        return _sum(name, instruction, state)
    if name in ("s_and_b32", "v_and_b32", "s_or_b32", "v_or_b32"):
        return _masked(name, operands, state)
    if name.startswith(_COMPARES_64) and name.endswith(_ENDS_64):
        equality = name.rsplit("_", 2)[1] in ("eq", "ne", "lg")
        zero = any(isinstance(each, Immediate) and each.value == 0 for each in operands)
        return {} if equality and zero else None
    return None


def _moved(target: Operand, sources: Sequence[Operand], state: _State) -> dict[str, int] | None:
    names = _names(target)
    found = dict.fromkeys(names, 0)
    for each in sources:
        kinds = _kinds(each, state)
        if any(kind & _CARRY for kind in kinds) or (any(kinds) and len(kinds) != len(names)):
            return None
        for name, kind in zip(names, kinds, strict=False):
            found[name] |= kind
    return found


def _of_lane(name: str, operands: Sequence[Operand], state: _State) -> dict[str, int] | None:
    """v_readlane and v_writelane of a lane that the text names, which hold spilled scalar registers."""
    if len(operands) != 3:
        return None
    target, source, lane = operands
    if any(_kinds(lane, state)):
        return None
    slot = f" lane {lane.value % 64}" if isinstance(lane, Immediate) else ""
    if name == "v_writelane_b32":
        (vector,) = _names(target) or [""]
        kinds = _kinds(source, state)
        if not slot:
            return {vector: kinds[0]} if kinds else {}
        return {f"{vector}{slot}": kinds[0] if kinds else 0}
    (vector,) = _names(source) or [""]
    found = state.kind(f"{vector}{slot}") | state.kind(vector) if slot else state.kind_with_parts(vector)
    return dict.fromkeys(_names(target), found)


def _of_private_memory(name: str, instruction: Instruction, state: _State) -> dict[str, int] | None:
    """Loads and stores of private memory, which holds spilled registers."""
    if len(instruction.operands) != 3:
        return None
    loads = "_load_" in name
    target, place, base = instruction.operands
    if not loads:
        place, target = target, place
    if any(_kinds(place, state)) or any(_kinds(base, state)):
        return None
    names = _names(target)
    offset = int(form(instruction.opcode).modifiers.get("offset", "0"), 0)
    known = place == _OFF and base == _OFF
    places = [f"{_PRIVATE} {offset + 4 * each}" if known else _PRIVATE for each in range(len(names))]
    if loads:
        kind = state.kind if known else state.kind_with_parts
        return {each: kind(held) | state.kind(_PRIVATE) for each, held in zip(names, places, strict=True)}
    found: dict[str, int] = {}
    for each, held in zip(names, places, strict=True):
        found[held] = found.get(held, 0) | state.kind_with_parts(each)
    return found


_OFF = Symbol("off")


def _sum(name: str, instruction: Instruction, state: _State) -> dict[str, int] | None:
    """A sum of a word or of the words of an address with numbers; a carry of one enters another sum of one only."""
    operands = instruction.operands
    places = _SUMS[name]
    if len(operands) <= max(places, default=1):
        return None  # no assembler accepts the text
    target = operands[0]
    carried = _carry_in(name, operands)
    sources = range(1, len(operands)) if name != "s_addk_i32" else range(2)
    read = [each for each in sources if not (carried and set(_names(operands[each])) <= carried)]
    outputs = 2 if name.endswith("_co_u32") or name.startswith("v_mad_") else 1
    held = [each for each in read if each >= outputs or name == "s_addk_i32"]
    addresses = [each for each in held if any(_kinds(operands[each], state))]
    if name == "v_lshl_add_u64" and addresses == [1] and operands[2] == Immediate(0):
        places = (1,)
    if len(addresses) != 1 or addresses[0] not in places:
        return None
    kinds = _kinds(operands[addresses[0]], state)
    names = _names(target)
    if any(kind & _CARRY for kind in kinds) or len(kinds) != len(names):
        return None
    if any(state.kind(each) for each in carried) and name not in _WITH_CARRY:
        return None
    found = dict(zip(names, kinds, strict=True))
    carries = ["scc"] if name[0] == "s" else _names(operands[1]) if outputs == 2 else []
    return {**found, **dict.fromkeys(carries, _CARRY)}


def _carry_in(name: str, operands: Sequence[Operand]) -> frozenset[str]:
    """Return the registers of the carry that a sum reads."""
    if name not in _WITH_CARRY:
        return frozenset()
    if name[0] == "s":
        return frozenset({"scc"})
    return frozenset(_names(operands[4])) if len(operands) > 4 else frozenset({"vcc_lo", "vcc_hi"})


def _masked(name: str, operands: Sequence[Operand], state: _State) -> dict[str, int] | None:
    """Low bits of a lower word, which are known, or an upper word without the bits that no address has."""
    if len(operands) != 3:
        return None
    numbers = [each.value for each in operands[1:] if isinstance(each, Immediate)]
    kinds = [kind for each in operands[1:] for kind in _kinds(each, state)]
    if len(numbers) != 1 or len(kinds) != 1:
        return None
    number, kind = numbers[0] & (1 << 32) - 1, kinds[0]
    target = _names(operands[0])
    carries = {"scc": _CARRY} if name[0] == "s" else {}
    if "and" in name:
        if number < _ALIGNMENT and kind == _LOW:
            return dict.fromkeys(target, 0)
        return {**dict.fromkeys(target, kind), **carries} if number == _UPPER_BITS and kind == _HIGH else None
    if number < _ALIGNMENT and kind == _LOW:
        return {**dict.fromkeys(target, kind), **carries}
    return {**dict.fromkeys(target, kind), **carries} if not number & _UPPER_BITS and kind == _HIGH else None


def _with_a_mask(name: str, instruction: Instruction, state: _State) -> dict[str, int]:
    """Return what a bitwise product of an address and a pair of registers holds, if these hold the mask of an address.

    Where it is executed, they do, or the address is read as a number (`_clears_upper_bits`).
    """
    if name != "s_and_b64" or len(instruction.operands) != 3:
        return {}
    target, *sources = instruction.operands
    addresses = [each for each in sources if any(_kinds(each, state))]
    found = _moved(target, addresses, state) if len(addresses) == 1 else None
    return {} if found is None else {**found, "scc": _CARRY}


def _addresses(name: str, instruction: Instruction) -> frozenset[str]:
    """Return the registers that an instruction takes as words of addresses, and not also as numbers."""
    operands = list(instruction.operands)
    reads = operands[1:] if "_load_" in name or name == "s_swappc_b64" else operands
    taken: Operand | None = None
    if name.startswith(_RESOURCES):
        taken = next((each for each in reads if len(_names(each)) == 4 and not _is_vector(_names(each)[0])), None)
    elif name.startswith((*_SCALAR_LOADS, *_CALLS)):
        taken = reads[0] if reads else None
    elif name.startswith(_FLAT) and reads:
        place = min(1, len(reads) - 1) if "_atomic_" in name and _returns(instruction) else 0
        last = _names(reads[-1])
        scalar = len(last) == 2 and not _is_vector(last[0])
        taken = reads[-1] if scalar else reads[place]
    if not isinstance(taken, Vector):
        return frozenset()
    others = [*(each for each in reads if each is not taken), Vector(taken.items[2:])]
    return frozenset(registers_of(Vector(taken.items[:2]))) - registers_of(*others)


def _returns(instruction: Instruction) -> bool:
    """Return whether an atomic operation writes what memory held."""
    return "sc0" in form(instruction.opcode).modifiers or "glc" in form(instruction.opcode).modifiers
