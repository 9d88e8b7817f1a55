"""Rounds on kernels whose threads may run in several orders: their results must not depend on the order.

A kernel whose result the checker takes to be determined is executed in several orders on the CPU, and many times on a
GPU that other work disturbs.  All executions of all Equal kernels must leave the same bytes in every buffer.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bitwise_bench.adversary import pair_rounds
from bitwise_bench.adversary.block_programs import BlockProgram
from bitwise_bench.adversary.device import Device
from bitwise_bench.adversary.judging import canonical
from bitwise_bench.adversary.kernels import CELLS, DTYPES, PARTS
from bitwise_bench.adversary.pair_rounds import BLOCKS, Trial
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.scopes import Scope
from bitwise_conformance.suite.time_limit import TimeLimitExceeded, time_limit
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Source
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.interleavings import ORDERS, run_in_order

ANALYSIS_SECONDS = 10
"""How long a kernel is analysed, and executed in one order."""
REPETITIONS = 60
"""How often a kernel runs on a GPU on one input."""
_TYPES = {**DTYPES, CELLS: "u32", PARTS: "fp32"}


@dataclass
class OrderedTally:
    """What rounds found: numbers of kernels and of executions, and the kernels whose executions differ."""

    kernels: int = 0
    determined: int = 0
    reasons: list[str] = field(default_factory=list)
    equal: int = 0
    executions: int = 0
    launches: int = 0
    wrong: list[tuple[str, str, str]] = field(default_factory=list)
    wrong_on_device: list[tuple[str, str, str]] = field(default_factory=list)


def play(
    programs: Sequence[BlockProgram], scope: Scope, dice: random.Random, tally: OrderedTally, device: Device | None
) -> None:
    """Judge every program of one family whose result the checker takes to be determined."""
    classes: dict[Hashable, list[BlockProgram]] = {}
    tally.kernels += len(programs)
    for program in programs:
        try:
            with time_limit(ANALYSIS_SECONDS):
                (form,), reasons = pair_rounds.analysed([program], scope)
        except TimeLimitExceeded:
            form, reasons = None, [f"{program.source}: the analysis takes too long"]
        tally.reasons += reasons
        if form is not None:
            # The form of a program on a large grid is a number among the programs that are analysed together.
            key = (form, program.text_key()) if program.blocks > BLOCKS else form
            classes.setdefault(key, []).append(program)
    seed = dice.randrange(1 << 30)
    for members in classes.values():
        tally.determined += len(members)
        tally.equal += len(members) - 1
        _judge(members, scope, seed, tally)
        if device is not None:
            _judge_on_device(members, scope, seed, tally, device, dice)


def _judge(members: Sequence[BlockProgram], scope: Scope, seed: int, tally: OrderedTally) -> None:
    trials = [each.trials(scope, seed) for each in members]
    for number in range(len(trials[0])):
        first: tuple[BlockProgram, dict[str, Array]] | None = None
        for program, own in zip(members, trials, strict=True):
            for found in _in_orders(program, own[number], scope):
                tally.executions += 1
                if first is None:
                    first = program, found
                elif different := _difference(first[1], found):
                    tally.wrong.append((first[0].text_key(), program.text_key(), different))
                    return


def _in_orders(program: BlockProgram, trial: Trial, scope: Scope) -> Iterator[dict[str, Array]]:
    """Yield the elements of every buffer after an execution in each order that completes."""
    kernel = trial.kernel
    launch = kernel.launch(_blocks(program))
    zeros = {name: np.zeros(kernel.bytes_of(name, _blocks(program)), dtype=np.uint8) for name in launch.buffers()}
    contents = {**zeros, **trial.contents}
    prepared = prepare(Source("kernel", kernel.text, launch), program.language.arch, scope.options)
    for order in ORDERS:
        try:
            with time_limit(ANALYSIS_SECONDS):
                after = run_in_order(prepared, contents, order, finite=scope.finite).after
        except (Unsupported, TimeLimitExceeded):
            continue
        yield _elements(program, trial, after)


def _blocks(program: BlockProgram) -> int:
    """Return the number of blocks that are executed: a large grid is not executed in full."""
    return min(program.blocks, BLOCKS)


def _elements(program: BlockProgram, trial: Trial, after: Mapping[str, Array]) -> dict[str, Array]:
    """Return the elements of the buffers that a kernel may store to."""
    found = {}
    for name, rows in after.items():
        if name in _TYPES:
            whole = rows[: trial.kernel.bytes_of(name, _blocks(program))]
            found[name] = canonical(whole[: whole.size // 8 * 8], _TYPES[name])
    return found


def _difference(first: dict[str, Array], second: dict[str, Array]) -> str:
    """Return the place of an element that differs, or nothing."""
    for name in sorted(first.keys() & second.keys()):
        size = min(first[name].size, second[name].size)
        unequal = (first[name][:size] != second[name][:size]).nonzero()[0]
        if unequal.size:
            at = int(unequal[0])
            return f"{name}[{at}]: {int(first[name][at]):#x} and {int(second[name][at]):#x}"
    return ""


def _judge_on_device(
    members: Sequence[BlockProgram],
    scope: Scope,
    seed: int,
    tally: OrderedTally,
    device: Device,
    dice: random.Random,
) -> None:
    if scope.finite:
        return
    trials = [each.trials(scope, seed) for each in members]
    for number in range(len(trials[0])):
        first: tuple[BlockProgram, dict[str, Array]] | None = None
        for program, own in zip(members, trials, strict=True):
            runs = device.run_often(own[number].kernel, _blocks(program), own[number].contents, REPETITIONS, dice)
            for after in runs:
                tally.launches += 1
                found = _elements(program, own[number], after)
                if first is None:
                    first = program, found
                elif different := _difference(first[1], found):
                    tally.wrong_on_device.append((first[0].text_key(), program.text_key(), different))
                    return
