"""The parts of attention for few queries: chunks of keys, or all keys of some rows, and the programs that have them."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import lengths_of

LOOKED_UP = gl.constexpr(128)
"""The sequences whose lengths a program loads at once."""


@gluon.jit
def parts_of(
    sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the parts of one chunk of a sequence, the first chunk that its queries see, and the number of chunks."""
    own_queries, own_keys, own_first = lengths_of(
        sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
    )
    lowest, chunks = 0, 1
    if SPLIT:
        if WINDOW:
            lowest = gl.maximum(0, own_first - window + 1) // CHUNK
        chunks = (own_keys + CHUNK - 1) // CHUNK
        lowest = gl.minimum(lowest, gl.maximum(chunks - 1, 0))
        chunks -= lowest
    return (own_queries * GROUP + M - 1) // M * groups, lowest, chunks


@gluon.jit
def sum_of(left, right):
    """Return the sum of two numbers."""
    return left + right


@gluon.jit
def sequence_of_place(
    place, block, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the sequence of a place that is counted from the first part of the sequence `block` on.

    The lengths of LOOKED_UP sequences are loaded at once.  The result is the place, counted from the first part of the
    new block, this block, the sequence, and the number of parts of the sequences of the block before it.  A place
    behind the last has a sequence behind the last.
    """
    ALL: gl.constexpr = gl.BlockedLayout([LOOKED_UP // 32], [32], [gl.num_warps()], [0])
    index, before = place * 0, place * 0
    behind = block < sequences
    while behind:
        width, _, chunks = parts_of(
            block + gl.arange(0, LOOKED_UP, ALL), query_starts, key_starts, key_lengths, queries, keys, first_position,
            window, groups, sequences, M, GROUP, CHUNK, ALIGNED, WINDOW, SPLIT,
        )  # fmt: skip
        up_to = gl.associative_scan(gl.zeros([LOOKED_UP], gl.int32, ALL) + width * chunks, 0, sum_of)
        index = gl.sum((up_to <= place).to(gl.int32), axis=0)
        before = gl.max(gl.where(up_to <= place, up_to, 0), axis=0)
        behind = index == LOOKED_UP
        place = gl.where(behind, place - before, place)
        block = gl.where(behind, block + LOOKED_UP, block)
        behind = behind & (block < sequences)
    return place, block, block + index, before


@gluon.jit
def place_among_equal(place, width, chunks, groups, sequences):
    """Return the sequence, the group of heads, the tile of rows and the chunk of a place on the axis of equal lengths.

    A sequence has `width` parts of each of `chunks` chunks, and the last chunks come last.  Behind the last place is
    the sequence behind the last.
    """
    of_chunk = width * sequences
    sequence = gl.where(place < of_chunk * chunks, place % of_chunk // width, sequences)
    return sequence, place % groups, place % width // groups, place // of_chunk


@gluon.jit
def places_of_longest(
    queries, keys, window, groups,
    M: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the parts of one chunk of a sequence of the longest lengths, and the number of chunks that it may see."""
    chunks = keys * 0 + 1
    if SPLIT:
        chunks = (keys + CHUNK - 1) // CHUNK
        if WINDOW:
            chunks = gl.minimum(chunks, (window + queries + CHUNK - 3) // CHUNK + 1)
    return (queries * GROUP + M - 1) // M * groups, chunks


@gluon.jit
def keys_of_part(
    sequence, tile, chunk, own, window,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the first key of a part's blocks, and their end; a part of whole rows has one block at least."""
    own_queries, own_keys, own_first = own
    begin, end = tile * 0, own_keys
    if CAUSAL:
        last = gl.minimum((tile * M + M - 1) // GROUP, own_queries - 1)
        end = gl.minimum(end, last + own_first + 1)
    if WINDOW:
        begin = gl.minimum(gl.maximum(0, tile * M // GROUP + own_first - window + 1), own_keys - 1) // N * N
    if SPLIT:
        begin, end = gl.maximum(begin, chunk * CHUNK), gl.minimum(end, chunk * CHUNK + CHUNK)
    else:  # a row without keys needs its zeros
        begin = gl.maximum(begin, 0)
        end = gl.maximum(end, begin + 1)
    return begin, end


@gluon.jit
def next_part(
    place, block, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr,
):  # fmt: skip
    """Return the first of a program's parts that has keys, from a place on.

    A part is one chunk of keys, or without SPLIT all keys, for one tile of packed rows.  Places of sequences of given
    lengths are counted from the first part of the sequence `block` on; those of equal lengths have one axis of places,
    on which the last chunks, which may be short, come last.  With ONCE there is a program for each place, and lengths
    that are given have the places of the longest.  The groups of one chunk follow each other, since their keys share
    the pages of memory.  The result is the place, its block, the sequence, the group of heads, the tile of rows, and
    the keys from first to last.
    """
    programs = gl.num_programs(0)
    RAGGED: gl.constexpr = (query_starts is not None) or (key_starts is not None) or (key_lengths is not None)
    if ONCE:
        width, chunks = places_of_longest(queries, keys, window, groups, M, GROUP, CHUNK, WINDOW, SPLIT)
        sequence, group, tile, chunk = place_among_equal(place, width, chunks, groups, sequences)
        own = lengths_of(
            sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
        )
        if WINDOW and SPLIT:
            _, lowest, _ = parts_of(
                sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups,
                sequences, M, GROUP, CHUNK, ALIGNED, WINDOW, SPLIT,
            )  # fmt: skip
            chunk += lowest
        begin, end = keys_of_part(sequence, tile, chunk, own, window, M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT)
        sequence = gl.where((begin < end) & (tile * M < own[0] * GROUP), sequence, sequences)
    else:
        sequence, group, tile, begin, end = block, 0, 0, 0, 0
        if not RAGGED:  # without the divisions of a place behind the last
            width, _, chunks = parts_of(
                sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups,
                sequences, M, GROUP, CHUNK, ALIGNED, WINDOW, SPLIT,
            )  # fmt: skip
            sequence = gl.where(place < width * chunks * sequences, sequence, sequences)
        while (begin >= end) & (sequence < sequences):
            before = place * 0
            if RAGGED:
                place, block, sequence, before = sequence_of_place(
                    place, block, query_starts, key_starts, key_lengths, queries, keys, first_position, window,
                    groups, sequences, M, GROUP, CHUNK, ALIGNED, WINDOW, SPLIT,
                )  # fmt: skip
            own = lengths_of(
                sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
            )
            width, lowest, chunks = parts_of(
                sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups,
                sequences, M, GROUP, CHUNK, ALIGNED, WINDOW, SPLIT,
            )  # fmt: skip
            if RAGGED:
                own_place = place - before
                group, tile, chunk = own_place % groups, own_place % width // groups, own_place // width
            else:
                sequence, group, tile, chunk = place_among_equal(place, width, chunks, groups, sequences)
            if sequence < sequences:
                begin, end = keys_of_part(
                    sequence, tile, lowest + chunk, own, window, M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT
                )
                if begin >= end:
                    place += programs
    return place, block, sequence, group, tile, begin, end


@gluon.jit
def part_after(
    place, block, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr,
):  # fmt: skip
    """Return the part of a program after the one of a place, as `next_part` does."""
    return next_part(
        place + gl.num_programs(0), block, query_starts, key_starts, key_lengths, queries, keys, first_position, window,
        groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
    )  # fmt: skip


@gluon.jit
def first_part(
    query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr,
):  # fmt: skip
    """Return the first of a program's parts, after the end of the kernel before, whose results may be read then."""
    RAGGED: gl.constexpr = (query_starts is not None) or (key_starts is not None) or (key_lengths is not None)
    if RAGGED:
        gdc_wait()
    place, block, sequence, group, tile, begin, end = next_part(
        gl.program_id(0), gl.program_id(0) * 0, query_starts, key_starts, key_lengths, queries, keys, first_position,
        window, groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
    )  # fmt: skip
    if not RAGGED:
        gdc_wait()
    return place, block, sequence, group, tile, begin, end
