"""Kernels small enough to write by hand: the sum of 64 numbers by one warp, in several layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HEAD = """.version 8.3
.target sm_90
.address_size 64
.visible .entry row_sum(.param .u64 x, .param .u64 y)
.reqntid {threads}
{{
.reg .b32 %r<9>;
.reg .f32 %f<9>;
.reg .b64 %rd<9>;
.loc 1 3 0
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
"""

TAIL = """.loc 1 6 0
and.b32 %r6, %r1, 31;
setp.ne.u32 %p1, %r6, 0;
@%p1 bra DONE;
{store}
DONE:
ret;
}}
.file 1 "kernel.py"
"""

ROUND = """shfl.sync.bfly.b32 %f6, %f5, {distance}, 31, -1;
{combine} %f5, {operands};
"""


def reduction(combine: str, swapped: bool = False) -> str:
    """A butterfly over the warp of %f5."""
    operands = "%f6, %f5" if swapped else "%f5, %f6"
    rounds = [ROUND.format(distance=d, combine=combine, operands=operands) for d in (16, 8, 4, 2, 1)]
    return ".loc 1 5 0\n" + "".join(rounds)


def row_sum(*, neighbours: bool = False, swapped: bool = False, combine: str = "add.rn.f32", rows: int = 1) -> str:
    """The text of a kernel: one warp sums a row of 64 fp32, a block of `rows` warps as many rows.

    A lane starts with the elements `lane` and `lane + 32`, or with two `neighbours`.
    """
    first = "%r7, %r4, 1" if neighbours else "%r7, %r4, 0"
    load = f"""and.b32 %r4, %r1, 31;
shr.u32 %r5, %r1, 5;
mad.lo.u32 %r5, %r2, {rows}, %r5;
shl.b32 {first};
mad.lo.u32 %r7, %r5, 64, %r7;
mul.wide.u32 %rd3, %r7, 4;
add.s64 %rd4, %rd1, %rd3;
.loc 1 4 0
ld.global.f32 %f1, [%rd4];
ld.global.f32 %f2, [%rd4+{4 if neighbours else 128}];
{combine} %f5, {"%f2, %f1" if swapped else "%f1, %f2"};
"""
    address, store = "mul.wide.u32 %rd5, %r5, 4;\nadd.s64 %rd6, %rd2, %rd5;\n", "st.global.f32 [%rd6], %f5;"
    head = HEAD.format(threads=32 * rows).replace(".reg .b32", ".reg .pred %p<3>;\n.reg .b32")
    return head + load + reduction(combine, swapped) + address + TAIL.format(store=store)


def launch(file: str, rows: int = 1, **fields: Any) -> dict[str, Any]:
    """The launch of four rows."""
    arguments = [{"buffer": "X", "dtype": "fp32"}, {"buffer": "Y", "dtype": "fp32"}]
    return {"file": file, "entry": "row_sum", "grid": [4 // rows], "block": [32 * rows], "args": arguments, **fields}


def write(folder: Path, texts: dict[str, str | bytes], launches: list[dict[str, Any]] | None) -> Path:
    """Writes a folder of kernels, with a manifest where launches are given."""
    for name, text in texts.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    if launches is not None:
        (folder / "manifest.json").write_text(json.dumps({"kernels": launches}))
    return folder
