"""Buffer loads into shared memory: where their bytes go, and which reads have waited for them."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942, GFX950
from bitwise_core.execution.architecture import Arch
from gfx942_kernels import reading, run

THREADS = 128
WORDS = (np.arange(THREADS, dtype=np.uint64) * 2654435761 % (1 << 32)).astype(np.uint32)
RESOURCE = """
    s_mov_b32 s16, s10
    s_and_b32 s17, s11, 0xffff
    s_mov_b32 s18, {bytes}
    s_mov_b32 s19, 0x27000
    v_lshrrev_b32_e32 v6, 6, v0
    v_readfirstlane_b32 s20, v6
"""
"""s[16:19] describes a; s20 is the number of the wave."""
LOAD = "buffer_load_dword v1, s[16:19], 0 offen lds"
ARRIVED = "s_waitcnt vmcnt(0)"
OTHER = "v_xor_b32_e32 v7, 256, v1\n ds_read_b32 v5, v7\n s_waitcnt lgkmcnt(0)"
"""v5 is the word at the place of the same lane of the other wave."""


def body(*lines: str, size: int = 4 * THREADS) -> str:
    return RESOURCE.format(bytes=size) + "s_lshl_b32 m0, s20, 8\n" + "\n".join(lines)


def outcome(*lines: str, arch: Arch = GFX950, size: int = 4 * THREADS) -> str:
    return reading(body(*lines, size=size), threads=THREADS, arch=arch).unknown or ""


@pytest.mark.parametrize("arch", [GFX942, GFX950])
def test_each_lane_copies_its_word_to_its_place_in_the_part_of_the_wave(arch: Arch) -> None:
    found = run(body(LOAD, ARRIVED, "s_barrier", OTHER), WORDS, threads=THREADS, arch=arch)
    assert (found == np.roll(WORDS, 64)).all()


def test_words_out_of_bounds_are_zero() -> None:
    found = run(body(LOAD, ARRIVED, "s_barrier", OTHER, size=4 * 100), WORDS, threads=THREADS, arch=GFX950)
    assert (found == np.roll(np.where(np.arange(THREADS) < 100, WORDS, 0), 64)).all()


def test_lanes_copy_16_bytes_each() -> None:
    lines = (
        "v_and_b32_e32 v8, 31, v0", "v_lshlrev_b32_e32 v8, 4, v8", "s_mov_b32 m0, 0", "v_cmp_gt_u32_e32 vcc, 32, v0",
        "s_and_saveexec_b64 s[22:23], vcc", "buffer_load_dwordx4 v8, s[16:19], 0 offen lds", "s_mov_b64 exec, s[22:23]",
        ARRIVED, "s_barrier", OTHER,
    )  # fmt: skip
    assert (run(body(*lines), WORDS, threads=THREADS, arch=GFX950) == np.roll(WORDS, 64)).all()
    assert "needs gfx950" in outcome(*lines, arch=GFX942)


STORE = "global_store_dword v1, v2, s[8:9]"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((LOAD, "s_barrier", OTHER), "race"),
        ((LOAD, "s_waitcnt lgkmcnt(0)", "s_barrier", OTHER), "race"),
        ((LOAD, "s_waitcnt vmcnt(1)", "s_barrier", OTHER), "race"),
        ((LOAD, ARRIVED, OTHER), "race"),  # the other wave may not have waited
        ((LOAD, "s_barrier", ARRIVED, OTHER), "race"),
        ((LOAD, "ds_read_b32 v5, v1", "s_waitcnt vmcnt(0) lgkmcnt(0)"), "race"),
        ((LOAD, "ds_write_b32 v1, v2", ARRIVED, "s_waitcnt lgkmcnt(0)", "s_barrier", OTHER), "race"),
        ((LOAD, "global_load_dword v9, v1, s[12:13]", "s_waitcnt vmcnt(1)", "s_barrier", OTHER), ""),
        ((LOAD, "global_load_dword v9, v1, s[12:13]", "s_waitcnt vmcnt(2)", "s_barrier", OTHER), "race"),
        ((LOAD, ARRIVED, "s_barrier", OTHER, "s_barrier", LOAD, "v_mov_b32_e32 v9, 0"), ""),
        ((LOAD, ARRIVED, "s_barrier", OTHER, LOAD), "race"),
    ],
)
def test_a_read_waits_for_the_load_of_its_bytes(lines: tuple[str, ...], reason: str) -> None:
    found = outcome(*lines)
    assert reason in found
    assert bool(found) == bool(reason)


def test_a_load_of_a_wave_without_active_lanes_is_not_waited_for() -> None:
    """The first wave issues a load after the copy only where it has an active lane, and otherwise waits for more."""
    masked = ("v_cmp_gt_u32_e32 vcc, 64, v0", "s_and_saveexec_b64 s[22:23], vcc")
    later = ("global_load_dword v9, v1, s[12:13]", "s_mov_b64 exec, s[22:23]", "s_waitcnt vmcnt(1)", "s_barrier", OTHER)
    assert "race" in outcome(LOAD, *masked, *later)
    assert outcome(LOAD, *later[:1], *later[2:]) == ""


FLAT = "v_mov_b32_e32 v10, s12\n v_mov_b32_e32 v11, s13\n flat_load_dword v9, v[10:11]"
LANES = "v_cmp_gt_u32_e32 vcc, v2, v3\n s_and_saveexec_b64 s[22:23], vcc\n s_cbranch_execz .LSKIP"
WAVE = "v_readfirstlane_b32 s24, v2\n s_cmp_eq_u32 s24, 0\n s_cbranch_scc1 .LSKIP"
MEET = ".LSKIP:\n s_mov_b64 exec, -1"


@pytest.mark.parametrize("branch", [LANES, WAVE])
def test_a_wave_may_skip_what_data_decides(branch: str) -> None:
    """A wait that a wave may skip ends no load, and an access that it may skip lets no other wait end one."""
    assert "race" in outcome(LOAD, branch, ARRIVED, MEET, "s_barrier", OTHER)
    assert outcome(LOAD, branch, "v_mov_b32_e32 v9, 0", MEET, ARRIVED, "s_barrier", OTHER) == ""
    access = "global_load_dword v9, v1, s[12:13]"
    found = outcome(LOAD, branch, access, MEET, "s_waitcnt vmcnt(1)", "s_barrier", OTHER)
    assert "race" in found or "data decides which accesses a wave waits for" in found


def test_an_access_to_flat_memory_may_complete_before_the_load() -> None:
    assert "race" in outcome(LOAD, FLAT, "s_waitcnt vmcnt(1)", "s_barrier", OTHER)
    assert outcome(LOAD, FLAT, "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_barrier", OTHER) == ""


def test_the_place_is_part_of_the_result() -> None:
    found = [
        reading(body(*lines), threads=THREADS, arch=GFX950).signature
        for lines in (
            (LOAD, ARRIVED, "s_barrier", OTHER),
            ("s_xor_b32 m0, m0, 256", LOAD, ARRIVED, "s_barrier", OTHER),
            (LOAD.replace("offen", "offen offset:4"), ARRIVED, "s_barrier", OTHER),
        )
    ]
    assert None not in found[:2]
    assert len(set(found)) == 3
