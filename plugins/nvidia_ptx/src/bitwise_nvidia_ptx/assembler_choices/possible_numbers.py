"""Which numbers the assembler may find in a register whose text it may follow.

A register that a loop computes from a literal and from numbers at run time holds the literal if the loop ends at once.
The assembler may know that in a copy of what follows.  Where an execution gives the register another number than those
that follow from literals, the assembler did not know it there: what it evaluates leaves the number as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import product

import numpy as np

from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Operand, Register, registers_of
from bitwise_core.numerics import Operation, operation
from bitwise_nvidia_ptx.addresses.spaces import may_be_local

Numbers = frozenset[int] | None
"""Bit patterns of 32 bits; None: any number."""

MAXIMUM_NUMBERS = 16
"""More numbers than these count as any number."""

_MOVES = re.compile(r"mov\.[bfsu]32")
_CHOICES = re.compile(r"selp\.[bfsu]32")
_EVALUATED = re.compile(r"(neg|abs|add|sub|mul|rcp)(?:\.rn)?(\.ftz)?\.f32")
_UNARY = frozenset({"neg", "abs", "rcp"})
_MAGNITUDE, _LEAST_NORMAL, _INFINITY = 0x7FFFFFFF, 0x00800000, 0x7F800000


def may_be_found(number: int, numbers: Numbers) -> bool:
    """Return whether a number, as bits of fp32, may be one of some numbers: zeros and NaNs count as one number each."""
    if numbers is None or number & _MAGNITUDE > _INFINITY:
        return True
    return number in numbers or (not number & _MAGNITUDE and any(not each & _MAGNITUDE for each in numbers))


def possible_numbers(
    kernel: Kernel, run_time: Collection[str], definitions: Mapping[str, Iterable[Instruction]]
) -> Mapping[str, Numbers]:
    """Return the numbers that the assembler may find in each register.

    `run_time` are the registers whose numbers it cannot know, `definitions` the instructions that write each register.
    """
    found: dict[str, Numbers] = {name: frozenset() for name in definitions}
    readers: dict[str, set[str]] = {}
    for name, made in definitions.items():
        for each in made:
            for source in registers_of(*each.operands[1:]):
                readers.setdefault(source, set()).add(name)
    pending = {name for name in definitions if name not in run_time}
    while pending:
        name = pending.pop()
        numbers = _union(_numbers_of(each, found, kernel) for each in definitions[name])
        if numbers != found[name]:
            found[name] = numbers
            pending |= readers.get(name, set()) - set(run_time)
    return found


def _union(several: Iterable[Numbers]) -> Numbers:
    found: frozenset[int] = frozenset()
    for each in several:
        if each is None or len(found | each) > MAXIMUM_NUMBERS:
            return None
        found |= each
    return found


def _numbers_of(instruction: Instruction, found: Mapping[str, Numbers], kernel: Kernel) -> Numbers:
    """Return the numbers that the assembler may find as the result of an instruction."""
    opcode, operands = instruction.opcode, instruction.operands[1:]
    parts = opcode.split(".")
    if parts[0] in ("ld", "ldu"):
        unknown = not may_be_local(parts) and "const" not in parts and ("param" not in parts or kernel.entry)
        return frozenset() if unknown else None
    if len(registers_of(instruction.operands[0])) != 1:
        return None
    if _MOVES.fullmatch(opcode):
        return _of_operand(operands[0], found) if len(operands) == 1 else None
    if _CHOICES.fullmatch(opcode):
        return _union(_of_operand(each, found) for each in operands[:2])
    evaluated = _EVALUATED.fullmatch(opcode)
    if evaluated is None or not all(isinstance(each, Immediate | Register) for each in operands):
        return None
    verb, given = evaluated[1], [_of_operand(each, found) for each in operands]
    if len(operands) != (1 if verb in _UNARY else 2) or (verb == "rcp" and ".rn" not in opcode):
        return None
    # The difference of a number and itself, and a product with 0, may be numbers of an unknown one.
    if verb in ("add", "sub") and operands[0] == operands[1]:
        return None
    sets = [each for each in given if each is not None]
    if len(sets) < len(given) or (verb == "mul" and any(not number & _MAGNITUDE for each in sets for number in each)):
        return None
    rounding = "" if verb in ("neg", "abs") else ".rn"
    return _evaluated(operation(f"{verb}{rounding}{evaluated[2] or ''}.fp32"), sets)


def _of_operand(operand: Operand, found: Mapping[str, Numbers]) -> Numbers:
    if isinstance(operand, Immediate):
        return None if operand.kind == "f64" else frozenset({operand.value & 0xFFFFFFFF})
    return found.get(operand.name) if isinstance(operand, Register) else None


def _evaluated(meaning: Operation, sets: Iterable[frozenset[int]]) -> Numbers:
    """Return the results of an operation on all numbers of some sets; any number beside subnormal ones and NaNs."""
    results = set[int]()
    for numbers in product(*sets):
        result = int(meaning.evaluate(*(np.array([each], dtype=np.uint32) for each in numbers))[0])
        if len(results) > MAXIMUM_NUMBERS or not all(map(_is_plain, (*numbers, result))):
            return None
        results.add(result)
    return frozenset(results)


def _is_plain(number: int) -> bool:
    magnitude = number & _MAGNITUDE
    return not magnitude or _LEAST_NORMAL <= magnitude <= _INFINITY
