"""Products of the matrices of a batch, or of groups, that one launch computes, and the launches of those that ran.

The kernels have one order, `SequentialLauncher.sequential`: they serve a descriptor that is equal to it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.plugins import registry
from bitwise_core.plugins.launchers import EpilogueLaunch, SequentialLauncher
from bitwise_torch.ready_launches import call_key

CAPACITY = 4096
"""The number of launches that are kept; a full cache is emptied."""

_launches: dict[Hashable, tuple[registry.Registry, GEMMDesc, EpilogueLaunch]] = {}
"""By call: its launch, and the objects whose ids are in its key."""


def launcher_of(desc: GEMMDesc, device: Any) -> SequentialLauncher | None:
    """Return the launcher that computes many products by a descriptor in one launch on a device, None without one."""
    types = desc.left_dtype, desc.right_dtype, desc.output_dtype
    for each in registry.default().launchers:
        if isinstance(each, SequentialLauncher) and device.type != "cpu" and each.serves(desc, device):
            try:
                if each.sequential(desc.k, *types) == desc:
                    return each
            except DescriptorError:
                continue
    return None


def batched(launcher: SequentialLauncher, desc: GEMMDesc, a: Any, b: Any, out: Any) -> None:
    """Compute out[i] = a[i] b[i] for tensors of 3 axes.  Raises DescriptorError."""
    key = _key("batched", desc, (a, b, out))
    if not _repeated(key, (a, b, out)):
        _keep(key, desc, launcher.batched_product(desc, a, b, out))


def grouped(launcher: SequentialLauncher, desc: GEMMDesc, a: Any, b: Any, ends: Any, out: Any) -> None:
    """Compute the products of groups; see `SequentialLauncher.grouped_product`.  Raises DescriptorError."""
    key = _key("grouped", desc, (a, b, ends, out))
    if not _repeated(key, (a, b, ends, out)):
        _keep(key, desc, launcher.grouped_product(desc, a, b, ends, out))


def launch_of_batch(desc: GEMMDesc, a: Any, b: Any, out: Any) -> EpilogueLaunch | None:
    """Return the launch of a call of `batched` that ran, a function of the addresses of a, b and out."""
    return _known(_key("batched", desc, (a, b, out)))


def launch_of_groups(desc: GEMMDesc, a: Any, b: Any, ends: Any, out: Any) -> EpilogueLaunch | None:
    """Return the launch of a call of `grouped` that ran, a function of the addresses of a, b, ends and out."""
    return _known(_key("grouped", desc, (a, b, ends, out)))


def _key(name: str, desc: GEMMDesc, tensors: tuple[Any, ...]) -> Hashable:
    return call_key(name, tensors, (id(registry.default()), id(desc)))


def _known(key: Hashable) -> EpilogueLaunch | None:
    found = _launches.get(key)
    return None if found is None else found[2]


def _repeated(key: Hashable, tensors: tuple[Any, ...]) -> bool:
    """Launch a call that ran before, and return whether it did."""
    launch = _known(key)
    if launch is not None:
        launch(*(each.data_ptr() for each in tensors))
    return launch is not None


def _keep(key: Hashable, desc: GEMMDesc, launch: EpilogueLaunch) -> None:
    if len(_launches) >= CAPACITY:
        _launches.clear()
    _launches[key] = (registry.default(), desc, launch)
