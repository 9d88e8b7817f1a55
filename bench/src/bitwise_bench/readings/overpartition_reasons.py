"""Why the readings part kernels of a family whose recorded bytes agree: one sentence a family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "rms_norm": "really different: squares fused into the sum or not part where ties climb from what underflows; "
        "no recorded draw shows it",
        "narrow_outputs": "most really different in fp32; stores of 8 and 16 bits hide it in the recorded draws",
        "layer_norm_weight_gradient": "fused or not: apart at most in the sign of a zero, which needs every product of "
        "a column to underflow",
        "welford": "merges with empty parts, repeated: one infinity at a certain column parts the fp16 pair; "
        "the fp32 pair looks equal and no rule says so",
        "softmax_row": "an exact block against a padded one: equal, but only by the members of the maximum",
        "softmax_online": "lanes that see one value each: 2^(x - x) is 1 unless x is not finite; no rule says so",
        "inductor_softmax": "x / 8 + b fused or not: apart below 2^-126 only, which 2^x does not see",
        "attention_key_gradient": "blocks that the causal mask empties are skipped or multiplied by zeros: "
        "one only where all is finite, and no rule says so",
        "attention_query_gradient": "as attention_key_gradient",
    }
)

_ALL_NANS = (
    "an exact block against a padded one: their maxima part on a row of nothing but NaNs, whose sum is a NaN either way"
)
_EXPONENTIALS = (
    "x log2(e) + 64, as the exponential of small numbers has it, fused or not: apart where 2^x is subnormal, which "
    "1 + 2^x does not see"
)
_NOT_SEARCHED = "not settled: the trees part, and no input was found on which the bytes do"

REASONS_GFX942: Mapping[str, str] = MappingProxyType(
    {
        "row_max": "equal: a maximum of bf16 is rounded to bf16, once by an instruction and once by integers",
        "row_min": "as row_max",
        "arg_max": _NOT_SEARCHED,
        "arg_min": _NOT_SEARCHED,
        "softmax_row": _ALL_NANS,
        "softmax_rows": _ALL_NANS,
        "softmax_online": "as on sm_90: lanes that see one value each: 2^(x - x) is 1 unless x is not finite",
        "log_sum_exp": _ALL_NANS,
        "cross_entropy": _ALL_NANS,
        "inductor_softmax": "x log2(e) + 64 fused or not: apart where an exponential is subnormal, which outputs in "
        "fp16 and draws that have none do not show",
        "activation": _EXPONENTIALS,
        "narrow_outputs": "some really different, an input shows it that no draw holds; others as softmax_row and "
        "activation",
        "layer_norm_weight_gradient": "as on sm_90: fused or not: apart at most in the sign of a zero, which needs "
        "every product of a column to underflow",
        "rms_norm": "as on sm_90: squares fused into the sum or not; the draws that were run do not show it",
        "welford": "as on sm_90: merges with empty parts, repeated",
        "row_sum_fp64": _NOT_SEARCHED,
        "gemm_row_sum": "really different: sums of columns beyond the matrix, which one infinity makes a NaN",
        "gemm_column_sum": "as gemm_row_sum",
        "gemm_int8": _NOT_SEARCHED,
        "atomic_count": _NOT_SEARCHED,
        "gemm_persistent": _NOT_SEARCHED,
        "gemm_softmax": _ALL_NANS,
        "split_k_partial": _NOT_SEARCHED,
        "attention": _NOT_SEARCHED,
        "attention_causal": "as on sm_90: blocks that the causal mask empties are skipped or multiplied by zeros",
        "attention_key_gradient": "with kpack = 2 a matrix step has other products, really different: rounding to 16 "
        "bits before the next product hides it in the draws that were run",
        "attention_query_gradient": "as on sm_90: blocks that the causal mask empties are skipped or multiplied by "
        "zeros",
        "function": _NOT_SEARCHED,
    }
)

REASONS_OF: Mapping[str, Mapping[str, str]] = MappingProxyType({"sm_90": REASONS, "gfx942": REASONS_GFX942})
