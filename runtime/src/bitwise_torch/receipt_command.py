"""`bitwise receipt`: write, verify and compare receipts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bitwise_core.cli.common import print_answer, print_json
from bitwise_core.errors import InputError
from bitwise_torch.default_command import WritesByDefault
from bitwise_torch.lock_errors import lock_errors_as_sentences

if TYPE_CHECKING:
    from bitwise_core.plugins.profiles import SupportedProfile

FAILED_STATUS, INCOMPLETE_STATUS = 1, 3
"""Exit statuses: a claim failed or receipts differ; something was not checked or is not known."""

VERIFY_NOTES = (
    "the kind of a check says what it rests on",
    "claims that were not checked are not known to hold on this machine",
)
"""What the answer of `receipt verify` rests on."""


app = typer.Typer(
    name="receipt", cls=WritesByDefault, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode=None, help="State what the bits of a run rest on: proved, measured and assumed claims.\n\n"
    "`bitwise receipt LOCK` is short for `bitwise receipt write LOCK`.",
)  # fmt: skip

File = Annotated[Path, typer.Argument(metavar="RECEIPT", help="A receipt.")]
Files = Annotated[
    list[str], typer.Option("--file", metavar="NAME=PATH", help="A file of the run, such as a kernel; repeatable.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def receipt() -> None:
    """Keep `bitwise receipt` a group of commands."""


@app.command()
def write(
    lock: Annotated[Path, typer.Argument(metavar="LOCK", help="A lock file of the run, by `bitwise lock`.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Write the receipt to this file.")] = Path(
        "receipt.json"
    ),
    files: Files = [],  # noqa: B006
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask the library's plugin on this device what each descriptor rests on.")
    ] = False,
    library: Annotated[
        str, typer.Option("--library", metavar="NAME", help="With --ask: the library; by default the only one.")
    ] = "",
) -> None:
    """Write the receipt of a run from its lock, on the machine of the run.

    Exit status: 0 every product has a descriptor, 2 an argument is wrong, 3 some have none.
    """
    from bitwise_torch.locks import read_lock
    from bitwise_torch.receipts import receipt_of
    from bitwise_torch.receipts.verification import device_differences

    with lock_errors_as_sentences():
        content = receipt_of(read_lock(lock), _named(files), profile=_profile(library) if ask else None)
        content.write(out)
    kinds = {kind: sum(each.kind == kind for each in content.claims) for kind in ("proved", "measured", "assumed")}
    without = sum(each.descriptor is None for each in content.operators)
    typer.echo(
        f"{out}: {len(content.operators)} products, {without} of them without a descriptor; claims: "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    )
    for sentence in device_differences(content.recorded, content.environment.device):
        typer.echo(f"this is not the machine of the run: {sentence}")
    unasked = sum(each.descriptor is not None and each.support == "not asked" for each in content.operators)
    if ask and unasked:
        typer.echo(
            f"{unasked} products are assumed: the library's plugin describes them otherwise on this machine, or cannot "
            "be asked here"
        )
    raise typer.Exit(INCOMPLETE_STATUS if without else 0)


@app.command()
def verify(
    file: File,
    lock: Annotated[
        Path | None, typer.Option("--lock", metavar="LOCK", help="Compare this lock with the receipt's.")
    ] = None,
    files: Files = [],  # noqa: B006
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask the library on this device for the descriptor of every product.")
    ] = False,
    library: Annotated[
        str, typer.Option("--library", metavar="NAME", help="With --ask: the library; by default the only one.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Derive every claim of a receipt again, and compare the environment with this machine's.

    Exit status: 0 every claim held, 1 one failed, 2 a file or an argument is wrong, 3 some were not checked.
    """
    from bitwise_torch.locks import read_lock
    from bitwise_torch.receipts import read_receipt, verified

    with lock_errors_as_sentences():
        content = read_receipt(file)
        named = _named(files)
        known = [each.name for each in content.kernels]
        for name in named:
            if name not in known:
                raise InputError(
                    f"--file: the receipt has no file {name!r}; "
                    + (f"its files are {', '.join(known)}" if known else "it has no files")
                )
        profile = _profile(library) if ask else None
        found = verified(
            content, lock=None if lock is None else read_lock(lock), files=named, profile=profile
        )  # fmt: skip
    outcomes = [each.outcome for each in found]
    status = FAILED_STATUS if "failed" in outcomes else INCOMPLETE_STATUS if "not checked" in outcomes else 0
    if as_json:
        outcome = {0: "held", 1: "failed", 3: "not checked"}[status]
        checks = [each.record() for each in found]
        print_answer("receipt-verify", {"outcome": outcome, "checks": checks, "notes": list(VERIFY_NOTES)})
        raise typer.Exit(status)
    for each in found:
        typer.echo(f"{each.claim} ({each.kind}): {each.outcome}")
        for sentence in each.details:
            typer.echo(f"  {sentence}")
    raise typer.Exit(status)


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A receipt.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The receipt to compare it with.")],
    as_json: AsJson = False,
) -> None:
    """List the differences of two receipts: environment, products, files and claims.

    Exit status: 0 none, 1 some, 2 a file is wrong, 3 only products without a descriptor and calls without a sample,
    whose bits are not known.
    """
    from bitwise_torch.receipts import read_receipt, receipt_differences

    with lock_errors_as_sentences():
        found = receipt_differences(read_receipt(a), read_receipt(b))
    if as_json:
        listed = [{"part": each.part, "sentence": each.sentence, "unknown": each.unknown} for each in found]
        print_answer("receipt-diff", {"differences": listed})
    else:
        for each in found:
            typer.echo(f"{each.part}: {each.sentence}")
        typer.echo(f"{len(found)} difference{'' if len(found) == 1 else 's'}")
    known = any(not each.unknown for each in found)
    raise typer.Exit(FAILED_STATUS if known else INCOMPLETE_STATUS if found else 0)


@app.command()
def schema() -> None:
    """Print the JSON schema of a receipt."""
    from bitwise_torch.receipts.receipt_file import schema as receipt_schema

    print_json(receipt_schema())


def _profile(library: str) -> SupportedProfile:
    from bitwise_core.plugins.profiles import SupportedProfile
    from bitwise_torch.library_profiles import lockable_profile
    from bitwise_torch.lock_command import only_library
    from bitwise_torch.locks import LockError

    name = library or only_library()
    found = lockable_profile(name, LockError)
    if not isinstance(found, SupportedProfile):
        raise InputError(f"--ask: the plugin of {name} does not state what its descriptors rest on")
    return found


def _named(files: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for each in files:
        name, separator, path = each.partition("=")
        if not separator or not name or not path:
            raise InputError(f"--file: {each!r} is not of the form NAME=PATH")
        if name in found:
            raise InputError(f"--file: the name {name!r} is given twice")
        found[name] = Path(path)
    return found
