"""`bitwise diff`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import typer

from bitwise_core.checker.kernel_comparisons import compare_or_recall
from bitwise_core.checker.kernel_files import target_of
from bitwise_core.checker.readings import ReadingCache
from bitwise_core.checker.sources import Arches, Options, Source
from bitwise_core.checker.verdicts import Comparison, Counterexample, Divergence, Outcome, Side, Verdict
from bitwise_core.checker.wording import counted
from bitwise_core.cli.common import kernels, print_answer, print_assumptions
from bitwise_core.cli.exit_status import printable
from bitwise_core.errors import InputError
from bitwise_core.plugins import registry

STATUS = {Outcome.EQUAL: 0, Outcome.DIFFERENT: 1, Outcome.UNKNOWN: 3, Outcome.UNPROVED: 4}
"""The exit status of each outcome."""

UNPROVED = "Two canonical forms that differ may still be the same function."


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
    (first, second), arch, options = kernels((left, right), manifest, entry, target, options, cache)
    plugins = registry.default()
    both = target_of(first, arch, plugins), target_of(second, arch, plugins)
    names = both[0].name, both[1].name
    if search is not None and search.out is not None and not search.out.parent.is_dir():
        raise InputError(f"--out {search.out}: cannot be written (there is no folder {search.out.parent})")
    found = compare_or_recall(first, second, names, options, cache)
    malformed = [result.unknown or result.name for result in found.results if result.malformed]
    if malformed:
        raise InputError(*dict.fromkeys(malformed))
    verdict = found.verdict
    if search is not None and verdict.outcome is not Outcome.EQUAL:
        one, other = map(plugins.arch, names)
        verdict = search_and_write(found, first, second, (one, other), options, search)
    if as_json:
        print_answer("diff", as_record(verdict), both)
    else:
        show(verdict, (left, right), search is not None)
    return STATUS[verdict.outcome]


def search_and_write(
    found: Comparison, left: Source, right: Source, arch: Arches, options: Options, search: SearchSettings
) -> Verdict:
    """Search for a counterexample, write its input to `search.out`, and return the resulting verdict.

    Raises InputError where the input cannot be written.
    """
    from bitwise_core.checker.counterexamples import search_verdict

    with _spinner(f"searching for a counterexample, for at most {search.seconds:g} s"):
        verdict = search_verdict(left, right, arch, options, found, search.seconds)
    counterexample = verdict.counterexample
    if counterexample is None or search.out is None:
        return verdict
    from bitwise_core.cli.buffer_files import write_buffers

    write_buffers(search.out, counterexample.arrays)
    return replace(verdict, counterexample=replace(counterexample, path=str(search.out)))


def _spinner(sentence: str) -> AbstractContextManager[object]:
    """Show a spinner where standard error is a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(sentence)


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


def show(verdict: Verdict, names: tuple[str, str], searched: bool) -> None:
    """Print a verdict as text; `searched` says whether a counterexample was searched for."""
    scope = "for every launch" if verdict.scope == "every launch" else "for this launch"
    head = typer.style(f"{verdict.outcome.value.capitalize()} {scope}", fg=_COLOURS[verdict.outcome], bold=True)
    typer.echo(f"{head}: {printable(verdict.reason)}")
    counterexample = verdict.counterexample
    if counterexample is not None:
        typer.echo(f"  {printable(counterexample.sentence)}")
        path = counterexample.path
        typer.echo(f"  the input is in {printable(path)}" if path else "  --out FILE.npz writes the input to a file")
    elif verdict.outcome is Outcome.UNPROVED:
        search = "No input with other bytes was found." if searched else "No counterexample was searched for."
        typer.echo(f"  {UNPROVED} {search}")
    if verdict.divergence is not None:
        _show_divergence(verdict.divergence, names)
    print_assumptions(verdict.conditions, verdict.notes)


def _show_divergence(found: Divergence, names: tuple[str, str]) -> None:
    both = found.left is not None and found.right is not None
    depth = f", {counted(found.depth, 'level')} below the stored value" if both and found.depth else ""
    typer.echo(f"first divergence, in {printable(found.element)}{depth}:")
    if found.why_not is not None:
        typer.echo(f"  {printable(found.why_not)}")
    for name, side in zip(names, (found.left, found.right), strict=True):
        if side is not None:
            typer.secho(f"  {printable(f'{name}{_place(side)}')}", bold=True)
            typer.echo(f"    {printable(side.node)}")
    if found.meaning is not None:
        typer.echo(f"  {printable(found.meaning)}")


def _place(side: Side) -> str:
    calls = f" (which calls {', '.join(side.calls)})" if side.calls else ""
    return (f":{side.line}" if side.line else "") + (f", from {side.source}{calls}" if side.source else "")
