"""`bitwise lock`: write, show, compare and use lock files."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bitwise_core.checker.kernel_files import InputError
from bitwise_core.cli.common import as_errors, print_json
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.plugins.profiles import NotCovered
from bitwise_torch.dispatch_mode import lockable, locked_products, recorded_products
from bitwise_torch.locks import Entry, Lock, LockError, What, differences, locked, read_lock
from bitwise_torch.locks.shape_file import read_problems

MOVED, OPEN = 1, 3
SHOWN = 40


class _Lock(TyperGroup):
    """A group whose first word may be left out: what names no command is written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["write", *args]
        found: list[str] = super().parse_args(ctx, args)
        return found


app = typer.Typer(
    name="lock", cls=_Lock, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode=None, help="Write down a library's matrix products, so that their bits travel.",
)  # fmt: skip

File = Annotated[Path, typer.Argument(metavar="LOCK", help="A lock file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_SCRIPT: Any = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


@app.callback()
def lock() -> None:
    """Write down a library's matrix products, so that their bits travel; `bitwise lock script.py` writes one."""


@app.command(context_settings=_SCRIPT)
def write(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the lock.")] = Path("lock.json"),
    library: Annotated[
        str, typer.Option("--library", metavar="NAME", help="The library; by default the only one with a profile.")
    ] = "",
    shapes: Annotated[
        Path | None, typer.Option("--shapes", metavar="FILE", help="A product a line, M N K, instead of a script.")
    ] = None,
    library_file: Annotated[
        Path | None, typer.Option("--library-file", metavar="PATH", help="The library's file, for --shapes.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="Of lines that name no type.")] = "fp16",
    out_dtype: Annotated[str | None, typer.Option("--out-dtype", help="Of lines that name no output type.")] = None,
    script: Annotated[str | None, typer.Argument(metavar="SCRIPT", help="A script, and its own arguments.")] = None,
) -> None:
    """Lock the products of a library that a script runs, or those of a shape file; needs the device it runs on.

    Exit status: 0 written, 3 written and some products are declined or cannot be locked, 2 something is wrong in an
    argument.
    """
    with _sentences():
        library = library or _only_library()
        left: Counter[str] = Counter()
        if (script is None) == (shapes is None):
            raise InputError("give a script, or --shapes with a file: one of them")
        if shapes is not None:
            problems = list(read_problems(shapes, dtype, out_dtype))
            content = answered(library, problems, library_file)
        else:
            if library_file is not None:
                raise InputError("--library-file goes with --shapes: a script runs the library that it loads")
            path = _found(str(script))
            with recorded_products(library) as recording:
                _run(path, ctx.args)
            content, left = recording.lock(), recording.left
        content.write(out)
    typer.echo(f"{out}: {len(content.entries)} products, {content.declined} of them declined")
    for why, count in _reasons(content).most_common(SHOWN):
        typer.echo(f"declined, {count} times: {why}")
    for why, count in left.most_common(SHOWN):
        typer.echo(f"not locked, {count} times: {why}")
    raise typer.Exit(OPEN if content.declined or left else 0)


@app.command()
def show(file: File, as_json: AsJson = False) -> None:
    """Print what a lock file holds."""
    with _sentences():
        content = read_lock(file)
    if as_json:
        print_json(content.model_dump(mode="json", exclude_defaults=True))
        return
    for name, value in content.provenance.items():
        typer.echo(f"{name}: {value}")
    typer.echo(f"{len(content.entries)} products, {content.declined} of them declined")
    for each in content.entries:
        typer.echo(f"{each.problem.words}: {_text(each)}")


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A lock file.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    as_json: AsJson = False,
) -> None:
    """Name the products whose bits moved: those whose sums are made in another order.

    Exit status: 0 none moved, 1 some did, 3 some are not known or stand in one file only, 2 a file is wrong.
    """
    with _sentences():
        one, other = read_lock(a), read_lock(b)
        found = differences(one, other)
    counted = Counter(each.change for each in found)
    if as_json:
        print_json({
            "a": dict(one.provenance), "b": dict(other.provenance), "counts": dict(counted),
            "products": [{
                "problem": each.problem.model_dump(exclude_defaults=True), "change": each.change,
                "a": each.a and each.a.descriptor, "b": each.b and each.b.descriptor,
            } for each in found if each.change != "same"],
        })  # fmt: skip
    else:
        for name in dict.fromkeys((*one.provenance, *other.provenance)):
            values = [each.provenance.get(name, "not named") for each in (one, other)]
            if values[0] != values[1]:
                typer.echo(f"{name}: {values[0]} and {values[1]}")
        for each in found:
            if each.change == "moved":
                typer.echo(f"{each.problem.words} moved\n  a {_text(each.a)}\n  b {_text(each.b)}")
            elif each.change != "same":
                typer.echo(f"{each.problem.words}: {each.change}")
        typer.echo(", ".join(f"{counted[name]} {name}" for name in sorted(counted)) or "no product in either")
    if counted["moved"]:
        raise typer.Exit(MOVED)
    raise typer.Exit(OPEN if counted.total() > counted["same"] else 0)


@app.command(context_settings=_SCRIPT)
def apply(
    ctx: typer.Context,
    file: File,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A script, and its own arguments.")],
    passing: Annotated[
        bool, typer.Option("--pass", help="Let products that are not locked run as ever, and report them.")
    ] = False,
) -> None:
    """Run a script with its products replaced by those of a lock file; options stand before the file.

    Exit status: the script's own, 2 where a product is not locked or a file is wrong.
    """
    with _sentences():
        content = read_lock(file)
        path = _found(script)
        with locked_products(content, "pass" if passing else "error") as replayed:
            _run(path, ctx.args)
    for sentence in replayed.report():
        typer.echo(f"bitwise: {sentence}", err=True)


def answered(library: str, problems: list[GEMMProblem], file: Path | None) -> Lock:
    """The lock of problems as a library answers them here.  Raises LockError."""
    asked = lockable(library)
    path = None if file is None else str(file)

    def one(problem: GEMMProblem) -> What:
        try:
            desc = asked.answered(problem, library=path)
        except NotCovered as error:
            return str(error)
        return desc if isinstance(desc, GEMMDesc | BiasedGEMM) else f"it is described by a {type(desc).__name__}"

    try:
        provenance = asked.provenance(library=path)
    except NotCovered as error:
        raise LockError(str(error)) from None
    return locked([(problem, one(problem)) for problem in problems], provenance)


def _only_library() -> str:
    from bitwise_core.plugins import registry
    from bitwise_core.plugins.profiles import LockableProfile

    names = sorted({each.library for each in registry.default().profiles if isinstance(each, LockableProfile)})
    if len(names) != 1:
        listed = ", ".join(names) or "none: install the plugin of one"
        raise InputError(f"--library names the library whose products are locked; there are {listed}")
    return names[0]


def _found(script: str) -> str:
    if not Path(script).is_file():
        raise InputError(f"{script}: there is no such script")
    return script


def _run(script: str, arguments: list[str]) -> None:
    """Runs a script as `python script` does; its exit with 0 or without a status ends it, others end the command."""
    before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stopped:
        if stopped.code not in (None, 0):
            raise
    finally:
        sys.argv, sys.path[:] = before


def _reasons(content: Lock) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in content.entries:
        if each.declined is not None:
            # What is asked of differs from product to product; why it is not described does not.
            found[each.declined.split(" is not described: ")[-1].split(" (")[0]] += 1
    return found


def _text(entry: Entry | None) -> str:
    if entry is None or entry.descriptor is None:
        return f"declined: {entry.declined if entry else 'not there'}"
    return f"{entry.descriptor}{', rounded before the bias' if entry.rounded_first else ''}"


@contextmanager
def _sentences() -> Iterator[None]:
    with as_errors():
        try:
            yield
        except LockError as error:
            raise InputError(str(error)) from None
        except ImportError as error:
            if error.name != "torch":
                raise
            raise InputError("products are recorded and replayed in PyTorch, which is not installed") from None
