"""Instructions that move words of addresses, add numbers to them, or access memory at them."""

from __future__ import annotations

from collections.abc import Sequence

from bitwise_amd_gfx942.addresses.address_state import (
    CARRY,
    HIGH,
    LOW,
    PRIVATE,
    AddressState,
    is_vector,
    kinds_of,
    names_of,
)
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Immediate, Instruction, Modified, Operand, Symbol, Vector, registers_of

_ALIGNMENT = 256
"""A buffer begins at a multiple of this number of bytes."""
UPPER_BITS = 0xFFFF
"""The mask by which compilers clear the upper half of an upper word for the descriptor of a buffer."""
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
COMPARES_64 = ("v_cmp_", "s_cmp_")
ENDS_64 = ("_u64", "_i64")
_RESOURCES = ("buffer_load_", "buffer_store_", "buffer_atomic_")
_FLAT = ("global_load_", "global_store_", "global_atomic_", "flat_load_", "flat_store_", "flat_atomic_")
_SCALAR_LOADS = ("s_load_dword", "s_buffer_load_dword")
_CALLS = ("s_setpc_b64", "s_swappc_b64")
OF_LANES = frozenset({"v_writelane_b32", "v_readlane_b32"})
_OFF = Symbol("off")


def results_of(name: str, instruction: Instruction, state: AddressState) -> dict[str, int] | None:
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
        return None if any(kinds_of(operands[1], state)) else _moved(operands[0], [operands[2]], state)
    if name in OF_LANES:
        return _of_lane(name, operands, state)
    if name.startswith("scratch_"):
        return _of_private_memory(name, instruction, state)
    if name in _SUMS:
        return _sum(name, instruction, state)
    if name in ("s_and_b32", "v_and_b32", "s_or_b32", "v_or_b32"):
        return _masked(name, operands, state)
    if name.startswith(COMPARES_64) and name.endswith(ENDS_64):
        equality = name.rsplit("_", 2)[1] in ("eq", "ne", "lg")
        zero = any(isinstance(each, Immediate) and each.value == 0 for each in operands)
        return {} if equality and zero else None
    return None


def _moved(target: Operand, sources: Sequence[Operand], state: AddressState) -> dict[str, int] | None:
    names = names_of(target)
    found = dict.fromkeys(names, 0)
    for each in sources:
        kinds = kinds_of(each, state)
        if any(kind & CARRY for kind in kinds) or (any(kinds) and len(kinds) != len(names)):
            return None
        for name, kind in zip(names, kinds, strict=False):
            found[name] |= kind
    return found


def _of_lane(name: str, operands: Sequence[Operand], state: AddressState) -> dict[str, int] | None:
    """v_readlane and v_writelane of a lane that the text names, which hold spilled scalar registers."""
    if len(operands) != 3:
        return None
    target, source, lane = operands
    if any(kinds_of(lane, state)):
        return None
    slot = f" lane {lane.value % 64}" if isinstance(lane, Immediate) else ""
    if name == "v_writelane_b32":
        (vector,) = names_of(target) or [""]
        kinds = kinds_of(source, state)
        if not slot:
            return {vector: kinds[0]} if kinds else {}
        return {f"{vector}{slot}": kinds[0] if kinds else 0}
    (vector,) = names_of(source) or [""]
    found = state.kind(f"{vector}{slot}") | state.kind(vector) if slot else state.kind_with_parts(vector)
    return dict.fromkeys(names_of(target), found)


def _of_private_memory(name: str, instruction: Instruction, state: AddressState) -> dict[str, int] | None:
    """Loads and stores of private memory, which holds spilled registers."""
    if len(instruction.operands) != 3:
        return None
    loads = "_load_" in name
    target, place, base = instruction.operands
    if not loads:
        place, target = target, place
    if any(kinds_of(place, state)) or any(kinds_of(base, state)):
        return None
    names = names_of(target)
    offset = int(form(instruction.opcode).modifiers.get("offset", "0"), 0)
    known = place == _OFF and base == _OFF
    places = [f"{PRIVATE} {offset + 4 * each}" if known else PRIVATE for each in range(len(names))]
    if loads:
        kind = state.kind if known else state.kind_with_parts
        return {each: kind(held) | state.kind(PRIVATE) for each, held in zip(names, places, strict=True)}
    found: dict[str, int] = {}
    for each, held in zip(names, places, strict=True):
        found[held] = found.get(held, 0) | state.kind_with_parts(each)
    return found


def _sum(name: str, instruction: Instruction, state: AddressState) -> dict[str, int] | None:
    """A sum of a word or of the words of an address with numbers; a carry of one enters another sum of one only."""
    operands = instruction.operands
    places = _SUMS[name]
    if len(operands) <= max(places, default=1):
        return None  # no assembler accepts the text
    target = operands[0]
    carried = _carry_in(name, operands)
    sources = range(1, len(operands)) if name != "s_addk_i32" else range(2)
    read = [each for each in sources if not (carried and set(names_of(operands[each])) <= carried)]
    outputs = 2 if name.endswith("_co_u32") or name.startswith("v_mad_") else 1
    held = [each for each in read if each >= outputs or name == "s_addk_i32"]
    addresses = [each for each in held if any(kinds_of(operands[each], state))]
    if name == "v_lshl_add_u64" and addresses == [1] and operands[2] == Immediate(0):
        places = (1,)
    if len(addresses) != 1 or addresses[0] not in places:
        return None
    kinds = kinds_of(operands[addresses[0]], state)
    names = names_of(target)
    if any(kind & CARRY for kind in kinds) or len(kinds) != len(names):
        return None
    if any(state.kind(each) for each in carried) and name not in _WITH_CARRY:
        return None
    found = dict(zip(names, kinds, strict=True))
    carries = ["scc"] if name[0] == "s" else names_of(operands[1]) if outputs == 2 else []
    return {**found, **dict.fromkeys(carries, CARRY)}


def _carry_in(name: str, operands: Sequence[Operand]) -> frozenset[str]:
    """Return the registers of the carry that a sum reads."""
    if name not in _WITH_CARRY:
        return frozenset()
    if name[0] == "s":
        return frozenset({"scc"})
    return frozenset(names_of(operands[4])) if len(operands) > 4 else frozenset({"vcc_lo", "vcc_hi"})


def _masked(name: str, operands: Sequence[Operand], state: AddressState) -> dict[str, int] | None:
    """Low bits of a lower word, which are known, or an upper word without the bits that no address has."""
    if len(operands) != 3:
        return None
    numbers = [each.value for each in operands[1:] if isinstance(each, Immediate)]
    kinds = [kind for each in operands[1:] for kind in kinds_of(each, state)]
    if len(numbers) != 1 or len(kinds) != 1:
        return None
    number, kind = numbers[0] & (1 << 32) - 1, kinds[0]
    target = names_of(operands[0])
    carries = {"scc": CARRY} if name[0] == "s" else {}
    if "and" in name:
        if number < _ALIGNMENT and kind == LOW:
            return dict.fromkeys(target, 0)
        return {**dict.fromkeys(target, kind), **carries} if number == UPPER_BITS and kind == HIGH else None
    if number < _ALIGNMENT and kind == LOW:
        return {**dict.fromkeys(target, kind), **carries}
    return {**dict.fromkeys(target, kind), **carries} if not number & UPPER_BITS and kind == HIGH else None


def results_of_mask(name: str, instruction: Instruction, state: AddressState) -> dict[str, int]:
    """Return what a bitwise product of an address and a pair of registers holds, if these hold the mask of an address.

    Where it is executed, they do, or the address is read as a number (`_clears_upper_bits`).
    """
    if name != "s_and_b64" or len(instruction.operands) != 3:
        return {}
    target, *sources = instruction.operands
    addresses = [each for each in sources if any(kinds_of(each, state))]
    found = _moved(target, addresses, state) if len(addresses) == 1 else None
    return {} if found is None else {**found, "scc": CARRY}


def addresses_in(name: str, instruction: Instruction) -> frozenset[str]:
    """Return the registers that an instruction takes as words of addresses, and not also as numbers."""
    operands = list(instruction.operands)
    reads = operands[1:] if "_load_" in name or name == "s_swappc_b64" else operands
    taken: Operand | None = None
    if name.startswith(_RESOURCES):
        taken = next((each for each in reads if len(names_of(each)) == 4 and not is_vector(names_of(each)[0])), None)
    elif name.startswith((*_SCALAR_LOADS, *_CALLS)):
        taken = reads[0] if reads else None
    elif name.startswith(_FLAT) and reads:
        place = min(1, len(reads) - 1) if "_atomic_" in name and _returns(instruction) else 0
        last = names_of(reads[-1])
        scalar = len(last) == 2 and not is_vector(last[0])
        taken = reads[-1] if scalar else reads[place]
    if not isinstance(taken, Vector):
        return frozenset()
    others = [*(each for each in reads if each is not taken), Vector(taken.items[2:])]
    return frozenset(registers_of(Vector(taken.items[:2]))) - registers_of(*others)


def _returns(instruction: Instruction) -> bool:
    """Return whether an atomic operation writes what memory held."""
    return "sc0" in form(instruction.opcode).modifiers or "glc" in form(instruction.opcode).modifiers
