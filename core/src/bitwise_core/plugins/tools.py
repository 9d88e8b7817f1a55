"""Tools: what plugins use of the machine, and what they find of it.

`bitwise doctor` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """A tool that was found: its version or name, its path if it is a file, and a note of a few words."""

    version: str
    path: str = ""
    note: str = ""


class ToolMissing(Exception):
    """A tool was not found: the text says what is missing and what to do, as a sentence without a full stop."""


@dataclass(frozen=True, slots=True)
class Tool:
    """An assembler, a library, a compiler or a device that a plugin uses.

    `enables` says what cannot be done without it.  `look` searches this machine, which may start processes and load
    libraries: it returns what was found, what is used first, and raises ToolMissing where that is nothing.
    """

    name: str
    enables: str
    look: Callable[[], Sequence[Found]]
