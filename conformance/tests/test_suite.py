"""The suite itself: a sound plugin passes it, and each kind of broken one fails the law that is there for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bitwise_conformance import suite as laws
from bitwise_conformance.suite import Suite
from bitwise_conformance.suite.cases import LAWS, every_id
from bitwise_conformance.suite.expected import SampleError
from bitwise_conformance.suite.known import known_failures
from bitwise_core.asm import Instruction, Module
from bitwise_core.hookspecs import hookimpl
from bitwise_core.machine.arch import Arch, BitPatterns, Builder, Context, EveryLaunch, OpcodeTable
from bitwise_core.machine.state import Machine, Step
from bitwise_core.machine.terms import TermDomain
from bitwise_core.mma import FusedSum, MmaSpec

plugin = pytest.importorskip("bitwise_toy.plugin")
TOY1: Arch = plugin.TOY1
(MAC,) = plugin.bitwise_matrix_units()
SAMPLES = Path(plugin.__file__).parents[2] / "tests" / "samples"


def module(*arches: Arch, units: Iterable[MmaSpec] = (MAC,), **hooks: Iterable[Any]) -> ModuleType:
    """A plugin that hands over these."""
    found = ModuleType("broken_toy")
    handed = {"bitwise_arches": arches, "bitwise_matrix_units": units, **hooks}
    for name, several in handed.items():

        def hook(several: Iterable[Any] = several) -> Iterable[Any]:
            return several

        setattr(found, name, hookimpl(hook))
    return found


def outcomes(suite: Suite, *left_out: str) -> dict[str, str]:
    """The cases that fail or are skipped, by id, each with why; `left_out` names laws that are not asked."""
    found: dict[str, str] = {}
    for law, collect in LAWS.items():
        if law in left_out:
            continue
        for case in collect(suite):
            try:
                getattr(laws, law)(suite, case)
            except pytest.skip.Exception as skipped:
                found[f"{law}[{case.id}]"] = f"skipped: {skipped.msg}"
            except (pytest.fail.Exception, Exception) as error:
                found[f"{law}[{case.id}]"] = str(error)
    return found


def failing(suite: Suite) -> set[str]:
    """The laws that a plugin breaks.  What another process makes of it is not asked: it cannot import these."""
    found = outcomes(suite, "test_signatures_are_stable")
    return {name.split("[")[0] for name, why in found.items() if not why.startswith("skipped: ")}


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES, tmp_path / "samples"))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_sound_plugin_passes() -> None:
    suite = Suite(plugin, SAMPLES)
    name = "bitwise_toy.plugin"
    assert outcomes(suite) == {
        "test_every_launch[toy1-unclaimed]": "skipped: toy1 does not claim to be read for every launch",
        "test_a_profile_declines_what_it_does_not_know[unclaimed]": f"skipped: {name} hands over no profiles",
        "test_a_launcher_returns_what_is_evaluated[unclaimed]": f"skipped: {name} hands over no launchers",
    }
    assert len(every_id(suite)) == len(set(every_id(suite)))


def test_every_law_is_exported() -> None:
    assert {name for name in laws.__all__ if name.startswith("test_")} == set(LAWS)


def opcode(name: str, build: Callable[[Builder, Instruction, Context], Step]) -> Arch:
    """toy1 with one opcode stated otherwise, over what it was."""
    table = OpcodeTable(TOY1.opcodes)
    old = table.builders[name]

    def builder(instruction: Instruction, context: Context) -> Step:
        return build(old, instruction, context)

    table.builders[name] = builder
    return replace(TOY1, opcodes=table)


def with_operands(old: Builder, instruction: Instruction, context: Context, *order: int) -> Step:
    operands = tuple(instruction.operands[each] for each in order)
    return old(replace(instruction, operands=operands), context)


def multiplying(old: Builder, instruction: Instruction, context: Context) -> Step:
    """add.f as mul.f."""
    return old(replace(instruction, opcode=instruction.opcode.replace("add.f", "mul.f")), context)


def reversed_sums(old: Builder, instruction: Instruction, context: Context) -> Step:
    """A sum with its operands the other way round: the same value from another tree."""
    return (
        with_operands(old, instruction, context, 0, 2, 1)
        if instruction.opcode == "add.f"
        else old(instruction, context)
    )


def blind_swap(old: Builder, instruction: Instruction, context: Context) -> Step:
    """In trees alone, a swap over a distance of 3 is one over 2."""
    destination, source, distance = instruction.operands
    if getattr(distance, "value", None) != 3:
        return old(instruction, context)
    other = replace(instruction, operands=(destination, source, replace(distance, value=2)))  # type: ignore[type-var]
    right, wrong = old(instruction, context), old(other, context)

    def step(machine: Machine) -> None:
        (wrong if isinstance(machine.domain, TermDomain) else right)(machine)

    return step


def other_factors(old: Builder, instruction: Instruction, context: Context) -> Step:
    """fma.f of its first operand's square."""
    return (
        with_operands(old, instruction, context, 0, 1, 3, 2)
        if instruction.opcode == "fma.f"
        else old(instruction, context)
    )


@pytest.mark.parametrize(
    ("name", "build", "broken"),
    [
        ("add", multiplying, {"test_trees", "test_bytes", "test_listed_changes"}),
        ("fma", other_factors, {"test_trees", "test_bytes"}),
        ("add", reversed_sums, {"test_trees"}),
        ("swap", blind_swap, {"test_changed_kernels_are_not_equal", "test_listed_changes"}),
    ],
)
def test_an_instruction_of_another_meaning_is_seen(
    name: str, build: Callable[[Builder, Instruction, Context], Step], broken: set[str]
) -> None:
    assert failing(Suite(module(opcode(name, build)), SAMPLES)) == broken


def test_an_unstated_instruction_is_seen() -> None:
    table = OpcodeTable(TOY1.opcodes)
    del table.builders["rcp"]
    found = outcomes(Suite(module(replace(TOY1, opcodes=table)), SAMPLES), "test_signatures_are_stable")
    message = found["test_every_instruction_is_stated[toy1-norm-unrolled.toy]"]
    assert "line 9: the instruction rcp.f is not modelled" in message
    assert "test_a_kernel_is_read[toy1-norm-unrolled.toy]" in found
    assert "test_every_instruction_is_stated[toy1-matrix-two_steps.toy]" not in found


def test_a_text_that_is_parsed_in_two_ways_is_seen() -> None:
    numbers = count()

    def parse(text: str, file: str) -> Module:
        return replace(TOY1.parse(text, file), version=str(next(numbers)))

    assert failing(Suite(module(replace(TOY1, parse=parse)), SAMPLES)) == {
        "test_a_text_is_parsed",
        "test_a_text_is_written",
    }


@pytest.mark.parametrize("lost", ["@p0 ", " + 32", "TURN:\n"])
def test_a_text_that_is_written_wrong_is_seen(lost: str) -> None:
    def write(given: Module) -> str:
        assert TOY1.write is not None
        return TOY1.write(given).replace(lost, "")

    assert failing(Suite(module(replace(TOY1, write=write)), SAMPLES)) == {"test_a_text_is_written"}


def test_signatures_that_change_are_seen() -> None:
    numbers = count()

    def unsteady(old: Builder, instruction: Instruction, context: Context) -> Step:
        name = f"rcp.approx.fp32@toy1.{next(numbers)}"
        destination, source = instruction.operands

        def step(machine: Machine) -> None:
            machine.write(destination, machine.domain.floating(name, [machine.read_bits(source, 32)], 32))

        return step

    broken = failing(Suite(module(opcode("rcp", unsteady)), SAMPLES))
    assert {"test_a_kernel_is_read", "test_classes"} <= broken


HASHED = """
from dataclasses import replace
from bitwise_core.hookspecs import hookimpl
from bitwise_core.machine.arch import OpcodeTable
from bitwise_toy.plugin import TOY1

def rcp(instruction, context):
    destination, source = instruction.operands
    name = f"rcp.approx.fp32@toy1.{hash('rcp')}"
    return lambda machine: machine.write(
        destination, machine.domain.floating(name, [machine.read_bits(source, 32)], 32)
    )

TABLE = OpcodeTable(TOY1.opcodes)
TABLE.builders["rcp"] = rcp

@hookimpl
def bitwise_arches():
    return [replace(TOY1, opcodes=TABLE, bits=None)]
"""


def test_signatures_of_another_process_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hashed_toy.py").write_text(HASHED)
    monkeypatch.syspath_prepend(tmp_path)
    suite = Suite(import_module("hashed_toy"), SAMPLES)
    failed = {name for name, why in outcomes(suite).items() if not why.startswith("skipped: ")}
    assert failed == {"test_signatures_are_stable[plugin]"}


def test_a_row_with_other_bits_is_seen() -> None:
    wrong = replace(MAC, arithmetic=FusedSum(products=2, fraction_bits=23, mantissa_bits=23, rounding="rz"))
    arch = replace(TOY1, bits=BitPatterns(TOY1.bits.functions if TOY1.bits else {}, (wrong,)))
    assert failing(Suite(module(arch, units=[wrong]), SAMPLES)) == {
        "test_a_matrix_unit_has_the_bits_of_its_vectors",
        "test_bytes",
    }


def test_what_is_claimed_without_a_sample_fails(samples: Path) -> None:
    for path in samples.glob("toy1/*/expected.json"):
        edit(path, lambda content: [content.pop(name) for name in ("runs", "trees", "different", "equal")])
    (samples / "toy1" / "matrix_units" / f"{MAC.name}.json").unlink()
    every = EveryLaunch(lambda *_: None, ("", "", ""), ("", "", ""), lambda _: False, frozenset(), lambda *_: None)
    unit = replace(MAC, status="measured by us")
    found = outcomes(
        Suite(module(replace(TOY1, every_launch=every), units=[unit]), samples), "test_signatures_are_stable"
    )
    assert {name for name, why in found.items() if not why.startswith("skipped: ")} == {
        "test_bytes[toy1-lacking]",
        "test_changed_kernels_are_not_equal[toy1-lacking]",
        "test_every_launch[toy1-lacking]",
        "test_listed_changes[toy1-lacking]",
        "test_trees[toy1-lacking]",
        f"test_a_matrix_unit_has_the_bits_of_its_vectors[{MAC.name}]",
    }
    assert found["test_bytes[toy1-lacking]"] == (
        "toy1: it claims runs on bit patterns, and no sample shows it: "
        "add a run, with the bytes that the hardware returned, to an expected.json"
    )


def test_an_architecture_without_samples_fails(tmp_path: Path) -> None:
    broken = failing(Suite(plugin, tmp_path))
    assert {"test_a_group_can_be_read", "test_classes", "test_a_text_is_written", "test_trees", "test_bytes"} <= broken


def test_samples_of_nothing_fail(samples: Path) -> None:
    (samples / "toy2").mkdir()
    assert failing(Suite(plugin, samples)) == {"test_the_samples_are_the_plugins"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content["classes"].pop(), "a run has what follows for 2 of 1 classes"),
        (lambda content: content["classes"][0].append("other.toy"), "names every file of the manifest once"),
        (lambda content: content["trees"].update({"other.toy": {}}), "the manifest has no file 'other.toy'"),
        (lambda content: content.update({"class": []}), "class: Extra inputs are not permitted"),
    ],
)
def test_samples_that_do_not_fit_fail(samples: Path, change: Callable[[dict[str, Any]], object], sentence: str) -> None:
    path = samples / "toy1" / "norm" / "expected.json"
    edit(path, change)
    found = outcomes(Suite(plugin, samples), "test_signatures_are_stable")
    assert sentence in found["test_a_group_can_be_read[toy1-norm]"]
    assert found["test_a_group_can_be_read[toy1-norm]"].startswith(str(path))


class Profile:
    """Answers one question; a version that it does not know too, where it is `open`."""

    name = "toy_library"

    def __init__(self, *, open_ended: bool) -> None:
        self.open_ended = open_ended

    def describe(self, key: Mapping[str, Any]) -> str | None:
        known = {"version": "1.0", "tile": 16}
        asked = {**key, "version": "1.0"} if self.open_ended and "version" in key else key
        return "one pass" if asked == known else None


@pytest.mark.parametrize("open_ended", [False, True])
def test_a_profile_that_answers_for_unknown_versions_is_seen(samples: Path, open_ended: bool) -> None:
    (samples / "profiles").mkdir()
    content = {"known": [{"key": {"version": "1.0", "tile": 16}, "descriptor": "one pass"}]}
    (samples / "profiles" / "toy_library.json").write_text(json.dumps(content))
    suite = Suite(module(TOY1, bitwise_profiles=[Profile(open_ended=open_ended)]), samples)
    assert failing(suite) == ({"test_a_profile_declines_what_it_does_not_know"} if open_ended else set())


class Launcher:
    """Returns `returned` where 1 is owed, on a device that is there or `lacks` something."""

    name = "toy_launcher"

    def __init__(self, returned: int, lacks: str | None) -> None:
        self.returned, self.lacks = returned, lacks

    def missing(self) -> str | None:
        return self.lacks

    def launch(self, run: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        return np.array([self.returned], np.uint32)

    def evaluate(self, run: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        return np.array([1], np.uint32)


@pytest.mark.parametrize(
    ("returned", "lacks", "said"),
    [(1, None, None), (2, None, "{'k': 16}"), (2, "no toy1 is here", "skipped: toy_launcher cannot run here: no toy1")],
)
def test_a_launcher_that_returns_other_bytes_is_seen(
    samples: Path, returned: int, lacks: str | None, said: str | None
) -> None:
    (samples / "launchers").mkdir()
    (samples / "launchers" / "toy_launcher.json").write_text('{"runs": [{"k": 16}]}')
    suite = Suite(module(TOY1, bitwise_launchers=[Launcher(returned, lacks)]), samples)
    found = outcomes(suite, "test_signatures_are_stable").get("test_a_launcher_returns_what_is_evaluated[toy_launcher]")
    assert (found is None) == (said is None)
    assert said is None or (found is not None and found.startswith(said))


TEST_MODULE = (SAMPLES.parent / "test_conformance.py").read_text()


def taken(samples: Path, *chosen: str, text: str = TEST_MODULE) -> subprocess.CompletedProcess[str]:
    """The suite as an author takes it."""
    (samples.parent / "test_conformance.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *chosen, "test_conformance.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(command, cwd=samples.parent, env=environment, capture_output=True, text=True, check=False)


def test_known_failures_are_expected_to_fail(samples: Path) -> None:
    edit(samples / "toy1" / "norm" / "expected.json", lambda content: content["runs"][0]["after"].reverse())
    ids = [f"test_bytes[toy1-norm-{name}.toy]" for name in ("loop", "unrolled", "rounded")]
    (samples / "known_failures.txt").write_text("# of toy1\n\n" + "".join(f"{each}  # reversed\n" for each in ids))
    done = taken(samples, "-k", "bytes or known")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("\nXFAIL ") == 3


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("test_bytes[toy1-norm-loop.toy]  # it passes", "[XPASS(strict)] it passes"),
        ("test_bytes[toy1-norm-other.toy]  # there is none", "names cases that do not exist"),
    ],
)
def test_known_failures_that_are_none_fail(samples: Path, line: str, sentence: str) -> None:
    (samples / "known_failures.txt").write_text(line + "\n")
    done = taken(samples, "-k", "bytes or known")
    assert done.returncode == 1
    assert sentence in done.stdout


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("test_bytes[a]", "known_failures.txt:1: a known failure is written `test_name[id]  # why it fails`"),
        ("\ntest_bytes[a]  # b\ntest_bytes[a]  # c", "known_failures.txt:3: test_bytes[a] is named twice"),
    ],
)
def test_known_failures_that_say_nothing_are_refused(samples: Path, lines: str, sentence: str) -> None:
    (samples / "known_failures.txt").write_text(lines + "\n")
    with pytest.raises(SampleError) as raised:
        known_failures(Suite(plugin, samples))
    assert str(raised.value) == f"{samples}/{sentence}"


def test_a_module_without_its_suite_is_told_so(samples: Path) -> None:
    text = TEST_MODULE.replace("SUITE = ", "OTHER = ")
    assert "test_conformance: has no SUITE = Suite(plugin, samples)" in taken(samples, text=text).stdout


def test_what_is_expected_is_proposed(samples: Path) -> None:
    path = samples / "toy1" / "norm" / "expected.json"
    given = json.loads(path.read_text())
    path.unlink()
    command = [sys.executable, "-m", "bitwise_conformance.suite", "bitwise_toy.plugin", str(samples)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"wrote {path}: check it\n", "")
    assert json.loads(path.read_text()) == {"classes": given["classes"], "trees": given["trees"]}
