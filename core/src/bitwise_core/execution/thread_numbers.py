"""The numbers of threads in a launch: its block's number times 2**20, plus its number in the block.

Asynchronous copies and loads that are not coherent are executed by agents of their block, which have numbers that no
thread of a launch has.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

_BLOCK_SHIFT = 20
_AGENT_SHIFT = 18
"""An agent's number in its block has this bit, and none above it."""

MAXIMUM_AGENTS = 1 << _AGENT_SHIFT
"""How many agents a block has."""

Numbers = TypeVar("Numbers", int, npt.NDArray[Any])


def thread_numbers(blocks: npt.NDArray[Any], local: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers of the threads of some blocks, shape (blocks, threads); `local` are those in the block."""
    found: npt.NDArray[Any] = (blocks.astype(np.int64).reshape(-1, 1) << _BLOCK_SHIFT) + local
    return found


def block_of(thread: Numbers) -> Numbers:
    """Return the number of the block of each thread."""
    return thread >> _BLOCK_SHIFT


def of_one_warp(left: npt.NDArray[Any], right: npt.NDArray[Any], warp: int) -> npt.NDArray[Any]:
    """Return which pairs of threads are lanes of one warp, of `warp` lanes; no agent is a lane."""
    inside = (1 << _BLOCK_SHIFT) - 1
    same = (block_of(left) == block_of(right)) & ~is_agent(left) & ~is_agent(right)
    found: npt.NDArray[Any] = same & ((left & inside) // warp == (right & inside) // warp)
    return found


def further_thread(thread: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the number of one further thread of the block of each thread, which no thread of a launch has."""
    found: npt.NDArray[Any] = thread | ((1 << _BLOCK_SHIFT) - 1)
    return found


def agent_of_block(thread: npt.NDArray[Any], number: int) -> npt.NDArray[Any]:
    """Return the number of an agent of the block of each thread; `number` is below MAXIMUM_AGENTS."""
    found: npt.NDArray[Any] = (block_of(thread) << _BLOCK_SHIFT) + ((1 << _AGENT_SHIFT) + number)
    return found


def is_agent(thread: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return which threads are agents: no barrier orders what they do before what follows it."""
    found: npt.NDArray[Any] = (thread >> _AGENT_SHIFT & 3) == 1
    return found
