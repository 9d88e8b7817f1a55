"""torch.nn.functional.scaled_dot_product_attention in orders that no batch, no chunk and no padding changes.

Where a plugin has kernels of attention for the type and the widths of the heads, `bitwise_torch.attention` computes it,
and its gradients: without a mask, and those of the causal sequences that a mask of padded or packed sequences shows.
Heads of a width between those of kernels are widened with zeros, which change no sum, to the next one (`wider_call`).
Other gradients under a mask, and both passes for other types and widths and where a mask adds numbers to scores, have
the plain form, which computes scores,
softmax and values by products and rows of pinned orders.  So the outputs of a model have one order: types, widths
and whether masks add numbers decide, and nothing else.

Both forms add over the keys from the first one that a query sees, in an order that masked keys behind its own do not
change.  Most masks show one first key to all queries of a sequence; padding on the left is left out.  Under a window,
or in packed sequences, there are several: `mask_runs` finds the runs of the other queries, and each run is computed on
its own keys.  The gradients of a run are those of its keys alone, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.problem import NAMES
from bitwise_core.plugins import registry
from bitwise_core.plugins.attention_calls import AttentionForm, AttentionGradientLauncher, AttentionLauncher
from bitwise_torch import attention_calls, attention_execution
from bitwise_torch.batch_invariance.mask_runs import Masks, Run, Segments, causal_mask, is_captured
from bitwise_torch.batch_invariance.row_functions import widened_heads
from bitwise_torch.batch_invariance.row_operators import NotServed

if TYPE_CHECKING:
    import torch

ATTENTION = "scaled_dot_product_attention"
"""The operator, in the namespace `aten`."""

ORDER_VERSION = 1
"""The version of what decides bits here, beside descriptors: the runs of masks, the gradients under them, and the plain
form.  A change of any of these bits needs another number.
"""

MOST_SEQUENCES = 32768
"""The greatest number of queries of a window that one call of the kernels computes."""

MOST_NUMBERS = 1 << 26
"""The greatest number of components of keys that the plain form copies for queries of a window."""

_WIDTH_STEP, _MOST_ZEROS = 16, 3
"""Widths of kernels are multiples of the first; at most one of so many components of a widened head is such a zero."""


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    soft_cap: float | None = None, sinks: torch.Tensor | None = None, masks: Masks | None = None,
    note_mask: Callable[[], None] | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return the attention of query[..., q, d] to key[..., k, d] and value[..., k, e]; the arguments are torch's.

    `soft_cap` and `sinks`, in fp32, are those of `bitwise_torch.attention`, for operands of 4 axes.  A query that
    attends to no key gives 0.  `masks` reads and keeps masks.  `note_mask` is called for a mask whose runs are
    unknown: then sums begin at the first key that any query of a sequence sees.  Raises NotServed.
    """
    import torch

    if dropout_p:
        raise NotServed("attention with dropout draws random numbers for a batch; a dropout of 0 is served")
    if not query.dtype == key.dtype == value.dtype or query.dtype not in _types():
        raise NotServed(f"attention of {query.dtype} and {key.dtype}; one type of fp32, fp16 and bf16 is served")
    if query.dim() < 2 or query.dim() != key.dim() or query.is_nested:
        raise NotServed("operands of different numbers of axes, or nested ones; dense ones of equal axes are served")
    recorded = torch.is_grad_enabled() and any(
        each is not None and each.requires_grad for each in (query, key, value, sinks)
    )
    if recorded and torch._C._functorch.maybe_current_level() is not None:
        raise NotServed("gradients of a transform of torch.func; those of backward() are served")
    if query.dim() == 4 and not enable_gqa:
        query, key, value, enable_gqa = _broadcast(query, key, value)
    factor = 1.0 / math.sqrt(int(query.shape[-1])) if scale is None else float(scale)
    how = _Scores(factor, soft_cap, sinks, enable_gqa)
    kernels = _has_kernels(query, value)
    if query.dim() != 4 and (kernels or soft_cap is not None or sinks is not None):
        raise NotServed(f"operands of {query.dim()} axes, for heads of these widths; 4 axes are served")
    if attn_mask is None and kernels:
        plain = soft_cap is None and sinks is None
        if not recorded or (plain and _has_kernels(query, value, gradients=True)):
            return _by_kernels(query, key, value, None, None, is_causal, how)
        causal = causal_mask(query, key) if is_causal else None
        found: torch.Tensor = _with_gradients()(query, key, value, sinks, causal, None, None, how, (), None, None)
        return found
    if enable_gqa and not kernels:
        key, value, how = _for_each_head(query, key), _for_each_head(query, value), replace(how, grouped=False)
    if attn_mask is None:
        return plain_attention(query, key, value, causal_mask(query, key) if is_causal else None, None, how)
    if query.dim() > 4:
        raise NotServed(f"a mask with operands of {query.dim()} axes; up to 4 axes are served")
    if not query.shape[-2] or not key.shape[-2]:
        return plain_attention(query, key, value, None, None, how)
    q, k, v, mask = query, key, value, attn_mask
    if query.dim() < 4:
        places = (None, None) if query.dim() == 2 else (slice(None), None)
        q, k, v = (each[places] for each in (query, key, value))
        mask = mask if mask.dim() < query.dim() else mask[places]
    masks = Masks() if masks is None else masks
    if kernels and attn_mask.dtype != torch.bool and is_captured(attn_mask):
        raise NotServed(
            "a mask of numbers in the capture of a CUDA graph, for heads of these widths: it cannot be read there; a "
            "boolean one is served"
        )
    try:
        read = masks.of(mask, q, k, is_causal, exact=kernels)
    except RuntimeError:
        raise NotServed(f"a mask of the shape {tuple(mask.shape)}; one that broadcasts to scores is served") from None
    kernels = kernels and read.added is None
    if enable_gqa and how.grouped and not kernels:
        k, v, how = _for_each_head(q, k), _for_each_head(q, v), replace(how, grouped=False)
    if read.runs is None and note_mask is not None:
        note_mask()
    if read.runs and torch.is_grad_enabled() and attn_mask.requires_grad:
        raise NotServed("the gradient of a mask whose queries see different first keys; one without it is served")
    rest = read.allowed, read.added, read.first_keys, how, read.runs or (), read.others
    if recorded and (kernels or read.runs):
        segments = None
        if kernels and soft_cap is None and sinks is None and _has_kernels(query, value, gradients=True):
            segments = masks.segments(read, int(query.shape[0]))
        found = _with_gradients()(q, k, v, sinks, *rest, segments)
    else:
        found = _masked(q, k, v, *rest)
    return found if query.dim() == 4 else found.reshape(*query.shape[:-1], v.shape[-1])


def _broadcast(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
    """Return operands of one batch, and whether all heads of the query have one head of keys and values.

    Like PyTorch's operators, attention broadcasts a batch and heads of one.
    """
    shapes = {each.shape[0] for each in (query, key, value)}
    if len(shapes) == 2 and 1 in shapes:
        query, key, value = (each.expand(max(shapes), -1, -1, -1) for each in (query, key, value))
    return query, key, value, key.shape[1] == value.shape[1] == 1 < query.shape[1]


def wider_call(arguments: Sequence[Any], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return a call of `attention` on wider heads, whose result has that of a call in front, None where none is needed.

    The first three arguments are query, key and value.
    """
    query, key, value, *rest = arguments
    if query.is_nested or query.dtype not in _types() or not query.dim() or query.dim() != value.dim():
        return None
    wide = _wider_heads(query, value) if key.shape[-1:] == query.shape[-1:] else None
    if wide is None:
        return None
    given = options.get("scale")
    scale = 1.0 / math.sqrt(int(query.shape[-1])) if given is None else given
    return (*(_widened(each, wide) for each in (query, key, value)), *rest), {**options, "scale": scale}


def descriptors_of(query: torch.Tensor, value: torch.Tensor) -> tuple[str | None, str | None]:
    """Return the texts of the descriptors of outputs and of gradients, for the type and the widths of heads.

    They are those of the causal form with a scale of 1; None stands for the plain form.
    """
    wide = _wider_heads(query, value)
    if wide is not None:
        query, value = _widened(query, wide), _widened(value, wide)
    if not _has_kernels(query, value):
        return None, None
    form = AttentionForm(
        dtype=NAMES[str(query.dtype)], depth=int(query.shape[-1]), width=int(value.shape[-1]), scale=1.0, causal=True
    )
    text = attention_execution.launcher_of(query.device, form)[1].to_text()
    if not _has_kernels(query, value, gradients=True):
        return text, None
    return text, attention_execution.gradient_launcher(query.device, form)[1].to_text()


def launch_of_attention(
    operands: tuple[torch.Tensor, ...], attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Callable[..., None] | None:  # fmt: skip
    """Return the launch of a call of `attention` that ran, by the addresses of its operands and of its result.

    `operands` are query, key and value, with a mask also where it allows and its first keys.  It is None where other
    kernels than those of `bitwise_torch.attention` computed it.
    """
    query, _, value, *rest = operands
    if dropout_p or query.dim() != 4 or not _has_kernels(query, value):
        return None
    factor = 1.0 / math.sqrt(int(query.shape[-1])) if scale is None else float(scale)
    return attention_calls.launch_of_attention(operands, is_causal and not rest, factor, enable_gqa)


def recorded_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor | None:  # fmt: skip
    """Return a call of `attention` whose gradients are recorded, None for a mask and where its kernels did not run."""
    if dropout_p or query.dim() != 4 or not _has_kernels(query, value, gradients=True):
        return None
    factor = 1.0 / math.sqrt(int(query.shape[-1])) if scale is None else float(scale)
    return attention_calls.recorded_again(query, key, value, is_causal, factor, enable_gqa)


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """What makes scores of products, beside a mask; with `grouped`, groups of heads have the same keys."""

    scale: float
    soft_cap: float | None
    sinks: torch.Tensor | None
    grouped: bool


def _masked(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, allowed: Any, added: Any, first_keys: Any,
    how: _Scores, runs: Sequence[Run], others: Sequence[Run] | None,
) -> torch.Tensor:  # fmt: skip
    """Return attention under a mask of four axes; queries of runs are computed run by run.

    Where there are such runs, so are all `others`, without a mask, unless these are None.
    """
    import torch

    kernels = _by_the_kernels(query, value, added)
    if kernels and runs and key.shape[1] == query.shape[1]:
        key, value = _without_repeated_heads(key, value)
        how = replace(how, grouped=key.shape[1] != query.shape[1])
    if kernels and runs and others is not None:
        sequences, heads, tokens = (int(each) for each in query.shape[:3])
        shape = sequences, tokens, heads, int(value.shape[3])
        out = torch.zeros(shape, dtype=query.dtype, device=query.device).transpose(1, 2)
        for other in others:
            found = _run_of_one_key(other, query, key, value, allowed, added, how)
            out[_sequences_of(other), :, other.begin : other.end] = found
    elif kernels:
        out = _by_kernels(query, key, value, _without_runs(allowed, runs), first_keys, False, how)
    else:
        main = _without_runs(allowed, runs)
        out = plain_attention(*_without_left_padding(query, key, value, main, added, first_keys), how)
    for each in runs:
        rows, queries = _sequences_of(each), slice(each.begin, each.end)
        if not each.sliding:
            out[rows, :, queries] = _run_of_one_key(each, query, key, value, allowed, added, how)
            continue
        for place in range(query.shape[0])[rows]:
            operands = query[place], key[place], value[place], None if added is None else added[place % len(added)]
            if kernels and _by_steps(each, *operands[:3], how, out[place]):
                continue
            size = int(key.shape[1]) * each.seen * int(key.shape[-1])
            step = MOST_SEQUENCES if kernels else max(1, MOST_NUMBERS // size)
            for begin in range(each.begin, each.end, step):
                part = slice(begin, min(each.end, begin + step))
                found = _rows_of_window(each, part, *operands, how)
                out[place, :, part] = found[:, :, 0].transpose(0, 1)
    return out


_STREAMED, _MULTIPLIED = 9e12, 3.6e14
"""Bytes of keys and values that single queries read in a second, and operations of tiles of queries, on an H200.

They were fitted to the times of five windows, and decide no bits.
"""

_ROWS_OF_A_TILE = 128
"""The rows of a tile of the kernel of many queries."""


def _by_steps(run: Run, query: Any, key: Any, value: Any, how: _Scores, out: Any) -> bool:
    """Compute a sliding run of query[heads, q, d] into out[heads, q, e], if that is served and faster than one by one.

    A query and the one that is a chunk of keys behind it have the same chunks, but for the first and the last one, and
    a chunk that is masked changes no bits.  So queries that are whole chunks apart are the queries of a sequence, under
    a window that moves by a chunk, and the heads of a group are rows of one head.
    """
    if query.device.type == "cpu" or how.sinks is not None:
        return False
    heads, groups, count = int(query.shape[0]), int(key.shape[0]), run.end - run.begin
    form = AttentionForm(
        dtype=NAMES[str(query.dtype)], depth=int(query.shape[-1]), width=int(value.shape[-1]), scale=how.scale,
        causal=True, window=run.seen, soft_cap=how.soft_cap,
    )  # fmt: skip
    chunk = attention_execution.cached_launcher(query.device, form)[1].chunk
    if chunk is None or count <= chunk:
        return False
    together = -(-count // chunk)
    widths = int(query.shape[-1] + value.shape[-1])
    tiles = groups * chunk * -(-together * (heads // groups) // _ROWS_OF_A_TILE)
    visited = min(together * chunk, _ROWS_OF_A_TILE // (heads // groups) * chunk) + run.seen
    single = count * groups * run.seen * widths * query.element_size() / _STREAMED
    if tiles * visited * _ROWS_OF_A_TILE * widths * 2 / _MULTIPLIED >= single:
        return False
    for begin, end in ((0, count % chunk), (count % chunk, chunk)):
        if begin == end:
            continue
        queries = together if begin == 0 and count % chunk else count // chunk
        if not _residues(run, begin, end, queries, chunk, query, key, value, form, out):
            return False
    return True


def _residues(
    run: Run, begin: int, end: int, queries: int, chunk: int, query: Any, key: Any, value: Any, form: AttentionForm,
    out: Any,
) -> bool:  # fmt: skip
    """Compute the queries of a run with the places from `begin` to `end` in their chunks; see `_by_steps`."""
    heads, groups = int(query.shape[0]), int(key.shape[0])
    share, keys, size = heads // groups, run.seen + (queries - 1) * chunk, end - begin

    def rows_of(x: Any) -> Any:
        """Return rows of x[heads, q, d] as [size, queries, share, groups, d]."""
        x = x[:, run.begin + begin :].unflatten(0, (groups, share))
        group, head, row, component = x.stride()
        return x.as_strided(
            (size, queries, share, groups, x.shape[-1]), (row, chunk * row, head, group, component)
        )  # fmt: skip

    def windows(x: Any) -> Any:
        x = x[:, run.first + begin :]
        group, row, component = x.stride()
        return x.as_strided((size, keys, groups, x.shape[-1]), (row, row, group, component))

    call = attention_execution.AttentionCall(
        rows_of(query).flatten(1, 2), windows(key), windows(value), first_position=run.seen - 1, query_share=share,
        query_step=chunk,
    )  # fmt: skip
    try:
        found, _, _ = attention_execution.run(call, form, logarithms=False)
    except (DescriptorError, attention_calls.AttentionError):
        return False
    rows_of(out).copy_(found.unflatten(1, (queries, share)))
    return True


def _without_repeated_heads(key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values without the heads that repeat others in every bit, where groups of one size have each.

    A module of transformers repeats the heads of groups where there is a mask.  The queries of a window read the keys
    of a group once.  The values are read, which waits for the device.
    """
    import torch

    def repeated(x: torch.Tensor) -> torch.Tensor:
        bits = x.view({2: torch.int16, 4: torch.int32}[x.dtype.itemsize])
        return (bits[:, 1:] == bits[:, :-1]).all(0).flatten(1).all(1)

    heads = int(key.shape[1])
    others = [0, *(place + 1 for place, same in enumerate((repeated(key) & repeated(value)).tolist()) if not same)]
    size = heads // len(others)
    return (key[:, ::size], value[:, ::size]) if others == list(range(0, heads, size)) else (key, value)


def _by_the_kernels(query: torch.Tensor, value: torch.Tensor, added: Any) -> bool:
    """Return whether the kernels compute attention under a mask that adds `added` to scores, None for nothing."""
    return added is None and _has_kernels(query, value)


def _without_runs(allowed: Any, runs: Sequence[Run]) -> Any:
    """Return a mask without the queries of runs."""
    if not runs:
        return allowed
    main = allowed.clone()
    for each in runs:
        main[_sequences_of(each), :, each.begin : each.end] = False
    return main


def _sequences_of(run: Run) -> slice:
    return slice(None) if run.sequence is None else slice(run.sequence, run.sequence + 1)


def _part(run: Run, query: Any, key: Any, value: Any, allowed: Any, added: Any) -> Iterator[Any]:
    """Yield the queries of a run, its keys and values, and its part of a mask and of what is added."""
    rows, queries, keys = _sequences_of(run), slice(run.begin, run.end), slice(run.first, run.last)
    yield query[rows, :, queries]
    yield from (each[rows, :, keys] for each in (key, value))
    yield from (
        None if each is None else each[rows if len(each) > 1 else slice(None), :, queries, keys]
        for each in (allowed, added)
    )


def _run_of_one_key(run: Run, query: Any, key: Any, value: Any, allowed: Any, added: Any, how: _Scores) -> torch.Tensor:
    """Return the attention of the queries of a run that see one first key."""
    q, k, v, visible, bias = _part(run, query, key, value, allowed, added)
    if not _by_the_kernels(query, value, added):
        return plain_attention(q, k, v, visible, bias, how)
    from torch.nn.attention.bias import causal_lower_right

    queries, keys = int(q.shape[2]), int(k.shape[2])
    mask = causal_lower_right(queries, keys) if 1 < queries < keys else None
    return _by_kernels(q, k, v, mask, None, 1 < queries == keys, how)


def _rows_of_window(
    run: Run, queries: slice, query: Any, key: Any, value: Any, added: Any, how: _Scores
) -> torch.Tensor:
    """Return the attention of some queries of a sliding run of query[heads, q, d], as sequences of one query each."""
    count, seen = queries.stop - queries.start, run.seen
    keys = slice(run.first + queries.start - run.begin, None)

    def windows(x: Any) -> Any:
        x = x[:, keys]
        return x.as_strided((count, x.shape[0], seen, x.shape[2]), (x.stride(1), *x.stride()))

    q, k, v = query[:, queries].transpose(0, 1)[:, :, None], windows(key), windows(value)
    if _by_the_kernels(query, value, added):
        return _by_kernels(q, k, v, None, None, False, how)
    bias = None
    if added is not None:
        bias = added[:, queries, keys]
        heads, row, column = bias.stride()
        bias = bias.as_strided((count, bias.shape[0], 1, seen), (row + column, heads, row, column))
    return plain_attention(q, k, v, None, bias, how)


def _by_kernels(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, first_keys: torch.Tensor | None,
    causal: bool, how: _Scores,
) -> torch.Tensor:  # fmt: skip
    try:
        found: torch.Tensor = attention_calls.attention(
            query, key, value, mask, is_causal=causal, scale=how.scale, enable_gqa=how.grouped, first_keys=first_keys,
            soft_cap=how.soft_cap, sinks=how.sinks,
        )  # fmt: skip
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


def _wider_heads(query: torch.Tensor, value: torch.Tensor) -> int | None:
    """Return the width to which heads without kernels of their own are widened, None where there are none of it."""
    import torch

    known = registry.default()
    key = (query.dtype, query.shape[-1], value.shape[-1], query.device)
    found = _wider.get(key)
    if found is None or found[0] is not known:
        least, most = sorted((int(query.shape[-1]), int(value.shape[-1])))
        begin, end = -(-most // _WIDTH_STEP) * _WIDTH_STEP, least * _MOST_ZEROS // (_MOST_ZEROS - 1) + 1
        sizes = () if _has_kernels(query, value) else range(begin, end, _WIDTH_STEP)
        heads = (torch.empty((0, size), dtype=query.dtype, device=query.device) for size in sizes)
        width = next((int(each.shape[-1]) for each in heads if _has_kernels(each, each)), None)
        _wider[key] = found = (known, width)
    return found[1]


_wider: dict[tuple[Any, ...], tuple[registry.Registry, int | None]] = {}


def _widened(x: torch.Tensor, width: int) -> torch.Tensor:
    """Return heads x[..., d] with zeros behind their components, of a width."""
    import torch

    if torch.is_grad_enabled() and x.requires_grad:
        return torch.nn.functional.pad(x, (0, width - int(x.shape[-1])))
    return widened_heads(x, width)


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
def _with_gradients() -> Callable[..., Any]:
    """Return the function of attention under a mask of four axes, with gradients.

    Causal sequences that are known have those of the kernels, and all other queries those of the plain form, which is
    left out where their outputs have the gradient 0, as those of padding have.
    """
    import torch

    def forward(
        ctx: Any, query: Any, key: Any, value: Any, sinks: Any, allowed: Any, added: Any, first_keys: Any,
        how: _Scores, runs: Sequence[Run], others: Sequence[Run] | None, segments: Segments | None,
    ) -> Any:  # fmt: skip
        out = found = None
        how = replace(how, sinks=None if sinks is None else sinks.detach())
        if segments is not None:
            out, found = _of_segments(segments, query, key, value, how.scale)
        if segments is None or segments.others is not None:
            if first_keys is None:
                out = _by_kernels(query, key, value, None, None, allowed is not None, how)
            else:
                out = _masked(query, key, value, allowed, added, first_keys, how, runs, others)
        kept = () if segments is None else (out, found)
        ctx.save_for_backward(query, key, value, sinks, allowed, added, first_keys, *kept)
        ctx.given = how, runs, segments
        return out

    def backward(ctx: Any, gradient: Any) -> Any:
        query, key, value, sinks, allowed, added, first_keys, *kept = ctx.saved_tensors
        how, runs, segments = ctx.given
        if segments is None:
            found = _plain_gradients(gradient, query, key, value, sinks, allowed, added, first_keys, how, runs)
        else:
            out, logarithms = kept
            found = [
                *_gradients_of_segments(segments, gradient, query, key, value, out, logarithms, how.scale), None
            ]  # fmt: skip
            others = segments.others
            if others is not None and bool(_tokens(gradient)[others].any()):
                rows = others.view(len(query), 1, -1, 1)
                apart = [each for each in runs if bool(rows[_sequences_of(each), :, each.begin].any())]
                visible = allowed & rows
                more = _plain_gradients(gradient, query, key, value, None, visible, None, first_keys, how, apart)
                found = [one if other is None else one + other for one, other in zip(found, more, strict=True)]
        return *found, *[None] * 7

    once = torch.autograd.function.once_differentiable
    members = {"forward": staticmethod(forward), "backward": staticmethod(once(backward))}
    made: Any = type("Attention", (torch.autograd.Function,), members)
    apply: Callable[..., Any] = made.apply
    return apply


def _tokens(x: torch.Tensor) -> torch.Tensor:
    """Return x[sequences, heads, queries, ...] as [tokens, heads, ...]."""
    return x.transpose(1, 2).flatten(0, 1)


def _of_tokens(x: torch.Tensor, sequences: int) -> torch.Tensor:
    """Return what `_tokens` has changed as it was."""
    return x.unflatten(0, (sequences, -1)).transpose(1, 2)


def _of_segments(segments: Segments, query: Any, key: Any, value: Any, scale: float) -> tuple[Any, Any]:
    """Return attention of causal sequences in a batch, and the logarithms[tokens, heads] of its sums."""
    longest, starts = segments.longest, segments.starts
    q, k, v = map(_tokens, (query, key, value))
    out, found = attention_calls.attention_varlen(
        q, k, v, starts, starts, longest, longest, is_causal=True, scale=scale,
        logarithms=True,
    )  # fmt: skip
    return _of_tokens(out, int(query.shape[0])), found


def _gradients_of_segments(
    segments: Segments, slope: Any, query: Any, key: Any, value: Any, out: Any, logarithms: Any, scale: float
) -> list[Any]:
    """Return the gradients of `_of_segments`, without those of other queries."""
    if segments.others is not None:  # they have no weights
        logarithms = logarithms.masked_fill(segments.others[:, None], math.inf)
    of_out, q, k, v, result = map(_tokens, (slope, query, key, value, out))
    found = attention_execution.varlen_gradients(
        of_out, q, k, v, result, logarithms, segments.starts, segments.longest, scale
    )
    return [_of_tokens(each, len(query)) for each in found]


def _plain_gradients(
    slope: Any, query: Any, key: Any, value: Any, sinks: Any, allowed: Any, added: Any, first_keys: Any, how: _Scores,
    runs: Sequence[Run],
) -> list[Any]:  # fmt: skip
    """Return the gradients of query, key, value and sinks in the plain form, those of each run on its keys alone."""
    import torch

    def gradients(given: Sequence[Any], visible: Any, bias: Any, first: Any, of_out: Any) -> Any:
        leaves = [None if each is None else each.detach().requires_grad_() for each in (*given, sinks)]
        q, k, v, sink = leaves
        if how.grouped:
            k, v = _for_each_head(q, k), _for_each_head(q, v)
        if first is not None:
            q, k, v, visible, bias = _without_left_padding(q, k, v, visible, bias, first)
        out = plain_attention(q, k, v, visible, bias, replace(how, sinks=sink))
        found = torch.autograd.grad(out, [each for each in leaves if each is not None], of_out)
        return found if sinks is not None else (*found, None)

    with torch.enable_grad():
        return _gradients_of_runs(gradients, slope, query, key, value, allowed, added, first_keys, runs)


def _gradients_of_runs(
    gradients: Callable[..., Any], slope: Any, query: Any, key: Any, value: Any, allowed: Any, added: Any,
    first_keys: Any, runs: Sequence[Run],
) -> list[Any]:  # fmt: skip
    """Return the sums of gradients of each run, and of all other queries."""
    main = _without_runs(allowed, runs)
    of_query, of_key, of_value, of_sinks = gradients((query, key, value), main, added, first_keys, slope)
    for each in runs:
        *given, visible, bias = _part(each, query, key, value, allowed, added)
        rows, queries, keys = _sequences_of(each), slice(each.begin, each.end), slice(each.first, each.last)
        found = gradients(given, visible, bias, None, slope[rows, :, queries])
        of_query[rows, :, queries] = found[0]
        of_key[rows, :, keys] += found[1]
        of_value[rows, :, keys] += found[2]
        of_sinks = None if of_sinks is None else of_sinks + found[3]
    return [of_query, of_key, of_value, of_sinks]


def plain_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, allowed: torch.Tensor | None,
    added: torch.Tensor | None, how: _Scores,
) -> torch.Tensor:  # fmt: skip
    """Return attention by products of matrices and a softmax of rows; its scores and weights have the query's type.

    A query attends to the keys where `allowed` is true; `added` is added to scores.  Keys are those of each head.
    """
    import torch

    scores = torch.matmul(query, key.transpose(-2, -1)).float() * how.scale
    if how.soft_cap is not None:
        scores = torch.tanh(scores / how.soft_cap) * how.soft_cap
    if added is not None:
        scores = scores + added
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
        # A query without keys has no softmax; its weights are 0.
        scores = torch.where(allowed.any(-1, keepdim=True), scores, torch.zeros_like(scores))
    if how.sinks is None:
        weights = torch.softmax(scores, -1)
    else:  # in front of the keys: those behind a query's own must not move it
        sinks = how.sinks.float().view(-1, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.softmax(torch.cat([sinks, scores], -1), -1)[..., 1:]
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    # A sum of -0, which a masked key would make +0, becomes +0.
    return torch.matmul(weights.to(query.dtype), value) + 0.0


def _without_left_padding(
    query: Any, key: Any, value: Any, allowed: Any, added: Any, first_keys: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """Return operands whose first keys, which no query of a sequence attends to, are moved behind the last ones."""
    import torch

    keys = int(key.shape[-2])
    if not keys:
        return query, key, value, allowed, added
    place = (torch.arange(keys, device=key.device) + first_keys.view(-1, 1, 1, 1)) % keys  # [sequences, 1, 1, keys]
    rows = place.transpose(-2, -1)

    def moved(x: Any) -> Any:
        return x.gather(-2, rows.expand(*x.shape[:-1], 1).expand(x.shape))

    def moved_columns(x: Any) -> Any:
        shape = torch.broadcast_shapes(x.shape, (len(place), 1, x.shape[-2], keys))
        return x.expand(shape).gather(-1, place.expand(shape))

    return query, moved(key), moved(value), moved_columns(allowed), None if added is None else moved_columns(added)
