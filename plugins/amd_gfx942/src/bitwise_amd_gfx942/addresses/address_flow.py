"""The instructions of a kernel that read words of addresses as numbers: a data-flow analysis over all of its paths.

A vector instruction leaves what a register holds in the lanes that it does not write.  So each word is kept with the
lanes for which it was written: a later write replaces it only if it is known to write all of these lanes.

A result in fp16 may replace the lower half of a word alone.  What reads the lower half then reads no word of an
address, and what reads more than that reads one as a number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from bitwise_amd_gfx942.addresses.address_moves import OF_LANES, addresses_in, results_of, results_of_mask
from bitwise_amd_gfx942.addresses.address_state import (
    HIGH,
    LOW,
    MASKS,
    PRIVATE,
    UPPER_HALF,
    UPPER_PART,
    AddressState,
    changed_lanes,
    forget_mask,
    has_lanes,
    is_vector,
    names_of,
    written_mask,
)
from bitwise_amd_gfx942.addresses.lane_sets import ALL
from bitwise_amd_gfx942.analyses.control_flow import successors
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_amd_gfx942.registers import lane_mask_key
from bitwise_core.assembly.module import Instruction, Kernel, once_a_kernel, registers_of
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.instruction_info import InstructionInfo, once_a_text

_OF_CODE = frozenset({"s_getpc_b64", "s_swappc_b64"})
"""Instructions that return an address of the program."""
WITHOUT_READS = frozenset({"s_waitcnt", "s_nop", "s_barrier", "s_endpgm", "s_setprio", "s_branch"})
"""Instructions that read no register."""
_TWO_RESULTS = ("_co_u32", "v_mad_u64_u32", "v_mad_i64_i32")
"""The ends of mnemonics whose instructions write a result and a carry, and none of the two in part."""
_WRITE_OF_LOWER_HALF, _WRITE_OF_UPPER_HALF = "v_fma_mixlo_f16", "v_fma_mixhi_f16"
"""Instructions that write one half of their destination and keep the other one."""
_READS_OF_LOWER_HALF = {"ds_write_b16": 1, "global_store_short": 1, "buffer_store_short": 0}
"""Instructions that read the lower half of an operand, and its position."""
_OF_MASKS = ("s_mov_b64", "_saveexec_b64", *MASKS)
"""The ends of mnemonics whose instructions may leave a mask of known lanes in a pair of scalar registers."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The words of addresses that instructions load: their kind by the instruction's number and the word's."""

    words: frozenset[tuple[int, int, int]]
    """(instruction, word of its destination, kind)."""
    preloaded: frozenset[tuple[str, int]] = frozenset()
    """Registers that hold such a word at the start of the kernel."""


def readers(kernel: Kernel, opcodes: OpcodeTable, sources: Sources) -> Mapping[int, frozenset[str]]:
    """Return the instructions, by identity, that read words of addresses as numbers, with the registers."""
    return _flow(kernel, opcodes, sources.preloaded).readers(sources.words) if kernel.instructions else {}


@once_a_kernel
def _flow(kernel: Kernel, opcodes: OpcodeTable, preloaded: frozenset[tuple[str, int]]) -> _Flow:
    first = AddressState({name: {(ALL, kind): frozenset()} for name, kind in preloaded}, ALL, {})
    entry = f"s{_kernarg_register(kernel)}", f"s{_kernarg_register(kernel) + 1}"
    for name, kind in zip(entry, (LOW, HIGH), strict=True):
        first.write(name, kind)
    return _Flow(kernel, infos_of(kernel, opcodes), first, successors(kernel, opcodes))


def _kernarg_register(kernel: Kernel) -> int:
    """Return the number of the first scalar register that holds the address of the arguments."""
    number = 0
    for name, count in (("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2)):
        number += count * (kernel.attributes.get(f"user_sgpr_{name}", "0") == "1")
    return number


@dataclass(frozen=True, slots=True)
class _Text:
    """What the flow needs to know of the text of an instruction.

    `acts`: it may change the state whatever registers hold.  Another one changes it only where it reads or writes one
    of `registers` that holds a word of an address, or writes a pair of scalar registers that holds a known mask, of
    `pairs`.  `reads` are the registers of which it reads active lanes, of `lower_halves` only the lower half.
    `every_lane` says that it may read lanes outside of these, and `partly` that it may keep some bits or lanes of a
    vector register that it writes.
    """

    name: str
    acts: bool
    registers: frozenset[str]
    pairs: frozenset[str]
    reads: frozenset[str]
    lower_halves: frozenset[str]
    every_lane: bool
    partly: bool


@once_a_text
def _text_of(instruction: Instruction, info: InstructionInfo) -> _Text:
    name = form(instruction.opcode).name
    if name in WITHOUT_READS:
        return _Text(name, False, frozenset(), frozenset(), frozenset(), frozenset(), False, False)
    reads = _read_registers(name, instruction, info)
    acts = (
        name in OF_LANES or name in _OF_CODE or name.endswith(_OF_MASKS) or name.startswith("scratch_")
        or not info.writes.isdisjoint(("exec_lo", "exec_hi"))
    )  # fmt: skip
    pairs = {lane_mask_key(each) for each in info.writes if not has_lanes(each)}
    return _Text(
        name,
        acts,
        reads | info.writes,
        frozenset(each for each in pairs if each is not None),
        reads,
        _lower_halves(name, instruction),
        _reads_every_lane(instruction),
        not _replaces(name, info),
    )


class _Flow:
    """The flow of words of addresses through the registers of a kernel.

    What is known only grows with the loads that return words.  So the flow of more loads goes on from that of fewer.
    """

    def __init__(
        self,
        kernel: Kernel,
        infos: Sequence[InstructionInfo],
        first: AddressState,
        following: Sequence[tuple[int, ...]],
    ) -> None:
        self.kernel, self.infos, self.first, self.following = kernel, infos, first, following
        self.texts = list(map(_text_of, kernel.instructions, infos))
        self.starts = _starts(following)
        self.places = {id(each): index for index, each in enumerate(kernel.instructions)}
        self.results: dict[frozenset[tuple[int, int, int]], Mapping[int, frozenset[str]]] = {}
        self._begin()

    def _begin(self) -> None:
        self.words: frozenset[tuple[int, int, int]] = frozenset()
        self.loaded: dict[int, list[tuple[int, int]]] = {}
        self.places_of_loads: set[int] = set()
        self.found: dict[int, frozenset[str]] = {}
        self.entries: dict[int, AddressState] = {0: self.first.copy()}
        self.is_followed = False

    def readers(self, words: frozenset[tuple[int, int, int]]) -> Mapping[int, frozenset[str]]:
        """Return the instructions that read words of addresses as numbers, if loads return these, see `Sources`."""
        if words not in self.results:
            if not words >= self.words:
                self._begin()
            changed = set() if self.is_followed else {0}
            for key, number, kind in words - self.words:
                self.loaded.setdefault(key, []).append((number, kind))
                self.places_of_loads.add(self.places[key])
                changed.add(self.starts[bisect_right(self.starts, self.places[key]) - 1])
            self.words, self.is_followed = words, True
            self._run(changed & self.entries.keys())
            self.results[words] = dict(self.found)
        return self.results[words]

    def _run(self, changed: set[int]) -> None:
        """Follow the flow from the beginnings of some runs of instructions, in the order of the text."""
        starts, work = set(self.starts), sorted(changed)
        waiting = set(work)
        while work:
            index = heappop(work)
            waiting.discard(index)
            state = self.entries[index].copy()
            end = index + 1
            while self.following[end - 1] == (end,) and end not in starts:
                end += 1
            self._execute_run(index, end, state)
            for each in self.following[end - 1]:
                if each < len(self.following) and _enter(self.entries, each, state) and each not in waiting:
                    heappush(work, each)
                    waiting.add(each)

    def _execute_run(self, first: int, end: int, state: AddressState) -> None:
        """Execute a run of instructions, of which most have nothing to do with what is known."""
        texts, loaded, held = self.texts, self.places_of_loads, state.words.keys()
        lanes, pairs = state.names_of_parts(), state.pairs_of_masks()
        for index in range(first, end):
            text = texts[index]
            if (
                text.acts
                or not held.isdisjoint(text.registers)
                or index in loaded
                or not lanes.isdisjoint(text.registers)
                or not pairs.isdisjoint(text.pairs)
            ):
                self._execute(index, text, state)
                held, lanes, pairs = state.words.keys(), state.names_of_parts(), state.pairs_of_masks()

    def _execute(self, index: int, text: _Text, state: AddressState) -> None:
        """Add the registers that an instruction reads as numbers, and change the state by what it writes."""
        instruction, info, name = self.kernel.instructions[index], self.infos[index], text.name
        mask = written_mask(index, name, instruction, state)
        lanes = state.lanes
        state.reads_every_lane = text.every_lane
        if not info.writes.isdisjoint(("exec_lo", "exec_hi")):
            lanes = changed_lanes(index, name, instruction, state)
        held, halves = _NO_REGISTERS, _NO_REGISTERS
        if state.parts or not state.words.keys().isdisjoint(text.reads):
            kinds = {
                each: state.kind(each) if each in text.lower_halves else state.kind_with_parts(each)
                for each in text.reads
            }
            held = frozenset([each for each, kind in kinds.items() if kind])
            halves = frozenset([each for each, kind in kinds.items() if kind & UPPER_HALF])
        results: dict[str, int] | None = {}
        if held or name in OF_LANES or name.startswith("scratch_load_"):
            results = None if halves else results_of(name, instruction, state)
        if results is None:
            results = results_of_mask(name, instruction, state)
            numbers = held - addresses_in(name, instruction) | halves
            if numbers:
                self.found[id(instruction)] = self.found.get(id(instruction), frozenset()) | numbers
        for number, kind in self.loaded.get(id(instruction), ()):
            names = names_of(instruction.operands[0])
            if number < len(names):
                results[names[number]] = results.get(names[number], 0) | kind
        if name in _OF_CODE:
            results.update(zip(names_of(instruction.operands[0]), (LOW, HIGH), strict=False))
        for each in info.writes | results.keys():
            if name == _WRITE_OF_LOWER_HALF and each in state.words:
                state.write(f"{each}{UPPER_PART}", UPPER_HALF)
                state.write(each, 0)
                continue
            if each in results or each in state.words:
                kept = each == PRIVATE or (text.partly and is_vector(each))
                state.write(each, results.get(each, 0), partly=kept)
            if not has_lanes(each):
                forget_mask(state, each)
            elif each in info.writes and not text.partly and state.lanes == ALL:
                for part in state.parts_of(each):
                    state.forget(part)
            elif name == _WRITE_OF_UPPER_HALF and state.lanes == ALL:
                state.forget(f"{each}{UPPER_PART}")
        if mask is not None:
            state.masks[mask[0]] = mask[1]
        state.lanes = lanes
        state.reads_every_lane = False


_NO_REGISTERS: frozenset[str] = frozenset()


def _starts(following: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the instructions where runs begin: those that other instructions precede than only the one before."""
    found = {0}
    for index, places in enumerate(following):
        if places != (index + 1,):
            found.update((index + 1, *places))
    return sorted(each for each in found if each < len(following))


def _reads_every_lane(instruction: Instruction) -> bool:
    """Return whether an instruction may read lanes outside of the execution mask."""
    found = form(instruction.opcode)
    return (
        found.encoding.endswith("dpp") or found.name in OF_LANES or "permlane" in found.name
        or found.name.startswith(("ds_", "v_mfma", "v_smfmac"))
    )  # fmt: skip


def _enter(entries: dict[int, AddressState], place: int, state: AddressState) -> bool:
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


def _replaces(name: str, info: InstructionInfo) -> bool:
    """Return whether an instruction writes all bits of its destination in all active lanes."""
    return 0 in info.overwritten or name.endswith(_TWO_RESULTS)


def _read_registers(name: str, instruction: Instruction, info: InstructionInfo) -> frozenset[str]:
    """Return the registers of which an instruction reads active lanes, without the half of one that it keeps."""
    if name == _WRITE_OF_LOWER_HALF:
        return info.reads - (info.writes - registers_of(*instruction.operands[1:]))
    if name.endswith(_TWO_RESULTS):
        return info.reads - (info.writes - registers_of(*instruction.operands[2:]))
    return info.reads - info.retained


def _lower_halves(name: str, instruction: Instruction) -> frozenset[str]:
    """Return the registers of which an instruction reads no more than the lower half."""
    operands = list(instruction.operands)
    place = 0 if name == _WRITE_OF_UPPER_HALF else _READS_OF_LOWER_HALF.get(name)
    if place is None or place >= len(operands):
        return frozenset()
    half = registers_of(operands.pop(place))
    return frozenset(half - registers_of(*operands))
