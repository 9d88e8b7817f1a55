from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.probing import (
    ProbeError,
    SumTree,
    describe_shape,
    eliminate,
    product_instrument,
    reduction_instrument,
    reveal,
    tree_shape,
)
from bitwise_core.probing.elimination import normal_draw, wide_draw
from bitwise_core.probing.summation_tree import canonical_tree, evaluate, from_nested

Floats = npt.NDArray[np.float32]


def chain(x: Floats) -> Floats:
    total = np.zeros(len(x), dtype=x.dtype)
    for k in range(x.shape[1]):
        total = total + x[:, k]
    return total


def merged(parts: list[Floats]) -> Floats:
    return chain(np.stack(parts, axis=1))


def pairwise(x: Floats) -> Floats:
    while x.shape[1] > 1:
        x = x[:, 0::2] + x[:, 1::2]
    return x[:, 0]


@pytest.mark.parametrize(
    ("function", "length", "expected"),
    [
        (chain, 50, "a chain of 50 contiguous values"),
        (lambda x: chain(x[:, ::-1]), 50, "a chain of 50 contiguous values, last first"),
        (pairwise, 64, "a balanced tree of 64 contiguous values"),
        (
            lambda x: merged([chain(x[:, low : low + 24]) for low in range(0, 96, 24)]), 96,
            "a chain of 4 contiguous parts, each a chain of 24 contiguous values",
        ),
        (
            lambda x: merged([chain(each) for each in (x[:, :40], x[:, 40:80], x[:, 80:])]), 90,
            "a chain of 3 contiguous parts: 2 of 40 values (a chain of 40 contiguous values), "
            "then 1 of 10 values (a chain of 10 contiguous values)",
        ),
        (
            lambda x: merged([chain(x[:, :37]), chain(x[:, 37:])]), 60,
            "a chain of 2 contiguous parts: 1 of 37 values (a chain of 37 contiguous values), "
            "then 1 of 23 values (a chain of 23 contiguous values)",
        ),
        (
            lambda x: pairwise(np.stack([chain(x[:, lane::8]) for lane in range(8)], axis=1)), 64,
            "a balanced tree of 8 parts with stride 8, each a chain of 8 values with stride 8",
        ),
        (
            lambda x: merged([pairwise(x[:, low : low + 16]) for low in range(0, 48, 16)]), 48,
            "a chain of 3 contiguous parts, each a balanced tree of 16 contiguous values",
        ),
    ],
)  # fmt: skip
def test_orders_of_numpy_functions_are_revealed(
    function: Callable[[Floats], Floats], length: int, expected: str
) -> None:
    found = reveal(reduction_instrument(function, 64, length))
    assert found.tree is not None
    assert describe_shape(tree_shape(found.tree)) == expected
    assert (found.unresolved, found.dropped) == ((), ())


def test_dropped_positions_are_found() -> None:
    found = reveal(reduction_instrument(lambda x: chain(x[:, :-8]), 32, 72))
    assert found.tree == from_nested(left_to_right(range(64)))
    assert found.dropped == tuple(range(64, 72))


def left_to_right(positions: range) -> object:
    total: object = positions[0]
    for each in positions[1:]:
        total = (total, each)
    return total


def blocked(length: int, span: int, width: int = 1) -> SumTree:
    """Return contiguous parts of `span` values, each a chain of steps of `width`, merged in a chain."""
    parts = []
    for low in range(0, length, span):
        part = list(range(low, min(low + span, length)))
        first = part[:width]
        total: object = first[0] if width == 1 else tuple(first)
        for start in range(width, len(part), width):
            total = (total, *part[start : start + width])
        parts.append(total)
    total = parts[0]
    for part_sum in parts[1:]:
        total = (total, part_sum)
    return from_nested(total)


@pytest.mark.parametrize(("seed", "method"), [(0, None), (0, "pivots"), (1, "pivots"), (2, "pivots")])
def test_both_methods_find_the_same_tree(seed: int, method: str | None) -> None:
    tree = blocked(200, 64, 16)
    found = reveal(reduction_instrument(lambda x: evaluate(tree, x), 64, 200), seed, method)
    assert (found.tree, found.method) == (tree, method or "neighbours")


@st.composite
def trees(draw: st.DrawFn) -> SumTree:
    """Any tree over positions in any order, nodes of two to four children."""
    parts: list[object] = list(draw(st.permutations(range(draw(st.integers(3, 24))))))
    while len(parts) > 1:
        size = min(len(parts), draw(st.sampled_from([2, 2, 2, 3, 4])))
        low = draw(st.integers(0, len(parts) - size))
        parts[low : low + size] = [tuple(parts[low : low + size])]
    return from_nested(parts[0])


@given(trees())
def test_any_tree_is_revealed(tree: SumTree) -> None:
    found = reveal(reduction_instrument(lambda x: evaluate(tree, x), 16, len(tree.leaves)))
    assert (found.tree, found.unresolved) == (tree, ())


@given(trees())
def test_a_tree_predicts_the_sizes_that_probes_measure(tree: SumTree) -> None:
    below: list[set[int]] = []
    for node in tree.nodes:
        below.append(set().union(*({child} if child >= 0 else below[~child] for child in node)))
    first, second = np.triu_indices(len(tree.leaves), 1)
    expected = [min(len(each) for each in below if {a, b} <= each) for a, b in zip(first, second, strict=True)]
    assert tree.common_node_sizes(first, second).tolist() == expected
    assert tree.sizes.tolist() == [len(each) for each in below]
    assert canonical_tree(tree.nodes, len(tree.nodes) - 1) == tree


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda x: np.array([math.fsum(row) for row in x], dtype=np.float32),
         "no small value is ever lost: the accumulator is wider than the values, or the sum is compensated"),
        (lambda x: chain(x) * np.float32(1.5),
         "a single small value does not return the same count in every output"),
        (lambda x: np.zeros(len(x), dtype=np.float32), "0 positions reach the output; an order needs at least 3"),
        (lambda x: np.abs(x).max(axis=1), "a single small value does not return the same count in every output"),
    ],
)  # fmt: skip
def test_a_function_that_is_no_plain_sum_is_unresolved(function: Callable[[Floats], Floats], sentence: str) -> None:
    found = reveal(reduction_instrument(function, 16, 40))
    assert (found.tree, found.unresolved) == (None, (sentence,))


def test_an_order_that_depends_on_the_row_is_unresolved() -> None:
    def by_row(x: Floats) -> Floats:
        total = chain(x)
        total[::2] = chain(np.ascontiguousarray(x[:, ::-1]))[::2]
        return total

    found = reveal(reduction_instrument(by_row, 16, 40))
    assert found.tree is None
    assert len(found.unresolved) == 1


def test_a_product_whose_elements_have_different_orders_is_unresolved() -> None:
    def product(a: Floats, b: Floats) -> Floats:
        terms = a[:, :, None] * b[None]
        total = np.zeros((len(a), b.shape[1]), dtype=a.dtype)
        other = total.copy()
        for k in range(a.shape[1]):
            total, other = total + terms[:, k], other + terms[:, -1 - k]
        total[:, -1] = other[:, -1]
        return total

    found = reveal(product_instrument(product, 16, 4, 24))
    assert found.tree is None
    assert "do not return the same count in every output" in found.unresolved[0]


@pytest.mark.parametrize(("m", "n"), [(16, 4), (4, 16), (1, 8), (8, 1)])
def test_products_are_probed_along_the_longer_axis(m: int, n: int) -> None:
    def product(a: Floats, b: Floats) -> Floats:
        halves = [chain_product(a[:, part], b[part]) for part in (slice(0, 20), slice(20, 36))]
        return halves[0] + halves[1]

    subject = product_instrument(product, m, n, 36)
    found = reveal(subject)
    assert subject.lanes == max(m, n)
    assert found.tree is not None
    assert describe_shape(tree_shape(found.tree)) == (
        "a chain of 2 contiguous parts: 1 of 20 values (a chain of 20 contiguous values), "
        "then 1 of 16 values (a chain of 16 contiguous values)"
    )


def chain_product(a: Floats, b: Floats) -> Floats:
    total = np.zeros((len(a), b.shape[1]), dtype=np.float32)
    for k in range(a.shape[1]):
        total = total + a[:, k, None].astype(np.float32) * b[k].astype(np.float32)
    return total


def test_an_output_of_few_bits_is_probed_in_chunks() -> None:
    tree = SumTree(((0, 1), *((-k, k + 1) for k in range(1, 2999))))
    subject = product_instrument(lambda a, b: chain_product(a, b).astype(np.float16), 64, 1, 3000, "float16")
    assert subject.capacity == 2048
    found = reveal(subject)
    assert found.tree == tree
    assert found.probes == 2 + 2 * 2999 + 2 * 512


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: reduction_instrument(chain, 4, 8, "int32"), "operands of int32 cannot be probed; the supported "
         "types are float64"),
        (lambda: reduction_instrument(lambda x: x.sum(axis=1).astype(np.int64), 4, 8), "an output of int64 "
         "cannot be probed"),
        (lambda: reduction_instrument(chain, 4, 8, "float16", accumulator=53),
         "2\\*\\*-24 is not lost when added to 2\\*\\*15 in an accumulator of 53 bits"),
        (lambda: reveal(reduction_instrument(lambda x: x, 4, 8)), r"the callable returned the shape \(4, 8\), not "
         r"\(4,\)"),
    ],
)  # fmt: skip
def test_unsupported_callables_are_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ProbeError, match=f"^{sentence}"):
        make()


def test_a_candidate_of_another_order_is_eliminated() -> None:
    right, other = blocked(96, 24), blocked(96, 32)
    found = eliminate(
        lambda x: evaluate(right, x),
        {"spans of 24": lambda x: evaluate(right, x), "spans of 32": lambda x: evaluate(other, x)},
        lambda random: (normal_draw(random, (8, 96)).astype(np.float32),),
    )
    assert found.survivors == ("spans of 24",)
    assert found.first_difference == {"spans of 24": None, "spans of 32": 0}


def test_draws_are_reproducible_and_wide_draws_span_many_binades() -> None:
    one, two = (wide_draw(np.random.default_rng(3), (50,)) for _ in range(2))
    assert one.tobytes() == two.tobytes()
    assert np.ptp(np.frexp(one)[1]) >= 20
