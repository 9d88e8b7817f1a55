"""`bitwise diff`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bitwise_core.checker import Options, Outcome, Side, Verdict, Witness
from bitwise_core.cli.inputs import kernels, print_json
from bitwise_core.difference import compare
from bitwise_core.folder import InputError

STATUS = {Outcome.EQUAL: 0, Outcome.DIFFERENT: 1, Outcome.UNKNOWN: 3}
"""The exit status of each outcome."""

UNCONFIRMED = "not confirmed by an input: two different trees may still be one function"


def run(
    left: str, right: str, manifest: Path | None, entry: str | None, target: str | None, options: Options, as_json: bool
) -> int:
    """Prints the verdict on two kernels and gives the exit status.  Raises InputError."""
    (first, second), arch, options = kernels((left, right), manifest, entry, target, options)
    found = compare(first, second, arch, options)
    wrong = [reading.unknown or reading.name for reading in found.readings if reading.malformed]
    if wrong:
        raise InputError(*wrong)
    if as_json:
        print_json(as_record(found.verdict))
    else:
        show(found.verdict, (left, right), Console(highlight=False, soft_wrap=True))
    return STATUS[found.verdict.outcome]


def as_record(verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON has it."""
    record = asdict(verdict)
    record["outcome"] = verdict.outcome.value
    return record


def show(verdict: Verdict, names: tuple[str, str], console: Console) -> None:
    """Prints a verdict for people."""
    scope = "for every launch" if verdict.scope == "every launch" else "for this launch"
    colour = {Outcome.EQUAL: "green", Outcome.DIFFERENT: "red", Outcome.UNKNOWN: "yellow"}[verdict.outcome]
    console.print(f"{verdict.outcome.value.capitalize()} {scope}", style=f"bold {colour}", end="")
    console.print(f": {verdict.reason}", markup=False)
    if verdict.outcome is Outcome.DIFFERENT:
        console.print(f"confirmed by the input {verdict.confirmed}" if verdict.confirmed else UNCONFIRMED, markup=False)
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
    if witness.left is not None:
        count = f"{witness.depth} below the stored value" if witness.depth else "at the stored value"
        console.print(
            f"  the first node where the trees part, {count}; loads are X[offset/size] in bytes", markup=False
        )


def _place(side: Side) -> str:
    return (f":{side.line}" if side.line else "") + (f", from {side.source}" if side.source else "")
