# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Memory barriers of other blocks of a cluster, and tensor copies to several of its blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitwise_core.execution.domains.domain import Unsupported
from cluster_kernels import text, verdict, words

SIZE = 2
CLUSTERS = f".reqnctapercluster {SIZE}"
BOTH = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
START = """
mov.u32 %r10, room; mad.lo.u32 %r11, %r0, 4, %r10; add.u32 %r15, %r10, 2048; mov.u32 %r12, %cluster_ctarank;
xor.b32 %r13, %r12, 1; setp.eq.u32 %p1, %r0, 0; ld.global.b32 %r20, [%d8]; mov.b64 %d12, map;
"""
"""%r11: this thread's word in shared memory; %r12 and %r13: the own and the other rank; %r15: the mbarrier."""
WAIT = "W{0}: mbarrier.try_wait.parity{1}.shared::cta.b64 %p2, [%r15], {0}; @!%p2 bra W{0};"
ACQUIRE = ".acquire.cluster"

HANDED = f"""
{START} @%p1 mbarrier.init.shared::cta.b64 [%r15], 32; {BOTH}
mapa.shared::cluster.u32 %r14, %r11, %r13; mapa.shared::cluster.u32 %r16, %r15, %r13;
st.shared::cluster.b32 [%r14], %r20; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r16];
{WAIT.format(0, ACQUIRE)}
ld.shared.b32 %r21, [%r11]; st.global.b32 [%d9], %r21;
"""
"""Every thread writes a word of the other block and arrives at its mbarrier, at which that block waits."""

MULTICAST = f"""
{START} @%p1 mbarrier.init.shared::cta.b64 [%r15], 1; {BOTH}
mad.lo.u32 %r17, %r12, 128, %r10; mul.lo.u32 %r18, %r2, 32; mov.b16 %h1, 3;
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r15], 256;
@%p1 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r17], [%d12, {{%r18}}], [%r15], %h1;
{WAIT.format(0, "")}
ld.shared.b32 %r21, [%r11]; ld.shared.b32 %r22, [%r11+128]; mad.lo.u32 %r21, %r22, 3, %r21; st.global.b32 [%d9], %r21;
"""
"""Every block copies its 32 words to both blocks of its cluster; each thread adds its word of rank 0 and thrice that of 1."""


def run(body: str, blocks: int = 8) -> Any:
    return words(body, (blocks,), directives=CLUSTERS)


def given(blocks: int) -> Any:
    return np.arange(blocks * 32).reshape(blocks // 2, 2, 32)


@pytest.mark.parametrize("blocks", [2, 8, 300])
def test_words_are_handed_over_through_the_mbarrier_of_the_other_block(blocks: int) -> None:
    assert np.array_equal(run(HANDED, blocks).reshape(-1, 2, 32), given(blocks)[:, ::-1])


@pytest.mark.parametrize("blocks", [2, 8, 300])
def test_a_copy_to_both_blocks(blocks: int) -> None:
    expected = given(blocks)[:, :1] + 3 * given(blocks)[:, 1:]
    assert np.array_equal(run(MULTICAST, blocks).reshape(-1, 2, 32), np.broadcast_to(expected, (blocks // 2, 2, 32)))


def test_a_leader_copies_for_its_cluster() -> None:
    """Rank 0 issues both copies, each of which goes to one block: the masks 1 and 2."""
    body = MULTICAST.replace(
        "mov.b16 %h1, 3;", "mov.b16 %h1, 1; mov.b16 %h2, 2; setp.eq.and.u32 %p3, %r12, 0, %p1; add.u32 %r19, %r18, 32;"
    )
    copy = body[body.index("@%p1 cp.async") : body.index("%h1;", body.index("@%p1 cp.async")) + 4]
    second = copy.replace("%h1", "%h2").replace("{%r18}", "{%r19}")
    body = body.replace(copy, copy.replace("@%p1", "@%p3") + second.replace("@%p1", "@%p3")).replace(", 256;", ", 128;")
    body = body.replace("ld.shared.b32 %r22, [%r11+128];", "mov.b32 %r22, 0;")
    assert np.array_equal(run(body).reshape(-1, 2, 32), given(8))


def test_two_phases_with_a_release_of_the_buffer() -> None:
    """The second copy overwrites the first after all threads of both blocks have released it at both mbarriers."""
    empty = "add.u32 %r23, %r10, 2056; mapa.shared::cluster.u32 %r24, %r23, 0; mapa.shared::cluster.u32 %r25, %r23, 1;"
    release = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{}];"
    wait = "E0: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r23], 0; @!%p2 bra E0;"
    again = MULTICAST[MULTICAST.index("@%p1 mbarrier.arrive") : MULTICAST.index("ld.shared.b32 %r21")]
    again = again.replace("%r18", "%r26").replace("W0", "W1").replace("], 0; @!", "], 1; @!")
    reads, fence = "ld.shared.b32 %r21, [%r11]; ld.shared.b32 %r22, [%r11+128];", "fence.proxy.async.shared::cta;"
    body = MULTICAST.replace(BOTH, f"{empty} @%p1 mbarrier.init.shared::cta.b64 [%r23], 64; {BOTH}").replace(
        reads,
        f"{reads} {fence} mad.lo.u32 %r27, %r22, 3, %r21; {release.format('%r24')} {release.format('%r25')} {wait} xor.b32 %r26, %r18, 64; {again} {reads} mad.lo.u32 %r21, %r27, 7, %r21;",
    )
    words_of = given(8)
    swapped = words_of.reshape(2, 2, 2, 32)[:, ::-1].reshape(4, 2, 32)
    expected = 7 * (words_of[:, :1] + 3 * words_of[:, 1:]) + swapped[:, :1] + 3 * swapped[:, 1:]
    assert np.array_equal(run(body).reshape(-1, 2, 32), np.broadcast_to(expected, (4, 2, 32)))
    for broken, reason in (
        (body.replace("release.cluster", "release"), "overwrites shared memory that another reads|at which phase"),
        (
            body.replace("release.cluster", "relaxed.cluster"),
            "overwrites shared memory that another reads|at which phase",
        ),
        (
            body.replace("parity.acquire.cluster", "parity"),
            "overwrites shared memory that another reads|at which phase",
        ),
        (body.replace(fence, ""), "may overtake a load"),
        (body.replace(fence, fence.replace("shared::cta", "global")), "may overtake a load"),
        (body.replace(fence, f"@%p1 {fence}"), "may overtake a load"),
        (body.replace(wait, ""), "overwrites shared memory that another reads|at which phase"),
        (
            body.replace("[%r23], 64", "[%r23], 32"),
            "overwrites shared memory|more often than its phase waits for|at which phase",
        ),
        (body.replace("[%r23], 64", "[%r23], 96"), "hangs"),
        (body.replace("[%r25]", "[%r24]"), "hangs|at which phase"),
    ):
        assert broken != body
        with pytest.raises(Unsupported, match=reason):
            run(broken)


RACES = {
    "without a barrier after the initialisation": (HANDED.replace(BOTH, "bar.sync 0;"), "may not have started"),
    "with a relaxed barrier after the initialisation": (
        HANDED.replace("barrier.cluster.arrive", "barrier.cluster.arrive.relaxed"),
        "uses a memory barrier",
    ),
    "arrival without release": (HANDED.replace("arrive.release", "arrive.relaxed"), "no barrier between"),
    "arrival released to its own block": (HANDED.replace("arrive.release.cluster", "arrive"), "no barrier between"),
    "wait without the scope of the cluster": (HANDED.replace(ACQUIRE, ""), "no barrier between"),
    "a write after the arrival": (
        HANDED.replace("st.shared::cluster.b32 [%r14], %r20;", "").replace(
            "_, [%r16];", "_, [%r16]; st.shared::cluster.b32 [%r14], %r20;"
        ),
        "no barrier between",
    ),
    "too few arrivals": (HANDED.replace("b64 [%r15], 32", "b64 [%r15], 33"), "hangs"),
    "too many arrivals": (
        HANDED.replace("b64 [%r15], 32", "b64 [%r15], 31"),
        "no barrier between|more often|a block may end",
    ),
    "one block does not initialise": (
        HANDED.replace("@%p1 mbarrier.init", "setp.eq.and.u32 %p3, %r12, 0, %p1; @%p3 mbarrier.init"),
        "before it is initialised",
    ),
    "no wait": (HANDED.replace(WAIT.format(0, ACQUIRE), ""), "no barrier between|may end before"),
    "copy without a wait": (MULTICAST.replace(WAIT.format(0, ""), ""), "no barrier between"),
    "copy to a block that has not started": (MULTICAST.replace(BOTH, "bar.sync 0;"), "may not have started"),
    "copies to one place": (MULTICAST.replace("%r17, %r12, 128", "%r17, %r12, 0"), "two threads write"),
    "a copy that no one waits for": (
        MULTICAST.replace(
            WAIT.format(0, ""),
            f"{WAIT.format(0, '')} @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r17+1024], [%d12, {{%r18}}], [%r15], %h1;",
        ),
        "at which phase",
    ),
    "a mask outside the cluster": (MULTICAST.replace("%h1, 3", "%h1, 7"), "outside the cluster"),
    "fewer bytes": (
        MULTICAST.replace("], 256", "], 128"),
        "hangs|no barrier between|may end before|before a copy|at which phase",
    ),
    "more bytes": (MULTICAST.replace("], 256", "], 260"), "hangs"),
    "a mask without the other block": (MULTICAST.replace("%h1, 3", "%h1, 1"), "hangs"),
    "a mask of no block": (MULTICAST.replace("%h1, 3", "%h1, 0"), "hangs"),
}


@pytest.mark.parametrize("name", RACES)
def test_what_no_barrier_orders_has_no_result(name: str) -> None:
    body, reason = RACES[name]
    assert body not in (HANDED, MULTICAST)
    with pytest.raises(Unsupported, match=reason):
        run(body)


OWN = (
    MULTICAST.replace("mov.b16 %h1, 3;", "mov.b16 %h1, 1; shl.b16 %h1, %h1, %r12;")
    .replace("], 256", "], 128")
    .replace("[%r11+128]", "[%r11]")
    .replace("%r17, %r12, 128", "%r17, %r12, 0")
)
"""Every block copies to itself alone."""
MUTANTS = [
    OWN.replace("shl.b16 %h1, %h1, %r12", "shl.b16 %h1, %h1, %r13"),
    OWN.replace("mov.b16 %h1, 1", "mov.b16 %h1, 2"),
    OWN.replace("mul.lo.u32 %r18, %r2, 32", "mul.lo.u32 %r18, %r2, 31"),
    OWN.replace("shl.b16 %h1, %h1, %r12", "shl.b16 %h1, %h1, 0"),
]


@pytest.mark.parametrize("mutant", range(len(MUTANTS)))
@pytest.mark.parametrize("every_launch", [False, True])
def test_another_mask_is_never_equal(mutant: int, every_launch: bool) -> None:
    assert verdict(text(OWN, CLUSTERS), text(MUTANTS[mutant], CLUSTERS), every_launch=every_launch) != "equal"


def test_a_copy_to_the_own_block_is_a_copy_without_a_mask() -> None:
    plain = OWN.replace(".multicast::cluster", "").replace(", %h1;", ";")
    assert verdict(text(OWN, CLUSTERS), text(plain, CLUSTERS), every_launch=False) == "equal"


def test_a_copy_to_the_other_block_swaps_the_words() -> None:
    assert np.array_equal(run(OWN).reshape(-1, 2, 32), 4 * given(8))
    assert np.array_equal(run(MUTANTS[0]).reshape(-1, 2, 32), 4 * given(8)[:, ::-1])


def test_an_mbarrier_of_the_own_block_orders_its_warps() -> None:
    """Two warps exchange words through an mbarrier of their block, without the scope of the cluster."""
    body = f"""
    {START} @%p1 mbarrier.init.shared::cta.b64 [%r15], 64; {BOTH} st.shared.b32 [%r11], %r20;
    mbarrier.arrive.shared::cta.b64 _, [%r15]; {WAIT.format(0, "")}
    xor.b32 %r24, %r11, 128; ld.shared.b32 %r21, [%r24]; {BOTH} st.global.b32 [%d9], %r21;
    """
    found = words(body, (4,), directives=CLUSTERS, threads=64)
    assert np.array_equal(found, np.roll(np.arange(256).reshape(4, 64), 32, axis=1))


@pytest.mark.parametrize("reader", [0, 1])
def test_a_copy_to_one_block_is_not_ordered_by_a_copy_to_another(reader: int) -> None:
    """A block that has waited for its own copy reads that of the other block."""
    body = OWN.replace(
        "ld.shared.b32 %r21, [%r11];",
        f"mov.b32 %r21, %r12; mapa.shared::cluster.u32 %r14, %r11, %r13; setp.eq.u32 %p3, %r12, {reader}; @%p3 ld.shared::cluster.b32 %r21, [%r14];",
    )
    assert body != OWN
    with pytest.raises(Unsupported, match="no barrier between"):
        run(body)


def test_a_proxy_fence_of_the_own_block_does_not_cover_writes_to_another() -> None:
    """A bulk store reads what the other block wrote."""
    body = f"""
    {START} {BOTH} mapa.shared::cluster.u32 %r14, %r11, %r13; st.shared::cluster.b32 [%r14], %r20; fence.proxy.async; {BOTH}
    mul.lo.u32 %r18, %r2, 32; @%p1 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%d12, {{%r18}}], [%r10];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; st.global.b32 [%d9], %r20;
    """
    with pytest.raises(Unsupported, match="no proxy fence"):
        run(body.replace("fence.proxy.async;", "fence.proxy.async.shared::cta;"))
    with pytest.raises(Unsupported, match="no proxy fence"):
        run(body.replace("fence.proxy.async;", "fence.proxy.async.global;"))
    without_load = body.replace("ld.global.b32 %r20, [%d8];", "mov.b32 %r20, %r1;")
    assert np.array_equal(run(without_load).reshape(-1, 32), given(8).reshape(-1, 32))


INITIALISED = f"fence.mbarrier_init.release.cluster; {BOTH.replace('arrive.', 'arrive.relaxed.')}"
"""A fence and a relaxed barrier of the cluster, which publish the mbarriers that their threads have initialised."""


def test_a_fence_publishes_initialised_mbarriers_at_a_relaxed_barrier() -> None:
    body = HANDED.replace(BOTH, INITIALISED, 1)
    assert np.array_equal(run(body).reshape(-1, 2, 32), given(8)[:, ::-1])


def test_a_fence_of_initialisations_publishes_nothing_else() -> None:
    """A word that a thread has written before the fence is read by the other block after the relaxed barrier."""
    read = "mapa.shared::cluster.u32 %r14, %r11, %r13; ld.shared::cluster.b32 %r21, [%r14]; st.global.b32 [%d9], %r21;"
    start = f"{START} @%p1 mbarrier.init.shared::cta.b64 [%r15], 32; st.shared.b32 [%r11], %r20;"
    assert np.array_equal(run(f"{start} {BOTH} {read} {BOTH}").reshape(-1, 2, 32), given(8)[:, ::-1])
    with pytest.raises(Unsupported, match="race"):
        run(f"{start} {INITIALISED} {read} {BOTH}")


@pytest.mark.parametrize(
    "fence",
    [
        f"{BOTH.replace('arrive.', 'arrive.relaxed.')} fence.mbarrier_init.release.cluster;",
        f"@!%p1 {INITIALISED}",
    ],
)
def test_a_fence_of_other_threads_or_at_another_time_publishes_nothing(fence: str) -> None:
    with pytest.raises(Unsupported):
        run(HANDED.replace(BOTH, fence, 1))


def test_the_address_of_a_tensor_map_is_computed_in_32_bits() -> None:
    short = "mov.b32 %r30, map; cvt.u64.u32 %d12, %r30; cvta.param.u64 %d12, %d12;"
    assert "mov.b64 %d12, map;" in MULTICAST
    assert np.array_equal(run(MULTICAST.replace("mov.b64 %d12, map;", short)), run(MULTICAST))
    with pytest.raises(Unsupported, match="tensor map"):
        run(MULTICAST.replace("mov.b64 %d12, map;", short.replace("cvta.param.u64 %d12, %d12;", "")))
