# ruff: noqa: E501 - a line of PTX is read as one
"""Registers that an instruction reads and replaces: it reads all of its operands before it writes any."""

from __future__ import annotations

import pytest

from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from ptx_programs import hashes, text

SHARED = ".shared .align 16 .b8 room[512]; .local .align 16 .b8 own[64];"
PLACES = "mul.wide.u32 %d2, %r0, 32; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d4]; mov.u32 %r11, room; mad.lo.u32 %r11, %r0, 16, %r11; st.shared.v4.b32 [%r11], {%r1, %r2, %r3, %r4}; mov.u64 %d7, own; mov.b64 %d8, {%r4, %r3}; mov.b64 %d9, {%r2, %r1}; st.local.v2.b64 [%d7], {%d8, %d9}; bar.warp.sync -1; setp.eq.u32 %p1, %r1, 5;"
MATRIX = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
CASES = {
    "global, 64 bits": ("ld.global.v2.b64 {#, %d6}, [%d4];", "%d4", "%d5", ("#", "%d6")),
    "global, 64 bits, the last one": ("ld.global.v2.b64 {%d6, #}, [%d4];", "%d4", "%d5", ("%d6", "#")),
    "shared, two": ("ld.shared.v2.b32 {#, %r12}, [%r11];", "%r11", "%r20", ("#", "%r12")),
    "shared, four": ("ld.shared.v4.b32 {#, %r12, %r13, %r14}, [%r11];", "%r11", "%r20", ("#", "%r12", "%r13", "%r14")),
    "shared, four, the second one": ("ld.shared.v4.b32 {%r12, #, %r13, %r14}, [%r11];", "%r11", "%r20", ("%r12", "#", "%r13", "%r14")),
    "local": ("ld.local.v2.b64 {#, %d6}, [%d7];", "%d7", "%d5", ("#", "%d6")),
    "matrices": ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {#, %r12, %r13, %r14}, [%r11];", "%r11", "%r20", ("#", "%r12", "%r13", "%r14")),
    "a product of matrices": (f"{MATRIX} {{#, %r12, %r13, %r14}}, {{%r1, %r2, %r3, %r4}}, {{%r1, %r2}}, {{%r4, %r3, %r2, %r1}};", "%r1", "%r20", ("#", "%r12", "%r13", "%r14")),
    "an exchange": ("shfl.sync.down.b32 #|%p2, %r1, 1, 31, -1; selp.b32 %r12, 1, 0, %p2;", "%r1", "%r20", ("#", "%r12")),
    "a carry": ("add.cc.u32 #, %r1, %r2; addc.u32 %r12, %r2, #;", "%r1", "%r20", ("#", "%r12")),
    "two predicates": ("setp.lt.and.u32 #|%p2, %r2, %r3, %p1; selp.b32 %r12, 1, 0, #; selp.b32 %r13, 1, 0, %p2;", "%p1", "%p3", ("%r12", "%r13")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operands_are_read_before_any_is_written(name: str) -> None:
    template, replaced, fresh, stored = CASES[name]
    found = []
    for register in (replaced, fresh):
        body = PLACES + template.replace("#", register)
        for place, each in enumerate(stored):
            size = 8 if each.replace("#", replaced).startswith("%d") else 4
            body += f"st.global.b{8 * size} [%d3+{size * place}], {each.replace('#', register)};"
        Ptxas.locate("sm_90a").digest(text(body, shared=SHARED))
        found.append(hashes(body, shared=SHARED))
    assert found[0] == found[1]
