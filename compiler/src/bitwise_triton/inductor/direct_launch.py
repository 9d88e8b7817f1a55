"""Launches of a tuned kernel without a look at anything but its numbers.

A kernel's choice holds for the numbers among its arguments.  Once it is made, `DirectLaunch` takes the place of the
autotuner's `run`: it finds the launcher by these numbers, and does less before a launch than `run` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

_FLOATING = ("fp", "bf")


@dataclass
class DirectLaunch:
    """The launchers of a kernel by the integers among its arguments, and the `run` that picks among them.

    `otherwise` runs what is not here.  `watched` returns true while all launches must take that way: a profiler, for
    example, records them there.
    """

    otherwise: Callable[..., Any]
    watched: Callable[[], Any]
    launchers: dict[Hashable, Any] = field(default_factory=dict)
    places: tuple[int, ...] | None = None

    def add(self, arguments: Sequence[Any], launcher: Any) -> Callable[..., Any] | None:
        """Record the launcher of arguments with these numbers.

        Returns the `run` that launches it, None where the numbers do not decide the launcher.
        """
        places = tuple(place for place, each in enumerate(arguments) if isinstance(each, (int, float)))
        # Equal integers are passed alike.  Equal floats need not be: the zeros.
        if any(type(arguments[place]) is not int for place in places) or self.places not in (None, places):
            return None
        self.places = places
        select = itemgetter(*places) if places else _nothing
        self.launchers[select(arguments)] = launcher
        return self._run(select)

    def _run(self, select: Callable[[Sequence[Any]], Hashable]) -> Callable[..., Any]:
        find, otherwise, watched = self.launchers.get, self.otherwise, self.watched

        def run(*arguments: Any, stream: Any, **keywords: Any) -> Any:
            launcher = find(select(arguments))
            if launcher is None or keywords or watched():
                return otherwise(*arguments, stream=stream, **keywords)
            return launcher(*arguments, stream=stream)

        return run


def _nothing(arguments: Sequence[Any]) -> Hashable:
    return None


def is_plain(autotuner: Any, launcher: Any) -> bool:
    """Return whether the autotuner's `run` does nothing else for a launch than to call the launcher.

    It does for kernels with scratch memory or floats among their parameters, for plugins, and while it dumps launches.
    """
    if any(getattr(autotuner, name, None) for name in ("_plugins", "triton_interpret", "dump_launch_params")):
        return False
    if getattr(autotuner, "dump_launch_tensors", False) or getattr(launcher, "store_cubin", False):
        return False
    return not any(str(kind).startswith(_FLOATING) for kind in autotuner.triton_meta["signature"].values())


def watcher(run: Callable[..., Any]) -> Callable[[], Any]:
    """Return what Inductor's `run` asks before each launch: whether a profiler records, or a mode that logs calls."""
    names = getattr(run, "__globals__", {})
    profiler, debug_mode = names.get("autograd_profiler"), names.get("get_active_debug_mode")
    if profiler is None:
        return debug_mode or bool
    if debug_mode is None:
        return lambda: profiler._is_profiler_enabled
    return lambda: profiler._is_profiler_enabled or debug_mode()
