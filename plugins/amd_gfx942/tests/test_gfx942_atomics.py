"""Exchanges, comparisons and exchanges, increments and decrements in global memory."""

from __future__ import annotations

import numpy as np
import pytest

from atomic_references import CHANGES, rows
from bitwise_amd_gfx942.architecture import GFX942
from bitwise_conformance.suite.observed_programs import observed
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.simulation import simulate
from gfx942_kernels import launch_of, reading, text_of

NAMES = {"swap": "exchange", "cmpswap": "compare", "inc": "increment", "dec": "decrement"}
DESCRIPTOR = "s_mov_b32 s20, s10\ns_mov_b32 s21, s11\ns_mov_b32 s22, {bound}\ns_mov_b32 s23, 0x27000\n"


def body(kind: str, space: str, bound: int = 0x7FFFFFFE) -> str:
    """Change the thread's word of a by the operand c, compared with b; v5 is what is returned."""
    data = "v[4:5]" if kind == "cmpswap" else "v4"
    move = "v_mov_b32_e32 v5, v3\n" if kind == "cmpswap" else ""
    if space == "global":
        target = f"global_atomic_{kind} v5, v1, {data}, s[10:11] sc0"
    elif space == "flat":
        move += "v_mov_b32_e32 v6, s10\nv_mov_b32_e32 v7, s11\nv_lshl_add_u64 v[6:7], v[8:9], 0, v[6:7]\n"
        move = "v_mov_b32_e32 v8, v1\nv_mov_b32_e32 v9, 0\n" + move
        target = f"flat_atomic_{kind} v5, v[6:7], {data} sc0"
    else:
        move += DESCRIPTOR.format(bound=bound)
        target = f"buffer_atomic_{kind} {data}, v1, s[20:23], 0 offen sc0\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v5, v4"
    return f"{move}{target}"


@pytest.mark.parametrize("space", ["global", "flat", "buffer"])
@pytest.mark.parametrize("kind", NAMES)
def test_contents_are_those_of_the_isa(kind: str, space: str) -> None:
    drawn = rows(64, 32)
    columns = np.array(drawn, dtype=np.uint32).T.copy()
    contents = {name: column.view(np.uint8).copy() for name, column in zip("abc", columns, strict=True)}
    contents["out"] = np.zeros(256, dtype=np.uint8)
    prepared, found = observed(prepare_launch(GFX942.parse(text_of(body(kind, space)), "k"), GFX942, launch_of()))
    after = simulate(prepared, contents).after
    assert not found.wrong
    assert after["out"].view(np.uint32).tolist() == [old for old, _, _ in drawn]
    assert after["a"].view(np.uint32).tolist() == [CHANGES[NAMES[kind]](*row) for row in drawn]


@pytest.mark.parametrize("kind", NAMES)
def test_contents_of_64_bits(kind: str) -> None:
    """a (from byte 1024), b and c hold words of 64 bits, and so does the output: each half is stored by itself."""
    drawn = rows(64, 64)
    columns = np.array(drawn, dtype=np.uint64).T.copy()
    contents = {name: column.view(np.uint8).copy() for name, column in zip("abc", columns, strict=True)}
    contents["out"] = np.zeros(512, dtype=np.uint8)
    contents["a"] = np.concatenate([np.zeros(1024, dtype=np.uint8), contents["a"]])
    data = "v[10:13]" if kind == "cmpswap" else "v[10:11]"
    code = f"""v_lshlrev_b32_e32 v1, 3, v0
global_load_dwordx2 v[12:13], v1, s[12:13]
global_load_dwordx2 v[10:11], v1, s[14:15]
s_waitcnt vmcnt(0)
global_atomic_{kind}_x2 v[14:15], v1, {data}, s[10:11] offset:1024 sc0
s_waitcnt vmcnt(0)
global_store_dword v1, v15, s[8:9] offset:4
v_mov_b32_e32 v5, v14"""
    prepared = prepare_launch(GFX942.parse(text_of(code), "k"), GFX942, launch_of())
    after = simulate(prepared, contents).after
    assert after["out"].view(np.uint64).tolist() == [old for old, _, _ in drawn]
    assert after["a"].view(np.uint64)[128:].tolist() == [CHANGES[NAMES[kind]](*row) for row in drawn]


def test_nothing_is_changed_out_of_bounds() -> None:
    contents = {name: np.full(64, 7, dtype=np.uint32).view(np.uint8).copy() for name in "abc"}
    contents["out"] = np.zeros(256, dtype=np.uint8)
    code = body("swap", "buffer", bound=128).replace("v_mov_b32_e32 v5, v4", "v_mov_b32_e32 v5, 1")
    code = "v_mov_b32_e32 v4, 9\n" + code
    prepared = prepare_launch(GFX942.parse(text_of(code), "k"), GFX942, launch_of())
    assert simulate(prepared, contents).after["a"].view(np.uint32).tolist() == [9] * 32 + [7] * 32
    returned = code.replace("v_mov_b32_e32 v5, 1", "v_mov_b32_e32 v5, v4")
    assert "nothing wrote" in (reading(returned).unknown or "")


@pytest.mark.parametrize("shift", [0, 1])
def test_an_element_of_two_threads_is_not_determined(shift: int) -> None:
    code = f"v_lshrrev_b32_e32 v6, {2 + shift}, v1\nv_lshlrev_b32_e32 v6, 2, v6\n"
    code += "global_atomic_swap v5, v6, v4, s[10:11] offset:1024 sc0"
    found = reading(code)
    assert (found.unknown is None) is (shift == 0), found.unknown
    if shift:
        assert {each.kind for each in found.places} == {"order of arrival"}
