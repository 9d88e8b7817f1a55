"""Bytes of loaded words that are moved when they are read are those of the instructions that move them."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942.opcodes.matrices import matrix_fragments
from bitwise_amd_gfx942.opcodes.operands import deferred_bytes
from bitwise_amd_gfx942.opcodes.operands.deferred_bytes import (
    OF_SOURCE,
    Bytes,
    joined_bytes,
    masked_bytes,
    shifted_bytes,
)
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.execution.values.symbolic_vector import Value
from gfx942_kernels import reading, run

WORD = 0x9C5A7E13
FULL = (1 << 32) - 1


def number_of(places: Bytes, word: int = WORD) -> int:
    """Return the number that bytes are for a source word."""
    values = [each if each < OF_SOURCE else word >> 8 * (each - OF_SOURCE) & 255 for each in places]
    return sum(each << 8 * place for place, each in enumerate(values))


def drawn_bytes(random: np.random.Generator) -> Bytes:
    """Return zeros, numbers and bytes of the source."""
    kinds = [0, 255, int(random.integers(256)), *(OF_SOURCE + each for each in range(4))]
    first, second, third, fourth = (int(each) for each in random.choice(kinds, 4))
    return first, second, third, fourth


@pytest.mark.parametrize("seed", range(4))
def test_bytes_are_those_of_the_arithmetic(seed: int) -> None:
    random, known = np.random.default_rng([31, seed]), 0
    for _ in range(2000):
        one, other = drawn_bytes(random), drawn_bytes(random)
        left, right = number_of(one), number_of(other)
        amount = int(random.choice([0, 8, 16, 24, 32, 40, 4, int(random.integers(1 << 32))]))
        by = tuple(amount >> low & 255 for low in (0, 8, 16, 24))
        for bits in (16, 32):
            kept, count = left & ((1 << bits) - 1), amount % bits
            for is_left in (True, False):
                moved = shifted_bytes(one, (by[0], by[1], by[2], by[3]), bits, is_left)
                assert (moved is None) == (count % 8 != 0)
                if moved is not None:
                    known += 1
                    assert number_of(moved) == ((kept << count) & ((1 << bits) - 1) if is_left else kept >> count)
        assert max(other) < OF_SOURCE or shifted_bytes(one, other, 32, True) is None
        for found, expected in ((masked_bytes(one, other), left & right), (joined_bytes(one, other), left | right)):
            if found is not None:
                known += 1
                assert number_of(found) == expected
    assert known > 2000


def program(seed: int) -> str:
    """Return instructions on bytes of the loaded words in v2 and v3, whose result is in v5."""
    random = np.random.default_rng([37, seed])
    lines = ["v_mov_b32_e32 v10, v2", "v_mov_b32_e32 v11, v3", "s_movk_i32 s20, 0xff00", "v_mov_b32_e32 v5, v4"]
    names = ["v2", "v3", "v10", "v11", "v12", "v13"]
    lines += [f"v_mov_b32_e32 v12, v{random.integers(2, 4)}", "v_mov_b32_e32 v13, v2"]
    for _ in range(14):
        result, one, other = random.choice(names[2:]), random.choice(names), random.choice(names)
        amount = int(random.choice([8, 16, 24, 8, 16, 24, 4, 40]))
        mask = random.choice(["0xff00", "0xff", "0xff00ff", "0xffff0000", "0xff000000", "0xf0", "0", "s20"])
        lines.append(
            str(
                random.choice(
                    [
                        f"v_lshlrev_b16_e32 {result}, {amount % 16}, {one}",
                        f"v_lshrrev_b16_e32 {result}, {amount % 16}, {one}",
                        f"v_lshlrev_b32_e32 {result}, {amount}, {one}",
                        f"v_lshrrev_b32_e32 {result}, {amount}, {one}",
                        f"v_and_b32_e32 {result}, {mask}, {one}",
                        f"v_and_b32_e32 {result}, {mask}, {one}",
                        f"v_or_b32_e32 {result}, {one}, {other}",
                        f"v_lshl_or_b32 {result}, {one}, {amount}, {other}",
                        f"v_lshl_or_b32 {result}, {one}, {amount}, {other}",
                        f"v_xor_b32_e32 v5, v5, {one}",
                        f"s_mov_b64 exec, s[30:31]\nv_or_b32_e32 {result}, {one}, {other}\ns_mov_b64 exec, -1",
                    ]
                )
            )
        )
    masked = "v_cmp_gt_u32_e64 s[30:31], 20, v0"
    return "\n".join([masked, *lines, *(f"v_xor_b32_e32 v5, v5, {name}" for name in names[2:])])


def read_at_once(body: str, monkeypatch: pytest.MonkeyPatch) -> AnalysisResult:
    """Return the reading in which every instruction is executed where it stands."""
    with monkeypatch.context() as patch:
        patch.setattr(deferred_bytes, "may_defer", lambda _: False)
        return reading(body)


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry for each result that was deferred: whether it was computed."""
    found: list[deferred_bytes.DeferredBytes] = []
    computed: list[bool] = []
    make, compute = deferred_bytes.DeferredBytes.__init__, deferred_bytes.DeferredBytes.compute

    def noted(value: deferred_bytes.DeferredBytes, *arguments: object) -> None:
        make(value, *arguments)  # type: ignore[arg-type]
        found.append(value)
        computed.append(False)

    def noted_compute(value: deferred_bytes.DeferredBytes) -> Value:
        computed[next(place for place, each in enumerate(found) if each is value)] = True
        return compute(value)

    monkeypatch.setattr(deferred_bytes.DeferredBytes, "__init__", noted)
    monkeypatch.setattr(deferred_bytes.DeferredBytes, "compute", noted_compute)
    return computed


@pytest.mark.parametrize("seed", range(32))
def test_the_reading_is_that_of_bytes_that_are_moved_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = program(seed)
    found, expected = reading(body), read_at_once(body, monkeypatch)
    assert (found.signature, found.unknown) == (expected.signature, expected.unknown)
    assert found.signature is not None, found.unknown


def test_programs_defer_some_results(deferred: list[bool]) -> None:
    for seed in range(8):
        reading(program(seed))
    assert len(deferred) > 20


CONVERTED = """v_and_b32_e32 v10, 0xff00, {source}
v_lshlrev_b16_e32 v11, 8, {source}
v_lshl_or_b32 {low}, v10, 16, v11
v_lshrrev_b32_e32 v10, 24, {source}
v_lshrrev_b32_e32 v11, 16, {source}
v_lshlrev_b16_e32 v11, 8, v11
v_lshl_or_b32 {high}, v10, 24, v11"""
"""Four fp8e5 numbers as fp16, as LLVM emits it."""

PRODUCT = "\n".join(
    [
        CONVERTED.format(source="v2", low="v20", high="v21"),
        CONVERTED.format(source="v3", low="v22", high="v23"),
        *(f"v_accvgpr_write_b32 a{each}, 0" for each in range(4)),
        "s_nop 1",
        "v_mfma_f32_16x16x16_f16 a[0:3], v[20:21], v[22:23], a[0:3]",
        "v_mfma_f32_16x16x16_f16 a[0:3], v[22:23], v[20:21], a[0:3]",
        "s_nop 15",
        "v_accvgpr_read_b32 v5, a{}",
    ]
)
"""Products of a tile of v2 and a tile of v3."""


@pytest.mark.parametrize("place", [0, 3])
def test_a_product_of_moved_bytes_moves_them_from_the_words(
    place: int, deferred: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No instruction that moves bytes is executed, and the result is that of all instructions."""
    body = PRODUCT.format(place)
    found = reading(body)
    assert len(deferred) == 14
    assert not any(deferred)
    assert found.signature == read_at_once(body, monkeypatch).signature is not None
    others = [("24, v3", "16, v3"), ("0xff00, v2", "0xff0000, v2"), ("v22, v10, 16", "v22, v10, 8")]
    signatures = {reading(body.replace(*change)).signature for change in others}
    assert len(signatures | {found.signature, None}) == 5
    for change in others:
        changed = body.replace(*change)
        assert reading(changed).signature == read_at_once(changed, monkeypatch).signature


def test_the_bits_of_a_product_of_moved_bytes() -> None:
    random = np.random.default_rng(3)
    words = [random.choice([0x38, 0x3C, 0x40, 0xB8, 0], (64, 4)).astype(np.uint8) for _ in "ab"]
    left, right = ((each.astype(np.uint16) << 8).view(np.float16).astype(np.float64) for each in words)
    a, b = (each.reshape(4, 16, 4).transpose(1, 0, 2).reshape(16, 16) for each in (left, right))
    total = a @ b.T + b @ a.T
    given = [each.view(np.uint32).reshape(-1).astype(np.uint64) for each in words]
    for place in (0, 3):
        lanes = run(PRODUCT.format(place), *given).view(np.float32)
        expected = [total[4 * (lane // 16) + place, lane % 16] for lane in range(64)]
        assert lanes.tolist() == expected


def test_moved_bytes_of_one_fragment_and_of_other_widths_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no element of 16 bits each, and those that something has read, are those of the registers."""
    read_before = PRODUCT.format(1).replace("v_accvgpr_write_b32 a0, 0", "v_accvgpr_write_b32 a0, v20")
    whole = PRODUCT.format(1).replace(CONVERTED.format(source="v3", low="v22", high="v23"),
                                      "v_lshrrev_b32_e32 v22, 16, v3\nv_mov_b32_e32 v23, v3")  # fmt: skip
    for body in (read_before, whole, PRODUCT.format(1).replace("16x16x16_f16", "16x16x32_fp8_fp8")):
        found = reading(body)
        assert found.signature == read_at_once(body, monkeypatch).signature is not None, found.unknown
    monkeypatch.setattr(matrix_fragments, "_elements_of_stack", lambda *_: None)
    assert reading(PRODUCT.format(1)).signature == read_at_once(PRODUCT.format(1), monkeypatch).signature is not None
