"""GEMMDesc: all that decides the bits of a matrix product, and nothing else.  Equal descriptors owe equal bits."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, StrictBool, StrictInt, field_validator, model_validator

from bitwise_core.descriptors.cuts import Cut, FloatName, Positions, Positive
from bitwise_core.descriptors.record import DescriptorError, single
from bitwise_core.descriptors.text import Descriptor, TextRecord
from bitwise_core.numerics import FLOAT_FORMATS

_NAME = r"^[A-Za-z0-9._-]+$"


class Instruction(TextRecord, word="instruction"):
    """A row of a matrix unit but for its types: the architecture, the mnemonic's family, the native k."""

    architecture: Annotated[str, Field(pattern=_NAME)]
    family: Annotated[str, Field(pattern=_NAME)]
    k: Positive


class Rotation(TextRecord, word="rotation"):
    """Output tiles start at different turns of the k walk and wrap around: tile t at turn (t mod period) * step.

    `axis` says along which axis of the output tiles of `tile` rows or columns are counted.
    """

    axis: Literal["rows", "columns"]
    tile: Positive
    period: Positive
    step: Positive = 1


class GEMMDesc(Descriptor, word="gemm"):
    """C[m, n] = A[m, k] B[k, n] as one kernel, or one library, computes it.  Equal descriptors owe equal bits.

    The first k - k_dropped values of k are cut by `k_cuts`, outermost first.  An innermost part is walked from an
    accumulator of +0, turn by turn: turns of `k_loop_step` k, the short one where `short_iteration` says; in a turn,
    instructions of `instruction_k` k, a short one filled up with zeros.  `k_loop_step` is None where turns decide
    nothing.

    path `matrix`: `instruction` names the unit's row, whose types are the descriptor's (of both operands
    `multiplied_as`, where operands are first widened to it, exactly); with `use_fast_accum` the
    accumulator enters the instruction's own sum, without it each instruction starts from +0 and one more addition, to
    nearest even in the accumulator's type, takes its result in.  path `fma`: acc = fma(a, b, acc) for each k; path
    `mul_add`: acc = acc + a b, rounded twice; both in the accumulator's type, to nearest even.

    Iterations may be rotated per output tile (`iteration_rotation`), and k permuted inside an iteration: position i of
    the walk is position `iteration_permutation[i]` of the iteration; a short iteration is filled up with zeros first.

    At the end the value is multiplied in fp32 by `alpha` (a number of fp32; 1 multiplies nothing) or, with
    `operand_scales`, by the fp32 product of both operands' scales, which are inputs; and rounded to `output_dtype`, to
    nearest even; what is too large becomes an infinity (a NaN in a type that has none), or with `output_satfinite` the
    largest finite number.  Raises DescriptorError for a record that makes no sense.
    """

    k: Positive
    left_dtype: FloatName
    right_dtype: FloatName
    accumulator_dtype: FloatName = "fp32"
    output_dtype: FloatName
    multiplied_as: FloatName | None = None
    path: Literal["matrix", "fma", "mul_add"]
    instruction: Instruction | None = None
    instruction_k: Positive = 1
    use_fast_accum: StrictBool = True
    k_loop_step: Positive | None = None
    short_iteration: Literal["last", "first"] = "last"
    k_cuts: tuple[Cut, ...] = ()
    k_dropped: Annotated[StrictInt, Field(ge=0)] = 0
    iteration_rotation: Rotation | None = None
    iteration_permutation: tuple[StrictInt, ...] = ()
    alpha: float = 1.0
    operand_scales: StrictBool = False
    output_satfinite: StrictBool = False

    @field_validator("alpha")
    @classmethod
    def _finite(cls, value: float) -> float:
        if not math.isfinite(value):
            raise ValueError(f"the scale is {value}: give a finite number, 1 for none")
        return single(value)

    @model_validator(mode="after")
    def _consistent(self) -> GEMMDesc:
        try:
            self._check_path()
            self._check_turns()
            self._check_types()
            self._check_cuts()
        except DescriptorError as error:
            raise ValueError(str(error)) from None
        return self

    def _check_path(self) -> None:
        if self.path == "matrix":
            if self.instruction is None:
                raise DescriptorError("the matrix path needs its instruction: architecture, family and native k")
            if self.instruction_k > self.instruction.k:
                raise DescriptorError(
                    f"instruction_k = {self.instruction_k} is more than the instruction's own {self.instruction.k}"
                )
            return
        if self.instruction is not None or self.instruction_k != 1:
            raise DescriptorError(f"the path {self.path} has no instruction: leave instruction and instruction_k out")
        if not self.use_fast_accum:
            raise DescriptorError(f"use_fast_accum is of matrix instructions: the path {self.path} leaves it out")

    def _check_turns(self) -> None:
        step = self.k_loop_step
        if self.k_dropped >= self.k:
            raise DescriptorError(f"k_dropped = {self.k_dropped} leaves nothing of k = {self.k}")
        if self.iteration_permutation and sorted(self.iteration_permutation) != list(range(step or 0)):
            raise DescriptorError(
                f"iteration_permutation is a permutation of the positions 0 to {(step or 1) - 1} of an iteration, "
                "whose length is k_loop_step"
            )
        if step is None:
            if self.short_iteration == "first" or self.iteration_rotation:
                raise DescriptorError("where turns decide bits, k_loop_step gives their length: give it")
            return
        needed = self.short_iteration == "first" or self.iteration_rotation or self.iteration_permutation
        if not needed and step % self.instruction_k == 0:
            raise DescriptorError(
                f"k_loop_step = {step} decides no bits: the accumulator is carried across turns and the short one runs "
                "last; leave it out, so that equal bits have equal records"
            )

    def _check_types(self) -> None:
        accumulator, wide = FLOAT_FORMATS[self.accumulator_dtype], self.multiplied_as
        if wide is not None:
            if self.path != "matrix":
                raise DescriptorError(
                    f"the path {self.path} multiplies in the accumulator's type: leave multiplied_as out"
                )
            if wide in (self.left_dtype, self.right_dtype) and self.left_dtype == self.right_dtype:
                raise DescriptorError(f"operands of {wide} are {wide} already: leave multiplied_as out")
            for name in (self.left_dtype, self.right_dtype):
                if not FLOAT_FORMATS[wide].holds(FLOAT_FORMATS[name]):
                    raise DescriptorError(f"{wide} does not hold every {name}: choose another multiplied_as")
        if self.path != "matrix":
            for name in (self.left_dtype, self.right_dtype):
                if not accumulator.holds(FLOAT_FORMATS[name]):
                    raise DescriptorError(
                        f"the path {self.path} works in the accumulator's type, and {self.accumulator_dtype} does not "
                        f"hold every {name}: choose another accumulator_dtype"
                    )
        if self.operand_scales and self.alpha != 1.0:
            raise DescriptorError("give alpha or operand_scales: in which order the two multiply is not stated")
        result = self.k_cuts[0].merge_dtype if self.k_cuts else self.accumulator_dtype
        if self.scaled and not FLOAT_FORMATS["fp32"].holds(FLOAT_FORMATS[result]):
            raise DescriptorError(f"scales multiply in fp32, which does not hold every {result}: leave them out")

    def _check_cuts(self) -> None:
        lengths = {self.k - self.k_dropped}
        for level, cut in enumerate(self.k_cuts):
            try:
                parts = {len(part) for length in lengths for part in cut.parts(np.arange(length))}
            except DescriptorError as error:
                dropped = f" (k_dropped = {self.k_dropped})" if self.k_dropped else ""
                raise DescriptorError(f"k_cuts[{level}] does not cover k{dropped}: {error}") from None
            lengths = parts - {0}

    @property
    def scaled(self) -> bool:
        """Whether the value is multiplied by a scale before it is stored."""
        return self.operand_scales or self.alpha != 1.0

    @property
    def factor_dtypes(self) -> tuple[str, str]:
        """The types of both operands as they are multiplied: the unit's, or the accumulator's on a scalar path."""
        if self.path != "matrix":
            return self.accumulator_dtype, self.accumulator_dtype
        return self.multiplied_as or self.left_dtype, self.multiplied_as or self.right_dtype

    @property
    def instruction_name(self) -> str:
        """The name of the matrix unit's row, as `MmaSpec.name` gives it; empty on a scalar path."""
        if self.instruction is None:
            return ""
        types = "_".join((self.accumulator_dtype, *self.factor_dtypes, self.accumulator_dtype))
        return f"{self.instruction.family}_k{self.instruction.k}_{types}_{self.instruction.architecture}"

    def positions(self) -> Positions:
        """The k that take part, ascending."""
        return np.arange(self.k - self.k_dropped, dtype=np.int64)
