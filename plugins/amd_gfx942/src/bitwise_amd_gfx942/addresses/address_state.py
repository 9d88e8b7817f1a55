"""What a data-flow analysis knows of the words of addresses in registers, before an instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from bitwise_amd_gfx942.addresses.lane_sets import ALL, Lanes, before, combined, includes
from bitwise_amd_gfx942.addresses.lane_sets import Step as LaneStep
from bitwise_amd_gfx942.registers import lane_mask_key
from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register, Vector

LOW, HIGH, CARRY, UPPER_HALF = 1, 2, 4, 8
"""What a register may hold: the lower or the upper word of an address, a carry out of a sum with one, or the upper half
of a word of an address, over a lower half that is none."""
_Entries: TypeAlias = Mapping[tuple[Lanes, int], frozenset[Lanes]]
"""What a register may hold, with the lanes for which it was written, and lanes for which it was overwritten since."""
UPPER_PART = " upper half"
"""The end of the name of the part of a register that is its upper half."""
PRIVATE = "private"
"""Private memory; with a number behind it, 4 bytes at this place."""


@dataclass(slots=True)
class AddressState:
    """What is known before an instruction.

    `words`: what registers may hold, with the lanes for which it was written.  `lanes`: those of the execution mask.
    `masks`: pairs of scalar registers, by their first one, that hold these lanes.
    """

    words: dict[str, _Entries]
    lanes: Lanes
    masks: dict[str, Lanes]
    reads_every_lane: bool = False
    """Whether the current instruction may read lanes outside of the execution mask."""
    parts: set[str] = field(default_factory=set)
    """The names of `words` that are a part of a register or of private memory: with a space in them."""
    steps: set[LaneStep] = field(default_factory=set)
    """The steps of instructions by which lanes may be named here."""

    def copy(self) -> AddressState:
        """Return what is known, to be changed apart from this."""
        return AddressState(
            dict(self.words), self.lanes, dict(self.masks), parts=set(self.parts), steps=set(self.steps)
        )

    def parts_of(self, name: str) -> list[str]:
        """Return the known parts of a register or of private memory, such as lanes that were written alone."""
        return [each for each in self.parts if each.startswith(f"{name} ")] if self.parts else []

    def names_of_parts(self) -> frozenset[str]:
        """Return the registers of which parts are known."""
        return frozenset([each.partition(" ")[0] for each in self.parts]) if self.parts else _NO_NAMES

    def pairs_of_masks(self) -> frozenset[str]:
        """Return the keys of the pairs of scalar registers that hold known lanes."""
        found = map(lane_mask_key, self.masks) if self.masks else ()
        return frozenset([each for each in found if each is not None])

    def forget(self, name: str) -> None:
        """A register, or a part of one, holds no word of an address any more."""
        self.words.pop(name, None)
        self.parts.discard(name)

    def kind(self, name: str) -> int:
        """Return what a register, or a place of private memory, may hold in a lane that is read."""
        found = 0
        for (_, kind), overwritten in self.words.get(name, _NOTHING).items():
            if self.reads_every_lane or not any(includes(each, self.lanes) for each in overwritten):
                found |= kind
        return found

    def kind_with_parts(self, name: str) -> int:
        """Return what a register may hold in some lane, also in one that was written alone."""
        found = self.kind(name)
        for each in self.parts_of(name):
            found |= self.kind(each)
        return found

    def write(self, name: str, kind: int, *, partly: bool = False) -> None:
        """A register is written; `partly`: some of its bits or lanes may keep their content."""
        kept: dict[tuple[Lanes, int], frozenset[Lanes]] = {}
        if partly:
            kept.update(self.words.get(name, _NOTHING))
        elif has_lanes(name):
            for (lanes, old), overwritten in self.words.get(name, _NOTHING).items():
                if not includes(self.lanes, lanes):
                    kept[lanes, old] = overwritten | {self.lanes}
        if kind:
            kept[self.lanes if has_lanes(name) else ALL, kind] = frozenset()
        if not kept:
            self.forget(name)
            return
        self.words[name] = kept
        if " " in name:
            self.parts.add(name)

    def forget_lanes(self, *steps: LaneStep) -> None:
        """Lanes that were named by a step are others from now on: what was written for them is kept for more."""
        if self.steps.isdisjoint(steps):
            self.steps.update(steps)
            return
        wanted = frozenset(steps)
        self.steps |= wanted
        named = [name for name, entries in self.words.items() if _name_a_step(entries, wanted)]
        for step in steps:
            for name in named:
                self.words[name] = _renamed(self.words[name], partial(before, step=step), step)
            for name in [each for each, lanes in self.masks.items() if step in lanes]:
                del self.masks[name]

    def meet(self, place: LaneStep) -> None:
        """The lanes of this path are those of the place where it meets others, and are named by it from now on."""
        lanes, meeting = self.lanes, (place,)
        if lanes != meeting:
            for name, entries in self.words.items():
                if lanes != ALL and _are_of_all_lanes(entries):
                    continue
                self.words[name] = _renamed(
                    entries, lambda held: meeting if includes(lanes, held) else before(held, place), place, lanes
                )
        for name, held in list(self.masks.items()):
            if held == lanes:
                self.masks[name] = meeting
            elif place in held:
                del self.masks[name]
        self.lanes = meeting

    def join(self, other: AddressState) -> bool:
        """Add what is known on another path with the same lanes.  Return whether that changed anything."""
        changed = False
        self.parts |= other.parts
        self.steps |= other.steps
        for name, entries in other.words.items():
            known = self.words.get(name, _NOTHING)
            if known is entries or known == entries:
                continue
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
_NO_NAMES: frozenset[str] = frozenset()


def _are_of_all_lanes(entries: _Entries) -> bool:
    """Return whether all entries hold in all lanes, of which nothing is overwritten: their lanes keep their name."""
    return all(not (lanes or overwritten) for (lanes, _), overwritten in entries.items())


def _name_a_step(entries: _Entries, steps: frozenset[LaneStep]) -> bool:
    """Return whether the lanes of some entry, or of what overwrote it, are named by one of these steps."""
    for (lanes, _), overwritten in entries.items():
        if not steps.isdisjoint(lanes):
            return True
        for each in overwritten:
            if not steps.isdisjoint(each):
                return True
    return False


def _renamed(
    entries: _Entries,
    rename: Callable[[Lanes], Lanes],
    step: LaneStep,
    arriving: Lanes | None = None,
) -> _Entries:
    """Return entries whose lanes have other names; lanes of a step are forgotten where they were overwritten.

    `arriving`: lanes that are named by the step from now on.
    """
    found: dict[tuple[Lanes, int], frozenset[Lanes]] = {}
    for (lanes, kind), overwritten in entries.items():
        gone = frozenset(each for each in overwritten if step not in each)
        if arriving is not None and any(includes(each, arriving) for each in overwritten):
            gone |= {(step,)}
        key = rename(lanes), kind
        found[key] = found[key] & gone if key in found else gone
    return found


def is_vector(name: str) -> bool:
    """Return whether a register is a vector or an accumulation register."""
    return name[0] in "va" and name[1:].isdigit()


def has_lanes(name: str) -> bool:
    """Return whether each lane has its own content under a name: of a vector register, or of private memory."""
    return is_vector(name) or name.startswith(PRIVATE)


def changed_lanes(index: int, name: str, instruction: Instruction, state: AddressState) -> Lanes:
    """Return the lanes of the execution mask after an instruction that writes it."""
    step = ("part", index)
    state.forget_lanes(step, ("rest", index), ("some", index))
    sources = [_lanes_of(each, state) for each in instruction.operands[1:]]
    after: Lanes | None = None
    if name == "s_mov_b64" and sources:
        after = sources[0]
    elif name.endswith("_saveexec_b64") and sources:
        after = combined(name.removeprefix("s_").removesuffix("_saveexec_b64"), sources[0], state.lanes, step)
    elif len(sources) == 2 and name.startswith("s_"):
        after = combined(name.removeprefix("s_").removesuffix("_b64"), sources[0], sources[1], step)
    return (("some", index),) if after is None else after


def written_mask(index: int, name: str, instruction: Instruction, state: AddressState) -> tuple[str, Lanes] | None:
    """Return the pair of scalar registers that an instruction writes with a known mask, and its lanes."""
    target = names_of(instruction.operands[0]) if instruction.operands else []
    if len(target) != 2 or is_vector(target[0]) or target[0].startswith("exec"):
        return None
    lanes: Lanes | None = None
    if name.endswith("_saveexec_b64"):
        lanes = state.lanes
    elif name == "s_mov_b64":
        lanes = _lanes_of(instruction.operands[1], state)
    elif name in MASKS and len(instruction.operands) == 3:
        step = ("part", index)
        state.forget_lanes(step, ("rest", index))
        one, other = (_lanes_of(each, state) for each in instruction.operands[1:])
        lanes = combined(name.removeprefix("s_").removesuffix("_b64"), one, other, step)
    return None if lanes is None else (target[0], lanes)


MASKS = frozenset({"s_xor_b64", "s_and_b64", "s_or_b64", "s_andn2_b64"})


def _lanes_of(operand: Operand, state: AddressState) -> Lanes | None:
    """Return the lanes that an operand names as a mask."""
    if isinstance(operand, Immediate) and operand.value in (-1, (1 << 64) - 1):
        return ALL
    names = names_of(operand)
    if names == ["exec_lo", "exec_hi"]:
        return state.lanes
    return state.masks.get(names[0]) if len(names) == 2 else None


def forget_mask(state: AddressState, name: str) -> None:
    """A scalar register is written: its pair holds no known mask any more."""
    key = lane_mask_key(name) if state.masks else None
    if key is not None:
        for each in [held for held in state.masks if lane_mask_key(held) == key]:
            del state.masks[each]


def names_of(operand: Operand) -> list[str]:
    """Return the registers of an operand in order."""
    if isinstance(operand, Register):
        return [operand.name]
    return [each.name for each in operand.items if isinstance(each, Register)] if isinstance(operand, Vector) else []


def kinds_of(operand: Operand, state: AddressState) -> list[int]:
    """Return what each register of an operand may hold."""
    return [state.kind_with_parts(name) for name in names_of(operand)]
