"""Random programs: dense samples of a few operations, and programs that differ in one operation from a given one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

from bitwise_bench.adversary.expressions import CONSTANT, LEAF, WIDTHS, Expression, constant, leaf, nodes, substituted
from bitwise_bench.adversary.instruction_sets.vocabulary import Spec, Vocabulary

LITERALS = {
    "f32": (0, 0x80000000, 0x3F800000, 0xBF800000, 0xFF800000, 0x7F800000, 0x40000000, 0x3F000000, 1, 0x477FE000,
            0x7FC00000),
    "f64": (0, 1 << 63, 0x3FF0000000000000, 0xBFF0000000000000, 0xFFF0000000000000, 0x4000000000000000),
    "f16": (0, 0x8000, 0x3C00, 0xBC00, 0xFC00, 0x7C00, 0x4000, 0x3800),
    "bf16": (0, 0x8000, 0x3F80, 0xBF80, 0xFF80, 0x7F80, 0x4000),
    "i32": (0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 2, 31, 32, 33, 63, 64, 256, 0xFFFF, 0xFFFF0000, 0x80008000),
    "i64": (0, 1, 2**64 - 1, 1 << 63, 63, 2**63 - 1, 0xFFFFFFFF),
    "i16": (0, 1, 0xFFFF, 0x8000, 0x7FFF, 2, 15),
    "h2": (0, 0x80008000, 0x3C003C00, 0xFC00FC00, 0x00008000),
    "b2": (0, 0x80008000, 0x3F803F80, 0xFF80FF80),
    "q2": (0, 0x8080, 0x3838, 0x7F7F),
    "p": (0, 1),
}  # fmt: skip
"""The bit patterns of the constants of each kind."""


@cache
def _of_width(bits: int) -> tuple[str, ...]:
    return tuple(kind for kind, width in WIDTHS.items() if width == bits)


class Pool:
    """A growing set of values from which operands are chosen.

    `retype` is the probability that an operand is a value of another kind of the same width.
    """

    def __init__(
        self, words: Vocabulary, dice: random.Random, kinds: Sequence[str], retype: float = 0.0, leaves: int = 2
    ) -> None:
        self.words, self.dice, self.retype = words, dice, retype
        self.values: dict[str, list[Expression]] = {}
        for kind in kinds:
            for number in range(min(leaves, words.leaves[kind][1])):
                self.add(leaf(f"{kind}.{number}", kind))

    def add(self, value: Expression) -> None:
        """Add a value."""
        self.values.setdefault(value.kind, []).append(value)

    def operand(self, kind: str) -> Expression | str | None:
        """Return an operand of a kind: an immediate, a constant or a value; None where there is none."""
        if kind.startswith("#"):
            return self.dice.choice(self.words.immediates[kind])
        kinds = _of_width(WIDTHS[kind]) if self.dice.random() < self.retype else (kind,)
        found = [value for each in kinds for value in self.values.get(each, ())]
        if not found or self.dice.random() < 0.22:
            return constant(self.dice.choice(LITERALS[kind]), kind)
        return self.dice.choice(found)

    def grow(self, specs: Sequence[Spec]) -> Expression | None:
        """Return the result of a random operation on values of the pool, None where an operand is missing."""
        spec = self.dice.choice(specs)
        operands = [self.operand(kind) for kind in spec.operands]
        given = tuple(each for each in operands if each is not None)
        if len(given) != len(operands) or all(isinstance(e, str) or e.opcode == CONSTANT for e in given):
            return None
        return Expression(spec.key, given, spec.result)


def family_group(words: Vocabulary, dice: random.Random) -> list[Spec]:
    """Return a few operations of a few families that work on common kinds."""
    names = sorted(words.families)
    first = dice.choice(names)
    kinds = {kind for spec in words.families[first] for kind in (*spec.operands, spec.result)}
    near = [name for name in names if any(s.result in kinds or set(s.operands) & kinds for s in words.families[name])]
    chosen = [first, *dice.sample(near, min(len(near), dice.randint(1, 4)))]
    found: list[Spec] = []
    for name in chosen:
        specs = words.families[name]
        found += dice.sample(specs, min(len(specs), dice.randint(1, 4)))
    return found


def kinds_of(words: Vocabulary, specs: Sequence[Spec], dice: random.Random) -> list[str]:
    """Return kinds of loaded values that these operations use, at most three."""
    kinds = sorted({kind for spec in specs for kind in spec.operands if kind in words.leaves})
    return dice.sample(kinds, min(len(kinds), 3)) if kinds else ["f32"]


def dense(words: Vocabulary, dice: random.Random, count: int, retype: float = 0.0) -> list[Expression]:
    """Return many small expressions over few operations and few values, so that many are equal functions."""
    specs = family_group(words, dice)
    pool = Pool(words, dice, kinds_of(words, specs, dice), retype, leaves=dice.randint(1, 2))
    found: list[Expression] = []
    for _ in range(4 * count):
        made = pool.grow(specs)
        if made is None or len(nodes(made)) > 9:
            continue
        found.append(made)
        if dice.random() < 0.5:
            pool.add(made)
        if len(found) == count:
            break
    return found


def seed_program(words: Vocabulary, dice: random.Random, retype: float = 0.0) -> Expression:
    """Return one expression of a few operations of mixed families."""
    for _ in range(50):
        specs = family_group(words, dice)
        pool = Pool(words, dice, kinds_of(words, specs, dice), retype)
        made: Expression | None = None
        for _ in range(dice.randint(2, 7)):
            value = pool.grow(specs)
            if value is not None and len(nodes(value)) <= 14:
                pool.add(value)
                made = value
        if made is not None and made.kind != "p":
            return made
    raise RuntimeError("no program was made in fifty attempts")


@cache
def _alike(specs: tuple[Spec, ...], key: str) -> tuple[Spec, ...]:
    """Return the operations with the operand and result widths of this one."""
    spec = next(each for each in specs if each.key == key)

    def shape(each: Spec) -> tuple[object, ...]:
        return tuple(WIDTHS.get(kind, kind) for kind in (*each.operands, each.result))

    found = [each for each in specs if each.key != key and shape(each) == shape(spec)]
    near = [each for each in found if each.family == spec.family]
    return tuple(near * 4 + found)


def mutated(words: Vocabulary, root: Expression, dice: random.Random) -> Expression:
    """Return the expression with one change: another operation, exchanged operands, or another operand."""
    inner = [node for node in nodes(root) if node.opcode not in (LEAF, CONSTANT)]
    if not inner:
        return root
    node = dice.choice(inner)
    choice = dice.random()
    operands = list(node.operands)
    places = [index for index, each in enumerate(operands) if isinstance(each, Expression)]
    if choice < 0.45:
        others = _alike(tuple(words.specs.values()), node.opcode)
        if not others:
            return root
        spec = dice.choice(others)
        made = Expression(spec.key, node.operands, node.kind)
    elif choice < 0.6 and len(places) > 1:
        first, second = dice.sample(places, 2)
        operands[first], operands[second] = operands[second], operands[first]
        swapped = all(
            isinstance(each, str) or WIDTHS[each.kind] == WIDTHS[kind]
            for each, kind in zip(operands, words.specs[node.opcode].operands, strict=True)
        )
        if not swapped:
            return root
        made = Expression(node.opcode, tuple(operands), node.kind)
    else:
        index = dice.randrange(len(operands))
        old = operands[index]
        kind = words.specs[node.opcode].operands[index]
        if isinstance(old, str):
            operands[index] = dice.choice(words.immediates[kind])
        elif choice < 0.8:
            operands[index] = constant(dice.choice(LITERALS[kind]), kind)
        else:
            alike = [each for each in nodes(root) if each.width == old.width and each is not node]
            alike = [each for each in alike if node not in nodes(each)]
            operands[index] = dice.choice(alike) if alike else old
        made = Expression(node.opcode, tuple(operands), node.kind)
    return substituted(root, node, made)
