"""The forms of instructions: their texts without the names of their registers.

Instructions of one form compute one function of the registers on which their results depend, in the order in which the
text has them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import repeat

from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register, parts, registers_of
from bitwise_core.execution.instruction_info import Effect, InstructionInfo, once_a_text
from bitwise_core.execution.program import Program

_PERMISSIONS = Effect.MOVE | Effect.INTEGER | Effect.LANEWISE


class _Numbers(dict[str, int]):
    """A number for each name that was asked for."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        NAMES.append(name)
        return number


NAMES: list[str] = []
"""The names of registers and storages by number."""
NUMBERS = _Numbers()
"""The numbers of these names."""
_FORM_NUMBERS: dict[tuple[int, str], int] = {}
"""The number of each form of a text."""


@dataclass(frozen=True, eq=False)
class InstructionText:
    """What all instructions of one text read and write, and the form of the text.

    `keys` are the storages of all registers that the instruction reads, those on which the result depends where all
    lanes are active first (`whole` of them); `written` are those that it writes.  `lanewise`: it computes one register,
    each lane by itself.
    """

    instruction: Instruction
    info: InstructionInfo
    storage: Callable[[str], str]
    keys: tuple[str, ...]
    whole: int
    written: tuple[str, ...]
    lanewise: bool

    @cached_property
    def names(self) -> tuple[tuple[str, int], ...]:
        """The registers on which the result depends where all lanes are active, in an order without their names.

        With each comes the place of its storage in `keys`.  Few instructions belong to a cone.
        """
        info = self.info
        wanted = info.reads - info.retained
        numbers: dict[str, int] = {}
        for position, operand in enumerate(self.instruction.operands):
            if isinstance(operand, Immediate) or position in info.overwritten:
                continue
            for each in parts(operand):
                if isinstance(each, Register) and each.name in wanted:
                    numbers.setdefault(each.name, len(numbers))
        if len(numbers) < len(wanted):
            for name in _sorted(wanted.difference(numbers)):
                numbers[name] = len(numbers)
        place = {key: number for number, key in enumerate(self.keys)}
        return tuple([(name, place[self.storage(name)]) for name in numbers])

    @cached_property
    def key_numbers(self) -> tuple[int, ...]:
        """The numbers of `keys`."""
        return tuple([NUMBERS[key] for key in self.keys])

    @cached_property
    def written_numbers(self) -> tuple[int, ...]:
        """The numbers of `written`."""
        return tuple([NUMBERS[key] for key in self.written])

    @cached_property
    def slots(self) -> tuple[int, ...]:
        """The place in `keys` of the storage of each of `names`."""
        return tuple([slot for _, slot in self.names])

    @cached_property
    def name_numbers(self) -> tuple[int, ...]:
        """The numbers of `names`."""
        return tuple([NUMBERS[name] for name, _ in self.names])

    @cached_property
    def form_number(self) -> int:
        """The number of the form together with that of the names."""
        return _FORM_NUMBERS.setdefault((len(self.names), self.form), len(_FORM_NUMBERS))

    @cached_property
    def form(self) -> str:
        """The text with the registers of `names` numbered in their order.  Few instructions belong to a cone."""
        numbers = {name: number for number, (name, _) in enumerate(self.names)}
        only_written: set[str] = set()
        named: set[str] = set()
        found = [self.instruction.opcode]
        for position, operand in enumerate(self.instruction.operands):
            if isinstance(operand, Immediate):
                found.append(f"{operand.value} {operand.kind}")
            elif position in self.info.overwritten:
                only_written |= registers_of(operand)
                found.append("written" if isinstance(operand, Register) else repr(_renamed(operand, {})))
            else:
                named |= registers_of(operand)
                if not isinstance(operand, Register):
                    found.append(repr(_renamed(operand, numbers)))
                elif operand.name in numbers:
                    found.append(f"register {numbers[operand.name]}")
                else:
                    found.append("written")
        found += [
            f"implicit {number}" for name, number in numbers.items() if name not in named and name not in only_written
        ]
        return "; ".join(found)


@lru_cache(maxsize=1024)
def may_be_member(effects: Effect) -> bool:
    """Return whether an instruction with these effects may belong to a cone."""
    return effects.overlaps(Effect.LANEWISE) and not effects & ~_PERMISSIONS


@once_a_text
def _text_of(instruction: Instruction, info: InstructionInfo, storage: Callable[[str], str]) -> InstructionText:
    keys = dict.fromkeys(map(storage, info.reads - info.retained if info.retained else info.reads))
    whole = len(keys)
    if info.retained:
        keys.update(dict.fromkeys(map(storage, info.reads)))
    written = tuple(dict.fromkeys(map(storage, info.writes)))
    lanewise = may_be_member(info.effects) and len(written) == 1
    return InstructionText(
        instruction,
        info,
        storage,
        tuple(keys),
        whole,
        written,
        lanewise and (info.writes == set(written) or len(info.writes) > 1),
    )


def texts_of(program: Program) -> list[InstructionText]:
    """Return the record of the text of each instruction; equal texts have one."""
    found: list[InstructionText] | None = program.analyses.get("texts of cones")
    if found is None:
        found = list(map(_text_of, program.kernel.instructions, program.infos, repeat(program.storage)))
        program.analyses["texts of cones"] = found
    return found


@lru_cache(maxsize=1024)
def _sorted(names: frozenset[str]) -> list[str]:
    return sorted(names)


def _renamed(operand: Operand, names: Mapping[str, Hashable]) -> Hashable:
    """Return an operand with its registers renamed; a register that is written only has no name."""
    if type(operand) is Immediate:
        return operand
    if isinstance(operand, Register):
        return names.get(operand.name, "written")
    inner = tuple(parts(operand))
    if inner == (operand,):
        return operand
    changes = getattr(operand, "changes", ()), getattr(operand, "offset", 0)
    return type(operand).__name__, changes, tuple(_renamed(each, names) for each in inner)
