"""The counterexample search of `bitwise diff`: inputs that are found and run, and the notes where none is found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

from bitwise_core.checker.counterexamples import NotFound, find_counterexample, kernel_pair
from bitwise_core.checker.kernel_files import read_kernel
from bitwise_core.checker.sources import Options
from bitwise_core.cli import app
from bitwise_core.plugins import registry

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

PLAIN = row_sum()
LAUNCHES = [launch("a.ptx"), launch("b.ptx")]
ADD, LOADED = "add.rn.f32 %f5, %f1, %f2;", "ld.global.f32 %f2, [%rd4+128];\n"
STORING = "setp.ne.u32 %p1, %r6, 0;"
POSITIVE_ZERO = [f"add.rn.f32 {each}, {each}, 0f00000000;\n" for each in ("%f1", "%f2")]
NARROW = "\ncvt.rn.f16.f32 %h1, %f5;\ncvt.f32.f16 %f5, %h1;"


def one_way(instructions: str) -> str:
    """Return PLAIN with instructions between the first two loads and their sum."""
    assert LOADED in PLAIN
    return PLAIN.replace(LOADED, LOADED + instructions)


def summed(instructions: str) -> str:
    """Return PLAIN with other instructions in place of the first sum."""
    assert ADD in PLAIN
    return PLAIN.replace(ADD, instructions).replace(".reg .f32", ".reg .b16 %h<2>;\n.reg .f32")


DIFFERENT = {
    "another order": (PLAIN, row_sum(neighbours=True)),
    "another operation": (PLAIN, summed("max.f32 %f5, %f1, %f2;")),
    "maxima that differ at a NaN": (row_sum(combine="max.f32"), row_sum(combine="max.NaN.f32")),
    "sums that differ at a subnormal": (PLAIN, row_sum(combine="add.rn.ftz.f32")),
    "minus zero": (
        row_sum(combine="max.f32"),
        row_sum(combine="max.f32").replace(LOADED, LOADED + "".join(POSITIVE_ZERO)),
    ),
    "a product rounded once or twice": (
        summed("fma.rn.f32 %f5, %f1, %f1, %f2;"),
        summed("mul.rn.f32 %f7, %f1, %f1;\nadd.rn.f32 %f5, %f7, %f2;"),
    ),
    "a product rounded once or twice, and then to fewer digits": (
        summed("fma.rn.f32 %f5, %f1, 0f3EBD70A4, %f2;" + NARROW),
        summed("mul.rn.f32 %f7, %f1, 0f3EBD70A4;\nadd.rn.f32 %f5, %f7, %f2;" + NARROW),
    ),
    "a clamp that only the largest numbers reach": (PLAIN, one_way("min.f32 %f2, %f2, 0f7E800000;\n")),
    "a kernel that stores the first row only": (PLAIN, PLAIN.replace(STORING, "add.u32 %r6, %r6, %r2;\n" + STORING)),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, {"a.ptx": PLAIN, "b.ptx": row_sum(swapped=True)}, LAUNCHES)


def diff(folder: Path, *options: str, seconds: int = 20) -> tuple[int, dict[str, Any]]:
    arguments = ["diff", str(folder / "a.ptx"), str(folder / "b.ptx"), "--json", "--search-seconds", str(seconds)]
    done = CliRunner().invoke(app, [*arguments, "--out", str(folder / "found.npz"), *options])
    assert done.stderr == ""
    return done.exit_code, json.loads(done.stdout)


def replayed(folder: Path, name: str) -> dict[str, Any]:
    """Return the buffers after `bitwise run` on the input of the counterexample."""
    out = folder / f"{name}.npz"
    done = CliRunner().invoke(
        app, ["run", str(folder / name), "--inputs", str(folder / "found.npz"), "--out", str(out)]
    )
    assert (done.exit_code, done.stderr) == (0, "")
    with np.load(out) as file:
        return {each: file[each] for each in file.files}


@pytest.mark.parametrize(("left", "right"), DIFFERENT.values(), ids=DIFFERENT)
def test_an_input_is_found_and_replayed(tmp_path: Path, left: str, right: str) -> None:
    folder = write(tmp_path, {"a.ptx": left, "b.ptx": right}, LAUNCHES)
    status, found = diff(folder)
    assert (status, found["outcome"]) == (1, "different")
    after = [replayed(folder, name)["Y"].view(np.uint32) for name in ("a.ptx", "b.ptx")]
    seen = found["counterexample"]
    assert seen["input"] == str(folder / "found.npz")
    different = np.flatnonzero((after[0] != after[1]) & ~(_nan(after[0]) & _nan(after[1])))
    place = int(different[0])
    assert (seen["element"], seen["size"], seen["different"]) == (f"Y[{place}]", 4, different.size)
    assert [int(each[place]) for each in after] == [int(seen["left"], 16), int(seen["right"], 16)]


def _nan(patterns: Any) -> Any:
    return (patterns & 0x7FFFFFFF) > 0x7F800000


@pytest.mark.parametrize("seed", range(4))
def test_equal_kernels_have_no_counterexample(folder: Path, seed: int) -> None:
    left, right = (read_kernel(str(folder / name)) for name in ("a.ptx", "b.ptx"))
    found = find_counterexample(left, right, registry.default().arch("sm_90"), Options(), None, 0.6, seed)
    assert isinstance(found, NotFound)
    assert found.runs > 0
    assert found.sentence.startswith("no input was found on which the bytes differ, in ")


def test_equal_kernels_are_not_searched(folder: Path) -> None:
    status, found = diff(folder)
    assert (status, found["outcome"], found["counterexample"]) == (0, "equal", None)
    assert not (folder / "found.npz").exists()


def test_different_trees_of_one_function_have_no_counterexample(tmp_path: Path) -> None:
    # Four times a number, at once or by two doublings: both are exact, and both overflow alike.
    doubled = one_way("add.rn.f32 %f2, %f2, %f2;\nadd.rn.f32 %f2, %f2, %f2;\n")
    folder = write(tmp_path, {"a.ptx": one_way("mul.rn.f32 %f2, %f2, 0f40800000;\n"), "b.ptx": doubled}, LAUNCHES)
    status, found = diff(folder, seconds=1)
    assert (status, found["outcome"], found["counterexample"]) == (4, "unproved", None)
    assert found["notes"][-1].startswith("no input was found on which the bytes differ, in ")
    assert not (folder / "found.npz").exists()


def test_a_counterexample_in_the_text_output(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": row_sum(neighbours=True)}, LAUNCHES)
    out = folder / "found.npz"
    done = CliRunner().invoke(app, ["diff", str(folder / "a.ptx"), str(folder / "b.ptx"), "--out", str(out)])
    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert lines[0] == "Different for this launch: both kernels were run on one input, and their bytes differ"
    assert re.fullmatch(
        r"  Y\[[0-3]\] is \S+ \(0x[0-9a-f]{8}\) and \S+ \(0x[0-9a-f]{8}\), \d+ ulps? apart; "
        r"(1 element differs|[2-4] elements differ) \(input: .*\)",
        lines[1],
    )
    assert lines[2] == f"  the input is in {out}"


@pytest.mark.parametrize(
    ("instruction", "status", "sentence"),
    [
        (
            "frobnicate.b32 %f5, %f5;",
            3,
            "no input could be run: the instruction frobnicate.b32 is not modelled at line {line}",
        ),
        (
            "sin.approx.f32 %f5, %f1;",
            4,
            "no input could be run: the operation sin.approx.fp32@sm_90 has no function here that is exact for every"
            " pattern at line {line}",
        ),
    ],
)
def test_a_kernel_that_cannot_be_run(tmp_path: Path, instruction: str, status: int, sentence: str) -> None:
    text = summed(instruction)
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": text}, LAUNCHES)
    line = next(n for n, each in enumerate(text.split("\n"), 1) if each == instruction)
    found = diff(folder)
    assert (found[0], found[1]["counterexample"], found[1]["notes"][-1]) == (status, None, sentence.format(line=line))


def test_an_unknown_kernel_may_be_run(tmp_path: Path) -> None:
    # A loop whose length depends on data, up to four iterations; since it stores, it is no function of registers.
    loop = "mov.f32 %f3, 0f00000000;\nmin.f32 %f4, %f1, 0f40800000;\nAGAIN:\nadd.rn.f32 %f3, %f3, 0f3F800000;\n"
    loop += "st.global.f32 [%rd4], %f1;\nsetp.lt.f32 %p2, %f3, %f4;\n@%p2 bra AGAIN;\nadd.rn.f32 %f2, %f2, %f3;\n"
    plain = one_way("st.global.f32 [%rd4], %f1;\n")
    folder = write(tmp_path, {"a.ptx": plain, "b.ptx": one_way(loop)}, LAUNCHES)
    without = CliRunner().invoke(app, ["diff", str(folder / "a.ptx"), str(folder / "b.ptx"), "--json", "--no-search"])
    assert (without.exit_code, json.loads(without.stdout)["outcome"]) == (3, "unknown")
    status, found = diff(folder)
    assert (status, found["outcome"], found["scope"]) == (1, "different", "launch")
    after = [replayed(folder, name)["Y"] for name in ("a.ptx", "b.ptx")]
    assert (after[0] != after[1]).any()


def test_without_a_launch_no_input_is_tried(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": row_sum(neighbours=True)}, None)
    status, found = diff(folder)
    assert (status, found["scope"], found["counterexample"]) == (3, "every launch", None)
    assert found["notes"][-1] == "no input was tried: a kernel has no launch"


def test_the_input_satisfies_the_assumed_condition(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": row_sum(neighbours=True)}, LAUNCHES)
    status, found = diff(folder, "--assume", "finite")
    assert (status, found["conditions"], found["counterexample"]["input"]) == (1, ["finite"], str(folder / "found.npz"))
    for arrays in (np.load(folder / "found.npz"), replayed(folder, "a.ptx"), replayed(folder, "b.ptx")):
        assert all(np.isfinite(arrays[name]).all() for name in ("X", "Y"))


def test_a_difference_by_overflow_is_none_for_finite_values(tmp_path: Path) -> None:
    halved = one_way("mul.rn.f32 %f2, %f2, 0f40000000;\nmul.rn.f32 %f2, %f2, 0f3F000000;\n")
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": halved}, LAUNCHES)
    assert diff(folder)[1]["counterexample"]["input"] == str(folder / "found.npz")
    status, found = diff(folder, "--assume", "finite", seconds=2)
    assert (status, found["counterexample"]) == (4, None)
    assert found["notes"][-1].startswith("no input was found on which the bytes differ, in ")
    assert "makes an infinity or a NaN from finite numbers" in found["notes"][-1]


def test_launches_that_state_different_types(tmp_path: Path) -> None:
    other = launch("b.ptx", args=[{"buffer": "X", "dtype": "fp32"}, {"buffer": "Y", "dtype": "u32"}])
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": row_sum(neighbours=True)}, [launch("a.ptx"), other])
    assert diff(folder)[1]["notes"][-1] == "no input was tried: the launches declare the buffer Y as fp32 and u32"


@pytest.mark.parametrize("limit", ["MAXIMUM_WHOLE_LANES", "MAXIMUM_RUN_SHARE"])
def test_a_large_launch_is_run_at_the_divergence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(kernel_pair, "LANES_PER_BATCH", 1)
    monkeypatch.setattr(kernel_pair, limit, 0)
    # Only the last row's block takes another second element.
    own = f"setp.eq.u32 %p2, %r2, 2;\n{LOADED}@%p2 ld.global.f32 %f2, [%rd4+64];\n"
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": PLAIN.replace(LOADED, own)}, LAUNCHES)
    status, found = diff(folder)
    assert (status, found["divergence"]["element"], found["counterexample"]["element"]) == (1, "Y[2]", "Y[2]")
    assert found["notes"][-1] == kernel_pair.PARTIAL_LAUNCH.format(element="Y[2]")
    after = [replayed(folder, name)["Y"].view(np.uint32) for name in ("a.ptx", "b.ptx")]
    assert np.flatnonzero(after[0] != after[1]).tolist() == [2]
    assert after[0].size == 4


def test_a_launch_too_large_without_a_divergence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_pair, "LANES_PER_BATCH", 1)
    monkeypatch.setattr(kernel_pair, "MAXIMUM_WHOLE_LANES", 0)
    left, right = (read_kernel(str(folder / name)) for name in ("a.ptx", "b.ptx"))
    found = find_counterexample(left, right, registry.default().arch("sm_90"), Options(), None, 1.0)
    sentence = "the launches are too large to be executed in full, and no divergent element is known"
    assert found == NotFound(f"no input was tried: {sentence}")


def test_an_output_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": row_sum(neighbours=True)}, LAUNCHES)
    out = folder / "gone" / "found.npz"
    arguments = ["diff", str(folder / "a.ptx"), str(folder / "b.ptx"), "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"bitwise: --out {out}: cannot be written (there is no folder {out.parent})\n"


def test_a_difference_carries_no_assumptions_of_proofs_for_every_launch(tmp_path: Path) -> None:
    folder = write(
        tmp_path, {"a.ptx": row_sum(), "b.ptx": row_sum(neighbours=True)}, [launch("a.ptx"), launch("b.ptx")]
    )
    status, found = diff(folder, "--every-launch")
    assert (status, found["scope"]) == (1, "launch")
    other = diff(folder)
    assert (other[0], other[1]["notes"]) == (status, found["notes"])
