"""torch.nn.functional.scaled_dot_product_attention by products and rows of pinned orders, with gradients.

The scores of a query are products over the axis of a head; their softmax and the sum of the values run over the keys
from the first one, in an order that zeros behind them do not change.  So neither the other sequences, nor the number of
queries of a call, nor keys that a mask leaves out behind a query's own change its bytes.  Keys that a mask leaves out
for all queries of a sequence before its first one are skipped, so that padding on the left changes nothing either.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bitwise_torch.batch_invariance.row_operators import NotServed

if TYPE_CHECKING:
    import torch

ATTENTION = "scaled_dot_product_attention"
"""The operator, in the namespace `aten`."""


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return the attention of query[..., q, d] to key[..., k, d] and value[..., k, e]; the arguments are torch's.

    Scores and the results of the softmax are rounded to the type of the query.  A query that attends to no key gives 0.
    Raises NotServed.
    """
    import torch

    if dropout_p:
        raise NotServed("attention with dropout draws random numbers for a batch; a dropout of 0 is served")
    if not {query.dtype, key.dtype, value.dtype} <= {torch.float32, torch.float16, torch.bfloat16}:
        raise NotServed(f"attention of {query.dtype}; fp32, fp16 and bf16 are served")
    if query.dim() < 2 or query.dim() != key.dim() or query.is_nested:
        raise NotServed("operands of different numbers of axes, or nested ones; dense ones of equal axes are served")
    if enable_gqa:
        heads = int(query.shape[-3])
        key, value = (each.repeat_interleave(heads // int(each.shape[-3]), -3) for each in (key, value))
    factor = 1.0 / math.sqrt(int(query.shape[-1])) if scale is None else float(scale)
    allowed, added = _masks(query, key, attn_mask, is_causal)
    if attn_mask is not None and allowed is not None:
        key, value, allowed, added = _without_left_padding(key, value, allowed, added)
    scores = torch.matmul(query, key.transpose(-2, -1)).float() * factor
    if added is not None:
        scores = scores + added
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
        # A query without keys has no softmax; its weights are 0.
        scores = torch.where(allowed.any(-1, keepdim=True), scores, torch.zeros_like(scores))
    weights = torch.softmax(scores, -1)
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    return torch.matmul(weights.to(query.dtype), value)


def _masks(query: Any, key: Any, mask: Any, is_causal: bool) -> tuple[Any, Any]:
    """Return where a query may attend to a key, and what is added to the scores; None for everywhere and nothing."""
    import torch

    queries, keys = int(query.shape[-2]), int(key.shape[-2])
    allowed = added = None
    if is_causal:
        allowed = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        allowed = mask if allowed is None else allowed & mask
    elif mask is not None:
        added = mask.float()
        # The least number of a type stands for minus infinity.
        own = mask > torch.finfo(mask.dtype).min
        allowed = own if allowed is None else allowed & own
    return allowed, added


def _without_left_padding(key: Any, value: Any, allowed: Any, added: Any) -> tuple[Any, Any, Any, Any]:
    """Return operands whose first keys, which no query of a sequence attends to, are moved behind the last ones."""
    import torch

    keys = int(key.shape[-2])
    if allowed.dim() < 3 or allowed.shape[-1] != keys:
        return key, value, allowed, added
    # For each sequence, the first key that a query attends to; all heads of a sequence have one mask or their own.
    first = allowed.any(-2, keepdim=True).int().argmax(-1, keepdim=True)
    place = (torch.arange(keys, device=key.device) + first) % keys  # [..., 1, keys]
    rows = place.transpose(-2, -1)

    def moved(x: Any) -> Any:
        return x.gather(-2, rows.expand(*x.shape[:-1], 1).expand(x.shape))

    def moved_columns(x: Any) -> Any:
        shape = torch.broadcast_shapes(x.shape, (*place.shape[:-2], x.shape[-2], keys))
        return x.expand(shape).gather(-1, place.expand(shape))

    return moved(key), moved(value), moved_columns(allowed), None if added is None else moved_columns(added)
