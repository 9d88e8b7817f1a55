"""Which configuration of a kernel the others must be equal to: the one that Inductor takes when it does not tune.

The reference decides the bits, so every process must pick the same one: it depends on the kernel, never on a clock.
Without autotuning, Inductor picks one configuration of a reduction by the direction of its memory and its sizes, and
in its deterministic mode it does so for every reduction.  `untuned` asks Inductor's own functions for it.
"""

from __future__ import annotations

import logging
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
_HEURISTICS = {"REDUCTION": "reduction", "PERSISTENT_REDUCTION": "persistent_reduction"}
"""The functions of Inductor that list the configurations of a kernel, by the type of its heuristics."""
_COOPERATIVE_GRID = "CooperativeReductionGrid"


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
            _load_function(autotuner)
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


def reference_of(launchers: Sequence[Any], configuration: Any) -> Any:
    """Return the launcher whose bits the others must return: that of `configuration`, the first one if none has it."""
    if configuration is not None:
        for each in launchers:
            if each.config.all_kwargs() == configuration.all_kwargs():
                return each
    return launchers[0]


def _load_function(autotuner: Any) -> None:
    """Load the kernel's Python function, which an autotuner from another process comes without."""
    if autotuner.fn.fn is None:
        autotuner.fn = autotuner._reload_kernel().fn
