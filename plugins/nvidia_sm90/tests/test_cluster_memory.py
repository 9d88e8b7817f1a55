# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Shared memory of a cluster: values that blocks exchange, and the races between them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.simulation import simulate, simulate_batch
from bitwise_nvidia_sm90.architecture import SM90
from cluster_kernels import GRID, launch, text, verdict, words

SIZE = 4
CLUSTERS = f".reqnctapercluster {SIZE}"
ARRIVE, WAIT = "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"
BOTH = ARRIVE + WAIT
START = "mov.u32 %r10, room; mad.lo.u32 %r11, %r0, 4, %r10; mov.u32 %r12, %cluster_ctarank; ld.global.b32 %r20, [%d8];"
"""%r11: this thread's word in shared memory; %r12: the rank; %r20: this thread's word of the input."""
NEXT = f"add.u32 %r13, %r12, 1; and.b32 %r13, %r13, {SIZE - 1}; mapa.shared::cluster.u32 %r14, %r11, %r13;"
"""%r14: the word of the next block of the cluster."""
READ = f"""
{START} st.shared.b32 [%r11], %r20; {BOTH}
{NEXT} ld.shared::cluster.b32 %r21, [%r14]; {BOTH}
st.global.b32 [%d9], %r21;
"""
WRITE = f"""
{START} {BOTH} {NEXT} st.shared::cluster.b32 [%r14], %r20; {BOTH}
ld.shared.b32 %r21, [%r11]; st.global.b32 [%d9], %r21;
"""
GRIDS = [(4,), (8,), (96,), (260,)]


def run(body: str, grid: tuple[int, ...] = (8,), threads: int = 64, directives: str = CLUSTERS) -> Any:
    return words(body, grid, directives=directives, threads=threads)


def moved(grid: tuple[int, ...], by: int, threads: int = 64) -> Any:
    """Return the input of the blocks `by` ranks on in each cluster."""
    blocks = np.arange(grid[0])
    source = blocks // SIZE * SIZE + (blocks + by) % SIZE
    return np.arange(grid[0] * threads).reshape(grid[0], threads)[source]


@pytest.mark.parametrize("grid", GRIDS)
def test_a_block_reads_the_memory_of_the_next(grid: tuple[int, ...]) -> None:
    assert np.array_equal(run(READ, grid), moved(grid, 1))


@pytest.mark.parametrize("grid", GRIDS)
def test_a_block_writes_the_memory_of_the_next(grid: tuple[int, ...]) -> None:
    assert np.array_equal(run(WRITE, grid), moved(grid, -1))


STARTED_FOR_ONE_WARP = f"""
{START} setp.lt.u32 %p1, %r0, 32; barrier.cluster.arrive.relaxed.aligned; @%p1 {WAIT} bar.sync 0;
{NEXT} st.shared::cluster.b32 [%r14], %r20; @!%p1 {WAIT} {BOTH}
ld.shared.b32 %r21, [%r11]; st.global.b32 [%d9], %r21;
"""


@pytest.mark.parametrize("grid", GRIDS)
def test_a_warp_that_follows_one_which_has_waited_finds_all_blocks_started(grid: tuple[int, ...]) -> None:
    assert np.array_equal(run(STARTED_FOR_ONE_WARP, grid), moved(grid, -1))


def test_the_unit_of_exchange_is_the_cluster_of_a_grid_of_three_axes() -> None:
    """A cluster of 2 x 3 x 2 blocks: every block reads the word of the block of the rank after its own, modulo 12."""
    body = READ.replace(NEXT, NEXT.replace("and.b32 %r13, %r13, 3", "rem.u32 %r13, %r13, 12"))
    found = run(body, GRID, 32, ".reqnctapercluster 2,3,2")
    for number in range(GRID[0] * GRID[1] * GRID[2]):
        x, y, z = number % 4, number // 4 % 6, number // 24
        rank = (x % 2 + 2 * (y % 3 + 3 * (z % 2)) + 1) % 12
        other = (x // 2 * 2 + rank % 2, y // 3 * 3 + rank // 2 % 3, z // 2 * 2 + rank // 6)
        assert found[number, 5] == ((other[2] * 6 + other[1]) * 4 + other[0]) * 32 + 5


def test_an_address_of_the_own_block_needs_no_barrier() -> None:
    own = f"{START} st.shared::cluster.b32 [%r11], %r20; mapa.shared::cluster.u32 %r14, %r11, %r12; ld.shared::cluster.b32 %r21, [%r14]; ld.shared::cluster.b32 %r22, [%r11]; add.u32 %r21, %r21, %r22; st.global.b32 [%d9], %r21;"
    assert np.array_equal(run(own), 2 * moved((8,), 0))


def test_vectors_and_generic_map_addresses() -> None:
    body = f"""
    {START} mad.lo.u32 %r11, %r0, 16, %r10; add.u32 %r22, %r20, 100; st.shared.v4.b32 [%r11], {{%r20, %r22, %r20, %r22}}; {BOTH}
    cvt.u64.u32 %d10, %r11; xor.b32 %r13, %r12, 2; mapa.u64 %d11, %d10, %r13; ld.shared::cluster.v4.b32 {{%r23, %r24, %r25, %r26}}, [%d11]; {BOTH}
    add.u32 %r21, %r24, %r25; st.global.b32 [%d9], %r21;
    """
    assert np.array_equal(run(body), 2 * moved((8,), 2) + 100)


def test_the_rank_of_an_address() -> None:
    body = f"{START} {NEXT} getctarank.shared::cluster.u32 %r21, %r14; getctarank.shared::cluster.u32 %r22, %r11; mad.lo.u32 %r21, %r22, 10, %r21; st.global.b32 [%d9], %r21;"
    found = run(body)[:, 0].tolist()
    assert found == [10 * rank + (rank + 1) % SIZE for rank in range(SIZE)] * 2


RACES = {
    "no barrier before a read": (READ.replace(BOTH, "", 1), "may not have started"),
    "no barrier of the cluster before a read": (READ.replace(BOTH, "bar.sync 0;", 1), "may not have started"),
    "a read after the barrier, a write after it": (
        READ.replace("st.shared.b32 [%r11], %r20; " + BOTH, BOTH + "st.shared.b32 [%r11], %r20;"),
        "no barrier between",
    ),
    "no barrier after a read": (READ.replace(BOTH + "\nst.global", "st.global"), "a block may end before"),
    "a barrier of the block after a read": (
        READ.replace(BOTH + "\nst.global", "bar.sync 0; st.global"),
        "a block may end before",
    ),
    "overwritten after a read": (
        READ.replace(BOTH + "\nst.global", "st.shared.b32 [%r11], %r12;" + BOTH + "st.global"),
        "overwrites shared memory that another reads",
    ),
    "no barrier before a write": (WRITE.replace(BOTH, "", 1), "may not have started"),
    "no barrier after a write": (WRITE.replace(BOTH + "\nld.shared", "ld.shared"), "no barrier between"),
    "a barrier of the block before one warp has waited": (
        STARTED_FOR_ONE_WARP.replace(f"@%p1 {WAIT} bar.sync 0;", f"bar.sync 0; @%p1 {WAIT}"),
        "may not have started",
    ),
    "no warp has waited": (STARTED_FOR_ONE_WARP.replace(f"@%p1 {WAIT} ", ""), "may not have started"),
    "a relaxed barrier after a write": (
        WRITE.replace(BOTH + "\nld.shared", "barrier.cluster.arrive.relaxed.aligned;" + WAIT + "ld.shared"),
        "no barrier between",
    ),
    "a relaxed barrier before a read": (
        READ.replace(BOTH, "barrier.cluster.arrive.relaxed;" + WAIT, 1),
        "no barrier between",
    ),
    "a write between arrival and wait": (
        READ.replace("st.shared.b32 [%r11], %r20; " + ARRIVE, ARRIVE + "st.shared.b32 [%r11], %r20;"),
        "no barrier between",
    ),
    "two blocks write to one": (
        WRITE.replace(NEXT, "mov.u32 %r13, 0; mapa.shared::cluster.u32 %r14, %r11, %r13;"),
        "write different values|two threads write",
    ),
    "one block does not arrive": (
        READ.replace(BOTH, "setp.eq.u32 %p1, %r12, 3; @%p1 bra SKIP;" + BOTH + "SKIP:", 1),
        "may not have started|hangs|no barrier between|not arrived",
    ),
    "arrival without a wait": (READ.replace(BOTH, ARRIVE + BOTH, 1), "arrives at a barrier of the cluster twice"),
    "wait without an arrival": (READ.replace(BOTH, WAIT, 1), "at which it has not arrived"),
    "part of a warp arrives": (
        READ.replace(
            BOTH,
            "setp.ne.u32 %p1, %r0, 3; @%p1 barrier.cluster.arrive.aligned; @!%p1 barrier.cluster.arrive;" + WAIT,
            1,
        ),
        "part of a warp",
    ),
    "a rank outside the cluster": (READ.replace("and.b32 %r13, %r13, 3;", "add.u32 %r13, %r13, 3;"), "is not below 4"),
    "another window": (
        READ.replace("ld.shared::cluster.b32 %r21, [%r14]", "ld.shared.b32 %r21, [%r14]"),
        "has the address of another block",
    ),
}


@pytest.mark.parametrize("name", RACES)
@pytest.mark.parametrize("grid", [(4,), (96,)])
def test_accesses_that_no_barrier_orders_have_no_result(name: str, grid: tuple[int, ...]) -> None:
    body, reason = RACES[name]
    assert body not in (READ, WRITE)
    with pytest.raises(Unsupported, match=reason):
        run(body, grid)


@pytest.mark.parametrize("cluster", range(6))
def test_a_race_in_one_of_many_clusters(cluster: int) -> None:
    skip = f"mov.u32 %r30, %clusterid.x; setp.eq.u32 %p1, %r30, {cluster}; @%p1 bra SKIP; {BOTH} SKIP:"
    with pytest.raises(Unsupported, match="a block may end before"):
        run(READ.replace(BOTH + "\nst.global", skip + "st.global"), (24,))


def test_warps_that_arrive_one_after_the_other() -> None:
    """Each warp reads the word of the other warp of the next block, and arrives on a path of its own."""
    path = "st.shared.b32 [%r11], %r20; " + BOTH + " ld.shared::cluster.b32 %r21, [%r14]; "
    body = f"""
    {START} xor.b32 %r24, %r11, 128; {NEXT.replace("%r14, %r11", "%r14, %r24")} setp.lt.u32 %p1, %r0, 32;
    @%p1 bra FIRST; {path} bra JOIN; FIRST: {path} JOIN: {BOTH} st.global.b32 [%d9], %r21;
    """
    assert np.array_equal(run(body), np.roll(moved((8,), 1), 32, axis=1))


def test_blocks_of_a_cluster_whose_different_warps_write_one_place() -> None:
    """In blocks of an even rank the first warp writes a word, in the others the second one."""
    body = f"""
    {START} shr.u32 %r24, %r0, 5; and.b32 %r25, %r12, 1; setp.eq.u32 %p1, %r24, %r25; and.b32 %r26, %r0, 31;
    mad.lo.u32 %r11, %r26, 4, %r10; @%p1 st.shared.b32 [%r11], %r20;
    @%p1 ld.shared.b32 %r20, [%r11]; {BOTH} {NEXT} ld.shared::cluster.b32 %r21, [%r14]; {BOTH} st.global.b32 [%d9], %r21;
    """
    given = moved((8,), 1).reshape(8, 2, 32)
    expected = [given[block, (block + 1) % 2] for block in range(8)]
    assert np.array_equal(run(body).reshape(8, 2, 32), np.stack([expected, expected], axis=1))


def test_a_relaxed_barrier_does_not_order_the_lanes_of_a_warp() -> None:
    body = f"""
    {START} st.shared.b32 [%r11], %r20; {BOTH} xor.b32 %r24, %r11, 4; ld.shared.b32 %r21, [%r24];
    st.global.b32 [%d9], %r21;
    """
    assert np.array_equal(run(body), moved((8,), 0) ^ 1)
    with pytest.raises(Unsupported, match="no barrier between"):
        run(body.replace("arrive.aligned", "arrive.relaxed.aligned"))


def test_threads_that_have_ended_are_not_waited_for() -> None:
    body = READ.replace(BOTH + "\nst.global", BOTH + "st.global").replace(
        START, START + "setp.ge.u32 %p1, %r0, 32; @%p1 ret;"
    )
    found = run(body)
    assert np.array_equal(found[:, :32], moved((8,), 1)[:, :32])
    assert not found[:, 32:].any()


def test_blocks_in_loops_with_barriers_of_the_cluster() -> None:
    """Values move by one block in each of seven iterations."""
    body = f"""
    {START} {NEXT} st.shared.b32 [%r11], %r20; mov.u32 %r30, 0; {BOTH}
    LOOP: ld.shared::cluster.b32 %r21, [%r14]; {BOTH} st.shared.b32 [%r11], %r21; {BOTH}
    add.u32 %r30, %r30, 1; setp.lt.u32 %p1, %r30, 7; @%p1 bra LOOP;
    st.global.b32 [%d9], %r21;
    """
    assert np.array_equal(run(body, (12,)), moved((12,), 7))


def test_a_leader_adds_the_words_of_its_cluster() -> None:
    """The block of rank 0 alone reads; the others wait for it."""
    reads = "".join(
        f"mapa.shared::cluster.u32 %r14, %r11, {rank}; ld.shared::cluster.b32 %r22, [%r14]; add.u32 %r21, %r21, %r22;"
        for rank in range(SIZE)
    )
    body = f"""
    {START} st.shared.b32 [%r11], %r20; mov.u32 %r21, 0; setp.ne.u32 %p1, %r12, 0; {BOTH}
    @%p1 bra END; {reads} END: {BOTH} st.global.b32 [%d9], %r21;
    """
    found = run(body)
    given = np.arange(8 * 64).reshape(2, SIZE, 64)
    assert np.array_equal(found[::SIZE], given.sum(axis=1))
    assert not found.reshape(2, SIZE, 64)[:, 1:].any()


MUTANTS = {
    "the rank is 0": lambda body: body.replace("mov.u32 %r12, %cluster_ctarank", "mov.u32 %r12, 0"),
    "another rank": lambda body: body.replace("add.u32 %r13, %r12, 1", "add.u32 %r13, %r12, 2"),
    "the own block": lambda body: re.sub(r"mapa\S+ %r14, %r11, %r13", "mov.b32 %r14, %r11", body),
    "the first block": lambda body: body.replace("%r14, %r11, %r13", "%r14, %r11, 0"),
    "another word": lambda body: body.replace(
        "mapa.shared::cluster.u32 %r14, %r11", "mapa.shared::cluster.u32 %r14, %r10"
    ),
    "no first barrier": lambda body: body.replace(BOTH, "", 1),
    "no last barrier": lambda body: body[::-1].replace(BOTH[::-1], "", 1)[::-1],
    "a barrier of the block": lambda body: body.replace(BOTH, "bar.sync 0;", 1),
    "a relaxed arrival": lambda body: body.replace("arrive.aligned", "arrive.relaxed.aligned"),
}


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("body", [READ, WRITE], ids=["read", "write"])
@pytest.mark.parametrize("every_launch", [False, True])
def test_a_mutant_is_never_equal(name: str, body: str, every_launch: bool) -> None:
    original, mutant = text(body, CLUSTERS, 64), text(MUTANTS[name](body), CLUSTERS, 64)
    assert mutant != original
    assert verdict(original, mutant, every_launch=every_launch, threads=64) != "equal"


@pytest.mark.parametrize("body", [READ, WRITE, READ.replace(BOTH, "", 1)], ids=["read", "write", "race"])
def test_for_every_launch_blocks_that_depend_on_each_other_are_unknown(body: str) -> None:
    assert verdict(text(body, CLUSTERS, 64), text(body, CLUSTERS, 64), every_launch=True, threads=64) == "unknown"


def test_for_a_launch_a_kernel_equals_itself_unless_it_has_a_race() -> None:
    for body, outcome in ((READ, "equal"), (WRITE, "equal"), (READ.replace(BOTH, "", 1), "unknown")):
        assert verdict(text(body, CLUSTERS, 64), text(body, CLUSTERS, 64), every_launch=False, threads=64) == outcome


def test_the_order_of_independent_instructions_does_not_matter() -> None:
    other = READ.replace("ld.global.b32 %r20, [%d8];", "").replace(
        "st.shared.b32 [%r11]", "ld.global.b32 %r20, [%d8]; st.shared.b32 [%r11]"
    )
    assert verdict(text(READ, CLUSTERS, 64), text(other, CLUSTERS, 64), every_launch=False, threads=64) == "equal"


def test_reading_and_writing_the_next_block_move_words_in_opposite_directions() -> None:
    back = READ.replace("add.u32 %r13, %r12, 1", "add.u32 %r13, %r12, 3")
    assert verdict(text(back, CLUSTERS, 64), text(WRITE, CLUSTERS, 64), every_launch=False, threads=64) == "equal"
    assert verdict(text(READ, CLUSTERS, 64), text(WRITE, CLUSTERS, 64), every_launch=False, threads=64) != "equal"


def test_without_clusters_a_block_is_its_own_cluster() -> None:
    body = f"{START} st.shared.b32 [%r11], %r20; {BOTH} mapa.shared::cluster.u32 %r14, %r11, %r12; ld.shared::cluster.b32 %r21, [%r14]; {BOTH} st.global.b32 [%d9], %r21;"
    assert np.array_equal(run(body, directives=""), moved((8,), 0))


@pytest.mark.parametrize(
    "line",
    [
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v8.b32 [%r14], %r20, [%r14];",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r14], %r20, [%r14];",
        "atom.shared::cluster.add.u32 %r21, [%r14], %r20;",
        "red.shared::cluster.add.u32 [%r14], %r20;",
        "cp.async.bulk.shared::cluster.shared::cta.bulk_group [%r14], [%r11], 16, [%r14];",
        "mapa.u32 %r15, room+4, %r13;",
    ],
)
def test_what_is_not_modelled_has_its_line(line: str) -> None:
    body = f"{START} {BOTH} {NEXT}\n{line}\n{BOTH} st.global.b32 [%d9], %r20;"
    with pytest.raises(Unsupported, match=r"at line 1[0-9]"):
        run(body)
    assert verdict(text(body, CLUSTERS, 64), text(body, CLUSTERS, 64), every_launch=True, threads=64) != "equal"


def test_a_simulation_of_some_blocks_runs_their_clusters() -> None:
    prepared = prepare_launch(SM90.parse(text(READ, CLUSTERS, 64), "k.ptx"), SM90, launch((12,), threads=64))
    data = {"out": np.zeros(12 * 256, np.uint8), "in": np.arange(12 * 64, dtype=np.uint32).view(np.uint8)}
    after = simulate(prepared, data, blocks=[5]).after["out"].view(np.uint32).reshape(12, 64)
    assert np.array_equal(after[4:8], moved((12,), 1)[4:8])
    assert not after[:4].any()
    assert not after[8:].any()


@pytest.mark.parametrize("lanes", [8192, 600])
def test_a_batch_of_launches_keeps_clusters_together(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitwise_core.execution.concrete.LANES_PER_BATCH", lanes)
    prepared = prepare_launch(SM90.parse(text(READ, CLUSTERS, 64), "k.ptx"), SM90, launch((12,), threads=64))
    inputs = [np.arange(12 * 64, dtype=np.uint32) + 1000 * index for index in range(5)]
    contents = [{"out": np.zeros(12 * 256, np.uint8), "in": each.view(np.uint8)} for each in inputs]
    for index, one in enumerate(simulate_batch(prepared, contents)):
        assert np.array_equal(one.after["out"].view(np.uint32).reshape(12, 64), moved((12,), 1) + 1000 * index)
