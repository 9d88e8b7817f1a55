"""tcgen05.mma: bytes against a sum in exact integers, for every kind, layout and swizzle, and changed kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from bitwise_core.execution.assumptions import MATRIX_ARITHMETIC, UNITS_APART
from bitwise_core.execution.domains.domain import Unsupported
from tcgen05_kernels import Text, executed, instruction_descriptor, reading, registers, smem_descriptor

Words = npt.NDArray[np.uint32]
FORMS = {"f16": (5, 10, 2), "bf16": (8, 7, 2), "tf32": (8, 23, 4), "e4m3": (4, 3, 1), "e5m2": (5, 2, 1)}
"""The bits of exponent and significand of each operand type in memory, and its size in bytes."""
NUMBERS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1}
KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4", "u8": "i8", "s8": "i8"}
RESULTS = {"f16": 0, "f32": 1, "s32": 2}
DEPTHS = {1: 32, 2: 16, 4: 8}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def exact(patterns: npt.NDArray[np.generic], form: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return integers and exponents of 2 whose products are the finite numbers of a format; tf32 loses 13 bits."""
    exponent_bits, fraction_bits, _ = FORMS[form]
    wide = patterns.astype(np.int64)
    if form == "tf32":
        wide &= ~0x1FFF
    fraction = wide & (1 << fraction_bits) - 1
    exponent = wide >> fraction_bits & (1 << exponent_bits) - 1
    sign = 1 - 2 * (wide >> exponent_bits + fraction_bits & 1)
    normal = exponent > 0
    whole = sign * (fraction + normal * (1 << fraction_bits))
    bias = (1 << exponent_bits - 1) - 1
    return whole, np.maximum(exponent, 1) - bias - fraction_bits


def magnitude(whole: npt.NDArray[np.int64], power: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.int64]:
    """Return the exponents of significands of `bits` fractional bits, which need not be normalised."""
    return np.where(whole == 0, -(1 << 20), power + bits)


def fused(
    accumulator: Words, left: npt.NDArray[np.generic], right: npt.NDArray[np.generic], types: Sequence[str], k: int
) -> Words:
    """Return C + A B as fp32 patterns: for every k products, one sum that is cut at 25 bits below its largest exponent.

    `left` has the shape (m, depth), `right` (n, depth).  The sum of each step is rounded towards zero.
    """
    (a, a_power), (b, b_power) = exact(left, types[0]), exact(right, types[1])
    bits = FORMS[types[0]][1] + FORMS[types[1]][1]
    current = accumulator.astype(np.int64)
    for start in range(0, left.shape[1], k):
        here = slice(start, start + k)
        whole = a[:, None, here] * b[None, :, here]
        power = a_power[:, None, here] + b_power[None, :, here]
        c, c_power = exact(current.astype(np.uint32), "fp32")
        terms = np.concatenate([whole, c[..., None]], axis=2)
        powers = np.concatenate([power, c_power[..., None]], axis=2)
        tops = np.concatenate([magnitude(whole, power, bits), magnitude(c, c_power, 23)[..., None]], axis=2)
        unit = tops.max(axis=2, keepdims=True) - 25
        shift = powers - unit
        cut = np.abs(terms)
        cut = np.where(shift >= 0, cut << np.clip(shift, 0, 40), cut >> np.clip(-shift, 0, 62))
        total = (np.sign(terms) * cut).sum(axis=2)
        current = towards_zero(total, unit[..., 0])
    return current.astype(np.uint32)


FORMS["fp32"] = (8, 23, 4)


def towards_zero(total: npt.NDArray[np.int64], unit: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return fp32 patterns of total * 2**unit, rounded towards zero; results are normal numbers or zero."""
    size = np.abs(total)
    length = np.array([int(each).bit_length() for each in size.ravel()]).reshape(size.shape)
    drop = length - 24
    fraction = np.where(drop >= 0, size >> np.clip(drop, 0, 62), size << np.clip(-drop, 0, 62)) & (1 << 23) - 1
    exponent = unit + length - 1 + 127
    assert ((exponent > 0) | (size == 0)).all()
    return np.where(size == 0, 0, (total < 0).astype(np.int64) << 31 | exponent << 23 | fraction)


@dataclass(frozen=True)
class Case:
    """A product of `m` by `n`, with a depth of four native steps; `m_major` and `n_major` are transposed tiles."""

    left: str = "f16"
    right: str = "f16"
    m: int = 128
    n: int = 32
    swizzle: int = 128
    m_major: bool = False
    n_major: bool = False
    result: str = "f32"
    in_tensor_memory: bool = False
    stationary: bool = False

    @property
    def parts(self) -> int:
        """How many parts of the columns of D are in different lanes."""
        return 128 // self.m if self.stationary else 1

    @property
    def columns(self) -> int:
        """The columns of tensor memory that D takes."""
        return self.n // self.parts

    @property
    def lanes(self) -> npt.NDArray[np.int64]:
        """The lanes of the rows, shape (parts, m)."""
        if self.m == 64 and not self.stationary:
            return (np.arange(64) // 16 * 32 + np.arange(64) % 16)[None]
        return np.arange(self.parts * self.m).reshape(self.parts, self.m)

    @property
    def size(self) -> int:
        return {"u8": 1, "s8": 1}.get(self.left) or FORMS[self.left][2]

    @property
    def k(self) -> int:
        return DEPTHS[self.size]

    def wide(self, major: bool) -> bool:
        """Whether the swizzle of a tile is in units of 32 bytes, as for 32 bits along M or N."""
        return self.size == 4 and major

    def tile(
        self, matrix: npt.NDArray[np.generic], major: bool
    ) -> tuple[npt.NDArray[np.uint8], list[tuple[int, int, int]]]:
        """Return the bytes of a tile, and for each step its offset, leading offset and stride.

        The layout is that of a tensor copy: rows of `swizzle` bytes along the contiguous axis; without a swizzle, core
        matrices of 8 rows by 16 bytes.
        """
        data = np.ascontiguousarray(matrix.T if major else matrix)
        rows = data.view(np.uint8).reshape(data.shape[0], -1)
        pitch = self.swizzle or 16
        count, width = rows.shape
        image = np.zeros(count * width, dtype=np.uint8)
        row, byte = np.indices(rows.shape)
        panel = byte // pitch
        if self.swizzle:
            place = panel * count * pitch + row * pitch + byte % pitch
            shared = 128 // pitch  # rows that share a phase
            place ^= row % 4 << 5 if self.wide(major) else (row // shared % (pitch // 16)) << 4
        else:
            place = panel * count * 16 + row * 16 + byte % 16
        image[place] = rows
        steps = []
        for step in range(matrix.shape[1] // self.k):
            if major:
                depth = 4 if self.wide(major) else 8
                leading, stride = (count * pitch, depth * pitch) if self.swizzle else (128, count * 16)
                steps.append((step * self.k * pitch, leading, stride))
            elif self.swizzle:
                at = step * 32
                steps.append((at // pitch * count * pitch + at % pitch, 16, 8 * pitch))
            else:
                steps.append((step * 2 * count * 16, count * 16, 128))
        return image, steps


def patterns(form: str, shape: tuple[int, int], seed: int) -> npt.NDArray[np.generic]:
    """Return random finite patterns with exponents in the middle of a format, and some zeros."""
    random = np.random.default_rng(seed)
    if form in ("u8", "s8"):
        return random.integers(0, 256, shape).astype(np.uint8)
    exponent_bits, fraction_bits, size = FORMS[form]
    middle = (1 << exponent_bits - 1) - 1
    spread = min(middle - 1, 6)
    exponent = random.integers(middle - spread, middle + spread, shape)
    sign, fraction = random.integers(0, 2, shape), random.integers(0, 1 << fraction_bits, shape)
    found = sign << exponent_bits + fraction_bits | exponent << fraction_bits | fraction
    return np.where(random.random(shape) < 0.05, 0, found).astype(UNSIGNED[size])


def kernel(
    case: Case, *, adds: bool = False
) -> tuple[str, npt.NDArray[np.uint8], npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    """Return a kernel, its input, and both matrices: the first step has no accumulator unless it `adds`."""
    left, right = patterns(case.left, (case.m, 4 * case.k), 1), patterns(case.right, (case.n, 4 * case.k), 2)
    (a, a_steps), (b, b_steps) = case.tile(left, case.m_major), case.tile(right, case.n_major)
    start = -(-a.size // 1024) * 1024
    image = np.zeros(-(-(start + b.size) // 2048) * 2048, dtype=np.uint8)
    image[: a.size], image[start : start + b.size] = a, b
    transposes = case.m_major, case.n_major
    form = instruction_descriptor(
        case.m, case.n, RESULTS[case.result], NUMBERS[case.left], NUMBERS[case.right], transposes
    )
    text = Text(512).copy_in(image.size)
    content = image
    if case.in_tensor_memory:
        rows = np.zeros((128, 32), dtype=np.uint32)
        rows[case.lanes] = np.ascontiguousarray(left).view(np.uint32).reshape(case.m, 32)
        content = np.concatenate([image, rows.view(np.uint8).ravel()])
        text.read_in(100, 32, image.size).store("32x32b", 32, 100, 32, "[%r7+256]")
    text.barrier()
    for step, ((a_at, a_leading, a_stride), (b_at, b_leading, b_stride)) in enumerate(
        zip(a_steps, b_steps, strict=True)
    ):
        of_a = smem_descriptor(a_at, a_leading, a_stride, case.swizzle, wide=case.wide(case.m_major))
        of_b = smem_descriptor(start + b_at, b_leading, b_stride, case.swizzle, wide=case.wide(case.n_major))
        enable = "%p3" if step or adds else "%p4"
        left_operand = f"[%r3+{256 + 8 * step}]" if case.in_tensor_memory else "%rd30"
        text.add(
            f"mov.b64 %rd30, {of_a};",
            f"mov.b64 %rd31, {of_b};",
            f"mov.b32 %r30, {form};",
            f"@%p2 tcgen05.mma{'.ws' * case.stationary}.cta_group::1.kind::{KINDS[case.left]} "
            f"[%r3], {left_operand}, %rd31, %r30, {enable};",
        )
    text.commit()
    step = min(32, case.columns & -case.columns)
    for first in range(0, case.columns, step):
        text.load("32x32b", step, 400 + first, step, f"[%r7+{first}]")
    text.write_out(400, case.columns, half=case.lanes.size == 64)
    return text.whole(), content, left, right


def results(case: Case, text: str, content: npt.NDArray[np.uint8]) -> Words:
    """Return the words of D, of shape (m, n)."""
    found = executed(text, content, 512 * case.columns).reshape(128, case.columns)
    return np.concatenate([found[lanes] for lanes in case.lanes], axis=1)


def expected(case: Case, left: npt.NDArray[np.generic], right: npt.NDArray[np.generic]) -> Words:
    """Return the words of D by exact arithmetic."""
    if case.result == "s32":
        signed = [
            each.view(np.int8) if form == "s8" else each for each, form in ((left, case.left), (right, case.right))
        ]
        return (signed[0].astype(np.int64) @ signed[1].astype(np.int64).T).astype(np.uint32)
    return fused(np.zeros((case.m, case.n), dtype=np.uint32), left, right, (case.left, case.right), case.k)


LAYOUTS = [
    Case(left=form, right=form, n=64 if form != "e4m3" else 128, swizzle=swizzle, m_major=m_major, n_major=n_major)
    for form, swizzle, m_major, n_major in product(
        ("f16", "bf16", "e4m3"), (0, 32, 64, 128), (False, True), (False, True)
    )
]
SHAPES = [
    *(Case(m=128, n=n) for n in (16, 48, 256)),
    *(Case(m=64, n=n) for n in (8, 24, 256)),
    *(Case(left=left, right=right, n=16) for left, right in product(("e4m3", "e5m2"), repeat=2)),
    *(Case(left="tf32", right="tf32", swizzle=swizzle) for swizzle in (0, 32, 64, 128)),
    *(Case(left="tf32", right="tf32", m_major=m, n_major=n) for m, n in ((True, False), (False, True), (True, True))),
    *(Case(left=left, right=right, n=32, result="s32") for left, right in product(("u8", "s8"), repeat=2)),
    *(Case(left=form, right=form, in_tensor_memory=True) for form in ("f16", "bf16", "tf32", "e5m2")),
    Case(left="u8", right="s8", m=64, n=8, result="s32", in_tensor_memory=True),
    Case(m=64, n=40, in_tensor_memory=True),
    Case(left="e4m3", right="e5m2", m=64, n=16, m_major=True, swizzle=32),
]
STATIONARY = [
    *(Case(m=m, n=64, stationary=True) for m in (32, 64, 128)),
    Case(left="bf16", right="bf16", m=32, n=128, stationary=True, m_major=True, swizzle=64, n_major=True),
    Case(left="e4m3", right="e5m2", m=64, n=256, stationary=True),
    Case(left="s8", right="u8", m=64, n=64, result="s32", stationary=True),
    *(Case(m=m, n=64, stationary=True, in_tensor_memory=True) for m in (32, 64, 128)),
]
"""tcgen05.mma.ws: 1, 2 or 4 parts of the columns of D are one below the other."""


@pytest.mark.parametrize("case", [*LAYOUTS, *SHAPES, *STATIONARY], ids=str)
def test_results_have_the_bits_of_an_exact_sum(case: Case) -> None:
    text, content, left, right = kernel(case)
    assert results(case, text, content).tolist() == expected(case, left, right).tolist()


def test_an_instruction_adds_to_the_accumulator_if_its_predicate_is_true() -> None:
    case = Case(n=16)
    text, content, left, right = kernel(case, adds=True)
    start = patterns("tf32", (128, 16), 3).astype(np.uint32)
    stored = Text(512).read_in(100, 16, content.size).store("32x32b", 16, 100, 16)
    stored.add("bar.sync 0;")
    place = text.index("  shl.b32 %r8, %r1, 4;")
    text = text[:place] + "\n".join(stored.lines) + "\n" + text[place:]
    found = results(case, text, np.concatenate([content, start.view(np.uint8).ravel()]))
    assert found.tolist() == fused(start, left, right, ("f16", "f16"), 16).tolist()


def test_results_of_16_bits_are_the_low_halves_of_columns() -> None:
    """Products of small integers are exact in both formats."""
    case = Case(n=32, result="f16")
    random = np.random.default_rng(7)
    left, right = (random.integers(-3, 4, (rows, 64)).astype(np.float16) for rows in (128, 32))
    text, content, *_ = kernel(case)
    (a, _), (b, _) = case.tile(left.view(np.uint16), False), case.tile(right.view(np.uint16), False)
    content[: a.size], content[a.size : a.size + b.size] = a, b
    packed = text.replace("ld.sync.aligned.32x32b.x32.b32", "ld.sync.aligned.32x32b.x16.pack::16b.b32")
    packed = packed.replace(registers(400, 32), registers(400, 16))
    assert packed != text
    lines = [line for line in packed.splitlines() if not any(f"%r{each};" in line for each in range(416, 432))]
    found = executed("\n".join(lines).replace("%r1, 128, %rd2", "%r1, 64, %rd2"), content, 64 * 128)
    exact_sums = left.astype(np.float32) @ right.astype(np.float32).T
    assert found.view(np.uint16).tolist() == exact_sums.astype(np.float16).view(np.uint16).ravel().tolist()
    assert reading(text).signature is None  # the high halves are not defined


BASE = Case(n=32)


def base() -> str:
    return kernel(BASE)[0]


BETWEEN = base()[base().index("fence.proxy.async") : base().index("  mov.b64 %rd30")]
OF_A, OF_B = smem_descriptor(32, 16, 1024, 128), smem_descriptor(16384, 16, 1024, 128)
FORM = instruction_descriptor(128, 32, 1, 0, 0)
COMMIT = "@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd20];"
MULTIPLIES = [line for line in base().splitlines() if "tcgen05.mma" in line]
CHANGES = {
    "the descriptor of A is moved": (f"%rd30, {OF_A};", f"%rd30, {smem_descriptor(64, 16, 1024, 128)};"),
    "the stride of B is changed": (f"%rd31, {OF_B};", f"%rd31, {smem_descriptor(16384, 16, 512, 128)};"),
    "the swizzle of A is changed": (f"%rd30, {OF_A};", f"%rd30, {smem_descriptor(32, 16, 1024, 64)};"),
    "the first step adds to what nothing has written": ("%r30, %p4;", "%r30, %p3;"),
    "another type": (f"%r30, {FORM};", f"%r30, {instruction_descriptor(128, 32, 1, 1, 1)};"),
    "a transposed tile": (f"%r30, {FORM};", f"%r30, {FORM | 1 << 16};"),
    "another column is read": ("[%r7+0];", "[%r7+1];"),
    "no commit": (COMMIT, ""),
    "commits that no wait follows": (MULTIPLIES[0], MULTIPLIES[0] + 2 * ("\n  " + COMMIT)),
    "no wait for the memory barrier": ("  @!done bra again0;", ""),
    "no proxy fence": ("fence.proxy.async.shared::cta;", ""),
    "no barrier after the tiles are written": (BETWEEN, BETWEEN.replace("bar.sync 0;", "")),
    "all threads issue": ("@%p2 tcgen05.mma", "tcgen05.mma"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_kernel_is_not_equal(change: str) -> None:
    original = reading(base())
    assert original.signature is not None
    old, new = CHANGES[change]
    text = base()
    assert old in text
    found = reading(text.replace(old, new))
    assert found.signature != original.signature
    if found.signature is None:
        assert found.unknown is not None
        assert "line" in found.unknown


def test_steps_in_another_order_are_not_equal() -> None:
    steps = [line for line in base().splitlines() if "tcgen05.mma" in line or "mov.b64 %rd3" in line]
    text = base()
    first, second = "\n".join(steps[3:6]), "\n".join(steps[6:9])
    lines = text.splitlines()
    places = [index for index, line in enumerate(lines) if line in steps]
    groups = [places[each : each + 3] for each in range(0, len(places), 3)]
    swapped = list(lines)
    for one, other in zip(groups[1], groups[2], strict=True):
        swapped[one], swapped[other] = lines[other], lines[one]
    assert first != second
    found, original = reading("\n".join(swapped)), reading(text)
    assert found.unknown is None
    assert found.signature != original.signature


def loop_over_tiles(*, waits: bool) -> str:
    """Two products one after another, whose tiles are written to the same place; without waiting for the first one."""
    case = Case(n=16)
    text, _, _, _ = kernel(case)
    copy = text[text.index("  shl.b32 %r8, %r1, 4;") : text.index("  add.s32 %r20")]
    work = text[text.index("  mov.b64 %rd30") : text.index("  tcgen05.ld")]
    if not waits:
        start, end = work.index("  \n{"), work.index("bra again0;") + len("bra again0;\n}")
        first = work[:start] + work[end:]
    else:
        first = work
    second = work.replace("again0", "again1").replace("[%r20], 0;", "[%r20], 1;")
    place = text.index(work)
    return text[:place] + first + copy + second + text[place + len(work) :]


def test_a_tile_is_overwritten_after_its_product_is_complete() -> None:
    assert reading(loop_over_tiles(waits=True)).unknown is None
    found = reading(loop_over_tiles(waits=False))
    assert found.signature is None
    assert found.unknown is not None
    assert "overwrites shared memory" in found.unknown


@pytest.mark.parametrize(
    "accesses",
    [
        "tcgen05.st.sync.aligned.32x32b.x16.b32 [%r7], {registers}; tcgen05.wait::st.sync.aligned;",
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 {registers}, [%r7]; tcgen05.wait::ld.sync.aligned;",
    ],
)
def test_an_accumulator_is_accessed_after_its_product_is_complete(accesses: str) -> None:
    case = Case(n=16)
    text, _, _, _ = kernel(case)
    place = text.index("  \n{")  # before the wait for the memory barrier
    found = reading(text[:place] + "\n  " + accesses.replace("{registers}", registers(100, 16)) + text[place:])
    assert found.signature is None
    assert found.unknown is not None
    assert "known to be complete" in found.unknown


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("mma.cta_group::1.kind::f16", "mma.cta_group::2.kind::f16", "has .cta_group::"),
        ("mma.cta_group::1.kind::f16", "mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::1X", "is not modelled"),
        ("mma.cta_group::1.kind::f16", "mma.sp.cta_group::1.kind::f16", "is not modelled"),
        ("mma.cta_group::1.kind::f16", "mma.ws.sp.cta_group::1.kind::f16", "is not modelled"),
        ("mma.cta_group::1.kind::f16", "mma.cta_group::1.kind::f16.ashift", "is not modelled"),
        ("mma.cta_group::1.kind::f16", "mma.cta_group::1.kind::f16.collector::b0::fill", "is not modelled"),
        ("%r30, %p4;", "%r30, %p4, 16;", "operands that are not modelled"),
        ("%r30, %p4;", "%r30, %p4, %r1;", "operands that are not modelled"),
        ("%r30, %p4;", "%r30, {%r1, %r1}, %p4;", "has a mask of 2 words"),
        ("%r30, %p4;", "%r30, %p4, %p4, %p4;", "operands that are not modelled"),
        ("arrive::one.b64 [%rd20]", "arrive::one.shared::cluster.multicast::cluster.b32 [%rd20], 1", "is not modelled"),
        ("tcgen05.wait::ld.", "tcgen05.cp.cta_group::1.4x256b [%r3], %rd30; tcgen05.wait::ld.", "is not modelled"),
    ],
)  # fmt: skip
def test_instructions_that_are_not_modelled_are_unknown(old: str, new: str, reason: str) -> None:
    text = base()
    assert old in text
    found = reading(text.replace(old, new, 1))
    assert found.signature is None
    assert found.unknown is not None
    assert "tcgen05" in found.unknown
    assert reason in found.unknown
    assert "line" in found.unknown


@pytest.mark.parametrize("case", [Case(n=32), Case(m=64, n=16), Case(n=16, in_tensor_memory=True)], ids=str)
def test_disabled_lanes_keep_what_they_hold(case: Case) -> None:
    words = (0x0000FFFF, 0, 0xFFFFFFFF, 0x80000001)
    text, content, left, right = kernel(case)
    mask = "".join(f"mov.b32 %r{40 + index}, {word};" for index, word in enumerate(words)) + "mov.b32 %r30"
    masked = text.replace("mov.b32 %r30", mask).replace("%r30, %p3;", "%r30, {%r40, %r41, %r42, %r43}, %p3;")
    disabled = np.unpackbits(np.array(words, dtype="<u4").view(np.uint8), bitorder="little").astype(bool)[case.lanes[0]]
    assert 0 < disabled.sum() < disabled.size
    found = results(case, masked, content)
    whole, first = expected(case, left, right), expected(case, left[:, : case.k], right[:, : case.k])
    assert found.tolist() == np.where(disabled[:, None], first, whole).tolist()
    assert reading(masked).signature not in (None, reading(text).signature)
    other = masked.replace(f"%r40, {words[0]};", "%r40, 65534;")
    assert reading(other).signature not in (None, reading(masked).signature)
    assert reading(text.replace("%r30, %p3;", "%r30, {%r1, %r1, %r1, %r1}, %p3;")).signature == reading(text).signature


def test_a_scaled_accumulator_is_a_step_of_its_own() -> None:
    """Nobody has published its arithmetic.  Without an accumulator there is nothing to scale."""
    text, content, *_ = kernel(BASE)
    plain = reading(text).signature
    first = text.replace("%r30, %p4;", "%r30, %p4, 3;")
    assert first != text
    assert reading(first).signature == reading(text.replace("%r30, %p3;", "%r30, %p3, 0;")).signature == plain
    scaled = text.replace("%r30, %p3;", "%r30, %p3, 3;")
    found = {reading(scaled).signature, reading(scaled.replace("%p3, 3;", "%p3, 4;")).signature}
    assert len(found - {None, plain}) == 2
    with pytest.raises(Unsupported, match=r"input/8 sm_100 has no matrix-unit row"):
        executed(scaled, content, 512 * BASE.n)


def test_a_shift_is_in_the_order_of_the_products_that_read_its_rows() -> None:
    text = kernel(Case(n=16, in_tensor_memory=True))[0]
    lines = text.splitlines()
    places = [index for index, line in enumerate(lines) if "tcgen05.mma" in line]

    def with_shift(after: int, column: int) -> str:
        shift = f"@%p2 tcgen05.shift.cta_group::1.down [%r3+{column}];"
        return "\n".join([*lines[: places[after] + 1], shift, *lines[places[after] + 1 :]])

    plain = reading(text).signature
    before = reading(with_shift(1, 256 + 8 * 2)).signature  # of the rows that the next product reads
    assert before not in (None, plain)
    assert reading(with_shift(1, 256 + 8)).signature == plain  # of rows that were read
    found = reading(with_shift(1, 0)).unknown  # of the accumulator
    assert found is not None
    assert "known to be complete" in found


def test_all_lanes_may_be_disabled() -> None:
    text = base().replace("mov.b32 %r30", "mov.b32 %r40, -1; mov.b32 %r30")
    lines = text.splitlines()
    last = max(index for index, line in enumerate(lines) if "tcgen05.mma" in line)
    without = "\n".join(line for index, line in enumerate(lines) if index != last)
    lines[last] = lines[last].replace("%r30, %p3;", "%r30, {%r40, %r40, %r40, %r40}, %p3;")
    assert reading("\n".join(lines)).signature == reading(without).signature != reading(text).signature


def multiplied_again(second: str, between: str = "", *, fill: str = "fill", form: str = "mma") -> str:
    """Two equal products with accumulators at columns 0 and 64, which fill a collector buffer and use it."""
    stationary = form == "mma.ws"
    text = kernel(Case(n=64, stationary=stationary))[0]
    buffer = "collector::b1" if stationary else "collector::a"
    lines = text.splitlines()
    place = next(index for index, line in enumerate(lines) if "tcgen05.mma" in line)
    first = lines[place].replace("kind::f16", f"kind::f16.{buffer}::{fill}")
    again = lines[place].replace("kind::f16", f"kind::f16.{buffer}::{second}").replace("[%r3]", "[%r40]")
    rest = [line for line in lines[place + 1 :] if "tcgen05.mma" not in line]
    return "\n".join([*lines[:place], "add.s32 %r40, %r3, 64;", first, between, again, *rest]).replace(
        "[%r7+32]", "[%r7+64]"
    )


@pytest.mark.parametrize("form", ["mma", "mma.ws"])
def test_a_collector_buffer_that_holds_the_operand_changes_nothing(form: str) -> None:
    without = reading(multiplied_again("discard", fill="discard", form=form)).signature
    assert without is not None
    for second in ("use", "lastuse", "fill", "discard"):
        assert reading(multiplied_again(second, form=form)).signature == without, second


FLIPPED = "xor.b64 %rd30, %rd30, 2;"
"""The descriptor of A at another address."""
OTHER = "@%p2 tcgen05.mma.cta_group::1.kind::f16 [%r40], %rd30, %rd31, %r30, %p4;"
WRITTEN = "@%p2 st.shared.b32 [%r2+2048], %r1; fence.proxy.async.shared::cta;"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (multiplied_again("use", fill="discard"), "does not hold"),
        (multiplied_again("use", FLIPPED), "does not hold"),
        (multiplied_again("use", "xor.b64 %rd31, %rd31, 2;", form="mma.ws"), "does not hold"),
        (multiplied_again("use").replace("a::use", "b0::use"), "is not modelled"),
        (multiplied_again("use").replace("@%p2 tcgen05.mma.cta_group::1.kind::f16.collector::a::use",
         "setp.eq.u32 %p8, %r1, 1; @%p8 tcgen05.mma.cta_group::1.kind::f16.collector::a::use"), "several threads"),
        (multiplied_again("use", OTHER), "does not hold"),
        (multiplied_again("use", WRITTEN), "shared memory"),
    ],
)  # fmt: skip
def test_a_collector_buffer_that_may_hold_something_else_is_unknown(text: str, reason: str) -> None:
    found = reading(text)
    assert found.signature is None
    assert found.unknown is not None
    assert reason in found.unknown


def test_zero_columns_of_a_weight_stationary_product_are_unknown() -> None:
    text = kernel(Case(n=64, stationary=True))[0]
    plain = reading(text).signature
    assert reading(text.replace("%r30, %p3;", "%r30, %p3, 0;")).signature == plain
    skips = text.replace("mov.b32 %r30", f"mov.b64 %rd40, {3 << 40 | 2 << 48}; mov.b32 %r30")
    assert reading(skips.replace("%r30, %p3;", "%r30, %p3, %rd40;")).signature == plain
    for bit in (39, 56, 61):
        masked = text.replace("mov.b32 %r30", f"mov.b64 %rd40, {1 << bit}; mov.b32 %r30")
        found = reading(masked.replace("%r30, %p3;", "%r30, %p3, %rd40;"))
        assert found.unknown is not None
        assert "columns of B as zeros" in found.unknown


def test_units_of_32_bytes_are_those_of_tiles_of_32_bits_along_m_or_n() -> None:
    wide = smem_descriptor(0, 16, 1024, 128, wide=True)
    narrow = smem_descriptor(0, 16, 1024, 128)
    for case, own, other in ((BASE, narrow, wide), (Case(left="tf32", right="tf32", m_major=True), None, narrow)):
        text = kernel(case)[0]
        line = re.search(r"mov.b64 %rd30, (\d+);", text)
        assert line is not None
        assert own is None or int(line[1]) == own
        found = reading(text.replace(line[0], f"mov.b64 %rd30, {int(line[1]) & (1 << 61) - 1 | other >> 61 << 61};"))
        assert found.unknown is not None
        assert "in units of 32 bytes" in found.unknown


BITS = [
    *(("%rd30", smem_descriptor(0, 16, 1024, 128), bit) for bit in (14, 15, 30, 31, *range(46, 54), 57, 60, 61)),
    *(("%r30", FORM, bit) for bit in (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 13, 14, 17, 23, 24, 25, 26, 28, 29, 30, 31)),
]


@pytest.mark.parametrize(("register", "number", "bit"), BITS)
def test_bits_of_descriptors_that_are_not_modelled_are_unknown(register: str, number: int, bit: int) -> None:
    text, line = base(), f"{register}, {number};"
    assert line in text
    found = reading(text.replace(line, f"{register}, {number ^ 1 << bit};", 1))
    assert found.signature is None
    assert found.unknown is not None
    assert "descriptor" in found.unknown or "matrix instruction" in found.unknown
    assert "line" in found.unknown


def test_sm_103_has_no_integers_and_other_steps() -> None:
    text = kernel(Case(left="u8", right="u8", n=32, result="s32"))[0]
    assert reading(text).unknown is None
    found = reading(text.replace("sm_100a", "sm_103a"), "sm_103")
    assert found.unknown is not None
    assert "does not exist on sm_103" in found.unknown
    first, second = reading(base()), reading(base().replace("sm_100a", "sm_103a"), "sm_103")
    assert first.signature is not None
    assert second.signature is not None
    assert first.signature != second.signature


def test_a_verdict_says_that_nothing_was_measured() -> None:
    assert any("nothing of them was measured here" in note for note in reading(base()).notes)


def of_mma_sync(form: str, start: int) -> str:
    """Return a kernel that computes what `kernel` does for 64 by 8, with mma.sync of four warps.

    The tiles have no swizzle, and that of B begins at `start`.
    """
    text = Text(512).add(
        "and.b32 %r40, %r1, 31;", "shr.u32 %r41, %r40, 2;", "and.b32 %r42, %r40, 3;",
        "mad.lo.u32 %r43, %r4, 16, %r41;", "shl.b32 %r44, %r43, 4;", "mad.lo.u32 %r44, %r42, 4, %r44;",
        "cvt.u64.u32 %rd40, %r44;", "add.s64 %rd41, %rd1, %rd40;",
        "shl.b32 %r45, %r41, 4;", "mad.lo.u32 %r45, %r42, 4, %r45;", "cvt.u64.u32 %rd42, %r45;",
        "add.s64 %rd43, %rd1, %rd42;", *(f"mov.b32 %r{each}, 0;" for each in range(50, 54)),
    )  # fmt: skip
    panel = 64 * 16  # the bytes of 64 rows by 8 elements of A; 8 rows of B take an eighth
    for step in range(4):
        a = [2 * step * panel + row * 16 + half * panel for half in (0, 1) for row in (0, 8)]
        b = [start + (2 * step + half) * panel // 8 for half in (0, 1)]
        text.add(*(f"ld.global.b32 %r{60 + index}, [%rd41+{at}];" for index, at in enumerate(a)))
        text.add(*(f"ld.global.b32 %r{70 + index}, [%rd43+{at}];" for index, at in enumerate(b)))
        of_d, of_a, of_b = registers(50, 4), registers(60, 4), registers(70, 2)
        text.add(f"mma.sync.aligned.m16n8k16.row.col.f32.{form}.{form}.f32 {of_d}, {of_a}, {of_b}, {of_d};")
    text.add(
        "mad.lo.u32 %r46, %r4, 32, %r41;", "shl.b32 %r46, %r46, 5;", "mad.lo.u32 %r46, %r42, 8, %r46;",
        "cvt.u64.u32 %rd44, %r46;", "add.s64 %rd45, %rd2, %rd44;",
        "st.global.v2.b32 [%rd45], {%r50, %r51};", "st.global.v2.b32 [%rd45+256], {%r52, %r53};",
    )  # fmt: skip
    return text.whole()


@pytest.mark.parametrize("target", ["sm_100", "sm_103"])
@pytest.mark.parametrize(("form", "one"), [("f16", True), ("bf16", False)])
def test_products_of_fp16_are_equal_in_both_units(form: str, one: bool, target: str) -> None:
    case = Case(left=form, right=form, m=64, n=8, swizzle=0)
    tensor, content, *_ = kernel(case)
    texts = [each.replace("sm_100a", f"{target}a") for each in (tensor, of_mma_sync(form, 64 * 128))]
    found = [reading(each, target) for each in texts]
    assumed = [reading(each, target, assume=frozenset({MATRIX_ARITHMETIC})) for each in texts]
    assert None not in {each.signature for each in (*found, *assumed)}, [each.unknown for each in found]
    assert (found[0].signature == found[1].signature) is one
    assert assumed[0].signature == assumed[1].signature
    apart = [reading(each, target, assume=frozenset({UNITS_APART})) for each in texts]
    assert None not in {each.signature for each in apart}
    assert apart[0].signature != apart[1].signature
    assert any("mma.sync of fp16 are one operation" in note for note in found[0].notes)
    written = [executed(each, content, 128 * 32, target) for each in texts]
    assert written[0].tolist() == written[1].tolist()
