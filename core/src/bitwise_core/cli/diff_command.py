"""`bitwise diff`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from bitwise_core.checker.analysis import Arches, Options, Source
from bitwise_core.checker.comparison import Comparison, compare
from bitwise_core.checker.counterexamples import search_verdict
from bitwise_core.checker.kernel_files import InputError, arch_of
from bitwise_core.checker.verdicts import Counterexample, Divergence, Outcome, Side, Verdict
from bitwise_core.cli.buffer_files import write_buffers
from bitwise_core.cli.common import kernels, print_json
from bitwise_core.plugins import registry

STATUS = {Outcome.EQUAL: 0, Outcome.DIFFERENT: 1, Outcome.UNKNOWN: 3, Outcome.UNPROVED: 4}
"""The exit status of each outcome."""

NO_COUNTEREXAMPLE = "no counterexample: two canonical forms that differ may still be one function"


@dataclass(frozen=True, slots=True)
class Searching:
    """For how many seconds a counterexample is searched for, and where its input is written (None: nowhere)."""

    seconds: float = 5.0
    out: Path | None = None


def run(
    left: str, right: str, manifest: Path | None, entry: str | None, target: str | None,
    options: Options, as_json: bool, searching: Searching | None = None,
) -> int:  # fmt: skip
    """Prints the verdict on two kernels and gives the exit status.  Raises InputError."""
    (first, second), arch, options = kernels((left, right), manifest, entry, target, options)
    plugins = registry.default()
    both = arch_of(first, arch, plugins), arch_of(second, arch, plugins)
    if searching is not None and searching.out is not None and not searching.out.parent.is_dir():
        raise InputError(f"{searching.out}: cannot be written (there is no folder {searching.out.parent})")
    found = compare(first, second, both, options)
    wrong = [result.unknown or result.name for result in found.results if result.malformed]
    if wrong:
        raise InputError(*wrong)
    verdict = found.verdict
    if searching is not None:
        verdict = searched(found, first, second, both, options, searching)
    if as_json:
        print_json(as_record(verdict))
    else:
        show(verdict, (left, right), Console(highlight=False, soft_wrap=True))
    return STATUS[verdict.outcome]


def searched(
    found: Comparison, left: Source, right: Source, arch: Arches, options: Options, searching: Searching
) -> Verdict:
    """The verdict after a search for a counterexample, whose input is written where `searching.out` says.

    Raises InputError where the input cannot be written.
    """
    with _waiting(f"searching for a counterexample, for {searching.seconds:g} s at most"):
        verdict = search_verdict(left, right, arch, options, found, searching.seconds)
    seen = verdict.counterexample
    if seen is None or searching.out is None:
        return verdict
    write_buffers(searching.out, seen.arrays)
    return replace(verdict, counterexample=replace(seen, path=str(searching.out)))


def _waiting(sentence: str) -> AbstractContextManager[object]:
    """Shows on a terminal that work goes on, and nothing elsewhere."""
    console = Console(stderr=True)
    return console.status(sentence) if console.is_terminal else nullcontext()


def as_record(verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON has it."""
    seen = verdict.counterexample
    return {
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "scope": verdict.scope,
        "notes": list(verdict.notes),
        "conditions": list(verdict.conditions),
        "divergence": None if verdict.divergence is None else asdict(verdict.divergence),
        "counterexample": None if seen is None else counterexample_as_record(seen),
    }


def counterexample_as_record(seen: Counterexample) -> dict[str, object]:
    """A counterexample as JSON has it: without its arrays."""
    left, right = seen.values
    return {
        "input": seen.path,
        "element": seen.element,
        "size": seen.size,
        "left": left,
        "right": right,
        "different": seen.count,
        "drawn": seen.drawn,
    }


_COLOURS = {Outcome.EQUAL: "green", Outcome.DIFFERENT: "red", Outcome.UNPROVED: "yellow", Outcome.UNKNOWN: "yellow"}


def show(verdict: Verdict, names: tuple[str, str], console: Console) -> None:
    """Prints a verdict for people."""
    scope = "for every launch" if verdict.scope == "every launch" else "for this launch"
    console.print(f"{verdict.outcome.value.capitalize()} {scope}", style=f"bold {_COLOURS[verdict.outcome]}", end="")
    console.print(f": {verdict.reason}", markup=False)
    seen = verdict.counterexample
    if seen is not None:
        written = f"the input {seen.path}" if seen.path else "an input (--out FILE.npz writes it)"
        console.print(f"counterexample: {written}", markup=False)
        console.print(f"  on it {seen.sentence}", markup=False)
    elif verdict.outcome is Outcome.UNPROVED:
        console.print(NO_COUNTEREXAMPLE, markup=False)
    if verdict.divergence is not None:
        _show_divergence(verdict.divergence, names, console)
    for condition in verdict.conditions:
        console.print(f"condition: all values are {condition}", markup=False)
    for note in verdict.notes:
        console.print(f"note: {note}", style="dim", markup=False)


def _show_divergence(found: Divergence, names: tuple[str, str], console: Console) -> None:
    console.print(
        f"first at {found.element}: {found.size} bytes at byte {found.offset} of {found.buffer}", markup=False
    )
    if found.why_not is not None:
        console.print(f"  {found.why_not}", markup=False)
    for name, side in zip(names, (found.left, found.right), strict=True):
        if side is not None:
            console.print(f"  {name}{_place(side)}", style="bold", markup=False)
            console.print(f"    {side.node}", markup=False)
    if found.meaning is not None:
        console.print(f"  {found.meaning}", markup=False)
    if found.left is not None:
        count = f"{found.depth} below the stored value" if found.depth else "at the stored value"
        console.print(f"  the first divergence of the trees, {count}; loads are X[offset/size] in bytes", markup=False)


def _place(side: Side) -> str:
    return (f":{side.line}" if side.line else "") + (f", from {side.source}" if side.source else "")
