"""Distributions of test values: patterns of the format, with the property that the name states."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.checker.counterexamples.value_distributions import KINDS, WORDS, draw, integers
from bitwise_core.execution.element_types import element_type
from bitwise_core.numerics import nan_of

TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16")
COUNT = 4096


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_distributions_draw_patterns_of_the_format(name: str, kind: str) -> None:
    buffer_form = element_type(name)
    assert buffer_form.format is not None
    for seed in range(3):
        found = draw(buffer_form, COUNT, kind, np.random.default_rng(seed), 1)
        assert (found.dtype, found.shape) == (np.dtype(f"uint{8 * buffer_form.bytes}"), (COUNT,))
        magnitude = found & found.dtype.type((1 << (buffer_form.format.bits - 1)) - 1)
        assert not (magnitude & found.dtype.type((1 << buffer_form.format.padding) - 1)).any()
        if kind != "special" and buffer_form.format.bits > 8:
            infinity = buffer_form.format.infinity
            assert infinity is not None
            assert (magnitude < infinity).all()
        if kind != "special":
            # A format whose only NaN is the pattern of -0 has one zero, so zeros of both signs contain NaNs.
            assert not (nan_of(found, buffer_form.format) & (magnitude != 0)).any()


def test_every_distribution_has_words() -> None:
    assert list(WORDS) == list(KINDS)
    assert len(set(WORDS.values())) == len(WORDS)


def test_distributions_have_their_stated_property() -> None:
    random = np.random.default_rng(0)
    single = element_type("fp32")
    draws = {kind: draw(single, COUNT, kind, random, None).view(np.float32) for kind in KINDS}
    assert set(np.signbit(draws["minus zeros"]).tolist()) == {True}
    assert (draws["minus zeros"] == 0).all()
    assert set(np.signbit(draws["zeros"][draws["zeros"] == 0]).tolist()) == {True, False}
    assert set(draws["nothing"].view(np.uint32).tolist()) == {0}
    assert set(draws["ones"].tolist()) == {1}
    assert 0 < np.count_nonzero(draws["few"]) < COUNT // 3
    assert (draws["low"] < -1000).all()
    assert (draws["positive"] > 0).all()
    assert (np.abs(draws["subnormal"]) < 2 * np.finfo(np.float32).tiny).all()
    assert float(np.ptp(np.log2(np.abs(draws["wide"])))) > 30
    assert np.isnan(draws["special"]).any() or np.isinf(draws["special"]).any()
    assert np.float32(np.finfo(np.float32).max) in draws["boundaries"]
    large = np.abs(draws["cancelling"]) > 2**20
    assert large.any()
    assert len(set(np.abs(draws["cancelling"][large]).tolist())) == 1


@pytest.mark.parametrize(
    ("width", "largest", "bound"), [(1, None, 255), (4, 3, 3), (8, None, 2**64 - 1), (8, 0, 0), (2, None, 2**16 - 1)]
)
def test_integers_reach_both_bounds(width: int, largest: int | None, bound: int) -> None:
    found = integers(width, COUNT, np.random.default_rng(1), largest)
    assert found.dtype == np.dtype(f"uint{8 * width}")
    assert int(found.max()) <= bound
    assert int(found.max()) >= bound - bound // 100
    assert int(found.min()) <= bound // 100


def test_predicates_are_zero_or_one() -> None:
    assert set(draw(element_type("i1"), COUNT, "wide", np.random.default_rng(2), None).tolist()) == {0, 1}
