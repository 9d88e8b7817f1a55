"""PTX of products of a vector and a matrix by fused multiply-adds, of which each warp has a lane of neighbours.

Where there are few elements, a warp has several lanes of fewer neighbours, so that there are more blocks.

A thread has one element, or two neighbouring ones, whose values of a line of the matrix are loaded as one word of 4
bytes.  Where lines have an odd length, every second line is shifted by one value: a thread then takes the second value
from the word of its neighbour, and the last thread of a warp has no elements of its own.  The words of the next lines
are loaded before the products of these are added.

The prefix of a register is its type: `%p_` predicate, `%h_` 16 bits, `%r_` 32 bits, `%d_` 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from bitwise_nvidia_sm90.gemm.kernels.lane_sums import added_lanes
from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.plan import LaneSum

PARAMETERS = ("V", "W", "C", "K", "count", "slice_k", "tile", "stride_w", "stride_cs", "stride_c")
"""Three pointers, four 32-bit integers, and three strides in elements."""
_POINTERS, _INTEGERS = PARAMETERS[:3], PARAMETERS[3:7]
_TYPES = {"p": "pred", "h": "b16", "r": "b32", "d": "b64"}
_THREADS = 32
"""The threads of a warp."""
MOST_LANES = 32
"""The lanes of a block."""
_MOST_VALUES = 512 * _THREADS
"""The values, or words, that a block loads at once, for which its threads have registers."""
_SETS = ("now", "next")


@dataclass(frozen=True, slots=True)
class LaneRows:
    """A configuration: `lanes`, of which the first `active` have values of k, in tiles of `tile` (0: one tile each).

    `rows` lines are loaded at once; a tile has a multiple of them, or one.  A lane has `width` threads, and a thread
    `own` elements, 1 or 2; with 2, a lane is a warp.  `odd` says that lines have an odd length.
    `lane_sum` is the order in which lanes are added, to +0 with `from_zero`.  `dtype` is the type of the operands,
    fp16 or bf16, and `output` that of the sums.
    """

    lanes: int
    active: int
    tile: int
    rows: int
    width: int
    own: int
    odd: bool
    lane_sum: LaneSum
    from_zero: bool
    dtype: str
    output: str

    @property
    def columns(self) -> int:
        """The elements of a block."""
        return self.own * (self.width - self.shifts)

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.lanes * self.width

    @property
    def shifts(self) -> bool:
        """Whether a thread takes values from the word of its neighbour."""
        return self.odd and self.own > 1

    @property
    def distance(self) -> int:
        """The distance of consecutive values of k of a lane in a tile, or of its tiles of one value."""
        return self.active if self.tile == 1 else 1

    @property
    def exists(self) -> bool:
        """Whether there is a kernel."""
        whole = self.tile < 2 or self.tile % self.rows == 0
        warps = self.width in ((8, 16, 32) if self.own == 1 else (32,)) and self.threads % _THREADS == 0
        fits = 2 <= self.lanes <= MOST_LANES and self.rows * self.threads <= _MOST_VALUES and self.own in (1, 2)
        return fits and whole and warps and self.dtype in ("fp16", "bf16")


@lru_cache(maxsize=64)
def lane_rows(given: LaneRows) -> TextKernel:
    """Return the kernel C[slice, n] = sum over the slice's k of V[k] W[k, n].

    Where a thread has two elements, the address of W is a multiple of 4.  V is contiguous, and the lines of W are
    `stride_w` elements apart, at least `count`, with contiguous values.  Slices and tiles are those of `scalar.lanes`;
    each lane has one accumulator.
    """
    body = "\n".join((*_start(given), *_batches(given), *_rest(given), *_sum(given)))
    registers = sorted(set(re.findall(r"%([phrd])_(\w+)", body)))
    declared = "\n".join(f".reg .{_TYPES[kind]} %{kind}_{rest};" for kind, rest in registers)
    kinds = {**dict.fromkeys(_INTEGERS, "u32")}
    listed = ",\n".join(f".param .{kinds.get(each, 'u64')} {each}" for each in PARAMETERS)
    order = "_".join(map(str, given.lane_sum.sequence or given.lane_sum.rounds))
    name = (
        f"lane_rows_{given.dtype}_{given.output}_{given.lanes}_of_{given.active}_tiles_of_{given.tile}_rows_{given.rows}_"
        f"{given.width}_of_{given.own}_{'odd' if given.odd else 'even'}_"
        f"{'sequence' if given.lane_sum.sequence else 'rounds'}_{order}"
        f"{'_from_zero' if given.from_zero else ''}"
    )
    shared = given.threads * given.own * 4
    text = (
        ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 shared_memory[];\n"
        f".visible .entry {name}(\n{listed}\n)\n.reqntid {given.threads}, 1, 1\n{{\n{declared}\n{body}\n}}\n"
    )
    return TextKernel(name, text, given.threads, shared, PARAMETERS)


def _start(given: LaneRows) -> Lines:
    """Read the parameters; compute the lane's first k, how many it has, and the thread's place in their lines."""
    yield f"mov.u32 %r_thread, %tid.x;\nshr.u32 %r_lane, %r_thread, {given.width.bit_length() - 1};"
    yield f"and.b32 %r_place, %r_thread, {given.width - 1};"
    for each in _POINTERS:
        yield f"ld.param.u64 %d_{each}, [{each}];\ncvta.to.global.u64 %d_{each}, %d_{each};"
    for each in _INTEGERS:
        yield f"ld.param.u32 %r_{each}, [{each}];"
    for each in PARAMETERS[7:]:
        yield f"ld.param.u64 %d_{each}, [{each}];"
    yield "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;"
    yield "mov.u32 %r_slice, %ctaid.y;\nmul.lo.u32 %r_first, %r_slice, %r_slice_k;"
    yield "sub.u32 %r_length, %r_K, %r_first;\nmin.u32 %r_length, %r_length, %r_slice_k;"
    if given.tile:
        yield f"div.u32 %r_common, %r_length, {given.tile * given.active};"
        yield f"mul.lo.u32 %r_common, %r_common, {given.tile};"
        yield f"mul.lo.u32 %r_own, %r_common, {given.active};\nsub.u32 %r_own, %r_length, %r_own;"
        yield f"mul.lo.u32 %r_before, %r_lane, {given.tile};"
        yield f"sub.s32 %r_own, %r_own, %r_before;\nmax.s32 %r_own, %r_own, 0;\nmin.s32 %r_own, %r_own, {given.tile};"
        yield "add.u32 %r_own, %r_own, %r_common;"
    else:
        yield "mul.lo.u32 %r_before, %r_lane, %r_tile;\nmin.u32 %r_before, %r_before, %r_length;"
        yield "sub.u32 %r_own, %r_length, %r_before;\nmin.u32 %r_own, %r_own, %r_tile;"
    if given.active < given.lanes:
        yield f"setp.ge.u32 %p_idle, %r_lane, {given.active};\n@%p_idle mov.u32 %r_own, 0;"
    yield "add.u32 %r_first, %r_first, %r_before;\ncvt.u64.u32 %d_first, %r_first;"
    yield "mov.u32 %r_block, %ctaid.x;"
    yield f"mul.lo.u32 %r_block, %r_block, {given.columns};\nmad.lo.u32 %r_element, %r_place, {given.own}, %r_block;"
    if given.own == 1:
        yield "sub.u32 %r_at, %r_count, 1;\nmin.u32 %r_at, %r_at, %r_element;"
    else:  # words after those of the last elements are in the next line
        yield "add.u32 %r_at, %r_count, 1;\nand.b32 %r_at, %r_at, -2;\nmin.u32 %r_at, %r_at, %r_element;"
    yield "cvt.u64.u32 %d_at, %r_at;\nmad.lo.u64 %d_at, %d_first, %d_stride_w, %d_at;"
    yield "shl.b64 %d_lines, %d_at, 1;"
    yield "shl.b64 %d_at, %d_first, 1;\nadd.u64 %d_factors, %d_V, %d_at;"
    yield f"mul.lo.u64 %d_step, %d_stride_w, {2 * given.distance};"
    yield "mov.b32 %r_sum_0, 0f00000000;\nmov.b32 %r_sum_1, 0f00000000;\nmov.b16 %h_zero, 0;\nmov.u32 %r_inside, 0;"
    # The last line is loaded value by value: after it there may be no word.
    yield "max.u32 %r_batches, %r_own, 1;\nsub.u32 %r_batches, %r_batches, 1;"
    yield f"div.u32 %r_batches, %r_batches, {given.rows};"
    yield f"mul.lo.u32 %r_rest, %r_batches, {given.rows};\nsub.u32 %r_rest, %r_own, %r_rest;"


def _batches(given: LaneRows) -> Lines:
    """Add the products of whole batches of lines, loading those of the next one before."""
    yield "setp.eq.u32 %p_done, %r_batches, 0;\n@%p_done bra REST;"
    yield from _load(given, _SETS[0])
    for own, other in (_SETS, _SETS[::-1]):
        yield f"BATCH_{own}: sub.u32 %r_batches, %r_batches, 1;"
        yield f"setp.eq.u32 %p_done, %r_batches, 0;\n@%p_done bra LAST_{own};"
        yield from _load(given, other)
        yield from _add(given, own)
    yield f"bra BATCH_{_SETS[0]};"
    for own in _SETS:
        yield f"LAST_{own}:"
        yield from _add(given, own)
        if own == _SETS[0]:
            yield "bra REST;"


def _load(given: LaneRows, own: str) -> Lines:
    """Load the words and the factors of a batch to registers of a set, and go to the next batch."""
    if given.shifts:
        yield f"cvt.u32.u64 %r_low, %d_lines;\nand.b32 %r_low, %r_low, 2;\nsetp.ne.u32 %p_shifted_{own}, %r_low, 0;"
    for row in range(given.rows):
        yield (
            "and.b64 %d_word, %d_lines, -4;\nadd.u64 %d_word, %d_word, %d_W;"
            if given.shifts
            else ("add.u64 %d_word, %d_lines, %d_W;")
        )
        if given.own == 1:
            yield f"ld.global.b16 %h_word_{own}_{row}, [%d_word];"
        else:
            yield f"ld.global.b32 %r_word_{own}_{row}, [%d_word];"
        yield f"ld.global.b16 %h_factor_{own}_{row}, [%d_factors+{2 * given.distance * row}];"
        yield "add.u64 %d_lines, %d_lines, %d_step;"
    yield f"add.u64 %d_factors, %d_factors, {2 * given.distance * given.rows};"
    if given.tile > 1:
        yield f"add.u32 %r_inside, %r_inside, {given.rows};\nsetp.eq.u32 %p_ends, %r_inside, {given.tile};"
        yield "@%p_ends mov.u32 %r_inside, 0;"
        others = 2 * given.tile * (given.active - 1)
        yield f"mul.lo.u64 %d_at, %d_stride_w, {others};\n@%p_ends add.u64 %d_lines, %d_lines, %d_at;"
        yield f"@%p_ends add.u64 %d_factors, %d_factors, {others};"


def _add(given: LaneRows, own: str) -> Lines:
    """Add the products of a batch, line by line."""
    alternates = given.distance % 2 == 1
    if given.shifts and alternates:
        yield f"not.pred %p_other, %p_shifted_{own};"
    for row in range(given.rows):
        if given.own == 1:
            yield from _products(given, f"%h_factor_{own}_{row}", [f"%h_word_{own}_{row}"])
            continue
        word = f"%r_word_{own}_{row}"
        yield f"mov.b32 {{%h_low, %h_high}}, {word};"
        if given.shifts:
            shifted = "%p_other" if alternates and row % 2 else f"%p_shifted_{own}"
            yield f"shfl.sync.down.b32 %r_neighbour, {word}, 1, 31, -1;"
            yield "mov.b32 {%h_after, %h_unused}, %r_neighbour;"
            yield f"selp.b16 %h_left, %h_high, %h_low, {shifted};\nselp.b16 %h_right, %h_after, %h_high, {shifted};"
        values = ["%h_left", "%h_right"] if given.shifts else ["%h_low", "%h_high"]
        yield from _products(given, f"%h_factor_{own}_{row}", values)


def _products(given: LaneRows, factor: str, values: Sequence[str], guard: str = "") -> Lines:
    """Add the products of a factor and the value of each element."""
    named = [("factor", factor), *zip(("left", "right"), values, strict=False)]
    for target, value in named:
        widened = f"mov.b32 %r_{target}, {{%h_zero, {value}}};"
        yield widened if given.dtype == "bf16" else f"cvt.f32.f16 %r_{target}, {value};"
    for index, (target, _) in enumerate(named[1:]):
        yield f"{guard}fma.rn.f32 %r_sum_{index}, %r_factor, %r_{target}, %r_sum_{index};"


def _rest(given: LaneRows) -> Lines:
    """Add the products of the last lines, of which there is less than a batch or one; load value by value."""
    yield "REST: setp.lt.u32 %p_left, %r_element, %r_count;"
    yield "add.u32 %r_at, %r_element, 1;\nsetp.lt.u32 %p_right, %r_at, %r_count;\nadd.u64 %d_lines, %d_lines, %d_W;"
    sides = (("left", 0), ("right", 2))[: given.own]
    for row in range(given.rows):
        names = [f"%h_{each}_{row}" for each in ("rest", *(f"rest_{side}" for side, _ in sides))]
        yield from (f"mov.b16 {each}, 0;" for each in names)
        yield f"setp.gt.u32 %p_exists_{row}, %r_rest, {row};"
        yield f"@%p_exists_{row} ld.global.b16 {names[0]}, [%d_factors+{2 * given.distance * row}];"
        for side, place in sides:
            yield f"and.pred %p_value, %p_exists_{row}, %p_{side};"
            yield f"@%p_value ld.global.b16 %h_rest_{side}_{row}, [%d_lines+{place}];"
        yield "add.u64 %d_lines, %d_lines, %d_step;"
    for row in range(given.rows):
        values = [f"%h_rest_{side}_{row}" for side, _ in sides]
        yield from _products(given, f"%h_rest_{row}", values, f"@%p_exists_{row} ")


def _sum(given: LaneRows) -> Lines:
    """Add the lanes of each element, and store it."""
    yield f"mov.u32 %r_shared, shared_memory;\nmad.lo.u32 %r_at, %r_thread, {4 * given.own}, %r_shared;"
    yield "st.shared.b32 [%r_at], %r_sum_0;" if given.own == 1 else "st.shared.v2.b32 [%r_at], {%r_sum_0, %r_sum_1};"
    yield "bar.sync 0;"
    yield f"setp.ge.u32 %p_done, %r_thread, {given.columns};\n@%p_done bra END;"
    yield "add.u32 %r_element, %r_block, %r_thread;\nsetp.ge.u32 %p_done, %r_element, %r_count;\n@%p_done bra END;"
    yield "mad.lo.u32 %r_at, %r_thread, 4, %r_shared;"
    values = [f"%r_lane_{lane}" for lane in range(given.lanes)]
    for lane, each in enumerate(values):
        if lane < given.active:
            yield f"ld.shared.b32 {each}, [%r_at+{4 * given.own * given.width * lane}];"
        else:
            yield f"mov.b32 {each}, 0f80000000;"  # -0 changes no sum
    total = yield from added_lanes(given.lane_sum, values)
    if given.from_zero:
        yield f"add.rn.f32 {total}, {total}, 0f00000000;"
    yield "cvt.u64.u32 %d_at, %r_slice;\nmul.lo.u64 %d_at, %d_at, %d_stride_cs;\ncvt.u64.u32 %d_element, %r_element;"
    yield "mad.lo.u64 %d_at, %d_element, %d_stride_c, %d_at;"
    shift = 2 if given.output == "fp32" else 1
    yield f"shl.b64 %d_at, %d_at, {shift};\nadd.u64 %d_at, %d_C, %d_at;"
    if given.output == "fp32":
        yield f"st.global.b32 [%d_at], {total};"
    else:
        form = {"fp16": "f16", "bf16": "bf16"}[given.output]
        yield f"cvt.rn.{form}.f32 %h_result, {total};\nst.global.b16 [%d_at], %h_result;"
    yield "END: ret;"
