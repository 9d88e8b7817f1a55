"""Words of lane masks that depend on data, where a compiler keeps them in lanes of vector registers.

A kernel that needs more scalar registers than there are spills them: v_writelane_b32 keeps a scalar register in a lane
of a vector register, and v_readlane_b32 returns it.  A lane mask that depends on data has no numbers as its words.
They are kept beside the value of the vector register, by lane, and make up the mask again when both have been read back
into an aligned pair.  For any other use they are undefined.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_amd_gfx942.registers import lane_mask_key, split_lane_mask, words_of_pair
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import poison

_IN_LANES, _AS_WORDS = "words of lane masks in lanes", "words of lane masks"
"""The keys of `machine.extra` for words beside values, by the identity of the value, which is kept with its entry."""

_MOST = 256


@dataclass(frozen=True, slots=True)
class MaskWord:
    """The low or the high word of a lane mask."""

    mask: Value
    high: bool


def mask_word(machine: Machine, name: str) -> MaskWord | None:
    """The word of a lane mask that depends on data which a scalar register holds; None for any other content."""
    key = lane_mask_key(name)
    mask = None if key is None else machine.registers.get(key)
    if key is not None and mask is not None:
        return None if machine.known(mask) is not None else MaskWord(mask, name == words_of_pair(key)[1])
    found = _noted(machine, _AS_WORDS, machine.registers.get(name))
    return found if isinstance(found, MaskWord) else None


def words_in_lanes(machine: Machine, value: Value) -> dict[int, MaskWord]:
    """The words of lane masks in the lanes of each wave of a vector register with this value."""
    found = _noted(machine, _IN_LANES, value)
    return found if isinstance(found, dict) else {}


def note_words(machine: Machine, value: Value, words: dict[int, MaskWord]) -> None:
    """Note the words of lane masks in the lanes of a value."""
    if words:
        _note(machine, _IN_LANES, value, words)


def write_mask_word(machine: Machine, name: str, word: MaskWord) -> None:
    """Write the word of a lane mask to a scalar register; both words in their places are the mask."""
    key = lane_mask_key(name)
    assert key is not None
    names = words_of_pair(key)
    beside = names[0] if name == names[1] else names[1]
    other = mask_word(machine, beside)
    if key in machine.registers:
        split_lane_mask(machine, key)
    in_place = word.high == (name == names[1])
    if in_place and other is not None and other.mask is word.mask and other.high != word.high:
        machine.registers[key] = word.mask
        return
    for register, each in ((beside, other), (name, word)):
        if each is not None:
            undefined = machine.registers[register] = poison(32, "a word of a lane mask as a number")
            _note(machine, _AS_WORDS, undefined, each)


def _note(machine: Machine, what: str, value: Value, about: object) -> None:
    known: dict[int, tuple[Value, object]] = machine.extra.setdefault(what, {})
    if len(known) >= _MOST:
        del known[next(iter(known))]
    known[id(value)] = (value, about)


def _noted(machine: Machine, what: str, value: Value | None) -> object:
    found = machine.extra.get(what, {}).get(id(value))
    return found[1] if found is not None and found[0] is value else None
