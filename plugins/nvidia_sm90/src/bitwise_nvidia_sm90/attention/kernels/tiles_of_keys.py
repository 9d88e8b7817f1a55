"""Parts of the Gluon kernels of attention: lengths of sequences, and tiles of keys or values in shared memory."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined, assignment"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma


@gluon.jit
def lengths_of(
    sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED: gl.constexpr
):
    """Return the numbers of queries and keys of a sequence, and the position of its first query among its keys.

    A sequence behind the last one has none where lengths are given.
    """
    real = sequence < sequences
    if query_starts is not None:
        queries = gl.load(query_starts + sequence + 1, mask=real, other=0)
        queries -= gl.load(query_starts + sequence, mask=real, other=0)
    if key_starts is not None:
        keys = gl.load(key_starts + sequence + 1, mask=real, other=0)
        keys -= gl.load(key_starts + sequence, mask=real, other=0)
    if key_lengths is not None:
        keys = gl.load(key_lengths + sequence, mask=real, other=0)
    if ALIGNED:
        first_position = keys - queries
    return queries, keys, first_position


@gluon.jit
def parts_of_ring(source, TILES: gl.constexpr, N: gl.constexpr, D: gl.constexpr):
    """Allocate the tiles of the map `source` in which TILES tiles of N rows and D columns lie.

    They follow each other in memory as the columns of 128 bytes, and in these the rows, of a tile.
    """
    HEIGHT: gl.constexpr = source.block_type.shape[2]
    WIDTH: gl.constexpr = source.block_type.shape[3]
    return gl.allocate_shared_memory(
        source.dtype, [TILES * (N // HEIGHT) * (D // WIDTH), 1, 1, HEIGHT, WIDTH], source.layout
    )


@gluon.jit
def parts_of_other(source, parts):
    """Return the memory of the tiles of one map as the tiles of another one, `source`."""
    SIZE: gl.constexpr = source.block_type.shape[2] * source.block_type.shape[3]
    COUNT: gl.constexpr = parts.shape[0] * parts.shape[3] * parts.shape[4] // SIZE
    HEIGHT: gl.constexpr = source.block_type.shape[2]
    WIDTH: gl.constexpr = source.block_type.shape[3]
    return parts._reinterpret(source.dtype, [COUNT, 1, 1, HEIGHT, WIDTH], source.layout)


@gluon.jit
def ring_of_parts(source, parts, TILES: gl.constexpr, N: gl.constexpr, D: gl.constexpr):
    """Return TILES tiles of N rows and D columns, whose parts `parts_of_ring` allocated."""
    ring = parts
    if source.block_type.shape[2] < N:
        ring = parts._reinterpret(source.dtype, [TILES, 1, 1, N, D], source.layout)
    return ring


@gluon.jit
def pages_of_tile(source, pages, first, keys, start, N: gl.constexpr, PAGE: gl.constexpr):
    """Return the page of each part of a tile of N keys from `start` on, as the map `source` divides it; () without.

    The `pages` of a sequence, from the place `first` on, are read up to the last of `keys` keys, all at once.
    """
    found = ()
    if PAGE:
        HEIGHT: gl.constexpr = source.block_type.shape[2]
        for part in gl.static_range(N // HEIGHT):
            row = start + part * HEIGHT
            found += (gl.load(pages + first + row // PAGE, mask=row < keys, other=-1),)
    return found


@gluon.jit
def copy_tile(
    source, parts, stage, bar, numbers, batch, group, first, start, column,
    N: gl.constexpr, D: gl.constexpr, PAGE: gl.constexpr, FROM: gl.constexpr = 0,
):  # fmt: skip
    """Start the copies of one tile: N keys of a group from `start` on, D of their components from `column` on.

    The keys of a sequence have the batch `batch` of the map `source`, and begin at the row `first`, or with PAGE their
    pages are `numbers` from FROM on.
    """
    HEIGHT: gl.constexpr = source.block_type.shape[2]
    WIDTH: gl.constexpr = source.block_type.shape[3]
    for part in gl.static_range(N // HEIGHT):
        for side in gl.static_range(D // WIDTH):
            target = parts.index((stage * (D // WIDTH) + side) * (N // HEIGHT) + part)
            if PAGE:
                place = [numbers[FROM + part], group, (start + part * HEIGHT) % PAGE, column + side * WIDTH]
            else:
                place = [batch, group, first + start + part * HEIGHT, column + side * WIDTH]
            tma.async_copy_global_to_shared(source, place, bar, target)


@gluon.jit
def clear_rows(tile, count, N: gl.constexpr, D: gl.constexpr):
    """Replace the rows of a tile from `count` on by zeros; four warps."""
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [4, 1], [1, 0])
    row = gl.expand_dims(gl.arange(0, N, gl.SliceLayout(1, ROWS)), 1)
    values = tile.load(ROWS)
    tile.store(gl.where(row < count, values, gl.zeros([N, D], values.dtype, ROWS)))
    fence_async_shared()
    gl.thread_barrier()
