"""The launch of one configuration of an autotuned kernel, computed without launching it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitwise_triton.compilation import (
    Grid,
    apply_heuristics,
    bind,
    configuration_name,
    evaluate_grid,
    split_settings,
    unwrap,
)
from bitwise_triton.pre_hooks import HookEffects, trace_pre_hook

# Launch keywords that are neither kernel parameters nor compile options.
_LAUNCH_WORDS = ("grid", "warmup")


@dataclass(frozen=True)
class BoundLaunch:
    """The launch of a configuration.

    `values` are those of all kernel parameters. `grid` is None if unknown. `effects` are what the configuration's
    pre-hook does to tensors before each launch.
    """

    name: str
    kernel: Any
    values: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: tuple[int, int, int] | None
    effects: HookEffects


def bind_configuration(
    decorated: Any, configuration: Any, settings: Mapping[str, Any], grid: Grid | None
) -> BoundLaunch:
    """The launch that Triton's autotuner makes of `configuration` from `settings`, all arguments of the call by name.

    `decorated` is what the autotuner decorates. `grid` is used if `settings` have none. Raises CaptureError.
    """
    kernel, heuristics = unwrap(decorated)
    meta = configuration.all_kwargs()
    name = configuration_name({}, meta)
    what = f"Configuration ({name}) of kernel {kernel.__name__!r}"
    passed, effects = trace_pre_hook(configuration, {**settings, **meta})
    values, options = split_settings(kernel, apply_heuristics(heuristics, passed))
    for word in _LAUNCH_WORDS:
        options.pop(word, None)
    bound = bind(what, kernel, values)
    launched = settings.get("grid") or grid
    # The blocks of a cluster are counted when the kernel is compiled.
    blocks = None if launched is None else evaluate_grid(what, launched, bound, num_ctas=1)
    return BoundLaunch(name, kernel, bound, options, blocks, effects)
