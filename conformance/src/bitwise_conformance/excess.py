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

_SIGNALLING = "most likely really different: a signalling NaN is handed on or not by where it stands; no draw holds one"
_OPEN = "not settled: the trees part, and the few draws that were run do not show it"

REASONS_GFX942: Mapping[str, str] = MappingProxyType(
    {
        "row_max": _SIGNALLING,
        "row_min": _SIGNALLING,
        "arg_max": _OPEN,
        "arg_min": _OPEN,
        "rms_norm": "as on sm_90: squares fused into the sum or not; the draws that were run do not show it",
        "row_sum_fp64": _OPEN,
        "gemm_column_sum": _OPEN,
        "split_k_partial": _OPEN,
        "attention_causal": _OPEN,
    }
)

REASONS_OF: Mapping[str, Mapping[str, str]] = MappingProxyType({"sm_90": REASONS, "gfx942": REASONS_GFX942})
