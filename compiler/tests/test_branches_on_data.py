"""Triton kernels whose control flow depends on data: ignored labels, early returns, loops until a value settles, and
library functions with a slow path.  Configurations that compute the same are equal."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,import-untyped"

from __future__ import annotations

from typing import Any

import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402

from bitwise_triton import Buffer, capture  # noqa: E402
from bitwise_triton.equivalence import compare_with_reference  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_machine_code")

ROWS, COLUMNS = 3, 300


@triton.jit
def ignored_label(x, label, y, columns, ignored, BLOCK: tl.constexpr, EXCEPT: tl.constexpr):
    """A row is normalised unless its label is ignored, which needs a maximum of the whole row."""
    row = tl.program_id(0)
    chosen = tl.load(label + row)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    score = tl.load(x + row * columns + column, mask=inside, other=-float("inf"))
    result = score
    if (chosen == ignored) if EXCEPT else (chosen != ignored):
        result = tl.exp(score - tl.max(score, 0)) * tl.load(x + chosen)
    tl.store(y + row * columns + column, result, mask=inside)


@triton.jit
def returns_early(x, label, y, columns, ignored, BLOCK: tl.constexpr, EXCEPT: tl.constexpr):
    """A row with an ignored label is zero, and the program returns."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    at = row * columns + column
    chosen = tl.load(label + row)
    if (chosen != ignored) if EXCEPT else (chosen == ignored):
        tl.store(y + at, 0.0, mask=inside)
        return
    score = tl.load(x + at, mask=inside, other=-float("inf"))
    tl.store(y + at, tl.exp(score - tl.max(score, 0)), mask=inside)


@triton.jit
def settles(x, label, y, columns, ignored, BLOCK: tl.constexpr, EXCEPT: tl.constexpr):
    """A row is divided by its maximum until that is small."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + row * columns + column, mask=inside, other=0.0)
    step = 0
    largest = tl.max(tl.abs(value), 0)
    while (largest > 1.0) & (step < (4 if EXCEPT else 5)):
        value = value / largest + 0.5
        largest = tl.max(tl.abs(value), 0)
        step += 1
    tl.store(y + row * columns + column, value, mask=inside)


@triton.jit
def function(x, z, y, count, BLOCK: tl.constexpr, NAME: tl.constexpr):
    """A library function of each element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < count)
    if NAME == "sin":
        result = libdevice.sin(a)
    elif NAME == "tan":
        result = libdevice.tan(a)
    elif NAME == "erfinv":
        result = libdevice.erfinv(a)
    elif NAME == "log1p":
        result = libdevice.log1p(a)
    elif NAME == "lgamma":
        result = libdevice.lgamma(a)
    elif NAME == "tgamma":
        result = libdevice.tgamma(a)
    elif NAME == "tanh":
        result = libdevice.tanh(a)
    elif NAME == "pow":
        result = libdevice.pow(a, tl.load(z + at, mask=at < count))
    else:
        result = libdevice.fmod(a, tl.load(z + at, mask=at < count))
    tl.store(y + at, result, mask=at < count)


def outcomes(kernel: Any, arguments: dict[str, Any], grid: Any, configurations: list[Any]) -> list[str]:
    """Return the verdicts on the configurations against the first one."""
    compiled = capture(kernel, configurations, arguments, grid=grid, workers=1)
    found = compare_with_reference(compiled[0], compiled, every_launch=False, assume=(), workers=1)
    return [one.outcome if one.outcome != "unknown" else f"unknown: {one.reason}" for one in found]


@pytest.mark.parametrize("kernel", [ignored_label, returns_early, settles])
def test_blocks_choose_by_data(kernel: Any) -> None:
    arguments = {
        "x": Buffer("x", "fp32"), "label": Buffer("label", "i64"), "y": Buffer("y", "fp32"),
        "columns": COLUMNS, "ignored": -100,
    }  # fmt: skip
    warps = [triton.Config({"BLOCK": 512, "EXCEPT": False}, num_warps=count) for count in (4, 1, 2, 8)]
    other = [triton.Config({"BLOCK": 512, "EXCEPT": True}, num_warps=count) for count in (4, 2)]
    assert outcomes(kernel, arguments, (ROWS,), warps + other) == ["equal"] * 4 + ["unproved"] * 2


@pytest.mark.parametrize("name", ["sin", "tan", "erfinv", "log1p", "lgamma", "tgamma", "tanh", "pow", "fmod"])
def test_library_functions_with_a_slow_path(name: str) -> None:
    arguments = {"x": Buffer("x", "fp32"), "z": Buffer("z", "fp32"), "y": Buffer("y", "fp32"), "count": 500}
    configurations = [
        triton.Config({"BLOCK": block, "NAME": name}, num_warps=warps)
        for block, warps in ((128, 4), (128, 2), (256, 4))
    ]
    other = "tanh" if name != "tanh" else "sin"
    configurations.append(triton.Config({"BLOCK": 128, "NAME": other}, num_warps=4))

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (-(-500 // int(meta["BLOCK"])),)

    assert outcomes(function, arguments, grid, configurations) == ["equal"] * 3 + ["unproved"]
