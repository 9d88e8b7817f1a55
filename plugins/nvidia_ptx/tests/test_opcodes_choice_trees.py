# ruff: noqa: E501 - a line of PTX is read as one
"""Selects between constants, nested: an operation on them has one form before and behind the selects."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.values.integers.choice_trees import MAXIMUM
from ptx_programs import hashes, simulated, store

LOADS = (
    "mul.wide.u32 %d5, %r0, 16; add.s64 %d5, %d1, %d5; ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d5+4]; ld.global.f32 %f3, [%d5+8];"
    "setp.gt.f32 %p1, %f1, 0f00000000; setp.gt.f32 %p2, %f2, %f1; setp.lt.f32 %p3, %f3, %f2; shl.b32 %r10, %r0, 3;"
)
TREE = "selp.b32 %r1, 1, 0, %p1; selp.b32 %r2, 2, %r1, %p2; selp.b32 %r3, 3, %r2, %p3;"
ALIKE = {
    "a sum": (
        "add.s32 %r9, %r3, 40;",
        "selp.b32 %r1, 41, 40, %p1; selp.b32 %r2, 42, %r1, %p2; selp.b32 %r9, 43, %r2, %p3;",
    ),
    "a base of each thread": (
        "or.b32 %r9, %r3, %r10;",
        "or.b32 %r4, %r10, 1; or.b32 %r5, %r10, 2; or.b32 %r6, %r10, 3; selp.b32 %r1, %r4, %r10, %p1; selp.b32 %r2, %r5, %r1, %p2; selp.b32 %r9, %r6, %r2, %p3;",
    ),
    "a base below one select": (
        "selp.b32 %r1, 1, 0, %p1; or.b32 %r9, %r1, %r10;",
        "or.b32 %r4, %r10, 1; selp.b32 %r9, %r4, %r10, %p1;",
    ),
}  # fmt: skip
UNLIKE = {
    "another number": ("add.s32 %r9, %r3, 40;", "add.s32 %r9, %r3, 41;"),
    "another leaf": ("add.s32 %r9, %r3, 0;", "selp.b32 %r2, 5, %r1, %p2; selp.b32 %r9, 3, %r2, %p3;"),
    "another condition": ("add.s32 %r9, %r3, 1;", "selp.b32 %r3, 3, %r2, %p1; add.s32 %r9, %r3, 1;"),
    "another lane": (
        "shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; add.s32 %r9, %r4, 7;",
        "shfl.sync.bfly.b32 %r4, %r3, 2, 31, -1; add.s32 %r9, %r4, 7;",
    ),
}  # fmt: skip
EVERY = [*ALIKE.values(), *UNLIKE.values()]


def form(code: str) -> dict[int, tuple[int, int, int]]:
    return hashes(" ".join((LOADS, TREE, code, store("%r9", 32))))


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
def test_an_operation_has_one_form(one: str, other: str) -> None:
    assert form(one) == form(other)


@pytest.mark.parametrize(("one", "other"), UNLIKE.values(), ids=UNLIKE)
def test_other_operations_differ(one: str, other: str) -> None:
    assert form(one) != form(other)


@pytest.mark.parametrize(("one", "other"), EVERY)
def test_forms_are_as_the_bytes(one: str, other: str) -> None:
    generator = np.random.default_rng(5)
    numbers = np.array([0.0, -1.0, 1.0, 2.0, np.nan, np.inf], dtype=np.float32)
    contents = [{"out": np.zeros(128, np.uint8), "in": generator.choice(numbers, 128).view(np.uint8)} for _ in range(8)]
    found = [simulated(" ".join((LOADS, TREE, code, store("%r9", 32))), contents) for code in (one, other)]
    assert (found[0] == found[1]) == (form(one) == form(other))


def test_a_large_tree_is_a_term() -> None:
    """The selects are kept up to a number; beyond it the operation is one on the term."""
    selects = "".join(f"selp.b32 %r3, {each}, %r3, %p{each % 3 + 1};" for each in range(4, MAXIMUM + 6))
    assert form(f"{selects} add.s32 %r9, %r3, 1;") == form(f"{selects} mov.b32 %r4, %r3; add.s32 %r9, %r4, 1;")
