"""Random inputs are exact bit patterns, and hashes depend on every bit except NaN payloads."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from bitwise_bench.corpus.cases import Array
from bitwise_bench.draws.formats import FORMATS, round_to_format
from bitwise_bench.draws.inputs import DRAWS, NOT_FINITE, canonical, digest_of, draw, input_positions


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_rounding_to_ieee_formats_agrees_with_numpy(dtype: str) -> None:
    raw = np.random.PCG64(3).random_raw(40000)
    values = np.ldexp((raw >> np.uint64(11)).astype(np.float64) - 2.0**52, (raw % np.uint64(40)).astype(np.int64) - 80)
    native = {"fp16": np.float16, "fp32": np.float32}[dtype]
    expected = values.astype(native).view(f"u{np.dtype(native).itemsize}")
    assert np.array_equal(round_to_format(values, dtype), expected)


@pytest.mark.parametrize(
    ("dtype", "value", "pattern"),
    [
        ("bf16", 1.0, 0x3F80),
        ("bf16", 1.0 + 2.0**-8, 0x3F80),  # a tie goes to the even pattern
        ("bf16", 1.0 + 3 * 2.0**-8, 0x3F82),
        ("bf16", -(2.0**-133), 0x8001),  # the least subnormal
        ("bf16", 1e300, 0x7F7F),  # beyond the range: the largest finite number
        ("fp8e4nv", 448.0, 0x7E),
        ("fp8e4nv", 1e6, 0x7E),
        ("fp8e4nv", -0.0, 0x80),
        ("fp8e4nv", 2.0**-9, 0x01),
        ("fp8e5", 1.125, 0x3C),  # a tie
        ("fp8e5", 57344.0, 0x7B),
        ("fp16", 2.0**-25, 0x0000),  # a tie between zero and the least subnormal
    ],
)
def test_rounding_of_single_values(dtype: str, value: float, pattern: int) -> None:
    assert round_to_format(np.array([value]), dtype).tolist() == [pattern]


PINNED_NORMAL = ["0x3edc2725", "0xbf7f3859", "0x3edfeaa3", "0xbf7d86af"]
PINNED_WIDE = ["0x46c7", "0xc6c0", "0x40a2", "0x4061"]


def test_the_bits_of_a_draw_are_pinned() -> None:
    array = Array("source", "fp32", 4)
    assert [hex(bits) for bits in draw(array, "family/group", "normal").tolist()] == PINNED_NORMAL
    assert [hex(bits) for bits in draw(Array("a", "bf16", 4), "family/group", "wide").tolist()] == PINNED_WIDE


def test_signs_of_64_bit_numbers_are_drawn() -> None:
    drawn = draw(Array("x", "fp64", 1000), "g", "zeros")
    assert drawn.dtype == np.uint64
    assert digest_of(drawn, "fp64") == "ffd15a009c16c2c6"


def test_draws_depend_on_group_buffer_and_kind_only() -> None:
    array = Array("a", "fp16", 64)
    same = Array("a", "fp16", 64, offset=3)
    assert np.array_equal(draw(array, "g", "wide"), draw(same, "g", "wide"))
    others = [draw(array, "h", "wide"), draw(Array("b", "fp16", 64), "g", "wide"), draw(array, "g", "normal")]
    assert not any(np.array_equal(draw(array, "g", "wide"), other) for other in others)


@pytest.mark.parametrize("dtype", sorted(FORMATS))
def test_kinds_have_their_properties(dtype: str) -> None:
    form = FORMATS[dtype]
    drawn = {kind: draw(Array("a", dtype, 20000), "g", kind) for kind in DRAWS}
    exponent = {kind: (bits.astype(np.uint64) & np.uint64(form.infinity)) for kind, bits in drawn.items()}
    assert set(drawn["negative_zero"].tolist()) == {form.sign}
    assert not exponent["subnormal"].any()
    assert {0, form.sign} < set(drawn["zeros"].tolist())
    for kind in ("normal", "wide", "zeros"):
        assert np.array_equal(canonical(drawn[kind], dtype), drawn[kind])
        assert form.quiet_nan not in drawn[kind]
    assert form.quiet_nan in canonical(drawn["special"], dtype)
    if form.infinite:
        assert {form.infinity, form.infinity | form.sign} < set(drawn["special"].tolist())


def test_positive_draws_are_not_negative() -> None:
    for kind in DRAWS:
        assert not (draw(Array("a", "fp32", 500, kind="positive"), "g", kind) >> np.uint32(31)).any()


def test_indices_are_below_their_bound_and_outputs_hold_the_pattern() -> None:
    indices = draw(Array("a", "i64", 500, kind="index", below=7), "g", "normal")
    assert sorted(set(indices.tolist())) == [0, 1, 2, 3, 4, 5, 6]
    assert set(draw(Array("a", "bf16", 5, "output"), "g", "normal").tolist()) == {0xA5A5}
    assert set(draw(Array("a", "fp32", 5, "scratch"), "g", "normal").tolist()) == {0}


def test_hashes_identify_all_nans_and_distinguish_zeros() -> None:
    def hashed(bits: int) -> str:
        return digest_of(np.array([bits], dtype=np.uint32), "fp32")

    assert hashed(0x7F800001) == hashed(0xFFC12345) == hashed(0x7FC00000)
    assert len({hashed(0x7FC00000), hashed(0x7F800000), hashed(0), hashed(0x80000000)}) == 4
    assert digest_of(np.array([0x7F, 0xFF], dtype=np.uint8), "fp8e4nv") == digest_of(
        np.array([0x7F, 0x7F], dtype=np.uint8), "fp8e4nv"
    )
    assert digest_of(np.array([0x7E], dtype=np.uint8), "fp8e4nv") != digest_of(
        np.array([0x7F], dtype=np.uint8), "fp8e4nv"
    )


def thue_morse(index: int) -> int:
    return index.bit_count() % 2


@pytest.mark.parametrize("dtype", sorted(FORMATS))
def test_distinguishing_kinds_have_their_properties(dtype: str) -> None:
    form = FORMATS[dtype]
    drawn = {kind: draw(Array("a", dtype, 4096), "g", kind).astype(np.uint64) for kind in DRAWS}
    later = {kind: draw(Array("a", dtype, 4096), "g", kind, 1).astype(np.uint64) for kind in DRAWS}
    sign, infinity = np.uint64(form.sign), np.uint64(form.infinity)
    assert ((drawn["cancelling"] & sign) != 0).tolist() == [thue_morse(index) == 1 for index in range(4096)]
    assert not (later["cancelling"] & sign).any()
    assert len(set(drawn["few"].tolist())) == 8
    assert not (drawn["opposed"] & sign).any()
    assert set(later["opposed"].tolist()) == {form.sign}
    assert (drawn["tiny"] & (sign - np.uint64(1)) == 0).mean() > 0.8
    assert 0 < (drawn["tiny"] & infinity).max() <= 4 << form.mantissa
    assert (drawn["huge"] & infinity).min() >= (2 * form.bias - 3) << form.mantissa
    assert form.quiet_nan not in canonical(drawn["huge"], dtype)
    fields = set(((drawn["whole"] & infinity) >> np.uint64(form.mantissa)).tolist())
    highest = 2 * form.bias - 1 if form.infinite else 2 * form.bias
    if dtype == "fp64":  # 4096 numbers do not contain all of its exponents
        assert max(fields) - min(fields) > 1900
    else:  # a number just below a power of two may be rounded to it
        assert min(fields) == 1
        assert max(fields) in (highest, highest + 1)
    assert not np.array_equal(drawn["wide"], drawn["wide.2"])
    for kind in DRAWS:
        bad = np.isin(canonical(drawn[kind], dtype) & ~sign, [form.infinity] if form.infinite else [], invert=False)
        assert not bad.any() or kind in NOT_FINITE
    assert (canonical(drawn["infinite"], dtype) == form.quiet_nan).sum() > 8
    assert 8 < (canonical(drawn["nans"], dtype) == form.quiet_nan).sum() < 80
    nans = [(canonical(each, dtype) == form.quiet_nan).nonzero()[0].tolist() for each in (drawn["last"], later["last"])]
    assert nans == [[4095], []]
    signalling = (drawn["signalling"] & ~sign) == form.signalling_nan
    assert signalling.tolist() == (canonical(drawn["signalling"], dtype) == form.quiet_nan).tolist()
    assert (form.signalling_nan == form.quiet_nan) == (dtype == "fp8e4nv")
    assert 4096 / 32 < signalling.sum() < 4096 / 8
    beyond = form.infinity if form.infinite else form.quiet_nan - 1
    assert np.flatnonzero(drawn["lone"] >= np.uint64(beyond)).tolist() == [2048]
    assert not (drawn["lone"] & sign).any()
    assert np.flatnonzero(later["lone.2"] >= np.uint64(beyond)).tolist() == [2048]
    near, far = (round_to_format(np.array([each]), dtype)[0] for each in (16.0, 64.0))
    assert ((drawn["far"] & ~sign) > near).mean() > 0.5
    assert ((drawn["far.2"] & ~sign) > far).mean() > 0.2
    assert (drawn["underflow"] & sign).all()
    assert not (later["underflow"] & sign).any()
    assert (later["underflow.2"] & sign).all()


@pytest.mark.parametrize(("kind", "distance"), [("ladder", 4), ("ladder.2", 512), ("ladder.3", 1024)])
def test_squares_of_a_ladder_are_half_an_ulp_of_the_next(kind: str, distance: int) -> None:
    drawn = draw(Array("a", "fp32", 16384), "g", kind).view(np.float32).astype(np.float64)
    ladders = np.flatnonzero(drawn == 2.0**-62)
    assert 0 < len(ladders) < len(drawn) / 32
    for start in ladders:
        rungs = [*drawn[start : start + 4], *drawn[start + distance : start + distance + 4]]
        assert [rung**2 / below**2 for below, rung in itertools.pairwise(rungs[2:])] == [2.0**24] * 5
        assert rungs[2] ** 2 / rungs[0] ** 2 == 2.0**24
        assert 0 < rungs[1] ** 2 - 2.0**-148 < 2.0**-150


@pytest.mark.parametrize("kind", ["ladder.7", "ladder.8", "ladder.9", "steps"])
def test_squares_beside_a_ladder_are_zeros(kind: str) -> None:
    parts = draw(Array("a", "bf16", 16384), "g", kind).astype(np.uint32) << np.uint32(16)
    values = parts.view(np.float32).astype(np.float64).reshape(-1, 256)
    ladders = (values == 2.0**10).any(axis=1)
    assert 4 <= ladders.sum() <= 32
    assert (values[~ladders] ** 2 < 2.0**-150).all()
    for row in values[ladders]:
        rungs = np.sort(row[row**2 >= 2.0**-150])
        assert [each**2 / below**2 for below, each in itertools.pairwise(rungs[1:])] == [2.0**24] * 6
        assert 2.0**-148 < rungs[0] ** 2 < 2.0**-146
        assert bool(rungs[0] ** 2 > 2.0**-147) is (kind == "steps")
        assert (row != 0).sum() > 200


def test_inputs_of_a_configuration_are_numbered() -> None:
    arrays = (Array("c", "fp16", 4, "output"), Array("a", "fp16", 4), Array("i", "i32", 4), Array("b", "fp16", 4))
    assert [place for _, place in input_positions(SimpleNamespace(arrays=arrays))] == [0, 0, 1, 1]  # type: ignore[arg-type]
