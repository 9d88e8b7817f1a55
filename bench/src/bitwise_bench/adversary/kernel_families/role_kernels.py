# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels for sm_90 whose warpgroups have roles: one passes values to the other through stages of shared memory.

The stages are full and empty at mbarriers, at which all threads arrive, or an elected one of each warp.  The registers
of the roles may be moved from one to the other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD, exchange, mixing

_HEAD = HEAD.replace(".reqntid {threads}", ".reqntid {threads} .maxnreg 128") + (
    "mov.u32 %r70, room; and.b32 %r61, %r0, 127; mad.lo.u32 %r62, %r61, 16, %r70; setp.eq.u32 %p9, %r0, 0;"
    "shr.u32 %r60, %r0, 7; setp.eq.u32 %p4, %r60, 0; mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;\n"
)
"""%r62: the 16 bytes of the thread in a stage; %p4: the first warpgroup; %p9: the first thread."""
_NAMES = ("%r20", "%r21", "%r22", "%r23")
_FULL, _EMPTY, _STAGE = 8064, 8096, 2048
"""The first mbarriers, and the bytes of a stage."""


def _arrive(place: int, arrivals: int) -> str:
    """Return an arrival of all threads of a warpgroup, or of an elected one of each warp, at an mbarrier."""
    if arrivals == 128:
        return f"mbarrier.arrive.shared.b64 _, [room+{place}];"
    return f"bar.warp.sync -1; elect.sync %r63|%p5, -1; @%p5 mbarrier.arrive.shared.b64 _, [room+{place}];"


def _wait(label: str, place: int, parity: int) -> str:
    return f"{label}: mbarrier.try_wait.parity.shared.b64 %p10, [room+{place}], {parity}; @!%p10 bra {label};"


def _roles(dice: random.Random) -> Shape:
    """Stages that one warpgroup fills and the other one reads, each of them several times."""
    arrivals, stages, turns = dice.choice((128, 4)), dice.choice((1, 2)), dice.randint(1, 4)
    barriers = "".join(
        f"@%p9 mbarrier.init.shared.b64 [room+{place + 8 * stage}], {arrivals};"
        for stage in range(stages)
        for place in (_FULL, _EMPTY)
    )
    less, more = dice.choice(
        (("", ""), ("setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.inc.sync.aligned.u32 216;"))
    )
    produced: list[Slot] = []
    consumed: list[Slot] = []
    for turn in range(turns):
        stage, phase = turn % stages, turn // stages
        full, empty, at = _FULL + 8 * stage, _EMPTY + 8 * stage, _STAGE * stage
        if phase:
            wait = _wait(f"E{turn}", empty, (phase - 1) & 1)
            produced.append((*[wait] * 8, f"{wait} bar.warp.sync -1;", "mov.b32 %r81, 0;"))
        lane = dice.choice((1, 32, 64))
        produced += [
            mixing(dice, _NAMES),
            pick(
                dice,
                f"st.shared.v4.b32 [%r62+{at}], {{%r20, %r21, %r22, %r23}};",
                f"st.shared.v2.b32 [%r62+{at}], {{%r20, %r21}}; st.shared.v2.b32 [%r62+{at + 8}], {{%r22, %r23}};",
                f"st.shared.v4.b32 [%r62+{at}], {{%r21, %r20, %r23, %r22}};",
                f"xor.b32 %r64, %r61, {lane}; mad.lo.u32 %r64, %r64, 16, %r70; st.shared.v4.b32 [%r64+{at}], {{%r20, %r21, %r22, %r23}};",
            ),
            (_arrive(full, arrivals), f"fence.acq_rel.cta; {_arrive(full, arrivals)}"),
        ]
        wait = _wait(f"F{turn}", full, phase & 1)
        consumed += [
            (*[wait] * 8, f"{wait} bar.warp.sync -1;", _wait(f"F{turn}", full, (phase + 1) & 1)),
            pick(
                dice,
                f"ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r62+{at}];",
                f"ld.shared.v2.b32 {{%r24, %r25}}, [%r62+{at}]; ld.shared.v2.b32 {{%r26, %r27}}, [%r62+{at + 8}];",
                f"ld.shared.v4.b32 {{%r25, %r24, %r27, %r26}}, [%r62+{at}];",
                f"xor.b32 %r64, %r61, {lane}; mad.lo.u32 %r64, %r64, 16, %r70; ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r64+{at}];",
            ),
            pick(
                dice,
                "add.rn.f32 %r20, %r20, %r24; add.rn.f32 %r21, %r21, %r25; max.f32 %r22, %r22, %r26;",
                "add.rn.f32 %r20, %r24, %r20; add.rn.f32 %r21, %r25, %r21; max.f32 %r22, %r26, %r22;",
                "add.rn.f32 %r20, %r20, %r26; add.rn.f32 %r21, %r21, %r25; mov.b32 %r23, %r27;",
            ),
            (*[_arrive(empty, arrivals)] * 8, "mov.b32 %r81, 0;"),
            dice.choice((mixing(dice, _NAMES), exchange(dice, "%r20", "%r22"))),
        ]
    slots: list[Slot] = [
        (f"{barriers} bar.sync 0; @!%p4 bra CONSUMER; {less}",),
        *produced,
        (f"bra DONE; CONSUMER: {more}",),
        *consumed,
        ("DONE:",),
    ]
    return Shape(slots, 256, fixed=(1, 1), first=True)


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"roles of warpgroups": Family(Frame(LANGUAGES["ptx"], _HEAD, END), _roles)}
)
"""The family by name."""
