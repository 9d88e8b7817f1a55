"""Decoupled look-back: programs and their mutants against all interleavings, and sums of data."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from bitwise_core.checker.analysis import outputs_of_all_blocks
from bitwise_core.checker.sources import Options
from bitwise_core.execution.concrete import PreparedLaunch, prepare_launch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT, Argument, Launch
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.synchronised_blocks.way_memory import WayMemory
from bitwise_core.execution.tensor_contents import tensor_contents
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.term_hash import exact_hash
from ptx_programs import ARCH, text

BLOCKS = 3
FLAGS, PARTS, SUMS = 0, BLOCKS, 2 * BLOCKS
"""The places in the second buffer of the flags, of the blocks' own parts, and of the sums up to each block."""

PTX = {
    "part": f"st.global.u32 [%d4+{4 * PARTS}], %r2;",
    "bar": "bar.sync 0;",
    "one": f"mov.u32 %r9, 1; atom.release.gpu.global.exch.b32 %r8, [%d4+{4 * FLAGS}], %r9;",
    "two": f"mov.u32 %r9, 2; atom.release.gpu.global.exch.b32 %r8, [%d4+{4 * FLAGS}], %r9;",
    "read": "W{0}: ld.acquire.gpu.global.u32 %r5, [%d5]; setp.eq.u32 %p1, %r5, 0; @%p1 bra W{0};",
    "peek": "ld.acquire.gpu.global.u32 %r5, [%d5];",
    "tally": "W{0}: add.u32 %r3, %r3, 1; ld.acquire.gpu.global.u32 %r5, [%d5];"
    " setp.eq.u32 %p1, %r5, 0; @%p1 bra W{0};",
    "add": f"mul.wide.u32 %d6, %r5, {4 * BLOCKS}; add.s64 %d6, %d5, %d6; ld.global.u32 %r6, [%d6];"
    " add.u32 %r3, %r3, %r6;",
    "mix": f"mul.wide.u32 %d6, %r5, {4 * BLOCKS}; add.s64 %d6, %d5, %d6; ld.global.u32 %r6, [%d6];"
    " mad.lo.u32 %r3, %r3, 3, %r6;",
    "count": "add.u32 %r3, %r3, 1;",
    "next": "setp.eq.u32 %p2, %r5, 2; @%p2 bra DONE; sub.u32 %r4, %r4, 1; sub.s64 %d5, %d5, 4; bra LOOK;",
    "sum": f"add.u32 %r7, %r3, %r2; st.global.u32 [%d4+{4 * SUMS}], %r7;",
    "own": f"st.global.u32 [%d4+{4 * SUMS}], %r3;",
    "out": "st.global.u32 [%d7], %r3;",
    "weak": "W{0}: ld.relaxed.gpu.global.u32 %r5, [%d5]; setp.eq.u32 %p1, %r5, 0; @%p1 bra W{0};",
    "quiet": f"mov.u32 %r9, 2; atom.relaxed.gpu.global.exch.b32 %r8, [%d4+{4 * FLAGS}], %r9;",
}  # fmt: skip
"""What a block does before it looks back, in each round of looking back, and after it."""

Program = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
LOOK_BACK: Program = (
    ("part", "bar", "one", "bar"),
    ("read", "bar", "add", "bar", "next"),
    ("bar", "sum", "bar", "two", "out"),
)
INTERLEAVED = ("part", "bar", "one", "two", "read", "peek", "tally", "add", "mix", "count", "next", "sum", "own", "out")
"""The steps that act alike in all orders of memory that the interleavings have."""


def launched(program: Program) -> PreparedLaunch:
    before, rounds, after = program
    number = itertools.count()
    lines = ["mov.u32 %r1, %ctaid.x; add.u32 %r2, %r1, 1; mov.u32 %r3, 0; mul.wide.u32 %d4, %r1, 4; mov.u32 %r4, %r1;"]
    lines += ["add.s64 %d7, %d0, %d4; add.s64 %d4, %d1, %d4; sub.s64 %d5, %d4, 4; mov.u32 %r5, 0;"]
    lines += [PTX[each].format(next(number)) for each in before]
    lines += ["LOOK: setp.eq.u32 %p3, %r4, 0; @%p3 bra DONE;"]
    lines += [PTX[each].format(next(number)) for each in rounds]
    lines += ["DONE:", *(PTX[each].format(next(number)) for each in after)]
    return prepared("\n".join(lines), threads=1)


def prepared(body: str, *, threads: int, blocks: int = BLOCKS, given: bool = True) -> PreparedLaunch:
    zeros = tensor_contents([0] * 64, "u32", None)
    arguments = (
        Argument(kind="buffer", buffer="out", dtype="u32", values=zeros if given else None),
        Argument(kind="buffer", buffer="in", dtype="u32", values=zeros),
    )
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments)
    shared = ".shared .align 16 .b8 room[64];"
    return prepare_launch(ARCH.parse(text(body, threads=threads, shared=shared), "k.ptx"), ARCH, launch)


def outputs(ready: PreparedLaunch) -> dict[int, Output] | None:
    try:
        return outputs_of_all_blocks(ready, {"out": 1, "in": 2}, Options())
    except Unsupported:
        return None


def numbers(found: dict[int, Output]) -> tuple[int, ...]:
    """Return the first words of out and the words of in, which are numbers below 4096 in pairs of halves."""
    hashes = exact_hash(L.constant_vector(np.arange(1 << 12, dtype=np.uint16)[None]))[:, 0]
    table = {(int(low), int(high)): number for number, (low, high) in enumerate(hashes.T)}
    content = np.zeros((2, 256), dtype=np.uint8)
    for buffer, output in found.items():
        for place, size, word in zip(output.address, output.size, output.words.T, strict=True):
            offset = int(place) & ((1 << POINTER_SHIFT) - 1)
            number = table[int(word[0]), int(word[1])].to_bytes(8, "little")[: int(size)]
            content[buffer - 1, offset : offset + int(size)] = np.frombuffer(number, dtype=np.uint8)
    out, given = (row.view(np.uint32).tolist() for row in content)
    return (*out[:BLOCKS], *given[: 3 * BLOCKS])


Block = tuple[int, int, int, int]
"""The next step of a block, its sum, the block at which it looks, and the flag that it has read."""
State = tuple[tuple[Block, ...], tuple[int, ...]]

MAXIMUM_COUNT = 12
"""A block whose sum is larger waits no more: rounds that count would have no end."""


def all_outcomes(program: Program) -> set[tuple[int, ...]]:
    """Return out, the flags, the parts and the sums that all interleavings of the blocks leave."""
    steps = (*program[0], "LOOK", *program[1], "DONE", *program[2])
    first: State = (tuple((0, 0, block, 0) for block in range(BLOCKS)), (0,) * (4 * BLOCKS))
    pending, seen, found = [first], {first}, set()
    while pending:
        state = pending.pop()
        if all(each[0] >= len(steps) for each in state[0]):
            found.add(state[1])
        for block in range(BLOCKS):
            for after in after_step(steps, state, block):
                if after not in seen:
                    seen.add(after)
                    pending.append(after)
    return found


def after_step(steps: Sequence[str], state: State, block: int) -> Iterator[State]:
    blocks, memory = list(state[0]), list(state[1])
    place, total, target, flag = blocks[block]
    if place >= len(steps):
        return
    name, flags = steps[place], BLOCKS
    place += 1
    if name in ("read", "peek", "tally"):
        content = memory[flags + target - 1]
        total += name == "tally"
        if content == 0 and name != "peek":
            if name == "read" or total > MAXIMUM_COUNT:
                return
            place -= 1
        flag = content
    elif name == "LOOK":
        place = place if target else steps.index("DONE") + 1
    elif name in ("add", "mix"):
        read = memory[flags + flag * BLOCKS + target - 1]
        total = (3 * total if name == "mix" else total) + read
    elif name == "count":
        total += 1
    elif name == "next":
        if flag == 2:
            place = steps.index("DONE") + 1
        else:
            place, target = steps.index("LOOK"), target - 1
    elif name == "out":
        memory[block] = total
    elif name in ("one", "two"):
        memory[flags + block] = 1 + (name == "two")
    elif name in ("part", "sum", "own"):
        memory[flags + (PARTS if name == "part" else SUMS) + block] = total * (name != "part") + (block + 1) * (
            name != "own"
        )
    blocks[block] = (place, total, target, flag)
    yield tuple(blocks), tuple(memory)


def mutants(draw: random.Random, count: int) -> set[Program]:
    """Return programs with one or two steps left out, doubled, moved or replaced."""
    found: set[Program] = set()
    while len(found) < count:
        parts = [list(each) for each in LOOK_BACK]
        for _ in range(draw.choice((1, 1, 2))):
            part = draw.choice([each for each in parts if each])
            place = draw.randrange(len(part))
            change = draw.choice(("drop", "double", "replace", "move"))
            step = part.pop(place)
            if change == "double":
                part[place:place] = [step, step]
            elif change == "replace":
                part.insert(place, draw.choice([each for each in INTERLEAVED if each != "next"]))
            elif change == "move":
                other = draw.choice(parts)
                other.insert(draw.randrange(len(other) + 1), step)
        inside = [each for part in (parts[0], parts[2]) for each in part]
        # Only the rounds of looking back may read flags, and they end in the jump to the next round.
        if (
            parts[1].count("next") == 1
            and parts[1][-1] == "next"
            and not {"read", "peek", "tally", "add", "mix"} & set(inside)
        ):
            found.add((tuple(parts[0]), tuple(parts[1]), tuple(parts[2])))
    return found - {LOOK_BACK}


def test_look_back_is_determined() -> None:
    found = outputs(launched(LOOK_BACK))
    assert found is not None
    assert {numbers(found)} == all_outcomes(LOOK_BACK)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_determined_is_the_one_outcome_of_all_interleavings(seed: int) -> None:
    determined = 0
    for program in sorted(mutants(random.Random(seed), 20)):
        found = outputs(launched(program))
        if found is None:
            continue
        # A kernel whose blocks all wait in vain leaves nothing.
        assert all_outcomes(program) in ({numbers(found)}, set()), program
        determined += 1
    assert determined, "no mutant is determined: the test compares nothing"


@pytest.mark.parametrize(
    "program",
    [
        (LOOK_BACK[0], ("read", "bar", "mix", "bar", "next"), LOOK_BACK[2]),
        (LOOK_BACK[0], ("tally", "bar", "add", "bar", "next"), LOOK_BACK[2]),
        (LOOK_BACK[0], LOOK_BACK[1], ("bar", "own", "bar", "two", "out")),
        (("part", "one", "bar"), LOOK_BACK[1], LOOK_BACK[2]),
        (("bar", "one", "bar", "part"), LOOK_BACK[1], LOOK_BACK[2]),
        (LOOK_BACK[0], ("weak", "bar", "add", "bar", "next"), LOOK_BACK[2]),
        (LOOK_BACK[0], ("read", "add", "bar", "next"), LOOK_BACK[2]),
        (LOOK_BACK[0], LOOK_BACK[1], ("bar", "two", "bar", "sum", "out")),
        (LOOK_BACK[0], LOOK_BACK[1], ("bar", "sum", "bar", "quiet", "out")),
        (LOOK_BACK[0], LOOK_BACK[1], ("bar", "sum", "bar", "two", "bar", "part", "out")),
    ],
    ids=["order of the parts", "rounds of a wait", "sums without the own part", "no barrier before the flag",
         "part after the flag", "relaxed read", "no barrier after the read", "sum after the flag", "relaxed flag",
         "the part is stored again"],
)  # fmt: skip
def test_what_misses_an_order_is_not_determined(program: Program) -> None:
    assert outputs(launched(program)) is None


def of_data(*, verb: str, kind: str) -> dict[int, Output] | None:
    """A look-back over one word of data for each block, whose flags and parts are words of 64 bits."""
    body = f"""
mov.u32 %r1, %ctaid.x; mul.wide.u32 %d4, %r1, 4; add.s64 %d7, %d0, %d4; ld.global.u32 %r2, [%d7+1024];
mul.wide.u32 %d8, %r1, 8; add.s64 %d4, %d1, %d8; mov.u32 %r3, 0; mov.u32 %r4, %r1; sub.s64 %d5, %d4, 8;
mov.u32 %r9, 1; mov.b64 %d6, {{%r2, %r9}}; atom.relaxed.gpu.global.exch.b64 %d9, [%d4], %d6; bar.sync 0;
LOOK: setp.eq.u32 %p3, %r4, 0; @%p3 bra DONE;
W: ld.acquire.gpu.global.u64 %d6, [%d5]; mov.b64 {{%r6, %r5}}, %d6; setp.eq.u32 %p1, %r5, 0; @%p1 bra W;
bar.sync 0; {verb} %{kind}3, %{kind}3, %{kind}6;
setp.eq.u32 %p2, %r5, 2; @%p2 bra DONE; sub.u32 %r4, %r4, 1; sub.s64 %d5, %d5, 8; bra LOOK;
DONE: {verb} %{kind}7, %{kind}3, %{kind}2; mov.u32 %r9, 2; mov.b64 %d6, {{%r7, %r9}};
atom.relaxed.gpu.global.exch.b64 %d9, [%d4], %d6; st.global.u32 [%d7], %r3;"""
    if kind == "f":
        body = body.replace("%f", "%r")
    return outputs(prepared(body.replace("; ", ";\n"), threads=1, given=False))


def test_sums_of_integers_have_one_form_in_all_ways_and_sums_of_floats_do_not() -> None:
    assert of_data(verb="add.u32", kind="r") is not None
    assert of_data(verb="add.rn.f32", kind="f") is None
    assert of_data(verb="max.s32", kind="r") is not None


def test_many_ways_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitwise_core.execution.synchronised_blocks.way_memory.MAXIMUM_WAYS", 5)
    assert outputs(launched(LOOK_BACK)) is None


def test_equal_states_are_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of looking back that finds the flag by either of two reads goes on in one state."""
    ways: list[int] = []
    run = WayMemory.run_blocks

    def counted(memory: WayMemory, executions: Sequence[Callable[[], None]]) -> None:
        run(memory, executions)
        ways.append(memory.ways)

    monkeypatch.setattr(WayMemory, "run_blocks", counted)
    program = (LOOK_BACK[0], ("peek", "bar", "read", "bar", "add", "bar", "next"), LOOK_BACK[2])
    found = outputs(launched(program))
    assert found is not None
    assert {numbers(found)} == all_outcomes(program)
    assert max(ways) == 1 + 5 + 9
    ways.clear()
    monkeypatch.setattr(WayMemory, "_note_state", lambda *arguments: None)
    assert outputs(launched(program)) is not None
    assert max(ways) == 1 + 5 + 13


OF_THREE_BLOCKS = """mov.u32 %r1, %ctaid.x; mul.wide.u32 %d4, %r1, 4; add.s64 %d7, %d0, %d4; mov.u32 %r9, 1;
setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1;
@!%p1 bra B;
"""


@pytest.mark.parametrize("loaded", ["u32 %r5, [%d1+4];", "u64 %d5, [%d1]; mov.b64 {%r6, %r5}, %d5;"])
def test_a_flag_that_shares_bytes_with_another_is_not_determined(loaded: str) -> None:
    body = f"""{OF_THREE_BLOCKS}mov.b64 %d6, {{%r9, %r9}}; atom.release.gpu.global.exch.b64 %d9, [%d1], %d6; bra E;
B: @!%p2 bra E; ld.acquire.gpu.global.{loaded} st.global.u32 [%d7], %r5;
E:"""
    assert outputs(prepared(body.replace("; ", ";\n"), threads=1)) is None


@pytest.mark.parametrize("again", ["", "ld.acquire.gpu.global.u32 %r5, [%d1];"])
def test_an_order_of_a_store_and_a_flag_is_part_of_the_state(again: str) -> None:
    """By the first read, block 1 sets the flag of block 2 before it stores the data, or after."""
    body = f"""{OF_THREE_BLOCKS}atom.relaxed.gpu.global.exch.b32 %r8, [%d1], %r9; bra E;
B: @!%p2 bra C; ld.acquire.gpu.global.u32 %r5, [%d1]; bar.sync 0; mov.u32 %r6, 0;
L: setp.eq.u32 %p3, %r6, %r5; mov.u32 %r4, 42;
@!%p3 bra O;
st.global.u32 [%d1+64], %r4; bra J;
O: atom.release.gpu.global.exch.b32 %r8, [%d1+4], %r9;
J: bar.sync 0; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 2; @%p3 bra L;
mov.u32 %r6, 0; mov.u32 %r8, 0;
W: ld.acquire.gpu.global.u32 %r5, [%d1]; setp.eq.u32 %p3, %r5, 0; @%p3 bra W;
bar.sync 0; {again} bra E;
C: ld.acquire.gpu.global.u32 %r5, [%d1+4]; setp.eq.u32 %p3, %r5, 0; @%p3 bra C;
bar.sync 0; ld.global.u32 %r5, [%d1+64]; st.global.u32 [%d7], %r5;
E:"""
    assert outputs(prepared(body.replace("; ", ";\n"), threads=1)) is None
