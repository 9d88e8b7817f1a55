from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType

import pytest
from typer.testing import CliRunner

from bitwise_core import registry
from bitwise_core.cli import app
from bitwise_core.descriptors import GEMMDesc, Rotation, lane_tree_gemv, read, three_level_chain
from bitwise_core.descriptors.picture import picture
from bitwise_core.descriptors.words import words
from bitwise_core.mma import FusedSum, MmaSpec


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
        "(1, 8648) times (8648, 8); every element of C is computed alike.\n"
        "C = A B over k = 8648: fp16 times fp16, accumulated in fp32, stored as fp16.\n"
        "The last 8 of k take no part: the sum is over 8640 products.\n"
        "Matrix instruction wide of toy_1, k 16.\n"
        "It sums 16 products at a time, the products and the accumulator: every term is cut 25 bits below the largest "
        "exponent, the sum rounded toward zero to 13 bits (published only).\n"
        "The k axis is cut into 9 parts of 960 k that follow one another.\n"
        "The parts are added one after the other, in fp32.\n"
        "A part is walked in ascending k from +0, 60 instructions one after the other.\n"
        "\n"
        "k         0                                         8648\n"
        "cut 0     |0---|1---|2---|3---|4---|5---|6---|7---|8---.\n"
        "part 0    [0..15] [16..31] [32..47] ... [944..959]\n"
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
        "    load A+6 b16\n"
        "  convert.fp32.fp16\n"
        "    load B+10 b16\n"
        "  fma.rn.fp32\n"
        "    convert.fp32.fp16\n"
        "      load A+4 b16\n"
        "    convert.fp32.fp16\n"
        "      load B+4 b16\n"
        "    constant 0x0 b32\n"
    )


def test_a_strided_cut_is_drawn_from_its_first_k() -> None:
    desc = lane_tree_gemv(1000, "fp16", lanes=4, tile=2, chunk_tiles=16)
    assert picture(desc, 40) == [
        "k         0                                   1000",
        "cut 0     from k = 0, a character for each k: its part, 0 to 3",
        "          0011223300112233001122330011223300112233...",
        "part 0    0                                    250",
        "cut 1     |0---|1---|2---|3---|4---|5---|6---|7---",
        "part 0    [0] [1] [8] [9] [16] [17] ... [121]",
    ]


def test_of_many_parts_the_first_are_drawn() -> None:
    assert picture(three_level_chain(3000, "fp16", chunks=100), 40) == [
        "k         0                                   3000",
        "k         0                                    150",
        "cut 0     |0------|1------|2------|3------|4------...",
        "part 0    [0] [1] [2] [3] [4] [5] [6] ... [29]",
    ]


def test_turns_in_words() -> None:
    desc = GEMMDesc(
        k=70, left_dtype="fp16", right_dtype="bf16", output_dtype="fp32", path="mul_add", k_loop_step=4,
        turn_permutation=(3, 1, 2, 0), turn_rotation=Rotation(axis="columns", tile=16, period=4, step=2), alpha=0.5,
    )  # fmt: skip
    assert words(desc) == [
        "C = A B over k = 70: fp16 times bf16, accumulated in fp32, stored as fp32.",
        "Scalar arithmetic: a product and a sum, rounded apart, for each k in fp32, to nearest even.",
        "The axis is walked from +0 in turns of 4 k, 72 steps one after the other.",
        "The short turn, of 2 k, filled up with zeros, runs last.",
        "Inside a turn k runs in the order 3 1 2 0.",
        "Tiles of 16 columns start at different turns: tile t at turn (t mod 4) * 2.",
        "At the end the value is multiplied in fp32 by 0.5.",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["4", "4"], "give three sizes, M N K, not 2"),
        (["4", "4", "16"], "--arch ARCH names the matrix unit; there are toy_1"),
        (["4", "4", "16", "--arch", "toy_2"], "no plugin knows 'toy_2'; there are toy_1"),
        (["4", "4", "16", "--dtype", "half"], "there is no floating-point type 'half'; there are fp64, fp32, tf32, "
         "fp16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz, e2m1, ue8m0"),
        (["4", "4", "16", "--arch", "toy_1", "--dtype", "e4m3"],
         "toy_1 takes e4m3 times e4m3 in fp32 by mma, wide, whose bits differ: say which with --family"),
        (["4", "4", "16", "--arch", "toy_1", "--family", "tall"],
         "toy_1 has no unit of fp16 times fp16 in fp32 by 'tall', but by mma, wide"),
        (["4", "4", "16", "--arch", "toy_1", "--dtype", "bf16"],
         "toy_1 has no unit of bf16 times bf16 in fp32; it has e4m3 times e4m3 in fp32, fp16 times fp16 in fp32"),
        (["4", "4", "16", "--arch", "toy_1", "--plan", "split"], "there is no plan 'split'; there are single-pass, "
         "split-k, per-mma, split-k-per-mma, three-level-chain, lane-tree-gemv, contiguous-slice-gemv, workspace-gemv"),
        (["4", "4", "16", "--arch", "toy_1", "--plan", "split-k"], "the plan split-k needs --with slices=VALUE"),
        (["4", "4", "16", "--plan", "three-level-chain", "--with", "lanes=4"],
         "--with lanes=4: the plan three-level-chain takes NAME=VALUE with chunks, span, tile, fused"),
        (["4", "4", "16", "--plan", "three-level-chain", "--with", "chunks=four"],
         "Cut: count: input should be a valid integer, not 'four'"),
        (["4", "4", "16", "--plan", "three-level-chain", "--with", "chunks=2", "--element", "4,0"],
         "--element 4,0: C is (4, 4)"),
        (["4", "4", "16", "--plan", "three-level-chain", "--with", "chunks=2", "--element", "4"],
         "--element 4: give a row and a column, as in --element 0,0"),
        (["4", "4", "16", "--desc", "gemm(k=32 left_dtype=fp32 right_dtype=fp32 output_dtype=fp32 path=fma)"],
         "the descriptor is of k = 32, and K is 16: make them one"),
        (["4", "4", "600", "--desc", "gemm(k=600 left_dtype=fp16 right_dtype=fp16 output_dtype=fp16 path=fma "
          "k_cuts=[cut(span=192 count=3)])"],
         "GEMMDesc: k_cuts[0] does not cover k: the cut's 3 parts of 192 k cover 576 of 600: give span = 200, or "
         "count = 4, or leave count out"),
    ],
)  # fmt: skip
def test_mistakes(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["gemm", *arguments])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"bitwise: {sentence}\n")
