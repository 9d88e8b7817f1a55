"""Register storage: 32-bit words by name, and lane masks, which are pairs of scalar registers with one bit per lane.

A lane of the machine is a thread of the analysis.  A scalar register holds one number for a wave of 64 lanes.  It is
stored in every thread of the wave, so it can be read wherever a vector register can.  A pair of scalar registers that
holds a lane mask (the result of a comparison, a saved execution mask) is stored as a predicate: each thread holds its
own bit, which may depend on data.  The mask is stored under the key of the pair (`lane_mask_key`) and replaces both
registers.  It is converted back to two words when one of its registers is read as a number or written alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from bitwise_core.assembly.module import Register, Vector
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.execution.values.term_hash import poison

WAVE = 64

ALL_LANES: Array = np.ones((1, 1), dtype=bool)
NO_LANES: Array = np.zeros((1, 1), dtype=bool)
"""The lane masks with all lanes and with none.  The execution mask is the object ALL_LANES where all lanes run."""

EXEC, SCC = "exec", "scc"
"""The execution mask, always stored as a lane mask, and the scalar condition code, a predicate uniform in a wave."""

_MASK = " mask"


_NAMES = 4096
"""More than there are registers."""


@lru_cache(maxsize=_NAMES)
def lane_mask_key(name: str) -> str | None:
    """The key under which the pair of a scalar register is stored as a lane mask; None for other registers."""
    if name[0] == "s" and name[1:].isdigit():
        return f"s{int(name[1:]) & ~1}{_MASK}"
    if name in ("vcc_lo", "vcc_hi"):
        return f"vcc{_MASK}"
    return None


@lru_cache(maxsize=_NAMES)
def storage(name: str) -> str:
    """The storage key of a register; the two registers of a scalar pair share one key."""
    if name.startswith("exec"):
        return EXEC
    return SCC if name == "src_scc" else lane_mask_key(name) or name


@lru_cache(maxsize=_NAMES)
def pair_names(operand: Vector) -> tuple[str, str]:
    """The names of the two registers of a scalar pair.  Raises Unsupported unless it is an aligned pair."""
    names = [each.name for each in operand.items if isinstance(each, Register)]
    if len(names) != 2 or (names[0][0] == "s" and names[0][1:].isdigit() and int(names[0][1:]) % 2):
        raise Unsupported(f"the registers {' and '.join(names)} are not an aligned pair")
    return names[0], names[1]


def per_wave(value: Array, threads: int) -> Array:
    """Lane values grouped by wave, shape (blocks or 1, waves, 64)."""
    return np.broadcast_to(value, (value.shape[0], threads)).reshape(value.shape[0], -1, WAVE)


def broadcast_per_wave(values: Array) -> Array:
    """Broadcast one value per wave, shape (blocks, waves), to all lanes; one column where all waves agree."""
    if values.shape[1] == 1 or (values == values[:, :1]).all():
        return values[:, :1]
    return np.repeat(values, WAVE, axis=1)


def ballot(lanes: Array, threads: int) -> Array:
    """A known lane mask as one 64-bit number per wave."""
    if lanes.shape[1] == 1:
        return np.where(lanes, ~np.uint64(0), np.uint64(0))
    packed = np.packbits(per_wave(lanes, threads), axis=2, bitorder="little")
    return broadcast_per_wave(np.ascontiguousarray(packed).view(np.uint64)[:, :, 0])


def lanes_of_bits(number: Array, threads: int) -> Array:
    """A 64-bit number as the lane mask of its set bits."""
    if number.size == 1:
        only = int(number.flat[0])
        if only == 0:
            return NO_LANES
        if only == (1 << 64) - 1:
            return ALL_LANES
    lane = (np.arange(threads, dtype=np.uint64) & np.uint64(WAVE - 1))[None]
    found: Array = (number >> lane & np.uint64(1)).astype(bool)
    return found


def lowest_lane(lanes: Array, threads: int) -> Array:
    """The thread index of each wave's lowest set lane, in all its lanes; its first thread if no lane is set."""
    first = np.argmax(per_wave(lanes, threads), axis=2)
    thread = first + WAVE * np.arange(first.shape[1])
    return np.repeat(thread, WAVE, axis=1)


def split_lane_mask(machine: Machine, key: str) -> None:
    """Convert a stored lane mask back to two words; they are undefined where the mask depends on data."""
    lanes = machine.registers.pop(key)
    low, high = words_of_pair(key)
    known = np.ones((1, 1), dtype=bool)
    if isinstance(lanes, L.SymbolicVector):
        every = np.broadcast_to(L.constant_mask(lanes), lanes.words.shape[1:])
        known = broadcast_per_wave(np.all(per_wave(every, machine.threads), axis=2))
        lanes = L.constants_of(lanes)
    if not isinstance(lanes, np.ndarray) or not known.any():
        machine.registers[low] = machine.registers[high] = poison(32, "a lane mask as a number")
        return
    number = ballot(lanes, machine.threads)
    for name, shift in ((low, 0), (high, 32)):
        word: Value = (number >> np.uint64(shift)).astype(np.uint32)
        if not known.all():  # in the other waves it depends on data or was never written
            word = blend_values(known, word, poison(32, "a lane mask as a number"))
        machine.registers[name] = word


def make_undefined(machine: Machine, names: Iterable[str]) -> None:
    """Make scalar registers undefined in the active waves."""
    for name in names:
        if name == SCC:
            write_scc(machine, poison(1))
        else:
            write_word(machine, name, poison(32))


def read_word(machine: Machine, name: str) -> Value:
    """Read the 32 bits of a register.  Raises Unsupported for a lane mask that depends on data."""
    key = lane_mask_key(name)
    if key is not None and key in machine.registers:
        known = machine.known(machine.registers[key])
        if known is None:
            values = (machine.registers[key],)
            raise DataDependent("a lane mask that depends on data is read as a number", None, values)
        number = ballot(known, machine.threads)
        high = name == "vcc_hi" or (name[0] == "s" and int(name[1:]) % 2)
        return (number >> np.uint64(32) if high else number).astype(np.uint32)
    found = machine.registers.get(name)
    if found is None:
        if name in ("exec_lo", "exec_hi"):
            known = machine.known(machine.registers[EXEC])
            if known is None:
                values = (machine.registers[EXEC],)
                raise DataDependent("the execution mask depends on data and is read as a number", None, values)
            number = ballot(known, machine.threads)
            return (number >> np.uint64(32) if name == "exec_hi" else number).astype(np.uint32)
        return poison(32)
    return found if machine.mask is None else in_active_lanes(machine, found, machine.mask)


def in_active_lanes(machine: Machine, value: Value, mask: Array) -> Value:
    """The value as one number if all active lanes hold the same known number; inactive lanes are not considered."""
    if L.lazy_integers(value) is not None or (isinstance(value, np.ndarray) and value.size == 1):
        return value
    known = machine.known(value)
    if known is None or known.size == 1:
        return value if known is None else known
    shape = np.broadcast_shapes(known.shape, mask.shape)
    numbers = np.broadcast_to(known, shape)[np.broadcast_to(mask, shape)]
    return numbers[:1].reshape(1, 1) if numbers.size and (numbers == numbers[0]).all() else known


def write_word(machine: Machine, name: str, value: Value) -> None:
    """Write 32 bits in the active lanes."""
    key = lane_mask_key(name)
    if key is not None and key in machine.registers:
        split_lane_mask(machine, key)
    lanes = machine.written_lanes
    if lanes is not None and not machine.is_dead_elsewhere(name):
        old = machine.registers.get(name)
        value = L.as_array_if_constant(blend_values(lanes, value, poison(32) if old is None else old))
    machine.put(name, value)


def read_lane_mask(machine: Machine, operand: Vector) -> Value:
    """Read a pair of scalar registers as a lane mask.  Raises Unsupported where its words depend on data."""
    low, high = pair_names(operand)
    if low == "exec_lo":
        return machine.registers[EXEC]
    key = lane_mask_key(low)
    if key is None:
        raise Unsupported(f"the register {low} cannot hold a lane mask")
    found = machine.registers.get(key)
    if found is not None:
        return found
    number = concat([read_word(machine, low), read_word(machine, high)])
    known = machine.known(number)
    if known is None:
        raise DataDependent("a number that depends on data is read as a lane mask", None, (number,))
    return lanes_of_bits(known, machine.threads)


def write_lane_mask(machine: Machine, operand: Vector, value: Value) -> None:
    """Write a pair of scalar registers as a lane mask, in the active waves."""
    low, high = pair_names(operand)
    if low == "exec_lo":
        write_exec(machine, value)
        return
    key = lane_mask_key(low)
    if key is None:
        raise Unsupported(f"the register {low} cannot hold a lane mask")
    lanes = machine.written_lanes
    if lanes is not None and not machine.is_dead_elsewhere(low):
        old = machine.registers.get(key)
        if old is None:
            old = _previous_lane_mask(machine, low, high)
        value = blend_values(lanes, value, old)
    machine.registers[key] = value


def as_lane_mask_of_pair(machine: Machine, key: str) -> None:
    """Keep the pair of scalar registers with a key as a lane mask; it is undefined where its words are no numbers."""
    if key.endswith(_MASK) and key not in machine.registers:
        machine.registers[key] = _previous_lane_mask(machine, *words_of_pair(key))


def words_of_pair(key: str) -> tuple[str, str]:
    """The names of the two registers of the pair with a key."""
    low = key.removesuffix(_MASK)
    return ("vcc_lo", "vcc_hi") if low == "vcc" else (low, f"s{int(low[1:]) + 1}")


def _previous_lane_mask(machine: Machine, low: str, high: str) -> Value:
    """The words of a pair as a lane mask.  Inactive waves may have written numbers to the pair and read them later."""
    words = machine.registers.get(low), machine.registers.get(high)
    if words[0] is None or words[1] is None:
        return poison(1)
    number = concat([words[0], words[1]])
    if isinstance(number, np.ndarray):
        return lanes_of_bits(number, machine.threads)
    if L.lazy_integers(number) is not None:
        return poison(1)
    found = as_symbolic_vector(number)
    where = np.broadcast_to(np.asarray(L.constant_mask(found)), found.words.shape[1:])
    return (
        blend_values(where, lanes_of_bits(L.constants_of(found), machine.threads), poison(1))
        if where.any()
        else poison(1)
    )


def write_exec(machine: Machine, value: Value) -> None:
    """Write the execution mask of the active waves."""
    lanes = machine.written_lanes
    if lanes is not None:
        value = blend_values(lanes, value, machine.registers[EXEC])
    if isinstance(value, np.ndarray) and value.all():
        value = ALL_LANES
    machine.registers[EXEC] = value


def write_scc(machine: Machine, value: Value) -> None:
    """Write the scalar condition code of the active waves."""
    lanes = machine.written_lanes
    if lanes is not None and not machine.is_dead_elsewhere(SCC):
        old = machine.registers.get(SCC)
        value = blend_values(lanes, value, poison(1) if old is None else old)
    machine.registers[SCC] = value


def uniform_if_equal(value: Value, threads: int) -> Value:
    """A scalar result as a single column where all waves hold the same known number."""
    if isinstance(value, np.ndarray) and value.shape[1] > 1 and (value == value[:, :1]).all():
        return value[:, :1]
    return value
