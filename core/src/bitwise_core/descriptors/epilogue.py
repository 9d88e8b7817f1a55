"""Epilogue: the element-wise steps between a matrix product and its stored output, and the bits of each step."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import AfterValidator, model_validator

from bitwise_core.descriptors.cuts import FloatName
from bitwise_core.descriptors.record import single
from bitwise_core.descriptors.text import Descriptor, TextRecord
from bitwise_core.numerics import FLOAT_FORMATS

StepName: TypeAlias = Literal[
    "bias", "add", "axpby", "multiply", "swiglu", "scale", "clamp", "relu", "gelu", "gelu_tanh", "silu", "convert"
]

OPERANDS = {"bias": 1, "add": 2, "axpby": 2, "multiply": 2, "swiglu": 2}
"""The axes of the operand of a step that has one: a bias has one element a column, the others one an element."""
SATURATED = {"e4m3": 448.0, "e5m2": 57344.0}
"""The largest number of each type to which a conversion can saturate."""
FUNCTIONS = frozenset({"gelu", "gelu_tanh", "silu"})
"""The steps whose bits are those of a formula that an architecture's plugin provides."""


def _rounded(value: float) -> float:
    """Return a number rounded to fp32.  Raises ValueError for -0 and for what is not finite there."""
    with np.errstate(over="ignore"):
        found = float(np.float32(value))
    if not np.isfinite(found):
        raise ValueError(f"{value!r} is not a finite number of fp32")
    return single(found)


Number: TypeAlias = Annotated[float, AfterValidator(_rounded)]
_FIELDS = {
    "scale": ("value",), "clamp": ("low", "high"), "convert": ("dtype",), "axpby": ("value", "operand_value", "fused"),
}  # fmt: skip
"""By the name of a step: the fields that it needs and that no other step has."""


class Step(TextRecord, word="step"):
    """One operation on each element x, in fp32, rounded to nearest even in the type of the step.

    With `arithmetic` fp16, which `axpby` may have, x is rounded to that type, the operand and the numbers are of it,
    and each multiplication and the fused multiply-add round once, to it.

    `bias`: x + the operand of x's column.  `add`, `multiply`: x + and x * the operand's element.  `axpby`: `value` x +
    `operand_value` y for the operand's element y, by one fused multiply-add: of x where `fused` is `x`, which adds the
    rounded product of y, of y where it is `operand`, which adds the rounded product of x; where it is `none` both
    products are rounded and added.  `swiglu`: silu(g) of the operand's element g, rounded to the type, times x.
    `scale`: x * `value`.  `clamp`: at least `low`, then at most `high`; a NaN stays.  `relu`: the greater of x and +0;
    a NaN stays, or is +0 where `nan` is `zero`.  `gelu`, `gelu_tanh`, `silu`: activation functions.  `convert`: x in
    `dtype`, which the steps after it have, to nearest even.  An overflow of a format of 8 bits is its largest number
    with `saturate`, otherwise an infinity, or NaN in e4m3, which has none.

    An operand has the type `operand_dtype`, by default that of the step, and is widened to fp32.  Numbers are rounded
    to fp32.  Raises DescriptorError.
    """

    name: StepName
    value: Number | None = None
    operand_value: Number | None = None
    fused: Literal["x", "operand", "none"] | None = None
    operand_dtype: FloatName | None = None
    low: Number | None = None
    high: Number | None = None
    dtype: FloatName | None = None
    saturate: bool = False
    arithmetic: Literal["fp32", "fp16"] = "fp32"
    nan: Literal["kept", "zero"] = "kept"

    @model_validator(mode="after")
    def _consistent(self) -> Step:
        wanted = _FIELDS.get(self.name, ())
        for field in ("value", "operand_value", "fused", "low", "high", "dtype"):
            if (getattr(self, field) is not None) != (field in wanted):
                raise ValueError(f"{self.name} {'needs' if field in wanted else 'has no'} {field}")
        if self.operand_dtype is not None and self.name not in OPERANDS:
            raise ValueError(f"{self.name} has no operand: leave operand_dtype out")
        if self.operand_dtype is not None and not FLOAT_FORMATS["fp32"].holds(FLOAT_FORMATS[self.operand_dtype]):
            raise ValueError(f"an operand is widened to fp32, which does not hold every {self.operand_dtype}")
        if self.saturate and self.dtype not in SATURATED:
            raise ValueError(f"saturate applies to a conversion to {' or '.join(SATURATED)}")
        if self.low is not None and self.high is not None and not self.low <= self.high:
            raise ValueError(f"clamp from {self.low} to {self.high}: low is at most high")
        if self.nan == "zero" and self.name != "relu":
            raise ValueError(f"{self.name} keeps a NaN: leave nan out")
        if self.arithmetic == "fp16":
            self._check_fp16()
        return self

    def _check_fp16(self) -> None:
        if self.name != "axpby" or self.operand_dtype != "fp16":
            raise ValueError("arithmetic of fp16 is that of axpby with an operand_dtype of fp16: leave arithmetic out")
        for value in (self.value, self.operand_value):
            assert value is not None
            with np.errstate(over="ignore"):
                if float(np.float16(value)) != value:
                    raise ValueError(f"{value!r} is not a finite number of fp16, in which the step multiplies")


class Epilogue(Descriptor, word="epilogue"):
    """The steps that follow a product, in order.  The first step has the type of the product's output.

    Equal epilogues of equal products determine equal bits: each step rounds as an element-wise operation of its own
    that stores its result.  Raises DescriptorError.
    """

    steps: tuple[Step, ...]

    @model_validator(mode="after")
    def _not_empty(self) -> Epilogue:
        if not self.steps:
            raise ValueError("an epilogue has at least one step: give no epilogue instead")
        return self

    @classmethod
    def of(cls, *steps: Step | str) -> Epilogue:
        """Return the epilogue of steps in order; a step without numbers may be given by its name."""
        return cls(steps=tuple(Step(name=each) if isinstance(each, str) else each for each in steps))

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the steps that have an operand, in the order of the operands."""
        return tuple(each.name for each in self.steps if each.name in OPERANDS)

    def types(self, dtype: str) -> tuple[str, ...]:
        """Return the type of each step, for a product of type `dtype`; that of the last step is the output's."""
        found = []
        for each in self.steps:
            dtype = each.dtype or dtype
            found.append(dtype)
        return tuple(found)

    def operand_types(self, dtype: str) -> tuple[str, ...]:
        """Return the type of each operand, for a product of type `dtype`."""
        pairs = zip(self.types(dtype), self.steps, strict=True)
        return tuple(each.operand_dtype or kind for kind, each in pairs if each.name in OPERANDS)

    def output_dtype(self, dtype: str) -> str:
        """Return the type of the output, for a product of type `dtype`."""
        return self.types(dtype)[-1]
