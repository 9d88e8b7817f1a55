"""Rewritten programs that leave ptxas no choice: every rounding stated, chosen products fused explicitly.

A rewriting replaces instructions.  It is a module, spliced from the parsed one, and a text, edited at the positions of
the replaced instructions; parsing the text gives the module.  The audit does not depend on anything else here: a
rewriting is accepted only if it leaves no choice and its machine code equals that of the original (see `audit`).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from bitwise_core.assembly.module import Guard, Immediate, Instruction, Kernel, Module, Operand, Register
from bitwise_nvidia_ptx.contraction.fusion_guesses import Fusion
from bitwise_nvidia_ptx.contraction.program import Program, Statement, span_of
from bitwise_nvidia_ptx.text.writer import instruction_text

_WIDTHS = {"f16": 16, "bf16": 16, "f64": 64, "f32x2": 64}
_TEMPORARY = "%contraction_"


@dataclass(frozen=True)
class Division:
    """The range checks in the expansion of a division.

    `large` divisors are scaled down and `tiny` ones up; ptxas omits a check that it derives to be unnecessary.
    `tiny_first` is the order of the checks.  `absolute` is off if ptxas derives the sign of the divisor.
    """

    large: bool = True
    tiny: bool = True
    tiny_first: bool = False
    absolute: bool = True


@dataclass(frozen=True, slots=True)
class Edit:
    """The instructions that replace one, and the widths in bits of the registers that they need, by name."""

    instructions: tuple[Instruction, ...]
    registers: Mapping[str, int]


@dataclass(frozen=True)
class Rewriting:
    """A program and the edits of its statements, by index; `original` is the text that it was parsed from."""

    program: Program
    original: str
    edits: Mapping[int, Edit]

    @property
    def only_fusions(self) -> Rewriting:
        """The rewriting without the edits that only state the rounding of an instruction.

        ptxas may translate an instruction that leaves it a choice otherwise than one that does not, also where both
        have one result but for the bits of a NaN: it returns x for `mul.f32 r, x, 1.0`, and not for `mul.rn.f32`.
        """
        statements = self.program.statements
        kept = {
            index: edit
            for index, edit in self.edits.items()
            if edit.instructions != (_with_rounding(statements[index].instruction),)
        }
        return Rewriting(self.program, self.original, kept)

    @cached_property
    def module(self) -> Module:
        """The module with these edits; new instructions have the line of the one that they replace."""
        if not self.edits:
            return self.program.module
        edits: dict[int, dict[int, Edit]] = defaultdict(dict)
        for number, statements in groupby(range(len(self.program.statements)), self._function):
            first = next(statements)
            edits[number] = {i - first: self.edits[i] for i in (first, *statements) if i in self.edits}
        changed = {
            function.name: _splice(function, edits[number]) for number, function in enumerate(self.program.functions)
        }
        module = self.program.module
        return replace(
            module,
            kernels=tuple(changed[each.name] for each in module.kernels),
            functions={name: changed[name] for name in module.functions},
        )

    @cached_property
    def text(self) -> str:
        """The text with these edits; line numbers are unchanged.

        Raises ValueError if `original` is not the text of the program's module.
        """
        parts: list[str] = []
        position = 0
        for index in sorted(self.edits):
            statement, edit = self.program.statements[index], self.edits[index]
            if (declarations_end := self._body(statement.function)) >= position:
                parts += [self.original[position:declarations_end], *self._declarations(statement.function)]
                position = declarations_end
            start, end = span_of(statement.instruction)
            replaced = self.original[start:end]
            if statement.instruction.opcode not in replaced:
                raise ValueError(f"line {statement.instruction.line} of the text is not the instruction of the module")
            steps = "; ".join(map(instruction_text, edit.instructions))
            parts += [self.original[position:start], steps, "\n" * replaced.count("\n")]
            position = end
        return "".join([*parts, self.original[position:]])

    def _function(self, index: int) -> int:
        return self.program.statements[index].function

    def _body(self, function: int) -> int:
        span = self.program.functions[function].span
        assert span is not None
        return span[0]

    def _declarations(self, function: int) -> Iterator[str]:
        for index, edit in self.edits.items():
            if self._function(index) == function:
                for name, width in edit.registers.items():
                    yield f" .reg .{'pred' if width == 1 else f'b{width}'} {name};"


def _splice(function: Kernel, edits: Mapping[int, Edit]) -> Kernel:
    if not edits:
        return function
    instructions: list[Instruction] = []
    new_indices: list[int] = []
    registers: dict[str, int] = {}
    for index, instruction in enumerate(function.instructions):
        new_indices.append(len(instructions))
        if index in edits:
            instructions += edits[index].instructions
            registers |= edits[index].registers
        else:
            instructions.append(instruction)
    new_indices.append(len(instructions))
    return replace(
        function,
        instructions=tuple(instructions),
        labels={name: new_indices[index_of_label] for name, index_of_label in function.labels.items()},
        registers={**function.registers, **registers},
    )


def has_reserved_names(program: Program) -> bool:
    """Return whether a function has a register whose name is reserved for temporaries of rewritten programs."""
    return any(_TEMPORARY in name for function in program.functions for name in function.registers)


def rewrite(
    program: Program,
    text: str,
    fusions: Iterable[Fusion] = (),
    *,
    round_only: frozenset[int] | None = None,
    expand: frozenset[int] = frozenset(),
    division: Division | Mapping[int, Division] | None = None,
) -> Rewriting:
    """Return the program with `fusions` as explicit fmas, and `.rn` on every other contractible instruction.

    The program was parsed from `text`; `round_only` limits `.rn` to these statements.  Fused divisions and the
    instructions of `expand` (which must be `expandable`) are replaced by the steps into which ptxas expands them, a
    division with the range checks of `division`.  If these are given by the indices of statements, all of those are
    expanded.
    """
    divisions = division if isinstance(division, Mapping) else {}
    other = division if isinstance(division, Division) else Division()
    statements = program.statements
    by_consumer = {fusion.consumer: fusion for fusion in fusions}
    expanded = {f.product for f in by_consumer.values() if statements[f.product].base == "div"}
    expanded |= expand | divisions.keys()
    edits: dict[int, Edit] = {}
    for index, statement in enumerate(statements):
        if index in by_consumer:
            edits[index] = _fused_edit(statements, by_consumer[index])
        elif index in expanded:
            if statement.base == "ex2":
                edits[index] = _exponential_edit(statement, index)
            else:
                edits[index] = _division_edit(program, index, divisions.get(index, other))
        elif statement.contractible and (round_only is None or index in round_only):
            edits[index] = Edit((_with_rounding(statement.instruction),), {})
    return Rewriting(program, text, edits)


def _with_rounding(instruction: Instruction) -> Instruction:
    """Return the instruction with `.rn` (round to nearest even)."""
    base, dot, modifiers = instruction.opcode.partition(".")
    return Instruction(
        f"{base}.rn{dot}{modifiers}", instruction.operands, instruction.guard, instruction.line, instruction.source
    )


class _EditBuilder:
    """Builds the instructions that replace `replaced`, and the temporary registers that they use."""

    def __init__(self, replaced: Instruction) -> None:
        self.replaced = replaced
        self.instructions: list[Instruction] = []
        self.registers: dict[str, int] = {}

    def temporary(self, letter: str, index: int, width: int = 32) -> Register:
        """Declare and return the temporary named by a letter and the index of a statement."""
        found = _temporary(letter, index)
        self.registers[found.name] = width
        return found

    def add(self, opcode: str, *operands: Operand, guard: Guard | None = None) -> None:
        """Append an instruction."""
        self.instructions.append(Instruction(opcode, operands, guard, self.replaced.line, self.replaced.source))

    def edit(self) -> Edit:
        """Return the edit."""
        return Edit(tuple(self.instructions), self.registers)


def _temporary(letter: str, index: int) -> Register:
    return Register(f"{_TEMPORARY}{letter}_{index}")


def _float_literal(bits: int) -> Immediate:
    return Immediate(bits, "f32")


def _fused_edit(statements: tuple[Statement, ...], fusion: Fusion) -> Edit:
    consumer, product = statements[fusion.consumer], statements[fusion.product]
    kind = consumer.kind or "f32"
    steps = _EditBuilder(consumer.instruction)
    left, right = _factors(product, fusion.product)
    other = consumer.read[1 - fusion.position]
    if (consumer.base == "sub" and fusion.position == 1) ^ fusion.negated:
        left = _negated(steps, kind, steps.temporary("product", fusion.consumer, _WIDTHS.get(kind, 32)), left)
    if consumer.base == "sub" and fusion.position == 0:
        other = _negated(steps, kind, steps.temporary("other", fusion.consumer, _WIDTHS.get(kind, 32)), other)
    modifiers = "".join("." + part for part in consumer.parts[1:])
    steps.add(f"fma.rn{modifiers}", consumer.instruction.operands[0], left, right, other)
    return steps.edit()


def _negated(steps: _EditBuilder, kind: str, result: Register, value: Operand) -> Register:
    if kind == "f32x2":
        steps.add("xor.b64", result, value, Immediate(0x8000000080000000))
    else:
        steps.add(f"neg.{kind}", result, value)
    return result


def _factors(product: Statement, index: int) -> tuple[Operand, Operand]:
    if product.base == "div":
        return _temporary("a", index), _temporary("r", index)
    return product.read[0], product.read[1]


def expandable(statement: Statement) -> bool:
    """Return whether `rewrite` can expand this instruction."""
    return statement.hidden_product and statement.base in ("div", "ex2") and not statement.guard


def _exponential_edit(statement: Statement, index: int) -> Edit:
    """Return the expansion of `ex2.approx.f32`: for an argument below -126, the square of the result for half of it."""
    steps = _EditBuilder(statement.instruction)
    result, argument = statement.instruction.operands
    p, t, r = steps.temporary("p", index, 1), steps.temporary("t", index), steps.temporary("r", index)
    low = Guard(p.name, negated=True)
    steps.add("setp.geu.f32", p, argument, _float_literal(0xC2FC0000))
    steps.add("mov.b32", t, argument)
    steps.add("mul.rn.f32", t, t, _float_literal(0x3F000000), guard=low)
    steps.add("ex2.approx.ftz.f32", r, t)
    steps.add("mul.rn.f32", r, r, r, guard=low)
    steps.add("mov.b32", result, r)
    return steps.edit()


def _literal(program: Program, operand: Operand, names: tuple[str, ...]) -> int | None:
    """Return the bits of an operand that is an fp32 literal, directly or through one `mov`, else None."""
    if len(names) == 1:
        definitions = program.definitions.get(names[0], [])
        if len(definitions) == 1:
            statement = program.statements[definitions[0]]
            if statement.base == "mov" and not statement.guard:
                operand = statement.instruction.operands[-1]
    return operand.value if isinstance(operand, Immediate) and operand.kind == "f32" else None


def _division_edit(program: Program, index: int, division: Division) -> Edit:
    """Return the expansion of an approximate fp32 division; its last product is that of temporaries `a` and `r`."""
    statement = program.statements[index]
    steps = _EditBuilder(statement.instruction)
    result, numerator, divisor = statement.instruction.operands
    ftz = ".ftz" if "ftz" in statement.parts else ""
    a, b, r, t = (steps.temporary(letter, index) for letter in "abrt")
    p, q = (steps.temporary(letter, index, 1) for letter in "pq")
    if (literal := _literal(program, divisor, statement.sources[1])) is not None:
        value = struct.unpack("<f", struct.pack("<I", literal))[0]
        if value not in (0.0, float("inf"), float("-inf")) and value == value and abs(1 / value) < 3e38:
            inverse = struct.unpack("<I", struct.pack("<f", 1 / value))[0]
            steps.add("mov.b32", a, numerator)
            steps.add("mov.b32", r, _float_literal(inverse))
            steps.add(f"mul.rn{ftz}.f32", result, a, r)
            return steps.edit()
    large = division.large and "full" in statement.parts
    tiny = division.tiny and not ftz
    steps.add(f"abs{ftz}.f32" if division.absolute else "mov.b32", t, divisor)
    steps.add("mov.b32", b, divisor)
    if tiny and division.tiny_first:
        steps.add("setp.geu.f32", q, t, _float_literal(0x00800000))
    if large:
        steps.add(f"setp.gt{ftz}.f32", p, t, _float_literal(0x7E800000))
    if tiny and not division.tiny_first:
        steps.add("setp.geu.f32", q, t, _float_literal(0x00800000))
    for register in (b, a):
        if register is a:
            steps.add("rcp.approx.ftz.f32", r, b)
            steps.add("mov.b32", a, numerator)
        if large:
            steps.add(f"mul.rn{ftz}.f32", register, register, _float_literal(0x3E800000), guard=Guard(p.name))
        if tiny:
            scale = _float_literal(0x4B800000)
            steps.add("mul.rn.f32", register, register, scale, guard=Guard(q.name, negated=True))
    steps.add(f"mul.rn{ftz}.f32", result, a, r)
    return steps.edit()
