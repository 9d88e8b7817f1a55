"""Races leave undetermined values: random programs of two or three warps or blocks against all interleavings."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from bitwise_core.execution.concrete import PreparedLaunch, checked_outputs, prepare_launch, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.interleavings import ORDERS, bytes_in_order
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.values import symbolic_vector as L
from ptx_programs import ARCH, text

CELLS, REGISTERS = 2, 2
ROOM = ".shared .align 16 .b8 room[4096];"


@dataclass(frozen=True)
class Step:
    """One step of an actor, or a barrier of all (`actor` None): `verb` is ld, st, add, set or bar."""

    actor: int | None
    verb: str
    register: int = 0
    other: int = 0
    number: int = 0


def program(draw: random.Random, actors: int, barriers: bool) -> list[Step]:
    """Return a random program; stored numbers are few, so that some races are of equal values."""
    found = []
    for _ in range(draw.randrange(4, 9)):
        if barriers and draw.random() < 0.25:
            found.append(Step(None, "bar"))
            continue
        verb = draw.choice(["ld", "ld", "ld", "st", "st", "st", "add", "set"])
        place = draw.randrange(CELLS if verb in ("ld", "st") else REGISTERS)
        found.append(Step(draw.randrange(actors), verb, draw.randrange(REGISTERS), place, draw.randrange(3)))
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
    """Return the registers that all interleavings leave, by brute force; memory is zero before."""
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
    return {registers for _, registers in states}


def _after(
    order: Sequence[Step], cells: tuple[int, ...], registers: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    memory, values = list(cells), list(registers)
    for each in order:
        assert each.actor is not None
        own = each.actor * REGISTERS + each.register
        if each.verb == "ld":
            values[own] = memory[each.other]
        elif each.verb == "st":
            memory[each.other] = values[own]
        elif each.verb == "add":
            values[own] = (values[own] + values[each.actor * REGISTERS + each.other]) % 2**32
        else:
            values[own] = each.number
    return tuple(memory), tuple(values)


def body(steps: Sequence[Step], space: str, actor: str, actors: int) -> str:
    """Return the program as PTX: every lane has cells of its own, and each actor is a warp or a block."""
    lines = [f"mov.u32 %r1, {actor};" if actor == "%ctaid.x" else "shr.u32 %r1, %r0, 5;", "and.b32 %r2, %r0, 31;"]
    lines += ["mul.lo.u32 %r3, %r2, 4; cvt.u64.u32 %d5, %r3;"]
    lines += ["mov.u64 %d6, room; add.s64 %d6, %d6, %d5;" if space == "shared" else "add.s64 %d6, %d1, %d5;"]
    lines += [f"add.u32 %r{10 + each}, %r1, 1; rem.u32 %r{10 + each}, %r{10 + each}, 3;" for each in range(REGISTERS)]
    lines += [f"setp.eq.u32 %p{1 + each}, %r1, {each};" for each in range(actors)]
    if space == "shared":
        lines += [f"@%p1 st.shared.u32 [%d6+{128 * cell}], 0;" for cell in range(CELLS)] + ["bar.sync 0;"]
    for each in steps:
        if each.actor is None:
            lines.append("bar.sync 0;")
            continue
        guard, own = f"@%p{1 + each.actor} ", f"%r{10 + each.register}"
        lines.append(guard + {
            "ld": f"ld.{space}.u32 {own}, [%d6+{128 * each.other}];",
            "st": f"st.{space}.u32 [%d6+{128 * each.other}], {own};",
            "add": f"add.u32 {own}, {own}, %r{10 + each.other};",
            "set": f"mov.u32 {own}, {each.number};",
        }[each.verb])  # fmt: skip
    lines.append(f"mul.lo.u32 %r4, %r1, {128 * REGISTERS}; cvt.u64.u32 %d7, %r4; add.s64 %d7, %d7, %d5;")
    lines.append("add.s64 %d7, %d7, %d0;")
    lines += [f"st.global.u32 [%d7+{128 * each}], %r{10 + each};" for each in range(REGISTERS)]
    return "\n".join(lines)


def launch(threads: int, blocks: int) -> Launch:
    """Return the launch of a program; global cells are zero before it."""
    entry = {"file": "k.ptx", "entry": "k", "grid": [blocks], "block": [threads], "args": [
        {"buffer": "out", "dtype": "i32"}, {"buffer": "in", "dtype": "i32", "values": [0] * (32 * CELLS)},
    ]}  # fmt: skip
    return Launch.model_validate(entry)


CASES = [("shared", "warp", 2), ("shared", "warp", 3), ("global", "warp", 2), ("global", "%ctaid.x", 2)]


@pytest.mark.parametrize(("space", "actor", "actors"), CASES)
def test_a_determined_result_is_that_of_every_interleaving(space: str, actor: str, actors: int) -> None:
    draw = random.Random(f"{space} {actor} {actors}")
    proved = missed = differing = seen = 0
    for _ in range(60):
        steps = program(draw, actors, actor == "warp")
        expected = outcomes(steps, actors)
        threads, blocks = (32, actors) if actor == "%ctaid.x" else (32 * actors, 1)
        code = text(body(steps, space, actor, actors), threads=threads, shared=ROOM)
        prepared = prepare_launch(ARCH.parse(code, "k.ptx"), ARCH, launch(threads, blocks))
        known = _stored(prepared, actors)
        if known is None:
            missed += len(expected) == 1
            differing += len(expected) > 1
        else:
            assert expected == {known}, steps
            proved += 1
        runs = set()
        for order in ORDERS:
            after = bytes_in_order(prepared, {"out": np.zeros(4096, np.uint8)}, order)
            words = after["out"].view(np.uint32).reshape(-1, 32)[: actors * REGISTERS]
            assert (words == words[:, :1]).all()
            runs.add(tuple(words[:, 0].tolist()))
        assert runs <= expected, steps
        seen += len(runs) > 1
    assert proved >= 10
    assert missed <= differing
    assert 2 * seen >= differing >= 10


def _stored(prepared: PreparedLaunch, actors: int) -> tuple[int, ...] | None:
    """Return the registers that a launch provably stores, None where they are not proved to be determined."""
    try:
        memory, scratch = run_blocks(prepared, TermDomain(), {"out": 1, "in": 2})
        checked_outputs(memory, scratch)
    except Unsupported:
        return None
    found: dict[int, int] = {}
    for event in memory.stores[1]:
        assert event.value is not None
        assert np.all(L.constant_mask(event.value))
        numbers = np.broadcast_to(event.value.words[0, 0], event.address.shape)
        found |= {int(at) & 0xFFFF: int(number) for at, number in zip(event.address, numbers, strict=True)}
    return tuple(found[128 * each] for each in range(actors * REGISTERS))
