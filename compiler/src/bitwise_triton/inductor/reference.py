"""Which configuration of a kernel the others must be equal to: the one that should take the least time.

The reference decides the bits, so every process must pick the same one.  `reference_of` reads the kernel and its
configurations only, never a clock.  Inductor lists the configurations of a reduction in an order that does not depend
on the direction of its memory, and the first one may read a cache line for each element.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

_PROCESSORS = 128
"""Of a round GPU.  The device at hand is not asked: two models of one architecture must agree."""
_THREADS, _BLOCKS, _REGISTERS = 2048, 32, 1 << 16
"""Most threads, blocks and 32-bit registers of a processor."""
_BYTES_PER_MICROSECOND = 25_000.0
"""Of one processor, from device memory."""
_LATENCY, _END = 0.8, 0.4
"""Microseconds from the loads of an iteration to its sums, and from the last sums to the result."""
_LINE = 64
"""Bytes that lie side by side from which a processor reads memory at full speed."""
_REGISTERS_AT_LEAST = 32
_REGISTER_UNIT = 8
"""Registers of a thread are handed out in multiples of this."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The reduction of `reduced` elements to one, `outer` times.

    `element_bytes` is the size of what is loaded for each element.  `contiguous` says how far the elements that lie
    side by side run along the reduced axis, from 0 (along the others) to 1.
    """

    outer: int
    reduced: int
    element_bytes: float
    contiguous: float


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block of threads holds at once: `columns` of the outer axes by `rows` of the reduced one."""

    columns: int
    rows: int
    warps: int
    registers: int


def predicted(reduction: Reduction, tile: Tile) -> float:
    """Return the predicted microseconds of a kernel: waves of blocks that load, add and end one after the other."""
    threads = 32 * tile.warps
    registers = max(tile.registers, _REGISTERS_AT_LEAST)
    registers = _REGISTER_UNIT * ceil(registers / _REGISTER_UNIT)
    resident = max(1, min(_THREADS // threads, _BLOCKS, _REGISTERS // (threads * registers)))
    blocks = ceil(reduction.outer / tile.columns)
    waves = ceil(blocks / (_PROCESSORS * resident))
    together = min(resident, ceil(blocks / _PROCESSORS))
    along, across = (min(1.0, extent * reduction.element_bytes / _LINE) for extent in (tile.rows, tile.columns))
    moved = reduction.element_bytes * tile.columns * tile.rows
    moved *= reduction.contiguous / along + (1 - reduction.contiguous) / across
    iterations = ceil(reduction.reduced / tile.rows)
    return waves * (iterations * (_LATENCY + together * moved / _BYTES_PER_MICROSECOND) + _END)


def reference_of(autotuner: Any, launchers: Sequence[Any]) -> Any:
    """Return the launcher of Inductor's autotuner whose bits the others must return.

    For a reduction: among the configurations without spilled registers where there are any, the one with the least
    predicted time.  For other kernels, and in case of a tie, the first one.
    """
    reduction = _reduction(autotuner)
    if reduction is None:
        return launchers[0]
    return min(launchers, key=lambda each: (_spills(each), predicted(reduction, _tile(each, reduction))))


def _reduction(autotuner: Any) -> Reduction | None:
    """Return the reduction that a kernel computes, None for other kernels and for those not described."""
    meta = autotuner.inductor_meta
    hint, sizes = meta.get("reduction_hint"), getattr(autotuner, "size_hints", None)
    if hint is None or not isinstance(sizes, Mapping):
        return None
    name = str(getattr(hint, "name", hint))
    contiguous = {"INNER": 1.0, "OUTER": 0.0, "OUTER_TINY": 0.0}.get(name, 0.5)
    kinds = map(str, autotuner.triton_meta["signature"].values())
    widths = [_bytes_of(kind) for kind in kinds if kind.startswith("*")]
    return Reduction(
        outer=prod(size for prefix, size in sizes.items() if not prefix.startswith("r")),
        reduced=prod(size for prefix, size in sizes.items() if prefix.startswith("r")),
        element_bytes=sum(widths) / max(len(widths), 1) or 1.0,
        contiguous=contiguous,
    )


def _bytes_of(pointer: str) -> float:
    """Return the bytes of an element that a type such as *bf16 or *fp8e4nv points to."""
    width = re.search(r"[0-9]+", pointer)
    return max(1.0, int(width.group()) / 8) if width else 1.0


def _tile(launcher: Any, reduction: Reduction) -> Tile:
    blocks: Mapping[str, int] = launcher.config.kwargs
    columns = prod(blocks.get(name, 1) for name in ("XBLOCK", "YBLOCK", "ZBLOCK"))
    reduced = [size for name, size in blocks.items() if name.startswith("R") and name.endswith("_BLOCK")]
    return Tile(
        columns=max(1, min(columns, reduction.outer)),
        rows=max(1, min(prod(reduced), reduction.reduced) if reduced else reduction.reduced),
        warps=launcher.config.num_warps,
        registers=getattr(launcher, "n_regs", None) or 0,
    )


def _spills(launcher: Any) -> bool:
    return bool(getattr(launcher, "n_spills", None))
