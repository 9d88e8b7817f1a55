"""Clamps between 0 and 1 that ptxas makes saturations, stated as such where the machine code shows it.

ptxas may merge a minimum with 1 and a following maximum with 0 into a saturation, which returns +0 for a NaN, where
the two instructions return 1 (`assembler_choices.merges`).  The text does not say whether it does.  A text in which
each such maximum is a `cvt.sat` of the operand of the minimum leaves no choice.  Where its machine code equals that
of the original byte for byte, both compute the same: so it is analysed in place of the original.  The guess which
clamps are saturations needs no proof of its own.  Otherwise the text remains as it is, and the result of each such
maximum is equal only to that of the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from bitwise_core.assembly.module import Immediate, Instruction, Module, Operand, Register
from bitwise_core.execution.architecture import OpcodeTable
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
from bitwise_nvidia_ptx.assembler.ptxas import AssemblyFailed, Ptxas
from bitwise_nvidia_ptx.contraction.program import Program
from bitwise_nvidia_ptx.contraction.rewrite import Edit, Rewriting
from bitwise_nvidia_ptx.text.parser import parse

_ONES = {"f16": 0x3C00, "f32": 0x3F800000, "f64": 0x3FF0 << 48}


@dataclass(frozen=True, slots=True)
class StatedSaturations:
    """A text that states `count` saturations, its module, and the assembler whose machine code shows them."""

    module: Module
    text: str
    count: int
    assembler: str

    @property
    def note(self) -> str:
        """How it was found, for the notes of a verdict."""
        return f"{self.count} clamps between 0 and 1 are saturations in the machine code ({self.assembler})"


def stated_saturations(opcodes: OpcodeTable, module: Module, text: str) -> StatedSaturations | None:
    """Return the text that states the saturations of the machine code; None if nothing shows them.

    `module` was parsed from `text`.  All clamps are tried, and then those whose minimum nothing else reads.
    """
    present = {
        each.opcode.partition(".")[0]
        for function in (*module.kernels, *module.functions.values())
        for each in function.instructions
        if _form(each, "min") or _form(each, "max")
    }
    if len(present) < 2:
        return None
    program = Program(module, opcodes)
    every = {clamp.maximum: clamp for clamp in _clamps(program)}
    if not every:
        return None
    alone = {maximum: clamp for maximum, clamp in every.items() if clamp.is_alone}
    try:
        ptxas = Ptxas.locate(module.target, text=text)
        expected = ptxas.digest(text)
        for chosen in (every, alone) if len(alone) < len(every) else (every,):
            if not chosen:
                continue
            edits = {maximum: Edit((clamp.saturation,), {}) for maximum, clamp in chosen.items()}
            stated = Rewriting(program, text, edits)
            if ptxas.digest(stated.text) == expected:
                # Its instructions have the places of the changed text.
                changed = parse(stated.text, module.file)
                return StatedSaturations(changed, stated.text, len(edits), ptxas.description)
    except (PtxasNotFound, AssemblyFailed):
        return None
    return None


@dataclass(frozen=True, slots=True)
class _Clamp:
    """The index of a maximum with 0 of a minimum with 1, the saturation in its place, and whether nothing else reads
    the minimum.
    """

    maximum: int
    saturation: Instruction
    is_alone: bool


def _clamps(program: Program) -> Iterator[_Clamp]:
    """Yield the clamps whose registers are each written once and whose two instructions have no guard."""
    written: dict[tuple[int, str], list[int]] = {}
    read: dict[tuple[int, str], int] = {}
    numbers: dict[tuple[int, str], int] = {}
    for index, each in enumerate(program.statements):
        instruction = each.instruction
        for place, operand in enumerate(instruction.operands):
            if isinstance(operand, Register):
                key = (each.function, operand.name)
                if place == 0:
                    written.setdefault(key, []).append(index)
                else:
                    read[key] = read.get(key, 0) + 1
        if instruction.opcode.startswith("mov.") and len(instruction.operands) == 2 and instruction.guard is None:
            destination, source = instruction.operands
            if isinstance(destination, Register) and isinstance(source, Immediate):
                numbers[each.function, destination.name] = source.value
    single = {key: places[0] for key, places in written.items() if len(places) == 1}
    known = {key: number for key, number in numbers.items() if key in single}
    for index, each in enumerate(program.statements):
        form = _form(each.instruction, "max")
        if form is None:
            continue
        value = _other(each.instruction, each.function, known, lambda number: not number)
        if not isinstance(value, Register) or (each.function, value.name) not in single:
            continue
        minimum = program.statements[single[each.function, value.name]]
        if _form(minimum.instruction, "min") != form or not single[each.function, value.name] < index:
            continue
        clamped = _other(minimum.instruction, each.function, known, _is_one(form))
        if isinstance(clamped, Register) and (each.function, clamped.name) in single:
            kind, flush = form.rsplit(".", 1)[-1], ".ftz" if ".ftz" in form else ""
            operands = (each.instruction.operands[0], clamped)
            saturation = replace(each.instruction, opcode=f"cvt{flush}.sat.{kind}.{kind}", operands=operands)
            yield _Clamp(index, saturation, read[each.function, value.name] == 1)


def _form(instruction: Instruction, verb: str) -> str | None:
    """Return the modifiers and the type of an extremum without a guard that is no NaN if one operand is none."""
    base, _, form = instruction.opcode.partition(".")
    plain = form.removeprefix("ftz.") in _ONES and len(instruction.operands) == 3
    return f".{form}" if base == verb and plain and instruction.guard is None else None


def _is_one(form: str) -> Callable[[int], bool]:
    """Return the condition that a literal is 1 in the type of an extremum."""
    one = _ONES[form.rsplit(".", 1)[-1]]
    return lambda number: number == one


def _other(
    instruction: Instruction, function: int, known: Mapping[tuple[int, str], int], holds: Callable[[int], bool]
) -> Operand | None:
    """Return the operand of an extremum whose other operand is a literal for which a condition holds."""
    _, *operands = instruction.operands
    for operand, other in (operands, operands[::-1]):
        number = operand.value if isinstance(operand, Immediate) else None
        if isinstance(operand, Register):
            number = known.get((function, operand.name))
        if number is not None and holds(number):
            return other
    return None
