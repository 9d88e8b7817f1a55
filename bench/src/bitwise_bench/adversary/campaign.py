"""Rounds of the adversary: programs, classes, bytes, and what was found."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bitwise_bench.adversary import execution, kernel_mutants, loops, ordered_rounds, pair_rounds
from bitwise_bench.adversary.block_programs import block_programs
from bitwise_bench.adversary.classes import analyse, grouped
from bitwise_bench.adversary.device import Device, DeviceError, DeviceStuck
from bitwise_bench.adversary.findings import Finding, finding, opcodes_of
from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.judging import canonical, difference, pair_difference
from bitwise_bench.adversary.kernel_families import synchronised_kernels
from bitwise_bench.adversary.kernel_families.families import FAMILIES
from bitwise_bench.adversary.kernel_mutants import WrongMutant
from bitwise_bench.adversary.kernels import DTYPES, KernelText
from bitwise_bench.adversary.pair_rounds import WholeProgram, WrongPair
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.programs import STORES, Program, distinct, written
from bitwise_bench.adversary.record import COUNTS
from bitwise_bench.adversary.scopes import AUDITED, SCOPES, Scope
from bitwise_bench.adversary.shrinking import BLOCKS, context_of, shrunk, witness
from bitwise_bench.adversary.sources import SOURCES, Source
from bitwise_bench.adversary.vendor_pairs import vendor_pair
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.output_files import write_text

DEVICE_BLOCKS = 256
"""The blocks of an execution on a GPU, on other inputs than those of the CPU."""
MOST_CONTEXTS = 4
"""The pairs, Equal only together with other programs, for which one worker finds these programs."""
MOST_FINDINGS = 12
"""The pairs that one worker shrinks."""


@dataclass
class Tally:
    """The counts of a run, by scope and source, and what was found."""

    programs: Counter[str] = field(default_factory=Counter)
    equal: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    covered: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    on_device: Counter[str] = field(default_factory=Counter)
    device_wrong: Counter[str] = field(default_factory=Counter)
    optimiser: Counter[str] = field(default_factory=Counter)
    simulation: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    device_differences: list[dict[str, Any]] = field(default_factory=list)
    unshrunk: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    wrong_mutants: list[WrongMutant] = field(default_factory=list)
    wrong_pairs: list[WrongPair] = field(default_factory=list)
    kernels_not_judged: Counter[str] = field(default_factory=Counter)
    seen: set[bytes] = field(default_factory=set)
    contexts: int = 0

    def portable(self) -> dict[str, Any]:
        """Return the counts and lists as a JSON value."""
        return {
            **{name: dict(getattr(self, name.replace(" ", "_"))) for name in COUNTS},
            "findings": [
                *(each.entry() for each in self.findings),
                *(each.entry() for each in self.wrong_mutants),
                *(each.entry() for each in self.wrong_pairs),
            ],
            "device differences": self.device_differences,
            "wrong pairs that were not reproduced alone": self.unshrunk[:20],
            "errors": self.errors,
        }


@dataclass(frozen=True)
class Round:
    """One round: a language, a scope, and a source of programs with its random numbers."""

    language: Language
    scope: Scope
    name: str
    source: Source
    dice: random.Random
    seed: int
    count: int = 80


def play(turn: Round, tally: Tally, device: Device | None) -> None:
    """Make programs, ask the checker, and judge every Equal by bytes."""
    language, scope = turn.language, turn.scope
    programs = distinct(turn.source(turn.language.material, turn.dice, turn.count))
    where = f"{language.name}, {scope.name}"
    if not programs:
        return
    analysed = analyse(programs, language, scope)
    tally.programs[where] += len(programs)
    tally.unknown[where] += len(analysed.reasons)
    for reason in analysed.reasons:
        tally.reasons[reason.split(": ", 1)[-1][:120]] += 1
    classes = _new_classes(programs, grouped(analysed.forms), scope, tally)
    members = [programs[index] for each in classes for index in each]
    if not members:
        return
    kernel = language.kernel(members)
    contents = language.inputs(kernel, BLOCKS, turn.seed, finite=scope.finite)
    try:
        executed = execution.run(kernel, language, BLOCKS, contents, finite=scope.finite)
    except Unsupported as error:
        # Programs share registers, so a kernel of several may be refused where each of them is not.
        tally.reasons[f"classes are not executed together: {error}"[:120]] += 1
        return
    start = 0
    for each in classes:
        for number in range(1, len(each)):
            _judge(turn, tally, programs, members, executed, start, start + number)
        start += len(each)
    if device is not None and language.name == "ptx":
        _judge_on_device(turn, tally, device, kernel, members, classes, executed, contents)


def _new_classes(programs: Sequence[Program], classes: list[list[int]], scope: Scope, tally: Tally) -> list[list[int]]:
    """Return the classes without the programs that an earlier round compared with the same first program."""
    found = []
    for each in classes:
        first = written(programs[each[0]])
        kept = [each[0]]
        for index in each[1:]:
            text = f"{scope.name}\0{first}\0{written(programs[index])}"
            key = hashlib.blake2b(text.encode(), digest_size=8).digest()
            if key not in tally.seen:
                tally.seen.add(key)
                kept.append(index)
        if len(kept) > 1:
            found.append(kept)
    return found


def _judge(
    turn: Round,
    tally: Tally,
    programs: Sequence[Program],
    members: Sequence[Program],
    executed: execution.Executed,
    left: int,
    right: int,
) -> None:
    scope, language = turn.scope, turn.language
    where = f"{language.name}, {scope.name}, {members[right].source}"
    tally.equal[where] += 1
    dtype = DTYPES[STORES[members[left].store].buffer]
    found = pair_difference(executed, left, right, dtype)
    if found is None:
        return
    if found.covered:
        tally.covered[where] += 1
        return
    tally.wrong[f"{where}, {'with' if found.with_nan else 'without'} NaN"] += 1
    alike = [each for each in tally.findings if each.with_nan == found.with_nan]
    if len(alike) >= MOST_FINDINGS or _explained(members[left], members[right], alike):
        return
    seeds = (turn.seed, turn.seed + 1, turn.seed + 2)
    seen = witness(members[left], members[right], language, scope, seeds, with_nan=found.with_nan)
    if seen is None:
        text = f"{written(members[left])} and {written(members[right])}"
        if tally.contexts < MOST_CONTEXTS and not scope.options.every_launch:
            tally.contexts += 1
            others = context_of(programs, (members[left], members[right]), language, scope)
            seen = witness(
                members[left], members[right], language, scope, seeds, with_nan=found.with_nan, context=others
            )
            text += ", in a kernel with: " + " | ".join(written(each) for each in others)
        if seen is None:
            tally.unshrunk.append(text)
            return
    small = finding(shrunk(seen, language, scope), language, scope)
    if all(small.opcodes != other.opcodes for other in tally.findings):
        tally.findings.append(small)


def _explained(left: Program, right: Program, findings: Sequence[Finding]) -> bool:
    """Return whether a finding uses only operations of this pair."""
    opcodes = opcodes_of(left, right)
    return any(found.opcodes <= opcodes for found in findings)


def _judge_on_device(
    turn: Round,
    tally: Tally,
    device: Device,
    kernel: KernelText,
    members: Sequence[Program],
    classes: Sequence[Sequence[int]],
    executed: execution.Executed,
    contents: dict[str, Array],
) -> None:
    """Run the kernel on a GPU: on the same inputs, and where no assumption excludes inputs, on more.

    A difference that is not there without optimisation by the assembler is counted as the assembler's.
    """
    language, scope = turn.language, turn.scope
    runs = [_DeviceRun(device, kernel, language, BLOCKS, contents)]
    if not scope.finite:
        more = language.inputs(kernel, DEVICE_BLOCKS, turn.seed + 1, finite=False)
        runs.append(_DeviceRun(device, kernel, language, DEVICE_BLOCKS, more))
    for index, program in enumerate(members):
        _compare_with_simulation(turn, tally, program, runs[0], executed, index)
    start = 0
    for each in classes:
        for number in range(1, len(each)):
            left, right = start, start + number
            where = f"{language.name}, {scope.name}, {members[right].source}"
            tally.on_device[where] += 1
            dtype = DTYPES[STORES[members[left].store].buffer]
            for done in runs:
                allowed = _allowed(executed, left, right) if done is runs[0] else None
                found = difference(done.optimised[left], done.optimised[right], dtype, allowed)
                if found is not None:
                    plain = difference(done.plain[left], done.plain[right], dtype, allowed)
                    (tally.optimiser if plain is None else tally.device_wrong)[where] += 1
                    what = "pair, optimised" if plain is None else "pair"
                    values = done.optimised[left], done.optimised[right]
                    _note(turn, tally, what, members[left], members[right], *values, found.sample)
                    break
        start += len(each)


class _DeviceRun:
    """The bytes of the programs of a kernel on a GPU; `optimised` and `plain`: as the assembler does by default or not.

    The kernel is assembled and run without optimisation when `plain` is first asked for.
    """

    def __init__(
        self, device: Device, kernel: KernelText, language: Language, blocks: int, contents: dict[str, Array]
    ) -> None:
        self._run = partial(device.run, kernel, language, blocks, contents)
        self.optimised: list[Array] = self._run()

    @cached_property
    def plain(self) -> list[Array]:
        return self._run(optimised=False)


def _compare_with_simulation(
    turn: Round, tally: Tally, program: Program, done: _DeviceRun, executed: execution.Executed, index: int
) -> None:
    dtype = DTYPES[STORES[program.store].buffer]
    simulated, nans = executed.results[index], executed.nans[index]
    tally.simulation["programs compared with the GPU"] += 1
    # The NaN of a sign change and of fp64 arithmetic is not specified (see `BitsDomain`).
    found = difference(done.optimised[index], simulated, dtype, nans=nans, cover=True)
    if found is None:
        return
    if found.covered:
        tally.simulation["other NaN payloads"] += 1
        return
    after = "other bytes after a NaN" if found.with_nan else "other bytes"
    plain = difference(done.plain[index], simulated, dtype, nans=nans, cover=True)
    optimiser = plain is None or plain.covered
    tally.simulation[f"{after}, only where the assembler optimises" if optimiser else after] += 1
    what = "simulation, optimised" if optimiser else "simulation"
    _note(turn, tally, what, program, program, done.optimised[index], simulated, found.sample)


def _allowed(executed: execution.Executed, left: int, right: int) -> Array | None:
    """Return the samples that no assumption of two programs excludes, None for all."""
    first, second = executed.allowed[left], executed.allowed[right]
    return first & second if first is not None and second is not None else None


def _note(
    turn: Round, tally: Tally, what: str, left: Program, right: Program, first: Array, second: Array, sample: int
) -> None:
    if len(tally.device_differences) < 40:
        dtype = DTYPES[STORES[left.store].buffer]
        shown = [canonical(rows[sample : sample + 1], dtype).reshape(-1).tolist() for rows in (first, second)]
        tally.device_differences.append(
            {"what": what, "left": written(left), "right": written(right), "scope": turn.scope.name,
             "sample": sample, "values": [[hex(value) for value in row] for row in shown]}
        )  # fmt: skip


def play_loops(scope: Scope, dice: random.Random, tally: Tally, device: Device | None) -> None:
    """Make loops from one, and judge them."""
    _play_whole(loops.loops(LANGUAGES["ptx"].material, dice, 20), scope, dice.randrange(1 << 30), tally, device)


def play_blocks(
    scope: Scope, dice: random.Random, tally: Tally, device: Device | None, families: Sequence[str] = ()
) -> None:
    """Make kernels whose threads work together from one, and judge them; with a GPU, kernels for it.

    `families` are the families to choose from, if any is named.
    """
    # gfx942 has no analysis for every launch, and tensor memory is followed for a given one.
    only_ptx = device is not None or scope.options.every_launch
    names = [name for name, each in FAMILIES.items() if not only_ptx or each.frame.language.name == "ptx"]
    name = dice.choice([each for each in names if each in families] or names)
    programs = block_programs(name, FAMILIES[name], dice, 12)
    if not FAMILIES[name].frame.states_roundings:
        scope = SCOPES[AUDITED]
    elif FAMILIES[name].frame.sizes:
        scope = SCOPES["every launch"]
    _play_whole(programs, scope, dice.randrange(1 << 30), tally, device)


ONE_LAUNCH = 0.25
"""The share of kernels of `play_blocks` among those that are executed in several orders."""


def play_ordered(scope: Scope, dice: random.Random, tally: Tally, device: Device | None) -> None:
    """Make kernels whose blocks synchronise, or others, and execute those that are determined in several orders."""
    families = synchronised_kernels.FAMILIES
    if dice.random() < ONE_LAUNCH:
        families = {name: each for name, each in FAMILIES.items() if each.frame.language.name == "ptx"}
    name = dice.choice(list(families))
    if not families[name].frame.states_roundings:
        scope = SCOPES[AUDITED]
    programs = block_programs(name, families[name], dice, 12)
    where = f"ptx, {scope.name}"
    counted = f"{where}, {name if name in synchronised_kernels.FAMILIES else 'kernels in several orders'}"
    found = ordered_rounds.OrderedTally()
    try:
        ordered_rounds.play(programs, scope, dice, found, device)
    finally:
        tally.programs[where] += found.kernels
        tally.unknown[where] += found.kernels - found.determined
        tally.reasons.update(reason[:120] for reason in found.reasons)
        if found.determined:
            tally.equal[counted] += found.determined + found.equal
        if found.launches:
            tally.on_device[counted] += found.determined + found.equal
        for counts, wrong in ((tally.wrong, found.wrong), (tally.device_wrong, found.wrong_on_device)):
            for left, right, place in wrong:
                counts[counted] += 1
                entry = {"what": "order", "left": left, "right": right, "place": place, "scope": scope.name}
                tally.device_differences.append(entry)


def play_vendors(scope: Scope, dice: random.Random, tally: Tally) -> None:
    """Make pairs of kernels for two vendors, and judge those that the checker calls Equal."""
    where, seed = f"ptx and gfx942, {scope.name}", dice.randrange(1 << 30)
    for _ in range(12):
        pair = vendor_pair(dice)
        tally.programs[where] += 2
        if pair_rounds.are_equal(*pair, scope):
            _judge_whole(pair, scope, seed, tally, None)


def _play_whole(programs: Sequence[WholeProgram], scope: Scope, seed: int, tally: Tally, device: Device | None) -> None:
    """Ask the checker about programs of one language that are kernels of their own, and judge every Equal by bytes."""
    where = f"{programs[0].language.name}, {scope.name}"
    forms, reasons = pair_rounds.analysed(programs, scope)
    tally.programs[where] += len(programs)
    tally.unknown[where] += sum(form is None for form in forms)
    for reason in reasons:
        tally.reasons[reason[:120]] += 1
    for each in grouped(forms):
        _judge_whole([programs[index] for index in each], scope, seed, tally, device)


def _where(members: Sequence[WholeProgram], scope: Scope) -> str:
    """Return the name of the counts of some programs."""
    names = " and ".join(dict.fromkeys(each.language.name for each in members))
    return f"{names}, {scope.name}, {members[0].source}"


def _judge_whole(members: Sequence[WholeProgram], scope: Scope, seed: int, tally: Tally, device: Device | None) -> None:
    where, dtype = _where(members, scope), pair_rounds.type_of(members[0])
    try:
        results = [pair_rounds.executed(each, scope, seed) for each in members]
    except Unsupported as error:
        tally.reasons[f"{members[0].source}: not executed: {error}"[:120]] += 1
        return
    for number in range(1, len(members)):
        tally.equal[where] += 1
        found = pair_rounds.pair_difference(results[0], results[number], dtype)
        if found is not None and found[1].covered:
            tally.covered[where] += 1
        elif found is not None:
            with_nan = found[1].with_nan
            tally.wrong[f"{where}, {'with' if with_nan else 'without'} NaN"] += 1
            if len(tally.wrong_pairs) < MOST_FINDINGS:
                pair = pair_rounds.wrong_pair(members[0], members[number], scope, seed, with_nan=with_nan)
                if pair is not None:
                    tally.wrong_pairs.append(pair_rounds.shrunk(pair, scope, seed))
    if device is not None:
        _judge_whole_on_device(members, results[0], scope, seed, tally, device)


def _judge_whole_on_device(
    members: Sequence[WholeProgram],
    simulated: Sequence[execution.Executed],
    scope: Scope,
    seed: int,
    tally: Tally,
    device: Device,
) -> None:
    """Run Equal kernels on a GPU, and compare the first one with its simulation.

    Without optimisation, the assembler fuses other sums, so that kernels which leave that to it are not run so.
    """
    where, dtype = _where(members, scope), pair_rounds.type_of(members[0])
    run = partial(pair_rounds.executed_on_device, scope=scope, seed=seed, device=device)
    first, expected = run(members[0]), [each.results[0] for each in simulated]
    tally.simulation["programs compared with the GPU"] += 1
    states = members[0].states_roundings
    different = pair_rounds.device_difference(first, expected, dtype)
    if different is not None:
        plain = (
            pair_rounds.device_difference(run(members[0], optimised=False), expected, dtype) if states else different
        )
        after = "other bytes after a NaN" if any(each.nans[0].any() for each in simulated) else "other bytes"
        tally.simulation[f"{after}, only where the assembler optimises" if plain is None else after] += 1
        key = members[0].text_key()
        tally.device_differences.append({"what": "simulation", "left": key, "right": key, "scope": scope.name})
    for other in members[1:]:
        tally.on_device[where] += 1
        found = pair_rounds.device_difference(first, run(other), dtype)
        if found is None or found.covered or scope.finite:
            continue
        plain = found
        if states:
            plain = pair_rounds.device_difference(run(members[0], optimised=False), run(other, optimised=False), dtype)
        (tally.optimiser if plain is None else tally.device_wrong)[where] += 1
        tally.device_differences.append(
            {"what": "pair, optimised" if plain is None else "pair", "left": members[0].text_key(),
             "right": other.text_key(), "scope": scope.name}
        )  # fmt: skip


SCHEDULE = ("launch",) * 7 + ("finite",) * 2 + ("every launch",)
"""The scopes of successive rounds."""


KERNEL_ROUND = 150
"""One round in so many takes a compiled kernel, which costs seconds, where Triton is installed."""


VENDORS = 0.06
"""The share of pairs of vendors among the rounds of kernels whose threads work together."""


def play_kernel(dice: random.Random, scope: Scope, tally: Tally, device: Device | None) -> None:
    """Judge mutants of one compiled kernel."""
    where = f"ptx, {scope.name}"
    name, counted = dice.choice(kernel_mutants.small_cases()), f"{where}, mutants of compiled kernels"
    found = kernel_mutants.judge(name, scope, dice, 12, device)
    tally.programs[where] += found.made
    tally.unknown[where] += found.unknown
    tally.equal[counted] += found.equal
    if found.wrong:
        tally.wrong[counted] += len(found.wrong)
        tally.wrong_mutants += found.wrong
    if found.on_device:
        tally.on_device[counted] += found.on_device
    for counts, what, mutants in (
        (tally.device_wrong, "pair", found.device_wrong), (tally.optimiser, "pair, optimised", found.optimiser)
    ):  # fmt: skip
        for each in mutants:
            counts[counted] += 1
            right = f"{each.kind}: {each.before} -> {each.after}"
            tally.device_differences.append({"what": what, "left": name, "right": right, "scope": scope.name})


SECONDS_BETWEEN_COUNTS = 5


def device_environment() -> dict[str, str]:
    """Return the environment of the GPU.  Raises DeviceError."""
    return Device().environment()


def worker(
    seed: int,
    number: int,
    seconds: float,
    gpu: bool,
    rounds: int | None = None,
    *,
    only_blocks: bool = False,
    only_ordered: bool = False,
    only_mutants: bool = False,
    families: Sequence[str] = (),
    counts: Path | None = None,
) -> Tally:
    """Play rounds for a time, or a number of rounds.

    `only_blocks`: every round is one of `play_blocks`, which are one in ten otherwise; so it is with `families`, the
    names of those to choose from.  `only_ordered`: the same of
    `play_ordered`, which are one in twenty otherwise.  `only_mutants`: the same of `play_kernel`.  The counts so far
    are written to the file `counts` every few seconds.
    """
    end = time.monotonic() + seconds
    tally = Tally()
    device = Device() if gpu else None
    played = 0
    written_at = 0.0
    while time.monotonic() < end and (rounds is None or played < rounds):
        if counts is not None and time.monotonic() > written_at + SECONDS_BETWEEN_COUNTS:
            write_text(counts, json.dumps(tally.portable()))
            written_at = time.monotonic()
        dice = random.Random(f"{seed} {number} {played}")
        scope = SCOPES[SCHEDULE[(played + number) % len(SCHEDULE)]]
        # gfx942 has no analysis for every launch.
        other = not gpu and played % 4 == 3 and not scope.options.every_launch
        language = LANGUAGES["gfx942" if other else "ptx"]
        if only_mutants or (
            played % KERNEL_ROUND == KERNEL_ROUND - 1 and not families and find_spec("triton") is not None
        ):
            played += 1
            try:
                play_kernel(dice, scope, tally, device)
            except DeviceError as error:
                tally.errors.append(f"mutants, round {played} of worker {number}: {error}"[:2000])
                break
            except Exception as error:  # a configuration that cannot be compiled or executed is no finding
                tally.kernels_not_judged["compiled kernels"] += 1
                tally.reasons[f"a compiled kernel: {error}"[:120]] += 1
            continue
        if only_ordered or (played % 20 == 15 and not only_blocks and not families):
            played += 1
            chosen = SCOPES["launch"] if scope.options.every_launch else scope
            try:
                play_ordered(chosen, dice, tally, device)
            except DeviceStuck as error:
                tally.errors.append(f"orders, round {played} of worker {number}: {error}")
                break
            except (RuntimeError, ValueError, AssertionError) as error:
                tally.errors.append(f"orders, round {played} of worker {number}: {error}"[:2000])
            continue
        if only_blocks or families or played % 10 == 5:
            played += 1
            try:
                if device is None and not families and not scope.options.every_launch and dice.random() < VENDORS:
                    play_vendors(scope, dice, tally)
                else:
                    play_blocks(scope, dice, tally, device, families)
            except (RuntimeError, ValueError, AssertionError) as error:
                tally.errors.append(f"blocks, round {played} of worker {number}: {error}"[:2000])
            continue
        # Loops are what the analysis of every launch summarises.
        if (scope.options.every_launch or played % 20 == 10) and dice.random() < 0.7:
            played += 1
            try:
                play_loops(scope, dice, tally, device)
            except (RuntimeError, ValueError, AssertionError) as error:
                tally.errors.append(f"loops, round {played} of worker {number}: {error}"[:2000])
            continue
        name = list(SOURCES)[dice.randrange(len(SOURCES))]
        count = 24 if scope.options.every_launch else 80
        turn = Round(language, scope, name, SOURCES[name], dice, dice.randrange(1 << 30), count)
        try:
            play(turn, tally, device)
        except (RuntimeError, ValueError, AssertionError) as error:
            tally.errors.append(f"round {played} of worker {number} ({name}): {type(error).__name__}: {error}"[:2000])
            if len(tally.errors) > 20:
                break
        played += 1
    return tally
