"""The suite itself: a correct plugin passes, and each kind of faulty plugin fails the corresponding law."""

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
from bitwise_core.assembly.module import Immediate, Instruction, Module
from bitwise_core.execution.architecture import BitSupport, Builder, Context, OpcodeTable
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import (
    DESTINATION_FIRST,
    NO_DESTINATION,
    Describe,
    Effect,
    InstructionInfo,
    Operands,
    info_from_roles,
)
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.numerics import operation
from bitwise_core.numerics.mma import FusedSum
from bitwise_toy import plugin
from toy_plugins import CHANGES, MAC, SAMPLES, TOY1, declared, failing, module, opcode, outcomes


def test_a_correct_plugin_passes() -> None:
    suite = Suite(plugin, SAMPLES)
    name = "bitwise_toy.plugin"
    assert outcomes(suite) == {
        "test_every_launch[toy1-unclaimed]": "skipped: toy1 does not claim the launch-parametric analysis",
        "test_trees_evaluate_to_recorded_bytes[toy1-norm-loop.toy]": (
            "skipped: the trees of loop.toy contain operations of toy1 that only execution evaluates"
        ),
        "test_profiles_decline_unknown_configurations[unclaimed]": f"skipped: {name} provides no profiles",
        "test_launchers_match_the_evaluation[unclaimed]": f"skipped: {name} provides no launchers",
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
    """A sum with exchanged operands: the same value from another tree."""
    return (
        with_operands(old, instruction, context, 0, 2, 1)
        if instruction.opcode == "add.f"
        else old(instruction, context)
    )


def blind_swap(old: Builder, instruction: Instruction, context: Context) -> Step:
    """A swap over a distance of 3 becomes one over 2, in trees only."""
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
def test_an_instruction_with_other_semantics_is_detected(
    name: str, build: Callable[[Builder, Instruction, Context], Step], broken: set[str]
) -> None:
    # A plugin that is wrong in both domains alike breaks no law of mutations, which takes most of the time.
    assert failing(Suite(module(opcode(name, build)), SAMPLES), changes=CHANGES in broken) == broken


LAW = "test_instructions_match_their_declarations"


def writing_all(instruction: Instruction) -> InstructionInfo:
    """Every register of the instruction is declared to be written."""
    info = DESTINATION_FIRST.info(instruction, Effect.LOAD)
    return replace(info, writes=info.reads | info.writes)


@pytest.mark.parametrize(
    ("name", "describe", "said"),
    [
        ("add", info_from_roles(NO_DESTINATION, Effect.NONE), "writes r"),
        ("mul", info_from_roles(Operands(writes=(0, 1)), Effect.NONE), ", which it does not declare"),
        ("mac", info_from_roles(Operands(writes=(0, 3)), Effect.NONE), "mac reads r"),
        ("store", info_from_roles(Operands(writes=(1,)), Effect.STORE), "store reads r"),
        ("store", info_from_roles(NO_DESTINATION, Effect.LOAD), "store has the effect STORE"),
        ("load", info_from_roles(DESTINATION_FIRST, Effect.NONE), "load has the effect LOAD"),
        ("load", writing_all, ", which is read later, and does not"),
        ("jump", info_from_roles(NO_DESTINATION, Effect.NONE), "jump has the effect BRANCH"),
        ("load", info_from_roles(Operands(writes=(0,), updates=(1,)), Effect.LOAD), ""),
        ("end", info_from_roles(NO_DESTINATION, Effect.NONE), "end has the effect END"),
    ],
)
def test_an_instruction_that_differs_from_its_declaration_is_detected(name: str, describe: Describe, said: str) -> None:
    found = outcomes(Suite(module(declared(name, describe)), SAMPLES), "test_signatures_are_stable", CHANGES)
    broken = {law: why for law, why in found.items() if not why.startswith("skipped: ")}
    assert {law.split("[")[0] for law in broken} == ({LAW} if said else set())
    assert all(said in why for why in broken.values()), broken


def read_again(old: Builder, instruction: Instruction, context: Context) -> Step:
    """The instruction, which then reads its operands once more."""
    inner = old(instruction, context)

    def step(machine: Machine) -> None:
        inner(machine)
        for each in instruction.operands[1:]:
            machine.read(each)

    return step


def test_an_instruction_that_reads_an_operand_after_it_has_written_one_is_detected() -> None:
    found = outcomes(Suite(module(opcode("mul", read_again)), SAMPLES), "test_signatures_are_stable", CHANGES)
    broken = {law: why for law, why in found.items() if not why.startswith("skipped: ")}
    assert {law.split("[")[0] for law in broken} == {LAW}
    assert all("after it has written a register" in why for why in broken.values()), broken


def test_an_unmodelled_instruction_is_detected() -> None:
    table = OpcodeTable(TOY1.opcodes)
    del table.opcodes["rcp"]
    found = outcomes(Suite(module(replace(TOY1, opcodes=table)), SAMPLES), "test_signatures_are_stable", CHANGES)
    message = found["test_every_instruction_is_modelled[toy1-norm-unrolled.toy]"]
    assert "line 9: the instruction rcp.f is not modelled" in message
    assert "test_kernels_are_analysed[toy1-norm-unrolled.toy]" in found
    assert "test_every_instruction_is_modelled[toy1-matrix-two_steps.toy]" not in found


def test_a_nondeterministic_parser_is_detected() -> None:
    numbers = count()

    def parse(text: str, file: str) -> Module:
        return replace(TOY1.parse(text, file), version=str(next(numbers)))

    assert failing(Suite(module(replace(TOY1, parse=parse)), SAMPLES)) == {
        "test_parsing_is_deterministic",
        "test_written_texts_parse_back",
    }


def test_a_parser_that_accepts_truncated_texts_is_detected() -> None:
    def parse(text: str, file: str) -> Module:
        body = text.removesuffix("}\n").rstrip()
        return TOY1.parse(f"{body}\n  end\n}}\n" if not body.endswith("end") else text, file)

    assert failing(Suite(module(replace(TOY1, parse=parse)), SAMPLES)) == {"test_damaged_texts_are_rejected"}


def test_a_parser_that_crashes_on_damaged_texts_is_detected() -> None:
    def parse(text: str, file: str) -> Module:
        if "\0" in text:
            raise IndexError("list index out of range")
        return TOY1.parse(text, file)

    assert failing(Suite(module(replace(TOY1, parse=parse)), SAMPLES)) == {"test_damaged_texts_are_rejected"}


@pytest.mark.parametrize("lost", ["@p0 ", " + 32", "TURN:\n"])
def test_a_wrong_printer_is_detected(lost: str) -> None:
    def write(given: Module) -> str:
        assert TOY1.write is not None
        return TOY1.write(given).replace(lost, "")

    assert failing(Suite(module(replace(TOY1, write=write)), SAMPLES)) == {"test_written_texts_parse_back"}


def test_nondeterministic_signatures_are_detected() -> None:
    numbers = count()

    def unsteady(old: Builder, instruction: Instruction, context: Context) -> Step:
        unsteadily = operation(f"rcp.approx.fp32@toy1.{next(numbers)}")
        destination, source = instruction.operands

        def step(machine: Machine) -> None:
            machine.write(destination, machine.domain.floating(unsteadily, [machine.read_bits(source, 32)]))

        return step

    broken = failing(Suite(module(opcode("rcp", unsteady)), SAMPLES))
    assert {"test_kernels_are_analysed", "test_classes"} <= broken


HASHED = """
from dataclasses import replace
from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.execution.architecture import OpcodeTable
from bitwise_core.numerics import operation
from bitwise_toy.architecture import TOY1

def rcp(instruction, context):
    destination, source = instruction.operands
    hashed = operation(f"rcp.approx.fp32@toy1.{hash('rcp')}")
    return lambda machine: machine.write(
        destination, machine.domain.floating(hashed, [machine.read_bits(source, 32)])
    )

TABLE = OpcodeTable(TOY1.opcodes)
TABLE.opcodes["rcp"] = replace(TABLE.opcodes["rcp"], build=rcp)

@hookimpl
def bitwise_arches():
    return [replace(TOY1, opcodes=TABLE, bits=None)]
"""


def test_signatures_that_depend_on_string_hashes_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hashed_toy.py").write_text(HASHED)
    monkeypatch.syspath_prepend(tmp_path)
    suite = Suite(import_module("hashed_toy"), SAMPLES)
    failed = {name for name, why in outcomes(suite).items() if not why.startswith("skipped: ")}
    # The text of a tree names the operation, so that the expected tree differs too.
    assert failed == {"test_signatures_are_stable[plugin]", "test_trees[toy1-norm-loop.toy]"}


def test_a_wrong_matrix_row_is_detected() -> None:
    wrong = replace(MAC, arithmetic=FusedSum(products=2, fraction_bits=23, mantissa_bits=23, rounding="rz"))
    arch = replace(TOY1, bits=BitSupport(TOY1.bits.functions if TOY1.bits else {}, (wrong,)))
    assert failing(Suite(module(arch, units=[wrong]), SAMPLES)) == {
        "test_matrix_unit_vectors",
        "test_bytes",
        "test_trees_evaluate_to_recorded_bytes",
    }
