"""The opcodes of PTX against results of an H100: each form of each register operation, on every recorded case."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bitwise_bench.register_operations.coverage import OTHER_OPCODES, UNMODELLED, unmodelled
from bitwise_bench.register_operations.evaluation import evaluate
from bitwise_bench.register_operations.forms import Form, forms
from bitwise_bench.register_operations.kernels import FormsKernel, kernels
from bitwise_bench.register_operations.operands import CASES, FLOATS, PACKED, Words, operands
from bitwise_bench.register_operations.recorded import Recorded, load, save
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_nvidia_sm90.architecture import SM90

RECORD = Path(__file__).parents[2] / "records" / "register-operations-sm90-h100.json.xz"


@cache
def recorded() -> Recorded:
    return load(RECORD, forms())


def accepted() -> list[Form]:
    return [form for form in forms() if form.name in recorded().results]


def modelled() -> list[Form]:
    return [form for form in accepted() if unmodelled(form) is None]


def roots(form: Form) -> set[str]:
    return {opcode.split(".")[0] for opcode in form.opcodes}


def nan_lanes(words: Words, kind: str) -> Words:
    """A mask of the bits that belong to a NaN."""
    form = FLOATS[PACKED.get(kind, kind)]
    element = np.uint64((1 << form.bits) - 1)
    mask = np.zeros_like(words)
    for low in (0, 16) if kind in PACKED else (0,):
        part = words >> np.uint64(low) & element
        nan = part & (element >> np.uint64(1)) > np.uint64(form.infinity)
        mask |= np.where(nan, element << np.uint64(low), np.uint64(0))
    return mask


def differing(found: Words, expected: Words, kind: str, *, nans: bool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return the cases in which two results differ; without `nans`, all NaNs of a floating-point result are one."""
    bits = found ^ expected
    if not nans and (kind in FLOATS or kind in PACKED):
        bits = bits & ~(nan_lanes(found, kind) & nan_lanes(expected, kind))
    return np.asarray(bits != 0)


@cache
def results() -> dict[Form, tuple[Words, ...]]:
    found: dict[Form, tuple[Words, ...]] = {}
    for kernel in kernels(modelled()):
        found |= evaluate(kernel, SM90)[0]
    return found


def test_every_form_returns_the_bits_of_the_gpu() -> None:
    """The NaN of an operation on fp64 numbers is not specified: there, all NaNs are one value."""
    wrong = []
    for form, columns in results().items():
        nans = "f64" not in form.text
        for found, expected, kind in zip(columns, recorded().results[form.name], form.results, strict=True):
            for case in np.flatnonzero(differing(found, expected, kind, nans=nans))[:1]:
                given = [f"{column[case]:#x}" for column in operands(form.sources)]
                wrong.append(f"{form.name}: {', '.join(given)} gives {found[case]:#x}, not {expected[case]:#x}")
    assert not wrong


def test_a_note_names_every_operation_whose_nan_has_other_bits() -> None:
    found = 0
    for form, columns in results().items():
        if all(np.array_equal(*pair) for pair in zip(columns, recorded().results[form.name], strict=True)):
            continue
        found += 1
        assert "the pattern of a NaN from" in "".join(evaluate(FormsKernel((form,)), SM90)[1])
    assert found


CANONICAL_NANS = {"f16": 0x7FFF, "bf16": 0x7FFF, "f16x2": 0x7FFF7FFF, "bf16x2": 0x7FFF7FFF, "f32": 0x7FFFFFFF}
MOVES = re.compile(r"mov|selp|copysign|cvt\.(r[nzmp]\.)?f32\.bf16|cvt\.f32\.f32|cvt\.rna\.(satfinite\.)?tf32")
"""Forms that move the bits of an operand, and roundings to tf32 that cut those of a NaN."""


def test_every_other_nan_of_the_gpu_is_the_canonical_one() -> None:
    found = 0
    for form in accepted():
        if MOVES.match(form.text) or "f64" in form.text:
            continue
        for words, kind in zip(recorded().results[form.name], form.results, strict=True):
            if kind in CANONICAL_NANS:
                # The lowest 13 bits of a tf32 are zeros.
                canonical = np.uint64(CANONICAL_NANS[kind] & (~0x1FFF if ".tf32." in form.text else ~0))
                nans = nan_lanes(words, kind)
                assert not np.any((words ^ canonical) & nans), form.name
                found += bool(nans.any())
    assert found > 250


def test_the_record_is_large_enough() -> None:
    opcodes = {opcode for form in modelled() for opcode in form.opcodes}
    assert len(modelled()) >= 2500
    assert len(opcodes) >= 1000
    assert all(len(column) == CASES for columns in recorded().results.values() for column in columns)


def test_every_opcode_has_a_form_or_a_reason() -> None:
    covered = {root for form in accepted() for root in roots(form)}
    declared = set(SM90.opcodes.opcodes)
    assert declared - covered == set(OTHER_OPCODES)
    assert not covered & set(OTHER_OPCODES)


def test_every_form_without_a_result_here_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    # The search for the nearest name of an unknown operation takes most of the time of this test.
    monkeypatch.setattr("bitwise_core.numerics.operations.get_close_matches", lambda *_: [])
    left, evaluated = set(UNMODELLED), []
    for form in accepted():
        pattern = unmodelled(form)
        if pattern is None:
            continue
        left.discard(pattern)
        with suppress(Unsupported):
            evaluate(FormsKernel((form,)), SM90)
            evaluated.append(form.name)
    assert not evaluated
    assert not left


def test_a_changed_result_is_found() -> None:
    words = np.array([0x3F800000, 0x7FFFFFFF, 0x7F800000], dtype=np.uint64)
    other = words | np.array([0, 0xFFC00000, 0], dtype=np.uint64)
    for place, bit in ((0, 0), (0, 31), (2, 31), (2, 0)):
        changed = words.copy()
        changed[place] ^= np.uint64(1 << bit)
        for nans in (False, True):
            assert differing(changed, words, "f32", nans=nans).tolist() == [index == place for index in range(3)]
    assert not differing(other, words, "f32", nans=False).any()
    assert differing(other, words, "f32", nans=True).tolist() == [False, True, False]
    assert differing(other, words, "b32", nans=False).tolist() == [False, True, False]
    halves = np.array([0x7FFF3C00, 0x7C007FFF], dtype=np.uint64)
    assert differing(halves ^ np.uint64(1), halves, "f16x2", nans=False).tolist() == [True, False]
    assert differing(halves ^ np.uint64(1 << 16), halves, "f16x2", nans=False).tolist() == [False, True]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    chosen = tuple(form for form in forms() if form.opcodes[0] in ("setp.eq.f32", "add.rn.f64", "shl.b16"))
    given = {form: tuple(np.arange(CASES, dtype=np.uint64) & np.uint64(1) for _ in form.results) for form in chosen[1:]}
    save(tmp_path / "r.json.xz", {"gpu": "none"}, given, {chosen[0]: "a message"})
    read = load(tmp_path / "r.json.xz", chosen)
    assert read.environment == {"gpu": "none"}
    assert read.rejected == {chosen[0].name: "a message"}
    for form in chosen[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(read.results[form.name], given[form], strict=True))
    with pytest.raises(ValueError, match="other forms"):
        load(tmp_path / "r.json.xz", chosen[1:])
