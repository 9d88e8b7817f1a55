"""The attention kernels, compiled without a GPU and executed on bit patterns, against their descriptor."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitwise_core import api
from bitwise_core.checker.analysis import Session
from bitwise_core.checker.sources import Options, buffer_numbers
from bitwise_core.descriptors import AttentionDesc, DescriptorError, read, write
from bitwise_core.descriptors.evaluation import attention_result, evaluate_attention_gradients
from bitwise_core.descriptors.hardware import Hardware
from bitwise_core.numerics import Bits, operation
from bitwise_core.plugins import registry
from bitwise_core.plugins.attention_calls import AttentionForm, AttentionGradientTensors, AttentionOperands
from bitwise_nvidia_sm90 import approximations, matrix_units
from bitwise_nvidia_sm90.attention.few_rows import Division, Work, division_of
from bitwise_nvidia_sm90.attention.few_rows_choices import CHOICES
from bitwise_nvidia_sm90.attention.launch import (
    Schedule,
    calls_of,
    can_specialise,
    chosen_schedule,
    schedule_of,
    schedule_of_division,
    specialised_schedule,
    value_slots,
)
from bitwise_nvidia_sm90.attention.launcher import AttentionKernels
from bitwise_nvidia_sm90.attention.tree import WIDTHS, attention_descriptor, attention_gradient_descriptor, is_served
from covering import covering, covering_params

HARDWARE = Hardware({row.name: row for row in matrix_units.ROWS}, approximations.FUNCTIONS)
SERIAL, WIDE = Schedule(64, False, False, 2, False), Schedule(128, False, False, 2, False)
PACKED, SPLIT = Schedule(64, True, False, 2, False), Schedule(64, True, True, 3, False)
SPANS = Schedule(64, True, True, 2, False, span=2)
TURN, TURNS = Schedule(64, True, False, 4, programs=1), Schedule(64, True, True, 3, programs=1)
FEW, FEWS = (replace(each, rows=16) for each in (TURN, TURNS))
ALONE, ALONES = (replace(each, alone=True) for each in (FEW, FEWS))
MERGED, ALONE_MERGED = (replace(each, merged=8) for each in (FEWS, ALONES))
BLOCK_OF_EACH_WARP, BLOCKS_OF_WARPS = (replace(each, blocks=4, stages=1) for each in (FEW, FEWS))


@dataclass(frozen=True)
class Problem:
    """Sequences of one call: pairs of a number of queries and of keys; the options of its form and its layout."""

    form: AttentionForm
    lengths: tuple[tuple[int, int], ...]
    heads: int = 2
    groups: int = 1
    layout: str = "dense"
    page: int = 16
    first_position: int | None = None
    special: bool = False
    first_keys: tuple[int, ...] | None = None
    seen: str = "at random"
    only: int | None = None
    """The one of several sequences that a call of gradients has; what belongs to others is NaN."""

    @property
    def desc(self) -> AttentionDesc:
        return attention_descriptor(self.form)


def patterns(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], special: bool) -> Bits:
    values = np.asarray(rng.standard_normal(shape), np.float32)
    if special:
        some = rng.random(shape) < 0.002
        values = np.where(some, rng.choice(np.array([np.inf, -np.inf, np.nan, -0.0, 1e-40], np.float32), shape), values)
        values = np.asarray(values * 2.0 ** rng.integers(-20, 20, shape), np.float32)
    return operation(f"convert.rn.{dtype}.fp32").evaluate(values.view(np.uint32))


def operands_of(problem: Problem, rng: np.random.Generator) -> tuple[AttentionOperands, dict[str, Any]]:
    """Return the operands as shapes, and the contents of their buffers."""
    pytest.importorskip("triton")
    from attention_sources import dense

    form, lengths = problem.form, problem.lengths
    queries, keys = max(each[0] for each in lengths), max(each[1] for each in lengths)
    count = len(lengths)
    buffers: dict[str, Any] = {}

    def tensor(name: str, width: int, heads: int, *shape: int) -> Any:
        stored = None if name == "query" else form.stored
        buffers[name] = patterns(rng, stored or form.dtype, (*shape, heads, width), problem.special)
        if stored is not None:
            return replace(dense(name, {"e4m3": "fp8e4nv", "e5m2": "fp8e5"}[stored], *shape, heads, width), size=1)
        return dense(name, form.dtype, *shape, heads, width)

    def integers(name: str, values: Any) -> Any:
        buffers[name] = np.asarray(values, np.int32)
        return dense(name, "i32", *buffers[name].shape)

    rows = (count, queries) if problem.layout != "varlen" else (sum(each[0] for each in lengths),)
    query = tensor("query", form.depth, problem.heads, *rows)
    extra: dict[str, Any] = {"first_position": problem.first_position}
    if problem.layout == "varlen":
        places: tuple[int, ...] = (sum(each[1] for each in lengths),)
        for name, part in (("query_starts", 0), ("key_starts", 1)):
            extra[name] = integers(name, np.cumsum([0, *(each[part] for each in lengths)]))
    elif problem.layout == "paged":
        pages = -(-keys // problem.page)
        places = (count * pages, problem.page)
        extra["page_table"] = integers("page_table", rng.permutation(count * pages).reshape(count, pages))
        extra["key_lengths"] = integers("key_lengths", [each[1] for each in lengths])
    else:
        places = (count, keys)
    key = tensor("key", form.depth, problem.groups, *places)
    value = tensor("value", form.width, problem.groups, *places)
    buffers["out"] = np.zeros((*rows, problem.heads, form.width), np.uint16)
    buffers["logarithms"] = np.zeros((*rows, problem.heads), np.uint32)
    if form.sink:
        buffers["sinks"] = np.asarray(rng.standard_normal(problem.heads), np.float32).view(np.uint32)
        extra["sinks"] = dense("sinks", "fp32", problem.heads)
    if problem.layout == "visible":
        buffers["visible"] = mask_of(problem, rng, count, queries, keys).astype(np.uint8)
        shape = dense("visible", "u8", *buffers["visible"].shape)
        extra["visible"] = replace(shape, strides=(shape.strides[0], 0, *shape.strides[2:]), size=1)
    if problem.first_keys is not None:
        extra["first_keys"] = integers("first_keys", problem.first_keys)
    return AttentionOperands(
        query, key, value, dense("out", form.dtype, *buffers["out"].shape), queries, keys,
        logarithms=dense("logarithms", "fp32", *buffers["logarithms"].shape), **extra,
    ), buffers  # fmt: skip


def mask_of(problem: Problem, rng: np.random.Generator, count: int, queries: int, keys: int) -> Any:
    """Return a mask (sequences, 1, queries, keys): drawn, causal from the first keys on, or of no key at all."""
    if problem.seen == "nothing":
        return np.zeros((count, 1, queries, keys), np.bool_)
    if problem.seen == "at random":
        return rng.random((count, 1, queries, keys)) < 0.7
    first = np.array(problem.first_keys or (0,) * count).reshape(-1, 1, 1, 1)
    place, row = np.arange(keys), np.arange(queries)[:, None]
    return (place >= first) & (place <= row + keys - queries)


def simulated(problem: Problem, operands: AttentionOperands, buffers: dict[str, Any], schedule: Schedule) -> Any:
    from attention_sources import dense, source_of

    state = dict(buffers)

    def workspace(shape: tuple[int, ...]) -> Any:
        name = f"workspace{len(state)}"
        state[name] = np.full(shape, 0x7FC00000, np.uint32)  # NaNs, of which none may be read
        return dense(name, "fp32", *shape)

    for call in calls_of(problem.desc, operands, schedule, 1, workspace):
        source = source_of(call)
        assert source.launch is not None
        used = {name: state[name] for name in source.launch.buffers()}
        found = api.run(source, used, target="sm_90", audit_contraction=False)
        state |= {name: found[name].view(state[name].dtype) for name in used}
    return state["out"], state["logarithms"]


def evaluated(problem: Problem, buffers: dict[str, Any]) -> Any:
    out, logarithms = buffers["out"].copy(), buffers["logarithms"].copy()
    share = problem.heads // problem.groups
    for place, (queries, keys) in enumerate(problem.lengths):
        rows: Any = (place, slice(queries))
        key, value = buffers["key"], buffers["value"]
        first = 0 if problem.first_keys is None else problem.first_keys[place]
        if problem.layout == "varlen":
            starts = buffers["query_starts"], buffers["key_starts"]
            rows = (slice(starts[0][place], starts[0][place + 1]),)
            key, value = (each[starts[1][place] : starts[1][place + 1]] for each in (key, value))
        elif problem.layout == "paged":
            table = buffers["page_table"][place]
            key, value = (each[table].reshape(-1, *each.shape[2:])[:keys] for each in (key, value))
        else:
            key, value = (each[place, first:] for each in (key, value))
        for head in range(problem.heads if queries else 0):
            found = attention_result(
                problem.desc, buffers["query"][rows][:, head], key[:, head // share], value[:, head // share],
                first_position=problem.first_position, hardware=HARDWARE,
                sink=float(buffers["sinks"].view(np.float32)[head]) if problem.form.sink else None,
                visible=buffers["visible"][place, 0, :, first:] != 0 if problem.layout == "visible" else None,
            )  # fmt: skip
            out[(*rows, head)], logarithms[(*rows, head)] = found.output, found.logarithms
    return out, logarithms


def form(dtype: str = "bf16", depth: int = 64, width: int | None = None, **changes: Any) -> AttentionForm:
    return AttentionForm(dtype, depth, width or depth, 1 / math.sqrt(depth), **{"causal": True, **changes})


PROBLEMS = {
    "a prefill": (Problem(form(), ((70, 70),)), (SERIAL, WIDE)),
    "a part of a prefill over three chunks": (
        Problem(form("fp16"), ((2, 1100),), heads=1),
        (
            SERIAL, SPLIT, SPANS, FEWS, ALONES, MERGED,
        ),
    ),
    "queries before the keys": (Problem(form(), ((9, 5),)), (SERIAL, SPLIT, TURN)),
    "no mask": (Problem(form(causal=False), ((3, 65),)), (SERIAL, PACKED, BLOCK_OF_EACH_WARP)),
    "aligned at the first key": (Problem(form(), ((6, 90),), first_position=0), (SERIAL, PACKED, TURN)),
    "groups of heads": (
        Problem(form(), ((2, 530), (2, 530)), heads=4, groups=2),
        (PACKED, SPLIT, FEWS),
    ),
    "variable lengths": (
        Problem(form(), ((3, 70), (66, 66), (1, 1)), heads=2, layout="varlen"), (SERIAL, PACKED, SPLIT, FEW)
    ),
    "variable lengths over two chunks": (
        Problem(form("fp16", causal=False), ((1, 3), (2, 530), (3, 70)), layout="varlen", special=True),
        (TURNS, FEWS, ALONES, replace(ALONES, ordered=True), replace(ALONE_MERGED, merged=4)),
    ),
    "pages of 16": (Problem(form(), ((2, 97), (2, 5)), layout="paged"), (SERIAL, SPLIT, FEW)),
    "pages of 64 over two chunks": (
        Problem(form(window=300), ((2, 97), (2, 530)), layout="paged", page=64),
        (TURN, FEWS, ALONES, MERGED),
    ),
    "pages of 32 over three chunks": (
        Problem(form(depth=128), ((1, 1100), (1, 150), (1, 530)), layout="paged", page=32),
        (FEWS, ALONES, BLOCKS_OF_WARPS),
    ),
    "pages of 128": (Problem(form("fp16"), ((1, 520),), layout="paged", page=128), (SERIAL, SPLIT, TURNS)),
    "pages of 32 and heads of 128": (
        Problem(form(depth=128), ((1, 70), (1, 150)), layout="paged", page=32), (TURN, FEW, ALONE)
    ),
    "pages of many sequences": (
        Problem(form(), tuple((1, keys) for keys in (5, 20, 1, 530, 7, 64, 65, 2, 9, 30, 3)), layout="paged"),
        (
            FEWS, MERGED, FEW, ALONE, replace(FEWS, ordered=True), replace(ALONE, ordered=True),
        ),
    ),
    "pages of fp8": (
        Problem(form(depth=128, stored="e4m3", output_scale=0.7), ((2, 97), (2, 600)), layout="paged"), (SERIAL, SPLIT)
    ),
    "a window": (Problem(form(window=40), ((70, 300),)), (SERIAL, SPLIT, SPANS, FEW)),
    "a window over two chunks": (Problem(form(window=100), ((3, 560),)), (SPLIT, TURNS, replace(TURNS, merged=16))),
    "a soft cap": (Problem(form(soft_cap=5.0), ((4, 70),)), (SERIAL, FEW)),
    "sinks": (
        Problem(form(sink=True), ((3, 530),)),
        (SERIAL, SPLIT, TURN, FEWS, ALONE_MERGED),
    ),
    "sinks of one chunk": (Problem(form(sink=True), ((3, 65),)), (TURN,)),
    "a mask": (Problem(form(causal=False), ((5, 70),), layout="visible"), (SERIAL, SPLIT)),
    "a mask of heads of 128": (
        Problem(form(depth=128, causal=False), ((5, 150),), heads=1, layout="visible"), (SERIAL,)
    ),
    "a causal mask from a first key on": (
        Problem(
            form(causal=False), ((140, 150), (140, 150)), layout="visible", seen="causal", first_keys=(3, 10), heads=1
        ),
        (SERIAL, WIDE),
    ),
    "a mask from a first key on over three chunks": (
        Problem(
            form(causal=False), ((1, 1100), (1, 1100)), layout="visible", seen="causal", first_keys=(0, 77), groups=2
        ),
        (SERIAL, SPLIT, SPANS),
    ),
    "a mask that hides every key": (
        Problem(form(causal=False), ((2, 70),), layout="visible", seen="nothing"), (SERIAL, SPLIT)
    ),
    "special values": (Problem(form(causal=False), ((20, 130),), special=True), (SERIAL, SPLIT, FEW)),
    "special values of fp16": (Problem(form("fp16", causal=False), ((20, 70),), special=True), (SERIAL, WIDE)),
    "heads of 96": (
        Problem(form(depth=96), ((4, 70),), heads=1), (SERIAL, FEW, replace(BLOCK_OF_EACH_WARP, stages=2))
    ),
    "pages of heads of 96": (
        Problem(form(depth=96), ((1, 70), (1, 530)), layout="paged", page=32),
        (FEWS, replace(ALONES, stages=7), MERGED, replace(BLOCKS_OF_WARPS, stages=2)),
    ),
    "many sequences without rows": (
        Problem(form(), ((1, 70), *((0, 0),) * 270, (2, 3), (1, 600)), heads=1, layout="varlen"),
        (FEW, FEWS, replace(FEWS, ordered=True)),
    ),
    "rows without keys among others": (Problem(form(), ((9, 5), (3, 520)), layout="varlen"), (FEWS, FEW)),
    "heads of 128": (
        Problem(form(depth=128), ((4, 170),), heads=1), (SERIAL, WIDE, SPLIT, FEW)
    ),
    "heads of 192 and 128": (
        Problem(form(depth=192, width=128), ((4, 70),), heads=1), (SERIAL, FEW)
    ),
    "heads of 192 and 128 over two chunks": (
        Problem(form("fp16", 192, 128, causal=False), ((1, 530),), special=True), (FEWS,)
    ),
    "pages of heads of 192 and 128": (
        Problem(form(depth=192, width=128), ((2, 70), (2, 100)), layout="paged", page=32),
        (FEW, replace(ALONE, stages=5)),
    ),
    "heads of 256": (Problem(form(depth=256), ((4, 70),), heads=1), (SERIAL, FEW)),
}  # fmt: skip


def kernel_of(schedule: Schedule) -> str:
    """Return the kernel of a schedule in words."""
    if schedule.specialised:
        return "specialised"
    if schedule.rows == 16:
        return "alone" if schedule.alone else "few rows"
    if schedule.programs:
        return "turns"
    return f"tiles of {schedule.rows}{', packed' if schedule.packed else ''}"


def division_of_keys(schedule: Schedule) -> str:
    """Return how a schedule divides keys, and how their states are merged."""
    if schedule.merged:
        return "merged rows"
    return "spans" if schedule.span > 1 else "split" if schedule.split else "whole"


def values_of(problem: Problem) -> dict[str, Hashable]:
    """Return what decides the paths of a kernel through a problem."""
    form, lengths = problem.form, problem.lengths
    mask = "a window" if form.window else "causal" if form.causal else "none"
    extra = {
        "fp8": form.stored, "sinks": form.sink, "a cap": form.soft_cap, "first keys": problem.first_keys,
        "first position": problem.first_position is not None, "special values": problem.special,
    }  # fmt: skip
    return {
        "type": form.dtype,
        "heads": (form.depth, form.width),
        "mask": problem.seen if problem.layout == "visible" else mask,
        "layout": problem.layout,
        "extra": tuple(name for name, value in extra.items() if value),
        "groups": (problem.groups > 1, problem.heads > problem.groups),
        "chunks": min(3, -(-max(keys for _, keys in lengths) // 512)),
        "sequences": sum(len(lengths) > most for most in (1, 8, 256)),
        "rows without keys": any(queries > keys for queries, keys in lengths),
    }


@dataclass(frozen=True)
class Case:
    """A schedule of a problem of `PROBLEMS`."""

    name: str
    problem: Problem
    schedule: Schedule

    @property
    def values(self) -> dict[str, Hashable]:
        schedule = self.schedule
        return values_of(self.problem) | {
            "kernel": kernel_of(schedule),
            "division": division_of_keys(schedule),
            "order": (schedule.ordered, schedule.split),
            "blocks": schedule.blocks,
        }

    @property
    def cost(self) -> float:
        """Roughly the time of a simulation: blocks of keys, and what every launch takes."""
        return 20 + sum(-(-keys // 64) * self.problem.heads for _, keys in self.problem.lengths)


CASES = [Case(name, problem, each) for name, (problem, schedules) in PROBLEMS.items() for each in schedules]


@cache
def expected_of(name: str) -> tuple[AttentionOperands, dict[str, Any], Any]:
    """Return the operands of a problem, the contents of its buffers, and the results of its descriptor."""
    problem, _ = PROBLEMS[name]
    operands, buffers = operands_of(problem, np.random.default_rng(len(name)))
    return operands, buffers, evaluated(problem, buffers)


@pytest.mark.parametrize(
    "case",
    covering_params(
        CASES,
        lambda case: case.values,
        name=lambda case: f"{case.name}-{kernel_of(case.schedule)}, {division_of_keys(case.schedule)}",
        cost=lambda case: case.cost,
    ),
)
def test_every_schedule_has_the_bytes_of_the_descriptor(case: Case) -> None:
    operands, buffers, expected = expected_of(case.name)
    out, logarithms = simulated(case.problem, operands, buffers, case.schedule)
    assert out.tobytes() == expected[0].tobytes()
    assert logarithms.tobytes() == expected[1].tobytes()


@pytest.mark.exhaustive
def test_the_longest_of_many_sequences_come_first() -> None:
    """Lengths are read in several steps."""
    problem, _ = PROBLEMS["many sequences without rows"]
    operands, buffers, expected = expected_of("many sequences without rows")
    out, logarithms = simulated(problem, operands, buffers, replace(FEW, ordered=True))
    assert out.tobytes() == expected[0].tobytes()
    assert logarithms.tobytes() == expected[1].tobytes()


def test_states_of_many_chunks_are_merged_in_their_order() -> None:
    """More chunks than factors are computed at a time; some have hidden keys only."""
    from attention_sources import dense, source_of

    rng, chunks = np.random.default_rng(3), 300
    desc = attention_descriptor(form(causal=False))
    shapes = dense("query", "bf16", 1, 1, 1, 64), *[dense(each, "bf16", 1, chunks * 512 - 9, 1, 64) for each in "kv"]
    logarithms = dense("logarithms", "fp32", 1, 1, 1)
    operands = AttentionOperands(*shapes, dense("out", "bf16", 1, 1, 1, 64), 1, chunks * 512 - 9, logarithms=logarithms)
    names = iter(("tops", "totals", "outs"))
    calls = calls_of(desc, operands, TURNS, 1, lambda shape: dense(next(names), "fp32", *shape))
    tops = np.asarray(rng.integers(-2000, 2000, chunks) / 256, np.float32)
    totals, outs = (np.asarray(rng.standard_normal((chunks, width)), np.float32) for width in (1, 64))
    empty = rng.random(chunks) < 0.1
    tops[empty], totals[empty], outs[empty] = -np.inf, 0, 0
    source = source_of(calls[1])
    given = {"tops": tops, "totals": np.abs(totals), "outs": outs}
    buffers = {name: each.view(np.uint32).reshape(-1) for name, each in given.items()}
    buffers |= {"out": np.zeros(64, np.uint16), "logarithms": np.zeros(1, np.uint32)}
    found = api.run(source, buffers, target="sm_90", audit_contraction=False)["out"].view(np.uint16)

    multiply, fused = (operation(each) for each in ("mul.rn.fp32", "fma.rn.fp32"))
    power = HARDWARE.functions[desc.exponential]
    top, state = np.float32(-np.inf), np.zeros(65, np.uint32)
    parts = np.concatenate([np.abs(totals), outs], axis=1).view(np.uint32)
    for high, part in zip(tops, parts, strict=True):
        highest = max(top, high)
        shift = max(highest, np.finfo(np.float32).min)
        old, fresh = (power(np.asarray([each - shift], np.float32).view(np.uint32)) for each in (top, high))
        state, top = fused.evaluate(part, fresh, multiply.evaluate(state, old)), highest
    inverse = (np.float32(1) / state[:1].view(np.float32)).view(np.uint32)
    out = multiply.evaluate(state[1:], inverse)
    assert found.tobytes() == operation("convert.rn.bf16.fp32").evaluate(out).tobytes()


SPECIALISED = {
    "heads of 96 and two chunks": Problem(form("fp16", 96, causal=False), ((70, 530),), heads=1, special=True),
    "heads of 128 in groups": Problem(form(depth=128), ((70, 150),), heads=4, groups=2),
    "heads of 192 and 128 with sinks": Problem(
        form(depth=192, width=128, window=50, sink=True), ((70, 90),), heads=1
    ),
    "heads of 256 with a soft cap": Problem(form(depth=256, soft_cap=5.0), ((3, 70),), heads=2),
    "heads of 256 over three chunks": Problem(form("fp16", depth=256, window=580), ((3, 1030),), heads=1),
    "variable lengths of heads of 128": Problem(
        form(depth=128), ((3, 150), (0, 5), (70, 128), (1, 1)), heads=1, layout="varlen", special=True
    ),
    "variable lengths of heads of 256": Problem(
        form(depth=256, causal=False), ((2, 70), (3, 5)), heads=1, layout="varlen"
    ),
    "pages of 16 and heads of 192 and 128": Problem(
        form(depth=192, width=128), ((2, 97), (2, 5)), heads=1, layout="paged"
    ),
    "pages of 64 and heads of 128": Problem(form("fp16", depth=128), ((2, 140),), heads=1, layout="paged", page=64),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIALISED)
def test_specialised_kernels_have_the_bytes_of_the_descriptor(name: str) -> None:
    problem = SPECIALISED[name]
    operands, buffers = operands_of(problem, np.random.default_rng(len(name)))
    assert can_specialise(problem.desc, operands)
    schedule = specialised_schedule((problem.form.depth, problem.form.width))
    out, logarithms = simulated(problem, operands, buffers, schedule)
    expected = evaluated(problem, buffers)
    assert out.tobytes() == expected[0].tobytes()
    assert logarithms.tobytes() == expected[1].tobytes()


@pytest.mark.parametrize(("depth", "window", "share", "count"), [(128, 600, 3, 2), (96, 512, 1, 3), (256, 130, 40, 4)])
def test_queries_a_chunk_apart_have_the_bytes_of_each_alone(depth: int, window: int, share: int, count: int) -> None:
    chunk = attention_descriptor(form(depth=depth)).chunk
    assert chunk is not None
    keys, rows = window + (count - 1) * chunk, share * count
    problem = Problem(form(depth=depth, window=window), ((rows, keys),), heads=1, first_position=window - 1)
    operands, buffers = operands_of(problem, np.random.default_rng(depth))
    schedule = specialised_schedule((depth, depth))
    apart = replace(operands, query_share=share, query_step=chunk)
    found, _ = simulated(problem, apart, buffers, schedule)
    alone = Problem(form(depth=depth, causal=False), ((share, window),), heads=1)
    for each in range(count):
        queries, seen = slice(each * share, (each + 1) * share), slice(each * chunk, each * chunk + window)
        taken = {name: buffers[name][:, queries] for name in ("query", "out", "logarithms")}
        taken |= {name: buffers[name][:, seen] for name in ("key", "value")}
        assert found[:, queries].tobytes() == evaluated(alone, taken)[0].tobytes()
    with pytest.raises(DescriptorError, match="query_step=1"):
        simulated(problem, apart, buffers, SERIAL)


def test_the_parts_of_a_prefill_have_its_bytes() -> None:
    """Rows of one prefill, of two parts of it, and of single queries with the keys up to their own."""
    problem = Problem(form(), ((70, 70),), heads=1)
    operands, buffers = operands_of(problem, np.random.default_rng(5))
    whole, _ = simulated(problem, operands, buffers, WIDE)
    for low, high in ((0, 33), (33, 70), (69, 70)):
        part = replace(problem, lengths=((high - low, high),))
        taken = {**buffers, "query": buffers["query"][:, low:high], "out": buffers["out"][:, low:high]}
        taken |= {name: buffers[name][:, :high] for name in ("key", "value")}
        taken["logarithms"] = buffers["logarithms"][:, low:high]
        taken = {name: np.ascontiguousarray(each) for name, each in taken.items()}
        shapes, _ = operands_of(part, np.random.default_rng(0))
        for schedule in (SERIAL, SPLIT):
            assert simulated(part, shapes, taken, schedule)[0].tobytes() == whole[:, low:high].tobytes()


PROVED = {
    "dense keys": (Problem(form(), ((4, 70),)), (SERIAL, WIDE, PACKED, TURN, FEW, ALONE, BLOCK_OF_EACH_WARP)),
    "heads of 96": (
        Problem(form(depth=96), ((4, 70),), heads=1),
        (SERIAL, FEW, specialised_schedule((96, 96))),
    ),
    "heads of 128": (Problem(form(depth=128), ((4, 130),), heads=1), (SERIAL, TURN, specialised_schedule((128, 128)))),
    "pages": (
        Problem(form(), ((2, 97), (2, 5)), layout="paged"),
        (
            SERIAL,
            PACKED,
            TURN,
            FEW,
            ALONE,
            replace(ALONE, ordered=True),
            replace(BLOCK_OF_EACH_WARP, ordered=True),
        ),
    ),
    "variable lengths": (
        Problem(form(), ((3, 70), (1, 1)), layout="varlen"),
        (SERIAL, PACKED, TURN, FEW, ALONE),
    ),
    "variable lengths of heads of 128": (
        Problem(form(depth=128), ((3, 70), (1, 1)), heads=1, layout="varlen"),
        (SERIAL, specialised_schedule((128, 128))),
    ),
    "pages of heads of 128": (
        Problem(form(depth=128), ((1, 40),), heads=1, layout="paged", page=32),
        (SERIAL, specialised_schedule((128, 128))),
    ),
    "pages of fp8": (
        Problem(form(stored="e4m3", output_scale=0.7), ((2, 40), (2, 20)), layout="paged"),
        (SERIAL, WIDE, PACKED),
    ),
    "two chunks": (Problem(form(), ((1, 600),)), (SERIAL, TURN)),
    "pages of three chunks": (
        Problem(form(depth=128), ((1, 40), (1, 1100)), heads=1, layout="paged", page=32),
        (SERIAL, FEW),
    ),
}
"""Problems whose schedules are one launch each, with page tables and lengths given."""


PROOFS = [Case(name, problem, each) for name, (problem, schedules) in PROVED.items() for each in schedules[1:]]
COVERING_PROOFS = covering([each.values for each in PROOFS], [each.cost for each in PROOFS])


@pytest.mark.parametrize("name", PROVED)
@pytest.mark.parametrize("proofs", [
    pytest.param([PROOFS[place] for place in COVERING_PROOFS], id="covering"),
    pytest.param(PROOFS, id="all", marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_the_checker_proves_the_schedules_of_a_problem_equal(name: str, proofs: list[Case]) -> None:
    problem, (first, *_) = PROVED[name]
    schedules = [first, *(each.schedule for each in proofs if each.name == name)]
    sources = [replace(_source(problem, each)[0], name=str(each)) for each in schedules]
    found = api.partition(sources, target="sm_90", workers=1, cache=False)
    assert found.unknown == {}
    assert found.classes == (tuple(map(str, schedules)),)


def test_the_checker_proves_the_states_of_divided_keys_equal() -> None:
    """A merge is a launch of its own: equal states and one merge."""
    problem = Problem(form(), ((1, 600),))
    first, other, alone = (_source(problem, schedule) for schedule in (SPLIT, TURNS, ALONES))
    assert api.compare(first[0], other[0], target="sm_90", cache=False).outcome == "equal"
    assert api.compare(first[0], alone[0], target="sm_90", cache=False).outcome == "equal"
    assert first[1].text == other[1].text
    assert first[1].launch == other[1].launch


def test_the_checker_proves_the_states_of_any_order_of_parts_equal() -> None:
    """With the lengths given, programs that take whole chunks first store what others do."""
    problem = Problem(form(), ((1, 3), (1, 530), (1, 70)), heads=1, layout="paged", page=64)
    schedules = (FEWS, replace(FEWS, ordered=True), replace(BLOCKS_OF_WARPS, ordered=True))
    sources = [replace(_source(problem, each)[0], name=str(each)) for each in schedules]
    found = api.partition(sources, target="sm_90", workers=1, cache=False)
    assert found.unknown == {}
    assert found.classes == (tuple(map(str, schedules)),)


def test_the_checker_proves_merges_of_any_number_of_rows_equal() -> None:
    problem = Problem(form(), ((1, 600), (2, 1030)), heads=4, groups=2, layout="varlen")
    sources = [
        replace(_source(problem, replace(MERGED, merged=rows))[1], name=str(rows)) for rows in (4, 8, 32)
    ]  # fmt: skip
    found = api.partition(sources, target="sm_90", workers=1, cache=False)
    assert found.unknown == {}
    assert found.classes == (("4", "8", "32"),)


def test_the_checker_finds_no_proof_for_another_scale() -> None:
    problem = Problem(form(), ((4, 70),), heads=1)
    other = replace(problem, form=replace(problem.form, scale=0.25))
    first, second = (_source(each, SERIAL)[0] for each in (problem, other))
    assert api.compare(first, second, target="sm_90", cache=False).outcome != "equal"


def _source(problem: Problem, schedule: Schedule) -> list[Any]:
    """Return the launches of a schedule, with the contents of tables and lengths."""
    pytest.importorskip("triton")
    from attention_sources import dense, source_of

    operands, buffers = operands_of(problem, np.random.default_rng(0))
    names = iter(("tops", "totals", "outs"))
    calls = calls_of(
        problem.desc, operands, schedule, 1, lambda shape: dense(next(names), "fp32", *shape)
    )  # fmt: skip
    integers = ("query_starts", "key_starts", "page_table", "key_lengths")
    given: dict[str, Any] = {each: buffers[each] for each in integers if each in buffers}
    return [source_of(call, given) for call in calls]


@pytest.mark.parametrize("widths", WIDTHS)
def test_descriptors_are_served_and_have_a_text(widths: tuple[int, int]) -> None:
    fp8 = {"stored": "e5m2", "output_scale": 0.5}
    for changes in ({}, {"causal": False}, {"window": 5}, {"soft_cap": 30.0}, {"sink": True}, fp8):
        desc = attention_descriptor(form("fp16", *widths, **changes))
        assert is_served(desc)
        assert read(write(desc)) == desc
    assert not is_served(AttentionDesc(**{**dict(desc), "chunk": 1024}))
    assert not is_served(AttentionDesc(**{**dict(desc), "fused_sum": False}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dtype": "fp32"}, "attention of fp32 has no kernel on sm_90: convert the tensors to bf16 or fp16"),
        ({"depth": 80, "width": 80}, "heads of 80 components with values of 80 .*: pad them with zeros to 96, and"),
        ({"depth": 150, "width": 128}, "pad them with zeros to 192/128, and give the scale"),
        ({"depth": 512, "width": 512}, "heads of 512 .* have no kernel on sm_90: the widest have 256"),
        ({"scale": -1.0}, r"a scale of -1\.0 has no kernel: give a positive one"),
        ({"soft_cap": 0.0}, r"a soft cap of 0\.0 has no kernel: give a positive one"),
        ({"window": 4, "causal": False}, "a window is the positive number of keys that a causal query sees"),
        ({"stored": "fp32"}, "keys and values of fp32 have no kernel for queries of bf16: convert them to bf16, e4m3"),
        ({"stored": "e4m3", "output_scale": -1.0}, r"an output scale of -1\.0 has no kernel: give a positive one"),
        ({"output_scale": 2.0}, "an output scale has a kernel for keys and values of fp8 alone: leave it out"),
    ],
)
def test_forms_without_a_kernel_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DescriptorError, match=sentence):
        attention_descriptor(replace(form(), **changes))


def test_schedules_divide_long_keys_of_few_programs_alone() -> None:
    desc = attention_descriptor(form(depth=128))
    assert schedule_of(desc, 1, 1, 65536, 32, 8, False, 132) == Schedule(64, True, True, 2, span=8)
    assert schedule_of(desc, 1, 1, 8192, 32, 8, False, 132) == Schedule(64, True, True, 3)
    assert schedule_of(desc, 16, 1, 4096, 32, 8, False, 132) == Schedule(64, True, False, 3)
    assert schedule_of(desc, 1, 8192, 8192, 32, 8, False, 132) == Schedule(128, False, False, 2)
    assert schedule_of(desc, 64, 1, 65536, 32, 8, True, 132).split
    narrow = attention_descriptor(form(depth=64))
    assert schedule_of(narrow, 1, 8192, 8192, 32, 8, False, 132) == Schedule(64, False, False, 3)
    assert Schedule(128, False, False, 2).warps == 8


def test_programs_take_chunks_in_turn_where_they_would_divide_unevenly() -> None:
    desc, narrow = (attention_descriptor(form(depth=depth)) for depth in (128, 64))
    assert schedule_of(narrow, 100, 8, 3000, 32, 8, False, 132, True) == Schedule(
        64, True, True, 3, programs=396, resident=3
    )
    assert schedule_of(desc, 20, 8, 4096, 32, 8, False, 132, True) == Schedule(64, True, True, 4, programs=132)
    assert not schedule_of(desc, 1, 4096, 4096, 32, 8, False, 132, True).programs
    # Pages have two programs on a multiprocessor, and few chunks one that copies as much ahead as there is.
    assert schedule_of(desc, 64, 8, 2048, 32, 8, True, 132, True) == Schedule(
        64, True, True, 3, programs=264, resident=2
    )
    assert schedule_of(narrow, 1, 8, 3000, 24, 2, True, 132, True) == Schedule(64, True, True, 8, programs=132)


def test_divisions_of_few_rows_fit_a_multiprocessor() -> None:
    """Their programs lie in its memory and registers, and visit whole blocks of the ring."""
    for depth, choices in CHOICES.items():
        block = attention_descriptor(form(depth=depth, width=128 if depth == 192 else depth)).key_block
        width = 128 if depth == 192 else depth
        for each in choices.divisions():
            components = min(64, depth & -depth)
            if each.blocks == 4:
                slots = value_slots(each, block, depth, width)
                memory = 2 * block * (4 * each.stages * depth + slots * width + 4 * 16) + 2048
                assert each.stages
                assert each.resident * memory <= 227 << 10
                assert not each.alone
                continue
            slot = each.blocks * block * 2 * (components if each.alone else depth)
            exchanged = 0 if each.alone else 4 * 16 * each.blocks * block
            assert each.resident * (each.stages * slot + exchanged + 1024) <= 227 << 10
            assert each.stages >= (max(2, depth // components) if each.alone else 3)
            assert not each.alone or each.blocks == 1


def test_few_rows_are_divided_by_their_number_and_their_keys() -> None:
    desc, narrow = (attention_descriptor(form(depth=depth)) for depth in (128, 64))
    for descriptor, sequences, keys, split in (
        (desc, 1, 500, False), (desc, 1, 65536, True), (narrow, 300, 512, False), (narrow, 2, 90000, True),
        (narrow, 1, 2048, True),
    ):  # fmt: skip
        found = schedule_of(descriptor, sequences, 1, keys, 32, 8, False, 132, True)
        assert (found.rows, found.split) == (16, split)
    # Programs of one part each are as many as there may be parts.
    part = Division(True, 1, 2, 6)
    schedule = schedule_of_division(part, 99 * 8, 3000, 4)
    assert schedule is not None
    assert schedule.programs == 99 * 8 * 6
    assert schedule_of_division(part, 99 * 8, 512, 4) is None
    # Of many rows with few chunks a program merges several.
    merged = [schedule_of_division(part, rows, keys, 4) for rows, keys in ((792, 3000), (100, 3000), (792, 9000))]
    assert [each.merged for each in merged if each is not None] == [4, 0, 0]
    # A window has few keys.
    windowed = attention_descriptor(form(depth=128, window=100))
    assert not schedule_of(windowed, 64, 1, 8000, 32, 8, True, 132, True).split


def test_parts_that_do_not_run_at_once_are_ordered_where_lengths_are_known_alone() -> None:
    """Pages are read before the lengths, which saves as much."""
    for keys, layout, ordered in ((9000, "varlen", True), (600, "varlen", False), (9000, "paged", False)):
        problem = Problem(form(causal=False), ((1, keys), (1, 3)), layout=layout)
        operands, _ = operands_of(problem, np.random.default_rng(0))
        assert chosen_schedule(problem.desc, operands, 1).ordered == ordered


@pytest.mark.parametrize("depth", CHOICES)
def test_every_number_of_rows_and_of_keys_has_a_division(depth: int) -> None:
    width = 128 if depth == 192 else depth
    for rows in (1, 100, 200, 3000):
        for keys in (1, 512, 513, 1025, 100000):
            for ragged in (False, True):
                division = division_of(Work(rows, keys, 4, depth, width, ragged), 132, CHOICES[depth])
                assert schedule_of_division(division, rows, keys, 4) is not None


def test_copies_wait_for_the_loads_of_what_they_overwrite() -> None:
    """A barrier lets warps pass whose loads of shared memory are under way; a fence before it does not."""
    problem, _ = PROVED["dense keys"]
    arrival, copy = "mbarrier.arrive.shared", "cp.async.bulk.tensor"
    for schedule, release in ((FEW, arrival), (FEWS, arrival), (ALONE, copy), (ALONES, copy)):
        loaded, released = False, 0
        for line in _source(problem, schedule)[0].text.splitlines():
            if "ldmatrix" in line:
                loaded = True
            elif "fence.proxy.async" in line:
                loaded = False
            elif release in line:
                assert not loaded
                released += 1
        assert released


def test_other_descriptors_are_refused() -> None:
    launcher = AttentionKernels()
    desc = attention_descriptor(form())
    with pytest.raises(DescriptorError, match="attention_sm_90 runs an AttentionDesc on q, k and v"):
        launcher.launch(desc, np.zeros((1, 64), np.uint16))
    with pytest.raises(DescriptorError, match="this descriptor of attention has no kernel on sm_90"):
        launcher.launch(AttentionDesc(**{**dict(desc), "chunk": 64}), *[np.zeros((1, 64), np.uint16)] * 3)


GRADIENTS = {
    "causal": Problem(form(), ((70, 70),), heads=1),
    "causal, fewer queries": Problem(form("fp16"), ((5, 90),), heads=2),
    "no mask and groups of heads": Problem(form(causal=False), ((20, 70),), heads=2),
    "variable lengths": Problem(form(), ((3, 70), (66, 66)), heads=2, layout="varlen"),
    "a window": Problem(form(window=30), ((100, 100),), heads=1),
    "aligned at the first key": Problem(form(), ((6, 90),), first_position=0),
    "more queries than keys": Problem(form(), ((80, 9),), heads=1),
    "heads of 96": Problem(form(depth=96), ((20, 70),), heads=1),
    "heads of 192 and 128": Problem(form(depth=192, width=128), ((20, 70),), heads=1),
}


SPECIALISED_GRADIENTS = {
    "specialised, heads of 64": Problem(form(), ((70, 90),), heads=4, groups=2),
    "specialised, heads of 128": Problem(form("fp16", depth=128, causal=False), ((9, 70),)),
    "specialised, a window": Problem(form(window=30), ((140, 120),), heads=1),
    "specialised, heads of 96": Problem(form(depth=96), ((70, 70),)),
    "specialised, heads of 256": Problem(form("fp16", depth=256, causal=False), ((70, 40),)),
    "specialised, a sequence of heads of 192 and 128 among others": Problem(
        form(depth=192, width=128, window=30), ((3, 7), (70, 90), (5, 4)), heads=1, layout="varlen", only=1
    ),
    "specialised, a sequence among others": Problem(
        form(), ((3, 7), (130, 121), (5, 4)), heads=1, layout="varlen", only=1
    ),
    "specialised, a sequence among others without a mask": Problem(
        form("fp16", depth=128, causal=False), ((7, 9), (70, 90), (5, 4)), heads=2, layout="varlen", only=1
    ),
}


def values_of_gradients(name: str) -> dict[str, Hashable]:
    """Return what decides the paths of the kernels of gradients through a problem."""
    problem = (GRADIENTS | SPECIALISED_GRADIENTS)[name]
    (queries, keys), *_ = problem.lengths if problem.only is None else (problem.lengths[problem.only],)
    return values_of(problem) | {
        "kernel": name in SPECIALISED_GRADIENTS,
        "one of several": problem.only is not None,
        "blocks": (queries > 64, keys > 64, queries > 128 or keys > 128),
    }


@pytest.mark.parametrize("name", covering_params([*GRADIENTS, *SPECIALISED_GRADIENTS], values_of_gradients))
def test_gradients_have_the_bytes_of_their_descriptor(name: str) -> None:
    pytest.importorskip("triton")
    from attention_sources import dense, source_of
    from bitwise_nvidia_sm90.attention.gradients import gradient_calls

    specialised = name in SPECIALISED_GRADIENTS
    problem = (GRADIENTS | SPECIALISED_GRADIENTS)[name]
    desc = attention_gradient_descriptor(problem.form)
    rng = np.random.default_rng(len(name))
    operands, buffers = operands_of(problem, rng)
    buffers["out"], buffers["logarithms"] = evaluated(problem, buffers)
    buffers["slope"] = patterns(rng, problem.form.dtype, buffers["out"].shape, False)
    called = range(len(problem.lengths)) if problem.only is None else range(problem.only, problem.only + 1)
    if problem.only is not None:
        of_rows, of_keys = (buffers[each][[called.start, called.stop]] for each in ("query_starts", "key_starts"))
        ends = {"query": of_rows, "out": of_rows, "slope": of_rows, "key": of_keys, "value": of_keys}
        for each, (low, high) in ends.items():
            buffers[each][:low], buffers[each][high:] = 0x7FFF, 0x7FFF
        for each in ("query_starts", "key_starts"):
            buffers[each] = buffers[each][called.start : called.stop + 1].copy()
            operands = replace(operands, **{each: dense(each, "i32", len(called) + 1)})
    results = {"query": "of_query", "key": "of_key", "value": "of_value"}
    for source_name, target in results.items():
        buffers[target] = np.zeros_like(buffers[source_name])
    tensors = AttentionGradientTensors(
        *(dense(each, problem.form.dtype, *buffers[each].shape) for each in ("slope", *results.values()))
    )
    state = dict(buffers)

    def workspace(shape: tuple[int, ...]) -> Any:
        name = f"workspace{len(state)}"
        state[name] = np.full(shape, 0x7FC00000, np.uint32)  # NaNs, of which none may be read
        return dense(name, "fp32", *shape)

    for call in gradient_calls(desc, operands, tensors, workspace, specialised=specialised):
        source = source_of(call)
        assert source.launch is not None
        used = {each: state[each] for each in source.launch.buffers()}
        found = api.run(source, used, target="sm_90", audit_contraction=False)
        state |= {each: found[each].view(state[each].dtype) for each in used}
    share = problem.heads // problem.groups
    for place in range(len(called)):
        rows: Any = (place,)
        places: Any = (place,)
        if problem.layout == "varlen":
            rows, places = (
                (slice(buffers[each][place], buffers[each][place + 1]),) for each in ("query_starts", "key_starts")
            )
        for group in range(problem.groups):
            heads = slice(group * share, group * share + share)
            q, out, slope = (np.moveaxis(buffers[each][rows][:, heads], 1, 0) for each in ("query", "out", "slope"))
            expected = evaluate_attention_gradients(
                desc, q, buffers["key"][places][:, group], buffers["value"][places][:, group], out,
                np.ascontiguousarray(buffers["logarithms"][rows][:, heads].T), slope,
                first_position=problem.first_position, hardware=HARDWARE,
            )  # fmt: skip
            assert np.moveaxis(state["of_query"][rows][:, heads], 1, 0).tobytes() == expected.query.tobytes()
            assert state["of_key"][places][:, group].tobytes() == expected.key.tobytes()
            assert state["of_value"][places][:, group].tobytes() == expected.value.tobytes()


def test_the_checker_proves_both_kernels_of_gradients_equal() -> None:
    """For whole blocks of queries: numbers of rows beyond the last are zeros, which a launch alone does not say."""
    pytest.importorskip("triton")
    from attention_sources import dense, source_of
    from bitwise_nvidia_sm90.attention.gradients import gradient_calls

    problem = Problem(form(), ((64, 70),))
    operands, buffers = operands_of(problem, np.random.default_rng(0))
    tensors = AttentionGradientTensors(
        dense("slope", "bf16", *buffers["out"].shape),
        *(dense(f"of_{each}", "bf16", *buffers[each].shape) for each in ("query", "key", "value")),
    )
    desc = attention_gradient_descriptor(problem.form)

    def calls(specialised: bool) -> Any:
        names = iter(("numbers", "keys_of_heads", "values_of_heads"))
        return gradient_calls(
            desc, operands, tensors, lambda shape: dense(next(names), "fp32", *shape), specialised=specialised
        )

    plain = {each.kernel: source_of(each) for each in calls(False)}
    specialised = {each.kernel.removesuffix("_specialised"): source_of(each) for each in calls(True)}
    assert plain.keys() == specialised.keys() == {"row_numbers", "key_gradients", "query_gradients", "sum_of_heads"}
    for name in ("key_gradients", "query_gradients", "sum_of_heads"):
        assert api.compare(plain[name], specialised[name], target="sm_90", cache=False).outcome == "equal"


def test_no_copy_overtakes_the_loads_of_gradients() -> None:
    """Stages are used again: the numbers of rows are loaded before a fence, without which a copy may overtake them."""
    pytest.importorskip("triton")
    from attention_sources import dense, source_of
    from bitwise_nvidia_sm90.attention.gradients import gradient_calls

    problem = Problem(form(causal=False), ((250, 64),), heads=1)
    operands, buffers = operands_of(problem, np.random.default_rng(0))
    tensors = AttentionGradientTensors(
        dense("slope", "bf16", *buffers["out"].shape),
        *(dense(f"of_{each}", "bf16", *buffers[each].shape) for each in ("query", "key", "value")),
    )
    desc = attention_gradient_descriptor(problem.form)
    calls = gradient_calls(desc, operands, tensors, lambda shape: dense("numbers", "fp32", *shape), specialised=True)
    source = source_of(next(each for each in calls if each.kernel == "key_gradients_specialised"))
    assert source.launch is not None
    before, fence, rest = source.text.rpartition("fence.proxy.async.shared::cta;")
    assert fence
    unfenced = replace(source, text=before + rest)
    session = Session(buffer_numbers(set(source.launch.buffers())), Options(audit_contraction=False))
    arch = registry.default().arch("sm_90")
    assert session.analyse(source, arch).unknown is None
    assert "may overtake a load of shared memory" in str(session.analyse(unfenced, arch).unknown)


def test_gradients_in_another_order_of_heads_have_no_kernel() -> None:
    from attention_sources import dense
    from bitwise_nvidia_sm90.attention.gradients import gradient_calls

    problem = Problem(form(), ((64, 70),), heads=4, groups=2)
    operands, buffers = operands_of(problem, np.random.default_rng(0))
    names = ("out", "query", "key", "value")
    tensors = AttentionGradientTensors(*(dense(each, "bf16", *buffers[each].shape) for each in names))
    desc = attention_gradient_descriptor(problem.form).model_copy(update={"heads": "chained"})
    with pytest.raises(DescriptorError, match="the descriptor's heads are 'chained'"):
        gradient_calls(desc, operands, tensors, lambda shape: None)


MAPPED = {
    "a causal prefill": Problem(form(depth=128), ((300, 300),), heads=4, groups=2),
    "a window, a soft cap and sinks": Problem(
        form("fp16", depth=128, window=99, soft_cap=30.0, sink=True), ((9, 300),)
    ),
    "gradients of heads of 64": Problem(form(depth=64), ((300, 300),), heads=4, groups=2),
    "gradients of heads of 128": Problem(form("fp16", depth=128, causal=False), ((70, 300),)),
}


@pytest.mark.parametrize("name", MAPPED)
def test_prepared_launches_have_the_parameters_of_their_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The specialised kernels compile too, and fit the memory of a multiprocessor."""
    pytest.importorskip("triton")
    from attention_sources import compiled_call, dense
    from bitwise_nvidia_sm90.attention import prepared
    from bitwise_nvidia_sm90.attention.gradients import gradient_calls

    problem = MAPPED[name]
    operands, buffers = operands_of(problem, np.random.default_rng(0))
    if name.startswith("gradients"):
        desc = attention_gradient_descriptor(problem.form)
        names = ("out", "query", "key", "value")
        tensors = AttentionGradientTensors(*(dense(each, problem.form.dtype, *buffers[each].shape) for each in names))
        calls = gradient_calls(
            desc, operands, tensors, lambda shape: dense("numbers", "fp32", *shape), specialised=True
        )[1:]
    else:
        assert can_specialise(problem.desc, operands)
        calls = calls_of(problem.desc, operands, specialised_schedule((128, 128)), 132, lambda shape: None)
    taken = {"TensorMap": ["b8"], "Address": ["b64", "u64"], "Number": ["b32", "u32", "f32", "b64", "u64"]}
    for call in calls:
        compiled, _ = compiled_call(call)
        head = compiled.asm["ptx"].split(".entry")[1].split("\n)")[0]
        expected = re.findall(r"\.param .*?\.([buf]\d+)", head)
        kernel = prepared.kernel_of(call)
        known = SimpleNamespace(arg_names=kernel.arg_names, warmup=lambda *_, found=compiled, **__: found)
        monkeypatch.setattr(prepared, "kernel_of", lambda _, known=known: known)
        found = prepared.launch_of(call, {0: 0}).parameters
        monkeypatch.undo()
        assert len(found) == len(expected)
        for parameter, kind in zip(found, expected, strict=True):
            assert kind in taken[type(parameter).__name__]
        assert compiled.metadata.shared <= 227 << 10


def test_arguments_that_triton_specialises_on_have_compiled_kernels_of_their_own() -> None:
    """A number of another class, another alignment, or another tile of a map would be compiled to other code."""
    pytest.importorskip("triton")
    from attention_sources import dense
    from bitwise_nvidia_sm90.attention import prepared
    from bitwise_nvidia_sm90.attention.launch import tensor_map

    kind = prepared._specialisation
    numbers = [None, True, 0.5, 1, 3, 16, 1 << 31, (1 << 31) + 1, -(1 << 31) - 1]
    assert len({kind(each) for each in numbers}) == len(numbers)
    assert kind(3) == kind(17)
    assert kind(16) == kind(32)
    assert kind(0.5) == kind(2.5)
    tensors = [dense("x", dtype, 1, 128, 2, 64) for dtype in ("bf16", "fp16", "fp32")]
    assert len({kind(each) for each in tensors}) == 3
    one, other = tensors[:2]
    maps = [tensor_map(one, 64), tensor_map(one, 128), tensor_map(one, 64, 32), tensor_map(other, 64)]
    assert len({kind(each) for each in maps}) == 4
    assert kind(maps[0]) == kind(tensor_map(dense("y", "bf16", 1, 256, 2, 64), 64))
