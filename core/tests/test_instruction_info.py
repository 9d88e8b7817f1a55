"""Declarations of opcodes: what an instruction reads and writes, and which declarations are rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bitwise_core.assembly.module import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Operand,
    Paired,
    Register,
    Symbol,
    Vector,
)
from bitwise_core.execution.architecture import OpcodeTable
from bitwise_core.execution.instruction_info import (
    DESTINATION_FIRST,
    NO_DESTINATION,
    UPDATED_FIRST,
    Effect,
    InstructionInfo,
    Operands,
)

A, B, C, P = (Register(name) for name in ("a", "b", "c", "p"))


def table(operands: Any = DESTINATION_FIRST, effects: Any = Effect.NONE) -> OpcodeTable:
    found = OpcodeTable()
    found.opcode("op", operands=operands, effects=effects)(lambda instruction, context: lambda machine: None)
    return found


def info(operands: Operands, *given: Operand, guard: Guard | None = None) -> tuple[set[str], set[str]]:
    """Return the registers that an instruction with these operands reads, and those that it writes."""
    found = table(operands).info(Instruction("op", given, guard, 1))
    return set(found.reads), set(found.writes)


@pytest.mark.parametrize(
    ("operands", "given", "reads", "writes"),
    [
        (DESTINATION_FIRST, (A, B, Immediate(1)), {"b"}, {"a"}),
        (DESTINATION_FIRST, (A, A, B), {"a", "b"}, {"a"}),
        (DESTINATION_FIRST, (Vector((A, B)), Address(C)), {"c"}, {"a", "b"}),
        (DESTINATION_FIRST, (Paired(A, P), B), {"b"}, {"a", "p"}),
        (DESTINATION_FIRST, (Register("_"), B), {"b"}, set()),
        (DESTINATION_FIRST, (Address(A, 4, (B,)), C), {"a", "b", "c"}, set()),
        (DESTINATION_FIRST, (Symbol("name"), B), {"b"}, set()),
        (DESTINATION_FIRST, (), set(), set()),
        (NO_DESTINATION, (Address(A), B), {"a", "b"}, set()),
        (UPDATED_FIRST, (A, B), {"a", "b"}, {"a"}),
        (Operands(writes=(1,), updates=(0,)), (A, B, C), {"a", "c"}, {"a", "b"}),
    ],
)
def test_operands_are_read_and_written_by_position(
    operands: Operands, given: tuple[Operand, ...], reads: set[str], writes: set[str]
) -> None:
    assert info(operands, *given) == (reads, writes)


def test_a_guarded_instruction_reads_its_guard_and_its_destinations() -> None:
    assert info(DESTINATION_FIRST, A, B, guard=Guard("p")) == ({"a", "b", "p"}, {"a"})
    assert info(NO_DESTINATION, A, guard=Guard("p", True)) == ({"a", "p"}, set())


def test_an_undeclared_instruction_may_read_and_write_all_its_operands() -> None:
    found = OpcodeTable().info(Instruction("strange", (A, Address(B)), None, 1))
    assert found == InstructionInfo(frozenset("ab"), frozenset("ab"), Effect.NONE)


def test_effects_may_depend_on_the_instruction() -> None:
    def effects(instruction: Instruction) -> Effect:
        return Effect.INTEGER if instruction.opcode.endswith(".i") else Effect.NONE

    found = table(effects=effects)
    assert found.info(Instruction("op.i", (A, B), None, 1)).effects is Effect.INTEGER
    assert found.info(Instruction("op.f", (A, B), None, 1)).effects is Effect.NONE


def whole_info(instruction: Instruction) -> InstructionInfo:
    return InstructionInfo(frozenset({"in"}), frozenset({"out"}), Effect.LOAD)


def test_a_function_may_return_the_whole_info() -> None:
    found = table(whole_info, None).info(Instruction("op", (A,), Guard("p"), 1))
    assert found == InstructionInfo(frozenset({"in", "out", "p"}), frozenset({"out"}), Effect.LOAD)


@pytest.mark.parametrize(
    ("declare", "sentence"),
    [
        (lambda: OpcodeTable().opcode("op"), "op: the declaration does not say which operands are written and read"),
        (lambda: table(None), "op: the declaration does not say which operands are written and read"),
        (lambda: table(effects=None), "op: the declaration does not say what the instruction does besides"),
        (lambda: table(whole_info), "op: the function given as operands= returns the effects; leave effects= out"),
    ],
)
def test_an_incomplete_declaration_is_rejected(declare: Callable[[], object], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        declare()


def test_an_opcode_cannot_be_declared_twice() -> None:
    with pytest.raises(ValueError, match="the opcode op is declared twice"):
        OpcodeTable(table(), table())
