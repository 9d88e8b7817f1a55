"""Kernels of rows: every sum is added in an order that is a function of the row's length alone.

A row of n numbers is dealt to LANES lanes, lane j taking j, j + LANES, ... in ascending order, from +0, in fp32.  Then
neighbours are added: lane 2 j and lane 2 j + 1, until one is left.  Each addition is an operation of its own on blocks,
so that neither the compiler's layout nor the rows of a program decide the order.  Launches disable the fusion of
products and sums.  Zeros behind a row do not change its sums.

The first additions of neighbours are those of one thread, which loads them as a vector, and the next ones are those of
one warp.  A row of at most LANES numbers is HELD: it is loaded once.  A longer one is loaded again for each pass.

Arguments of all kernels: `rows` is the number of rows of `length` numbers, which are dense.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _sum_of_lanes(x, ROWS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr):
    """Return the sums of the rows of a block, as a block of one column; LANES is 2 to the power of STEPS."""
    for step in tl.static_range(STEPS):
        x = tl.sum(tl.reshape(x, (ROWS, LANES >> (step + 1), 2)), axis=2)
    return x


@triton.jit
def _place(rows, length, ROWS: tl.constexpr):
    """Return the offset of each row of a program, and whether the row exists, as columns."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    return (row * length)[:, None], (row < rows)[:, None], row[:, None]


@triton.jit(do_not_specialize=["rows"])
def sum_of_rows(x, out, rows, length, part, divisor, DIVIDE: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
                STEPS: tl.constexpr, HELD: tl.constexpr):  # fmt: skip
    """out[i, p] = the sum of part p of row i, divided by `divisor` with DIVIDE; parts have `part` numbers."""
    place, exists, row = _place(rows, length, ROWS)
    begin = tl.program_id(1) * part
    after = tl.minimum(begin + part, length)
    end = begin + LANES if HELD else after
    total = tl.zeros((ROWS, LANES), tl.float32)
    for start in range(begin, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        total += tl.load(x + place + column, mask=exists & (column < after), other=0.0).to(tl.float32)
    found = _sum_of_lanes(total, ROWS, LANES, STEPS)
    if DIVIDE:
        found = tl.math.div_rn(found, tl.zeros((ROWS, 1), tl.float32) + divisor)
    tl.store(out + row * tl.num_programs(1) + tl.program_id(1), found.to(out.dtype.element_ty), mask=exists)


@triton.jit(do_not_specialize=["divisor"])
def sum_of_columns(x, out, rows, columns, divisor, inner, outer_step, inner_step, DIVIDE: tl.constexpr,
                   GROUPS: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """out[o, b, c] = the sum of x[o, :, c] in the lanes b GROUPS 8 to (b + 1) GROUPS 8, divided with DIVIDE.

    x has `rows` rows of `columns` numbers for each o.  They are dense, or with `inner` row i of the only o lies at
    i // inner outer_step + i % inner inner_step.  The numbers of a column are the row of the order: number i
    belongs to lane i modulo LANES.  The programs are parts of COLUMNS columns, parts of the lanes b, and o.  GROUPS is
    2 to the power of STEPS; a thread adds 8 neighbours.
    """
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    first = (tl.program_id(1) * GROUPS * 8 + tl.arange(0, GROUPS) * 8)[:, None]
    place = x + tl.program_id(2).to(tl.int64) * rows * columns + column
    zero = tl.zeros((GROUPS, COLUMNS), tl.float32)
    a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
    for start in range(0, rows, LANES):
        row = first + start
        a += _numbers(place, row, rows, columns, column, inner, outer_step, inner_step)
        b += _numbers(place, row + 1, rows, columns, column, inner, outer_step, inner_step)
        c += _numbers(place, row + 2, rows, columns, column, inner, outer_step, inner_step)
        d += _numbers(place, row + 3, rows, columns, column, inner, outer_step, inner_step)
        e += _numbers(place, row + 4, rows, columns, column, inner, outer_step, inner_step)
        f += _numbers(place, row + 5, rows, columns, column, inner, outer_step, inner_step)
        g += _numbers(place, row + 6, rows, columns, column, inner, outer_step, inner_step)
        h += _numbers(place, row + 7, rows, columns, column, inner, outer_step, inner_step)
    total = _of_neighbours(a, b, c, d, e, f, g, h, GROUPS, STEPS, COLUMNS)
    if DIVIDE:
        total = tl.math.div_rn(total, tl.zeros((1, COLUMNS), tl.float32) + divisor)
    target = (tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * columns + column
    tl.store(out + target, total.to(out.dtype.element_ty), mask=column < columns)


@triton.jit
def sum_of_column_products(gradient, x, mean, scale, out, rows, columns, GROUPS: tl.constexpr, STEPS: tl.constexpr,
                           COLUMNS: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """out[b, c] = the sum of gradient[:, c] ((x[:, c] - mean) scale) as in `sum_of_columns`; mean may be None.

    Every difference and product is rounded to fp32.
    """
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    first = (tl.program_id(1) * GROUPS * 8 + tl.arange(0, GROUPS) * 8)[:, None]
    zero = tl.zeros((GROUPS, COLUMNS), tl.float32)
    a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
    for start in range(0, rows, LANES):
        row = first + start
        a += _products(gradient, x, mean, scale, row, rows, columns, column)
        b += _products(gradient, x, mean, scale, row + 1, rows, columns, column)
        c += _products(gradient, x, mean, scale, row + 2, rows, columns, column)
        d += _products(gradient, x, mean, scale, row + 3, rows, columns, column)
        e += _products(gradient, x, mean, scale, row + 4, rows, columns, column)
        f += _products(gradient, x, mean, scale, row + 5, rows, columns, column)
        g += _products(gradient, x, mean, scale, row + 6, rows, columns, column)
        h += _products(gradient, x, mean, scale, row + 7, rows, columns, column)
    total = _of_neighbours(a, b, c, d, e, f, g, h, GROUPS, STEPS, COLUMNS)
    target = tl.program_id(1).to(tl.int64) * columns + column
    tl.store(out + target, total.to(out.dtype.element_ty), mask=column < columns)


@triton.jit
def _of_neighbours(
    a, b, c, d, e, f, g, h, GROUPS: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Return the sums of 8 neighbours, and of neighbouring ones of these, until one is left: a row of columns."""
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for step in tl.static_range(STEPS):
        total = tl.sum(tl.reshape(total, (GROUPS >> (step + 1), 2, COLUMNS)), axis=1)
    return total


@triton.jit
def _products(gradient, x, mean, scale, row, rows, columns, column):
    """Return the products of `sum_of_column_products` of some columns in some rows, 0 behind the last row."""
    value = _numbers(x + column, row, rows, columns, column, None, None, None)
    if mean is not None:
        value -= tl.load(mean + row, mask=row < rows, other=0.0)
    value *= tl.load(scale + row, mask=row < rows, other=0.0)
    return _numbers(gradient + column, row, rows, columns, column, None, None, None) * value


@triton.jit
def _numbers(place, row, rows, columns, column, inner, outer_step, inner_step):
    """Return the numbers of some columns in some rows in fp32, 0 behind the last row; see `sum_of_columns`."""
    inside = (row < rows) & (column < columns)
    if inner is None:
        at = row.to(tl.int64) * columns
    else:
        at = (row // inner).to(tl.int64) * outer_step + (row % inner).to(tl.int64) * inner_step
    return tl.load(place + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["rows"])
def softmax_of_rows(x, out, rows, length, LOG: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
                    STEPS: tl.constexpr, HELD: tl.constexpr):  # fmt: skip
    """out = exp(x - max) / sum of exp(x - max), or with LOG its logarithm (x - max) - log(sum)."""
    place, exists, _ = _place(rows, length, ROWS)
    end = LANES if HELD else length
    highest = tl.full((ROWS, LANES), float("-inf"), tl.float32)
    for start in range(0, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        value = tl.load(x + place + column, mask=exists & (column < length), other=float("-inf"))
        highest = tl.maximum(highest, value.to(tl.float32))
    top = tl.max(highest, axis=1)[:, None]
    total = tl.zeros((ROWS, LANES), tl.float32)
    for start in range(0, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        inside = exists & (column < length)
        value = tl.load(x + place + column, mask=inside, other=float("-inf")).to(tl.float32)
        total += tl.where(inside, tl.exp(value - top), 0.0)
    found = _sum_of_lanes(total, ROWS, LANES, STEPS)
    logarithm = tl.log(found)
    for start in range(0, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        inside = exists & (column < length)
        value = tl.load(x + place + column, mask=inside, other=float("-inf")).to(tl.float32) - top
        value = value - logarithm if LOG else tl.math.div_rn(tl.exp(value), tl.broadcast_to(found, (ROWS, LANES)))
        tl.store(out + place + column, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def softmax_gradient_of_rows(gradient, y, out, rows, length, LOG: tl.constexpr, ROWS: tl.constexpr,
                             LANES: tl.constexpr, STEPS: tl.constexpr, HELD: tl.constexpr):  # fmt: skip
    """out = y (g - sum of g y) for the softmax y, or with LOG g - exp(y) (sum of g) for its logarithm."""
    place, exists, _ = _place(rows, length, ROWS)
    end = LANES if HELD else length
    total = tl.zeros((ROWS, LANES), tl.float32)
    for start in range(0, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        inside = exists & (column < length)
        g = tl.load(gradient + place + column, mask=inside, other=0.0).to(tl.float32)
        if LOG:
            total += g
        else:
            total += g * tl.load(y + place + column, mask=inside, other=0.0).to(tl.float32)
    found = _sum_of_lanes(total, ROWS, LANES, STEPS)
    for start in range(0, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        inside = exists & (column < length)
        g = tl.load(gradient + place + column, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(y + place + column, mask=inside, other=0.0).to(tl.float32)
        value = g - tl.exp(value) * found if LOG else value * (g - found)
        tl.store(out + place + column, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "epsilon", "divisor"])
def normalised_rows(x, weight, bias, out, mean, scale, rows, length, divisor, epsilon, CENTERED: tl.constexpr,
                    ROWS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr, HELD: tl.constexpr):  # fmt: skip
    """out = (x - mean) scale weight + bias with scale = 1 / sqrt(mean of (x - mean)^2 + epsilon), rounded each time.

    Without CENTERED, the mean is 0 and is not stored.  `weight` and `bias` have `length` numbers, or are None.
    """
    place, exists, row = _place(rows, length, ROWS)
    end = LANES if HELD else length
    count = tl.zeros((ROWS, 1), tl.float32) + divisor
    average = tl.zeros((ROWS, 1), tl.float32)
    if CENTERED:
        total = tl.zeros((ROWS, LANES), tl.float32)
        for start in range(0, end, LANES):
            column = (start + tl.arange(0, LANES))[None, :]
            total += tl.load(x + place + column, mask=exists & (column < length), other=0.0).to(tl.float32)
        average = tl.math.div_rn(_sum_of_lanes(total, ROWS, LANES, STEPS), count)
    squares = tl.zeros((ROWS, LANES), tl.float32)
    for start in range(0, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        inside = exists & (column < length)
        value = tl.load(x + place + column, mask=inside, other=0.0).to(tl.float32)
        if CENTERED:
            value = tl.where(inside, value - average, 0.0)
        squares += value * value
    variance = tl.math.div_rn(_sum_of_lanes(squares, ROWS, LANES, STEPS), count)
    factor = tl.math.div_rn(tl.full((ROWS, 1), 1.0, tl.float32), tl.math.sqrt_rn(variance + epsilon))
    for start in range(0, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        inside = exists & (column < length)
        value = tl.load(x + place + column, mask=inside, other=0.0).to(tl.float32)
        if CENTERED:
            value = value - average
        value = value * factor
        # Every row of the block loads these, so that all loads of a program have one layout.
        columns = tl.broadcast_to(column, (ROWS, LANES))
        if weight is not None:
            value = value * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
        if bias is not None:
            value = value + tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + place + column, value.to(out.dtype.element_ty), mask=inside)
    tl.store(scale + row, factor, mask=exists)
    if CENTERED:
        tl.store(mean + row, average, mask=exists)


@triton.jit(do_not_specialize=["rows", "divisor"])
def normalisation_gradient_of_rows(gradient, x, weight, mean, scale, out, rows, length, divisor,
                                   CENTERED: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
                                   STEPS: tl.constexpr, HELD: tl.constexpr):  # fmt: skip
    """out = ((g - c) - y d) scale for g = gradient weight, y = (x - mean) scale, d = mean of g y, c = mean of g.

    Without CENTERED, the mean of x and c are 0.
    """
    place, exists, row = _place(rows, length, ROWS)
    end = LANES if HELD else length
    count = tl.zeros((ROWS, 1), tl.float32) + divisor
    factor = tl.load(scale + row, mask=exists, other=0.0)
    average = tl.zeros((ROWS, 1), tl.float32)
    if CENTERED:
        average = tl.load(mean + row, mask=exists, other=0.0)
    sums = tl.zeros((ROWS, LANES), tl.float32)
    products = tl.zeros((ROWS, LANES), tl.float32)
    for start in range(0, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        inside = exists & (column < length)
        g = tl.load(gradient + place + column, mask=inside, other=0.0).to(tl.float32)
        if weight is not None:
            columns = tl.broadcast_to(column, (ROWS, LANES))
            g = g * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
        y = tl.where(inside, tl.load(x + place + column, mask=inside, other=0.0).to(tl.float32) - average, 0.0)
        products += g * (y * factor)
        if CENTERED:
            sums += g
    d = tl.math.div_rn(_sum_of_lanes(products, ROWS, LANES, STEPS), count)
    c = tl.zeros((ROWS, 1), tl.float32)
    if CENTERED:
        c = tl.math.div_rn(_sum_of_lanes(sums, ROWS, LANES, STEPS), count)
    for start in range(0, end, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        inside = exists & (column < length)
        g = tl.load(gradient + place + column, mask=inside, other=0.0).to(tl.float32)
        if weight is not None:
            columns = tl.broadcast_to(column, (ROWS, LANES))
            g = g * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
        y = (tl.load(x + place + column, mask=inside, other=0.0).to(tl.float32) - average) * factor
        tl.store(out + place + column, (((g - c) - y * d) * factor).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def first_of_rows(x, out, rows, length, ROWS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr,
                  HELD: tl.constexpr):  # fmt: skip
    """out[i] = the place of the first true element of row i, `length` where there is none."""
    place, exists, row = _place(rows, length, ROWS)
    first = tl.zeros((ROWS, 1), tl.int32) + length
    for start in range(0, LANES if HELD else length, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        true = tl.load(x + place + column, mask=exists & (column < length), other=0) != 0
        first = tl.minimum(first, tl.min(tl.where(true, column, length), axis=1)[:, None])
    tl.store(out + row, first, mask=exists)


@triton.jit(do_not_specialize=["rows"])
def extents_of_rows(x, out, rows, length, ROWS: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr,
                    HELD: tl.constexpr):  # fmt: skip
    """out[0, i], out[1, i], out[2, i] = the place of the first true element of row i, the place behind the last one,
    and their number; `length`, 0 and 0 where there is none.
    """
    place, exists, row = _place(rows, length, ROWS)
    first = tl.zeros((ROWS, 1), tl.int32) + length
    behind = tl.zeros((ROWS, 1), tl.int32)
    number = tl.zeros((ROWS, 1), tl.int32)
    for start in range(0, LANES if HELD else length, LANES):
        column = (start + tl.arange(0, LANES))[None, :]
        true = tl.load(x + place + column, mask=exists & (column < length), other=0) != 0
        first = tl.minimum(first, tl.min(tl.where(true, column, length), axis=1)[:, None])
        behind = tl.maximum(behind, tl.max(tl.where(true, column + 1, 0), axis=1)[:, None])
        number += tl.sum(true.to(tl.int32), axis=1)[:, None]
    tl.store(out + row, first, mask=exists)
    tl.store(out + rows + row, behind, mask=exists)
    tl.store(out + 2 * rows + row, number, mask=exists)


@triton.jit(do_not_specialize=["entries", "targets", "alpha"])
def added_entries(index, order, source, out, entries, targets, length, alpha, LANES: tl.constexpr):
    """out[index[i]] += alpha source[order[i]] for ascending i, in fp32, rounded once for all entries of an index.

    `index` is ascending.  The programs are entries and parts of LANES columns; the first entry of an index adds all.
    """
    entry = tl.program_id(0)
    target = tl.load(index + entry)
    before = tl.load(index + entry - 1, mask=entry > 0, other=-1)
    column = tl.program_id(1) * LANES + tl.arange(0, LANES)
    inside = column < length
    if (target != before) & (target >= 0) & (target < targets):
        place = out + target.to(tl.int64) * length + column
        total = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        at = entry
        same = True
        while same:
            line = tl.load(order + at).to(tl.int64)
            total += tl.load(source + line * length + column, mask=inside, other=0.0).to(tl.float32) * alpha
            at += 1
            following = tl.load(index + at, mask=at < entries, other=-1)
            same = following == target
        tl.store(place, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["series"])
def prefix_sums(x, out, series, length, columns, SERIES: tl.constexpr):
    """out[o, i, c] = x[o, 0, c] + ... + x[o, i, c] for each of so many series of `length` numbers.

    There are `columns` values of c.  A sum begins at +0, and numbers are added in ascending order; a thread loads 8 of
    them at once.
    """
    number = tl.program_id(0) * SERIES + tl.arange(0, SERIES)
    left = tl.where(number < series, length, 0)
    place = (number // columns).to(tl.int64) * length * columns + number % columns
    total = tl.zeros((SERIES,), tl.float32)
    for _ in range(0, length, 8):
        a = _of_series(x + place, 0, columns, left)
        b = _of_series(x + place, 1, columns, left)
        c = _of_series(x + place, 2, columns, left)
        d = _of_series(x + place, 3, columns, left)
        e = _of_series(x + place, 4, columns, left)
        f = _of_series(x + place, 5, columns, left)
        g = _of_series(x + place, 6, columns, left)
        h = _of_series(x + place, 7, columns, left)
        total = _with_number(out + place, total, a, 0, columns, left)
        total = _with_number(out + place, total, b, 1, columns, left)
        total = _with_number(out + place, total, c, 2, columns, left)
        total = _with_number(out + place, total, d, 3, columns, left)
        total = _with_number(out + place, total, e, 4, columns, left)
        total = _with_number(out + place, total, f, 5, columns, left)
        total = _with_number(out + place, total, g, 6, columns, left)
        total = _with_number(out + place, total, h, 7, columns, left)
        place += 8 * columns
        left -= 8


@triton.jit
def _of_series(place, step, columns, left):
    """Return the numbers of series at a step, 0 behind their ends."""
    return tl.load(place + step * columns, mask=step < left, other=0.0).to(tl.float32)


@triton.jit
def _with_number(place, total, number, step, columns, left):
    """Return the sums of series with their numbers at a step, and store them."""
    total += number
    tl.store(place + step * columns, total.to(place.dtype.element_ty), mask=step < left)
    return total


@triton.jit(do_not_specialize=["rows"])
def widened_rows(x, out, rows, heads, places, sequence_stride, head_stride, place_stride, depth, width,
                 ROWS: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """out[r, :] = row r of x[sequences, heads, places, depth], and zeros behind it, up to `width` numbers.

    The rows of x have the given strides, those of out are dense.  LANES is a power of two from `width` on.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = row // places
    place = head // heads * sequence_stride + head % heads * head_stride + row % places * place_stride
    column = tl.arange(0, LANES)[None, :]
    exists = (row < rows)[:, None]
    found = tl.load(x + place[:, None] + column, mask=exists & (column < depth), other=0.0)
    tl.store(out + (row * width)[:, None] + column, found, mask=exists & (column < width))
