"""Runs a program once for all blocks of a grid: the parts whose blocks act alike, and what each part touches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bitwise_core.engine.address_domain import AddressDomain, AddressMemory, NoRaces, OpaqueShared, Touch
from bitwise_core.engine.grid import Column, Grid, Limits, NotTranslations
from bitwise_core.engine.launch_exact import Ready, machine_for
from bitwise_core.engine.run import MAXIMUM_STEPS, Run
from bitwise_core.engine.separable import Separable
from bitwise_core.machine.cells import FinerGranule
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lanes import Array


@dataclass(frozen=True, slots=True)
class Pass:
    """One part: its blocks take the same branches under the same masks, and touch `touched` in this order."""

    grid: Grid
    touched: tuple[Touch, ...]
    scratch: frozenset[int]
    gathered: frozenset[int]
    """Buffers that may be read at addresses made from data."""


def passes(prepared: Ready, buffers: Mapping[str, int], limits: Limits) -> list[Pass]:
    """The grid in parts.  Raises NotTranslations where a part cannot be followed or there are too many.

    A pass that fails after it has shrunk starts again with what it has shrunk to, where more numbers are the same in
    all blocks.  Shared memory is opaque at first; a kernel that keeps integers there is followed again with all of
    its content.
    """
    if prepared.launch.blocks > limits.numbers:
        raise NotTranslations(f"the grid has more than {limits.numbers} blocks")
    waiting: list[Array] = [np.arange(prepared.launch.blocks, dtype=np.int64)]
    granule = prepared.arch.granule(prepared.kernel)
    found: list[Pass] = []
    opaque = True
    while waiting:
        if len(waiting) + len(found) > limits.parts:
            raise NotTranslations(f"the grid falls into more than {limits.parts} parts that act differently")
        grid = Grid(waiting.pop(), limits)
        try:
            found.append(_one(prepared, buffers, grid, granule, opaque=opaque))
            waiting.extend(grid.aside)
        except FinerGranule as finer:
            if finer.granule >= granule:
                raise NotTranslations("shared memory is accessed in units that do not fit its cells") from None
            granule = finer.granule
            waiting.append(grid.numbers)
        except NotTranslations:
            if grid.active is not None and grid.blocks.size < grid.numbers.size:
                waiting.extend([*grid.aside, grid.blocks])
            elif opaque:
                opaque = False
                waiting.append(grid.numbers)
            else:
                raise
    return found


def _one(prepared: Ready, buffers: Mapping[str, int], grid: Grid, granule: int, *, opaque: bool) -> Pass:
    numbers = grid.numbers
    memory = AddressMemory(AddressDomain(grid))
    machine = machine_for(prepared, memory, buffers, numbers[:1], granule)
    if opaque:
        machine.shared = OpaqueShared()
    machine.races = NoRaces(prepared.threads, prepared.arch.warp)
    machine.thread = machine.local_thread
    if numbers.size > 1:
        block = Separable(grid, Column(numbers.view(np.uint64)), np.zeros((1, 1), dtype=np.uint64))
        machine.special["block"] = block  # type: ignore[assignment]
        prepared.arch.special(machine, prepared.launch)
    try:
        Run(prepared.program, machine, [MAXIMUM_STEPS]).start()
    except NotTranslations as error:
        if error.line is None:
            error.line = machine.line
        raise
    except Unreadable as error:
        raise NotTranslations(f"following all blocks at once fails: {error.reason}", error.line) from None
    return Pass(
        grid, tuple(memory.touched), frozenset(machine.extra.get("scratch", ())), frozenset(memory.read_by_data)
    )
