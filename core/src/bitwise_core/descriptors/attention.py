"""AttentionDesc: everything that determines the bits of one head of attention."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import StrictBool, field_validator, model_validator

from bitwise_core.descriptors.cuts import FloatName, Length
from bitwise_core.descriptors.gemm import GEMMDesc
from bitwise_core.descriptors.record import single
from bitwise_core.descriptors.reduction import ReductionDesc
from bitwise_core.descriptors.text import Descriptor
from bitwise_core.numerics import FLOAT_FORMATS


class AttentionDesc(Descriptor, word="attention"):
    """O = softmax(Q K^T) V of one head, by a loop over blocks of keys, in fp32.  Equal descriptors mean equal bits.

    An iteration takes `key_block` keys.  The maximum m starts at -inf, the denominator l and the output O at +0:
    s = (Q K^T) score_scale, where the scale includes log2(e); m' = max(m, max s), which ignores a NaN;
    alpha = 2^(m - m'); p = 2^(s - m'); l = alpha l + sum p, the sum by `row_sum`; O = alpha O.  p is rounded to
    `probabilities_dtype`, and its product with V by `values` is accumulated on O (`carry` accumulator) or computed from
    +0 and added to O (`carry` added).  At the end O / l, or O (1 / l) with `division` reciprocal, is rounded to
    `output_dtype`.

    `masking` causal masks the keys after a query.  Without `query_block` the loop visits every block, with the mask.
    With `query_block` it visits the whole blocks below the first query of the query's block without a mask, then blocks
    with the mask up to the last query of that block.  A masked score is replaced by `mask_value`, which may then be
    -inf (`mask` replaced), or `mask_value` is added to it (`mask` added).  Keys beyond the last are zeros and masked
    too; without a mask_value there must be none.  `window` masks the keys that are `window` or more before a query too.

    `fused_sum` says that l is one multiply-add; `fused_exponent` that s - m' is one multiply-add of the unscaled score
    in blocks without a mask, and `fused_masked_exponent` in blocks with one, where a masked score has no factor.
    `exponential` and `quotient` name the functions that compute 2^x and x / y: operations of `bitwise_core.numerics`,
    or an architecture's own, as `name@architecture`.  With `cap_factor` f, a score x = Q K^T is first replaced by its
    soft cap 1 - 2 / (2^(x f) + 1), a hyperbolic tangent, whose quotient is `cap_quotient`; score_scale then includes
    the cap.

    With `chunk`, the loop starts again with m = -inf, l = O = +0 at each multiple of `chunk` keys, and the states
    (m', l', O') of the chunks are merged from the first to the last, starting from the empty state (-inf, +0, +0):
    M = max(m, m'), a = 2^(m - M), b = 2^(m' - M), l = l' b + (l a), O = O' b + (O a), each one multiply-add after one
    product.  `sink` merges one more state (log2(e) sink, 1, +0) after the last.  Then +0 is added to O, which makes a
    zero +0.  In every exponent a maximum counts as at least the least finite number, and in the division a denominator
    as at least 2^-126, so that a row without keys has O = +0.  The V of a masked key counts as zeros.  So a chunk, or a
    block, of masked keys changes no bits where 2^0 is 1 and 2^-inf is +0: any part of the masked blocks may be skipped,
    and any division of the chunks among programs has the same bits.

    With `descent` d, which needs `chunk`, the maximum follows the blocks: m' = max(max s, m - d), and m where max s is
    -inf.  The largest weight of a block is then 1, which no type rounds, where its score is not more than d below m.

    With `stored_dtype` K and V are given in that type, and converted to those of the products, which have all its
    numbers.  With `output_scale` the quotient O / l is multiplied by it before it is rounded to `output_dtype`.
    Raises DescriptorError.
    """

    key_block: Length
    masking: Literal["none", "causal"] = "none"
    query_block: Length | None = None
    mask: Literal["replaced", "added"] = "replaced"
    mask_value: float | None = None
    window: Length | None = None
    chunk: Length | None = None
    descent: float | None = None
    sink: StrictBool = False
    scores: GEMMDesc
    score_scale: float
    cap_factor: float | None = None
    cap_quotient: str = "div.rn.fp32"
    fused_exponent: StrictBool = False
    fused_masked_exponent: StrictBool = False
    row_sum: ReductionDesc
    fused_sum: StrictBool = False
    probabilities_dtype: FloatName
    values: GEMMDesc
    carry: Literal["accumulator", "added"] = "accumulator"
    division: Literal["quotient", "reciprocal"] = "quotient"
    exponential: str
    quotient: str = "div.rn.fp32"
    output_dtype: FloatName = "fp32"
    stored_dtype: FloatName | None = None
    output_scale: float | None = None

    @field_validator("score_scale", "mask_value", "cap_factor", "output_scale", "descent")
    @classmethod
    def _single(cls, value: float | None) -> float | None:
        return None if value is None else single(value)

    @model_validator(mode="after")
    def _consistent(self) -> AttentionDesc:
        self._check_mask()
        self._check_chunk()
        self._check_stored()
        if self.row_sum.length != self.key_block:
            raise ValueError(
                f"row_sum adds {self.row_sum.length} values and a block has {self.key_block} keys: give that length"
            )
        if {self.row_sum.dtype, self.row_sum.accumulator_dtype, self.row_sum.output_dtype} != {"fp32"}:
            raise ValueError("row_sum adds the probabilities before they are rounded: make all its types fp32")
        if self.values.k != self.key_block:
            raise ValueError(f"values contracts {self.values.k} keys and a block has {self.key_block}: make k equal")
        if self.values.left_dtype != self.probabilities_dtype:
            raise ValueError(
                f"values takes {self.values.left_dtype} where the probabilities are {self.probabilities_dtype}: make "
                "left_dtype of values and probabilities_dtype one type"
            )
        for name, product in (("scores", self.scores), ("values", self.values)):
            if product.output_dtype != "fp32" or product.operand_scales:
                raise ValueError(
                    f"{name} returns fp32 without scales of operands: make its output_dtype fp32 and leave "
                    "operand_scales out"
                )
            if product.iteration_rotation is not None:
                raise ValueError(f"{name} is one tile of a larger kernel: leave iteration_rotation out")
        carried = not self.values.k_cuts and self.values.accumulator_dtype == "fp32" and not self.values.scaled
        if self.carry == "accumulator" and not carried:
            raise ValueError("an output carried in the accumulator needs values in fp32, without k_cuts and alpha")
        return self

    def _check_stored(self) -> None:
        if self.output_scale is not None and not math.isfinite(self.output_scale):
            raise ValueError(f"output_scale is {self.output_scale}: give a finite number")
        for name, product in (("scores", self.scores), ("values", self.values)):
            held = FLOAT_FORMATS[product.right_dtype].holds
            if self.stored_dtype is not None and not held(FLOAT_FORMATS[self.stored_dtype]):
                raise ValueError(
                    f"{name} takes {product.right_dtype}, which has not all numbers of {self.stored_dtype}: give a "
                    "stored_dtype whose numbers it has"
                )

    def _check_chunk(self) -> None:
        if self.cap_factor is not None and not (math.isfinite(self.cap_factor) and self.cap_factor):
            raise ValueError(f"cap_factor is {self.cap_factor}: give a finite number other than 0")
        if self.cap_factor is None and self.cap_quotient != "div.rn.fp32":
            raise ValueError("without cap_factor there is no quotient of a cap: leave cap_quotient out")
        if self.descent is not None and not (self.chunk is not None and 0 < self.descent < math.inf):
            raise ValueError(f"descent is {self.descent}: give chunk and a positive number, or leave it out")
        if self.chunk is None:
            if self.sink:
                raise ValueError("a sink is merged after the last chunk: give chunk")
            if self.fused_masked_exponent and self.mask != "replaced":
                raise ValueError("a score to which a mask is added has no fused exponent: make mask replaced")
            return
        if self.chunk % self.key_block:
            raise ValueError(
                f"a chunk of {self.chunk} keys is not whole blocks of {self.key_block}: give a multiple of key_block"
            )
        if self.query_block is not None:
            raise ValueError("with chunk, the visited blocks do not affect the bits: leave query_block out")
        if self.mask_value != -math.inf or self.score_scale <= 0:
            raise ValueError("with chunk, give mask_value -inf and a positive score_scale")

    def _check_mask(self) -> None:
        if not math.isfinite(self.score_scale):
            raise ValueError(f"score_scale is {self.score_scale}: give a finite number")
        if self.mask_value is not None and math.isinf(self.mask_value) and self.mask == "added":
            raise ValueError(f"a mask of {self.mask_value} cannot be added: make mask replaced")
        if self.window is not None and self.query_block is not None:
            raise ValueError("a window visits every block of keys: leave query_block out")
        if self.masking == "causal":
            if self.mask_value is None:
                raise ValueError(
                    "a causal mask needs its mask_value: the score of a masked key, or what is added to it"
                )
        elif self.window is not None:
            raise ValueError("a window of the keys before a query needs a causal mask: make masking causal")
        elif self.query_block is not None:
            raise ValueError(
                "without a causal mask the block of queries does not affect the bits: leave query_block out"
            )
