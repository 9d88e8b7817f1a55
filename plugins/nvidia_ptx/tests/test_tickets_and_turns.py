"""Tickets, turns and barriers of blocks: programs and their mutants against all interleavings, and larger kernels."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bitwise_core.checker.analysis import outputs_of_all_blocks
from bitwise_core.checker.sources import Options
from bitwise_core.execution.assumptions import ANY_LANE
from bitwise_core.execution.concrete import PreparedLaunch, prepare_launch
from bitwise_core.execution.determined_runs import simulate_determined
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT, Argument, Launch
from bitwise_core.execution.memory import global_memory
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.tensor_contents import tensor_contents
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.term_hash import exact_hash
from ptx_programs import ARCH, text

BLOCKS = 3
COUNTER, FLAG = BLOCKS, BLOCKS + 1
"""The places of the counter and of the flag in the second buffer, after a partial result for each block."""
OWN = FLAG + 1
"""The place of the results of all blocks, after these."""
READY, READ = OWN + BLOCKS, OWN + 2 * BLOCKS
"""The places of the flags of all blocks: the part is stored, and the part is read."""
WORDS = READ + BLOCKS
"""The number of words of the second buffer that programs use."""

STEPS = {
    "part": "st.global.u32 [%d4], %r2;",
    "bar": "bar.sync 0;",
    "take": "atom.acq_rel.gpu.global.add.u32 %r3, [%d5], 1;",
    "inc": f"atom.acq_rel.gpu.global.inc.u32 %r3, [%d5], {BLOCKS - 1};",
    "relaxed": "atom.relaxed.gpu.global.add.u32 %r3, [%d5], 1;",
    "block": "atom.acq_rel.cta.global.add.u32 %r3, [%d5], 1;",
    "last": f"setp.ne.u32 %p1, %r3, {BLOCKS - 1}; @%p1 bra END;",
    "second": "setp.ne.u32 %p1, %r3, 1; @%p1 bra END;",
    "gather": "".join(f"ld.global.u32 %r4, [%d1+{4 * each}]; mad.lo.u32 %r2, %r2, 3, %r4;" for each in range(BLOCKS)),
    "zero": "mov.u32 %r2, 0;",
    "old": "add.u32 %r2, %r2, %r3;",
    "out": "st.global.u32 [%d0], %r2;",
    "reset": "st.global.u32 [%d5], 0;",
    "swap": "atom.acq_rel.gpu.global.exch.b32 %r5, [%d5], 0;",
    "wait": "W{0}: atom.acq_rel.gpu.global.add.u32 %r4, [%d6], 0; setp.ne.u32 %p1, %r4, %r1; @%p1 bra W{0};",
    "load": "W{0}: ld.acquire.gpu.global.u32 %r4, [%d6]; setp.ne.u32 %p1, %r4, %r1; @%p1 bra W{0};",
    "below": "W{0}: ld.acquire.gpu.global.u32 %r4, [%d6]; setp.lt.u32 %p1, %r4, %r1; @%p1 bra W{0};",
    "count": "W{0}: add.u32 %r2, %r2, 1;"
    " ld.acquire.gpu.global.u32 %r4, [%d6]; setp.ne.u32 %p1, %r4, %r1; @%p1 bra W{0};",
    "add": "ld.global.u32 %r4, [%d0]; mad.lo.u32 %r2, %r2, 3, %r4;",
    "pass": "add.u32 %r4, %r1, 1; atom.acq_rel.gpu.global.exch.b32 %r5, [%d6], %r4;",
    "set": "add.u32 %r4, %r1, 1; st.release.gpu.global.u32 [%d6], %r4;",
    "plain": "add.u32 %r4, %r1, 1; st.global.u32 [%d6], %r4;",
    "next": "atom.acq_rel.gpu.global.add.u32 %r5, [%d6], 1;",
    "arrive": "atom.release.gpu.global.add.u32 %r5, [%d6], 1;",
    "again": "atom.release.gpu.global.add.u32 %r5, [%d5], 1;",
    "two": "atom.release.gpu.global.add.u32 %r5, [%d6], 2;",
    "quiet": "atom.relaxed.gpu.global.add.u32 %r5, [%d6], 1;",
    "all": f"W{{0}}: ld.acquire.gpu.global.u32 %r4, [%d6]; setp.lt.u32 %p1, %r4, {BLOCKS}; @%p1 bra W{{0}};",
    "most": f"W{{0}}: ld.acquire.gpu.global.u32 %r4, [%d6]; setp.lt.u32 %p1, %r4, {BLOCKS - 1}; @%p1 bra W{{0}};",
    "done": f"W{{0}}: ld.acquire.gpu.global.u32 %r4, [%d5]; setp.lt.u32 %p1, %r4, {BLOCKS}; @%p1 bra W{{0}};",
    "twice": f"ld.acquire.gpu.global.u32 %r4, [%d6]; setp.ge.u32 %p1, %r4, {BLOCKS}; @%p1 bra P{{0}};"
    f" W{{0}}: atom.acquire.gpu.global.add.u32 %r5, [%d6], 0; setp.lt.u32 %p1, %r5, {BLOCKS}; @%p1 bra W{{0}}; P{{0}}:",
    "weak": f"W{{0}}: ld.relaxed.gpu.global.u32 %r4, [%d6]; setp.lt.u32 %p1, %r4, {BLOCKS}; @%p1 bra W{{0}};",
    "tally": f"W{{0}}: add.u32 %r2, %r2, 1;"
    f" ld.acquire.gpu.global.u32 %r4, [%d6]; setp.lt.u32 %p1, %r4, {BLOCKS}; @%p1 bra W{{0}};",
    "own": f"st.global.u32 [%d4+{4 * OWN}], %r2;",
    "later": "W{0}: ld.acquire.gpu.global.u32 %r4, [%d6]; setp.ne.u32 %p1, %r4, %r6; @%p1 bra W{0};",
    "lower": "add.u32 %r4, %r6, 1; st.release.gpu.global.u32 [%d6], %r4;",
    "ready": f"st.release.gpu.global.u32 [%d4+{4 * READY}], 1;",
    "next ready": f"W{{0}}: ld.acquire.gpu.global.u32 %r4, [%d7+{4 * READY}];"
    " setp.ne.u32 %p1, %r4, 1; @%p1 bra W{0};",
    "fetch": "ld.global.u32 %r4, [%d7]; mad.lo.u32 %r2, %r2, 3, %r4;",
    "read": f"st.release.gpu.global.u32 [%d7+{4 * READ}], 1;",
    "is read": f"W{{0}}: atom.acquire.gpu.global.add.u32 %r4, [%d4+{4 * READ}], 0;"
    " setp.ne.u32 %p1, %r4, 1; @%p1 bra W{0};",
}  # fmt: skip

TICKETS = ("part", "bar", "take", "bar", "last", "zero", "gather", "out")
RESET = (*TICKETS, "reset")
SWAPPED = (*TICKETS, "swap")
WRAPPED = ("part", "bar", "inc", "bar", "last", "zero", "gather", "out")
TURNS = ("wait", "bar", "add", "out", "bar", "pass")
FLAGS = ("load", "bar", "add", "out", "bar", "set")
COUNTS = ("below", "bar", "add", "out", "bar", "next")
BARRIER = ("part", "bar", "arrive", "bar", "all", "bar", "zero", "gather", "own")
BARRIERS = ("part", "bar", "arrive", "bar", "twice", "bar", "gather", "bar", "again", "bar", "done", "bar", "part")
LOWERED = ("later", "bar", "add", "out", "bar", "lower")
RING = ("part", "bar", "ready", "next ready", "bar", "fetch", "own")
HANDSHAKE = ("part", "bar", "ready", "next ready", "bar", "fetch", "bar", "read", "is read", "bar", "part")
DETERMINED = (
    *(TICKETS, RESET, SWAPPED, WRAPPED, TURNS, FLAGS, COUNTS, BARRIER, BARRIERS),
    *(LOWERED, RING, HANDSHAKE),
)


def launched(steps: Sequence[str]) -> PreparedLaunch:
    """Return the program as a kernel of blocks of one thread; its buffers hold zeros."""
    lines = ["mov.u32 %r1, %ctaid.x; add.u32 %r2, %r1, 1; mov.u32 %r3, 0; mul.wide.u32 %d4, %r1, 4;"]
    lines += [f"add.s64 %d4, %d1, %d4; add.s64 %d5, %d1, {4 * COUNTER}; add.s64 %d6, %d1, {4 * FLAG};"]
    lines += [f"sub.u32 %r6, {BLOCKS - 1}, %r1; add.u32 %r7, %r1, 1; rem.u32 %r7, %r7, {BLOCKS};"]
    lines += ["mul.wide.u32 %d7, %r7, 4; add.s64 %d7, %d1, %d7;"]
    lines += [STEPS[each].format(number) for number, each in enumerate(steps)]
    return prepared("\n".join([*lines, "END:"]), threads=1, blocks=BLOCKS)


def prepared(body: str, *, threads: int, blocks: int, dtype: str = "u32", shared: str = "") -> PreparedLaunch:
    zeros = tensor_contents([0] * 64, "u32", None)
    out = zeros if dtype == "u32" else None
    arguments = (
        Argument(kind="buffer", buffer="out", dtype=dtype, values=out),
        Argument(kind="buffer", buffer="in", dtype="u32", values=zeros),
    )
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments)
    return prepare_launch(ARCH.parse(text(body, threads=threads, shared=shared), "k.ptx"), ARCH, launch)


def outputs(ready: PreparedLaunch) -> dict[int, Output] | None:
    """Return what the launch leaves, None if that is not determined or unknown."""
    try:
        return outputs_of_all_blocks(ready, {"out": 1, "in": 2}, Options())
    except Unsupported:
        return None


def numbers(found: dict[int, Output]) -> list[int]:
    """Return the content of out and then of in, which are numbers."""
    content = np.zeros((2, 128), dtype=np.uint8)
    for buffer, output in found.items():
        for place, size, word, flags in zip(
            output.address, output.size, output_words(output), output.flags, strict=True
        ):
            assert int(flags) & L.FORM == L.CONST
            offset = int(place) & ((1 << POINTER_SHIFT) - 1)
            content[buffer - 1, offset : offset + int(size)] = np.frombuffer(
                int(word).to_bytes(8, "little")[: int(size)], dtype=np.uint8
            )
    out, given = (row.view(np.uint32).tolist() for row in content)
    return [out[0], *given[:WORDS]]


@cache
def numbers_by_hash() -> dict[tuple[int, int], int]:
    """Return numbers by the hashes of constants of 16 bits."""
    hashes = exact_hash(L.constant_vector(np.arange(1 << 12, dtype=np.uint16)[None]))[:, 0]
    return {(int(low), int(high)): number for number, (low, high) in enumerate(hashes.T)}


def output_words(output: Output) -> list[int]:
    """Return the stored numbers, which are known by their hashes."""
    table = numbers_by_hash()
    return [table[int(low), int(high)] for low, high in output.words.T]


WAITS: Mapping[str, Callable[[int, Sequence[int]], bool]] = {
    **dict.fromkeys(("all", "twice", "weak", "tally"), lambda block, given: given[FLAG] < BLOCKS),
    **dict.fromkeys(("wait", "load", "count"), lambda block, given: given[FLAG] != block),
    "most": lambda block, given: given[FLAG] < BLOCKS - 1,
    "done": lambda block, given: given[COUNTER] < BLOCKS,
    "below": lambda block, given: given[FLAG] < block,
    "later": lambda block, given: given[FLAG] != BLOCKS - 1 - block,
    "next ready": lambda block, given: given[READY + (block + 1) % BLOCKS] != 1,
    "is read": lambda block, given: given[READ + block] != 1,
}
"""Whether a block waits on, by its number and the words of in."""

MAXIMUM_COUNT = 5
"""A block whose value is larger counts no further rounds of waiting."""

State = tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]


def all_outcomes(steps: Sequence[str]) -> set[tuple[int, ...]]:
    """Return out and the words of in that all interleavings of the blocks leave; waits are left out of them."""
    first: State = ((0,) * BLOCKS, tuple((block + 1, 0) for block in range(BLOCKS)), (0,) * (1 + WORDS))
    pending, seen, found = [first], {first}, set()
    while pending:
        state = pending.pop()
        following = [
            after
            for block in range(BLOCKS)
            if state[0][block] < len(steps)
            for after in after_step(steps, state, block)
        ]
        if all(each >= len(steps) for each in state[0]):
            found.add(state[2])
        for each in following:
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return found


def after_step(steps: Sequence[str], state: State, block: int) -> Iterator[State]:
    places, registers, memory = (list(each) for each in state)
    (value, ticket), name = registers[block], steps[places[block]]
    # Memory holds out, and then the words of in.
    counter, flag = 1 + COUNTER, 1 + FLAG
    target = places[block] + 1
    if name == "part":
        memory[1 + block] = value
    elif name in ("take", "inc", "relaxed", "block"):
        ticket = memory[counter]
        memory[counter] = 0 if name == "inc" and ticket >= BLOCKS - 1 else ticket + 1
    elif name in ("last", "second"):
        target = target if ticket == (BLOCKS - 1 if name == "last" else 1) else len(steps)
    elif name == "gather":
        for each in range(BLOCKS):
            value = 3 * value + memory[1 + each]
    elif name == "zero":
        value = 0
    elif name == "old":
        value += ticket
    elif name == "out":
        memory[0] = value
    elif name in ("reset", "swap"):
        memory[counter] = 0
    elif name == "own":
        memory[1 + OWN + block] = value
    elif name in ("arrive", "quiet", "two"):
        memory[flag] += 2 if name == "two" else 1
    elif name == "again":
        memory[counter] += 1
    elif name in WAITS:
        waits = WAITS[name](block, memory[1:])
        if name in ("count", "tally"):
            value += 1
        elif waits:
            return
        if waits and value > MAXIMUM_COUNT:
            return
        target -= waits
    elif name == "add":
        value = 3 * value + memory[0]
    elif name in ("pass", "set", "plain"):
        memory[flag] = block + 1
    elif name == "next":
        memory[flag] += 1
    elif name == "lower":
        memory[flag] = BLOCKS - block
    elif name == "ready":
        memory[1 + READY + block] = 1
    elif name == "fetch":
        value = 3 * value + memory[1 + (block + 1) % BLOCKS]
    elif name == "read":
        memory[1 + READ + (block + 1) % BLOCKS] = 1
    places[block], registers[block] = target, (value, ticket)
    yield tuple(places), tuple(registers), tuple(memory)


def mutants(steps: Sequence[str], draw: random.Random, count: int) -> set[tuple[str, ...]]:
    """Return the program with one step left out, moved, doubled or replaced, and some with two such changes."""

    def once(program: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for place, step in enumerate(program):
            rest = (*program[:place], *program[place + 1 :])
            yield rest
            yield (*program[:place], step, step, *program[place + 1 :])
            for other in range(len(rest) + 1):
                yield (*rest[:other], step, *rest[other:])
        for place, name in itertools.product(range(len(program)), STEPS):
            yield (*program[:place], name, *program[place + 1 :])

    single = sorted(set(once(tuple(steps))) - {tuple(steps)})
    chosen = set(draw.sample(single, min(count, len(single))))
    for each in draw.sample(single, min(count // 3, len(single))):
        chosen.add(draw.choice(list(once(each))))
    return chosen


@pytest.mark.parametrize("steps", DETERMINED)
def test_tickets_and_turns_are_determined(steps: tuple[str, ...]) -> None:
    found = outputs(launched(steps))
    assert found is not None
    assert {tuple(numbers(found))} == all_outcomes(steps)


@pytest.mark.parametrize("steps", DETERMINED, ids=" ".join)
def test_one_order_that_is_run_leaves_the_outcome_of_all(steps: tuple[str, ...]) -> None:
    (outcome,) = all_outcomes(steps)
    after = simulate_determined(launched(steps), {}).after
    words = [each.view(np.uint32).tolist() for each in (after["out"], after["in"])]
    assert (words[0][0], *words[1][:WORDS]) == outcome


@pytest.mark.parametrize("number", range(len(DETERMINED)))
def test_what_is_determined_is_the_one_outcome_of_all_interleavings(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Most mutants wait in vain in some order.  What blocks wait for is changed by stores, which begin a new count.
    monkeypatch.setattr(global_memory, "MAXIMUM_POLLS", 2 * MAXIMUM_COUNT)
    draw = random.Random(number)
    determined = 0
    for steps in sorted(mutants(DETERMINED[number], draw, 45)):
        found = outputs(launched(steps))
        if found is None:
            continue
        outcomes = all_outcomes(steps)
        # A kernel whose blocks all wait in vain leaves nothing.
        assert outcomes in ({tuple(numbers(found))}, set()), steps
        determined += 1
    assert determined, "no mutant is determined: the test compares nothing"


@pytest.mark.parametrize(
    "steps",
    [
        ("part", "take", "bar", "last", "zero", "gather", "out"),
        ("part", "bar", "take", "last", "zero", "gather", "out"),
        ("part", "bar", "relaxed", "bar", "last", "zero", "gather", "out"),
        ("part", "bar", "block", "bar", "last", "zero", "gather", "out"),
        ("bar", "take", "bar", "part", "bar", "last", "zero", "gather", "out"),
        ("part", "bar", "take", "bar", "second", "zero", "gather", "out"),
        ("part", "bar", "take", "bar", "last", "gather", "out"),
        ("part", "bar", "take", "bar", "zero", "old", "out"),
        ("wait", "add", "out", "bar", "pass"),
        ("wait", "bar", "add", "out", "pass"),
        ("wait", "bar", "add", "out", "bar", "plain"),
        ("count", "bar", "add", "out", "bar", "set"),
        ("part", "arrive", "bar", "all", "bar", "zero", "gather", "own"),
        ("part", "bar", "arrive", "bar", "all", "zero", "gather", "own"),
        ("part", "bar", "arrive", "bar", "bar", "zero", "gather", "own"),
        ("part", "bar", "arrive", "bar", "most", "bar", "zero", "gather", "own"),
        ("part", "bar", "two", "bar", "all", "bar", "zero", "gather", "own"),
        ("part", "bar", "quiet", "bar", "all", "bar", "zero", "gather", "own"),
        ("part", "bar", "arrive", "bar", "weak", "bar", "zero", "gather", "own"),
        ("part", "bar", "arrive", "bar", "tally", "bar", "gather", "own"),
        ("part", "bar", "take", "bar", "all", "bar", "old", "own"),
        ("part", "bar", "arrive", "bar", "all", "bar", "gather", "bar", "part"),
        ("part", "bar", "arrive", "bar", "all", "bar", "gather", "bar", "arrive", "bar", "all", "bar", "part"),
        ("arrive", "bar", "part", "bar", "all", "bar", "zero", "gather", "own"),
        ("part", "ready", "next ready", "bar", "fetch", "own"),
        ("part", "bar", "ready", "next ready", "fetch", "own"),
        ("part", "bar", "next ready", "bar", "ready"),
        ("part", "bar", "ready", "next ready", "bar", "fetch", "bar", "part"),
        ("part", "bar", "ready", "next ready", "bar", "fetch", "read", "is read", "bar", "part"),
    ],
    ids=["no barrier before", "no barrier after", "relaxed", "scope of a block", "part after the ticket",
         "second instead of last", "own number in the sum", "order of arrival", "no acquired barrier",
         "no released barrier", "plain flag", "counts the rounds", "no barrier before the arrival",
         "no barrier after the wait", "no wait", "one arrival too few", "an arrival counts as two", "relaxed arrival",
         "relaxed read", "counts the rounds of a wait", "order of arrivals", "stores what others read",
         "a counter of two barriers", "part after the arrival", "no barrier before the flag",
         "no barrier after the flag", "all wait in vain", "stores what a later block reads",
         "no barrier before the answer"],
)  # fmt: skip
def test_what_misses_an_order_is_not_determined(steps: tuple[str, ...]) -> None:
    assert outputs(launched(steps)) is None


def last_block(contributions: str, *, source: str = "ld.global.f32") -> str:
    """A sum over blocks of 64 threads: thread 0 takes the ticket, and the last block adds all contributions."""
    return f"""
mov.u32 %r1, %ctaid.x; shl.b32 %r2, %r1, 6; add.u32 %r2, %r2, %r0; mul.wide.u32 %d4, %r2, 4; mul.wide.u32 %d7, %r0, 4;
cvt.rn.f32.u32 %f1, %r2; add.s64 %d8, %d0, %d4; ld.global.f32 %f9, [%d8+4096]; add.f32 %f1, %f1, %f9;
st.global.f32 [%d8+8192], %f1; setp.eq.u32 %p2, %r0, 0; bar.sync 0;
@%p2 atom.acq_rel.gpu.global.add.u32 %r3, [%d1], 1;
@%p2 st.shared.u32 [room], %r3; bar.sync 0;
ld.shared.u32 %r4, [room]; setp.ne.u32 %p1, %r4, 3; @%p1 bra END;
mov.f32 %f2, 0f00000000; add.s64 %d9, %d0, %d7;
{contributions.replace("LOAD", source)}
st.global.f32 [%d9], %f2;
END:
"""


ASCENDING = "".join(f"LOAD %f3, [%d9+{8192 + 256 * each}]; add.f32 %f2, %f2, %f3;" for each in range(4))
DESCENDING = "".join(f"LOAD %f3, [%d9+{8192 + 256 * each}]; add.f32 %f2, %f2, %f3;" for each in (3, 2, 1, 0))


def of_threads(body: str) -> dict[int, Output] | None:
    ready = prepared(body, threads=64, blocks=4, dtype="fp32", shared=".shared .align 16 .b8 room[16];")
    return outputs(ready)


def test_a_fixed_order_of_the_last_block_is_the_canonical_form() -> None:
    first, again, other = (of_threads(last_block(each)) for each in (ASCENDING, ASCENDING, DESCENDING))
    assert first is not None
    assert again is not None
    assert other is not None
    assert np.array_equal(first[1].words, again[1].words)
    assert not np.array_equal(first[1].words, other[1].words)


def test_the_last_block_may_not_begin_with_its_own_contribution() -> None:
    assert of_threads(last_block("mov.f32 %f2, %f1;" + ASCENDING)) is None


def test_loads_of_the_read_only_cache_see_no_other_block() -> None:
    assert of_threads(last_block(ASCENDING, source="ld.global.nc.f32")) is None


EXCHANGE = "@%p2 atom.acq_rel.gpu.global.exch.b32 %r6, [%d1], 0;"


def test_the_last_block_may_exchange_the_content_of_its_counter() -> None:
    plain, exchanged = (of_threads(last_block(ASCENDING + each)) for each in ("", EXCHANGE))
    assert plain is not None
    assert exchanged is not None
    assert np.array_equal(plain[1].words, exchanged[1].words)
    assert 2 in plain
    assert 2 not in exchanged, "the counter is left with the number that the launch gives"


@pytest.mark.parametrize(
    "reset",
    [
        "setp.eq.u32 %p2, %r0, 0; @%p2 atom.acq_rel.gpu.global.exch.b32 %r6, [%d1], 0; @!%p1 bra REST; bra END; REST:",
        "@%p2 red.relaxed.gpu.global.add.u32 [%d1], -4;",
    ],
    ids=["every block", "an addition"],
)
def test_other_atomic_operations_on_a_counter_prove_nothing(reset: str) -> None:
    place = "@%p1 bra END;" if "REST" in reset else "END:"
    after = "" if "REST" in reset else "\nEND:"
    assert of_threads(last_block(ASCENDING).replace(place, reset + after)) is None


def test_lanes_with_one_content_may_store_it_together_after_the_last_ticket() -> None:
    """Lanes of a warp exchange a sum of parts in shared memory, each pair of them through one element."""
    pairs = "and.b32 %r7, %r0, 62; mul.wide.u32 %d7, %r7, 4; add.s64 %d9, %d0, %d7;"
    shared = "bar.sync 0; shl.b32 %r7, %r7, 2; mov.u32 %r8, room; add.u32 %r7, %r7, %r8; st.shared.f32 [%r7+16], %f2;"
    read = "bar.sync 0; ld.shared.f32 %f2, [%r7+16];"
    own = "mul.wide.u32 %d7, %r0, 4; add.s64 %d9, %d0, %d7;"
    body = last_block(f"{pairs} {ASCENDING} {shared} {read} {own}")
    other = body.replace(pairs, pairs + "and.b32 %r8, %r0, 1; mul.wide.u32 %d7, %r8, 4; add.s64 %d9, %d9, %d7;")
    one_content, two_contents = (
        prepared(each, threads=64, blocks=4, dtype="fp32", shared=".shared .align 16 .b8 room[512];")
        for each in (body, other)
    )
    assert outputs(replace(one_content, assume=frozenset({ANY_LANE}))) is not None
    assert outputs(one_content) is not None
    assert outputs(replace(two_contents, assume=frozenset({ANY_LANE}))) is None


def test_without_contents_of_the_counter_nothing_is_proved() -> None:
    ready = launched(TICKETS)
    arguments = tuple(each.model_copy(update={"values": None}) for each in ready.launch.args)
    launch = ready.launch.model_copy(update={"args": arguments})
    assert outputs(prepare_launch(ready.module, ARCH, launch)) is None


def test_a_launch_whose_blocks_wait_for_later_ones_ends() -> None:
    """Block 0 waits for a flag that the last block sets, which runs when the first one has stopped."""
    waits = "W: atom.acq_rel.gpu.global.cas.b32 %r4, [%d1], 1, 1; setp.ne.u32 %p1, %r4, 1; @%p1 bra W; bra END;"
    body = f"""mov.u32 %r1, %ctaid.x; setp.eq.u32 %p2, %r1, {BLOCKS - 1}; @%p2 bra S;
{waits}
S: mov.u32 %r4, 1; atom.acq_rel.gpu.global.exch.b32 %r5, [%d1], %r4;
END:"""
    found = outputs(prepared(body, threads=1, blocks=BLOCKS))
    assert found is not None


def test_many_strong_loads_of_different_elements_are_no_wait() -> None:
    body = """mov.u32 %r5, 0; mov.u64 %d4, %d1;
Q: ld.volatile.global.u32 %r4, [%d4]; and.b32 %r6, %r5, 15; mul.wide.u32 %d5, %r6, 4; add.s64 %d4, %d1, %d5;
add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 3000; @%p2 bra Q;
st.global.u32 [%d0], %r4;"""
    assert outputs(prepared(body, threads=1, blocks=1)) is not None


@pytest.mark.parametrize("arrives", [False, True])
def test_a_wait_that_arrives_at_an_mbarrier_is_not_determined(arrives: bool) -> None:
    """How often a block arrives while it waits for its turn depends on the order in which blocks run."""
    arrival = "mbarrier.arrive.shared.b64 %d9, [room];" if arrives else ""
    body = f"""mov.u32 %r1, %ctaid.x; add.u32 %r2, %r1, 1; mbarrier.init.shared.b64 [room], 9; bar.sync 0;
W: {arrival} ld.acquire.gpu.global.u32 %r4, [%d1]; setp.ne.u32 %p1, %r4, %r1; @%p1 bra W;
bar.sync 0; ld.global.u32 %r4, [%d0]; mad.lo.u32 %r2, %r2, 3, %r4; st.global.u32 [%d0], %r2; bar.sync 0;
add.u32 %r4, %r1, 1; st.release.gpu.global.u32 [%d1], %r4;
END:"""
    found = outputs(prepared(body, threads=1, blocks=BLOCKS, shared=".shared .align 8 .b8 room[16];"))
    assert (found is None) is arrives
