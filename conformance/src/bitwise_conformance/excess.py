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

_SHAPES = (
    "instructions of 32 and of 16 rows, of other k: a public model gives both the same bits, and nothing was measured"
)

REASONS_GFX942: Mapping[str, str] = MappingProxyType({})

REASONS_OF: Mapping[str, Mapping[str, str]] = MappingProxyType({"sm_90": REASONS, "gfx942": REASONS_GFX942})
