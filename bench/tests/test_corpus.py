"""The corpus is consistent, and compiles without a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from bitwise_bench.corpus.cases import Array, Case, CaseError, Descriptor, Scalar


def test_importing_the_package_imports_no_compiler() -> None:
    modules = "bitwise_bench.gpu.recorder, bitwise_bench.corpus.catalogue, bitwise_bench.gpu.launching"
    found = subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; print('triton' in sys.modules, 'torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["False", "False"]


def test_the_corpus_is_large_and_its_ids_are_file_names() -> None:
    pytest.importorskip("triton")
    from bitwise_bench.corpus import catalogue

    cases = catalogue.cases()
    assert len(cases) >= 1700
    assert len(catalogue.families()) >= 100
    assert len(catalogue.by_id()) == len(cases)
    assert all(re.fullmatch(r"[\w=,.\-]+", part) for case in cases for part in case.id.split("/"))
    assert max(len(case.name) for case in cases) < 200
    for case in cases:
        known = {parameter.name for parameter in case.function.params}
        assert {argument.name for argument in case.arguments} | set(case.constants) == known, case.id


@pytest.mark.parametrize("family", ["row_sum", "gemm_warp_specialised", "attention_decode", "atomic_count"])
def test_a_case_compiles_from_its_declared_launch(family: str) -> None:
    pytest.importorskip("triton")
    from bitwise_bench.compilation.capture import compile_case
    from bitwise_bench.corpus import catalogue

    case = next(case for case in catalogue.cases() if case.family == family)
    captured = compile_case(case)
    assert captured.grid == case.grid
    assert f".entry {case.function.__name__}" in captured.assembly


def test_unsupported_configurations_are_listed_by_target() -> None:
    pytest.importorskip("triton")
    from bitwise_bench.compilation.capture import compile_case
    from bitwise_bench.corpus import catalogue
    from bitwise_bench.corpus.targets import has_matrix_product, target_options

    options, plain, here = target_options("gfx942"), catalogue.by_id(), catalogue.by_id("gfx942")
    assert target_options("sm_90") == target_options("sm_100")
    assert len(catalogue.cases("gfx942")) >= 2200
    assert {case.target for case in here.values()} == {"gfx942"}
    # Every configuration of the default target is present or listed as unsupported.
    missing = [case for case in plain.values() if case.id not in here]
    assert missing
    assert not any(options.supports(case) for case in missing)
    named = {case.family for case in plain.values()} | {case.id for case in plain.values()}
    added = [case for case in here.values() if case.id not in plain]
    assert {name for name in options.unsupported if name not in named} == {
        name for name in options.unsupported if name.endswith("matrix_instr_nonkdim=32")
    }
    assert {tuple(sorted(case.options.items())) for case in added if not has_matrix_product(case)} >= {
        (("waves_per_eu", 4),)
    }
    product = next(
        case for case in added if has_matrix_product(case) and case.options.get("matrix_instr_nonkdim") == 16
    )
    captured = compile_case(product)
    assert captured.extension == "amdgcn"
    assert captured.target == "gfx942"


def test_an_unknown_target_is_an_error() -> None:
    pytest.importorskip("triton")
    from bitwise_bench.corpus import catalogue
    from bitwise_core.plugins.registry import UnknownArchError

    with pytest.raises(UnknownArchError, match="no plugin models the architecture 'gfx1100'"):
        catalogue.cases("gfx1100")


def test_inconsistent_configurations_are_errors() -> None:
    output = Array("c", "fp32", 4, "output")
    with pytest.raises(CaseError, match="case f/g/n: no buffer has the role output or inout"):
        Case("f", "g", "n", None, {}, {}, (1, 1, 1), (Array("a", "fp16", 4),))
    with pytest.raises(CaseError, match="case f/g/n: two arguments share a name"):
        Case("f", "g", "n", None, {"c": 1}, {}, (1, 1, 1), (output,))
    with pytest.raises(CaseError, match="buffer a: unknown element type f16"):
        Array("a", "f16", 4)
    with pytest.raises(CaseError, match="buffer a: it needs at least one element"):
        Array("a", "fp16", 0)
    with pytest.raises(CaseError, match="buffer a: an index buffer needs `below`"):
        Array("a", "i32", 4, kind="index")
    with pytest.raises(CaseError, match="tensor map m: shape, strides and block"):
        Descriptor("m", output, (4,), (1, 1), (4,))
    case = Case("f", "g", "n", None, {}, {}, (1, 1, 1), (Scalar("n", 3), Descriptor("m", output, (4,), (1,), (4,))))
    assert case.outputs == (output,)


def test_only_a_sample_of_the_reductions_is_rounded_to_16_bits() -> None:
    pytest.importorskip("triton")
    from bitwise_bench.corpus import catalogue

    reductions = re.compile(r"softmax|layer_norm|rms_norm|cross_entropy|gemm_(bias|gated)|attention|inductor|narrow")
    narrow = {
        (case.family, case.group)
        for case in catalogue.cases()
        if reductions.search(case.family) and any(array.dtype in ("fp16", "bf16") for array in case.outputs)
    }
    assert narrow == {
        ("narrow_outputs", "attention-bf16-32x200--inf"),
        ("narrow_outputs", "gemm_bias_relu-fp16-128x128x200"),
        ("narrow_outputs", "rms_norm-bf16-20x1024"),
        ("narrow_outputs", "silu-activation-bf16-4096"),
        ("narrow_outputs", "softmax_row-fp16-16x700"),
    }


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89", "sm_120", "gfx950"])
def test_a_sample_of_the_corpus_of_a_sibling_has_every_family(target: str) -> None:
    pytest.importorskip("triton")
    from bitwise_bench.corpus import catalogue
    from bitwise_bench.corpus.targets import sampled, target_options

    listed, unsupported = catalogue.cases(target), target_options(target).unsupported
    chosen = sampled(listed, 4)
    assert list(sampled(listed, 0)) == list(listed)
    more = sampled(listed, 4, [listed[0].family])
    assert list(more) == [*(each for each in listed if each.family == listed[0].family), *chosen[4:]]
    without = {each for each in unsupported if "/" not in each}
    assert {case.family for case in chosen} == set(catalogue.families()) - without
    assert max(Counter(case.family for case in chosen).values()) == 4
    assert not {case.id for case in listed} & unsupported.keys()
    assert 350 < len(chosen) < 1500 < len(listed)
    if target == "gfx950":
        assert not [case.id for case in listed if "tf32" in case.constants.values()]
