"""Tensor copies that combine shared memory with what global memory holds (cp.reduce.async.bulk.tensor)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.checker.analysis import analyse, prepare
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_nvidia_sm90.architecture import SM90

WORDS = 32
BYTES = {"fp16": 2, "bf16": 2, "i64": 8}

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 .ptr .global in, .param .u64 .ptr .global out)
.reqntid 32
{
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .b16 %h<4>;
  mov.u32 %r0, %tid.x; mov.u32 %r9, %ctaid.x; mov.b32 %r1, smem; setp.eq.u32 %p0, %r0, 0; mov.b64 %rd3, map;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mad.lo.u32 %r2, %r9, 32, %r0; mad.wide.u32 %rd4, %r2, 4, %rd1;
  mad.lo.u32 %r3, %r0, 4, %r1; ld.global.b32 %r4, [%rd4];
"""
REDUCED = """
  st.shared.b32 [%r3], %r4; fence.proxy.async.shared::cta; bar.sync 0;
  mul.lo.u32 %r5, %r9, STEP;
  @%p0 cp.reduce.async.bulk.tensor.1d.global.shared::cta.VERB.bulk_group [%rd3, {%r5}], [%r1];
  @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group.read 0; ret;
}
"""
WAITED = "@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group.read 0;"
UPDATED = "mad.wide.u32 %rd5, %r0, 4, %rd2; red.global.VERB [%rd5], %r4; ret;\n}\n"


def source(verb: str, dtype: str, blocks: int = 1, *, apart: bool = False, body: str = REDUCED) -> Source:
    """Return a kernel whose blocks combine 32 words of `in` with the same words of `out`, or with words `apart`."""
    count = WORDS * 4 // BYTES.get(dtype, 4)
    tensor = {"buffer": "out", "dtype": dtype, "shape": [count * blocks], "strides": [1], "block": [count]}
    described = [{"tensor_map": tensor}, {"buffer": "in", "dtype": "u32"}, {"buffer": "out", "dtype": dtype}]
    launch = Launch.model_validate({"file": "k.ptx", "grid": [blocks], "args": described})
    text = HEAD + body.replace("VERB", verb).replace("STEP", str(count if apart else 0))
    return Source("k.ptx", text, launch)


def words(blocks: int, seed: int, numbers: str = "u4") -> npt.NDArray[Any]:
    rng = np.random.default_rng(seed)
    if numbers[0] in "ui":
        return rng.integers(0, 1 << 32, WORDS * blocks, dtype=np.uint32).view(numbers)
    return rng.standard_normal(WORDS * blocks * 4 // np.dtype(numbers).itemsize).astype(numbers)


def simulated(kernel: Source, given: npt.NDArray[Any], before: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    memory = {"in": given.view(np.uint8), "out": before.view(np.uint8)}
    return np.asarray(simulate(prepare(kernel, SM90, Options()), memory).after["out"])


def read(kernel: Source) -> AnalysisResult:
    return analyse(kernel, SM90, {"in": 1, "out": 2}, Options())


INTEGERS = [("i32", "i4"), ("u32", "u4")]
COMBINED = {"min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@pytest.mark.parametrize(("dtype", "numbers"), INTEGERS)
@pytest.mark.parametrize("verb", COMBINED)
def test_integers_are_combined_with_the_contents(verb: str, dtype: str, numbers: str) -> None:
    given, before = words(1, 1, numbers), words(1, 2, numbers)
    found = simulated(source(verb, dtype), given, before)
    assert np.array_equal(found.view(numbers), COMBINED[verb](given, before))


@pytest.mark.parametrize(("dtype", "numbers"), [("i32", "i4"), ("u32", "u4"), ("fp16", "f2"), ("fp32", "f4")])
def test_numbers_are_added_to_the_contents(dtype: str, numbers: str) -> None:
    given, before = words(2, 1, numbers), words(2, 2, numbers)
    found = simulated(source("add", dtype, 2, apart=True), given, before)
    assert np.array_equal(found.view(numbers), given + before)


def test_the_order_of_blocks_has_no_effect_on_an_extremum() -> None:
    given, before = words(3, 1, "i4"), words(1, 2, "i4")
    found = simulated(source("max", "i32", 3), given, np.concatenate([before, before, before]))
    assert np.array_equal(found.view("i4")[:WORDS], np.maximum(given.reshape(3, WORDS).max(axis=0), before))
    assert read(source("max", "i32", 3)).signature is not None


@pytest.mark.parametrize(
    ("verb", "dtype", "updated"),
    [("max", "i32", "max.s32"), ("min", "u32", "min.u32"), ("xor", "i32", "xor.b32"), ("add", "i32", "add.s32")],
)
def test_a_reduction_is_an_atomic_operation_of_each_element(verb: str, dtype: str, updated: str) -> None:
    found = [read(source(verb, dtype)), read(source(updated, dtype, body=UPDATED))]
    assert found[0].signature is not None, found[0].unknown
    assert found[0].signature == found[1].signature
    assert found[0].signature != read(source("min.s32", dtype, body=UPDATED)).signature


def test_a_sum_of_fp32_keeps_subnormals_unlike_an_atomic_addition() -> None:
    given, before = (np.full(WORDS, each, dtype="u4") for each in (0x00224952, 0x81437C56))
    assert set(simulated(source("add", "fp32"), given, before).view("u4")) == {0x813257AD}
    atomic = source("add.f32", "fp32", body=UPDATED)
    assert set(simulated(atomic, given, before).view("u4")) == {0x81437C56}
    assert read(source("add", "fp32")).signature != read(atomic).signature


def test_sums_of_floats_of_several_blocks_are_not_determined() -> None:
    assert read(source("add", "fp32", 2)).nondeterministic
    assert read(source("add", "i32", 2)).signature is not None
    assert read(source("add", "fp32", 2, apart=True)).signature is not None


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (source("max", "fp16"), "on elements of the type f16"),
        (source("max", "i64"), "on elements of the type s64"),
        (source("inc", "u32"), "not modelled"),
        (source("max", "i32", body=REDUCED.replace("fence.proxy.async.shared::cta;", "")), "no proxy fence"),
        (source("max", "i32", body=REDUCED.replace(WAITED, "st.shared.b32 [%r3], %r0;")), "that another reads"),
    ],
)  # fmt: skip
def test_what_is_not_determined_is_unknown(kernel: Source, reason: str) -> None:
    found = read(kernel)
    assert found.unknown is not None
    assert reason in found.unknown


def test_a_load_of_what_is_reduced_is_a_race() -> None:
    load = "mad.wide.u32 %rd5, %r0, 4, %rd2; ld.global.b32 %r4, [%rd5]; st.global.b32 [%rd4], %r4; ret;"
    kernel = source("max", "i32", body=REDUCED.replace("ret;", load))
    assert read(kernel).signature is None
    with pytest.raises(Unsupported):
        simulated(kernel, words(1, 1), words(1, 2))
