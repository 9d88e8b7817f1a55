"""How registers are kept: 32-bit words by name, and pairs of scalar registers that hold one bit for each lane.

A lane of the machine is a thread of the reading.  A scalar register is one number for a wave of 64 lanes: every thread
of the wave holds it, so that it can be read wherever a vector register can.  A pair of scalar registers that holds a
set of lanes (a comparison's result, a saved execution mask) is kept as a predicate instead, each thread its own
bit: that bit may depend on data.  Such a set is kept under the key of its pair, which then stands for both
registers; it becomes numbers again where a register of it is read as a number or written alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bitwise_core.assembly.module import Register, Vector
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.execution.values.term_hash import poison

WAVE = 64

EVERYONE: Array = np.ones((1, 1), dtype=bool)
NOBODY: Array = np.zeros((1, 1), dtype=bool)
"""The sets of all lanes and of none; the execution mask is EVERYONE itself where all lanes run."""

EXEC, SCC = "exec", "scc"
"""The execution mask, always a set of lanes, and the scalar condition code, a predicate that a wave's lanes share."""


def set_key(name: str) -> str | None:
    """The key under which the pair of a scalar register is kept as a set of lanes; None for other registers."""
    if name[0] == "s" and name[1:].isdigit():
        return f"s{int(name[1:]) & ~1} set"
    if name in ("vcc_lo", "vcc_hi"):
        return "vcc set"
    return None


def storage(name: str) -> str:
    """The key of what a register is kept in: pairs of scalar registers are kept together."""
    if name.startswith("exec"):
        return EXEC
    return SCC if name == "src_scc" else set_key(name) or name


def halves(operand: Vector) -> tuple[str, str]:
    """The names of the two registers of a pair.  Raises Unsupported where it is none, or does not begin evenly."""
    names = [each.name for each in operand.items if isinstance(each, Register)]
    if len(names) != 2 or (names[0][0] == "s" and names[0][1:].isdigit() and int(names[0][1:]) % 2):
        raise Unsupported(f"the registers {' and '.join(names)} are no pair")
    return names[0], names[1]


def per_wave(value: Array, threads: int) -> Array:
    """Values of lanes by wave: shape (blocks or 1, waves, 64)."""
    return np.broadcast_to(value, (value.shape[0], threads)).reshape(value.shape[0], -1, WAVE)


def of_wave(per: Array) -> Array:
    """One value for each wave, shape (blocks, waves), as every lane of it has it; one lane where all waves agree."""
    if per.shape[1] == 1 or (per == per[:, :1]).all():
        return per[:, :1]
    return np.repeat(per, WAVE, axis=1)


def ballot(lanes: Array, threads: int) -> Array:
    """A set of lanes as numbers of 64 bits."""
    if lanes.shape[1] == 1:
        return np.where(lanes, ~np.uint64(0), np.uint64(0))
    packed = np.packbits(per_wave(lanes, threads), axis=2, bitorder="little")
    return of_wave(np.ascontiguousarray(packed).view(np.uint64)[:, :, 0])


def bits_of_lanes(number: Array, threads: int) -> Array:
    """A number of 64 bits as the set of lanes whose bits are set."""
    if number.size == 1:
        only = int(number.flat[0])
        if only == 0:
            return NOBODY
        if only == (1 << 64) - 1:
            return EVERYONE
    lane = (np.arange(threads, dtype=np.uint64) & np.uint64(WAVE - 1))[None]
    found: Array = (number >> lane & np.uint64(1)).astype(bool)
    return found


def lowest_lane(lanes: Array, threads: int) -> Array:
    """The first lane of each wave's set, as the number of its thread, given to all lanes; the wave's first if empty."""
    first = np.argmax(per_wave(lanes, threads), axis=2)
    thread = first + WAVE * np.arange(first.shape[1])
    return np.repeat(thread, WAVE, axis=1)


def dissolve(machine: Machine, key: str) -> None:
    """Turns a set of lanes back into two numbers; what depends on data is lost."""
    lanes = machine.registers.pop(key)
    low, high = ("vcc_lo", "vcc_hi") if key == "vcc set" else (key[:-4], f"s{int(key[1:-4]) + 1}")
    known = np.ones((1, 1), dtype=bool)
    if isinstance(lanes, L.SymbolicVector):
        every = np.broadcast_to(L.constant_mask(lanes), lanes.words.shape[1:])
        known = of_wave(np.all(per_wave(every, machine.threads), axis=2))
        lanes = L.constants_of(lanes)
    if not isinstance(lanes, np.ndarray) or not known.any():
        machine.registers[low] = machine.registers[high] = poison(32, "a set of lanes as a number")
        return
    number = ballot(lanes, machine.threads)
    for name, shift in ((low, 0), (high, 32)):
        word: Value = (number >> np.uint64(shift)).astype(np.uint32)
        if not known.all():  # in other waves it depends on data, or nothing wrote it
            word = blend_values(known, word, poison(32, "a set of lanes as a number"))
        machine.registers[name] = word


def forget(machine: Machine, names: Iterable[str]) -> None:
    """Makes scalar registers undefined in the active waves."""
    for name in names:
        if name == SCC:
            write_scc(machine, poison(1))
        else:
            write_word(machine, name, poison(32))


def read_word(machine: Machine, name: str) -> Value:
    """The 32 bits of a register.  Raises Unsupported for a set of lanes that depends on data."""
    key = set_key(name)
    if key is not None and key in machine.registers:
        known = machine.known(machine.registers[key])
        if known is None:
            raise Unsupported("a set of lanes that depends on data is read as a number")
        number = ballot(known, machine.threads)
        high = name == "vcc_hi" or (name[0] == "s" and int(name[1:]) % 2)
        return (number >> np.uint64(32) if high else number).astype(np.uint32)
    found = machine.registers.get(name)
    if found is None:
        if name in ("exec_lo", "exec_hi"):
            known = machine.known(machine.registers[EXEC])
            if known is None:
                raise Unsupported("the execution mask depends on data and is read as a number")
            number = ballot(known, machine.threads)
            return (number >> np.uint64(32) if name == "exec_hi" else number).astype(np.uint32)
        return poison(32)
    return found if machine.mask is None else in_active_lanes(machine, found, machine.mask)


def in_active_lanes(machine: Machine, value: Value, mask: Array) -> Value:
    """A value as one number where all lanes that run hold the same known one; those that do not hold anything."""
    if L.lazy_integers(value) is not None or (isinstance(value, np.ndarray) and value.size == 1):
        return value
    known = machine.known(value)
    if known is None or known.size == 1:
        return value if known is None else known
    shape = np.broadcast_shapes(known.shape, mask.shape)
    numbers = np.broadcast_to(known, shape)[np.broadcast_to(mask, shape)]
    return numbers[:1].reshape(1, 1) if numbers.size and (numbers == numbers[0]).all() else known


def write_word(machine: Machine, name: str, value: Value) -> None:
    """Writes 32 bits in the active lanes."""
    key = set_key(name)
    if key is not None and key in machine.registers:
        dissolve(machine, key)
    if machine.mask is not None:
        old = machine.registers.get(name)
        value = L.as_array_if_constant(blend_values(machine.mask, value, poison(32) if old is None else old))
    machine.put(name, value)


def read_set(machine: Machine, operand: Vector) -> Value:
    """A pair of scalar registers as a set of lanes.  Raises Unsupported where its numbers depend on data."""
    low, high = halves(operand)
    if low == "exec_lo":
        return machine.registers[EXEC]
    key = set_key(low)
    if key is None:
        raise Unsupported(f"the register {low} holds no set of lanes")
    found = machine.registers.get(key)
    if found is not None:
        return found
    number = concat([read_word(machine, low), read_word(machine, high)])
    known = machine.known(number)
    if known is None:
        raise Unsupported("a number that depends on data is read as a set of lanes")
    return bits_of_lanes(known, machine.threads)


def write_set(machine: Machine, operand: Vector, value: Value) -> None:
    """Writes a pair of scalar registers as a set of lanes, in the active waves."""
    low, high = halves(operand)
    if low == "exec_lo":
        write_exec(machine, value)
        return
    key = set_key(low)
    if key is None:
        raise Unsupported(f"the register {low} takes no set of lanes")
    if machine.mask is not None:
        old = machine.registers.get(key)
        if old is None:
            old = _old_set(machine, low, high)
        value = blend_values(machine.mask, value, old)
    machine.registers[key] = value


def _old_set(machine: Machine, low: str, high: str) -> Value:
    """What a pair holds as a set: other waves may have left numbers there, which they read again."""
    words = machine.registers.get(low), machine.registers.get(high)
    if words[0] is None or words[1] is None:
        return poison(1)
    number = concat([words[0], words[1]])
    if isinstance(number, np.ndarray):
        return bits_of_lanes(number, machine.threads)
    if L.lazy_integers(number) is not None:
        return poison(1)
    found = as_symbolic_vector(number)
    where = np.broadcast_to(np.asarray(L.constant_mask(found)), found.words.shape[1:])
    return (
        blend_values(where, bits_of_lanes(L.constants_of(found), machine.threads), poison(1))
        if where.any()
        else poison(1)
    )


def write_exec(machine: Machine, value: Value) -> None:
    """Sets the execution mask of the active waves."""
    if machine.mask is not None:
        value = blend_values(machine.mask, value, machine.registers[EXEC])
    if isinstance(value, np.ndarray) and value.all():
        value = EVERYONE
    machine.registers[EXEC] = value


def write_scc(machine: Machine, value: Value) -> None:
    """Sets the scalar condition code of the active waves."""
    if machine.mask is not None:
        old = machine.registers.get(SCC)
        value = blend_values(machine.mask, value, poison(1) if old is None else old)
    machine.registers[SCC] = value


def agreed(value: Value, threads: int) -> Value:
    """A scalar result with one lane where all waves hold the same known number."""
    if isinstance(value, np.ndarray) and value.shape[1] > 1 and (value == value[:, :1]).all():
        return value[:, :1]
    return value


def word(value: Value, index: int) -> Value:
    """The 32-bit word of that number."""
    return extract(value, 32 * index, 32)


def width_of(value: Value) -> int:
    """The width in bits."""
    return L.width(value)
