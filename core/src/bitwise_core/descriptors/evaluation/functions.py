"""The functions that descriptors name: operations of numeric, and those whose bits an architecture decides."""

from __future__ import annotations

from collections.abc import Callable

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.hardware import Functions
from bitwise_core.ir.nodes import Node, Operation
from bitwise_core.numerics import Bits, operation


def exact(name: str, arity: int) -> bool:
    """Whether a name is an operation of numeric that has an arithmetic, of fp32 and that many operands."""
    try:
        meaning = operation(name)
    except KeyError:
        return False
    forms = {form.name for form in (meaning.result, *meaning.operands)}
    return meaning.evaluable and meaning.arity == arity and forms == {"fp32"}


def function_of(name: str, arity: int, functions: Functions) -> Callable[..., Bits]:
    """The function on patterns of fp32, of `functions` before those of numeric.  Raises DescriptorError."""
    if name in functions:
        return functions[name]
    if exact(name, arity):
        return operation(name).evaluate
    listed = ", ".join(sorted(functions)) or "install the plugin of an architecture"
    raise DescriptorError(f"{name} has no function that is known to be exact; there are {listed}")


def called(name: str, *operands: Node) -> Node:
    """The node of a function."""
    return Operation(name, operands)
