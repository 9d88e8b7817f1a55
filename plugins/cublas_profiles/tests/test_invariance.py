"""Certificates of batch invariance against descriptors at every M, and against evaluated rows."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_core.probing.reconstruction.equivalence import same_computation
from bitwise_cublas_profiles import driver
from bitwise_cublas_profiles.commands import app
from bitwise_cublas_profiles.describe import biased_product_of, depends_on_rows, descriptor_of
from bitwise_cublas_profiles.invariance import answers as recorded
from bitwise_cublas_profiles.invariance.answers import Answers, Key, Run
from bitwise_cublas_profiles.invariance.certificate import BitsClass, Certificate, Certifier, Verdict, overall
from bitwise_cublas_profiles.invariance.confirmation import MAXIMUM_SAMPLES, compared, sampled_rows
from bitwise_cublas_profiles.invariance.model_products import quantised
from bitwise_cublas_profiles.invariance.products import Operator, Product
from bitwise_cublas_profiles.invariance.settings import Settings
from bitwise_cublas_profiles.invariance.witnesses import Described, drawn_operands, find_witness, row_bits
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.query import Answer, Configuration, CublasError, GemmQuery

KNOWN = profile("13.1.0", "9.0")
ORIGIN = {"library": "13.1.0", "capability": "9.0", "device": "NVIDIA H100 80GB HBM3"}


def answer(algorithm: int, stages: int, split: int = 1, reduction: int = 0, custom: int = 0, tile: int = 0) -> Answer:
    return Answer(Configuration(algorithm, tile, stages, split, reduction, 0, custom, 0, 0), 4096)


WHOLE, OTHER_TILE, HALVES, THIRDS = (
    answer(66, 35), answer(66, 35, tile=20), answer(66, 35, 2, 2), answer(66, 35, 3, 2),
)  # fmt: skip
UNKNOWN = answer(99, 35)
STEPS, SLICED_STEPS, LANES, TABLE = answer(24, 20), answer(24, 20, 4, 2), answer(13, 0, custom=92), answer(13, 0, 10)
KINDS = (WHOLE, OTHER_TILE, HALVES, THIRDS, UNKNOWN, STEPS, SLICED_STEPS, LANES, answer(11, 0, custom=1), None)


def certificate(
    *runs: tuple[int, Answer | None], n: int = 64, k: int = 640, operator: Operator = "linear", last: int = 64
) -> Certificate:
    product = Product(n, k, operator=operator)
    firsts = [first for first, _ in runs]
    ends = [*(first - 1 for first in firsts[1:]), last]
    made = tuple(Run(first, end, each) for (first, each), end in zip(runs, ends, strict=True))
    return Certifier(KNOWN).certificate(product, product.query(1, Settings().pytorch), made)


def described(query: GemmQuery, found: Answer | None) -> Described | None:
    if found is None:
        return None
    try:
        if query.epilogue == "bias":
            return biased_product_of(query, found.configuration, KNOWN)
        return descriptor_of(query, found.configuration, KNOWN, workspace=found.workspace)
    except CublasError:
        return None


@cache
def same(one: Described, other: Described) -> bool:
    if isinstance(one, BiasedGEMM) and isinstance(other, BiasedGEMM):
        return one.rounded_first == other.rounded_first and same(one.product, other.product)
    assert isinstance(one, GEMMDesc)
    assert isinstance(other, GEMMDesc)
    return same_computation(one, other, registry.default().matrix_units)


@pytest.mark.parametrize("seed", range(12))
def test_two_numbers_of_rows_are_one_class_exactly_if_their_descriptors_make_the_same_sums(seed: int) -> None:
    source = random.Random(seed)
    operator: Operator = source.choice(("linear", "addmm", "mm"))
    firsts = sorted({1, *(source.randint(2, 40) for _ in range(6))})
    runs = [(first, source.choice(KINDS)) for first in firsts]
    product = Product(source.choice((1, 24, 64)) if operator != "addmm" else 64, 640, operator=operator)
    query = product.query(1, Settings().pytorch)
    ends = [*(first - 1 for first in firsts[1:]), 40]
    found = Certifier(KNOWN).certificate(
        product, query, [Run(first, end, each) for (first, each), end in zip(runs, ends, strict=True)]
    )
    by_rows = {m: next(each for first, each in reversed(runs) if first <= m) for m in range(1, 41)}
    descriptors = {m: described(replace(query, m=m), each) for m, each in by_rows.items()}
    for m, one in descriptors.items():
        assert (found.bits_at(m) is None) == (one is None)
        for other_m, other in descriptors.items():
            if one is not None and other is not None:
                assert (found.bits_at(m) == found.bits_at(other_m)) == same(one, other)
    assert [each.last + 1 for each in found.intervals[:-1]] == [each.first for each in found.intervals[1:]]
    assert all(one.bits != other.bits or one.bits is None
               for one, other in zip(found.intervals, found.intervals[1:], strict=False))  # fmt: skip


def test_kernels_of_tiles_depend_on_the_rows_only_by_whether_there_is_one() -> None:
    source = random.Random(7)
    algorithms = {row["algorithm"]: row["family"] for row in KNOWN.tables["algorithms"]}
    stages = [int(row["stages"]) for row in KNOWN.tables["stages"]] + [26, 28, 31, 0]
    compared_ones = 0
    for _ in range(4000):
        configuration = Configuration(
            source.choice(list(algorithms)), 0, source.choice(stages), source.choice((1, 2, 5)),
            source.choice((0, 1, 2, 4)), 0, source.choice((0, 1, 2)), 0, 0,
        )  # fmt: skip
        assert depends_on_rows(configuration, KNOWN) == (
            algorithms[configuration.algorithm] not in ("single", "per_mma", "fma")
        )
        if depends_on_rows(configuration, KNOWN):
            continue
        operator: Operator = source.choice(("linear", "addmm", "mm"))
        dtype = source.choice(("bf16", "fp16", "fp32", "tf32"))
        query = Product(source.choice((1, 8, 640)) if operator != "addmm" else 24, 1312, dtype, operator).query(
            2, Settings().pytorch
        )
        found = {
            repr(described(replace(query, m=m), Answer(configuration, 0)))
            for m in (2, 3, source.randint(4, 65536), 65536)
        }
        assert len(found) == 1
        compared_ones += found != {"None"}
    assert compared_ones > 100
    assert depends_on_rows(Configuration(99, 0, 0, 1, 0, 0, 0, 0, 0), KNOWN)


def test_a_table_over_the_number_of_outputs_is_read_at_every_number_of_rows() -> None:
    (row,) = [each for each in KNOWN.tables["lanes"] if each["custom"] == 10 and "dtype" not in each]
    bound, lanes = row["lanes_above"][0]
    assert lanes != row["lanes"]
    product = Product(1, 640)
    custom = Answer(Configuration(13, 0, 0, 1, 0, 0, 10, 0, 0), 0)
    query = product.query(1, Settings().pytorch)
    found = Certifier(KNOWN).certificate(product, query, [Run(1, bound + 8, custom)])
    assert found.bits_at(bound) != found.bits_at(bound + 1)


@pytest.mark.parametrize(
    "kind", [WHOLE, HALVES, STEPS, SLICED_STEPS, LANES, answer(11, 0, custom=1), answer(14, 0, 8, 2)]
)
def test_a_row_of_a_descriptor_depends_on_no_other_row_and_not_on_its_position(kind: Answer) -> None:
    vector = kind.configuration.algorithm in (13, 14)
    query = Product(1 if vector else 24, 640, operator="mm").query(6, Settings().pytorch)
    query = replace(query, n=1, m=1) if kind.configuration.algorithm == 14 else query
    desc = descriptor_of(query, kind.configuration, KNOWN, workspace=0)
    assert BitsClass(0, desc).any_row
    source = np.random.default_rng(3)
    a, b = (source.integers(0x3C00, 0x4100, shape).astype(np.uint16) for shape in ((6, 640), (640, 5)))
    a ^= source.integers(0, 2, a.shape).astype(np.uint16) << 15
    whole = evaluate(desc, a, b)
    order = np.array([3, 5, 0, 1, 4, 2])
    assert np.array_equal(evaluate(desc, a[order], b), whole[order])
    assert np.array_equal(evaluate(desc, a[2:3], b), whole[2:3])
    changed = a.copy()
    changed[[0, 1, 3, 4, 5]] ^= 0x55
    assert np.array_equal(evaluate(desc, changed, b)[2], whole[2])


def test_tiles_of_rows_with_an_order_of_their_own_are_said_to_depend_on_the_position() -> None:
    text = "gemm(k=640 left_dtype=bf16 right_dtype=bf16 output_dtype=fp32 path=fma k_loop_step=64 "
    rows, columns = (
        GEMMDesc.from_text(f"{text}iteration_rotation=rotation(axis={axis} tile=2 period=4))")
        for axis in ("rows", "columns")
    )
    assert not BitsClass(0, rows).any_row
    assert BitsClass(0, columns).any_row
    source = np.random.default_rng(3)
    b = source.integers(0x3C00, 0x4100, (640, 3)).astype(np.uint16)
    a = np.repeat(source.integers(0x3C00, 0x4100, (1, 640)).astype(np.uint16), 6, axis=0)
    a ^= (source.integers(0, 2, (1, 640)) << 15).astype(np.uint16)
    assert len(np.unique(evaluate(rows, a, b), axis=0)) > 1
    assert len(np.unique(evaluate(columns, a, b), axis=0)) == 1


@pytest.mark.parametrize("operator", ["linear", "addmm"])
def test_a_witness_is_an_element_whose_evaluated_bytes_differ(operator: Operator) -> None:
    query = Product(64, 4096, operator=operator).query(8, Settings().pytorch)
    found = [described(query, each) for each in (WHOLE, HALVES, THIRDS, STEPS)]
    found += [described(query, SLICED_STEPS)]
    for left, right in (*combinations_with_replacement(found, 2), (found[1], found[0])):
        assert left is not None
        assert right is not None
        witness = find_witness(left, right)
        assert (witness is None) == same(left, right)
        if witness is not None:
            operands = drawn_operands(left.product if isinstance(left, BiasedGEMM) else left, witness.draw)
            bits = [int(row_bits(each, *operands)[0, witness.column]) for each in (left, right)]
            assert [f"{each:04x}" for each in bits] == [witness.left, witness.right]


def test_a_bias_added_to_the_rounded_sum_has_other_bytes() -> None:
    query = Product(64, 4096, operator="addmm").query(8, Settings().pytorch)
    once = described(query, WHOLE)
    assert isinstance(once, BiasedGEMM)
    assert find_witness(once, once.model_copy(update={"rounded_first": True})) is not None


def test_slices_that_lose_the_sign_of_a_zero_have_other_bytes() -> None:
    # One slice of 64 k, rounded to bf16 and added to +0: only -0 differs.
    query = Product(64, 64).query(8, Settings().pytorch)
    found = [described(query, each) for each in (answer(24, 7), answer(24, 7, 4, 4))]
    assert found[0] is not None
    assert found[1] is not None
    witness = find_witness(found[0], found[1])
    assert witness is not None
    assert {witness.left, witness.right} == {"8000", "0000"}


def test_the_verdicts() -> None:
    assert certificate((1, WHOLE), (9, OTHER_TILE)).verdict is Verdict.INVARIANT
    broken = certificate((1, HALVES), (9, WHOLE), (20, OTHER_TILE), (30, HALVES))
    assert broken.verdict is Verdict.NOT_INVARIANT
    assert [(each.left.last, each.right.first) for each in broken.boundaries] == [(8, 9), (29, 30)]
    assert [each.bits for each in broken.intervals] == [0, 1, 0]
    assert broken.boundaries[0].removed == (
        "The k axis is cut into 2 contiguous parts of 320 k.", "The parts are added one after the other, in fp32.",
        "A part is accumulated in ascending k from +0, by 20 instructions in sequence.",
    )  # fmt: skip
    assert certificate((1, WHOLE), (9, UNKNOWN)).verdict is Verdict.UNKNOWN
    assert certificate((1, None), (2, WHOLE)).verdict is Verdict.UNKNOWN
    assert certificate((1, WHOLE), (9, UNKNOWN), (10, HALVES)).verdict is Verdict.NOT_INVARIANT
    assert overall([]) is Verdict.INVARIANT
    assert overall([Verdict.INVARIANT, Verdict.UNPROVED, Verdict.UNKNOWN]) is Verdict.UNKNOWN
    assert overall([Verdict.UNKNOWN, Verdict.NOT_INVARIANT]) is Verdict.NOT_INVARIANT


def test_descriptors_without_other_bytes_are_unproved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitwise_cublas_profiles.invariance.certificate.find_witness", lambda *_: None)
    assert certificate((1, WHOLE), (9, HALVES)).verdict is Verdict.UNPROVED


def test_samples_include_both_sides_of_every_boundary() -> None:
    found = certificate((1, HALVES), (9, WHOLE), (20, THIRDS), (30, UNKNOWN), (40, HALVES))
    rows = sampled_rows(found)
    assert {1, 8, 9, 19, 20, 29, 40, 64} <= set(rows)
    assert not set(rows) & set(range(30, 40))
    many = certificate(*((m, (WHOLE, HALVES)[m % 2]) for m in range(1, 400)), last=400)
    assert len(sampled_rows(many)) <= MAXIMUM_SAMPLES


def test_bytes_refute_a_class_with_two_patterns() -> None:
    found = certificate((1, HALVES), (9, WHOLE))
    right = {1: ["x"], 8: ["x"], 9: ["y"], 64: ["y"]}
    assert compared(found, right).record() == {
        "samples": 4, "refuted": [], "boundaries": 1, "different": 1, "boundaries_left_out": 0,
    }  # fmt: skip
    assert compared(found, {**right, 64: ["x"]}).refuted == ("class 1 has 2 byte patterns, first at M = 9, 64",)
    assert compared(found, {**right, 8: ["x", "z"]}).refuted == ("M = 8: equal rows of x have 2 byte patterns",)
    assert compared(found, {1: ["x"], 8: ["x"], 9: ["x"]}).different == 0


def answers(*products: Product, runs: tuple[Run, ...] = (Run(1, 8, HALVES), Run(9, 16384, WHOLE))) -> Answers:
    return Answers(ORIGIN, {Key.of(each.query(1, Settings().pytorch)): runs for each in products})


@pytest.mark.parametrize("name", ["answers.json", "answers.json.xz"])
def test_a_written_file_is_read_back(tmp_path: Path, name: str) -> None:
    content = answers(
        Product(64, 640), Product(64, 640, operator="addmm"), Product(64, 640, "tf32", "mm"),
        runs=(Run(1, 3, None), Run(4, 9, HALVES), Run(10, 16384, None)),
    )  # fmt: skip
    recorded.write(content, tmp_path / name)
    assert recorded.read(tmp_path / name) == content
    assert len(list(tmp_path.iterdir())) == 1


def changed(**fields: Any) -> str:
    content = json.loads(recorded.to_text(answers(Product(64, 640))))
    for name, value in fields.items():
        if name in content["series"][0]:
            content["series"][0][name] = value
        else:
            content[name] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "this is not complete JSON"),
        ("[]", 'this is not a file of answers; it has "format": "bitwise-cublas-answers"'),
        (changed(version=2), "the file has version 2 and this bitwise reads version 1: record it again"),
        (changed(firsts=[1, 1]), "firsts ascends from 1 to at most last"),
        (changed(firsts=[2, 9]), "firsts ascends from 1 to at most last"),
        (changed(firsts=[1, 16385]), "firsts.1|firsts ascends from 1 to at most last"),
        (changed(last=70000), "less than or equal to 65536"),
        (changed(firsts=[1]), "firsts and answers have different lengths"),
        (changed(answers=[0, 0]), "two neighbouring runs have the same answer"),
        (changed(answers=[0, 2]), "a series of N=64 K=640 has the number of no configuration"),
        (changed(answers=[0, -1]), "greater than or equal to 0"),
        (changed(answers=[0, True]), "valid integer"),
        (changed(configurations=[[1, 2]] * 2), "each configuration has 10 numbers"),
        (changed(columns=["a"]), "columns is algorithm, tile, stages"),
        (changed(more=1), "more: there is no such field"),
        (changed(provenance={}), "the provenance lacks library"),
        (changed(transposes="TT"), "transposes"),
        (changed(k="640"), "valid integer"),
    ],
)
def test_other_files_are_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(CublasError, match=sentence) as raised:
        recorded.from_text(text, "file")
    assert str(raised.value).startswith("file: ")


def test_a_file_with_a_series_twice_or_of_other_bytes_is_refused(tmp_path: Path) -> None:
    content = json.loads(recorded.to_text(answers(Product(64, 640))))
    content["series"] *= 2
    with pytest.raises(CublasError, match="N=64 K=640 has two series of one query: remove one"):
        recorded.from_text(json.dumps(content), "file")
    path = tmp_path / "answers.json.xz"
    for written, sentence in ((b"no", "is not compressed by xz"), (b"", "this is not complete JSON|is not compressed")):
        path.write_bytes(written)
        with pytest.raises(CublasError, match=sentence):
            recorded.read(path)
    path = tmp_path / "answers.json"
    path.write_bytes(b"\xff")
    with pytest.raises(CublasError, match="it is not text"):
        recorded.read(path)
    with pytest.raises(CublasError, match="cannot be read"):
        recorded.read(tmp_path / "none")


def test_long_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "MAXIMUM_BYTES", 1 << 20)
    path = tmp_path / "answers.json"
    path.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(CublasError, match="has more than 1 MiB of text"):
        recorded.read(path)


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["invariance", *arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def file(tmp_path: Path) -> str:
    series: dict[Key, tuple[Run, ...]] = {}
    for n, runs in (
        (64, (Run(1, 8, HALVES), Run(9, 16384, WHOLE))), (65, (Run(1, 8, OTHER_TILE), Run(9, 16384, WHOLE))),
        (66, (Run(1, 8, None), Run(9, 16384, WHOLE))),
    ):  # fmt: skip
        series |= answers(Product(n, 640), runs=runs).series
    path = tmp_path / "answers.json"
    recorded.write(Answers(ORIGIN, series), path)
    return str(path)


def test_the_command_states_the_verdict_in_its_exit_status(file: str) -> None:
    status, out, _ = run("64", "640", "--answers", file)
    assert (status, out.splitlines()[1]) == (
        1, "linear N=64 K=640 bf16: not invariant: 2 classes of bits, first from M = 8 to 9",
    )  # fmt: skip
    assert out.splitlines()[2] == "  M = 8 to 9: class 0 to class 1, other bytes; split_k 2 -> 1, reduction 2 -> 0"
    status, out, _ = run("65", "640", "--answers", file)
    assert (status, out.splitlines()[1]) == (0, "linear N=65 K=640 bf16: invariant for M = 1 to 16384")
    status, out, _ = run("66", "640", "--answers", file)
    assert (status, out.splitlines()[2]) == (
        3, "  M = 8 to 9: until there no descriptor: the library has no algorithm for this query",
    )  # fmt: skip
    assert run("64", "640", "--answers", file, "--rows", "8")[0] == 0


def test_the_command_prints_json(file: str) -> None:
    status, out, _ = run("64", "640", "--answers", file, "--json", "--workspace", ":4096:8")
    found = json.loads(out)
    assert (status, found["verdict"], found["settings"]["CUBLAS_WORKSPACE_CONFIG"]) == (1, "not invariant", ":4096:8")
    (product,) = found["products"]
    assert [each["rows"] for each in product["classes"]] == [[[1, 8]], [[9, 16384]]]
    (boundary,) = product["boundaries"]
    assert (boundary["between"], boundary["classes"], boundary["left"]["split_k"]) == ([8, 9], [0, 1], 2)
    assert boundary["witness"]["left"] != boundary["witness"]["right"]
    assert GEMMDesc.from_text(product["classes"][0]["descriptor"]).k == 640


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give one product, N K, or a config.json with --model"),
        (["64"], "give one product, N K, or a config.json with --model"),
        (["64", "640", "--op", "bmm"], "--op: 'bmm' is not one of linear, mm, addmm"),
        (["64", "640", "--dtype", "e4m3"], "--dtype: 'e4m3' is not one of bf16, fp16, fp32, tf32"),
        (["64", "640", "--workspace", "4096"],
         "CUBLAS_WORKSPACE_CONFIG is '4096': products were measured with values such as :4096:8"),
        (["64", "640", "--record", "x"], "--record and --library need --live"),
        (["64", "640", "--no-split-k"],
         "PyTorch does not multiply bf16 matrices without a bias if split K is disallowed"),
        (["64", "640", "--lt-workspace", "-1"], "CUBLASLT_WORKSPACE_SIZE is -1: give a number of KiB"),
        (["1", "640", "--op", "addmm"],
         "1x1x640 bf16 NN to bf16 with bias is not described: PyTorch adds a bias on one column with kernels of its "
         "own"),
        (["64", "640", "--live"], "--live needs PyTorch, which is not installed"),
    ],
)  # fmt: skip
def test_mistakes_on_the_command_line(arguments: list[str], sentence: str) -> None:
    if "--live" in arguments:
        try:
            import torch  # noqa: F401
        except ImportError:
            pass
        else:
            pytest.skip("torch is installed")
    assert run(*arguments) == (2, "", f"bitwise: {sentence}\n")


def test_quantised_weights_are_said_not_to_be_those_of_the_products() -> None:
    assert quantised({"quantization_config": None}, "a.json") == quantised({}, "a.json") == []
    (sentence,) = quantised({"quantization_config": {"quant_method": "fp8"}}, "a.json")
    assert sentence.startswith("a.json has a quantization_config")


def test_answers_of_the_distribution_are_the_default(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    h100 = recorded.read(Path(file))
    h200 = replace(h100, provenance={**ORIGIN, "device": "NVIDIA H200"})
    monkeypatch.setattr(recorded, "shipped", lambda: [h100])
    assert run("65", "640")[1].splitlines()[0] == (
        "cuBLASLt 13.1.0 on NVIDIA H100 80GB HBM3, PyTorch's defaults; answers recorded in this distribution"
    )
    monkeypatch.setattr(recorded, "shipped", lambda: [h100, h200])
    heads = {}
    for here in ("unknown", "NVIDIA H200"):
        monkeypatch.setattr(driver, "gpu_provenance", lambda here=here: {"device": here})
        heads[here] = run("65", "640")[1].splitlines()[0]
    assert heads == {
        "unknown": "cuBLASLt 13.1.0 on NVIDIA H100 80GB HBM3, PyTorch's defaults; answers recorded in this "
        "distribution (--device: those of NVIDIA H200)",
        "NVIDIA H200": "cuBLASLt 13.1.0 on NVIDIA H200, PyTorch's defaults; answers recorded in this distribution "
        "(--device: those of NVIDIA H100 80GB HBM3)",
    }
    assert run("65", "640", "--device", "B200") == (
        2, "", "bitwise: no answers for --device B200 are recorded; recorded are NVIDIA H100 80GB HBM3 (cuBLASLt "
        "13.1.0), NVIDIA H200 (cuBLASLt 13.1.0): give another name, a file with --answers, or --live on a GPU\n",
    )  # fmt: skip
    assert run("65", "640", "--device", "NVIDIA")[2].startswith(
        "bitwise: --device 'NVIDIA' is a part of several names of"
    )
    assert "NVIDIA H200" in run("65", "640", "--device", "H200")[1]
    older = replace(h200, provenance={**h200.provenance, "library": "12.8.4"})
    monkeypatch.setattr(recorded, "shipped", lambda: [h100, older, h200])
    chosen = {
        options: run("65", "640", *options)[1].splitlines()[0].removeprefix("cuBLASLt ")
        for options in (("--device", "H200"), ("--library-version", "12.8"), ("--library-version", "13"))
    }
    defaults = "PyTorch's defaults; answers recorded in this distribution"
    assert chosen == {
        ("--device", "H200"): f"13.1.0 on NVIDIA H200, {defaults} (--library-version: those of cuBLASLt 12.8.4)",
        ("--library-version", "12.8"): f"12.8.4 on NVIDIA H200, {defaults}",
        ("--library-version", "13"): f"13.1.0 on NVIDIA H200, {defaults} (--device: those of NVIDIA H100 80GB HBM3)",
    }
    assert (
        "no answers for --device H100 --library-version 12.8 are recorded"
        in (run("65", "640", "--device", "H100", "--library-version", "12.8")[2])
    )
    assert (
        "--library-version chooses among recorded answers" in run("65", "640", "--live", "--library-version", "13")[2]
    )
    monkeypatch.setattr(recorded, "shipped", list)
    assert run("65", "640")[2] == (
        "bitwise: no answers are recorded: give another name, a file with --answers, or --live on a GPU\n"
    )


def test_what_is_not_recorded_is_named(file: str) -> None:
    status, _, error = run("67", "640", "--answers", file)
    assert status == 2
    assert error.startswith(
        "bitwise: N=67 K=640 bf16 NT none with a workspace of 33554432 bytes is not recorded for cuBLASLt 13.1.0 on "
        "NVIDIA H100 80GB HBM3: ask the library with --live"
    )
    status, _, error = run("64", "640", "--answers", file, "--rows", "20000")
    assert (status, "is recorded only up to M = 16384" in error) == (2, True)
    status, _, error = run("64", "640", "--answers", file, "--device", "H200")
    assert (status, "no answers for --device H200 are recorded; recorded are NVIDIA H100" in error) == (2, True)
