# ruff: noqa: E501 - PTX is easier to check without line breaks
"""Races in shared memory: in one of many blocks, at addresses that differ between blocks, across mbarrier phases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitwise_core.execution import concrete
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import TensorMap
from bitwise_core.execution.races import race_histories
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.races.race_histories import RaceDetectors
from bitwise_core.execution.races.undetermined import Race
from bitwise_nvidia_ptx.architecture import host_tensor_map
from ptx_programs import hashes, stored

BLOCKS = 16
ROOM = ".shared .align 16 .b8 room[4096];"
PLACES = """
    mov.u32 %r9, %ctaid.x; mul.lo.u32 %r1, %r0, 4; cvt.u64.u32 %d5, %r1; add.s64 %d7, %d0, %d5;
    mov.u64 %d8, room; add.s64 %d9, %d8, %d5; xor.b32 %r4, %r1, 128; cvt.u64.u32 %d10, %r4; add.s64 %d11, %d8, %d10;
"""
"""%d7 and %d9: this thread's word of the output and of shared memory; %d11: that of the next warp; %r9: the block."""


@pytest.mark.parametrize("block", range(BLOCKS))
def test_one_block_that_skips_the_barrier_races(block: int) -> None:
    body = f"""
        setp.eq.u32 %p1, %r9, {block}; st.shared.b32 [%d9], %r0; @%p1 bra SKIP;
        bar.sync 0;
        SKIP: ld.shared.b32 %r2, [%d11]; st.global.b32 [%d7], %r2;
    """
    with pytest.raises(Unsupported, match="no barrier between"):
        hashes(PLACES + body, threads=64, blocks=BLOCKS, shared=ROOM)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_one_block_that_skips_the_barrier_of_one_iteration_races(block: int) -> None:
    """Blocks diverge at the loop exit as well, each after as many iterations as its index."""
    body = f"""
        add.u32 %r8, %r9, 2; mov.b32 %r7, 0; mov.b32 %r2, 0;
        LOOP: setp.eq.u32 %p1, %r9, {block}; setp.eq.and.u32 %p2, %r7, 1, %p1;
        bar.sync 0; st.shared.b32 [%d9], %r2; @%p2 bra SKIP;
        bar.sync 0;
        SKIP: ld.shared.b32 %r2, [%d11]; add.u32 %r2, %r2, %r0;
        add.u32 %r7, %r7, 1; setp.lt.u32 %p3, %r7, %r8; @%p3 bra LOOP;
        mul.lo.u32 %r6, %r9, 256; cvt.u64.u32 %d12, %r6; add.s64 %d12, %d12, %d7; st.global.b32 [%d12], %r2;
    """
    with pytest.raises(Unsupported, match="no barrier between"):
        hashes(PLACES + body, threads=64, blocks=BLOCKS, shared=ROOM)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_one_block_that_reads_another_address_races(block: int) -> None:
    body = f"""
        setp.eq.u32 %p1, %r9, {block}; selp.b64 %d12, %d11, %d9, %p1;
        st.shared.b32 [%d9], %r0; ld.shared.b32 %r2, [%d12]; st.global.b32 [%d7], %r2;
    """
    with pytest.raises(Unsupported, match="no barrier between"):
        hashes(PLACES + body, threads=64, blocks=BLOCKS, shared=ROOM)


def test_addresses_that_differ_between_blocks_without_a_race() -> None:
    body = """
        and.b32 %r5, %r9, 3; shl.b32 %r5, %r5, 8; cvt.u64.u32 %d12, %r5; add.s64 %d13, %d9, %d12; add.s64 %d14, %d11, %d12;
        mul.lo.u32 %r6, %r9, 256; cvt.u64.u32 %d12, %r6; add.s64 %d12, %d12, %d7;
        st.shared.b32 [%d13], %r0; bar.sync 0; ld.shared.b32 %r2, [%d14]; st.global.b32 [%d12], %r2;
    """
    found = stored(PLACES + body, threads=64, blocks=BLOCKS, shared=ROOM)
    assert found == [thread ^ 32 for thread in range(64)] * BLOCKS


ARRIVE = "mbarrier.arrive.shared.b64 _, [%d15];"
WAIT = "{0}: mbarrier.try_wait.parity.shared.b64 %p5, [%d15], {1}; @!%p5 bra {0};"
START = """
    add.s64 %d15, %d8, 2048; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%d15], 64; bar.sync 0;
    setp.lt.u32 %p2, %r0, 32; mov.b32 %r2, 0;
"""


def phases(before: str, within: str) -> str:
    """Return a body: the first warp writes before or within the phase for which the second waits before it reads."""
    return (
        PLACES
        + START
        + f"""
        @!%p2 bra SECOND;
        {before} {ARRIVE} {WAIT.format("A", 0)} {within} {ARRIVE} bra JOIN;
        SECOND: {ARRIVE} {WAIT.format("B", 0)} ld.shared.b32 %r2, [%d11]; {ARRIVE}
        JOIN: st.global.b32 [%d7], %r2;
    """
    )


def test_a_write_before_the_end_of_a_phase_is_visible_after_it() -> None:
    found = stored(phases("st.shared.b32 [%d9], %r0;", ""), threads=64, shared=ROOM)
    assert found == [0] * 32 + list(range(32))


def test_a_write_in_the_next_phase_is_not_ordered_by_the_previous_one() -> None:
    with pytest.raises(Unsupported, match="no barrier between"):
        hashes(phases("", "st.shared.b32 [%d9], %r0;"), threads=64, shared=ROOM)


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_wait_may_end_in_an_earlier_phase_of_its_parity(ahead: int) -> None:
    """The first warp completes phases without waiting for the other one, which waits for an even phase."""
    writes = "".join(f"add.u32 %r3, %r0, {each}; st.shared.b32 [%d9], %r3; {ARRIVE}" for each in range(ahead))
    start = START.replace("[%d15], 64", "[%d15], 32")
    body = f"{PLACES}{start} @!%p2 bra SECOND; {writes} bra JOIN; SECOND: {WAIT.format('A', 0)} ld.shared.b32 %r2, [%d11]; JOIN: st.global.b32 [%d7], %r2;"
    if ahead == 1:
        assert stored(body, threads=64, shared=ROOM) == [0] * 32 + list(range(32))
        return
    with pytest.raises(Unsupported, match="no barrier between"):
        hashes(body, threads=64, shared=ROOM)


def test_a_warp_knows_what_others_have_waited_for() -> None:
    """The first warp waits for two phases, which a barrier orders before the wait of the other one for the third."""
    twice = f"{ARRIVE} {WAIT.format('A', 0)} {ARRIVE} {WAIT.format('B', 1)}"
    third = f"st.shared.b32 [%d9], %r0; {ARRIVE} bra JOIN; SECOND: {WAIT.format('C', 0)} ld.shared.b32 %r2, [%d11];"
    start = START.replace("[%d15], 64", "[%d15], 32")
    body = (
        f"{start} @!%p2 bra MEET; {twice} MEET: bar.sync 0; @!%p2 bra SECOND; {third} JOIN: st.global.b32 [%d7], %r2;"
    )
    assert stored(PLACES + body, threads=64, shared=ROOM) == [0] * 32 + list(range(32))
    with pytest.raises(Unsupported, match="no barrier between"):
        hashes(PLACES + body.replace("MEET: bar.sync 0;", "MEET:"), threads=64, shared=ROOM)


@pytest.mark.parametrize(
    ("first", "second", "count", "reason"), [(2, 1, 3, ""), (2, 0, 2, ""), (2, 1, 2, "at which phase")]
)
def test_an_arrival_may_count_for_an_earlier_phase(first: int, second: int, count: int, reason: str) -> None:
    """The second warp stores before each of its arrivals, the third one only arrives, and the first one waits."""
    warps = "shr.u32 %r8, %r0, 5; setp.eq.u32 %p2, %r8, 0; setp.eq.u32 %p3, %r0, 32; setp.eq.u32 %p7, %r0, 64;"
    stores = "".join(f"mov.b32 %r4, {each + 1}; st.shared.b32 [%d8], %r4; {ARRIVE}" for each in range(first))
    sides = f"@%p3 bra A; @%p7 bra B; bra JOIN; A: {stores} bra JOIN; B: {second * ARRIVE} bra JOIN;"
    reads = f"READ: {WAIT.format('C', 0)} ld.shared.b32 %r2, [%d8]; JOIN: st.global.b32 [%d7], %r2;"
    body = f"{PLACES}{START.replace('[%d15], 64', f'[%d15], {count}')} {warps} @%p2 bra READ; {sides} {reads}"
    if not reason:
        assert stored(body, threads=96, shared=ROOM)[:32] == [first] * 32
        return
    with pytest.raises(Unsupported, match=reason):
        hashes(body, threads=96, shared=ROOM)


INIT = "add.s64 %d15, %d8, 2048; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%d15], {};"
ROUND = f"{ARRIVE} {WAIT.format('A', 0)}"
END = "@%p1 mbarrier.inval.shared.b64 [%d15]; st.global.b32 [%d7], %r0;"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (INIT.format(64) + ROUND + "bar.sync 0;" + END, "uses a memory barrier"),
        (INIT.format(64) + "bar.sync 0;" + ROUND + END, "overwrites shared memory that another reads"),
        (INIT.format(63) + "bar.sync 0;" + ROUND + "bar.sync 0;" + END, "more often than its phase waits for"),
        (INIT.format(65) + "bar.sync 0;" + ROUND + "bar.sync 0;" + END, "hangs"),
    ],
)
def test_an_mbarrier_used_out_of_order_raises(body: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        hashes(PLACES + body, threads=64, shared=ROOM)


@pytest.mark.parametrize(
    "repeated", ["add.u32 %r2, %r2, 1;", "st.global.b32 [%d7+1024], %r0;", "ld.shared.b32 %r2, [%d9];"]
)
def test_a_wait_that_repeats_other_instructions_raises(repeated: str) -> None:
    """How often a wait is repeated is not determined."""
    wait = WAIT.format("A", 0).replace("A:", f"A: {repeated}")
    assert repeated in wait
    body = INIT.format(64) + "mov.u32 %r2, 0; bar.sync 0;" + ARRIVE + wait + "st.global.b32 [%d7], %r2;"
    with pytest.raises(Unsupported, match="is not repeated by a branch to itself"):
        hashes(PLACES + body, threads=64, shared=ROOM)


def test_which_lanes_are_active_after_a_wait_is_not_determined() -> None:
    """Each lane goes on when its own wait succeeds."""
    body = INIT.format(64) + "bar.sync 0;" + ROUND + "activemask.b32 %r2; st.global.b32 [%d7], %r2;"
    with pytest.raises(Unsupported, match="is not determined"):
        hashes(PLACES + body, threads=64, shared=ROOM)


def test_an_mbarrier_used_in_order() -> None:
    body = INIT.format(64) + "bar.sync 0;" + ROUND + "bar.sync 0;" + END
    assert stored(PLACES + body, threads=64, shared=ROOM) == list(range(64))


FIELDS = {
    "global_address": ("b64", "%d1"), "rank": ("b32", "0x0"), "box_dim": ("b32", "0x0, 32"),
    "global_dim": ("b32", "0x0, 32"), "element_stride": ("b32", "0x0, 1"), "elemtype": ("b32", "0x7"),
    "interleave_layout": ("b32", "0x0"), "swizzle_mode": ("b32", "0x0"), "fill_mode": ("b32", "0x0"),
}  # fmt: skip


def through_a_map(fence: str) -> str:
    """Return a body that defines a tensor map, publishes it behind the input, and copies 32 numbers through it."""
    made = " ".join(
        f"@%p1 tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [%d8], {value};"
        for name, (kind, value) in FIELDS.items()
    )
    return f"""{PLACES}
        add.s64 %d16, %d1, 4096; add.s64 %d15, %d8, 2048; add.s64 %d17, %d8, 1024; mov.b32 %r3, 0; setp.eq.u32 %p1, %r0, 0;
        {made}
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d16], [%d8], 0x80;
        {fence}
        @%p1 mbarrier.init.shared.b64 [%d15], 1; bar.sync 0;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%d15], 128;
        @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%d17], [%d16, {{%r3}}], [%d15];
        {WAIT.format("A", 0)}
        add.s64 %d17, %d17, %d5; ld.shared.b32 %r2, [%d17]; st.global.b32 [%d7], %r2;
    """


ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%d16], 0x80;"


def test_a_tensor_map_of_the_kernel_is_used_after_its_fence() -> None:
    copied = f"{PLACES} add.s64 %d17, %d1, %d5; ld.global.b32 %r2, [%d17]; st.global.b32 [%d7], %r2;"
    assert hashes(through_a_map(ACQUIRE), shared=ROOM) == hashes(copied, shared=ROOM)


EXPECT = "@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%d15], 128;"
OTHER_ARRIVES = f"setp.eq.u32 %p7, %r0, 32; @%p7 {ARRIVE}"


@pytest.mark.parametrize(
    ("arrival", "count", "is_ordered"),
    [
        (f"@%p1 {ARRIVE}", 1, True),
        (f"bar.sync 0; {OTHER_ARRIVES}", 1, True),
        (f"@%p1 {ARRIVE} {OTHER_ARRIVES}", 2, True),
        (OTHER_ARRIVES, 1, False),
    ],
)
def test_a_phase_ends_after_it_expects_bytes_if_an_arrival_comes_after(
    arrival: str, count: int, is_ordered: bool
) -> None:
    """Of two warps the first one copies, without an arrival of its own at the instruction that expects the bytes."""
    body, both = through_a_map(ACQUIRE), "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%d15], 128;"
    wait = WAIT.format("A", 0)
    for old, new in (
        (both, EXPECT), (wait, arrival + wait), ("[%d15], 1;", f"[%d15], {count};"), (ACQUIRE, f"bar.sync 0; {ACQUIRE}"),
        ("tensormap.cp_fenceproxy", "setp.lt.u32 %p2, %r0, 32; @%p2 tensormap.cp_fenceproxy"),
        ("add.s64 %d17, %d17, %d5;", "and.b64 %d18, %d5, 124; add.s64 %d17, %d17, %d18;"),
    ):  # fmt: skip
        assert body.count(old) == 1
        body = body.replace(old, new)
    if is_ordered:
        hashes(body, threads=64, shared=ROOM)
        return
    with pytest.raises(Unsupported, match="before it tracks the copies or bytes"):
        hashes(body, threads=64, shared=ROOM)


@pytest.mark.parametrize("order", ["", "bar.sync 0;"])
def test_bytes_of_a_copy_may_count_for_an_earlier_phase(order: str) -> None:
    """The second warp issues the copy of the second phase, after the first phase or at any time."""
    body, wait = through_a_map(ACQUIRE), WAIT.format("A", 0)
    expect, start = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%d15], 128;", body.index("@%p1 cp.async")
    copy = "add.s64 %d19, %d17, 256;" + body[start : body.index(wait)].replace("@%p1", "@%p7").replace("%d17", "%d19")
    late = f"{expect} {copy}" if order else expect
    early = "" if order else copy
    for old, new in (
        (wait, f"{early} {wait} {order} {late} {WAIT.format('B', 1)}"), (ACQUIRE, f"bar.sync 0; {ACQUIRE}"),
        ("tensormap.cp_fenceproxy", "setp.eq.u32 %p7, %r0, 32; setp.lt.u32 %p2, %r0, 32; @%p2 tensormap.cp_fenceproxy"),
        ("add.s64 %d17, %d17, %d5;", "and.b64 %d18, %d5, 124; add.s64 %d17, %d17, %d18;"),
    ):  # fmt: skip
        assert body.count(old) == 1
        body = body.replace(old, new)
    if order:
        hashes(body, threads=64, shared=ROOM)
        return
    with pytest.raises(Unsupported, match="at which phase"):
        hashes(body, threads=64, shared=ROOM)


def copied_twice(between: str, place: str = "%d17") -> str:
    """Return a body that copies 32 words, loads them, and copies them again, to the same place or another one."""
    body = through_a_map(ACQUIRE)
    start, load = body.index("@%p1 mbarrier.arrive.expect_tx"), "ld.shared.b32 %r2, [%d17];"
    again = body[start : body.index("add.s64 %d17, %d17, %d5;")].replace("[%d17]", f"[{place}]")
    again = again.replace(WAIT.format("A", 0), WAIT.format("B", 1))
    assert body.count("add.s64 %d17, %d17, %d5;") == body.count(load) == 1
    body = body.replace("add.s64 %d17, %d17, %d5;", "add.s64 %d18, %d17, %d5; add.s64 %d19, %d17, 256;")
    return body.replace(load, f"ld.shared.b32 %r2, [%d18]; {between} {again}")


FENCE = "fence.proxy.async.shared::cta;"


@pytest.mark.parametrize("fence", [FENCE, "fence.proxy.async;", "fence.proxy.async.shared::cluster;"])
def test_a_copy_over_loaded_words_comes_after_a_fence_of_the_loading_threads(fence: str) -> None:
    once = hashes(through_a_map(ACQUIRE), shared=ROOM)
    assert hashes(copied_twice(f"{fence} bar.sync 0;"), shared=ROOM) == once
    assert hashes(copied_twice("bar.sync 0;", "%d19"), shared=ROOM) == once


@pytest.mark.parametrize(
    "between",
    [
        "bar.sync 0;",
        "fence.proxy.async.global; bar.sync 0;",
        f"bar.sync 0; @%p1 {FENCE}",
        f"@%p1 {FENCE} bar.sync 0;",
        f"{FENCE} ld.shared.b32 %r2, [%d18]; bar.sync 0;",
        "fence.acq_rel.cta; bar.sync 0;",
        "atom.shared.add.u32 %r8, [%d18], 0; bar.sync 0;",
    ],
)
def test_a_copy_may_overtake_loads_without_such_a_fence(between: str) -> None:
    body = copied_twice(between)
    with pytest.raises(Race, match="may overtake a load") as caught:
        hashes(body, shared=ROOM)
    assert caught.value.causes[0].line is not None
    assert caught.value.causes[0].other is not None


@pytest.mark.parametrize("code", [11, 12])
def test_copies_that_round_elements_are_not_taken_for_copies_of_bits(code: int) -> None:
    body = through_a_map(ACQUIRE)
    assert body.count("[%d8], 0x7;") == 1
    with pytest.raises(Unsupported, match="round elements"):
        hashes(body.replace("[%d8], 0x7;", f"[%d8], {code};"), shared=ROOM)


@pytest.mark.parametrize("change", [{"dtype": "tf32"}, {"dtype": "fp32", "round_f32_to_tf32": True}])
def test_a_map_of_the_host_that_rounds_elements_is_not_taken_for_one_that_copies_bits(change: dict[str, Any]) -> None:
    given = TensorMap(buffer="in", shape=(32,), strides=(1,), block=(32,), **change)
    with pytest.raises(Unsupported, match="round elements"):
        host_tensor_map(given, {"in": 1})


def test_a_map_of_the_host_over_padded_elements_of_4_bits_is_the_one_that_a_kernel_makes() -> None:
    """Lines of 128 bytes hold 256 elements, and 16 of them take 16 bytes in shared memory."""
    given = TensorMap(buffer="in", dtype="u8", shape=(4, 256), strides=(128, 1), block=(4, 128), fp4_padded=True)
    fields = {name: int(value.flat[0]) for name, value in host_tensor_map(given, {"in": 1}).fields.items()}
    made = {"element bytes": 8, "packed bytes": 16, "size 0": 256, "box 0": 128, "stride 1": 128}
    assert {name: fields[name] for name in made} == made
    with pytest.raises(Unsupported, match="more than a byte"):
        host_tensor_map(given.model_copy(update={"dtype": "fp16"}), {"in": 1})


def of_two_maps(used: str, changed: str = "") -> str:
    """Return a body whose blocks define a map over the first 32 words and one over the next, and copy through one.

    `used` sets %d16 to the address of the map from those of both in %d20 and %d21, %p6 is true in the second block.
    """
    body = through_a_map(ACQUIRE)
    made = body[body.index(MADE) : body.index(ACQUIRE)]
    second = made.replace("%d1;", "%d19;").replace("%d16", "%d21")
    place = "mul.lo.u32 %r6, %r9, 128; cvt.u64.u32 %d12, %r6; add.s64 %d7, %d7, %d12; setp.eq.u32 %p6, %r9, 1;"
    own = "mul.wide.u32 %d12, %r9, 256; add.s64 %d16, %d16, %d12; mov.b64 %d20, %d16; add.s64 %d21, %d20, 128;"
    places = f"{place} {own} add.s64 %d19, %d1, 128;"
    acquired = f"{ACQUIRE} {ACQUIRE.replace('%d16', '%d21')} {changed} {used}"
    return body.replace(ACQUIRE, f"bar.sync 0; {second} {acquired}").replace(MADE, f"{places} {MADE}", 1)


def of_words(first: int, second: int) -> str:
    """Return a body that copies 32 words from these offsets in bytes, the second one in the second block."""
    return f"""{PLACES}
        setp.eq.u32 %p6, %r9, 1; mul.lo.u32 %r6, %r9, 128; cvt.u64.u32 %d12, %r6; add.s64 %d7, %d7, %d12;
        selp.b64 %d13, {second}, {first}, %p6; add.s64 %d17, %d1, %d5; add.s64 %d17, %d17, %d13;
        ld.global.b32 %r2, [%d17]; st.global.b32 [%d7], %r2;
    """


@pytest.mark.parametrize(
    ("used", "places"),
    [
        ("", (0, 0)),
        ("mov.b64 %d16, %d21;", (128, 128)),
        ("selp.b64 %d16, %d21, %d20, %p6;", (0, 128)),
        ("selp.b64 %d16, %d20, %d21, %p6;", (128, 0)),
    ],
)
def test_each_block_copies_through_the_map_at_its_own_address(used: str, places: tuple[int, int]) -> None:
    found = hashes(of_two_maps(used), blocks=2, shared=ROOM)
    for other in ((0, 0), (0, 128), (128, 0), (128, 128)):
        assert (found == hashes(of_words(*other), blocks=2, shared=ROOM)) == (other == places)


REPUBLISHED = (
    "@!%p6 bra KEPT; tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
    f"[%d16], [%d8], 0x80; {ACQUIRE} KEPT:"
)


def test_a_map_that_one_block_replaces_is_replaced_in_this_block_only() -> None:
    found = hashes(of_two_maps("", REPUBLISHED), blocks=2, shared=ROOM)
    assert found == hashes(of_words(0, 128), blocks=2, shared=ROOM)


def test_a_field_that_one_block_changes_is_changed_in_this_block_only() -> None:
    changed = (
        "@!%p6 bra SAME; @%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%d8], %d1; SAME: "
        + REPUBLISHED.replace("@!%p6 bra KEPT;", "").replace("KEPT:", "")
    )
    found = hashes(of_two_maps("", changed), blocks=2, shared=ROOM)
    assert found == hashes(of_words(128, 0), blocks=2, shared=ROOM)


@pytest.mark.parametrize("fence", ["", "fence.proxy.async.shared::cta;", ACQUIRE.replace("%d16", "%d8")])
def test_a_tensor_map_without_a_fence_raises(fence: str) -> None:
    with pytest.raises(Unsupported, match="no fence has made visible"):
        hashes(through_a_map(fence), shared=ROOM)


ZEROED = "shl.b32 %r2, %r0, 2; cvt.u64.u32 %d18, %r2; add.s64 %d18, %d8, %d18; st.shared.b32 [%d18], 0; bar.sync 0;"
MADE = "@%p1 tensormap.replace.tile.global_address"
BEGIN_COPY = "tensormap.cp_fenceproxy"


def without(body: str, *names: str) -> str:
    """Return a body that does not set some fields of its tensor map."""
    for name in names:
        start = body.index(f"@%p1 tensormap.replace.tile.{name}")
        body = body[:start] + body[body.index(";", start) + 1 :]
    return body


def test_fields_that_are_not_set_are_zero_where_threads_stored_zeros() -> None:
    body = through_a_map(ACQUIRE)
    left_out = without(body, "swizzle_mode", "interleave_layout", "fill_mode")
    assert hashes(left_out.replace(MADE, f"{ZEROED} {MADE}"), shared=ROOM) == hashes(body, shared=ROOM)
    with pytest.raises(Unsupported, match="before its swizzle is set"):
        hashes(left_out, shared=ROOM)


@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"])
def test_a_store_to_a_map_without_a_barrier_after_its_fields_is_a_race(barrier: str) -> None:
    copy = "@%p1 mbarrier.init"
    overwritten = through_a_map(ACQUIRE).replace(copy, f"{barrier} {ZEROED} {copy}", 1)
    if barrier:
        assert hashes(overwritten, shared=ROOM) == hashes(through_a_map(ACQUIRE), shared=ROOM)
        return
    with pytest.raises(Unsupported, match="overwrites shared memory that another reads"):
        hashes(overwritten, shared=ROOM)


def test_a_swizzle_that_is_not_modelled() -> None:
    body = through_a_map(ACQUIRE)
    start = body.index("tensormap.replace.tile.swizzle_mode")
    end = body.index(";", start)
    changed = body[:start] + body[start:end].rpartition(",")[0] + ", 0x4" + body[end:]
    with pytest.raises(Unsupported, match="swizzle mode 4 is not modelled"):
        hashes(changed, shared=ROOM)


def test_a_map_in_the_place_of_another_one_inherits_nothing() -> None:
    body = through_a_map(ACQUIRE)
    made = body[body.index(MADE) : body.index("tensormap.cp_fenceproxy")]
    again = body.replace(made, f"{ZEROED} {made} bar.sync 0; {ZEROED} {made}")
    assert hashes(again, shared=ROOM) == hashes(body, shared=ROOM)
    # Without its element type the second map has elements of a byte, so that the copy has too few bytes.
    with pytest.raises(Unsupported, match="hangs"):
        hashes(body.replace(made, f"{ZEROED} {made} bar.sync 0; {ZEROED} {without(made, 'elemtype')}"), shared=ROOM)


def test_a_map_over_other_bytes_is_not_modelled() -> None:
    body = through_a_map(ACQUIRE).replace(MADE, f"st.shared.b32 [%d8+8], 0; bar.sync 0; {MADE}")
    later = through_a_map(ACQUIRE).replace(BEGIN_COPY, f"st.shared.b32 [%d8+8], %r0; bar.sync 0; {BEGIN_COPY}")
    for each in (body, later, later.replace("%r0; bar", "0; bar")):
        with pytest.raises(Unsupported, match="a part of the bytes of a tensor map"):
            hashes(each, shared=ROOM)


FROM_OTHER = "{guard} tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%d8], %d40;"


@pytest.mark.parametrize(
    "body",
    [
        through_a_map(ACQUIRE).replace(BEGIN_COPY, FROM_OTHER.format(guard="@%p9") + BEGIN_COPY),
        through_a_map(ACQUIRE).replace(
            BEGIN_COPY, f"@%p9 bra OTHER; {FROM_OTHER.format(guard='')} OTHER: {BEGIN_COPY}"
        ),
        through_a_map(f"@%p9 {ACQUIRE}"),
        through_a_map(ACQUIRE).replace(BEGIN_COPY, "@%p9 " + BEGIN_COPY),
    ],
)
def test_data_that_decides_about_a_map_is_not_followed(body: str) -> None:
    condition = "ld.global.b32 %r50, [%d1+128]; setp.ne.u32 %p9, %r50, 0; add.s64 %d40, %d1, 256;"
    with pytest.raises(Unsupported, match="depends on data"):
        hashes(condition + body, shared=ROOM)


OWN_PLACE = through_a_map(ACQUIRE).replace("add.s64 %d16, %d1, 4096", "add.s64 %d16, %d43, 4096")


def test_some_blocks_change_their_own_map() -> None:
    """Block 1 copies other numbers, and each block has published its own map."""
    chosen = "mov.u32 %r51, %ctaid.x; mul.wide.u32 %d41, %r51, 128; add.s64 %d0, %d0, %d41; add.s64 %d43, %d1, %d41; setp.eq.u32 %p9, %r51, {}; add.s64 %d40, %d1, 256;"
    own = "and.pred %p9, %p9, %p1; " + FROM_OTHER.format(guard="@%p9")
    maps = OWN_PLACE.replace(BEGIN_COPY, own + BEGIN_COPY)
    direct = f"{PLACES} add.s64 %d17, %d1, %d5; @%p9 add.s64 %d17, %d17, 256; ld.global.b32 %r2, [%d17]; st.global.b32 [%d7], %r2;"
    found = [
        [hashes(chosen.format(block) + body, shared=ROOM, blocks=2) for body in (maps, direct)] for block in (0, 1)
    ]
    assert found[0][0] == found[0][1] != found[1][0] == found[1][1]


def test_the_bytes_of_a_published_map_are_those_of_its_fields() -> None:
    behind_output = through_a_map(ACQUIRE).replace("add.s64 %d16, %d1, 4096", "add.s64 %d16, %d0, 4096")
    larger = behind_output.replace(
        "global_dim.shared::cta.b1024.b32 [%d8], 0x0, 32", "global_dim.shared::cta.b1024.b32 [%d8], 0x0, 64"
    )
    copied, one, other = (hashes(each, shared=ROOM) for each in (through_a_map(ACQUIRE), behind_output, larger))
    assert one.keys() == other.keys() == copied.keys() | set(range(4096, 4096 + 128, 4))
    assert {each for each in one if one[each] != other[each]} == one.keys() - copied.keys()


def test_a_block_that_changes_a_map_of_all_blocks_is_unknown() -> None:
    chosen = "mov.u32 %r51, %ctaid.x; setp.eq.u32 %p9, %r51, 1; add.s64 %d40, %d1, 256;"
    changed = FROM_OTHER.replace("shared::cta", "global").replace("[%d8]", "[%d16]").format(guard="@%p9")
    body = through_a_map(ACQUIRE)
    published = chosen + body.replace(ACQUIRE, f"bar.sync 0; @!%p1 bra AFTER; {changed} AFTER: {ACQUIRE}")
    with pytest.raises(Unsupported, match="blocks publish different tensor maps"):
        hashes(published, shared=ROOM, blocks=2)
    assert hashes(chosen + body, shared=ROOM, blocks=2)


@pytest.mark.parametrize("blocks", [1, 2])
def test_blocks_of_several_batches_that_publish_different_maps_are_unknown(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has one block, or two of four: the first two agree, and so do the others."""
    monkeypatch.setattr(concrete, "LANES_PER_BATCH", 32 * blocks)
    body = through_a_map(ACQUIRE)
    chosen = f"mov.u32 %r51, %ctaid.x; shr.u32 %r51, %r51, {blocks - 1}; mul.wide.u32 %d41, %r51, 128; add.s64 %d40, %d1, %d41;"
    different = body.replace("[%d8], %d1;", "[%d8], %d40;")
    assert different != body
    assert hashes(chosen + body, shared=ROOM, blocks=2 * blocks)
    with pytest.raises(Unsupported, match="blocks publish different tensor maps"):
        hashes(chosen + different, shared=ROOM, blocks=2 * blocks)


def test_a_block_that_uses_the_map_of_another_one_is_unknown() -> None:
    chosen = "mov.u32 %r51, %ctaid.x; mul.wide.u32 %d41, %r51, 128; add.s64 %d0, %d0, %d41; add.s64 %d43, %d1, %d41;"
    other = OWN_PLACE.replace("[%d16, {%r3}]", "[%d42, {%r3}]").replace(
        BEGIN_COPY, f"sub.s64 %d42, %d16, %d41; {BEGIN_COPY}"
    )
    with pytest.raises(Unsupported, match="neither the launch nor the kernel defines"):
        hashes(chosen + other, shared=ROOM, blocks=2)
    different = FROM_OTHER.format(guard="@%p1") + "sub.s64 %d16, %d16, %d41;" + BEGIN_COPY
    with pytest.raises(Unsupported, match="blocks publish different tensor maps"):
        hashes(
            chosen + "add.s64 %d40, %d1, %d41;" + OWN_PLACE.replace(BEGIN_COPY, different),
            shared=ROOM,
            blocks=2,
        )


def test_a_copy_is_visible_to_the_warps_that_waited_for_it() -> None:
    cells, barrier = np.arange(8), 512
    watch = RaceDetector(16, 96, 32)
    watch.begin(barrier, np.arange(2))
    watch.writes(cells, np.zeros(8, dtype=np.int64), pending=True)
    watch.complete(barrier)
    watch.arrived(cells, barrier)
    watch.acquire(barrier, np.array([0]), 0)
    watch.reads(cells, np.full(8, 5))
    with pytest.raises(Unsupported, match="no barrier between"):
        watch.reads(cells, np.full(8, 40))
    watch.acquire(barrier, np.array([1]), 0)
    watch.reads(cells, np.full(8, 40))
    watch.barrier(np.array([1, 2]))
    watch.reads(cells, np.full(8, 70))
    watch.begin(barrier, np.arange(2))
    watch.fence(np.ones(96, dtype=bool))


@pytest.mark.parametrize(("waited", "read"), [(512, 0), (512, 8), (520, 0), (520, 8)])
def test_a_copy_is_visible_only_to_the_warps_that_waited_for_its_own_barrier(waited: int, read: int) -> None:
    watch = RaceDetector(16, 64, 32)
    for first, barrier in ((0, 512), (8, 520)):
        watch.begin(barrier, np.arange(2))
        watch.complete(barrier)
        watch.arrived(np.arange(first, first + 8), barrier)
        watch.acquire(barrier, np.array([0]), 0)
    watch.acquire(waited, np.array([1]), 0)
    cells, readers = np.arange(read, read + 8), np.full(8, 40)
    if (waited, read) in ((512, 0), (520, 8)):
        watch.reads(cells, readers)
    else:
        with pytest.raises(Unsupported, match="no barrier between"):
            watch.reads(cells, readers)


@pytest.mark.parametrize("blocks", [2, 64])
def test_blocks_that_diverge_are_all_tracked_until_a_barrier_makes_them_equal(blocks: int) -> None:
    races = RaceDetectors(16, 64, 32, blocks)
    for block in range(blocks):
        own = np.arange(blocks) == block
        (detector,) = races.of_blocks(own)
        detector.writes(np.arange(16), np.zeros(16, dtype=np.int64))
    assert len(races.all()) == blocks
    for block in range(blocks):
        (detector,) = races.of_blocks(np.arange(blocks) == block)
        with pytest.raises(Unsupported, match="race"):
            detector.copy().reads(np.array([block % 16]), np.array([32]))
    for detector in races.all():
        detector.barrier(np.arange(2))
    races.forget_what_is_ordered()
    assert len(races.all()) == (1 if blocks > 3 else blocks)
    for detector in races.all():
        detector.reads(np.arange(16), np.full(16, 32))


def test_the_memory_for_histories_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_histories, "MAXIMUM_BYTES", 1 << 16)
    races = RaceDetectors(16, 32, 32, 64)
    for block in range(3):
        races.of_blocks(np.arange(64) == block)
    with pytest.raises(Unsupported, match="diverge too often"):
        split_all(races)


def split_all(races: RaceDetectors) -> None:
    for block in range(races.blocks):
        races.of_blocks(np.arange(races.blocks) == block)


def exchanged(count: int) -> RaceDetector:
    """Return a detector after rounds in which each warp writes its cells and reads those of the other."""
    watch = RaceDetector(64, 64, 32)
    cells = np.arange(64)
    for _ in range(count):
        watch.barrier(np.arange(2))
        late = np.zeros(64, dtype=bool)
        watch.unordered_writes(cells, cells)
        watch.record_writes(cells, cells, late, late)
        watch.barrier(np.arange(2))
        watch.unordered_reads(cells ^ 32, cells)
    return watch


def test_rounds_of_accesses_leave_one_state_and_every_earlier_name_is_contested() -> None:
    one, three = exchanged(1), exchanged(3)
    assert one.state() == three.state()
    assert one.state() != exchanged(0).state()
    races, others = RaceDetectors(64, 64, 32, 1), RaceDetectors(64, 64, 32, 1)
    races._histories[0].detector, others._histories[0].detector = one, three
    joined = races.with_alternatives(others)
    [kept] = joined.all()
    assert not joined.has_alternatives
    # What either history read is named by a number from the settled one to the current one.
    assert kept.settled[:64].tolist() == [1] * 64
    assert kept.generation[:64].tolist() == [3] * 64


def test_a_barrier_ends_what_distinguishes_histories() -> None:
    races, others = RaceDetectors(64, 64, 32, 1), RaceDetectors(64, 64, 32, 1)
    races._histories[0].detector, others._histories[0].detector = exchanged(1), exchanged(1)
    others.all()[0].unordered_reads(np.arange(32), np.arange(32))
    joined = races.with_alternatives(others)
    assert len(joined.all()) == 2
    joined.forget_what_is_ordered()
    assert len(joined.all()) == 2
    for each in joined.all():
        each.barrier(np.arange(2))
    joined.forget_what_is_ordered()
    assert len(joined.all()) == 1


ENDED = """
setp.ge.u32 %p1, %r0, 64; xor.b32 %r5, %r0, 64; mul.wide.u32 %d5, %r5, 4; add.s64 %d6, %d0, %d5;
mul.wide.u32 %d2, %r0, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2; add.s64 %d9, %d3, 4096;
"""
"""%p1: threads of the second half; %d3: the own word of out, %d6 that of a thread of the other half, %d9 a further one."""


@pytest.mark.parametrize(
    ("body", "determined"),
    [
        ("st.global.b32 [%d3], %r0; bar.sync 0; ld.global.b32 %r2, [%d6]; st.global.b32 [%d9], %r2;", True),
        ("st.global.b32 [%d3], %r0; @%p1 ret; bar.sync 0; ld.global.b32 %r2, [%d6]; st.global.b32 [%d9], %r2;", False),
        ("@%p1 st.global.b32 [%d3], %r0; @%p1 ret; bar.sync 0; bar.sync 0; st.global.b32 [%d6], %r5;", True),
        ("@%p1 st.global.b32 [%d3], %r0; @%p1 ret; bar.sync 0; bar.sync 0; st.global.b32 [%d6], 9;", False),
        (
            "ld.global.b32 %r2, [%d3]; @%p1 st.global.b32 [%d9], %r2; @%p1 ret; bar.sync 0; st.global.b32 [%d6], 9;",
            False,
        ),
        # What they do not share with others needs no order, and neither do those that have stored nothing.
        ("@%p1 ret; st.global.b32 [%d3], %r0; bar.sync 0; ld.global.b32 %r2, [%d3]; st.global.b32 [%d9], %r2;", True),
        (
            "ld.global.b32 %r3, [%d4]; @%p1 ret; xor.b32 %r5, %r0, 1; mul.wide.u32 %d5, %r5, 4; add.s64 %d6, %d0, %d5;"
            "st.global.b32 [%d3], %r3; bar.sync 0; ld.global.b32 %r2, [%d6]; st.global.b32 [%d9], %r2;",
            True,
        ),
    ],
)
def test_no_barrier_orders_what_warps_that_have_ended_did_in_global_memory(body: str, *, determined: bool) -> None:
    if determined:
        assert hashes(ENDED + body, threads=128)
        return
    with pytest.raises(Unsupported, match=r"race|order in which threads run"):
        hashes(ENDED + body, threads=128)
