# ruff: noqa: D103 - the name of a test says what it asserts
"""Every architecture's samples: they parse, every instruction is stated, and verdicts are what they must be."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import pytest

from bitwise_conformance import mutants
from bitwise_conformance.suite.samples import Sample, every_sample, samples_of
from bitwise_core import registry
from bitwise_core.checker import Options, Outcome, Reading, Source, buffer_numbers, read, verdict
from bitwise_core.machine.arch import Context

SAMPLES = every_sample()
each_sample = pytest.mark.parametrize(
    ("target", "sample"), SAMPLES, ids=[f"{target}-{s.name}" for target, s in SAMPLES]
)
OPTIONS = Options(trust_text=True)


def reading_of(target: str, sample: Sample, text: str) -> Reading:
    names = {name for each in samples_of(target) if each.group == sample.group for name in each.launch.buffers()}
    return read(
        Source(sample.name, text, sample.launch), registry.default().arch(target), buffer_numbers(names), OPTIONS
    )


@cache
def original(target: str, name: str) -> Reading:
    (sample,) = (each for each in samples_of(target) if each.name == name)
    return reading_of(target, sample, sample.text)


@pytest.mark.parametrize("target", sorted(registry.default().arches))
def test_names_of_samples_are_unique(target: str) -> None:
    names = [sample.name for sample in samples_of(target)]
    if not names:
        pytest.skip(f"no plugin hands over samples of {target}: implement the hook bitwise_samples")
    assert len(set(names)) == len(names)


@each_sample
def test_a_sample_parses_the_same_way_twice(target: str, sample: Sample) -> None:
    arch = registry.default().arch(target)
    module = arch.parse(sample.text, sample.name)
    assert module == arch.parse(sample.text, sample.name)
    assert module.target in arch.targets
    lines = sample.text.count("\n") + 1
    instructions = module.kernel(sample.launch.entry).instructions
    assert instructions
    assert all(1 <= instruction.line <= lines for instruction in instructions)


@each_sample
def test_every_instruction_of_a_sample_is_stated(target: str, sample: Sample) -> None:
    arch = registry.default().arch(target)
    module = arch.parse(sample.text, sample.name)
    for kernel in (*module.kernels, *module.functions.values()):
        for instruction in kernel.instructions:
            assert callable(arch.opcodes.build(instruction, Context(module, kernel, arch)))


@each_sample
def test_a_sample_is_read_the_same_way_twice(target: str, sample: Sample) -> None:
    found = original(target, sample.name)
    assert found.unknown is None
    assert found.signature == reading_of(target, sample, sample.text).signature


@pytest.mark.parametrize("target", sorted(registry.default().arches))
def test_samples_of_one_value_are_equal_and_of_two_are_not(target: str) -> None:
    wrong = []
    for left, right in combinations(samples_of(target), 2):
        if left.group != right.group:
            continue
        found = verdict(original(target, left.name), original(target, right.name), OPTIONS).outcome
        if found is not (Outcome.EQUAL if left.value == right.value else Outcome.DIFFERENT):
            wrong.append((left.name, right.name, found))
    assert wrong == []


@each_sample
def test_listed_changes(target: str, sample: Sample) -> None:
    for before, after in (*sample.different, *sample.equal):
        assert before in sample.text
        found = reading_of(target, sample, sample.text.replace(before, after, 1))
        outcome = verdict(original(target, sample.name), found, OPTIONS).outcome
        assert (outcome is Outcome.EQUAL) == ((before, after) in sample.equal), (before, after)


@each_sample
def test_random_changes_of_ptx(target: str, sample: Sample) -> None:
    if registry.default().arch(target).extension != ".ptx":
        pytest.skip("random changes are made of PTX only; list changes in the sample")
    kernel = mutants.Kernel(sample.name, sample.text, sample.launch)
    judged = mutants.judge(kernel, mutants.mutants(sample.text, sample.name, 24, VALUE_KINDS), target)
    assert len(judged) >= 8
    assert sum(one.outcome is Outcome.EQUAL for one in judged) * 2 < len(judged)
    assert [(one.mutant.after, one.reason) for one in judged if mutants.CRASH in one.reason] == []
    same = mutants.judge(kernel, mutants.variants(sample.text, sample.name), target)
    assert [(one.mutant.kind, one.reason) for one in same if one.outcome is not Outcome.EQUAL] == []


VALUE_KINDS = (
    "rounding",
    "swapped operands",
    "swapped lanes",
    "reassociated",
    "shuffle distance",
    "load offset",
    "store offset",
    "matrix step",
    "matrix descriptor",
    "operation",
    "wait dropped",
    "barrier dropped",
)
"""Kinds of change that nearly always change what a kernel returns."""
