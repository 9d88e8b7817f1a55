"""Laws of the semantics of kernels: signatures, equivalence classes, trees and bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import combinations

import pytest

from bitwise_conformance.suite import cases
from bitwise_conformance.suite.analysis import (
    EVERY_LAUNCH,
    OPTIONS,
    analyse_sample,
    analyse_source,
    analysis,
    run,
    signatures,
    tree,
)
from bitwise_conformance.suite.cases import over
from bitwise_conformance.suite.samples import Change, Group, Kernel
from bitwise_conformance.suite.suite import Suite
from bitwise_conformance.suite.tree_evaluation import place_of, value_of
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Outcome, verdict
from bitwise_core.ir import text as tree_text
from bitwise_core.numerics import Unevaluable


@over(cases.kernels)
def test_kernels_are_analysed(suite: Suite, kernel: Kernel) -> None:
    """Every sample is analysed, and two analyses in one process give one signature."""
    arch = suite.arch(kernel.group.arch)
    found = analysis(suite, kernel)
    assert found.unknown is None
    assert analyse_sample(arch, kernel).signature == found.signature, "two analyses give different signatures"


@over(cases.once)
def test_signatures_are_stable(suite: Suite, whole: Suite) -> None:
    """A process with another PYTHONHASHSEED gives every sample the same signature."""
    expected = signatures(suite)
    if not expected:
        pytest.skip(f"{suite.plugin.__name__} has no samples of kernels")
    command = [
        sys.executable,
        "-m",
        "bitwise_conformance.suite.print_signatures",
        suite.plugin.__name__,
        str(suite.samples),
    ]
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


@over(cases.groups)
def test_classes(suite: Suite, group: Group) -> None:
    """Kernels of one class are proved equal; the canonical forms of kernels of two classes differ."""
    numbers = {file: number for number, files in enumerate(group.expected.classes) for file in files}
    found = {file: analysis(suite, Kernel(group, file)) for file in group.launches}
    assert _wrong(found, numbers, OPTIONS) == []


def _wrong(found: dict[str, AnalysisResult], numbers: dict[str, int], options: Options) -> list[str]:
    wrong = []
    for left, right in combinations(numbers, 2):
        said = verdict(found[left], found[right], options)
        if said.outcome is not (Outcome.EQUAL if numbers[left] == numbers[right] else Outcome.UNPROVED):
            wrong.append(f"{left} and {right} are {said.outcome}: {said.reason}")
    return wrong


@over(
    cases.claimed(
        "the launch-parametric analysis",
        lambda arch: arch.every_launch is not None,
        lambda kernel: any(kernel.file in files for files in kernel.group.expected.every_launch),
        "list kernels under every_launch in an expected.json",
    )
)
def test_every_launch(suite: Suite, kernel: Kernel) -> None:
    """Kernels are Equal for every launch exactly within their class, and then Equal for their own launch too."""
    arch, group = suite.arch(kernel.group.arch), kernel.group
    numbers = {file: number for number, files in enumerate(group.expected.every_launch) for file in files}
    here = analyse_sample(arch, kernel, EVERY_LAUNCH)
    assert here.unknown is None
    for file, number in numbers.items():
        there = analysis(suite, Kernel(group, file), EVERY_LAUNCH)
        equal = verdict(here, there, EVERY_LAUNCH).outcome is Outcome.EQUAL
        assert equal == (number == numbers[kernel.file]), f"{kernel.file} and {file} for every launch"
        if equal:
            at_its_own = verdict(analysis(suite, kernel), analysis(suite, Kernel(group, file)), OPTIONS)
            assert at_its_own.outcome is Outcome.EQUAL, f"{kernel.file} and {file} at their launch"


@over(
    cases.claimed(
        "the analysis of kernels",
        lambda arch: True,
        lambda kernel: kernel.file in kernel.group.expected.trees,
        "add a tree to an expected.json",
    )
)
def test_trees(suite: Suite, kernel: Kernel) -> None:
    """Trees are the expected ones, and their text parses back to the same tree."""
    arch = suite.arch(kernel.group.arch)
    for element, lines in kernel.group.expected.trees[kernel.file].items():
        found = tree(arch, kernel, element)
        text = tree_text.write(found)
        assert text.splitlines() == list(lines), element
        assert tree_text.read(text) == (found,), f"{element}: the text parses to another tree"


@over(
    cases.optional(
        "tree in a group with a run",
        lambda kernel: kernel.file in kernel.group.expected.trees and bool(kernel.group.expected.runs),
    )
)
def test_trees_evaluate_to_recorded_bytes(suite: Suite, kernel: Kernel) -> None:
    """A tree of arithmetic operations, evaluated on the bytes before a run, gives the bytes after it."""
    arch, group = suite.arch(kernel.group.arch), kernel.group
    units = {} if arch.bits is None else arch.bits.units
    evaluated = 0
    for element, lines in group.expected.trees[kernel.file].items():
        (root,) = tree_text.read("\n".join(lines))
        for recorded in group.expected.runs:
            expected = group.contents(recorded.after[group.class_of(kernel.file)])
            buffer, offset = place_of(element, root)
            try:
                found = value_of(root, group.contents(recorded.before), units)
            except Unevaluable:
                continue  # an operation specific to the architecture
            size = root.bits // 8
            assert found.to_bytes(size, "little") == expected[buffer][offset : offset + size].tobytes(), element
            evaluated += 1
    if not evaluated:
        pytest.skip(f"the trees of {kernel.file} contain operations of {arch.name} that only execution evaluates")


@over(
    cases.claimed(
        "execution on bit patterns",
        lambda arch: arch.bits is not None,
        lambda kernel: bool(kernel.group.expected.runs),
        "add a run with the bytes that the hardware returned to an expected.json",
    )
)
def test_bytes(suite: Suite, kernel: Kernel) -> None:
    """Execution on bit patterns leaves the recorded bytes in every buffer."""
    arch, group = suite.arch(kernel.group.arch), kernel.group
    for recorded in group.expected.runs:
        found = run(arch, group.source(kernel.file), group.contents(recorded.before))
        expected = group.contents(recorded.after[group.class_of(kernel.file)])
        assert expected, f"the run of {recorded.source} has no buffers after it"
        for name, content in expected.items():
            assert found[name].tobytes().hex() == content.tobytes().hex(), f"{name}, recorded on {recorded.source}"


@over(
    cases.claimed(
        "the analysis of kernels",
        lambda arch: True,
        lambda kernel: any(each.kernel == kernel.file for each in kernel.group.expected.different),
        "list a change of the result of a kernel under `different` in an expected.json",
    )
)
def test_listed_changes(suite: Suite, kernel: Kernel) -> None:
    """A listed change is Equal to its kernel or not, as the sample states."""
    group = kernel.group
    outcomes = {each: _outcome(suite, kernel, each) for each in (*group.expected.different, *group.expected.equal)
                if each.kernel == kernel.file}  # fmt: skip
    assert [each for each in group.expected.different if outcomes.get(each) is Outcome.EQUAL] == []
    assert [each for each in group.expected.equal if outcomes.get(each, Outcome.EQUAL) is not Outcome.EQUAL] == []


def _outcome(suite: Suite, kernel: Kernel, change: Change) -> Outcome:
    text = kernel.group.text(kernel.file)
    assert change.before in text, f"{kernel.file} does not contain {change.before!r}"
    changed = Source(kernel.file, text.replace(change.before, change.after, 1), kernel.group.launches[kernel.file])
    return verdict(
        analysis(suite, kernel), analyse_source(suite.arch(kernel.group.arch), kernel.group, changed), OPTIONS
    ).outcome
