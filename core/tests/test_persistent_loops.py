"""Persistent loops: the function of one iteration for a symbolic tile, for any number of blocks."""

from __future__ import annotations

import pytest
from parametric_kernels import equal_at_launch, kernel, notes, parametric_function, program_only, signature

from bitwise_core.execution.domains.domain import Unsupported

BODY = """	add.s32 %r5, %r1, {last};
	div.s32 %r6, %r5, {tile};
	mov.b32 %r7, %r3;
{before}	setp.ge.s32 %p1, %r7, %r6;
	@%p1 bra $done;
$iteration:
	mul.lo.s32 %r8, %r7, {tile};
	add.s32 %r9, %r8, %r4;
	setp.lt.s32 %p2, %r9, %r1;
	mul.wide.s32 %rd3, %r9, 4;
	add.s64 %rd4, {source}, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	mov.b32 %r10, 0;
	@%p2 ld.global.b32 %r10, [%rd4];
{iteration}	add.rn.f32 %r11, %r10, 0f3F800000;
	@%p2 st.global.b32 [%rd5], %r11;
	add.s32 %r7, %r7, {step};
	setp.lt.s32 %p3, %r7, %r6;
	@%p3 bra $iteration;
$done:
"""


def tiles(
    tile: int = 64,
    step: str = "2",
    *,
    before: str = "",
    iteration: str = "",
    source: str = "%rd1",
    bound: str = "%r1",
) -> str:
    """target[i] = source[i] + 1 for i < n, in tiles; a block computes every `step`-th tile."""
    body = BODY.format(tile=tile, last=tile - 1, step=step, before=before, iteration=iteration, source=source)
    return kernel(body.replace("%r5, %r1", f"%r5, {bound}"), tile)


@pytest.mark.parametrize(
    ("tile", "step", "before", "blocks"),
    [
        (64, "3", "", 3),
        (32, "2", "", 2),
        (128, "7", "", 7),
        (64, "%r20", "\tmov.u32 %r20, %nctaid.x;\n", 5),
    ],
)
def test_tile_size_and_number_of_blocks_do_not_change_the_function(
    tile: int, step: str, before: str, blocks: int
) -> None:
    first, second = tiles(), tiles(tile, step, before=before)
    assert parametric_function(first) == parametric_function(second)
    assert all(equal_at_launch(first, second, (2, blocks), n, 0) for n in (0, 1, 63, 64, 700) if n)


def test_the_assumption_on_the_number_of_blocks_is_in_the_notes() -> None:
    assert "the number of blocks equals the step of the persistent loop over tiles" in notes(tiles())


def test_an_inner_loop_in_an_iteration() -> None:
    inner = """	mov.b32 %r30, 0;
	mov.b32 %r31, 0f00000000;
$inner:
	add.rn.f32 %r31, %r31, %r10;
	add.s32 %r30, %r30, 1;
	setp.lt.s32 %p4, %r30, %r2;
	@%p4 bra $inner;
	mov.b32 %r10, %r31;
"""
    first, second = tiles(iteration=inner), tiles(128, "5", iteration=inner)
    assert parametric_function(first) == parametric_function(second)
    assert equal_at_launch(first, second, (2, 5), 300, 3)
    assert parametric_function(first) != parametric_function(tiles())


def test_branches_in_an_inner_loop_are_unsupported() -> None:
    inner = """	mov.b32 %r30, 0;
$inner:
	setp.lt.s32 %p5, %r30, %r1;
	@%p5 bra $skip;
	add.rn.f32 %r10, %r10, %r10;
$skip:
	add.s32 %r30, %r30, 1;
	setp.lt.s32 %p4, %r30, %r2;
	@%p4 bra $inner;
"""
    with pytest.raises(Unsupported, match="control flow depends on the launch"):
        parametric_function(tiles(iteration=inner))


def test_tile_counts_from_different_arguments_differ() -> None:
    first, second = tiles(), tiles(bound="%r2")
    assert equal_at_launch(first, second, (2, 2), 300, 300)
    assert signature(first) != signature(second)


def test_iterations_that_store_other_values_differ() -> None:
    first, second = tiles(), tiles(iteration="\tadd.rn.f32 %r10, %r10, 0f3F800000;\n")
    assert not equal_at_launch(first, second, (2, 2), 300, 0)
    assert signature(first) != signature(second)


def test_skipped_tiles_tie_the_coordinate() -> None:
    first, second = (tiles(tile).replace("mov.b32 %r7, %r3;", "add.s32 %r7, %r3, 1;") for tile in (64, 128))
    assert len({parametric_function(first), parametric_function(second), parametric_function(tiles())}) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            tiles().replace("setp.ge.s32 %p1", "setp.gt.s32 %p1"),
            "the conditions of the first and of later iterations differ",
        ),
        (
            tiles(iteration="\tcvt.rn.f32.s32 %r21, %r3;\n\tadd.rn.f32 %r10, %r10, %r21;\n"),
            "blocks that differ in %ctaid.x may store different values",
        ),
        (tiles(source="%rd2"), "both read and written"),
        (tiles(step="0"), "the tile index does not grow"),
        (tiles(step="%r2"), "does not grow by a constant or by the number of blocks"),
        (
            tiles(before="\tmov.b32 %r20, 0;\n", iteration="\tadd.rn.f32 %r20, %r20, %r10;\n\tmov.b32 %r10, %r20;\n"),
            "undefined value",
        ),
        (
            tiles(before="\tmov.b32 %r20, 1;\n", iteration="\tadd.s32 %r20, %r20, %r7;\n\txor.b32 %r10, %r10, %r20;\n"),
            "is not affine in the tile index",
        ),
    ],
)
def test_iterations_that_depend_on_more_than_their_tile_are_unsupported(text: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        parametric_function(text)
    if reason in ("both read and written", "the tile index does not grow"):
        with pytest.raises(Unsupported):
            signature(text)
    else:  # the result is determined, so that equal texts are equal
        assert program_only(text) is not None


SHARED = """	mov.b32 %r40, cells;
	shl.b32 %r41, %r4, 2;
	add.s32 %r42, %r40, %r41;
	xor.b32 %r43, %r42, 4;
{}"""


def shared(*lines: str) -> str:
    text = tiles(iteration=SHARED.format("".join(f"\t{line};\n" for line in lines)))
    return text.replace(".visible", ".extern .shared .align 16 .b8 cells[];\n.visible")


def test_shared_memory_carries_no_value_between_iterations() -> None:
    store, barrier, load = "st.shared.b32 [%r42], %r10", "bar.sync 0", "ld.shared.b32 %r10, [%r43]"
    within = shared(store, barrier, load, barrier)
    assert parametric_function(within) != parametric_function(tiles())
    with pytest.raises(Unsupported, match="undefined value"):
        parametric_function(shared("mov.b32 %r44, %r10", load, barrier, "st.shared.b32 [%r42], %r44", barrier))


SUM_OVER_TILES = """	mov.u32 %r5, %nctaid.x;
	mov.u32 %r10, %r3;
	mov.b32 %r30, 0f00000000;
	shr.s32 %r11, %r1, 1;
	setp.lt.s32 %p1, %r10, %r11;
	@!%p1 bra $done;
$again:
	mad.lo.s32 %r20, %r10, 32, %r4;
	mul.wide.s32 %rd3, %r20, 4;
	add.s64 %rd4, %rd1, %rd3;
	ld.global.b32 %r31, [%rd4];
	add.rn.f32 %r30, %r30, %r31;
	mad.lo.s32 %r21, %r10, 32, %r4;
	mul.wide.s32 %rd5, %r21, 4;
	add.s64 %rd6, %rd2, %rd5;
	st.global.b32 [%rd6], %r30;
	add.u32 %r10, %r10, %r5;
	shr.s32 %r11, %r1, 1;
	setp.lt.s32 %p1, %r10, %r11;
	@%p1 bra $again;
$done:
"""
"""Adds up what a block loads; the bound is computed again in each iteration."""


def test_a_coordinate_whose_definition_has_the_tile_index_twice() -> None:
    with pytest.raises(Unsupported, match="not proved to be determined"):
        signature(kernel(SUM_OVER_TILES, 32))
