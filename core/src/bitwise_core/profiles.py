"""What a plugin hands over of a library's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from bitwise_core.descriptors import Record


class Profile(Protocol):
    """What is known of the kernels of one library."""

    @property
    def name(self) -> str:
        """Its name, unique among profiles."""

    def describe(self, configuration: Mapping[str, Any]) -> Record | None:
        """The descriptor whose bits the library returns in a configuration (version, architecture, algorithm, ...).

        None where it is not known: for a key that the profile does not know or does not find, and for a value that
        it has no row for.  A guess is never returned.
        """
