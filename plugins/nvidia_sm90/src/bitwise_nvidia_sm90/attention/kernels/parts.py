"""The parts of attention for few queries: chunks of keys, or all keys of some rows, and the programs that have them."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import lengths_of

LOOKED_UP = gl.constexpr(128)
"""The sequences whose lengths a program loads at once."""
HANDED = gl.constexpr(2)
"""The SPLIT of programs that have runs of consecutive tiles of keys, and hand the state of a row to the next one."""


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
    if SPLIT == HANDED:  # a row without keys needs its zeros
        chunks = gl.maximum(chunks, 1)
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
def part_of_place(
    place, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the sequence of a place, the group of heads, the tile of rows, and the keys from first to last.

    A place of a tile without rows has no keys.  A place behind the last one has the sequence behind the last.
    """
    width, chunks = places_of_longest(queries, keys, window, groups, M, GROUP, CHUNK, WINDOW, SPLIT)
    sequence, group, tile, chunk = place_among_equal(place, width, chunks, groups, sequences)
    own = lengths_of(sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED)
    if WINDOW and SPLIT:
        _, lowest, _ = parts_of(
            sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
            M, GROUP, CHUNK, ALIGNED, WINDOW, SPLIT,
        )  # fmt: skip
        chunk += lowest
    begin, end = keys_of_part(sequence, tile, chunk, own, window, M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT)
    return sequence, group, tile, begin, gl.where(tile * M < own[0] * GROUP, end, begin)


@gluon.jit
def next_part(
    place, block, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr,
):  # fmt: skip
    """Return the first of a program's parts that has keys, from a place on.

    A part is one chunk of keys, or without SPLIT all keys, for one tile of packed rows.  Lengths that are given have
    the places of the longest, and a program passes over those without keys.  The last chunks, which may be short, come
    last, and the groups of one chunk follow each other, since their keys share the pages of memory.  With ONCE there is
    a program for each place.  The result is the place, `block`, the sequence, the group of heads, the tile of rows, and
    the keys from first to last.
    """
    sequence, group, tile, begin, end = part_of_place(
        place, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences, M, N,
        GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT,
    )  # fmt: skip
    if ONCE:
        sequence = gl.where(begin < end, sequence, sequences)
    else:
        while (begin >= end) & (sequence < sequences):
            place += gl.num_programs(0)
            sequence, group, tile, begin, end = part_of_place(
                place, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
                M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT,
            )  # fmt: skip
    return place, block, sequence, group, tile, begin, end


@gluon.jit
def start_of_run(program, programs, total):
    """Return the first of the places of a program, of which the first programs have one more where they must."""
    return program * (total // programs) + gl.minimum(program, total % programs)


@gluon.jit
def next_handed(
    left, place, sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr,
):  # fmt: skip
    """Return the next part of a program that has `left` more tiles, which end before the tile `place` of a sequence.

    The tiles of a row follow each other, and the rows of a sequence.  A program takes its rows from the last to the
    first, so that it hands on the state of the last one early, and needs that of the first one late.  A place below 0
    is behind the last one of the sequence.  The result has the tiles that are left after the part, the place before
    which they end, and what `next_part` returns.
    """
    group, tile, begin, end = left * 0, left * 0, left * 0, left * 0
    sequence = gl.where(left > 0, sequence, sequences)
    while (begin >= end) & (sequence < sequences):
        own = lengths_of(
            sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
        )
        count = gl.maximum((own[1] + N - 1) // N, 1)  # a row without keys needs its zeros
        if place < 0:
            place = (own[0] * GROUP + M - 1) // M * groups * count
        if place == 0:
            sequence -= 1
            place -= 1
        else:
            row, behind = (place - 1) // count, (place - 1) % count + 1
            group, tile = row % groups, row // groups
            taken = gl.minimum(left, behind)
            _, last = keys_of_part(sequence, tile, 0, own, 0, M, N, GROUP, N, CAUSAL, False, False)
            begin, end = (behind - taken) * N, gl.minimum(last, behind * N)
            place -= taken
            left -= taken
            sequence = gl.where((left > 0) | (begin < end), sequence, sequences)
    return left, place, sequence, group, tile, begin, end


@gluon.jit
def places_of_sequences(
    block, query_starts, key_starts, key_lengths, queries, keys, first_position, groups, sequences,
    M: gl.constexpr, GROUP: gl.constexpr, N: gl.constexpr, ALIGNED: gl.constexpr,
):  # fmt: skip
    """Return the tiles of the rows of LOOKED_UP sequences from `block` on, of each those up to its end."""
    ALL: gl.constexpr = gl.BlockedLayout([LOOKED_UP // 32], [32], [gl.num_warps()], [0])
    sequence = block + gl.arange(0, LOOKED_UP, ALL)
    width, _, count = parts_of(
        sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, 0, groups, sequences, M, GROUP,
        N, ALIGNED, False, HANDED,
    )  # fmt: skip
    own = gl.zeros([LOOKED_UP], gl.int32, ALL) + width * count
    return gl.associative_scan(gl.where(sequence < sequences, own, 0), 0, sum_of)


@gluon.jit
def first_handed(
    query_starts, key_starts, key_lengths, queries, keys, first_position, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr,
):  # fmt: skip
    """Return the first part of a program with a run of tiles; see `next_handed`."""
    RAGGED: gl.constexpr = (query_starts is not None) or (key_starts is not None) or (key_lengths is not None)
    program, programs = gl.program_id(0), gl.num_programs(0)
    if RAGGED:
        up_to = places_of_sequences(
            0, query_starts, key_starts, key_lengths, queries, keys, first_position, groups, sequences, M, GROUP, N,
            ALIGNED,
        )  # fmt: skip
        of_block = gl.max(up_to, axis=0)
        total = of_block
        for block in range(LOOKED_UP, sequences, LOOKED_UP):
            more = places_of_sequences(
                block, query_starts, key_starts, key_lengths, queries, keys, first_position, groups, sequences, M,
                GROUP, N, ALIGNED,
            )  # fmt: skip
            total += gl.max(more, axis=0)
    else:
        of_sequence = (queries * GROUP + M - 1) // M * groups * gl.maximum((keys + N - 1) // N, 1)
        total = of_sequence * sequences
    behind = start_of_run(program + 1, programs, total)
    left = behind - start_of_run(program, programs, total)
    place = gl.maximum(behind - 1, 0)
    if RAGGED:
        sequence = gl.sum((up_to <= place).to(gl.int32), axis=0)
        before = gl.max(gl.where(up_to <= place, up_to, 0), axis=0)
        if place >= of_block:
            place, _, sequence, before = sequence_of_place(
                place - of_block, program * 0 + LOOKED_UP, query_starts, key_starts, key_lengths, queries, keys,
                first_position, 0, groups, sequences, M, GROUP, N, ALIGNED, False, HANDED,
            )  # fmt: skip
        place -= before
    else:
        of_sequence = gl.maximum(of_sequence, 1)
        sequence, place = place // of_sequence, place % of_sequence
    return next_handed(
        left, place + 1, sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, groups,
        sequences, M, N, GROUP, CAUSAL, ALIGNED,
    )  # fmt: skip


@gluon.jit
def part_after(
    place, block, sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups,
    sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, ONCE: gl.constexpr,
):  # fmt: skip
    """Return the part of a program after one of a sequence, as `next_part` and `next_handed` do."""
    if SPLIT == HANDED:
        place, block, sequence, group, tile, begin, end = next_handed(
            place, block, sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, groups,
            sequences, M, N, GROUP, CAUSAL, ALIGNED,
        )  # fmt: skip
    else:
        place, block, sequence, group, tile, begin, end = next_part(
            place + gl.num_programs(0), block, query_starts, key_starts, key_lengths, queries, keys, first_position,
            window, groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
        )  # fmt: skip
    return place, block, sequence, group, tile, begin, end


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
    if SPLIT == HANDED:
        place, block, sequence, group, tile, begin, end = first_handed(
            query_starts, key_starts, key_lengths, queries, keys, first_position, groups, sequences, M, N, GROUP,
            CAUSAL, ALIGNED,
        )  # fmt: skip
    else:
        place, block, sequence, group, tile, begin, end = next_part(
            gl.program_id(0), gl.program_id(0) * 0, query_starts, key_starts, key_lengths, queries, keys,
            first_position, window, groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
        )  # fmt: skip
    if not RAGGED:
        gdc_wait()
    return place, block, sequence, group, tile, begin, end
