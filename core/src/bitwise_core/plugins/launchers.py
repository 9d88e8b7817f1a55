"""What a plugin hands over to run descriptors on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bitwise_core.descriptors import Record
from bitwise_core.numerics import Bits


class Launcher(Protocol):
    """Runs descriptors on one kind of device."""

    @property
    def name(self) -> str:
        """Its name, unique among launchers."""

    def missing(self) -> str | None:
        """What this machine lacks for it to run, as the end of a sentence; None where it can run."""

    def launch(self, desc: Record, *operands: Bits) -> Bits:
        """The output's patterns, those of `descriptors.evaluation.evaluate(desc, *operands)`, from the device.

        Raises DescriptorError for a descriptor that it does not run.
        """


@runtime_checkable
class ProductLauncher(Launcher, Protocol):
    """A launcher that takes tensors on its device."""

    def serves(self, desc: Record, device: Any) -> bool:
        """Whether it runs this descriptor on this device, a `torch.device`."""

    def product(self, desc: Record, a: Any, b: Any, out: Any) -> None:
        """out = a b in the bits of the descriptor, on the device's current stream.

        Raises DescriptorError for a descriptor that it does not run.
        """


@runtime_checkable
class TunableLauncher(ProductLauncher, Protocol):
    """A launcher with several ways to run a descriptor, all of the same bits."""

    def tune(self, desc: Record, a: Any, b: Any, out: Any, path: Path | None, most: int) -> tuple[str, float]:
        """Measures up to `most` ways to run out = a b, and takes the fastest from now on.

        Returns its name, and the seconds of a launch.  It is kept in `path`, or in a file of the launcher's own.  `out`
        is overwritten.  Raises DescriptorError for a descriptor that it does not run, and RuntimeError where two ways
        return different bytes.
        """
