"""Launch-parametric signatures: equal kernels, and pairs that agree for one launch only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from parametric_kernels import equal_at_launch, kernel, notes, parametric_function, program_only, signature

from bitwise_core.checker.parametric.integers import WITHOUT_WRAPPING
from bitwise_core.execution.domains.domain import Unsupported


def elementwise(
    threads: int, *, comparison: str = "lt", bound: str = "%r1", step: int | None = None, each: int = 1
) -> str:
    """target[i] = source[i] + 1 for i < n, with `each` elements per thread."""
    tile = threads * each
    lines = [f"\tmul.lo.s32 %r5, %r3, {step or tile};", "\tadd.s32 %r6, %r5, %r4;"]
    for element in range(each):
        index, value, address = 10 + 3 * element, 11 + 3 * element, 10 + 3 * element
        lines += [
            f"\tadd.s32 %r{index}, %r6, {element * threads};",
            f"\tsetp.{comparison}.s32 %p{element + 1}, %r{index}, {bound};",
            f"\tmul.wide.s32 %rd{address}, %r{index}, 4;",
            f"\tadd.s64 %rd{address + 1}, %rd1, %rd{address};",
            f"\tadd.s64 %rd{address + 2}, %rd2, %rd{address};",
            f"\tmov.b32 %r{value}, 0;",
            f"\t@%p{element + 1} ld.global.b32 %r{value}, [%rd{address + 1}];",
            f"\tadd.rn.f32 %r{value + 1}, %r{value}, 0f3F800000;",
            f"\t@%p{element + 1} st.global.b32 [%rd{address + 2}], %r{value + 1};",
        ]
    return kernel("\n".join(lines) + "\n", threads)


def column_loop(each: int, *, bound: str = "%r1", stride: str = "%r1", unrolled: int = 1, guard: bool = True) -> str:
    """target[block] = sum over k of source[block * n + k], in `each` partial sums that are added at the end."""
    lines = [
        f"\tmul.lo.s32 %r5, %r3, {stride};",
        "\tmul.wide.s32 %rd5, %r5, 4;",
        "\tadd.s64 %rd6, %rd1, %rd5;",
        "\tmov.b32 %r6, 0;",
    ]
    lines += [f"\tmov.b32 %r{20 + place}, 0f00000000;" for place in range(each)]
    if guard:
        lines += [f"\tsetp.lt.s32 %p1, {bound}, 1;", "\t@%p1 bra $done;"]
    lines += ["$loop:"]
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
        "\t@%p3 bra $loop;",
        "$done:",
    ]
    lines += [f"\tadd.rn.f32 %r20, %r20, %r{20 + place};" for place in range(1, each)]
    lines += ["\tmul.wide.u32 %rd9, %r3, 4;", "\tadd.s64 %rd10, %rd2, %rd9;", "\tst.global.b32 [%rd10], %r20;"]
    return kernel("\n".join(lines) + "\n", 32)


def test_names_and_comments_do_not_change_the_signature() -> None:
    text = elementwise(128)
    assert signature(text) == signature(text.replace("%r6", "%r56").replace("\tret;", "\t// the end\n\tret;"))


def test_a_kernel_without_a_block_size_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="does not state the number of threads in a block"):
        signature(kernel("", None))


@pytest.mark.parametrize(("threads", "each"), [(64, 1), (256, 1), (128, 2), (32, 4), (1, 1)])
def test_the_tile_size_does_not_change_the_function(threads: int, each: int) -> None:
    assert parametric_function(elementwise(128)) == parametric_function(elementwise(threads, each=each))


def test_assumptions_are_in_the_notes() -> None:
    found = notes(elementwise(128))
    assert WITHOUT_WRAPPING in found
    assert "the tile size of an output coordinate is any multiple of 1" in found


def test_a_mask_with_one_more_element_differs() -> None:
    first, second = elementwise(128), elementwise(128, comparison="le")
    assert equal_at_launch(first, second, (1, 1), 1000, 0)
    assert signature(first) != signature(second)


def test_bounds_from_different_arguments_differ() -> None:
    first, second = elementwise(128), elementwise(128, bound="%r2")
    assert equal_at_launch(first, second, (8, 8), 1000, 1000)
    assert signature(first) != signature(second)


def test_tiles_with_gaps_are_tied_to_their_definition() -> None:
    assert signature(elementwise(128, step=256)) != signature(elementwise(256, step=512))
    assert signature(elementwise(128, step=256)) != signature(elementwise(128))


def with_rows(text: str, length: int, *, row: str = "%ctaid.y") -> str:
    """An elementwise kernel on rows of a known length, one for each block along another axis."""
    start = f"\tmov.u32 %r50, {row};\n\tmul.lo.s32 %r51, %r50, {length};\n\tadd.s32 %r5, %r5, %r51;\n"
    text = text.replace("\tadd.s32 %r6, %r5, %r4;", start + "\tadd.s32 %r6, %r5, %r4;")
    inside = rf"\tsub.s32 %r52, \2, %r51;\n\tsetp.lt.s32 \1, %r52, {length};"
    return re.sub(r"\tsetp\.lt\.s32 (%p\d+), (%r\d+), %r1;", inside, text)


def test_only_one_axis_of_the_grid_enumerates_tiles() -> None:
    first = with_rows(elementwise(128), 4096)
    assert (
        parametric_function(first)
        == parametric_function(with_rows(elementwise(256), 4096))
        == parametric_function(with_rows(elementwise(32, each=2), 4096))
    )
    assert parametric_function(first) != parametric_function(with_rows(elementwise(128), 2048))
    assert parametric_function(first) != parametric_function(with_rows(elementwise(128), 4096, row="%ctaid.z"))
    assert parametric_function(first) != parametric_function(with_rows(elementwise(128, step=256), 4096))
    assert parametric_function(with_rows(elementwise(128), 64)) != parametric_function(with_rows(elementwise(128), 128))


def test_a_fold_does_not_depend_on_register_names() -> None:
    text = column_loop(2)
    assert parametric_function(text) == parametric_function(text.replace("%r6", "%r57").replace("$loop", "$again"))


def test_partial_sums_that_agree_only_for_short_rows_differ() -> None:
    first, second = column_loop(1), column_loop(2)
    assert not equal_at_launch(first, second, (3, 3), 5, 0)
    assert signature(first) != signature(second)
    assert equal_at_launch(column_loop(2), column_loop(2, unrolled=2), (3, 3), 4, 0)


def test_trip_counts_from_different_arguments_differ() -> None:
    first, second = column_loop(1), column_loop(1, bound="%r2")
    assert equal_at_launch(first, second, (3, 3), 7, 7)
    assert not equal_at_launch(first, second, (3, 3), 7, 6)
    assert signature(first) != signature(second)


def test_row_strides_from_different_arguments_differ() -> None:
    first, second = column_loop(1), column_loop(1, stride="%r2")
    assert equal_at_launch(first, second, (3, 3), 7, 7)
    assert signature(first) != signature(second)


def test_an_unguarded_loop_differs_from_a_guarded_one() -> None:
    first, second = column_loop(1), column_loop(1, guard=False)
    assert equal_at_launch(first, second, (3, 3), 7, 0)
    assert signature(first) != signature(second)


def test_loops_with_different_steps_differ() -> None:
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


def test_masks_that_differ_only_for_odd_sizes_differ() -> None:
    first, second = kernel(VECTOR), kernel(SCALAR)
    assert equal_at_launch(first, second, (4, 4), 1000, 0)
    assert not equal_at_launch(first, second, (4, 4), 999, 0)
    assert signature(first) != signature(second)


BOUNDED = """	mad.lo.s32 %r5, %r3, 128, %r4;
	{bound}
	setp.lt.s32 %p1, %r5, %r6;
	mul.wide.s32 %rd3, %r5, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	mov.b32 %r7, 0;
	@%p1 ld.global.b32 %r7, [%rd4];
	st.global.b32 [%rd5], %r7;
"""


@pytest.mark.parametrize(
    ("bound", "lost"),
    [
        ("{ .reg .b16 %h1; cvt.u16.u32 %h1, %r1; cvt.u32.u16 %r6, %h1; }", 16),
        ("{ .reg .b16 %h1; cvt.u16.u32 %h1, %r1; cvt.s32.s16 %r6, %h1; }", 16),
        ("{ .reg .b16 %h1; cvt.u16.u32 %h1, %r1; mov.b32 %r6, {%h1, 0}; }", 16),
        ("cvt.u16.u32 %rs1, %r1; mov.b32 %r6, {%rs1, 0}; mul.lo.u32 %r6, %r6, 3; div.u32 %r6, %r6, 3;", 16),
        ("{ .reg .b16 %h1, %h2; cvt.u16.u32 %h1, %r1; mov.b16 %h2, 1; mul.wide.u16 %r6, %h1, %h2; }", 16),
        ("cvt.s32.s8 %r6, %r1;", 8),
        ("shl.b32 %r6, %r1, 16; shr.s32 %r6, %r6, 16;", 16),
        ("shl.b32 %r6, %r1, 4; shr.s32 %r6, %r6, 4;", 28),
        ("cvt.s64.s32 %rd9, %r1; shl.b64 %rd9, %rd9, 40; shr.s64 %rd9, %rd9, 40; cvt.u32.u64 %r6, %rd9;", 24),
    ],
)
def test_a_launch_argument_that_is_narrowed_is_another_one(bound: str, lost: int) -> None:
    whole, narrowed = kernel(BOUNDED.format(bound="mov.b32 %r6, %r1;")), kernel(BOUNDED.format(bound=bound))
    assert equal_at_launch(whole, narrowed, (4, 4), 5, 0)
    assert not equal_at_launch(whole, narrowed, (4, 4), (1 << lost) + 5, 0)
    assert program_only(narrowed) is None
    assert signature(whole) != signature(narrowed)


@pytest.mark.parametrize(("amount", "same"), [(4, True), (16, False)])
def test_a_block_coordinate_is_shifted_left_and_right(amount: int, same: bool) -> None:
    body = "	shl.b32 %r8, %r3, {0}; shr.u32 %r3, %r8, {0};" + BOUNDED.format(bound="mov.b32 %r6, %r1;")
    assert (
        signature(kernel(body.format(amount))) == signature(kernel(BOUNDED.format(bound="mov.b32 %r6, %r1;")))
    ) is same


TWICE = """	mul.wide.u32 %rd3, %r3, 4;
	add.s64 %rd4, %rd2, %rd3;
	st.global.b32 [%rd4], {first};
	st.global.b32 [%rd4], {second};
"""


def test_two_stores_to_one_address_are_unsupported_and_their_order_differs() -> None:
    first, second = (
        kernel(TWICE.format(first="%r1", second="%r2"), 1),
        kernel(TWICE.format(first="%r2", second="%r1"), 1),
    )
    assert signature(first) != signature(second)
    with pytest.raises(Unsupported, match="written twice"):
        parametric_function(first)


def test_floating_point_atomic_sums_are_unsupported() -> None:
    body = "\tred.global.add.f32 [%rd2], 0f3F800000;\n"
    with pytest.raises(Unsupported, match="depends on the order of threads"):
        signature(kernel(body))


@pytest.mark.parametrize(
    ("kind", "result", "source"),
    [("u32", "%r5", "%r7"), ("f16x2", "%r5", "%r7"), ("v2.f16x2", "{%r5, %r6}", "{%r7, %r8}")],
)
def test_the_result_of_an_atomic_operation_is_unsupported_where_it_is_used(kind: str, result: str, source: str) -> None:
    noftz = ".noftz" if kind != "u32" else ""
    body = "\tmov.b32 %r7, 0;\n\tmov.b32 %r8, 0;\n"
    body += f"\tatom.global.gpu.relaxed.min{noftz}.{kind} {result}, [%rd1], {source};\n"
    assert signature(kernel(body))
    with pytest.raises(Unsupported, match="gives back a value that depends on the order of threads"):
        signature(kernel(body + "\tst.global.b32 [%rd2], %r5;\n"))


def test_a_read_of_a_written_buffer_is_unsupported() -> None:
    body = """	mul.wide.u32 %rd3, %r4, 4;
	add.s64 %rd4, %rd2, %rd3;
	st.global.b32 [%rd4], %r1;
	ld.global.b32 %r5, [%rd2];
	st.global.b32 [%rd4+4096], %r5;
"""
    with pytest.raises(Unsupported, match="after the kernel has written it"):
        parametric_function(kernel(body))


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
    """A row-major enumeration of the tiles of a matrix with n columns (argument 2) and m rows (argument 3)."""
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
def test_the_tile_shape_does_not_change_the_function_of_a_matrix(rows: int, columns: int) -> None:
    assert parametric_function(tiles(8, 32)) == parametric_function(tiles(rows, columns))


def test_an_enumeration_that_skips_tiles_differs() -> None:
    whole, broken = tiles(8, 32), tiles(8, 32, divide="rem.s32")
    assert signature(whole) != signature(broken)
    short = tiles(8, 32, up=0)
    assert equal_at_launch(whole, short, (6, 6), 64, 24)
    assert signature(whole) != signature(short)


def sample(name: str) -> str:
    samples = Path(__file__).parents[2] / "plugins" / "nvidia_sm90" / "tests" / "samples" / "sm_90"
    return (samples / name.rsplit("_", 1)[0] / f"{name}.ptx").read_text(encoding="utf-8")


def test_a_compiled_matrix_product_has_a_parametric_function() -> None:
    assert program_only(sample("gemm_0")) is None


def test_a_compiled_matrix_product_with_another_bound_differs() -> None:
    text = sample("gemm_0")
    whole = parametric_function(text)
    loops = [index for index, line in enumerate(text.splitlines()) if "bra" in line and "@" in line]
    assert loops
    mutated = text.replace("gemm_param_5]", "gemm_param_4]")
    assert mutated != text
    assert signature(mutated) != whole


def of_warps(meeting: str) -> str:
    """target[i] = source[i ^ 1] through shared memory, for warps of which the second has ended before they meet."""
    return kernel(
        "\n".join(
            [
                "\t.shared .align 16 .b8 room[512];",
                "\tmul.wide.u32 %rd5, %r4, 4;",
                "\tadd.s64 %rd6, %rd1, %rd5;",
                "\tadd.s64 %rd7, %rd2, %rd5;",
                "\tmov.u32 %r8, room;",
                "\tmov.b32 %r7, 0;",
                "\tmov.b32 %r12, 0;",
                "\tsetp.ge.u32 %p1, %r4, 32;",
                "\t@%p1 bra $done;",
                "\tld.global.b32 %r7, [%rd6];",
                "\tshl.b32 %r9, %r4, 2;",
                "\tadd.u32 %r10, %r8, %r9;",
                "\txor.b32 %r11, %r10, 4;",
                "\tst.shared.b32 [%r10], %r7;",
                f"\t{meeting}",
                "\tld.shared.b32 %r12, [%r11];",
                "\tst.global.b32 [%rd7], %r12;",
                "$done:",
            ]
        )
        + "\n",
        64,
    )


@pytest.mark.parametrize("meeting", ["bar.sync 1, 32;", "bar.sync 0, 32;", "bar.warp.sync -1;"])
def test_warps_that_meet_alone(meeting: str) -> None:
    assert signature(of_warps(meeting)) == signature(of_warps("bar.sync 2, 32;"))
    with pytest.raises(Unsupported, match="no barrier between"):
        signature(of_warps("add.u32 %r13, %r12, 1;"))
