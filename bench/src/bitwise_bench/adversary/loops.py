"""PTX kernels with one loop: accumulators over loaded rows, and programs made from one by changes.

Each program is a kernel of its own: a thread reads `n` rows of two values, updates its accumulators by expressions, and
stores a result.  The number of rows is an argument, so that the analysis for every launch has to summarise the loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from bitwise_bench.adversary.expressions import (
    CONSTANT,
    LEAF,
    WIDTHS,
    Expression,
    constant,
    leaf,
    nodes,
    replaced,
    substituted,
)
from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.instruction_sets.ptx_kernel import THREADS, Registers, lines_of
from bitwise_bench.adversary.instruction_sets.ptx_vocabulary import LEAVES, PTX
from bitwise_bench.adversary.kernels import KernelText, Place
from bitwise_bench.adversary.pair_rounds import BLOCKS, Trial
from bitwise_bench.adversary.programs import STORES
from bitwise_bench.adversary.random_programs import LITERALS, mutated
from bitwise_bench.adversary.rewriting import Rule, chain
from bitwise_bench.adversary.scopes import Scope
from bitwise_bench.adversary.sources import Material
from bitwise_core.execution.launch import Argument

STORE_OF = {"f32": "fp32", "i32": "u32", "f16": "fp16", "f64": "fp64"}
"""The store of each kind of accumulator."""
ROWS = (3, 1, 2, 0, 6)
"""The numbers of rows for which programs that are Equal for every launch are executed, that of one launch first."""
_ROW_VALUES = LEAVES["f32"][1]


@dataclass(frozen=True, slots=True)
class LoopProgram:
    """A loop: the initial values of its accumulators, their updates, and the result.

    Updates and result use the accumulators `a.0`, `a.1` and the values of the row `x.0`, `x.1`; the result uses the
    row 0 for `x`.  `order`: rows `up`, `mirrored` (a descending counter, the same order of rows) or `down` (the reverse
    order of rows).  `test`: the loop is tested at its `top`, or at its `bottom` after a check.  `first`: the number of
    iterations before the loop.  `steps`: the rows of one iteration; the remaining ones follow in a second loop.
    """

    kind: str
    starts: tuple[Expression, ...]
    updates: tuple[Expression, ...]
    result: Expression
    order: str = "up"
    test: str = "bottom"
    first: int = 0
    steps: int = 1
    source: str = "loops"

    def text_key(self) -> str:
        """Return the program as text, without the names of registers."""
        shape = f"{self.order} {self.test} {self.first} {self.steps}"
        return f"{shape}: {self.starts} {self.updates} {self.result}"

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions of the program."""
        return (*self.starts, *self.updates, self.result)

    @property
    def language(self) -> Language:
        """The language."""
        return LANGUAGES["ptx"]

    @property
    def states_roundings(self) -> bool:
        """Every operation does."""
        return True

    def analysed_kernel(self) -> tuple[KernelText, int]:
        """See `WholeProgram.analysed_kernel`."""
        return loop_kernel(self, ROWS[0]), 1

    def trials(self, scope: Scope, seed: int) -> list[Trial]:
        """Return a launch for each number of rows; for one launch, only the first one."""
        found = []
        for rows in ROWS if scope.options.every_launch else ROWS[:1]:
            kernel = loop_kernel(self, rows)
            contents = self.language.inputs(kernel, BLOCKS, seed, finite=scope.finite)
            found.append(Trial(kernel, contents, f", {rows} rows"))
        return found

    def smaller(self, other: LoopProgram) -> Iterator[tuple[LoopProgram, LoopProgram]]:
        """See `WholeProgram.smaller`."""
        return _smaller(self, other)


def accumulator(kind: str, number: int) -> Expression:
    """Return the value of an accumulator before an iteration."""
    return leaf(f"a.{number}", kind)


def row_value(kind: str, number: int) -> Expression:
    """Return a loaded value of the row."""
    return leaf(f"x.{number}", kind)


class _Writer:
    """The instructions of one loop program."""

    def __init__(self, program: LoopProgram) -> None:
        self.program = program
        self.registers = Registers()
        self.lines: list[str] = []
        width = WIDTHS[program.kind]
        self.accumulators = [self.registers.take(width) for _ in program.starts]
        self.rows = [self.registers.take(width) for _ in range(2)]
        self.counter, self.limit, self.index = (self.registers.take(32) for _ in range(3))
        self.base, self.address, self.out = (self.registers.take(64) for _ in range(3))

    def known(self) -> dict[Expression, str]:
        kind = self.program.kind
        found = {accumulator(kind, number): name for number, name in enumerate(self.accumulators)}
        return found | {row_value(kind, number): name for number, name in enumerate(self.rows)}

    def load(self, row: str) -> None:
        """Load the values of the row whose number is in a register."""
        size = WIDTHS[self.program.kind] // 8
        self.lines.append(
            f"add.s32 {self.index}, %r3, {row}; mul.wide.s32 {self.address}, {self.index}, {size * _ROW_VALUES}; "
            f"add.s64 {self.address}, {self.base}, {self.address};"
        )
        for number, register in enumerate(self.rows):
            self.lines.append(f"ld.global.b{8 * size} {register}, [{self.address}+{size * number}];")

    def update(self) -> None:
        """Update all accumulators from their old values."""
        names = []
        before = dict(self.registers.next)
        for expression in self.program.updates:
            lines, name = lines_of(expression, self.known(), self.registers)
            self.lines += lines
            names.append(name)
        width = WIDTHS[self.program.kind]
        kept = [self.registers.take(width) for _ in names]
        self.lines += [f"mov.b{width} {to}, {name};" for to, name in zip(kept, names, strict=True)]
        self.lines += [f"mov.b{width} {to}, {name};" for to, name in zip(self.accumulators, kept, strict=True)]
        self.registers.next = before

    def iteration(self) -> None:
        """One row: load it and update."""
        order = self.program.order
        row = self.counter
        if order in ("mirrored", "down"):
            row = "%r0"
            # A mirrored counter falls while the rows rise; with `down` a rising counter gives falling rows.
            self.lines.append(f"sub.s32 %r0, {self.limit}, {self.counter}; add.s32 %r0, %r0, -1;")
        self.load(row)
        self.update()
        self.lines.append(f"add.s32 {self.counter}, {self.counter}, {-1 if order == 'mirrored' else 1};")

    def more(self, steps: int) -> str:
        """Set %p0 where at least `steps` rows remain."""
        if self.program.order == "mirrored":
            return f"setp.ge.s32 %p0, {self.counter}, {steps - 1};"
        return f"add.s32 %r0, {self.counter}, {steps - 1}; setp.lt.s32 %p0, %r0, {self.limit};"

    def loop(self, name: str, steps: int) -> None:
        if self.program.test == "top":
            self.lines += [f"{name}:", self.more(steps), f"@!%p0 bra {name}_END;"]
        else:
            self.lines += [self.more(steps), f"@!%p0 bra {name}_END;", f"{name}:"]
        for _ in range(steps):
            self.iteration()
        if self.program.test == "top":
            self.lines += [f"bra {name};", f"{name}_END:"]
        else:
            self.lines += [self.more(steps), f"@%p0 bra {name};", f"{name}_END:"]


def loop_kernel(program: LoopProgram, rows: int) -> KernelText:
    """Return the kernel of a program; a launch of it has `rows` rows."""
    writer = _Writer(program)
    kind, width = program.kind, WIDTHS[program.kind]
    store = STORES[STORE_OF[kind]]
    size = width // 8
    writer.lines.append(
        f"ld.param.u64 {writer.base}, [in_{kind}]; ld.param.u32 {writer.limit}, [n]; ld.param.u64 {writer.out}, "
        f"[{store.buffer}]; mul.wide.s32 %d1, %r3, {size}; add.s64 {writer.out}, {writer.out}, %d1; "
        f"mul.lo.s32 %r3, %r3, {writer.limit};"
    )
    for register, start in zip(writer.accumulators, program.starts, strict=True):
        lines, name = lines_of(start, writer.known(), writer.registers)
        writer.lines += [*lines, f"mov.b{width} {register}, {name};"]
    if program.order == "mirrored":
        writer.lines.append(f"add.s32 {writer.counter}, {writer.limit}, -1;")
    else:
        writer.lines.append(f"mov.b32 {writer.counter}, 0;")
    for number in range(program.first):
        writer.lines += [writer.more(1), f"@!%p0 bra FIRST{number};"]
        writer.iteration()
        writer.lines.append(f"FIRST{number}:")
    if program.steps > 1:
        writer.loop("LOOP", program.steps)
        writer.loop("REST", 1)
    else:
        writer.loop("LOOP", 1)
    lines, result = lines_of(program.result, writer.known(), writer.registers)
    writer.lines += [*lines, f"st.global.b{width} [{writer.out}], {result};"]
    text = writer.registers.kernel(
        [f".param .u64 .ptr .global .align 8 in_{kind}", f".param .u64 .ptr .global .align 8 {store.buffer}",
         ".param .u32 n"],
        writer.lines,
    )  # fmt: skip
    crosses = any(
        PTX.specs[node.opcode].crosses
        for expression in program.expressions
        for node in nodes(expression)
        if node.opcode not in (LEAF, CONSTANT)
    )
    place = Place(store.buffer, 0, size, crosses)
    argument = Argument(kind="i32", value=rows)
    return KernelText(
        text, (place,), (kind,), {store.buffer: 1}, LEAVES, THREADS, "kernel.ptx", (argument,), max(1, rows)
    )


_VERBS = {
    "f32": ("add.rn.f32", "add.rn.f32", "fma.rn.f32", "max.f32", "min.NaN.f32", "mul.rn.f32", "sub.rn.f32"),
    "f64": ("add.rn.f64", "fma.rn.f64", "max.f64"),
    "f16": ("add.rn.f16", "fma.rn.f16", "max.f16", "max.NaN.f16"),
    "i32": ("add.s32", "mad.lo.s32", "max.s32", "min.u32", "xor.b32", "or.b32", "mul.lo.s32", "sub.s32", "add.s32"),
}


def _random_update(kind: str, number: int, count: int, dice: random.Random) -> Expression:
    """Return an update that uses its own accumulator once, and others of a smaller number."""

    def value(depth: int) -> Expression:
        choices: list[Callable[[], Expression]] = [
            lambda: row_value(kind, dice.randrange(2)),
            lambda: row_value(kind, 0),
            lambda: constant(dice.choice(LITERALS[kind]), kind),
        ]
        if number:
            choices.append(lambda: accumulator(kind, dice.randrange(number)))
        if depth:
            choices.append(lambda: operation(value(depth - 1), value(depth - 1), value(depth - 1)))
        return dice.choice(choices)()

    def operation(*operands: Expression) -> Expression:
        spec = PTX.specs[dice.choice(_VERBS[kind])]
        return Expression(spec.key, operands[: len(spec.operands)], kind)

    spec = PTX.specs[dice.choice(_VERBS[kind])]
    operands = [value(2) for _ in spec.operands]
    operands[dice.randrange(len(operands)) if dice.random() < 0.3 else -1] = accumulator(kind, number)
    return Expression(spec.key, tuple(operands), kind)


def _random_loop(dice: random.Random) -> LoopProgram:
    kind = dice.choice(("f32", "f32", "f32", "i32", "i32", "f16", "f64"))
    count = dice.choice((1, 1, 2))
    starts = tuple(constant(dice.choice(LITERALS[kind][:6]), kind) for _ in range(count))
    updates = tuple(_random_update(kind, number, count, dice) for number in range(count))
    result = accumulator(kind, count - 1)
    if count == 2 or dice.random() < 0.4:
        spec = PTX.specs[dice.choice(_VERBS[kind])]
        values = [accumulator(kind, dice.randrange(count)) for _ in spec.operands]
        result = Expression(spec.key, tuple(values), kind)
    return LoopProgram(kind, starts, updates, result)


def _exchanged(program: LoopProgram) -> LoopProgram:
    """Return the program with its two accumulators in the other order."""
    kind = program.kind
    names = {accumulator(kind, 0): accumulator(kind, 1), accumulator(kind, 1): accumulator(kind, 0)}

    def renamed(expression: Expression) -> Expression:
        return replaced(expression, names.get)

    return replace(
        program, starts=program.starts[::-1], updates=tuple(map(renamed, program.updates[::-1])),
        result=renamed(program.result),
    )  # fmt: skip


def loops(of: Material, dice: random.Random, count: int) -> list[LoopProgram]:
    """Return a loop and programs made from it by rewriting, mutation and other shapes of the loop."""
    root = _random_loop(dice)
    rules = dice.sample(of.identities, min(400, len(of.identities)))
    near = dice.sample(of.near_misses, min(200, len(of.near_misses)))
    found = [root]
    for _ in range(count):
        made = dice.choice(found) if dice.random() < 0.3 else root
        for _ in range(dice.randint(1, 2)):
            made = _changed(made, rules, near, dice)
        found.append(made)
    texts: dict[str, LoopProgram] = {}
    for each in found:
        if sum(len(nodes(expression)) for expression in each.expressions) <= 60:
            texts.setdefault(each.text_key(), each)
    return list(texts.values())


def _changed(program: LoopProgram, rules: list[Rule], near: list[Rule], dice: random.Random) -> LoopProgram:
    choice = dice.random()
    if choice < 0.12:
        return replace(program, test="top" if program.test == "bottom" else "bottom")
    if choice < 0.22:
        return replace(program, order=dice.choice(("up", "mirrored", "mirrored", "down")))
    if choice < 0.3:
        return replace(program, first=dice.choice((0, 1, 2)))
    if choice < 0.38:
        return replace(program, steps=dice.choice((1, 2, 3)))
    if choice < 0.48 and len(program.starts) == 2:
        return _exchanged(program)
    if choice < 0.56:
        starts = list(program.starts)
        starts[dice.randrange(len(starts))] = constant(dice.choice(LITERALS[program.kind][:6]), program.kind)
        return replace(program, starts=tuple(starts))

    def change(expression: Expression) -> Expression:
        kind = dice.random()
        if kind < 0.6:
            return chain(expression, rules, dice.randint(1, 2), dice)
        if kind < 0.8:
            return chain(expression, near, 1, dice)
        made = mutated(PTX, expression, dice)
        return made if made.kind == expression.kind else expression

    if choice < 0.7:
        return replace(program, result=change(program.result))
    updates = list(program.updates)
    place = dice.randrange(len(updates))
    updates[place] = change(updates[place])
    return replace(program, updates=tuple(updates))


def _smaller(left: LoopProgram, right: LoopProgram) -> Iterator[tuple[LoopProgram, LoopProgram]]:
    """Yield pairs of plainer loops, and of loops with smaller expressions."""
    plainer: tuple[dict[str, Any], ...] = ({"order": "up"}, {"test": "bottom"}, {"first": 0}, {"steps": 1})
    for shape in plainer:
        plain = [replace(each, **shape) for each in (left, right)]
        if plain[0] != left and plain[1] != right:
            yield plain[0], plain[1]
        if plain[0] != left:
            yield plain[0], right
        if plain[1] != right:
            yield left, plain[1]
    for node in {node for each in left.expressions for node in nodes(each)}:
        for made in node.inner:
            if made.width == node.width:
                first, second = (_substituted(each, node, made) for each in (left, right))
                if first != left and second != right:
                    yield first, second
    for number, program in enumerate((left, right)):
        for node in {node for each in program.expressions for node in nodes(each)}:
            for made in node.inner:
                if made.width == node.width:
                    changed = _substituted(program, node, made)
                    yield (changed, right) if number == 0 else (left, changed)


def _substituted(program: LoopProgram, old: Expression, new: Expression) -> LoopProgram:
    return replace(
        program,
        updates=tuple(substituted(each, old, new) for each in program.updates),
        result=substituted(program.result, old, new),
    )
