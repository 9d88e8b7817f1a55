"""Facts about trees, compared with values of the trees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitwise_core.ir.evaluation import evaluate_many
from bitwise_core.ir.nodes import Concat, Constant, Load, Node, Operation, Select
from bitwise_core.numerics import FLOAT_FORMATS, float_format, operation
from canonical_rules.facts import NOTHING, Facts, facts

WIDE = float_format("fp32")
EDGES = {
    "fp32": [
        0x00000000,
        0x80000000,
        0x3F800000,
        0xBF800000,
        0x00000001,
        0x80000001,
        0x807FFFFF,
        0x00800000,
        0x80800000,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0xFFFFFFFF,
        0x7F7FFFFF,
        0xFF7FFFFF,
        0x1A800001,
        0x9A800000,
    ],
    "fp16": [0x0000, 0x8000, 0x3C00, 0xBC00, 0x0001, 0x8001, 0x0400, 0x83FF, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0xFBFF],
    "bf16": [0x0000, 0x8000, 0x3F80, 0xBF80, 0x0001, 0x8001, 0x0080, 0x807F, 0x7F80, 0xFF80, 0x7FC0, 0x1A80, 0x9A81],
}
PAIRS = len(EDGES["fp32"]) ** 2
COUNT = PAIRS + 512


def column(name: str, offset: int) -> np.ndarray:
    """Return patterns of a load: all pairs of edge cases at offsets 0 and 4, then random ones, some of them "
    "negations."""
    generator = np.random.default_rng(offset)
    form = FLOAT_FORMATS[name]
    kind = f"uint{form.bits}"
    drawn = generator.integers(0, 1 << form.bits, COUNT, dtype=np.uint64).astype(kind)
    edges = np.array(EDGES[name], dtype=kind)
    index = np.arange(PAIRS)
    drawn[:PAIRS] = edges[(index if offset == 0 else index // len(edges)) % len(edges)]
    half = np.random.default_rng(99).integers(0, 1 << form.bits, 256, dtype=np.uint64).astype(kind)
    drawn[-256:] = half ^ np.array((1 << (form.bits - 1)) * (offset != 0), dtype=kind)
    return drawn


def memory(buffer: str, offset: int, bits: int) -> np.ndarray:
    if buffer == "integers":
        return np.random.default_rng(offset).integers(-40, 40, COUNT).astype(f"int{bits}").view(f"uint{bits}")
    if buffer == "predicate":
        return np.random.default_rng(offset).integers(0, 2, COUNT).astype(np.uint8)
    return column(buffer, offset)


UNARY = ["neg", "abs", "abs.ftz", "neg.ftz", "sqrt.rn", "sqrt.rn.ftz", "rcp.rn", "convert.rmi", "convert.rn.ftz"]
BINARY = [
    "add.rn",
    "add.rz",
    "add.ru",
    "add.rd",
    "add.rn.ftz",
    "add.rd.ftz",
    "mul.rn",
    "mul.rd",
    "mul.rn.ftz",
    "div.rn",
]
BINARY += ["max", "min", "max.nan", "min.nan", "max.ftz", "min.ftz.nan", "sub.rn", "add.rn.sat", "mul.rn.relu"]
TERNARY = ["fma.rn", "fma.rd", "fma.rn.ftz", "fma.rz", "fma.rn.sat"]


@st.composite
def trees(draw: st.DrawFn) -> Node:
    made: list[Node] = [Load("fp32", 0, 32), Load("fp32", 4, 32)]
    made += [Constant(32, draw(st.sampled_from(EDGES["fp32"]))) for _ in range(2)]
    half = Load("fp16", draw(st.integers(0, 3)), 16)
    made.append(Operation("convert.fp32.fp16", (half,)))
    made.append(Operation("convert.fp32.fp16", (Operation("abs.fp16", (half,)),)))
    made.append(Operation("convert.fp32.bf16", (Load("bf16", 0, 16),)))
    made.append(Concat((Constant(16, 0), Operation("mul.rn.bf16", (Load("bf16", 2, 16), Load("bf16", 2, 16))))))
    made.append(Operation("convert.rn.fp32.s32", (Load("integers", 0, 32),)))
    made.append(Operation("convert.fp32.s8", (Load("integers", 1, 8),)))
    for _ in range(draw(st.integers(1, 8))):
        verb = draw(st.sampled_from([*UNARY, *BINARY, *TERNARY, "select"]))
        operands = tuple(
            draw(st.sampled_from(made)) for _ in range(1 if verb in UNARY else 3 if verb in TERNARY else 2)
        )
        if verb == "select":
            less = Operation("lt.fp32", (made[0], made[1]))
            made.append(Select(less, *operands))
        elif verb.startswith("convert"):
            made.append(Operation(f"{verb}.fp32.fp32", operands))
        else:
            if draw(st.integers(0, 4)) == 0:
                operands = (operands[0],) * min(len(operands), 2) + operands[2:]
            made.append(Operation(f"{verb}.fp32", operands))
    return made[-1]


@settings(max_examples=400)
@given(tree=trees())
def test_every_fact_holds(tree: Node) -> None:
    found = facts(tree, WIDE)
    for pattern in np.unique(evaluate_many(tree, memory)).tolist():
        assert found.hold(pattern, WIDE), f"{found} does not hold for {pattern:#x}"


HALVES = [Operation("convert.fp32.fp16", (Load("fp16", offset, 16),)) for offset in (0, 4)]
LOADS = [Load("fp32", 0, 32), Load("fp32", 4, 32)]
CLOSING = [Operation("add.rn.fp32", (load, Constant(32, 0))) for load in LOADS]
BASES: list[Node] = [
    *LOADS,
    *HALVES,
    *CLOSING,
    Operation("abs.fp32", (LOADS[0],)),
    Operation("mul.rn.fp32", (LOADS[1], LOADS[1])),
    Operation("max.fp32", (LOADS[0], Constant(32, 0))),
    Operation("add.rn.fp32", (HALVES[0], Constant(32, 0))),
    Operation("convert.rn.fp32.s32", (Load("integers", 0, 32),)),
    Constant(32, 0),
    Constant(32, 0x80000000),
]


@pytest.mark.parametrize("verb", [*UNARY, *BINARY, *TERNARY])
def test_one_operation_over_every_kind_of_operand(verb: str) -> None:
    name = f"{verb}.fp32" if not verb.startswith("convert") else f"{verb}.fp32.fp32"
    arity = operation(name).arity
    computed = {base: evaluate_many(base, memory) for base in BASES}
    for operands in itertools.product(BASES, repeat=arity):
        found = facts(Operation(name, operands), WIDE)
        if (found.never_minus_zero, found.never_nan, found.never_subnormal) == (False, False, False):
            continue
        columns = [np.broadcast_to(computed[operand], (COUNT,)) for operand in operands]
        for pattern in np.unique(operation(name).evaluate(*columns)).tolist():
            assert found.hold(pattern, WIDE), f"{name} {[BASES.index(node) for node in operands]} {pattern:#x}"


def claims(node: Node, name: str = "fp32") -> set[str]:
    found = facts(node, float_format(name))
    return {
        field
        for field in ("never_minus_zero", "never_negative", "never_nan", "never_subnormal")
        if getattr(found, field)
    }


X, Y = Load("fp32", 0, 32), Load("fp32", 4, 32)
ZERO = Constant(32, 0)
CLOSED = Operation("add.rn.fp32", (X, ZERO))
H, G = (Operation("convert.fp32.fp16", (Load("fp16", offset, 16),)) for offset in (0, 2))


@pytest.mark.parametrize(
    ("node", "known"),
    [
        (X, set()),
        (CLOSED, {"never_minus_zero"}),
        (Operation("add.rn.fp32", (CLOSED, X)), {"never_minus_zero"}),
        (Operation("add.rz.fp32", (X, CLOSED)), {"never_minus_zero"}),
        (Operation("add.rd.fp32", (X, CLOSED)), set()),
        (Operation("add.rn.ftz.fp32", (X, CLOSED)), {"never_subnormal"}),
        (Operation("mul.rn.fp32", (X, X)), {"never_minus_zero", "never_negative"}),
        (Operation("mul.rn.fp32", (X, Y)), set()),
        (Operation("mul.rn.fp32", (X, Operation("neg.fp32", (X,)))), set()),
        (Operation("abs.fp32", (X,)), {"never_minus_zero", "never_negative"}),
        (Operation("ex2.approx.ftz.fp32", (X,)), {"never_minus_zero", "never_negative", "never_subnormal"}),
        (Operation("max.fp32", (X, ZERO)), {"never_minus_zero", "never_negative", "never_nan"}),
        (Operation("max.nan.fp32", (X, ZERO)), {"never_minus_zero", "never_negative"}),
        (Operation("max.fp32", (X, Operation("abs.fp32", (Y,)))), set()),
        (Operation("max.nan.fp32", (X, Operation("abs.fp32", (Y,)))), {"never_minus_zero", "never_negative"}),
        (Operation("min.fp32", (X, CLOSED)), set()),
        (Operation("min.fp32", (CLOSED, CLOSED)), {"never_minus_zero"}),
        (Operation("fma.rn.fp32", (X, Y, CLOSED)), set()),
        (Operation("fma.rn.fp32", (X, X, CLOSED)), set()),
        (
            Operation("fma.rn.fp32", (X, X, Operation("mul.rn.fp32", (Y, Y)))),
            {"never_minus_zero", "never_negative"},
        ),
        (Operation("fma.rn.fp32", (H, G, CLOSED)), {"never_minus_zero"}),
        (Operation("fma.rn.fp32", (H, G, X)), set()),
        (Operation("fma.rn.ftz.fp32", (H, G, CLOSED)), {"never_subnormal"}),
        (H, {"never_subnormal"}),
        (Operation("convert.rn.fp32.s32", (X,)), {"never_minus_zero", "never_nan", "never_subnormal"}),
        (
            Operation("convert.rn.fp32.u32", (X,)),
            {"never_minus_zero", "never_negative", "never_nan", "never_subnormal"},
        ),
        (Operation("mul.rn.sat.fp32", (X, Y)), {"never_minus_zero", "never_negative", "never_nan"}),
        (Operation("sqrt.rn.fp32", (CLOSED,)), {"never_minus_zero", "never_negative"}),
        (Operation("sqrt.rn.fp32", (X,)), set()),
        (Select(Operation("lt.fp32", (X, Y)), CLOSED, ZERO), {"never_minus_zero"}),
        (Concat((Load("fp16", 0, 16), Constant(16, 0))), set()),
        (Operation("add.b32", (CLOSED, ZERO)), set()),
    ],
)
def test_the_facts_of_a_tree(node: Node, known: set[str]) -> None:
    assert claims(node) == known


def test_a_value_read_in_another_format_is_unknown() -> None:
    assert facts(Operation("abs.fp16", (Load("fp16", 0, 16),)), float_format("bf16")) == facts(
        Load("fp16", 0, 16), float_format("bf16")
    )


def test_deep_chains() -> None:
    total: Node = ZERO
    for index in range(50_000):
        total = Operation("add.rn.fp32", (total, Load("fp32", 4 * index, 32)))
    assert claims(total) == {"never_minus_zero"}


def test_a_wrong_fact_is_detected() -> None:
    """A fused sum with a square may underflow to -0, so it has no fact about -0."""
    tiny = 0x1A3504F4  # its square is a little more than 2**-151
    result = int(operation("fma.rn.fp32").evaluate(*(np.array([p], np.uint32) for p in (0x80000001, 0x3E800000, 0)))[0])
    assert result == 0x80000000
    assert not Facts(never_minus_zero=True).hold(result, WIDE)
    assert not Facts(never_negative=True).hold(0xBF800000, WIDE)
    assert not Facts(never_nan=True).hold(0x7F800001, WIDE)
    assert not Facts(never_subnormal=True).hold(1, WIDE)
    assert not Facts(unit=0).hold(0x3F000000, WIDE)
    assert Facts(unit=-1).hold(0x3F000000, WIDE)
    assert NOTHING.hold(tiny, WIDE)
