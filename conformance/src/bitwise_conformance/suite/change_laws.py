"""A law of changes: whatever changes the bytes that a kernel returns is not Equal to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from bitwise_conformance.suite import cases
from bitwise_conformance.suite.cases import over
from bitwise_conformance.suite.changes import changed
from bitwise_conformance.suite.expected import Kernel
from bitwise_conformance.suite.reading import OPTIONS, read_source, reading, reads, run
from bitwise_conformance.suite.suite import Suite
from bitwise_conformance.time_limit import OutOfTime, time_limit
from bitwise_core.asm import Module
from bitwise_core.checker import Outcome, Source, verdict
from bitwise_core.machine.arch import Arch
from bitwise_core.machine.lanes import Array

TRIED, SECONDS = 40, 20.0
"""How many changes of a kernel are tried at most, and how long each may run."""


@over(
    cases.claimed(
        "runs on bit patterns, which tell a change that matters",
        lambda arch: arch.bits is not None,
        lambda kernel: bool(kernel.group.expected.runs),
        "add a run to an expected.json",
    )
)
def test_changed_kernels_are_not_equal(suite: Suite, kernel: Kernel) -> None:
    """A change of one literal, operand or instruction that changes the bytes of a run is never Equal."""
    arch = suite.arch(kernel.group.arch)
    equal, told = [], 0
    for what, module in _that_matter(arch, kernel):
        told += 1
        source = replace(kernel.group.source(kernel.file), text=what)
        found = read_source(reads(arch, module), kernel.group, source)
        if verdict(reading(suite, kernel), found, OPTIONS).outcome is Outcome.EQUAL:
            equal.append(what)
    assert equal == [], "these change the bytes and come back Equal"
    assert told, "no change was found that changes the bytes: the recorded runs tell nothing apart"


def _that_matter(arch: Arch, kernel: Kernel) -> Iterator[tuple[str, Module]]:
    """The changes, of those that are tried, that run to their end and leave other bytes."""
    group, source = kernel.group, kernel.group.source(kernel.file)
    assert source.launch is not None
    inputs = [group.contents(each.before) for each in group.expected.runs]
    plain = [run(arch, source, before) for before in inputs]
    for what, module in islice(
        changed(arch.parse(source.text, source.name), source.launch.entry, arch.opcodes, kernel.id), TRIED
    ):
        if any(
            _differs(reads(arch, module), replace(source, text=what), *each) for each in zip(inputs, plain, strict=True)
        ):
            yield what, module


def _differs(arch: Arch, source: Source, before: dict[str, Array], plain: dict[str, Array]) -> bool:
    """Whether a run leaves other bytes; one that does not come to its end tells nothing."""
    try:
        with time_limit(SECONDS):
            found = run(arch, source, before)
    except (OutOfTime, Exception):  # a changed kernel may be anything
        return False
    return any(not np.array_equal(found[name], content) for name, content in plain.items())
