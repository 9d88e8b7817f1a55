"""Races leave undetermined values: random programs of two or three warps or blocks against all interleavings."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bitwise_core.execution.concrete import PreparedLaunch, checked_outputs, prepare_launch, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.interleavings import ORDERS, run_in_order
from bitwise_core.execution.launch import POINTER_SHIFT, Launch
from bitwise_core.execution.memory import global_memory, ordered_atomics, shared_updates
from bitwise_core.execution.memory.outputs import final_events
from bitwise_core.execution.memory.shared_updates import SharedUpdates
from bitwise_core.execution.memory.store_forwarding import Access
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.values import symbolic_vector as L
from covering import drawn_params
from ptx_programs import ARCH, hashes, store, text

CELLS, REGISTERS = 2, 2
ROOM = ".shared .align 16 .b8 room[4096];"


@dataclass(frozen=True)
class Step:
    """One step of an actor, or a barrier of all (`actor` None).

    ld and st access a cell, or with `byte` one of its bytes; set writes a number; exch, cas, inc and dec are atomic
    operations on a cell by the register, or by `number` and the register; radd, rmax and rxor are such operations that
    return nothing; the others combine two registers.
    """

    actor: int | None
    verb: str
    register: int = 0
    other: int = 0
    number: int = 0
    byte: int | None = None


_UPDATES = {
    "exch": lambda old, number, value: value,
    "cas": lambda old, number, value: value if old == number else old,
    "inc": lambda old, number, value: 0 if old >= value else old + 1,
    "dec": lambda old, number, value: value if old == 0 or old > value else old - 1,
}
_REDUCTIONS = {
    "radd": lambda old, value: (old + value) % 2**32,
    "rmax": max,
    "rxor": lambda old, value: old ^ value,
}
_COMBINED = {
    "add": lambda one, other: (one + other) % 2**32,
    "xor": lambda one, other: one ^ other,
    "and": lambda one, other: one & other,
    "min": min,
    "max": max,
    "prmt": lambda one, other: (one & 0xFFFF) | (other & 0xFFFF) << 16,
    "sel": lambda one, other: one if other & 1 else other,
}
_TEXTS = {
    "add": "add.u32 {0}, {0}, {1};", "xor": "xor.b32 {0}, {0}, {1};", "and": "and.b32 {0}, {0}, {1};",
    "min": "min.u32 {0}, {0}, {1};", "max": "max.u32 {0}, {0}, {1};", "prmt": "prmt.b32 {0}, {0}, {1}, 0x5410;",
}  # fmt: skip


def program(draw: random.Random, actors: int, barriers: bool, kind: str) -> list[Step]:
    """Return a random program; stored numbers are few, so that some races are of equal values."""
    found = []
    for _ in range(draw.randrange(4, 9)):
        if barriers and draw.random() < 0.25:
            found.append(Step(None, "bar"))
            continue
        verb = draw.choice(["ld", "ld", "ld", "st", "st", "st", "set", draw.choice(list(_COMBINED))])
        if kind == "atomic" and verb in ("ld", "st"):
            verb = draw.choice([verb, *_UPDATES])
        if kind == "reductions" and verb in ("ld", "st", "set"):
            verb = draw.choice([verb, *_REDUCTIONS, "radd"])
        place = draw.randrange(CELLS if verb in ("ld", "st", *_UPDATES, *_REDUCTIONS) else REGISTERS)
        byte = draw.choice([None, 0, 1]) if kind == "narrow" and verb in ("ld", "st") else None
        found.append(Step(draw.randrange(actors), verb, draw.randrange(REGISTERS), place, draw.randrange(3), byte))
    return found


def merges(sequences: Sequence[tuple[Step, ...]]) -> Iterator[tuple[Step, ...]]:
    """Yield all interleavings of the steps of several actors."""
    if not any(sequences):
        yield ()
        return
    for number, each in enumerate(sequences):
        if each:
            rest = [*sequences[:number], each[1:], *sequences[number + 1 :]]
            for tail in merges(rest):
                yield (each[0], *tail)


def outcomes(steps: Sequence[Step], actors: int) -> set[tuple[int, ...]]:
    """Return the registers, and then the cells, that all interleavings leave, by brute force; they are 0 before."""
    states = {((0,) * CELLS, tuple((actor + 1) % 3 for actor in range(actors) for _ in range(REGISTERS)))}
    segments: list[list[Step]] = [[]]
    for each in steps:
        if each.verb == "bar":
            segments.append([])
        else:
            segments[-1].append(each)
    for segment in segments:
        orders = set(merges([tuple(each for each in segment if each.actor == actor) for actor in range(actors)]))
        states = {_after(order, *state) for order in orders for state in states}
    return {(*registers, *cells) for cells, registers in states}


def _after(
    order: Sequence[Step], cells: tuple[int, ...], registers: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    memory, values = list(cells), list(registers)
    for each in order:
        assert each.actor is not None
        own = each.actor * REGISTERS + each.register
        shift = 8 * (each.byte or 0)
        mask = 2**32 - 1 if each.byte is None else 255
        if each.verb == "ld":
            values[own] = memory[each.other] >> shift & mask
        elif each.verb == "st":
            memory[each.other] = memory[each.other] & ~(mask << shift) | (values[own] & mask) << shift
        elif each.verb == "set":
            values[own] = each.number
        elif each.verb in _UPDATES:
            old = memory[each.other]
            memory[each.other] = _UPDATES[each.verb](old, each.number, values[own])
            values[own] = old
        elif each.verb in _REDUCTIONS:
            memory[each.other] = _REDUCTIONS[each.verb](memory[each.other], values[own])
        else:
            values[own] = _COMBINED[each.verb](values[own], values[each.actor * REGISTERS + each.other])
    return tuple(memory), tuple(values)


def body(steps: Sequence[Step], space: str, actor: str, actors: int) -> str:
    """Return the program as PTX: every lane has cells of its own, and each actor is a warp or a block."""
    lines = _begin(space, actor, actors)
    if space == "shared":
        lines += [f"@%p1 st.shared.u32 [%d6+{128 * cell}], 0;" for cell in range(CELLS)] + ["bar.sync 0;"]
    return "\n".join([*lines, *_instructions(steps, space), *_end()])


def body_of_blocks(own: Sequence[Sequence[Step]], common: Sequence[Step]) -> str:
    """Return a kernel of two blocks of two warps, with cells of their own: each executes its program, then another."""
    lines = ["mov.u32 %r6, %ctaid.x;", *_begin("global", "warp", 2)]
    lines += [f"mul.lo.u32 %r7, %r6, {128 * CELLS}; cvt.u64.u32 %d7, %r7; add.s64 %d6, %d6, %d7;"]
    lines += ["setp.ne.u32 %p8, %r6, 0;", "@%p8 bra OTHER;", *_instructions(own[0], "global"), "bra.uni JOIN;"]
    lines += ["OTHER:", *_instructions(own[1], "global"), "JOIN:", *_instructions(common, "global")]
    lines += ["shl.b32 %r6, %r6, 1; add.u32 %r1, %r1, %r6;"]
    return "\n".join([*lines, *_end()])


def body_of_sides(before: Sequence[Step], sides: Sequence[Sequence[Step]], after: Sequence[Step]) -> str:
    """Return a kernel of two warps that execute one of two programs, by data, between two common ones."""
    lines = [*_begin("global", "warp", 2), "ld.global.u32 %r6, [%d0+8192]; setp.eq.s32 %p8, %r6, 0;"]
    lines += [*_instructions(before, "global"), "@%p8 bra OTHER;", *_instructions(sides[0], "global"), "bra.uni JOIN;"]
    lines += ["OTHER:", *_instructions(sides[1], "global"), "JOIN:", *_instructions(after, "global")]
    return "\n".join([*lines, *_end()])


def _begin(space: str, actor: str, actors: int) -> list[str]:
    lines = [f"mov.u32 %r1, {actor};" if actor == "%ctaid.x" else "shr.u32 %r1, %r0, 5;", "and.b32 %r2, %r0, 31;"]
    lines += ["mul.lo.u32 %r3, %r2, 4; cvt.u64.u32 %d5, %r3;"]
    lines += ["mov.u64 %d6, room; add.s64 %d6, %d6, %d5;" if space == "shared" else "add.s64 %d6, %d1, %d5;"]
    lines += [f"add.u32 %r{10 + each}, %r1, 1; rem.u32 %r{10 + each}, %r{10 + each}, 3;" for each in range(REGISTERS)]
    return [*lines, *(f"setp.eq.u32 %p{1 + each}, %r1, {each};" for each in range(actors))]


def _end() -> list[str]:
    lines = [f"mul.lo.u32 %r4, %r1, {128 * REGISTERS}; cvt.u64.u32 %d7, %r4; add.s64 %d7, %d7, %d5;"]
    lines.append("add.s64 %d7, %d7, %d0;")
    return [*lines, *(f"st.global.u32 [%d7+{128 * each}], %r{10 + each};" for each in range(REGISTERS))]


def _instructions(steps: Sequence[Step], space: str) -> list[str]:
    lines = []
    for each in steps:
        if each.actor is None:
            lines.append("bar.sync 0;")
            continue
        guard, own = f"@%p{1 + each.actor} ", f"%r{10 + each.register}"
        other, kind = f"%r{10 + each.other}", "u32" if each.byte is None else "u8"
        place = f"[%d6+{128 * each.other + (each.byte or 0)}]"
        if each.verb == "sel":
            lines += [
                f"and.b32 %r5, {other}, 1; setp.ne.u32 %p9, %r5, 0;",
                f"{guard}selp.b32 {own}, {own}, {other}, %p9;",
            ]
        elif each.verb in _TEXTS:
            lines.append(guard + _TEXTS[each.verb].format(own, other))
        else:
            lines.append(guard + {
                "ld": f"ld.{space}.{kind} {own}, {place};",
                "st": f"st.{space}.{kind} {place}, {own};",
                "set": f"mov.u32 {own}, {each.number};",
                "exch": f"atom.{space}.exch.b32 {own}, {place}, {own};",
                "cas": f"atom.{space}.acq_rel.gpu.cas.b32 {own}, {place}, {each.number}, {own};",
                "inc": f"atom.{space}.inc.u32 {own}, {place}, {own};",
                "dec": f"atom.relaxed.{space}.dec.u32 {own}, {place}, {own};",
                "radd": f"red.{space}.add.u32 {place}, {own};",
                "rmax": f"atom.relaxed.{space}.max.u32 _, {place}, {own};",
                "rxor": f"red.{space}.xor.b32 {place}, {own};",
            }[each.verb])  # fmt: skip
    return lines


def launch(threads: int, blocks: int, cells: int = CELLS) -> Launch:
    """Return the launch of a program; global cells are zero before it."""
    entry = {"file": "k.ptx", "entry": "k", "grid": [blocks], "block": [threads], "args": [
        {"buffer": "out", "dtype": "i32"}, {"buffer": "in", "dtype": "i32", "values": [0] * (32 * cells)},
    ]}  # fmt: skip
    return Launch.model_validate(entry)


CASES = [
    ("shared", "warp", 2, "words"),
    ("shared", "warp", 2, "narrow"),
    ("shared", "warp", 3, "narrow"),
    ("shared", "warp", 2, "reductions"),
    ("shared", "warp", 3, "reductions"),
    ("global", "warp", 2, "words"),
    ("global", "warp", 2, "narrow"),
    ("global", "%ctaid.x", 2, "words"),
    ("global", "%ctaid.x", 2, "narrow"),
    ("global", "warp", 2, "atomic"),
    ("global", "warp", 3, "atomic"),
    ("global", "%ctaid.x", 2, "atomic"),
    ("global", "warp", 2, "reductions"),
    ("global", "warp", 3, "reductions"),
    ("global", "%ctaid.x", 3, "reductions"),
]


PARTS = [
    pytest.param(*case, part, marks=pytest.mark.exhaustive if part and case[0] == "global" else ())
    for case in CASES
    for part in range(3)
]
"""The cases with parts of their random programs.  Races of shared memory are rare in programs, and need all parts."""


@pytest.mark.parametrize(("space", "actor", "actors", "kind", "part"), PARTS)
def test_a_determined_result_is_that_of_every_interleaving(
    space: str, actor: str, actors: int, kind: str, part: int
) -> None:
    draw = random.Random(f"{space} {actor} {actors} {kind} {part}")
    proved = missed = differing = seen = 0
    for _ in range(24 if kind == "reductions" else 15):
        steps = program(draw, actors, actor == "warp", kind)
        expected = outcomes(steps, actors)
        count = actors * REGISTERS
        if space == "shared":
            expected = {each[:count] for each in expected}
        threads, blocks = (32, actors) if actor == "%ctaid.x" else (32 * actors, 1)
        code = text(body(steps, space, actor, actors), threads=threads, shared=ROOM)
        prepared = prepare_launch(ARCH.parse(code, "k.ptx"), ARCH, launch(threads, blocks))
        known = _stored(prepared, count, 0 if space == "shared" else CELLS)
        if known is None:
            missed += len(expected) == 1
            differing += len(expected) > 1
        else:
            assert expected == {known}, steps
            proved += 1
        runs = set()
        for order in ORDERS:
            after = run_in_order(prepared, {"out": np.zeros(4096, np.uint8)}, order).after
            words = after["out"].view(np.uint32).reshape(-1, 32)[:count]
            if space == "global":
                words = np.concatenate([words, after["in"].view(np.uint32).reshape(-1, 32)[:CELLS]])
            assert (words == words[:, :1]).all()
            runs.add(tuple(words[:, 0].tolist()))
        assert runs <= expected, steps
        seen += len(runs) > 1
    assert min(proved, differing) >= 1
    assert 2 * seen >= differing


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("skipped", [0, 1])
def test_blocks_that_pass_different_barriers_are_ordered_by_their_own(skipped: int, part: int) -> None:
    """One block executes a program with more barriers than the other; then both execute one."""
    draw = random.Random(f"blocks {skipped} {part}")
    proved = missed = 0
    for _ in range(20):
        own: list[Sequence[Step]] = [program(draw, 2, True, "words")[:5] for _ in range(2)]
        own[skipped] = [each for each in own[skipped] if each.actor is not None]
        common = program(draw, 2, True, "words")[:5]
        after = [outcomes([*each, *common], 2) for each in own]
        code = text(body_of_blocks(own, common), threads=64, shared=ROOM)
        prepared = prepare_launch(ARCH.parse(code, "k.ptx"), ARCH, launch(64, 2, 2 * CELLS))
        known = _stored(prepared, 4 * REGISTERS, 2 * CELLS)
        if known is None:
            missed += all(len(each) == 1 for each in after)
            continue
        registers = 2 * REGISTERS
        found = [
            known[block * registers : (block + 1) * registers]
            + known[2 * registers + block * CELLS : 2 * registers + (block + 1) * CELLS]
            for block in range(2)
        ]
        assert [{each} for each in found] == after, (own, common)
        proved += 1
    assert proved >= 4
    assert missed <= 4


@pytest.mark.parametrize("seed", drawn_params(range(3), lambda seed: seed == 0))
def test_a_result_behind_a_branch_on_data_is_determined_only_if_it_is_on_both_sides(seed: int) -> None:
    draw = random.Random(f"sides {seed}")
    proved = missed = 0
    for _ in range(60):
        before, *sides, after = (program(draw, 2, True, "words")[: draw.randrange(1, 5)] for _ in range(4))
        results = [outcomes([*before, *side, *after], 2) for side in sides]
        code = text(body_of_sides(before, sides, after), threads=64, shared=ROOM)
        prepared = prepare_launch(ARCH.parse(code, "k.ptx"), ARCH, launch(64, 1))
        try:
            checked_outputs(*run_blocks(prepared, TermDomain(), {"out": 1, "in": 2}))
        except Unsupported:
            missed += all(len(each) == 1 for each in results)
            continue
        assert [len(each) for each in results] == [1, 1], (before, sides, after)
        proved += 1
    assert proved >= 12
    assert missed <= 12


@pytest.mark.parametrize(("between", "determined"), [("bar.sync 0;", True), ("", False)])
def test_a_block_that_skips_barriers_leaves_those_of_others(between: str, determined: bool) -> None:
    """Each warp replaces what the other one has read; the second block does nothing."""
    lines = ["mov.u32 %r6, %ctaid.x; setp.ne.u32 %p8, %r6, 0; @%p8 bra END;"]
    lines += ["mul.lo.u32 %r3, %r0, 4; cvt.u64.u32 %d5, %r3; add.s64 %d6, %d1, %d5; ld.global.u32 %r4, [%d6];"]
    lines += ["add.u32 %r4, %r4, %r0;", between, "xor.b32 %r3, %r0, 32; mul.lo.u32 %r3, %r3, 4;"]
    lines += ["cvt.u64.u32 %d5, %r3; add.s64 %d6, %d1, %d5; st.global.u32 [%d6], %r4;", "END:"]
    prepared = prepare_launch(ARCH.parse(text("\n".join(lines), threads=64), "k.ptx"), ARCH, launch(64, 2))
    assert _stored(prepared, 0, CELLS) == ((32, 0) if determined else None)


def _no_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accesses of shared memory are not ordered with atomic operations."""
    monkeypatch.setattr(RaceDetector, "_after_updates", lambda self, cells, *of: np.ones(cells.size, dtype=bool))


def _one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """All atomic operations on shared memory are taken to commute."""
    ordered = SharedUpdates.ordered

    def commuting(self: SharedUpdates, *of: Any) -> Any:
        return ordered(self, *of) if of[-1] is None else np.ones(of[0].size, dtype=bool)

    monkeypatch.setattr(SharedUpdates, "ordered", commuting)


def _own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Atomic operations that commute are loads and stores of a thread that has other accesses."""
    monkeypatch.setattr(global_memory, "further_thread", lambda thread: thread >> 20 << 20 | thread & 31)


def _any_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """All atomic operations on global memory are taken to commute with each other."""

    def elements(atomics: Sequence[tuple[str, Access]]) -> Any:
        return np.unique(np.concatenate([event.address for _, event in atomics]))

    monkeypatch.setattr(ordered_atomics, "_commuting_elements", elements)
    # The execution checks it again.
    nothing = property(lambda memory: [], lambda memory, value: None)
    monkeypatch.setattr(global_memory.GlobalMemory, "_combined", nothing, raising=False)


_ADD, _MAX = Step(0, "radd"), Step(1, "rmax")
_READ = [Step(None, "bar"), Step(0, "ld")]
UNORDERED = [
    (_no_updates, "shared", [_ADD, Step(1, "radd"), Step(0, "ld")]),
    (_no_updates, "shared", [_ADD, Step(1, "st"), *_READ]),
    (_one_operation, "shared", [_ADD, _MAX, *_READ]),
    (_own_threads, "global", [Step(0, "st"), _ADD, Step(1, "radd"), *_READ]),
    (_any_operations, "global", [_ADD, _MAX, *_READ]),
]


@pytest.mark.parametrize(("mutate", "space", "steps"), UNORDERED)
def test_atomic_operations_without_an_order_are_found_by_one_rule(
    mutate: Callable[[pytest.MonkeyPatch], None], space: str, steps: Sequence[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the rule, a result would be proved that another interleaving does not have."""
    code = text(body(steps, space, "warp", 2), threads=64, shared=ROOM)
    prepared = prepare_launch(ARCH.parse(code, "k.ptx"), ARCH, launch(64, 1))
    registers, cells = 2 * REGISTERS, 0 if space == "shared" else CELLS
    assert len({each[: registers + cells] for each in outcomes(steps, 2)}) > 1
    assert _stored(prepared, registers, cells) is None
    mutate(monkeypatch)
    assert _stored(prepared, registers, cells) is not None


def test_a_cell_that_two_operations_have_updated_is_of_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warp that adds after its maximum commutes with another that adds, but its maximum does not."""
    code = f"""
mov.u32 %r2, room; and.b32 %r3, %r0, 31; mad.lo.u32 %r2, %r3, 4, %r2; setp.lt.u32 %p1, %r0, 32; mov.b32 %r4, 0;
@%p1 st.shared.b32 [%r2], %r4; bar.sync 0; @!%p1 bra OTHER;
red.shared.max.u32 [%r2], %r0; bar.warp.sync -1; red.shared.add.u32 [%r2], 2; bra READ;
OTHER: red.shared.add.u32 [%r2], 3;
READ: bar.sync 0; ld.shared.b32 %r5, [%r2]; {store("%r5", 32)}"""
    with pytest.raises(Unsupported, match=r"race|order"):
        hashes(code, threads=64, shared=ROOM)
    monkeypatch.setattr(shared_updates, "_SEVERAL", 2)
    assert hashes(code, threads=64, shared=ROOM)


def _stored(prepared: PreparedLaunch, registers: int, cells: int) -> tuple[int, ...] | None:
    """Return the registers and cells that a launch provably leaves, None where they are not proved determined."""
    try:
        memory, scratch = run_blocks(prepared, TermDomain(), {"out": 1, "in": 2})
        checked_outputs(memory, scratch)
    except Unsupported:
        return None
    found: dict[int, int | None] = {(2 << POINTER_SHIFT) + place: 0 for place in range(128 * cells)}
    for event in (*final_events(memory, 1), *final_events(memory, 2)):
        assert event.value is not None
        # A later store may replace a number that is not determined.
        known = np.broadcast_to(np.ravel(L.constant_mask(event.value)), event.address.shape)
        numbers = np.broadcast_to(event.value.words[0, 0], event.address.shape)
        for at, number, is_known in zip(event.address, numbers, known, strict=True):
            for byte in range(event.bits // 8):
                found[int(at) + byte] = int(number) >> 8 * byte & 255 if is_known else None
    places = [(1 << POINTER_SHIFT) + 128 * each for each in range(registers)]
    places += [(2 << POINTER_SHIFT) + 128 * each for each in range(cells)]
    left = [found[place + byte] for place in places for byte in range(4)]
    known_bytes = [each for each in left if each is not None]
    assert len(known_bytes) == len(left)
    return tuple(np.array(known_bytes, np.uint8).view(np.uint32).tolist())
