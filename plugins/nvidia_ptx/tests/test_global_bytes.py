"""Global memory by bytes: what a launch stored in one width is loaded in another, against a simulation of bytes.

Random programs of two warps store and load regions of memory in every width.  The canonical terms of what they leave
are evaluated on bit patterns, and so is each program by a plain array of bytes, which knows nothing of stores.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.checker import analysis
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.trees.expression_trees import build_tree
from bitwise_core.checker.trees.provenance import Provenance, scalar_at, trace_provenance
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.concrete import checked_outputs, prepare_launch, run_blocks
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.memory.outputs import final_events
from bitwise_core.execution.simulation import simulate
from bitwise_core.ir.evaluation import evaluate_many
from bitwise_core.numerics import operation
from ptx_programs import ARCH, hashes, text

Bits = npt.NDArray[np.uint64]
DRAWS, LANES, REGION, INPUTS = 6, 2, 32, 4096
"""Draws of the initial content; lanes that are checked; bytes of a lane's region; the place of the read-only inputs."""
WARPS = 2
REGISTERS = {"h": 16, "r": 32, "d": 64}
"""The kinds of registers and their widths; each thread has two of each."""
NUMBERS = {"out": 1, "in": 2}
VERBS = ("fadd", "iadd", "pack", "unpack")
ADD, MULTIPLY = operation("add.rn.fp32").evaluate, operation("mul.rn.fp32").evaluate


@cache
def initial(size: int = 8192) -> npt.NDArray[np.uint8]:
    """Return the bytes of the buffer `in` before the launch, shape (draws, size), with floats and small numbers."""
    generator = np.random.default_rng(5)
    found = generator.integers(0, 256, (DRAWS, size), dtype=np.uint8)
    found.view(np.uint32)[0::3, ::3] = (
        generator.normal(size=found.view(np.uint32)[0::3, ::3].shape).astype(np.float32).view(np.uint32)
    )
    found.view(np.uint32)[1, ::5] = 0x7F800001 + generator.integers(0, 1 << 20)
    return found


@dataclass
class Lane:
    """The bytes of a lane's region and its registers by warp, kind and number; one row for each draw."""

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
        [
            ("h", 1, 1),
            ("h", 1, 1),
            ("h", 1, 2),
            ("h", 2, 2),
            ("r", 1, 4),
            ("r", 2, 4),
            ("d", 1, 8),
            ("d", 2, 8),
            ("h", 2, 1),
        ]
    )
    whole = size * count
    offset = draw.randrange(REGION // whole) * whole
    register = 0 if count == 2 else draw.randrange(2)
    guard = verb == "st" and draw.random() < 0.2
    return Step(draw.randrange(WARPS), verb, kind, count, register, offset, size, draw.random() < 0.3, guard)


def program(draw: random.Random, verbs: Sequence[str] = VERBS) -> Steps:
    """Return a random program with these operations on registers."""
    found: list[Step | Branch] = []
    for _ in range(draw.randrange(6, 16)):
        choice = draw.random()
        if choice < 0.1:
            warp = draw.randrange(WARPS)
            sides = []
            for _ in range(2):
                stores = [access(draw, "st") for _ in range(draw.randrange(3))]
                sides.append(
                    tuple(Step(warp, "st", s.kind, s.count, s.register, s.offset, s.size, s.odd) for s in stores)
                )
            found.append(Branch(*sides))
        elif choice < 0.3:
            found.append(Step(draw.randrange(WARPS), draw.choice(verbs), odd=draw.random() < 0.3))
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
    elif step.verb == "fmul":
        one = np.full(DRAWS, 0x3F800000, dtype=np.uint32)
        registers[step.warp, "r", 0] = MULTIPLY(r0.astype(np.uint32), one).astype(np.uint64)
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
                "fmul": "mul.rn.f32 %r10, %r10, 0f3F800000;",
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
    lines += ["mul.wide.u32 %d8, %r0, 64; add.s64 %d8, %d8, %d1;"]
    for position, (kind, bits) in enumerate(REGISTERS.items()):
        for number in range(2):
            place = INPUTS + 8 * (2 * position + number)
            lines.append(f"ld.global.b{bits} %{kind}{10 + number}, [%d8+{place}];")
    lines += lines_of(steps)
    lines += ["mul.wide.u32 %d9, %r0, 64; add.s64 %d9, %d9, %d0;"]
    for position, (kind, bits) in enumerate(REGISTERS.items()):
        lines += [f"st.global.b{bits} [%d9+{8 * (2 * position + n)}], %{kind}{10 + n};" for n in range(2)]
    return "\n".join(lines)


def launch(dtype: str, threads: int = 32 * WARPS) -> Launch:
    """Return the launch of a program on two buffers of a type."""
    entry = {"file": "k.ptx", "entry": "k", "grid": [1], "block": [threads], "args": [
        {"buffer": "out", "dtype": dtype}, {"buffer": "in", "dtype": dtype},
    ]}  # fmt: skip
    return Launch.model_validate(entry)


def bytes_of(lanes: Sequence[Lane]) -> dict[tuple[int, int], Bits]:
    """Return the bytes that the program leaves, by buffer and offset: the regions, and the registers of each thread."""
    found = {}
    for lane, state in enumerate(lanes):
        for byte in range(REGION):
            found[2, lane * REGION + byte] = state.load(byte, 1)
        for warp in range(WARPS):
            for position, (kind, bits) in enumerate(REGISTERS.items()):
                for number in range(2):
                    place = (warp * 32 + lane) * 64 + 8 * (2 * position + number)
                    patterns = state.registers[warp, kind, number]
                    for byte in range(bits // 8):
                        found[1, place + byte] = (patterns >> np.uint64(8 * byte)) & np.uint64(255)
    return found


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


@pytest.mark.parametrize("seed", range(30))
def test_the_terms_of_random_programs_evaluate_to_their_bytes(seed: int) -> None:
    steps = with_barriers(program(random.Random(f"bytes {seed}")))
    prepared = prepare_launch(ARCH.parse(text(body(steps), threads=32 * WARPS), "k.ptx"), ARCH, launch("i32"))
    left = bytes_left(trace_provenance(prepared, NUMBERS, frozenset(), 1, 0))
    contents = [{"in": content, "out": np.zeros(32 * WARPS * 64, np.uint8)} for content in initial()]
    after = [simulate(prepared, each) for each in contents]
    for place, wanted in bytes_of(expected(steps)).items():
        found = left.get(place)
        if found is None:
            assert place[0] == 2
            found = in_memory("in", place[1], 8).astype(np.uint64)
        assert (found == wanted).all(), (steps, place)
        assert [each.after["out" if place[0] == 1 else "in"][place[1]] for each in after] == wanted.tolist()


@pytest.mark.parametrize("dtype", ["i32", "fp32"])
def test_elements_of_one_canonical_form_have_the_same_bytes(dtype: str) -> None:
    forms: dict[tuple[int, int, int], tuple[Bits, object]] = {}
    again = 0
    for seed in range(60):
        steps = with_barriers(program(random.Random(f"forms {seed}"), (*VERBS, "fmul", "fmul")))
        wanted = bytes_of(expected(steps))
        prepared = prepare_launch(ARCH.parse(text(body(steps), threads=32 * WARPS), "k.ptx"), ARCH, launch(dtype))
        for buffer, output in checked_outputs(*run_blocks(prepared, TermDomain(), NUMBERS)).items():
            for address, size, low, high in zip(output.address, output.size, *output.words, strict=True):
                start = int(address) & 0xFFFFFFFF
                if (buffer, start) not in wanted:
                    continue
                patterns = np.zeros(DRAWS, dtype=np.uint64)
                for byte in range(int(size)):
                    patterns |= wanted[buffer, start + byte] << np.uint64(8 * byte)
                where = (seed, buffer, start)
                before, first = forms.setdefault((int(size), int(low), int(high)), (patterns, where))
                same = before == patterns
                if dtype == "fp32" and size == 4:
                    same |= [bool(each) for each in is_nan(before) & is_nan(patterns)]
                assert same.all(), (first, where)
                again += first != where
    assert again > 1000


def is_nan(patterns: Bits) -> npt.NDArray[np.bool_]:
    """Return which patterns are NaNs of fp32."""
    found: npt.NDArray[np.bool_] = (patterns & np.uint64(0x7FFFFFFF)) > np.uint64(0x7F800000)
    return found


# -- kernels that read back what they stored --------------------------------------------------------------------------

SUM = "ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d1+4]; add.rn.f32 %f3, %f1, %f2; mov.b32 %r10, %f3;"
PRODUCT = "ld.global.f32 %f1, [%d1]; mul.rn.f32 %f3, %f1, 0f3F800000; mov.b32 %r10, %f3;"
WORD = "ld.global.b32 %r10, [%d1];"
HALVES = "ld.global.b16 %h1, [%d1+64]; ld.global.b16 %h2, [%d1+66];"
FOUR = "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%d1];"
BYTES = " ".join(f"ld.global.u8 %h{each}, [%d1+{each}];" for each in range(4))
STORED_BYTES = " ".join(f"st.global.u8 [%d1+{64 + each}], %h{each};" for each in range(4))
ROUNDED = " ".join(
    f"ld.global.f32 %f{each}, [%d1+{4 * each}]; cvt.rni.s32.f32 %r{20 + each}, %f{each};" for each in range(4)
)
PACKED = "prmt.b32 %r30, %r20, %r21, 0x3340; prmt.b32 %r31, %r22, %r23, 0x3340; prmt.b32 %r10, %r30, %r31, 0x5410;"
ROUND_TRIPS = {
    "a loaded word as two halves": (
        WORD + "st.global.b32 [%d1+64], %r10;" + HALVES + "st.global.v2.b16 [%d0], {%h1, %h2};",
        WORD + "st.global.b32 [%d0], %r10;",
        WORD + "st.global.b32 [%d1+64], %r10;" + HALVES + "st.global.v2.b16 [%d0], {%h2, %h1};",
    ),
    "a sum as two halves, joined again": (
        SUM + "st.global.b32 [%d1+64], %r10;" + HALVES + "mov.b32 %r11, {%h1, %h2}; st.global.b32 [%d0], %r11;",
        SUM + "st.global.b32 [%d0], %r10;",
        SUM + "st.global.b32 [%d1+64], %r10;" + HALVES + "mov.b32 %r11, {%h1, %h1}; st.global.b32 [%d0], %r11;",
    ),
    "the halves of a sum": (
        SUM + "st.global.b32 [%d1+64], %r10;" + HALVES + "st.global.b16 [%d0], %h1; st.global.b16 [%d0+4], %h2;",
        SUM + "mov.b32 {%h1, %h2}, %r10; st.global.b16 [%d0], %h1; st.global.b16 [%d0+4], %h2;",
        SUM + "mov.b32 {%h2, %h1}, %r10; st.global.b16 [%d0], %h1; st.global.b16 [%d0+4], %h2;",
    ),
    "a vector as its elements": (
        FOUR + "st.global.v4.b32 [%d1+64], {%r10, %r11, %r12, %r13}; ld.global.v2.b64 {%d10, %d11}, [%d1+64];"
        "st.global.b64 [%d0+8], %d11; st.global.b64 [%d0], %d10;",
        FOUR + "st.global.v4.b32 [%d0], {%r10, %r11, %r12, %r13};",
        FOUR + "st.global.v4.b32 [%d1+64], {%r10, %r11, %r13, %r12}; ld.global.v2.b64 {%d10, %d11}, [%d1+64];"
        "st.global.b64 [%d0+8], %d11; st.global.b64 [%d0], %d10;",
    ),
    "bytes as a word": (
        BYTES + STORED_BYTES + "ld.global.b32 %r10, [%d1+64]; st.global.b32 [%d0], %r10;",
        WORD + "st.global.b32 [%d0], %r10;",
        BYTES + STORED_BYTES + "st.global.u8 [%d1+65], %h0; ld.global.b32 %r10, [%d1+64]; st.global.b32 [%d0], %r10;",
    ),
    "rounded bytes as a word": (
        ROUNDED + " ".join(f"st.global.u8 [%d1+{64 + each}], %r{20 + each};" for each in range(4))
        + "ld.global.b32 %r10, [%d1+64]; st.global.b32 [%d0], %r10;",
        ROUNDED + PACKED + "st.global.b32 [%d0], %r10;",
        ROUNDED + PACKED.replace("0x5410", "0x1054") + "st.global.b32 [%d0], %r10;",
    ),
    "a word of which a half is overwritten": (
        SUM + "ld.global.b16 %h1, [%d1+8]; st.global.b32 [%d1+64], %r10; st.global.b16 [%d1+66], %h1;"
        "ld.global.b32 %r11, [%d1+64]; st.global.b32 [%d0], %r11;",
        SUM + "ld.global.b16 %h1, [%d1+8]; mov.b32 {%h2, %h3}, %r10; mov.b32 %r11, {%h2, %h1};"
        "st.global.b32 [%d0], %r11;",
        SUM + "ld.global.b16 %h1, [%d1+8]; st.global.b16 [%d1+66], %h1; st.global.b32 [%d1+64], %r10;"
        "ld.global.b32 %r11, [%d1+64]; st.global.b32 [%d0], %r11;",
    ),
    "a word of which a byte was written": (
        "st.global.u8 [%d1+2], 7; ld.global.b32 %r10, [%d1]; st.global.b32 [%d0], %r10;",
        "ld.global.b32 %r10, [%d1]; prmt.b32 %r10, %r10, 7, 0x3410; st.global.b32 [%d0], %r10;",
        "ld.global.b32 %r10, [%d1]; prmt.b32 %r10, %r10, 7, 0x4210; st.global.b32 [%d0], %r10;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUND_TRIPS)
@pytest.mark.parametrize("dtype", ["i32", "fp32"])
def test_a_round_trip_in_another_width_is_equal_to_the_registers(name: str, dtype: str) -> None:
    trip, same, different = (hashes(each, threads=1, dtype=dtype) for each in ROUND_TRIPS[name])
    assert trip == same != different


COPY = "ld.global.v2.b16 {%h1, %h2}, [%d1]; st.global.v2.b16 [%d1+64], {%h1, %h2};"
STORES = {
    "whole": COPY + "ld.global.b32 %r10, [%d1+64]; st.global.b32 [%d0], %r10;",
    "direct": COPY + "ld.global.b32 %r10, [%d1]; st.global.b32 [%d0], %r10;",
    "overwritten": COPY + "ld.global.b32 %r10, [%d1]; st.global.b32 [%d0], %r10; st.global.b16 [%d0+2], %h2;",
    "in halves": COPY + "ld.global.b16 %h3, [%d1+66]; st.global.b16 [%d0+2], %h3; st.global.b16 [%d0], %h1;",
    "stale": COPY + "st.global.b16 [%d0+2], %h2; st.global.b32 [%d0], 0x50000; st.global.b16 [%d0], %h1;",
    "of zeros": COPY + "st.global.b32 [%d0], 0; st.global.b16 [%d0], %h1;",
}


def test_verdicts_on_copies_in_several_widths() -> None:
    kernels = {name: source(body) for name, body in STORES.items()}
    equal = ("whole", "direct", "overwritten", "in halves")
    for left, right in combinations(STORES, 2):
        expected = Outcome.EQUAL if left in equal and right in equal else Outcome.UNPROVED
        assert outcome(kernels[left], kernels[right]) is expected, (left, right)


def source(body: str, threads: int = 1) -> Source:
    return Source("k.ptx", text(body, threads=threads), launch("i32", threads))


def outcome(left: Source, right: Source) -> Outcome:
    return compare(left, right, ARCH, Options()).verdict.outcome


AS_HALVES = "st.global.b32 [%d1+64], %r10;" + HALVES + "st.global.b16 [%d0], %h1; st.global.b16 [%d0+2], %h2;"
AS_FLOAT = "st.global.b32 [%d1+64], %r10; ld.global.b32 %r11, [%d1+64]; st.global.b32 [%d0], %r11;"
AS_JOINED = "st.global.b32 [%d1+64], %r10;" + HALVES + "mov.b32 %r11, {%h1, %h2}; st.global.b32 [%d0], %r11;"


@pytest.mark.parametrize("dtype", ["i32", "fp32"])
@pytest.mark.parametrize("read", [AS_HALVES, AS_FLOAT, AS_JOINED])
def test_the_halves_of_a_product_are_not_those_of_its_operand(read: str, dtype: str) -> None:
    # x * 1 is x, except for the bits of a NaN, which count as one value in an element of fp32 only.
    product, operand = (hashes(each + read, threads=1, dtype=dtype) for each in (PRODUCT, WORD))
    assert (product == operand) is (dtype == "fp32" and read is not AS_HALVES)


PACKED = {
    "numbers": ("st.global.b8 [%d0], 1; st.global.b8 [%d0+1], 2;", "st.global.b16 [%d0], 0x0201;"),
    "copies": (
        "ld.global.b8 %h1, [%d1]; ld.global.b8 %h2, [%d1+1]; st.global.b8 [%d0], %h1; st.global.b8 [%d0+1], %h2;",
        "ld.global.b16 %h1, [%d1]; st.global.b16 [%d0], %h1;",
    ),
}


@pytest.mark.parametrize(("bytewise", "packed"), PACKED.values(), ids=PACKED)
@pytest.mark.parametrize(
    ("dtype", "alike"), [("i1", True), ("u8", True), ("e4m3", True), ("i16", False), (None, False)]
)
def test_elements_of_one_byte_have_one_form_however_they_are_packed(
    dtype: str | None, alike: bool, bytewise: str, packed: str
) -> None:
    assert (hashes(bytewise, threads=1, dtype=dtype) == hashes(packed, threads=1, dtype=dtype)) is alike
    exchanged = bytewise.replace("[%d0]", "[%d8]").replace("[%d0+1]", "[%d0]").replace("[%d8]", "[%d0+1]")
    assert hashes(exchanged, threads=1, dtype=dtype) != hashes(packed, threads=1, dtype=dtype)


# -- races ------------------------------------------------------------------------------------------------------------

PLACES = " ".join(
    [
        "shr.u32 %r1, %r0, 5; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1; mov.u32 %r20, 77;",
        "mul.wide.u32 %d5, %r0, 4; add.s64 %d5, %d5, %d0;",
        "and.b32 %r2, %r0, 31; mul.wide.u32 %d6, %r2, 8; add.s64 %d6, %d6, %d1;",
        "ld.global.b32 %r10, [%d1+4096]; ld.global.b32 %r11, [%d1+4100]; mov.b32 {%h10, %h11}, %r11;",
    ]
)
"""%p1 and %p2 are the two warps, %d6 the place that two threads access, %d5 the element of the output."""
FIVES = "mov.u32 %r9, 0x05050505; st.global.b32 [%d6], %r9; ld.global.u16 %r20, [%d6+2];"
OWN_HALF = "@%p2 st.global.b16 [%d6], %h10; @%p1 st.global.u8 [%d6+2], %h11;"
RACES = {
    "a word and one of its halves": ("@%p1 st.global.b32 [%d6], %r10;", "@%p2 ld.global.u16 %r20, [%d6+2];", False),
    "a half and its word": ("@%p1 st.global.b16 [%d6+2], %h10;", "@%p2 ld.global.b32 %r20, [%d6];", False),
    "a byte and its word, read before": ("@%p2 ld.global.b32 %r20, [%d6];", "@%p1 st.global.u8 [%d6+3], %h10;", False),
    "a vector and its word": (
        "@%p1 st.global.v2.b32 [%d6], {%r10, %r11};", "@%p2 ld.global.b32 %r20, [%d6+4];", False,
    ),
    "the other half": ("@%p1 st.global.b16 [%d6+2], %h10;", "@%p2 ld.global.u16 %r20, [%d6];", True),
    "another byte than the own half": (OWN_HALF, "@%p2 ld.global.u16 %r20, [%d6];", True),
    "the own half and another byte": (OWN_HALF, "@%p2 ld.global.b32 %r20, [%d6];", False),
    "the same number in halves": ("mov.u16 %h9, 9; st.global.b16 [%d6], %h9;", "ld.global.b32 %r20, [%d6];", True),
    "the same number in a byte, read before": (FIVES, "st.global.u8 [%d6+3], 5;", True),
    "another number in a byte, read before": (FIVES, "st.global.u8 [%d6+3], 6;", False),
    "two stores in different widths": (
        "@%p1 st.global.b32 [%d6], %r10;", "@%p2 st.global.b16 [%d6+2], %h10; bar.sync 0; ld.global.b32 %r20, [%d6];",
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_bytes_that_two_threads_access_without_an_order(name: str) -> None:
    first, second, determined = RACES[name]
    for between, expected in (("", determined), (" bar.sync 0; ", True)):
        kernel = source(PLACES + first + between + second + "st.global.b32 [%d5], %r20;", 64)
        assert outcome(kernel, kernel) is (Outcome.EQUAL if expected else Outcome.UNKNOWN), between


@pytest.mark.parametrize(("offset", "determined"), [(0, False), (2, False), (4, True), (6, True)])
def test_a_half_of_an_atomic_sum_is_not_determined(offset: int, determined: bool) -> None:
    body = f"red.global.add.u32 [%d1], 1; ld.global.b16 %h1, [%d1+{offset}]; st.global.b16 [%d0], %h1;"
    kernel = source(body, 32)
    assert outcome(kernel, kernel) is (Outcome.EQUAL if determined else Outcome.UNKNOWN)
    alone = source(body, 1)
    assert outcome(alone, alone) is Outcome.EQUAL


def test_a_select_of_parts_of_values_of_different_widths_has_a_tree() -> None:
    body = (
        "ld.global.b64 %d10, [%d1]; ld.global.b32 %r10, [%d1+8]; add.s64 %d10, %d10, %d10; add.u32 %r10, %r10, %r10;"
        "mov.b64 {%h1, %h2, %h3, %h4}, %d10; mov.b32 {%h5, %h6}, %r10; setp.lt.u32 %p1, %r10, 9;"
        "selp.b16 %h7, %h1, %h5, %p1; st.global.b16 [%d0], %h7;"
    )
    prepared = prepare_launch(ARCH.parse(text(body, threads=1), "k.ptx"), ARCH, launch("i32", 1))
    provenance = trace_provenance(prepared, NUMBERS, frozenset(), 1, 0)
    (event,) = final_events(provenance.memory, 1)
    assert event.value is not None
    found = evaluate_many(build_tree(provenance, scalar_at(event.value, (1, 1), 0)).root, in_memory)
    wide, narrow = (in_memory("in", offset, bits).astype(np.uint64) for offset, bits in ((0, 64), (8, 32)))
    doubled = narrow + narrow & np.uint64(0xFFFFFFFF)
    assert (found == (np.where(doubled < 9, wide + wide, doubled) & np.uint64(0xFFFF))).all()


OWN = (
    "mov.u32 %r9, %ctaid.x; mad.lo.u32 %r9, %r9, 32, %r0; mul.wide.u32 %d5, %r9, 4; add.s64 %d6, %d1, %d5;"
    "add.s64 %d5, %d5, %d0; ld.global.f32 %f1, [%d6]; add.rn.f32 %f1, %f1, 0f3F800000; st.global.f32 [%d5], %f1;"
)
OF_BLOCKS = {
    "direct": "",
    "joined": "ld.global.v2.b16 {%h1, %h2}, [%d5]; mov.b32 %r11, {%h1, %h2}; st.global.b32 [%d5], %r11;",
    "swapped": "ld.global.v2.b16 {%h1, %h2}, [%d5]; mov.b32 %r11, {%h2, %h1}; st.global.b32 [%d5], %r11;",
    "of the next thread": "ld.global.v2.b16 {%h1, %h2}, [%d5+4]; mov.b32 %r11, {%h1, %h2}; st.global.b32 [%d5], %r11;",
}


@pytest.mark.parametrize("symmetric", [False, True])
def test_blocks_that_read_back_halves(symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if symmetric:
        monkeypatch.setattr(analysis, "MAXIMUM_LANES", 0)
        monkeypatch.setattr(analysis, "MAXIMUM_WORK", 0)
    many = launch("fp32", 32).model_copy(update={"grid": (300, 1, 1)})
    direct, *others = (Source("k.ptx", text(OWN + body, threads=32), many) for body in OF_BLOCKS.values())
    assert [outcome(each, direct) for each in others] == [Outcome.EQUAL, Outcome.UNPROVED, Outcome.UNKNOWN]


OF_THREADS = (
    "mov.u32 %r9, %tid.x; setp.ge.u32 %p1, %r9, 32; and.b32 %r8, %r9, 1; setp.ne.u32 %p2, %r8, 0;"
    "mul.wide.u32 %d3, %r9, 8; add.u64 %d3, %d1, %d3; ld.global.v2.b32 {{%r1, %r2}}, [%d3];"
    "mul.wide.u32 %d4, %r9, 4; add.u64 %d4, %d0, %d4; @%p1 bra DONE; {} st.global.b32 [%d4], %r10; DONE:"
)
CHOSEN = "selp.b32 %r7, {}, {}, %p2; prmt.b32 %r10, %r1, %r2, %r7;"


def test_selectors_of_threads_that_do_not_run_take_no_bytes_apart() -> None:
    """Each of the running threads selects whole halves; the others have no selector."""
    selected = CHOSEN.format("0x5432", "0x3210")
    halves = (
        "mov.b32 {%h1, %h2}, %r1; mov.b32 {%h3, %h4}, %r2; selp.b16 %h5, %h2, %h1, %p2; selp.b16 %h6, %h3, %h2, %p2;"
        "mov.b32 %r10, {%h5, %h6};"
    )
    trip, same, different = (
        hashes(OF_THREADS.format(each), threads=64, dtype="fp16")
        for each in (selected, halves, CHOSEN.format("0x3210", "0x5432"))
    )
    assert trip == same != different
