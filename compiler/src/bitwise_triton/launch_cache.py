"""Separate autotuner caches for launches that a proof does not cover.

Triton tunes once for each value of the tuning key, which seldom includes every argument of a kernel. A proof holds for
the analysed launch, or for every launch of the compiled specialisation. The autotuner therefore gets one cache of tuned
configurations for each of those, and tunes again on a miss.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from bitwise_triton.argument_keys import argument_key
from bitwise_triton.compilation import Grid, split_settings, unwrap
from bitwise_triton.config_binding import bind_configuration
from bitwise_triton.errors import CaptureError
from bitwise_triton.tensor_stand_ins import is_tensor, stand_ins

if TYPE_CHECKING:
    from bitwise_core.execution.tensor_contents import TensorContents


RecordTensors: TypeAlias = "Callable[[Mapping[str, Any]], Mapping[str, TensorContents]]"
"""Returns the contents of the tensors of a launch, by buffer, from all arguments of the call by name."""


def running_autotuner(function: Any, named_arguments: Mapping[str, Any]) -> Any:
    """The autotuner that is calling a predicate with `named_arguments`, or None.

    It is the one around or under `function` if that is given. Otherwise it is found among the callers, by this very
    mapping: Triton passes a predicate neither the kernel nor the autotuner.
    """
    from triton.runtime.autotuner import Autotuner

    while function is not None and not isinstance(function, Autotuner):
        function = getattr(function, "fn", None)
    if function is not None:
        return function if function.nargs is not None else None
    for frame, _ in traceback.walk_stack(None):
        found = frame.f_locals.get("self")
        if isinstance(found, Autotuner) and getattr(found, "nargs", None) is named_arguments:
            return found
    return None


def install_launch_caches(
    autotuner: Any,
    settings: Mapping[str, Any],
    *,
    every_launch: bool,
    grid: Grid | None,
    tensors: RecordTensors | None = None,
) -> None:
    """Give `autotuner` a separate cache for each launch that the proofs for the launch of `settings` do not cover.

    `tensors` records the contents on which the proofs for this launch depend; None if they depend on none. Must be
    called while the autotuner prunes for that launch; the result of that pruning goes to the launch's own cache.
    """
    guarded = vars(autotuner).get("run")
    if not isinstance(guarded, _RunWithLaunchCaches):
        guarded = _RunWithLaunchCaches(autotuner, lambda passed: launch_key(autotuner, passed, every_launch, grid))
        guarded.choose_cache(settings)
        autotuner.run = guarded
    if tensors is not None:
        guarded.require_tensors(settings, tensors)


class _RunWithLaunchCaches:
    """An autotuner's `run` that selects the cache of the launch first."""

    def __init__(self, autotuner: Any, identify: Callable[[Mapping[str, Any]], Hashable]) -> None:
        self._autotuner, self._identify = autotuner, identify
        self._run = autotuner.run
        self._caches: dict[Hashable, dict[Any, Any]] = {}
        self._tensors: dict[Hashable, RecordTensors] = {}

    def choose_cache(self, settings: Mapping[str, Any]) -> None:
        """Select the cache of a launch. `settings` are all arguments of the call, by name."""
        key = self._identify(settings)
        record = self._tensors.get(key)
        if record is not None:
            digests = {name: contents.digest for name, contents in record(settings).items()}
            key = (key, tuple(sorted(digests.items())))
        self._autotuner.cache = self._caches.setdefault(key, {})

    def require_tensors(self, settings: Mapping[str, Any], record: RecordTensors) -> None:
        """Separate the launches that have the key of this one by the contents of their tensors as well."""
        self._tensors.setdefault(self._identify(settings), record)
        self.choose_cache(settings)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.choose_cache({**dict(zip(self._autotuner.arg_names, arguments, strict=False)), **keywords})
        return self._run(*arguments, **keywords)


def launch_key(autotuner: Any, settings: Mapping[str, Any], every_launch: bool, grid: Grid | None) -> Hashable:
    """A key that two launches share only if a proof for one holds for the other."""
    kernel, _ = unwrap(autotuner.fn)
    values, options = split_settings(kernel, settings)
    for word in ("grid", "warmup"):
        options.pop(word, None)
    described = stand_ins(values)
    if every_launch:
        plain = {parameter.name for parameter in kernel.params if parameter.do_not_specialize}
        constant = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
        classes = {
            name: value if name in constant else _specialisation_class(value, specialised=name not in plain)
            for name, value in described.items()
        }
        return argument_key((classes, options))
    extents = [
        (name, tuple(getattr(value, "shape", ())), tuple(value.stride()) if hasattr(value, "stride") else ())
        for name, value in values.items()
        if is_tensor(value)
    ]
    return (argument_key((described, options, extents)), _grids(autotuner, autotuner.configs, settings, grid))


def _grids(autotuner: Any, configurations: Sequence[Any], settings: Mapping[str, Any], grid: Grid | None) -> Hashable:
    launched = settings.get("grid") or grid
    if launched is None or not callable(launched):
        return None if launched is None else tuple(launched)
    kernel, heuristics = unwrap(autotuner.fn)
    defaults = {
        name: parameter.default
        for name, parameter in kernel.signature.parameters.items()
        if parameter.default is not parameter.empty
    }
    found: list[Hashable] = []
    for configuration in configurations:
        if not heuristics and configuration.pre_hook is None:
            # Equivalent to `bind_configuration` without its checks: this runs before every launch.
            bound = {**defaults, **settings, **configuration.kwargs}
            found.append(tuple(launched({name: bound[name] for name in kernel.signature.parameters if name in bound})))
            continue
        try:
            found.append(bind_configuration(autotuner.fn, configuration, settings, grid).grid)
        except CaptureError as error:
            found.append(str(error))
    return tuple(found)


def _specialisation_class(value: Any, *, specialised: bool) -> Any:
    """The properties of a scalar that Triton specialises on: its width, equality to one, and divisibility by sixteen.

    Any other value is its own class.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return type(value).__name__ if isinstance(value, bool) else value
    if isinstance(value, float):
        return "float"
    width = "i32" if -(1 << 31) <= value < 1 << 31 else "i64" if value < 1 << 63 else "u64"
    return (width, value == 1, value % 16 == 0) if specialised else (width,)
