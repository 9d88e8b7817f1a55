"""The vocabulary of operations: names, properties of the records, operations of an architecture."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import BitSupport, UnknownInstruction, named
from bitwise_core.execution.memory.atomic_contributions import identity_of
from bitwise_core.numerics import Operation, UnknownOperation, declare, operation, storage, vocabulary
from bitwise_core.numerics.verb_functions import FLOAT_VERBS, INTEGER_VERBS

NAMES = [name for name in vocabulary() if operation(name).evaluable and not operation(name).architecture]
EVALUATED = [
    next(name for name in NAMES if name.split(".")[0] == row.verb and name.endswith(f".{row.formats[0]}"))
    for row in (*FLOAT_VERBS, *INTEGER_VERBS)
]
"""One name of each verb."""


def patterns(bits: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Limits, random patterns and small numbers."""
    edges = [0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    drawn = generator.integers(0, 1 << 64, count, dtype=np.uint64) >> np.uint64(64 - bits)
    drawn[:: len(edges) + 1][: len(edges)] = edges
    small = generator.random(count) < 0.25
    return np.where(small, drawn & np.uint64(63) & np.uint64((1 << bits) - 1), drawn).astype(storage(bits))


def columns(meaning: Operation, count: int = 97) -> list[np.ndarray]:
    generator = np.random.default_rng(sum(map(ord, meaning.name)))
    return [patterns(form.bits, count, generator) for form in meaning.operands]


@pytest.mark.parametrize("name", EVALUATED)
def test_an_evaluation_returns_patterns_of_the_result_format(name: str) -> None:
    meaning = operation(name)
    given = columns(meaning)
    result = meaning.evaluate(*given)
    assert result.dtype == storage(meaning.bits)
    assert result.shape == given[0].shape
    assert meaning.bits > 1 or set(result.tolist()) <= {0, 1}
    if meaning.commutative:
        assert meaning.evaluate(given[1], given[0], *given[2:]).tolist() == result.tolist()
    if meaning.associative:
        third = given[0][::-1]
        left = meaning.evaluate(meaning.evaluate(*given), third)
        assert left.tolist() == meaning.evaluate(given[0], meaning.evaluate(given[1], third)).tolist()


def test_records_are_interned() -> None:
    assert operation("add.s32") is operation("add.u32") is operation("add.b32")
    for name in vocabulary():
        assert operation(name).name == name
    with pytest.raises(TypeError, match="send its name"):
        pickle.dumps(operation("add.b32"))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("mul.hi.u32", "mulhi.u32"),
        ("compare.lt.u32", "lt.u32"),
        ("max.nan.ftz.fp32", "max.ftz.nan.fp32"),
        ("ad.rn.fp32", "add.rn.fp32"),
        ("fmad.rn.fp32", "fma.rn.fp32"),
        ("pop.b32", "popc.b32"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownOperation) as caught:
        operation(name)
    assert str(caught.value).endswith(f"the nearest name is {nearest!r}")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_unknown_format_is_not_modelled_but_an_unknown_verb_is_an_error() -> None:
    instruction = Instruction("mul.wide.s64", (), None, 3)
    with pytest.raises(UnknownInstruction, match=r"mul\.wide\.s64 is not modelled: .* fits in no format"):
        named(instruction, "mulwide.s64")
    with pytest.raises(UnknownOperation, match=r"the nearest name is 'mulwide\.s32'"):
        named(instruction, "mulwid.s32")


def test_an_architecture_declares_its_own_operations() -> None:
    declare(
        "declared_here", "blend", ("fp32", "fp16"), ("", "", "b1"), says="a or b by c", modifiers=(("high", "low"),),
    )  # fmt: skip
    declare("declared_here", "half", ("fp16.fp32",), says="half of a", function=lambda a: a[..., None][..., 0])
    blend = operation("blend.low.fp16@declared_here")
    assert [form.name for form in blend.operands] == ["fp16", "fp16", "b1"]
    assert (blend.result.name, blend.evaluable, blend.architecture) == ("fp16", False, "declared_here")
    half = operation("half.fp16.fp32@declared_here")
    assert (half.result.name, half.operands[0].name, half.evaluable) == ("fp16", "fp32", True)
    for name, words in (
        ("blend.fp64@declared_here", "has declared no such operation"),
        ("blend.middle.fp16@declared_here", "'middle' is unknown or out of place; the modifiers here are high or low"),
        ("blend.fp16@elsewhere", "elsewhere has declared no such operation"),
        ("blend.fp16", "fp16 numbers have no 'blend'"),
    ):
        with pytest.raises(UnknownOperation, match=words):
            operation(name)
    with pytest.raises(ValueError, match="is declared twice"):
        declare("declared_here", "blend", ("fp32",), says="again")
    with pytest.raises(ValueError, match="names the unknown format 'fp33'"):
        declare("declared_here", "other", ("fp33",), says="nothing")


def test_an_architecture_provides_functions_for_known_names_only() -> None:
    with pytest.raises(UnknownOperation, match=r"nearest name is 'ex2\.approx\.fp32'"):
        BitSupport({"ex2.aprox.fp32": np.negative})
    with pytest.raises(ValueError, match="is evaluated by the vocabulary"):
        BitSupport({"add.rn.fp32": np.add})


# -- integers, against plain Python -----------------------------------------------------------------------------------


def signed(value: int, bits: int) -> int:
    """The number in two's complement."""
    return value - (1 << bits) if value >> (bits - 1) else value


def fits(value: int, bits: int) -> bool:
    """Whether a signed number fits in `bits` bits."""
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def highest_from_top(a: int, bits: int) -> int:
    """The position of the highest set bit from the top, all ones where there is none."""
    return bits - a.bit_length() if a else (1 << 32) - 1


def field(a: int, low: int, count: int, bits: int) -> int:
    """A field of a signed number, sign-extended."""
    found = signed(a, bits) >> low & ((1 << count) - 1)
    return found - (1 << count) if count and found >> (count - 1) else found


def by_sign(a: int, bits: int) -> int:
    """A key in the order of floating-point numbers."""
    return ~a & ((1 << bits) - 1) if a >> (bits - 1) else a | 1 << (bits - 1)


def references() -> Iterator[tuple[str, Callable[..., int]]]:
    """Operations that the references of no instruction set cover."""
    for n in (8, 16, 32, 64):
        m = (1 << n) - 1
        yield f"addc.b{n}", lambda a, b, c: a + b + c
        yield f"subc.b{n}", lambda a, b, c: a - b - c
        yield f"carry.u{n}", lambda a, b, m=m: a + b > m
        yield f"carryc.u{n}", lambda a, b, c, m=m: a + b + c > m
        yield f"borrow.u{n}", lambda a, b: a < b
        yield f"borrowc.u{n}", lambda a, b, c: a < b + c
        yield f"addoverflow.s{n}", lambda a, b, n=n: not fits(signed(a, n) + signed(b, n), n)
        yield f"suboverflow.s{n}", lambda a, b, n=n: not fits(signed(a, n) - signed(b, n), n)
        yield f"addsat.u{n}", lambda a, b, m=m: min(a + b, m)
        yield f"subsat.u{n}", lambda a, b: max(a - b, 0)
        yield f"sad.u{n}", lambda a, b, c: abs(a - b) + c
        yield f"sad.s{n}", lambda a, b, c, n=n: abs(signed(a, n) - signed(b, n)) + c
        yield f"bittest.b{n}", lambda a, b, n=n: a >> b % n & 1
        yield f"popc.b{n}", lambda a: a.bit_count()
        yield f"clz.b{n}", lambda a, n=n: n - a.bit_length()
        yield f"brev.b{n}", lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2)
        yield f"findlsb.b{n}", lambda a: (a & -a).bit_length() - 1
    for n in (32, 64):
        yield f"findmsb.top.u{n}", lambda a, n=n: highest_from_top(a, n)
        yield f"findmsb.top.s{n}", lambda a, n=n: highest_from_top(a ^ ((1 << n) - 1) * (a >> (n - 1)), n)
        yield f"bitmask.b{n}", lambda a, b, n=n: ((1 << a % n) - 1) << b % n
        yield f"minbysign.b{n}", lambda a, b, n=n: min(a, b, key=lambda each: by_sign(each, n))
        yield f"maxbysign.b{n}", lambda a, b, n=n: max(a, b, key=lambda each: by_sign(each, n))
    yield "low24.u32", lambda a: a & 0xFFFFFF
    yield "low24.s32", lambda a: signed(a & 0xFFFFFF, 24)
    yield "bfewrap.u32", lambda a, b, c: a >> b % 32 & ((1 << c % 32) - 1)
    yield "bfewrap.s32", lambda a, b, c: field(a, b % 32, c % 32, 32)
    yield "shfl.wrap.b32", lambda a, b, c: ((b << 32 | a) << c % 32) >> 32
    yield "shfr.clamp.b32", lambda a, b, c: (b << 32 | a) >> min(c, 32)


@pytest.mark.parametrize(
    ("name", "meaning"), list(references()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_integer_operations_agree_with_plain_python(name: str, meaning: Callable[..., int]) -> None:
    found = operation(name)
    given = columns(found, 400)
    expected = [int(meaning(*row)) % (1 << found.bits) for row in zip(*(each.tolist() for each in given), strict=True)]
    assert found.evaluate(*given).tolist() == expected


@pytest.mark.parametrize("form", ["fp16", "bf16", "fp32", "fp64"])
def test_classes_of_numbers(form: str) -> None:
    names = ["isfinite", "isinfinite", "isnumber", "isnan", "isnormal", "issubnormal"]
    bits, mantissa = {"fp16": (16, 10), "bf16": (16, 7), "fp32": (32, 23), "fp64": (64, 52)}[form]
    infinity = ((1 << bits - 1 - mantissa) - 1) << mantissa
    smallest = 1 << mantissa
    rows = [0, 1, smallest - 1, smallest, infinity - 1, infinity, infinity + 1]
    wanted = [
        ["isfinite", "isnumber"], *[["isfinite", "isnumber", "issubnormal"]] * 2,
        *[["isfinite", "isnumber", "isnormal"]] * 2, ["isinfinite", "isnumber"], ["isnan"],
    ]  # fmt: skip
    for sign in (0, 1 << bits - 1):
        given: Any = np.array([row | sign for row in rows], dtype=storage(bits))
        answers = [operation(f"{name}.{form}").evaluate(given).tolist() for name in names]
        assert [
            [name for name, row in zip(names, answers, strict=True) if row[at]] for at in range(len(rows))
        ] == wanted


@pytest.mark.parametrize(
    "name",
    [
        *(f"{verb}.b{n}" for verb in ("add", "and", "or", "xor") for n in (32, 64)),
        *(f"{verb}.{sign}{n}" for verb in ("max", "min") for sign in "su" for n in (32, 64)),
        *(f"{verb}bysign.b{n}" for verb in ("max", "min") for n in (32, 64)),
    ],
)
def test_the_identity_of_an_atomic_operation_leaves_every_content(name: str) -> None:
    made = operation(name)
    identity, function = identity_of(made), made.function
    assert identity is not None
    assert function is not None
    kind = np.dtype(f"u{made.bits // 8}")
    sign = 1 << made.bits - 1
    contents = np.array([0, 1, 5, sign - 2, sign - 1, sign, sign + 1, 2 * sign - 2, 2 * sign - 1], dtype=kind)
    for operands in ([contents, np.full_like(contents, identity)], [np.full_like(contents, identity), contents]):
        assert np.array_equal(function(*operands), contents)
