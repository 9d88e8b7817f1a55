"""AttentionDesc: all that decides the bits of one head of attention.  Equal descriptors owe equal bits."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import field_validator, model_validator

from bitwise_core.descriptors.cuts import FloatName, Positive
from bitwise_core.descriptors.gemm import GEMMDesc
from bitwise_core.descriptors.record import DescriptorError, Record
from bitwise_core.descriptors.reduction import ReductionDesc


class AttentionDesc(Record):
    """O = softmax(Q K^T) V of one head, block of keys after block of keys, in fp32.

    For each block of `key_block` keys, from a maximum of -inf, a denominator of +0 and an output of +0:
    s = (Q K^T) score_scale, log2(e) being part of the scale; m' = max(m, max s); alpha = 2^(m - m'); p = 2^(s - m');
    l = alpha l + sum p, the sum by `row_sum`; O = alpha O, and the products of p, rounded to `probabilities_dtype`,
    with V enter O by `values`: as its accumulator (`carry` accumulator) or by one more addition (added).

    `fused_exponent` says that s - m' is one multiply-add of the unscaled score; `fused_sum` that l is one multiply-add.
    `masking` none walks all keys.  The causal ones walk the keys below a query's block of `query_block` queries first
    and then those of the block itself, whose entries above the diagonal get `mask_offset` added (causal-offset) or
    become -inf (causal-infinity).  `division` says how O is divided by l at the end: as O / l, or as O (1 / l).
    `exponential` and `quotient` name the functions that compute 2^x and x / y; what is no operation of
    `bitwise_core.numeric` is the architecture's own.
    """

    key_block: Positive
    masking: Literal["none", "causal-offset", "causal-infinity"] = "none"
    query_block: Positive | None = None
    mask_offset: float | None = None
    scores: GEMMDesc
    score_scale: float
    fused_exponent: bool = False
    row_sum: ReductionDesc
    fused_sum: bool = False
    probabilities_dtype: FloatName
    values: GEMMDesc
    carry: Literal["accumulator", "added"] = "accumulator"
    division: Literal["end", "reciprocal"] = "end"
    exponential: str
    quotient: str = "div.rn.fp32"

    @field_validator("score_scale", "mask_offset")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        with np.errstate(over="ignore"):
            if value is not None and (not math.isfinite(value) or float(np.float32(value)) != value):
                raise ValueError(f"{value!r} is no finite number of fp32: round it first")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> AttentionDesc:
        self._check_mask()
        if self.row_sum.length != self.key_block:
            raise ValueError(
                f"row_sum adds {self.row_sum.length} values and a block has {self.key_block} keys: give that length"
            )
        if {self.row_sum.dtype, self.row_sum.accumulator_dtype, self.row_sum.output_dtype} != {"fp32"}:
            raise ValueError("row_sum adds the probabilities as they are computed: all its types are fp32")
        if self.values.k != self.key_block:
            raise ValueError(f"values contracts {self.values.k} keys and a block has {self.key_block}: give k of that")
        if self.values.left_dtype != self.probabilities_dtype:
            raise ValueError(
                f"values takes {self.values.left_dtype} where the probabilities are {self.probabilities_dtype}: make "
                "left_dtype of values and probabilities_dtype one type"
            )
        if {self.scores.output_dtype, self.values.output_dtype} != {"fp32"}:
            raise ValueError("scores and values hand over fp32: their output_dtype is fp32")
        if self.carry == "accumulator" and (self.values.k_cuts or self.values.accumulator_dtype != "fp32"):
            raise ValueError("an output carried in the accumulator needs values without k_cuts, accumulating in fp32")
        return self

    def _check_mask(self) -> None:
        if self.masking == "none":
            if self.query_block is not None or self.mask_offset is not None:
                raise ValueError(
                    "without a mask the block of queries decides no bits: leave query_block and mask_offset out"
                )
            return
        if self.query_block is None or self.query_block % self.key_block:
            raise ValueError(
                f"a causal mask splits the walk at multiples of query_block, in whole blocks of {self.key_block} keys: "
                f"give a multiple of {self.key_block}, not {self.query_block}"
            )
        if (self.masking == "causal-offset") != (self.mask_offset is not None):
            raise ValueError("mask_offset goes with masking causal-offset, and with no other")

    def to_text(self) -> str:
        """The descriptor on one line; `from_text` reads it back to an equal record."""
        from bitwise_core.descriptors.text import write

        return write(self)

    @classmethod
    def from_text(cls, line: str) -> AttentionDesc:
        """The descriptor that `to_text` wrote.  Raises DescriptorError."""
        from bitwise_core.descriptors.text import read

        found = read(line)
        if not isinstance(found, AttentionDesc):
            raise DescriptorError(f"this line is of a {type(found).__name__}, not of an AttentionDesc: {line!r}")
        return found

    def __str__(self) -> str:
        return self.to_text()
