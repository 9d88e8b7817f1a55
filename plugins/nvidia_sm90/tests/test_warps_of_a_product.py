"""Each warp of a warpgroup must see the tiles of its products: by a barrier and, of what threads wrote, by a fence."""

from __future__ import annotations

import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Argument, Launch
from bitwise_nvidia_sm90.architecture import SM90

ARGUMENTS = (Argument(kind="buffer", buffer="out", dtype="fp32"), Argument(kind="buffer", buffer="in"))
LAUNCH = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(128, 1, 1), args=ARGUMENTS)

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) .reqntid 128
{{ .reg .pred %p<10>; .reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %d<30>; .shared .align 128 .b8 room[4096];
ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; mov.u32 %r0, %tid.x; mul.wide.u32 %d5, %r0, 16;
add.s64 %d6, %d1, %d5; mov.u64 %d8, room; add.s64 %d9, %d8, %d5; add.s64 %d10, %d0, %d5; shr.u64 %d11, %d8, 4;
or.b64 %d20, %d11, 68720001024; add.s64 %d13, %d11, 128; or.b64 %d21, %d13, 68720001024;
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
setp.lt.u32 %p1, %r0, 16; ld.global.v4.b32 {{%r10,%r11,%r12,%r13}}, [%d6];
st.shared.v4.b32 [%d9], {{%r10,%r11,%r12,%r13}}; fence.proxy.async.shared::cta; bar.sync 0;
@%p1 st.shared.v4.b32 [%d9+2048], {{%r10,%r11,%r12,%r13}};
{between}
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0,%f1,%f2,%f3}}, %d20, %d21, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; st.global.v4.f32 [%d10], {{%f0,%f1,%f2,%f3}};
ret; }}
"""
"""All warps have stored A and passed a barrier, and the first warp has stored B."""
FENCE, BARRIER = "fence.proxy.async.shared::cta; ", "bar.sync 0; "
SEEN = {
    "a fence and a barrier": FENCE + BARRIER,
    "a barrier and a fence": BARRIER + FENCE,
    "a fence of the warp that stored": "@%p1 " + FENCE + BARRIER,
    "a fence of one warp before a barrier": BARRIER + "setp.lt.u32 %p3, %r0, 32; @%p3 " + FENCE + BARRIER,
}
FENCED = "setp.{test}.u32 %p3, %r0, 32; @%p3 "
UNSEEN = {
    "no barrier": (FENCE, "no barrier between"),
    "a barrier of each warp": (FENCE + "bar.warp.sync 0xffffffff; ", "no barrier between"),
    "a fence of the first warp behind the barrier": (BARRIER + FENCED.format(test="lt") + FENCE, "no proxy fence"),
    "a fence of the other warps behind the barrier": (BARRIER + FENCED.format(test="ge") + FENCE, "no proxy fence"),
    "a fence of a thread of each warp behind the barrier": (
        BARRIER + "and.b32 %r30, %r0, 31; setp.eq.u32 %p3, %r30, 5; @%p3 " + FENCE,
        "no proxy fence",
    ),
}


def reading(between: str) -> tuple[bytes | None, str]:
    source = Source("k.ptx", TEXT.format(between=between), LAUNCH)
    found = analyse(source, SM90, {"out": 1, "in": 2}, Options(audit_contraction=False))
    return found.signature, found.unknown or ""


@pytest.mark.parametrize("between", SEEN.values(), ids=SEEN)
def test_what_every_warp_sees_is_determined(between: str) -> None:
    signature, unknown = reading(between)
    assert unknown == ""
    assert signature == reading(FENCE + BARRIER)[0] is not None


@pytest.mark.parametrize(("between", "reason"), UNSEEN.values(), ids=UNSEEN)
def test_what_one_warp_may_not_see_is_not_determined(between: str, reason: str) -> None:
    signature, unknown = reading(between)
    assert signature is None
    assert reason in unknown
