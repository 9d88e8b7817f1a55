"""Functions that compute an instruction's result from the values of its sources."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation

Compute = Callable[..., Value]
"""The result, given the machine and the values of the sources."""


def integer_operation(name: str) -> Compute:
    """The integer operation with this name: evaluated on constants, a term otherwise."""
    meaning = operation(name)
    function = meaning.function
    assert function is not None

    def compute(machine: Machine, *values: Value) -> Value:
        for value in values:
            if type(value) is not np.ndarray:
                return apply_integer(machine, meaning, values)
        return function(*values)

    return compute
