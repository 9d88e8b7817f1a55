"""The example plugin and faulty variants of it, for tests of the conformance suite."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bitwise_conformance import suite as laws
from bitwise_conformance.suite import Suite
from bitwise_conformance.suite.cases import LAWS
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Arch, Builder, Context, OpcodeTable
from bitwise_core.execution.instruction_info import Describe
from bitwise_core.execution.machine import Step
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_toy import plugin
from bitwise_toy.architecture import TOY1

(MAC,) = plugin.bitwise_matrix_units()
SAMPLES = Path(plugin.__file__).parents[2] / "tests" / "samples"


def module(*arches: Arch, units: Iterable[MmaSpec] = (MAC,), **hooks: Iterable[Any]) -> ModuleType:
    """Return a plugin module whose hooks return these."""
    found = ModuleType("broken_toy")
    results = {"bitwise_arches": arches, "bitwise_matrix_units": units, **hooks}
    for name, several in results.items():

        def hook(several: Iterable[Any] = several) -> Iterable[Any]:
            return several

        setattr(found, name, hookimpl(hook))
    return found


def outcomes(suite: Suite, *excluded: str) -> dict[str, str]:
    """Return the reasons of the cases that fail or are skipped, by id; `excluded` laws are not run."""
    found: dict[str, str] = {}
    for law, collect in LAWS.items():
        if law in excluded:
            continue
        for case in collect(suite):
            try:
                getattr(laws, law)(suite, case)
            except pytest.skip.Exception as skipped:
                found[f"{law}[{case.id}]"] = f"skipped: {skipped.msg}"
            except (pytest.fail.Exception, Exception) as error:
                found[f"{law}[{case.id}]"] = str(error)
    return found


CHANGES = "test_changed_kernels_are_not_equal"


def failing(suite: Suite, *, changes: bool = False) -> set[str]:
    """Return the laws that a plugin violates; the slow law of mutations is run only with `changes`.

    The comparison with another process is not run, since it cannot import these plugins.
    """
    found = outcomes(suite, "test_signatures_are_stable", *(() if changes else (CHANGES,)))
    return {name.split("[")[0] for name, why in found.items() if not why.startswith("skipped: ")}


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def declared(name: str, describe: Describe) -> Arch:
    """toy1 with one opcode declared otherwise."""
    table = OpcodeTable(TOY1.opcodes)
    table.opcodes[name] = replace(table.opcodes[name], describe=describe)
    return replace(TOY1, opcodes=table)


def opcode(name: str, build: Callable[[Builder, Instruction, Context], Step]) -> Arch:
    """Return toy1 with one opcode replaced by a function of its original."""
    table = OpcodeTable(TOY1.opcodes)
    old = table.opcodes[name]

    def builder(instruction: Instruction, context: Context) -> Step:
        return build(old.build, instruction, context)

    table.opcodes[name] = replace(old, build=builder)
    return replace(TOY1, opcodes=table)
