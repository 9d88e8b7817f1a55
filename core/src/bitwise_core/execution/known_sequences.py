"""Sequences of instructions that an architecture knows to compute one operation, such as an emulated conversion.

An architecture finds them in the text (`Arch.sequences`).  Where known lanes execute such a sequence, the domain of
terms computes the operation in place of the instructions (`byte_functions.py`).  The result must be bit for
bit that of the instructions for every value of the inputs for which `compute` returns one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.symbolic_vector import Value

Definition: TypeAlias = tuple[str, int]
"""A storage key, and the instruction that wrote it last (-1: before the run of instructions)."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownSequence:
    """A sequence in a run of instructions that one group of lanes executes in order.

    `members` are its instructions in the order of the text; the last one, its root, writes the result.  `inputs` are
    the definitions that they read besides each other's, without the execution mask.  `compute` returns the result from
    the values of the inputs, in all lanes, and None where the instructions must be executed.
    """

    members: tuple[int, ...]
    inputs: tuple[Definition, ...]
    compute: Callable[[Machine, Sequence[Value]], Value | None]
