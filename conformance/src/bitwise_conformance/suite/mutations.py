"""Mutations of a parsed kernel of any instruction set: one literal, one operand or one instruction changes.

Execution on bit patterns shows which of them change the bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from bitwise_core.asm import Address, Immediate, Instruction, Kernel, Module, Operand, Register


def mutations_of(module: Module, entry: str | None, seed: str) -> Iterator[tuple[str, Module]]:
    """Yield every mutation of an entry with its description, in an order given by the seed."""
    kernel = module.kernel(entry)
    found = list(_mutations(kernel))
    random.Random(seed).shuffle(found)
    for what, instructions, labels in found:
        other = replace(kernel, instructions=instructions, labels=labels)
        yield what, replace(module, kernels=tuple(other if each is kernel else each for each in module.kernels))


Mutation = tuple[str, tuple[Instruction, ...], dict[str, int]]


def _mutations(kernel: Kernel) -> Iterator[Mutation]:
    labels = dict(kernel.labels)
    for place, instruction in enumerate(kernel.instructions):
        at = f"line {instruction.line}: {instruction.opcode}"
        for what, other in _instructions(kernel, place):
            yield f"{at}: {what}", (*kernel.instructions[:place], other, *kernel.instructions[place + 1 :]), labels
        if place + 1 < len(kernel.instructions):
            rest = kernel.instructions[:place] + kernel.instructions[place + 1 :]
            moved = {name: index - (index > place) for name, index in labels.items()}
            yield f"{at}: removed", rest, moved


def _instructions(kernel: Kernel, place: int) -> Iterator[tuple[str, Instruction]]:
    """Yield the mutations of one instruction."""
    instruction = kernel.instructions[place]
    operands = instruction.operands
    for index, operand in enumerate(operands):
        for what, other in _operands(kernel, place, index, operand):
            yield what, replace(instruction, operands=(*operands[:index], other, *operands[index + 1 :]))
    for index in range(1, len(operands) - 1):
        if operands[index] != operands[index + 1]:
            swapped = (*operands[:index], operands[index + 1], operands[index], *operands[index + 2 :])
            yield f"operands {index + 1} and {index + 2} swapped", replace(instruction, operands=swapped)
    if instruction.guard is not None:
        guard = replace(instruction.guard, negated=not instruction.guard.negated)
        yield "guard negated", replace(instruction, guard=guard)
    others = {each.opcode for each in kernel.instructions if len(each.operands) == len(operands)}
    for opcode in sorted(others - {instruction.opcode}):
        yield f"{opcode} instead", replace(instruction, opcode=opcode)


def _operands(kernel: Kernel, place: int, index: int, operand: Operand) -> Iterator[tuple[str, Operand]]:
    """Yield replacements of one operand; a destination register, the first operand, is not replaced."""
    if isinstance(operand, Immediate):
        yield f"{operand.value + 1} instead of {operand.value}", replace(operand, value=operand.value + 1)
    elif isinstance(operand, Address):
        yield "offset + 4 bytes", replace(operand, offset=operand.offset + 4)
    elif isinstance(operand, Register) and index:
        earlier = [each.operands[0] for each in kernel.instructions[:place] if each.operands]
        kind = operand.name.rstrip("0123456789")
        alike = {each for each in earlier if isinstance(each, Register) and each.name.rstrip("0123456789") == kind}
        for other in sorted(alike - {operand}, key=lambda each: each.name):
            yield f"{other.name} instead of {operand.name}", other
