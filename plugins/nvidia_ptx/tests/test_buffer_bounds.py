"""Pointers into tensors, sizes of buffers that a launch states, and ordered atomic operations beside other accesses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bitwise_core.checker.analysis import Session
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Argument, Launch, Manifest, buffer_at, offset_at
from bitwise_core.execution.races.undetermined import Kind
from bitwise_core.execution.tensor_contents import TensorContents
from ptx_programs import ARCH, text

FLIPPED = "mul.wide.u32 %d4, %r0, 4; sub.s64 %d5, %d1, %d4; ld.global.f32 %f1, [%d5]; add.s64 %d6, %d0, %d4; "
STORE = "st.global.f32 [%d6], %f1;"


def analysed(
    body: str, elements: Sequence[int | None] = (None, None), *, threads: int = 32, blocks: int = 1
) -> AnalysisResult:
    arguments = tuple(
        Argument(kind="buffer", buffer=name, dtype="fp32", elements=count)
        for name, count in zip(("out", "in"), elements, strict=True)
    )
    launch = Launch(file="k.ptx", entry="k", grid=(blocks, 1, 1), block=(threads, 1, 1), args=arguments)
    source = Source("k.ptx", text(body, threads=threads), launch)
    return Session({"out": 1, "in": 2}, Options()).analyse(source, ARCH)


def test_a_buffer_reaches_below_its_pointer() -> None:
    first, again = analysed(FLIPPED + STORE), analysed(FLIPPED + "mov.f32 %f2, %f1; st.global.f32 [%d6], %f2;")
    other = analysed(FLIPPED.replace("sub.s64 %d5, %d1, %d4", "add.s64 %d5, %d1, %d4") + STORE)
    assert first.unknown is None
    assert first.signature == again.signature != other.signature


@pytest.mark.parametrize("address", [1 << 40, (1 << 40) - 4, (1 << 40) + 4, (3 << 40) - (1 << 39)])
def test_addresses_below_a_buffer_belong_to_it(address: int) -> None:
    number = buffer_at(address)
    assert address == (number << 40) + offset_at(address)
    assert -(1 << 39) <= offset_at(address) < 1 << 39


def test_the_null_pointer_is_in_no_buffer() -> None:
    found = analysed("mov.u64 %d5, 64; ld.global.f32 %f1, [%d5]; st.global.f32 [%d0], %f1;")
    assert "outside every buffer" in str(found.unknown)


ADDRESS = 0x7F60D1E0C400
"""An address of a device, as a tensor of pointers holds it that is given as integers."""


@pytest.mark.parametrize(
    "access", ["ld.global.f32 %f1, [%d5];", "st.global.f32 [%d5], %f1;", "red.global.add.u32 [%d5], 1;"]
)
def test_an_address_of_a_device_is_in_no_buffer(access: str) -> None:
    found = analysed(f"mov.u64 %d5, {ADDRESS}; mov.f32 %f1, 0f3F800000; {access} st.global.f32 [%d0], %f1;", threads=1)
    assert "outside every buffer" in str(found.unknown)


COPY = "mul.wide.u32 %d4, %r0, 4; add.s64 %d5, %d1, %d4; ld.global.f32 %f1, [%d5]; add.s64 %d6, %d0, %d4; "


@pytest.mark.parametrize(("elements", "determined"), [((32, 32), True), ((32, 31), False), ((31, 32), False)])
def test_accesses_beyond_the_elements_are_not_determined(elements: tuple[int, int], determined: bool) -> None:
    found = analysed(COPY + STORE, elements)
    assert (found.unknown is None) == determined
    assert found.nondeterministic != determined
    assert [each.kind for each in found.places] == [Kind.UNDEFINED.value] * (not determined)
    if elements == (31, 32):
        assert "not determined: memory beyond the elements of a buffer is written" in str(found.unknown)
    if elements == (32, 31):
        assert "not determined: a stored value is undefined at line" in str(found.unknown)


def test_a_stored_value_that_is_undefined_and_one_of_a_race_are_both_named() -> None:
    race = "ld.global.u32 %r2, [%d6+4]; st.global.u32 [%d6+128], %r2;"
    found = analysed(f"{COPY}{STORE}{race}", (64, 31))
    assert "depends on the order in which threads run, or is undefined, at line" in str(found.unknown)


@pytest.mark.parametrize("elements", [32, 31])
@pytest.mark.parametrize(
    "operation",
    ["red.global.add.u32 [%d6], 1;", "atom.global.exch.b32 %r2, [%d6], 1;", "st.global.v2.b32 [%d6+-4], {%r0, %r0};"],
)
def test_atomic_operations_and_vectors_beyond_the_elements_are_not_determined(operation: str, elements: int) -> None:
    place = "mul.wide.u32 %d4, %r0, 4; add.s64 %d6, %d0, %d4; setp.eq.u32 %p1, %r0, 31; @%p1 "
    found = analysed(place + operation, (elements, 32))
    assert (found.unknown is None) == (elements == 32)
    assert found.nondeterministic == (elements != 32)


GATHERED = "mul.wide.u32 %d4, %r0, 4; add.s64 %d5, %d1, %d4; ld.global.b32 %r2, [%d5]; add.s64 %d6, %d0, %d4; "


@pytest.mark.parametrize("elements", [None, 31, 40])
def test_what_lies_beyond_the_elements_of_given_contents_is_undetermined(elements: int | None) -> None:
    """Only a load within the elements and beyond the values asks for more values."""
    given = TensorContents(np.arange(31, dtype="<i4").tobytes(), "i32")
    arguments = (Argument(kind="buffer", buffer="out"),
                 Argument(kind="buffer", buffer="in", dtype="i32", elements=elements, values=given))  # fmt: skip
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(32, 1, 1), args=arguments)

    def found(body: str) -> AnalysisResult:
        return Session({"out": 1, "in": 2}, Options()).analyse(Source("k.ptx", text(GATHERED + body), launch), ARCH)

    stored = found("st.global.b32 [%d6], %r2;")
    assert stored.unknown is not None
    if elements == 31:
        assert stored.nondeterministic
        assert [each.kind for each in stored.places] == [Kind.UNDEFINED.value]
        masked = found("setp.lt.u32 %p1, %r0, 31; @%p1 st.global.b32 [%d6], %r2;")
        assert masked.unknown is None
        assert masked.signature == found("setp.lt.u32 %p1, %r0, 31; @%p1 st.global.b32 [%d6], %r0;").signature
    else:
        assert "give all values that the kernel reads" in stored.unknown
        assert not stored.nondeterministic


def test_what_is_read_beyond_and_masked_has_no_effect() -> None:
    masked = COPY + "setp.lt.u32 %p1, %r0, 31; @%p1 st.global.f32 [%d6], %f1;"
    assert analysed(masked, (32, 31)).unknown is None


def test_below_a_buffer_with_a_size_is_beyond_it() -> None:
    assert analysed(FLIPPED + STORE, (32, 32)).unknown is not None


@pytest.mark.parametrize("count", [(1 << 20, 1 << 20), (1 << 20, (1 << 20) - 1)])
def test_large_grids_are_checked_by_block_symmetry(count: tuple[int, int]) -> None:
    body = "mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 1024, %r0; mul.wide.u32 %d4, %r2, 4;" + COPY.split(";", 1)[1]
    found = analysed(body + STORE, count, threads=1024, blocks=1024)
    assert (found.unknown is None) == (count[1] == 1 << 20)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"buffer": "x", "elements": 3}, "needs a buffer and the `dtype`"),
        ({"buffer": None, "dtype": "fp32", "elements": 3}, "needs a buffer and the `dtype`"),
        ({"buffer": "x", "dtype": "fp32", "elements": -1}, "greater than or equal to 0"),
    ],
)
def test_wrong_elements_are_rejected(argument: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Manifest.model_validate({"kernels": [{"file": "k.ptx", "grid": 1, "args": [argument]}]})


def test_two_sizes_of_one_buffer_are_rejected() -> None:
    arguments = [{"buffer": "x", "dtype": "fp32", "elements": count} for count in (3, 4)]
    with pytest.raises(ValueError, match="different numbers of elements"):
        Manifest.model_validate({"kernels": [{"file": "k.ptx", "grid": 1, "args": arguments}]})


def test_elements_are_written_as_they_are_read() -> None:
    argument = Argument(kind="buffer", buffer="x", dtype="fp32", elements=0)
    assert Argument.model_validate(argument.short()) == argument


ATOMIC = "setp.eq.u32 %p1, %r0, 0; mov.f32 %f1, 0f40000000; @%p1 red.global.add.f32 [%d0], %f1;"


def test_an_ordered_sum_may_be_read_and_its_buffer_stored() -> None:
    """One thread adds to an element, reads it, and stores to another element of the buffer."""
    read = ATOMIC + "@%p1 ld.global.f32 %f2, [%d0]; @%p1 st.global.f32 [%d0+4], %f2;"
    computed = (
        "setp.eq.u32 %p1, %r0, 0; ld.global.f32 %f3, [%d0]; mov.f32 %f1, 0f40000000; add.rn.ftz.f32 %f2, %f3, %f1;"
    )
    computed += "@%p1 st.global.f32 [%d0], %f2; @%p1 st.global.f32 [%d0+4], %f2;"
    found, other = analysed(read), analysed(computed)
    assert found.outputs is not None
    assert other.outputs is not None
    words = found.outputs[1].words
    half = words.shape[1] // 2
    assert np.array_equal(words[:, :half], words[:, half:]), "the element and its copy have one content"
    assert other.outputs[1].address.tolist() == found.outputs[1].address.tolist()


@pytest.mark.parametrize(
    "body",
    [
        "mov.f32 %f1, 0f40000000; red.global.add.f32 [%d0], %f1; ld.global.f32 %f2, [%d0]; st.global.f32 [%d0+4], %f2;",
        ATOMIC + "ld.global.f32 %f2, [%d0]; st.global.f32 [%d0+4], %f2;",
        ATOMIC + "st.global.f32 [%d0], %f1;",
    ],
    ids=["several contributors", "read by all threads", "stored by all threads"],
)
def test_sums_without_an_order_to_other_accesses_are_not_determined(body: str) -> None:
    assert analysed(body).unknown is not None


def test_plain_stores_and_atomic_sums_of_different_elements_share_a_buffer() -> None:
    body = "mov.u32 %r1, 1; red.global.add.u32 [%d0], %r1; setp.eq.u32 %p1, %r0, 3; @%p1 st.global.u32 [%d0+4], %r1;"
    assert analysed(body).unknown is None
    meeting = body.replace("[%d0+4]", "[%d0]")
    found = analysed(meeting)
    assert found.nondeterministic
    assert "depends on the order in which threads run" in str(found.unknown)
