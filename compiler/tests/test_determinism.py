"""Determinism of kernels that Triton compiles: atomic operations, rows in place, locks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bitwise_core
from bitwise_core import Determinism, KernelDeterminism

pytest.importorskip("triton")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

pytestmark = pytest.mark.usefixtures("without_machine_code")

SIZE = 32
FILE = Path(__file__).name
LINES = Path(__file__).read_text().splitlines()


@triton.jit
def one_contributor(x, y, size: tl.constexpr):
    place = tl.program_id(0) * size + tl.arange(0, size)
    tl.atomic_add(y + place, tl.load(x + place) * 2.0)


@triton.jit
def several_contributors(x, y, size: tl.constexpr):
    column = tl.arange(0, size)
    values = tl.load(x + tl.program_id(0) * size + column)
    tl.atomic_add(y + column, values)  # of all blocks


@triton.jit
def used_sum(x, y, size: tl.constexpr):
    column = tl.arange(0, size)
    place = tl.program_id(0) * size + column
    before = tl.atomic_add(x + column + 4096, 1.5)  # its old value is used
    tl.store(y + place, before)


@triton.jit
def arrival(x, y, size: tl.constexpr):
    column = tl.arange(0, size)
    before = tl.atomic_add(x + column + 4096, 1)  # the ticket
    tl.store(y + tl.program_id(0) * size + column, before)


@triton.jit
def in_place(x, y, size: tl.constexpr):
    place = tl.program_id(0) * size + tl.arange(0, size)
    values = tl.load(y + place)
    tl.store(y + place, values / tl.sum(values, 0) + 1.0)


@triton.jit
def locked(x, y, lock, size: tl.constexpr):
    column = tl.arange(0, size)
    values = tl.load(x + tl.program_id(0) * size + column)
    while tl.atomic_cas(lock, 0, 1) == 1:  # the lock
        pass
    tl.store(y + column, tl.load(y + column) + values)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_block(x, y, counter, size: tl.constexpr):
    column = tl.arange(0, size)
    program, programs = tl.program_id(0), tl.num_programs(0)
    tl.store(y + program * size + column, tl.load(x + program * size + column) * 2)
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1)  # the arrival
    if arrived == programs - 1:
        total = tl.zeros((size,), tl.float32)
        for each in range(programs):
            total += tl.load(y + each * size + column)
        tl.store(y + programs * size + column, total)


@triton.jit
def look_back(x, y, flags, size: tl.constexpr):
    column = tl.arange(0, size)
    program = tl.program_id(0)
    total = tl.sum(tl.load(x + program * size + column), 0)
    if program > 0:
        while tl.atomic_add(flags + program - 1, 0) == 0:  # the flag
            pass
        total += tl.load(y + program - 1)
    tl.store(y + program, total)
    tl.debug_barrier()
    tl.atomic_xchg(flags + program, 1)


@triton.jit
def own_element(x, y, counters, size: tl.constexpr):
    program = tl.program_id(0)
    place = program * size + tl.arange(0, size)
    before = tl.atomic_xchg(counters + program, program)
    tl.store(y + place, tl.load(x + place) + before)


TARGETS = {
    "sm_90": (GPUTarget("cuda", 90, 32), "ptx", 32),
    "gfx942": (GPUTarget("hip", "gfx942", 64), "amdgcn", 64),
}

PLUGINS = {"sm_90": "bitwise_nvidia_sm90", "gfx942": "bitwise_amd_gfx942"}


def decide(
    kernel: Any, dtype: str, warps: int = 4, target: str = "sm_90", third: dict[str, Any] | None = None
) -> KernelDeterminism:
    """Return the verdict on a kernel in four blocks; `third` is the third argument of the kernel, if it has one."""
    device, kind, lanes = TARGETS[target]
    signature = {"x": f"*{dtype}", "y": f"*{dtype}"}
    buffers: list[dict[str, Any]] = [{"buffer": name, "dtype": dtype} for name in ("x", "y")]
    if third is not None:
        signature[third["buffer"]] = "*i32"
        buffers.append({"dtype": "i32", **third})
    source = ASTSource(fn=kernel, signature={**signature, "size": "constexpr"}, constexprs={"size": SIZE})
    text = triton.compile(source, target=device, options={"num_warps": warps}).asm[kind]
    launch = {"grid": [4], "block": [lanes * warps], "args": [*buffers, {"buffer": None}, {"buffer": None}]}
    options: dict[str, Any] = {"workers": 1, "cache": False, "audit_contraction": False}
    return bitwise_core.determinism([text], launch, target=target, **options).kernels[0]


def line_of(comment: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if line.endswith(f"# {comment}"))


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize(
    ("kernel", "dtype"), [(one_contributor, "fp32"), (in_place, "fp32"), (several_contributors, "i32")]
)
def test_deterministic_kernels(kernel: Any, dtype: str, warps: int) -> None:
    """With four warps, three quarters of the threads are replicas of others."""
    found = decide(kernel, dtype, warps)
    assert found.outcome is Determinism.DETERMINISTIC, found


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize(
    ("kernel", "dtype", "kind", "comment"),
    [
        (several_contributors, "fp32", "float atomics with several contributors", "of all blocks"),
        (used_sum, "fp32", "order of arrival", "its old value is used"),
        (arrival, "i32", "order of arrival", "the ticket"),
    ],
)
def test_nondeterministic_kernels(kernel: Any, dtype: str, kind: str, comment: str, warps: int) -> None:
    found = decide(kernel, dtype, warps)
    assert found.outcome is Determinism.NONDETERMINISTIC, found
    sources = {(each.kind, Path(str(each.source)).name) for each in found.places}
    assert sources == {(kind, f"{FILE}:{line_of(comment)}")}


FREE = [0] * 64


@pytest.mark.parametrize(("kernel", "name"), [(last_block, "counter"), (look_back, "flags")])
def test_the_last_block_and_a_look_back_are_deterministic(kernel: Any, name: str) -> None:
    pytest.importorskip(PLUGINS["sm_90"])
    found = decide(kernel, "fp32", third={"buffer": name, "values": FREE})
    assert found.outcome is Determinism.DETERMINISTIC, found


@pytest.mark.parametrize(
    ("kernel", "third", "outcome", "comment", "target"),
    [
        *((locked, {"buffer": "lock"}, Determinism.NONDETERMINISTIC, "the lock", target) for target in TARGETS),
        *(
            (locked, {"buffer": "lock", "values": FREE}, Determinism.NONDETERMINISTIC, "the lock", target)
            for target in TARGETS
        ),
        (last_block, {"buffer": "counter", "values": FREE}, Determinism.UNKNOWN, "the arrival", "gfx942"),
        (look_back, {"buffer": "flags", "values": FREE}, Determinism.UNKNOWN, "the flag", "gfx942"),
        (last_block, {"buffer": "counter"}, Determinism.NONDETERMINISTIC, "the arrival", "sm_90"),
        (look_back, {"buffer": "flags"}, Determinism.UNKNOWN, "the flag", "sm_90"),
    ],
)
def test_locks_tickets_and_flags(
    kernel: Any, third: dict[str, Any], outcome: Determinism, comment: str, target: str
) -> None:
    pytest.importorskip(PLUGINS[target])
    found = decide(kernel, "fp32", target=target, third=third)
    assert found.outcome is outcome, found
    places = {(each.kind, Path(str(each.source)).name) for each in found.places}
    assert ("order of arrival", f"{FILE}:{line_of(comment)}") in places
    assert len(places) == 1 or kernel is last_block


@pytest.mark.parametrize("target", TARGETS)
def test_an_exchange_of_an_own_element_is_deterministic(target: str) -> None:
    pytest.importorskip(PLUGINS[target])
    found = decide(own_element, "fp32", target=target, third={"buffer": "counters"})
    assert found.outcome is Determinism.DETERMINISTIC, found
