"""The published evaluation of the checker, as data.

Source: the table "Static equivalence checking on NVIDIA PTX and on AMD GCN" of the paper, and the paragraph
"Soundness" of its evaluation: Triton 3.8 on a GB300 (sm_103) for the first set, gfx942 (CDNA3) for the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

SOURCE = "the paper's table of static equivalence checking: PTX on a GB300 (sm_103), AMDGCN on gfx942"

TOTAL: Mapping[str, int] = MappingProxyType({"sm_90": 51_152, "gfx942": 4_500})
"""Configurations of the whole corpus, by target of this corpus; that of sm_90 was published for sm_103."""

KERNELS = 47
FORMATS = 5


@dataclass(frozen=True, slots=True)
class Published:
    """A row of the published table: configurations, classes of the checker, and classes of equal bytes."""

    configurations: int
    classes: int
    byte_classes: int


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A row of the published table by target; `dtype` is the type of its kernels."""

    name: str
    dtype: str
    of_target: Mapping[str, Published]


Counts: TypeAlias = tuple[int, int, int]


def _row(name: str, dtype: str, sm_90: Counts, gfx942: Counts | None = None) -> PublishedRow:
    found = {"sm_90": Published(*sm_90)}
    return PublishedRow(name, dtype, found if gfx942 is None else {**found, "gfx942": Published(*gfx942)})


ROWS: tuple[PublishedRow, ...] = (
    _row("reductions", "fp16", (2304, 204, 81), (1920, 144, 87)),
    _row("softmax", "fp16", (144, 8, 4), (120, 10, 3)),
    _row("layernorm", "fp16", (144, 19, 9), (120, 20, 3)),
    _row("rmsnorm", "fp16", (144, 17, 8), (120, 20, 3)),
    _row("gemm", "fp16", (6304, 1, 1), (72, 4, 4)),
    _row("gemm_bias_relu_fp_fusion", "bf16", (192, 1, 1), (24, 2, 2)),
    _row("gemm_kgroup", "bf16", (1152, 138, 6), (132, 1, 1)),
    _row("gemm_reduce_sum", "fp32", (270, 60, 9)),
    _row("gemm_softmax", "fp32", (270, 60, 9)),
    _row("gemm_tma_store", "fp16", (18, 1, 1), (12, 1, 1)),
    _row("inductor_sum_loop", "fp16", (20, 20, 20)),
    _row("inductor_splitk_gemm", "fp16", (4, 4, 4)),
    _row("flash_attention", "fp16", (2720, 2655, 266)),
)
