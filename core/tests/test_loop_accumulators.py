"""Loops whose accumulators depend on one another: named in that order, each by the fold of those before it."""

from __future__ import annotations

import pytest
from every_launch import kernel, same_at, signature, symbolic

from bitwise_core.machine.domain import Unreadable

HEAD = """	mul.wide.s32 %rd5, %r4, 4;
	add.s64 %rd6, %rd1, %rd5;
	mov.b32 %r6, 0;
{starts}	setp.lt.s32 %p1, %r1, 1;
	@%p1 bra $done;
$turn:
	mul.wide.s32 %rd7, %r6, 128;
	add.s64 %rd8, %rd6, %rd7;
	ld.global.b32 %r8, [%rd8];
{turn}	add.s32 %r6, %r6, 1;
	setp.lt.s32 %p3, %r6, %r1;
	@%p3 bra $turn;
$done:
{after}	add.s64 %rd9, %rd2, %rd5;
	st.global.b32 [%rd9], %r50;
"""
STARTS = """	mov.b32 %r20, 0fFF800000;
	mov.b32 %r21, 0f00000000;
	mov.b32 %r22, 0f00000000;
"""
ONLINE = """	max.f32 %r30, %r20, %r8;
	sub.rn.f32 %r31, %r20, %r30;
	ex2.approx.f32 %r32, %r31;
	sub.rn.f32 %r33, %r8, %r30;
	ex2.approx.f32 %r34, %r33;
	fma.rn.f32 %r21, %r21, %r32, %r34;
	mul.rn.f32 %r35, %r34, %r8;
	fma.rn.f32 %r22, %r22, %r32, %r35;
	mov.b32 %r20, %r30;
"""
"""A softmax in one pass: the largest number so far, the sum of weights, and the weighted sum."""
AFTER = "\tdiv.rn.f32 %r40, %r22, %r21;\n\tadd.rn.f32 %r50, %r40, %r20;\n"


def loop(turn: str = ONLINE, *, starts: str = STARTS, after: str = AFTER) -> str:
    """32 threads, each over n numbers."""
    return kernel(HEAD.format(starts=starts, turn=turn, after=after), 32)


def test_accumulators_in_any_order_under_any_names() -> None:
    first = loop()
    names = {"%r20": "%r22", "%r22": "%r21", "%r21": "%r20"}
    other = "".join(names.get(part, part) for part in _parts(ONLINE))
    after = "".join(names.get(part, part) for part in _parts(AFTER))
    second = loop(
        other, starts=STARTS.replace("%r20", "%r0").replace("%r22", "%r20").replace("%r0", "%r22"), after=after
    )
    assert symbolic(first) == symbolic(second)
    assert all(same_at(first, second, (1, 1), n, 0) for n in (0, 1, 2, 5))


def _parts(text: str) -> list[str]:
    found = [""]
    for character in text:
        if character == "%" or (found[-1].startswith("%") and not character.isalnum()):
            found.append("")
        found[-1] += character
    return found


def test_what_a_turn_leaves_is_what_the_next_one_starts_from() -> None:
    copied = ONLINE.replace("\tmov.b32 %r20, %r30;\n", "\tmov.b32 %r36, %r30;\n\tmov.b32 %r20, %r36;\n")
    starts, copy = STARTS + "\tmov.b32 %r36, 0fFF800000;\n", "\tmov.b32 %r50, %r36;\n"
    first, second = loop(after="\tmov.b32 %r50, %r20;\n"), loop(copied, starts=starts, after=copy)
    assert symbolic(first) == symbolic(second)
    assert all(same_at(first, second, (1, 1), n, 0) for n in (0, 1, 3))
    other = loop(copied, starts=STARTS + "\tmov.b32 %r36, 0f00000000;\n", after=copy)
    assert not same_at(first, other, (1, 1), 0, 0)
    assert signature(first) != signature(other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sub.rn.f32 %r33, %r8, %r30", "sub.rn.f32 %r33, %r8, %r20"),
        ("sub.rn.f32 %r31, %r20, %r30", "sub.rn.f32 %r31, %r20, %r8"),
        ("fma.rn.f32 %r22, %r22, %r32, %r35", "fma.rn.f32 %r22, %r22, %r34, %r35"),
        ("fma.rn.f32 %r22, %r22, %r32, %r35", "fma.rn.f32 %r22, %r21, %r32, %r35"),
        ("fma.rn.f32 %r22, %r22, %r32, %r35", "fma.rn.f32 %r22, %r35, %r32, %r22"),
        ("mov.b32 %r20, %r30", "mov.b32 %r20, %r8"),
    ],
)
def test_another_dependence_is_another_function(before: str, after: str) -> None:
    first, second = loop(), loop(ONLINE.replace(before, after))
    assert before in ONLINE
    assert not same_at(first, second, (1, 1), 3, 0)
    assert signature(first) != signature(second)


@pytest.mark.parametrize("after", ["\tmov.b32 %r50, %r22;\n", "\tmov.b32 %r50, %r21;\n"])
def test_where_an_accumulator_starts_matters_to_those_that_depend_on_it(after: str) -> None:
    first, second = loop(after=after), loop(starts=STARTS.replace("0fFF800000", "0f00000000"), after=after)
    assert not same_at(first, second, (1, 1), 2, 0)
    assert signature(first) != signature(second)


def test_two_accumulators_of_one_step_and_two_starts() -> None:
    """Both take the same step, so only the registers say which of them a copy holds."""
    turn = "\tadd.rn.f32 %r20, %r20, %r8;\n\tadd.rn.f32 %r21, %r21, %r8;\n\tmov.b32 %r30, {};\n"
    starts = "\tmov.b32 %r20, 0f3F800000;\n\tmov.b32 %r21, 0f40000000;\n\tmov.b32 %r30, 0f00000000;\n"
    first, second = (
        loop(turn.format(each), starts=starts, after="\tmov.b32 %r50, %r30;\n") for each in ("%r20", "%r21")
    )
    assert not same_at(first, second, (1, 1), 2, 0)
    assert symbolic(first) != symbolic(second)


FOLLOWING = """	add.rn.f32 %r20, %r20, %r8;
	shfl.sync.bfly.b32 %r30, %r20, {distance}, 31, -1;
	add.rn.f32 %r21, %r21, %r30;
"""


def test_an_accumulator_that_sees_another_one_in_other_threads() -> None:
    after = "\tmov.b32 %r50, %r21;\n"
    first, second = (loop(FOLLOWING.format(distance=distance), after=after) for distance in (1, 2))
    shared = FOLLOWING.format(distance=1).replace("%r30, %r20", "%r31, %r20").replace("%r21, %r30", "%r21, %r31")
    assert symbolic(first) == symbolic(loop(shared, after=after))
    assert not same_at(first, second, (1, 1), 2, 0)
    assert symbolic(first) != symbolic(second)


def test_an_accumulator_that_sees_itself_in_other_threads_is_not_read_further() -> None:
    turn = "\tshfl.sync.bfly.b32 %r30, %r20, 1, 31, -1;\n\tadd.rn.f32 %r20, %r20, %r30;\n"
    with pytest.raises(Unreadable, match="seen by other threads"):
        symbolic(loop(turn))


def test_accumulators_in_a_circle_are_not_read_further() -> None:
    turn = "\tadd.rn.f32 %r21, %r21, %r20;\n\tadd.rn.f32 %r20, %r20, %r21;\n"
    with pytest.raises(Unreadable, match="in a circle"):
        symbolic(loop(turn))


def test_a_register_that_a_turn_overwrites_before_it_matters() -> None:
    """The guarded instruction reads what it may leave, and all threads overwrite it."""
    guarded = "\tsetp.ge.s32 %p4, %r4, 0;\n\t@%p4 mov.b32 %r36, %r8;\n"
    turn = guarded + ONLINE.replace("%r8", "%r36")
    first, second = loop(), loop(turn)
    assert symbolic(first) == symbolic(second)
    some = turn.replace("%r4, 0", "%r4, 1")
    with pytest.raises(Unreadable, match="nothing has written"):
        symbolic(loop(some))
