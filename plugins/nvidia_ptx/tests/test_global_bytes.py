"""Global memory by bytes: what a launch stored in one width is loaded in another, against a simulation of bytes.

Random programs of two warps store and load regions of memory in every width.  The canonical terms of what they leave
are evaluated on bit patterns, and so is each program by a plain array of bytes, which knows nothing of stores.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.checker.analysis import Options, Source
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.expression_trees import build_tree
from bitwise_core.checker.provenance import Provenance, scalar_at, trace_provenance
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.concrete import checked_outputs, prepare_launch, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.memory.outputs import final_events
from bitwise_core.execution.simulation import simulate
from bitwise_core.ir.evaluation import evaluate_many
from bitwise_core.numerics import operation
from ptx_programs import ARCH, hashes, run, text

Bits = npt.NDArray[np.uint64]
DRAWS, LANES, REGION, INPUTS = 6, 2, 32, 4096
"""Draws of the initial content; lanes that are checked; bytes of a lane's region; the place of the read-only inputs."""
WARPS = 2
REGISTERS = {"h": 16, "r": 32, "d": 64}
"""The kinds of registers and their widths; each thread has two of each."""
RESULTS = sum(2 * bits // 8 for bits in REGISTERS.values())
ADD = operation("add.rn.fp32").evaluate


@cache
def initial(size: int = 8192) -> npt.NDArray[np.uint8]:
    """Return the bytes of the buffer `in` before the launch, shape (draws, size), with floats and small numbers."""
    generator = np.random.default_rng(5)
    found = generator.integers(0, 256, (DRAWS, size), dtype=np.uint8)
    found.view(np.uint32)[0::3, ::3] = generator.normal(size=found.view(np.uint32)[0::3, ::3].shape).astype(
        np.float32
    ).view(np.uint32)
    found.view(np.uint32)[1, ::5] = 0x7F800001 + generator.integers(0, 1 << 20)
    return found


@dataclass
class Lane:
    """The bytes of a lane's region and the registers of its threads, by warp, kind and number; one row for each draw."""

    memory: npt.NDArray[np.uint8]
    registers: dict[tuple[int, str, int], Bits] = field(default_factory=dict)

    def load(self, offset: int, size: int) -> Bits:
        """Return the number at an offset."""
        total = np.zeros(DRAWS, dtype=np.uint64)
        for byte in range(size):
            total |= self.memory[:, offset + byte].astype(np.uint64) << np.uint64(8 * byte)
        return total

    def store(self, offset: int, size: int, value: Bits, where: npt.NDArray[np.bool_]) -> None:
        """Store a number where a condition holds."""
        for byte in range(size):
            fresh = (value >> np.uint64(8 * byte)).astype(np.uint8)
            self.memory[:, offset + byte] = np.where(where, fresh, self.memory[:, offset + byte])


@dataclass(frozen=True)
class Step:
    """An instruction of one warp.  `odd`: only its odd lanes execute it.  `guard`: only where r0 < r1 as integers."""

    warp: int
    verb: str
    kind: str = "r"
    count: int = 1
    register: int = 0
    offset: int = 0
    size: int = 4
    odd: bool = False
    guard: bool = False


@dataclass(frozen=True)
class Branch:
    """Stores of one warp on the two sides of a branch that the whole block takes by an input."""

    if_true: tuple[Step, ...]
    if_false: tuple[Step, ...]


Steps = Sequence[Step | Branch]


def access(draw: random.Random, verb: str) -> Step:
    kind, count, size = draw.choice(
        [("h", 1, 1), ("h", 1, 1), ("h", 1, 2), ("h", 2, 2), ("r", 1, 4), ("r", 2, 4), ("d", 1, 8), ("d", 2, 8), ("h", 2, 1)]
    )
    whole = size * count
    offset = draw.randrange(REGION // whole) * whole
    register = 0 if count == 2 else draw.randrange(2)
    guard = verb == "st" and draw.random() < 0.2
    return Step(draw.randrange(WARPS), verb, kind, count, register, offset, size, draw.random() < 0.3, guard)


def program(draw: random.Random) -> Steps:
    """Return a random program."""
    found: list[Step | Branch] = []
    for _ in range(draw.randrange(6, 16)):
        choice = draw.random()
        if choice < 0.1:
            warp = draw.randrange(WARPS)
            sides = []
            for _ in range(2):
                stores = [access(draw, "st") for _ in range(draw.randrange(3))]
                sides.append(tuple(Step(warp, "st", s.kind, s.count, s.register, s.offset, s.size, s.odd) for s in stores))
            found.append(Branch(*sides))
        elif choice < 0.3:
            found.append(Step(draw.randrange(WARPS), draw.choice(["fadd", "iadd", "pack", "unpack"]), odd=draw.random() < 0.3))
        else:
            found.append(access(draw, "ld" if choice < 0.6 else "st"))
    return found


def accesses(step: Step | Branch) -> Iterator[Step]:
    for each in (step,) if isinstance(step, Step) else (*step.if_true, *step.if_false):
        if each.verb in ("ld", "st"):
            yield each


def with_barriers(steps: Steps) -> list[Step | Branch | None]:
    """Return the steps with a barrier (None) before each access of a byte that conflicts with one of another warp."""
    found: list[Step | Branch | None] = []
    seen: list[Step] = []
    for step in steps:
        for each in accesses(step):
            if any(
                before.warp != each.warp
                and "st" in (before.verb, each.verb)
                and before.offset < each.offset + each.count * each.size
                and each.offset < before.offset + before.count * before.size
                for before in seen
            ):
                found.append(None)
                seen = []
                break
        found.append(step)
        seen += accesses(step)
    return found


def expected(steps: Sequence[Step | Branch | None]) -> list[Lane]:
    """Return the bytes and the registers of each lane after the program, step by step."""
    lanes = []
    condition = initial()[:, INPUTS - 4].astype(np.uint64) & np.uint64(1)
    for lane in range(LANES):
        state = Lane(initial()[:, lane * REGION : (lane + 1) * REGION].copy())
        for warp in range(WARPS):
            place = INPUTS + (warp * 32 + lane) * 64
            source = Lane(initial()[:, place : place + 64])
            for kind, bits in REGISTERS.items():
                for number in range(2):
                    start = 8 * (2 * list(REGISTERS).index(kind) + number)
                    state.registers[warp, kind, number] = source.load(start, bits // 8)
        for step in steps:
            if isinstance(step, Step):
                perform(state, step, lane, np.ones(DRAWS, dtype=bool))
            elif step is not None:
                for side, taken in ((step.if_true, condition != 0), (step.if_false, condition == 0)):
                    for each in side:
                        perform(state, each, lane, taken)
        lanes.append(state)
    return lanes


def perform(state: Lane, step: Step, lane: int, where: npt.NDArray[np.bool_]) -> None:
    """Execute a step of a lane where a condition holds."""
    if step.odd and lane % 2 == 0:
        return
    registers = state.registers
    r0, r1 = registers[step.warp, "r", 0], registers[step.warp, "r", 1]
    if step.verb == "fadd":
        registers[step.warp, "r", 0] = ADD(r0.astype(np.uint32), r1.astype(np.uint32)).astype(np.uint64)
    elif step.verb == "iadd":
        registers[step.warp, "r", 1] = (r0 + r1) & np.uint64(0xFFFFFFFF)
    elif step.verb == "pack":
        low, high = registers[step.warp, "h", 0], registers[step.warp, "h", 1]
        registers[step.warp, "r", 1] = low | high << np.uint64(16)
    elif step.verb == "unpack":
        registers[step.warp, "h", 0], registers[step.warp, "h", 1] = r0 & np.uint64(0xFFFF), r0 >> np.uint64(16)
    else:
        guard = where & (r0 < r1) if step.guard else where
        for index in range(step.count):
            name = (step.warp, step.kind, step.register + index)
            place = step.offset + index * step.size
            if step.verb == "ld":
                registers[name] = state.load(place, step.size)
            else:
                state.store(place, step.size, registers[name], guard)


def lines_of(steps: Sequence[Step | Branch | None]) -> list[str]:
    """Return the steps as PTX: %d7 is the address of the lane's region, %p1 and on say whether a step is executed."""
    found = []
    for number, step in enumerate(steps):
        if step is None:
            found.append("bar.sync 0;")
        elif isinstance(step, Step):
            found += instructions(step)
        else:
            found += [f"@%p8 bra TRUE{number};", *(line for each in step.if_false for line in instructions(each))]
            found += [f"bra.uni END{number};", f"TRUE{number}:"]
            found += [*(line for each in step.if_true for line in instructions(each)), f"END{number}:"]
    return [line.replace("@:", f"{number}:").replace("@;", f"{number};") for number, line in _labelled(found)]


def _labelled(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines with a number that the label of a skip and its branch share."""
    number = 0
    for line in lines:
        yield number, line
        number += line == "SKIP@:"


def instructions(step: Step) -> list[str]:
    predicate = f"%p{1 + step.warp + (WARPS if step.odd else 0)}"
    if step.verb not in ("ld", "st"):
        return [
            f"@{predicate} "
            + {
                "fadd": "add.rn.f32 %r10, %r10, %r11;",
                "iadd": "add.u32 %r11, %r10, %r11;",
                "pack": "mov.b32 %r11, {%h10, %h11};",
                "unpack": "mov.b32 {%h10, %h11}, %r10;",
            }[step.verb]
        ]
    names = [f"%{step.kind}{10 + step.register + index}" for index in range(step.count)]
    value = names[0] if step.count == 1 else "{" + ", ".join(names) + "}"
    form = f"{'.v2' if step.count == 2 else ''}.{'u' if step.size == 1 else 'b'}{8 * step.size}"
    place = f"[%d7+{step.offset}]"
    parts = f"{place}, {value}" if step.verb == "st" else f"{value}, {place}"
    line = f"{step.verb}.global{form} {parts};"
    if not step.guard:
        return [f"@{predicate} {line}"]
    return [f"@!{predicate} bra SKIP@;", "setp.lt.u32 %p9, %r10, %r11;", f"@%p9 {line}", "SKIP@:"]


def body(steps: Sequence[Step | Branch | None]) -> str:
    """Return the program: regions in the buffer `in`, the registers at its end in the buffer `out`."""
    lines = ["shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31; and.b32 %r3, %r0, 1;"]
    lines += [f"setp.eq.u32 %p{1 + warp}, %r1, {warp};" for warp in range(WARPS)]
    lines += ["setp.eq.u32 %p7, %r3, 1;", f"ld.global.u8 %r4, [%d1+{INPUTS - 4}];"]
    lines += [f"and.pred %p{1 + WARPS + warp}, %p{1 + warp}, %p7;" for warp in range(WARPS)]
    lines += ["and.b32 %r4, %r4, 1; setp.ne.u32 %p8, %r4, 0;"]
    lines += [f"mul.wide.u32 %d7, %r2, {REGION}; add.s64 %d7, %d7, %d1;"]
    lines += [f"mul.wide.u32 %d8, %r0, 64; add.s64 %d8, %d8, %d1;"]
    for position, (kind, bits) in enumerate(REGISTERS.items()):
        for number in range(2):
            place = INPUTS + 8 * (2 * position + number)
            lines.append(f"ld.global.b{bits} %{kind}{10 + number}, [%d8+{place}];")
    lines += lines_of(steps)
    lines += ["mul.wide.u32 %d9, %r0, 64; add.s64 %d9, %d9, %d0;"]
    for position, (kind, bits) in enumerate(REGISTERS.items()):
        lines += [f"st.global.b{bits} [%d9+{8 * (2 * position + n)}], %{kind}{10 + n};" for n in range(2)]
    return "\n".join(lines)


LAUNCH = Launch.model_validate(
    {"file": "k.ptx", "entry": "k", "grid": [1], "block": [32 * WARPS], "args": [
        {"buffer": "out", "dtype": "i32"}, {"buffer": "in", "dtype": "i32"},
    ]}
)  # fmt: skip


def places(lanes: Sequence[Lane]) -> Iterator[tuple[int, int, int, Bits]]:
    """Yield what the program leaves: the buffer, the offset, the size and the patterns of each element."""
    for lane, state in enumerate(lanes):
        for byte in range(REGION):
            yield 2, lane * REGION + byte, 1, state.load(byte, 1)
        for warp in range(WARPS):
            for position, (kind, bits) in enumerate(REGISTERS.items()):
                for number in range(2):
                    place = (warp * 32 + lane) * 64 + 8 * (2 * position + number)
                    yield 1, place, bits // 8, state.registers[warp, kind, number]


def in_memory(buffer: str, offset: int, bits: int) -> Bits:
    """See `evaluate_many`: the initial content."""
    assert buffer == "in"
    found = np.zeros(DRAWS, dtype=np.uint64)
    for byte in range(bits // 8):
        found |= initial()[:, offset + byte].astype(np.uint64) << np.uint64(8 * byte)
    return found.astype(np.dtype(f"u{bits // 8}"))


def bytes_left(provenance: Provenance) -> dict[tuple[int, int], Bits]:
    """Return the bytes that the stores of a recorded run leave, by buffer and offset: their trees on all draws."""
    found: dict[tuple[int, int], Bits] = {}
    for buffer in provenance.memory.stores:
        for event in final_events(provenance.memory, buffer):
            assert event.value is not None
            for lane, address in enumerate(event.address.tolist()):
                offset = address & 0xFFFFFFFF
                if (offset // REGION if buffer == 2 else offset // 64 % 32) >= LANES:
                    continue
                tree = build_tree(provenance, scalar_at(event.value, (1, event.address.size), lane)).root
                patterns = evaluate_many(tree, in_memory).astype(np.uint64)
                for byte in range(event.bits // 8):
                    found[buffer, offset + byte] = (patterns >> np.uint64(8 * byte)) & np.uint64(255)
    return found


FORMS: dict[tuple[int, int, int], tuple[Bits, object]] = {}
"""The patterns of each canonical form of each width, over all programs, and where it was found first."""


@pytest.mark.parametrize("seed", range(30))
def test_the_terms_of_random_programs_evaluate_to_their_bytes(seed: int) -> None:
    steps = with_barriers(program(random.Random(f"bytes {seed}")))
    lanes = expected(steps)
    prepared = prepare_launch(ARCH.parse(text(body(steps), threads=32 * WARPS), "k.ptx"), ARCH, LAUNCH)
    numbers = {"out": 1, "in": 2}
    provenance = trace_provenance(prepared, numbers, frozenset(), 1, 0)
    left = bytes_left(provenance)
    for buffer, offset, size, patterns in places(lanes):
        for byte in range(size):
            found = left.get((buffer, offset + byte))
            wanted = (patterns >> np.uint64(8 * byte)) & np.uint64(255)
            if found is None:
                assert buffer == 2
                found = in_memory("in", offset, 8).astype(np.uint64)
            assert (found == wanted).all(), (steps, buffer, offset, byte)
    outputs = checked_outputs(*run_blocks(prepared, TermDomain(), numbers))
    bytes_of = {}
    for buffer, offset, size, patterns in places(lanes):
        for byte in range(size):
            bytes_of[buffer, offset + byte] = (patterns >> np.uint64(8 * byte)) & np.uint64(255)
    for buffer, output in outputs.items():
        for address, size, low, high in zip(output.address, output.size, *output.words, strict=True):
            start, patterns = int(address) & 0xFFFFFFFF, np.zeros(DRAWS, dtype=np.uint64)
            if (buffer, start) not in bytes_of:
                continue
            for byte in range(int(size)):
                patterns |= bytes_of[buffer, start + byte] << np.uint64(8 * byte)
            before, where = FORMS.setdefault((int(size), int(low), int(high)), (patterns, (seed, buffer, start)))
            assert (before == patterns).all(), (where, (seed, buffer, start))
    for row, content in enumerate(initial()):
        after = simulate(prepared, {"in": content, "out": np.zeros(32 * WARPS * 64, np.uint8)}).after
        for (buffer, offset), patterns in bytes_of.items():
            assert after["out" if buffer == 1 else "in"][offset] == patterns[row]
