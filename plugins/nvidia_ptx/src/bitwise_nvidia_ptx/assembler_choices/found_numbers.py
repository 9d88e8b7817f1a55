"""Registers whose numbers an assembler may find though the text computes them from numbers at run time.

ptxas knows that `x ^ x`, `x & 0`, `x | -1`, `(x + 3) - x` and a field of no bits are numbers, and passes them on as
literals.  Which number it is does not matter here: a register of this kind may hold any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Operand, Register, once_a_kernel, registers_of
from bitwise_core.execution.architecture import OpcodeTable, infos_of, is_complete
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_nvidia_ptx.addresses.spaces import may_be_local

_RUN_TIME = Effect.LOAD | Effect.CALL
_BEYOND_OPERANDS = _RUN_TIME | Effect.CROSS_LANE
"""Effects of instructions whose result is no function of the literals that they read."""
_OF_ONE_NUMBER = frozenset({"xor", "sub", "set", "lop3"})
"""Operations that may leave a number of a number and itself."""
_OF_ONE_VALUE = frozenset({"xor", "sub", "add", "and", "or", "set"})
"""Operations that may leave a number of two that are computed from one, such as `x & ~x` and `(x + 3) - x`."""
_INVERTIBLE = re.compile(r"mov\.\w+|(add|sub|neg|xor|not)\.(cc\.)?[sub]\d+")
_PRODUCT = re.compile(r"mul\.lo\.[su]\d+")
_TURNING = frozenset({"sub", "neg", "xor", "not", "mul"})
"""Operations whose result a sum may take back: a sum of sums of one number leaves no number."""
_UNSIGNED_LIMIT = re.compile(r"setp\.(ge|lt|hs|lo|gt|le|hi|ls)\.([\w.]*\.)?u\d")
_SHARED = frozenset({"shared", "shared::cta"})
_OF_LAUNCH = re.compile(r"%tid\.[yz]|%ntid\.[xyz]")
_DIGITS = re.compile(r"\d+")
_DEPTH = 8
"""Through how many instructions a number is followed to the one that it shares with another one."""


@once_a_kernel
def found_numbers(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[str]:
    """Return the registers that may hold a number which an assembler finds, but not as it evaluates literals."""
    return _found(kernel, opcodes, through_memory=True)


@once_a_kernel
def found_by_operations(kernel: Kernel, opcodes: OpcodeTable) -> frozenset[str]:
    """Return the registers that operations alone may give a number which an assembler finds.

    Left out is a literal in the memory of a block, which an execution on terms knows as well.
    """
    return _found(kernel, opcodes, through_memory=False)


def _found(kernel: Kernel, opcodes: OpcodeTable, through_memory: bool) -> frozenset[str]:
    if not is_complete(kernel, opcodes):
        return frozenset()
    definitions: dict[str, list[Instruction]] = {}
    readers: dict[str, list[tuple[Instruction, InstructionInfo]]] = {}
    infos = infos_of(kernel, opcodes)
    for instruction, info in zip(kernel.instructions, infos, strict=True):
        for name in info.writes:
            definitions.setdefault(name, []).append(instruction)
        for name in info.reads if info.writes else ():
            readers.setdefault(name, []).append((instruction, info))
    literal, restorable = _from_literals(kernel, infos), _restorable(definitions)
    decided = _decided(definitions, restorable)
    found: set[str] = set()
    pending: list[str] = []

    def add(info: InstructionInfo) -> None:
        fresh = info.writes - found
        found.update(fresh)
        pending.extend(fresh)

    for instruction, info in zip(kernel.instructions, infos, strict=True):
        if info.writes and _leaves_a_number(instruction, definitions, literal, decided, restorable):
            add(info)
    stored, locally = _stored(kernel) if through_memory else ({}, [])
    loads = [each for each in zip(kernel.instructions, infos, strict=True) if stored and _loads_own(each[0])]
    kept = [
        (locally if may_be_local(instruction.opcode.split(".")) else stored.get(instruction.operands[1], ()), info)
        for instruction, info in loads
    ]
    for held, info in kept:
        if any(isinstance(each, Immediate) or not literal.isdisjoint(registers_of(each)) for each in held):
            add(info)
    while pending:
        name = pending.pop()
        for instruction, info in readers.get(name, ()):
            sources = instruction.operands[1:2] if instruction.opcode.startswith("shfl.") else instruction.operands[1:]
            known = all(each in found or each in literal for each in registers_of(*sources))
            if known and not info.effects.overlaps(_RUN_TIME) and info.accumulation is None:
                add(info)
        for held, info in kept:
            if name in registers_of(*held):
                add(info)
    return frozenset(found)


def _from_literals(kernel: Kernel, infos: Sequence[InstructionInfo]) -> frozenset[str]:
    """Return the registers of which every definition is computed from literals alone.

    A literal that replaces what a load under a guard does not read leaves no number in its register.
    """
    found = {name for info in infos for name in info.writes}
    readers: dict[str, list[InstructionInfo]] = {}
    others: list[InstructionInfo] = []
    for instruction, info in zip(kernel.instructions, infos, strict=True):
        if info.writes:
            sources = instruction.operands[1:]
            plain = all(isinstance(each, Immediate) or registers_of(each) for each in sources)
            names = registers_of(*sources)
            if not plain or info.effects.overlaps(_BEYOND_OPERANDS) or not names <= found:
                others.append(info)
            else:
                for name in names:
                    readers.setdefault(name, []).append(info)
    while others:
        for name in others.pop().writes & found:
            found.remove(name)
            others += readers.get(name, ())
    return frozenset(found)


def _stored(kernel: Kernel) -> tuple[Mapping[Operand, list[Operand]], list[Operand]]:
    """Return what is stored in shared and local memory, by the address in the text, and all of it in local memory."""
    found: dict[Operand, list[Operand]] = {}
    locally: list[Operand] = []
    for instruction in kernel.instructions:
        parts = instruction.opcode.split(".")
        if parts[0] == "st" and (not _SHARED.isdisjoint(parts) or may_be_local(parts)):
            target, *stored = instruction.operands
            found.setdefault(target, []).extend(stored)
            locally += stored if may_be_local(parts) else ()
    return found, locally


def _loads_own(instruction: Instruction) -> bool:
    base, *parts = instruction.opcode.split(".")
    return base == "ld" and (not _SHARED.isdisjoint(parts) or may_be_local(parts))


def _leaves_a_number(
    instruction: Instruction,
    definitions: Mapping[str, list[Instruction]],
    literal: frozenset[str],
    decided: frozenset[str],
    restorable: Mapping[str, frozenset[str]],
) -> bool:
    """Return whether an operation on integers may have one result for all numbers that it reads."""
    base, *parts = instruction.opcode.split(".")
    sources = instruction.operands[1:]
    names = [each.name for each in sources if isinstance(each, Register)]
    if base == "mov":
        return len(names) == 1 and _OF_LAUNCH.fullmatch(names[0]) is not None
    if base in ("selp", "slct"):
        chosen = any(isinstance(each, Immediate) for each in sources[:2]) or not literal.isdisjoint(names[:-1])
        return chosen and bool(names) and names[-1] in decided
    if not names or not parts or parts[-1][0] not in "sub":
        return False
    bits = _bits(parts[-1])
    ones = (1 << bits) - 1
    numbers = [each.value & ones if isinstance(each, Immediate) else None for each in sources]
    if base in _OF_ONE_NUMBER and len(set(names)) < len(names):
        return True
    if base in _OF_ONE_VALUE and len(set(names)) > 1 and _share(names, restorable):
        return base != "add" or _turns(names, definitions, restorable)
    if base in ("and", "mul", "mul24") and 0 in numbers:
        return True
    if base == "mul" and "hi" in parts and parts[-1].startswith("u") and 1 in numbers:
        return True
    if base in ("mad", "mad24"):
        return 0 in numbers[:2] and (
            isinstance(sources[2], Immediate) or not literal.isdisjoint(registers_of(sources[2]))
        )
    if base == "or":
        return ones in numbers
    if base in ("min", "max"):
        signed, low = parts[-1].startswith("s"), base == "min"
        limit = ((ones >> 1) + 1 if low else ones >> 1) if signed else (0 if low else ones)
        return limit in numbers
    if base == "lop3":
        return numbers[-1] in (0, 0xFF)
    if base == "rem":
        return numbers[-1] == 1
    if base in ("bfe", "shl", "shr", "and", "mul", "cvt"):
        return (base == "bfe" and numbers[-1] == 0) or _zeros(instruction, definitions, _DEPTH) & ones == ones
    return False


def _bits(kind: str) -> int:
    """Return the width of a type."""
    digits = _DIGITS.search(kind)
    return int(digits[0]) if digits is not None else 32


def _zeros(made: Instruction, definitions: Mapping[str, list[Instruction]], depth: int) -> int:
    """Return bits of the result of an operation on integers that are zero for all numbers, as ones of a mask."""
    base, *parts = made.opcode.split(".")
    if not depth or not parts or parts[-1][0] not in "sub" or len(made.operands) < 2:
        return 0
    source, *others = made.operands[1:]
    bits, number = _bits(parts[-1]), others[-1].value if others and isinstance(others[-1], Immediate) else None
    ones = (1 << bits) - 1

    def below() -> int:
        if not isinstance(source, Register):
            return 0
        every = definitions.get(source.name, ())
        return _zeros(every[0], definitions, depth - 1) & ones if len(every) == 1 else 0

    if base == "mov":
        return below()
    if base == "and" and number is not None:
        return below() | ~number & ones
    if base == "shl" and number is not None:
        return (below() << number | (1 << number) - 1) & ones if number < bits else ones
    if base == "shr" and number is not None and not parts[-1].startswith("s"):
        return below() >> number | ones & ~(ones >> number) if number < bits else ones
    if base == "mul" and "lo" in parts and number:
        return ((number & -number) - 1) & ones if not number & ones else _of_factor(below(), number, ones)
    if base == "cvt" and parts[-1].startswith("u"):
        return below() | ~ones & (1 << _bits(parts[0])) - 1
    return 0


def _of_factor(zeros: int, number: int, ones: int) -> int:
    """Return the low zeros of a product with a number, of which a factor has these zeros."""
    low = (~zeros & ones) & -(~zeros & ones) if ~zeros & ones else ones + 1
    return (low * (number & -number) - 1) & ones if low * (number & -number) <= ones else ones


def _restorable(definitions: Mapping[str, list[Instruction]]) -> Mapping[str, frozenset[str]]:
    """Return the registers from which each register is computed by operations that keep all of their bits."""
    found = {}
    for name, made in definitions.items():
        kept = [each for each in made if _INVERTIBLE.fullmatch(each.opcode) or _is_odd_multiple(each, definitions)]
        if kept:
            found[name] = frozenset(one for each in kept for one in registers_of(*each.operands[1:]))
    return found


def _is_odd_multiple(made: Instruction, definitions: Mapping[str, list[Instruction]]) -> bool:
    """Return whether an instruction may multiply by an odd literal, which another product takes back."""
    if _PRODUCT.fullmatch(made.opcode) is None:
        return False
    factors = [*made.operands[1:]]
    factors += [one.operands[-1] for name in registers_of(*factors) for one in definitions.get(name, ())]
    return any(isinstance(each, Immediate) and each.value & 1 for each in factors)


def _share(names: list[str], restorable: Mapping[str, frozenset[str]]) -> bool:
    """Return whether two operands are computed from one number by operations that keep all of its bits."""
    seen: set[str] = set()
    for name in dict.fromkeys(names):
        below = _below(name, restorable)
        if not seen.isdisjoint(below):
            return True
        seen |= below
    return False


def _below(name: str, restorable: Mapping[str, frozenset[str]]) -> set[str]:
    """Return a register and those from which it is computed by operations that keep all bits."""
    below, fresh = {name}, {name}
    for _ in range(_DEPTH):
        fresh = {one for each in fresh for one in restorable.get(each, ())} - below
        below |= fresh
    return below


def _turns(
    names: Sequence[str], definitions: Mapping[str, list[Instruction]], restorable: Mapping[str, frozenset[str]]
) -> bool:
    """Return whether operations below some operands, among those that keep all bits, take back a number in a sum."""
    return any(
        made.opcode.split(".", 1)[0] in _TURNING
        for name in names
        for each in _below(name, restorable)
        for made in definitions.get(each, ())
    )


def _decided(definitions: Mapping[str, list[Instruction]], restorable: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the predicates that an assembler may decide, and those that are computed from them."""
    found = {name for name, made in definitions.items() if any(_is_decided(each, restorable) for each in made)}
    changed = bool(found)
    while changed:
        changed = False
        for name, made in definitions.items():
            if name in found:
                continue
            if any(_combines(each) and not found.isdisjoint(registers_of(*each.operands[1:])) for each in made):
                found.add(name)
                changed = True
    return frozenset(found)


def _combines(made: Instruction) -> bool:
    """Return whether an instruction computes a predicate from others."""
    return made.opcode.endswith(".pred")


def _is_decided(made: Instruction, restorable: Mapping[str, frozenset[str]]) -> bool:
    """Return whether an assembler may decide a comparison of integers: of a number with itself, or with a limit."""
    if not made.opcode.startswith("setp.") or made.opcode.rsplit(".", 1)[-1][0] not in "sub":
        return False
    names = [each.name for each in made.operands[1:] if isinstance(each, Register)]
    limits = any(isinstance(each, Immediate) and not each.value for each in made.operands[1:])
    return (
        len(set(names)) < len(names)
        or (limits and _UNSIGNED_LIMIT.match(made.opcode) is not None)
        or (len(names) > 1 and _share(names, restorable))
    )
