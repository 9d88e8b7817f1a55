"""The parts of attention for few queries: chunks of keys, or all keys of some rows, and the programs that have them."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import lengths_of


@gluon.jit
def first_chunk(own, window, CHUNK: gl.constexpr):
    """Return the first chunk that the queries of a sequence of these lengths see through a window."""
    _, own_keys, own_first = own
    lowest = gl.maximum(0, own_first - window + 1) // CHUNK
    return gl.minimum(lowest, gl.maximum((own_keys + CHUNK - 1) // CHUNK - 1, 0))


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
def part_of_place(
    place, width, chunks, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups,
    sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the part of a place: the sequence, the group, the tile, the keys from first to last; whether it is one."""
    sequence, group, tile, chunk = place_among_equal(place, width, chunks, groups, sequences)
    own = lengths_of(
        sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
    )  # fmt: skip
    if WINDOW and SPLIT:
        chunk += first_chunk(own, window, CHUNK)
    begin, end = keys_of_part(sequence, tile, chunk, own, window, M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT)
    return sequence, group, tile, begin, end, (begin < end) & (tile * M < own[0] * GROUP)


@gluon.jit
def next_part(
    place, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr,
):  # fmt: skip
    """Return the first of a program's parts that has keys, from a place on.

    A part is one chunk of keys, or without SPLIT all keys, for one tile of packed rows.  Places are those of sequences
    of the longest lengths, and the last chunks, which may be short or missing, come last.  With ONCE there is a program
    for each place.  The groups of one chunk follow each other, since their keys share the pages of memory.  The result
    is the place, the sequence, the group of heads, the tile of rows, and the keys from first to last.
    """
    width, chunks = places_of_longest(queries, keys, window, groups, M, GROUP, CHUNK, WINDOW, SPLIT)
    sequence, group, tile, begin, end, found = part_of_place(
        place, width, chunks, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups,
        sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT,
    )  # fmt: skip
    if ONCE:
        sequence = gl.where(found, sequence, sequences)
    else:
        while (sequence < sequences) & (found == 0):
            place += gl.num_programs(0)
            sequence, group, tile, begin, end, found = part_of_place(
                place, width, chunks, query_starts, key_starts, key_lengths, queries, keys, first_position, window,
                groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT,
            )  # fmt: skip
    return place, sequence, group, tile, begin, end


@gluon.jit
def part_after(
    place, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr,
):  # fmt: skip
    """Return the part of a program after the one of a place, as `next_part` does."""
    return next_part(
        place + gl.num_programs(0), query_starts, key_starts, key_lengths, queries, keys, first_position, window,
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
    place, sequence, group, tile, begin, end = next_part(
        gl.program_id(0), query_starts, key_starts, key_lengths, queries, keys, first_position,
        window, groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
    )  # fmt: skip
    if not RAGGED:
        gdc_wait()
    return place, sequence, group, tile, begin, end
