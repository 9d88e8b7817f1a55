"""Attention of PyTorch tensors with the bits of one descriptor, whatever the batch, its neighbours and the schedule.

out = attention(query, key, value, is_causal=True)
out = attention_varlen(query, key, value, query_starts, key_starts, longest_queries, longest_keys, is_causal=True)
out = attention_paged(query, key_pages, value_pages, page_table, key_lengths)

A row's bits follow from its query and the keys that it sees, so prefill, a part of it and decoding agree, and so do
dense and paged keys.  Tensors on the CPU are evaluated, which is slow, to the bits of the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import AttentionDesc
from bitwise_core.plugins.attention_calls import AttentionForm, RepeatedAttention
from bitwise_torch.attention_execution import (
    READY,
    AttentionCall,
    AttentionError,
    form_of,
    gradients_of,
    launcher_of,
    run,
)
from bitwise_torch.attention_operators import recorded_call, traced_call
from bitwise_torch.ready_launches import call_key

if TYPE_CHECKING:
    import torch

__all__ = ["AttentionError", "attention", "attention_descriptor", "attention_paged", "attention_varlen"]


def attention_descriptor(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, is_causal: bool = False, scale: float | None = None,
    window: int | None = None, soft_cap: float | None = None, sinks: bool = False,
) -> AttentionDesc:  # fmt: skip
    """Return the descriptor that `attention` and its other forms compute for these tensors on their device.

    Raises AttentionError where no installed plugin has kernels for them.
    """
    form = form_of(query, value, is_causal, scale, window, soft_cap, sinks)
    return launcher_of(query.device, form)[1]


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
) -> tuple[AttentionCall, bool]:  # fmt: skip
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
    call = AttentionCall(
        q, k, v, first_position=first if is_causal else 0, sinks=sinks, visible=visible, first_keys=first_keys
    )
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
    call = AttentionCall(
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
    soft_cap: float | None = None, sinks: torch.Tensor | None = None, logarithms: bool = False, key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> Any:  # fmt: skip
    """Return attention to keys in pages: `key_pages` and `value_pages` are (pages, page size, groups, ...).

    `page_table` (sequences, pages) has the numbers of each sequence's pages in order, and `key_lengths` (sequences) its
    number of keys, both in int32.  `query` is (sequences, queries, heads, depth), or with `query_starts` (tokens,
    heads, depth) as in `attention_varlen`, with `longest_queries`.  `longest_keys` is a bound of `key_lengths`, by
    default all that `page_table` can hold.  `is_causal` aligns the last query of a sequence with its last key.  The
    result has the axes of `query`, and with `logarithms` also those without the last.  Pages may be of float8_e4m3fn or
    float8_e5m2: a key is then its pattern's number times `key_scale`, which multiplies the scores with `scale`, and the
    output is multiplied by `value_scale`.  The other arguments are those of `attention`.  Raises AttentionError.
    """
    optional = () if query_starts is None else (query_starts,), () if sinks is None else (sinks,)
    given = (query, key_pages, value_pages, *optional[0], key_lengths, page_table, *optional[1])
    rest = (
        query_starts is None, longest_queries, longest_keys, is_causal, scale, window, soft_cap, key_scale, value_scale
    )  # fmt: skip
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
    call = AttentionCall(
        query, key_pages, value_pages, query_starts=query_starts, key_lengths=key_lengths, page_table=page_table,
        longest_queries=longest_queries, longest_keys=most if longest_keys is None else min(most, longest_keys),
        sinks=sinks,
    )  # fmt: skip
    out, found, launch = _computed(call, is_causal, scale, window, soft_cap, logarithms, key_scale, value_scale)
    _keep(ready, given, rest, out, launch)
    return (out, found) if logarithms else out


_NUMBERS = {bool, int, float, tuple, type(None)}
"""The types of the other arguments of a call that is kept."""


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
        return READY.run(name, operands, rest)
    except AttributeError:  # no tensors, which the checks of the call say
        return None, None


def launch_of_attention(
    operands: tuple[torch.Tensor, ...], is_causal: bool, scale: float, enable_gqa: bool
) -> RepeatedAttention | None:
    """Return the launch of a call of `attention` that ran, None for one that is not kept.

    `operands` are query, key and value, or also `attn_mask` and `first_keys`.
    """
    rest = is_causal, scale, enable_gqa, None, None, (True, len(operands) == 3, len(operands) == 3)
    return READY.launch_of(call_key("attention", operands, rest))


def _keep(
    key: Hashable, operands: tuple[torch.Tensor, ...], rest: tuple[Any, ...], out: torch.Tensor,
    launch: RepeatedAttention | None,
) -> None:  # fmt: skip
    """Keep the launch of a call that ran; not where an argument may change in place, such as a scale in a tensor."""
    if key is not None and launch is not None and _is_constant(rest):
        READY.keep(key, operands, out, launch)


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


def _check_heads(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, paged: bool) -> None:
    """Raise AttentionError unless operands (..., heads, width) have one type, and widths and heads that fit.

    Keys and values in pages may be of fp8.
    """
    import torch

    if key.dtype != value.dtype or not (
        key.dtype == query.dtype or (paged and key.dtype in (torch.float8_e4m3fn, torch.float8_e5m2))
    ):
        wanted = ", or pages of float8_e4m3fn or float8_e5m2" if paged else ""
        raise AttentionError(
            f"query, key and value are of {query.dtype}, {key.dtype} and {value.dtype}: give one type{wanted}"
        )
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


def _computed(
    call: AttentionCall, causal: bool, scale: float | None, window: int | None, soft_cap: float | None,
    logarithms: bool, key_scale: float = 1.0, value_scale: float = 1.0,
) -> tuple[torch.Tensor, Any, RepeatedAttention | None]:  # fmt: skip
    """Return the output and the logarithms of a call, and what repeats its launch by addresses.

    Without `logarithms` they may be None.  Raises AttentionError.
    """
    import torch

    query, key, value = call.query, call.key, call.value
    _check_heads(query, key, value, call.page_table is not None)
    if call.sinks is not None:
        _check_tensors(query=query, sinks=call.sinks)
        heads = int(query.shape[-2])
        if call.sinks.shape != (heads,) or call.sinks.dtype != torch.float32:
            raise AttentionError(f"sinks is of {call.sinks.dtype} {tuple(call.sinks.shape)}: give float32 ({heads},)")
    if call.visible is not None:
        _check_tensors(query=query, attn_mask=call.visible)
    form = form_of(query, value, causal, scale, window, soft_cap, call.sinks is not None, key_scale, value_scale)
    recorded = _is_recorded(query, key, value)
    if recorded:
        _check_gradients(call, form)
    if _is_traced():
        return *traced_call(call, form), None
    if recorded:
        out, found = recorded_call()(query, key, value, call, form)
        return out, found, None
    return run(call, form, logarithms)


_TO_LEARN = "attention to learn"
"""The name of calls whose gradients are recorded."""


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
            found, ready = READY.run_several(_TO_LEARN, operands, rest)
        if found is None:
            is_causal, scale, enable_gqa, window = rest
            call, causal = _dense_call(query, key, value, None, 0.0, is_causal, enable_gqa, None, None)
            out, sums, launch = _computed(call, causal, scale, window, None, True)
            found = [sums, out.transpose(1, 2)]
            if ready is not None and launch is not None and _is_constant(rest):
                READY.keep_several(ready, operands, found, launch)
        sums, out = found
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.rest = rest
        return out

    def backward(ctx: Any, slope: Any) -> Any:
        tensors = (slope, *ctx.saved_tensors)
        found, ready = READY.run_several("gradients to learn", tensors, ctx.rest)
        if found is None:
            is_causal, scale, _, window = ctx.rest
            *given, sums = tensors
            form = form_of(given[1], given[3], is_causal, scale, window, None, False)
            of_out, query, key, value, out = (each.transpose(1, 2) for each in given)
            gradients = gradients_of(of_out, query, key, value, out, sums, None, None, None, None, 0, form)
            found = [each.transpose(1, 2) for each in gradients]
            own = call_key("gradients of attention", (of_out, query, key, value, out, sums), (form, None, None, 0))
            launch = READY.launch_of_several(own)
            if ready is not None and launch is not None and _is_constant(ctx.rest):
                READY.keep_several(ready, tensors, found, launch)
        return *found, None

    once = torch.autograd.function.once_differentiable
    members = {"forward": staticmethod(forward), "backward": staticmethod(once(backward))}
    made: Any = type("Attention", (torch.autograd.Function,), members)
    apply: Callable[..., Any] = made.apply
    return apply


def recorded_again(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool, scale: float, enable_gqa: bool
) -> torch.Tensor | None:  # fmt: skip
    """Return a call of `attention` whose gradients are recorded, None where the same one did not run before."""
    operands, rest = (query, key, value), (is_causal, scale, enable_gqa, None)
    if _is_traced() or any(each.is_neg() for each in operands) or not READY.keeps_several(_TO_LEARN, operands, rest):
        return None
    found: torch.Tensor = _learned()(query, key, value, rest)
    return found


def _check_gradients(call: AttentionCall, form: AttentionForm) -> None:
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
