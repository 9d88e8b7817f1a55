"""`bitwise diff`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from bitwise_core import registry
from bitwise_core.checker import Arches, Options, Outcome, Side, Source, Verdict, Witness
from bitwise_core.cli.buffers import write_buffers
from bitwise_core.cli.inputs import kernels, print_json
from bitwise_core.difference import Comparison, compare
from bitwise_core.folder import InputError, arch_of
from bitwise_core.search import Distinction, NotFound, distinguish

STATUS = {Outcome.EQUAL: 0, Outcome.DIFFERENT: 1, Outcome.UNKNOWN: 3}
"""The exit status of each outcome."""

UNCONFIRMED = "not confirmed by an input: two different trees may still be one function"


@dataclass(frozen=True, slots=True)
class Searching:
    """Whether an input is to be searched for on which the bytes differ, where it is written, and for how long."""

    out: Path
    seconds: float = 60.0


def run(
    left: str, right: str, manifest: Path | None, entry: str | None, target: str | None,
    options: Options, as_json: bool, searching: Searching | None = None,
) -> int:  # fmt: skip
    """Prints the verdict on two kernels and gives the exit status.  Raises InputError."""
    (first, second), arch, options = kernels((left, right), manifest, entry, target, options)
    plugins = registry.default()
    both = arch_of(first, arch, plugins), arch_of(second, arch, plugins)
    found = compare(first, second, both, options)
    wrong = [reading.unknown or reading.name for reading in found.readings if reading.malformed]
    if wrong:
        raise InputError(*wrong)
    verdict, seen = found.verdict, None
    if searching is not None:
        verdict, seen = confirmed(found, first, second, both, options, searching)
    if as_json:
        print_json({**as_record(verdict), "distinction": None if seen is None else seen_as_record(seen)})
    else:
        show(verdict, (left, right), Console(highlight=False, soft_wrap=True), seen)
    return STATUS[verdict.outcome]


def confirmed(
    found: Comparison, left: Source, right: Source, arch: Arches, options: Options, searching: Searching
) -> tuple[Verdict, Distinction | None]:
    """The verdict with an input on which the bytes differ, where one was found; it is written to `searching.out`.

    Such an input proves a difference of what could not be read too.  Raises InputError where it cannot be written.
    """
    verdict = found.verdict
    if verdict.outcome is Outcome.EQUAL:
        return verdict, None
    if not searching.out.parent.is_dir():
        raise InputError(f"{searching.out}: cannot be written (there is no folder {searching.out.parent})")
    with _waiting(f"searching for an input on which the bytes differ, for {searching.seconds:.0f} s at most"):
        seen = distinguish(left, right, arch, options, found.parted, searching.seconds)
    if isinstance(seen, NotFound):
        return replace(verdict, notes=(*verdict.notes, seen.sentence)), None
    write_buffers(searching.out, seen.arrays)
    if verdict.outcome is Outcome.UNKNOWN:
        verdict = replace(verdict, outcome=Outcome.DIFFERENT, reason="the bytes differ on an input", scope="launch")
    notes = (*verdict.notes, *seen.notes)
    return replace(verdict, confirmed=str(searching.out), notes=tuple(dict.fromkeys(notes))), seen


def _waiting(sentence: str) -> AbstractContextManager[object]:
    """Shows on a terminal that work goes on, and nothing elsewhere."""
    console = Console(stderr=True)
    return console.status(sentence) if console.is_terminal else nullcontext()


def seen_as_record(seen: Distinction) -> dict[str, object]:
    """What a search found, as JSON has it."""
    return {
        "element": seen.element,
        "size": seen.size,
        "left": f"0x{seen.left:0{2 * seen.size}x}",
        "right": f"0x{seen.right:0{2 * seen.size}x}",
        "different": seen.count,
        "input": seen.drawn,
    }


def as_record(verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON has it."""
    record = asdict(verdict)
    record["outcome"] = verdict.outcome.value
    return record


def show(verdict: Verdict, names: tuple[str, str], console: Console, seen: Distinction | None = None) -> None:
    """Prints a verdict for people."""
    scope = "for every launch" if verdict.scope == "every launch" else "for this launch"
    colour = {Outcome.EQUAL: "green", Outcome.DIFFERENT: "red", Outcome.UNKNOWN: "yellow"}[verdict.outcome]
    console.print(f"{verdict.outcome.value.capitalize()} {scope}", style=f"bold {colour}", end="")
    console.print(f": {verdict.reason}", markup=False)
    if verdict.outcome is Outcome.DIFFERENT:
        console.print(f"confirmed by the input {verdict.confirmed}" if verdict.confirmed else UNCONFIRMED, markup=False)
        if seen is not None:
            console.print(f"  on it {seen.sentence}", markup=False)
        if verdict.witness is not None:
            _show_witness(verdict.witness, names, console)
    for condition in verdict.conditions:
        console.print(f"condition: all values are {condition}", markup=False)
    for note in verdict.notes:
        console.print(f"note: {note}", style="dim", markup=False)


def _show_witness(witness: Witness, names: tuple[str, str], console: Console) -> None:
    console.print(
        f"first at {witness.element}: {witness.size} bytes at byte {witness.offset} of {witness.buffer}", markup=False
    )
    if witness.why_not is not None:
        console.print(f"  {witness.why_not}", markup=False)
    for name, side in zip(names, (witness.left, witness.right), strict=True):
        if side is not None:
            console.print(f"  {name}{_place(side)}", style="bold", markup=False)
            console.print(f"    {side.node}", markup=False)
    if witness.meaning is not None:
        console.print(f"  {witness.meaning}", markup=False)
    if witness.left is not None:
        count = f"{witness.depth} below the stored value" if witness.depth else "at the stored value"
        console.print(
            f"  the first node where the trees part, {count}; loads are X[offset/size] in bytes", markup=False
        )


def _place(side: Side) -> str:
    return (f":{side.line}" if side.line else "") + (f", from {side.source}" if side.source else "")
