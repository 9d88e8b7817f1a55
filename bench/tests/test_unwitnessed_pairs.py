"""The search for counterexamples of unproved pairs: selection, counts, and results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.readings.unwitnessed_pairs import (
    AGREE,
    DIFFER,
    NOT_RECORDED,
    choose_pairs,
    equal_pairs,
    groups,
    main,
    recorded_agreement,
    summary,
    try_pair,
)
from bitwise_bench.recorded_bytes import CaseRecord
from bitwise_core.checker.counterexamples import NotFound, find_counterexample
from bitwise_core.checker.sources import Options, Source
from bitwise_core.execution.launch import Launch
from bitwise_core.plugins import registry

KERNEL = """.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
.reqntid 32
{{
.reg .b32 %r<3>;
.reg .f32 %f<5>;
.reg .b64 %rd<6>;
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
ld.global.f32 %f1, [%rd4];
{body}
st.global.f32 [%rd5], %f2;
ret;
}}
"""
BODIES = {
    "doubled": "add.rn.f32 %f2, %f1, %f1;\nadd.rn.f32 %f2, %f2, %f2;",
    "fourfold": "mul.rn.f32 %f2, %f1, 0f40800000;",
    "flushed": "mul.rn.ftz.f32 %f2, %f1, 0f40800000;",
    "exchanged": "mov.f32 %f4, 0f40800000;\nmul.rn.f32 %f2, %f4, %f1;",
}
ARGUMENTS = [{"buffer": "X", "dtype": "fp32"}, {"buffer": "Y", "dtype": "fp32"}]


def corpus(folder: Path) -> Path:
    group = folder / "fours" / "a"
    group.mkdir(parents=True)
    for name, body in BODIES.items():
        (group / f"{name}.ptx").write_text(KERNEL.format(body=body))
    launches = [{"file": f"{name}.ptx", "grid": [1], "block": [32], "args": ARGUMENTS} for name in BODIES]
    (group / "manifest.json").write_text(json.dumps({"kernels": launches}))
    return folder


def record(name: str, text: str, hashes: str, repeated: bool = True) -> CaseRecord:
    digest = normalised_digest(text)
    return CaseRecord(f"f/g/{name}", "f", "g", digest, digest, ("y",), ((hashes,),), repeated, 0, None)


def test_groups_are_folders_with_a_manifest(tmp_path: Path) -> None:
    corpus(tmp_path)
    (tmp_path / "fours" / "empty").mkdir()
    assert groups(tmp_path) == groups(tmp_path, ["fours"]) == ["fours/a"]
    assert groups(tmp_path, ["fives"]) == []


def test_agreement_of_recorded_bytes() -> None:
    texts = {name: KERNEL.format(body=body) for name, body in BODIES.items()}
    pair = (Source("doubled.ptx", texts["doubled"]), Source("fourfold.ptx", texts["fourfold"]))
    mine = record("doubled", texts["doubled"], "1")

    def said(other: CaseRecord) -> str:
        return recorded_agreement("f/g", pair, {mine.id: mine, other.id: other})

    assert said(record("fourfold", texts["fourfold"], "1")) == AGREE
    assert said(record("fourfold", texts["fourfold"], "2")) == DIFFER
    assert said(record("fourfold", texts["flushed"], "1")) == NOT_RECORDED
    assert said(record("fourfold", texts["fourfold"], "1", repeated=False)) == NOT_RECORDED
    assert said(record("flushed", texts["flushed"], "1")) == NOT_RECORDED
    assert recorded_agreement("f/other", pair, {mine.id: mine}) == NOT_RECORDED


def test_agreeing_pairs_come_first_and_a_seed_draws_the_same() -> None:
    sources = [Source(str(number), "") for number in range(20)]
    pairs = [((left, left), AGREE if int(left.name) % 5 == 0 else DIFFER) for left in sources]
    drawn = choose_pairs(pairs, 6, "seed")
    assert [said for _, said in drawn] == [AGREE] * 4 + [DIFFER] * 2
    assert drawn == choose_pairs(pairs, 6, "seed")
    assert {tuple(each.name for each in pair) for pair, _ in choose_pairs(pairs, 0, "seed")} == {
        (each.name, each.name) for each in sources
    }
    assert len({choose_pairs(pairs, 6, str(seed))[5][0][0].name for seed in range(10)}) > 1


def test_pairs_of_one_class_are_drawn_from_classes_with_several_members() -> None:
    classes = [("a", "b", "c"), ("d",), ("e", "f")]
    drawn = equal_pairs(classes, 5, "seed")
    assert drawn == equal_pairs(classes, 5, "seed")
    assert sorted("".join(sorted(pair)) in ("ab", "ac", "bc") for pair in drawn) == [False, True]
    assert [equal_pairs(classes, count, "seed") for count in (0, 1)] == [[], drawn[:1]]


def test_counts() -> None:
    def pair(said: str, witnessed: bool | None) -> dict[str, Any]:
        found = {"left": "a", "right": "b", "outcome": "different", "bytes": said, "reason": "r", "element": "Y[0]"}
        return found if witnessed is None else {**found, "witnessed": witnessed, "seconds": 1.0}

    wrong = {"left": "a", "right": "b", "ran": True, "input": "Y[0] is 0x0 and 0x1"}
    found = summary(
        {
            "f/a": {
                "kernels": 4, "classes": 3, "pairs": 3,
                "tried": [pair(AGREE, True), pair(AGREE, False), pair(DIFFER, True)],
                "equals": [{"left": "a", "right": "c", "ran": True, "input": None}],
            },
            "f/b": {"kernels": 2, "classes": 2, "pairs": 1, "tried": [pair(NOT_RECORDED, None)], "equals": [wrong]},
            "g/a": {"skipped": True},
            "g/b": {"error": "no"},
        }
    )  # fmt: skip
    assert found["groups"] == {"all": 4, "done": 2, "out of time": 1, "failed": {"g/b": "no"}}
    assert (found["kernels"], found["classes"], found["pairs of classes"]) == (6, 5, 4)
    assert (found["tried"], found["witnessed"]) == (3, 2)
    assert found["by bytes"] == {
        AGREE: {"tried": 2, "witnessed": 1},
        DIFFER: {"tried": 1, "witnessed": 1},
        NOT_RECORDED: {"tried": 0, "witnessed": 0},
    }
    assert found["equals"] == {"tried": 2, "distinguished": [{"group": "f/b", **wrong}]}
    assert found["families"] == {"f": {"pairs": 3, "witnessed": 2, "agreeing": 2, "agreeing, witnessed": 1}}
    assert found["unwitnessed"] == [
        {"group": "f/a", "left": "a", "right": "b", "bytes": AGREE, "element": "Y[0]", "reason": "r"}
    ]


@pytest.mark.parametrize(
    ("group", "left", "right", "outcome"),
    [
        (
            "row_max/bf16-16x320",
            "row_extreme,block=512,kind=max,warps=1",
            "row_extreme,block=512,kind=max,warps=8",
            "equal",
        ),
        (
            "arg_max/fp16-24x300",
            "arg_extreme,block=512,kind=max,warps=1",
            "arg_extreme,block=512,kind=max,warps=4",
            "different",
        ),
        (
            "tail_sum/shifted-16x300",
            "tail_sum,block=512,kind=shifted,warps=2",
            "tail_sum,block=512,kind=shifted,warps=8",
            "different",
        ),
    ],
)
def test_pairs_of_the_corpus(group: str, left: str, right: str, outcome: str) -> None:
    pytest.importorskip("triton")
    from bitwise_bench.compilation.sources import compile_source
    from bitwise_bench.corpus import catalogue

    cases = catalogue.by_id()
    first, second = (compile_source(cases[f"{group}/{name},stages=3"])[0] for name in (left, right))
    found = try_pair(first, second, {"seconds": 20.0, "seed": 0})
    assert (found["outcome"], found.get("witnessed")) == (outcome, True if outcome == "different" else None)
    if outcome == "equal":
        told = find_counterexample(first, second, registry.default().arch("sm_90"), Options(), None, 2.0)
        assert isinstance(told, NotFound)
        assert told.runs > 0


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    out = tmp_path / "pairs.json"
    corpus(tmp_path / "corpus")
    arguments = ["--pairs", "0", "--equals", "1", "--seconds", "1", "--out", str(out)]
    assert main([str(tmp_path / "corpus"), *arguments]) == 0
    found = json.loads(out.read_text())
    assert (found["classes"], found["tried"], found["witnessed"]) == (3, 3, 2)
    assert found["equals"] == {"tried": 1, "distinguished": []}
    (only,) = found["unwitnessed"]
    assert {only["left"], only["right"]} == {"doubled.ptx", "fourfold.ptx"}
    assert only["nodes"] == [
        "add.rn.fp32(add.rn.fp32(X[0], X[0]), add.rn.fp32(X[0], X[0]))",
        "mul.rn.fp32(X[0], 4.0)",
    ]
    assert capsys.readouterr().out.splitlines()[-1].startswith("2 of 3 pairs have a counterexample, ")


def test_a_folder_without_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path)])
    assert "contains no group with a manifest.json" in capsys.readouterr().err


def test_surrogates_execute_approximations_without_known_bits() -> None:
    pytest.importorskip("bitwise_nvidia_sm100", reason="needs the plugin of an architecture without a GPU")
    body = "{order}ex2.approx.f32 %f3, %f1;\nadd.rn.f32 %f2, %f3, 0f3F800000;{after}"
    texts = [
        KERNEL.replace("sm_90", "sm_100").format(body=body.format(order=order, after=after))
        for order, after in (("", ""), ("add.rn.f32 %f1, %f1, 0f00000001;\n", "\nmul.rn.f32 %f2, %f2, 0f3F800001;"))
    ]
    launch = Launch.model_validate({"file": "k.ptx", "grid": [1], "block": [32], "args": ARGUMENTS})
    left, right = (Source(f"{index}.ptx", text, launch) for index, text in enumerate(texts))
    settings = {"seconds": 5.0, "seed": 0}
    plain, executed = (try_pair(left, right, {**settings, "surrogates": each}) for each in (False, True))
    assert plain["outcome"] == "unproved"
    assert "has no function here that is exact for every pattern" in plain["reason"]
    assert (executed["outcome"], executed["witnessed"]) == ("different", True)
