"""Values that are equal but for the sign of a zero, in sums: what is merged is equal, and what differs is not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import Bits, operation

ZERO, MINUS_ZERO, ONE = 0, 0x80000000, 0x3F800000
PATTERNS = (
    ZERO,
    MINUS_ZERO,
    ONE,
    0xBF800000,
    1,
    0x80000001,
    0x00800000,
    0x1F800000,
    0x9F800000,
    0x7F800000,
    0x7FC00000,
)
"""Zeros, ones, the least numbers, numbers whose products underflow, an infinity, NaN."""


class Domain:
    """The domain of terms over five loads, of which a square is the last one's."""

    def __init__(self) -> None:
        self.terms = TermDomain()
        self.leaves = [self.terms.load(np.array([[1024 + 4 * place]], dtype=np.uint64), 32) for place in range(5)]

    def apply(self, name: str, *operands: Value) -> Value:
        return self.terms.floating(operation(f"{name}.rn.fp32" if name != "neg" else "neg.fp32"), operands)

    def number(self, pattern: int) -> Value:
        return np.full((1, 1), pattern, dtype=np.uint32)


def product(domain: Domain, left: int, right: int, fused: bool) -> Value:
    factors = domain.leaves[left], domain.leaves[right]
    return domain.apply("fma", *factors, domain.number(ZERO)) if fused else domain.apply("mul", *factors)


def key(value: Value) -> bytes:
    return full_hash(as_symbolic_vector(value)).tobytes()


@pytest.mark.parametrize(
    ("other", "equal"), [("+0", True), ("square", True), ("load", False), ("-0", False), ("product", False)]
)
def test_an_addend_plus_zero_of_a_product_has_no_effect_beside_what_is_not_minus_zero(other: str, equal: bool) -> None:
    domain = Domain()
    found = []
    for fused in (False, True):
        one, two = product(domain, 0, 1, fused), product(domain, 2, 3, fused)
        beside = {
            "+0": domain.number(ZERO),
            "-0": domain.number(MINUS_ZERO),
            "square": product(domain, 4, 4, fused),
            "load": domain.leaves[4],
            "product": product(domain, 3, 4, fused),
        }
        found.append(key(domain.apply("add", domain.apply("add", one, two), beside[other])))
    assert (found[0] == found[1]) is equal


def test_shared_memory_keeps_a_counterpart() -> None:
    found = []
    for fused in (False, True):
        domain = Domain()
        partial = as_symbolic_vector(domain.apply("add", product(domain, 0, 1, fused), product(domain, 2, 3, fused)))
        domain.terms.note_stored(partial)
        loaded = domain.terms.recalled(SymbolicVector(32, partial.words, partial.flags), None)
        found.append(key(domain.apply("add", loaded, domain.number(ZERO))))
    assert found[0] == found[1]


def test_a_negation_has_no_counterpart_of_its_operand() -> None:
    domain = Domain()
    plus = domain.number(ZERO)
    fused, plain = (domain.apply("add", product(domain, 0, 1, each), domain.leaves[2]) for each in (True, False))
    assert key(domain.apply("add", domain.apply("neg", fused), plus)) != key(domain.apply("add", plain, plus))


def drawn(source: random.Random, depth: int) -> tuple[object, ...]:
    """Return a random tree: a leaf (its number), a product of two leaves (`fused` or not), a sum or a negation."""
    if depth == 0 or source.random() < 0.2:
        if source.random() < 0.4:
            return ("leaf", source.randrange(7))
        return ("product", source.randrange(5), source.randrange(5), source.random() < 0.5)
    if source.random() < 0.15:
        return ("neg", drawn(source, depth - 1))
    return ("add", drawn(source, depth - 1), drawn(source, depth - 1))


def toggled(tree: tuple[object, ...]) -> tuple[object, ...]:
    """Return a tree with products fused with +0 where they were not, and the other way round."""
    if tree[0] == "product":
        return (*tree[:3], not tree[3])
    return tuple(toggled(each) if isinstance(each, tuple) else each for each in tree)


def built(domain: Domain, tree: tuple[object, ...]) -> Value:
    match tree:
        case ("leaf", int(place)):
            return domain.leaves[place] if place < 5 else domain.number((ZERO, MINUS_ZERO)[place - 5])
        case ("product", int(left), int(right), bool(fused)):
            return product(domain, left, right, fused)
        case (str(name), *below):
            return domain.apply(name, *(built(domain, each) for each in below if isinstance(each, tuple)))
    raise AssertionError(tree)


def evaluated(tree: tuple[object, ...], inputs: Bits) -> Bits:
    zeros = np.zeros_like(inputs[0])
    match tree:
        case ("leaf", int(place)):
            return inputs[place] if place < 5 else zeros + np.uint32((ZERO, MINUS_ZERO)[place - 5])
        case ("product", int(left), int(right), bool(fused)):
            factors = inputs[left], inputs[right]
            name = "fma.rn.fp32" if fused else "mul.rn.fp32"
            return np.asarray(operation(name).evaluate(*factors, *([zeros] if fused else [])))
        case (str(name), *below):
            operands = (evaluated(each, inputs) for each in below if isinstance(each, tuple))
            return np.asarray(operation("neg.fp32" if name == "neg" else f"{name}.rn.fp32").evaluate(*operands))
    raise AssertionError(tree)


def test_trees_of_one_hash_have_the_same_bits() -> None:
    source, domain = random.Random(7), Domain()
    inputs = np.random.default_rng(7).choice(np.array(PATTERNS, dtype=np.uint32), size=(5, 4000))
    merged = differing = 0
    for _ in range(600):
        tree = drawn(source, 3)
        both = (tree, toggled(tree))
        if key(built(domain, both[0])) != key(built(domain, both[1])):
            differing += 1
            continue
        merged += both[0] != both[1]
        bits = [evaluated(each, inputs) for each in both]
        same = (bits[0] == bits[1]) | (np.isnan(bits[0].view(np.float32)) & np.isnan(bits[1].view(np.float32)))
        assert same.all(), tree
    assert merged > 100
    assert differing > 100
