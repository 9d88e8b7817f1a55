"""Loops whose accumulators depend on each other, in topological order of the dependences."""

from __future__ import annotations

import pytest
from parametric_kernels import equal_at_launch, kernel, parametric_function, signature

from bitwise_core.execution.domains.domain import Unsupported

HEAD = """	mul.wide.s32 %rd5, %r4, 4;
	add.s64 %rd6, %rd1, %rd5;
	mov.b32 %r6, 0;
{starts}	setp.lt.s32 %p1, %r1, 1;
	@%p1 bra $done;
$loop:
	mul.wide.s32 %rd7, %r6, 128;
	add.s64 %rd8, %rd6, %rd7;
	ld.global.b32 %r8, [%rd8];
{iteration}	add.s32 %r6, %r6, 1;
	setp.lt.s32 %p3, %r6, %r1;
	@%p3 bra $loop;
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
"""A softmax in one pass: the running maximum, the sum of weights, and the weighted sum."""
AFTER = "\tdiv.rn.f32 %r40, %r22, %r21;\n\tadd.rn.f32 %r50, %r40, %r20;\n"


def loop(iteration: str = ONLINE, *, starts: str = STARTS, after: str = AFTER) -> str:
    """A loop of 32 threads, each over n numbers."""
    return kernel(HEAD.format(starts=starts, iteration=iteration, after=after), 32)


def test_register_names_and_order_do_not_change_the_function() -> None:
    first = loop()
    names = {"%r20": "%r22", "%r22": "%r21", "%r21": "%r20"}
    other = "".join(names.get(part, part) for part in _split_registers(ONLINE))
    after = "".join(names.get(part, part) for part in _split_registers(AFTER))
    second = loop(
        other, starts=STARTS.replace("%r20", "%r0").replace("%r22", "%r20").replace("%r0", "%r22"), after=after
    )
    assert parametric_function(first) == parametric_function(second)
    assert all(equal_at_launch(first, second, (1, 1), n, 0) for n in (0, 1, 2, 5))


def _split_registers(text: str) -> list[str]:
    found = [""]
    for character in text:
        if character == "%" or (found[-1].startswith("%") and not character.isalnum()):
            found.append("")
        found[-1] += character
    return found


def test_a_copy_of_an_accumulator_is_the_accumulator() -> None:
    copied = ONLINE.replace("\tmov.b32 %r20, %r30;\n", "\tmov.b32 %r36, %r30;\n\tmov.b32 %r20, %r36;\n")
    starts, copy = STARTS + "\tmov.b32 %r36, 0fFF800000;\n", "\tmov.b32 %r50, %r36;\n"
    first, second = loop(after="\tmov.b32 %r50, %r20;\n"), loop(copied, starts=starts, after=copy)
    assert parametric_function(first) == parametric_function(second)
    assert all(equal_at_launch(first, second, (1, 1), n, 0) for n in (0, 1, 3))
    other = loop(copied, starts=STARTS + "\tmov.b32 %r36, 0f00000000;\n", after=copy)
    assert not equal_at_launch(first, other, (1, 1), 0, 0)
    assert signature(first) != signature(other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sub.rn.f32 %r33, %r8, %r30", "sub.rn.f32 %r33, %r8, %r20"),
        ("sub.rn.f32 %r31, %r20, %r30", "sub.rn.f32 %r31, %r20, %r8"),
        ("fma.rn.f32 %r22, %r22, %r32, %r35", "fma.rn.f32 %r22, %r22, %r34, %r35"),
        ("fma.rn.f32 %r22, %r22, %r32, %r35", "fma.rn.f32 %r22, %r21, %r32, %r35"),
        ("fma.rn.f32 %r22, %r22, %r32, %r35", "fma.rn.f32 %r22, %r35, %r32, %r22"),
        ("mov.b32 %r20, %r30", "add.rn.f32 %r20, %r30, %r8"),
    ],
)
def test_different_dependences_differ(before: str, after: str) -> None:
    first, second = loop(), loop(ONLINE.replace(before, after))
    assert before in ONLINE
    assert not equal_at_launch(first, second, (1, 1), 3, 0)
    assert signature(first) != signature(second)


@pytest.mark.parametrize("after", ["\tmov.b32 %r50, %r22;\n", "\tmov.b32 %r50, %r21;\n"])
def test_the_initial_value_of_an_accumulator_changes_dependent_ones(after: str) -> None:
    first, second = loop(after=after), loop(starts=STARTS.replace("0fFF800000", "0f00000000"), after=after)
    assert not equal_at_launch(first, second, (1, 1), 2, 0)
    assert signature(first) != signature(second)


def test_equal_steps_with_different_initial_values_differ() -> None:
    """Both accumulators compute the same step, so only the registers distinguish which of them a copy holds."""
    iteration = "\tadd.rn.f32 %r20, %r20, %r8;\n\tadd.rn.f32 %r21, %r21, %r8;\n\tmov.b32 %r30, {};\n"
    starts = "\tmov.b32 %r20, 0f3F800000;\n\tmov.b32 %r21, 0f40000000;\n\tmov.b32 %r30, 0f00000000;\n"
    first, second = (
        loop(iteration.format(each), starts=starts, after="\tmov.b32 %r50, %r30;\n") for each in ("%r20", "%r21")
    )
    assert not equal_at_launch(first, second, (1, 1), 2, 0)
    assert parametric_function(first) != parametric_function(second)


FOLLOWING = """	add.rn.f32 %r20, %r20, %r8;
	shfl.sync.bfly.b32 %r30, %r20, {distance}, 31, -1;
	add.rn.f32 %r21, %r21, %r30;
"""


def test_an_accumulator_may_depend_on_another_one_of_other_threads() -> None:
    after = "\tmov.b32 %r50, %r21;\n"
    first, second = (loop(FOLLOWING.format(distance=distance), after=after) for distance in (1, 2))
    shared = FOLLOWING.format(distance=1).replace("%r30, %r20", "%r31, %r20").replace("%r21, %r30", "%r21, %r31")
    assert parametric_function(first) == parametric_function(loop(shared, after=after))
    assert not equal_at_launch(first, second, (1, 1), 2, 0)
    assert parametric_function(first) != parametric_function(second)


def test_an_accumulator_that_depends_on_itself_in_other_threads_is_unsupported() -> None:
    iteration = "\tshfl.sync.bfly.b32 %r30, %r20, 1, 31, -1;\n\tadd.rn.f32 %r20, %r20, %r30;\n"
    with pytest.raises(Unsupported, match="depends on itself in other threads"):
        parametric_function(loop(iteration))


def test_a_cyclic_dependence_is_unsupported() -> None:
    iteration = "\tadd.rn.f32 %r21, %r21, %r20;\n\tadd.rn.f32 %r20, %r20, %r21;\n"
    with pytest.raises(Unsupported, match="have a cyclic dependence"):
        parametric_function(loop(iteration))


def test_a_register_that_is_overwritten_before_its_use() -> None:
    """The guarded instruction reads the old value that it may keep, and all threads overwrite it."""
    guarded = "\tsetp.ge.s32 %p4, %r4, 0;\n\t@%p4 mov.b32 %r36, %r8;\n"
    iteration = guarded + ONLINE.replace("%r8", "%r36")
    first, second = loop(), loop(iteration)
    assert parametric_function(first) == parametric_function(second)
    partial = iteration.replace("%r4, 0", "%r4, 1")
    with pytest.raises(Unsupported, match="undefined value"):
        parametric_function(loop(partial))


def test_signed_and_unsigned_comparison_of_a_nonnegative_counter_are_equal() -> None:
    first = loop()
    unsigned = first.replace("setp.lt.s32 %p3", "setp.lt.u32 %p3")
    assert parametric_function(first) == parametric_function(unsigned)
    assert all(equal_at_launch(first, unsigned, (1, 1), n, 0) for n in (-3, 0, 1, 4))


@pytest.mark.parametrize("guard", ["\tsetp.lt.s32 %p1, %r1, 0;\n", "\tsetp.lt.s32 %p1, %r2, 1;\n"])
def test_only_the_conditions_of_branches_are_known_of_a_bound(guard: str) -> None:
    """With a bound of at most 0, an unsigned counter would continue where a signed one stops."""
    first = loop().replace("\tsetp.lt.s32 %p1, %r1, 1;\n", guard)
    unsigned = first.replace("setp.lt.s32 %p3", "setp.lt.u32 %p3")
    assert first != unsigned
    if "%r2" in guard:
        assert signature(first) != signature(unsigned)
    else:
        assert parametric_function(first) == parametric_function(unsigned)


STORE_TO_SHARED = """	shl.b32 %r40, %r4, 2;
	mov.b32 %r41, cells;
	add.s32 %r42, %r41, %r40;
	st.shared.b32 [%r42], %r4;
	bar.sync 0;
"""


def with_shared_memory(iteration: str) -> str:
    """A loop between the store of a number to shared memory and its load, after which it is added to the result."""
    after = "\tbar.sync 0;\n\txor.b32 %r43, %r40, 4;\n\tadd.s32 %r44, %r41, %r43;\n\tld.shared.b32 %r50, [%r44];\n"
    text = loop(iteration, starts=STARTS + STORE_TO_SHARED, after=after + "\tadd.rn.f32 %r50, %r50, %r20;\n")
    return text.replace(".visible", ".extern .shared .align 16 .b8 cells[];\n.visible")


def test_shared_memory_that_a_loop_does_not_access() -> None:
    first = with_shared_memory(ONLINE)
    own = loop(after="\txor.b32 %r50, %r4, 1;\n\tadd.rn.f32 %r50, %r50, %r20;\n")
    assert parametric_function(first) == parametric_function(own)
    assert equal_at_launch(first, own, (1, 1), 3, 0)
    other = with_shared_memory(ONLINE + "\tst.shared.b32 [%r42], %r8;\n")
    with pytest.raises(Unsupported, match="undefined value"):
        parametric_function(other)


FRAGMENTS = "".join(f"\tld.global.b32 %r{10 + place}, [%rd8+{128 * place}];\n" for place in range(6))
MULTIPLY = """	mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16
		{%r36, %r37}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%r36, %r37};
"""
PACK = "\tmov.b32 %r36, {%rs1, %rs2};\n\tmov.b32 %r37, {%rs3, %rs4};\n"
UNPACK = "\tmov.b32 {%rs1, %rs2}, %r36;\n\tmov.b32 {%rs3, %rs4}, %r37;\n"


def packed(unpack: str) -> str:
    """A matrix product whose results are carried between iterations as 16-bit halves."""
    starts = "".join(f"\tmov.b16 %rs{place}, 0;\n" for place in range(1, 5))
    return loop(FRAGMENTS + PACK + MULTIPLY + unpack, starts=starts, after="\tmov.b32 %r50, {%rs1, %rs2};\n")


def test_halves_of_packed_registers_are_separate_accumulators() -> None:
    first = packed(UNPACK)
    copied = packed(
        UNPACK.replace(", %r36", ", %r38").replace("\tmov.b32 {%rs1", "\tmov.b32 %r38, %r36;\n\tmov.b32 {%rs1")
    )
    assert parametric_function(first) == parametric_function(copied)
    assert equal_at_launch(first, copied, (1, 1), 3, 0)


@pytest.mark.parametrize(("old", "new"), [("%rs1, %rs2", "%rs2, %rs1"), ("%rs1, %rs2", "%rs3, %rs4")])
def test_exchanged_halves_differ(old: str, new: str) -> None:
    first = packed(UNPACK)
    second = packed(UNPACK.replace(new, "%rs0").replace(old, new).replace("%rs0", old))
    assert not equal_at_launch(first, second, (1, 1), 3, 0)
    assert signature(first) != signature(second)


def slots(last: int) -> str:
    """The value loaded by a neighbour thread, through shared memory in `last` + 1 slots that iterations use in turn."""
    starts = STARTS + "\tmov.b32 %r41, cells;\n\tshl.b32 %r40, %r4, 2;\n\tmov.b32 %r45, -1;\n"
    iteration = f"""	add.s32 %r46, %r45, 1;
	setp.gt.s32 %p4, %r46, {last};
	selp.b32 %r45, 0, %r46, %p4;
	shl.b32 %r47, %r45, 7;
	add.s32 %r48, %r41, %r47;
	add.s32 %r49, %r48, %r40;
	xor.b32 %r51, %r49, 4;
	bar.sync 0;
	st.shared.b32 [%r49], %r8;
	bar.sync 0;
	ld.shared.b32 %r8, [%r51];
"""
    text = loop(iteration + ONLINE, starts=starts)
    return text.replace(".visible", ".extern .shared .align 16 .b8 cells[];\n.visible")


@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_a_counter_that_is_reset_after_some_iterations(last: int) -> None:
    first, second = slots(0), slots(last)
    assert parametric_function(first) == parametric_function(second)
    assert all(equal_at_launch(first, second, (1, 1), n, 0) for n in (1, 5, 11))
    assert parametric_function(first) != parametric_function(loop())
