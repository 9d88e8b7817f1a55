"""The configurations of the corpus: 47 kernels in five floating-point formats, the published rows among them.

A group is one kernel in one format, with one launch: its configurations return the same function of the same inputs.
The modules of `published_corpus.kernels` import Triton; the functions here import them when they are called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any

from bitwise_bench.corpus.cases import Case, CaseError
from bitwise_bench.published_corpus.grids import Extent, Kernel
from bitwise_bench.published_corpus.published import ROWS

FORMATS = ("fp16", "bf16", "fp32", "fp8e4nv", "fp8e5")
"""fp8e4nv is Triton's name of fp8e4m3fn."""

TARGETS = ("sm_90", "gfx942")

OTHERS = "other kernels"
"""The name of the row of kernels that the published table does not list."""


@dataclass(frozen=True, slots=True)
class Group:
    """One kernel in one format; `row` is its published row, and `main` whether this is the format of that row."""

    kernel: str
    dtype: str
    extent: Extent
    row: str
    main: bool

    @property
    def name(self) -> str:
        """The family and the group of its configurations."""
        return f"{self.kernel}/{self.dtype}"


@cache
def kernels_of_rows() -> Mapping[str, tuple[Kernel, ...]]:
    """Return the kernels of each published row, and those of no row."""
    from bitwise_bench.published_corpus.kernels import attention, inductor, products, reductions, rows

    found = {
        "reductions": reductions.KERNELS,
        "softmax": (rows.SOFTMAX,),
        "layernorm": (rows.LAYER_NORM,),
        "rmsnorm": (rows.RMS_NORM,),
        "gemm": (products.GEMM,),
        "gemm_bias_relu_fp_fusion": (products.BIAS_RELU,),
        "gemm_kgroup": (products.KGROUP,),
        "gemm_reduce_sum": (products.REDUCE_SUM,),
        "gemm_softmax": (products.GEMM_SOFTMAX,),
        "gemm_tma_store": (products.STORE_MAP,),
        "inductor_sum_loop": (inductor.SUM_LOOP,),
        "inductor_splitk_gemm": (inductor.SPLIT_PRODUCT,),
        "flash_attention": (attention.FLASH,),
        OTHERS: (*rows.OTHERS, *inductor.OTHERS, products.PERSISTENT, products.GATED),
    }
    return MappingProxyType(found)


_REDUCED = ("gemm", "flash_attention")
"""Kernels whose grid is reduced for every format but that of their row."""

_FORMATS: Mapping[str, tuple[str, ...]] = MappingProxyType({"gemm_persistent": ("fp16", "bf16", "fp32", "fp8e5")})
"""The formats of kernels that do not have all of them."""

_GFX942_FORMATS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "reductions": ("bf16",),
        "softmax": ("bf16", "fp32"),
        "layernorm": ("bf16", "fp32"),
        "rmsnorm": ("bf16", "fp32"),
        "gemm": ("bf16", "fp32"),
        "gemm_bias_relu_fp_fusion": ("fp16",),
        "gemm_kgroup": ("fp16",),
    }
)
"""The further formats of each published row for gfx942."""


@cache
def groups(target: str) -> tuple[Group, ...]:
    """Return the groups of a target: those of the published table first, small rows before large ones."""
    tabled = [
        Group(kernel.name, row.dtype, "whole", row.name, True)
        for row in sorted(ROWS, key=lambda row: row.of_target["sm_90"].configurations)
        if target in row.of_target
        for kernel in kernels_of_rows()[row.name]
    ]
    known = {(group.kernel, group.dtype) for group in tabled}
    further = []
    for row, kernels in kernels_of_rows().items():
        for kernel in kernels:
            if target == "gfx942":
                formats = _GFX942_FORMATS.get(row, ())
                extent: Extent = "reduced" if row == "reductions" else "whole"
            else:
                formats = _FORMATS.get(kernel.name, FORMATS)
                extent = "reduced" if kernel.name in _REDUCED else "whole"
            further += [
                Group(kernel.name, dtype, extent, row, False) for dtype in formats if (kernel.name, dtype) not in known
            ]
    return (*tabled, *further)


@lru_cache(maxsize=8)
def cases_of(group: Group, target: str) -> tuple[Case, ...]:
    """Return the configurations of a group, in the order of its grid.  Raises CaseError where two share an id."""
    kernel = next(each for each in kernels_of_rows()[group.row] if each.name == group.kernel)
    grid = kernel.grid(group.dtype, target, group.extent)
    found = tuple(case if case.target == target else replace(case, target=target) for case in grid)
    if len({case.id for case in found}) < len(found):
        raise CaseError(f"the grid of {group.name} for {target} lists a configuration twice")
    return found


@cache
def size_of(group: Group, target: str) -> int:
    """Return the number of configurations of a group."""
    return len(cases_of(group, target))


@cache
def definition_of(group: Group, target: str) -> str:
    """Return a digest of the sources, constants, options and launches of a group's configurations."""
    parts = [
        (case.id, str(case.arguments), case.grid, sorted(case.constants.items(), key=str), sorted(case.options.items()))
        for case in cases_of(group, target)
    ]
    functions = {case.function.__name__: case.function for case in cases_of(group, target)}
    sources = [sources_of(functions[name]) for name in sorted(functions)]
    return hashlib.sha256(repr((parts, sources)).encode()).hexdigest()[:12]


def sources_of(function: Any) -> tuple[str, ...]:
    """Return the sources of a Triton function and of those that it calls by name, directly or not."""
    found = {function.__name__: function}
    pending = [function]
    while pending:
        caller = pending.pop()
        named = [caller.fn.__globals__.get(name) for name in sorted(caller.fn.__code__.co_names)]
        called = [each for each in named if isinstance(each, type(function)) and each.__name__ not in found]
        found |= {each.__name__: each for each in called}
        pending += called
    return tuple(found[name].src for name in sorted(found))


@cache
def _groups_by_name(target: str) -> Mapping[str, Group]:
    return {group.name: group for group in groups(target)}


def group_of(name: str, target: str) -> Group:
    """Return the group with a name, or of the configuration with an id.  Raises KeyError."""
    return _groups_by_name(target)["/".join(name.split("/")[:2])]


@lru_cache(maxsize=8)
def _by_id(group: Group, target: str) -> Mapping[str, Case]:
    return {case.id: case for case in cases_of(group, target)}


def case_named(name: str, target: str) -> Case:
    """Return the configuration with an id.  Raises KeyError."""
    return _by_id(group_of(name, target), target)[name]


def chosen_groups(target: str, rows: Sequence[str]) -> tuple[Group, ...]:
    """Return the groups of some rows or kernels; `all` are all, `table` those of the published table.

    Raises ValueError for a name that is neither a row nor a kernel of the target.
    """
    found = groups(target)
    known = {"all", "table", *(group.row for group in found), *(group.kernel for group in found)}
    unknown = sorted(set(rows) - known)
    if unknown:
        raise ValueError(f"there is no row or kernel {unknown[0]} for {target}; there are {', '.join(sorted(known))}")
    if "all" in rows:
        return found
    return tuple(
        group for group in found if ("table" in rows and group.main) or group.row in rows or group.kernel in rows
    )
