"""Why kernels with equal recorded bytes are in several equivalence classes, by architecture and family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REASONS_SM90: Mapping[str, str] = MappingProxyType(
    {
        "row_max": "as softmax_rows, in bf16",
        "row_min": "as row_max",
        "narrow_outputs": "mostly different in fp32; rounding to 8 and 16 bits hides it on the recorded inputs",
        "layer_norm_weight_gradient": "contraction: differ at most in the sign of a zero, if every product of a column "
        "underflows",
        "welford": "repeated merges with empty parts: one infinity in a certain column distinguishes the fp16 pair; "
        "the fp32 pair appears equal, but no rule proves it",
        "softmax_row": "exact against padded block: equal only given the elements of the maximum",
        "softmax_rows": "open: only under finite, which covers numbers of their own format only",
        "attention": "as softmax_rows",
        "softmax_online": "lanes with one value each, which is the maximum with a bound because fp16 has no number "
        "below the bound; no rule states it",
        "inductor_softmax": "contraction of x / 8 + b: differs only below 2^-126, where 2^x is 1",
        "attention_key_gradient": "fully masked blocks are skipped or multiplied by zeros: "
        "equal only if all values are finite, and no rule proves it",
        "attention_query_gradient": "as attention_key_gradient",
    }
)

_ALL_NANS = "exact against padded block: the maxima differ on a row of NaNs, whose sum is NaN in both"
_EXPONENTIALS = (
    "contraction of x log2(e) + 64 in the exponential of small numbers: differs where 2^x is subnormal, where "
    "1 + 2^x is 1"
)
_OPEN = "open: the trees differ, and no counterexample was found"

REASONS_GFX942: Mapping[str, str] = MappingProxyType(
    {
        "row_max": "equal: a maximum of bf16 values is rounded to bf16 by an instruction or by integer arithmetic",
        "row_min": "as row_max",
        "arg_max": _OPEN,
        "arg_min": _OPEN,
        "softmax_row": _ALL_NANS,
        "softmax_rows": _ALL_NANS,
        "softmax_online": "as on sm_90: lanes with one value each: 2^(x - x) is 1 if x is finite",
        "log_sum_exp": _ALL_NANS,
        "cross_entropy": _ALL_NANS,
        "inductor_softmax": "contraction of x log2(e) + 64: differs where an exponential is subnormal, which fp16 "
        "outputs and the recorded inputs do not show",
        "activation": _EXPONENTIALS,
        "narrow_outputs": "some different, by a counterexample that is not among the recorded inputs; others as "
        "softmax_row and activation",
        "layer_norm_weight_gradient": "as on sm_90: contraction: differ at most in the sign of a zero, if every "
        "product of a column underflows",
        "rms_norm": "contraction of squares; the executed inputs do not show it",
        "welford": "as on sm_90: repeated merges with empty parts",
        "row_sum_fp64": _OPEN,
        "gemm_row_sum": "different: sums include columns outside the matrix, which one infinity turns into NaN",
        "gemm_column_sum": "as gemm_row_sum",
        "gemm_int8": _OPEN,
        "atomic_count": _OPEN,
        "gemm_persistent": _OPEN,
        "gemm_softmax": _ALL_NANS,
        "split_k_partial": _OPEN,
        "attention": _OPEN,
        "attention_causal": "as on sm_90: fully masked blocks are skipped or multiplied by zeros",
        "attention_key_gradient": "different: with kpack = 2 a matrix instruction has other products; rounding to 16 "
        "bits before the next product hides it on the executed inputs",
        "attention_query_gradient": "as on sm_90: fully masked blocks are skipped or multiplied by zeros",
        "function": _OPEN,
    }
)

_TWO_UNITS = (
    "mma.sync and tcgen05 of bf16 or tf32: not decided by what is published, since the public models disagree on sums "
    "of terms below 2^-133; their rows agree"
)
REASONS_SM100: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "gemm", "gemm_wrapped", "gemm_layouts", "gemm_tf32", "gemm_tf32x3", "gemm_bf16x3", "gemm_bf16x6",
                "gemm_batched", "gemm_kgroup", "gemm_bias_relu", "gemm_bias_gelu", "gemm_gated", "split_k_partial",
                "gemm_tma", "gemm_tma_store", "gemm_persistent", "attention_key_gradient", "attention_query_gradient",
                "inductor_split_k",
            ),
            _TWO_UNITS,
        ),
        "softmax_row": "as on sm_90: exact against padded block",
        "softmax_online": "as on sm_90: lanes with one value each",
        "welford": "as on sm_90: repeated merges with empty parts",
    }
)  # fmt: skip

REASONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"sm_90": REASONS_SM90, "gfx942": REASONS_GFX942, "sm_100": REASONS_SM100}
)
