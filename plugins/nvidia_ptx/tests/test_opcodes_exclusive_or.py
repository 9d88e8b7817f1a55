# ruff: noqa: E501 - PTX is easier to check without line breaks
"""An element is taken out of an exclusive or with the other one, as sorts over several warps do it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from bitwise_core.execution.concrete import checked_outputs
from bitwise_core.execution.domains.domain import Unsupported
from ptx_programs import hashes, run, simulated

THREADS = 64
SHARED = ".shared .align 16 .b8 room[1024];"
PLACES = """
    mul.lo.u32 %r1, %r0, 8; cvt.u64.u32 %d5, %r1; add.s64 %d6, %d1, %d5; add.s64 %d7, %d0, %d5; mov.u64 %d8, room;
    add.s64 %d9, %d8, %d5; xor.b32 %r60, %r1, 256; cvt.u64.u32 %d10, %r60; add.s64 %d11, %d8, %d10; add.s64 %d12, %d6, %d10; sub.s64 %d12, %d12, %d5;
    ld.global.b32 %r2, [%d6]; ld.global.b32 %r3, [%d6+4]; ld.global.b64 %d20, [%d6]; ld.global.b64 %d21, [%d6+512]; setp.lt.f32 %p1, %r2, %r3;
"""
"""%r2, %r3, %d20 and %d21: words of this thread; %d9 and %d11: its place in shared memory and that of the other warp."""
END = "st.global.b32 [%d7], %r9;"
LONG = "st.global.b64 [%d7], %d29;"
SUM = "st.shared.b32 [%d9], %r2; bar.sync 0; ld.shared.b32 %r4, [%d11]; xor.b32 %r5, %r2, %r4; bar.sync 0; st.shared.b32 [%d9], %r5; bar.sync 0; ld.shared.b32 %r6, [%d11];"
"""%r6: the exclusive or of this thread's element and that of the other warp, through shared memory."""
LONG_SUM = "st.shared.b64 [%d9], %d20; bar.sync 0; ld.shared.b64 %d24, [%d11]; mov.b64 {%r20, %r21}, %d24; shfl.sync.bfly.b32 %r22, %r20, 1, 31, -1; shfl.sync.bfly.b32 %r23, %r21, 1, 31, -1; mov.b64 %d25, {%r22, %r23}; xor.b64 %d26, %d25, %d24; bar.sync 0; st.shared.b64 [%d9], %d26; bar.sync 0; ld.shared.b64 %d27, [%d9];"
HALVES = "mov.b64 %d28, {%r22, %r23}; xor.b64 %d29, %d27, %d28;"
COUNTED = "selp.b32 %r7, 1, 0, %p1; setp.ge.u32 %p2, %r0, 40; selp.b32 %r7, {known}, %r7, %p2;"
ADDED = "".join(
    f"shfl.sync.bfly.b32 %r8, %r{7 if place == 0 else 9}, {1 << place}, 31, -1; add.s32 %r9, %r{7 if place == 0 else 9}, %r8;"
    for place in range(5)
)

EQUAL = {
    "both in registers": ("xor.b32 %r5, %r2, %r3; xor.b32 %r9, %r2, %r5;" + END, "mov.b32 %r9, %r3;" + END),
    "the second one": ("xor.b32 %r5, %r2, %r3; xor.b32 %r9, %r5, %r3;" + END, "mov.b32 %r9, %r2;" + END),
    "an element with itself": ("xor.b32 %r5, %r2, %r2; xor.b32 %r9, %r5, %r3;" + END, "mov.b32 %r9, %r3;" + END),
    "through shared memory": (SUM + "xor.b32 %r9, %r6, %r2;" + END, "ld.global.b32 %r9, [%d12];" + END),
    "the other one through shared memory": (SUM + "xor.b32 %r9, %r4, %r6;" + END, "mov.b32 %r9, %r2;" + END),
    "halves of 64 bits": (LONG_SUM + "xor.b64 %d29, %d27, %d24;" + LONG, LONG_SUM + "mov.b64 %d29, {%r22, %r23};" + LONG),
    "the other half of 64 bits": (LONG_SUM + HALVES + LONG, LONG_SUM + "mov.b64 %d29, %d24;" + LONG),
    "64 bits": ("xor.b64 %d22, %d20, %d21; xor.b64 %d29, %d22, %d21;" + LONG, "mov.b64 %d29, %d20;" + LONG),
    "flags of warps": (
        COUNTED.format(known=0) + "redux.sync.add.s32 %r9, %r7, -1;" + END, COUNTED.format(known=0) + ADDED + END
    ),
    "negated flags of warps": (
        COUNTED.format(known=1).replace("1, 0, %p1", "0, 1, %p1") + ADDED + END,
        COUNTED.format(known=1) .replace("setp.ge", "not.pred %p1, %p1; selp.b32 %r7, 1, 0, %p1; setp.ge") + "redux.sync.add.u32 %r9, %r7, -1;" + END,
    ),
}  # fmt: skip

NEAR_MISSES = {
    "another element": ("xor.b32 %r5, %r2, %r3; xor.b32 %r9, %r4, %r5;", "mov.b32 %r9, %r3;"),
    "the element of this thread": (SUM + "xor.b32 %r9, %r6, %r2;", "mov.b32 %r9, %r2;"),
    "an or": ("or.b32 %r5, %r2, %r3; xor.b32 %r9, %r2, %r5;", "mov.b32 %r9, %r3;"),
    "three times": ("xor.b32 %r5, %r2, %r3; xor.b32 %r5, %r2, %r5; xor.b32 %r9, %r2, %r5;", "mov.b32 %r9, %r3;"),
}  # fmt: skip


def contents() -> list[dict[str, np.ndarray]]:
    """Return the buffers of each draw."""
    generator = np.random.default_rng(3)
    words = [generator.integers(0, 1 << 32, 512, dtype=np.uint32).view(np.uint8) for _ in range(8)]
    return [{"out": np.zeros(1024, dtype=np.uint8), "in": each} for each in words]


@cache
def returned(body: str) -> list[bytes]:
    """Return the output of each draw."""
    return simulated(PLACES + body, contents(), threads=THREADS, shared=SHARED)


def form(body: str) -> dict[int, tuple[int, int, int]]:
    """Return the canonical forms of the output."""
    return hashes(PLACES + body, threads=THREADS, shared=SHARED)


@pytest.mark.parametrize("name", EQUAL)
def test_both_have_one_form_and_return_the_same_bytes(name: str) -> None:
    left, right = EQUAL[name]
    assert form(left) == form(right)
    assert returned(left) == returned(right)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_have_other_forms_and_return_other_bytes(name: str) -> None:
    left, right = (("mov.b32 %r4, 7;" + each + END) for each in NEAR_MISSES[name])
    assert form(left) != form(right)
    assert returned(left) != returned(right)


def test_an_undefined_element_does_not_cancel() -> None:
    body = "@%p1 mov.b32 %r30, %r2; @%p1 mov.b32 %r31, %r3; xor.b32 %r5, %r30, %r3; xor.b32 %r9, %r31, %r5;" + END
    with pytest.raises(Unsupported, match="nothing wrote"):
        checked_outputs(*run(PLACES + body, threads=THREADS, shared=SHARED))


def test_an_undefined_cell_does_not_cancel() -> None:
    body = (
        "ld.shared.b32 %r30, [%d9+512]; ld.shared.b32 %r31, [%d11+512]; xor.b32 %r5, %r30, %r3; xor.b32 %r9, %r31, %r5;"
        + END
    )
    with pytest.raises(Unsupported, match="nothing wrote"):
        checked_outputs(*run(PLACES + body, threads=THREADS, shared=SHARED))
