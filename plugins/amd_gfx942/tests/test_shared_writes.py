"""Writes of shared memory that follow each other are made at once, with the contents and the races of single writes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_amd_gfx942.opcodes.memory import shared_writes
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.execution.values.symbolic_vector import Array
from gfx942_kernels import launch_of, reading, text_of

THREADS = 128
WORDS = (np.arange(THREADS, dtype=np.uint64) * 2654435761 % (1 << 32)).astype(np.uint32)
MEET = "s_waitcnt lgkmcnt(0)\ns_barrier\n"
PLACE = "v_lshlrev_b32_e32 v6, 2, v0\nv_xor_b32_e32 v7, 0x100, v6\n"
"""v6 is the place of a thread's word, v7 that of the word of the same lane of the other wave."""
READ = "ds_read_b32 v9, v6\nds_read_b32 v10, v7 offset:1024\ns_waitcnt lgkmcnt(0)\nv_add_f32_e32 v5, v9, v10"


def runs_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the first write of each run adds the number of writes that were made, 0 for none."""
    made: list[int] = []
    write = shared_writes.write_together

    def counted(machine: object, addresses: list[object], values: object, lines: object) -> bool:
        found = write(machine, addresses, values, lines)  # type: ignore[arg-type]
        made.append(len(addresses) if found else 0)
        return found

    monkeypatch.setattr(shared_writes, "write_together", counted)
    return made


def words_of(body: str, a: Array, b: Array) -> Array:
    """Return the words that a kernel returns; `gfx942_kernels.run` would make each write by itself."""
    prepared = prepare_launch(GFX942.parse(text_of(body), "kernel.amdgcn"), GFX942, launch_of(THREADS))
    contents = {name: words.view(np.uint8).copy() for name, words in (("a", a), ("b", b), ("c", a), ("out", 0 * a))}
    return simulate(prepared, contents).after["out"].view(np.uint32)


def test_halves_and_bytes_of_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    made = runs_made(monkeypatch)
    body = PLACE + (
        "ds_write_b16 v6, v2\nds_write_b16_d16_hi v6, v2 offset:2\nds_write_b16 v6, v3 offset:1024\n"
        "v_mov_b32_e32 v8, 7\n"
        "ds_write_b16_d16_hi v6, v3 offset:1026\nds_write_b8 v6, v2 offset:2048\nds_write_b8 v6, v3 offset:2049\n"
    ) + MEET + (
        "ds_read_b32 v9, v6\nds_read_b32 v10, v7 offset:1024\nds_read_u16 v11, v7 offset:2048\ns_waitcnt lgkmcnt(0)\n"
        "v_xor_b32_e32 v5, v9, v10\nv_xor_b32_e32 v5, v5, v11"
    )  # fmt: skip
    other = np.arange(THREADS) ^ 64
    others = WORDS[::-1].copy()
    narrow = WORDS[other] & 255 | (others[other] & 255) << 8
    assert (words_of(body, WORDS, others) == WORDS ^ others[other] ^ narrow).all()
    assert reading(body, threads=THREADS).unknown is None
    assert made[-2:] == [4, 2]


@pytest.mark.parametrize(
    ("between", "made"),
    [
        pytest.param("", [2], id="nothing"),
        pytest.param("v_add_u32_e32 v8, 4, v6\n", [2], id="another register"),
        pytest.param("ds_read_b32 v8, v6\n", [], id="a read"),
        pytest.param(MEET, [], id="a barrier"),
        pytest.param("v_mov_b32_e32 v3, v2\n", [], id="another value"),
        pytest.param("v_add_u32_e32 v6, 0, v6\n", [], id="another address"),
        pytest.param("s_mov_b64 s[20:21], exec\ns_mov_b64 exec, s[20:21]\n", [], id="the execution mask"),
        pytest.param("s_cbranch_scc1 .LBB0_1\n.LBB0_1:\n", [], id="a label"),
    ],
)
def test_what_ends_a_run(between: str, made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    found = runs_made(monkeypatch)
    body = PLACE + f"s_cmp_eq_u32 s0, s0\nds_write_b32 v6, v2\n{between}ds_write_b32 v6, v3 offset:1024\n{MEET}{READ}"
    signature = reading(body, threads=THREADS).signature
    assert signature is not None
    assert found == made
    monkeypatch.setattr(shared_writes, "write_together", lambda *arguments: False)
    assert reading(body, threads=THREADS).signature == signature


@pytest.mark.parametrize("first", [0, 1])
def test_the_last_of_two_writes_to_one_place_remains(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    order = ("v2", "v3") if first else ("v3", "v2")
    writes = "".join(f"ds_write_b32 v6, {each}\n" for each in order) + "ds_write_b32 v6, v2 offset:1024\n"
    body = PLACE + writes + MEET + READ.replace("v_add_f32_e32 v5, v9, v10", "v_mov_b32_e32 v5, v9")
    assert (words_of(body, WORDS, WORDS[::-1].copy()) == (WORDS[::-1] if first else WORDS)).all()
    made = runs_made(monkeypatch)
    assert reading(body, threads=THREADS).unknown is None
    assert set(made) == {0}


@pytest.mark.parametrize("offsets", [(0, 1024), (1024, 0)])
@pytest.mark.parametrize("meets", [True, False])
def test_a_race_of_any_write_of_a_run_is_found(offsets: tuple[int, int], meets: bool) -> None:
    """The other wave has read one of the two places, or has written it."""
    writes = "".join(f"ds_write_b32 v6, v3 offset:{each}\n" for each in offsets)
    for earlier in ("ds_read_b32 v8, v7\n", "ds_write_b32 v7, v2\n"):
        body = (
            PLACE
            + "ds_write_b32 v6, v2\n"
            + MEET
            + earlier
            + (MEET if meets else "s_waitcnt lgkmcnt(0)\n")
            + writes
            + MEET
            + READ
        )
        found = reading(body + "\nv_xor_b32_e32 v5, v5, v8" * earlier.startswith("ds_read"), threads=THREADS).unknown
        assert found is None if meets else "a race" in (found or "")


@pytest.mark.parametrize("same", [True, False])
def test_waves_write_one_place_with_one_value(same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both waves hold one tile: their writes of the same values to the same places are no race, of others they are."""
    made = runs_made(monkeypatch)
    lane = "v_and_b32_e32 v8, 63, v0\nv_lshlrev_b32_e32 v8, 2, v8\n"
    values = (
        "v_cvt_f32_u32_e32 v9, v8\nv_mul_f32_e32 v10, 2.0, v9\n"
        if same
        else "v_mov_b32_e32 v9, v2\nv_mov_b32_e32 v10, v3\n"
    )
    body = lane + values + "ds_write_b32 v8, v9\nds_write_b32 v8, v10 offset:256\n" + MEET
    body += "ds_read_b32 v11, v8\nds_read_b32 v12, v8 offset:256\ns_waitcnt lgkmcnt(0)\nv_add_f32_e32 v5, v11, v12"
    unknown = reading(body, threads=THREADS).unknown
    assert unknown is None if same else "a race" in (unknown or "")
    assert set(made) == {2}


def program(seed: int) -> str:
    """Return rounds of narrow writes of one width and of reads, to places that may be those of other threads."""
    random = Random(seed)
    lines = ["v_lshlrev_b32_e32 v6, 2, v0", "v_xor_b32_e32 v7, 0x100, v6", "v_and_b32_e32 v8, 0xfc, v6"]
    lines += ["v_mov_b32_e32 v9, v2", "v_mov_b32_e32 v10, v3", "v_and_b32_e32 v11, 0x7c, v6"]
    for _ in range(4):
        bits = random.choice(("b8", "b16", "b32"))
        for _ in range(random.randrange(1, 7)):
            offset = random.choice((0, 4, 512, 1024, 1536, *((514, 1026) if bits != "b32" else ())))
            place, value = random.choice(("v6", "v6", "v6", "v7", "v8")), random.choice(("v2", "v3", "v9", "v10"))
            lines.append(f"ds_write_{bits} {place}, {value} offset:{offset}")
            if random.random() < 0.1:
                lines.append("v_add_f32_e32 v9, v9, v2")
        lines += ["s_waitcnt lgkmcnt(0)", *(["s_barrier"] if random.random() < 0.8 else [])]
        lines += [f"ds_read_b32 v{9 + each}, {random.choice(('v6', 'v7'))} offset:{512 * each}" for each in (0, 1)]
        lines += ["s_waitcnt lgkmcnt(0)", *(["s_barrier"] if random.random() < 0.8 else [])]
    return "\n".join([*lines, "v_add_f32_e32 v5, v9, v10"])


@pytest.mark.parametrize("seed", range(16))
def test_the_reading_is_that_of_single_writes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = program(seed)
    found = reading(body, threads=THREADS)
    monkeypatch.setattr(shared_writes, "write_together", lambda *arguments: False)
    expected = reading(body, threads=THREADS)
    assert (found.signature, found.unknown, found.places) == (expected.signature, expected.unknown, expected.places)


@pytest.mark.parametrize("value", ["v3", "v11"])
def test_a_word_of_an_address_is_no_number_in_any_write_of_a_run(value: str) -> None:
    """v11 holds the lower word of the address of a buffer."""
    body = f"v_mov_b32_e32 v11, s10\n{PLACE}ds_write_b32 v6, v2\nds_write_b32 v6, {value} offset:1024\n{MEET}{READ}"
    unknown = reading(body, threads=THREADS).unknown
    assert unknown is None if value == "v3" else "address of a buffer" in (unknown or "")
