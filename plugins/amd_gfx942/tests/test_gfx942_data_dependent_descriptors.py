"""Buffer descriptors whose base address is a row index loaded from memory, as in table lookups."""

from __future__ import annotations

import numpy as np
import pytest

from gfx942_kernels import reading, run

ROW = """s_load_dword s20, s[10:11], 0x0
s_waitcnt lgkmcnt(0)
s_mov_b32 s21, 0
s_lshl_b64 s[20:21], s[20:21], 2
s_add_u32 s22, s12, s20
s_addc_u32 s27, s13, s21
s_and_b32 s23, s27, 0xffff
s_movk_i32 s24, {bytes}
s_mov_b32 s25, 0x27000
"""
LOAD = "buffer_load_dword v5, v1, s[22:25], 0 offen"


def row(count: int = 0x7FFE, access: str = LOAD) -> str:
    return ROW.format(bytes=count) + access


def test_row_index_from_data() -> None:
    """Each lane loads the word at its offset in the row; loads beyond the descriptor's size return 0."""
    numbers = np.arange(64, dtype=np.uint32) * 7 + 1
    near = "v_and_b32_e32 v1, 0x3c, v1\n" + LOAD + "\nv_lshlrev_b32_e32 v1, 2, v0"
    found = run(row(access=near), [3], numbers)
    assert found.tolist() == [int(numbers[3 + each % 16]) for each in range(64)]
    cut = run(row(20, near), [3], numbers)
    assert cut.tolist() == [int(numbers[3 + each % 16]) if each % 16 < 5 else 0 for each in range(64)]
    flat = ROW.format(bytes=0) + "s_mov_b32 s26, s22\nglobal_load_dword v5, v1, s[26:27]"
    assert reading(row()).signature == reading(flat).signature is not None
    assert reading(row(20)).signature not in (None, reading(flat).signature)
    other = row().replace("s20, s[10:11], 0x0", "s20, s[10:11], 0x4")
    assert reading(other).signature not in (None, reading(flat).signature)
    two = "buffer_load_dwordx2 v[6:7], v1, s[22:25], 0 offen offset:8\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v5, v7"
    wide = reading(row(access=two))
    ahead = reading(flat + " offset:12")
    assert wide.signature == ahead.signature is not None


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("s_and_b32 s23, s27, 0xffff", "s_mov_b32 s23, s27", "descriptor depends on data"),
        ("s_and_b32 s23, s27, 0xffff", "s_and_b32 s23, s27, 0x7fff", "descriptor depends on data"),
        ("s_and_b32 s23, s27, 0xffff", "s_and_b32 s23, s27, 0xffff\ns_or_b32 s23, s23, 0x40000", "depends on data"),
        (
            "s_add_u32 s22, s12, s20\ns_addc_u32 s27, s13, s21",
            "s_mov_b32 s22, s20\ns_mov_b32 s27, s21",
            "depends on data",
        ),
        ("s_mov_b32 s25, 0x27000", "s_mov_b32 s25, 0x27fac", "not of the raw kind"),
        (LOAD, "buffer_load_dword v5, v1, s[22:25], s20 offen", "descriptor depends on data"),
        (LOAD, "buffer_store_dword v2, v1, s[22:25], 0 offen\nv_mov_b32_e32 v5, 0", "descriptor depends on data"),
        (LOAD, "buffer_atomic_add v2, v1, s[22:25], 0 offen\nv_mov_b32_e32 v5, 0", "descriptor depends on data"),
    ],
)
def test_other_data_dependent_descriptors_are_unknown(before: str, after: str, message: str) -> None:
    text = row()
    assert text.count(before) == 1
    found = reading(text.replace(before, after))
    assert found.signature is None
    assert message in (found.unknown or "")


MASKED = ROW.replace("s27", "s23").replace(
    "s_and_b32 s23, s23, 0xffff", "s_mov_b32 s28, -1\ns_mov_b32 s29, 0xffff\ns_and_b64 s[22:23], s[22:23], s[28:29]"
)


@pytest.mark.parametrize("rows", [ROW, MASKED])
def test_modified_low_word_of_the_base_is_unknown(rows: str) -> None:
    body = rows.format(bytes=0x7FFE) + "v_and_b32_e32 v1, 0x3c, v1\n{}" + LOAD + "\nv_lshlrev_b32_e32 v1, 2, v0"
    plain, moved = (body.format(each) for each in ("", "s_add_u32 s22, s22, 4\n"))
    numbers = np.arange(64, dtype=np.uint32)
    assert [run(each, [3], numbers)[0] for each in (plain, moved)] == [3, 4]
    assert reading(plain).unknown is None
    assert "a buffer's descriptor depends on data" in (reading(moved).unknown or "")
