"""Random programs of LLVM with branches, loops and shared memory, and what NumPy computes for them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from bitwise_bench.llvm_programs.operations import Operation, all_operations
from bitwise_bench.llvm_programs.values import (
    FLOATS,
    INTEGERS,
    LANES,
    PAIRS,
    TYPES,
    Array,
    bits_of,
    drawn,
    element_of,
    pattern_type,
    patterns_of,
)

_INPUTS = 10
_OUTPUTS = 5
_BUFFER_TYPES = {
    "half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "i8": "u8",
    "i16": "u16",
    "i32": "u32",
    "i64": "u64",
}
_RECENT = 5
"""Of so many last values of a type, most operands are one."""
_HEAD = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
"""
_BARRIER = (
    'fence syncscope("workgroup") release', "call void @llvm.amdgcn.s.barrier()",
    'fence syncscope("workgroup") acquire',
)  # fmt: skip


class Named(NamedTuple):
    """A value of a program: its name in the text, and its patterns."""

    name: str
    patterns: Array


@dataclass(frozen=True, slots=True)
class Program:
    """A program: its text, and the types and contents of its inputs and of its outputs, by the names of the buffers."""

    text: str
    inputs: Mapping[str, tuple[str, Array]]
    outputs: Mapping[str, tuple[str, Array]]

    def arguments(self) -> list[dict[str, str]]:
        """Return the arguments of a launch."""
        every = {**self.inputs, **self.outputs}
        return [
            {"kind": "buffer", "buffer": name, "dtype": _BUFFER_TYPES[element_of(kind)]}
            for name, (kind, _) in every.items()
        ]


@cache
def _by_result() -> Mapping[str, tuple[Operation, ...]]:
    """Return the operations by the type of their result, so that each type is as likely as any other."""
    every = all_operations()
    kinds = sorted({each.result for each in every})
    return {kind: tuple(each for each in every if each.result == kind) for kind in kinds}


class _Builder:
    """Writes a program, and computes its values in the lanes of each branch."""

    def __init__(self, seed: int) -> None:
        self.dice, self.contents = random.Random(seed), np.random.default_rng(seed)
        self.lines: list[str] = []
        self.values: dict[str, list[Named]] = {}
        self.declared: set[str] = set()
        self.arrays: list[str] = []
        self.active = np.ones(LANES, dtype=bool)
        self.block, self.depth, self.in_loop, self.count = "entry", 0, False, 0

    def fresh(self, prefix: str = "%v") -> str:
        """Return a new name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def let(self, kind: str, text: str, patterns: Array) -> Named:
        """Write an instruction, and return its value."""
        made = Named(self.fresh(), patterns)
        self.lines.append(f"  {made.name} = {text}")
        self.values.setdefault(kind, []).append(made)
        return made

    def operand(self, kind: str) -> Named:
        """Return a value or a literal of a type."""
        known = self.values.get(kind)
        if not known or self.dice.random() < 0.1:
            return self.literal(kind)
        return self.dice.choice(known[-_RECENT:] if self.dice.random() < 0.6 else known)

    def literal(self, kind: str) -> Named:
        """Return a literal.  A zero of fp16 is +0: LLVM stores -0 in pairs as +0."""
        if kind in PAIRS:
            element = element_of(kind)
            halves = [self.literal(element) for _ in range(2)]
            text = ", ".join(f"{element} {each.name}" for each in halves)
            return Named(f"<{text}>", np.stack([each.patterns for each in halves], axis=1))
        if kind == "i1":
            bit = self.dice.random() < 0.5
            return Named(str(bit).lower(), np.full(LANES, bit))
        if kind in FLOATS:
            number = self.dice.choice((0.0, 1.0, -1.0, 0.5, 2.0, -4.0, 3.140625, 100.25))
            pattern = patterns_of(np.array(number), kind)
            wide = int(patterns_of(np.array(number), "double"))
            name = f"0xH{int(pattern):04X}" if kind == "half" else f"0x{wide:016X}"
            return Named(name, np.full(LANES, pattern))
        bits = bits_of(kind)
        chosen = self.dice.choice((0, 1, -1, 5, 16, 31, 64, 65, -16, -17, 255, 0x12345678, self.dice.getrandbits(bits)))
        number = chosen & (1 << bits) - 1
        signed = number - (1 << bits) if number >> bits - 1 else number
        return Named(str(signed), np.full(LANES, number, dtype=np.uint64).astype(pattern_type(kind)))

    def hidden(self, kind: str, value: Named) -> Named:
        """Write an empty instruction of an assembler that returns a value, and return its result."""
        made = Named(self.fresh(), value.patterns)
        self.lines.append(f'  {made.name} = call {kind} asm sideeffect "", "=v,0"({kind} {value.name})')
        return made

    def load(self, number: int) -> tuple[str, Array]:
        """Write the load of an input, and return its type and contents."""
        kind = self.dice.choice(TYPES)
        patterns, place = drawn(kind, self.contents), self.fresh()
        self.lines.append(f"  {place} = getelementptr {kind}, ptr addrspace(1) %in{number}, i32 %tid")
        self.let(kind, f"load {kind}, ptr addrspace(1) {place}", patterns)
        return kind, patterns

    def step(self) -> None:
        """Write an operation, a branch, a loop, or an exchange through shared memory."""
        if self.depth < 2 and self.dice.random() < 0.15:
            self.dice.choice((self.branch, self.branch, self.loop, self.exchange))()
            return
        found = _by_result()
        operation = self.dice.choice(found[self.dice.choice(sorted(found))])
        operands = [self.operand(kind) for kind in operation.operands]
        if operation.hidden:
            operands = [self.hidden(kind, each) for kind, each in zip(operation.operands, operands, strict=True)]
        options: dict[str, object] = {"active": self.active} if operation.crosses else {}
        number = self.dice.choice(operation.choices) if operation.choices else 0
        if operation.choices:
            options["n"] = number
        if operation.declares:
            self.declared.add(operation.declares)
        text = operation.text.format(*(each.name for each in operands), n=number)
        self.let(operation.result, text, operation.compute(*(each.patterns for each in operands), **options))

    def branch(self) -> None:
        """Write a branch of each lane with one side or two, whose results are joined."""
        holds, sides = self.operand("i1"), [self.fresh("b"), self.fresh("b")]
        after, both = self.fresh("b"), self.dice.random() < 0.6
        self.lines.append(f"  br i1 {holds.name}, label %{sides[0]}, label %{sides[1] if both else after}")
        kinds = [self.dice.choice(TYPES) for _ in range(self.dice.choice((1, 2)))]
        before, active, saved = self.block, self.active, {kind: list(each) for kind, each in self.values.items()}
        kept = [self.dice.choice(saved[kind]) if saved.get(kind) else self.literal(kind) for kind in kinds]
        joined: list[tuple[list[Named], str]] = []
        self.depth += 1
        for side, lanes in zip(sides[: 1 + both], (holds.patterns, ~holds.patterns), strict=False):
            self.lines.append(f"{side}:")
            self.block, self.active = side, active & lanes
            for _ in range(self.dice.randint(1, 4)):
                self.step()
            results = [self.values[kind][-1] if self.values.get(kind) else self.literal(kind) for kind in kinds]
            joined.append((results, self.block))
            self.lines.append(f"  br label %{after}")
            self.values = {kind: list(each) for kind, each in saved.items()}
        if not both:
            joined.append((kept, before))
        self.depth, self.active, self.block = self.depth - 1, active, after
        self.lines.append(f"{after}:")
        (first, first_block), (second, second_block) = joined
        for kind, one, other in zip(kinds, first, second, strict=True):
            lanes = holds.patterns[:, None] if one.patterns.ndim > 1 else holds.patterns
            text = f"phi {kind} [ {one.name}, %{first_block} ], [ {other.name}, %{second_block} ]"
            self.let(kind, text, np.where(lanes, one.patterns, other.patterns))

    def loop(self) -> None:
        """Write a loop that each lane repeats as often as a value says, at most eight times."""
        if self.in_loop:
            return
        often = self.operand("i32")
        last = self.let("i32", f"and i32 {often.name}, 7", often.patterns & np.uint32(7))
        kind = self.dice.choice(("i32", "float", "half", "i64", "<2 x half>"))
        start, before = self.operand(kind), self.block
        body, after, turn, carried = self.fresh("b"), self.fresh("b"), self.fresh(), self.fresh()
        self.lines += [f"  br label %{body}", f"{body}:"]
        outer, saved, active = self.lines, {each: list(found) for each, found in self.values.items()}, self.active
        state, count, arrays = self.dice.getstate(), self.count, len(self.arrays)
        current, lanes, number = start.patterns, self.active, 0
        self.depth, self.in_loop = self.depth + 1, True
        while True:  # each turn writes the same text, and computes the values of its lanes
            self.dice.setstate(state)
            del self.arrays[arrays:]
            self.count, self.lines, self.block, self.active = count, [], body, lanes
            self.values = {each: list(found) for each, found in saved.items()}
            self.values.setdefault("i32", []).append(Named(turn, np.full(LANES, number, dtype=np.uint32)))
            self.values.setdefault(kind, []).append(Named(carried, current))
            for _ in range(self.dice.randint(2, 4)):
                self.step()
            result = self.values[kind][-1]
            running = lanes[:, None] if current.ndim > 1 else lanes
            current, number = np.where(running, result.patterns, current), number + 1
            lanes = lanes & (number <= last.patterns)
            if not lanes.any():
                break
        inner, end, following, again = self.lines, self.block, self.fresh(), self.fresh()
        self.lines = [
            *outer,
            f"  {turn} = phi i32 [ 0, %{before} ], [ {following}, %{end} ]",
            f"  {carried} = phi {kind} [ {start.name}, %{before} ], [ {result.name}, %{end} ]",
            *inner,
            f"  {following} = add i32 {turn}, 1", f"  {again} = icmp ult i32 {turn}, {last.name}",
            f"  br i1 {again}, label %{body}, label %{after}", f"{after}:",
        ]  # fmt: skip
        self.values, self.active, self.block = saved, active, after
        self.depth, self.in_loop = self.depth - 1, False
        self.values.setdefault(kind, []).append(Named(result.name, current))

    def exchange(self) -> None:
        """Write an exchange between lanes of all waves through shared memory."""
        if self.depth:
            return
        kind = self.dice.choice((*INTEGERS, *FLOATS, *PAIRS[:2]))
        value, flipped = self.operand(kind), self.dice.choice((1, 3, 64, 65, 127))
        array, place, other, index = f"@room{len(self.arrays)}", self.fresh(), self.fresh(), self.fresh()
        self.arrays.append(f"{array} = internal addrspace(3) global [{LANES} x {kind}] undef, align 16")
        self.lines += [
            f"  {place} = getelementptr {kind}, ptr addrspace(3) {array}, i32 %tid",
            f"  store {kind} {value.name}, ptr addrspace(3) {place}", *(f"  {each}" for each in _BARRIER),
            f"  {index} = xor i32 %tid, {flipped}",
            f"  {other} = getelementptr {kind}, ptr addrspace(3) {array}, i32 {index}",
        ]  # fmt: skip
        self.let(kind, f"load {kind}, ptr addrspace(3) {other}", value.patterns[np.arange(LANES) ^ flipped])

    def chosen_outputs(self) -> Sequence[tuple[str, Named]]:
        """Return values to store: the last one, and some of the last ones."""
        every = [(kind, each) for kind, found in self.values.items() if kind != "i1" for each in found]
        every.sort(key=lambda item: int(item[1].name[2:]))
        last = every[-3 * _OUTPUTS :]
        return [last[-1], *self.dice.sample(last[:-1], min(len(last), _OUTPUTS) - 1)]


_ATTRIBUTES = f'nounwind "amdgpu-flat-work-group-size"="{LANES},{LANES}" "uniform-work-group-size"="true"'


@np.errstate(all="ignore")
def random_program(seed: int, operations: int = 24) -> Program:
    """Return a program that a seed determines."""
    made = _Builder(seed)
    inputs = {f"in{number}": made.load(number) for number in range(_INPUTS)}
    for _ in range(operations):
        made.step()
    outputs = {f"out{number}": (kind, value) for number, (kind, value) in enumerate(made.chosen_outputs())}
    for name, (kind, value) in outputs.items():
        place = made.fresh()
        made.lines.append(f"  {place} = getelementptr {kind}, ptr addrspace(1) %{name}, i32 %tid")
        made.lines.append(f"  store {kind} {value.name}, ptr addrspace(1) {place}")
    pointers = ", ".join(f"ptr addrspace(1) noalias %{name}" for name in (*inputs, *outputs))
    text = "\n".join(
        [
            _HEAD + "\n".join(sorted(made.declared)), *made.arrays,
            f"define amdgpu_kernel void @kernel({pointers}) {_ATTRIBUTES} {{", "entry:",
            "  %tid = call i32 @llvm.amdgcn.workitem.id.x(), !range !0", *made.lines, "  ret void", "}",
            f"!0 = !{{i32 0, i32 {LANES}}}", "",
        ]
    )  # fmt: skip
    return Program(text, inputs, {name: (kind, value.patterns) for name, (kind, value) in outputs.items()})
