"""Mutations of a parsed kernel of any instruction set: one literal, one operand or one instruction changes.

Execution on bit patterns shows which of them change the bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bitwise_core.assembly.module import Address, Immediate, Instruction, Kernel, Module, Operand, Register
from bitwise_core.execution.architecture import OpcodeTable


def mutations_of(module: Module, entry: str | None, opcodes: OpcodeTable, seed: str) -> Iterator[tuple[str, Module]]:
    """Yield every mutation of an entry with its description, in an order given by the seed."""
    kernel = module.kernel(entry)
    found = list(_mutations(kernel, [_results(each, opcodes) for each in kernel.instructions]))
    random.Random(seed).shuffle(found)
    for what, place, instructions in found:
        other = _replaced(kernel, place, instructions)
        yield what, replace(module, kernels=tuple(other if each is kernel else each for each in module.kernels))


Mutation = tuple[str, int, tuple[Instruction, ...]]
"""What changes, the position of an instruction, and what is in its place: one instruction or none."""


def _replaced(kernel: Kernel, place: int, instructions: tuple[Instruction, ...]) -> Kernel:
    found = (*kernel.instructions[:place], *instructions, *kernel.instructions[place + 1 :])
    fewer = 1 - len(instructions)
    labels = {name: index - (fewer if index > place else 0) for name, index in kernel.labels.items()}
    return replace(kernel, instructions=found, labels=labels)


def _results(instruction: Instruction, opcodes: OpcodeTable) -> frozenset[int]:
    """Return the positions of the operands that an instruction writes."""
    operands, other = instruction.operands, Register("another register")
    return frozenset(
        index
        for index, operand in enumerate(operands)
        if not isinstance(operand, Address)
        and other.name
        in opcodes.info(replace(instruction, operands=(*operands[:index], other, *operands[index + 1 :]))).writes
    )


def _mutations(kernel: Kernel, results: Sequence[frozenset[int]]) -> Iterator[Mutation]:
    for place, instruction in enumerate(kernel.instructions):
        at = f"line {instruction.line}: {instruction.opcode}"
        for what, other in _instructions(kernel, results, place):
            yield f"{at}: {what}", place, (other,)
        if place + 1 < len(kernel.instructions):
            yield f"{at}: removed", place, ()


def _instructions(kernel: Kernel, results: Sequence[frozenset[int]], place: int) -> Iterator[tuple[str, Instruction]]:
    """Yield the mutations of one instruction."""
    instruction = kernel.instructions[place]
    operands = instruction.operands
    sources = [index for index in range(len(operands)) if index not in results[place]]
    for index in sources:
        for what, other in _operands(kernel, results, place, operands[index]):
            yield what, replace(instruction, operands=(*operands[:index], other, *operands[index + 1 :]))
    for index in sources:
        if index + 1 in sources and _interchangeable(operands[index], operands[index + 1]):
            swapped = (*operands[:index], operands[index + 1], operands[index], *operands[index + 2 :])
            yield f"operands {index + 1} and {index + 2} swapped", replace(instruction, operands=swapped)
    if instruction.guard is not None:
        guard = replace(instruction.guard, negated=not instruction.guard.negated)
        yield "guard negated", replace(instruction, guard=guard)
    others = {each.opcode for each in kernel.instructions if len(each.operands) == len(operands)}
    for opcode in sorted(others - {instruction.opcode}):
        yield f"{opcode} instead", replace(instruction, opcode=opcode)


def _interchangeable(left: Operand, right: Operand) -> bool:
    return left != right and isinstance(left, Address) == isinstance(right, Address)


def _operands(
    kernel: Kernel, results: Sequence[frozenset[int]], place: int, operand: Operand
) -> Iterator[tuple[str, Operand]]:
    """Yield replacements of an operand that is read: literals, addresses, registers written earlier."""
    if isinstance(operand, Immediate):
        yield f"{operand.value + 1} instead of {operand.value}", replace(operand, value=operand.value + 1)
    elif isinstance(operand, Address):
        yield "offset + 4 bytes", replace(operand, offset=operand.offset + 4)
    elif isinstance(operand, Register):
        earlier = [
            each.operands[index]
            for each, own in zip(kernel.instructions[:place], results[:place], strict=True)
            for index in own
        ]
        kind = operand.name.rstrip("0123456789")
        alike = {each for each in earlier if isinstance(each, Register) and each.name.rstrip("0123456789") == kind}
        for other in sorted(alike - {operand}, key=lambda each: each.name):
            yield f"{other.name} instead of {operand.name}", other
