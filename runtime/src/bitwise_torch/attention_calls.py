"""Attention of PyTorch tensors with the bits of one descriptor, whatever the batch, its neighbours and the schedule.

out = attention(query, key, value, is_causal=True)
out = attention_varlen(query, key, value, query_starts, key_starts, longest_queries, longest_keys, is_causal=True)
out = attention_paged(query, key_pages, value_pages, page_table, key_lengths)

A row's bits follow from its query and the keys that it sees, so prefill, a part of it and decoding agree, and so do
dense and paged keys.  Tensors on the CPU are evaluated, which is slow, to the bits of the GPU.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bitwise_core.descriptors import AttentionDesc, AttentionGradientDesc, DescriptorError
from bitwise_core.descriptors.evaluation import attention_result, evaluate_attention_gradients
from bitwise_core.descriptors.problem import NAMES
from bitwise_core.errors import BitwiseError
from bitwise_core.plugins import registry
from bitwise_core.plugins.attention_calls import (
    AttentionForm,
    AttentionGradientLauncher,
    AttentionGradientTensors,
    AttentionLauncher,
    AttentionOperands,
    RepeatedAttention,
)
from bitwise_torch.ready_launches import ReadyLaunches, call_key

if TYPE_CHECKING:
    import torch

__all__ = ["AttentionError", "attention", "attention_descriptor", "attention_paged", "attention_varlen"]


class AttentionError(BitwiseError, ValueError):
    """Operands or arguments of attention that do not fit or are not served; the message says what to do."""


def attention_descriptor(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, is_causal: bool = False, scale: float | None = None,
    window: int | None = None, soft_cap: float | None = None, sinks: bool = False,
) -> AttentionDesc:  # fmt: skip
    """Return the descriptor that `attention` and its other forms compute for these tensors on their device.

    Raises AttentionError where no installed plugin has kernels for them.
    """
    form = _form(query, value, is_causal, scale, window, soft_cap, sinks)
    return _launcher(query.device, form)[1]


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
    window: int | None = None, soft_cap: float | None = None, sinks: torch.Tensor | None = None,
    first_keys: torch.Tensor | None = None, logarithms: bool = False,
) -> Any:  # fmt: skip
    """Return what torch.nn.functional.scaled_dot_product_attention computes, with one descriptor's bits.

    `query` is (batch, heads, queries, depth) or without a batch, `key` and `value` (batch, heads, keys, ...); with
    `enable_gqa` the heads of `query` are a multiple of theirs.  `attn_mask` is a boolean mask that broadcasts to
    (batch, heads, queries, keys), or a bias of torch.nn.attention.bias.  `is_causal` aligns query 0 with key 0, and
    `causal_lower_right` the last query with the last key.  A query sees at most the `window` keys up to its own.
    `soft_cap` c replaces a score s by c tanh(s / c).  `sinks` (heads) are scores of keys without a value.  A query that
    sees no key gets zeros.  A value that is masked for a query must be finite.  `first_keys` (batch), in int32, beside
    `attn_mask`, is the number of keys at the beginning of each sequence that are no part of it, such as padding: sums
    begin after them.

    Gradients have one descriptor's bits too, without atomic additions; a boolean mask, `first_keys` and `soft_cap` have
    none.

    With `logarithms`, return also the logarithms of the sums of exponentials of the scores (batch, heads, queries), in
    fp32.  Raises AttentionError for operands that do not fit or are not served.
    """
    given = (query, key, value)
    if not (sinks is attn_mask is first_keys is None):
        given += tuple(each for each in (sinks, attn_mask, first_keys) if each is not None)
    rest = is_causal, scale, enable_gqa, window, soft_cap, (sinks is None, attn_mask is None, first_keys is None)
    ready = None
    if not (dropout_p or logarithms or hasattr(attn_mask, "variant")):
        repeated, ready = _repeated("attention", given, rest)
        if repeated is not None:
            return repeated
    bare = sinks is attn_mask is first_keys is soft_cap is None and not (dropout_p or logarithms)
    if bare and getattr(query, "ndim", 0) == 4 and _is_recorded(query, key, value) and not _is_traced():
        found: torch.Tensor = _learned()(query, key, value, (is_causal, scale, enable_gqa, window))
        return found
    call, is_causal = _dense_call(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, sinks, first_keys)
    out, sums, launch = _computed(call, is_causal, scale, window, soft_cap, logarithms)
    batched = query.dim() == 4
    out = out.transpose(1, 2) if batched else out[0].transpose(0, 1)
    _keep(ready, given, rest, out, launch)
    if not logarithms:
        return out
    return out, sums.transpose(1, 2) if batched else sums[0].transpose(0, 1)


def _is_constant(rest: tuple[Any, ...]) -> bool:
    """Return whether arguments cannot change in place, as a scale in a tensor can."""
    return {type(each) for each in rest} <= _NUMBERS


def _dense_call(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, dropout_p: float,
    is_causal: bool, enable_gqa: bool, sinks: torch.Tensor | None, first_keys: torch.Tensor | None,
) -> tuple[_Call, bool]:  # fmt: skip
    """Return a call of `attention` whose operands fit, and whether it is causal.  Raises AttentionError."""
    _check_tensors(query=query, key=key, value=value)
    if query.dim() not in (3, 4) or not query.dim() == key.dim() == value.dim():
        raise AttentionError(
            f"query, key and value have {query.dim()}, {key.dim()} and {value.dim()} axes: give (batch, heads, length, "
            "width), or all without a batch"
        )
    if dropout_p:
        raise AttentionError(f"dropout_p is {dropout_p}: give 0.0, or call eval() on the model; dropout is not served")
    batched = query.dim() == 4
    q, k, v = ((each if batched else each[None]).transpose(1, 2) for each in (query, key, value))
    heads, groups = int(q.shape[2]), int(k.shape[2])
    if heads != groups and not enable_gqa:
        raise AttentionError(f"query has {heads} heads, and key has {groups}: give enable_gqa=True, or equal numbers")
    _check_lengths(q, k, v)
    first: int | None = 0
    visible = None
    if attn_mask is not None:
        if is_causal:
            raise AttentionError("attn_mask and is_causal=True are both given: give one of them")
        alignment = getattr(getattr(attn_mask, "variant", None), "name", None)
        if alignment in ("UPPER_LEFT", "LOWER_RIGHT"):
            is_causal, first = True, 0 if alignment == "UPPER_LEFT" else None
        else:
            visible = _visible(attn_mask, (q.shape[0], heads, q.shape[1], k.shape[1]))
    if first_keys is not None:
        if visible is None:
            raise AttentionError("first_keys is given without a boolean attn_mask: give the mask as well")
        _check_tensors(query=query, first_keys=first_keys)
        _check_integers(1, first_keys=first_keys)
        if first_keys.shape[0] != q.shape[0]:
            raise AttentionError(f"first_keys has {first_keys.shape[0]} elements, and query a batch of {q.shape[0]}")
    first_position = first if is_causal else 0
    call = _Call(q, k, v, first_position=first_position, sinks=sinks, visible=visible, first_keys=first_keys)
    return call, is_causal


def attention_varlen(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, query_starts: torch.Tensor, key_starts: torch.Tensor,
    longest_queries: int, longest_keys: int, *, is_causal: bool = False, scale: float | None = None,
    window: int | None = None, soft_cap: float | None = None, sinks: torch.Tensor | None = None,
    logarithms: bool = False,
) -> Any:  # fmt: skip
    """Return attention of sequences that lie one after the other: `query` is (tokens, heads, depth).

    `key` and `value` are (tokens, groups, ...); the heads of `query` are a multiple of theirs.  Sequence i has the rows
    from `query_starts[i]` to `query_starts[i + 1]` of `query`, and from `key_starts[i]` on of the others, in int32.
    `longest_queries` and `longest_keys` are the lengths of the longest sequence, or more.  `is_causal` aligns the last
    query of a sequence with its last key.  The result is (tokens, heads, width), and with `logarithms` also
    (tokens, heads).  The other arguments are those of `attention`.  Raises AttentionError.
    """
    given = (query, key, value, query_starts, key_starts) if sinks is None else (
        query, key, value, query_starts, key_starts, sinks
    )  # fmt: skip
    rest = longest_queries, longest_keys, is_causal, scale, window, soft_cap
    ready = None
    if not logarithms:
        repeated, ready = _repeated("attention_varlen", given, rest)
        if repeated is not None:
            return repeated
    _check_tensors(query=query, key=key, value=value, query_starts=query_starts, key_starts=key_starts)
    _check_axes(3, "(tokens, heads, width)", query=query, key=key, value=value)
    _check_integers(1, query_starts=query_starts, key_starts=key_starts)
    if query_starts.shape != key_starts.shape or query_starts.shape[0] < 1:
        raise AttentionError(
            f"query_starts has {query_starts.shape[0]} elements and key_starts {key_starts.shape[0]}: give one more "
            "than there are sequences"
        )
    if key.shape[0] != value.shape[0]:
        raise AttentionError(f"there are {key.shape[0]} keys and {value.shape[0]} values: give as many")
    call = _Call(
        query, key, value, query_starts=query_starts, key_starts=key_starts, longest_queries=longest_queries,
        longest_keys=longest_keys, sinks=sinks,
    )  # fmt: skip
    out, found, launch = _computed(call, is_causal, scale, window, soft_cap, logarithms)
    _keep(ready, given, rest, out, launch)
    return (out, found) if logarithms else out


def attention_paged(
    query: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, page_table: torch.Tensor,
    key_lengths: torch.Tensor, *, query_starts: torch.Tensor | None = None, longest_queries: int | None = None,
    longest_keys: int | None = None, is_causal: bool = True, scale: float | None = None, window: int | None = None,
    soft_cap: float | None = None, sinks: torch.Tensor | None = None, logarithms: bool = False,
) -> Any:  # fmt: skip
    """Return attention to keys in pages: `key_pages` and `value_pages` are (pages, page size, groups, ...).

    `page_table` (sequences, pages) has the numbers of each sequence's pages in order, and `key_lengths` (sequences) its
    number of keys, both in int32.  `query` is (sequences, queries, heads, depth), or with `query_starts` (tokens,
    heads, depth) as in `attention_varlen`, with `longest_queries`.  `longest_keys` is a bound of `key_lengths`, by
    default all that `page_table` can hold.  `is_causal` aligns the last query of a sequence with its last key.  The
    result has the axes of `query`, and with `logarithms` also those without the last.  The other arguments are those of
    `attention`.  Raises AttentionError.
    """
    optional = () if query_starts is None else (query_starts,), () if sinks is None else (sinks,)
    given = (query, key_pages, value_pages, *optional[0], key_lengths, page_table, *optional[1])
    rest = query_starts is None, longest_queries, longest_keys, is_causal, scale, window, soft_cap
    ready = None
    if not logarithms:
        repeated, ready = _repeated("attention_paged", given, rest)
        if repeated is not None:
            return repeated
    _check_tensors(
        query=query, key_pages=key_pages, value_pages=value_pages, page_table=page_table, key_lengths=key_lengths
    )
    _check_axes(4, "(pages, page size, groups, width)", key_pages=key_pages, value_pages=value_pages)
    _check_integers(2, page_table=page_table)
    _check_integers(1, key_lengths=key_lengths)
    if key_pages.shape[:2] != value_pages.shape[:2]:
        raise AttentionError("key_pages and value_pages differ in pages: give as many of one size")
    size = int(key_pages.shape[1])
    if size & (size - 1) or not 16 <= size <= 256:
        raise AttentionError(f"pages of {size} keys are not served: give pages of 16, 32, 64, 128 or 256 keys")
    if query_starts is None:
        _check_axes(4, "(sequences, queries, heads, depth)", query=query)
        sequences = int(query.shape[0])
        longest_queries = int(query.shape[1])
    else:
        _check_tensors(query_starts=query_starts)
        _check_axes(3, "(tokens, heads, depth)", query=query)
        _check_integers(1, query_starts=query_starts)
        sequences = int(query_starts.shape[0]) - 1
        if longest_queries is None:
            raise AttentionError("query_starts needs longest_queries: give the length of the longest sequence")
    if int(page_table.shape[0]) != sequences or int(key_lengths.shape[0]) != sequences:
        raise AttentionError(
            f"there are {sequences} sequences of queries, and page_table has {page_table.shape[0]} rows and "
            f"key_lengths {key_lengths.shape[0]} elements: give one for each sequence"
        )
    most = size * int(page_table.shape[1])
    call = _Call(
        query, key_pages, value_pages, query_starts=query_starts, key_lengths=key_lengths, page_table=page_table,
        longest_queries=longest_queries, longest_keys=most if longest_keys is None else min(most, longest_keys),
        sinks=sinks,
    )  # fmt: skip
    out, found, launch = _computed(call, is_causal, scale, window, soft_cap, logarithms)
    _keep(ready, given, rest, out, launch)
    return (out, found) if logarithms else out


_NUMBERS = {bool, int, float, tuple, type(None)}
"""The types of the other arguments of a call that is kept."""

_ready = ReadyLaunches()
"""The launches of former calls, and of gradients."""


def _is_traced() -> bool:
    import torch

    return bool(torch.compiler.is_compiling())


def _is_recorded(*tensors: torch.Tensor) -> bool:
    """Return whether gradients are recorded for one of some tensors; other objects have none."""
    import torch

    return torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in tensors)


def _repeated(
    name: str, operands: tuple[torch.Tensor, ...], rest: tuple[Any, ...]
) -> tuple[torch.Tensor | None, Hashable]:
    """Return the result of a call that ran before, and its key; None where it did not, or may be recorded."""
    if _is_traced():
        return None, None
    try:
        if _is_recorded(*operands[:3]) or any(each.is_neg() for each in operands):
            return None, None
        return _ready.run(name, operands, rest)
    except AttributeError:  # no tensors, which the checks of the call say
        return None, None


def launch_of_attention(
    operands: tuple[torch.Tensor, ...], is_causal: bool, scale: float, enable_gqa: bool
) -> RepeatedAttention | None:
    """Return the launch of a call of `attention` that ran, None for one that is not kept.

    `operands` are query, key and value, or also `attn_mask` and `first_keys`.
    """
    rest = is_causal, scale, enable_gqa, None, None, (True, len(operands) == 3, len(operands) == 3)
    return _ready.launch_of(call_key("attention", operands, rest))


def _keep(
    key: Hashable, operands: tuple[torch.Tensor, ...], rest: tuple[Any, ...], out: torch.Tensor,
    launch: RepeatedAttention | None,
) -> None:  # fmt: skip
    """Keep the launch of a call that ran; not where an argument may change in place, such as a scale in a tensor."""
    if key is not None and launch is not None and _is_constant(rest):
        _ready.keep(key, operands, out, launch)


@dataclass(frozen=True, slots=True)
class _Call:
    """The operands of a call but for its results, as `AttentionOperands` has them; None stands for the tensors' own."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    query_starts: torch.Tensor | None = None
    key_starts: torch.Tensor | None = None
    key_lengths: torch.Tensor | None = None
    page_table: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    visible: torch.Tensor | None = None
    first_keys: torch.Tensor | None = None
    longest_queries: int | None = None
    longest_keys: int | None = None
    first_position: int | None = None


def _check_tensors(**tensors: Any) -> None:
    import torch

    for name, each in tensors.items():
        if not isinstance(each, torch.Tensor):
            raise AttentionError(f"{name} is a {type(each).__name__}; give a tensor")
        if each.layout != torch.strided or each.is_nested:
            kind = "is nested" if each.is_nested else f"has the layout {each.layout}"
            raise AttentionError(f"{name} {kind}: give a dense tensor, or the sequences to attention_varlen")
        if not torch.compiler.is_compiling() and each.is_neg():
            raise AttentionError(f"{name} is a lazily negated view: give {name}.resolve_neg()")
    if len({each.device for each in tensors.values()}) > 1:
        devices = sorted({str(each.device) for each in tensors.values()})
        raise AttentionError(f"the tensors lie on {', '.join(devices)}: move them to one device")


def _check_axes(count: int, wanted: str, **tensors: torch.Tensor) -> None:
    for name, each in tensors.items():
        if each.dim() != count:
            raise AttentionError(f"{name} has {each.dim()} axes: give {wanted}")


def _check_integers(axes: int, **tensors: torch.Tensor) -> None:
    import torch

    for name, each in tensors.items():
        if each.dtype != torch.int32 or each.dim() != axes:
            raise AttentionError(f"{name} is of {each.dtype} with {each.dim()} axes: give int32 with {axes}")


def _check_lengths(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise AttentionError unless dense operands (batch, length, heads, width) have one batch and as many keys."""
    for name, each in (("key", k), ("value", v)):
        if each.shape[0] != q.shape[0]:
            raise AttentionError(f"query has a batch of {q.shape[0]}, and {name} one of {each.shape[0]}")
    if k.shape[1] != v.shape[1]:
        raise AttentionError(f"there are {k.shape[1]} keys and {v.shape[1]} values: give as many")


def _check_heads(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    """Raise AttentionError unless operands (..., heads, width) have one type, and widths and heads that fit."""
    if not query.dtype == key.dtype == value.dtype:
        raise AttentionError(f"query, key and value are of {query.dtype}, {key.dtype} and {value.dtype}: give one type")
    if query.shape[-1] != key.shape[-1]:
        raise AttentionError(f"query has {query.shape[-1]} components and key {key.shape[-1]}: give as many")
    heads, groups = int(query.shape[-2]), int(key.shape[-2])
    if groups != value.shape[-2] or not groups or heads % groups:
        raise AttentionError(
            f"query has {heads} heads, key {groups} and value {value.shape[-2]}: give key and value as many, and query "
            "a multiple of them"
        )


def _visible(mask: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a boolean mask as bytes with the four axes of `shape`.  Raises AttentionError."""
    import torch

    _check_tensors(attn_mask=mask)
    if mask.dtype != torch.bool:
        raise AttentionError(
            f"attn_mask is of {mask.dtype}, and a bias that is added to scores is not served: give a boolean mask, "
            "is_causal, or a bias of torch.nn.attention.bias"
        )
    try:
        return mask.view(torch.uint8).broadcast_to(shape)
    except RuntimeError:
        raise AttentionError(
            f"attn_mask has the shape {tuple(mask.shape)}: give one that broadcasts to (batch, heads, queries, "
            f"keys), here {shape}"
        ) from None


def _form(
    query: torch.Tensor, value: torch.Tensor, causal: bool, scale: float | None, window: int | None,
    soft_cap: float | None, sink: bool,
) -> AttentionForm:  # fmt: skip
    depth = int(query.shape[-1])
    if window is not None and (isinstance(window, bool) or not isinstance(window, int)):
        raise AttentionError(f"window is {window!r}: give a number of keys, an integer")
    if window is not None and not causal:
        raise AttentionError("a window is the number of keys up to a causal query's own: give is_causal=True")
    return AttentionForm(
        dtype=NAMES.get(str(query.dtype), str(query.dtype)),
        depth=depth,
        width=int(value.shape[-1]),
        scale=1 / math.sqrt(max(1, depth)) if scale is None else _number("scale", scale),
        causal=causal,
        window=window,
        soft_cap=None if soft_cap is None else _number("soft_cap", soft_cap),
        sink=sink,
    )


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise AttentionError(f"{name} is {value!r}: give a number") from None


def _launcher(device: torch.device, form: AttentionForm) -> tuple[AttentionLauncher, AttentionDesc]:
    """Return the launcher and the descriptor of a form; on the CPU those of the first launcher that has it."""
    reasons = []
    for launcher in registry.default().launchers:
        if isinstance(launcher, AttentionLauncher):
            try:
                desc = launcher.attention_descriptor(form)
            except DescriptorError as error:
                reasons.append(str(error))
                continue
            if device.type == "cpu" or launcher.serves_attention(desc, device):
                return launcher, desc
    if reasons:
        raise AttentionError("; ".join(reasons))
    raise AttentionError(f"no installed plugin has kernels of attention for {device}: install bitwise-nvidia-sm90")


_known: dict[tuple[torch.device, AttentionForm], tuple[registry.Registry, AttentionLauncher, AttentionDesc]] = {}
"""The launchers and descriptors of former calls, each with the registry that it comes from."""


def _cached_launcher(device: torch.device, form: AttentionForm) -> tuple[AttentionLauncher, AttentionDesc]:
    plugins = registry.default()
    known = _known.get((device, form))
    if known is None or known[0] is not plugins:
        known = _known[device, form] = (plugins, *_launcher(device, form))
    return known[1:]


def _computed(
    call: _Call, causal: bool, scale: float | None, window: int | None, soft_cap: float | None, logarithms: bool
) -> tuple[torch.Tensor, Any, RepeatedAttention | None]:
    """Return the output and the logarithms of a call, and what repeats its launch by addresses.

    Without `logarithms` they may be None.  Raises AttentionError.
    """
    import torch

    query, key, value = call.query, call.key, call.value
    _check_heads(query, key, value)
    if call.sinks is not None:
        _check_tensors(query=query, sinks=call.sinks)
        heads = int(query.shape[-2])
        if call.sinks.shape != (heads,) or call.sinks.dtype != torch.float32:
            raise AttentionError(f"sinks is of {call.sinks.dtype} {tuple(call.sinks.shape)}: give float32 ({heads},)")
    if call.visible is not None:
        _check_tensors(query=query, attn_mask=call.visible)
    form = _form(query, value, causal, scale, window, soft_cap, call.sinks is not None)
    recorded = _is_recorded(query, key, value)
    if recorded:
        _check_gradients(call, form)
    if _is_traced():
        return *_traced(call, form), None
    if recorded:
        out, found = _recorded()(query, key, value, call, form)
        return out, found, None
    return _run(call, form, logarithms)


def _check_gradients(call: _Call, form: AttentionForm) -> None:
    """Raise AttentionError for a call whose gradients are not served."""
    served = "call it inside torch.no_grad(), or give dense keys or variable lengths, causal, with a window, or neither"
    refused = {
        "pages": call.page_table, "a boolean mask": call.visible, "first keys": call.first_keys,
        "a soft cap": form.soft_cap,
    }  # fmt: skip
    for name, each in refused.items():
        if each is not None:
            raise AttentionError(f"gradients of attention with {name} are not served: {served}")
    if call.sinks is not None and call.sinks.requires_grad:
        raise AttentionError("the gradient of sinks is not served: give sinks.detach()")


def _run(
    call: _Call, form: AttentionForm, logarithms: bool = True
) -> tuple[torch.Tensor, Any, RepeatedAttention | None]:
    """Compute a checked call, on its device or by evaluation; see `_computed`."""
    import torch

    launcher, desc = _cached_launcher(call.query.device, form)
    query, key, value = (
        each if each.stride(-1) == 1 else each.contiguous() for each in (call.query, call.key, call.value)
    )
    out = torch.empty((*query.shape[:-1], value.shape[-1]), dtype=query.dtype, device=query.device)
    found = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device) if logarithms else None
    operands = AttentionOperands(
        query=query, key=key, value=value, out=out, logarithms=found, query_starts=call.query_starts,
        key_starts=call.key_starts, key_lengths=call.key_lengths, page_table=call.page_table,
        longest_queries=int(query.shape[1]) if call.longest_queries is None else call.longest_queries,
        longest_keys=int(key.shape[1]) if call.longest_keys is None else call.longest_keys,
        first_position=call.first_position, sinks=call.sinks, visible=call.visible, first_keys=call.first_keys,
    )  # fmt: skip
    launch = None
    if query.device.type == "cpu":
        _evaluate(desc, operands)
    else:
        launch = launcher.attend(desc, operands)
    copied = query is not call.query or key is not call.key or value is not call.value
    return out, found, None if copied else launch


def _evaluate(desc: AttentionDesc, operands: AttentionOperands) -> None:
    """Compute a call on the CPU by evaluating its descriptor on bit patterns, head by head."""
    import torch

    hardware = registry.default().hardware
    starts, lengths = operands.query_starts, operands.key_lengths
    sequences = int(operands.query.shape[0] if starts is None else len(starts) - 1)
    for place in range(sequences):
        rows = (place,) if starts is None else (slice(int(starts[place]), int(starts[place + 1])),)
        query, out = operands.query[rows], operands.out[rows]
        logarithms = None if operands.logarithms is None else operands.logarithms[rows]
        key, value = _keys_of(operands, place)
        first = 0 if operands.first_keys is None else int(operands.first_keys[place])
        key, value = key[first:], value[first:]
        if lengths is not None:
            key, value = key[: int(lengths[place])], value[: int(lengths[place])]
        share = query.shape[1] // key.shape[1]
        for head in range(query.shape[1]):
            if not len(query):
                continue
            if not len(key) and not desc.sink:
                out[:, head] = 0.0
                if logarithms is not None:
                    logarithms[:, head] = -math.inf
                continue
            k, v = (_patterns(each[:, head // share]) for each in (key, value))
            if not len(key):  # one key that no query sees
                k, v = (np.zeros((1, each.shape[1]), np.uint16) for each in (k, v))
            seen = None
            if not len(key):
                seen = np.zeros((len(query), 1), dtype=np.bool_)
            elif operands.visible is not None:
                seen = operands.visible[place, head, :, first:].numpy() != 0
            result = attention_result(
                desc, _patterns(query[:, head]), k, v, first_position=operands.first_position, visible=seen,
                sink=None if operands.sinks is None else float(operands.sinks[head]), hardware=hardware,
            )  # fmt: skip
            out[:, head] = torch.from_numpy(result.output.view(np.int16)).view(out.dtype)
            if logarithms is not None:
                logarithms[:, head] = torch.from_numpy(result.logarithms.view(np.float32))


def _keys_of(operands: AttentionOperands, place: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the keys and values of one sequence (keys, groups, width)."""
    starts, table = operands.key_starts, operands.page_table
    if table is not None:
        count = -(-int(operands.key_lengths[place]) // operands.key.shape[1])
        pages = table[place, :count].long()
        return operands.key[pages].flatten(0, 1), operands.value[pages].flatten(0, 1)
    if starts is not None:
        rows = slice(int(starts[place]), int(starts[place + 1]))
        return operands.key[rows], operands.value[rows]
    return operands.key[place], operands.value[place]


def _patterns(matrix: torch.Tensor) -> Any:
    import torch

    return matrix.contiguous().view(torch.int16).numpy().view(np.uint16)


def _run_again(call: _Call, form: AttentionForm) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a checked call with its logarithms, by one look-up where it ran before."""
    operands = call.query, call.key, call.value
    dense = call.query_starts is call.page_table is call.key_lengths is call.sinks is call.visible is None
    rest = form, call.first_position
    repeated, key = _ready.run_several("attention with logarithms", operands, rest) if dense else (None, None)
    if repeated is not None:
        found, out = repeated
        return out, found
    out, found, launch = _run(call, form)
    if key is not None and launch is not None:
        _ready.keep_several(key, operands, (found, out), launch)
    return out, found


@cache
def _recorded() -> Callable[..., Any]:
    """Return the function of autograd that computes a call outside of traces.

    The operator of traces computes the same, and its dispatch takes several times as long as the launch.
    """
    import torch

    def forward(ctx: Any, query: Any, key: Any, value: Any, call: _Call, form: AttentionForm) -> Any:
        out, found = _run_again(call, form)
        ctx.save_for_backward(query, key, value, out, found, call.query_starts, call.key_starts)
        ctx.numbers = call.longest_queries, call.longest_keys, call.first_position
        ctx.form = replace(form, sink=False)
        ctx.mark_non_differentiable(found)
        return out, found

    def backward(ctx: Any, slope: Any, _: Any) -> Any:
        query, key, value, out, found, query_starts, key_starts = ctx.saved_tensors
        queries, keys, first_position = ctx.numbers
        gradients = _gradients(
            slope, query, key, value, out, found, query_starts, key_starts, queries, keys, first_position, ctx.form
        )
        return *gradients, None, None

    once = torch.autograd.function.once_differentiable
    members = {"forward": staticmethod(forward), "backward": staticmethod(once(backward))}
    made: Any = type("Attention", (torch.autograd.Function,), members)
    apply: Callable[..., Any] = made.apply
    return apply


@cache
def _learned() -> Callable[..., Any]:
    """Return the function of autograd of a dense call without a mask, whose repetition is one look-up, and so is the
    gradients'.
    """
    import torch

    def forward(ctx: Any, query: Any, key: Any, value: Any, rest: tuple[Any, ...]) -> Any:
        operands, ready = (query, key, value), None
        found = None
        if not (query.is_neg() or key.is_neg() or value.is_neg()):
            found, ready = _ready.run_several("attention to learn", operands, rest)
        if found is None:
            is_causal, scale, enable_gqa, window = rest
            call, causal = _dense_call(query, key, value, None, 0.0, is_causal, enable_gqa, None, None)
            out, sums, launch = _computed(call, causal, scale, window, None, True)
            found = [sums, out.transpose(1, 2)]
            if ready is not None and launch is not None and _is_constant(rest):
                _ready.keep_several(ready, operands, found, launch)
        sums, out = found
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.rest = rest
        return out

    def backward(ctx: Any, slope: Any) -> Any:
        tensors = (slope, *ctx.saved_tensors)
        found, ready = _ready.run_several("gradients to learn", tensors, ctx.rest)
        if found is None:
            is_causal, scale, _, window = ctx.rest
            *given, sums = tensors
            form = _form(given[1], given[3], is_causal, scale, window, None, False)
            of_out, query, key, value, out = (each.transpose(1, 2) for each in given)
            gradients = _gradients(of_out, query, key, value, out, sums, None, None, None, None, 0, form)
            found = [each.transpose(1, 2) for each in gradients]
            own = call_key("gradients of attention", (of_out, query, key, value, out, sums), (form, None, None, 0))
            launch = _ready.launch_of_several(own)
            if ready is not None and launch is not None and _is_constant(ctx.rest):
                _ready.keep_several(ready, tensors, found, launch)
        return *found, None

    once = torch.autograd.function.once_differentiable
    members = {"forward": staticmethod(forward), "backward": staticmethod(once(backward))}
    made: Any = type("Attention", (torch.autograd.Function,), members)
    apply: Callable[..., Any] = made.apply
    return apply


def _traced(call: _Call, form: AttentionForm) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a call as one operator in a trace."""
    import torch

    _register_operator()
    out, found = torch.ops.bitwise.attention(
        call.query, call.key, call.value, call.query_starts, call.key_starts, call.key_lengths, call.page_table,
        call.sinks, call.visible, call.first_keys, call.longest_queries, call.longest_keys, call.first_position,
        form.scale, form.causal, form.window, form.soft_cap,
    )  # fmt: skip
    return out, found


@cache
def attention_operator() -> Any:
    """Register the PyTorch operator that represents a call in traces, and return it.

    `bitwise::attention` takes the tensors of a call, its lengths, and the numbers of its form; it returns the output
    and the logarithms.  Repeated calls return the same operator.
    """
    import torch

    def compute(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, query_starts: torch.Tensor | None,
        key_starts: torch.Tensor | None, key_lengths: torch.Tensor | None, page_table: torch.Tensor | None,
        sinks: torch.Tensor | None, visible: torch.Tensor | None, first_keys: torch.Tensor | None,
        longest_queries: int | None, longest_keys: int | None, first_position: int | None, scale: float, causal: bool,
        window: int | None, soft_cap: float | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        call = _Call(
            query, key, value, query_starts, key_starts, key_lengths, page_table, sinks, visible, first_keys,
            longest_queries, longest_keys, first_position,
        )  # fmt: skip
        return _run(call, _form(query, value, causal, scale, window, soft_cap, sinks is not None))[:2]

    def fake(*operands: Any) -> tuple[torch.Tensor, torch.Tensor]:
        query, _, value = operands[:3]
        return (
            query.new_empty((*query.shape[:-1], value.shape[-1])),
            query.new_empty(query.shape[:-1], dtype=torch.float32),
        )

    made = torch.library.custom_op(
        "bitwise::attention", compute, mutates_args=(),
        schema="(Tensor query, Tensor key, Tensor value, Tensor? query_starts, Tensor? key_starts, Tensor? "
        "key_lengths, Tensor? page_table, Tensor? sinks, Tensor? visible, Tensor? first_keys, int? longest_queries, "
        "int? longest_keys, int? first_position, float scale, bool causal, int? window, float? soft_cap) "
        "-> (Tensor, Tensor)",
    )  # fmt: skip
    made.register_fake(fake)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
        ctx.save_for_backward(*inputs[:3], *output, *inputs[3:5])
        ctx.numbers = inputs[10:16]
        ctx.mark_non_differentiable(output[1])

    def backward(ctx: Any, slope: torch.Tensor, _: Any) -> tuple[Any, ...]:
        query, key, value, out, found, query_starts, key_starts = ctx.saved_tensors
        gradients = torch.ops.bitwise.attention_gradients(
            slope, query, key, value, out, found, query_starts, key_starts, *ctx.numbers
        )
        return *gradients, *[None] * 14

    made.register_autograd(backward, setup_context=setup)
    return made


@cache
def gradients_operator() -> Any:
    """Register the PyTorch operator that represents the gradients of a call, and return it.

    `bitwise::attention_gradients` takes the gradient of the output, the tensors of the call and its results, and
    returns the gradients of query, key and value.  Repeated calls return the same operator.
    """
    import torch

    def compute(
        slope: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
        logarithms: torch.Tensor, query_starts: torch.Tensor | None, key_starts: torch.Tensor | None,
        longest_queries: int | None, longest_keys: int | None, first_position: int | None, scale: float, causal: bool,
        window: int | None,
    ) -> list[torch.Tensor]:  # fmt: skip
        form = _form(query, value, causal, scale, window, None, False)
        return _gradients(
            slope, query, key, value, out, logarithms, query_starts, key_starts, longest_queries, longest_keys,
            first_position, form,
        )  # fmt: skip

    def fake(slope: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> Any:
        return [each.new_empty(each.shape) for each in (query, key, value)]

    made = torch.library.custom_op(
        "bitwise::attention_gradients", compute, mutates_args=(),
        schema="(Tensor slope, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logarithms, "
        "Tensor? query_starts, Tensor? key_starts, int? longest_queries, int? longest_keys, int? first_position, "
        "float scale, bool causal, int? window) -> Tensor[]",
    )  # fmt: skip
    made.register_fake(fake)
    return made


_known_gradients: dict[tuple[torch.device, AttentionForm], tuple[Any, AttentionGradientDesc]] = {}
"""The launchers and descriptors of former gradients."""


def _gradient_launcher(device: torch.device, form: AttentionForm) -> tuple[Any, AttentionGradientDesc]:
    """Return the launcher of gradients of a form, and their descriptor.  Raises AttentionError."""
    launcher, _ = _cached_launcher(device, form)
    known = _known_gradients.get((device, form))
    if known is None or known[0] is not launcher:
        if not isinstance(launcher, AttentionGradientLauncher):
            raise AttentionError(f"{launcher.name} computes no gradients: call attention inside torch.no_grad()")
        desc = launcher.attention_gradient_descriptor(form)
        known = _known_gradients[device, form] = launcher, desc
    return known


def _gradients(
    slope: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logarithms: torch.Tensor, query_starts: torch.Tensor | None, key_starts: torch.Tensor | None,
    longest_queries: int | None, longest_keys: int | None, first_position: int | None, form: AttentionForm,
) -> list[torch.Tensor]:  # fmt: skip
    """Return the gradients of query, key and value of a call with these results.  Raises AttentionError."""
    import torch

    starts = () if query_starts is None or key_starts is None else (query_starts, key_starts)
    tensors = (slope, query, key, value, out, logarithms, *starts)
    rest = form, longest_queries, longest_keys, first_position
    repeated, ready = _ready.run_several("gradients of attention", tensors, rest)
    if repeated is not None:
        return repeated
    launcher, desc = _gradient_launcher(query.device, form)
    given = (slope, query, key, value, out)
    slope, query, key, value, out = (each if each.stride(-1) == 1 else each.contiguous() for each in given)
    found = [torch.empty(each.shape, dtype=each.dtype, device=each.device) for each in (query, key, value)]
    operands = AttentionOperands(
        query=query, key=key, value=value, out=out, logarithms=logarithms.contiguous(), query_starts=query_starts,
        key_starts=key_starts, first_position=first_position,
        longest_queries=int(query.shape[1]) if longest_queries is None else longest_queries,
        longest_keys=int(key.shape[1]) if longest_keys is None else longest_keys,
    )  # fmt: skip
    gradients = AttentionGradientTensors(slope, *found)
    if query.device.type == "cpu":
        _evaluate_gradients(desc, operands, gradients)
        return found
    launch = launcher.attend_gradients(desc, operands, gradients)
    used = slope, query, key, value, out
    same = operands.logarithms is logarithms and all(map(operator.is_, given, used))
    if same and ready is not None and launch is not None:
        _ready.keep_several(ready, tensors, found, launch)
    return found


def varlen_gradients(
    slope: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logarithms: torch.Tensor, starts: torch.Tensor, longest: int, scale: float,
) -> list[torch.Tensor]:  # fmt: skip
    """Return the gradients of query, key and value of a causal `attention_varlen` from its results, with as many keys.

    `slope` is the gradient of the output, `starts` are those of the sequences, and `longest` is the greatest length.
    Raises AttentionError.
    """
    form = _form(query, value, True, scale, None, None, False)
    return _gradients(slope, query, key, value, out, logarithms, starts, starts, longest, longest, None, form)


def _evaluate_gradients(
    desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors
) -> None:
    """Compute gradients on the CPU by evaluating their descriptor on bit patterns, group by group."""
    import torch

    starts = operands.query_starts
    sequences = int(operands.query.shape[0] if starts is None else len(starts) - 1)
    for place in range(sequences):
        rows = (place,) if starts is None else (slice(int(starts[place]), int(starts[place + 1])),)
        places = rows
        if operands.key_starts is not None:
            places = (slice(int(operands.key_starts[place]), int(operands.key_starts[place + 1])),)
        query, out, slope = (each[rows].transpose(0, 1) for each in (operands.query, operands.out, gradients.slope))
        key, value = (each[places].transpose(0, 1) for each in (operands.key, operands.value))
        targets = [gradients.query[rows], gradients.key[places], gradients.value[places]]
        if not query.numel() or not key.numel():
            for each in targets:
                each.zero_()
            continue
        logarithms = operands.logarithms[rows].transpose(0, 1).contiguous().numpy()
        share = query.shape[0] // key.shape[0]
        for group in range(key.shape[0]):
            heads = slice(group * share, group * share + share)
            found = evaluate_attention_gradients(
                desc, _patterns(query[heads]), _patterns(key[group]), _patterns(value[group]), _patterns(out[heads]),
                logarithms[heads], _patterns(slope[heads]), first_position=operands.first_position,
                hardware=registry.default().hardware,
            )  # fmt: skip

            def tensor(bits: Any, dtype: Any = query.dtype) -> torch.Tensor:
                return torch.from_numpy(bits.view(np.int16)).view(dtype)

            targets[0][:, heads] = tensor(found.query).transpose(0, 1)
            targets[1][:, group], targets[2][:, group] = tensor(found.key), tensor(found.value)


def _register_operator() -> bool:
    """Register the operators; torch.compile treats the result as a constant."""
    attention_operator()
    gradients_operator()
    return True


# The attribute that torch.compiler.assume_constant_result sets; PyTorch must not be imported here.
_register_operator._dynamo_marked_constant = True  # type: ignore[attr-defined]
