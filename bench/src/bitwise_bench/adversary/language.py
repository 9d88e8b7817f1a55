"""What the adversary needs from an instruction set: kernels of many programs, and inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from bitwise_bench.adversary.programs import Program
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.launch import Launch

Array: TypeAlias = npt.NDArray[Any]


class Place(Protocol):
    """Where a program stores: a slot of a buffer, of `size` bytes for each thread."""

    @property
    def buffer(self) -> str:
        """The name of the buffer."""

    @property
    def slot(self) -> int:
        """The number of the slot."""

    @property
    def size(self) -> int:
        """The bytes of each thread in the slot."""

    @property
    def crosses(self) -> bool:
        """Whether the program reads values of other threads."""


class Kernel(Protocol):
    """A kernel of many programs."""

    @property
    def text(self) -> str:
        """The assembly text."""

    @property
    def places(self) -> Sequence[Place]:
        """The place of each program."""

    @property
    def stores(self) -> Mapping[str, int]:
        """The buffers that the kernel stores, and the number of slots of each."""

    def launch(self, blocks: int) -> Launch:
        """Return the launch with this number of blocks."""

    def slot_bytes(self, buffer: str) -> int:
        """Return the bytes of one slot of a block."""

    def bytes_of(self, buffer: str, blocks: int) -> int:
        """Return the size of a buffer in bytes."""


class Language(Protocol):
    """An instruction set."""

    name: str
    suffix: str
    threads: int

    @property
    def arch(self) -> Arch:
        """The architecture that reads the texts."""

    def kernel(self, programs: Sequence[Program]) -> Kernel:
        """Return one kernel of all programs."""

    def inputs(self, kernel: Kernel, blocks: int, seed: int, *, finite: bool) -> dict[str, Array]:
        """Return the bytes of the input buffers of a kernel."""

    def dtype(self, buffer: str) -> str:
        """Return the element type of a buffer."""
