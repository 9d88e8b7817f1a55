"""The law of mutations: a mutation that changes the bytes of a kernel is not Equal to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bitwise_conformance.suite import cases
from bitwise_conformance.suite.analysis import OPTIONS, analyse_source, analysis, run, with_module
from bitwise_conformance.suite.cases import over
from bitwise_conformance.suite.mutations import mutations_of
from bitwise_conformance.suite.samples import Kernel
from bitwise_conformance.suite.suite import Suite
from bitwise_conformance.suite.time_limit import TimeLimitExceeded, time_limit
from bitwise_core.checker.sources import Source
from bitwise_core.checker.verdicts import Outcome, verdict
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.values.symbolic_vector import Array

MUTATIONS_VARIABLE = "BITWISE_CONFORMANCE_MUTATIONS"
MAX_MUTATIONS, RUN_SECONDS = int(os.environ.get(MUTATIONS_VARIABLE, "40")), 20.0
"""The most mutations tried for each sample, if one of them changes bytes, and the time limit of each run in seconds.

Architectures of one plugin that have the sample divide them: these share the plugin's parser and opcodes.
"""


@over(
    cases.claimed(
        "execution on bit patterns, which shows whether a mutation changes bytes",
        lambda arch: arch.bits is not None,
        lambda kernel: bool(kernel.group.expected.runs),
        "add a run to an expected.json",
    )
)
def test_changed_kernels_are_not_equal(suite: Suite, kernel: Kernel) -> None:
    """A mutation of one literal, operand or instruction that changes the bytes of a run is never Equal."""
    arch = suite.arch(kernel.group.arch)
    equal, count = [], 0
    for what, changed in _effective_mutations(arch, kernel, -(-MAX_MUTATIONS // _architectures_with(suite, kernel))):
        count += 1
        source = replace(kernel.group.source(kernel.file), text=what)
        found = analyse_source(changed, kernel.group, source)
        if verdict(analysis(suite, kernel), found, OPTIONS).outcome is Outcome.EQUAL:
            equal.append(what)
    assert equal == [], "these mutations change the bytes and are Equal"
    assert count, "no mutation changes the bytes of the recorded runs; add a run with other inputs"


def _architectures_with(suite: Suite, kernel: Kernel) -> int:
    """Return how many architectures of a plugin have a sample with this name that is run."""
    name = kernel.group.folder.name, kernel.file
    return sum((each.group.folder.name, each.file) == name and bool(each.group.expected.runs) for each in suite.kernels)


def _effective_mutations(arch: Arch, kernel: Kernel, count: int) -> Iterator[tuple[str, Arch]]:
    """Yield the mutations, of `count` that are tried, that terminate with other bytes.

    Each is a sentence, and the architecture with a parser that returns the mutated module.  Where none of these changes
    bytes, more are tried until one does.
    """
    group, source = kernel.group, kernel.group.source(kernel.file)
    assert source.launch is not None
    inputs = [group.contents(each.before) for each in group.expected.runs]
    plain = [run(arch, source, before) for before in inputs]
    drawn = mutations_of(arch.parse(source.text, source.name), source.launch.entry, arch.opcodes, kernel.id)
    is_effective = False
    for number, (what, module) in enumerate(drawn):
        if number >= count and is_effective:
            return
        changed = with_module(arch, module)  # one, so that its program is built once
        if any(_differs(changed, replace(source, text=what), *each) for each in zip(inputs, plain, strict=True)):
            is_effective = True
            yield what, changed


def _differs(arch: Arch, source: Source, before: dict[str, Array], plain: dict[str, Array]) -> bool:
    """Return whether a run leaves other bytes; False if it fails or exceeds the time limit."""
    try:
        with time_limit(RUN_SECONDS):
            found = run(arch, source, before)
    except (TimeLimitExceeded, Exception):  # a mutated kernel may fail in any way
        return False
    return any(not np.array_equal(found[name], content) for name, content in plain.items())
