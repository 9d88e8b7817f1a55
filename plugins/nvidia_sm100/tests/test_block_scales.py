"""tcgen05.mma of packed elements, with block scales and without, and tcgen05.cp: bytes against sums of fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.checker.analysis import analyse, prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.plugins import registry
from bitwise_nvidia_sm100.descriptors import scale_vector
from tcgen05_kernels import Text, executed, reading, registers, smem_descriptor

Bytes = npt.NDArray[np.uint8]
FORMS = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e2m1": (2, 1, 1)}
"""The bits of exponent and significand, and the bias."""
NUMBERS = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
A_SCALES, B_SCALES, A_ROWS = 256, 264, 320
"""The first columns of the scales, and of the rows of A."""


@dataclass(frozen=True)
class Case:
    """A product of 128 rows by `n` columns in two native steps, with the scales of each step at other bytes.

    Kind f8f6f4 has no scales.
    """

    kind: str = "mxf8f6f4"
    left: str = "e4m3"
    right: str = "e4m3"
    n: int = 32
    scales: int = 1
    form: str = "ue8m0"
    swizzle: int = 64
    suffix: str | None = None
    copied: bool = False
    in_tensor_memory: bool = False
    target: str = "sm_100"

    @property
    def k(self) -> int:
        return 32 if self.kind in ("mxf8f6f4", "f8f6f4") else 64

    @property
    def block(self) -> int:
        return self.k // self.scales

    @property
    def bytes(self) -> list[int]:
        """The bytes of the scales of each step; four scales fill a word."""
        return [0, 0] if self.scales == 4 else [0, 2] if self.scales == 2 else [1, 3]

    @property
    def opcode(self) -> str:
        if self.kind == "f8f6f4":
            return "tcgen05.mma.cta_group::1.kind::f8f6f4"
        suffix = f"scale_vec::{self.scales}X" if self.suffix is None else self.suffix
        return f"tcgen05.mma.cta_group::1.kind::{self.kind}.block_scale" + (f".{suffix}" if suffix else "")

    def descriptor(self, step: int) -> int:
        """Return the instruction descriptor of a step; A and B have their scales at one byte."""
        types = NUMBERS[self.left] << 7 | NUMBERS[self.right] << 10 if self.k == 32 else 1 << 7 | 1 << 10
        if self.kind == "f8f6f4":
            return 1 << 4 | types | self.n >> 3 << 17 | 8 << 24
        byte = self.bytes[step]
        return byte << 4 | types | self.n >> 3 << 17 | (self.form == "ue8m0") << 23 | 1 << 27 | byte << 29


def width(form: str) -> int:
    return 1 + sum(FORMS[form][:2])


def stored_row(elements: npt.NDArray[np.int64], form: str, *, padded: bool) -> bytes:
    """Return the bytes of a row in shared memory: without gaps, or 16 elements at the beginning of 16 bytes each."""
    count = 16 if padded else len(elements)
    found = b""
    for start in range(0, len(elements), count):
        whole = sum(int(each) << width(form) * k for k, each in enumerate(elements[start : start + count]))
        part = whole.to_bytes(count * width(form) // 8, "little")
        found += part + b"\xa5" * (16 - len(part) if padded else 0)
    return found


def tile(matrix: npt.NDArray[np.int64], form: str, case: Case) -> Bytes:
    """Return the image of both steps of an operand, 32 bytes a row and step, in the layout of a tensor copy."""
    padded = case.k == 32 and width(form) < 8
    rows = np.array([list(stored_row(row, form, padded=padded)) for row in matrix], dtype=np.uint8)
    assert rows.shape[1] == 64
    image, pitch = np.zeros(rows.size, dtype=np.uint8), case.swizzle or 16
    row, byte = np.indices(rows.shape)
    if case.swizzle:
        place = byte // pitch * len(rows) * pitch + row * pitch + byte % pitch
        place ^= (row // (128 // pitch) % (pitch // 16)) << 4
    else:
        place = byte // 16 * len(rows) * 16 + row * 16 + byte % 16
    image[place] = rows
    return image


def tile_descriptor(case: Case, rows: int, start: int, step: int) -> int:
    if case.swizzle == 0:
        return smem_descriptor(start + step * 2 * rows * 16, rows * 16, 128, 0)
    at = step * 32
    return smem_descriptor(
        start + at // case.swizzle * rows * case.swizzle + at % case.swizzle, 16, 8 * case.swizzle, case.swizzle
    )


@dataclass(frozen=True)
class Data:
    """Elements of shape (rows, 2 k), the words of scales of shape (rows,), and the input of the kernel."""

    elements: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    scales: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    content: Bytes


def patterns(random: np.random.Generator, shape: tuple[int, int], form: str) -> npt.NDArray[np.int64]:
    """Return patterns of a format that are no NaN and no infinity."""
    found = random.integers(0, 1 << width(form), shape)
    if form in ("e4m3", "e5m2"):
        found &= 0xBF
    return found


def kernel(case: Case) -> tuple[str, Data]:
    """Return a kernel and its data: the second step adds to the first."""
    random = np.random.default_rng(len(str(case)) + case.n)
    elements = patterns(random, (128, 2 * case.k), case.left), patterns(random, (case.n, 2 * case.k), case.right)
    middle = 127 if case.form == "ue8m0" else 56
    scales = []
    for rows in (128, case.n):
        each = random.integers(middle - 6, middle + 6, (rows, 4))
        scales.append((each << 8 * np.arange(4)).sum(axis=1))
    a, b = (tile(matrix, form, case) for matrix, form in zip(elements, (case.left, case.right), strict=True))
    start = -(-a.size // 1024) * 1024
    words = np.zeros((2, 256), dtype=np.uint32)
    words[0, :128], words[1, : case.n] = scales
    copies = start + -(-b.size // 1024) * 1024
    image = np.zeros(copies + 2048, dtype=np.uint8)
    image[: a.size], image[start : start + b.size] = a, b
    image[copies : copies + 2048] = words.reshape(2, 2, 4, 32).transpose(0, 1, 3, 2).copy().view(np.uint8).ravel()
    # Lane r of each quarter holds the words of rows r, r + 32, ... of A and of B.
    own = np.stack([words[0, :128].reshape(4, 32).T, *words[1].reshape(2, 4, 32).transpose(0, 2, 1)], axis=1)
    content = np.concatenate([image, own.reshape(32, 12).astype(np.uint32).view(np.uint8).ravel()])
    rows = np.array([list(stored_row(row, case.left, padded=False)) for row in elements[0]], dtype=np.uint8)
    text = Text(512, target=case.target).copy_in(image.size)
    if case.in_tensor_memory:
        text.read_in(100, 16, content.size).store("32x32b", 16, 100, 16, f"[%r7+{A_ROWS}]")
        content = np.concatenate([content, rows.ravel()])
    if not case.copied:
        # The threads of all warps load the same words, so that the quarters of the lanes hold copies.
        text.add("and.b32 %r8, %r1, 31;", "mad.wide.u32 %rd11, %r8, 48, %rd1;")
        text.add(*(f"ld.global.b32 %r{100 + each}, [%rd11+{image.size + 4 * each}];" for each in range(12)))
        text.store("32x32b", 4, 100, 4, f"[%r7+{A_SCALES}]").store("32x32b", 8, 104, 8, f"[%r7+{B_SCALES}]")
    text.barrier()
    if case.copied:
        for place, part in ((A_SCALES, 0), (B_SCALES, 2), (B_SCALES + 4, 3)):
            at = smem_descriptor(copies + 512 * part, 16, 128, 0)
            text.add(f"mov.b64 %rd30, {at};", f"@%p2 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r3+{place}], %rd30;")
    for step in range(2):
        left = f"[%r3+{A_ROWS + 8 * step}]" if case.in_tensor_memory else "%rd30"
        scales_of = "" if case.kind == "f8f6f4" else f" [%r3+{A_SCALES}], [%r3+{B_SCALES}],"
        text.add(
            f"mov.b64 %rd30, {tile_descriptor(case, 128, 0, step)};",
            f"mov.b64 %rd31, {tile_descriptor(case, case.n, start, step)};",
            f"mov.b32 %r30, {case.descriptor(step)};",
            f"@%p2 {case.opcode} [%r3], {left}, %rd31, %r30,{scales_of} %p{4 - step};",
        )
    text.commit()
    size = min(32, case.n & -case.n)
    for first in range(0, case.n, size):
        text.load("32x32b", size, 400 + first, size, f"[%r7+{first}]")
    text.write_out(400, case.n)
    return text.whole(), Data(elements, (scales[0], scales[1]), content)


def number(pattern: int, form: str) -> tuple[Fraction, int]:
    """Return the value and exponent of a finite element."""
    exponent_bits, fraction_bits, bias = FORMS[form]
    field, fraction = pattern >> fraction_bits & (1 << exponent_bits) - 1, pattern & (1 << fraction_bits) - 1
    exponent = max(field, 1) - bias
    whole = fraction + (1 << fraction_bits if field else 0)
    return (-1 if pattern >> exponent_bits + fraction_bits else 1) * whole * Fraction(2) ** (
        exponent - fraction_bits
    ), exponent


def scale(pattern: int, form: str) -> tuple[Fraction, int]:
    return (Fraction(2) ** (pattern - 127), pattern - 127) if form == "ue8m0" else number(pattern, "e4m3")


def rounded(value: Fraction) -> int:
    """Return the fp32 pattern of a normal number that is cut."""
    if not value:
        return 0
    exponent, size = -126, abs(value)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    return (value < 0) << 31 | math.floor(size / Fraction(2) ** (exponent - 23)) + (exponent + 126 << 23)


Vectors = tuple[Sequence[int], Sequence[int]]


def after_step(last: int, elements: Vectors, scales: Vectors, forms: tuple[str, str], form: str) -> int:
    """Return last + A B by exact arithmetic, for the elements of a row and a column and their scales in a step.

    Products, or groups of 16 of them where a step has 64, are cut below the largest exponent.
    """
    count = len(elements[0])
    group, kept = (1, 25) if count == 32 else (16, 35)
    block = count // len(scales[0])
    terms = []
    for start in range(0, count, group):
        one, other = (scale(each[start // block], form) for each in scales)
        products, exponent = Fraction(0), one[1] + other[1]
        for k in range(start, start + group):
            a, b = (number(each[k], name) for each, name in zip(elements, forms, strict=True))
            products += a[0] * b[0]
            exponent += a[1] + b[1] if group == 1 else 0
        terms.append((products * one[0] * other[0], exponent))
    total = float(np.array(last, dtype=np.uint32).view(np.float32))
    if total:
        terms.append((Fraction(total), math.frexp(total)[1] - 1))
    terms = [each for each in terms if each[0]]
    unit = Fraction(2) ** (max((exponent for _, exponent in terms), default=0) - kept)
    return rounded(sum((math.trunc(value / unit) for value, _ in terms), 0) * unit)


def expected(case: Case, data: Data, row: int, column: int) -> int:
    """Return an element of D by exact arithmetic."""
    last = 0
    for step in range(2):
        here = slice(step * case.k, (step + 1) * case.k)
        elements = data.elements[0][row, here].tolist(), data.elements[1][column, here].tolist()
        words = int(data.scales[0][row]), int(data.scales[1][column])
        first = case.bytes[step]
        one, other = ([word >> 8 * (first + place) & 255 for place in range(case.scales)] for word in words)
        if case.kind == "f8f6f4":
            one, other = [127], [127]
        last = after_step(last, elements, (one, other), (case.left, case.right), case.form)
    return last


MX4 = Case("mxf4", "e2m1", "e2m1", scales=2)
NV4 = replace(MX4, kind="mxf4nvf4", scales=4, form="ue4m3")
CASES = [
    *(Case(left=left, right=right) for left in FORMS for right in FORMS),
    *(Case(n=n, swizzle=swizzle) for n, swizzle in ((8, 0), (24, 32), (40, 64), (256, 64))),
    *(replace(each, n=n, swizzle=swizzle) for each in (MX4, NV4) for n, swizzle in ((8, 0), (136, 64), (256, 32))),
    replace(NV4, form="ue8m0"),
    replace(MX4, kind="mxf4nvf4"),
    *(replace(each, copied=True, n=n) for each in (Case(right="e2m1"), MX4, NV4) for n in (32, 256)),
    *(Case(left=left, n=48, in_tensor_memory=True) for left in ("e4m3", "e5m2")),
    Case(suffix=""),
    Case(suffix="block32"),
    replace(MX4, suffix=""),
    replace(MX4, suffix="block32"),
    replace(NV4, suffix="block16"),
    replace(NV4, target="sm_103"),
    *(
        Case("f8f6f4", left, right, n=48, swizzle=swizzle)
        for left, right, swizzle in (
            ("e2m1", "e2m1", 64),
            ("e2m3", "e3m2", 32),
            ("e3m2", "e4m3", 0),
            ("e5m2", "e2m1", 64),
        )
    ),
    Case("f8f6f4", "e5m2", "e2m3", in_tensor_memory=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_have_the_bits_of_an_exact_sum(case: Case) -> None:
    text, data = kernel(case)
    found = executed(text, data.content, 512 * case.n, case.target).reshape(128, case.n)
    random = np.random.default_rng(3)
    places = [(0, 0), (127, case.n - 1), *zip(random.integers(0, 128, 30), random.integers(0, case.n, 30), strict=True)]
    assert [found[place] for place in places] == [expected(case, data, *place) for place in places]


def test_scales_that_are_copied_are_those_that_are_stored() -> None:
    """The terms are of one input; only the way of the scales to tensor memory differs."""
    for case in (Case(n=256), replace(NV4, n=136)):
        one, other = reading(kernel(case)[0]), reading(kernel(replace(case, copied=True))[0])
        assert (one.unknown, other.unknown) == (None, None)


def test_kinds_with_the_same_numbers_are_different_steps() -> None:
    """Nobody has compared their bits."""
    unscaled = Case("f8f6f4", "e2m1", "e2m1")
    assert reading(kernel(unscaled)[0]).signature not in (
        None,
        reading(kernel(replace(unscaled, left="e2m3"))[0]).signature,
    )
    texts = [MX4, replace(MX4, kind="mxf4nvf4"), replace(MX4, kind="mxf4nvf4", scales=4)]
    found = [reading(kernel(each)[0]).signature for each in texts]
    assert None not in found
    assert len(set(found)) == 3
    same = reading(kernel(replace(MX4, suffix=""))[0]).signature
    assert same == found[0]


COPY = "@%p2 tcgen05.cp.cta_group::1.32x128b.warpx4"
CHANGES = {
    "another byte of the scales of A": (f"{MX4.descriptor(1)};", f"{MX4.descriptor(1) ^ 2 << 29};"),
    "another byte of the scales of B": (f"{MX4.descriptor(1)};", f"{MX4.descriptor(1) ^ 2 << 4};"),
    "other columns of scales": (f"[%r3+{B_SCALES}], %p4;", f"[%r3+{B_SCALES + 1}], %p4;"),
    "the scales exchanged": (f"[%r3+{A_SCALES}], [%r3+{B_SCALES}], %p4;", f"[%r3+{B_SCALES}], [%r3+{A_SCALES}], %p4;"),
    "a copy to other columns": (f"[%r3+{A_SCALES}], %rd30;", f"[%r3+{A_SCALES + 1}], %rd30;"),
    "no copy of the scales of A": (f"{COPY} [%r3+{A_SCALES}], %rd30;", ""),
    "no commit": ("@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd20];", ""),
    "all threads copy": (COPY, COPY[5:]),
    "a copy by another thread": (COPY, "@%p8" + COPY[4:]),
    "another shape of copy": ("32x128b.warpx4", "64x128b.warpx2::02_13"),
    "no proxy fence": ("fence.proxy.async.shared::cta;", ""),
    "scales that nothing has written": (f"[%r3+{B_SCALES}], %p4;", "[%r3+400], %p4;"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_kernel_is_not_equal(change: str) -> None:
    text = kernel(replace(MX4, copied=True))[0].replace(
        "mov.pred %p3, -1;", "mov.pred %p3, -1; setp.eq.u32 %p8, %r1, 32;"
    )
    original = reading(text)
    assert original.signature is not None
    old, new = CHANGES[change]
    assert old in text
    found = reading(text.replace(old, new))
    assert found.signature is None or found.signature != original.signature
    if found.signature is None:
        assert found.unknown is not None
        assert "line" in found.unknown


REFUSED = [
    ("negation", f"{MX4.descriptor(0)};", f"{MX4.descriptor(0) | 1 << 13};", "a negated operand"),
    ("sparsity", f"{MX4.descriptor(0)};", f"{MX4.descriptor(0) | 1 << 2};", "sparse operands"),
    ("another k", f"{MX4.descriptor(0)};", f"{MX4.descriptor(0) | 1 << 31};", "96 products"),
    ("an undefined bit", f"{MX4.descriptor(0)};", f"{MX4.descriptor(0) | 1 << 24};", "does not define"),
    ("another type", f"{MX4.descriptor(0)};", f"{MX4.descriptor(0) ^ 1 << 7};", "types of kind::mxf4"),
    ("another type of scales", f"{MX4.descriptor(0)};", f"{MX4.descriptor(0) ^ 1 << 23};", "types of kind::mxf4"),
    ("an odd byte", f"{MX4.descriptor(0)};", f"{MX4.descriptor(0) | 1 << 4};", "begin at byte 1"),
    ("a transposed tile", f"{MX4.descriptor(0)};", f"{MX4.descriptor(0) | 1 << 16};", "transposed operand of e2m1"),
    ("256 rows", f"{MX4.descriptor(0)};", f"{MX4.descriptor(0) ^ 3 << 27};", "256 rows"),
    ("scales at another lane", f"[%r3+{A_SCALES}], [", f"[%r3+{A_SCALES + (16 << 16)}], [", "begin at lane 16"),
    ("two blocks", "tcgen05.cp.cta_group::1", "tcgen05.cp.cta_group::2", "has .cta_group::"),
    ("a shape without multicast", "32x128b.warpx4", "32x128b", "is not modelled"),
    ("decompression", "32x128b.warpx4", "32x128b.warpx4.b8x16.b4x16_p64", "is not modelled"),
    ("too few operands", f"[%r3+{B_SCALES}], %p4;", "%p4;", "operands that are not modelled"),
    ("scale_vec of another kind", "scale_vec::2X", "scale_vec::4X", "is not modelled"),
    ("a copy to other lanes", f"[%r3+{A_SCALES}], %rd", f"[%r3+{A_SCALES + (32 << 16)}], %rd", "tcgen05.cp to lane 32"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "reason"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_what_is_not_modelled_is_unknown(old: str, new: str, reason: str) -> None:
    text = kernel(replace(MX4, copied=True))[0]
    assert old in text
    found = reading(text.replace(old, new))
    assert found.signature is None
    assert found.unknown is not None
    assert reason in found.unknown
    assert "line" in found.unknown


def test_copies_of_scales_that_differ_between_the_quarters_of_the_lanes_are_unknown() -> None:
    text = kernel(MX4)[0]
    place = text.index(f"  tcgen05.st.sync.aligned.32x32b.x4.b32 [%r7+{A_SCALES}]")
    found = reading(text[:place] + "  @%p1 add.s32 %r100, %r100, 1;\n" + text[place:])
    assert found.unknown is not None
    assert "do not hold the same scales" in found.unknown


@pytest.mark.parametrize("case", [replace(MX4, in_tensor_memory=True), Case(left="e2m3", in_tensor_memory=True)])
def test_elements_of_4_and_6_bits_in_tensor_memory_are_unknown(case: Case) -> None:
    stored = case if case.left == "e2m1" else replace(case, left="e4m3")
    text, old = kernel(stored)[0], f"{stored.descriptor(0)};"
    assert old in text
    found = reading(text.replace(old, f"{case.descriptor(0)};"))
    assert found.unknown is not None
    assert f"an operand of {case.left} in tensor memory is not modelled" in found.unknown


def test_only_the_bytes_of_scales_that_rows_use_must_agree() -> None:
    """With 8 columns, lanes from 8 on have no scale of B."""
    text, data = kernel(replace(MX4, n=8))
    place = text.index(f"  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r7+{B_SCALES}]")
    other = "  and.b32 %r8, %r1, 31; setp.gt.u32 %p8, %r8, 7;\n  @%p8 mov.b32 %r104, %r1;\n"
    changed = text[:place] + other + text[place:]
    assert reading(changed).signature == reading(text).signature
    assert executed(changed, data.content, 4096).tolist() == executed(text, data.content, 4096).tolist()


SHAPES = {
    "128x256b": (128, 32, (0, 1, 2, 3)),
    "128x128b": (128, 16, (0, 1, 2, 3)),
    "64x128b.warpx2::02_13": (64, 16, (0, 1, 0, 1)),
    "64x128b.warpx2::01_23": (64, 16, (0, 0, 1, 1)),
    "32x128b.warpx4": (32, 16, (0, 0, 0, 0)),
    "warpx4.32x128b": (32, 16, (0, 0, 0, 0)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_copies_place_rows_in_lanes(shape: str) -> None:
    rows, size, quarters = SHAPES[shape]
    matrix = np.random.default_rng(5).integers(0, 256, (rows, size)).astype(np.uint8)
    chunks = matrix.reshape(rows // 8, 8, size // 16, 16).transpose(2, 0, 1, 3).ravel()
    content = np.zeros(-(-chunks.size // 2048) * 2048, dtype=np.uint8)
    content[: chunks.size] = chunks
    text = Text(512).copy_in(content.size).barrier()
    text.add(
        f"mov.b64 %rd30, {smem_descriptor(0, rows * 16, 128, 0)};",
        f"@%p2 tcgen05.cp.cta_group::1.{shape} [%r3+64], %rd30;",
    )
    text.commit().load("32x32b", size // 4, 400, size // 4, "[%r7+64]").write_out(400, size // 4)
    found = executed(text.whole(), content, 128 * size).reshape(4, 32, size // 4)
    words = matrix.view(np.uint32).reshape(-1, 32, size // 4)
    assert found.tolist() == words[list(quarters)].tolist()


def test_a_verdict_names_the_assumption_on_the_order_of_copies() -> None:
    notes = reading(kernel(replace(MX4, copied=True))[0]).notes
    assert any("the PTX ISA does not say so" in note for note in notes)
    assert any("nothing of them was measured here" in note for note in notes)
    assert not any("the PTX ISA does not say so" in note for note in reading(kernel(MX4)[0]).notes)


def test_scale_vectors_exist_for_their_kinds_only() -> None:
    suffixes = ("", "scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32", "scale_vec::3X")
    assert [scale_vector("mxf8f6f4", each) for each in suffixes] == [1, 1, None, None, None, 1, None]
    assert [scale_vector("mxf4", each) for each in suffixes] == [2, None, 2, None, None, 2, None]
    assert [scale_vector("mxf4nvf4", each) for each in suffixes] == [None, None, 2, 4, 4, 2, None]


def test_registers_are_not_scales() -> None:
    text = kernel(MX4)[0]
    old = f"[%r3+{A_SCALES}], [%r3+{B_SCALES}], %p4;"
    assert old in text
    found = reading(text.replace(old, f"%r3, [%r3+{B_SCALES}], %p4;"))
    assert found.unknown is not None
    assert registers(0, 1) not in found.unknown


SAMPLES = Path(__file__).parent / "samples/sm_100"
PRODUCTS = [
    ("gemm_mxfp8/gemm_mxfp8_0.ptx", 1, 32, ("e4m3", "e4m3"), 32, 1),
    ("gemm_mxfp8/gemm_mxfp8_1.ptx", 2, 32, ("e4m3", "e4m3"), 32, 1),
    ("gemm_mxfp8/gemm_mxfp8_2.ptx", 1, 32, ("e5m2", "e4m3"), 32, 1),
    ("gemm_nvfp4/gemm_nvfp4_0.ptx", 1, 64, ("e2m1", "e2m1"), 16, 1),
    ("gemm_nvfp4/gemm_nvfp4_2.ptx", 1, 64, ("e2m1", "e2m1"), 32, 1),
    ("gemm_mx_tma/gemm_mx_tma_0.ptx", 1, 32, ("e4m3", "e2m1"), 32, 4),
    ("gemm_mx_tma/gemm_mx_tma_2.ptx", 1, 64, ("e2m1", "e2m1"), 32, 4),
]
"""Products of Triton of 128 by 128 by 256: columns of blocks, products a step, types, elements a scale, and how many
scales of a row stand together: all (1), or 4 in the blocks of 128 rows that a tensor copy takes.
"""


def source(name: str, columns: int, change: tuple[str, str] = ("", "")) -> Source:
    text = (SAMPLES / name).read_text()
    assert change[0] in text
    buffers = [{"buffer": each, "dtype": "fp32" if each == "c" else "u8"} for each in ("a", "sa", "b", "sb", "c")]
    arguments = [*buffers, *({"i32": size} for size in (128, 128, 256))]
    launch = Launch.model_validate({"file": "k.ptx", "grid": [1, columns], "args": arguments})
    return Source("k.ptx", text.replace(*change) if change[0] else text, launch)


@pytest.mark.parametrize(("name", "columns", "k", "forms", "block", "together"), PRODUCTS, ids=lambda each: str(each))
def test_kernels_of_triton_have_the_bits_of_exact_sums(
    name: str, columns: int, k: int, forms: tuple[str, str], block: int, together: int
) -> None:
    random = np.random.default_rng(block + k)
    form, middle = ("ue4m3", 56) if block == 16 else ("ue8m0", 127)
    before, elements, scales = {"c": np.zeros(128 * 128 * 4, dtype=np.uint8)}, [], []
    for buffer, element in zip("ab", forms, strict=True):
        matrix = patterns(random, (128, 256), element)
        rows = [list(stored_row(row, element, padded=False)) for row in matrix]
        own = random.integers(middle - 6, middle + 6, (128, 256 // block)).astype(np.uint8)
        before[buffer] = np.array(rows, dtype=np.uint8).ravel()
        blocked = own.reshape(4, 32, -1, 4).transpose(2, 1, 0, 3) if together == 4 else own
        before[f"s{buffer}"] = np.ascontiguousarray(blocked).ravel()
        elements.append(matrix)
        scales.append(own)
    ready = prepare(source(name, columns), registry.default().arch("sm_100"), Options())
    found = simulate(ready, before).after["c"].view(np.uint32).reshape(128, 128)
    for row, column in zip(random.integers(0, 128, 20).tolist(), random.integers(0, 128, 20).tolist(), strict=True):
        last = 0
        for start in range(0, 256, k):
            one, other = (
                matrix[place, start : start + k].tolist() for matrix, place in zip(elements, (row, column), strict=True)
            )
            parts = slice(start // block, (start + k) // block)
            left, right = (own[place, parts].tolist() for own, place in zip(scales, (row, column), strict=True))
            last = after_step(last, (one, other), (left, right), forms, form)
        assert found[row, column] == last


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("0xe;", "0xf;"), "element type 15 is not modelled"),
        (("0xe;", "0x10;"), "element type 16 is not modelled"),
        (("0xe;", "0xd;"), None),
    ],
)
def test_types_of_4_bits_of_tensor_maps(change: tuple[str, str], reason: str | None) -> None:
    """The sample copies 16 elements of 4 bits to 16 bytes each; without the padding, a product reads other bytes."""
    arch, numbers = registry.default().arch("sm_100"), {"a": 1, "sa": 2, "b": 3, "sb": 4, "c": 5}
    original = analyse(source("gemm_mx_tma/gemm_mx_tma_0.ptx", 1), arch, numbers, Options())
    found = analyse(source("gemm_mx_tma/gemm_mx_tma_0.ptx", 1, change), arch, numbers, Options())
    assert original.signature is not None
    assert found.signature != original.signature
    if reason is not None:
        assert found.unknown is not None
        assert reason in found.unknown
