"""The suite itself: a sound plugin passes it, and each kind of broken one fails the law that is there for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path

import pytest

from bitwise_conformance import suite as laws
from bitwise_conformance.suite import Suite
from bitwise_conformance.suite.cases import LAWS, every_id
from bitwise_core.asm import Immediate, Instruction, Module
from bitwise_core.machine.arch import BitPatterns, Builder, Context, OpcodeTable
from bitwise_core.machine.state import Machine, Step
from bitwise_core.machine.terms import TermDomain
from bitwise_core.mma import FusedSum
from bitwise_core.numeric import operation
from bitwise_toy import plugin
from toy_plugins import MAC, SAMPLES, TOY1, failing, module, opcode, outcomes


def test_a_sound_plugin_passes() -> None:
    suite = Suite(plugin, SAMPLES)
    name = "bitwise_toy.plugin"
    assert outcomes(suite) == {
        "test_every_launch[toy1-unclaimed]": "skipped: toy1 does not claim to be read for every launch",
        "test_trees_have_the_recorded_bytes[toy1-norm-loop.toy]": (
            "skipped: the trees of loop.toy hold operations of toy1's own, which only runs evaluate"
        ),
        "test_a_profile_declines_what_it_does_not_know[unclaimed]": f"skipped: {name} hands over no profiles",
        "test_a_launcher_returns_what_is_evaluated[unclaimed]": f"skipped: {name} hands over no launchers",
    }
    assert len(every_id(suite)) == len(set(every_id(suite)))


def test_every_law_is_exported() -> None:
    assert {name for name in laws.__all__ if name.startswith("test_")} == set(LAWS)


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
    if distance != Immediate(3):
        return old(instruction, context)
    other = replace(instruction, operands=(destination, source, Immediate(2)))
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
    assert failing(Suite(module(opcode(name, build)), SAMPLES), changes=True) == broken


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


def test_a_parser_that_takes_cut_texts_is_seen() -> None:
    def parse(text: str, file: str) -> Module:
        body = text.removesuffix("}\n").rstrip()
        return TOY1.parse(f"{body}\n  end\n}}\n" if not body.endswith("end") else text, file)

    assert failing(Suite(module(replace(TOY1, parse=parse)), SAMPLES)) == {"test_a_cut_text_is_refused"}


def test_a_parser_that_breaks_on_damaged_texts_is_seen() -> None:
    def parse(text: str, file: str) -> Module:
        if "\0" in text:
            raise IndexError("list index out of range")
        return TOY1.parse(text, file)

    assert failing(Suite(module(replace(TOY1, parse=parse)), SAMPLES)) == {"test_a_cut_text_is_refused"}


@pytest.mark.parametrize("lost", ["@p0 ", " + 32", "TURN:\n"])
def test_a_text_that_is_written_wrong_is_seen(lost: str) -> None:
    def write(given: Module) -> str:
        assert TOY1.write is not None
        return TOY1.write(given).replace(lost, "")

    assert failing(Suite(module(replace(TOY1, write=write)), SAMPLES)) == {"test_a_text_is_written"}


def test_signatures_that_change_are_seen() -> None:
    numbers = count()

    def unsteady(old: Builder, instruction: Instruction, context: Context) -> Step:
        unsteadily = operation(f"rcp.approx.fp32@toy1.{next(numbers)}")
        destination, source = instruction.operands

        def step(machine: Machine) -> None:
            machine.write(destination, machine.domain.floating(unsteadily, [machine.read_bits(source, 32)]))

        return step

    broken = failing(Suite(module(opcode("rcp", unsteady)), SAMPLES))
    assert {"test_a_kernel_is_read", "test_classes"} <= broken


HASHED = """
from dataclasses import replace
from bitwise_core.hookspecs import hookimpl
from bitwise_core.machine.arch import OpcodeTable
from bitwise_core.numeric import operation
from bitwise_toy.plugin import TOY1

def rcp(instruction, context):
    destination, source = instruction.operands
    hashed = operation(f"rcp.approx.fp32@toy1.{hash('rcp')}")
    return lambda machine: machine.write(
        destination, machine.domain.floating(hashed, [machine.read_bits(source, 32)])
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
        "test_trees_have_the_recorded_bytes",
    }
