"""Matrix products of a warpgroup on both sides of a branch on data, and in loops that data ends.

Every kernel is also executed on bit patterns: kernels with equal forms must return the same bytes.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from bitwise_core.checker.analysis import Session, prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate_batch
from bitwise_core.plugins import registry
from bitwise_nvidia_sm90 import wgmma

OPTIONS = Options(audit_contraction=False)
ARGUMENTS = (Argument(kind="buffer", buffer="out", dtype="fp32"), Argument(kind="buffer", buffer="in"))
LAUNCH = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(128, 1, 1), args=ARGUMENTS)
BYTES = 16384
"""The bytes of the input before the number that decides."""

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) .reqntid 128
{{ .reg .pred %p<10>; .reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %d<30>; .shared .align 128 .b8 room[4096];
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x; mul.wide.u32 %d5, %r0, 16;
add.s64 %d6, %d1, %d5; mov.u64 %d8, room; add.s64 %d9, %d8, %d5; add.s64 %d10, %d0, %d5; shr.u64 %d11, %d8, 4;
or.b64 %d20, %d11, 68720001024; add.s64 %d13, %d11, 128; or.b64 %d21, %d13, 68720001024;
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
setp.lt.u32 %p1, %r0, 16; ld.global.b32 %r20, [%d1+16384];
{body}
st.global.v4.f32 [%d10], {{%f0,%f1,%f2,%f3}};
ret; }}
"""
"""%d9: this thread's 16 bytes of A (64 x 16) in shared memory; B (16 x 8) follows, stored by 16 threads."""
SUM = "{%f0,%f1,%f2,%f3}"
MULTIPLY = (
    f"wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {SUM}, %d20, %d21, 1, 1, 1, 0, 0; "
    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
)


def tile(offset: int | str) -> str:
    """Return the store of A from a place in the input."""
    return (
        f"ld.global.v4.b32 {{%r10,%r11,%r12,%r13}}, [%d6+{offset}]; bar.sync 0; "
        "st.shared.v4.b32 [%d9], {%r10,%r11,%r12,%r13}; fence.proxy.async.shared::cta; bar.sync 0;"
    )


FIRST = tile(0) + "@%p1 st.shared.v4.b32 [%d9+2048], {%r10,%r11,%r12,%r13}; fence.proxy.async.shared::cta; bar.sync 0;"


def branch(one: int, other: int) -> str:
    """Return a product, and another one of which data chooses the place of A."""
    sides = f"@%p2 bra OTHER; {tile(one)} {MULTIPLY} bra DONE; OTHER: {tile(other)} {MULTIPLY} DONE:"
    return f"{FIRST} {MULTIPLY} setp.ne.u32 %p2, %r20, 0; {sides}"


def loop(change: str) -> str:
    """Return products with A multiplied by a number that each iteration changes, as many as data says."""
    scale = "".join(f"mul.rn.f16x2 %r{each}, %r{each}, %r22;" for each in (10, 11, 12, 13))
    body = tile(2048).replace("bar.sync 0;", scale + "bar.sync 0;", 1)
    return (
        f"{FIRST} {MULTIPLY} mov.b32 %r22, 0x3C003C00; mov.b32 %r21, 0; "
        f"AGAIN: {body} {MULTIPLY} {change} add.u32 %r21, %r21, 1; setp.lt.u32 %p2, %r21, %r20; @%p2 bra AGAIN;"
    )


def form_of_text(text: str, threads: int) -> bytes | None:
    """Return the canonical form of a kernel with a number of threads in its block."""
    source = Source("k.ptx", text, LAUNCH.model_copy(update={"block": (threads, 1, 1)}))
    return Session({"out": 1, "in": 2}, OPTIONS).analyse(source, registry.default().arch("sm_90")).signature


@cache
def form(body: str) -> bytes | None:
    """Return the canonical form of a kernel."""
    return form_of_text(TEXT.format(body=body), 128)


@cache
def results(body: str) -> tuple[bytes, ...]:
    """Return the bytes of a kernel for several numbers that decide."""
    numbers = np.random.default_rng(5).standard_normal(BYTES // 2).astype(np.float16).view(np.uint8)
    inputs = [np.concatenate([numbers, np.array([each], dtype=np.uint32).view(np.uint8)]) for each in (0, 1, 3)]
    ready = prepare(Source("k.ptx", TEXT.format(body=body), LAUNCH), registry.default().arch("sm_90"), OPTIONS)
    contents = [{"out": np.zeros(2048, dtype=np.uint8), "in": each} for each in inputs]
    return tuple(bytes(each.after["out"]) for each in simulate_batch(ready, contents))


HALVED, SUBTRACTED = "mul.rn.f16x2 %r22, %r22, 0x38003800;", "sub.rn.f16x2 %r22, %r22, 0x38003800;"
NEAR_MISSES = [
    (branch(2048, 4096), branch(4096, 4096)),
    (branch(2048, 4096), branch(2048, 2048)),
    (branch(2048, 4096), branch(4096, 2048)),
    (loop(HALVED.replace("0x38003800", "%r23") + "mov.b32 %r23, 0;"), loop(HALVED)),
    (loop(HALVED), loop(SUBTRACTED)),
]


@pytest.mark.parametrize("pair", NEAR_MISSES)
def test_products_of_other_operands_have_other_forms(pair: tuple[str, str]) -> None:
    one, other = (each.replace(FIRST, FIRST + "mov.b32 %r23, 0x3C003C00;") for each in pair)
    assert None not in (form(one), form(other))
    assert form(one) != form(other)
    assert results(one) != results(other)


def test_equal_sides_have_the_form_of_a_kernel_without_a_branch() -> None:
    plain = f"{FIRST} {MULTIPLY} {tile(2048)} {MULTIPLY}"
    assert form(branch(2048, 2048)) == form(plain)
    assert results(branch(2048, 2048)) == results(plain)


WIDE = MULTIPLY.replace("m64n8k16", "m64n16k16").replace(SUM, "{%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}")
LATER = MULTIPLY.replace(SUM, "{%f4,%f5,%f6,%f7}")
OTHER = MULTIPLY.replace(SUM, "{%f0,%f1,%f6,%f3}")
ZEROS = "".join(f"mov.f32 %f{place}, 0f00000000;" for place in range(4, 8))
STORED = (
    ZEROS + FIRST + "st.shared.v4.b32 [%d9+2048], {%r12,%r10,%r11,%r13}; fence.proxy.async.shared::cta; bar.sync 0;"
)


@pytest.mark.parametrize(
    "body", [WIDE + MULTIPLY, WIDE + LATER, MULTIPLY + LATER + WIDE, WIDE + OTHER, MULTIPLY + WIDE + MULTIPLY]
)
def test_accumulators_of_products_of_several_widths(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that are kept as a whole are those of their registers."""
    text = TEXT.replace("room[4096]", "room[8192]").format(body=STORED + body + "add.rn.f32 %f0, %f0, %f5;")
    kept = form_of_text(text, 128)
    assert kept is not None
    monkeypatch.setattr(wgmma, "_whole_accumulator", lambda values: None)
    assert form_of_text(text, 128) == kept


def test_one_of_two_warpgroups_multiplies() -> None:
    """The first one keeps its zeros: its threads have another form than those of the second one."""
    stored = "ld.global.v4.b32 {%r10,%r11,%r12,%r13}, [%d6]; st.shared.v4.b32 [%d9], {%r10,%r11,%r12,%r13};"
    begin = f"{stored} fence.proxy.async.shared::cta; bar.sync 0; setp.ge.u32 %p3, %r0, 128;"
    text = TEXT.replace(".reqntid 128", ".reqntid 256")
    second = form_of_text(text.format(body=f"{begin} @!%p3 bra SKIP; {MULTIPLY} {MULTIPLY} SKIP:"), 256)
    first = form_of_text(text.format(body=f"{begin} @%p3 bra SKIP; {MULTIPLY} {MULTIPLY} SKIP:"), 256)
    both = form_of_text(text.format(body=f"{begin} {MULTIPLY} {MULTIPLY}"), 256)
    assert None not in (first, second, both)
    assert len({first, second, both}) == 3


def test_parts_of_a_warpgroup_in_different_blocks_are_refused() -> None:
    """The parts that two blocks execute are a whole warpgroup together."""
    launch = Launch(file="k.ptx", entry="k", grid=(2, 1, 1), block=(128, 1, 1), args=ARGUMENTS)
    begin = f"{FIRST} mov.u32 %r1, %ctaid.x; setp.ge.u32 %p3, %r0, 64; setp.eq.u32 %p4, %r1, 0; xor.pred %p5, %p3, %p4;"
    for body, refused in ((f"@%p5 bra SKIP; {MULTIPLY} SKIP:", True), (f"@%p4 bra SKIP; {MULTIPLY} SKIP:", False)):
        source = Source("k.ptx", TEXT.format(body=f"{begin} {body}"), launch)
        found = Session({"out": 1, "in": 2}, OPTIONS).analyse(source, registry.default().arch("sm_90"))
        assert ("in part of a warpgroup" in (found.unknown or "")) == refused, found.unknown
