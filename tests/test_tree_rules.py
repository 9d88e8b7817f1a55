"""Every canonical rule on random and special bit patterns; without its condition a counterexample exists."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bitwise_core.ir.evaluation import evaluate, evaluate_many
from bitwise_core.ir.nodes import Concat, Constant, Load, Matrix, Node, Operation, Slice
from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, nan_of, storage
from bitwise_core.numerics.mma import IntegerSum, MmaSpec, multiply_accumulate
from canonical_rules.conditions import SmallSums
from canonical_rules.patterns import Bindings, Family, Pattern
from canonical_rules.rules import ASSUMPTIONS, RULES, Requires, Rule, rule

STEPS = [one for one in RULES if one.left.text.startswith(("matrix", "clamped"))]
SCALAR = [one for one in RULES if one not in STEPS]
CASES = [(one, family) for one in SCALAR for family in one.families]
REFUTED = [(one, family) for one in SCALAR for family in one.refuted]
COUNT = 1500


def specials(form: FloatFormat) -> list[int]:
    unit = 1 << form.mantissa_bits
    top = form.largest_exponent_field << form.mantissa_bits
    sizes = [0, 1, 2, unit - 1, unit, unit + 1, form.one, form.one + 1, form.one - 1, top - 1, top, top + 1]
    sizes += [top | unit >> 1, top | unit - 1, form.one >> 1, (form.one >> 1) + 1]
    return [sign << (form.bits - 1) | size for size in sizes for sign in (0, 1)]


def variable_form(family: Family, name: str) -> FloatFormat | None:
    """Return the format of a variable; None for an integer."""
    return FLOAT_FORMATS.get(family.narrow[name]) if name in family.narrow else family.form


def width(family: Family, name: str) -> int:
    if name not in family.narrow:
        return family.bits
    form = FLOAT_FORMATS.get(family.narrow[name])
    return int(family.narrow[name][1:]) if form is None else form.bits


def draw(family: Family, variables: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return columns of patterns: all pairs of special values, then random patterns, some of them related."""
    generator = np.random.default_rng(sum(map(ord, family.name)))
    columns: dict[str, np.ndarray] = {}
    square = 32 * 32
    for position, name in enumerate(variables):
        form, bits = variable_form(family, name), width(family, name)
        edges = specials(form) if form else [0, 1, 2, 3, (1 << bits) - 1, 1 << (bits - 1), bits, bits - 1]
        drawn = generator.integers(0, 1 << 64, square + COUNT, dtype=np.uint64) >> np.uint64(64 - bits)
        if position < 2:
            drawn[:square] = [edges[index // 32**position % 32 % len(edges)] for index in range(square)]
        else:
            drawn[:square] = generator.choice(np.array(edges, dtype=np.uint64), square)
        if form and position:
            near = slice(square, square + COUNT // 3)
            first = next(iter(columns.values()))[near].astype(np.uint64)
            turned = first ^ (generator.integers(0, 4, COUNT // 3, dtype=np.uint64) ^ np.uint64(1 << (bits - 1)))
            drawn[near] = turned & np.uint64((1 << bits) - 1)
        columns[name] = drawn.astype(storage(bits))
    return columns


def counterexamples(
    one: Rule, family: Family, *, condition: bool = True, assumption: bool = True, nan: bool | None = None
) -> int:
    """Return on how many admissible inputs the two sides have different bits."""
    variables = tuple(dict.fromkeys((*one.left.variables, *one.right.variables)))
    columns = draw(family, variables)
    admitted = np.ones(len(next(iter(columns.values()))), dtype=bool)
    if condition and isinstance(one.condition, Requires):
        column, form = columns[one.condition.variable], variable_form(family, one.condition.variable)
        assert form is not None
        admitted &= np.array([one.condition.holds(pattern, form) for pattern in column.tolist()])
    if assumption and one.assumption == "finite":
        for name, column in columns.items():
            form = variable_form(family, name)
            assert form is not None
            magnitude = column & np.array(form.infinity, dtype=column.dtype)
            admitted &= magnitude != np.array(form.infinity, dtype=column.dtype)
    assert admitted.sum() > 100
    bindings = {name: (Load(name, 0, width(family, name)),) for name in variables}
    left, right = (
        evaluate_many(side.build(family, bindings), lambda buffer, offset, bits: columns[buffer])
        for side in (one.left, one.right)
    )
    different = np.broadcast_to(left != right, admitted.shape)
    if one.up_to_nan if nan is None else nan:
        assert family.form is not None
        different = different & ~(nan_of(left, family.form) & nan_of(right, family.form))
    return int((different & admitted).sum())


@pytest.mark.parametrize(("one", "family"), CASES, ids=[f"{one.name}-{family.name}" for one, family in CASES])
def test_both_sides_are_equal(one: Rule, family: Family) -> None:
    assert counterexamples(one, family) == 0


@pytest.mark.parametrize(("one", "family"), REFUTED, ids=[f"{one.name}-{family.name}" for one, family in REFUTED])
def test_the_rule_fails_in_its_excluded_families(one: Rule, family: Family) -> None:
    translated = dataclasses.replace(family, operations={**family.operations})
    if "max" in one.left.text and "op" in family.operations:
        translated = dataclasses.replace(family, operations={"max": family.operations["op"]})
    assert counterexamples(one, translated) > 0


CONDITIONAL = [(one, family) for one, family in CASES if one.condition]


@pytest.mark.parametrize(
    ("one", "family"), CONDITIONAL, ids=[f"{one.name}-{family.name}" for one, family in CONDITIONAL]
)
def test_without_its_condition_the_rule_fails(one: Rule, family: Family) -> None:
    assert counterexamples(one, family, condition=False) > 0


PARTS = [
    (one, family, name)
    for one, family in CONDITIONAL
    if isinstance(one.condition, Requires) and len(one.condition.facts) > 1
    for name in one.condition.facts
]


@pytest.mark.parametrize(("one", "family", "name"), PARTS, ids=[f"{o.name}-{f.name}-{n}" for o, f, n in PARTS])
def test_every_part_of_a_condition_is_needed(one: Rule, family: Family, name: str) -> None:
    assert isinstance(one.condition, Requires)
    rest = tuple(fact for fact in one.condition.facts if fact != name)
    weaker = dataclasses.replace(one, condition=Requires(one.condition.variable, rest))
    assert counterexamples(weaker, family) > 0


ASSUMING = [(one, family) for one, family in CASES if one.assumption]


@pytest.mark.parametrize(("one", "family"), ASSUMING, ids=[f"{one.name}-{family.name}" for one, family in ASSUMING])
def test_without_its_assumption_the_rule_fails(one: Rule, family: Family) -> None:
    assert counterexamples(one, family, assumption=False) > 0


CANONICAL_HERE = ("mul_neg", "mul_minus_one", "widened_neg")
UP_TO_NAN = [one for one in SCALAR if one.up_to_nan and one.name not in CANONICAL_HERE]


@pytest.mark.parametrize("one", UP_TO_NAN, ids=[one.name for one in UP_TO_NAN])
def test_rules_up_to_nan_do_change_nan_patterns(one: Rule) -> None:
    """Negation returns the canonical NaN here, so some are exact; hardware may flip the sign of a NaN."""
    assert counterexamples(one, one.families[0], nan=False) > 0


def test_the_table_is_well_formed() -> None:
    assert len({one.name for one in RULES}) == len(RULES)
    assert {one.assumption for one in RULES} - {None} <= set(ASSUMPTIONS)
    for one in RULES:
        assert one.reason.endswith(".")
        assert set(one.right.variables) <= set(one.left.variables)
        assert one.condition is None or one.condition.statement
        assert one.evidence == ("measured" if one.name.startswith("matrix") else "proved")
    assert {one.name for one in RULES if not one.rewrites} == {
        "add_commutes",
        "mul_commutes",
        "fma_factors_commute",
        "fma_sign_moves",
        "max_commutes",
        "max_associates",
        "min_commutes",
        "min_associates",
        "integers_associate",
        "integers_commute",
        "integer_steps_commute",
    }
    with pytest.raises(KeyError, match="no canonical rule is called 'add_two'"):
        rule("add_two")


X, Y = Load("X", 0, 32), Load("Y", 0, 32)
PLUS, MINUS = Constant(32, 0), Constant(32, 0x80000000)


def add(left: Node, right: Node) -> Node:
    return Operation("add.rn.fp32", (left, right))


@pytest.mark.parametrize(
    ("name", "node", "expected"),
    [
        ("add_minus_zero", add(X, MINUS), X),
        ("add_minus_zero", add(X, PLUS), None),
        ("add_minus_zero", Operation("add.rd.fp32", (X, MINUS)), None),
        ("add_minus_zero_flushed", Operation("add.rn.ftz.fp32", (X, MINUS)), None),
        ("add_plus_zero", add(X, PLUS), None),
        ("add_plus_zero", add(Operation("mul.rn.fp32", (X, X)), PLUS), Operation("mul.rn.fp32", (X, X))),
        ("add_plus_zero_outward", add(add(X, PLUS), Y), add(add(X, Y), PLUS)),
        ("add_plus_zero_twice", add(add(X, PLUS), PLUS), add(X, PLUS)),
        ("sub_is_add", Operation("sub.rn.fp32", (X, Y)), add(X, Operation("neg.fp32", (Y,)))),
        ("max_idempotent", Operation("max.fp32", (X, X)), X),
        ("max_idempotent", Operation("max.fp32", (X, Y)), None),
        ("max_neutral", Operation("max.fp32", (X, Constant(32, 0xFF800000))), None),
        ("max_nan_neutral", Operation("max.nan.fp32", (X, Constant(32, 0xFF800000))), X),
        ("integers_associate", Operation("add.s32", (Operation("add.u32", (X, Y)), X)), None),
        ("widened_bf16_is_its_bits", Operation("convert.fp32.bf16", (Load("B", 0, 16),)), "concat"),
        ("narrow_of_bf16_bits", Operation("convert.rn.bf16.fp32", (Concat((Constant(16, 0), Load("B", 0, 16))),)), "B"),
        ("product_with_zero", Operation("mul.rn.fp32", (Operation("abs.fp32", (X,)), PLUS)), PLUS),
        ("product_with_zero", Operation("mul.rn.fp32", (X, PLUS)), None),
        ("neg_neg", X, None),
    ],
)
def test_rules_apply_where_their_condition_is_proved(name: str, node: Node, expected: Node | str | None) -> None:
    if name == "integers_associate":
        expected = Operation("add.b32", (X, Operation("add.b32", (Y, X))))
    if expected == "concat":
        expected = Concat((Constant(16, 0), Load("B", 0, 16)))
    if expected == "B":
        expected = Load("B", 0, 16)
    assert rule(name).apply(node) is expected


def test_matrix_steps_of_zeros() -> None:
    one, zero, minus, infinity = Constant(16, 0x3C00), Constant(16, 0), Constant(16, 0x8000), Constant(16, 0x7C00)
    loaded = Load("A", 0, 16)
    certain, assumed = rule("matrix_step_of_zeros"), rule("matrix_step_of_zeros_and_finite_numbers")

    total = Operation("add.rn.fp32", (X, Constant(32, 0)))

    def step(
        left: tuple[Node, ...], right: tuple[Node, ...], instruction: str = "any.k16.fp16.arch", start: Node = total
    ) -> Node:
        return Matrix(instruction, start, left, right)

    assert certain.apply(step((zero, minus, one), (one, zero, minus))) is total
    # Recorded on an H100: products of +0 and +0 on -0 return +0.
    for start in (X, Constant(32, 0x80000000)):
        assert certain.apply(step((zero,), (one,), start=start)) is None
        assert assumed.apply(step((zero,), (loaded,), start=start)) is None
    for left, right in (((zero, one), (one, one)), ((zero,), (infinity,)), ((zero,), (loaded,)), ((one,), (one,))):
        assert certain.apply(step(left, right)) is None
    assert assumed.apply(step((zero, loaded), (loaded, minus))) is total
    assert assumed.apply(step((zero, loaded), (loaded, loaded))) is None
    assert certain.apply(step((zero,), (zero,), "any.k16.bf16.arch")) is None
    assert certain.apply(step((zero,), (zero,), "any.k16.fp16x2")) is None
    byte = Slice(zero, 0, 8)
    assert assumed.apply(step((byte,), (byte,), "any.k32.fp16")) is None


def integer_unit(instruction: str, accumulator: int, left: tuple[int, ...], right: tuple[int, ...]) -> int:
    word, _, _, left_type, right_type, _ = instruction.split(".")
    row = MmaSpec(
        "toy_1",
        word,
        left_type,
        right_type,
        "s32",
        "s32",
        len(left),
        IntegerSum(word == "clamped"),
        "published only",
        "https://x.org",
    )
    a, b = np.array([left], dtype=np.uint8), np.array([right], dtype=np.uint8)[:, None].reshape(-1, 1)
    return int(multiply_accumulate(row, a, b, np.array([[accumulator]], dtype=np.uint32))[0, 0])


@pytest.mark.parametrize("family", rule("integer_steps_commute").families, ids=lambda family: family.name)
def test_integer_steps(family: Family) -> None:
    generator = np.random.default_rng(7)
    clamped = next(one for one in STEPS if isinstance(one.condition, SmallSums) and family in one.families)
    rows = [generator.choice(np.array([0, 1, 127, 128, 129, 255]), (4, 32)) for _ in range(4)]
    rows += [generator.integers(0, 256, (4, 32)) for _ in range(4)] + [np.full((4, 32), 128), np.full((4, 32), 255)]
    starts = [0, 0x7FFFFFFF, 0x80000000, 0x7FF80000, *generator.integers(0, 1 << 32, 2).tolist()]
    needed = set()
    for start in starts:
        for row in rows:
            factors = {
                name: tuple(Constant(8, int(each)) for each in one) for name, one in zip("abde", row, strict=True)
            }
            given = {"c": (Constant(32, start),), **{f"{name}*": each for name, each in factors.items()}}
            zeros = {**given, "b*": (Constant(8, 0),) * 32}
            for one in (rule("integer_steps_commute"), rule("integer_step_of_zeros"), clamped):
                for bindings in (given, zeros):
                    if one.condition is None or one.condition.proved(family, bindings, {}):
                        assert agrees(one, family, bindings), (one.name, start)
                    elif not agrees(one, family, bindings):
                        needed.add(one.name)
    assert needed == {"integer_step_of_zeros", clamped.name}


def agrees(one: Rule, family: Family, given: Bindings) -> bool:
    left, right = (
        evaluate(side.build(family, given), lambda buffer, offset, bits: 0, integer_unit)
        for side in (one.left, one.right)
    )
    return left == right


def test_a_long_sum_of_integers_may_be_clamped() -> None:
    (family,) = (one for one in rule("integer_steps_commute").families if one.name == "s8.s8")
    clamped = rule("integer_step_not_clamped_s8_s8")
    extreme = (Constant(8, 0x80),) * 32
    node: Node = Constant(32, 0)
    values = []
    for step in range(1, 4098):
        node = Matrix(family.operations["clamped"], node, extreme, extreme)
        if step in (1, 4095, 4096, 4097):
            values.append(clamped.apply(node) is not None)
    assert values == [True, True, False, False]
    assert clamped.apply(Matrix(family.operations["clamped"], Constant(32, 1), extreme, extreme)) is None
    assert clamped.apply(Matrix(family.operations["clamped"], X, extreme, extreme)) is None
    assert integer_unit(family.operations["clamped"], 4095 << 19, (0x80,) * 32, (0x80,) * 32) == 0x7FFFFFFF
    assert integer_unit(family.operations["matrix"], 4095 << 19, (0x80,) * 32, (0x80,) * 32) == 0x80000000
    assert integer_unit(family.operations["clamped"], 4094 << 19, (0x80,) * 32, (0x80,) * 32) == 4095 << 19


def test_patterns_are_parsed_or_refused() -> None:
    assert Pattern("add(add(x, +0), y)").variables == ("x", "y")
    assert Pattern("x").variables == ("x",)
    assert Pattern("matrix(c, a*, b*)").variables == ("c", "a*", "b*")
    for text in ("add(x", "add(x))", "x y)", "", "x y", "(x)", "add(x y)", "add(x; y)"):
        with pytest.raises(ValueError, match="the pattern"):
            Pattern(text)
    with pytest.raises(ValueError, match="has no number -inf"):
        Family("integers", {"op": "add.b32"}, None, 32).number("-inf")
