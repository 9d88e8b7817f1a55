"""Which configuration of a kernel the others must be equal to.

The reference decides the bits, so every process must pick the same one: it depends on the kernel's sizes, never on a
clock, on what an earlier run found, or on the order in which configurations are listed.  It also decides which others
can be equal to it, so it should be one of many that fold their reductions alike.

- Of a persistent reduction, it is the block with `_ELEMENTS` elements and `_ELEMENTS_OF_A_THREAD` in each thread.  The
  rows of such a block are read in full words of 16 bytes, as they are in the larger ones.  Inductor's own choice is
  often one row in many warps, in shorter words, which few others are equal to.
- Of another reduction, it is the configuration that Inductor takes when it does not tune, by the direction of its
  memory and its sizes, in its deterministic mode where that leaves several.
- Of any other kernel, it is the one nearest to a square block with eight elements in each thread of four warps.

`candidates` is the order in which they are tried: the first one that compiles is the reference.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

logger = logging.getLogger("bitwise_triton")

Untuned: TypeAlias = Callable[[Any], Any]
"""Takes an autotuner and returns the configuration of its kernel without autotuning, None if there is no such rule."""

_WITHOUT_TUNING: dict[str, object] = {
    "max_autotune": False,
    "max_autotune_pointwise": False,
    "coordinate_descent_tuning": False,
    # Of several configurations, one is picked by a rule.
    "deterministic": True,
    # What earlier runs measured.
    "force_disable_caches": True,
}
_OF_THE_CONFIGURATION = {"OutOfResources", "PTXASError", "CompilationError"}
_SAYS_SO = (*(f"No valid triton configs. {name}" for name in sorted(_OF_THE_CONFIGURATION)), "PassManager::run failed")
"""The kinds of errors by which a configuration fails in every process, and how the text of others begins."""
_HEURISTICS = {"REDUCTION": "reduction", "PERSISTENT_REDUCTION": "persistent_reduction"}
"""The functions of Inductor that list the configurations of a kernel, by the type of its heuristics."""
_COOPERATIVE_GRID = "CooperativeReductionGrid"
_ELEMENTS, _ELEMENTS_OF_A_THREAD, _MOST_ROWS, _MOST_WARPS = 2048, 16, 64, 16
"""The block of a persistent reduction: 2,048 elements in four warps, more only where a single row is longer."""


def untuned(heuristics: Any) -> Untuned:
    """Return the function that asks `heuristics`, Inductor's module `triton_heuristics`, about a kernel."""

    def configuration(autotuner: Any) -> Any:
        meta = {**autotuner.inductor_meta, **_WITHOUT_TUNING}
        kind = getattr(getattr(autotuner, "heuristic_type", None), "name", None)
        name = _HEURISTICS.get(str(kind))
        sizes = getattr(autotuner, "size_hints", None)
        if name is None or not isinstance(sizes, Mapping):
            return None
        if meta.get("grid_type") == _COOPERATIVE_GRID:
            name = "cooperative_reduction"
        try:
            load_function(autotuner)
            decorator = getattr(heuristics, name)(
                size_hints=dict(sizes),
                reduction_hint=meta.get("reduction_hint"),
                triton_meta={**autotuner.triton_meta, "device": autotuner.device_props},
                filename=autotuner.filename,
                inductor_meta=meta,
            )
            return decorator(autotuner.fn).configs[0]
        except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            # Another version of torch: the first configuration is as right, and may be slower.
            logger.info("%s is not asked about: %s: %s", autotuner.fn.__name__, type(error).__name__, error)
            return None

    return configuration


def preferred(heuristics: Any) -> Untuned:
    """Return the function that names the reference of a kernel from Inductor's list, `configs` of its autotuner.

    It returns None for a kernel whose reference is the first one of `candidates`.
    """
    ask = untuned(heuristics)

    def configuration(autotuner: Any) -> Any:
        found = _of_persistent_reduction(autotuner)
        return ask(autotuner) if found is None else found

    return configuration


def _of_persistent_reduction(autotuner: Any) -> Any:
    """Return the block of a persistent reduction, None for other kernels."""
    sizes, listed = getattr(autotuner, "size_hints", None), getattr(autotuner, "configs", None)
    kind = getattr(getattr(autotuner, "heuristic_type", None), "name", None)
    if kind != "PERSISTENT_REDUCTION" or not listed or not isinstance(sizes, Mapping) or not {"x", "r0_"} <= set(sizes):
        return None
    row = math.prod(size for name, size in sizes.items() if name.startswith("r"))
    blocks = set(listed[0].kwargs)
    if not blocks <= {"XBLOCK", "YBLOCK"}:  # such as the parts of a mixed-order or cooperative reduction
        return None
    if "YBLOCK" in blocks:  # the shapes of the blocks suit the memory: one of them is taken
        found = min(listed, key=lambda each: (abs(math.log2(_rows(each) * row / _ELEMENTS)), _named(each)))
        found = copy.deepcopy(found)
    else:
        found = copy.deepcopy(listed[0])
        if blocks:
            found.kwargs["XBLOCK"] = max(1, min(sizes["x"], _MOST_ROWS, _ELEMENTS // row))
    warps = _rows(found) * row // (_ELEMENTS_OF_A_THREAD * 32)
    found.num_warps, found.num_stages = max(1, min(warps, _MOST_WARPS)), 1
    return found


def _rows(configuration: Any) -> int:
    return math.prod(configuration.kwargs.values())


def _named(configuration: Any) -> str:
    return repr(sorted((name, repr(each)) for name, each in configuration.all_kwargs().items()))


def candidates(listed: Sequence[Any], wanted: Any) -> list[Any]:
    """Return the configurations of which the first one that compiles is the reference, whatever the order of the list.

    `wanted` is the first one, if there is one.  The others are by their distance from a square block with eight
    elements in each thread of four warps, in factors of two.
    """
    return [*([] if wanted is None else [wanted]), *sorted(listed, key=_distance)]


def _distance(configuration: Any) -> tuple[float, float, str]:
    sizes = [each for name, each in configuration.kwargs.items() if "BLOCK" in name and isinstance(each, int) and each]
    elements = math.log2(math.prod(sizes) / (32 * configuration.num_warps))
    sides = math.log2(max(sizes, default=1) / min(sizes, default=1))
    return abs(elements - 3) + sides / 2, abs(math.log2(configuration.num_warps) - 2), _named(configuration)


def is_of_the_configuration(error: Exception) -> bool:
    """Return whether a configuration fails with this error in every process.

    It does where it needs more than the GPU has, or the compiler or the assembler rejects it.  An assembler that a
    signal ends, such as for lack of memory, has a negative status.
    """
    text = str(error)
    if "error code -" in text:
        return False
    kinds = {each.__name__ for each in type(error).__mro__}
    return bool(kinds & _OF_THE_CONFIGURATION) or text.startswith(_SAYS_SO)


def load_function(autotuner: Any) -> None:
    """Load the kernel's Python function, which an autotuner from another process comes without."""
    if autotuner.fn.fn is None:
        autotuner.fn = autotuner._reload_kernel().fn
