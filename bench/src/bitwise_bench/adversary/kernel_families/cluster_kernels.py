# ruff: noqa: E501 - a line of PTX is read as one
"""PTX kernels whose blocks work together in clusters: shared memory of other blocks, barriers of the cluster, mbarriers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from bitwise_bench.adversary.block_programs import Family, Frame, Shape, Slot, pick
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernel_families.block_kernels import END, HEAD, exchange, mixing


def cluster_head(blocks: int) -> str:
    """Return the start of a kernel in clusters of a number of blocks, each of which has a next one.

    %r71: the own 16 bytes of shared memory; %r74: those of the next block; %r75: the own ones by rank; %r72 and %r73:
    the ranks; %p8: rank 0.
    """
    shape = f".reqntid {{threads}} .explicitcluster .reqnctapercluster {blocks}, 1, 1"
    return HEAD.replace(".reqntid {threads}", shape) + (
        f"mov.u32 %r70, room; mad.lo.u32 %r71, %r0, 16, %r70; mov.u32 %r72, %cluster_ctarank; add.u32 %r73, %r72, 1; and.b32 %r73, %r73, {blocks - 1};"
        "mapa.shared::cluster.u32 %r74, %r71, %r73; mapa.shared::cluster.u32 %r75, %r71, %r72;"
        "setp.eq.u32 %p8, %r72, 0; mov.b32 %r20, %r10; mov.b32 %r21, %r11; mov.b32 %r22, %r12; mov.b32 %r23, %r13;\n"
    )


_BOTH = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
_ORDERED = (_BOTH, "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;", _BOTH + _BOTH)
_NAMES = ("%r20", "%r21", "%r22", "%r23")


def _written(dice: random.Random, at: int) -> Slot:
    """Return a slot that writes shared memory of the own block or of the next one."""
    words = "{%r20, %r21, %r22, %r23}"
    stores = [
        f"st.shared.v4.b32 [%r71+{at}], {words};", f"st.shared::cluster.v4.b32 [%r74+{at}], {words};",
        f"st.shared::cluster.v4.b32 [%r75+{at}], {words};", f"st.shared.v4.b32 [%r71+{at}], {{%r21, %r20, %r23, %r22}};",
        f"st.shared::cluster.v4.b32 [%r74+{at}], {{%r21, %r20, %r23, %r22}};",
        f"st.shared.v2.b32 [%r71+{at}], {{%r20, %r21}}; st.shared.v2.b32 [%r71+{at + 8}], {{%r22, %r23}};",
        f"@%p8 st.shared.v4.b32 [%r71+{at}], {words}; @!%p8 st.shared.v4.b32 [%r71+{at}], {{%r20, %r20, %r22, %r22}};",
        f"@%p8 st.shared::cluster.v4.b32 [%r74+{at}], {words}; @%p8 st.shared.v4.b32 [%r71+{at}], {words};",
        f"xor.b32 %r76, %r0, 33; mad.lo.u32 %r76, %r76, 16, %r70; mapa.shared::cluster.u32 %r76, %r76, %r73; st.shared::cluster.v4.b32 [%r76+{at}], {words};",
    ]  # fmt: skip
    return tuple(dice.sample(stores, 5))


def _read(dice: random.Random, at: int, blocks: int) -> Slot:
    """Return a slot that reads shared memory of a block of the cluster."""
    lane = dice.choice((0, 1, 32, 40))
    place = f"xor.b32 %r76, %r0, {lane}; mad.lo.u32 %r77, %r76, 16, %r70;"
    uses = (
        "add.rn.f32 %r20, %r20, %r24; add.rn.f32 %r21, %r21, %r25;",
        "max.f32 %r22, %r22, %r24; max.f32 %r23, %r23, %r27;",
        "add.rn.f32 %r20, %r24, %r20; add.rn.f32 %r21, %r25, %r21;",
    )
    loads = []
    for rank in ("%r72", "%r73", "0", str(dice.randrange(1, blocks))):
        address = f"{place} mapa.shared::cluster.u32 %r78, %r77, {rank};"
        loads += [
            f"{address} ld.shared::cluster.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r78+{at}];",
            f"{address} ld.shared::cluster.v2.b32 {{%r24, %r25}}, [%r78+{at}]; ld.shared::cluster.v2.b32 {{%r26, %r27}}, [%r78+{at + 8}];",
        ]
    loads += [f"{place} ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r77+{at}];"]
    return tuple(f"{load} {dice.choice(uses)}" for load in dice.sample(loads, 5))


def _exchanged(dice: random.Random, blocks: int = 2) -> Shape:
    """Rounds of writes and reads of the memories of a cluster, in order of its barriers."""
    slots: list[Slot] = [("mov.b32 %r81, 0;",), _ORDERED]
    for number in range(dice.randint(1, 3)):
        at = dice.choice((0, 2048, 4096)) if number else 0
        slots += [_written(dice, at), (*_ORDERED, "bar.sync 0;") if dice.random() < 0.2 else _ORDERED]
        slots += [
            _read(dice, at, blocks),
            dice.choice((mixing(dice, _NAMES), exchange(dice, "%r20", "%r22"), _read(dice, at, blocks))),
        ]
        slots += [_ORDERED]
    return Shape(slots, 64, fixed=(2, 1))


_MBARRIER = "add.u32 %r79, %r70, 8128;"
_INITIALISED = f"{_MBARRIER} setp.eq.u32 %p9, %r0, 0; @%p9 mbarrier.init.shared::cta.b64 [%r79], 64; fence.mbarrier_init.release.cluster; {_BOTH}"


def _handed_over(dice: random.Random) -> Shape:
    """Values that a block hands to the next one at an mbarrier in its memory."""
    arrive = "mapa.shared::cluster.u32 %r80, %r79, {}; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r80];"
    wait = "W{}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p10, [%r79], {}; @!%p10 bra W{};"
    slots: list[Slot] = [(_INITIALISED,)]
    for turn in range(dice.randint(1, 2)):
        at = 2048 * turn
        slots += [
            pick(
                dice,
                f"st.shared::cluster.v4.b32 [%r74+{at}], {{%r20, %r21, %r22, %r23}};",
                f"st.shared::cluster.v4.b32 [%r74+{at}], {{%r21, %r20, %r23, %r22}};",
                f"st.shared::cluster.v2.b32 [%r74+{at}], {{%r20, %r21}}; st.shared::cluster.v2.b32 [%r74+{at + 8}], {{%r22, %r23}};",
                f"xor.b32 %r76, %r0, 33; mad.lo.u32 %r76, %r76, 16, %r70; mapa.shared::cluster.u32 %r76, %r76, %r73; st.shared::cluster.v4.b32 [%r76+{at}], {{%r20, %r21, %r22, %r23}};",
            ),
            (arrive.format("%r73"), f"fence.acq_rel.cluster; {arrive.format('%r73')}"),
            (wait.format(turn, turn, turn) + " bar.sync 0;",),  # a warp that arrives again knows that the other one has
            pick(
                dice,
                f"ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r71+{at}];",
                f"ld.shared::cluster.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r75+{at}];",
                f"ld.shared.v4.b32 {{%r25, %r24, %r27, %r26}}, [%r71+{at}];",
                f"xor.b32 %r76, %r71, 16; ld.shared.v4.b32 {{%r24, %r25, %r26, %r27}}, [%r76+{at}];",
            ),
            pick(
                dice,
                "add.rn.f32 %r20, %r20, %r24; add.rn.f32 %r21, %r21, %r25;",
                "add.rn.f32 %r20, %r24, %r20; add.rn.f32 %r21, %r25, %r21;",
                "max.f32 %r22, %r22, %r24; max.f32 %r23, %r23, %r27;",
            ),
            mixing(dice, _NAMES),
        ]
    return Shape([*slots, _ORDERED], 64, fixed=(1, 1))


def _by_rank(dice: random.Random, blocks: int = 2) -> Shape:
    """Blocks of a cluster that take different sides of a branch on their rank."""
    sides = [_read(dice, 0, blocks), _read(dice, 0, blocks), mixing(dice, _NAMES), exchange(dice, "%r21", "%r23")]
    slots: list[Slot] = [
        ("st.shared.v4.b32 [%r71], {%r20, %r21, %r22, %r23};",), _ORDERED, _written(dice, 0), _ORDERED, ("@%p8 bra OTHER;", "@!%p8 bra OTHER;"),
        dice.choice(sides), dice.choice(sides), ("bra DONE; OTHER:",), dice.choice(sides), dice.choice(sides), ("DONE:",),
        _ORDERED, _written(dice, 0), _ORDERED, _read(dice, 0, blocks), _ORDERED,
    ]  # fmt: skip
    return Shape(slots, 64, fixed=(2, 1))


_TWO, _FOUR = (Frame(LANGUAGES["ptx"], cluster_head(blocks), END) for blocks in (2, 4))
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "memories of a cluster": Family(_TWO, _exchanged), "mbarriers of a cluster": Family(_TWO, _handed_over),
        "branches on a rank": Family(_TWO, _by_rank),
        "memories of four blocks": Family(_FOUR, partial(_exchanged, blocks=4)),
        "mbarriers of four blocks": Family(_FOUR, _handed_over),
        "branches on four ranks": Family(_FOUR, partial(_by_rank, blocks=4)),
    }
)  # fmt: skip
"""The families by name."""
