"""The sources of programs: each returns programs that compute the same, or nearly the same, from a few values."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from bitwise_bench.adversary import random_programs
from bitwise_bench.adversary.expressions import LEAF, Expression, nodes
from bitwise_bench.adversary.instruction_sets.vocabulary import Vocabulary
from bitwise_bench.adversary.programs import Program, Store
from bitwise_bench.adversary.rewriting import Rule, applications, chain, rewritten

Source: TypeAlias = Callable[["Material", random.Random, int], list[Program]]


@dataclass(frozen=True)
class Material:
    """What programs of a language are made of: its operations, the rules that hold, the near-misses, its stores."""

    words: Vocabulary
    identities: tuple[Rule, ...]
    near_misses: tuple[Rule, ...]
    stores: Mapping[str, Store]


def store_of(of: Material, width: int, kind: str, dice: random.Random, *, other: bool) -> str | None:
    """Return the key of a store of this width, mostly in the kind's own element type; None where there is none."""
    own = {"f32": "fp32", "i32": "u32", "f16": "fp16", "bf16": "bf16", "i16": "u16", "f64": "fp64", "i64": "u64",
           "h2": "fp16x2", "b2": "bf16x2", "q2": "u16"}  # fmt: skip
    every = sorted(key for key, store in of.stores.items() if store.bits == width)
    if not every:
        return None
    return dice.choice(every) if other or kind not in own or dice.random() < 0.1 else own[kind]


def _stored(
    of: Material, roots: list[Expression], dice: random.Random, source: str, *, other: bool = False
) -> list[Program]:
    """Return programs that store these expressions, those of one kind in one way."""
    stores: dict[str, str | None] = {}
    found = []
    for root in roots:
        if root.kind == "p":
            root = Expression("selp i32", (root_number(1), root_number(2), root), "i32")
        if root.kind not in stores:
            stores[root.kind] = store_of(of, root.width, root.kind, dice, other=other)
        key = stores[root.kind]
        if key is not None and root.opcode != LEAF:
            found.append(Program(root, key, source))
    return found


def root_number(number: int) -> Expression:
    """Return an integer constant."""
    return Expression("constant", (hex(number),), "i32")


def dense(of: Material, dice: random.Random, count: int) -> list[Program]:
    """Return many small programs over few operations and values."""
    return _stored(of, random_programs.dense(of.words, dice, count), dice, "random programs")


def retyped(of: Material, dice: random.Random, count: int) -> list[Program]:
    """Return small programs that use values as other types, and store them in buffers of other types."""
    roots = random_programs.dense(of.words, dice, count, retype=0.35)
    return _stored(of, roots, dice, "registers used as another type", other=True)


def one_rewriting(of: Material, dice: random.Random, count: int) -> list[Program]:
    """Return a program, and programs that differ from it by one identity or near-miss."""
    root = random_programs.seed_program(of.words, dice)
    found = [root]
    for table in (of.identities, of.near_misses):
        places = applications(root, table)
        dice.shuffle(places)
        found += [rewritten(root, *place) for place in places[: count // 2]]
    return _stored(of, _small(found), dice, "one rewriting")


def rewritings(of: Material, dice: random.Random, count: int) -> list[Program]:
    """Return a program, and programs that several rewritings made of it; a tenth also have a near-miss."""
    root = random_programs.seed_program(of.words, dice, retype=dice.choice((0.0, 0.0, 0.2)))
    # A few rules at a time: their combinations recur, and matching them is fast.
    chosen = _some(of.identities, 250, dice)
    found = [root]
    for _ in range(count):
        made = chain(root, chosen, dice.randint(1, 4), dice)
        if dice.random() < 0.1:
            made = chain(made, _some(of.near_misses, 120, dice), 1, dice)
        found.append(made)
    return _stored(of, _small(found), dice, "several rewritings")


def mutants(of: Material, dice: random.Random, count: int) -> list[Program]:
    """Return a program, its mutants, and rewritings of these."""
    root = random_programs.seed_program(of.words, dice, retype=dice.choice((0.0, 0.3)))
    chosen = _some(of.identities, 250, dice)
    found = [root]
    for _ in range(count):
        made = random_programs.mutated(of.words, dice.choice(found) if dice.random() < 0.3 else root, dice)
        found.append(chain(made, chosen, 1, dice) if dice.random() < 0.4 else made)
    return _stored(of, _small(found), dice, "mutants of programs", other=dice.random() < 0.3)


def punned(of: Material, dice: random.Random, count: int) -> list[Program]:
    """Return rewritings of a program by rules for other types of the same width, stored in other types."""
    root = random_programs.seed_program(of.words, dice, retype=0.5)
    chosen = _some((*of.identities, *of.near_misses), 350, dice)
    found = [root]
    found += [chain(root, chosen, dice.randint(1, 3), dice, retyped=True) for _ in range(count)]
    return _stored(of, _small(found), dice, "registers used as another type", other=True)


def _some(table: tuple[Rule, ...], count: int, dice: random.Random) -> list[Rule]:
    return dice.sample(table, min(count, len(table)))


def _small(roots: list[Expression]) -> list[Expression]:
    return [root for root in roots if len(nodes(root)) <= 32]


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "dense": dense,
        "retyped": retyped,
        "one rewriting": one_rewriting,
        "rewritings": rewritings,
        "mutants": mutants,
        "punned": punned,
    }
)
"""The sources by name."""
