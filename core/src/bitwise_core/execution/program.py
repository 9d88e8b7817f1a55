"""A kernel's instructions as executable steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, pairwise, repeat
from operator import is_, is_not
from typing import Any

from bitwise_core.assembly.module import Instruction, Kernel, Module, Symbol, parts
from bitwise_core.execution.architecture import Arch, Context, UnknownInstruction, infos_of
from bitwise_core.execution.control_flow import EXIT, postdominators
from bitwise_core.execution.deferred_selects import deferred_select
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.known_sequences import KnownSequence
from bitwise_core.execution.machine import (
    Branch,
    ConditionalEnd,
    Control,
    Exit,
    Jump,
    Machine,
    Predicated,
    Return,
    SkippableRegion,
    Step,
    conjunction,
    invert,
)
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import poison

_DEFERRED_LANES = 1 << 20
"""How many lanes of selects of one place of local memory are deferred, which bounds what they keep."""


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions, their steps and infos by index, and the reconvergence point of each guarded branch.

    `following` lists the successors of each instruction (EXIT: none), a branch's targets first.  `joins` are the
    indices of the labelled instructions, where divergent groups of lanes are merged.  `refused` gives the reason why an
    instruction is not modelled, and `known_refusals` the reasons that are known before an instruction is built.
    `storage` maps the name of a register to that under which it is kept.
    `architecture` is the name of the architecture, `execution_mask` the storage of its execution mask, if any, and
    `under_one_key` and `sequences` the functions of `Arch`.
    `analyses` caches facts about the program by their keys.
    """

    kernel: Kernel
    steps: tuple[Step, ...]
    infos: tuple[InstructionInfo, ...]
    reconvergence: Mapping[int, int]
    joins: frozenset[int]
    functions: Mapping[str, Program]
    following: tuple[tuple[int, ...], ...]
    refused: Mapping[int, str]
    known_refusals: Mapping[int, str]
    storage: Callable[[str], str]
    architecture: str
    execution_mask: str | None
    under_one_key: Callable[[Machine, str], None] | None
    sequences: Callable[[Kernel, Sequence[InstructionInfo], int, int], Iterable[KnownSequence]] | None
    analyses: dict[Any, Any] = field(init=False, compare=False, repr=False, default_factory=dict)


_LATEST: list[tuple[Module, Kernel, Arch, Program]] = []
"""The program that was built last, which analyses of one kernel in several ways build repeatedly."""


def build(module: Module, kernel: Kernel, arch: Arch) -> Program:
    """Return the program of a kernel and of the device functions that it may call.

    An instruction that the architecture does not model becomes a step that raises Unsupported when it is reached.
    """
    for known, entry, target, program in tuple(_LATEST):
        if known is module and entry is kernel and target is arch:
            return program
    functions: dict[str, Program] = {}
    _add_functions(module, kernel, arch, functions)
    program = _program(module, kernel, arch, functions)
    _LATEST[:] = [(module, kernel, arch, program)]
    return program


def _add_functions(module: Module, kernel: Kernel, arch: Arch, found: dict[str, Program]) -> None:
    stack = [kernel] if module.functions else []
    while stack:
        caller = stack.pop()
        for instruction, info in zip(caller.instructions, infos_of(caller, arch.opcodes), strict=True):
            if not info.effects.overlaps(Effect.CALL):
                continue
            for operand in instruction.operands:
                name = operand.name if isinstance(operand, Symbol) else ""
                if name in module.functions and name not in found:
                    found[name] = _program(module, module.functions[name], arch, found)
                    stack.append(module.functions[name])


def _program(module: Module, kernel: Kernel, arch: Arch, functions: Mapping[str, Program]) -> Program:
    context = Context(module, kernel, arch)
    infos = infos_of(kernel, arch.opcodes)
    known = arch.opcodes.known_refusals(kernel)
    found = {} if known is None else dict(known)
    refused: Mapping[int, str] = found
    if known is None:
        steps = tuple(_step(index, info, context, found) for index, info in enumerate(infos))
    else:
        deferred = tuple(_DeferredStep(index, info, context, found) for index, info in enumerate(infos))
        steps, refused = deferred, Refusals(found, deferred)
    following = successors(kernel, infos)
    joins = frozenset(kernel.labels.values())
    reconvergence = {
        index: postdominator
        for index, postdominator in postdominators(following).items()
        if kernel.instructions[index].guard is not None or Effect.CONDITIONAL in infos[index].effects
    }
    keys = arch.storage, arch.name, arch.execution_mask, arch.under_one_key, arch.sequences
    return Program(kernel, steps, infos, reconvergence, joins, functions, following, refused, dict(found), *keys)


def successors(kernel: Kernel, infos: Sequence[InstructionInfo]) -> tuple[tuple[int, ...], ...]:
    """Return the successors of each instruction (EXIT: the thread ends), a branch's targets first.

    An instruction that ends the launch without a result has none: where no lane takes its side of a branch, the lanes
    join where the other side continues, and a lane that takes it leaves nothing to compare.
    """
    for instructions, known, following in _FOLLOWING:
        if instructions is kernel.instructions and known is infos:
            return following
    following = tuple(_successors(index, kernel, info.effects) for index, info in enumerate(infos))
    _FOLLOWING[:] = [*_FOLLOWING[1 - _MOST_FOLLOWED :], (kernel.instructions, infos, following)]
    return following


_MOST_FOLLOWED = 4
_FOLLOWING: list[tuple[Sequence[Instruction], Sequence[InstructionInfo], tuple[tuple[int, ...], ...]]] = []
"""The successors that were found last: several analyses of one kernel ask for them."""


def _successors(index: int, kernel: Kernel, effects: Effect) -> tuple[int, ...]:
    following = index + 1 if index + 1 < len(kernel.instructions) else EXIT
    if not effects.overlaps(_CONTROL_TRANSFER):
        return (following,)
    guarded = kernel.instructions[index].guard is not None
    if Effect.END in effects:
        ends = () if Effect.ABORT in effects else (EXIT,)
        return (*ends, following) if guarded else ends
    places = labels_of(index, kernel)
    targets = tuple(place if place < len(kernel.instructions) else EXIT for place in places)
    return (*targets, following) if guarded or Effect.CONDITIONAL in effects else targets


_CONTROL_TRANSFER = Effect.BRANCH | Effect.END


def labels_of(index: int, kernel: Kernel) -> list[int]:
    """Return the indices of the labels among an instruction's operands, in operand order."""
    operands = kernel.instructions[index].operands
    names = (each.name for operand in operands for each in parts(operand) if isinstance(each, Symbol))
    return [kernel.labels[name] for name in names if name in kernel.labels]


class _DeferredStep:
    """The step of an instruction, which is built when it is first executed, or when it is asked whether it can be."""

    __slots__ = ("_arguments", "_step")

    def __init__(self, index: int, info: InstructionInfo, context: Context, refused: dict[int, str]) -> None:
        self._arguments: tuple[int, InstructionInfo, Context, dict[int, str]] | None = index, info, context, refused
        self._step: Step | None = None

    def build(self) -> Step:
        """Return the step, which is built if it was not."""
        if self._step is None:
            assert self._arguments is not None
            self._step, self._arguments = _step(*self._arguments), None
        return self._step

    def __call__(self, machine: Machine) -> Control | None:
        """Execute the step."""
        return (self._step or self.build())(machine)


class Refusals(Mapping[int, str]):
    """Why instructions are not modelled, by position.  An instruction that was not built is built to find out."""

    def __init__(self, found: dict[int, str], steps: Sequence[_DeferredStep]) -> None:
        self._found, self._steps = found, steps

    def __getitem__(self, index: int) -> str:
        if index not in self._found and 0 <= index < len(self._steps):
            self._steps[index].build()
        return self._found[index]

    def __iter__(self) -> Iterator[int]:
        return (index for index in range(len(self._steps)) if index in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _step(index: int, info: InstructionInfo, context: Context, refused: dict[int, str]) -> Step:
    instruction = context.kernel.instructions[index]
    try:
        step = context.arch.opcodes.build(instruction, context)
    except UnknownInstruction as error:
        refused[index] = str(error)
        return _refusal(str(error), instruction.line)
    if instruction.guard is None or Effect.BRANCH in info.effects:
        return step
    guard = instruction.guard
    guarded = _guarded(step, guard.register, guard.negated, instruction.line, refusal_under_condition(info))
    return context.arch.opcodes.with_guard(guarded, instruction, context)


def _refusal(reason: str, line: int) -> Step:
    def refuse(machine: Machine) -> Control | None:
        raise Unsupported(reason, line)

    return refuse


def refusal_under_condition(info: InstructionInfo) -> str | None:
    """Return why an instruction cannot be executed by lanes that data selects, or None if it can."""
    effects = info.effects
    if effects.overlaps(Effect.BARRIER):
        return "a barrier depends on data"
    if effects.overlaps(Effect.ASYNCHRONOUS):
        return "an asynchronous copy depends on data"
    if effects.overlaps(Effect.CLUSTER):
        return "an access to the shared memory of a cluster depends on data"
    return None


def _guarded(step: Step, register: str, negated: bool, line: int, refusal: str | None) -> Step:
    def run(machine: Machine) -> Control | None:
        predicate = machine.registers.get(register)
        if predicate is None:
            raise Unsupported(f"the predicate {register} is used before it is written", line)
        if negated:
            predicate = invert(machine.domain, predicate)
        active = machine.known(predicate)
        if active is not None:
            return _under_mask(machine, step, active)
        if refusal is not None:
            raise DataDependent(refusal, line, (predicate,))
        return _under_condition(machine, step, predicate, line)

    return run


def _under_mask(machine: Machine, step: Step, active: Array) -> Control | None:
    outer = machine.mask
    inner = active if outer is None else active & outer
    if inner.all() or (outer is not None and outer is machine.owned and not (outer & ~active).any()):
        return step(machine)
    if not inner.any():
        return None
    machine.mask = inner
    try:
        control = step(machine)
    finally:
        machine.mask = outer
    if control is None or isinstance(control, Predicated):
        return control
    assert not isinstance(
        control, Branch | Jump | SkippableRegion | ConditionalEnd
    )  # a branch evaluates its guard itself
    return Predicated(control, inner)


def _under_condition(machine: Machine, step: Step, predicate: Value, line: int) -> Control | None:
    assert isinstance(predicate, SymbolicVector)
    before, local, parameters = dict(machine.registers), dict(machine.local), dict(machine.parameters)
    outer, mask = machine.condition, machine.mask
    inner = possible_lanes(predicate, mask)
    if inner is not None and not inner.any():
        return None
    machine.condition, machine.mask = conjunction(machine.domain, outer, predicate), inner
    try:
        control = step(machine)
    finally:
        machine.condition, machine.mask = outer, mask
    if isinstance(control, Exit | Return):
        return ConditionalEnd(predicate)
    if control is not None:
        raise DataDependent("whether this jump is executed depends on data", line)
    machine.registers = merged_values(machine, predicate, machine.registers, before)
    machine.parameters = merged_values(machine, predicate, machine.parameters, parameters)
    merge_local(machine, predicate, machine.local, local)
    return None


def possible_lanes(predicate: Value, mask: Array | None) -> Array | None:
    """Return the active lanes without those in which a predicate on data is known to be false."""
    if not isinstance(predicate, SymbolicVector) or L.lazy_integers(predicate) is not None:
        return mask
    impossible = L.equals_constant(predicate, 0)
    if impossible is False:
        return mask
    return ~impossible if mask is None else mask & ~impossible


def merged_values(
    machine: Machine, predicate: Value, if_true: Mapping[str, Value], if_false: Mapping[str, Value]
) -> dict[str, Value]:
    """Return registers or parameters after two alternatives: a predicate on data selects the value of each lane."""
    merged = dict(if_false)
    for name, value in _differences(if_true, if_false):
        other = if_false.get(name)
        if other is None or width(other) != width(value):
            other = poison(width(value))
        merged[name] = machine.domain.select(predicate, value, other)
    return merged


def _differences(left: Mapping[str, Value], right: Mapping[str, Value]) -> Iterable[tuple[str, Value]]:
    """Return the entries of a mapping that are no entries of another one, in order."""
    if len(left) >= len(right) and all(map(is_, left, right)):
        # The usual case of a copy that a few instructions changed: names are in one order, and some may follow.
        return compress(left.items(), chain(map(is_not, left.values(), right.values()), repeat(True)))
    return [(name, value) for name, value in left.items() if right.get(name) is not value]


WIDTHS_DIFFER = "local memory is written in different widths under a condition on data"


def merge_local(
    machine: Machine, predicate: Value, if_true: Mapping[int, Value], if_false: Mapping[int, Value]
) -> None:
    """Set local memory after two alternatives: a predicate on data selects the value of each lane.

    A value that only one alternative wrote is used for both.  In the other one the location is undefined, and a program
    that reads it has no defined result.  Library functions write their arrays again before they read them, so that most
    of these selects are never computed.  Raises Unsupported if the two alternatives wrote different widths.
    """
    merged = {**if_false, **if_true}
    depth = _DEFERRED_LANES // (machine.blocks * machine.threads)
    for place, value in if_true.items():
        other = if_false.get(place)
        if other is None or other is value:
            continue
        if width(other) != width(value):
            raise DataDependent(WIDTHS_DIFFER)
        merged[place] = deferred_select(machine, predicate, value, other, depth)
    if if_true.keys() != if_false.keys():
        places = sorted(merged)
        if any(one + width(merged[one]) // 8 > other for one, other in pairwise(places)):
            raise DataDependent(WIDTHS_DIFFER)
    machine.local = merged
