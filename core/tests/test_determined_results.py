"""For every launch, a kernel whose result is not determined is Equal to no kernel, itself included.

Each undetermined kernel is paired with a determined one that differs from it in one respect.
"""

from __future__ import annotations

import pytest
from parametric_kernels import SM90, kernel, notes, program_only, signature

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.parametric.global_conflicts import ONE_BLOCK_ALONG_OTHER_AXES
from bitwise_core.checker.partition import partition, verdicts
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.launch import Argument, Launch

ADDRESSES = """	mad.lo.s32 %r5, %r3, 128, %r4;
	mul.wide.s32 %rd3, %r5, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	ld.global.b32 %r6, [%rd4];
	mov.b32 %r7, cells;
	shl.b32 %r8, %r4, 2;
	add.s32 %r9, %r7, %r8;
	xor.b32 %r10, %r9, 256;
"""
"""The element of each thread, and the addresses of its cell of shared memory and of the cell of another warp."""


def with_cells(body: str) -> str:
    text = kernel(ADDRESSES + body)
    return text.replace(".visible", ".extern .shared .align 16 .b8 cells[];\n.visible")


EXCHANGE = """	st.shared.b32 [%r9], %r6;
{barrier}	ld.shared.b32 %r11, [%r10];
	st.global.b32 [%rd5], %r11;
"""
BARRIER = "\tbar.sync 0;\n"
BRANCH = """	setp.lt.s32 %p1, %r1, 5;
	@%p1 bra $skip;
	bar.sync 0;
$skip:
"""
LOOP = """	mov.b32 %r20, 0;
	mov.b32 %r11, 0;
{before}	setp.lt.s32 %p1, %r1, 1;
	@%p1 bra $done;
$loop:
	st.shared.b32 [%r9{own}], %r6;
	bar.sync 0;
	ld.shared.b32 %r12, [%r10];
	add.s32 %r11, %r11, %r12;
{after}	add.s32 %r20, %r20, 1;
	setp.lt.s32 %p2, %r20, %r1;
	@%p2 bra $loop;
$done:
{last}	st.global.b32 [%rd5], %r11;
"""
SLOTS = """	mov.b32 %r20, 0;
	mov.b32 %r21, 0;
	mov.b32 %r11, 0;
	setp.lt.s32 %p1, %r1, 1;
	@%p1 bra $done;
$loop:
	add.s32 %r22, %r9, %r21;
	add.s32 %r23, %r10, %r21;
	st.shared.b32 [%r22], %r6;
	bar.sync 0;
	ld.shared.b32 %r12, [%r23];
	add.s32 %r11, %r11, %r12;
	xor.b32 %r21, %r21, 512;
	add.s32 %r20, %r20, 1;
	setp.lt.s32 %p2, %r20, %r1;
	@%p2 bra $loop;
$done:
{last}	st.shared.b32 [%r9], %r11;
	bar.sync 0;
	ld.shared.b32 %r13, [%r9];
	st.global.b32 [%rd5], %r13;
"""
"""Iterations use two slots of shared memory in turn; the second one is free after an even number of iterations."""
SUMS = """	mov.b32 %r20, 0;
	mov.b32 %r21, 0;
	mov.b32 %r11, 0;
	setp.lt.s32 %p1, %r1, 1;
	@%p1 bra $done;
$loop:
	add.s32 %r22, %r9, %r21;
	add.s32 %r23, %r10, %r21;
	st.shared.b32 [%r22], %r6;
	bar.sync 0;
	ld.shared.b32 %r12, [%r23];
	add.rn.f32 %r11, %r11, %r12;
	xor.b32 %r21, %r21, 512;
	add.s32 %r20, %r20, 1;
	setp.lt.s32 %p2, %r20, %r1;
	@%p2 bra $loop;
$done:
{last}	st.shared.b32 [%r9+512], %r11;
	st.global.b32 [%rd5], %r11;
"""
"""A loop that is summarised; the first slot is free after an even number of iterations, the second after an odd one."""
PERSISTENT = """	mov.u32 %r20, %nctaid.x;
	mov.b32 %r21, %r3;
	setp.ge.s32 %p1, %r21, %r1;
	@%p1 bra $done;
$loop:
	mad.lo.s32 %r22, %r21, 128, %r4;
	mul.wide.s32 %rd6, %r22, 4;
	add.s64 %rd7, %rd1, %rd6;
	add.s64 %rd8, %rd2, %rd6;
	ld.global.b32 %r23, [%rd7];
	st.shared.b32 [%r9], %r23;
	bar.sync 0;
	ld.shared.b32 %r24, [%r10];
{after}	st.global.b32 [%rd8], %r24;
	add.s32 %r21, %r21, %r20;
	setp.lt.s32 %p2, %r21, %r1;
	@%p2 bra $loop;
$done:
"""
ONE_SIDE = """	setp.lt.s32 %p1, %r1, 5;
{before}	@%p1 bra $skip;
	mov.b32 %r11, %r6;
$skip:
	st.global.b32 [%rd5], %r11;
"""
GUARDED = "{before}\tsetp.lt.s32 %p1, %r4, {bound};\n\t@%p1 mov.b32 %r11, %r6;\n\tst.global.b32 [%rd5], %r11;\n"
CELL = """	setp.lt.s32 %p1, %r4, {bound};
	@%p1 st.shared.b32 [%r9], %r6;
	bar.sync 0;
	ld.shared.b32 %r11, [%r10];
	st.global.b32 [%rd5], %r11;
"""
LANES = """	setp.eq.s32 %p1, %r4, 31;
	@%p1 st.shared.b32 [%r7], %r6;
	bar.sync 0;
	ld.shared.b32 %r11, [%r7];
{barrier}	@%p1 st.shared.b32 [%r7], %r1;
	st.global.b32 [%rd5], %r11;
"""
AT = (
    "\t{index}\n\tmul.wide.s32 %rd6, %r20, {scale};\n\tadd.s64 %rd7, %rd2, %rd6;\n\tst.global.{kind} [%rd7], {value};\n"
)


def at(index: str, kind: str = "b32", scale: int = 4, value: str = "%r6") -> str:
    return AT.format(index=index, kind=kind, scale=scale, value=value)


IN_PLACE = "\tld.global.b32 %r11, [%rd5{other}];\n\tadd.s32 %r11, %r11, %r6;\n\tst.global.b32 [%rd5], %r11;\n"
TWO_STORES = at("mad.lo.s32 %r20, %r3, 128, %r4;", value="%r3") + at("{second}", value="%r3")
UPDATE_BESIDE = """	mov.u32 %r5, {block};
	mad.lo.s32 %r8, %r3, 64, %r4;
	mul.wide.s32 %rd3, %r8, 4;
	add.s64 %rd4, %rd1, %rd3;
	st.global.b32 [%rd4], %r1;
	mad.lo.s32 %r9, %r5, 64, %r4;
	mul.wide.s32 %rd5, %r9, 4;
	add.s64 %rd6, %rd2, %rd5;
	ld.global.b32 %r10, [%rd6];
	add.s32 %r10, %r10, 1;
	st.global.b32 [%rd6], %r10;
"""
"""Blocks store elements of one buffer by their first index, and update elements of another by the index `block`."""
FROM_ANOTHER = """	xor.b32 %r20, %r4, {mask};
	mad.lo.s32 %r21, %r3, 128, %r20;
	mul.wide.s32 %rd6, %r21, 4;
	add.s64 %rd7, %rd2, %rd6;
	ld.global.b32 %r11, [%rd7];
	add.s32 %r11, %r11, %r6;
	st.global.b32 [%rd5], %r11;
"""
HALF = """	xor.b32 %r20, %r4, 64;
	mad.lo.s32 %r21, %r3, 128, %r20;
	mul.wide.s32 %rd6, %r21, 8;
	add.s64 %rd7, %rd2, %rd6;
	mul.wide.s32 %rd8, %r5, 8;
	add.s64 %rd8, %rd2, %rd8;
	st.global.b32 [%rd8], %r6;
	cvt.u16.u32 %rs1, %r6;
	st.global.b16 [%rd7+{place}], %rs1;
"""
"""Threads of different warps store 4 bytes and 2 bytes of 8 bytes."""
LOCAL = """	mov.u64 %rd20, own;
	setp.lt.s32 %p1, %r1, 5;
{before}	@%p1 bra $skip;
	st.local.b32 [%rd20], %r6;
$skip:
	ld.local.b32 %r11, [%rd20];
	st.global.b32 [%rd5], %r11;
"""
SWIZZLE = """	mov.b32 %r6, %r3;
	shr.u32 %r30, %r3, 2;
	and.b32 %r31, %r30, {mask};
	sub.s32 %r32, 2, %r31;
	rem.s32 %r33, %r3, %r32;
	add.s32 %r34, %r33, %r31;
	and.b32 %r35, %r3, {inner};
	div.s32 %r36, %r35, %r32;
	mad.lo.s32 %r37, %r34, 128, %r4;
	mad.lo.s32 %r38, %r36, 128, %r4;
	{bound}.s32 %r39, %r37, %r38;
	setp.lt.s32 %p1, %r39, 256;
	mad.lo.s32 %r41, %r34, 512, %r38;
	mul.wide.s32 %rd6, %r41, 4;
	add.s64 %rd7, %rd2, %rd6;
	@%p1 st.global.b32 [%rd7], %r6;
"""
"""Groups of 2 rows of tiles in 32 blocks: the first has both rows, and later ones none, with negative divisors."""
PRIVATE = """	mov.b32 %r20, 0;
	mov.b32 %r11, 0;
	mov.b32 %r13, 0;
	setp.lt.s32 %p1, %r4, %r2;
	@%p1 bra $done;
$loop:
	mul.wide.s32 %rd6, %r20, 4;
	add.s64 %rd7, %rd4, %rd6;
	ld.global.b32 %r12, [%rd7];
	add.rn.f32 %r13, %r13, %r12;
	add.rn.f32 %r11, %r11, %r13;
	add.rn.f32 %r13, %r13, {value};
{iteration}	add.s32 %r20, %r20, 1;
	setp.lt.s32 %p2, %r20, {limit};
	@%p2 bra $loop;
$done:
	st.global.b32 [%rd5], %r11;
"""
"""A loop that the threads from the second argument on execute, with a trip count of the first argument."""


def with_local(body: str) -> str:
    return with_cells(body).replace("\t.reg .pred", "\t.local .align 4 .b8 own[16];\n\t.reg .pred")


COUNT = """	setp.lt.s32 %p1, %r1, 5;
	selp.b64 %rd6, {bases}, %p1;
	mul.wide.s32 %rd7, %r6, 4;
	add.s64 %rd8, %rd6, %rd7;
	mov.b64 {{%r12, %r13}}, %rd8;
	shfl.sync.idx.b32 %r14, %r12, 0, 31, -1;
	shfl.sync.idx.b32 %r15, %r13, 0, 31, -1;
	mov.b64 %rd9, {{%r14, %r15}};
	mov.u32 %r16, 0;
	@%p1 atom.global.{operation} %r16, [%rd9], 1;
{after}"""
"""An atomic operation at an address that another lane computes from data; its old value replaces a number."""


def counted(bases: str = "%rd2, %rd2", operation: str = "add.u32", after: str = "") -> str:
    return with_cells(COUNT.format(bases=bases, operation=operation, after=after))


PLACES = """	st.shared.b32 [%r9], %r4;
	mov.b32 %r20, 0;
	setp.lt.s32 %p1, %r1, 1;
	@%p1 bra $done;
$loop:
	ld.shared.b32 %r11, [%r9];
	mad.lo.s32 %r13, %r3, %r1, %r20;
	mad.lo.s32 %r12, %r13, 128, %r11;
	mul.wide.s32 %rd6, %r12, 4;
	add.s64 %rd7, %rd2, %rd6;
	st.global.b32 [%rd7], %r6;
	setp.eq.s32 %p3, %r20, 6;
	@%p3 st.shared.b32 [%r9], {place};
	add.s32 %r20, %r20, 1;
	setp.lt.s32 %p2, %r20, %r1;
	@%p2 bra $loop;
$done:
"""
"""A loop in which each thread stores at the place that its cell holds; the seventh iteration changes the cell."""


READ_FIRST = """	mul.wide.s32 %rd8, %r5, 8;
	add.s64 %rd8, %rd2, %rd8;
	ld.global{kind}.b32 %r11, [%rd8];
	st.global.b32 [%rd8], %r1;
	st.global.b32 [%rd8+4], %r11;
"""
SIDES = """	mov.b32 %r20, 1;
	mov.b32 %r21, 2;
	setp.lt.s32 %p1, %r3, 2;
	@%p1 st.global.b32 [%rd2], {first};
	@!%p1 st.global.b32 [%rd2], {second};
"""
GOES_ON = """	mov.b32 %r20, 1;
	mov.b32 %r21, 2;
	st.global.b32 [%rd2], %r20;
	setp.lt.s32 %p1, %r3, 2;
	@%p1 bra $end;
	st.global.b32 [%rd2], {value};
$end:
"""
TEXTS = {
    "a missing barrier": (with_cells(EXCHANGE.format(barrier="")), with_cells(EXCHANGE.format(barrier=BARRIER))),
    "a barrier on one side of a branch": (
        with_cells(EXCHANGE.format(barrier=BRANCH)),
        with_cells(EXCHANGE.format(barrier=BRANCH + BARRIER)),
    ),
    "no barrier at the end of an iteration": (
        with_cells(LOOP.format(before="", own="", after="", last="")),
        with_cells(LOOP.format(before="", own="", after=BARRIER, last="")),
    ),
    "an iteration after which all threads store at one place": (
        with_cells(PLACES.format(place="0")),
        with_cells(PLACES.format(place="%r4")),
    ),
    "no barrier between a loop and an access before it": (
        with_cells(LOOP.format(before="\tld.shared.b32 %r30, [%r10];\n", own="", after=BARRIER, last="")),
        with_cells(LOOP.format(before="\tld.shared.b32 %r30, [%r9];\n", own="", after=BARRIER, last="")),
    ),
    "no barrier between accesses before and after a loop that may have no iteration": (
        with_cells(
            LOOP.format(
                before="\tst.shared.b32 [%r9+1024], %r6;\n",
                own="",
                after=BARRIER,
                last="\tld.shared.b32 %r11, [%r10+1024];\n",
            )
        ),
        with_cells(
            LOOP.format(
                before="\tst.shared.b32 [%r9+1024], %r6;\n",
                own="",
                after=BARRIER,
                last=BARRIER + "\tld.shared.b32 %r11, [%r10+1024];\n",
            )
        ),
    ),
    "no barrier between a loop and an access after it, for odd numbers of iterations": (
        with_cells(SLOTS.format(last="")),
        with_cells(SLOTS.format(last=BARRIER)),
    ),
    "no barrier between a summarised loop and an access after it, for even numbers of iterations": (
        with_cells(SUMS.format(last="")),
        with_cells(SUMS.format(last=BARRIER)),
    ),
    "no barrier at the end of a persistent iteration": (
        with_cells(PERSISTENT.format(after="")),
        with_cells(PERSISTENT.format(after=BARRIER)),
    ),
    "a write after the reads of several lanes of a warp": (
        with_cells(LANES.format(barrier="")),
        with_cells(LANES.format(barrier=BARRIER)),
    ),
    "an unwritten register": (
        with_cells("\tst.global.b32 [%rd5], %r50;\n"),
        with_cells("\tst.global.b32 [%rd5], %r6;\n"),
    ),
    "a register that one side of a branch writes": (
        with_cells(ONE_SIDE.format(before="")),
        with_cells(ONE_SIDE.format(before="\tmov.b32 %r11, 0;\n")),
    ),
    "a register that some threads write": (
        with_cells(GUARDED.format(before="", bound=64)),
        with_cells(GUARDED.format(before="\tmov.b32 %r11, 0;\n", bound=64)),
    ),
    "unwritten shared memory": (with_cells(CELL.format(bound=64)), with_cells(CELL.format(bound=128))),
    "local memory that one side of a branch writes": (
        with_local(LOCAL.format(before="")),
        with_local(LOCAL.format(before="\tst.local.b32 [%rd20], %r1;\n")),
    ),
    "an address without the block": (
        with_cells(at("mov.b32 %r20, %r4;")),
        with_cells(at("mov.b32 %r20, %r4;", value="%r1")),
    ),
    "an address without the thread": (
        with_cells(at("mov.b32 %r20, %r3;")),
        with_cells(at("mov.b32 %r20, %r3;", value="%r3")),
    ),
    "a pair of blocks at one address": (
        with_cells(at("shr.u32 %r20, %r3, 1;\n\tmad.lo.s32 %r20, %r20, 128, %r4;")),
        with_cells(at("shl.b32 %r20, %r3, 1;\n\tmad.lo.s32 %r20, %r20, 128, %r4;")),
    ),
    "two contents of which the block's number decides": (
        kernel(SIDES.format(first="%r20", second="%r21"), 1),
        kernel(SIDES.format(first="%r20", second="%r20"), 1),
    ),
    "a content that some blocks replace": (
        kernel(GOES_ON.format(value="%r21"), 1),
        kernel(GOES_ON.format(value="%r20"), 1),
    ),
    "a load that nothing orders with a later store": (
        with_cells(READ_FIRST.format(kind=".nc")),
        with_cells(READ_FIRST.format(kind="")),
    ),
    "a remainder of the block": (
        with_cells(at("rem.s32 %r20, %r3, %r2;\n\tmad.lo.s32 %r20, %r20, 128, %r4;")),
        with_cells(at("mul.lo.s32 %r20, %r3, %r2;\n\tmad.lo.s32 %r20, %r20, 128, %r4;")),
    ),
    "a remainder that is computed from the quotient": (
        with_cells(
            at("div.s32 %r21, %r3, %r2;\n\tmul.lo.s32 %r22, %r21, %r2;\n\tsub.s32 %r20, %r3, %r22;", value="%r3")
        ),
        with_cells(at("mov.b32 %r20, %r3;", value="%r3")),
    ),
    "tiles that overlap": (
        with_cells(at("mad.lo.s32 %r20, %r3, 64, %r4;")),
        with_cells(at("mad.lo.s32 %r20, %r3, 192, %r4;")),
    ),
    "the sum of two block indices": (
        with_cells(at("mov.u32 %r21, %ctaid.y;\n\tadd.s32 %r20, %r3, %r21;\n\tmad.lo.s32 %r20, %r20, 128, %r4;")),
        with_cells(
            at(
                "mov.u32 %r21, %ctaid.y;\n\tmov.u32 %r22, %nctaid.x;\n\tmad.lo.s32 %r20, %r21, %r22, %r3;\n"
                "\tmad.lo.s32 %r20, %r20, 128, %r4;"
            )
        ),
    ),
    "an address in which every thread has another multiple of the block": (
        with_cells(at("add.s32 %r21, %r4, 1;\n\tmul.lo.s32 %r20, %r3, %r21;", value="%r3")),
        with_cells(at("add.s32 %r21, %r4, 1;\n\tmad.lo.s32 %r20, %r3, 128, %r21;", value="%r3")),
    ),
    "the minimum of the thread and a scalar": (
        with_cells(at("min.s32 %r20, %r4, %r1;\n\tmad.lo.s32 %r20, %r3, 128, %r20;", value="%r4")),
        with_cells(at("min.s32 %r20, %r4, 200;\n\tmad.lo.s32 %r20, %r3, 128, %r20;", value="%r4")),
    ),
    "one of two stores without the block": (
        kernel(TWO_STORES.format(second="add.s32 %r20, %r4, 64;"), 64),
        kernel(TWO_STORES.format(second="mad.lo.s32 %r20, %r3, 128, %r4;\n\tadd.s32 %r20, %r20, 64;"), 64),
    ),
    "an update by blocks that store apart in another buffer": (
        kernel(UPDATE_BESIDE.format(block="%ctaid.y"), 64),
        kernel(UPDATE_BESIDE.format(block="%ctaid.x"), 64),
    ),
    "elements that overlap in part": (
        with_cells(at("mov.b32 %r20, %r5;", scale=2)),
        with_cells(at("mov.b32 %r20, %r5;")),
    ),
    "elements of two widths": (
        with_cells(at("mov.b32 %r20, %r5;") + "\tcvt.u16.u32 %rs1, %r6;\n\tst.global.b16 [%rd7+6], %rs1;\n"),
        with_cells(at("mov.b32 %r20, %r5;", scale=8) + "\tcvt.u16.u32 %rs1, %r6;\n\tst.global.b16 [%rd7+4], %rs1;\n"),
    ),
    "a swizzle by half of the blocks": (
        kernel(SWIZZLE.format(mask=536870904, inner=1, bound="max")),
        kernel(SWIZZLE.format(mask=536870904, inner=31, bound="max")),
    ),
    "an address from memory": (with_cells(at("mov.b32 %r20, %r6;")), with_cells(at("mov.b32 %r20, %r5;"))),
    "an update of a neighbour's element": (
        with_cells(IN_PLACE.format(other="+4")),
        with_cells(IN_PLACE.format(other="")),
    ),
    "an update from an element that another warp updates": (
        with_cells(FROM_ANOTHER.format(mask=64)),
        with_cells(FROM_ANOTHER.format(mask=0)),
    ),
    "a half of an element that another warp stores": (
        with_cells(HALF.format(place=2)),
        with_cells(HALF.format(place=4)),
    ),
    "a sum of floating-point numbers in any order": (
        with_cells("\tred.global.add.f32 [%rd2], %r6;\n"),
        with_cells("\tred.global.add.u32 [%rd2], %r6;\n"),
    ),
    "a sum that is read": (
        with_cells("\tld.global.b32 %r11, [%rd2];\n\tred.global.add.u32 [%rd2], %r11;\n"),
        with_cells("\tld.global.b32 %r11, [%rd1];\n\tred.global.add.u32 [%rd2], %r11;\n"),
    ),
    "an old value of an atomic operation that is added": (
        counted(after="\tred.global.add.u32 [%rd9], %r16;\n"),
        counted(after="\tred.global.add.u32 [%rd9], %r4;\n"),
    ),
    "an exchange at a computed address": (counted(operation="exch.b32"), counted(operation="max.s32")),
    "an atomic operation in one of two buffers": (counted("%rd1, %rd2"), counted("%rd2, %rd2")),
    "an atomic operation in a buffer that is stored": (
        counted(after="\tst.global.b32 [%rd5], %r6;\n"),
        counted(after="\tred.global.add.u32 [%rd5], %r6;\n"),
    ),
}
"""Pairs of an undetermined and a determined kernel."""


def source(text: str, name: str = "kernel.ptx", launch: Launch | None = None) -> Source:
    return Source(name, text, launch)


def launch(blocks: int, n: int = 6, m: int = 3, rows: int = 1) -> Launch:
    arguments = (
        Argument(kind="buffer", buffer="a"),
        Argument(kind="buffer", buffer="b"),
        Argument(kind="i32", value=n),
        Argument(kind="i32", value=m),
    )
    return Launch(file="kernel.ptx", grid=(blocks, rows, 1), args=arguments)


@pytest.mark.parametrize("name", TEXTS)
def test_an_undetermined_kernel_is_not_equal_to_itself(name: str) -> None:
    undetermined, determined = TEXTS[name]
    options = Options(every_launch=True, audit_contraction=False)
    assert len(signature(determined)) == 16
    found = analyse(source(undetermined), SM90, {}, options)
    assert found.signature is None
    assert found.unknown
    assert not found.failed
    first, second = verdicts(source(undetermined), [source(undetermined, "again.ptx")], "sm_90", options, workers=1)
    assert first.outcome is second.outcome is Outcome.UNKNOWN
    classes = partition([source(undetermined), source(undetermined, "again.ptx")], "sm_90", options, workers=1)
    assert len(classes.unknown) == len(classes.classes) == 2


@pytest.mark.parametrize("name", [name for name in TEXTS if "loop" not in name and "iteration" not in name])
def test_an_undetermined_kernel_is_not_equal_to_itself_in_a_launch(name: str) -> None:
    options = Options(audit_contraction=False)
    of_test = launch(4, 3, rows=2 if "two block" in name else 1)
    found = [analyse(source(text, launch=of_test), SM90, {"a": 1, "b": 2}, options) for text in TEXTS[name]]
    assert [each.unknown is None for each in found] == [False, True]
    assert not found[0].failed


@pytest.mark.parametrize(
    ("name", "racing"),
    [
        ("no barrier between a loop and an access after it, for odd numbers of iterations", 1),
        ("no barrier between a summarised loop and an access after it, for even numbers of iterations", 0),
    ],
)
def test_only_odd_or_only_even_numbers_of_iterations_race(name: str, racing: int) -> None:
    """The pairs about slots: launches with other numbers of iterations are determined."""
    undetermined, determined = TEXTS[name]
    assert program_only(determined) is None or racing
    options = Options(audit_contraction=False)
    for n in (1, 2, 3, 4):
        found = analyse(source(undetermined, launch=launch(2, n)), SM90, {"a": 1, "b": 2}, options)
        assert (found.unknown is not None) == found.nondeterministic == (n % 2 == racing)


def test_a_kernel_that_updates_its_buffer_names_the_axes_it_does_not_use() -> None:
    _, determined = TEXTS["an update of a neighbour's element"]
    assert ONE_BLOCK_ALONG_OTHER_AXES in notes(determined)


def test_a_given_launch_may_refute_the_assumption_on_strides() -> None:
    """Rows of n elements at a distance of m: different indices have different addresses if n is at most m."""
    text = with_cells(
        "\tsetp.lt.s32 %p1, %r4, %r1;\n\tmad.lo.s32 %r20, %r3, %r2, %r4;\n\tmul.wide.s32 %rd6, %r20, 4;\n"
        "\tadd.s64 %rd7, %rd2, %rd6;\n\t@%p1 st.global.b32 [%rd7], %r6;\n"
    )
    options = Options(every_launch=True, audit_contraction=False)
    found = [
        analyse(source(text, launch=each), SM90, {"a": 1, "b": 2}, options)
        for each in (None, launch(4, 6, 6), launch(4, 6, 3))
    ]
    assert [each.unknown is None for each in found] == [True, True, False]
    assert "elements stored at different indices have different addresses" in found[0].notes


@pytest.mark.parametrize(
    ("mask", "inner", "bound", "determined"),
    [
        (0x1FFFFFF8, 31, "max", True),
        (0x1FFFFFF8, 15, "max", False),
        (0x1FFFFFE8, 31, "max", False),
        (0x3FFFFFF8, 31, "max", True),
        (0x3FFFFFE8, 31, "max", False),
        (0x0FFFFFF8, 31, "max", False),
        (0x1FFFFFF8, 31, "min", False),
    ],
)
def test_a_swizzle_by_constants_is_enumerated(mask: int, inner: int, bound: str, determined: bool) -> None:
    """A mask with a hole or without the highest bit admits further blocks; a minimum bounds one coordinate only."""
    text = kernel(SWIZZLE.format(mask=mask, inner=inner, bound=bound))
    found = analyse(source(text), SM90, {}, Options(every_launch=True, audit_contraction=False))
    assert (found.signature is not None) is determined
    assert not found.failed


ROWS = (
    "mov.u32 %r21, %ctaid.y;\n\tmul.lo.s32 %r22, %r3, {x};\n\tmad.lo.s32 %r20, %r21, {y}, %r22;\n"
    "\tadd.s32 %r20, %r20, %r4;"
)


def test_a_constant_stride_bounds_the_axis_within_it_by_assumption() -> None:
    text = kernel(at(ROWS.format(x=384, y=128), value="%r3"))
    assert "%ctaid.y is less than 3" in notes(text)
    options = Options(every_launch=True, audit_contraction=False)
    found = [analyse(source(text, launch=launch(4, rows=rows)), SM90, {"a": 1, "b": 2}, options) for rows in (3, 4)]
    assert [each.unknown is None for each in found] == [True, False]


@pytest.mark.parametrize(("x", "y"), [(128, 128), (192, 128), (320, 128), (256, 64), (-256, 128), (0, 128)])
def test_other_strides_of_two_axes_are_rejected(x: int, y: int) -> None:
    text = kernel(at(ROWS.format(x=x, y=y), value="%r3"))
    found = analyse(source(text), SM90, {}, Options(every_launch=True, audit_contraction=False))
    assert found.signature is None
    assert not found.failed


MATRIX = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{%r11,%r12,%r13,%r14}, {%r6,%r6,%r6,%r6}, {%r6,%r6}, {%r6,%r6,%r6,%r6};"
)


@pytest.mark.parametrize("condition", ["lt.s32 %p1, %r4, %r2", "gt.f32 %p1, %r6, 0f00000000"])
@pytest.mark.parametrize(
    "exchange",
    [
        "shfl.sync.bfly.b32 %r11, %r6, 1, 31, -1;",
        "redux.sync.add.s32 %r11, %r6, -1;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r11}, [%r7];",
        MATRIX,
    ],
)
def test_threads_that_a_condition_selects_exchange_nothing(condition: str, exchange: str) -> None:
    """Lanes that do not take part in an exchange leave its result undefined, for every launch and for one."""
    start = "\tst.shared.b32 [%r9], %r6;\n\tbar.sync 0;\n\tmov.b32 %r11, 0;\n"
    branch = f"\tsetp.{condition};\n\t@%p1 bra $done;\n"
    bodies = [start + f"{each}\t{exchange}\n$done:\n\tst.global.b32 [%rd5], %r11;\n" for each in ("", branch)]
    for options in (Options(every_launch=True, audit_contraction=False), Options(audit_contraction=False)):
        of_test = None if options.every_launch else launch(4, 6, 3)
        found = [
            analyse(source(with_cells(each), launch=of_test), SM90, {"a": 1, "b": 2} if of_test else {}, options)
            for each in bodies
        ]
        assert [each.unknown is None for each in found] == [True, False]
        assert not found[1].failed


@pytest.mark.parametrize(
    ("value", "iteration", "limit", "determined"),
    [
        ("%r11", "", "%r1", True),
        ("%r11", "", "%r4", False),
        ("%r50", "", "%r1", False),
        ("%r11", "\tst.shared.b32 [%r9], %r11;\n", "%r1", False),
        ("%r11", "\tbar.sync 0;\n", "%r1", False),
        ("%r11", "\tshfl.sync.bfly.b32 %r11, %r11, 1, 31, -1;\n", "%r1", False),
        ("%r11", "\tst.global.b32 [%rd5], %r11;\n", "%r1", False),
        ("%r11", "\tst.global.b32 [%rd2], %r11;\n", "%r1", False),
        ("%r11", "\tred.global.add.u32 [%rd2], %r11;\n", "%r1", False),
    ],
)
def test_loops_of_some_threads_are_checked(value: str, iteration: str, limit: str, determined: bool) -> None:
    text = with_cells(PRIVATE.format(value=value, iteration=iteration, limit=limit))
    found = analyse(source(text), SM90, {}, Options(every_launch=True, audit_contraction=False))
    assert (found.signature is not None) is determined
    assert not found.failed


def test_a_loop_of_some_threads_with_a_known_trip_count_is_executed() -> None:
    text = with_cells(PRIVATE.format(value="%r11", iteration="", limit="4"))
    assert program_only(text) is None


CYCLIC = """	mov.b32 %r20, 0;
	mov.b32 %r21, 0;
	mov.b32 %r22, 0;
	mul.wide.s32 %rd9, %r5, 4;
$loop:
	add.rn.f32 %r21, %r21, %r22;
	add.rn.f32 %r22, %r22, %r21;
	add.rn.f32 %r21, %r21, %r6;
{iteration}	add.s32 %r20, %r20, 1;
	setp.lt.s32 %p2, %r20, %r1;
	@%p2 bra $loop;
	st.global.b32 [%rd5], %r21;
"""


def test_text_of_a_determined_kernel_is_compared() -> None:
    text = with_cells(CYCLIC.format(iteration=""))
    assert program_only(text) is not None
    assert signature(text) == signature(text.replace("%r21", "%r41"))
    assert signature(text) != signature(text.replace("%r21, %r21, %r6", "%r21, %r6, %r6"))


@pytest.mark.parametrize(
    ("iteration", "determined"),
    [
        ("\tst.shared.b32 [%r9], %r21;\n\tbar.sync 0;\n\tld.shared.b32 %r22, [%r10];\n\tbar.sync 0;\n", True),
        ("\tst.shared.b32 [%r9], %r21;\n\tbar.sync 0;\n\tld.shared.b32 %r22, [%r10];\n", False),
        ("\tadd.rn.f32 %r22, %r22, %r40;\n", False),
        ("\tadd.rn.f32 %r22, %r22, %r40;\n\tmov.b32 %r40, %r21;\n", False),
        ("\tadd.s32 %r9, %r9, %r2;\n\tst.shared.b32 [%r9], %r21;\n\tbar.sync 0;\n", False),
    ],
)
def test_loops_whose_text_is_compared_are_checked(iteration: str, determined: bool) -> None:
    text = with_cells(CYCLIC.format(iteration=iteration))
    found = analyse(source(text), SM90, {}, Options(every_launch=True, audit_contraction=False))
    assert (found.signature is not None) is determined
    assert not found.failed


@pytest.mark.parametrize(("step", "determined"), [("512", True), ("0", False), ("256", False)])
def test_iterations_that_store_are_checked(step: str, determined: bool) -> None:
    """Blocks compute rows with a scalar stride; a thread stores 4 bytes in each of its iterations."""
    body = f"""	mul.lo.s32 %r30, %r3, %r2;
	mul.wide.s32 %rd10, %r30, 4;
	mul.wide.s32 %rd11, %r4, 4;
	add.s64 %rd12, %rd10, %rd11;
	add.s64 %rd13, %rd2, %rd12;
	mov.b32 %r20, 0;
$loop:
	add.s32 %r6, %r6, %r20;
	st.global.b32 [%rd13], %r6;
	add.s64 %rd13, %rd13, {step};
	add.s32 %r20, %r20, 1;
	setp.lt.s32 %p2, %r20, %r1;
	@%p2 bra $loop;
"""
    found = analyse(source(with_cells(body)), SM90, {}, Options(every_launch=True, audit_contraction=False))
    assert (found.signature is not None) is determined
    assert not found.failed


@pytest.mark.parametrize(("last", "determined"), [(1, True), (2, True), (0, False)])
def test_slots_that_start_before_the_first_are_followed(last: int, determined: bool) -> None:
    """Iterations use `last` + 1 slots of shared memory in turn; one slot needs a second barrier."""
    slots = f"""	add.s32 %r51, %r50, 1;
	setp.gt.s32 %p4, %r51, {last};
	selp.b32 %r50, 0, %r51, %p4;
	shl.b32 %r52, %r50, 9;
	add.s32 %r53, %r9, %r52;
	add.s32 %r54, %r10, %r52;
	st.shared.b32 [%r53], %r21;
	bar.sync 0;
	ld.shared.b32 %r22, [%r54];
"""
    text = with_cells("\tmov.b32 %r50, -1;\n" + CYCLIC.format(iteration=slots))
    found = analyse(source(text), SM90, {}, Options(every_launch=True, audit_contraction=False))
    assert (found.signature is not None) is determined
    assert not found.failed


@pytest.mark.parametrize(("barriers", "determined"), [(BARRIER, True), ("", False)])
def test_branches_that_only_late_iterations_take_are_followed(barriers: str, determined: bool) -> None:
    """From iteration 20 on, iterations exchange values in another part of shared memory, with no second barrier."""
    iteration = f"""	setp.lt.s32 %p5, %r20, 20;
	@%p5 bra $early;
	st.shared.b32 [%r9+1024], %r21;
	bar.sync 0;
	ld.shared.b32 %r22, [%r10+1024];
{barriers}$early:
"""
    text = with_cells(CYCLIC.format(iteration=iteration))
    found = analyse(source(text), SM90, {}, Options(every_launch=True, audit_contraction=False))
    assert (found.signature is not None) is determined
    assert not found.failed


DIVERGING = """	mov.b32 %r20, 0;
	setp.ge.u32 %p1, %r20, %r3;
	@%p1 bra $done;
$loop:
	st.shared.b32 [%r9], %r6;
	bar.sync 0;
	add.u32 %r20, %r20, 1;
	setp.lt.u32 %p1, %r20, %r3;
	@%p1 bra $loop;
$done:
	st.shared.b32 [%r9], %r6;
	setp.eq.u32 %p2, %r3, {racy};
	@%p2 bra $skip;
	bar.sync 0;
$skip:
	ld.shared.b32 %r11, [%r10];
	st.global.b32 [%rd5], %r11;
"""
"""Every block loops as often as its number says; one block passes no barrier before it reads what others wrote."""


@pytest.mark.parametrize("racy", [0, 1, 6, 9, 14])
def test_a_block_of_many_that_diverge_reads_in_a_race(racy: int) -> None:
    arguments = (
        Argument(kind="buffer", buffer="a"), Argument(kind="buffer", buffer="b"),
        Argument(kind="i32", value=1), Argument(kind="i32", value=1),
    )  # fmt: skip
    launch = Launch(file="kernel.ptx", grid=(15, 1, 1), args=arguments)
    determined, undetermined = (
        analyse(
            Source("kernel.ptx", with_cells(DIVERGING.format(racy=block)), launch),
            SM90,
            {"a": 1, "b": 2},
            Options(audit_contraction=False),
        )
        for block in (99, racy)
    )
    assert determined.unknown is None
    assert undetermined.nondeterministic
    assert undetermined.signature is None
