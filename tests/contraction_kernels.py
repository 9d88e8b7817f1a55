"""Kernels of a few floating-point instructions, whose products an assembler may fuse into sums."""

from __future__ import annotations

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 p, .param .u64 q, .param .f32 s, .param .u32 n) {
.reg .b64 %rd<8>; .reg .b32 %r<40>; .reg .pred %p<4>; .reg .b16 %h<8>; .reg .b64 %d<8>;
ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r39, %tid.x; mul.wide.u32 %rd3, %r39, 16;
add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd1];
"""
FIRST = HEAD.count("\n") + 1
STORE = "st.global.b32 [%rd2], %r10;"
MUL = "mul.f32 %r4, %r0, %r1;"
ADD = "add.f32 %r10, %r4, %r2;"


def kernel(*lines: str) -> str:
    """Return a kernel whose first given line is line FIRST; %r0 to %r3 are loaded floats, STORE stores %r10."""
    return HEAD + "\n".join(lines) + "\nret;\n}\n"
