"""Collector buffers of tcgen05.mma: permission to take an operand as an earlier multiplication has read it.

Source: PTX ISA 8.8, ".collector_usage".
The hardware may read the operand from memory all the same, so that a kernel has one result only where both hold the
same.  A buffer that other threads of a block may fill or discard at any time is not modelled.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.alternatives import SharedByWays
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.matrix_steps.mma_steps import OperandVectors
from bitwise_core.execution.values.symbolic_vector import Array

_QUALIFIER = re.compile(r"collector::(a|b[0-3])::(fill|use|lastuse|discard)")
_NAME = "collector buffers"


@dataclass(frozen=True, slots=True)
class CollectorUse:
    """What a multiplication does with a buffer: `a`, or `b0` to `b3` of tcgen05.mma.ws."""

    buffer: str
    operation: str


def collector_use(qualifiers: list[str], *, weight_stationary: bool) -> CollectorUse | None:
    """Return what the .collector_usage of an instruction states, None for one that does not exist.

    Without it, the contents of a buffer are discarded.
    """
    if not qualifiers:
        return CollectorUse("b0" if weight_stationary else "a", "discard")
    found = _QUALIFIER.fullmatch(qualifiers[0])
    if found is None or len(qualifiers) > 1 or (found[1] != "a") != weight_stationary:
        return None
    return CollectorUse(found[1], found[2])


@dataclass(frozen=True, slots=True, eq=False)
class _Filled:
    """What a buffer of some blocks (boolean) holds: an operand, and where it was read from."""

    blocks: Array
    place: Hashable
    vectors: OperandVectors


@dataclass(slots=True)
class _Collectors(SharedByWays):
    """The buffers of a batch of blocks.  No way of a branch on data changes them: it is refused there.

    `issuers` holds the thread that multiplied last in each block, -1 for none; `several` are the blocks in which
    several threads did, `used` those in which a buffer was used.
    """

    issuers: Array
    several: Array
    used: Array
    filled: dict[str, list[_Filled]] = field(default_factory=dict)


def collect(
    machine: Machine, thread: int, blocks: Array, use: CollectorUse, place: Hashable, vectors: OperandVectors
) -> None:
    """Fill, use or discard a buffer in some blocks (boolean).  Raises Unsupported where the result would depend on it.

    `place` says where the operand is read from, and `vectors` are what is there now.
    """
    state: _Collectors | None = machine.extra.get(_NAME)
    if state is None:
        none = np.zeros(machine.blocks, dtype=bool)
        state = _Collectors(np.full(machine.blocks, -1), none, none)
        machine.extra[_NAME] = state
    state.several = state.several | (blocks & (state.issuers >= 0) & (state.issuers != thread))
    state.issuers = np.where(blocks, thread, state.issuers)
    held = state.filled.setdefault(use.buffer, [])
    if use.operation in ("use", "lastuse"):
        state.used = state.used | blocks
        if not any(
            np.array_equal(each.blocks, blocks) and each.place == place and each.vectors.same_in(blocks, vectors)
            for each in held
        ):
            raise Unsupported(
                f"the collector buffer {use.buffer} is used and does not hold what the memory of the operand holds"
            )
    if (state.used & state.several).any():
        raise Unsupported("a collector buffer is used in a block of which several threads multiply")
    if use.operation != "use":
        state.filled[use.buffer] = [each for each in held if not (each.blocks & blocks).any()]
    if use.operation == "fill":
        state.filled[use.buffer].append(_Filled(blocks, place, vectors))
