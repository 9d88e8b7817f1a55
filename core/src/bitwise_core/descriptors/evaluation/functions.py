"""The functions that descriptors name: operations of `numerics`, and functions whose bits the hardware decides."""

from __future__ import annotations

from collections.abc import Callable

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.hardware import Functions
from bitwise_core.ir.nodes import Node, Operation
from bitwise_core.known_distributions import advice
from bitwise_core.numerics import Bits, operation


def exact(name: str, arity: int) -> bool:
    """Whether a name is an operation of `numerics` that can be evaluated, on `arity` operands of fp32."""
    try:
        meaning = operation(name)
    except KeyError:
        return False
    forms = {form.name for form in (meaning.result, *meaning.operands)}
    return meaning.evaluable and meaning.arity == arity and forms == {"fp32"}


def function_of(name: str, arity: int, functions: Functions) -> Callable[..., Bits]:
    """Return the function on patterns of fp32: of `functions`, otherwise of `numerics`.  Raises DescriptorError."""
    if name in functions:
        return functions[name]
    if exact(name, arity):
        return operation(name).evaluate
    listed = ", ".join(sorted(functions)) or advice("targets", otherwise="none")
    raise DescriptorError(f"{name} has no exact function; the exact ones are: {listed}")


def called(name: str, *operands: Node) -> Node:
    """Return the node that applies a function to operands."""
    return Operation(name, operands)
