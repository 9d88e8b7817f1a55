"""The functions that descriptors name: operations of numeric, and those whose bits an architecture decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from bitwise_core import registry
from bitwise_core.descriptors import DescriptorError
from bitwise_core.numeric import Bits, operation
from bitwise_core.tree.nodes import Node, Operation

Functions: TypeAlias = Mapping[str, Callable[..., Bits]]
"""By full name, such as ex2.approx.ftz.fp32@ARCHITECTURE: arrays of patterns to an array of patterns."""


def exact(name: str, arity: int) -> bool:
    """Whether a name is an operation of numeric that has an arithmetic, of fp32 and that many operands."""
    try:
        meaning = operation(name)
    except KeyError:
        return False
    forms = {form.name for form in (meaning.result, *meaning.operands)}
    return meaning.evaluable and meaning.arity == arity and forms == {"fp32"}


def function_of(name: str, arity: int, functions: Functions | None = None) -> Callable[..., Bits]:
    """The function on patterns of fp32, by default of numeric or of an installed plugin.  Raises DescriptorError."""
    if functions is not None and name in functions:
        return functions[name]
    if exact(name, arity):
        return operation(name).evaluate
    known: dict[str, Callable[..., Bits]] = {}
    for arch in registry.default().arches.values():
        if arch.bits is not None:
            known |= dict(arch.bits.functions)
    if name in known:
        return known[name]
    listed = ", ".join(sorted(known)) or "install the plugin of an architecture"
    raise DescriptorError(f"{name} has no function that is known to be exact; there are {listed}")


def called(name: str, *operands: Node) -> Node:
    """The node of a function."""
    return Operation(name, operands)
