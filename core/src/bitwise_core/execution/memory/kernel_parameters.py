"""The values of kernel parameters in a launch."""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Parameter
from bitwise_core.execution.launch import POINTER_SHIFT, Argument, ManifestError, is_like_address, scalar_bits
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.tensor_contents import POINTER_TYPES
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Value

POINTER_BYTES = 8


def value_of(machine: Machine, argument: Argument, parameter: Parameter) -> Value:
    """Return the value of a parameter whose argument is a buffer (its address, 64 bits) or a scalar.

    Raises ManifestError if the argument does not fit the parameter, or is a tensor map.
    """
    if argument.kind == "tensor_map":
        raise ManifestError(f"the parameter {parameter.name} cannot be a tensor map")
    if argument.kind == "buffer":
        if parameter.size != POINTER_BYTES:
            raise ManifestError(
                f"the parameter {parameter.name} is {parameter.size} bytes wide, but the launch gives it a buffer"
            )
        base = 0 if argument.buffer is None else machine.buffers[argument.buffer] << POINTER_SHIFT
        return literal(base + argument.offset if argument.buffer is not None else 0, 64)
    number, width = scalar_bits(argument)
    if width != parameter.size:
        raise ManifestError(
            f"the parameter {parameter.name} is {parameter.size} bytes wide, "
            f"but the launch gives it a scalar of {width} ({argument.kind})"
        )
    found = np.full((1, 1), number, dtype=L.UNSIGNED[8 * width])
    if width == POINTER_BYTES and argument.kind in POINTER_TYPES and is_like_address(found, len(machine.buffers)).any():
        raise ManifestError(
            f"the launch gives the parameter {parameter.name} the number {number:#x}, which cannot be told from an "
            "address of the analysis; if it is a pointer, give the name of its buffer"
        )
    return found
