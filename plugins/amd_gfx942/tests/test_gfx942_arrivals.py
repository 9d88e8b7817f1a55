"""A register is used only after a wait that says that its value has arrived."""

from __future__ import annotations

import pytest

from bitwise_core.machine.domain import Unreadable
from gfx942_kernels import reading, run

LOADS = """global_load_dword v6, v1, s[10:11]
global_load_dword v7, v1, s[12:13]
s_waitcnt vmcnt({})
v_mov_b32_e32 v5, v{}"""
SHARED = """ds_write_b32 v1, v2
ds_read_b32 v6, v1
ds_read_b32 v7, v1
s_waitcnt lgkmcnt({})
v_mov_b32_e32 v5, v{}"""


@pytest.mark.parametrize("body", [LOADS, SHARED])
@pytest.mark.parametrize(("count", "register", "arrived"), [(0, 7, True), (1, 6, True), (1, 7, False), (2, 6, False)])
def test_a_count_speaks_of_all_but_the_last(body: str, count: int, register: int, arrived: bool) -> None:
    text = body.format(count, register)
    if arrived:
        assert run(text, range(64), range(64)).tolist() == list(range(64))
        return
    with pytest.raises(Unreadable, match=f"the register v{register} is used before an s_waitcnt says"):
        run(text, range(64), range(64))
    unknown = reading(text).unknown
    assert unknown is not None
    assert "is used before an s_waitcnt says that its value has arrived" in unknown


def test_scalar_loads_arrive_in_any_order() -> None:
    text = (
        "s_load_dword s20, s[10:11], 0x0\ns_load_dword s21, s[10:11], 0x4\ns_waitcnt lgkmcnt({})\nv_mov_b32_e32 v5, s20"
    )
    assert run(text.format(0)).tolist() == [0] * 64
    with pytest.raises(Unreadable, match="the register s20 is used before"):
        run(text.format(1))


def test_a_register_is_not_written_while_its_value_is_under_way() -> None:
    text = "global_load_dword v5, v1, s[10:11]\n{}v_mov_b32_e32 v5, 3"
    assert run(text.format("s_waitcnt vmcnt(0)\n")).tolist() == [3] * 64
    with pytest.raises(Unreadable, match="the register v5 is used before"):
        run(text.format(""))


def test_what_is_under_way_at_the_end_of_a_loop_is_so_at_its_beginning() -> None:
    text = """s_mov_b32 s20, 2
v_mov_b32_e32 v6, 0
v_mov_b32_e32 v5, 0
.Lagain:
v_add_u32_e32 v5, v5, v6
global_load_dword v6, v1, s[10:11]
s_sub_i32 s20, s20, 1
s_cmp_lg_u32 s20, 0
{}s_cbranch_scc1 .Lagain
s_waitcnt vmcnt(0)"""
    assert run(text.format("s_waitcnt vmcnt(0)\n"), range(64)).tolist() == list(range(64))
    with pytest.raises(Unreadable, match="the register v6 is used before"):
        run(text.format(""), range(64))
