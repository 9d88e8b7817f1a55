"""What is Equal for every launch, or by the symmetry of blocks, is Equal where all blocks are executed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from bitwise_bench import scope_agreement
from bitwise_core.checker.parametric import values
from bitwise_core.checker.verdicts import Outcome


def test_verdicts_agree() -> None:
    dice = random.Random(3)
    counts: Counter[str] = Counter()
    for _ in range(8):
        first = scope_agreement.program(dice)
        left, right = first.source("left"), scope_agreement.changed(first, dice).source("right")
        found = scope_agreement.verdicts(left, right)
        assert not scope_agreement.disagree(*found), f"{found}\n{left.text}\n{right.text}"
        counts.update(f"{place} {each.outcome.value}" for place, each in enumerate(found))
    assert counts["0 equal"]
    assert counts["1 equal"] + counts["2 equal"]


def test_a_flag_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits of a NaN that the assembler decides, in a sum with the index of the block."""
    program = scope_agreement.Program(
        ("ld.global.b32 %f0, [%d1]; max.f32 %f1, %f0, %f0; xor.b32 %f0, %f1, %bx;",),
        scope_agreement.PLACES[0].format(x=5),
        "",
        (5, 3),
        1,
    )
    other = replace(program, slots=("mov.b32 %f3, 1;", *program.slots))
    found = scope_agreement.verdicts(program.source("left"), other.source("right"))
    assert not scope_agreement.disagree(*found)
    monkeypatch.setattr(values, "nan_bits", lambda lanes: 0)
    full, symmetric, every = scope_agreement.verdicts(program.source("left"), other.source("right"))
    assert every.outcome is Outcome.EQUAL
    assert scope_agreement.disagree(full, symmetric, every)


@pytest.mark.parametrize(("shift", "agrees"), [("shr.u32", False), ("shr.s32", True)])
def test_a_logical_shift_of_a_negative_index_is_no_quotient(shift: str, agrees: bool) -> None:
    slots = "sub.s32 %i0, %by, 64;", "shl.b32 %i0, %i0, 8;", f"{shift} %i0, %i0, 8;", "mov.b32 %f0, %i0;"
    left = scope_agreement.Program(slots, scope_agreement.PLACES[0].format(x=5), "", (5, 3), 1)
    right = replace(left, slots=(slots[0], slots[3]))
    found = scope_agreement.verdicts(left.source("left"), right.source("right"))
    assert not scope_agreement.disagree(*found)
    assert [each.outcome is Outcome.EQUAL for each in (found[0], found[2])] == [agrees, agrees]
