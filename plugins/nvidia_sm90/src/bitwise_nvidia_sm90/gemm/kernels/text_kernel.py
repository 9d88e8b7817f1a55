"""Kernels as PTX text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextKernel:
    """A kernel as PTX text: its entry point, and the threads, the dynamic shared memory and the cluster of a launch.

    `parameters` are the names of its parameters in order.  With `dependent`, it may start before the previous kernel of
    its stream ends.
    """

    name: str
    text: str
    threads: int
    shared_bytes: int
    parameters: tuple[str, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)
    dependent: bool = True
