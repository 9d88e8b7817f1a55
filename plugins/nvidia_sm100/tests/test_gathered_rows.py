"""Tensor copies of four rows that are named one by one (tile::gather4, tile::scatter4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.checker.analysis import analyse, prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm100.architecture import SM100

ROWS, WORDS = 12, 32
"""The tensor: 12 rows of 128 bytes."""

TEXT = """
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(
  .param .align 64 .b8 map[128], .param .u64 .ptr .global rows, .param .align 64 .b8 to[128],
  .param .u64 .ptr .global out)
.reqntid 32
{
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  mov.u32 %r0, %tid.x; mov.b32 %r1, smem; add.s32 %r2, %r1, 1024; setp.eq.u32 %p0, %r0, 0; mov.b32 %r3, COLUMN;
  ld.param.u64 %rd1, [rows]; ld.param.u64 %rd2, [out]; mov.b64 %rd3, map; mov.b64 %rd4, to;
  ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd1];
  @%p0 mbarrier.init.shared::cta.b64 [%r2], 1; bar.sync 0;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
  @%p0 cp.async.bulk.tensor.2d.tile::gather4.shared::cta.global.mbarrier::complete_tx::bytes
       [%r1], [%rd3, {%r3, %r4, %r5, %r6, %r7}], [%r2];
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra wait;
  LAST
  ret;
}
""".replace("\n       ", " ")
STORED = """
  mad.lo.u32 %r8, %r0, 16, %r1; mad.wide.u32 %rd5, %r0, 16, %rd2; ld.shared.v4.b32 {%r9, %r10, %r11, %r12}, [%r8];
  st.global.v4.b32 [%rd5], {%r9, %r10, %r11, %r12};
"""
SCATTERED = """
  @%p0 cp.async.bulk.tensor.2d.tile::scatter4.global.shared::cta.bulk_group [%rd4, {0, TARGETS}], [%r1];
  @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group.read 0;
"""


def source(
    last: str, swizzle: int, rows: list[int] | None, column: int = 0, height: int = 1, stride: int = WORDS
) -> Source:
    """Return a kernel that gathers four rows; `rows` are the contents of the buffer of rows, None if they are open."""
    described = {"dtype": "fp32", "shape": [ROWS, WORDS], "strides": [stride, 1], "swizzle": swizzle}
    maps = [{"tensor_map": {"buffer": name, **described, "block": [height, WORDS]}} for name in ("in", "to")]
    given = {"buffer": "rows", "dtype": "i32", **({} if rows is None else {"values": rows})}
    arguments = [maps[0], given, maps[1], {"buffer": "out", "dtype": "u32"}]
    launch = Launch.model_validate({"file": "k.ptx", "grid": [1], "args": arguments})
    return Source("k.ptx", TEXT.replace("LAST", last).replace("COLUMN", str(column)), launch)


def simulated(kernel: Source, rows: list[int]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return the words of `out` and the rows of `to` after the kernel; word i of `in` is 1000 + i."""
    before = {
        "in": np.arange(1000, 1000 + ROWS * WORDS, dtype=np.uint32).view(np.uint8),
        "rows": np.array(rows, dtype=np.int32).view(np.uint8),
        "to": np.zeros(4 * ROWS * WORDS, dtype=np.uint8),
        "out": np.zeros(512, dtype=np.uint8),
    }
    after = simulate(prepare(kernel, SM100, Options()), before).after
    return after["out"].view(np.uint32), after["to"].view(np.uint32).reshape(ROWS, WORDS)


def row(number: int, column: int = 0) -> npt.NDArray[np.uint32]:
    """Return a row of the tensor from a column on, zeros outside of the tensor."""
    places = np.arange(column, column + WORDS)
    inside = (places < WORDS) & (0 <= number < ROWS)
    return np.where(inside, 1000 + number * WORDS + places, 0).astype(np.uint32)


@pytest.mark.parametrize("swizzle", [0, 128])
@pytest.mark.parametrize(("rows", "column"), [([5, 0, 11, 5], 0), ([3, -1, 12, 2], 0), ([7, 6, 5, 4], 8)])
def test_rows_are_gathered_in_their_order(swizzle: int, rows: list[int], column: int) -> None:
    out, _ = simulated(source(STORED, swizzle, rows, column), rows)
    place = 4 * np.arange(4 * WORDS)
    moved = place ^ ((place >> 7 & 7) << 4 if swizzle else 0)
    assert np.array_equal(out[moved // 4], np.concatenate([row(each, column) for each in rows]))


def test_rows_are_scattered() -> None:
    rows = [5, 0, 11, 2]
    scattered = SCATTERED.replace("TARGETS", "3, 12, 0, 9")
    _, to = simulated(source(scattered, 128, rows), rows)
    expected = np.zeros((ROWS, WORDS), dtype=np.uint32)
    expected[[3, 0, 9]] = [row(5), row(11), row(2)]
    assert np.array_equal(to, expected)


def test_a_row_that_is_scattered_to_twice_has_no_order() -> None:
    rows = [5, 0, 11, 2]
    with pytest.raises(Unsupported, match="writes a row twice"):
        simulated(source(SCATTERED.replace("TARGETS", "3, 4, 3, 9"), 128, rows), rows)
    simulated(source(SCATTERED.replace("TARGETS", "12, 4, 12, 9"), 128, rows), rows)


def signature(kernel: Source) -> bytes:
    found = analyse(kernel, SM100, {"in": 1, "rows": 2, "to": 3, "out": 4}, Options())
    assert found.signature is not None, found.unknown
    return found.signature


def test_other_rows_are_other_terms() -> None:
    assert signature(source(STORED, 128, [1, 2, 3, 4])) != signature(source(STORED, 128, [1, 2, 4, 3]))
    assert signature(source(STORED, 0, [1, 2, 3, 4])) != signature(source(STORED, 128, [1, 2, 3, 4]))


LOADED = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 .ptr .global in, .param .u64 .ptr .global rows, .param .u64 .ptr .global out)
.reqntid 32
{
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [rows]; ld.param.u64 %rd3, [out];
  mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 3; and.b32 %r2, %r0, 7; shl.b32 %r2, %r2, 4; add.u32 %r2, %r2, COLUMN;
  mad.wide.u32 %rd4, %r1, 4, %rd2; ld.global.b32 %r3, [%rd4]; mad.wide.s32 %rd5, %r3, 128, %rd1;
  cvt.u64.u32 %rd6, %r2; add.s64 %rd5, %rd5, %rd6; setp.lt.u32 %p1, %r3, 12; setp.lt.u32 %p2, %r2, 128; mov.b32 %r9, 0;
  mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0;
  @%p2 ld.global.v4.b32 {%r9, %r10, %r11, %r12}, [%rd5];
  selp.b32 %r9, %r9, 0, %p1; selp.b32 %r10, %r10, 0, %p1; selp.b32 %r11, %r11, 0, %p1; selp.b32 %r12, %r12, 0, %p1;
  mad.wide.u32 %rd7, %r0, 16, %rd3; st.global.v4.b32 [%rd7], {%r9, %r10, %r11, %r12};
  ret;
}
"""
"""Each thread loads 16 bytes of a row, or zeros where the row or the column is outside of the tensor."""


def of_loads(column: int) -> Source:
    """Return a kernel that loads four rows from a column on; nothing is known of the rows."""
    names = ("in", "fp32"), ("rows", "i32"), ("out", "u32")
    arguments = [{"buffer": name, "dtype": dtype} for name, dtype in names]
    launch = Launch.model_validate({"file": "k.ptx", "grid": [1], "args": arguments})
    return Source("k.ptx", LOADED.replace("COLUMN", str(4 * column)), launch)


@pytest.mark.parametrize("column", [0, 8, 28])
def test_rows_that_data_decides_are_those_that_loads_read(column: int) -> None:
    loaded = signature(of_loads(column))
    assert signature(source(STORED, 0, None, column)) == loaded
    assert signature(source(STORED, 128, None, column)) != loaded  # the thread reads another place
    exchanged = STORED.replace("ld.shared.v4.b32 {%r9, %r10", "ld.shared.v4.b32 {%r10, %r9")
    assert signature(source(exchanged, 0, None, column)) != loaded


def test_rows_far_apart_that_data_decides_are_unknown() -> None:
    """A stride in bytes that 32 bits with a sign do not hold."""
    numbers = {"in": 1, "rows": 2, "to": 3, "out": 4}
    assert analyse(source(STORED, 0, None, stride=1 << 28), SM100, numbers, Options()).signature is not None
    found = analyse(source(STORED, 0, None, stride=1 << 30), SM100, numbers, Options())
    assert found.unknown is not None
    assert "give the contents of rows" in found.unknown


@pytest.mark.parametrize(
    ("rows", "height", "old", "new", "reason"),
    [
        (None, 1, "{%r3, %r4, %r5", "{%r4, %r4, %r5", "give the contents of rows in the manifest"),
        ([1, 2, 3, 4], 2, "", "", "through a map whose box has several"),
        ([1, 2, 3, 4], 1, "%r6, %r7}], [%r2]", "%r6}], [%r2]", "a tensor copy with 4 coordinates"),
        ([1, 2, 3, 4], 1, "tensor.2d.tile::gather4", "tensor.3d.tile::gather4", "another rank than 2"),
    ],
)
def test_what_is_not_determined_is_unknown(
    rows: list[int] | None, height: int, old: str, new: str, reason: str
) -> None:
    kernel = source(STORED, 128, rows, height=height)
    changed = Source(kernel.name, kernel.text.replace(old, new) if old else kernel.text, kernel.launch)
    found = analyse(changed, SM100, {"in": 1, "rows": 2, "to": 3, "out": 4}, Options())
    assert found.unknown is not None
    assert reason in found.unknown
