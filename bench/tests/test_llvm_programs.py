"""Random programs of LLVM: the plugin of gfx942 executes what LLVM compiles as NumPy computes it."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import numpy as np
import pytest

from bitwise_bench.llvm_programs import comparison, mutants
from bitwise_bench.llvm_programs.__main__ import main
from bitwise_bench.llvm_programs.operations import all_operations, dpp_sources
from bitwise_bench.llvm_programs.programs import random_program
from bitwise_bench.llvm_programs.values import FLOATS, bits_of, drawn, fused, numbers, patterns_of, rounded, same
from bitwise_core.checker.verdicts import Outcome, Verdict
from bitwise_core.errors import BitwiseError

PROGRAMS = range(100, 112)


@pytest.mark.parametrize("seed", PROGRAMS)
def test_a_compiled_program_computes_what_numpy_computes(seed: int) -> None:
    pytest.importorskip("triton")
    assert comparison.compared(seed) == []


def test_a_text_with_another_instruction_differs() -> None:
    pytest.importorskip("triton")
    changed = 0
    for seed in PROGRAMS:
        program = random_program(seed)
        text = comparison.compiled(program)
        other = re.sub(r"\bv_(add|mul)_f32(?=_e)", "v_sub_f32", text)
        other = re.sub(r"\bv_(xor|or)_b32(?=_e)", "v_and_b32", other)
        if other != text:
            changed += 1
            try:
                found = comparison.differences(program, other)
            except BitwiseError:
                continue
            if found:
                assert re.match(r"out\d\[\d+(, \d)?\] of type [\w <>]+ is 0x[0-9a-f]+, not 0x[0-9a-f]+", found[0])
                return
    assert not changed


def test_programs_have_branches_loops_and_exchanges() -> None:
    texts = [random_program(seed).text for seed in range(30)]
    parts = "br i1", "phi", "addrspace(3)", "update.dpp", "ds.bpermute", "ballot", "shufflevector", "llvm.fma.v2f16"
    for part in parts:
        assert any(part in each for each in texts), part
    assert random_program(3).text == texts[3]


@pytest.mark.parametrize("kind", FLOATS)
def test_numbers_are_rounded_as_numpy_rounds_them(kind: str) -> None:
    values = numbers(drawn("double", np.random.default_rng(1)), "double")
    for each in values[np.isfinite(values)].tolist():
        with np.errstate(over="ignore"):
            expected = int(patterns_of(np.array(each), kind))
        assert rounded(Fraction(each), kind) | int(np.signbit(each)) << bits_of(kind) - 1 == expected


def test_a_fused_product_is_rounded_once() -> None:
    one = patterns_of(np.array([1 + 2.0**-12, -0.0, 0.0, np.inf, 1.0]), "float")
    addend = patterns_of(np.array([-1 - 2.0**-11, -0.0, -0.0, -np.inf, np.nan]), "float")
    with np.errstate(invalid="ignore"):
        found = fused(one, np.abs(numbers(one, "float")).view(np.uint32), addend, "float")
    expected = patterns_of(np.array([2.0**-24, -0.0, 0.0, np.nan, np.nan]), "float")
    assert same(found, expected, "float").all()


def test_rows_are_shifted_and_rotated_in_the_directions_of_the_manual() -> None:
    """Source: AMD Instinct MI300 ISA, table of DPP controls: row_shr:1 reads the lane before."""
    for control, lane, source in ((0x111, 5, 4), (0x101, 5, 6), (0x121, 16, 31), (0x138, 5, 4), (0x143, 40, 31)):
        assert dpp_sources(control)[0][lane] == source


def test_every_operation_names_as_many_operands_as_it_has() -> None:
    for each in all_operations():
        assert {int(place) for place in re.findall(r"\{(\d)\}", each.text)} == set(range(len(each.operands)))
        assert ("{n}" in each.text) == bool(each.choices)


def test_the_command_counts_programs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    assert main(["--seconds", "0.01", "--seed", "100"]) == 0
    assert capsys.readouterr().out.strip().endswith("{'equal': 1}")
    with pytest.raises(SystemExit):
        main(["--seconds", "0"])
    assert "--seconds must be positive, and --mutants not negative" in capsys.readouterr().err


def test_mutants_change_one_instruction_and_none_is_wrongly_equal() -> None:
    pytest.importorskip("triton")
    text = comparison.compiled(random_program(7, mutants.OPERATIONS))
    dice = random.Random(1)
    made = [each for each in (mutants.mutated(text, dice) for _ in range(100)) if each is not None]
    assert len({each.change for each in made}) > 20
    for each in made:
        pairs = zip(text.splitlines(), each.text.splitlines(), strict=True)
        assert sum(left != right for left, right in pairs) == 1
    found = mutants.judged(7, 10)
    assert found.counts["mutants"] > 0
    assert found.wrong == []


def test_a_wrong_equal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mutant is taken for Equal: those that change an element are named."""
    pytest.importorskip("triton")
    equal = Verdict(Outcome.EQUAL, "", "launch")
    monkeypatch.setattr(mutants, "verdict", lambda *_: equal)
    found = mutants.judged(7, 12)
    assert found.counts["Equal"] >= found.counts["executed"] >= len(found.wrong) > 0
    assert found.wrong[0].startswith("program 7: ")
