"""The element types of a launch's buffers, and the arrays that hold their contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bitwise_core.execution.element_types import Array, ElementType, array_mismatch, element_type
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.tensor_contents import INTEGERS
from bitwise_core.numerics import FloatFormat


def element_types(launches: Iterable[Launch]) -> dict[str, ElementType]:
    """Return the element type of each buffer, from the first launch that states it."""
    found: dict[str, ElementType] = {}
    for launch in launches:
        for described in launch.described():
            if described.buffer is None:
                continue
            known = found.get(described.buffer)
            if known is None or known.kind is None:
                found[described.buffer] = element_type(described.dtype)
    return found


def formats_of_buffers(launch: Launch, buffers: Mapping[str, int]) -> dict[int, FloatFormat]:
    """Return the floating-point format of the elements of each buffer that has one, by the buffer's number."""
    found = {buffers[name]: each.format for name, each in element_types([launch]).items() if name in buffers}
    return {number: form for number, form in found.items() if form is not None}


def buffers_of_bytes(launch: Launch, buffers: Mapping[str, int]) -> frozenset[int]:
    """Return the numbers of the buffers whose elements have one byte."""
    types = element_types([launch])
    return frozenset(
        buffers[name] for name, each in types.items() if name in buffers and each.kind is not None and each.bytes == 1
    )


def sizes_of_buffers(launch: Launch, buffers: Mapping[str, int]) -> dict[int, int]:
    """Return the size in bytes of each buffer for which the launch states it, by the buffer's number."""
    return {buffers[name]: size for name, size in launch.sizes().items() if name in buffers}


def fitting_arrays(launch: Launch, arrays: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, str | None]]:
    """Return the array of each buffer of a launch, and why others do not fit: the end of a sentence, None if missing.

    The contents that the launch gives stand for a missing array.
    """
    found: dict[str, Array] = {}
    faults: dict[str, str | None] = {}
    given = launch.given()
    for name, form in element_types([launch]).items():
        if name in arrays:
            found[name] = arrays[name]
            fault = array_mismatch(arrays[name], form)
            if fault is None and name in given:
                fault = given[name].fault_of(arrays[name])
            if fault is not None:
                faults[name] = fault
        elif name in given:
            found[name] = given[name].numbers
        else:
            faults[name] = None
    return found, faults


def buffer_bytes(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the bytes of each array, on one axis."""
    return {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in arrays.items()}


def arrays_of(after: Mapping[str, Array], before: Mapping[str, Array], launch: Launch) -> dict[str, Array]:
    """Return bytes as arrays that have the shapes of `before` and the types that the launch states."""
    kinds = element_types([launch])
    return {
        name: after[name].view(kinds[name].kind or array.dtype).reshape(array.shape) for name, array in before.items()
    }


def open_integers(launch: Launch, *, untyped: bool = False) -> frozenset[str]:
    """Return the buffers of integers whose contents a launch does not give, with those without a type if `untyped`."""
    kinds, given = element_types([launch]), launch.given()
    names = (*INTEGERS, None) if untyped else tuple(INTEGERS)
    return frozenset(name for name, kind in kinds.items() if name not in given and kind.name in names)
