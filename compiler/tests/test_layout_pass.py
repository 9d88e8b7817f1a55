"""The layout pass: costs, chosen layouts, and reasons to keep a layout."""

from __future__ import annotations

import itertools

import pytest

from bitwise_triton.reductions import Order
from bitwise_triton.reductions.layout_pass import BARRIER, Layout, LayoutChoice, choose_layout
from bitwise_triton.reductions.order import Pair
from bitwise_triton.reductions.placeholder import Placeholder, parse_placeholder


def steps(order: str, extent: int) -> tuple[Pair, ...]:
    found = Order(order).steps(extent)
    return tuple(step for step in found if isinstance(step, Pair))


def bases(axis: int, rank: int, *bits: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(1 << bit if place == axis else 0 for place in range(rank)) for bit in bits)


# One row of 1024 elements, four per thread initially, in four warps.
ROW = Layout(bases(1, 2, 0, 1, 9), bases(1, 2, 2, 3, 4, 5, 6), bases(1, 2, 7, 8))
# A tile of 32 rows and 64 columns whose columns are reduced to one row.
TILE = Layout(
    ((0, 1), (0, 2), (8, 0), (16, 0)), (*bases(1, 2, 2, 3, 4, 5), (1, 0)), ((2, 0), (4, 0))
)  # fmt: skip


def test_a_row_across_several_warps_moves_to_registers_after_the_steps_in_lanes() -> None:
    found = choose_layout(ROW, (1, 1024), 1, steps("inner_tree(:2), outer_tree(9:), inner_tree", 1024), 4)
    # 4 + 2 + 1 sums, five shuffles, and either two steps across warps or one move and 2 + 1 sums.
    assert (found.current_cost, found.cost) == (7 + 5 * 5 + 2 * (2 * BARRIER + 8), 7 + 25 + BARRIER + 4 * (1 + 4) + 3)
    assert (found.before, found.reason) == (8, "")
    assert found.move == Layout(bases(1, 2, 0, 1), ((0, 0),) * 5, ((0, 0),) * 2)


def test_columns_are_distributed_over_lanes_and_warps() -> None:
    found = choose_layout(TILE, (32, 64), 0, steps("outer_tree(3:), inner_tree", 32), 4)
    assert found.move is not None
    assert found.before == 2
    assert found.cost < 0.8 * found.current_cost
    # Eight rows and 64 columns remain, on 128 threads: four values each, or fewer with rows in lanes.
    assert found.move.registers == bases(0, 2, 0, 1)
    assert found.move.lanes == (*bases(0, 2, 2), *bases(1, 2, 0, 1, 2, 3))
    assert found.move.warps == bases(1, 2, 4, 5)


@pytest.mark.parametrize(
    ("layout", "shape", "axis", "order", "size", "reason"),
    [
        (Layout(bases(0, 1, 0), bases(0, 1, 1, 2, 3, 4, 5), ()), (64,), 0, "inner_tree", 4, "inside one warp"),
        (
            Layout(bases(0, 1, 0), bases(0, 1, 1, 2, 3, 4, 5), (), bases(0, 1, 6)),
            (128,),
            0,
            "inner_tree",
            4,
            "several blocks",
        ),
        (Layout(((3,), (2,)), (), ()), (4,), 0, "inner_tree", 4, "its layout does not permute the index bits"),
        (Layout(((1, 1), (0, 1)), (), ()), (2, 2), 0, "inner_tree", 4, "its layout does not permute the index bits"),
        (
            Layout(bases(0, 1, 0), bases(0, 1, 1), ()),
            (8,),
            0,
            "inner_tree",
            4,
            "its layout does not permute the index bits",
        ),
    ],
)
def test_a_kept_layout_has_a_reason(
    layout: Layout, shape: tuple[int, ...], axis: int, order: str, size: int, reason: str
) -> None:
    found = choose_layout(layout, shape, axis, steps(order, shape[axis]), size)
    assert found.move is None
    assert reason in found.reason
    assert found.cost == found.current_cost


def test_a_move_that_spills_or_exceeds_shared_memory_is_not_made() -> None:
    held = (*bases(1, 2, 0, 1), *bases(0, 2, 2, 3, 4, 5, 6))
    tile = Layout(held, bases(1, 2, 2, 3, 4, 5, 6), bases(0, 2, 0, 1))
    found = choose_layout(tile, (128, 128), 0, steps("inner_tree", 128), 2)
    assert found == LayoutChoice(found.current_cost, found.current_cost, reason="a move would spill registers")
    held = (*bases(1, 2, 0, 1, 2, 3), *bases(0, 2, 2, 3))
    wide = Layout(held, bases(1, 2, 4, 5, 6, 7, 8), (*bases(0, 2, 0, 1), *bases(1, 2, 9, 10)))
    found = choose_layout(wide, (16, 2048), 0, steps("inner_tree", 16), 4)
    assert found == LayoutChoice(found.current_cost, found.current_cost, reason="a move needs too much shared memory")
    found = choose_layout(wide, (16, 2048), 0, steps("outer_tree", 16), 4)
    assert found.move is not None


def test_a_move_that_saves_little_is_not_made() -> None:
    tile = Layout((), bases(0, 1, 0, 1, 2, 3, 4), bases(0, 1, 5))
    found = choose_layout(tile, (64,), 0, steps("5, inner_tree", 64), 4)
    assert found == LayoutChoice(113, 113, reason="no move is cheaper")


@pytest.mark.parametrize(("layout", "shape", "axis"), [(ROW, (1, 1024), 1), (TILE, (32, 64), 0)])
@pytest.mark.parametrize("order", ["inner_tree", "outer_tree", "1, outer_tree", "3, 2, inner_tree"])
def test_a_move_covers_every_remaining_element(layout: Layout, shape: tuple[int, ...], axis: int, order: str) -> None:
    found = choose_layout(layout, shape, axis, steps(order, shape[axis]), 4)
    assert found.move is not None
    left = [extent >> found.before if place == axis else extent for place, extent in enumerate(shape)]
    reached = {(0,) * len(shape)}
    for basis in (*found.move.registers, *found.move.lanes, *found.move.warps):
        reached |= {tuple(a ^ b for a, b in zip(one, basis, strict=True)) for one in reached}
    assert reached == set(itertools.product(*(range(extent) for extent in left)))
    assert len(found.move.lanes) == len(layout.lanes)
    assert len(found.move.warps) == len(layout.warps)
    assert not any(basis[axis] for basis in found.move.warps)


def test_the_text_of_a_placeholder_parses_back() -> None:
    placeholder = Placeholder("sum", 1, steps("3, outer_tree", 16), "3, outer_tree")
    assert parse_placeholder(placeholder.text) == placeholder
    assert parse_placeholder("add.rn.f32 $0, $1, $2;") is None
