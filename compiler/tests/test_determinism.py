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
def locked(x, y, size: tl.constexpr):
    while tl.atomic_cas(x, 0, 1) == 1:
        pass
    column = tl.arange(0, size)
    tl.store(y + column, tl.load(y + column) + tl.load(x + column + 1))
    tl.debug_barrier()
    tl.atomic_xchg(x, 0)


def decide(kernel: Any, dtype: str, warps: int = 4) -> KernelDeterminism:
    """Return the verdict on a kernel in four blocks."""
    signature = {"x": f"*{dtype}", "y": f"*{dtype}", "size": "constexpr"}
    source = ASTSource(fn=kernel, signature=signature, constexprs={"size": SIZE})
    text = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["ptx"]
    buffers: list[dict[str, Any]] = [{"buffer": name, "dtype": dtype} for name in ("x", "y")]
    empty: list[dict[str, Any]] = [{"buffer": None}] * (text.split(".reqntid")[0].count(".param") - 2)
    launch = {"grid": [4], "block": [32 * warps], "args": buffers + empty}
    return bitwise_core.determinism([text], launch, workers=1, cache=False, audit_contraction=False).kernels[0]


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


def test_a_lock_is_unknown() -> None:
    assert decide(locked, "i32").outcome is Determinism.UNKNOWN
