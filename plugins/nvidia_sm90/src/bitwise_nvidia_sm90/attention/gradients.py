"""Launches of the kernels of the gradients of attention on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bitwise_core.descriptors import AttentionGradientDesc, DescriptorError
from bitwise_core.plugins.attention_calls import AttentionGradientTensors, AttentionOperands
from bitwise_nvidia_sm90.attention.launch import Call, launched

_ROWS = 16
"""The rows of a program of `row_products`."""


def gradient_calls(
    desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors,
    workspace: Callable[[tuple[int, ...]], Any], tile: int = 64,
) -> list[Call]:  # fmt: skip
    """Return the launches for the gradients of a call, in tiles of `tile` rows; see `launch.calls_of`.

    Raises DescriptorError.
    """
    if operands.page_table is not None or operands.key_lengths is not None or operands.visible is not None:
        raise DescriptorError(
            "gradients of attention with pages, lengths of keys or a mask have no kernel: give dense keys, or "
            "sequences one after the other, with a causal mask, a window or none"
        )
    query, key, value, out = operands.query, operands.key, operands.value, operands.out
    heads, depth = int(query.shape[-2]), int(query.shape[-1])
    groups, width = int(value.shape[-2]), int(value.shape[-1])
    dense = operands.query_starts is None
    batch, rows = (int(query.shape[0]), int(query.shape[1])) if dense else (1, int(query.shape[0]))
    sequences = batch if dense else int(operands.query_starts.shape[0]) - 1
    delta = workspace((batch, rows, heads))

    def steps(tensor: Any) -> tuple[int, ...]:
        strides = tuple(tensor.stride()[:-1])
        return strides if len(strides) == 3 else (0, *strides)

    padded = 1 << (width - 1).bit_length()
    first = Call(
        "gradients", "row_products", (-(-rows // _ROWS), heads, batch),
        (out, gradients.slope, delta, *steps(out), *steps(gradients.slope), rows, heads),
        {"W": width, "WP": padded, "M": _ROWS}, 4, 1,
    )  # fmt: skip
    constants = {
        "D": depth, "DP": 1 << (depth - 1).bit_length(), "W": width, "WP": padded, "GROUP": heads // groups, "M": 64,
        "N": 64, "CAUSAL": desc.masking == "causal", "ALIGNED": operands.first_position is None,
        "WINDOW": desc.window is not None,
    }  # fmt: skip
    starts = operands.query_starts, operands.key_starts
    inputs = query, key, value, gradients.slope, operands.logarithms, delta
    input_steps = steps(query) + steps(key) + steps(value) + steps(gradients.slope)
    numbers = (
        operands.longest_queries, operands.longest_keys, operands.first_position or 0, desc.score_scale, desc.scale,
        desc.window or 0, rows if dense else 0, heads,
    )  # fmt: skip
    warps, stages = (4, 2) if max(depth, width) <= 128 else (8, 1)
    wide = {"M": tile} if max(depth, width) <= 128 else {}
    return [
        first,
        Call(
            "gradients", "key_gradients", (-(-operands.longest_keys // 64), groups, sequences),
            (
                *inputs, gradients.key, gradients.value, *starts, *input_steps, *steps(gradients.key),
                *steps(gradients.value), *numbers,
            ),
            constants, warps, stages,
        ),
        Call(
            "gradients", "query_gradients", (-(-operands.longest_queries // tile), heads, sequences),
            (*inputs, gradients.query, *starts, *input_steps, *steps(gradients.query), *numbers),
            {**constants, **wide}, warps * tile // 64, stages,
        ),
    ]  # fmt: skip


def attend_gradients(
    desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors
) -> None:
    """Compute the gradients on the current stream of the current device.  Raises DescriptorError."""
    import torch

    def workspace(shape: tuple[int, ...]) -> Any:
        return torch.empty(shape, dtype=torch.float32, device=operands.query.device)

    if not operands.out.numel() or not operands.longest_keys:
        for each in (gradients.query, gradients.key, gradients.value):
            each.zero_()
        return
    for call in gradient_calls(desc, operands, gradients, workspace):
        launched(call)
