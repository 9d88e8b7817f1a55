"""GEMMDesc: everything that determines the bits of a matrix product, and nothing else."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, StrictBool, StrictInt, field_validator, model_validator

from bitwise_core.descriptors.cuts import Cut, FloatName, Length, Positions
from bitwise_core.descriptors.record import DescriptorError, single
from bitwise_core.descriptors.text import Descriptor, TextRecord
from bitwise_core.numerics import FLOAT_FORMATS

_NAME = r"^[A-Za-z0-9._-]+$"

ROUNDED_OPERANDS = frozenset({("fp32", "tf32")})
"""Pairs of an operand's type and a type that does not hold it, to which it may be rounded before it is multiplied."""


class Instruction(TextRecord, word="instruction"):
    """A matrix instruction without its data types: the architecture, the mnemonic's family, the native k."""

    architecture: Annotated[str, Field(pattern=_NAME)]
    family: Annotated[str, Field(pattern=_NAME)]
    k: Length


class Rotation(TextRecord, word="rotation"):
    """Output tiles start the loop over k at different iterations and wrap around.

    Tile t starts at iteration (t mod period) * step.  Tiles of `tile` rows or columns are counted along the output's
    `axis`.  With `halved`, each innermost part of the k axis has its own period: `period`, a power of two, is halved
    until period * step is at most the number of the part's full iterations, or it is 1.
    """

    axis: Literal["rows", "columns"]
    tile: Length
    period: Length
    step: Length = 1
    halved: StrictBool = False

    @model_validator(mode="after")
    def _consistent(self) -> Rotation:
        if self.halved and self.period & (self.period - 1):
            raise ValueError(f"a period is halved to 1 only from a power of two, not from {self.period}")
        return self

    def first(self, tile: int, iterations: int) -> int:
        """Return the iteration at which the loop of an output tile starts, of so many full iterations, at least 1."""
        period = self.period
        while self.halved and period > 1 and period * self.step > iterations:
            period //= 2
        return tile % period * self.step % iterations


class Share(TextRecord, word="share"):
    """How the tail is distributed over the parts of one cut.

    Without `tile` all of it belongs to the part number `part`.  With `tile` it is filled with zeros to whole rounds, a
    round being `tile` k for each part, and distributed round-robin, beginning with part 0.
    """

    part: Annotated[StrictInt, Field(ge=0)] = 0
    tile: Length | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Share:
        if self.part and self.tile is not None:
            raise ValueError("a tail in tiles is distributed from part 0 on: give part or tile")
        return self


class Tail(TextRecord, word="tail"):
    """The last `length` k of a product, which are not cut and looped over with the others.

    `shares` distribute them over the parts of each cut, the outermost first.  An innermost part accumulates its share
    after all of its iterations, in ascending k and never permuted.
    """

    length: Length
    shares: tuple[Share, ...] = ()


class GEMMDesc(Descriptor, word="gemm"):
    """C[m, n] = A[m, k] B[k, n] as one kernel, or one library, computes it.  Equal descriptors determine equal bits.

    `k_cuts` split the first k - k_dropped values of k, the outermost cut first.  A loop over k accumulates an innermost
    part from +0, or from -0 where `accumulator_start` says so, on a scalar path without cuts: the first product then
    keeps the sign of a zero.  An iteration takes `k_loop_step` k, and the short iteration runs where `short_iteration`
    says.  An iteration consists of instructions of `instruction_k` k; a short instruction is filled with zeros.
    `k_loop_step` is None where the iterations do not affect the bits.

    path `matrix`: `instruction` names the matrix unit's row.  Its types are the descriptor's; both operands have the
    type `multiplied_as` where they are first converted to it: widened exactly, or fp32 rounded to tf32, to nearest
    even.  With `use_fast_accum` the accumulator enters the
    instruction's own sum.  Without it each instruction starts from +0, and one more addition, to nearest even in the
    accumulator's type, adds its result to the accumulator.  path `fma`: acc = fma(a, b, acc) for each k.  path
    `mul_add`: acc = acc + a b, rounded twice.  Both work in the accumulator's type, to nearest even.

    Iterations may be rotated per output tile (`iteration_rotation`), and k may be permuted inside an iteration: the
    i-th k that an iteration takes is at its position `iteration_permutation[i]`.  A short iteration is filled with
    zeros before it is permuted.  `tail` takes the last k out of the cuts and iterations.

    At the end the value is multiplied in fp32 by `alpha` (a number of fp32; 1 means no multiplication) or, with
    `operand_scales`, by the fp32 product of both operands' scales, which are inputs.  It is then rounded to
    `output_dtype`, to nearest even.  An overflow becomes an infinity (a NaN in a type without infinities), or with
    `output_satfinite` the largest finite number.  `output_nan_for_infinity` goes with `output_satfinite` and a type
    without infinities: a value that is infinite before it is rounded becomes a NaN, and another overflow the largest
    finite number.  Raises DescriptorError for an inconsistent record.
    """

    k: Length
    left_dtype: FloatName
    right_dtype: FloatName
    accumulator_dtype: FloatName = "fp32"
    accumulator_start: Literal["zero", "negative-zero"] = "zero"
    output_dtype: FloatName
    multiplied_as: FloatName | None = None
    path: Literal["matrix", "fma", "mul_add"]
    instruction: Instruction | None = None
    instruction_k: Length = 1
    use_fast_accum: StrictBool = True
    k_loop_step: Length | None = None
    short_iteration: Literal["last", "first"] = "last"
    k_cuts: Annotated[tuple[Cut, ...], Field(max_length=16)] = ()
    k_dropped: Annotated[StrictInt, Field(ge=0)] = 0
    iteration_rotation: Rotation | None = None
    iteration_permutation: tuple[StrictInt, ...] = ()
    tail: Tail | None = None
    alpha: float = 1.0
    operand_scales: StrictBool = False
    output_satfinite: StrictBool = False
    output_nan_for_infinity: StrictBool = False

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
            self._check_iterations()
            self._check_types()
            self._check_tail()
            self._check_cuts()
        except DescriptorError as error:
            raise ValueError(str(error)) from None
        return self

    def _check_path(self) -> None:
        if self.accumulator_start == "negative-zero" and (self.path == "matrix" or self.k_cuts):
            raise DescriptorError(
                "accumulator_start = negative-zero applies to a scalar path without cuts: leave it or k_cuts out"
            )
        if self.accumulator_start == "negative-zero" and FLOAT_FORMATS[self.accumulator_dtype].negative_zero is None:
            raise DescriptorError(f"{self.accumulator_dtype} has no -0: leave accumulator_start out")
        if self.path == "matrix":
            if self.instruction is None:
                raise DescriptorError("the matrix path needs its instruction: architecture, family and native k")
            if self.instruction_k > self.instruction.k:
                raise DescriptorError(
                    f"instruction_k = {self.instruction_k} exceeds the instruction's native k of {self.instruction.k}"
                )
            return
        if self.instruction is not None or self.instruction_k != 1:
            raise DescriptorError(f"the path {self.path} has no instruction: leave instruction and instruction_k out")
        if not self.use_fast_accum:
            raise DescriptorError(
                f"use_fast_accum applies to matrix instructions only: leave it out on the path {self.path}"
            )

    def _check_iterations(self) -> None:
        step = self.k_loop_step
        if self.k_dropped >= self.k:
            raise DescriptorError(f"k_dropped = {self.k_dropped} drops all of k = {self.k}")
        permutation = self.iteration_permutation
        if permutation and (len(permutation) != step or sorted(permutation) != list(range(step))):
            raise DescriptorError(
                f"iteration_permutation is a permutation of the positions 0 to {(step or 1) - 1} of an iteration, "
                "whose length is k_loop_step"
            )
        if step is None:
            if self.short_iteration == "first" or self.iteration_rotation:
                raise DescriptorError(
                    "short_iteration = first and iteration_rotation need the length of an iteration: give k_loop_step"
                )
            return
        needed = self.short_iteration == "first" or self.iteration_rotation or self.iteration_permutation
        if not needed and step % self.instruction_k == 0:
            raise DescriptorError(
                f"k_loop_step = {step} does not affect the bits: the accumulator is carried across iterations and the "
                "short iteration runs last; leave it out, so that equal bits have equal records"
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
                if not FLOAT_FORMATS[wide].holds(FLOAT_FORMATS[name]) and (name, wide) not in ROUNDED_OPERANDS:
                    raise DescriptorError(f"{wide} does not hold every {name}: choose another multiplied_as")
        if self.path != "matrix":
            for name in (self.left_dtype, self.right_dtype):
                if not accumulator.holds(FLOAT_FORMATS[name]):
                    raise DescriptorError(
                        f"the path {self.path} works in the accumulator's type, and {self.accumulator_dtype} does not "
                        f"hold every {name}: choose another accumulator_dtype"
                    )
        if self.output_nan_for_infinity and (not self.output_satfinite or FLOAT_FORMATS[self.output_dtype].infinities):
            raise DescriptorError(
                "output_nan_for_infinity needs output_satfinite and an output_dtype without infinities: leave it out"
            )
        if self.operand_scales and self.alpha != 1.0:
            raise DescriptorError("give alpha or operand_scales: in which order the two multiply is not stated")
        result = self.k_cuts[0].merge_dtype if self.k_cuts else self.accumulator_dtype
        if self.scaled and not FLOAT_FORMATS["fp32"].holds(FLOAT_FORMATS[result]):
            raise DescriptorError(f"scales multiply in fp32, which does not hold every {result}: leave them out")

    def _check_tail(self) -> None:
        if self.tail is None:
            return
        if self.tail.length > self.k - self.k_dropped:
            raise DescriptorError(
                f"tail.length = {self.tail.length} exceeds the {self.k - self.k_dropped} k that are summed"
            )
        if self.short_iteration == "first":
            raise DescriptorError("the tail comes after all iterations: leave short_iteration or tail out")
        if len(self.tail.shares) != len(self.k_cuts):
            raise DescriptorError(
                f"the tail has {len(self.tail.shares)} shares, and k has {len(self.k_cuts)} cuts: give one share a cut"
            )
        if not self.k_cuts and not self.iteration_rotation and not self.iteration_permutation:
            raise DescriptorError(
                "without cuts, rotation and permutation the tail is accumulated like all other k: leave tail out"
            )
        for level, (share, cut) in enumerate(zip(self.tail.shares, self.k_cuts, strict=True)):
            if cut.count is None or share.part >= cut.count:
                raise DescriptorError(
                    f"tail.shares[{level}] needs a cut into a given number of parts, more than {share.part}: "
                    f"k_cuts[{level}] has count = {cut.count}"
                )

    def _check_cuts(self) -> None:
        lengths = {max(0, self._cut_length)}
        for level, cut in enumerate(self.k_cuts):
            try:
                parts = {each for length in lengths for each in cut.part_lengths(length)}
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
        """The types in which both operands are multiplied: the unit's, or the accumulator's on a scalar path."""
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

    @property
    def _cut_length(self) -> int:
        """How many k are cut and looped over; negative where more are dropped than there are."""
        return self.k - self.k_dropped - (self.tail.length if self.tail else 0)

    def positions(self) -> Positions:
        """Return the k that are cut and looped over, ascending: int64.  Without a tail, all that are summed."""
        return np.arange(self._cut_length, dtype=np.int64)

    def tail_positions(self) -> Positions:
        """Return the k of the tail, ascending: int64; of length 0 without one."""
        return np.arange(len(self.positions()), self.k - self.k_dropped, dtype=np.int64)
