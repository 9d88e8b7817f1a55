"""Whether the expression of an operation has the bits of the vocabulary's function, on special and random patterns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs.encoding import encode_operation
from bitwise_bench.proofs.vectors import patterns
from bitwise_core.numerics import Operation, operation

VECTORS = 300
"""Patterns of each operand."""


class Unfaithful(ValueError):
    """An expression and the function that it stands for differ: the message names the operation and the operands."""


def check(meaning: Operation, count: int = VECTORS, seed: int = 0) -> None:
    """Compare the expression of an operation with its function.  Raises Unfaithful where they differ."""
    generator = np.random.default_rng([seed, *meaning.name.encode()])
    arrays = [patterns(form, count, generator) for form in meaning.operands]
    expected = meaning.evaluate(*arrays)
    names = [f"operand{place}" for place in range(meaning.arity)]
    bv.forget()
    operands = tuple(bv.variable(name, form.bits) for name, form in zip(names, meaning.operands, strict=True))
    found = bv.evaluate(encode_operation(meaning, operands), dict(zip(names, arrays, strict=True)))
    wrong = np.flatnonzero(expected.astype(np.uint64) != found.astype(np.uint64))
    if wrong.size:
        at = wrong[0]
        given = ", ".join(f"{int(array[at]):#x}" for array in arrays)
        raise Unfaithful(
            f"the expression of {meaning.name} gives {int(found[at]):#x} for {given}, "
            f"its function {int(expected[at]):#x}"
        )


def check_all(names: Sequence[str], count: int = VECTORS) -> None:
    """Compare the expressions of operations with their functions.  Raises Unfaithful for the first that differs."""
    for name in names:
        check(operation(name), count)
