"""Instructions into which ptxas may fuse a product, where no assembly shows whether it does.

The contraction audit marks them.  The result of a marked one is the rounded product and a rounding of the sum, or one
rounding of both, as ptxas decided for this text; copies that it makes of the instruction may differ.  So the result of
each execution in each thread is a number of its own.  The same text is assembled to the same copies: the kernel has a
determined result, which is equal to that of no other text.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import numpy as np

from bitwise_core.assembly.module import Instruction, Kernel, Module, Register, program_digest, registers_of
from bitwise_core.execution.architecture import Context
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.term_hash import term

_MARK = "open"
"""The modifier of a marked instruction, which no text has, since an assembler rejects it."""


def with_open_sums(module: Module, chosen: Set[int]) -> Module:
    """Return a module in which the instructions with these identities (`id`) are marked."""

    def marked(kernel: Kernel) -> Kernel:
        found = tuple(_marked(each) if id(each) in chosen else each for each in kernel.instructions)
        return replace(kernel, instructions=found)

    functions = {name: marked(each) for name, each in module.functions.items()}
    return replace(module, kernels=tuple(map(marked, module.kernels)), functions=functions)


def _marked(instruction: Instruction) -> Instruction:
    root, *modifiers = instruction.opcode.split(".")
    return replace(instruction, opcode=".".join((root, _MARK, *modifiers)))


def is_open(instruction: Instruction) -> bool:
    """Return whether an instruction is marked."""
    return instruction.opcode.split(".")[1:2] == [_MARK]


def unmarked(instruction: Instruction) -> Instruction:
    """Return a marked instruction as the text has it."""
    root, _, *modifiers = instruction.opcode.split(".")
    return replace(instruction, opcode=".".join((root, *modifiers)))


def of_its_text(step: Step, instruction: Instruction, context: Context) -> Step:
    """Return the step of a marked instruction, whose result is equal to that of the same execution of this text only.

    Raises Unsupported in other analyses than the one of terms.
    """
    name = f"{instruction.opcode} at line {instruction.line} of {program_digest(context.module, context.kernel)}"

    def run(machine: Machine) -> Control | None:
        if machine.domain.name == "addresses":
            return step(machine)
        if machine.domain.name != "terms":
            reason = "ptxas may fuse a product into this instruction, and no assembly shows whether it does"
            raise Unsupported(reason, instruction.line)
        control = step(machine)
        count = machine.memory.executions[instruction.line] = machine.memory.executions.get(instruction.line, 0) + 1
        for destination in map(Register, registers_of(instruction.operands[0])):
            found = as_symbolic_vector(machine.read(destination))
            parts = [found, as_symbolic_vector(machine.thread.astype(np.uint64))]
            tag = f"{name}, execution {count}, {_scalars(machine)}"
            machine.write(destination, term(found.bits, tag, parts, recorder=machine.domain.recorder))
        return control

    return run


def _scalars(machine: Machine) -> str:
    """Return the numbers among the parameters: a product may have one of them as a factor."""
    numbers = {name: value for name, value in machine.parameters.items() if isinstance(value, np.ndarray)}
    return " ".join(f"{name} {numbers[name].tobytes().hex()}" for name in sorted(numbers))
