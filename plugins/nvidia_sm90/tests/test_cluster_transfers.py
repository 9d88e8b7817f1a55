# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Words that blocks of a cluster pass on by asynchronous stores and bulk copies, which memory barriers count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_nvidia_sm90.architecture import SM90
from cluster_kernels import launch, text, verdict, words

SIZE = 4
CLUSTERS = f".reqnctapercluster {SIZE}"
ARRIVE, WAIT = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
BOTH = ARRIVE + WAIT
RELAXED = "barrier.cluster.arrive.relaxed.aligned;" + WAIT
START = """
mov.u32 %r10, room; mad.lo.u32 %r11, %r0, 4, %r10; mov.u32 %r12, %cluster_ctarank; ld.global.b32 %r20, [%d8];
add.u32 %r15, %r10, 2048; setp.eq.u32 %p1, %r0, 0; mov.u32 %r16, 0;
@%p1 mbarrier.init.shared::cta.b64 [%r15], 1;
@%p1 fence.mbarrier_init.release.cluster;
"""
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r15], 256;"
NEXT = f"add.u32 %r13, %r12, 1; and.b32 %r13, %r13, {SIZE - 1}; mapa.shared::cluster.u32 %r14, %r11, %r13; mapa.shared::cluster.u32 %r17, %r15, %r13; mapa.shared::cluster.u32 %r18, %r10, %r13; add.u32 %r18, %r18, 1024;"
"""Of the next block: %r14 is this thread's word, %r17 the memory barrier, %r18 a room of 256 bytes."""
STORE = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r14], %r20, [%r17];"
LOOP = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r15], %r16; @!%p2 bra W;"
END = f"st.global.b32 [%d9], %r21; {BOTH}"
STORED = f"{START} {RELAXED} {EXPECT} {NEXT} {STORE} {LOOP} ld.shared.b32 %r21, [%r11]; {END}"
COPY = "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r18], [%r10], 256, [%r17];"
FILL = "st.shared.b32 [%r11], %r20; fence.proxy.async.shared::cta; bar.sync 0;"
COPIED = f"{START} {RELAXED} {EXPECT} {NEXT} {FILL} {COPY} {LOOP} ld.shared.b32 %r21, [%r11+1024]; {END}"
GRIDS = [(4,), (96,)]


def run(body: str, grid: tuple[int, ...] = (8,), threads: int = 64) -> Any:
    return words(body, grid, directives=CLUSTERS, threads=threads)


def moved(grid: tuple[int, ...], by: int, threads: int = 64) -> Any:
    """Return the input of the blocks `by` ranks on in each cluster."""
    blocks = np.arange(grid[0])
    source = blocks // SIZE * SIZE + (blocks + by) % SIZE
    return np.arange(grid[0] * threads).reshape(grid[0], threads)[source]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("body", [STORED, COPIED], ids=["store", "copy"])
def test_words_go_to_the_next_block(body: str, grid: tuple[int, ...]) -> None:
    assert np.array_equal(run(body, grid), moved(grid, -1))


def test_vectors_of_stores_and_words_of_64_bits() -> None:
    begin = "mad.lo.u32 %r11, %r0, 16, %r10;"
    four = STORED.replace("mov.u32 %r12", f"{begin} mov.u32 %r12").replace("256", "1024")
    four = four.replace("bytes.b32 [%r14], %r20", "bytes.v4.b32 [%r14], {%r20, %r20, %r20, %r12}")
    four = four.replace("ld.shared.b32 %r21, [%r11]", "ld.shared.b32 %r21, [%r11+8]")
    assert np.array_equal(run(four), moved((8,), -1))
    eight = "add.u32 %r11, %r11, %r0; add.u32 %r11, %r11, %r0; add.u32 %r11, %r11, %r0; add.u32 %r11, %r11, %r0;"
    wide = STORED.replace("mov.u32 %r12", f"{eight} mov.u32 %r12").replace("256", "512")
    wide = wide.replace("bytes.b32 [%r14], %r20", "bytes.b64 [%r14], %d15").replace(
        STORE[:9], "mov.b64 %d15, {%r12, %r20}; " + STORE[:9]
    )
    wide = wide.replace("ld.shared.b32 %r21, [%r11]", "ld.shared.b32 %r21, [%r11+4]")
    assert np.array_equal(run(wide), moved((8,), -1))


def test_each_block_gathers_the_words_of_all() -> None:
    """Each thread of each block stores to all blocks, in a row of its own; each block adds four rows."""
    stores = "".join(
        f"mapa.shared::cluster.u32 %r14, %r22, {rank}; mapa.shared::cluster.u32 %r17, %r15, {rank}; {STORE}"
        for rank in range(SIZE)
    )
    adds = "".join(f"ld.shared.b32 %r23, [%r11+{256 * rank}]; add.u32 %r21, %r21, %r23;" for rank in range(SIZE))
    body = f"{START} {RELAXED} {EXPECT.replace('256', '1024')} mad.lo.u32 %r22, %r12, 256, %r11; {stores} {LOOP} mov.u32 %r21, 0; {adds} {END}"
    expected = np.arange(8 * 64).reshape(2, SIZE, 64).sum(axis=1, keepdims=True)
    assert np.array_equal(run(body).reshape(2, SIZE, 64), np.broadcast_to(expected, (2, SIZE, 64)))


AGAIN = f"""
{START} {RELAXED} {NEXT} mov.u32 %r30, 0;
LOOP: {EXPECT} {BOTH} {STORE} {LOOP} ld.shared.b32 %r20, [%r11]; fence.proxy.async.shared::cta; xor.b32 %r16, %r16, 1; add.u32 %r30, %r30, 1;
setp.lt.u32 %p3, %r30, 3; {BOTH} @%p3 bra LOOP;
mov.b32 %r21, %r20; {END}
"""


def test_words_go_on_in_a_loop() -> None:
    assert np.array_equal(run(AGAIN), moved((8,), -3))


def without(body: str, part: str) -> str:
    assert part in body
    return body.replace(part, "", 1)


SECOND = "mapa.shared::cluster.u32 %r17, %r24, %r13;" + COPY + LOOP.replace("W", "V").replace("%r15", "%r24")
TWICE = f"""
{START} add.u32 %r24, %r15, 8; @%p1 mbarrier.init.shared::cta.b64 [%r24], 1;
@%p1 fence.mbarrier_init.release.cluster; {RELAXED} {EXPECT} {EXPECT.replace("%r15", "%r24")}
{NEXT} {STORE} {LOOP} bar.sync 0; {SECOND} ld.shared.b32 %r21, [%r11+1024]; {END}
"""


def test_words_go_on_by_a_copy_behind_a_fence() -> None:
    body = TWICE.replace(LOOP + " bar", LOOP + " fence.proxy.async.shared::cta; bar")
    assert np.array_equal(run(body), moved((8,), -2))


REFUSED: dict[str, tuple[str, str]] = {
    "no wait before a load": (without(STORED, LOOP), "no barrier between|a block may end before"),
    "a load before the wait": (
        without(STORED, "ld.shared.b32 %r21, [%r11];").replace(LOOP, "ld.shared.b32 %r21, [%r11];" + LOOP),
        "no barrier between|another thread writes",
    ),
    "no barrier of the cluster before": (without(STORED, RELAXED), "may not have started"),
    "memory barriers that no fence publishes": (without(STORED, "@%p1 fence.mbarrier_init.release.cluster;"), "no barrier between"),
    "a barrier of another block": (STORED.replace(", [%r17];", ", [%r15];"), "in different blocks"),
    "fewer bytes than are expected": (STORED.replace("256", "260"), "hangs|never|waits"),
    "more bytes than are expected": (STORED.replace("256", "252"), "hangs|never|waits"),
    "two words at one place": (STORED.replace("%r14, %r11, %r13", "%r14, %r10, %r13"), "two threads|write different values"),
    "a store over a word that may still be stored": (STORED.replace(STORE, STORE + STORE).replace("256", "512"), "another thread writes|no barrier between"),
    "a load that the next store may overtake": (without(AGAIN, "fence.proxy.async.shared::cta;"), "fence"),
    "no barrier before the next store": (AGAIN.replace(BOTH, ""), "no barrier between|at which phase"),
    "a copy reads what was stored without a fence": (TWICE, "no proxy fence"),
    "a source without a fence": (without(COPIED, "fence.proxy.async.shared::cta;"), "no proxy fence"),
    "a source without a barrier": (without(COPIED, "bar.sync 0;"), "no barrier between"),
    "a source that is overwritten": (COPIED.replace(COPY, COPY + "bar.sync 0; st.shared.b32 [%r11], %r12;"), "overwrites shared memory"),
    "a source that is overwritten after the wait for another copy": (
        COPIED.replace(LOOP, LOOP + "st.shared.b32 [%r11], %r12;"), "overwrites shared memory"
    ),
    "a block that ends before its words are read": (COPIED.replace(BOTH, ""), "may end before"),
    "a copy of 8 bytes": (COPIED.replace(" 256, [%r17]", " 8, [%r17]"), "no multiple of 16"),
    "a copy to a barrier of another block": (COPIED.replace("256, [%r17]", "256, [%r15]"), "in different blocks"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_ordered_has_no_result(name: str) -> None:
    body, reason = REFUSED[name]
    with pytest.raises(Unsupported, match=reason):
        run(body)


def test_a_source_is_overwritten_behind_a_barrier_after_the_waits() -> None:
    body = COPIED.replace(LOOP, LOOP + BOTH + "st.shared.b32 [%r11], %r12;")
    assert np.array_equal(run(body), moved((8,), -1))


MUTANTS: dict[str, Callable[[str], str]] = {
    "another rank": lambda body: body.replace("add.u32 %r13, %r12, 1", "add.u32 %r13, %r12, 2"),
    "another word": lambda body: body.replace("mapa.shared::cluster.u32 %r14, %r11", "xor.b32 %r19, %r11, 4; mapa.shared::cluster.u32 %r14, %r19").replace("[%r10], 256", "[%r10+16], 256"),
    "the rank": lambda body: body.replace(" %r20, [%r17]", " %r12, [%r17]").replace("[%r11], %r20", "[%r11], %r12"),
    "no barrier of the cluster": lambda body: body.replace(RELAXED, ""),
    "no wait": lambda body: body.replace(LOOP, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("body", [STORED, COPIED], ids=["store", "copy"])
def test_a_mutant_is_never_equal(name: str, body: str) -> None:
    original, mutant = text(body, CLUSTERS, 64), text(MUTANTS[name](body), CLUSTERS, 64)
    assert mutant != original
    assert verdict(original, original, every_launch=False, threads=64) == "equal"
    assert verdict(original, mutant, every_launch=False, threads=64) != "equal"


def test_a_store_and_a_copy_move_the_same_words() -> None:
    assert verdict(text(STORED, CLUSTERS, 64), text(COPIED, CLUSTERS, 64), every_launch=False, threads=64) == "equal"
    assert verdict(text(STORED, CLUSTERS, 64), text(STORED, CLUSTERS, 64), every_launch=True, threads=64) == "unknown"


ENDED = f"{LOOP} {{}} @%p1 mbarrier.inval.shared::cta.b64 [%r15];"


@pytest.mark.parametrize(
    ("between", "outcome"), [("bar.sync 0;", "equal"), (RELAXED, "equal"), (BOTH, "equal"), ("", "unknown")]
)
def test_a_memory_barrier_is_invalidated_after_all_have_waited(between: str, outcome: str) -> None:
    body = text(STORED.replace(LOOP, ENDED.format(between)), CLUSTERS, 64)
    assert verdict(body, text(STORED, CLUSTERS, 64), every_launch=False, threads=64) == outcome


def test_an_arrival_after_a_wait_may_not_have_ended_at_a_relaxed_barrier() -> None:
    """Warp 1 arrives for a phase that nobody waits for; warp 0 invalidates the memory barrier."""
    arrives = "setp.eq.u32 %p4, %r0, 32; @%p4 mbarrier.arrive.shared::cta.b64 _, [%r15];"
    body = STORED.replace(LOOP, ENDED.format(f"{arrives} {RELAXED}"))
    with pytest.raises(Unsupported, match="overwrites shared memory that another"):
        run(body)
    assert np.array_equal(run(body.replace(f"{arrives} {RELAXED}", f"{arrives} {BOTH}")), moved((8,), -1))


REMOTE = "@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r17];"
"""An arrival at the memory barrier of the next block, which publishes nothing without the scope of the cluster."""


@pytest.mark.parametrize(
    ("waits", "outcome"), [(LOOP + "bar.sync 0;", "equal"), ("", "unknown"), ("bar.sync 0;", "unknown")]
)
def test_an_arrival_of_another_block_has_ended_for_those_that_have_waited(waits: str, outcome: str) -> None:
    body = f"{START} {RELAXED} {NEXT} {REMOTE} {waits} @%p1 mbarrier.inval.shared::cta.b64 [%r15]; st.global.b32 [%d9], %r20; {BOTH}"
    plain = text("ld.global.b32 %r20, [%d8]; st.global.b32 [%d9], %r20;", CLUSTERS, 64)
    assert verdict(text(body, CLUSTERS, 64), plain, every_launch=False, threads=64) == outcome


def test_an_arrival_without_the_scope_of_the_cluster_publishes_no_data() -> None:
    body = f"{START} {RELAXED} {NEXT} st.shared::cluster.b32 [%r14], %r20; bar.sync 0; {REMOTE} {LOOP} ld.shared.b32 %r21, [%r11]; {END}"
    with pytest.raises(Unsupported, match="no barrier between"):
        run(body)


@pytest.mark.parametrize(
    ("body", "said"), [(STORED, True), (COPIED, True), (f"{START} {BOTH} st.global.b32 [%d9], %r20;", False)]
)
def test_a_verdict_says_what_was_not_measured(body: str, said: bool) -> None:
    source = Source("k.ptx", text(body, CLUSTERS, 64), launch((8,), threads=64))
    notes = analyse(source, SM90, {"out": 1, "in": 2}, Options()).notes
    assert any("were not measured here" in each for each in notes) == said
