"""Tiles run through a matrix instruction on the GPU of this machine; needs torch and Triton."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_bench.gpu import launching
from bitwise_bench.matrix_units import fragments
from bitwise_bench.matrix_units.operands import Operands
from bitwise_core.numerics import Bits
from bitwise_core.numerics.mma import MmaSpec

Words: TypeAlias = npt.NDArray[Any]

_INSTRUCTION = re.compile(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)[\w.:]*")
_KINDS = {"fp16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4"}
"""The kinds of tcgen05.mma by the type of the left operand; the kind gives the k of an instruction."""


def environment() -> dict[str, str]:
    """Return the environment of the results, and the command that records them."""
    return {**launching.environment(), "command": "python -m bitwise_bench.matrix_units.probes"}


@dataclass(frozen=True, slots=True)
class TileLaunch:
    """A kernel of `corpus.kernels.matrix_tiles`, its buffers and constants by name, and the layout of its results."""

    function: Any
    arrays: dict[str, Words]
    constants: dict[str, Any]
    tiles: int
    warps: int
    unpack: Callable[[Words], Bits]


def run(row: MmaSpec, given: Operands) -> tuple[Bits, list[str]]:
    """Return the results of the instruction of a row, and the matrix instructions in the compiled text.

    Raises RuntimeError where the compiler used another instruction.
    """
    import torch

    launch = tile_launch(row, given)
    tensors = {name: torch.from_numpy(array).cuda() for name, array in launch.arrays.items()}
    kernel = launch.function[(launch.tiles,)]
    compiled = kernel(*tensors.values(), **launch.constants, num_warps=launch.warps)
    returned = launch.unpack(tensors["target"].cpu().numpy())
    return returned, instructions(row, compiled.asm["ptx"])


def instructions(row: MmaSpec, text: str) -> list[str]:
    """Return the matrix instructions of a text.  Raises RuntimeError where they are not those of the row."""
    used = sorted(set(_INSTRUCTION.findall(text)))
    depth = f"kind::{_KINDS.get(row.left)}" if row.family == "tcgen05" else f"k{row.k}."
    if not used or any(mark not in each for each in used for mark in (depth, row.family)):
        raise RuntimeError(f"{row.name} was compiled to {', '.join(used) or 'no matrix instruction'}")
    return used


def tile_launch(row: MmaSpec, given: Operands) -> TileLaunch:
    """Return the launch that runs tiles through the instruction of a row."""
    return _warp(row, given) if row.family == "mma.sync" else _group(row, given)


def _signed(words: Words) -> Words:
    """Return the same bits as signed integers, which torch supports in every width."""
    words = np.ascontiguousarray(words)
    return words.view(f"i{words.dtype.itemsize}")


def _unsigned(words: Words) -> Words:
    return words.view(f"u{words.dtype.itemsize}")


def _warp(row: MmaSpec, given: Operands) -> TileLaunch:
    from bitwise_bench.corpus.kernels.matrix_tiles import warp_tiles

    count, steps = len(given.a), given.a.shape[-1] // row.k
    a = given.a.reshape(count, fragments.ROWS, steps, row.k).transpose(0, 2, 1, 3)
    b = given.b.reshape(count, steps, row.k, fragments.COLUMNS)
    # Inline assembly requires floating-point registers for fp32 and fp64 accumulators.
    held = {"fp64": "f8", "fp32": "f4"}.get(row.result, "i4")
    wide = "f8" if row.left == "fp64" else "i4"
    start = _signed(fragments.pack_accumulator(row, given.c)).view(held)
    arrays = {
        "left": _signed(fragments.pack_left(row, a)).view(wide),
        "right": _signed(fragments.pack_right(row, b)).view(wide),
        "start": start,
        "target": np.zeros_like(start),
    }
    text, constraints = fragments.assembly(row)
    constants: dict[str, Any] = dict(zip("ABC", fragments.registers(row), strict=True))
    constants |= {"ASSEMBLY": text, "CONSTRAINTS": constraints, "STEPS": steps, "HELD": row.result}
    return TileLaunch(
        warp_tiles, arrays, constants, count, 1, lambda words: fragments.unpack_accumulator(row, _unsigned(words))
    )


def _group(row: MmaSpec, given: Operands) -> TileLaunch:
    import triton.language as tl

    from bitwise_bench.corpus.kernels.matrix_tiles import group_tiles

    kinds = {
        "fp16": tl.float16, "bf16": tl.bfloat16, "tf32": tl.float32, "fp32": tl.float32, "e4m3": tl.float8e4nv,
        "e5m2": tl.float8e5,
    }  # fmt: skip
    count, m, depth = given.a.shape
    start = _signed(given.c)
    arrays = {
        "left": _signed(given.a),
        "right": _signed(given.b.transpose(0, 2, 1)),
        "start": start,
        "target": np.zeros_like(start),
    }
    constants = {"M": m, "N": given.b.shape[-1], "K": depth, "LEFT": kinds[row.left], "RIGHT": kinds[row.right]}
    return TileLaunch(group_tiles, arrays, {**constants, "RESULT": kinds[row.result]}, count, 4, _unsigned)
