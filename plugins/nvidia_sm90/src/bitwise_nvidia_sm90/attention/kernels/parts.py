"""The parts of attention for few queries: chunks of keys, or all keys of some rows, and the programs that have them."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import lengths_of

AT_ONCE = gl.constexpr(256)
"""The sequences whose lengths are read at once."""


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
def keys_of_sequences(first, query_starts, key_starts, key_lengths, queries, keys, sequences):
    """Return the numbers of 256 sequences from `first` on, and the keys of those that have queries, else 0.

    A sequence counts as one of at most `keys` keys, so that a longer one takes no place of another.
    """
    sequence = first + gl.arange(0, AT_ONCE, gl.BlockedLayout([8], [32], [gl.num_warps()], [0]))
    own_queries, own_keys, _ = lengths_of(
        sequence, query_starts, key_starts, key_lengths, queries, keys, 0, sequences, False
    )
    real = (sequence < sequences) & (own_queries > 0)
    return sequence, gl.where(real, gl.minimum(own_keys, keys), 0)


@gluon.jit
def share_of_longest(own, keys):
    """Return how many 64ths of the longest length sequences of these lengths have, rounded down; at most 63."""
    return (own.to(gl.int64) * 64 // (keys + 1)).to(gl.int32)


@gluon.jit
def sum_of_two(left, right):
    """Return the sum of two integers."""
    return left + right


@gluon.jit
def sequence_of_rank(rank, number, counts):
    """Return the number of the sequence to which a rank belongs, where each has `counts` ranks; and its rank in it.

    Both are 0 where the rank is behind the last, and the number is one more than the sequence's.
    """
    behind = gl.associative_scan(counts, 0, sum_of_two)
    own = (rank >= behind - counts) & (rank < behind)
    return gl.sum(gl.where(own, number + 1, 0), axis=0), gl.sum(gl.where(own, rank - behind + counts, 0), axis=0)


@gluon.jit
def chunk_in_order(
    rank, query_starts, key_starts, key_lengths, queries, keys, sequences, CHUNK: gl.constexpr
):  # fmt: skip
    """Return the sequence and the chunk of a rank: whole chunks come first, and then the shorter ones of all ends.

    Behind the last rank is the sequence behind the last.
    """
    found, chunk = rank * 0, rank * 0
    for first in range(0, sequences, AT_ONCE):
        number, own = keys_of_sequences(first, query_starts, key_starts, key_lengths, queries, keys, sequences)
        one, place = sequence_of_rank(rank, number, own // CHUNK)
        found, chunk, rank = found + one, chunk + place, rank - gl.sum(own // CHUNK, axis=0)
    if found == 0:
        for first in range(0, sequences, AT_ONCE):
            number, own = keys_of_sequences(first, query_starts, key_starts, key_lengths, queries, keys, sequences)
            short = (own % CHUNK > 0).to(gl.int32)
            one, _ = sequence_of_rank(rank, number, short)
            found, rank = found + one, rank - gl.sum(short, axis=0)
            chunk += gl.sum(gl.where(number + 1 == one, own // CHUNK, 0), axis=0)
    return gl.where(found > 0, found - 1, sequences), chunk


@gluon.jit
def sequence_in_order(rank, query_starts, key_starts, key_lengths, queries, keys, sequences):
    """Return the sequence of a rank: longer ones come first, by 64ths of the longest length.

    Behind the last rank is the sequence behind the last.
    """
    size, step = rank * 0, rank * 0 + 32
    while step > 0:
        count = rank * 0
        for first in range(0, sequences, AT_ONCE):
            _, own = keys_of_sequences(first, query_starts, key_starts, key_lengths, queries, keys, sequences)
            count += gl.sum((share_of_longest(own, keys) >= size + step).to(gl.int32), axis=0)
        size, step = gl.where(count > rank, size + step, size), step // 2
    found = rank * 0
    for first in range(0, sequences, AT_ONCE):
        _, own = keys_of_sequences(first, query_starts, key_starts, key_lengths, queries, keys, sequences)
        rank -= gl.sum((share_of_longest(own, keys) > size).to(gl.int32), axis=0)
    for first in range(0, sequences, AT_ONCE):
        number, own = keys_of_sequences(first, query_starts, key_starts, key_lengths, queries, keys, sequences)
        equal = ((share_of_longest(own, keys) == size) & (number < sequences)).to(gl.int32)
        one, _ = sequence_of_rank(rank, number, equal)
        found, rank = found + one, rank - gl.sum(equal, axis=0)
    return gl.where(found > 0, found - 1, sequences)


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
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ORDERED: gl.constexpr,
):  # fmt: skip
    """Return the part of a place: the sequence, the group, the tile, the keys from first to last; whether it is one."""
    sequence, group, tile, chunk = place_among_equal(place, width, chunks, groups, sequences)
    if ORDERED:
        lengths = query_starts, key_starts, key_lengths, queries, keys, sequences
        if SPLIT:
            sequence, chunk = chunk_in_order(place // width, *lengths, CHUNK)
        else:
            sequence = sequence_in_order(place // width, *lengths)
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
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr, ORDERED: gl.constexpr,
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
        sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ORDERED,
    )  # fmt: skip
    if ONCE:
        sequence = gl.where(found, sequence, sequences)
    else:
        while (sequence < sequences) & (found == 0):
            place += gl.num_programs(0)
            sequence, group, tile, begin, end, found = part_of_place(
                place, width, chunks, query_starts, key_starts, key_lengths, queries, keys, first_position, window,
                groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ORDERED,
            )  # fmt: skip
    return place, sequence, group, tile, begin, end


@gluon.jit
def part_after(
    place, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr, ORDERED: gl.constexpr,
):  # fmt: skip
    """Return the part of a program after the one of a place, as `next_part` does."""
    return next_part(
        place + gl.num_programs(0), query_starts, key_starts, key_lengths, queries, keys, first_position, window,
        groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE, ORDERED,
    )  # fmt: skip


@gluon.jit
def first_part(
    query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr, ORDERED: gl.constexpr,
):  # fmt: skip
    """Return the first of a program's parts, after the end of the kernel before, whose results may be read then."""
    RAGGED: gl.constexpr = (query_starts is not None) or (key_starts is not None) or (key_lengths is not None)
    if RAGGED:
        gdc_wait()
    place, sequence, group, tile, begin, end = next_part(
        gl.program_id(0), query_starts, key_starts, key_lengths, queries, keys, first_position,
        window, groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE, ORDERED,
    )  # fmt: skip
    if not RAGGED:
        gdc_wait()
    return place, sequence, group, tile, begin, end
