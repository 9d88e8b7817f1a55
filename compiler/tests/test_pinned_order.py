"""Orders of reduction: text, steps, and evaluation on bit patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.descriptors.evaluation import evaluate_reduction
from bitwise_triton.reductions import Chain, Order, OrderError, Pair, evaluate, tree_of


def leaves(tree: Any) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for side in tree for leaf in leaves(side)]


@pytest.mark.parametrize(
    ("text", "extent", "tree"),
    [
        ("inner_tree", 8, (((0, 1), (2, 3)), ((4, 5), (6, 7)))),
        ("outer_tree", 8, (((0, 4), (2, 6)), ((1, 5), (3, 7)))),
        ("inner_tree", 5, (((0, 1), (2, 3)), 4)),
        ("outer_tree", 5, (((0, 4), 2), (1, 3))),
        ("inner_tree", 1, 0),
        ("chain", 4, (((0, 1), 2), 3)),
        ("1, inner_tree", 8, (((0, 2), (1, 3)), ((4, 6), (5, 7)))),
        ("chain(1:), inner_tree", 7, ((((0, 2), 4), 6), ((1, 3), 5))),
        ("inner_tree(:1), chain(1:)", 7, ((((0, 1), (2, 3)), (4, 5)), 6)),
        ("outer_tree(1:3), 0", 8, (((0, 4), (2, 6)), ((1, 5), (3, 7)))),
        ("inner_tree(7:), inner_tree", 4, ((0, 1), (2, 3))),
    ],
)
def test_trees(text: str, extent: int, tree: object) -> None:
    assert tree_of(Order(text), extent) == tree


def test_positions_of_steps_count_the_remaining_bits() -> None:
    assert Order("2, inner_tree").steps(16) == (Pair(2), Pair(0), Pair(0), Pair(0))
    assert Order("chain(2:), outer_tree").steps(16) == (Chain(2, 2), Pair(1), Pair(0))
    assert Order("inner_tree(:7), chain(7:)").chunking() == (7, 128)
    assert Order("chain(7:), inner_tree").chunking() == (0, 128)
    assert Order("chain").chunking() == (0, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has the step ''"),
        ("inner", "a step is a bit number, inner_tree"),
        ("chain(3:3)", r"has the empty range 'chain\(3:3\)'"),
        ("3, 3, inner_tree", "folds bit 3 twice"),
        ("chain(0:2), 1, inner_tree", "folds bit 1 twice"),
        ("inner_tree(:2)", "leaves bit 2 of 4"),
    ],
)
def test_invalid_orders_are_errors(text: str, message: str) -> None:
    with pytest.raises(OrderError, match=message):
        Order(text).steps(16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inner_tree", "it needs one chain with an open upper bound"),
        ("chain(1:2), inner_tree", "it needs one chain with an open upper bound"),
        ("inner_tree, chain(3:)", "folds bit 3 twice"),
        ("5, chain(3:), inner_tree", "folds bit 5 twice"),
    ],
)
def test_orders_without_one_open_chain_cannot_be_chunked(text: str, message: str) -> None:
    with pytest.raises(OrderError, match=message):
        Order(text).chunking()


def test_a_reduction_of_no_elements_is_an_error() -> None:
    with pytest.raises(OrderError, match="A reduction of 0 elements has no order"):
        Order().steps(0)


def added(tree: Any, values: np.ndarray[Any, Any]) -> np.float32:
    if isinstance(tree, int):
        found: np.float32 = values[tree]
        return found
    left, right = (added(side, values) for side in tree)
    return np.float32(left + right)


WORDS = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1 << 31, 0x7F800000, 0x3F800000, 0xBF800000, 1])


@given(
    st.lists(WORDS, min_size=1, max_size=40),
    st.sampled_from(["inner_tree", "outer_tree", "chain", "chain(2:), outer_tree", "inner_tree(:2), chain(2:)"]),
)
def test_padding_with_negative_zero_changes_no_bits(words: list[int], text: str) -> None:
    values = np.array(words, np.uint32).view(np.float32)
    tree = tree_of(Order(text), len(values))
    assert sorted(leaves(tree)) == list(range(len(values)))
    with np.errstate(all="ignore"):
        expected = added(tree, values)
        found = evaluate(Order(text), values)
    if np.isnan(expected):
        assert np.isnan(found)
    else:
        assert found.tobytes() == expected.tobytes()


def test_rows_are_reduced_independently() -> None:
    values = np.array([[1e8, 1, -1e8, 1], [-0.0, -0.0, -0.0, -0.0]], np.float32)
    assert evaluate(Order("inner_tree"), values).tobytes() == np.array([0.0, -0.0], np.float32).tobytes()
    assert evaluate(Order("outer_tree"), values).tobytes() == np.array([2.0, -0.0], np.float32).tobytes()


@pytest.mark.parametrize(
    ("extent", "itemsize", "last", "text"),
    [
        (1024, 4, True, "inner_tree(:2), outer_tree(9:), inner_tree"),
        (4096, 2, True, "inner_tree(:3), outer_tree(11:), inner_tree"),
        (64, 16, True, "outer_tree(7:), inner_tree"),
        (64, 4, False, "outer_tree(4:), inner_tree"),
    ],
)
def test_the_auto_order_is_resolved_by_extent_and_type(extent: int, itemsize: int, last: bool, text: str) -> None:
    found = Order("auto").resolved(extent, itemsize, last=last)
    assert found == Order(text)
    assert len(found.steps(extent)) == extent.bit_length() - 1
    assert Order("3, inner_tree").resolved(extent, itemsize, last=last) == Order("3, inner_tree")


def test_the_auto_order_has_no_steps() -> None:
    with pytest.raises(OrderError, match="has no steps before a kernel is compiled"):
        Order("auto").steps(8)
    with pytest.raises(OrderError, match="combines auto with other steps"):
        Order("3, auto")


@pytest.mark.parametrize(
    "text", ["inner_tree", "outer_tree", "3, inner_tree", "inner_tree(:3), chain(3:)", "chain(2:), 1, 0"]
)
@pytest.mark.parametrize("extent", [1, 12, 64])
def test_a_descriptor_has_the_bits_of_its_order(text: str, extent: int) -> None:
    """An order evaluated over the bits of the index and over the folds of its descriptor."""
    if extent == 1 and text != "inner_tree":
        return
    words = np.random.default_rng(extent).integers(0, 2**32, (50, extent), np.uint32) & np.uint32(0xBFFFFFFF)
    words[0] = 1 << 31
    found = evaluate_reduction(Order(text).descriptor(extent), words)
    with np.errstate(all="ignore"):
        expected = evaluate(Order(text), words.view(np.float32))
    assert not np.isnan(expected).any()
    assert found.tolist() == expected.view(np.uint32).tolist()
