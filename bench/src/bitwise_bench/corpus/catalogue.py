"""The configurations of the corpus: families of Triton kernels, each with small concrete launches.

The modules of `corpus.kernels` import Triton; `cases` imports them when it is called.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from itertools import chain

from bitwise_bench.corpus.cases import DEFAULT_TARGET, Case, CaseError
from bitwise_bench.corpus.targets import for_target

MODULES: tuple[str, ...] = (
    "row_reductions",
    "tile_reductions",
    "softmaxes",
    "norms",
    "scans",
    "gemms",
    "gemm_types",
    "gemm_batches",
    "gemm_epilogues",
    "gemm_splits",
    "gemm_tensor_maps",
    "attention",
    "elementwise",
    "casts_and_copies",
    "atomics",
    "inductor_like",
)


@cache
def cases(target: str = DEFAULT_TARGET) -> tuple[Case, ...]:
    """Return every configuration for an architecture, grouped by family, in a stable order.

    Raises CaseError where two configurations share an id or the members of a group have different output buffers,
    and UnknownArchError for an architecture that no plugin models.
    """
    listed = chain.from_iterable(import_module(f"bitwise_bench.corpus.kernels.{module}").cases() for module in MODULES)
    found = tuple(for_target(listed, target))
    seen: dict[str, Case] = {}
    returned: dict[tuple[str, str], tuple[Case, object]] = {}
    for case in found:
        if case.id in seen:
            raise CaseError(f"the corpus lists {case.id} twice; distinguish the second one by `tags`")
        seen[case.id] = case
        shape = tuple((array.name, array.dtype, array.elements) for array in case.outputs)
        first, expected = returned.setdefault((case.family, case.group), (case, shape))
        if shape != expected:
            raise CaseError(f"{case.id} and {first.id} share a group but not their output buffers; split it")
    return found


@cache
def by_id(target: str = DEFAULT_TARGET) -> dict[str, Case]:
    """Return the configurations for an architecture by their id."""
    return {case.id: case for case in cases(target)}


def families(target: str = DEFAULT_TARGET) -> tuple[str, ...]:
    """Return the names of the families, in the order of the corpus."""
    return tuple(dict.fromkeys(case.family for case in cases(target)))
