"""A plugin and its samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from bitwise_conformance.suite.samples import Group, Kernel, groups
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options
from bitwise_core.execution.architecture import Arch
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins import hookspecs
from bitwise_core.plugins.launchers import Launcher
from bitwise_core.plugins.profiles import Profile
from bitwise_core.plugins.references import loaded


@dataclass(frozen=True)
class Suite:
    """The argument of the suite: the module that the entry point of the plugin names, and the folder of samples."""

    plugin: ModuleType
    samples: Path
    analyses: dict[tuple[Kernel, Options], AnalysisResult] = field(default_factory=dict, repr=False, compare=False)
    """Cached analyses of the samples."""

    @cached_property
    def _hooks(self) -> Any:
        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        manager.register(self.plugin, self.plugin.__name__)
        return manager.hook

    def _all(self, hook: str) -> tuple[Any, ...]:
        return tuple(loaded(each) for several in getattr(self._hooks, hook)() for each in several)

    @cached_property
    def arches(self) -> tuple[Arch, ...]:
        """The architectures of the plugin."""
        return self._all("bitwise_arches")

    @cached_property
    def matrix_units(self) -> tuple[MmaSpec, ...]:
        """The matrix rows of the plugin."""
        return self._all("bitwise_matrix_units")

    @cached_property
    def profiles(self) -> tuple[Profile, ...]:
        """The library profiles of the plugin."""
        return self._all("bitwise_profiles")

    @cached_property
    def launchers(self) -> tuple[Launcher, ...]:
        """The launchers of the plugin."""
        return self._all("bitwise_launchers")

    def arch(self, name: str) -> Arch:
        """Return the architecture of that name."""
        return next(each for each in self.arches if each.name == name)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of kernels of every architecture."""
        return tuple(each for arch in self.arches for each in groups(self.samples, arch.name))

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of every valid group; an invalid group is a failing case."""
        return tuple(Kernel(group, file) for group in self.groups if group.fault is None for file in group.launches)
