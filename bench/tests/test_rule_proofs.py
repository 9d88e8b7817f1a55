"""The proofs of the canonical rules: solvers, expressions of operations, a slice of the obligations, and mutants."""

from __future__ import annotations

import hashlib
import itertools
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs import faithfulness, floats, prover, semantics
from bitwise_bench.proofs.__main__ import main
from bitwise_bench.proofs.conversions import Unencoded
from bitwise_bench.proofs.discharge import discharge
from bitwise_bench.proofs.encoding import encode_operation
from bitwise_bench.proofs.exhaustion import exhaust, sample
from bitwise_bench.proofs.lemmas import Lemma, with_lemmas
from bitwise_bench.proofs.mutations import examine, faults, is_perturbation, mutants, refute
from bitwise_bench.proofs.obligations import not_finite, of_rule, with_witnesses
from bitwise_bench.proofs.page import render
from bitwise_bench.proofs.prover import CORE, ProofError, Task, digests, is_settled, read, settle, table, tasks
from bitwise_bench.proofs.solvers import Bitwuzla, Outcome, abstracted
from bitwise_bench.proofs.standard import agrees
from bitwise_bench.proofs.vectors import patterns, special
from bitwise_core.execution import finite_patterns
from bitwise_core.ir.rules.proofs import checked
from bitwise_core.ir.rules.rule import Rule, RuleError, over
from bitwise_core.numerics import FLOAT_FORMATS, FORMATS, operation
from workspace import ROOT

TABLE = table()
TASKS = tasks(TABLE)
CONTENT = read(TABLE.path)
SECONDS = 30.0
SLOWEST = 0.5
"""Obligations that took more seconds are left to `nox -s proofs`: all those of 6 of 187 statements."""


def rule(name: str) -> Rule:
    return next(each for each in TABLE.rules if each.name == name)


def task(name: str, label: str) -> Task:
    return next(each for each in TASKS if (each.name, each.label) == (name, label))


# -- expressions ------------------------------------------------------------------------------------------------------


def test_the_operations_of_one_day_have_the_bits_of_their_functions() -> None:
    names = [name for name in prover.operations(TASKS) if not faithfulness.is_exhausted(operation(name))]
    chosen = sorted(names, key=lambda name: hashlib.sha256(f"{date.today()}{name}".encode()).digest())[:80]
    faithfulness.check_all(chosen, count=120)


@pytest.mark.parametrize(
    "name",
    [
        "add.rd.fp32", "mul.rn.bf16", "fma.rz.fp64", "fnma.ru.ftz.fp32", "div.rn.fp16", "sqrt.rn.fp32", "rcp.rz.bf16",
        "add.rna.sat.tf32", "mul.rn.e4m3", "add.ru.e5m2fnuz", "max.nan.relu.fp16", "convert.rn.satfinite.e4m3.fp32",
        "convert.rna.tf32.fp32", "convert.rpi.s64.fp64", "convert.rd.bf16.u64", "ltu.ftz.fp32", "isnormal.bf16",
    ],
)  # fmt: skip
def test_an_operation_of_each_kind_has_the_bits_of_its_function(name: str) -> None:
    faithfulness.check(operation(name), 600, seed=1)


def test_a_wrong_expression_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floats, "increment", lambda rounding, sign, odd, half, rest: half)
    with pytest.raises(faithfulness.Unfaithful, match=r"the expression of add\.rn\.fp16 gives"):
        faithfulness.check(operation("add.rn.fp16"))


@pytest.mark.parametrize("name", ["ex2.approx.fp32", "convert.rni.fp32.fp32", "popc.b32"])
def test_an_operation_without_an_expression_is_named(name: str) -> None:
    meaning = operation(name)
    operands = tuple(bv.variable(str(place), form.bits) for place, form in enumerate(meaning.operands))
    with pytest.raises(Unencoded, match=name):
        encode_operation(meaning, operands)


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "e5m2", "e4m3", "e4m3fnuz", "tf32"])
def test_finite_patterns_are_those_of_the_assumption(name: str) -> None:
    form = FLOAT_FORMATS[name]
    found = patterns(form, 2000, np.random.default_rng(0))
    assert (not_finite(found, form) == finite_patterns.not_finite(found, form)).all()
    assert np.isin(np.array(special(form)[:40]), patterns(form, 4000, np.random.default_rng(1))).mean() > 0.9


@pytest.mark.parametrize(
    "name", ["sqrt.rn.fp16", "convert.rna.fp16.fp32", "convert.rd.fp32.u32", "convert.fp64.fp32", "ge.fp32", "neg.fp64"]
)
def test_an_expression_is_that_of_the_theory_of_floating_point_numbers(name: str) -> None:
    assert name in CONTENT["standard"]["names"]
    assert agrees(name, SECONDS) is True


def test_a_difference_from_the_theory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floats, "increment", lambda rounding, sign, odd, half, rest: half)
    assert agrees("convert.rn.fp16.fp32", SECONDS) is False


BINARY = {
    "add": bv.add, "sub": bv.sub, "mul": bv.mul, "udiv": bv.udiv, "urem": bv.urem, "and": bv.both, "or": bv.either,
    "xor": bv.xor, "eq": bv.equal, "ult": bv.below, "slt": bv.signed_below, "shl": bv.shift_left,
    "lshr": bv.shift_right, "ashr": bv.shift_right_signed, "concat": bv.join,
}  # fmt: skip


def value_in(solver: Bitwuzla, expression: bv.Bits) -> Outcome:
    """Return what a solver makes of an expression of the variables, given as constants by equations."""
    result = bv.variable("result", expression.width)
    equations = [
        bv.equal(bv.variable(name, 5), bv.constant(value, 5)) for name, value in {"x": 19, "y": 6, "z": 0}.items()
    ]
    return solver.solve([*equations, bv.equal(result, expression)], SECONDS)


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("names", ["xy", "yx", "xx", "yy", "xz", "zx"])
def test_a_solver_and_the_evaluation_give_an_expression_the_same_value(kind: str, names: str) -> None:
    bv.forget()
    given = {name: np.array([value], dtype=np.uint64) for name, value in {"x": 19, "y": 6, "z": 0}.items()}
    expression = BINARY[kind](*(bv.variable(name, 5) for name in names))
    outcome = value_in(Bitwuzla(), expression)
    assert (outcome.answer, outcome.values["result"]) == ("found", int(bv.evaluate(expression, given)[0]))


def test_a_square_root_has_one_value_in_a_solver() -> None:
    bv.forget()
    for radicand, root in ((0, 0), (1, 1), (3, 1), (4, 2), (224, 14), (225, 15), (255, 15)):
        given = bv.variable("x", 8)
        found = bv.square_root(given)
        equal = bv.equal(found, bv.constant(root, 8))
        fixed = bv.equal(given, bv.constant(radicand, 8))
        assert Bitwuzla().solve([fixed, equal], SECONDS).answer == "found"
        assert Bitwuzla().solve([fixed, bv.invert(equal)], SECONDS).answer == "none"


KINDS = ("add", "sub", "mul", "and", "or", "xor", "not", "ite", "extract", "eq", "ult")


def test_simplified_expressions_have_the_value_of_plain_ones() -> None:
    """Random expressions of small widths, each made with and without the rules of its constructors."""
    generator = np.random.default_rng(7)
    values = {name: generator.integers(0, 16, 64).astype(np.uint64) for name in "xyz"}
    for _ in range(300):
        bv.forget()
        pool = [*(bv.variable(name, 4) for name in "xyz"), *(bv.constant(each, 4) for each in (0, 1, 8, 15))]
        plain = {each.number: bv.evaluate(each, values) for each in pool}
        for _ in range(12):
            a, b, c = (pool[generator.integers(len(pool))] for _ in range(3))
            kind = ["add", "sub", "mul", "and", "or", "xor", "not", "ite", "extract", "eq", "ult"][
                generator.integers(11)
            ]
            x, y, z = (plain[each.number].astype(np.int64) for each in (a, b, c))
            if kind == "not":
                made, expected = bv.invert(a), ~x & 15
            elif kind == "ite":
                condition = bv.below(a, b)
                made, expected = bv.choose(condition, c, a), np.where(x < y, z, x)
            elif kind == "extract":
                made = bv.join(bv.extract(a, 1, 3), bv.extract(b, 3, 1))
                expected = (x >> 1) << 1 | y >> 3
            elif kind in ("eq", "ult"):
                bit = bv.equal(a, b) if kind == "eq" else bv.below(a, b)
                made = bv.join(bit, bv.extract(c, 0, 3))
                expected = (x == y if kind == "eq" else x < y).astype(np.int64) << 3 | z & 7
            else:
                made = BINARY[kind](a, b)
                expected = {"add": x + y, "sub": x - y, "mul": x * y, "and": x & y, "or": x | y, "xor": x ^ y}[
                    kind
                ] & 15
            assert (bv.evaluate(made, values).astype(np.int64) == expected).all(), kind
            pool.append(made)
            plain[made.number] = expected.astype(np.uint64)


@pytest.mark.parametrize("width", [9, 40, 70])
def test_sorted_operands_of_a_sum_change_nothing(width: int) -> None:
    bv.forget()
    for lemma in floats.lemmas(width):
        assert Bitwuzla().solve([bv.invert(lemma)], SECONDS).answer == "none"


def test_a_product_as_a_variable_only_adds_solutions() -> None:
    bv.forget()
    x, y = bv.variable("x", 6), bv.variable("y", 6)
    square = bv.mul(x, x)
    odd_square = [bv.extract(square, 0, 1), bv.invert(bv.extract(x, 0, 1))]
    general, replaced = abstracted(odd_square)
    assert replaced
    assert Bitwuzla().solve(odd_square, SECONDS).answer == "none"
    assert Bitwuzla().solve(general, SECONDS).answer == "found"
    assert abstracted([bv.equal(x, y)])[1] is False


# -- obligations ------------------------------------------------------------------------------------------------------


def test_the_proofs_are_those_of_the_vocabulary_s_code() -> None:
    assert CONTENT["semantics"] == semantics.fingerprint(), "prove the rules again: python -m bitwise_bench.proofs"


def test_every_obligation_is_settled() -> None:
    stated = digests(TABLE)
    assert [each.title for each in TASKS if not is_settled(each, CONTENT, stated[each.section, each.name])] == []


def seconds_of(each: Task) -> float:
    """Return the recorded time of an obligation, as the mean over those of its statement and method."""
    groups = CONTENT[each.section][each.name]["refuted" if each.refuted else "proved"]
    group = next(group for group in groups if each.label in group["instances"])
    return float(group["seconds"] / len(group["instances"]))


def test_one_instance_of_each_statement_is_proved_again() -> None:
    """The instances of a day are chosen by the hash of the date."""
    chosen: dict[tuple[str, str, bool], Task] = {}
    for each in sorted(TASKS, key=lambda each: hashlib.sha256(f"{date.today()}{each.title}".encode()).digest()):
        if seconds_of(each) < SLOWEST:
            chosen.setdefault((each.section, each.name, each.refuted), each)
    assert len(chosen) > 100
    for each in chosen.values():
        assert settle(each, SECONDS).result == ("refuted" if each.refuted else "proved"), each.title


@pytest.mark.parametrize("name", ["add_minus_zero", "mul_neg", "fma_one", "maximum_selected", "widened_neg"])
def test_a_rule_of_each_kind_is_proved_again(name: str) -> None:
    for each in TASKS:
        if each.name == name and "fp64" not in each.label:
            assert settle(each, SECONDS).result == ("refuted" if each.refuted else "proved"), each.title


def test_bf16_proofs_agree_with_exhaustion() -> None:
    for name in ("add_minus_zero", "mul_two", "abs_neg", "extremum_neutral_number", "mul_one"):
        for instance in rule(name).instances:
            if instance.parameters["f"] in ("bf16", "fp16"):
                found = exhaust(of_rule(instance))
                assert found is not None
                assert found.result == "proved", instance.name


def test_a_false_rule_is_rejected_with_its_counterexample() -> None:
    wrong = Rule("wrong", "add.rn.{f}(x, +0)", "x", over(f="fp16"), "It is not.", keeps="number")
    made = Task("rules", "wrong", "f=fp16", lambda: of_rule(wrong.instances[0]))
    with pytest.raises(ProofError, match=r"wrong f=fp16 is false: .* differ for x = 0x8000"):
        settle(made, SECONDS)


FALSE = {
    "for a NaN": Rule("r", "max.fp32(x, -inf)", "x", over(), "It is not.", keeps="number"),
    "for a NaN that is not canonical": Rule("r", "neg.fp64(neg.fp64(x))", "x", over(), "It is not."),
    "for -0": Rule("r", "add.rz.fp64(x, +0)", "x", over(), "It is not.", keeps="number"),
    "for two zeros": Rule("r", "sub.rn.fp32(x, y)", "neg.fp32(sub.rn.fp32(y, x))", over(), "It is not."),
    "for zeros of two signs": Rule("r", "select(lt.bf16(y, x), x, y)", "max.bf16(x, y)", over(), "It is not.",
                                   {"x": ("not_nan",), "y": ("not_nan",)}),
    "for subnormal numbers": Rule("r", "add.rn.ftz.fp32(x, -0)", "x", over(), "It is not.", keeps="number"),
    "for an overflow": Rule("r", "add.rn.fp16(x, x)", "mul.rz.fp16(x, +2)", over(), "It is not."),
    "for an infinity": Rule("r", "sub.rn.fp32(x, x)", "+0", over(), "It is not.", {"x": ("not_nan",)}),
    "for zero": Rule("r", "div.rn.fp16(x, x)", "+1", over(), "It is not.", keeps="number", assumes="finite"),
    "for a negative number": Rule("r", "mul.rd.fp16(neg.fp16(x), y)", "neg.fp16(mul.rd.fp16(x, y))", over(),
                                  "It is not.", assumes="finite"),
    "for a rounding": Rule("r", "fma.rn.bf16(x, y, z)", "add.rn.bf16(mul.rn.bf16(x, y), z)", over(), "It is not."),
    "for one number": Rule("r", "select(eq.b32(x, 0x4b123457), 0x4b123458, x)", "x", over(), "It is not.",
                           formats={"x": "fp32"}),
    "for an amount of the width": Rule("r", "shl.b32(shl.b32(x, 0x10), y)", "shl.b32(x, add.b32(y, 0x10))", over(),
                                       "It is not."),
}  # fmt: skip


@pytest.mark.parametrize("where", FALSE)
def test_a_solver_refutes_a_rule_that_is_false(where: str) -> None:
    obligation = of_rule(FALSE[where].instances[0])
    found = discharge(obligation, [Bitwuzla()], SECONDS)
    assert found.result == "refuted"
    assert obligation.refutes(found.values)


def test_a_true_rule_that_is_declared_as_refuted_is_rejected() -> None:
    made = Task("rules", "wrong", "-", lambda: of_rule(rule("neg_neg").instances[0]), refuted=True)
    with pytest.raises(ProofError, match="no counterexample was found"):
        settle(made, SECONDS)


def test_a_counterexample_that_the_functions_do_not_confirm_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floats, "increment", lambda rounding, sign, odd, half, rest: bv.either(half, odd))
    with pytest.raises(RuntimeError, match="the expressions of the operations are wrong"):
        discharge(of_rule(next(each for each in rule("mul_one").instances if each.parameters["f"] == "fp16")),
                  [Bitwuzla()], SECONDS)  # fmt: skip


def test_a_sample_says_that_it_is_one() -> None:
    assert sample(of_rule(rule("mul_one").instances[0]), 1000).method == "sampled"
    assert exhaust(of_rule(rule("mul_one").instances[0])) is None


def test_a_value_with_a_witness_is_written_as_an_image() -> None:
    given = of_rule(rule("fma_of_exact_product").instances[0])
    found = with_witnesses(given)
    assert str(found.left) == "fma.rn.fp32(convert.fp32.fp16(x), convert.fp32.fp16(y), z)"
    assert found.conditions == ()
    assert found.formats["x"] == FORMATS["fp16"]


def test_a_lemma_rewrites_the_sides_of_its_rule_only() -> None:
    given = of_rule(rule("add_plus_zero_outward").instances[0])
    assert "guard" in str(with_lemmas("add_plus_zero_outward", given).left)
    assert with_lemmas("add_zero", given) == given


def test_a_rule_with_a_false_lemma_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Lemma("wrong", "add.{r}.{f}(x, +0)", "guard.{f}(x, x)", over(f="fp16", r="rn"))
    monkeypatch.setattr(prover, "HINTS", {"add_plus_zero_outward": (wrong,)})
    with pytest.raises(ProofError, match="the lemma wrong fp16 rn is not proved: refuted"):
        settle(task("add_plus_zero_outward", "f=fp16 r=rn"), SECONDS)


# -- mutants ----------------------------------------------------------------------------------------------------------


def test_every_condition_of_the_table_is_needed() -> None:
    stated = digests(TABLE)
    recorded = CONTENT["mutations"]
    missing = [name for (section, name), digest in stated.items() if section in ("rules", "inferences")
               and not is_measured(name) and recorded.get(name, {}).get("statement") != digest]  # fmt: skip
    assert missing == []
    found = list(itertools.chain.from_iterable(faults(name, each["changes"]) for name, each in recorded.items()))
    assert found == []


def is_measured(name: str) -> bool:
    return any(each.measured for each in TASKS if each.name == name)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("add_plus_zero", "f=fp16 r=rn"), ("maximum_selected", "f=bf16"), ("sum_not_minus_zero", "f=fp16 r=rz"),
        ("fma_zero_factor", "op=fma f=fp16 r=rn zero=+0"), ("extremum_neutral_number", "op=max neutral=-inf f=fp32"),
    ],
)  # fmt: skip
def test_an_instance_without_one_of_its_conditions_is_false(name: str, label: str) -> None:
    given = task(name, label)
    found = {each.change: refute(each) for each in mutants(given) if not is_perturbation(each.change)}
    assert {outcome.result for outcome in found.values()} == {"refuted"}, found


def test_a_redundant_condition_is_found() -> None:
    redundant = Rule("redundant", "neg.fp16(neg.fp16(x))", "x", over(), "It is.", {"x": ("finite",)}, keeps="number")
    made = Task("rules", "redundant", "-", lambda: of_rule(redundant.instances[0]))
    changes = examine([made], print)
    assert faults("redundant", changes)[0] == "redundant: true without finite x too"


def test_a_rule_whose_conditions_contradict_each_other_is_found() -> None:
    where = {"x": ("zero", "not_zero")}
    empty = Rule("empty", "neg.fp16(x)", "abs.fp16(x)", over(), "It is not.", where)
    made = Task("rules", "empty", "-", lambda: of_rule(empty.instances[0]))
    assert faults("empty", examine([made], print))[-1] == "empty: no changed number or operation has a counterexample"


# -- files ------------------------------------------------------------------------------------------------------------


def test_the_page_is_up_to_date() -> None:
    found = (ROOT / "docs" / "reference" / "canonical-rules.md").read_text()
    assert found == render(TABLE, CONTENT), "write it again: python -m bitwise_bench.proofs --page"


def test_an_unknown_name_and_an_unknown_table_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no_such_rule"]) == 1
    assert "there is no rule, inference or implication 'no_such_rule'" in capsys.readouterr().err
    assert main(["--table", "no_such_module"]) == 1
    assert "no_such_module" in capsys.readouterr().err


ARCHITECTURE_TABLE = """
from pathlib import Path
from bitwise_core.ir.rules.rule import Inference, Rule, over
from bitwise_core.numerics import declare

declare("rules_of_one", "twice", ("fp16",), says="a + a", function=lambda a: a)
PROOFS = Path(__file__).with_suffix(".json")
STATED_RULES = (
    Rule("one", "{op}.fp16(x, x)", "x", over(op=("max", "min")), "It is.", keeps="number",
         refuted=over(op=("max.ftz", "add.rn"))),
    Rule("two", "twice.fp16@rules_of_one(x)", "x", over(), "It is."),
    Rule("three", "ex2.approx.fp16(+0)", "+1", over(), "The instruction set states it.", evidence="measured"),
)
INFERENCES = (Inference("four", "max.fp16(x, y)", "not_nan", over(), "It is.", {"x": ("not_nan",)}),)
"""


def test_the_rules_of_an_architecture_are_proved_and_then_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules_of_an_architecture.py").write_text(ARCHITECTURE_TABLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    given = table("rules_of_an_architecture")
    with pytest.raises(RuleError, match="cannot be read"):
        checked(given.rules, given.inferences, given.path)
    assert main(["--table", "rules_of_an_architecture", "--mutations"]) == 0, capsys.readouterr().err
    assert checked(given.rules, given.inferences, given.path) == (given.rules, given.inferences)
    content = read(given.path)
    methods = {name: [group["method"] for group in content["rules"][name]["proved"]] for name in content["rules"]}
    assert methods == {"one": [Bitwuzla().name], "two": ["exhausted"], "three": ["measured"]}
    assert set(content["rules"]["one"]["counterexamples"]) == {"op=max.ftz", "op=add.rn"}
    assert "# The canonical rules" in render(given, content)


def test_a_file_of_proofs_is_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "proofs.json"
    prover.write(path, CONTENT)
    assert read(path) == CONTENT
    assert path.read_text() == TABLE.path.read_text()
    assert TABLE.module == CORE
