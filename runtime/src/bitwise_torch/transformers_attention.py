"""Attention for models of transformers: `attn_implementation="bitwise"`.

register_attention()
model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="bitwise")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitwise_torch.attention_calls import AttentionError, attention
from bitwise_torch.batch_invariance.mode import active_mode
from bitwise_torch.batch_invariance.row_operators import NotServed

if TYPE_CHECKING:
    import torch

NAME = "bitwise"


def register_attention() -> None:
    """Register "bitwise" with the attention interface of transformers, with the boolean masks of its "sdpa".

    Raises ImportError where transformers has no such interface, which came with version 4.53.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, attention_of_module)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention_of_module(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None,
    dropout: float = 0.0, scaling: float | None = None, is_causal: bool | None = None, softcap: float | None = None,
    s_aux: torch.Tensor | None = None, **options: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Return the output (batch, queries, heads, width) of an attention module of transformers, and no weights.

    `query` is (batch, heads, queries, depth).  Without a mask, several queries see the keys up to their own if the
    module is causal, as with "sdpa".  A window is part of the mask.  Other options do not affect the output.  In the
    batch-invariant mode, sums begin at the first key that a query sees, and all operands have gradients.  Raises
    AttentionError.
    """
    if attention_mask is not None:
        attention_mask = attention_mask[:, :, :, : key.shape[2]]
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    options = {
        "is_causal": causal and attention_mask is None and query.shape[2] > 1, "scale": scaling, "enable_gqa": True,
        "soft_cap": softcap, "sinks": None if s_aux is None else s_aux.float(), "dropout_p": dropout,
    }  # fmt: skip
    mode = active_mode()
    try:
        out = (attention if mode is None else mode.attention)(query, key, value, attention_mask, **options)
    except NotServed as reason:
        raise AttentionError(f"attention is not served in the batch-invariant mode: {reason}") from None
    return out.transpose(1, 2).contiguous(), None
