"""The samples that plugins hand to the suite, and the hook by which they do.

@hookimpl(optionalhook=True)
def bitwise_samples(arch):
    return [{"name": ..., "text": ..., "launch": {...}, "group": ..., "value": ...}]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pluggy
from pydantic import BaseModel, ConfigDict

from bitwise_core import registry
from bitwise_core.hookspecs import PROJECT
from bitwise_core.machine.arch import Arch
from bitwise_core.machine.launch import Launch

hookspec = pluggy.HookspecMarker(PROJECT)


class Sample(BaseModel):
    """A kernel that the architecture must read.

    Samples of one `group` are launched on the same buffers: those of one `value` must come out Equal, those of
    different values never.  `different` lists changes (a piece of the text that occurs in it, and what takes its
    place) that must not come out Equal; `equal` those that must.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    text: str
    launch: Launch
    group: str
    value: str
    different: tuple[tuple[str, str], ...] = ()
    equal: tuple[tuple[str, str], ...] = ()


class SampleHooks:
    """The hook's specification."""

    @hookspec
    def bitwise_samples(self, arch: Arch) -> Iterable[Mapping[str, Any] | Sample]:
        """Return small kernels of this architecture, as `Sample` or as its fields; nothing for another's."""
        raise NotImplementedError


@cache
def samples_of(name: str) -> tuple[Sample, ...]:
    """The samples that the loaded plugins hand over for an architecture.  Raises pydantic's ValidationError."""
    arch = registry.default().arch(name)
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(SampleHooks)
    for plugin in registry.default().plugins:
        manager.register(plugin.module, plugin.name)
    collected = manager.hook.bitwise_samples(arch=arch)
    return tuple(Sample.model_validate(each, from_attributes=True) for several in collected for each in several)


def every_sample() -> list[tuple[str, Sample]]:
    """Every sample with the name of its architecture."""
    return [(name, sample) for name in registry.default().arches for sample in samples_of(name)]
