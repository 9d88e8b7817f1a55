"""Launches of the kernels of the gradients of attention on tensors."""

from __future__ import annotations

from itertools import chain
from typing import Any

from bitwise_core.descriptors import AttentionGradientDesc, DescriptorError
from bitwise_core.plugins.attention_calls import AttentionGradientTensors, AttentionOperands, RepeatedAttention
from bitwise_nvidia_sm90.attention.launch import has_map, matrix_map, power_above, tensor_map
from bitwise_nvidia_sm90.attention.prepared import Call, Workspace, launch

_ROWS = 16
"""The rows of a program of `row_numbers`."""
_BLOCK = 64
"""The queries or keys of a step of a program."""
_LOW = 128
"""The most components of a tile of the specialised kernels, which others follow."""
_SUMMED = 8
"""The rows of a program of `sum_of_heads`."""


def gradient_calls(
    desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors,
    workspace: Workspace, *, specialised: bool = False,
) -> list[Call]:  # fmt: skip
    """Return the launches for the gradients of a call; see `launch.calls_of`.

    With `specialised` one warp copies and warpgroups compute, which `can_specialise` says where.  Raises
    DescriptorError.
    """
    if operands.page_table is not None or operands.key_lengths is not None or operands.visible is not None:
        raise DescriptorError(
            "gradients of attention with pages, lengths of keys or a mask have no kernel: give dense keys, or "
            "sequences one after the other, with a causal mask, a window or none"
        )
    if desc.heads != "added":
        raise DescriptorError(
            f"the descriptor's heads are {desc.heads!r}: the kernels have 'added' gradients of heads that share keys"
        )
    query, key, value, out = operands.query, operands.key, operands.value, operands.out
    heads, depth = int(query.shape[-2]), int(query.shape[-1])
    groups, width = int(value.shape[-2]), int(value.shape[-1])
    dense = operands.query_starts is None
    batch, rows = (int(query.shape[0]), int(query.shape[1])) if dense else (1, int(query.shape[0]))
    sequences = batch if dense else int(operands.query_starts.shape[0]) - 1
    padded = -(-rows // _BLOCK) * _BLOCK if dense else (-(-rows // 4) + sequences) * 4
    numbers = workspace((2, batch, heads, padded))
    share = heads // groups
    of_keys, of_values = gradients.key, gradients.value
    if share > 1:  # the gradients of each head
        of_keys, of_values = (workspace((*key.shape[:-2], heads, each)) for each in (depth, width))

    first = Call(
        "gradients", "row_numbers", (-(-(padded if dense else operands.longest_queries) // _ROWS), heads, sequences),
        (
            out, gradients.slope, operands.logarithms, numbers, operands.query_starts, *_steps(out),
            *_steps(gradients.slope), rows, heads, padded,
        ),
        {"W": width, "WP": power_above(width), "M": _ROWS}, 4, 1,
    )  # fmt: skip
    forms = {
        "D": depth, "W": width, "GROUP": share, "CAUSAL": desc.masking == "causal",
        "ALIGNED": operands.first_position is None,
    }  # fmt: skip
    lengths = operands.longest_queries, operands.longest_keys, operands.first_position or 0
    scales = desc.score_scale, desc.scale
    sums = [_sum_of_heads(desc, gradients, of_keys, of_values, share)] if share > 1 else []
    starts = operands.query_starts, operands.key_starts
    if specialised:
        return [first, *_specialised_calls(desc, operands, gradients, numbers, (of_keys, of_values), forms, sums)]
    constants = {
        **forms, "DP": power_above(depth), "WP": power_above(width), "M": _BLOCK, "N": _BLOCK,
        "WINDOW": desc.window is not None,
    }  # fmt: skip
    inputs = query, key, value, gradients.slope, numbers
    input_steps = _steps(query) + _steps(key) + _steps(value) + _steps(gradients.slope)
    given = *lengths, *scales, desc.window or 0, batch * heads * padded, heads * padded if dense else 0, padded
    warps, stages = (4, 2) if max(depth, width) <= 128 else (8, 1)
    return [
        first,
        Call(
            "gradients", "key_gradients", (-(-operands.longest_keys // _BLOCK), heads, sequences),
            (*inputs, of_keys, of_values, *starts, *input_steps, *_steps(of_keys), *_steps(of_values), *given),
            constants, warps, stages,
        ),
        *sums,
        Call(
            "gradients", "query_gradients", (-(-operands.longest_queries // _BLOCK), heads, sequences),
            (*inputs, gradients.query, *starts, *input_steps, *_steps(gradients.query), *given),
            constants, warps, stages,
        ),
    ]  # fmt: skip


def _specialised_calls(
    desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors, numbers: Any,
    sums: tuple[Any, Any], forms: dict[str, Any], added: list[Call],
) -> list[Call]:  # fmt: skip
    """Return the specialised launches, and after them the launches `added` of the heads of a group.

    The programs of queries start while the last ones of keys are computed.  `numbers` are those of the rows, and `sums`
    are the gradients of keys and values of each head.
    """
    query, key, value, slope = operands.query, operands.key, operands.value, gradients.slope
    heads, depth, width = int(query.shape[-2]), int(query.shape[-1]), int(value.shape[-1])
    dense = operands.query_starts is None
    sequences = int(query.shape[0]) if dense else int(operands.query_starts.shape[0]) - 1
    wide = max(depth, width) > _LOW
    narrow = depth == 64  # the registers have room for operands that stay, or for a third warpgroup
    stages = 3 if depth <= 192 else 2
    # Two steps of wide heads fit the memory with fewer keys.
    rows = _BLOCK // 2 if wide else _BLOCK
    of_blocks = [_maps(each, dense, _BLOCK) for each in (query, key, value, slope)]
    of_steps = [_maps(each, dense, rows) for each in (key, value)]
    number_map = matrix_map(numbers.flatten(1, 2), (1, 1, _BLOCK))
    padded = depth if wide else power_above(depth)
    forms = {
        **forms, "D": padded, "W": width if wide else padded, "REAL": depth, "STAGES": stages,
        "WINDOW": desc.window is not None,
    }  # fmt: skip
    parts, key_parts = 3 if narrow else 2, 1 if wide else 2
    tiles, key_tiles = (
        -(-longest // (count * _BLOCK))
        for longest, count in ((operands.longest_queries, parts), (operands.longest_keys, key_parts))
    )
    starts = operands.query_starts, operands.key_starts
    shared = (
        operands.longest_queries, operands.longest_keys, operands.first_position or 0, desc.window or 0,
        desc.score_scale, desc.scale,
    )  # fmt: skip
    warps, pipelined = 4, 2 if wide else 3
    return [
        Call(
            "specialised_gradients", "key_gradients_specialised", (key_tiles * heads * sequences, 1, 1),
            (
                *chain(*of_blocks), number_map, *sums, *starts, *_steps(sums[0]), *_steps(sums[1]), *shared, heads,
                sequences,
            ),
            {**forms, "PARTS": key_parts, "KEPT": narrow}, warps, pipelined,
        ),
        Call(
            "specialised_gradients", "query_gradients_specialised", (tiles * heads * sequences, 1, 1),
            (
                *chain(of_blocks[0], *of_steps, of_blocks[3]), numbers, gradients.query, *starts,
                *_steps(gradients.query), *shared, int(numbers.shape[-1]), tiles, heads, sequences,
            ),
            {**forms, "PARTS": parts}, warps, pipelined, dependent=True,
        ),
        *added,
    ]  # fmt: skip


def _maps(tensor: Any, dense: bool, rows: int) -> tuple[Any, Any]:
    """Return maps of a tensor by tiles of some rows, of its first 128 components and of the rest; None without."""
    given, rest = tensor if dense else tensor[None], int(tensor.shape[-1]) - _LOW
    return tensor_map(given, rows, min(power_above(int(tensor.shape[-1])), _LOW)), (
        tensor_map(given, rows, rest) if rest > 0 else None
    )


def _steps(tensor: Any) -> tuple[int, ...]:
    """Return the strides of a batch, a row and a head."""
    strides = tuple(tensor.stride()[:-1])
    return strides if len(strides) == 3 else (0, *strides)


def _sum_of_heads(
    desc: AttentionGradientDesc, gradients: AttentionGradientTensors, of_keys: Any, of_values: Any, share: int
) -> Call:
    """Return the launch that adds the gradients of each `share` heads."""
    rows, groups, depth = (int(each) for each in gradients.key.shape[-3:])
    batch = int(gradients.key.shape[0]) if len(gradients.key.shape) == 4 else 1
    width = int(of_values.shape[-1])
    return Call(
        "gradients", "sum_of_heads", (-(-rows // _SUMMED), groups, batch),
        (
            of_keys, of_values, gradients.key, gradients.value, *_steps(gradients.key), *_steps(gradients.value), rows,
            desc.scale,
        ),
        {
            "D": depth, "DP": power_above(depth), "W": width, "WP": power_above(width), "GROUP": share, "M": _SUMMED,
        },
        4, 1,
    )  # fmt: skip


def can_specialise(
    desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors
) -> bool:
    """Return whether the launches may be specialised: tensors with tensor maps, and heads of 64, 96, 128 or more."""
    tensors = operands.query, operands.key, operands.value, gradients.slope
    return (
        (operands.query_starts is None) == (operands.key_starts is None)
        and (desc.scores.k > 128 or (desc.scores.k in (64, 96, 128) and desc.slopes.k == desc.scores.k))
        and all(has_map(each) for each in tensors)
    )


def attend_gradients(
    desc: AttentionGradientDesc, operands: AttentionOperands, gradients: AttentionGradientTensors,
    specialised: bool | None = None,
) -> RepeatedAttention | None:  # fmt: skip
    """Compute the gradients on the current stream of the current device.

    `specialised` chooses the kernels; it decides no bits.  Return a function that does it again, or None.  Raises
    DescriptorError.
    """
    if not operands.out.numel() or not operands.longest_keys:
        for each in (gradients.query, gradients.key, gradients.value):
            each.zero_()
        return None
    if specialised is None:
        specialised = can_specialise(desc, operands, gradients)
    tensors = (
        gradients.slope, operands.query, operands.key, operands.value, operands.out, operands.logarithms,
        operands.query_starts, operands.key_starts, gradients.query, gradients.key, gradients.value,
    )  # fmt: skip
    numbers = specialised, operands.longest_queries, operands.longest_keys, operands.first_position

    def calls(workspace: Workspace) -> list[Call]:
        return gradient_calls(desc, operands, gradients, workspace, specialised=specialised)

    return launch(desc, numbers, tensors, calls)
