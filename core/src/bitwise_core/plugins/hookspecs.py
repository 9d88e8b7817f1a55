"""The hooks of the entry-point group `bitwise`, and nothing else.

A plugin is a module named by an entry point of that group. It implements any of these hooks with `hookimpl`:

    from bitwise_core.plugins.hookspecs import hookimpl

    @hookimpl
    def bitwise_arches():
        return [TOY]

Every hook collects: it takes nothing, returns an iterable, and what all plugins return is put together. Whatever is
handed over has a `name`, unique among its kind. A hook is called once, when plugins are loaded, and should only return
what the plugin's modules define: no compilation, no device, no optional dependency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bitwise_core.execution.architecture import Arch
    from bitwise_core.numerics.mma import MmaSpec
    from bitwise_core.plugins.launchers import Launcher
    from bitwise_core.plugins.profiles import Profile

PROJECT = "bitwise"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Named(Protocol):
    """What every hook hands over: a record with a name that is unique among its kind."""

    @property
    def name(self) -> str:
        """The name it is asked for by."""
        ...


@hookspec
def bitwise_arches() -> Iterable[Arch]:
    """Return the architectures that this plugin models: how to parse and what each instruction means."""
    raise NotImplementedError


@hookspec
def bitwise_matrix_units() -> Iterable[MmaSpec]:
    """Return the rows of matrix units that this plugin knows: which bits one native step of each instruction has."""
    raise NotImplementedError


@hookspec
def bitwise_profiles() -> Iterable[Profile]:
    """Return what is known of a library's kernels: from version, architecture and configuration to a descriptor."""
    raise NotImplementedError


@hookspec
def bitwise_launchers() -> Iterable[Launcher]:
    """Return the launchers that run a descriptor on a device and give back its bytes."""
    raise NotImplementedError


@hookspec
def bitwise_patchsets() -> Iterable[Named]:
    """Return the sets of patches that pin a compiler's or a library's bits."""
    raise NotImplementedError
