"""Attention of PyTorch tensors on their device, or by evaluation on the CPU, and its gradients."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
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
from bitwise_torch.ready_launches import ReadyLaunches

if TYPE_CHECKING:
    import torch


class AttentionError(BitwiseError, ValueError):
    """Operands or arguments of attention that do not fit or are not served; the message says what to do."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
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
    query_share: int = 1
    query_step: int = 1


def form_of(
    query: torch.Tensor, value: torch.Tensor, causal: bool, scale: float | None, window: int | None,
    soft_cap: float | None, sink: bool, key_scale: float = 1.0, value_scale: float = 1.0,
) -> AttentionForm:  # fmt: skip
    """Return what decides the descriptor of a call, whose stored keys and values have scales.

    Raises AttentionError for options of other types.
    """
    depth = int(query.shape[-1])
    if window is not None and (isinstance(window, bool) or not isinstance(window, int)):
        raise AttentionError(f"window is {window!r}: give a number of keys, an integer")
    if window is not None and not causal:
        raise AttentionError("a window is the number of keys up to a causal query's own: give is_causal=True")
    return AttentionForm(
        dtype=NAMES.get(str(query.dtype), str(query.dtype)),
        depth=depth,
        width=int(value.shape[-1]),
        scale=(1 / math.sqrt(max(1, depth)) if scale is None else _number("scale", scale))
        * _number("key_scale", key_scale),
        causal=causal,
        window=window,
        soft_cap=None if soft_cap is None else _number("soft_cap", soft_cap),
        sink=sink,
        stored=None if value.dtype == query.dtype else NAMES.get(str(value.dtype), str(value.dtype)),
        output_scale=_number("value_scale", value_scale),
    )


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise AttentionError(f"{name} is {value!r}: give a number") from None


def launcher_of(device: torch.device, form: AttentionForm) -> tuple[AttentionLauncher, AttentionDesc]:
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


def cached_launcher(device: torch.device, form: AttentionForm) -> tuple[AttentionLauncher, AttentionDesc]:
    """Return what `launcher_of` returned for a form before."""
    plugins = registry.default()
    known = _known.get((device, form))
    if known is None or known[0] is not plugins:
        known = _known[device, form] = (plugins, *launcher_of(device, form))
    return known[1:]


READY = ReadyLaunches()
"""The launches of former calls, and of gradients."""


def run(
    call: AttentionCall, form: AttentionForm, logarithms: bool = True
) -> tuple[torch.Tensor, Any, RepeatedAttention | None]:
    """Compute a checked call, on its device or by evaluation; see `attention_calls`.

    The result is the output, the logarithms or None, and what repeats its launch by addresses, or None.
    """
    import torch

    launcher, desc = cached_launcher(call.query.device, form)
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
        query_share=call.query_share, query_step=call.query_step,
    )  # fmt: skip
    launch = None
    if query.device.type == "cpu":
        _evaluate(desc, operands)
    else:
        launch = launcher.attend(desc, operands)
    copied = query is not call.query or key is not call.key or value is not call.value
    return out, found, None if copied else launch


def run_again(call: AttentionCall, form: AttentionForm) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a checked call with its logarithms, by one look-up where it ran before."""
    operands = call.query, call.key, call.value
    dense = call.query_starts is call.page_table is call.key_lengths is call.sinks is call.visible is None
    rest = form, call.first_position
    repeated, key = READY.run_several("attention with logarithms", operands, rest) if dense else (None, None)
    if repeated is not None:
        found, out = repeated
        return out, found
    out, found, launch = run(call, form)
    if key is not None and launch is not None:
        READY.keep_several(key, operands, (found, out), launch)
    return out, found


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
                k, v = (np.zeros((1, each.shape[1]), each.dtype) for each in (k, v))
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

    kind, pattern = (torch.uint8, np.uint8) if matrix.element_size() == 1 else (torch.int16, np.uint16)
    return matrix.contiguous().view(kind).numpy().view(pattern)


_known_gradients: dict[tuple[torch.device, AttentionForm], tuple[Any, AttentionGradientDesc]] = {}
"""The launchers and descriptors of former gradients."""


def gradient_launcher(device: torch.device, form: AttentionForm) -> tuple[Any, AttentionGradientDesc]:
    """Return the launcher of gradients of a form, and their descriptor.  Raises AttentionError."""
    launcher, _ = cached_launcher(device, form)
    known = _known_gradients.get((device, form))
    if known is None or known[0] is not launcher:
        if not isinstance(launcher, AttentionGradientLauncher):
            raise AttentionError(f"{launcher.name} computes no gradients: call attention inside torch.no_grad()")
        desc = launcher.attention_gradient_descriptor(form)
        known = _known_gradients[device, form] = launcher, desc
    return known


def gradients_of(
    slope: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logarithms: torch.Tensor, query_starts: torch.Tensor | None, key_starts: torch.Tensor | None,
    longest_queries: int | None, longest_keys: int | None, first_position: int | None, form: AttentionForm,
) -> list[torch.Tensor]:  # fmt: skip
    """Return the gradients of query, key and value of a call with these results.  Raises AttentionError."""
    import torch

    starts = () if query_starts is None or key_starts is None else (query_starts, key_starts)
    tensors = (slope, query, key, value, out, logarithms, *starts)
    rest = form, longest_queries, longest_keys, first_position
    repeated, ready = READY.run_several("gradients of attention", tensors, rest)
    if repeated is not None:
        return repeated
    launcher, desc = gradient_launcher(query.device, form)
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
        READY.keep_several(ready, tensors, found, launch)
    return found


def varlen_gradients(
    slope: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logarithms: torch.Tensor, starts: torch.Tensor, longest: int, scale: float,
) -> list[torch.Tensor]:  # fmt: skip
    """Return the gradients of query, key and value of a causal `attention_varlen` from its results, with as many keys.

    `slope` is the gradient of the output, `starts` are those of the sequences, and `longest` is the greatest length.
    Raises AttentionError.
    """
    form = form_of(query, value, True, scale, None, None, False)
    return gradients_of(slope, query, key, value, out, logarithms, starts, starts, longest, longest, None, form)


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
