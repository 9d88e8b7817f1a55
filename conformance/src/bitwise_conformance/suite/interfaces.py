"""What the suite asks of profiles and launchers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from bitwise_core.machine.lanes import Array


class Profile(Protocol):
    """What is known of a library's kernels."""

    @property
    def name(self) -> str:
        """Its name."""

    def describe(self, key: Mapping[str, Any]) -> object | None:
        """The descriptor that a library's version, architecture and configuration owe, None where it is not known.

        A key that it does not know, a value that it has no row for and a key that is missing are not known.
        """


class Launcher(Protocol):
    """What runs descriptors on a device."""

    @property
    def name(self) -> str:
        """Its name."""

    def missing(self) -> str | None:
        """What this machine lacks for it to run, None where it runs."""

    def launch(self, run: Mapping[str, Any]) -> Array:
        """The result on the device of a descriptor and operands, as the launcher's samples state them."""

    def evaluate(self, run: Mapping[str, Any]) -> Array:
        """The result of the same on the CPU."""
