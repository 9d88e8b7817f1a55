"""The numbers of threads in a launch: its block's number times 2**20, plus its number in the block."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_BLOCK_SHIFT = 20

Numbers = TypeVar("Numbers", int, npt.NDArray[Any])


def thread_numbers(blocks: npt.NDArray[Any], local: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers of the threads of some blocks, shape (blocks, threads); `local` are those in the block."""
    found: npt.NDArray[Any] = (blocks.astype(np.int64).reshape(-1, 1) << _BLOCK_SHIFT) + local
    return found


def block_of(thread: Numbers) -> Numbers:
    """Return the number of the block of each thread."""
    return thread >> _BLOCK_SHIFT


def further_thread(thread: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the number of one further thread of the block of each thread, which no thread of a launch has."""
    found: npt.NDArray[Any] = thread | ((1 << _BLOCK_SHIFT) - 1)
    return found
