"""A law of declarations: an instruction reads and writes the registers that its opcode declares, and no others."""

from __future__ import annotations

import numpy as np

from bitwise_conformance.suite import cases
from bitwise_conformance.suite.analysis import OPTIONS
from bitwise_conformance.suite.cases import over
from bitwise_conformance.suite.observed_programs import observed
from bitwise_conformance.suite.samples import Kernel
from bitwise_conformance.suite.suite import Suite
from bitwise_core.checker.analysis import prepare
from bitwise_core.execution.simulation import simulate


@over(
    cases.claimed(
        "runs on bit patterns, in which declarations are observed",
        lambda arch: arch.bits is not None,
        lambda kernel: True,
        "add a kernel",
    )
)
def test_instructions_match_their_declarations(suite: Suite, kernel: Kernel) -> None:
    """While a sample runs, each step reads and writes the declared registers and goes where its effects say.

    It reads all of its operands before it writes a register: in another instruction, both may be the same one.
    """
    arch, group = suite.arch(kernel.group.arch), kernel.group
    ready, found = observed(prepare(group.source(kernel.file), arch, OPTIONS))
    if group.expected.runs:
        for recorded in group.expected.runs:
            simulate(ready, group.contents(recorded.before))
    else:
        given = ready.launch.given()
        simulate(ready, {name: np.zeros(0, np.uint8) for name in group.buffers if name not in given}, open_ended=True)
    differences = found.differences()
    assert differences == [], "\n".join(differences)
