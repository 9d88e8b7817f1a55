"""The rules over operations of gfx942: their definitions, and their execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bitwise_amd_gfx942 import rules
from bitwise_amd_gfx942.functions import functions_of
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.ir.rules.patterns import evaluate, parse
from bitwise_core.ir.rules.proofs import checked
from bitwise_core.ir.rules.rule import RuleError
from bitwise_core.ir.rules.table import all_rules
from bitwise_core.numerics import FloatFormat, Operation, operation, storage
from gfx942_kernels import reading, run

FUNCTIONS = {**functions_of("gfx942"), **functions_of("gfx950")}


def patterns(meaning: Operation, count: int) -> dict[str, Array]:
    """Random and special patterns of the operands, by the names that definitions use."""
    random = np.random.default_rng(5)
    found = {}
    for name, form in zip("abc", meaning.operands, strict=False):
        words = random.integers(0, 1 << 64, count, dtype=np.uint64) >> np.uint64(64 - form.bits)
        if isinstance(form, FloatFormat):
            assert form.infinity is not None
            special = [0, 1, form.one, form.infinity - 1, form.infinity, form.infinity + 1]
            quiet = form.infinity | 1 << form.mantissa_bits - 1
            signed = [each | sign for each in (*special, quiet, quiet + 1) for sign in (0, 1 << form.bits - 1)]
        else:
            signed = [0, 1, (1 << form.bits) - 1, 1 << form.bits - 1]
        chosen = random.choice(np.array(signed, dtype=np.uint64), count)
        found[name] = np.where(random.random(count) < 0.6, chosen, words).astype(storage(form.bits))
    return found


@pytest.mark.parametrize("name", rules.DEFINITIONS)
def test_a_definition_has_the_bits_of_the_function(name: str) -> None:
    """The part that a definition leaves open is evaluated by the function, the rest must agree with it."""
    meaning = operation(name)
    given = patterns(meaning, 50_000)
    opened = 0

    def left_open(inner: Operation, operands: Sequence[Array]) -> Array:
        nonlocal opened
        opened += 1
        assert inner is meaning
        return FUNCTIONS[name](*operands)

    form = meaning.result
    formats = dict(zip("abc", meaning.operands, strict=False))
    found = evaluate(parse(rules.DEFINITIONS[name], form, formats), given, left_open)
    assert opened == 1
    assert (found == FUNCTIONS[name](*given.values())).all()


@pytest.mark.parametrize("name", rules.DEFINITIONS)
def test_a_definition_does_not_leave_everything_open(name: str) -> None:
    """Where the remainder is replaced by other bits, all results of the defined part stay as they are."""
    meaning = operation(name)
    given = patterns(meaning, 50_000)
    formats = dict(zip("abc", meaning.operands, strict=False))
    term = parse(rules.DEFINITIONS[name], meaning.result, formats)

    def replaced_by(bits: int) -> Array:
        def left_open(_: Operation, operands: Sequence[Array]) -> Array:
            return np.full_like(operands[0], bits)

        return evaluate(term, given, left_open)

    found = replaced_by(12345), replaced_by(54321)
    same = found[0] == found[1]
    assert (found[0][same] == FUNCTIONS[name](*given.values())[same]).all()
    assert same.mean() > 0.1


def test_the_rules_are_in_the_table_and_proved() -> None:
    names = {rule.name for rule in all_rules()}
    assert {rule.name for rule in rules.STATED_RULES} <= names
    assert checked(rules.STATED_RULES, (), rules.PROOFS)[0] == rules.STATED_RULES
    assert [rule.name for rule in rules.STATED_RULES if rule.evidence == "measured"] == ["square_root_by_iteration"]


def test_a_changed_rule_is_refused() -> None:
    changed = replace(rules.MEDIANS[1], where={"x": ("quiet",), "l": ("not_nan",), "h": ("not_nan",)})
    with pytest.raises(RuleError, match="median_between_nonzero_bounds was changed after it was proved"):
        checked([changed], (), rules.PROOFS)


LONG = """v_cmp_{relation}_{kind} vcc, v[2:3], v[6:7]
v_cndmask_b32_e32 v8, {low}, vcc
v_cndmask_b32_e32 v9, {high}, vcc
v_mov_b32_e32 v5, v{half}"""


def long_extremum(relation: str, kind: str, half: int, *, swapped: bool = False) -> str:
    """A select of both halves of (v3:v2) and (v4:v4)."""
    low, high = ("v2, v6", "v3, v7") if swapped else ("v6, v2", "v7, v3")
    before = "v_mov_b32_e32 v6, v4\nv_mov_b32_e32 v7, v4\n"
    return before + LONG.format(relation=relation, kind=kind, low=low, high=high, half=half)


@pytest.mark.parametrize("half", [8, 9])
@pytest.mark.parametrize("kind", ["i64", "u64"])
def test_halves_of_long_extrema_have_one_form(kind: str, half: int) -> None:
    forms = [
        reading(long_extremum(relation, kind, half, swapped=swapped)).signature
        for relation, swapped in (("lt", False), ("le", False), ("gt", True), ("ge", True))
    ]
    assert len(set(forms)) == 1
    others = [
        reading(long_extremum(relation, other, half, swapped=swapped)).signature
        for relation, other, swapped in (("lt", kind, True), ("gt", kind, False), ("eq", kind, False))
    ]
    others.append(reading(long_extremum("lt", "u64" if kind == "i64" else "i64", half)).signature)
    assert None not in others
    assert forms[0] not in others
    random = np.random.default_rng(9)
    a, b, c = (random.integers(0, 3, 64).astype(np.uint32) * np.uint32(0x7FFFFFFF) for _ in range(3))
    wide = {"i64": np.int64, "u64": np.uint64}[kind]
    left = (b.astype(np.uint64) << np.uint64(32) | a).view(wide)
    right = (c.astype(np.uint64) << np.uint64(32) | c).view(wide)
    expected = (np.minimum(left, right).view(np.uint64) >> np.uint64(32 * (half - 8))).astype(np.uint32)
    assert (run(long_extremum("lt", kind, half), a, b, c)[:64] == expected).all()


def test_exponentials_of_special_values() -> None:
    """The rules of approximations are about v_exp as well."""
    for number, expected in ((0xFF800000, 0), (0, 0x3F800000), (0x80000000, 0x3F800000)):
        body = f"v_mov_b32_e32 v6, {number:#x}\nv_exp_f32_e32 v5, v6"
        assert reading(body).signature == reading(f"v_mov_b32_e32 v5, {expected:#x}").signature is not None
    assert reading("v_exp_f32_e32 v5, v2").signature != reading("v_log_f32_e32 v5, v2").signature


def test_an_extremum_of_a_value_with_itself_can_be_moved_between_lanes() -> None:
    moved = "v_mov_b32_dpp v5, {} quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"
    quieted = reading("v_max_f32_e32 v6, v2, v2\n" + moved.format("v6"))
    assert quieted.unknown is None
    assert quieted.signature is not None
