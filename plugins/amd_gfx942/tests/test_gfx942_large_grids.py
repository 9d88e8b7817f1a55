"""Large grids: all blocks are represented by a few, of which the index of the block is a register."""

from __future__ import annotations

import pytest

from bitwise_amd_gfx942.architecture import GFX942
from bitwise_core.checker import analysis
from bitwise_core.checker.analysis import Options, Source
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.launch import Argument, Launch
from gfx942_kernels import HEAD, TAIL

ARGUMENTS = "".join(
    f"      - .address_space:  global\n        .offset:         {8 * index}\n        .size:           8\n"
    "        .value_kind:     global_buffer\n"
    for index in range(3)
)

START = """s_load_dwordx4 s[8:11], s[0:1], 0x0
s_load_dwordx2 s[12:13], s[0:1], 0x10
s_waitcnt lgkmcnt(0)
v_lshlrev_b32_e32 v1, 2, v0
s_lshl_b32 s4, s2, 8
v_add_u32_e32 v2, s4, v1
global_load_dword v3, v2, s[10:11]
global_load_dword v4, v2, s[12:13]
s_waitcnt vmcnt(0)
"""
"""s2 is the index of the block, v1 the byte offset of the lane, v2 that of the element; v3 and v4 are those of a and b."""

SUM = f"{START}v_add_f32_e32 v5, v3, v4\nglobal_store_dword v2, v5, s[8:9]"


def source(name: str, body: str) -> Source:
    lines = "".join(f"\t{line}\n" for line in body.splitlines())
    text = HEAD + lines + TAIL.format(size=24, denormals=3, arguments=ARGUMENTS).lstrip("\n")
    buffers = tuple(Argument(kind="buffer", buffer=each, dtype="fp32") for each in ("out", "a", "b"))
    return Source(name, text, Launch(file=name, grid=(48, 1, 1), block=(64, 1, 1), args=buffers))


@pytest.fixture(params=["large", "executed in full"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "large":
        monkeypatch.setattr(analysis, "MAXIMUM_LANES", 0)
    return str(request.param)


@pytest.mark.parametrize(
    ("body", "change", "equal"),
    [
        (SUM, ("v5, v3, v4", "v5, v4, v3"), True),
        (SUM, ("v5, v3, v4", "v5, v3, v3"), False),
        (SUM, ("global_load_dword v3, v2", "global_load_dword v3, v1"), False),
        (SUM, ("v2, s4, v1\n", "v2, s4, v1\nv_mov_b32_e32 v6, v2\n"), True),
        # The blocks do the work of others: block 47 - i that of block i.
        (SUM, ("s_lshl_b32 s4, s2, 8", "s_sub_u32 s4, 47, s2\ns_lshl_b32 s4, s4, 8"), True),
        (SUM, ("s_waitcnt vmcnt(0)", "s_mul_i32 s4, s2, 256\nv_add_u32_e32 v2, s4, v1\ns_waitcnt vmcnt(0)"), True),
    ],
    ids=["operands", "other operand", "one row", "copies", "other blocks", "other rows"],
)
def test_blocks_of_a_grid(size: str, body: str, change: tuple[str, str], equal: bool) -> None:
    assert change[0] in body
    changed = body.replace(*change)
    found = compare(source("one", body), source("other", changed), GFX942, Options()).verdict
    assert (found.outcome is Outcome.EQUAL) == equal, found
    assert found.outcome is not Outcome.UNKNOWN, found
    assert (analysis.LARGE_GRID in found.notes) == (size == "large")
