"""Plugins and the vocabulary of operations: the operations of the samples, and the error for a misspelt name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import bitwise_amd_gfx942.plugin
import bitwise_nvidia_sm90.plugin
import bitwise_toy.plugin
from bitwise_conformance.suite import Suite
from bitwise_conformance.suite.analysis import analyse_sample
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.ir.nodes import Constant, Node
from bitwise_core.ir.nodes import Operation as OperationNode
from bitwise_core.numerics import Operation, UnknownOperation, operation

ROOT = Path(__file__).parents[1]
SUITES = (
    Suite(bitwise_toy.plugin, ROOT / "examples/toy_arch/tests/samples"),
    Suite(bitwise_nvidia_sm90.plugin, ROOT / "plugins/nvidia_sm90/tests/samples"),
    Suite(bitwise_amd_gfx942.plugin, ROOT / "plugins/amd_gfx942/tests/samples"),
)


@pytest.mark.parametrize("suite", SUITES, ids=("toy1", "sm_90", "gfx942"))
def test_every_operation_of_a_sample_is_in_the_vocabulary(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[Operation] = set()
    floating, integer = TermDomain.floating, TermDomain.integer

    def noted_floating(self: TermDomain, meaning: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        used.add(meaning)
        return floating(self, meaning, operands, properties)

    def noted_integer(self: TermDomain, meaning: Operation, operands: Sequence[Value]) -> Value:
        used.add(meaning)
        return integer(self, meaning, operands)

    monkeypatch.setattr(TermDomain, "floating", noted_floating)
    monkeypatch.setattr(TermDomain, "integer", noted_integer)
    for kernel in suite.kernels:
        analyse_sample(suite.arch(kernel.group.arch), kernel)
    assert used
    for each in used:
        assert operation(each.name) is each
        operands: tuple[Node, ...] = tuple(Constant(form.bits, 0) for form in each.operands)
        assert OperationNode(each.name, operands).meaning is each


def test_a_plugin_with_a_misspelt_operation_is_refused_with_the_nearest_name() -> None:
    text = Path(next(iter(bitwise_toy.__path__)), "opcodes.py").read_text()
    misspelt = text.replace('"add.b64"', '"addd.b64"')
    assert misspelt != text
    with pytest.raises(UnknownOperation, match=r"no operation 'addd\.b64': .* name is 'add\.b64'"):
        exec(compile(misspelt, "opcodes.py", "exec"), {"__name__": "misspelt"})
