"""An epilogue as the dependence tree of one element, and its evaluation on bit patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors.epilogue import FUNCTIONS, OPERANDS, Epilogue, Step
from bitwise_core.descriptors.evaluation.expressions import converted
from bitwise_core.descriptors.evaluation.functions import function_of
from bitwise_core.descriptors.evaluation.operands import fp32, patterns
from bitwise_core.descriptors.hardware import IEEE, Hardware
from bitwise_core.descriptors.record import DescriptorError
from bitwise_core.ir.evaluation import evaluate_many
from bitwise_core.ir.nodes import Constant, Load, Node, Operation, Select
from bitwise_core.known_distributions import advice
from bitwise_core.numerics import FLOAT_FORMATS, Bits

Formulas: TypeAlias = Mapping[str, Callable[[Node], Node]]
"""By the name of a step in FUNCTIONS: the tree of the function's value in fp32, over that of its argument.

A name followed by a dot and a type has a tree for steps of this type alone, for example `silu.bf16`.
"""
NO_FORMULAS: Formulas = {}

_OVERFLOWS = {"e4m3": ("gtu.fp32", 464.0, 0x7F), "e5m2": ("ge.fp32", 61440.0, 0x7C)}
"""By format: the comparison of a magnitude with a number that says whether it overflows, and the pattern it becomes."""


def operand(index: int, dtype: str) -> Node:
    """Return the leaf that stands for an operand of an epilogue, by its index."""
    return Load(f"operand{index}", 0, FLOAT_FORMATS[dtype].bits)


def epilogue_tree(epilogue: Epilogue, dtype: str, product: Node, formulas: Formulas = NO_FORMULAS) -> Node:
    """Return the tree of one output element over that of the product, `product`, of type `dtype`.

    Its leaves beside those of `product` are `operand(index, type)`.  Raises DescriptorError for a step without a
    formula.
    """
    found, index = product, 0
    for step, target in zip(epilogue.steps, epilogue.types(dtype), strict=True):
        x = _widened(found, dtype)
        if step.name in OPERANDS:
            kind = step.operand_dtype or target
            other = _widened(operand(index, kind), kind)
            index += 1
            found = _with_operand(step, x, other, target, formulas)
        else:
            found = _alone(step, x, dtype, formulas)
        found = _rounded(found, target, step.saturate)
        dtype = target
    return found


def _function(name: str, dtype: str, formulas: Formulas, x: Node) -> Node:
    if f"{name}.{dtype}" in formulas:
        return formulas[f"{name}.{dtype}"](x)
    if name not in formulas:
        listed = ", ".join(sorted(formulas)) or advice("targets", otherwise="none")
        raise DescriptorError(f"{name} has no formula; those with one are: {listed}")
    return formulas[name](x)


def _with_operand(step: Step, x: Node, other: Node, dtype: str, formulas: Formulas) -> Node:
    if step.name == "multiply":
        return Operation("mul.rn.fp32", (x, other))
    if step.name == "axpby":
        assert step.value is not None
        assert step.operand_value is not None
        kind = step.arithmetic
        own, others = (
            (_factor(factor, kind), converted(each, "fp32", kind))
            for factor, each in ((step.value, x), (step.operand_value, other))
        )
        if step.fused == "none":
            found = Operation(f"add.rn.{kind}", (Operation(f"mul.rn.{kind}", own), Operation(f"mul.rn.{kind}", others)))
        else:
            fused, rounded = (own, others) if step.fused == "x" else (others, own)
            found = Operation(f"fma.rn.{kind}", (*fused, Operation(f"mul.rn.{kind}", rounded)))
        return converted(found, kind, "fp32")
    if step.name == "swiglu":
        gate = _widened(_rounded(_function("silu", dtype, formulas, other), dtype), dtype)
        return Operation("mul.rn.fp32", (gate, x))
    return Operation("add.rn.fp32", (x, other))


def _alone(step: Step, x: Node, dtype: str, formulas: Formulas) -> Node:
    if step.name in FUNCTIONS:
        return _function(step.name, dtype, formulas, x)
    if step.name in ("relu", "clamp"):
        if step.name == "relu":
            found = Operation("max.nan.fp32", (x, Constant(32, 0)))
        else:
            assert step.low is not None
            assert step.high is not None
            found = Operation("min.nan.fp32", (Operation("max.nan.fp32", (x, number(step.low))), number(step.high)))
        if step.nan == "zero":
            return Select(Operation("isnan.fp32", (x,)), Constant(32, 0), found)
        # A NaN stays as it is; where a rounding follows, its pattern is that of the canonical one.
        return Select(Operation("isnan.fp32", (x,)), x, found) if dtype == "fp32" else found
    if step.name == "scale":
        assert step.value is not None
        return Operation("mul.rn.fp32", (x, number(step.value)))
    return x


def _factor(value: float, dtype: str) -> Node:
    """Return a constant of fp32 or of fp16, which holds it."""
    return number(value) if dtype == "fp32" else Constant(16, int(np.float16(value).view(np.uint16)))


def number(value: float) -> Node:
    """Return a constant of fp32."""
    return Constant(32, int(fp32("a constant", value)))


def _widened(x: Node, dtype: str) -> Node:
    """Return x of a type in fp32.  A NaN of bf16 keeps its pattern, which is the upper half of the result."""
    if dtype != "bf16":
        return converted(x, dtype, "fp32")
    return Operation("shl.b32", (Operation("convert.u32.u16", (x,)), Constant(32, 16)))


def _rounded(x: Node, dtype: str, saturate: bool = False) -> Node:
    """Return x, of fp32, rounded to a type.  The sign of a NaN of 8 bits is that of x."""
    if dtype not in _OVERFLOWS:
        return converted(x, "fp32", dtype)
    magnitude = Operation("and.b32", (x, Constant(32, 0x7FFFFFFF)))
    sign = Operation("shr.u32", (Operation("and.b32", (x, Constant(32, 0x80000000))), Constant(32, 24)))
    small: Node = Operation("convert.u32.u8", (converted(magnitude, "fp32", dtype, satfinite=True),))
    if not saturate:
        comparison, least, pattern = _OVERFLOWS[dtype]
        small = Select(Operation(comparison, (magnitude, number(least))), Constant(32, pattern), small)
    return Operation("convert.u8.u32", (Operation("or.b32", (small, sign)),))


@cache
def _tree_over_leaf(epilogue: Epilogue, dtype: str, formulas: tuple[tuple[str, Callable[[Node], Node]], ...]) -> Node:
    return epilogue_tree(epilogue, dtype, Load("product", 0, FLOAT_FORMATS[dtype].bits), dict(formulas))


def evaluate_epilogue(
    epilogue: Epilogue, dtype: str, product: npt.ArrayLike, operands: Sequence[npt.ArrayLike] = (), *,
    formulas: Formulas = NO_FORMULAS, hardware: Hardware = IEEE,
) -> Bits:  # fmt: skip
    """Return the output's patterns (m, n) for the patterns of a product (m, n) of type `dtype`.

    `operands` are patterns in the order of the steps: (n,) for a bias, otherwise (m, n).  The formulas may call the
    functions of `hardware`.  Raises DescriptorError.
    """
    given = patterns("product", product, dtype, (None, None))
    if len(operands) != len(epilogue.operands):
        raise DescriptorError(
            f"the epilogue has {len(epilogue.operands)} operands ({', '.join(epilogue.operands) or 'none'}), and "
            f"{len(operands)} are given"
        )
    leaves = {"product": given.ravel()}
    for index, (name, kind, each) in enumerate(
        zip(epilogue.operands, epilogue.operand_types(dtype), operands, strict=True)
    ):
        shape = given.shape[2 - OPERANDS[name] :]
        found = patterns(f"the operand of {name}", each, kind, shape)
        leaves[f"operand{index}"] = np.broadcast_to(found, given.shape).ravel()

    def approximate(name: str, parts: tuple[Bits, ...]) -> Bits:
        return function_of(name, len(parts), hardware.functions)(*np.broadcast_arrays(*parts))

    tree = _tree_over_leaf(epilogue, dtype, tuple(sorted(formulas.items())))
    with np.errstate(all="ignore"):
        found = evaluate_many(tree, lambda name, offset, bits: leaves[name], approximate=approximate)
    return np.broadcast_to(found, leaves["product"].shape).reshape(given.shape)
