"""torch.nn.functional.scaled_dot_product_attention in orders that no batch, no chunk and no padding changes.

Where a plugin has kernels of attention for the type and the widths of the heads, `bitwise_torch.attention` computes it,
and its gradients, for which no kernel takes a mask: with one, the gradients are those of the plain form, which computes
scores, softmax and values by products and rows of pinned orders.  For other types and widths, both passes have the
plain form.  So the outputs of a model have one order: types and widths decide, and nothing else.

Both forms add over the keys from the first one, in an order that masked keys behind a query's own do not change.  The
keys that no query of a sequence may attend to before its first one are left out, so that padding on the left changes
nothing either.  A window hides first keys, too, as does a mask of packed sequences: under such a mask the bytes of a
query depend on the queries of its sequence in the same call, and on no other sequence.  `first_keys_differ` finds these
masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.problem import NAMES
from bitwise_core.plugins import registry
from bitwise_core.plugins.attention_calls import AttentionForm, AttentionGradientLauncher, AttentionLauncher
from bitwise_torch import attention_calls
from bitwise_torch.batch_invariance.row_functions import first_of_rows
from bitwise_torch.batch_invariance.row_operators import NotServed

if TYPE_CHECKING:
    import torch

NoteMask = Callable[["torch.Tensor", "torch.Tensor"], None]
"""A function of a boolean mask, and of the first key that each of its rows sees."""

ATTENTION = "scaled_dot_product_attention"
"""The operator, in the namespace `aten`."""


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    note_mask: NoteMask | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return the attention of query[..., q, d] to key[..., k, d] and value[..., k, e]; the arguments are torch's.

    A query that attends to no key gives 0.  `note_mask` is called for each mask whose first keys are left out.  Raises
    NotServed.
    """
    import torch

    if dropout_p:
        raise NotServed("attention with dropout draws random numbers for a batch; a dropout of 0 is served")
    if not query.dtype == key.dtype == value.dtype or query.dtype not in _types():
        raise NotServed(f"attention of {query.dtype} and {key.dtype}; one type of fp32, fp16 and bf16 is served")
    if query.dim() < 2 or query.dim() != key.dim() or query.is_nested:
        raise NotServed("operands of different numbers of axes, or nested ones; dense ones of equal axes are served")
    factor = 1.0 / math.sqrt(int(query.shape[-1])) if scale is None else float(scale)
    if not _has_kernels(query, value):
        if enable_gqa:
            key, value = _for_each_head(query, key), _for_each_head(query, value)
        return plain_attention(query, key, value, attn_mask, is_causal, factor, note_mask)
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        raise NotServed("a mask that is added to scores, for heads of these widths; a boolean one is served")
    if query.dim() != 4:
        raise NotServed(f"operands of {query.dim()} axes, for heads of these widths; 4 axes are served")
    if attn_mask is None and _has_kernels(query, value, gradients=True):
        return _by_kernels(query, key, value, None, None, is_causal, factor, enable_gqa)
    recorded = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
    attend = _with_plain_gradients() if recorded else _by_kernels
    first_keys = None
    if attn_mask is not None:
        attn_mask, _ = _masks(query, key, attn_mask, is_causal)
        attn_mask = attn_mask[None] if attn_mask.dim() == 3 else attn_mask  # one of heads
        is_causal = False
        if _has_sequences(attn_mask, key):
            rows = first_of_rows(attn_mask)
            if note_mask is not None:
                note_mask(attn_mask, rows)
            first_keys = rows.view(rows.shape[0], -1).amin(-1).expand(query.shape[0]).contiguous()
    found: torch.Tensor = attend(query, key, value, attn_mask, first_keys, is_causal, factor, enable_gqa)
    return found


def _has_sequences(allowed: torch.Tensor, key: torch.Tensor) -> bool:
    """Return whether a mask has an axis of sequences, and one of all keys."""
    return allowed.dim() > 2 and int(allowed.shape[-1]) == int(key.shape[-2])


def _by_kernels(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None,
    first_keys: torch.Tensor | None, causal: bool, scale: float, grouped: bool,
) -> torch.Tensor:  # fmt: skip
    try:
        found: torch.Tensor = attention_calls.attention(
            query, key, value, mask, is_causal=causal, scale=scale, enable_gqa=grouped, first_keys=first_keys
        )
    except attention_calls.AttentionError as error:
        raise NotServed(str(error)) from None
    return found


@cache
def _types() -> frozenset[Any]:
    import torch

    return frozenset({torch.float32, torch.float16, torch.bfloat16})


def _has_kernels(query: torch.Tensor, value: torch.Tensor, gradients: bool = False) -> bool:
    """Return whether a plugin has kernels of attention for the type and the widths of heads, or also of gradients."""
    known = registry.default()
    key = (query.dtype, query.shape[-1], value.shape[-1], query.device)
    found = _kernels.get(key)
    if found is None or found[0] is not known:
        form = AttentionForm(
            dtype=NAMES[str(query.dtype)], depth=int(query.shape[-1]), width=int(value.shape[-1]), scale=1.0,
            causal=True,
        )  # fmt: skip
        launchers = [each for each in known.launchers if isinstance(each, AttentionLauncher)]
        serving = next((each for each in launchers if _serves(each, form, query.device)), None)
        _kernels[key] = found = (known, serving is not None, serving is not None and _has_gradients(serving, form))
    return found[2] if gradients else found[1]


_kernels: dict[Any, tuple[registry.Registry, bool, bool]] = {}


def _serves(launcher: AttentionLauncher, form: AttentionForm, device: Any) -> bool:
    try:
        desc = launcher.attention_descriptor(form)
    except DescriptorError:
        return False
    return bool(device.type == "cpu" or launcher.serves_attention(desc, device))


def _has_gradients(launcher: AttentionLauncher, form: AttentionForm) -> bool:
    try:
        return isinstance(launcher, AttentionGradientLauncher) and bool(launcher.attention_gradient_descriptor(form))
    except DescriptorError:
        return False


def _for_each_head(query: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the keys or values of each head of a query, from those of groups of heads."""
    return x.repeat_interleave(int(query.shape[-3]) // int(x.shape[-3]), -3)


@cache
def _with_plain_gradients() -> Callable[..., Any]:
    """Return the function of attention by kernels, with the gradients of the plain form."""
    import torch

    def forward(
        ctx: Any, query: Any, key: Any, value: Any, mask: Any, first_keys: Any, causal: bool, scale: float,
        grouped: bool,
    ) -> Any:  # fmt: skip
        ctx.save_for_backward(query, key, value, mask)
        ctx.given = causal, scale, grouped
        return _by_kernels(query, key, value, mask, first_keys, causal, scale, grouped)

    def backward(ctx: Any, gradient: Any) -> Any:
        *operands, mask = ctx.saved_tensors
        causal, scale, grouped = ctx.given
        with torch.enable_grad():
            query, key, value = leaves = [each.detach().requires_grad_() for each in operands]
            if grouped:
                key, value = _for_each_head(query, key), _for_each_head(query, value)
            found = plain_attention(query, key, value, mask, causal, scale)
            gradients = torch.autograd.grad(found, leaves, gradient)
        return *gradients, *[None] * 5

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Any = type("Attention", (torch.autograd.Function,), members)
    apply: Callable[..., Any] = made.apply
    return apply


def plain_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool,
    scale: float, note_mask: NoteMask | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return attention by products of matrices and a softmax of rows; its scores and weights have the query's type."""
    import torch

    allowed, added = _masks(query, key, mask, is_causal)
    if mask is not None and allowed is not None:
        key, value, allowed, added = _without_left_padding(key, value, allowed, added, note_mask)
    scores = torch.matmul(query, key.transpose(-2, -1)).float() * scale
    if added is not None:
        scores = scores + added
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
        # A query without keys has no softmax; its weights are 0.
        scores = torch.where(allowed.any(-1, keepdim=True), scores, torch.zeros_like(scores))
    weights = torch.softmax(scores, -1)
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    # A sum of -0, which a masked key would make +0, becomes +0.
    return torch.matmul(weights.to(query.dtype), value) + 0.0


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


def first_keys_differ(rows: torch.Tensor, keys: int) -> torch.Tensor:
    """Return whether queries of a sequence have different first keys: under a window, or in packed sequences.

    `rows` [..., queries] are the first keys of the rows of a mask; those of queries without a key are `keys`.  The
    result has no axes.
    """
    return ((rows > rows.amin(-1, keepdim=True)) & (rows < keys)).any()


def _without_left_padding(
    key: Any, value: Any, allowed: Any, added: Any, note_mask: NoteMask | None
) -> tuple[Any, Any, Any, Any]:
    """Return operands whose first keys, which no query of a sequence attends to, are moved behind the last ones."""
    import torch

    keys = int(key.shape[-2])
    if not keys or not _has_sequences(allowed, key):
        return key, value, allowed, added
    found = first_of_rows(allowed)
    if note_mask is not None:
        note_mask(allowed, found)
    first = found.view(found.shape[0], -1).amin(-1).view(-1, *[1] * (allowed.dim() - 1))
    place = (torch.arange(keys, device=key.device) + first) % keys  # [..., 1, keys]
    rows = place.transpose(-2, -1)

    def moved(x: Any) -> Any:
        return x.gather(-2, rows.expand(*x.shape[:-1], 1).expand(x.shape))

    def moved_columns(x: Any) -> Any:
        shape = torch.broadcast_shapes(x.shape, (*place.shape[:-2], x.shape[-2], keys))
        return x.expand(shape).gather(-1, place.expand(shape))

    return moved(key), moved(value), moved_columns(allowed), None if added is None else moved_columns(added)
