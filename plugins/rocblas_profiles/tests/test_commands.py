"""`bitwise rocblas` and `bitwise gemm --library rocblas:6.2`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from logic_writer import text_of
from typer.testing import CliRunner

from bitwise_amd_gfx942.matrix_units import ROWS
from bitwise_core.cli import app as bitwise
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import ExplainableProfile, NotCovered
from bitwise_core.plugins.references import loaded
from bitwise_rocblas_profiles.commands import app
from bitwise_rocblas_profiles.plugin import bitwise_profiles
from bitwise_rocblas_profiles.tables import bundled

NOTE = (
    "Derived from the library's published parameters and the published rules of its kernels; not measured on a device."
)
ROTATED = (
    "gemm(k=4096 left_dtype=bf16 right_dtype=bf16 output_dtype=bf16 path=matrix instruction=instruction("
    "architecture=gfx942 family=mfma k=16) instruction_k=16 k_loop_step=64 iteration_rotation=rotation(axis={} "
    "tile=224 period=4 step=2))"
)
BIASED = ["128", "1024", "6784", "--library", "hipblaslt:2024-10", "--dtype", "bf16", "--transposes", "TN",
          "--column-major", "--bias"]  # fmt: skip


def run(*arguments: str) -> tuple[int, list[str], str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout.splitlines(), done.stderr


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(
        registry.load([]), matrix_units=MappingProxyType({row.name: row for row in ROWS}),
        profiles=tuple(map(loaded, bitwise_profiles())),
    )  # fmt: skip
    monkeypatch.setattr(registry, "default", lambda: found)


def test_ask_prints_the_descriptor_and_that_it_is_not_measured() -> None:
    for order, axis, layout in (([], "columns", "NT"), (["--column-major"], "rows", "TN")):
        status, lines, _ = run("ask", "4096", "4096", "4096", "--dtype", "bf16", "--transposes", layout, *order)
        assert (status, lines[-1], lines[-4]) == (0, NOTE, ROTATED.format(axis))
        assert lines[-2] == (
            "Solution 400 of aquavanjaram942X/aquavanjaram942_Cijk_Alik_Bljk_BBS_BH.yaml, tuned for this size: macro "
            "tile 224x256, matrix instruction 16x16x16, DepthU 64, StaggerU 4."
        )


def test_ask_with_a_bias_and_the_choice_of_tiles() -> None:
    status, lines, error = run("ask", *BIASED)
    assert (status, lines) == (3, [])
    assert error.startswith("bitwise: the kernel is not described, stagger axis: the loop over k starts elsewhere")
    status, lines, _ = run("ask", *BIASED, "--stagger", "N", "--json")
    content = json.loads("".join(lines))
    assert (status, content["solution"], content["bias"], content["measured"]) == (0, 23, True, False)
    assert NOTE in content["notes"]
    assert content["notes"][-1].startswith("That StaggerUMapping 0 counts tiles along N is the caller's choice")
    assert GEMMDesc.from_text(content["text"]) == GEMMDesc(**content["descriptor"])
    assert "The bias is added in fp32 to the sum, before it is rounded to the output's type." in content["words"]


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["64", "64", "64", "--beta", "1"], 3, "the kernel is not described, beta: whether alpha * sum + beta * C is"),
        (
            ["64", "64", "64", "--compute", "fp16"],
            3,
            "the kernel is not described, vector ALU: the kernel has no matrix",
        ),
        (
            [*BIASED, "--stagger", "N", "--alpha", "2"],
            3,
            "the kernel is not described, alpha: whether alpha * sum + bias",
        ),
        ([*BIASED, "--stagger", "K"], 2, "stagger is 'K': give M or N"),
        (["64", "64", "64", "--library", "rocblas"], 2, "there are no tables of rocblas; there are rocblas:6.2"),
        (["64", "64", "64", "--device", "H100"], 2, "the device H100 is not known; known are MI300X, MI300A, MI308X"),
        (["64", "64", "64", "--dtype", "e4m3"], 2, "gfx942 multiplies e4m3fnuz, not e4m3: give that type"),
        (["64", "64", "64", "--transposes", "XY"], 2, "--transposes: 'XY' is not one of NN, NT, TN and TT"),
        (["64", "64", "64", "--compute", "fp64"], 2, "--compute: 'fp64' is not fp32 or fp16"),
        (["64", "1", "64"], 2, "b is a vector, which a framework may pass as it is or transposed"),
        (["64", "64", "64", "--bias"], 2, "rocblas has no products with a bias"),
    ],
)
def test_ask_refuses(arguments: list[str], status: int, sentence: str) -> None:
    found, lines, error = run("ask", *arguments)
    assert (found, lines) == (status, [])
    assert error.startswith(f"bitwise: {sentence}")
    assert error.count("\n") == 1


def test_alpha_is_part_of_the_descriptor() -> None:
    status, lines, _ = run("ask", "64", "64", "64", "--alpha", "0.5", "--json")
    assert status == 0
    assert GEMMDesc.from_text(json.loads("".join(lines))["text"]).alpha == 0.5


def test_describe_reads_a_file_of_the_user(tmp_path: Path) -> None:
    file = next(f for f in bundled()[1].files if f.tag == "F8SS_BH" and not f.problem["TransposeA"])
    path = tmp_path / Path(file.path).name
    path.write_text(text_of(file))
    size = [str(each) for each in (file.rows[0].m, file.rows[0].n, file.rows[0].k)]
    status, lines, _ = run("describe", *size, "--logic", str(path))
    assert (status, lines[-1]) == (0, NOTE)
    assert f"Solution {file.rows[0].solution} of {path}, tuned for this size" in lines[-2]
    status, lines, _ = run("describe", *size, "--logic", str(path), "--solution", "3", "--json")
    assert (status, json.loads("".join(lines))["solution"]) == (0, 3)
    assert run("describe", *size, "--logic", str(path), "--solution", "999")[0] == 2
    status, lines, _ = run("coverage", "--logic", str(path), "--json")
    assert status == 0
    assert json.loads("".join(lines))["coverage"][str(path)]["solutions"] == len(file.solutions)
    path.write_text(text_of(file)[:1000])
    status, lines, error = run("describe", *size, "--logic", str(path))
    assert (status, lines) == (2, [])
    assert "this is no logic file of Tensile" in error or "is no logic file of Tensile" in error


def test_coverage_counts_by_reason() -> None:
    status, lines, _ = run("coverage", "--library", "rocblas:6.2")
    assert (status, lines[1:3], lines[-1]) == (
        0, ["  4042 of 4330 solutions are described (93.3 %)", "  221 are declined: vector ALU"], NOTE,
    )  # fmt: skip


@pytest.mark.usefixtures("installed")
def test_gemm_explains_a_library() -> None:
    common = ["gemm", "4096", "4096", "4096", "--arch", "gfx942"]
    done = CliRunner().invoke(bitwise, [*common, "--library", "rocblas:6.2", "--dtype", "bf16", "--transposes", "NT"])
    assert done.exit_code == 0
    assert ROTATED.format("columns") in done.stdout
    assert done.stdout.splitlines()[-1] == NOTE
    without = [*common[:4], "--library", "rocblas:6.2", "--dtype", "bf16", "--transposes", "NT"]
    assert CliRunner().invoke(bitwise, without).stdout == done.stdout
    given = ["--config", '{"device": "MI300A", "workspace": 0}']
    done = CliRunner().invoke(bitwise, [*common, "--library", "rocblas:6.2", *given])
    assert done.exit_code == 0
    assert "on MI300A" in done.stdout
    assert "workspace 0 bytes" in done.stdout
    for options, sentence in (
        (["--config", "algorithm=1"], "there is no option algorithm; there are device, workspace, types, stagger"),
        (["--config", "device=1"], "the device 1 is not known"),
        (["--config", '{"workspace": "x"}'], "the workspace is 'x': give a number of bytes"),
        (["--config", '{"types": 3}'], "types is 3: give the name of a problem type"),
        (["--config", "stagger=1"], "stagger is 1: give M or N"),
        (["--dtype", "fp64"], "products of fp64 are not described"),
    ):
        done = CliRunner().invoke(bitwise, [*common, "--library", "rocblas:6.2", *options])
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"bitwise: {sentence}")


def test_a_product_of_tensors_is_not_covered() -> None:
    for profile in map(loaded, bitwise_profiles()):
        assert isinstance(profile, ExplainableProfile)
        with pytest.raises(NotCovered, match="derived from published tables and not measured"):
            profile.product(None, None, None)
