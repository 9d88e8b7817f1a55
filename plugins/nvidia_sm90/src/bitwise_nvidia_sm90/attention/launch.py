"""Launches of the attention kernels on tensors: the schedule of a call, its buffers, its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bitwise_core.descriptors import AttentionDesc, DescriptorError
from bitwise_core.plugins.attention_calls import AttentionOperands


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a call is divided among programs; it decides no bits.

    A program has `rows` rows: of one query head, or with `packed` of all heads of a group.  With `split` a program
    visits one chunk of keys, and another kernel merges the chunks.
    """

    rows: int
    packed: bool
    split: bool
    warps: int
    stages: int


def schedule_of(
    desc: AttentionDesc, sequences: int, queries: int, keys: int, heads: int, groups: int, processors: int
) -> Schedule:
    """Return the schedule of a call with these lengths, at most, on a GPU with this number of multiprocessors."""
    assert desc.chunk is not None
    share = heads // groups
    if queries * share > 128 and (share == 1 or queries > 64):
        return Schedule(128, False, False, 8, 2)
    rows = 64
    tiles = -(-queries * share // rows)
    split = keys > desc.chunk and sequences * groups * tiles < 4 * processors
    return Schedule(rows, True, split, 4, 2)


def check_operands(desc: AttentionDesc, operands: AttentionOperands) -> None:
    """Raise DescriptorError where the operands are not those of the descriptor."""
    if (operands.sinks is not None) != desc.sink:
        raise DescriptorError("sinks are given for a descriptor with sink, and only for such a one")
    page = operands.key.shape[1] if operands.page_table is not None else 16
    if page & (page - 1) or not 16 <= page <= 256:
        raise DescriptorError(f"pages of {page} keys have no kernel: give pages of 16, 32, 64, 128 or 256 keys")


def attend(desc: AttentionDesc, operands: AttentionOperands, schedule: Schedule | None = None) -> None:
    """Compute attention on the current stream of the current device.  Raises DescriptorError."""
    import torch

    from bitwise_nvidia_sm90.attention import kernels

    check_operands(desc, operands)
    assert desc.chunk is not None
    query, key, value, out, logarithms = (
        operands.query, operands.key, operands.value, operands.out, operands.logarithms
    )  # fmt: skip
    paged = operands.page_table is not None
    sequences = int(query.shape[0] if operands.query_starts is None else operands.query_starts.shape[0] - 1)
    heads, depth = int(query.shape[-2]), int(query.shape[-1])
    groups, width = int(value.shape[-2]), int(value.shape[-1])
    queries, keys, share = operands.longest_queries, operands.longest_keys, heads // groups
    if not sequences or not queries or not heads:
        return
    if schedule is None:
        processors = torch.cuda.get_device_properties(query.device).multi_processor_count
        schedule = schedule_of(desc, sequences, queries, keys, heads, groups, processors)
    packed = schedule.packed
    units = groups if packed else heads
    tiles = -(-queries * (share if packed else 1) // schedule.rows)
    chunks = max(1, -(-keys // desc.chunk))
    high = 1 << depth.bit_length() - 1
    padded = 1 << (width - 1).bit_length()
    part_top = part_total = part_out = None
    if schedule.split:
        count = sequences * units * tiles * chunks * schedule.rows
        part_out = torch.empty((count, padded), dtype=torch.float32, device=query.device)
        part_top, part_total = torch.empty((2, count), dtype=torch.float32, device=query.device)

    def steps(tensor: Any, batched: bool) -> tuple[int, int, int]:
        """Return the strides of a sequence, a row and a head, 0 for an axis that the tensor has not."""
        if tensor is None:
            return 0, 0, 0
        strides = tensor.stride() if tensor is logarithms else tensor.stride()[:-1]
        return tuple(strides) if batched else (0, *strides)

    dense = operands.query_starts is None
    query_steps, out_steps, logarithm_steps = steps(query, dense), steps(out, dense), steps(logarithms, dense)
    dense = operands.key_starts is None
    key_steps, value_steps = steps(key, dense), steps(value, dense)
    page_steps = (key_steps[0], value_steps[0], operands.page_table.stride(0)) if paged else (0, 0, 0)
    if paged:
        key_steps, value_steps = (0, *key_steps[1:]), (0, *value_steps[1:])
    visible = operands.visible
    visible_steps = (0, 0, 0, 0) if visible is None else visible.stride()
    aligned = operands.first_position is None
    position = 0 if operands.first_position is None else operands.first_position
    causal, window = desc.masking == "causal", desc.window
    shared: dict[str, Any] = {
        "DV": width, "DVP": padded, "GROUP": share, "M": schedule.rows, "N": desc.key_block, "CHUNK": desc.chunk,
        "CAUSAL": causal, "ALIGNED": aligned, "WINDOW": window is not None, "LOGARITHMS": logarithms is not None,
        "SINKS": desc.sink, "enable_fp_fusion": False,
    }  # fmt: skip
    lengths = operands.query_starts, operands.key_starts, operands.key_lengths
    programs = (chunks, tiles * units, sequences) if schedule.split else (tiles, units, sequences)
    kernels.forward[programs](
        query, key, value, out, logarithms, part_top, part_total, part_out, *lengths, operands.page_table,
        operands.sinks, visible, *query_steps, *key_steps, *value_steps, *out_steps, *logarithm_steps, *page_steps,
        *visible_steps, queries, keys, position, desc.score_scale, desc.cap_factor or 0.0, window or 0, tiles, chunks,
        D=depth, D1=high, D2=depth - high, PACK=packed, PAGE=int(key.shape[1]) if paged else 0,
        CAP=desc.cap_factor is not None, SPLIT=schedule.split, num_warps=schedule.warps, num_stages=schedule.stages,
        **shared,
    )  # fmt: skip
    if schedule.split:
        rows = 1
        kernels.merge_parts[(-(-queries * share // rows), units, sequences)](
            part_top, part_total, part_out, out, logarithms, *lengths, operands.sinks, *out_steps, *logarithm_steps,
            queries, keys, position, window or 0, tiles, chunks, ROWS=rows, num_warps=1, **shared,
        )  # fmt: skip
