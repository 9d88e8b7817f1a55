"""Format rows, operation names, integer operations, and errors of callers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bitwise_core.numerics import FLOAT_FORMATS, Unevaluable, native_floats, operation


def test_an_inconsistent_format_row_is_refused() -> None:
    row = FLOAT_FORMATS["fp16"]
    for change, words in (
        ({"bits": 17}, "do not add up"),
        ({"bias": 32}, "bias 32"),
        ({"canonical_nan": 0x7C00}, "is not a NaN"),
        ({"canonical_nan": None}, "needs a canonical NaN exactly where it has NaN patterns"),
        ({"nan": "all_ones"}, "has its NaNs at the highest exponent"),
        ({"subnormals": False}, "power-of-two scale"),
    ):
        with pytest.raises(ValueError, match=words):
            dataclasses.replace(row, **change)


def test_properties_of_the_format_rows() -> None:
    facts = {name: (form.smallest_bit, form.largest_exponent) for name, form in FLOAT_FORMATS.items()}
    assert facts == {
        "fp64": (-1074, 1023),
        "fp32": (-149, 127),
        "tf32": (-136, 127),
        "fp16": (-24, 15),
        "bf16": (-133, 127),
        "e4m3": (-9, 8),
        "e5m2": (-16, 15),
        "e4m3fnuz": (-10, 7),
        "e5m2fnuz": (-17, 15),
        "e2m1": (-1, 2),
        "e2m3": (-3, 2),
        "e3m2": (-4, 4),
        "ue8m0": (-127, 127),
    }


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("add.s32", "add.b32"),
        ("add.u32", "add.b32"),
        ("convert.rn.fp32.fp16", "convert.fp32.fp16"),
        ("convert.rn.fp32.s16", "convert.fp32.s16"),
        ("convert.rn.ftz.fp16.fp32", "convert.rn.fp16.fp32"),
        ("convert.s64.s32", "convert.b64.s32"),
        ("convert.u16.s32", "convert.b16.b32"),
        ("eq.s32", "eq.b32"),
        ("fma.rn.ftz.sat.fp32", "fma.rn.ftz.sat.fp32"),
        ("max.ftz.nan.fp32", "max.ftz.nan.fp32"),
    ],
)
def test_canonical_names(written: str, name: str) -> None:
    assert operation(written).name == name
    assert operation(name).name == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("add.fp32", "name one of the roundings rn, rz, ru, rd, rna"),
        ("add.ftz.rn.fp32", "'rn' is unknown or out of place"),
        ("add.rn.sat.ftz.fp32", "'ftz' is unknown or out of place"),
        ("add.rn", "must end in one format"),
        ("frobnicate.fp32", "have no 'frobnicate'"),
        ("frobnicate.s32", "have no 'frobnicate'"),
        ("min.b32", "write s32 or u32"),
        ("convert.fp16.fp32", "name a rounding"),
        ("convert.rzi.b32.fp32", "s32 or u32"),
        ("convert.rn.e2m1.fp32", "write satfinite"),
        ("convert.rz.ue8m0.fp32", "not established"),
        ("convert.ru.ftz.fp16.fp32", "not established"),
        ("convert.b64.b32", "widening depends on the sign"),
        ("convert.rn.fp32", "destination format and then"),
        ("add.rn.e2m1", "conversions only"),
        ("mulwide.s64", "fits in no format"),
        ("abs.u32", "is itself"),
        ("add.approx.fp32", "has no approximation"),
        ("", "must end in one format"),
    ],
)
def test_unknown_names_are_refused_with_the_reason(name: str, words: str) -> None:
    with pytest.raises(KeyError) as caught:
        operation(name)
    assert words in caught.value.args[0]
    assert repr(name) in caught.value.args[0]


@pytest.mark.parametrize("name", ["ex2.approx.ftz.fp32", "div.full.fp32", "tanh.approx.bf16", "rcp.approx.ftz.fp32"])
def test_approximations_have_no_evaluation(name: str) -> None:
    found = operation(name)
    assert (found.name, found.evaluable) == (name, False)
    with pytest.raises(Unevaluable, match=name):
        _ = found.evaluate


def test_commutative_operations() -> None:
    names = [
        "add.rn.fp32",
        "sub.rn.fp32",
        "mul.rz.fp16",
        "fma.rn.fp32",
        "div.rn.fp32",
        "max.fp32",
        "eq.fp32",
        "lt.fp32",
    ]
    names += ["add.b32", "sub.b32", "xor.b8", "shl.b32", "min.s64", "mulhi.u32", "lt.s32", "ne.b1"]
    assert [name for name in names if operation(name).commutative] == [
        "add.rn.fp32",
        "mul.rz.fp16",
        "fma.rn.fp32",
        "max.fp32",
        "eq.fp32",
        "add.b32",
        "xor.b8",
        "min.s64",
        "mulhi.u32",
        "ne.b1",
    ]


def test_wrong_arrays_are_refused() -> None:
    add = operation("add.rn.fp32")
    with pytest.raises(TypeError, match="takes patterns as uint32 and was given int64"):
        add.evaluate(np.zeros(2, np.int64), np.zeros(2, np.uint32))
    with pytest.raises(TypeError, match="takes 2 operands and was given 1"):
        add.evaluate(np.zeros(2, np.uint32))


@pytest.mark.parametrize(
    "name", ["add.rn.fp32", "add.rz.fp32", "fma.rn.fp32", "fma.rn.fp64", "max.fp32", "add.rn.ftz.fp32"]
)
def test_shapes_broadcast(name: str) -> None:
    found = operation(name)
    kind = np.uint64 if name.endswith("64") else np.uint32
    column = np.full((3, 1), found.operands[0].bits, dtype=kind)
    row = np.arange(4, dtype=kind).reshape(1, 4)
    scalar = np.array(0, dtype=kind)
    result = found.evaluate(*(column, row, scalar)[: found.arity])
    assert result.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            single = found.evaluate(*(column[i, 0], row[0, j], scalar)[: found.arity])
            assert single.shape == ()
            assert int(single) == int(result[i, j])


def test_no_operation_changes_its_operands() -> None:
    operands = [np.array([0x00000001, 0x7F800001, 0x3F800000], np.uint32) for _ in range(3)]
    for name in ("add.rn.ftz.fp32", "fma.rn.fp32", "max.ftz.fp32", "neg.fp32"):
        found = operation(name)
        found.evaluate(*operands[: found.arity])
    assert [operand.tolist() for operand in operands] == [[0x00000001, 0x7F800001, 0x3F800000]] * 3


def test_native_arithmetic_is_checked_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_floats.trusted()
    monkeypatch.setattr(native_floats, "_SMALLEST", 0.0)
    assert not native_floats.trusted()


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integer_operations(bits: int) -> None:
    generator = np.random.default_rng(bits)
    edges = [0, 1, 2, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, bits, bits - 1, bits + 1]
    drawn = [int.from_bytes(generator.bytes(bits // 8), "little") for _ in range(20)]
    rows = [(left, right) for left in edges + drawn for right in edges + drawn]
    kind = np.dtype(f"uint{bits}")
    left, right = (np.array(column, dtype=kind) for column in zip(*rows, strict=True))
    for verb, meaning in {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }.items():
        assert operation(f"{verb}.b{bits}").evaluate(left, right).tolist() == [
            meaning(*row) % (1 << bits) for row in rows
        ]
    amounts = np.minimum(right, kind.type(2 * bits)).astype(np.uint32)
    assert operation(f"shl.b{bits}").evaluate(left, amounts).tolist() == [
        (a << b if b < bits else 0) % (1 << bits) for a, b in rows
    ]
    for letter in "su":
        for verb, meaning in {
            "min": min,
            "max": max,
            "mulhi": lambda a, b: a * b >> bits,
            "lt": lambda a, b: a < b,
            "ge": lambda a, b: a >= b,
        }.items():
            values = [tuple(_signed(x, bits) if letter == "s" else x for x in row) for row in rows]
            got = operation(f"{verb}.{letter}{bits}").evaluate(left, right).tolist()
            assert got == [meaning(*row) % (1 << bits) for row in values]
        shifted = operation(f"shr.{letter}{bits}").evaluate(left, amounts).tolist()
        assert shifted == [(a >> min(b, bits)) % (1 << bits) for (a, _), (_, b) in zip(values, rows, strict=True)]
        if bits < 64:
            wide = operation(f"mulwide.{letter}{bits}").evaluate(left, right).tolist()
            assert wide == [a * b % (1 << 2 * bits) for a, b in values]
    for verb, meaning in {"not": lambda a: ~a, "neg": lambda a: -a}.items():
        assert operation(f"{verb}.b{bits}").evaluate(left).tolist() == [meaning(a) % (1 << bits) for a, _ in rows]
    absolute = operation(f"abs.s{bits}").evaluate(left).tolist()
    assert absolute == [abs(_signed(a, bits)) % (1 << bits) for a, _ in rows]


@pytest.mark.parametrize("source", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_integer_conversions(target: str, source: str) -> None:
    bits, wide = int(source[1:]), int(target[1:])
    patterns = [0, 1, 5, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 3]
    values = [_signed(p, bits) if source[0] == "s" else p for p in patterns]
    column = np.array(patterns, dtype=f"uint{bits}")
    assert operation(f"convert.{target}.{source}").evaluate(column).tolist() == [v % (1 << wide) for v in values]
    low = -(1 << (wide - 1)) if target[0] == "s" else 0
    high = (1 << (wide - (target[0] == "s"))) - 1
    clamped = [min(max(v, low), high) % (1 << wide) for v in values]
    assert operation(f"convert.sat.{target}.{source}").evaluate(column).tolist() == clamped
