"""The table of merge orders: one entry is enough to add an order."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from toy_units import HARDWARE, MMA, UNITS, normal, tree_value

from bitwise_core.descriptors import (
    Cut,
    DescriptorError,
    Fold,
    GEMMDesc,
    Group,
    ReductionDesc,
    index_bits,
    merge_orders,
    read,
    split_k,
    three_level_chain,
    write,
)
from bitwise_core.descriptors.evaluation import evaluate, gemm_tree, reduction_tree
from bitwise_core.descriptors.merge_orders import MERGE_ORDERS, Addition, MergeOrder
from bitwise_core.descriptors.merge_orders import index_bits as bits_of
from bitwise_core.descriptors.summary import words
from bitwise_core.descriptors.svg_figure import to_svg
from bitwise_core.descriptors.text_figure import merge_text, picture
from bitwise_core.numerics import Bits
from bitwise_core.probing import describe_shape as form_words
from bitwise_core.probing import tree_shape
from bitwise_core.probing.operand_arrays import PatternArrays
from bitwise_core.probing.reconstruction import reconstruct_product, reconstruct_sum, same_computation
from bitwise_core.probing.summation_tree import from_nested


def _ends(count: int) -> list[Addition]:
    found = []
    while count > 1:
        found += [(part, count - 1 - part) for part in range(count // 2)]
        count = (count + 1) // 2
    return found


def _odd_last(count: int) -> list[Addition]:
    return [(0, part) for part in (*range(2, count, 2), *range(1, count, 2))]


ENDS = MergeOrder("ends", "in pairs from both ends", _ends, "a tree of outer pairs")
ODD_LAST = MergeOrder("odd-last", "one after the other, the odd ones last", _odd_last)


def test_the_example_of_the_contributors_guide_is_the_whole_change() -> None:
    guide = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = re.search(r"^<!-- merge-order-diff -->\n```diff\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert shown is not None
    diff = shown[1]
    path = re.findall(r"^\+\+\+ b/(.*)$", diff, re.MULTILINE)
    assert path == [str(Path(merge_orders.__file__).relative_to(Path(__file__).parents[2]))]
    source = Path(merge_orders.__file__).read_text(encoding="utf-8")
    for hunk in diff.split("@@\n")[1:]:
        before, after = (
            "".join(f"{line[1:]}\n" for line in hunk.splitlines() if line[:1] in (" ", sign)) for sign in "-+"
        )
        assert source.count(before) == 1
        source = source.replace(before, after)
    changed = types.ModuleType("changed")
    sys.modules["changed"] = changed
    try:
        exec(compile(source, path[0], "exec"), vars(changed))
    finally:
        del sys.modules["changed"]
    added = changed.MERGE_ORDERS.keys() - MERGE_ORDERS.keys()
    assert added == {"ends"}
    found = changed.MERGE_ORDERS["ends"]
    assert (found.words, found.tree) == (ENDS.words, ENDS.tree)
    assert [found.additions(count) for count in range(1, 20)] == [ENDS.additions(count) for count in range(1, 20)]


@pytest.fixture(params=[ENDS, ODD_LAST], ids=lambda order: order.name)
def added(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MergeOrder:
    """Add an order by one entry of the table."""
    order: MergeOrder = request.param
    monkeypatch.setitem(MERGE_ORDERS, order.name, order)
    return order


@pytest.mark.parametrize("order", [*MERGE_ORDERS.values(), ENDS, ODD_LAST], ids=lambda order: order.name)
def test_an_order_adds_every_part_once(order: MergeOrder) -> None:
    for count in filter(order.takes, range(1, 20)):
        held = {part: [part] for part in range(count)}
        additions = order.additions(count)
        for into, other in additions:
            held[into] += held.pop(other)
        assert list(held) == [order.steps(count).result]
        assert sorted(*held.values()) == list(range(count))
        assert not order.running_sum or len({into for into, _ in additions}) <= 1
        pairs = order.first_round(count)
        assert len({part for pair in pairs for part in pair}) == 2 * len(pairs)
        assert order.least(count) == count


@pytest.mark.parametrize(
    ("additions", "why"),
    [
        (lambda count: [(0, part) for part in range(2, count)], "the last addition of the merge order new does not"),
        (
            lambda count: [(0, part) for part in range(1, count)] * 2,
            "the merge order new adds part 1 of 2 to part 0",
        ),
        (lambda count: [(0, part) for part in range(count)], "the merge order new adds part 0 of 1 to part 0"),
        (_ends, "the merge order new adds to several of 4 parts: name its tree"),
        (lambda count: [*_ends(count)][::-1], "the merge order new adds"),
    ],
)
def test_an_inconsistent_order_is_refused(additions: Callable[[int], list[Addition]], why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}"):
        MergeOrder("new", "in a new way", additions)


def test_orders_that_halve_by_a_bit_of_the_number() -> None:
    found = {name: bits_of(order, 8) for name, order in MERGE_ORDERS.items()}
    assert found == {
        "chain": None, "chain-down": None, "neighbours": (0, 1, 2), "halves": (2, 1, 0), "paired": None,
    }  # fmt: skip
    assert bits_of(MERGE_ORDERS["neighbours"], 6) is None
    assert bits_of(ENDS, 8) is None
    assert bits_of(MERGE_ORDERS["chain"], 2) == bits_of(ENDS, 2) == (0,)
    assert bits_of(MERGE_ORDERS["chain"], 1) == ()


def test_pairs_are_half_their_number_apart_and_the_last_part_has_none() -> None:
    def joined(one: str, other: str) -> str:
        return f"({one} {other})"

    sums = {
        count: MERGE_ORDERS["paired"].steps(count).run([*map(str, range(count))], "", joined) for count in (2, 3, 5, 8)
    }
    assert sums == {2: "(0 1)", 3: "((0 2) 1)", 5: "((((0 3) 4) 1) 2)", 8: "(((((0 4) 7) (1 5)) (2 6)) 3)"}


def test_an_unknown_order_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DescriptorError) as caught:
        Cut(count=6, merge="ends")
    listed = "chain, chain-down, neighbours, halves, paired"
    assert str(caught.value) == f"Cut: merge: there is no merge order 'ends'; there are {listed}"
    with pytest.raises(DescriptorError, match=f"there are {listed}"):
        Group(count=2, merge="ends")
    with pytest.raises(DescriptorError) as caught:
        Fold(stride=1, order="halves")
    assert str(caught.value) == (
        "Fold: order: a fold is a running sum, not a balanced tree: give one of chain, chain-down, not 'halves'"
    )


def product(order: MergeOrder, count: int, **fields: object) -> GEMMDesc:
    cut = Cut(**{"count": count, "tile": 5, "merge": order.name, **fields})
    return GEMMDesc(
        k=150, left_dtype="fp16", right_dtype="fp16", output_dtype="fp32", path="fma", k_cuts=(cut,)
    )  # fmt: skip


def summed(order: MergeOrder, parts: list[np.ndarray]) -> np.ndarray:
    """Add the parts in the order, independent of the code under test."""
    if order.running_sum:
        total = parts[0]
        for part in (*parts[2::2], *parts[1::2]):
            total = total + part
        return total
    while len(parts) > 1:
        pairs = [parts[place] + parts[-1 - place] for place in range(len(parts) // 2)]
        parts = pairs + ([parts[len(pairs)]] if len(parts) % 2 else [])
    return parts[0]


@pytest.mark.parametrize("count", [1, 2, 5, 6, 8])
def test_an_added_order_is_evaluated_on_patterns_and_as_a_tree(added: MergeOrder, count: int) -> None:
    generator = np.random.default_rng(count)
    a, b = normal(generator, 4, 150), normal(generator, 150, 5)
    desc = product(added, count)
    found = evaluate(desc, a, b)
    parts = []
    for part in desc.k_cuts[0].parts(np.arange(150)):
        chain = product(added, 1).model_copy(update={"k": len(part), "k_cuts": ()})
        parts.append(
            evaluate(chain, a[:, part], b[part]).view(np.float32) if len(part) else np.zeros((4, 5), np.float32)
        )
    assert found.tolist() == summed(added, parts).view(np.uint32).tolist()
    for row, column in ((0, 0), (3, 4), (1, 2)):
        assert tree_value(gemm_tree(desc, row, column, 5), {"A": a, "B": b}) == found[row, column]


def test_an_added_order_has_a_structure_of_its_own(added: MergeOrder) -> None:
    chain = MERGE_ORDERS["chain"]
    for count in (2, 3, 6):
        alike = same_computation(product(added, count), product(chain, count), {})
        bits = [evaluate(product(order, count), *operands(9)).tolist() for order in (added, chain)]
        assert alike == (count == 2) == (bits[0] == bits[1])
    assert same_computation(product(added, 6), product(added, 6, tile=25), {})
    assert not same_computation(product(added, 6), product(added, 5), {})


def operands(seed: int) -> tuple[Bits, Bits]:
    generator = np.random.default_rng(seed)
    return normal(generator, 16, 150), normal(generator, 150, 8)


def descriptors(order: MergeOrder) -> list[GEMMDesc]:
    found = [
        product(order, 6), product(order, 7, tile=4), product(order, 6, tile=2, layout="strided"),
        three_level_chain(300, "fp16", chunks=2, output_dtype="fp32").model_copy(
            update={"k_cuts": (Cut(count=2), Cut(layout="strided", count=6, tile=3, merge=order.name))}
        ),
        split_k(200, "fp16", MMA, slices=7, tile=8, output_dtype="fp32").model_copy(
            update={"k_cuts": (Cut(count=7, tile=8, merge=order.name),)}
        ),
    ]  # fmt: skip
    if order.running_sum:
        found.append(product(order, 6, start="zero", partial_dtype="fp16"))
        found[-1] = GEMMDesc(**{**dict(found[-1]), "output_dtype": "fp16"})
    return found


@pytest.mark.parametrize("number", range(5))
def test_a_product_of_an_added_order_is_reconstructed(added: MergeOrder, number: int) -> None:
    desc = descriptors(added)[number]
    found = reconstruct_product(
        lambda a, b: evaluate(desc, a, b, hardware=HARDWARE),
        64,
        1,
        desc.k,
        "float16",
        arrays=PatternArrays("float32"),
        units=UNITS,
    )
    assert isinstance(found.desc, GEMMDesc)
    assert same_computation(found.desc, desc, UNITS)
    assert added.name in [cut.merge for cut in found.desc.k_cuts]


def _first_is_third(count: int) -> list[Addition]:
    return [(1, part) for part in (2, 0, *range(3, count))] if count > 2 else [(0, 1)][: count - 1]


def test_a_sum_of_an_added_order_is_reconstructed(monkeypatch: pytest.MonkeyPatch) -> None:
    order = MergeOrder("first-is-third", "one after the other, the first one third", _first_is_third)
    monkeypatch.setitem(MERGE_ORDERS, order.name, order)
    folds = (Fold(stride=8, count=6, order=order.name), *index_bits(8).folds)
    desc = ReductionDesc(length=48, dtype="fp32", folds=folds)
    x = np.random.default_rng(2).standard_normal((64, 48)).astype(np.float32)
    found = reconstruct_sum(lambda x: evaluate(desc, x), 64, 48, arrays=PatternArrays("float32"))
    assert found.desc == desc
    bits = evaluate(desc, x)
    assert tree_value(reduction_tree(desc), {"X": x[5].view(np.uint32)}) == bits[5]


def test_an_added_order_is_summarised_and_drawn(added: MergeOrder) -> None:
    desc = product(added, 6)
    assert read(write(desc)) == desc
    assert f"The parts are added {added.words}, in fp32." in words(desc)
    expected = (
        "((0 + 2) + 4) + ... + 5, each sum in fp32" if added.running_sum
        else "0 + 5, 1 + 4, ... first, a tree of outer pairs, each sum in fp32"
    )  # fmt: skip
    assert merge_text(desc.k_cuts[0], 6) == expected
    assert any(expected in line for line in picture(desc))
    drawn = to_svg(desc)
    assert drawn.count("<circle") == 5
    assert expected in drawn


def test_a_revealed_order_that_was_added_is_named(added: MergeOrder) -> None:
    parts = [tuple(range(low, low + 4)) for low in range(0, 24, 4)]
    made = MERGE_ORDERS[added.name].steps(6).run(parts, None, lambda one, other: (one, other))  # type: ignore[arg-type]
    form = tree_shape(from_nested(made))
    assert form.order == added.name
    start = "a tree of outer pairs of 6 contiguous parts" if added is ENDS else (
        "a chain of 6 contiguous parts, one after the other, the odd ones last"
    )  # fmt: skip
    assert form_words(form) == f"{start}, each 4 values in one step"


def test_an_added_order_merges_groups(added: MergeOrder) -> None:
    cut = Cut(layout="strided", count=8, tile=4, groups=(Group(count=4, merge=added.name),))
    steps = cut.merge_steps(8)
    parts = [np.float32(each) for each in np.random.default_rng(1).standard_normal(8)]
    groups = [parts[number] + parts[number + 4] for number in range(4)]
    assert steps.run(parts, np.float32(0), lambda one, other: one + other) == summed(added, groups)  # type: ignore[arg-type]
