"""What a plugin hands over to run descriptors on a device."""

from __future__ import annotations

from typing import Protocol

from bitwise_core.descriptors import Record
from bitwise_core.numeric import Bits


class Launcher(Protocol):
    """Runs descriptors on one kind of device."""

    @property
    def name(self) -> str:
        """Its name, unique among launchers."""

    def missing(self) -> str | None:
        """What this machine lacks for it to run, as the end of a sentence; None where it can run."""

    def launch(self, desc: Record, *operands: Bits) -> Bits:
        """The output's patterns, those of `bitwise_core.evaluation.evaluate(desc, *operands)`, from the device.

        Raises DescriptorError for a descriptor that it does not run.
        """
