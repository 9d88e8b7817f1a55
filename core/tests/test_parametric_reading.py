"""The launch-parametric reading: what it merges, and pairs that agree for one launch and not for another."""

from __future__ import annotations

from pathlib import Path

import pytest
from every_launch import kernel, notes, program_only, same_at, signature, symbolic

from bitwise_core.execution.domains.domain import Unsupported


def elementwise(
    threads: int, *, comparison: str = "lt", bound: str = "%r1", step: int | None = None, each: int = 1
) -> str:
    """target[i] = source[i] + 1 for i below n, `each` elements a thread."""
    tile = threads * each
    lines = [f"\tmul.lo.s32 %r5, %r3, {step or tile};", "\tadd.s32 %r6, %r5, %r4;"]
    for turn in range(each):
        index, value, address = 10 + 3 * turn, 11 + 3 * turn, 10 + 3 * turn
        lines += [
            f"\tadd.s32 %r{index}, %r6, {turn * threads};",
            f"\tsetp.{comparison}.s32 %p{turn + 1}, %r{index}, {bound};",
            f"\tmul.wide.s32 %rd{address}, %r{index}, 4;",
            f"\tadd.s64 %rd{address + 1}, %rd1, %rd{address};",
            f"\tadd.s64 %rd{address + 2}, %rd2, %rd{address};",
            f"\tmov.b32 %r{value}, 0;",
            f"\t@%p{turn + 1} ld.global.b32 %r{value}, [%rd{address + 1}];",
            f"\tadd.rn.f32 %r{value + 1}, %r{value}, 0f3F800000;",
            f"\t@%p{turn + 1} st.global.b32 [%rd{address + 2}], %r{value + 1};",
        ]
    return kernel("\n".join(lines) + "\n", threads)


def column_loop(each: int, *, bound: str = "%r1", stride: str = "%r1", unrolled: int = 1, guard: bool = True) -> str:
    """target[block] = sum over k of source[block * n + k], `each` partial sums that are added in order at the end."""
    lines = [
        f"\tmul.lo.s32 %r5, %r3, {stride};",
        "\tmul.wide.s32 %rd5, %r5, 4;",
        "\tadd.s64 %rd6, %rd1, %rd5;",
        "\tmov.b32 %r6, 0;",
    ]
    lines += [f"\tmov.b32 %r{20 + place}, 0f00000000;" for place in range(each)]
    if guard:
        lines += [f"\tsetp.lt.s32 %p1, {bound}, 1;", "\t@%p1 bra $done;"]
    lines += ["$turn:"]
    for place in range(each * unrolled):
        target = 20 + place % each
        lines += [
            f"\tadd.s32 %r7, %r6, {place};",
            f"\tsetp.lt.s32 %p2, %r7, {bound};",
            "\tmul.wide.s32 %rd7, %r7, 4;",
            "\tadd.s64 %rd8, %rd6, %rd7;",
            "\tmov.b32 %r8, 0;",
            "\t@%p2 ld.global.b32 %r8, [%rd8];",
            f"\tadd.rn.f32 %r{target}, %r{target}, %r8;",
        ]
    lines += [
        f"\tadd.s32 %r6, %r6, {each * unrolled};",
        f"\tsetp.lt.s32 %p3, %r6, {bound};",
        "\t@%p3 bra $turn;",
        "$done:",
    ]
    lines += [f"\tadd.rn.f32 %r20, %r20, %r{20 + place};" for place in range(1, each)]
    lines += ["\tmul.wide.u32 %rd9, %r3, 4;", "\tadd.s64 %rd10, %rd2, %rd9;", "\tst.global.b32 [%rd10], %r20;"]
    return kernel("\n".join(lines) + "\n", 32)


def test_names_comments_and_debug_lines_do_not_matter() -> None:
    text = elementwise(128)
    assert signature(text) == signature(text.replace("%r6", "%r56").replace("\tret;", "\t// the end\n\tret;"))


def test_a_kernel_without_a_block_size_is_refused() -> None:
    with pytest.raises(Unsupported, match="number of threads"):
        signature(kernel("", None))


@pytest.mark.parametrize(("threads", "each"), [(64, 1), (256, 1), (128, 2), (32, 4), (1, 1)])
def test_tiles_of_any_size_are_one_function(threads: int, each: int) -> None:
    assert symbolic(elementwise(128)) == symbolic(elementwise(threads, each=each))


def test_what_a_verdict_rests_on_is_named() -> None:
    found = notes(elementwise(128))
    assert "32-bit indices do not wrap around where they are widened or compared" in found
    assert "an output coordinate in tiles of any multiple of 1" in found


def test_a_mask_of_one_element_more_is_another_function() -> None:
    first, second = elementwise(128), elementwise(128, comparison="le")
    assert same_at(first, second, (1, 1), 1000, 0)
    assert signature(first) != signature(second)


def test_bounds_from_different_arguments_are_told_apart() -> None:
    first, second = elementwise(128), elementwise(128, bound="%r2")
    assert same_at(first, second, (8, 8), 1000, 1000)
    assert signature(first) != signature(second)


def test_blocks_that_leave_gaps_keep_their_tiles() -> None:
    assert signature(elementwise(128, step=256)) != signature(elementwise(256, step=512))
    assert signature(elementwise(128, step=256)) != signature(elementwise(128))


def in_rows(text: str, length: int, *, row: str = "%ctaid.y") -> str:
    """An elementwise kernel whose elements lie in rows of a known length, one for each block along another axis."""
    return text.replace(
        "\tadd.s32 %r6, %r5, %r4;",
        f"\tmov.u32 %r50, {row};\n\tmad.lo.s32 %r5, %r50, {length}, %r5;\n\tadd.s32 %r6, %r5, %r4;",
    )


def test_one_axis_of_the_grid_alone_goes_through_the_tiles() -> None:
    first = in_rows(elementwise(128), 4096)
    assert (
        symbolic(first) == symbolic(in_rows(elementwise(256), 4096)) == symbolic(in_rows(elementwise(32, each=2), 4096))
    )
    assert symbolic(first) != symbolic(in_rows(elementwise(128), 2048))
    assert symbolic(first) != symbolic(in_rows(elementwise(128), 4096, row="%ctaid.z"))
    assert symbolic(first) != symbolic(in_rows(elementwise(128, step=256), 4096))
    assert symbolic(in_rows(elementwise(128), 64)) != symbolic(in_rows(elementwise(128), 128))


def test_a_loop_is_a_fold_whatever_its_names() -> None:
    text = column_loop(2)
    assert symbolic(text) == symbolic(text.replace("%r6", "%r57").replace("$turn", "$again"))


def test_partial_sums_that_agree_for_short_rows_only() -> None:
    first, second = column_loop(1), column_loop(2)
    assert not same_at(first, second, (3, 3), 5, 0)
    assert signature(first) != signature(second)
    assert same_at(column_loop(2), column_loop(2, unrolled=2), (3, 3), 4, 0)


def test_a_trip_count_read_from_another_argument() -> None:
    first, second = column_loop(1), column_loop(1, bound="%r2")
    assert same_at(first, second, (3, 3), 7, 7)
    assert not same_at(first, second, (3, 3), 7, 6)
    assert signature(first) != signature(second)


def test_a_row_stride_read_from_another_argument() -> None:
    first, second = column_loop(1), column_loop(1, stride="%r2")
    assert same_at(first, second, (3, 3), 7, 7)
    assert signature(first) != signature(second)


def test_a_loop_that_always_has_a_turn() -> None:
    first, second = column_loop(1), column_loop(1, guard=False)
    assert same_at(first, second, (3, 3), 7, 0)
    assert signature(first) != signature(second)


def test_a_loop_whose_turns_differ_at_their_end() -> None:
    first = column_loop(2)
    second = first.replace("add.s32 %r6, %r6, 2;", "add.s32 %r6, %r6, 3;")
    assert signature(first) != signature(second)


VECTOR = """	shl.b32 %r5, %r3, 8;
	shl.b32 %r6, %r4, 1;
	add.s32 %r7, %r5, %r6;
	setp.lt.s32 %p1, %r7, %r1;
	mul.wide.s32 %rd3, %r7, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	mov.b32 %r8, 0;
	mov.b32 %r9, 0;
	@%p1 ld.global.v2.b32 {%r8, %r9}, [%rd4];
	add.rn.f32 %r10, %r8, 0f3F800000;
	add.rn.f32 %r11, %r9, 0f3F800000;
	@%p1 st.global.v2.b32 [%rd5], {%r10, %r11};
"""
SCALAR = """	shl.b32 %r5, %r3, 8;
	shl.b32 %r6, %r4, 1;
	add.s32 %r7, %r5, %r6;
	add.s32 %r12, %r7, 1;
	setp.lt.s32 %p1, %r7, %r1;
	setp.lt.s32 %p2, %r12, %r1;
	mul.wide.s32 %rd3, %r7, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	mov.b32 %r8, 0;
	mov.b32 %r9, 0;
	@%p1 ld.global.b32 %r8, [%rd4];
	@%p2 ld.global.b32 %r9, [%rd4+4];
	add.rn.f32 %r10, %r8, 0f3F800000;
	add.rn.f32 %r11, %r9, 0f3F800000;
	@%p1 st.global.b32 [%rd5], %r10;
	@%p1 st.global.b32 [%rd5+4], %r11;
"""


def test_masks_that_matter_for_odd_sizes_only() -> None:
    first, second = kernel(VECTOR), kernel(SCALAR)
    assert same_at(first, second, (4, 4), 1000, 0)
    assert not same_at(first, second, (4, 4), 999, 0)
    assert signature(first) != signature(second)


TWICE = """	mul.wide.u32 %rd3, %r3, 4;
	add.s64 %rd4, %rd2, %rd3;
	st.global.b32 [%rd4], {first};
	st.global.b32 [%rd4], {second};
"""


def test_the_order_of_two_stores_to_one_address_is_not_lost() -> None:
    first, second = (
        kernel(TWICE.format(first="%r1", second="%r2"), 1),
        kernel(TWICE.format(first="%r2", second="%r1"), 1),
    )
    assert signature(first) != signature(second)
    with pytest.raises(Unsupported, match="written twice"):
        symbolic(first)


def test_sums_by_atomic_operations_are_refused() -> None:
    body = "\tred.global.add.f32 [%rd2], 0f3F800000;\n"
    with pytest.raises(Unsupported, match="depends on the order of threads"):
        signature(kernel(body))


@pytest.mark.parametrize(
    ("kind", "result", "source"),
    [("u32", "%r5", "%r7"), ("f16x2", "%r5", "%r7"), ("v2.f16x2", "{%r5, %r6}", "{%r7, %r8}")],
)
def test_a_value_that_an_atomic_operation_gives_back_is_refused_where_it_is_used(
    kind: str, result: str, source: str
) -> None:
    noftz = ".noftz" if kind != "u32" else ""
    body = "\tmov.b32 %r7, 0;\n\tmov.b32 %r8, 0;\n"
    body += f"\tatom.global.gpu.relaxed.min{noftz}.{kind} {result}, [%rd1], {source};\n"
    assert signature(kernel(body))
    with pytest.raises(Unsupported, match="gives back a value that depends on the order of threads"):
        signature(kernel(body + "\tst.global.b32 [%rd2], %r5;\n"))


def test_a_buffer_read_after_it_was_written_is_not_read_further() -> None:
    body = """	mul.wide.u32 %rd3, %r4, 4;
	add.s64 %rd4, %rd2, %rd3;
	st.global.b32 [%rd4], %r1;
	ld.global.b32 %r5, [%rd2];
	st.global.b32 [%rd4+4096], %r5;
"""
    with pytest.raises(Unsupported, match="after the kernel has written it"):
        symbolic(kernel(body))


TILES = """	add.s32 %r5, %r1, {up};
	div.s32 %r6, %r5, {columns};
	{divide} %r7, %r3, %r6;
	mul.lo.s32 %r8, %r7, %r6;
	sub.s32 %r9, %r3, %r8;
	shl.b32 %r10, %r7, {row_shift};
	shl.b32 %r11, %r9, {column_shift};
	and.b32 %r12, %r4, {last_column};
	shr.u32 %r13, %r4, {column_shift};
	add.s32 %r14, %r10, %r13;
	add.s32 %r15, %r11, %r12;
	setp.lt.s32 %p1, %r14, %r2;
	setp.lt.s32 %p2, %r15, %r1;
	and.pred %p3, %p1, %p2;
	mul.lo.s32 %r16, %r14, %r1;
	add.s32 %r17, %r16, %r15;
	mul.wide.s32 %rd3, %r17, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	mov.b32 %r18, 0;
	@%p3 ld.global.b32 %r18, [%rd4];
	add.rn.f32 %r19, %r18, 0f3F800000;
	@%p3 st.global.b32 [%rd5], %r19;
"""


def tiles(rows: int, columns: int, *, divide: str = "div.s32", up: int | None = None) -> str:
    """A row-major numbering of tiles of a matrix with n columns (argument 2) and m rows (argument 3)."""
    body = TILES.format(
        up=columns - 1 if up is None else up,
        columns=columns,
        row_shift=rows.bit_length() - 1,
        column_shift=columns.bit_length() - 1,
        last_column=columns - 1,
        divide=divide,
    )
    return kernel(body, rows * columns)


@pytest.mark.parametrize(("rows", "columns"), [(4, 64), (16, 16), (2, 32), (8, 8)])
def test_tiles_of_a_matrix_in_any_shape_are_one_function(rows: int, columns: int) -> None:
    assert symbolic(tiles(8, 32)) == symbolic(tiles(rows, columns))


def test_a_numbering_that_skips_tiles_is_told_apart() -> None:
    whole, broken = tiles(8, 32), tiles(8, 32, divide="rem.s32")
    assert signature(whole) != signature(broken)
    short = tiles(8, 32, up=0)
    assert same_at(whole, short, (6, 6), 64, 24)
    assert signature(whole) != signature(short)


def sample(name: str) -> str:
    samples = Path(__file__).parents[2] / "plugins" / "nvidia_sm90" / "tests" / "samples" / "sm_90"
    return (samples / name.rsplit("_", 1)[0] / f"{name}.ptx").read_text(encoding="utf-8")


def test_a_compiled_matrix_product_is_read_for_every_launch() -> None:
    assert program_only(sample("gemm_0")) is None


def test_a_compiled_matrix_product_with_another_bound_is_told_apart() -> None:
    text = sample("gemm_0")
    whole = symbolic(text)
    loops = [index for index, line in enumerate(text.splitlines()) if "bra" in line and "@" in line]
    assert loops
    mutated = text.replace("gemm_param_5]", "gemm_param_4]")
    assert mutated != text
    assert signature(mutated) != whole
