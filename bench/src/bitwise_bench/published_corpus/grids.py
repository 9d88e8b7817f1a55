"""Grids of compile options and tiles, from which the numbers of configurations follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, TypeAlias

from bitwise_bench.corpus.cases import Case

Extent: TypeAlias = Literal["whole", "reduced"]
"""The whole grid of a kernel, or the one in which options that its main type varies are left at their defaults."""

WARPS = (1, 2, 4, 8)
SHARED_BYTES = 227 * 1024
"""Shared memory of a block on sm_90."""

SUM = "fp32"
"""The type in which sums and rows are stored, as they are added: a difference in the last bit shows in the bytes."""

WIDEST = 4
"""Bytes of an element of the widest format: every format has the same grid."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the corpus: its name, and the configurations for (type of the elements, target, extent)."""

    name: str
    grid: Callable[[str, str, Extent], Iterable[Case]]


def tuned(target: str, extent: Extent = "whole") -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (stages, options) of a tuner: 12 for sm_90, 10 for gfx942 or, reduced, 5."""
    if target == "gfx942":
        for fusion, waves in product((True, False) if extent == "whole" else (True,), range(5)):
            yield 2, {"waves_per_eu": waves, "enable_fp_fusion": fusion}
        return
    for fusion, registers, stages in product((True, False), (None, 64), (2, 3, 4)):
        yield stages, {"enable_fp_fusion": fusion, **limited(registers)}


def limited(registers: int | None) -> Mapping[str, Any]:
    """Return the option that limits the registers of a thread."""
    return {} if registers is None else {"maxnreg": registers}


def stored(dtype: str) -> str:
    """Return the type in which a kernel stores its result: that of its operands, fp16 for 8-bit operands."""
    return "fp16" if dtype.startswith("fp8") else dtype
