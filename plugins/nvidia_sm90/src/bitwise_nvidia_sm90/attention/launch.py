"""Launches of the attention kernels on tensors: the schedule of a call, its buffers, its arguments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from bitwise_core.descriptors import AttentionDesc, DescriptorError
from bitwise_core.plugins.attention_calls import AttentionOperands, RepeatedAttention
from bitwise_nvidia_sm90.attention.few_rows import CHUNK, Division, Work, division_of
from bitwise_nvidia_sm90.attention.few_rows_choices import CHOICES
from bitwise_nvidia_sm90.attention.prepared import Call, Workspace, launch


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a call is divided among programs; it decides no bits.

    A program has `rows` rows, a multiple of 64: of one query head, or with `packed` of all heads of a group.  With
    `split` a program visits `span` chunks of keys, and another kernel merges the chunks.  With `maps` keys and values
    are copied through tensor maps, where their addresses allow it.  With `specialised`, for operands of which
    `can_specialise` says so, one warp copies and two warpgroups compute 64 of 128 rows each.  With `programs`, for
    operands of which `can_take_turns` says so, that number of programs take chunks, or without `split` all chunks of a
    tile of rows, in turn, and their copies fill `stages` tiles of keys or of values; with 16 rows there is a program
    for each part, and tiles have one or four `blocks`.  The registers leave room for `resident` of these programs on a
    multiprocessor.  With `merged`, a program of the kernel that merges their chunks has so many rows, else components
    of one.  With `ordered` programs take the long parts of all sequences first; windows have no such order.
    """

    rows: int
    packed: bool
    split: bool
    stages: int
    maps: bool = True
    specialised: bool = False
    span: int = 1
    programs: int = 0
    blocks: int = 1
    resident: int = 1
    alone: bool = False
    merged: int = 0
    ordered: bool = False

    @property
    def warps(self) -> int:
        """Four for 16 rows, which exchange their weights before these are added, or one alone; else one for 16 rows."""
        if self.programs and self.rows == _FEW_ROWS:
            return 1 if self.alone else 4
        return 4 if self.specialised else self.rows // 16


_SPECIALISED_STAGES = {(96, 96): 3, (128, 128): 2, (192, 128): 3, (256, 256): 2}
"""The blocks of keys in memory, by the widths of heads that may be specialised; narrower ones are slower so."""
_SPECIALISED_ROWS = 128
"""The least number of queries for it."""
_FEW_ROWS = 16
"""The most packed rows that the warps of a program share."""
_MANY_ROWS, _FEW_CHUNKS = 512, 10
"""From how many packed rows on, and up to how many chunks, a program that merges has several rows."""
_BLOCKS_OF_WARPS = 4
"""The blocks of a tile of which each of four warps computes the scores of one."""
_MEMORY, _RESERVED = 227 << 10, 2048
"""The bytes of shared memory of a multiprocessor, and those of a program for barriers and numbers of rows."""
_ROWS_WIDTHS = ((64, 64), (128, 128))
"""The widths of heads of which programs may take chunks in turn."""
_FEW_ROWS_WIDTHS = (*_ROWS_WIDTHS, (96, 96), (192, 128), (256, 256))
"""Those of few rows."""


def schedule_of(
    desc: AttentionDesc, sequences: int, queries: int, keys: int, heads: int, groups: int, ragged: bool,
    processors: int, turns: bool = False, width: int | None = None,
) -> Schedule:  # fmt: skip
    """Return the schedule of a call with at most these lengths, on a GPU with this number of multiprocessors.

    `ragged` says that the lengths of sequences may differ, `turns` that programs may take chunks in turn.  They then
    share the chunks that there are.  `width` is that of values, by default that of keys.
    """
    assert desc.chunk is not None
    share = heads // groups
    if turns and queries * share <= _FEW_ROWS:
        # A window hides all keys but its own from the programs.
        seen = keys if desc.window is None else min(keys, desc.window + queries)
        work = Work(sequences * groups, seen, queries * share, desc.scores.k, width or desc.scores.k, ragged)
        division = division_of(work, processors, CHOICES[work.depth])
        found = schedule_of_division(division, work.rows, keys, work.heads, processors)
        assert found is not None
        return found
    wide = desc.key_block == 128  # its tiles leave room for one program on a multiprocessor
    packed = share > 1 and queries <= 64
    programs = sequences * (groups if packed else heads) * -(-queries * (share if packed else 1) // 64)
    chunks = -(-keys // desc.chunk)
    parts = sequences * groups * -(-queries * share // 64) * chunks
    few = queries * share <= 512 and chunks > 1
    if turns and few and parts > processors:
        resident = processors if wide else 4 * processors
        uneven = ragged or 8 * programs < 7 * resident * -(-programs // resident)
        if uneven and (chunks > 2 or programs < processors):
            # Fewer copies at a time would leave memory idle, and more of them slow it down.  With pages, several
            # programs on a multiprocessor hide the time that it takes to start the copies.
            if wide and ragged and parts > 2 * processors:
                return Schedule(64, True, True, 3, programs=2 * processors, resident=2)
            resident = 1 if wide else 3
            return Schedule(64, True, True, 4 if wide else 3, programs=processors * resident, resident=resident)
    elif turns and few:
        return Schedule(64, True, True, 4 if wide else 8, programs=processors)
    short = 8 * programs < 7 * processors
    if not (few and (short or (ragged and keys > 16 * desc.chunk))):
        many = wide and not packed and queries > 64
        return Schedule(128 if many else 64, packed, False, 2 if desc.scores.k > 128 or many else 3)
    # One program on each multiprocessor: its copies run ahead from chunk to chunk.
    span = -(-parts // processors)
    # Several chunks need memory for a state beside that of the copies.
    return Schedule(64, True, True, 2 if desc.scores.k > 128 or (wide and span > 1) else 3, span=span)


def schedule_of_division(
    division: Division, rows: int, keys: int, heads: int, processors: int = 132
) -> Schedule | None:  # fmt: skip
    """Return the schedule of a division of so many rows with at most `keys` keys; None for one chunk that it splits.

    Each has `heads` packed rows.  `processors` are the multiprocessors of the GPU.
    """
    chunks = -(-keys // CHUNK)
    if division.split and chunks == 1:
        return None
    parts = rows * (chunks if division.split else 1)
    return Schedule(
        _FEW_ROWS, True, division.split, division.stages, blocks=division.blocks, programs=parts,
        resident=division.resident, alone=division.alone,
        merged=_merged_rows(rows * heads, chunks, processors) if division.split else 0,
    )  # fmt: skip


def _merged_rows(rows: int, chunks: int, processors: int) -> int:
    """Return how many of so many rows a program merges; 0 where there are too few rows for that, or many chunks."""
    if rows < _MANY_ROWS or chunks > _FEW_CHUNKS:
        return 0
    return min(16, max(4, power_above(-(-rows // (12 * processors)))))


@cache
def _processors(device: int) -> int:
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def check_operands(desc: AttentionDesc, operands: AttentionOperands) -> None:
    """Raise DescriptorError where the operands are not those of the descriptor."""
    if (operands.sinks is not None) != desc.sink:
        raise DescriptorError("sinks are given for a descriptor with sink, and only for such a one")
    page = operands.key.shape[1] if operands.page_table is not None else 16
    if page & (page - 1) or not 16 <= page <= 256:
        raise DescriptorError(f"pages of {page} keys have no kernel: give pages of 16, 32, 64, 128 or 256 keys")


def tensor_maps(desc: AttentionDesc, operands: AttentionOperands) -> tuple[Any, Any, Any]:
    """Return the maps of the first components of keys, of the rest, and of values; None for each without."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    if operands.page_table is not None or 0 in operands.key.shape or desc.stored_dtype is not None:
        return None, None, None
    tensors = []
    for each in (operands.key, operands.value):
        tensor = (each if operands.key_starts is None else each[None]).transpose(1, 2)
        if tensor.data_ptr() % 16 or any(step * tensor.element_size() % 16 for step in tensor.stride()[:3]):
            return None, None, None
        tensors.append(tensor)

    def made(tensor: Any, width: int) -> Any:
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), [1, 1, desc.key_block, width])

    depth = desc.scores.k
    rest = made(tensors[0], depth - _power_below(depth)) if depth > _power_below(depth) else None
    return made(tensors[0], _power_below(depth)), rest, made(tensors[1], power_above(operands.value.shape[-1]))


def specialised_schedule(widths: tuple[int, int]) -> Schedule:
    """Return the specialised schedule for the widths of a head, of query and key and of value."""
    return Schedule(128, False, False, _SPECIALISED_STAGES[widths], specialised=True)


def can_specialise(desc: AttentionDesc, operands: AttentionOperands) -> bool:
    """Return whether a schedule may be specialised: no mask, some widths of heads, and tensors with tensor maps.

    Keys and values have the type of the query.
    """
    query, key, value = operands.query, operands.key, operands.value
    return (
        operands.visible is None
        and desc.stored_dtype is None
        and (desc.scores.k, value.shape[-1]) in _SPECIALISED_STAGES
        and operands.longest_keys > 0
        and not any(0 in each.shape for each in (query, key))
        and all(has_map(each) for each in (query, key, value))
    )


def can_take_turns(desc: AttentionDesc, operands: AttentionOperands) -> bool:
    """Return whether programs may take chunks in turn: no mask, keys through tensor maps, and some widths of heads.

    Keys and values have the type of the query.
    """
    rows = operands.longest_queries * int(operands.query.shape[-2]) // int(operands.value.shape[-2])
    return (
        operands.visible is None
        and desc.stored_dtype is None
        and (desc.scores.k, operands.value.shape[-1]) in (_FEW_ROWS_WIDTHS if rows <= _FEW_ROWS else _ROWS_WIDTHS)
        and operands.longest_keys > 0
        and 0 not in operands.key.shape
        and has_map(operands.key)
        and has_map(operands.value)
    )


def has_map(tensor: Any) -> bool:
    """Return whether a tensor may be copied through a tensor map."""
    return not (tensor.data_ptr() % 16 or any(step * 2 % 16 for step in tensor.stride()[:-1]))


def tensor_map(tensor: Any, rows: int, width: int | None = None) -> Any:
    """Return a map of a tensor (batch, length, heads, width) for Gluon, by tiles of `rows` of a head.

    A tile has `width` components, by default all.
    """
    return matrix_map(tensor.transpose(1, 2), (1, 1, rows, int(tensor.shape[-1]) if width is None else width))


def matrix_map(tensor: Any, block: tuple[int, ...]) -> Any:
    """Return a map of a tensor for Gluon, by tiles of the shape `block`."""
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    size = tensor.element_size()
    swizzle = min(128, size * block[-1]) if size == 2 else 0
    layout = NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=8 * size, rank=len(block))
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), list(block), layout)


def _specialised_call(
    desc: AttentionDesc, operands: AttentionOperands, schedule: Schedule, processors: int, workspace: Workspace
) -> Call:  # fmt: skip
    """Return the launch of a specialised schedule."""
    query, value, out, logarithms, pages = (
        operands.query, operands.value, operands.out, operands.logarithms, operands.page_table
    )  # fmt: skip
    heads, depth = (int(each) for each in query.shape[-2:])
    groups, width = (int(each) for each in value.shape[-2:])
    sequences = _sequences(operands)
    tiles = -(-operands.longest_queries // schedule.rows)
    dense = operands.query_starts is None

    remote = width > 128  # the states of wide values do not fit the registers
    programs = min(processors, tiles * heads * sequences)
    first, rest = _power_below(depth), depth - _power_below(depth)
    part = power_above(width)
    maps = [
        *_query_maps(operands, first, rest),
        *(_key_map(operands, operands.key, desc.key_block, each) for each in (first, rest)),
        _key_map(operands, value, desc.key_block, part),
    ]  # fmt: skip
    return Call(
        "specialised",
        "forward_specialised",
        (programs, 1, 1),
        (
            *maps, out, logarithms, workspace((2 * programs * 64, width)) if remote else None, *_lengths(operands),
            pages, operands.sinks, *_steps(out, dense), *_steps(logarithms, dense, 0),
            0 if pages is None else pages.stride(0), operands.longest_queries, operands.longest_keys,
            operands.first_position or 0, desc.score_scale, desc.cap_factor or 0.0, desc.window or 0, tiles, heads,
            sequences,
        ),
        {
            "D1": first, "D2": rest, "W": width, "DV": part, "GROUP": heads // groups, "M": schedule.rows,
            "N": desc.key_block, "CHUNK": desc.chunk, "PAGE": _page_size(operands), "STAGES": schedule.stages,
            "CAUSAL": desc.masking == "causal", "ALIGNED": operands.first_position is None,
            "WINDOW": desc.window is not None, "CAP": desc.cap_factor is not None,
            "LOGARITHMS": logarithms is not None,
            "SIDES": 1 if depth == 192 or remote else 2,  # the queries of two tiles would not fit the memory
            "REMOTE": remote, "SHARE": operands.query_share, "STEP": operands.query_step,
        },
        schedule.warps,
        schedule.stages,
    )  # fmt: skip


def _query_maps(operands: AttentionOperands, first: int, rest: int) -> list[Any]:
    """Return the maps of 64 queries by their first components and the rest; None where there is no rest."""
    query = operands.query if operands.query_starts is None else operands.query[None]
    return [tensor_map(query, 64, width) if width else None for width in (first, rest)]


def _key_map(operands: AttentionOperands, tensor: Any, rows: int, width: int, narrow: bool = False) -> Any:
    """Return a map of keys or values by tiles of rows; of pages with fewer rows, and 64 components.  None for none.

    Tiles that are `narrow` have 64 components at most.
    """
    if not width:
        return None
    page = _page_size(operands)
    if 0 < page < rows:
        rows, narrow = page, True
    if narrow:
        width = min(width, 64)
    return tensor_map(tensor if operands.key_starts is None else tensor[None], rows, width)


def _page_size(operands: AttentionOperands) -> int:
    """Return the number of keys of a page, 0 without pages."""
    return 0 if operands.page_table is None else int(operands.key.shape[1])


def _lengths(operands: AttentionOperands) -> tuple[Any, Any, Any]:
    """Return the tensors that give the lengths of sequences."""
    return operands.query_starts, operands.key_starts, operands.key_lengths


def _turns_calls(
    desc: AttentionDesc, operands: AttentionOperands, schedule: Schedule, workspace: Workspace
) -> list[Call]:  # fmt: skip
    """Return the launches of a schedule in which programs take chunks in turn."""
    assert desc.chunk is not None
    query, out, logarithms, pages = operands.query, operands.out, operands.logarithms, operands.page_table
    heads, depth = (int(each) for each in query.shape[-2:])
    groups, sequences, queries, keys = (
        int(operands.key.shape[-2]), _sequences(operands), operands.longest_queries, operands.longest_keys
    )  # fmt: skip
    share = heads // groups
    tiles, chunks = -(-queries * share // schedule.rows), -(-keys // desc.chunk)
    places = sequences * groups * tiles
    if schedule.split:
        touched = chunks if desc.window is None else (desc.window + queries + desc.chunk - 3) // desc.chunk + 1
        places *= min(chunks, touched)
    # Few rows have a program for each part.
    programs = places if schedule.rows == _FEW_ROWS else min(schedule.programs, places)
    stored = _stored_rows(operands, schedule)
    width = int(operands.value.shape[-1])
    dense = operands.query_starts is None
    states: tuple[Any, Any, Any] = None, None, None
    merge: list[Call] = []
    if schedule.split:
        states = _states(sequences * groups * tiles * chunks * stored, width, workspace)
        merging = _merge_of_rows_call if schedule.merged else _merge_call
        merge = [merging(desc, operands, schedule, states, tiles, chunks)]
    if schedule.alone:
        return [_alone_call(desc, operands, schedule, states, places), *merge]
    # A width that is no power of 2 has two parts.
    first, rest = _power_below(depth), depth - _power_below(depth)
    own, own_rest = _power_below(width), width - _power_below(width)
    apart = schedule.blocks == _BLOCKS_OF_WARPS
    maps = [_key_map(operands, operands.key, desc.key_block, each, apart) for each in (first, rest)]
    maps += [_key_map(operands, operands.value, desc.key_block, each, apart) for each in (own, own_rest)]
    forward = Call(
        "chunk_turns",
        "visit_parts",
        (programs, 1, 1),
        (
            query, *maps, out, logarithms, *states, *_lengths(operands), pages, operands.sinks,
            *_steps(query, dense), *_steps(out, dense), *_steps(logarithms, dense, 0),
            0 if pages is None else pages.stride(0), queries, keys, operands.first_position or 0, desc.score_scale,
            desc.cap_factor or 0.0, desc.window or 0, tiles, groups, chunks, sequences, stored,
        ),
        {
            "D1": first, "D2": rest, "DV1": own, "DV2": own_rest, "VP": power_above(width), "GROUP": share,
            "M": schedule.rows, "N": schedule.blocks * desc.key_block, "BLOCK": desc.key_block, "CHUNK": desc.chunk,
            "PAGE": _page_size(operands), "STAGES": schedule.stages, "CAUSAL": desc.masking == "causal",
            "ALIGNED": operands.first_position is None, "WINDOW": desc.window is not None,
            "CAP": desc.cap_factor is not None, **_division(desc, schedule, chunks), "ONCE": programs >= places,
            "LOGARITHMS": logarithms is not None,
            "VALUES": value_slots(schedule, desc.key_block, depth, width) if apart else 0,
        },
        schedule.warps,
        1,
        dependent=True,
        registers=_registers(schedule),
    )  # fmt: skip
    return [forward, *merge]


def value_slots(schedule: Schedule | Division, block: int, depth: int, width: int) -> int:
    """Return the slots for blocks of values beside tiles of keys, where each warp has a block of keys.

    They are those of two tiles or of one, or two where a block takes 32 KiB.
    """
    if block * width >= 1 << 14:
        return 2
    room = _MEMORY // schedule.resident - _RESERVED - 2 * block * _BLOCKS_OF_WARPS * (16 + schedule.stages * depth)
    return (2 if 4 * block * _BLOCKS_OF_WARPS * width <= room else 1) * _BLOCKS_OF_WARPS


def _alone_call(
    desc: AttentionDesc, operands: AttentionOperands, schedule: Schedule, states: tuple[Any, Any, Any], places: int
) -> Call:
    """Return the launch of programs of one warp that take the parts of so many places."""
    assert desc.chunk is not None
    query, out, logarithms, pages = operands.query, operands.out, operands.logarithms, operands.page_table
    heads, depth = (int(each) for each in query.shape[-2:])
    groups, width = (int(each) for each in operands.value.shape[-2:])
    sequences, queries, keys = _sequences(operands), operands.longest_queries, operands.longest_keys
    share, dense = heads // groups, operands.query_starts is None
    tiles, chunks = -(-queries * share // schedule.rows), -(-keys // desc.chunk)
    components = min(64, depth & -depth)
    return Call(
        "part_of_one_warp",
        "compute_part",
        (places, 1, 1),
        (
            query, *(_key_map(operands, each, desc.key_block, components) for each in (operands.key, operands.value)),
            out, logarithms, *states, *_lengths(operands), pages, operands.sinks, *_steps(query, dense),
            *_steps(out, dense), *_steps(logarithms, dense, 0), 0 if pages is None else pages.stride(0), queries, keys,
            operands.first_position or 0, desc.score_scale, desc.cap_factor or 0.0, desc.window or 0, tiles, groups,
            chunks, sequences, _stored_rows(operands, schedule),
        ),
        {
            "S": components, "KP": depth // components, "VP": width // components, "WIDTH": power_above(width),
            "GROUP": share, "M": schedule.rows, "N": desc.key_block, "CHUNK": desc.chunk, "PAGE": _page_size(operands),
            "STAGES": schedule.stages, "CAUSAL": desc.masking == "causal", "ALIGNED": operands.first_position is None,
            "WINDOW": desc.window is not None, "CAP": desc.cap_factor is not None,
            **_division(desc, schedule, chunks), "LOGARITHMS": logarithms is not None,
        },
        schedule.warps,
        1,
        dependent=True,
        registers=_registers(schedule),
    )  # fmt: skip


def _division(desc: AttentionDesc, schedule: Schedule, chunks: int) -> dict[str, Any]:
    """Return the constants of kernels whose programs take parts: how they divide `chunks` of a row."""
    return {
        "SPLIT": schedule.split,
        "SEVERAL": chunks > 1 and not schedule.split,
        "ORDERED": schedule.ordered and desc.window is None,
    }


def _registers(schedule: Schedule) -> int:
    """Return the registers of a thread with which a multiprocessor has room for its programs.

    One or two programs of 16 rows leave some for the next kernel, which starts before the last of them end.
    """
    if schedule.alone:
        return min(248, (1 << 16) // (32 * schedule.resident) // 8 * 8)
    threads = 32 * (schedule.warps + 4)  # those of the warp that copies are allocated as of four
    shared = 1 << 16 if schedule.rows > _FEW_ROWS or schedule.resident > 2 else 13 << 12
    return min(224, shared // (threads * schedule.resident) // 8 * 8)


def _steps(tensor: Any, dense: bool, inner: int = 1) -> tuple[int, int, int]:
    """Return the strides of a sequence, a row and a head, without `inner` last axes; 0 for an axis that is missing."""
    if tensor is None:
        return 0, 0, 0
    strides = tensor.stride()
    strides = strides[: len(strides) - inner]
    return tuple(strides) if dense else (0, *strides)


def _stored_rows(operands: AttentionOperands, schedule: Schedule) -> int:
    """Return the rows of a part's state: those of a tile, or the packed rows of a sequence where they are fewer."""
    share = int(operands.query.shape[-2]) // int(operands.value.shape[-2]) if schedule.packed else 1
    return min(schedule.rows, operands.longest_queries * share)


def _states(rows: int, width: int, workspace: Workspace) -> tuple[Any, Any, Any]:
    """Return tensors for the maxima, the denominators and the outputs of a number of rows."""
    return workspace((rows,)), workspace((rows,)), workspace((rows, power_above(width)))


def _merge_call(
    desc: AttentionDesc, operands: AttentionOperands, schedule: Schedule, states: tuple[Any, Any, Any], tiles: int,
    chunks: int,
) -> Call:  # fmt: skip
    """Return the launch that merges the chunks of packed rows."""
    out, logarithms = operands.out, operands.logarithms
    heads, groups, width = int(out.shape[-2]), int(operands.value.shape[-2]), int(out.shape[-1])
    share, dense = heads // groups, operands.query_starts is None
    factors = min(256, max(8, power_above(chunks)))
    warps = power_above(width) // 32 if factors <= 32 else 1  # few rows of many chunks need many programs
    return Call(
        "merges",
        "merge_parts",
        (operands.longest_queries * share * (power_above(width) // (32 * warps)), groups, _sequences(operands)),
        (
            *states, out, logarithms, operands.query_starts, operands.key_starts, operands.key_lengths,
            operands.first_keys, operands.sinks, *_steps(out, dense), *_steps(logarithms, dense, 0),
            operands.longest_queries, operands.longest_keys, operands.first_position or 0, desc.output_scale or 1.0,
            desc.window or 0, tiles, chunks, _stored_rows(operands, schedule),
        ),
        {
            "DV": width, "DVP": power_above(width), "GROUP": share, "M": schedule.rows, "N": desc.key_block,
            "CHUNK": desc.chunk, "CAUSAL": desc.masking == "causal", "ALIGNED": operands.first_position is None,
            "WINDOW": desc.window is not None, "LOGARITHMS": logarithms is not None, "SINKS": desc.sink,
            "SCALED": desc.output_scale is not None, "GROUPED": min(16, factors), "FACTORS": factors, "WARPS": warps,
        },
        warps,
        1,
        dependent=True,
    )  # fmt: skip


def _merge_of_rows_call(
    desc: AttentionDesc, operands: AttentionOperands, schedule: Schedule, states: tuple[Any, Any, Any], tiles: int,
    chunks: int,
) -> Call:  # fmt: skip
    """Return the launch that merges the chunks of packed rows, several of which a program has."""
    out, logarithms = operands.out, operands.logarithms
    heads, groups, width = int(out.shape[-2]), int(operands.value.shape[-2]), int(out.shape[-1])
    dense, sequences = operands.query_starts is None, _sequences(operands)
    return Call(
        "merges_of_rows",
        "merge_rows",
        (-(-operands.longest_queries * heads * sequences // schedule.merged), 1, 1),
        (
            *states, out, logarithms, *_lengths(operands), operands.sinks, *_steps(out, dense),
            *_steps(logarithms, dense, 0), operands.longest_queries, operands.longest_keys,
            operands.first_position or 0, desc.window or 0, tiles, groups, chunks, sequences,
            _stored_rows(operands, schedule),
        ),
        {
            "DV": width, "DVP": power_above(width), "GROUP": heads // groups, "M": schedule.rows, "N": desc.key_block,
            "CHUNK": desc.chunk, "CAUSAL": desc.masking == "causal", "ALIGNED": operands.first_position is None,
            "WINDOW": desc.window is not None, "LOGARITHMS": logarithms is not None, "ROWS": schedule.merged,
        },
        4,
        1,
        dependent=True,
    )  # fmt: skip


def _power_below(number: int) -> int:
    return 1 << number.bit_length() - 1


def power_above(number: int) -> int:
    """Return the least power of 2 that is not below a positive number."""
    return 1 << (number - 1).bit_length()


def chosen_schedule(desc: AttentionDesc, operands: AttentionOperands, processors: int) -> Schedule:
    """Return the schedule of operands on a GPU with this number of multiprocessors."""
    ragged = operands.key_starts is not None or operands.key_lengths is not None
    heads, groups = int(operands.query.shape[-2]), int(operands.value.shape[-2])
    found = schedule_of(
        desc, _sequences(operands), operands.longest_queries, operands.longest_keys, heads, groups, ragged, processors,
        can_take_turns(desc, operands), int(operands.value.shape[-1]),
    )  # fmt: skip
    if found.rows == _FEW_ROWS and operands.key_starts is not None and found.programs > found.resident * processors:
        # Where not all parts run at once, programs end together if the last ones are short.  With pages the first
        # ones are read before the lengths are known, which saves as much.
        return replace(found, ordered=True)
    many = not found.packed and operands.longest_queries >= _SPECIALISED_ROWS
    apart = (operands.query_share, operands.query_step) != (1, 1)
    if (many or apart) and can_specialise(desc, operands):
        return specialised_schedule((desc.scores.k, int(operands.value.shape[-1])))
    return found


def _sequences(operands: AttentionOperands) -> int:
    starts = operands.query_starts
    return int(operands.query.shape[0] if starts is None else starts.shape[0] - 1)


def calls_of(
    desc: AttentionDesc, operands: AttentionOperands, schedule: Schedule, processors: int, workspace: Workspace
) -> list[Call]:
    """Return the launches of a schedule on a GPU with this number of multiprocessors.

    `workspace` returns a tensor of fp32 of a shape.  Tensors need their shape, strides and address alone.  Raises
    DescriptorError.
    """
    check_operands(desc, operands)
    if not schedule.specialised and (operands.query_share, operands.query_step) != (1, 1):
        raise DescriptorError(
            "these operands have no kernel for queries that share a position or are several keys apart: give "
            "query_share=1 and query_step=1"
        )
    if schedule.specialised:
        return [_specialised_call(desc, operands, schedule, processors, workspace)]
    if schedule.programs:
        return _turns_calls(desc, operands, schedule, workspace)
    return _tile_calls(desc, operands, schedule, workspace)


def _tile_calls(
    desc: AttentionDesc, operands: AttentionOperands, schedule: Schedule, workspace: Workspace
) -> list[Call]:  # fmt: skip
    """Return the launches of a schedule in which a program has one tile of rows."""
    assert desc.chunk is not None
    query, key, value, out, logarithms = (
        operands.query, operands.key, operands.value, operands.out, operands.logarithms
    )  # fmt: skip
    paged = operands.page_table is not None
    sequences, packed = _sequences(operands), schedule.packed
    heads, depth = int(query.shape[-2]), int(query.shape[-1])
    groups, width = int(value.shape[-2]), int(value.shape[-1])
    queries, keys, share = operands.longest_queries, operands.longest_keys, heads // groups
    units = groups if packed else heads
    tiles = -(-queries * (share if packed else 1) // schedule.rows)
    chunks = max(1, -(-keys // desc.chunk))
    stored = _stored_rows(operands, schedule)
    states: tuple[Any, Any, Any] = None, None, None
    if schedule.split:
        states = _states(sequences * units * tiles * chunks * stored, width, workspace)

    dense = operands.query_starts is None
    query_steps, out_steps, logarithm_steps = _steps(query, dense), _steps(out, dense), _steps(logarithms, dense, 0)
    dense = operands.key_starts is None
    key_steps, value_steps = _steps(key, dense), _steps(value, dense)
    page_steps = (key_steps[0], value_steps[0], operands.page_table.stride(0)) if paged else (0, 0, 0)
    if paged:
        key_steps, value_steps = (0, *key_steps[1:]), (0, *value_steps[1:])
    packing, words, visible_steps = [], None, (0, 0, 0)
    if operands.visible is not None:
        call, words, visible_steps = mask_call(operands, workspace)
        packing = [call]
    maps = tensor_maps(desc, operands) if schedule.maps else (None, None, None)
    lengths = operands.query_starts, operands.key_starts, operands.key_lengths, operands.first_keys
    numbers = queries, keys, operands.first_position or 0
    forward = Call(
        "chunks",
        "forward",
        (-(-chunks // schedule.span), tiles * units, sequences) if schedule.split else (tiles, units, sequences),
        (
            query, key, value, out, logarithms, *states, *lengths, operands.page_table,
            operands.sinks, words, *maps, *query_steps, *key_steps, *value_steps, *out_steps,
            *logarithm_steps, *page_steps, *visible_steps, *numbers, desc.score_scale, desc.cap_factor or 0.0,
            desc.output_scale or 1.0, desc.window or 0, tiles, chunks, schedule.span, stored,
        ),
        {
            "D": depth, "D1": _power_below(depth), "D2": depth - _power_below(depth), "DV": width,
            "DVP": power_above(width), "GROUP": share, "PACK": packed, "M": schedule.rows, "N": desc.key_block,
            "CHUNK": desc.chunk, "PAGE": int(key.shape[1]) if paged else 0, "CAUSAL": desc.masking == "causal",
            "ALIGNED": operands.first_position is None, "WINDOW": desc.window is not None,
            "CAP": desc.cap_factor is not None, "SPLIT": schedule.split, "SPANS": schedule.span > 1,
            "LOGARITHMS": logarithms is not None, "SINKS": desc.sink,
            "SCALED": desc.output_scale is not None,
        },
        schedule.warps,
        schedule.stages,
    )  # fmt: skip
    if not schedule.split:
        return [*packing, forward]
    return [*packing, forward, _merge_call(desc, operands, schedule, states, tiles, chunks)]


def mask_call(operands: AttentionOperands, workspace: Workspace) -> tuple[Call, Any, tuple[int, int, int]]:
    """Return the launch that packs a mask into words, the memory of the words, and the strides of its rows."""
    visible, first_keys = operands.visible, operands.first_keys
    keys = int(visible.shape[3])
    count = 1 + -(-keys // 128) * 2
    steps = [int(each) for each in visible.stride()]
    # Axes without a stride have one mask; the keys of each sequence may begin at another one.
    kept = steps[0] or first_keys is not None, steps[1], steps[2]
    batches, heads, queries = (int(size) if step else 1 for size, step in zip(visible.shape, kept, strict=False))
    words = workspace((batches * heads * queries, 2 * count))
    arguments = (visible, first_keys, words, *steps, queries, heads, keys, count)
    call = Call("masks", "words_of_rows", (batches * heads * queries, 1, 1), arguments, {"BLOCK": 16}, 4, 1)
    rows = heads * queries * count, queries * count, count
    strides = tuple(row if step else 0 for row, step in zip(rows, kept, strict=True))
    return call, words, (strides[0], strides[1], strides[2])


def attend(
    desc: AttentionDesc, operands: AttentionOperands, schedule: Schedule | None = None
) -> RepeatedAttention | None:
    """Compute attention on the current stream of the current device.

    Return a function that does it again, or None.  Raises DescriptorError.
    """
    query = operands.query
    if operands.first_keys is not None and operands.visible is None:
        raise DescriptorError("first_keys are given without a mask: give visible, the mask of the keys")
    if not operands.out.numel():
        return None
    tensors = (
        query, operands.key, operands.value, operands.query_starts, operands.key_starts, operands.key_lengths,
        operands.page_table, operands.sinks, operands.visible, operands.first_keys, operands.logarithms, operands.out,
    )  # fmt: skip
    numbers = (
        schedule, operands.longest_queries, operands.longest_keys, operands.first_position, operands.query_share,
        operands.query_step,
    )  # fmt: skip

    def calls(workspace: Workspace) -> list[Call]:
        processors = _processors(query.device.index)
        chosen = schedule or chosen_schedule(desc, operands, processors)
        return calls_of(desc, operands, chosen, processors, workspace)

    return launch(desc, numbers, tensors, calls)
