"""Atomic operations on integers in shared memory: contents, and what must be ordered with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from random import Random

import pytest

from gfx942_kernels import reading, run

THREADS = 128
"""Two waves."""
WAIT, BARRIER = "s_waitcnt lgkmcnt(0)\n", "s_barrier\n"
PLACE = "v_and_b32_e32 v7, 15, v0\nv_lshlrev_b32_e32 v7, 2, v7\n"
"""v7: the place of the thread, one of 16."""
CLEAR = f"ds_write_b32 v7, v6\n{WAIT}{BARRIER}"
READ = f"{WAIT}{BARRIER}ds_read_b32 v5, v7"
START = 0x80000007
WORD = (1 << 32) - 1
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add_u32": lambda one, other: (one + other) & WORD,
    "and_b32": lambda one, other: one & other,
    "or_b32": lambda one, other: one | other,
    "xor_b32": lambda one, other: one ^ other,
    "min_u32": min,
    "max_u32": max,
    "min_i32": lambda one, other: min(one, other, key=lambda each: each ^ 1 << 31),
    "max_i32": lambda one, other: max(one, other, key=lambda each: each ^ 1 << 31),
}
BEFORE = f"v_mov_b32_e32 v6, {START:#x}\n{PLACE}"


def body(update: str, *, clear: str = CLEAR, read: str = READ) -> str:
    return f"{BEFORE}{clear}{update}\n{read}"


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_thread_changes_the_content(name: str) -> None:
    drawn = [Random(name).getrandbits(32) for _ in range(THREADS)]
    found = run(body(f"ds_{name} v7, v2"), drawn, threads=THREADS).tolist()
    assert found == [reduce(OPERATIONS[name], drawn[thread % 16 :: 16], START) for thread in range(THREADS)]
    assert reading(body(f"ds_{name} v7, v2"), threads=THREADS).unknown is None


def test_inactive_lanes_change_nothing() -> None:
    update = (
        "v_cmp_gt_u32_e32 vcc, 20, v0\ns_and_saveexec_b64 s[20:21], vcc\nds_add_u32 v7, v2\ns_mov_b64 exec, s[20:21]"
    )
    found = run(body(update), range(1, THREADS + 1), threads=THREADS).tolist()
    assert found == [
        START + sum(each + 1 for each in range(20) if each % 16 == thread % 16) for thread in range(THREADS)
    ]
    first, all_lanes = (reading(body(each), threads=THREADS) for each in (update, "ds_add_u32 v7, v2"))
    assert first.unknown is None
    assert first.signature != all_lanes.signature


def test_64_bits_and_an_offset() -> None:
    code = f"""v_lshlrev_b32_e32 v7, 4, v0
v_mov_b32_e32 v8, -1
v_mov_b32_e32 v9, 0
ds_write_b64 v7, v[8:9] offset:8
{WAIT}v_mov_b32_e32 v10, v2
v_mov_b32_e32 v11, 0
ds_add_u64 v7, v[10:11] offset:8
{WAIT}ds_read_b32 v5, v7 offset:12"""
    assert run(code, [0, 1, 5], threads=64).tolist() == [min(each, 1) for each in [0, 1, 5] * 22][:64]


def test_the_order_of_the_updates_has_no_effect() -> None:
    """Threads that add at the place of the thread 16 places on make another order of the same sums."""
    moved = "v_lshlrev_b32_e32 v8, 2, v0\nv_xor_b32_e32 v8, 64, v8\nglobal_load_dword v2, v8, s[10:11]\n"
    moved += "s_waitcnt vmcnt(0)\n"
    one, other = (reading(body(f"{each}ds_add_u32 v7, v2"), threads=THREADS) for each in ("", moved))
    assert one.unknown is None
    assert one.signature == other.signature
    assert one.signature != reading(body("ds_max_u32 v7, v2"), threads=THREADS).signature


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (body("ds_add_u32 v7, v2", clear=CLEAR.replace(BARRIER, "")), "race"),
        (body("ds_add_u32 v7, v2", read=READ.replace(BARRIER, "")), "race"),
        (body("ds_add_u32 v7, v2", read=READ.replace(WAIT, "")), "passes a barrier while a write of shared memory"),
        (body("ds_add_u32 v7, v2\nds_max_u32 v7, v3"), "race"),
        (body("ds_add_u32 v7, v2\nds_write_b32 v7, v2"), "race"),
        (body("ds_add_u32 v7, v2 offset:2"), "is not aligned"),
        (body("ds_add_u32 v3, v2"), "an address that depends on data"),
        (body("ds_add_rtn_u32 v5, v7, v2"), "not modelled"),
        (body("ds_add_f32 v7, v2"), "not modelled"),
    ],
)
def test_what_is_not_ordered_is_not_determined(code: str, reason: str) -> None:
    assert reason in str(reading(code, threads=THREADS).unknown)


def test_an_update_is_no_content_before_it() -> None:
    ordered = body(
        f"ds_read_b32 v8, v7\n{WAIT}{BARRIER}ds_add_u32 v7, v2", read=f"{READ}\n{WAIT}v_add_u32_e32 v5, v5, v8"
    )
    assert reading(ordered, threads=THREADS).unknown is None
    assert run(ordered, [1], threads=THREADS).tolist() == [(2 * START + 8) & WORD] * THREADS
