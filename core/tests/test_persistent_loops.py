"""Persistent loops: one iteration for a symbolic tile is the kernel, however many blocks share the tiles."""

from __future__ import annotations

import pytest
from every_launch import kernel, notes, program_only, same_at, signature, symbolic

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
    """target[i] = source[i] + 1 for i below n, in tiles that each block takes `step` apart."""
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
def test_tiles_of_any_size_shared_by_any_number_of_blocks(tile: int, step: str, before: str, blocks: int) -> None:
    first, second = tiles(), tiles(tile, step, before=before)
    assert symbolic(first) == symbolic(second)
    assert all(same_at(first, second, (2, blocks), n, 0) for n in (0, 1, 63, 64, 700) if n)


def test_what_such_a_verdict_rests_on_is_named() -> None:
    assert "as many blocks start a loop over tiles as the loop steps over" in notes(tiles())


def test_a_turn_with_a_loop_of_its_own() -> None:
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
    assert symbolic(first) == symbolic(second)
    assert same_at(first, second, (2, 5), 300, 3)
    assert symbolic(first) != symbolic(tiles())


def test_a_loop_with_branches_inside_a_turn_is_not_read_further() -> None:
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
        symbolic(tiles(iteration=inner))


def test_as_many_tiles_as_another_argument_says() -> None:
    first, second = tiles(), tiles(bound="%r2")
    assert same_at(first, second, (2, 2), 300, 300)
    assert signature(first) != signature(second)


def test_a_turn_that_stores_something_else() -> None:
    first, second = tiles(), tiles(iteration="\tadd.rn.f32 %r10, %r10, 0f3F800000;\n")
    assert not same_at(first, second, (2, 2), 300, 0)
    assert signature(first) != signature(second)


def test_tiles_that_are_left_out_tie_the_others() -> None:
    first, second = (tiles(tile).replace("mov.b32 %r7, %r3;", "add.s32 %r7, %r3, 1;") for tile in (64, 128))
    assert len({symbolic(first), symbolic(second), symbolic(tiles())}) == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (tiles().replace("setp.ge.s32 %p1", "setp.gt.s32 %p1"), "iterations end where the first one would be run"),
        (tiles(iteration="\tcvt.rn.f32.s32 %r21, %r3;\n\tadd.rn.f32 %r10, %r10, %r21;\n"), "depends on the block"),
        (tiles(source="%rd2"), "both read and written"),
        (tiles(step="0"), "does not grow"),
        (tiles(step="%r2"), "does not grow by a known number"),
        (
            tiles(before="\tmov.b32 %r20, 0;\n", iteration="\tadd.rn.f32 %r20, %r20, %r10;\n\tmov.b32 %r10, %r20;\n"),
            "nothing has written",
        ),
        (
            tiles(before="\tmov.b32 %r20, 1;\n", iteration="\tadd.s32 %r20, %r20, %r7;\n\txor.b32 %r10, %r10, %r20;\n"),
            "grows",
        ),
    ],
)
def test_iterations_that_do_not_depend_on_their_tile_alone_are_not_read_further(text: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        symbolic(text)
    assert signature(text) != signature(tiles())
    assert program_only(text) is not None


SHARED = """	mov.b32 %r40, cells;
	shl.b32 %r41, %r4, 2;
	add.s32 %r42, %r40, %r41;
	xor.b32 %r43, %r42, 4;
{}"""


def shared(*lines: str) -> str:
    text = tiles(iteration=SHARED.format("".join(f"\t{line};\n" for line in lines)))
    return text.replace(".visible", ".extern .shared .align 16 .b8 cells[];\n.visible")


def test_shared_memory_passes_nothing_between_iterations() -> None:
    store, meet, load = "st.shared.b32 [%r42], %r10", "bar.sync 0", "ld.shared.b32 %r10, [%r43]"
    within = shared(store, meet, load, meet)
    assert symbolic(within) != symbolic(tiles())
    with pytest.raises(Unsupported, match="nothing has written"):
        symbolic(shared("mov.b32 %r44, %r10", load, meet, "st.shared.b32 [%r42], %r44", meet))
