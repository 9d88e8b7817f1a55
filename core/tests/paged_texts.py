"""Kernels whose control flow, addresses and copies depend on tables, written by hand."""

from __future__ import annotations

from typing import Any

_HEAD = """.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 table, .param .u64 lengths, .param .u64 x, .param .u64 y)
.reqntid 32
{
.reg .pred %p<9>;
.reg .b32 %r<20>;
.reg .b64 %rd<20>;
.reg .f32 %f<9>;
.shared .align 16 .b8 pages[64];
ld.param.u64 %rd1, [table];
ld.param.u64 %rd2, [lengths];
ld.param.u64 %rd3, [x];
ld.param.u64 %rd4, [y];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mul.wide.u32 %rd5, %r2, 4;
add.s64 %rd6, %rd2, %rd5;
ld.global.b32 %r3, [%rd6];
mul.wide.u32 %rd5, %r2, 16;
add.s64 %rd7, %rd1, %rd5;
mov.f32 %f1, 0f00000000;
"""

_TAIL = """DONE:
shl.b32 %r9, %r2, 5;
add.s32 %r9, %r9, %r1;
mul.wide.u32 %rd10, %r9, 4;
add.s64 %rd11, %rd4, %rd10;
st.global.f32 [%rd11], %f1;
ret;
}
"""

_STAGE = """setp.ne.u32 %p5, %r1, 0;
mov.u32 %r10, pages;
@%p5 bra STAGED;
cp.async.cg.shared.global [%r10], [%rd7], 16;
cp.async.commit_group;
STAGED:
cp.async.wait_group 0;
bar.sync 0;
"""

_ADD = """shl.b32 %r6, %r5, 5;
add.s32 %r6, %r6, %r1;
mul.wide.u32 %rd8, %r6, 4;
add.s64 %rd9, %rd3, %rd8;
ld.global.f32 %f2, [%rd9];
"""


def page_sum(*, staged: bool = False, guarded: bool = False, reverse: bool = False, exit_early: bool = False) -> str:
    """The sum of the pages of x that the table of a block names, as many as its length, added in their order.

    A page has 32 numbers, a table of a block 4 entries.  `staged`: the table is copied to shared memory.  `guarded`:
    four additions under conditions instead of a loop.  `reverse`: the last page first.  `exit_early`: blocks without
    pages end before they store.
    """
    text = _HEAD + (_STAGE if staged else "")
    if exit_early:
        text += "setp.eq.u32 %p6, %r3, 0;\n@%p6 ret;\n"
    source = "ld.shared.b32 %r5, [%r8];\n" if staged else "ld.global.b32 %r5, [%rd12];\n"
    if guarded:
        for page in range(4):
            where = f"add.s32 %r8, %r10, {4 * page};\n" if staged else f"add.s64 %rd12, %rd7, {4 * page};\n"
            text += f"setp.le.u32 %p1, %r3, {page};\n@%p1 bra DONE;\n{where}{source}{_ADD}add.rn.f32 %f1, %f1, %f2;\n"
        return text + _TAIL
    index = "sub.s32 %r7, %r3, %r4;\nadd.s32 %r7, %r7, -1;\n" if reverse else "mov.u32 %r7, %r4;\n"
    where = (
        "shl.b32 %r8, %r7, 2;\nadd.s32 %r8, %r8, %r10;\n"
        if staged
        else "mul.wide.u32 %rd12, %r7, 4;\nadd.s64 %rd12, %rd12, %rd7;\n"
    )
    return (
        text
        + "mov.u32 %r4, 0;\nLOOP:\nsetp.ge.u32 %p1, %r4, %r3;\n@%p1 bra DONE;\n"
        + index
        + where
        + source
        + _ADD
        + "add.rn.f32 %f1, %f1, %f2;\nadd.s32 %r4, %r4, 1;\nbra LOOP;\n"
        + _TAIL
    )


TABLE = [3, 1, 7, 0, 2, 2, 2, 2, 5, 4, 0, 0]
LENGTHS = [3, 4, 0]


def launch(file: str, table: object = TABLE, lengths: object = LENGTHS, **fields: Any) -> dict[str, Any]:
    """The launch of three blocks; None leaves the contents of a tensor open."""
    tensors = {"T": table, "N": lengths}
    arguments: list[dict[str, Any]] = [
        {"buffer": name, "dtype": "i32", **({} if each is None else {"values": each})} for name, each in tensors.items()
    ]
    arguments += [{"buffer": "X", "dtype": "fp32"}, {"buffer": "Y", "dtype": "fp32"}]
    return {"file": file, "entry": "k", "grid": [3], "block": [32], "args": arguments, **fields}
