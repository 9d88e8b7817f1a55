"""Descriptors by what they compute: what is one in other words, and what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc, Group, Instruction
from bitwise_core.evaluation import evaluate
from bitwise_core.evaluation.signature import same_sums

UNIT = Instruction(architecture="none", family="matrix", k=16)


def scalar(k: int, *cuts: Cut, **more: Any) -> GEMMDesc:
    return GEMMDesc(k=k, left_dtype="fp32", right_dtype="fp32", output_dtype="fp32", path="fma", k_cuts=cuts, **more)


def matrix(k: int, *cuts: Cut, **more: Any) -> GEMMDesc:
    return GEMMDesc(
        k=k, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="matrix", instruction=UNIT,
        instruction_k=16, k_cuts=cuts, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (scalar(20, Cut(span=5)), scalar(20, Cut(count=4)), True),
        (scalar(20, Cut(span=5)), scalar(20, Cut(span=5, count=4)), True),
        (scalar(20, Cut(span=5)), scalar(20, Cut(count=4, remainder="spread")), True),
        (scalar(20, Cut(span=6)), scalar(20, Cut(count=4, tile=6)), True),
        (scalar(20, Cut(span=20)), scalar(20), True),
        (scalar(20, Cut(span=20), Cut(span=5)), scalar(20, Cut(span=5), Cut(span=30)), True),
        (scalar(20, Cut(span=10, merge="chain-down")), scalar(20, Cut(count=2, merge="halves")), True),
        (scalar(20, Cut(count=4, layout="strided", tile=5)), scalar(20, Cut(span=5)), True),
        (scalar(8, Cut(count=4, merge="halves")), scalar(8, Cut(count=2, layout="strided", tile=2), Cut(span=2)), True),
        (scalar(20, Cut(span=5, groups=(Group(count=1),))), scalar(20, Cut(span=5)), True),
        (matrix(64, k_loop_step=32, short_turn="first"), matrix(64), True),
        (matrix(64, Cut(span=32), k_loop_step=32, short_turn="first"), matrix(64, Cut(span=32)), True),
        (scalar(20, Cut(span=5)), scalar(20, Cut(span=4)), False),
        (scalar(20, Cut(span=6)), scalar(20, Cut(span=6, remainder="short-first")), False),
        (scalar(20, Cut(span=5)), scalar(20, Cut(span=5, merge="chain-down")), False),
        (scalar(20, Cut(span=5)), scalar(20, Cut(span=5, start="zero")), False),
        (scalar(20, Cut(span=5)), scalar(20, Cut(count=5, span=5)), False),
        (scalar(20, Cut(span=20, partial_dtype="fp16")), scalar(20), False),
        (scalar(20, Cut(span=5)), scalar(20, Cut(span=5, merge_dtype="fp16")), False),
        (scalar(20), scalar(20, k_dropped=1), False),
        (scalar(20), scalar(20, alpha=2.0), False),
        (scalar(20), scalar(21), False),
        (matrix(70, k_loop_step=32, short_turn="first"), matrix(70), False),
        (matrix(64), matrix(64, use_fast_accum=False), False),
    ],
)  # fmt: skip
def test_alike_is_what_is_computed(one: GEMMDesc, other: GEMMDesc, same: bool) -> None:
    assert one != other
    assert same_sums(one, other) is same_sums(other, one) is same


CUTS = st.builds(
    Cut,
    layout=st.just("contiguous"), span=st.none() | st.integers(1, 9), count=st.none() | st.integers(1, 5),
    tile=st.sampled_from([1, 1, 2, 3]), remainder=st.sampled_from(["short-last", "short-first", "spread", "long-last"]),
    merge=st.sampled_from(["chain", "chain-down", "halves"]), start=st.sampled_from(["first", "zero"]),
)  # fmt: skip


def _or_none(make: Any, *given_: Any) -> Any:
    try:
        return make(*given_)
    except (DescriptorError, ValueError):
        return None


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(4, 12), st.integers(0, 2**32 - 1))
def test_one_signature_owes_one_byte_string(data: st.DataObject, k: int, seed: int) -> None:
    found = []
    while len(found) < 6:
        cuts = [_or_none(lambda: data.draw(CUTS)) for _ in range(data.draw(st.integers(0, 2)))]
        desc = None if None in cuts else _or_none(lambda c=cuts: scalar(k, *c))
        found.append(desc or scalar(k))
    random = np.random.default_rng(seed)
    a, b = ((random.standard_normal(shape) * 2.0 ** random.integers(-9, 9, shape)).astype(np.float32)
            for shape in ((3, k), (k, 3)))  # fmt: skip
    for one in found:
        for other in found:
            if same_sums(one, other):
                assert (evaluate(one, a, b) == evaluate(other, a, b)).all()
