"""The warp that copies the keys and values of all parts of a program to rings of tiles; see `chunk_turns`."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_wait

from bitwise_nvidia_sm90.attention.kernels.parts import first_part, part_after, place_among_equal, places_of_longest
from bitwise_nvidia_sm90.attention.kernels.rings import next_slot
from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import copy_tile, pages_of_tile

PREFETCH = gl.constexpr("prefetch.global.L2 [$1]; mov.b32 $0, 0;")
_LINE = gl.constexpr(64)
"""The components of a line of the cache."""


@gluon.jit
def first_pages(
    source, pages, page_batch, queries, keys, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, PAGE: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the pages of the first tile of a program with one part, before its length is known; () without pages.

    They are read up to the longest length: what is behind the length of a sequence must not be used.
    """
    found = ()
    if PAGE:
        gdc_wait()
        width, chunks = places_of_longest(queries, keys, 0, groups, M, GROUP, CHUNK, False, SPLIT)
        sequence, _, _, chunk = place_among_equal(gl.program_id(0), width, chunks, groups, sequences)
        page = sequence.to(gl.int64) * page_batch
        found = pages_of_tile(source, pages, page, gl.where(sequence < sequences, keys, 0), chunk * CHUNK, N, PAGE)
    return found


@gluon.jit
def known_pages(source, numbers, keys, start, N: gl.constexpr):
    """Return the pages of a tile without those behind the last of `keys` keys."""
    HEIGHT: gl.constexpr = source.block_type.shape[2]
    found = ()
    for part in gl.static_range(len(numbers)):
        found += (gl.where(start + part * HEIGHT < keys, numbers[part], -1),)
    return found


@gluon.jit
def prefetch_queries(
    of_parts, sequence, group, tile, own_queries, query_starts,
    M: gl.constexpr, GROUP: gl.constexpr, D: gl.constexpr,
):  # fmt: skip
    """Bring the queries of a part to the cache, some time before they are needed; one warp."""
    query, query_batch, query_step, query_head = of_parts[0], of_parts[7], of_parts[8], of_parts[9]
    LINES: gl.constexpr = D // _LINE
    L: gl.constexpr = gl.BlockedLayout([max(M * LINES // 32, 1), 1], [32 // LINES, LINES], [1, 1], [1, 0])
    row = tile * M + gl.arange(0, M, gl.SliceLayout(1, L))
    first = query + sequence.to(gl.int64) * query_batch
    if query_starts is not None:
        first = query + gl.load(query_starts + sequence).to(gl.int64) * query_step
    at = gl.minimum(row // GROUP, gl.maximum(own_queries - 1, 0)).to(gl.int64)
    place = first + at * query_step + (group * GROUP + row % GROUP).to(gl.int64) * query_head
    line = gl.expand_dims(gl.arange(0, LINES, gl.SliceLayout(0, L)) * _LINE, 0)
    place = (gl.expand_dims(place, 1) + line).to(gl.int64, bitcast=True)
    gl.inline_asm_elementwise(PREFETCH, "=r,l", [place], gl.int32, False, 1)


@gluon.jit
def copy_keys_apart(
    maps, parts, full, empty, slot, phase, numbers, batch, group, first, start, end,
    N: gl.constexpr, BLOCK: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, PAGE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Copy the blocks of a tile of keys up to `end` to its ring; return the slot after it."""
    mbarrier.wait(empty.index(slot), phase)
    bar = full.index(slot)
    mbarrier.expect(bar, N * (D1 + D2) * 2)
    copy_tile(maps[0], parts[0], slot, bar, numbers, batch, group, first, start, 0, N, D1, PAGE)
    if maps[1] is not None:
        copy_tile(maps[1], parts[1], slot, bar, numbers, batch, group, first, start, D1, N, D2, PAGE)
    return next_slot(slot, phase, STAGES)


@gluon.jit
def copy_values_apart(
    maps, parts, full, empty, slot, phase, numbers, batch, group, first, start, end, FROM: gl.constexpr,
    COUNT: gl.constexpr, BLOCK: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, PAGE: gl.constexpr,
    STAGES: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Copy COUNT blocks of values of a tile, from block FROM on up to `end`, to their ring; return the slot after."""
    HEIGHT: gl.constexpr = maps[2].block_type.shape[2]
    for part in gl.static_range(FROM, FROM + COUNT):
        if start + part * BLOCK < end:
            mbarrier.wait(empty.index(STAGES + slot), phase)
            bar = full.index(STAGES + slot)
            mbarrier.expect(bar, BLOCK * (DV1 + DV2) * 2)
            copy_tile(
                maps[2], parts[2], slot, bar, numbers, batch, group, first, start + part * BLOCK, 0, BLOCK, DV1, PAGE,
                part * (BLOCK // HEIGHT),
            )  # fmt: skip
            if maps[3] is not None:
                copy_tile(
                    maps[3], parts[3], slot, bar, numbers, batch, group, first, start + part * BLOCK, DV1, BLOCK, DV2,
                    PAGE, part * (BLOCK // HEIGHT),
                )  # fmt: skip
            slot, phase = next_slot(slot, phase, VALUES)
    return slot, phase


@gluon.jit
def copy_blocks_apart(
    maps, parts, full, empty, slot, phase, v_slot, v_phase, numbers, pages, page, own_keys, batch, group, first, begin,
    end,
    N: gl.constexpr, BLOCK: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr,
    PAGE: gl.constexpr, STAGES: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Copy the keys and values of a part to rings of their own; return the slots after them.

    The next tile of keys is copied between the values of this one, whose slots may still be read.
    """
    slot, phase = copy_keys_apart(
        maps, parts, full, empty, slot, phase, numbers, batch, group, first, begin, end, N, BLOCK, D1, D2, PAGE, STAGES
    )
    for start in range(begin, end, N):
        next_numbers = pages_of_tile(maps[0], pages, page, own_keys, start + N, N, PAGE)
        v_slot, v_phase = copy_values_apart(
            maps, parts, full, empty, v_slot, v_phase, numbers, batch, group, first, start, end, 0, 2, BLOCK, DV1, DV2,
            PAGE, STAGES, VALUES,
        )  # fmt: skip
        if start + N < end:
            slot, phase = copy_keys_apart(
                maps, parts, full, empty, slot, phase, next_numbers, batch, group, first, start + N, end, N, BLOCK,
                D1, D2, PAGE, STAGES,
            )  # fmt: skip
        v_slot, v_phase = copy_values_apart(
            maps, parts, full, empty, v_slot, v_phase, numbers, batch, group, first, start, end, 2, 2, BLOCK, DV1, DV2,
            PAGE, STAGES, VALUES,
        )  # fmt: skip
        numbers = next_numbers
    return slot, phase, v_slot, v_phase


@gluon.jit
def copy_parts(
    given, of_parts, maps, parts, full, empty, pages, page_batch,
    M: gl.constexpr, N: gl.constexpr, BLOCK: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr,
    DV2: gl.constexpr, GROUP: gl.constexpr,
    CHUNK: gl.constexpr, PAGE: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
    SPLIT: gl.constexpr, STAGES: gl.constexpr, ONCE: gl.constexpr, ORDERED: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Copy the tiles of keys and of values of all parts of a program, as soon as slots of the ring have been read."""
    query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences = given
    key_map, key_rest_map, value_map, value_rest_map = maps
    k_parts, k_rest_parts, v_parts, v_rest_parts = parts
    EARLY: gl.constexpr = ONCE and (PAGE > 0) and not (WINDOW or ORDERED)
    early = ()
    if EARLY:
        early = first_pages(
            key_map, pages, page_batch, queries, keys, groups, sequences, M, N, GROUP, CHUNK, PAGE, SPLIT,
        )  # fmt: skip
    place, sequence, group, tile, begin, end = first_part(
        query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences, M, N, GROUP,
        CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE, ORDERED,
    )  # fmt: skip
    slot, phase = gl.to_tensor(0), gl.to_tensor(1)
    v_slot, v_phase = gl.to_tensor(0), gl.to_tensor(1)
    while sequence < sequences:
        batch, first, own_keys, page = sequence, 0, keys, sequence.to(gl.int64) * page_batch
        if key_starts is not None:
            batch, first = 0, gl.load(key_starts + sequence)
        if PAGE:
            own_keys = gl.load(key_lengths + sequence)
        if not ONCE:
            own_queries = queries
            if query_starts is not None:
                own_queries = gl.load(query_starts + sequence + 1) - gl.load(query_starts + sequence)
            prefetch_queries(of_parts, sequence, group, tile, own_queries, query_starts, M, GROUP, D1)
        if EARLY:
            numbers = known_pages(key_map, early, own_keys, begin, N)
        else:
            numbers = pages_of_tile(key_map, pages, page, own_keys, begin, N, PAGE)
        if VALUES:
            slot, phase, v_slot, v_phase = copy_blocks_apart(
                maps, parts, full, empty, slot, phase, v_slot, v_phase, numbers, pages, page, own_keys, batch, group,
                first, begin, end, N, BLOCK, D1, D2, DV1, DV2, PAGE, STAGES, VALUES,
            )  # fmt: skip
        else:
            for start in range(begin, end, N):
                # The pages of the next tile are read while this one is copied.
                next_numbers = pages_of_tile(key_map, pages, page, own_keys, start + N, N, PAGE)
                mbarrier.wait(empty.index(slot), phase)
                bar = full.index(slot)
                mbarrier.expect(bar, N * (D1 + D2) * 2)
                copy_tile(key_map, k_parts, slot, bar, numbers, batch, group, first, start, 0, N, D1, PAGE)
                if key_rest_map is not None:
                    copy_tile(
                        key_rest_map, k_rest_parts, slot, bar, numbers, batch, group, first, start, D1, N, D2, PAGE
                    )
                slot, phase = next_slot(slot, phase, STAGES)
                mbarrier.wait(empty.index(slot), phase)
                bar = full.index(slot)
                mbarrier.expect(bar, N * (DV1 + DV2) * 2)
                copy_tile(value_map, v_parts, slot, bar, numbers, batch, group, first, start, 0, N, DV1, PAGE)
                if value_rest_map is not None:
                    copy_tile(
                        value_rest_map, v_rest_parts, slot, bar, numbers, batch, group, first, start, DV1, N, DV2, PAGE
                    )  # fmt: skip
                slot, phase = next_slot(slot, phase, STAGES)
                numbers = next_numbers
        if ONCE:
            sequence = sequences
        else:
            place, sequence, group, tile, begin, end = part_after(
                place, query_starts, key_starts, key_lengths, queries, keys,
                first_position, window, groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
                ORDERED,
            )  # fmt: skip
