"""Comparison of kernels of several architectures, and the architecture-specific bits of NaNs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bitwise_core.checker.comparison import NAN_BITS_DIFFER, UNSPECIFIED_NAN_BITS, compare
from bitwise_core.checker.counterexamples import find_counterexample
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Counterexample, Outcome
from bitwise_core.cli import app
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.sets.ac_terms import AC_INDEX, is_float
from bitwise_core.execution.values.symbolic_vector import SymbolicVector
from bitwise_core.execution.values.term_hash import exact_hash, full_hash, nan_bits, with_architecture_nans
from bitwise_core.numerics import operation
from bitwise_core.plugins import registry
from bitwise_core.plugins.references import ArchReference
from bitwise_nvidia_sm90.architecture import SM90
from bitwise_toy.architecture import TOY1

TOY = """\
target toy1
kernel add(x: buffer, y: buffer, z: buffer) threads 8 {
  mov r0, lane
  index a0, x, r0
  load r1, [a0 + 0]
  index a0, y, r0
  load r2, [a0 + 0]
  fma.f r1, r1, r2, r2
  index a0, z, r0
  store [a0 + 0], r1
  end
}
"""
PTX = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 z)
.reqntid 8
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<8>;
  .reg .f32 %f<4>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.u64 %rd3, [z];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd4, %r1, 4;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  add.s64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  ld.global.f32 %f2, [%rd6];
  fma.rn.f32 %f3, %f1, %f2, %f2;
  st.global.f32 [%rd7], %f3;
  ret;
}
"""
ROUNDED = PTX.replace("fma.rn.f32 %f3, %f1, %f2, %f2;", "mul.rn.f32 %f3, %f1, %f2;\n  add.rn.f32 %f3, %f3, %f2;")
MAXIMUM = PTX.replace("fma.rn.f32 %f3, %f1, %f2, %f2;", "max.f32 %f3, %f1, %f1;")
COPIED_TOY = TOY.replace("fma.f r1, r1, r2, r2", "mov r1, r2")
COPIED_PTX = PTX.replace("fma.rn.f32 %f3, %f1, %f2, %f2;", "mov.b32 %f3, %f2;")


def launch(file: str, dtype: str = "fp32") -> Launch:
    arguments = [{"buffer": name, "dtype": dtype if name == "z" else "fp32"} for name in "xyz"]
    return Launch.model_validate({"file": file, "entry": "add", "grid": [1], "block": [8], "args": arguments})


def pair(toy: str, ptx: str, dtype: str = "fp32") -> tuple[Source, Source]:
    return Source("a.toy", toy, launch("a.toy", dtype)), Source("b.ptx", ptx, launch("b.ptx", dtype))


def test_the_same_operations_are_equal() -> None:
    found = compare(*pair(TOY, PTX), (TOY1, SM90), Options(audit_contraction=False))
    assert found.verdict.outcome is Outcome.EQUAL


def test_a_separately_rounded_product_is_the_divergence() -> None:
    sources = pair(TOY, ROUNDED)
    found = compare(*sources, (TOY1, SM90), Options(audit_contraction=False))
    assert found.verdict.outcome is Outcome.UNPROVED
    seen = found.verdict.divergence
    assert seen is not None
    assert seen.left is not None
    assert seen.right is not None
    assert (seen.left.operation, seen.right.operation) == ("fma.rn.fp32", "add.rn.fp32")
    shown = find_counterexample(*sources, (TOY1, SM90), Options(audit_contraction=False), found, 30.0)
    assert isinstance(shown, Counterexample)


def test_nan_bits_that_no_document_specifies_are_named() -> None:
    left, right = (
        Source(name, text, launch(name, "i32"))
        for name, text in (
            ("a.ptx", MAXIMUM),
            ("b.ptx", MAXIMUM.replace("mov.u32 %r1", "mov.u32 %r2, 0;\n  mov.u32 %r1")),
        )
    )
    found = compare(left, right, SM90, Options(audit_contraction=False))
    assert found.verdict.outcome is Outcome.UNPROVED
    assert found.verdict.divergence is not None
    assert found.verdict.divergence.why_not == UNSPECIFIED_NAN_BITS


def test_nan_bits_differ_between_architectures() -> None:
    found = compare(*pair(TOY, PTX, "i32"), (TOY1, SM90), Options(audit_contraction=False))
    assert found.verdict.outcome is Outcome.UNPROVED
    assert found.verdict.divergence is not None
    assert found.verdict.divergence.why_not == NAN_BITS_DIFFER
    copies = compare(*pair(COPIED_TOY, COPIED_PTX, "i32"), (TOY1, SM90), Options(audit_contraction=False))
    assert copies.verdict.outcome is Outcome.EQUAL


def test_kernels_of_several_architectures_need_a_launch() -> None:
    found = compare(*pair(TOY, PTX), (TOY1, SM90), Options(audit_contraction=False, every_launch=True))
    assert found.verdict.outcome is Outcome.UNKNOWN
    assert "are compared for given launches only, not for every launch" in found.verdict.reason


def arches_of(loaded: registry.Registry, *arches: Arch) -> registry.Arches:
    """Return these architectures, as those of the first plugin."""
    return registry.Arches(((loaded.plugins[0], ArchReference.of(each)) for each in arches), [])


def both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make toy1 and sm_90 the installed architectures."""
    loaded = registry.load(["sm90"])
    monkeypatch.setattr(registry, "default", lambda: replace(loaded, arches=arches_of(loaded, SM90, TOY1)))


def test_a_folder_may_mix_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both(monkeypatch)
    texts = {"a.toy": TOY, "b.ptx": PTX, "c.ptx": ROUNDED, "d.toy": COPIED_TOY, "e.ptx": COPIED_PTX}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    launches = [launch(name).model_dump(mode="json", exclude={"args"}) for name in texts]
    for each, name in zip(launches, texts, strict=True):
        each["args"] = [argument.short() for argument in launch(name).args]
    (tmp_path / "manifest.json").write_text(json.dumps({"kernels": launches}))
    done = CliRunner().invoke(app, ["partition", str(tmp_path), "--json", "--workers", "1", "--no-contraction-audit"])
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["classes"] == [["a.toy", "b.ptx"], ["c.ptx"], ["d.toy", "e.ptx"]]
    assert found["target"] == "toy1, sm_90"
    names = [str(tmp_path / name) for name in ("a.toy", "b.ptx")]
    done = CliRunner().invoke(app, ["diff", *names, "--no-contraction-audit"])
    assert done.exit_code == 0
    assert done.stdout.startswith("Equal for this launch")


def test_a_file_of_an_architecture_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what the installed plugins read, and what to install."""
    loaded = registry.load(["sm90"])
    monkeypatch.setattr(registry, "default", lambda: replace(loaded, arches=arches_of(loaded, SM90)))
    (tmp_path / "a.ptx").write_text(PTX)
    (tmp_path / "b.toy").write_text(TOY)
    launches = [{**launch(n).model_dump(mode="json", exclude={"args"}), "args": []} for n in ("a.ptx", "b.toy")]
    (tmp_path / "manifest.json").write_text(json.dumps({"kernels": launches}))
    for command in (["partition", str(tmp_path)], ["diff", str(tmp_path / "a.ptx"), str(tmp_path / "b.toy")]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2
        assert done.stderr.startswith("bitwise: b.toy:1: PTX starts with .version")
        assert "the installed plugins parse .ptx: install the plugin for .toy files" in done.stderr
        assert done.stderr.count("\n") == 1
    # A text that some plugin reads may have any ending.
    (tmp_path / "c.txt").write_text(PTX)
    assert (
        CliRunner().invoke(app, ["tree", str(tmp_path / "c.txt"), "--element", "z[0]"]).stderr.count("installed") == 0
    )


def test_integers_made_of_numbers_are_the_same_everywhere() -> None:
    """What a conversion or a choice between known integers gives has the bits of no NaN."""
    number = SymbolicVector(32, np.ones((2, 1, 3), dtype=np.uint64), L.TERM)
    domain = TermDomain()
    converted = as_symbolic_vector(domain.floating(operation("convert.rzi.s32.fp32"), [number]))
    predicate = as_symbolic_vector(domain.integer(operation("lt.fp32"), [number, number]))
    chosen = as_symbolic_vector(domain.select(predicate, np.ones((1, 1), np.uint32), np.zeros((1, 1), np.uint32)))
    mixed = as_symbolic_vector(domain.select(predicate, number, np.zeros((1, 1), np.uint32)))
    rounded = as_symbolic_vector(domain.floating(operation("convert.rn.fp16.fp32"), [number]))
    found = [bool(np.any(nan_bits(each))) for each in (converted, chosen, mixed, rounded)]
    assert found == [False, False, True, True]


def test_what_reads_the_bits_of_a_nan_is_marked() -> None:
    """The mark goes on to all that is made of the value, and neither changes nor is part of its hash."""
    domain, number = TermDomain(), SymbolicVector(32, np.ones((2, 1, 3), dtype=np.uint64), L.TERM)
    known = np.full((1, 1), 255, np.uint32)
    converted = as_symbolic_vector(domain.floating(operation("convert.rzi.s32.fp32"), [number]))
    masked = as_symbolic_vector(domain.integer(operation("and.b32"), [number, known]))
    summed = as_symbolic_vector(domain.floating(operation("add.rn.fp32"), [masked, number]))
    chosen = as_symbolic_vector(
        domain.select(as_symbolic_vector(domain.integer(operation("lt.u32"), [masked, known])), known, known + 1)
    )
    of_integer = as_symbolic_vector(domain.integer(operation("and.b32"), [converted, known]))
    found = [
        bool(np.any(np.bitwise_and(each.flags, L.NAN_BITS))) for each in (converted, masked, summed, chosen, of_integer)
    ]
    assert found == [False, True, True, True, False]
    assert np.array_equal(full_hash(masked), full_hash(L.without_flags(masked, L.NAN_BITS)))


def test_the_sets_of_floating_point_come_first() -> None:
    assert {index for name, index in AC_INDEX.items() if is_float(name)} == set(range(1, L.FLOAT_AC_TERMS + 1))
    assert max(AC_INDEX.values()) < L.ARGMINMAX


@pytest.mark.parametrize(
    ("meta", "shared"),
    [
        (L.CONST, True),
        (L.LOAD, True),
        (L.LOAD | L.NOT_NEGATIVE, True),
        (L.TERM | L.INTEGER, True),
        (L.AC_TERMS | AC_INDEX["add.b32"] << L.OPERATION_SHIFT, True),
        (L.TERM, False),
        (L.LOAD | L.NEGATED, False),
        (L.LOAD | L.CANONICAL_NAN, False),
        (L.LOAD | L.WIDENED, False),
        (L.LOAD | L.PLUS_ZERO, False),
        (L.TERM | L.INTEGER | L.NEGATED, False),
        (L.AC_TERMS | AC_INDEX["max.fp32"] << L.OPERATION_SHIFT, False),
        (L.AC_TERMS | L.GUARDED << L.OPERATION_SHIFT, False),
    ],
)
def test_which_bits_are_the_same_everywhere(meta: int, shared: bool) -> None:
    words = np.arange(6, dtype=np.uint64).reshape(2, 1, 3)
    for kept in (meta, np.full((1, 3), meta, dtype=np.uint32)):
        found = nan_bits(SymbolicVector(32, words, kept))
        assert np.array_equal(
            np.broadcast_to(np.bitwise_and(found, L.NAN_BITS), (1, 3)), np.full((1, 3), 0 if shared else L.NAN_BITS)
        )
    assert np.array_equal(
        exact_hash(SymbolicVector(32, words, meta | L.NAN_BITS)), exact_hash(SymbolicVector(32, words, meta))
    )


def test_the_mark_becomes_the_architectures_own_bits() -> None:
    words = np.arange(6, dtype=np.uint64).reshape(2, 3)
    chosen = np.array([True, False, True])
    one, other = (with_architecture_nans(words, chosen, name) for name in ("one", "other"))
    assert np.array_equal(one[:, 1], words[:, 1])
    assert not (one == other)[:, chosen].all(axis=0).any()
