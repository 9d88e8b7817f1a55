from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from bitwise_core.cli import app
from bitwise_core.descriptors import (
    Cut,
    GEMMDesc,
    Group,
    Rotation,
    Share,
    Tail,
    lane_tree_gemv,
    read,
    three_level_chain,
)
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.descriptors.summary import words
from bitwise_core.descriptors.svg_figure import to_svg
from bitwise_core.descriptors.text_figure import merge_text, picture, stored_text
from bitwise_core.numerics.mma import FusedSum, MmaSpec
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import Explanation, NotCovered


def unit(family: str, kind: str, k: int, fraction_bits: int) -> MmaSpec:
    rule = FusedSum(k, fraction_bits, 13, "rz")
    return MmaSpec("toy_1", family, kind, kind, "fp32", "fp32", k, rule, "published only", "https://example.org/rows")


ROWS = (
    unit("mma", "fp16", 8, 25), unit("mma", "fp16", 16, 25), unit("wide", "fp16", 16, 25), unit("mma", "e4m3", 16, 25),
    unit("wide", "e4m3", 16, 13),
)  # fmt: skip


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.load([]), matrix_units=MappingProxyType({row.name: row for row in ROWS}))
    monkeypatch.setattr(registry, "default", lambda: found)


SPLIT = ["8648", "--arch", "toy_1", "--plan", "split-k", "--with", "slices=9", "--with", "tile=64"]


def test_a_split_in_words_and_as_a_picture() -> None:
    done = CliRunner().invoke(app, ["gemm", "1", "8", *SPLIT, "--with", "k_dropped=8", "--width", "46"])
    assert done.stderr == ""
    assert done.stdout == (
        "(1, 8648) times (8648, 8); every element of C is computed in the same way.\n"
        "C = A B over k = 8648: fp16 times fp16, accumulated in fp32, stored as fp16.\n"
        "The last 8 of k are dropped: the sum is over 8640 products.\n"
        "Matrix instruction wide of toy_1, k 16.\n"
        "It sums 16 products at a time, the products and the accumulator: every term is cut 25 bits below the largest "
        "exponent, the sum rounded toward zero to 13 bits (published only).\n"
        "The k axis is cut into 9 contiguous parts of 960 k.\n"
        "The parts are added one after the other, in fp32.\n"
        "A part is accumulated in ascending k from +0, by 60 instructions in sequence.\n"
        "\n"
        "k         0                                         8648\n"
        "cut 0     |0---|1---|2---|3---|4---|5---|6---|7---|8---.\n"
        "merge     ((0 + 1) + 2) + ... + 8, each sum in fp32\n"
        "part 0    [0..15] [16..31] [32..47] ... [944..959]\n"
        "dropped   8640 to 8647 reach no sum\n"
        "stored    rounded to fp16\n"
        "\n"
        "gemm(k=8648 left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 path=matrix "
        "instruction=instruction(architecture=toy_1 family=wide k=16) instruction_k=16 "
        "k_cuts=[cut(count=9 tile=64)] k_dropped=8)\n"
    )


def test_as_json_and_from_a_line_and_with_a_tree() -> None:
    done = CliRunner().invoke(app, ["gemm", "1", "8", *SPLIT, "--json"])
    found = json.loads(done.stdout)
    assert (found["m"], found["n"], found["k"]) == (1, 8, 8648)
    assert GEMMDesc.from_json(json.dumps(found["descriptor"])) == read(found["text"])
    again = CliRunner().invoke(app, ["gemm", "1", "8", "8648", "--desc", found["text"], "--json"])
    assert json.loads(again.stdout) == found
    tree = CliRunner().invoke(app, ["gemm", "2", "3", "2", "--plan", "three-level-chain", "--with", "chunks=1",
                                    "--out-dtype", "fp32", "--element", "1,2"])  # fmt: skip
    assert tree.stdout.endswith(
        "fma.rn.fp32\n"
        "  convert.fp32.fp16\n"
        "    A[3]\n"
        "  convert.fp32.fp16\n"
        "    B[5]\n"
        "  fma.rn.fp32\n"
        "    convert.fp32.fp16\n"
        "      A[2]\n"
        "    convert.fp32.fp16\n"
        "      B[2]\n"
        "    constant 0 (0x0) b32\n"
    )


def test_a_strided_cut_is_drawn_from_its_first_k() -> None:
    desc = lane_tree_gemv(1000, "fp16", lanes=4, tile=2, chunk_tiles=16)
    assert picture(desc, 40) == [
        "k         0                                   1000",
        "cut 0     from k = 0, a character for each k: its part, 0 to 3",
        "          0011223300112233001122330011223300112233...",
        "merge     0 + 2, 1 + 3 first, a balanced tree, each sum in fp32",
        "part 0    0                                    250",
        "cut 1     |0---|1---|2---|3---|4---|5---|6---|7---",
        "merge     ((0 + 1) + 2) + ... + 7, each sum in fp32",
        "part 0    [0] [1] [8] [9] [16] [17] ... [121]",
        "stored    rounded to fp16",
    ]


def test_only_the_first_of_many_parts_are_drawn() -> None:
    assert picture(three_level_chain(3000, "fp16", chunks=100), 40) == [
        "k         0                                   3000",
        "k         0                                    150",
        "cut 0     |0------|1------|2------|3------|4------...",
        "merge     ((0 + 1) + 2) + ... + 99, each sum in fp32",
        "part 0    [0] [1] [2] [3] [4] [5] [6] ... [29]",
        "stored    rounded to fp16",
    ]


@pytest.mark.parametrize(
    ("cut", "count", "text"),
    [
        (Cut(span=9), 1, "one part, each sum in fp32"),
        (Cut(span=9), 2, "0 + 1, each sum in fp32"),
        (Cut(span=9, start="zero"), 4, "from +0, ((0 + 1) + 2) + 3, each sum in fp32"),
        (Cut(span=9, partial_dtype="fp16"), 5, "(((0 + 1) + 2) + 3) + 4, each sum in fp32; a part is rounded to fp16"),
        (Cut(span=9, merge="chain-down", partial_dtype="bf16", merge_dtype="bf16"), 7,
         "((6 + 5) + 4) + ... + 0, each sum in bf16; a part is rounded to bf16"),
        (Cut(count=2, merge="halves"), 2, "0 + 1 first, a balanced tree, each sum in fp32"),
        (Cut(count=4, merge="halves"), 4, "0 + 2, 1 + 3 first, a balanced tree, each sum in fp32"),
        (Cut(count=8, merge="neighbours"), 8, "0 + 1, 2 + 3, ... first, a balanced tree, each sum in fp32"),
        (Cut(count=8, layout="strided", groups=(Group(count=4),)), 8, "in groups, each sum in fp32"),
    ],
)  # fmt: skip
def test_merges_in_a_line(cut: Cut, count: int, text: str) -> None:
    assert merge_text(cut, count) == text


def test_the_stored_value_in_a_line() -> None:
    desc = three_level_chain(10, "fp16", chunks=1, output_dtype="fp32")
    assert stored_text(desc) == "fp32 as it is"
    assert stored_text(desc.model_copy(update={"alpha": 0.5})) == "times 0.5, fp32 as it is"
    scaled = desc.model_copy(update={"operand_scales": True, "output_dtype": "bf16"})
    assert stored_text(scaled) == "times both scales, rounded to bf16"


@pytest.mark.parametrize(
    "desc",
    [
        lane_tree_gemv(1000, "fp16", lanes=4, tile=2, chunk_tiles=16),
        three_level_chain(3000, "fp16", chunks=100),
        three_level_chain(8, "fp16", chunks=4, span=1),
        GEMMDesc(k=70, left_dtype="fp16", right_dtype="bf16", output_dtype="fp32", path="mul_add", k_loop_step=4,
                 iteration_permutation=(3, 1, 2, 0)),
        GEMMDesc(k=250, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma", k_dropped=10, k_cuts=(
            Cut(count=11, tile=8, groups=(Group(count=4), Group(count=2))), Cut(count=8, merge="halves"))),
    ],
)  # fmt: skip
def test_every_axis_is_drawn(desc: GEMMDesc) -> None:
    drawing = to_svg(desc, "a < b")
    document = ElementTree.fromstring(drawing)
    name = "{http://www.w3.org/2000/svg}"
    width, height = (float(document.attrib[each]) for each in ("width", "height"))
    assert document.findtext(f"{name}title") == "a < b"
    for box in document.iter(f"{name}rect"):
        x, y, across = (float(box.attrib[each]) for each in ("x", "y", "width"))
        assert x >= 0
        assert x + across <= width
        assert 0 < y < height


def test_the_drawing_shows_parts_additions_and_what_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "axis.svg"
    arguments = ["gemm", "1", "8", *SPLIT, "--with", "k_dropped=8", "--svg", str(path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    drawing = path.read_text()
    assert "(1, 8648) times (8648, 8)" in drawing
    assert drawing.count("<circle") == 8
    assert "dropped: k 8640 to 8647" in drawing
    assert "loop over the first innermost part: 60 steps from +0, wide k 16 of toy_1" in drawing
    done = CliRunner().invoke(app, [*arguments[:-1], str(tmp_path / "none" / "axis.svg")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith("axis.svg: cannot be written (No such file or directory)\n")


class ToyLibrary:
    """A library of one version; its configuration is the number of parts of the descriptor."""

    name, library, version, architecture = "toy_2_toy_1", "toy", "2", "toy_1"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        raise NotCovered("there is no device")

    def explain(self, problem: GEMMProblem, configuration: Any, records: Path | None = None) -> Explanation:
        if configuration is None:
            raise NotCovered(f"which algorithm runs for {problem.m} is not known; records: {records}")
        if configuration.keys() != {"parts"}:
            raise NotCovered("the configuration lacks parts")
        desc = three_level_chain(problem.k, (problem.a, problem.b), chunks=configuration["parts"],
                                 output_dtype=problem.out)  # fmt: skip
        return Explanation(desc, (f"Measured as {'T' if problem.transpose_b else 'N'}.",))


TOY2 = ["gemm", "4", "4", "16", "--arch", "toy_1", "--library", "toy:2"]


@pytest.fixture
def toy_library(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.default(), profiles=(ToyLibrary(),))
    monkeypatch.setattr(registry, "default", lambda: found)


def test_the_product_of_a_library_is_explained(toy_library: None) -> None:
    done = CliRunner().invoke(app, [*TOY2, "--config", "parts=2"])
    assert done.stderr == ""
    assert done.stdout.endswith(
        "gemm(k=16 left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 path=fma k_cuts=[cut(count=2)])\nMeasured as N.\n"
    )
    found = json.loads(CliRunner().invoke(app, [*TOY2, "--config", '{"parts": 2}', "--dtype", "e4m3", "--json"]).stdout)
    assert found["notes"] == ["Measured as T."]
    assert read(found["text"]).output_dtype == "bf16"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*TOY2, "--records", "/nowhere"], "which algorithm runs for 4 is not known; records: None"),
        ([*TOY2, "--config", "parts=1,tile=3"], "the configuration lacks parts"),
        ([*TOY2, "--config", "parts"], "--config parts: give NAME=NUMBER pairs, such as algorithm=66, or a JSON "
         "object"),
        ([*TOY2, "--config", "{"], "--config: this is not JSON (Expecting property name enclosed in double quotes: "
         "line 1 column 2 (char 1))"),
        ([*TOY2, "--plan", "split-k"], "--library determines what is computed: omit --plan, --with and --desc"),
        ([*TOY2, "--config", "parts=2", "--transposes", "X"], "--transposes: 'X' is not a pair of layouts: give NN, "
         "NT, TN or TT"),
        ([*TOY2, "--config", "parts=2", "--dtype", "half"], "there is no floating-point type 'half'; choose one of "
         "fp64, "
         "fp32, tf32, fp16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz, e2m1, e2m3, e3m2, ue8m0"),
        ([*TOY2[:-1], "toy:3"], "--library: toy 3 on toy_1 is not described; available: toy:2 on toy_1"),
        ([*TOY2[:-1], "toy"], "--library takes NAME:VERSION; available: toy:2 on toy_1"),
        ([*TOY2[:4], "--library", "toy:3"], "--library: toy 3 is not described; available: toy:2 on toy_1"),
        ([*TOY2[:4], "--config", "parts=2"], "--config is the algorithm configuration of a library: name the "
         "library with --library"),
    ],
)  # fmt: skip
def test_errors_about_libraries(toy_library: None, arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"bitwise: {sentence}\n")


class OtherToyLibrary(ToyLibrary):
    """The same version on another architecture."""

    name, architecture = "toy_2_toy_2", "toy_2"


def test_the_only_architecture_of_a_library_is_the_default(toy_library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*TOY2[:4], *TOY2[6:], "--config", "parts=2"]
    assert CliRunner().invoke(app, arguments).stdout == CliRunner().invoke(app, [*TOY2, "--config", "parts=2"]).stdout
    found = replace(registry.default(), profiles=(ToyLibrary(), OtherToyLibrary()))
    monkeypatch.setattr(registry, "default", lambda: found)
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "bitwise: --library: toy:2 is described on several architectures: choose one of toy_1, toy_2 by --arch\n"
    )


def test_without_a_plugin_no_library_is_known() -> None:
    done = CliRunner().invoke(app, TOY2)
    assert (done.exit_code, done.stdout, done.stderr) == (
        2, "", "bitwise: --library: toy 2 on toy_1 is not described; no installed plugin describes a library\n"
    )  # fmt: skip


def test_a_sum_that_is_added_to_zero_in_words() -> None:
    desc = GEMMDesc(
        k=300, left_dtype="bf16", right_dtype="bf16", output_dtype="bf16", path="fma",
        k_cuts=(Cut(count=1, start="zero"), Cut(layout="strided", count=16, tile=4, merge="halves")),
    )  # fmt: skip
    assert words(desc)[2:] == [
        "The whole sum is added to +0 at the end: it is never -0.",
        "The k axis is distributed round-robin in tiles of 4 k over 16 parts, 20 to 16 k each.",
        "The parts are added as a balanced tree, the two halves pairwise first, in fp32.",
        "A part is accumulated in ascending k from +0, by 20 steps in sequence.",
    ]
    assert words(desc.model_copy(update={"k_cuts": desc.k_cuts[:1]}))[2:] == [
        "The whole sum is added to +0 at the end: it is never -0.",
        "The axis is accumulated in ascending k from +0, by 300 steps in sequence.",
    ]


def test_iterations_in_the_summary() -> None:
    desc = GEMMDesc(
        k=70, left_dtype="fp16", right_dtype="bf16", output_dtype="fp32", path="mul_add", k_loop_step=4,
        iteration_permutation=(3, 1, 2, 0),
        iteration_rotation=Rotation(axis="columns", tile=16, period=4, step=2), alpha=0.5,
    )  # fmt: skip
    assert words(desc) == [
        "C = A B over k = 70: fp16 times bf16, accumulated in fp32, stored as fp32.",
        "Scalar arithmetic: a product and a sum, each rounded, for each k in fp32, to nearest even.",
        "The axis is accumulated from +0 in iterations of 4 k, by 72 steps in sequence.",
        "The short iteration, of 2 k, filled with zeros, runs last.",
        "Inside an iteration k is taken in the order 3 1 2 0.",
        "Tiles of 16 columns start at different iterations: tile t at iteration (t mod 4) * 2.",
        "At the end the value is multiplied in fp32 by 0.5.",
    ]


def test_a_tail_in_the_summary() -> None:
    desc = GEMMDesc(
        k=70, left_dtype="fp16", right_dtype="fp16", output_dtype="fp32", path="fma", k_loop_step=8,
        iteration_rotation=Rotation(axis="rows", tile=16, period=4, step=2, halved=True),
        k_cuts=(Cut(count=2, tile=16), Cut(layout="strided", count=2, tile=4)),
        tail=Tail(length=6, shares=(Share(part=1), Share(tile=4))),
    )  # fmt: skip
    assert words(desc)[-4:] == [
        "A part is accumulated from +0 in iterations of 8 k, by 16 steps in sequence.",
        "Tiles of 16 rows start at different iterations: tile t at iteration (t mod 4) * 2.",
        "A part of fewer than 8 iterations halves that period to fit.",
        "The last 6 k are in no iteration: they are added after all of them to part 1 of cut 0, all parts of cut 1 "
        "round-robin in tiles of 4, filled with zeros, ascending.",
    ]
    assert "tail      64 to 69, after all iterations" in picture(desc)
    ElementTree.fromstring(to_svg(desc))
    alone = desc.model_copy(update={"tail": Tail(length=70, shares=desc.tail.shares)}) if desc.tail else desc
    assert "cut 0     2 parts of the tail alone" in picture(alone)
    ElementTree.fromstring(to_svg(alone))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["4", "4"], "give three sizes, M N K, and not 2"),
        (["4", "4", "16"], "this plan runs on a matrix unit: name its architecture with --arch; known "
         "architectures: toy_1"),
        (["4", "4", "16", "--arch", "toy_2"], "--arch: no installed plugin has matrix units of 'toy_2'; known "
         "architectures: toy_1"),
        (["4", "4", "16", "--dtype", "half"], "there is no floating-point type 'half'; choose one of fp64, fp32, tf32, "
         "fp16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz, e2m1, e2m3, e3m2, ue8m0"),
        (["4", "4", "16", "--arch", "toy_1", "--dtype", "e4m3"],
         "toy_1 multiplies e4m3 by e4m3 in fp32 with mma, wide, whose bits differ: choose one with --family"),
        (["4", "4", "16", "--arch", "toy_1", "--family", "tall"],
         "--family: toy_1 has no instruction 'tall' for fp16 times fp16 in fp32; choose one of mma, wide"),
        (["4", "4", "16", "--arch", "toy_1", "--dtype", "bf16"],
         "toy_1 has no matrix unit for bf16 times bf16 in fp32; it has units for e4m3 times e4m3 in fp32, fp16 "
         "times fp16 in fp32"),
        (["4", "4", "16", "--arch", "toy_1", "--plan", "split"], "--plan: there is no plan 'split'; choose one of "
         "single-pass, "
         "split-k, per-mma, split-k-per-mma, three-level-chain, lane-tree-gemv, contiguous-slice-gemv, workspace-gemv"),
        (["4", "4", "16", "--arch", "toy_1", "--plan", "split-k"], "--plan: the plan split-k needs --with "
         "slices=VALUE"),
        (["4", "4", "16", "--plan", "three-level-chain", "--with", "lanes=4"],
         "--with lanes=4: give NAME=VALUE; the parameters of the plan three-level-chain are chunks, span, tile, fused"),
        (["4", "4", "16", "--plan", "three-level-chain", "--with", "chunks=four"],
         "Cut: count: input should be a valid integer, not 'four'"),
        (["4", "4", "16", "--plan", "three-level-chain", "--with", "chunks=2", "--element", "4,0"],
         "--element 4,0: C has 4 rows and 4 columns, counted from 0"),
        (["4", "4", "16", "--plan", "three-level-chain", "--with", "chunks=2", "--element", "4"],
         "--element 4: give a row and a column, as in --element 0,0"),
        (["4", "4", "16", "--desc", "gemm(k=32 left_dtype=fp32 right_dtype=fp32 output_dtype=fp32 path=fma)"],
         "--desc: the descriptor has k = 32, and K is 16: give the same number"),
        (["4", "4", "600", "--desc", "gemm(k=600 left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 path=fma "
          "k_cuts=[cut(span=192 count=3)])"],
         "GEMMDesc: k_cuts[0] does not cover k: the cut's 3 parts of 192 k cover 576 of 600: give span = 200, or "
         "count = 4, or leave count out"),
    ],
)  # fmt: skip
def test_errors(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["gemm", *arguments])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"bitwise: {sentence}\n")
