"""Missing, misplaced and outdated samples fail the suite, and so do wrong profiles and launchers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bitwise_conformance.suite import Suite
from bitwise_conformance.suite.known_failures import known_failures
from bitwise_conformance.suite.samples import SampleError
from bitwise_core.descriptors import Descriptor, GEMMDesc, Record
from bitwise_core.execution.architecture import ParametricSupport
from bitwise_core.numerics import Bits
from bitwise_core.plugins.installed import evaluate
from bitwise_toy import plugin
from toy_plugins import CHANGES, MAC, SAMPLES, TOY1, edit, failing, module, outcomes


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES, tmp_path / "samples"))


def test_a_claim_without_a_sample_fails(samples: Path) -> None:
    for path in samples.glob("toy1/*/expected.json"):
        edit(path, lambda content: [content.pop(name) for name in ("runs", "trees", "different", "equal")])
    (samples / "toy1" / "matrix_units" / f"{MAC.name}.json").unlink()
    every = ParametricSupport(lambda *_: None, ("", "", ""), ("", "", ""), lambda _: False, frozenset())
    unit = replace(MAC, status="measured by us")
    found = outcomes(
        Suite(module(replace(TOY1, every_launch=every), units=[unit]), samples), "test_signatures_are_stable"
    )
    assert {name for name, why in found.items() if not why.startswith("skipped: ")} == {
        "test_bytes[toy1-missing]",
        "test_changed_kernels_are_not_equal[toy1-missing]",
        "test_every_launch[toy1-missing]",
        "test_listed_changes[toy1-missing]",
        "test_trees[toy1-missing]",
        f"test_matrix_unit_vectors[{MAC.name}]",
    }
    assert found["test_bytes[toy1-missing]"] == (
        "toy1: it claims execution on bit patterns, but has no sample of it: "
        "add a run with the bytes that the hardware returned to an expected.json"
    )


def test_an_architecture_without_samples_fails(tmp_path: Path) -> None:
    broken = failing(Suite(plugin, tmp_path))
    assert {
        "test_group_files_are_valid",
        "test_classes",
        "test_written_texts_parse_back",
        "test_trees",
        "test_bytes",
    } <= broken


def test_a_module_without_hook_results_fails() -> None:
    found = outcomes(Suite(module(units=()), SAMPLES.parent / "nowhere"), "test_signatures_are_stable")
    failed = {name: why for name, why in found.items() if not why.startswith("skipped: ")}
    assert list(failed) == ["test_samples_belong_to_the_plugin[plugin]"]
    assert "broken_toy implements no hook with a result; give the module that the entry point names" in str(failed)


def test_samples_of_an_unknown_architecture_fail(samples: Path) -> None:
    (samples / "toy2").mkdir()
    assert failing(Suite(plugin, samples)) == {"test_samples_belong_to_the_plugin"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content["classes"].pop(), "a run has results for 2 of 1 classes"),
        (lambda content: content["classes"][0].append("other.toy"), "must list every file of the manifest once"),
        (lambda content: content["trees"].update({"other.toy": {}}), "the manifest has no file 'other.toy'"),
        (lambda content: content.update({"class": []}), "class: there is no such field"),
    ],
)
def test_inconsistent_samples_fail(samples: Path, change: Callable[[dict[str, Any]], object], sentence: str) -> None:
    path = samples / "toy1" / "norm" / "expected.json"
    edit(path, change)
    found = outcomes(Suite(plugin, samples), "test_signatures_are_stable", CHANGES)
    assert sentence in found["test_group_files_are_valid[toy1-norm]"]
    assert found["test_group_files_are_valid[toy1-norm]"].startswith(str(path))


ONE_PASS = "gemm(k=48 left_dtype=fp32 right_dtype=fp32 output_dtype=fp32 path=fma)"


class Profile:
    """Knows one configuration; with `open_ended`, of any version."""

    name = "toy_library"

    def __init__(self, *, open_ended: bool) -> None:
        self.open_ended = open_ended

    def describe(self, configuration: Mapping[str, Any]) -> Descriptor | None:
        asked = dict(configuration)
        if self.open_ended and "version" in asked:
            asked["version"] = "1.0"
        return GEMMDesc.from_text(ONE_PASS) if asked == {"version": "1.0", "tile": 16} else None


@pytest.mark.parametrize("open_ended", [False, True])
def test_a_profile_that_answers_for_unknown_versions_is_detected(samples: Path, open_ended: bool) -> None:
    (samples / "profiles").mkdir()
    content = {"known": [{"configuration": {"version": "1.0", "tile": 16}, "descriptor": ONE_PASS}]}
    (samples / "profiles" / "toy_library.json").write_text(json.dumps(content))
    suite = Suite(module(TOY1, bitwise_profiles=[Profile(open_ended=open_ended)]), samples)
    assert failing(suite) == ({"test_profiles_decline_unknown_configurations"} if open_ended else set())


def test_a_profile_with_another_descriptor_is_detected(samples: Path) -> None:
    (samples / "profiles").mkdir()
    other = ONE_PASS.replace("fma", "mul_add")
    content = {"known": [{"configuration": {"version": "1.0", "tile": 16}, "descriptor": other}]}
    (samples / "profiles" / "toy_library.json").write_text(json.dumps(content))
    suite = Suite(module(TOY1, bitwise_profiles=[Profile(open_ended=False)]), samples)
    assert failing(suite) == {"test_profiles_decline_unknown_configurations"}


class Launcher:
    """Runs the given descriptor with another `path`, on a device that is present or `lacks` something."""

    name = "toy_launcher"

    def __init__(self, path: str, lacks: str | None) -> None:
        self.path, self.lacks = path, lacks

    def missing(self) -> str | None:
        return self.lacks

    def launch(self, desc: Record, *operands: Bits) -> Bits:
        return evaluate(desc.model_copy(update={"path": self.path}), *operands)


@pytest.mark.parametrize(
    ("path", "lacks", "said"),
    [("fma", None, None), ("mul_add", None, ONE_PASS), ("mul_add", "no toy1", "skipped: toy_launcher cannot run here")],
)
def test_a_launcher_that_returns_other_bytes_is_detected(
    samples: Path, path: str, lacks: str | None, said: str | None
) -> None:
    (samples / "launchers").mkdir()
    operands = [{"dtype": "fp32", "shape": shape} for shape in ((16, 48), (48, 8))]
    content = {"runs": [{"descriptor": ONE_PASS, "operands": operands}]}
    (samples / "launchers" / "toy_launcher.json").write_text(json.dumps(content))
    suite = Suite(module(TOY1, bitwise_launchers=[Launcher(path, lacks)]), samples)
    name = "test_launchers_match_the_evaluation[toy_launcher]"
    found = outcomes(suite, "test_signatures_are_stable", CHANGES).get(name)
    assert (found is None) == (said is None)
    assert said is None or (found is not None and found.startswith(said))


TEST_MODULE = (SAMPLES.parent / "test_conformance.py").read_text()


def run_suite(samples: Path, *chosen: str, text: str = TEST_MODULE) -> subprocess.CompletedProcess[str]:
    """Run the suite in a test module, as the author of a plugin does."""
    (samples.parent / "test_conformance.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *chosen, "test_conformance.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(command, cwd=samples.parent, env=environment, capture_output=True, text=True, check=False)


def test_known_failures_are_expected_to_fail(samples: Path) -> None:
    edit(samples / "toy1" / "norm" / "expected.json", lambda content: content["runs"][0]["after"].reverse())
    ids = [f"test_bytes[toy1-norm-{name}.toy]" for name in ("loop", "unrolled", "rounded")]
    (samples / "known_failures.txt").write_text("# of toy1\n\n" + "".join(f"{each}  # reversed\n" for each in ids))
    done = run_suite(samples, "-k", "bytes or known")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("\nXFAIL ") == 3


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("test_bytes[toy1-norm-loop.toy]  # it passes", "[XPASS(strict)] it passes"),
        ("test_bytes[toy1-norm-other.toy]  # there is none", "lists cases that do not exist"),
    ],
)
def test_known_failures_that_pass_or_do_not_exist_fail(samples: Path, line: str, sentence: str) -> None:
    (samples / "known_failures.txt").write_text(line + "\n")
    done = run_suite(samples, "-k", "bytes or known")
    assert done.returncode == 1
    assert sentence in done.stdout


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("test_bytes[a]", "known_failures.txt:1: write a known failure as `test_name[id]  # reason`"),
        (
            "\ntest_bytes[a]  # b\ntest_bytes[a]  # c",
            "known_failures.txt:3: test_bytes[a] is listed twice; remove one line",
        ),
    ],
)
def test_invalid_lines_of_known_failures_are_errors(samples: Path, lines: str, sentence: str) -> None:
    (samples / "known_failures.txt").write_text(lines + "\n")
    with pytest.raises(SampleError) as raised:
        known_failures(Suite(plugin, samples))
    assert str(raised.value) == f"{samples}/{sentence}"


def test_a_module_without_a_suite_is_an_error(samples: Path) -> None:
    text = TEST_MODULE.replace("SUITE = ", "OTHER = ")
    assert (
        "test_conformance: defines no SUITE; add SUITE = Suite(plugin, samples)" in run_suite(samples, text=text).stdout
    )


def test_expected_json_is_proposed(samples: Path) -> None:
    path = samples / "toy1" / "norm" / "expected.json"
    given = json.loads(path.read_text())
    path.unlink()
    command = [sys.executable, "-m", "bitwise_conformance.suite", "bitwise_toy.plugin", str(samples)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"wrote {path}: check it\n", "")
    assert json.loads(path.read_text()) == {"classes": given["classes"], "trees": given["trees"]}
