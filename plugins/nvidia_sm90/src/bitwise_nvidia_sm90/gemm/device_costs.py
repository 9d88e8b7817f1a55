"""What the cost model of schedules knows of a device: costs that were fitted on it, or scaled costs of an H100.

The costs are rates and times.  A correction is a sum of decision trees over quantities of a product and a schedule; it
is added to the logarithm of the modelled time.  Neither affects the bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

H100 = "NVIDIA H100 80GB HBM3"
"""The name of the device whose costs are scaled for devices without costs of their own."""
_SCALED = {
    "memory": ("memory",),
    "cached bytes": ("cached bytes", "cached bytes of overlaps", "small"),
    "multiprocessors": ("cache", "gathered cache", "merged", "packed"),
    "clock": (
        "operations", "operations 16", "operations 32", "operations 64", "operations 192", "operations 256", "read",
        "stored", "stored by elements", "gathered sums",
    ),
}  # fmt: skip
"""By property of a device: the costs that are proportional to it."""
Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """Complete decision trees of one depth: the index and the bound of each node's quantity, and the leaves.

    There is a row for each tree.  A node's children have twice its index plus 1, where the quantity is at most the
    bound, and plus 2.
    """

    indices: NDArray[np.int64]
    bounds: Numbers
    leaves: Numbers

    @property
    def depth(self) -> int:
        """The nodes from the root of a tree to a leaf."""
        return int(self.leaves.shape[1]).bit_length() - 1

    def of(self, given: Numbers) -> Numbers:
        """Return the correction of each row of the values of `correction_inputs` or of `gathered_inputs`."""
        trees = np.arange(len(self.indices))[None, :]
        node = np.zeros((len(given), len(self.indices)), dtype=np.int64)
        rows = np.arange(len(given))[:, None]
        for _ in range(self.depth):
            node = 2 * node + 1 + (given[rows, self.indices[trees, node]] > self.bounds[trees, node])
        corrections: Numbers = self.leaves[trees, node - self.indices.shape[1]].sum(axis=1)
        return corrections


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCosts:
    """The multiprocessors of a device, the costs of the model, and the corrections of the modelled times.

    `gathering` is the correction of the times of schedules that gather operands, `correction` that of the others.
    """

    multiprocessors: int
    costs: Mapping[str, float]
    correction: Correction
    gathering: Correction


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The name of a device, its multiprocessors and its rates, 0 where one is unknown.

    `memory` is in bytes a second, `clock` in cycles a second, `cached_bytes` is the size of the L2 cache.
    """

    name: str
    multiprocessors: int
    memory: float = 0.0
    clock: float = 0.0
    cached_bytes: float = 0.0

    def ratios(self, other: DeviceProperties) -> dict[str, float]:
        """Return each rate over that of another device, 1 where one of them is unknown."""
        pairs = {
            "memory": (self.memory, other.memory), "clock": (self.clock, other.clock),
            "cached bytes": (self.cached_bytes, other.cached_bytes),
            "multiprocessors": (self.multiprocessors, other.multiprocessors),
        }  # fmt: skip
        return {name: own / base if own and base else 1.0 for name, (own, base) in pairs.items()}


def correction_of(given: Mapping[str, Any]) -> Correction:
    """Return the correction with these `indices`, `bounds` and `leaves`, each a list for each tree."""
    count = len(given["leaves"])
    leaves = np.array(given["leaves"], dtype=float).reshape(count, -1) if count else np.zeros((0, 1))
    shape = (count, leaves.shape[1] - 1)
    indices = np.array(given["indices"], dtype=np.int64).reshape(shape)
    return Correction(indices, np.array(given["bounds"], dtype=float).reshape(shape), leaves)


@cache
def fitted_devices() -> Mapping[str, tuple[DeviceProperties, DeviceCosts]]:
    """Return the properties and the costs of the devices whose costs were fitted, by name."""
    found = {}
    for path in files(__package__).joinpath("data").iterdir():
        if path.name.startswith("costs-"):
            data = json.loads(path.read_text("utf-8"))
            properties = DeviceProperties(**data["device"])
            costs = DeviceCosts(
                properties.multiprocessors, data["costs"], correction_of(data["correction"]),
                correction_of(data["correction of gathering"]),
            )  # fmt: skip
            found[properties.name] = (properties, costs)
    return found


@cache
def costs_of(properties: DeviceProperties | None = None) -> DeviceCosts:
    """Return the costs of a device, an H100 by default: fitted ones, or an H100's scaled by the rates of the device."""
    fitted = fitted_devices()
    if properties is None or properties.name in fitted:
        return fitted[H100 if properties is None else properties.name][1]
    base, costs = fitted[H100]
    scaled = dict(costs.costs)
    for rate, ratio in properties.ratios(base).items():
        scaled |= {name: scaled[name] * ratio for name in _SCALED[rate]}
    return DeviceCosts(properties.multiprocessors, scaled, costs.correction, costs.gathering)


def costs_of_device(device: torch.device) -> DeviceCosts:
    """Return the costs of PyTorch's device; for one that is no GPU, an H100's."""
    return _costs_of_index(device.index) if device.type == "cuda" else costs_of()


@cache
def _costs_of_index(index: int | None) -> DeviceCosts:
    return costs_of(properties_of(index))


def properties_of(index: int | None = None) -> DeviceProperties:
    """Return the properties of a GPU by PyTorch's index, the current one by default."""
    import torch

    given = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    memory_clock, width, clock, cached = (
        float(getattr(given, name, 0))
        for name in ("memory_clock_rate", "memory_bus_width", "clock_rate", "L2_cache_size")
    )
    # Clocks are in kHz, the width is in bits, and there are two transfers in a cycle.
    return DeviceProperties(
        given.name, given.multi_processor_count, 2e3 * memory_clock * width / 8, 1e3 * clock, cached
    )  # fmt: skip
