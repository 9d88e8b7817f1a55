"""What a kernel computes from the addresses of buffers: offsets and distances are known, other numbers are not."""

from __future__ import annotations

import pytest

from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes

OWN = "mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;"
STORE, STORE_LONG = (
    "st.global.b32 [%d3], %r2;",
    "mul.wide.u32 %d5, %r0, 8; add.s64 %d5, %d0, %d5; st.global.b64 [%d5], %d9;",
)
KNOWN = {
    "an offset": (f"{OWN} sub.s64 %d9, %d3, %d0; {STORE_LONG}", f"{OWN} mov.b64 %d9, %d2; {STORE_LONG}"),
    "an order in one buffer": (
        f"{OWN} setp.lt.u64 %p1, %d0, %d3; selp.b32 %r2, 1, 0, %p1; {STORE}",
        f"{OWN} setp.ne.u32 %p1, %r0, 0; selp.b32 %r2, 1, 0, %p1; {STORE}",
    ),
    "a buffer that is there": (
        f"{OWN} setp.ne.s64 %p1, %d1, 0; selp.b32 %r2, 1, 0, %p1; {STORE}",
        f"{OWN} mov.b32 %r2, 1; {STORE}",
    ),
    "low bits": (f"{OWN} and.b64 %d9, %d3, 15; {STORE_LONG}", f"{OWN} and.b64 %d9, %d2, 15; {STORE_LONG}"),
    "low bits of a word": (
        f"{OWN} cvt.u32.u64 %r2, %d3; and.b32 %r2, %r2, 12; {STORE}",
        f"{OWN} cvt.u32.u64 %r2, %d2; and.b32 %r2, %r2, 12; {STORE}",
    ),
    "an address of several halves": (
        f"{OWN} mov.b64 {{%r4, %r5}}, %d4; mov.b64 %d9, {{%r4, %r5}}; ld.global.b32 %r2, [%d9]; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d4]; {STORE}",
    ),
    "a register with a number first": (
        f"{OWN} mul.wide.u32 %d9, %r0, 4; add.s64 %d9, %d1, %d9; ld.global.b32 %r2, [%d9]; {STORE}",
        f"{OWN} ld.global.b32 %r2, [%d4]; {STORE}",
    ),
    "one of two buffers": (
        f"{OWN} setp.lt.u32 %p1, %r0, 8; selp.b64 %d9, %d4, %d3, %p1; ld.global.b32 %r2, [%d9]; {STORE}",
        f"{OWN} setp.lt.u32 %p1, %r0, 8; mov.b64 %d9, %d3; @%p1 mov.b64 %d9, %d4; ld.global.b32 %r2, [%d9]; {STORE}",
    ),
    "a number that nothing uses": (
        f"{OWN} xor.b64 %d9, %d0, %d1; mov.b32 %r2, 7; {STORE}",
        f"{OWN} mov.b32 %r2, 7; {STORE}",
    ),
}  # fmt: skip
OPEN = {
    "a distance of buffers": f"sub.s64 %d9, %d1, %d0; {STORE_LONG}",
    "a sum of addresses": f"add.s64 %d9, %d1, %d0; {STORE_LONG}",
    "an order of buffers": f"{OWN} setp.lt.u64 %p1, %d0, %d1; selp.b32 %r2, 1, 0, %p1; {STORE}",
    "a branch on an order": f"{OWN} mov.b32 %r2, 1; setp.lt.u64 %p1, %d0, %d1; @%p1 bra END; mov.b32 %r2, 2;"
    f" END: {STORE}",
    "high bits": f"shr.u64 %d9, %d0, 40; {STORE_LONG}",
    "many low bits": f"and.b64 %d9, %d0, 4095; {STORE_LONG}",
    "a word": f"{OWN} cvt.u32.u64 %r2, %d0; {STORE}",
    "a remainder": f"rem.u64 %d9, %d0, 3; {STORE_LONG}",
    "a multiple": f"mul.lo.s64 %d9, %d0, 2; {STORE_LONG}",
    "a negative address": f"neg.s64 %d9, %d0; {STORE_LONG}",
    "an address": f"mov.b64 %d9, %d0; {STORE_LONG}",
    "an address that is counted": "red.global.max.u64 [%d0], %d1;",
    "an address at a place of data": f"{OWN} ld.global.b32 %r2, [%d4]; mul.wide.u32 %d9, %r2, 4;"
    f" add.s64 %d10, %d0, %d9; shr.u64 %d11, %d10, 3; mov.b64 %d9, %d11; {STORE_LONG}",
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_what_no_place_of_a_buffer_decides_is_known(name: str) -> None:
    first, second = KNOWN[name]
    assert hashes(first) == hashes(second)


@pytest.mark.parametrize("name", OPEN)
def test_what_the_place_of_a_buffer_decides_is_not_determined(name: str) -> None:
    with pytest.raises(Unsupported, match=r"the address of a buffer, which the launch does not give|not determined"):
        hashes(OPEN[name])
