"""AttentionGradientDesc: everything that determines the bits of the gradients of one group of heads of attention."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import field_validator, model_validator

from bitwise_core.descriptors.cuts import FloatName, Length
from bitwise_core.descriptors.gemm import GEMMDesc, Instruction
from bitwise_core.descriptors.record import single
from bitwise_core.descriptors.reduction import ReductionDesc
from bitwise_core.descriptors.text import Descriptor


class AttentionGradientDesc(Descriptor, word="attention_gradient"):
    """The gradients of Q, K and V for the output O, its gradient G, and the logarithms L of the rows, in fp32.

    s = Q K^T by `scores`; P = 2^(s score_scale - L log2(e)) in one multiply-add after one product, and 0 where the mask
    hides a key; D is the sum of the products of a row of O and of G, by `row_products`; S = P (G V^T - D), with G V^T
    by `slopes`.  P and S are rounded to `dtype`.  dV = P^T G, dK = S^T Q and dQ = S K are chains of steps of `unit`
    from +0: over the queries of a head of the group, filled with zeros to whole steps, and over the keys.  With `heads`
    of `chained` the chain of a head goes on with the queries of the next one; with `added` each head has its own, and
    their results are added in fp32 from the first head to the last.  +0 is added to each, dK and dQ are multiplied by
    `scale`, and all are rounded to `dtype`.  Steps of masked elements change no bits, so that the order of the blocks
    of a kernel does not matter where it is ascending, nor which masked blocks it skips.  The operands are finite.

    `masking`, `window`, `exponential` and `score_scale` are those of AttentionDesc.  Raises DescriptorError.
    """

    dtype: FloatName
    masking: Literal["none", "causal"] = "none"
    window: Length | None = None
    scores: GEMMDesc
    score_scale: float
    exponential: str
    slopes: GEMMDesc
    row_products: ReductionDesc
    unit: Instruction
    heads: Literal["chained", "added"] = "chained"
    scale: float

    @field_validator("score_scale", "scale")
    @classmethod
    def _single(cls, value: float) -> float:
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number: give one")
        return single(value)

    @model_validator(mode="after")
    def _consistent(self) -> AttentionGradientDesc:
        if self.window is not None and self.masking != "causal":
            raise ValueError("a window of the keys before a query needs a causal mask: make masking causal")
        for name, product in (("scores", self.scores), ("slopes", self.slopes)):
            types = {product.left_dtype, product.right_dtype}
            if types != {self.dtype} or product.output_dtype != "fp32" or product.operand_scales:
                raise ValueError(
                    f"{name} multiplies {self.dtype} and returns fp32 without scales of operands: make its types so"
                )
        types = {self.row_products.dtype, self.row_products.accumulator_dtype, self.row_products.output_dtype}
        if types != {"fp32"} or self.row_products.length != self.slopes.k:
            raise ValueError(f"row_products adds {self.slopes.k} products in fp32: give that length and type")
        return self
