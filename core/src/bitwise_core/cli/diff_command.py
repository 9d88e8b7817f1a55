"""`bitwise diff`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from bitwise_core.checker.analysis import Arches, Options, Source
from bitwise_core.checker.comparison import Comparison
from bitwise_core.checker.counterexamples import search_verdict
from bitwise_core.checker.kernel_files import arch_of
from bitwise_core.checker.kernel_readings import compare_or_recall
from bitwise_core.checker.readings import ReadingCache
from bitwise_core.checker.verdicts import Counterexample, Divergence, Outcome, Side, Verdict
from bitwise_core.cli.buffer_files import write_buffers
from bitwise_core.cli.common import kernels, print_answer
from bitwise_core.errors import InputError
from bitwise_core.plugins import registry

STATUS = {Outcome.EQUAL: 0, Outcome.DIFFERENT: 1, Outcome.UNKNOWN: 3, Outcome.UNPROVED: 4}
"""The exit status of each outcome."""

NO_COUNTEREXAMPLE = "no counterexample: two canonical forms that differ may still be one function"


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The maximum time of the search for a counterexample in seconds, and the file for its input (None: no file)."""

    seconds: float = 5.0
    out: Path | None = None


def run(
    left: str, right: str, manifest: Path | None, entry: str | None, target: str | None,
    options: Options, as_json: bool, search: SearchSettings | None = None, cache: ReadingCache | None = None,
) -> int:  # fmt: skip
    """Print the verdict on two kernels and return the exit status; `search` None: no search.

    `cache` recalls and keeps readings.  Raises InputError.
    """
    (first, second), arch, options = kernels((left, right), manifest, entry, target, options)
    plugins = registry.default()
    both = arch_of(first, arch, plugins), arch_of(second, arch, plugins)
    if search is not None and search.out is not None and not search.out.parent.is_dir():
        raise InputError(f"--out {search.out}: cannot be written (there is no folder {search.out.parent})")
    found = compare_or_recall(first, second, both, options, cache)
    malformed = [result.unknown or result.name for result in found.results if result.malformed]
    if malformed:
        raise InputError(*malformed)
    verdict = found.verdict
    if search is not None:
        verdict = search_and_write(found, first, second, both, options, search)
    if as_json:
        print_answer("diff", as_record(verdict), both)
    else:
        show(verdict, (left, right), Console(highlight=False, soft_wrap=True))
    return STATUS[verdict.outcome]


def search_and_write(
    found: Comparison, left: Source, right: Source, arch: Arches, options: Options, search: SearchSettings
) -> Verdict:
    """Search for a counterexample, write its input to `search.out`, and return the resulting verdict.

    Raises InputError where the input cannot be written.
    """
    with _spinner(f"searching for a counterexample, for at most {search.seconds:g} s"):
        verdict = search_verdict(left, right, arch, options, found, search.seconds)
    counterexample = verdict.counterexample
    if counterexample is None or search.out is None:
        return verdict
    write_buffers(search.out, counterexample.arrays)
    return replace(verdict, counterexample=replace(counterexample, path=str(search.out)))


def _spinner(sentence: str) -> AbstractContextManager[object]:
    """Show a spinner where standard error is a terminal."""
    console = Console(stderr=True)
    return console.status(sentence) if console.is_terminal else nullcontext()


def as_record(verdict: Verdict) -> dict[str, object]:
    """Return the verdict as a JSON object."""
    counterexample = verdict.counterexample
    return {
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "scope": verdict.scope,
        "notes": list(verdict.notes),
        "conditions": list(verdict.conditions),
        "tensors": {name: list(digests) for name, digests in verdict.tensors.items()},
        "divergence": None if verdict.divergence is None else asdict(verdict.divergence),
        "counterexample": None if counterexample is None else counterexample_as_record(counterexample),
    }


def counterexample_as_record(counterexample: Counterexample) -> dict[str, object]:
    """Return a counterexample as a JSON object, without its arrays."""
    left, right = counterexample.values
    return {
        "input": counterexample.path,
        "element": counterexample.element,
        "size": counterexample.size,
        "left": left,
        "right": right,
        "decimals": counterexample.decimals,
        "ulps": counterexample.ulps,
        "different": counterexample.count,
        "drawn": counterexample.drawn,
    }


_COLOURS = {Outcome.EQUAL: "green", Outcome.DIFFERENT: "red", Outcome.UNPROVED: "yellow", Outcome.UNKNOWN: "yellow"}


def show(verdict: Verdict, names: tuple[str, str], console: Console) -> None:
    """Print a verdict as text."""
    scope = "for every launch" if verdict.scope == "every launch" else "for this launch"
    console.print(f"{verdict.outcome.value.capitalize()} {scope}", style=f"bold {_COLOURS[verdict.outcome]}", end="")
    console.print(f": {verdict.reason}", markup=False)
    counterexample = verdict.counterexample
    if counterexample is not None:
        path = counterexample.path
        written = f"the input {path}" if path else "an input was found (--out FILE.npz writes it to a file)"
        console.print(f"counterexample: {written}", markup=False)
        console.print(f"  on it {counterexample.sentence}", markup=False)
    elif verdict.outcome is Outcome.UNPROVED:
        console.print(NO_COUNTEREXAMPLE, markup=False)
    if verdict.divergence is not None:
        _show_divergence(verdict.divergence, names, console)
    for condition in verdict.conditions:
        console.print(f"condition: all values are {condition}", markup=False)
    for note in verdict.notes:
        console.print(f"note: {note}", style="dim", markup=False)


def _show_divergence(found: Divergence, names: tuple[str, str], console: Console) -> None:
    console.print(f"first at {found.element}", markup=False)
    if found.why_not is not None:
        console.print(f"  {found.why_not}", markup=False)
    for name, side in zip(names, (found.left, found.right), strict=True):
        if side is not None:
            console.print(f"  {name}{_place(side)}", style="bold", markup=False)
            console.print(f"    {side.node}", markup=False)
    if found.left is not None and found.right is not None:
        levels = f"{found.depth} level{'s' if found.depth > 1 else ''} below the stored value"
        place = levels if found.depth else "at the stored value"
        console.print(f"  these are the first nodes that show the difference, {place}", markup=False)
    if found.meaning is not None:
        console.print(f"  {found.meaning}", markup=False)


def _place(side: Side) -> str:
    calls = f" (which calls {', '.join(side.calls)})" if side.calls else ""
    return (f":{side.line}" if side.line else "") + (f", from {side.source}{calls}" if side.source else "")
