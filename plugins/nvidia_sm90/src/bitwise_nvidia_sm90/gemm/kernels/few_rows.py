"""PTX of products of one row or few rows by fused multiply-adds, whose lanes have every `lanes`-th k or a range of k.

A thread has one lane of a few columns in all rows.  Where lanes have ranges, the threads of a lane have neighbouring
columns, whose values of one k are neighbours in memory.  The values of the rows of a tile of k are converted to fp32
once and kept in shared memory; those of the columns are loaded by the thread that multiplies them.  A tile is
multiplied while the next one is loaded.  "Rows" are those of the operand that has few, and "columns" those of the other
one, whichever is A.

The prefix of a register is its type: `%p_` predicate, `%h_` 16 bits, `%r_` 32 bits, `%d_` 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bitwise_nvidia_sm90.gemm.kernels.lane_sums import added_lanes
from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.plan import LaneSum

PARAMETERS = ("V", "W", "C", "K", "count", "stride_v", "stride_vk", "stride_w", "stride_wk", "stride_cv", "stride_cw")
"""Three pointers, two 32-bit integers, and six strides in elements: V has few rows, W has `count` columns."""
RANGE = "range"
"""The last parameter where lanes have ranges: the values of k of a range, a 32-bit integer."""
_POINTERS, _INTEGERS = PARAMETERS[:3], (*PARAMETERS[3:5], RANGE)
_TYPES = {"p": "pred", "h": "b16", "r": "b32", "d": "b64"}
MOST_ROWS, MOST_LANES = 16, 32
STEPS = 32
"""The values of k of a lane in a tile, at most."""
MOST_VALUES = 96
"""The sums of a thread, at most."""
MOST_LOADS = 64
"""The values of columns that a thread loads at once, at most."""


@dataclass(frozen=True, slots=True)
class FewRows:
    """A configuration: `rows`, and `columns` of each thread, `lanes` threads for each element, and `warps`.

    A tile has `steps` values of k of each lane.  After `restarts` tiles a lane starts a new accumulator, which is added
    to the total; with 0 it has one accumulator.  `lane_sum` is the order in which lanes are added, to +0 with
    `from_zero`.  `contiguous` says that the values of k of a column are neighbours in memory.  `dtype` is the type of
    the operands, fp16 or bf16, and `output` that of the sums.  With `ranges`, each lane has a range of k.
    """

    rows: int
    columns: int
    lanes: int
    warps: int
    steps: int
    restarts: int
    lane_sum: LaneSum
    from_zero: bool
    contiguous: bool
    dtype: str
    output: str
    ranges: bool = False

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return 32 * self.warps

    @property
    def size(self) -> int:
        """The values of k of a tile."""
        return self.steps * self.lanes

    @property
    def loads(self) -> Sequence[tuple[int, int]]:
        """The row and the part of k of each load of the rows of a tile.

        A load of all threads has `threads` values of k of one row, or all values of k of several rows, of which the
        first one is named.
        """
        parts, together = max(1, self.size // self.threads), max(1, self.threads // self.size)
        return [(row, part) for row in range(0, self.rows, together) for part in range(parts)]

    @property
    def groups(self) -> int:
        """The groups of threads with one thread for each lane."""
        return self.threads // self.lanes

    @property
    def columns_of_block(self) -> int:
        """The columns of a block."""
        return self.groups * self.columns

    @property
    def line(self) -> int:
        """The distance of the values of consecutive k in shared memory: odd multiples of 4 have few bank conflicts."""
        fours = -(-self.rows // 4)
        return 4 * (fours + 1 - fours % 2)

    @property
    def tile_bytes(self) -> int:
        """The bytes of the values of the rows of a tile."""
        return 4 * self.line * self.size

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: two tiles, later the sums of all lanes."""
        return max(2 * self.tile_bytes, 4 * self.rows * self.columns_of_block * self.lanes)

    @property
    def exists(self) -> bool:
        """Whether there is a kernel."""
        powers = all(each & (each - 1) == 0 for each in (self.lanes, self.steps, self.warps))
        fits = 1 <= self.rows <= MOST_ROWS and 2 * self.rows * self.columns <= MOST_VALUES and self.columns >= 1
        fits = fits and self.steps * self.columns <= MOST_LOADS and 2 <= self.lanes <= MOST_LANES
        # The threads of a lane with a range load neighbouring columns, and a load of the rows has whole lanes.
        fits = fits and (not self.ranges or (self.groups >= self.steps and not self.contiguous))
        return powers and fits and self.dtype in ("fp16", "bf16") and 1 <= self.steps <= STEPS

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters of the kernel."""
        return (*PARAMETERS, RANGE) if self.ranges else PARAMETERS


@lru_cache(maxsize=64)
def few_rows(given: FewRows) -> TextKernel:
    """Return the kernel C[v, w] = sum over k of V[v, k] W[w, k]."""
    body = "\n".join((*_start(given), *_tiles(given), *_sums(given)))
    registers = sorted(set(re.findall(r"%([phrd])_(\w+)", body)))
    declared = "\n".join(f".reg .{_TYPES[kind]} %{kind}_{rest};" for kind, rest in registers)
    listed = ",\n".join(f".param .{'u32' if each in _INTEGERS else 'u64'} {each}" for each in given.parameters)
    order = "_".join(map(str, given.lane_sum.sequence or given.lane_sum.rounds))
    name = (
        f"few_rows_{given.dtype}_{given.output}_{given.rows}_rows_{given.columns}_columns_{given.lanes}_lanes_"
        f"{given.warps}_warps_{given.steps}_steps_{_accumulators(given)}_"
        f"{'contiguous_' if given.contiguous else ''}{'ranges_' if given.ranges else ''}"
        f"{'sequence' if given.lane_sum.sequence else 'rounds'}_{order}{'_from_zero' if given.from_zero else ''}"
    )
    text = (
        ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 shared_memory[];\n"
        f".visible .entry {name}(\n{listed}\n)\n.reqntid {given.threads}, 1, 1\n{{\n{declared}\n{body}\n}}\n"
    )
    return TextKernel(name, text, given.threads, given.shared_bytes, given.parameters)


def _accumulators(given: FewRows) -> str:
    """Return the part of a name that says when a lane starts a new accumulator."""
    return f"restarts{given.restarts if given.restarts > 1 else ''}" if given.restarts else "one"


def _start(given: FewRows) -> Lines:
    """Read the parameters; compute the thread's lane, its columns, and their addresses at the lane's first k."""
    fast, slow, count = ("group", "lane", given.groups) if given.ranges else ("lane", "group", given.lanes)
    yield f"mov.u32 %r_thread, %tid.x;\nand.b32 %r_{fast}, %r_thread, {count - 1};"
    yield f"shr.u32 %r_{slow}, %r_thread, {count.bit_length() - 1};\nmov.u32 %r_shared, shared_memory;"
    for each in _POINTERS:
        yield f"ld.param.u64 %d_{each}, [{each}];\ncvta.to.global.u64 %d_{each}, %d_{each};"
    for each in given.parameters[3:]:
        yield f"ld.param.u32 %r_{each}, [{each}];" if each in _INTEGERS else f"ld.param.u64 %d_{each}, [{each}];"
    yield "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;"
    yield f"mov.u32 %r_first, %ctaid.x;\nmad.lo.u32 %r_first, %r_first, {given.columns_of_block}, %r_group;"
    first = "%r_lane"
    if given.ranges:
        first = "%r_begin"
        yield f"mul.lo.u32 {first}, %r_lane, %r_range;"
    yield f"cvt.u64.u32 %d_lane, {first};\nmul.lo.u64 %d_lane, %d_lane, %d_stride_wk;"
    for column in range(given.columns):
        # Columns outside of the matrix have the addresses of the last one; their sums are not stored.
        yield f"add.u32 %r_column, %r_first, {column * given.groups};\nsub.u32 %r_last, %r_count, 1;"
        yield "min.u32 %r_column, %r_column, %r_last;\ncvt.u64.u32 %d_column, %r_column;"
        yield f"mad.lo.u64 %d_at_{column}, %d_column, %d_stride_w, %d_lane;"
        yield f"shl.b64 %d_at_{column}, %d_at_{column}, 1;\nadd.u64 %d_at_{column}, %d_at_{column}, %d_W;"
    yield f"mul.lo.u64 %d_step, %d_stride_wk, {2 * _distance(given)};"
    yield "mov.b16 %h_zero, 0;\nmov.u32 %r_left, %r_K;\nmov.u32 %r_buffer, 0;"
    yield f"mad.lo.u32 %r_values, %r_lane, {4 * given.line}, %r_shared;"
    yield f"and.b32 %r_k, %r_thread, {given.size - 1};"
    if given.ranges:
        yield from _places_of_ranges(given)
    else:
        yield f"mad.lo.u32 %r_to, %r_k, {4 * given.line}, %r_shared;"
        yield "cvt.u64.u32 %d_k, %r_k;\nmul.lo.u64 %d_k, %d_k, %d_stride_vk;"
        yield f"mul.lo.u64 %d_part, %d_stride_vk, {2 * given.threads};"
    yield f"mul.lo.u64 %d_tile, %d_stride_vk, {2 * _distance(given) * given.steps};"
    together = max(1, given.threads // given.size)
    yield f"mul.lo.u64 %d_rows, %d_stride_v, {2 * together};"
    if together > 1:
        yield f"shr.u32 %r_row, %r_thread, {given.size.bit_length() - 1};\nmad.lo.u32 %r_to, %r_row, 4, %r_to;"
        yield "cvt.u64.u32 %d_row, %r_row;\nmad.lo.u64 %d_k, %d_row, %d_stride_v, %d_k;"
        yield f"setp.lt.u32 %p_row, %r_row, {given.rows - (given.rows - 1) // together * together};"
    yield "shl.b64 %d_k, %d_k, 1;\nadd.u64 %d_few, %d_V, %d_k;"
    yield from (f"mov.b32 %r_total_{place}, 0f00000000;" for place in _places(given))
    yield from (f"mov.b32 %r_sum_{place}, 0f00000000;" for place in _places(given))
    yield "mov.pred %p_first, -1;"
    if given.ranges and given.restarts:
        yield f"mov.pred %p_any, 0;\nmov.u32 %r_until, {given.restarts};"


def _distance(given: FewRows) -> int:
    """Return the distance of consecutive values of k of a lane."""
    return 1 if given.ranges else given.lanes


def _places_of_ranges(given: FewRows) -> Lines:
    """Compute the values of k that exist, and the thread's place in a tile of the rows, whose lanes have ranges.

    The first of %r_k is in the thread's first lane of the rows; %r_ends is the end of its range, counted from its first
    value; %r_own is the number of values of the thread's own lane that are left, and %r_whole the least of all lanes.
    """
    yield f"and.b32 %r_step, %r_k, {given.steps - 1};\nshr.u32 %r_first_lane, %r_k, {given.steps.bit_length() - 1};"
    yield f"mad.lo.u32 %r_at, %r_step, {given.lanes}, %r_first_lane;"
    yield f"mad.lo.u32 %r_to, %r_at, {4 * given.line}, %r_shared;"
    yield "mad.lo.u32 %r_at, %r_first_lane, %r_range, %r_step;"
    yield "cvt.u64.u32 %d_k, %r_at;\nmul.lo.u64 %d_k, %d_k, %d_stride_vk;"
    yield f"mul.lo.u32 %r_at, %r_range, {given.threads // given.steps};\ncvt.u64.u32 %d_part, %r_at;"
    yield "mul.lo.u64 %d_part, %d_part, %d_stride_vk;\nshl.b64 %d_part, %d_part, 1;"
    yield "mov.u32 %r_done, 0;\nmov.u32 %r_left, %r_range;"
    yield "sub.s32 %r_own, %r_K, %r_begin;\nmin.s32 %r_own, %r_own, %r_range;"
    yield f"mul.lo.u32 %r_whole, %r_range, {given.lanes - 1};\nsub.s32 %r_whole, %r_K, %r_whole;"
    yield "min.s32 %r_whole, %r_whole, %r_range;"


def _places(given: FewRows) -> Sequence[str]:
    """Return the names of the sums of a thread."""
    return [f"{row}_{column}" for row in range(given.rows) for column in range(given.columns)]


def _tiles(given: FewRows) -> Lines:
    """Add the products of each tile: first whole ones, then the last one, of which some k do not exist."""
    if given.ranges:
        yield from _tiles_of_ranges(given)
        return
    yield f"setp.lt.u32 %p_partial, %r_left, {given.size};\n@%p_partial bra FIRST_PARTIAL;"
    yield from _load(given, whole=True)
    yield "bra TILE;\nFIRST_PARTIAL:"
    yield from _load(given, whole=False)
    yield f"TILE: setp.lt.u32 %p_partial, %r_left, {given.size};\n@%p_partial bra PARTIAL;"
    yield from _share(given, whole=True)
    yield f"sub.u32 %r_left, %r_left, {given.size};\nsetp.eq.u32 %p_last, %r_left, 0;\n@%p_last bra MULTIPLY;"
    yield f"setp.lt.u32 %p_partial, %r_left, {given.size};\n@%p_partial bra NEXT_PARTIAL;"
    yield from _load(given, whole=True)
    yield "bra MULTIPLY;\nNEXT_PARTIAL:"
    yield from _load(given, whole=False)
    yield "MULTIPLY:"
    yield from _multiply(given, whole=True)
    yield "@%p_last bra TILES_END;\nbra TILE;\nPARTIAL:"
    yield from _share(given, whole=False)
    yield from _multiply(given, whole=False)
    yield "TILES_END:"


def _tiles_of_ranges(given: FewRows) -> Lines:
    """Add the products of each tile: first those of which all lanes have all k, then the others, one after the other.

    Most ranges have one length, so that the others are the last tile.
    """
    yield f"setp.lt.s32 %p_partial, %r_whole, {given.steps};\n@%p_partial bra FIRST_PARTIAL;"
    yield from _load(given, whole=True)
    yield "TILE:"
    yield from _share(given, whole=True)
    yield from _next_of_ranges(given)
    yield f"setp.lt.s32 %p_partial, %r_whole, {given.steps};\n@%p_partial bra MULTIPLY;"
    yield from _load(given, whole=True)
    yield "MULTIPLY:"
    yield from _multiply(given, whole=True)
    yield "@!%p_partial bra TILE;\nFIRST_PARTIAL: setp.eq.u32 %p_last, %r_left, 0;\n@%p_last bra TILES_END;"
    yield from _load(given, whole=False)
    yield from _share(given, whole=False)
    yield from _multiply(given, whole=False)
    yield from _next_of_ranges(given)
    yield "bra FIRST_PARTIAL;\nTILES_END:"
    if given.restarts > 1:
        yield from _restarted(given)


def _next_of_ranges(given: FewRows) -> Lines:
    """Go to the next tile: %r_left counts the values of k of a whole range, %r_done those of the tiles before."""
    yield f"add.u32 %r_done, %r_done, {given.steps};\nsub.s32 %r_own, %r_own, {given.steps};"
    yield f"sub.s32 %r_whole, %r_whole, {given.steps};"
    yield f"min.u32 %r_at, %r_left, {given.steps};\nsub.u32 %r_left, %r_left, %r_at;"


def _exists(given: FewRows, step: int) -> Lines:
    """Compute %p_exists: whether the thread's lane has a value of k in a step of the tile."""
    if given.ranges:
        yield f"setp.gt.s32 %p_exists, %r_own, {step};"
    else:
        yield f"add.u32 %r_at, %r_lane, {step * given.lanes};\nsetp.lt.u32 %p_exists, %r_at, %r_left;"


def _load(given: FewRows, *, whole: bool) -> Lines:
    """Load the values of a tile, whose addresses go to the next one; unless it is `whole`, those that exist."""
    for step in range(given.steps):
        guard = ""
        if not whole:
            yield from _exists(given, step)
            guard = "@%p_exists "
        for column in range(given.columns):
            if not whole:
                yield f"mov.b16 %h_column_{step}_{column}, 0;"
            place = f"%d_at_{column}+{2 * given.lanes * step}" if given.contiguous else f"%d_at_{column}"
            yield f"{guard}ld.global.b16 %h_column_{step}_{column}, [{place}];"
            if not given.contiguous:
                yield f"add.u64 %d_at_{column}, %d_at_{column}, %d_step;"
    if given.contiguous:
        yield from (f"add.u64 %d_at_{column}, %d_at_{column}, {2 * given.size};" for column in range(given.columns))
    for load, (row, part) in enumerate(given.loads):
        if not part:
            yield "mov.u64 %d_line, %d_few;" if not row else "add.u64 %d_line, %d_line, %d_rows;"
            yield "mov.u64 %d_place, %d_line;"
        guard = yield from _row_guard(given, row, part, whole=whole)
        if guard:
            yield f"mov.b16 %h_row_{load}, 0;"
        yield f"{guard}ld.global.b16 %h_row_{load}, [%d_place];\nadd.u64 %d_place, %d_place, %d_part;"
    yield "add.u64 %d_few, %d_few, %d_tile;"


def _row_guard(given: FewRows, row: int, part: int, *, whole: bool) -> Generator[str, None, str]:
    """Yield the computation of the predicate of a thread's load of the rows.  Return its guard, "" without one."""
    some = row + max(1, given.threads // given.size) > given.rows
    if whole:
        return "@%p_row " if some else ""
    if given.ranges:  # the values of k of the lane from its first one in the tile
        yield f"add.u32 %r_at, %r_first_lane, {part * given.threads // given.steps};"
        yield "mul.lo.u32 %r_at, %r_at, %r_range;\nsub.s32 %r_at, %r_K, %r_at;\nmin.s32 %r_at, %r_at, %r_range;"
        yield "sub.s32 %r_at, %r_at, %r_done;\nsetp.lt.s32 %p_exists, %r_step, %r_at;"
    else:
        yield f"add.u32 %r_at, %r_k, {part * given.threads};\nsetp.lt.u32 %p_exists, %r_at, %r_left;"
    if some:
        yield "and.pred %p_exists, %p_exists, %p_row;"
    return "@%p_exists "


def _share(given: FewRows, *, whole: bool) -> Lines:
    """Convert the loaded values to fp32, and write those of the rows to shared memory."""
    for step in range(given.steps):
        for column in range(given.columns):
            yield from _widened(given, f"%r_column_{step}_{column}", f"%h_column_{step}_{column}")
    yield "add.u32 %r_target, %r_to, %r_buffer;"
    for load, (row, part) in enumerate(given.loads):
        yield from _widened(given, f"%r_row_{load}", f"%h_row_{load}")
        guard = yield from _row_guard(given, row, part, whole=whole)
        lanes = given.threads // given.steps if given.ranges else given.threads
        place = 4 * (part * lanes * given.line + row)
        yield f"{guard}st.shared.b32 [%r_target+{place}], %r_row_{load};"
    yield "bar.sync 0;"


def _multiply(given: FewRows, *, whole: bool) -> Lines:
    """Add the products of a tile; unless it is `whole`, those that exist."""
    if given.ranges and given.restarts:
        yield "mov.pred %p_any, -1;" if whole else "setp.gt.or.s32 %p_any, %r_own, 0, %p_any;"
    yield "add.u32 %r_from, %r_values, %r_buffer;"
    for step in range(given.steps):
        guard = ""
        if not whole:
            yield from _exists(given, step)
            guard = "@%p_exists "
        for first in range(0, given.rows, 4):
            values = [f"%r_v_{row}" for row in range(first, first + 4)]
            offset = 4 * (step * given.lanes * given.line + first)
            yield f"{guard}ld.shared.v4.b32 {{{', '.join(values)}}}, [%r_from+{offset}];"
        for row in range(given.rows):
            for column in range(given.columns):
                total = f"%r_sum_{row}_{column}"
                yield f"{guard}fma.rn.f32 {total}, %r_v_{row}, %r_column_{step}_{column}, {total};"
    # The next tile is written to the other buffer while slower threads read this one.
    yield f"sub.u32 %r_buffer, {given.tile_bytes}, %r_buffer;"
    if given.restarts == 1:
        yield from _restarted(given)
    elif given.restarts:
        name = "WHOLE" if whole else "SOME"
        yield f"sub.u32 %r_until, %r_until, 1;\nsetp.ne.u32 %p_goes_on, %r_until, 0;\n@%p_goes_on bra {name}_ADDED;"
        yield f"mov.u32 %r_until, {given.restarts};"
        yield from _restarted(given)
        yield f"{name}_ADDED:"


def _restarted(given: FewRows) -> Lines:
    """Add the accumulators to the totals, which the first ones start, and start new ones.

    Those of a range that had no value are not added: +0 would change the sign of a zero.
    """
    for place in _places(given):
        yield f"add.rn.f32 %r_next, %r_total_{place}, %r_sum_{place};"
        if given.ranges:
            yield f"selp.b32 %r_next, %r_sum_{place}, %r_next, %p_first;"
            yield f"selp.b32 %r_total_{place}, %r_next, %r_total_{place}, %p_any;"
        else:
            yield f"selp.b32 %r_total_{place}, %r_sum_{place}, %r_next, %p_first;"
        yield f"mov.b32 %r_sum_{place}, 0f00000000;"
    yield "mov.pred %p_first, 0;"
    if given.ranges:
        yield "mov.pred %p_any, 0;"


def _widened(given: FewRows, target: str, value: str) -> Lines:
    """Convert a value to fp32."""
    yield f"mov.b32 {target}, {{%h_zero, {value}}};" if given.dtype == "bf16" else f"cvt.f32.f16 {target}, {value};"


def _sums(given: FewRows) -> Lines:
    """Add the lanes of each element, and store it."""
    name = "total" if given.restarts else "sum"
    elements, threads = given.rows * given.columns_of_block, given.threads
    yield "bar.sync 0;"
    # Element `place` of the block is that of row place / columns and of column place % columns.
    yield "mad.lo.u32 %r_at, %r_lane, 4, %r_shared;"
    yield f"mad.lo.u32 %r_at, %r_group, {4 * given.lanes}, %r_at;"
    for row in range(given.rows):
        for column in range(given.columns):
            place = row * given.columns_of_block + column * given.groups
            yield f"st.shared.b32 [%r_at+{4 * given.lanes * place}], %r_{name}_{row}_{column};"
    yield "bar.sync 0;"
    yield f"mov.u32 %r_first, %ctaid.x;\nmul.lo.u32 %r_first, %r_first, {given.columns_of_block};"
    for start in range(0, elements, threads):
        yield f"add.u32 %r_place, %r_thread, {start};\nsetp.ge.u32 %p_done, %r_place, {elements};\n@%p_done bra END;"
        yield f"mad.lo.u32 %r_at, %r_place, {4 * given.lanes}, %r_shared;"
        values = [f"%r_lane_{lane}" for lane in range(given.lanes)]
        for lane in range(0, given.lanes, min(4, given.lanes)):
            some = values[lane : lane + min(4, given.lanes)]
            yield f"ld.shared.v{len(some)}.b32 {{{', '.join(some)}}}, [%r_at+{4 * lane}];"
        yield from _added(given, values)
        yield f"div.u32 %r_row, %r_place, {given.columns_of_block};"
        yield f"mul.lo.u32 %r_at, %r_row, {given.columns_of_block};\nsub.u32 %r_column, %r_place, %r_at;"
        yield "add.u32 %r_column, %r_column, %r_first;\nsetp.lt.u32 %p_inside, %r_column, %r_count;"
        yield "cvt.u64.u32 %d_row, %r_row;\ncvt.u64.u32 %d_column, %r_column;"
        yield "mul.lo.u64 %d_place, %d_row, %d_stride_cv;\nmad.lo.u64 %d_place, %d_column, %d_stride_cw, %d_place;"
        shift = 2 if given.output == "fp32" else 1
        yield f"shl.b64 %d_place, %d_place, {shift};\nadd.u64 %d_place, %d_place, %d_C;"
        if given.output == "fp32":
            yield "@%p_inside st.global.b32 [%d_place], %r_result;"
        else:
            form = {"fp16": "f16", "bf16": "bf16"}[given.output]
            yield f"cvt.rn.{form}.f32 %h_result, %r_result;\n@%p_inside st.global.b16 [%d_place], %h_result;"
    yield "END: ret;"


def _added(given: FewRows, values: list[str]) -> Lines:
    """Add the lanes in their order; the sum is %r_result."""
    total = yield from added_lanes(given.lane_sum, values)
    yield f"add.rn.f32 %r_result, {total}, 0f00000000;" if given.from_zero else f"mov.b32 %r_result, {total};"
