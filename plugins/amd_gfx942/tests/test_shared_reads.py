"""Reads of shared memory that follow each other are made at once, with the results and the races of single reads."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.opcodes.memory import shared_reads
from gfx942_kernels import reading, run

THREADS = 128
WORDS = (np.arange(THREADS, dtype=np.uint64) * 2654435761 % (1 << 32)).astype(np.uint32)
WRITE = "v_lshlrev_b32_e32 v6, 2, v0\nds_write_b32 v6, v2\ns_waitcnt lgkmcnt(0)\n"
"""Each thread writes its word to its place, v6."""
MEET = "s_barrier\n"
ADDRESSES = "v_and_b32_e32 v7, 63, v0\nv_lshlrev_b32_e32 v7, 2, v7\nv_xor_b32_e32 v8, 4, v7\n"
"""v7 is the place of a word of the first wave, v8 that of the word beside it."""
WAIT = "s_waitcnt lgkmcnt(0)\n"


def runs_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each read for a whole run adds the number of its parts."""
    made: list[int] = []
    read = shared_reads.read_together

    def counted(machine: object, addresses: list[object], bits: int) -> object:
        found = read(machine, addresses, bits)  # type: ignore[arg-type]
        made.append(0 if found is None else len(found))
        return found

    monkeypatch.setattr(shared_reads, "read_together", counted)
    return made


def test_a_run_of_narrow_reads_of_two_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    made = runs_made(monkeypatch)
    body = WRITE + MEET + ADDRESSES + (
        "ds_read_u16 v9, v7\nds_read_u16 v10, v8 offset:2\nds_read_u16 v11, v7 offset:256\n" + WAIT
        + "v_lshlrev_b32_e32 v10, 16, v10\nv_or_b32_e32 v5, v9, v10\nv_xor_b32_e32 v5, v5, v11"
    )  # fmt: skip
    low, lane = WORDS & 0xFFFF, np.arange(THREADS) % 64
    expected = (low[lane] | (WORDS[lane ^ 1] >> 16 << 16)) ^ low[lane + 64]
    assert (run(body, WORDS, threads=THREADS) == expected).all()
    assert 3 in made


def test_halves_of_64_bits_and_pairs_of_places_are_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = runs_made(monkeypatch)
    body = WRITE + MEET + (
        "v_and_b32_e32 v7, 30, v0\nv_lshlrev_b32_e32 v7, 2, v7\n"
        "ds_read2_b64 v[10:13], v7 offset0:1 offset1:3\nds_read_b64 v[14:15], v7 offset:128\n" + WAIT
        + "v_xor_b32_e32 v5, v10, v13\nv_xor_b32_e32 v5, v5, v15"
    )  # fmt: skip
    first = np.arange(THREADS) & 30
    assert (run(body, WORDS, threads=THREADS) == WORDS[first + 2] ^ WORDS[first + 7] ^ WORDS[first + 33]).all()
    assert 3 in made


@pytest.mark.parametrize(
    ("between", "parts"),
    [
        pytest.param("", [2], id="nothing"),
        pytest.param("ds_write_b32 v6, v2 offset:1024\n", [], id="a write"),
        pytest.param(WAIT + MEET, [], id="a barrier"),
        pytest.param("v_add_u32_e32 v7, 0, v7\n", [], id="another address"),
    ],
)
def test_what_ends_a_run(between: str, parts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    made = runs_made(monkeypatch)
    body = WRITE + MEET + ADDRESSES + f"ds_read_b32 v9, v7\n{between}ds_read_b32 v10, v7 offset:256\n{WAIT}"
    body += "v_xor_b32_e32 v5, v9, v10"
    lane = np.arange(THREADS) % 64
    assert (run(body, WORDS, threads=THREADS) == WORDS[lane] ^ WORDS[lane + 64]).all()
    assert [each for each in made if each] == parts[: len(made)]


@pytest.mark.parametrize("offsets", [(0, 256), (256, 0)])
def test_a_race_of_any_read_of_a_run_is_found(offsets: tuple[int, int]) -> None:
    """Without a barrier one of the two reads is of another wave's word."""
    reads = "".join(f"ds_read_b32 v{9 + index}, v7 offset:{each}\n" for index, each in enumerate(offsets))
    body = "{}" + ADDRESSES + reads + WAIT + "v_xor_b32_e32 v5, v9, v10"
    assert "a race" in (reading(body.format(WRITE), threads=THREADS).unknown or "")
    assert reading(body.format(WRITE + MEET), threads=THREADS).unknown is None


@pytest.mark.parametrize("meets", [True, False])
def test_a_write_after_a_run_must_come_after_all_reads_of_it(meets: bool) -> None:
    body = WRITE + MEET + ADDRESSES + "ds_read_b32 v9, v7\nds_read_b32 v10, v7 offset:256\n" + WAIT
    body += (MEET if meets else "") + "ds_write_b32 v6, v0\nv_xor_b32_e32 v5, v9, v10"
    unknown = reading(body, threads=THREADS).unknown
    assert unknown is None if meets else "a race" in (unknown or "")
