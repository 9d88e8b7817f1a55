"""The example's plugin, and plugins like it with a fault, as the suite takes them."""

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
from bitwise_core.asm import Instruction
from bitwise_core.hookspecs import hookimpl
from bitwise_core.machine.arch import Arch, Builder, Context, OpcodeTable
from bitwise_core.machine.instruction_info import Describe
from bitwise_core.machine.state import Step
from bitwise_core.mma import MmaSpec
from bitwise_toy import plugin

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


CHANGES = "test_changed_kernels_are_not_equal"


def failing(suite: Suite, *, changes: bool = False) -> set[str]:
    """The laws that a plugin breaks, that of changed kernels, which takes long, only where `changes` asks for it.

    What another process makes of it is not asked: it cannot import these.
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
    """toy1 with one opcode stated otherwise, over what it was."""
    table = OpcodeTable(TOY1.opcodes)
    old = table.opcodes[name]

    def builder(instruction: Instruction, context: Context) -> Step:
        return build(old.build, instruction, context)

    table.opcodes[name] = replace(old, build=builder)
    return replace(TOY1, opcodes=table)
