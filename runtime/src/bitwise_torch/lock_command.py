"""`bitwise lock`: write, show, compare and apply lock files."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bitwise_core.cli.common import print_answer
from bitwise_core.errors import BitwiseError, InputError
from bitwise_core.known_distributions import advice
from bitwise_torch.default_command import WritesByDefault
from bitwise_torch.lock_errors import lock_errors_as_sentences

if TYPE_CHECKING:
    from bitwise_core.descriptors.problem import GEMMProblem
    from bitwise_torch.locks import Entry, Lock
    from bitwise_torch.locks.lock_file import Finding

MOVED_STATUS, INCOMPLETE_STATUS = 1, 3
"""Exit statuses: some products moved; some products have no descriptor or are in one file only."""

CHECK_NOTES = (
    "one sample of each operator was run; its results on other inputs are not compared",
    "the products of the lock were not run: their descriptors determine their bits",
)
"""What the answer of `lock check` rests on."""

MAXIMUM_REASONS = 40
"""The number of reasons that `bitwise lock write` prints, the most frequent ones first."""


app = typer.Typer(
    name="lock", cls=WritesByDefault, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode=None, help="Lock the bits of a library's matrix products. "
    "A lock file reproduces them on other machines.\n\n`bitwise lock SCRIPT` is short for `bitwise lock write SCRIPT`.",
)  # fmt: skip

File = Annotated[Path, typer.Argument(metavar="LOCK", help="A lock file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Attention = Literal["library", "pinned"]
_SCRIPT_SETTINGS: Any = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


@app.callback()
def lock() -> None:
    """Keep `bitwise lock` a group of commands."""


@app.command(context_settings=_SCRIPT_SETTINGS)
def write(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Write the lock to this file.")] = Path(
        "lock.json"
    ),
    library: Annotated[
        str,
        typer.Option(
            "--library",
            metavar="NAME",
            help="The library; by default the one whose plugin is installed. NAME:VERSION with --shapes and --arch "
            "needs no device: the library's tables are read.",
        ),
    ] = "",
    architecture: Annotated[
        str | None, typer.Option("--arch", metavar="ARCH", help="With --library NAME:VERSION: the architecture.")
    ] = None,
    configuration: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="NAME=NUMBER,...",
            help="With --library NAME:VERSION: its configuration, as NAME=NUMBER pairs or as a JSON object.",
        ),
    ] = None,
    shapes: Annotated[
        Path | None,
        typer.Option("--shapes", metavar="FILE", help="A file with one product M N K on each line, instead of SCRIPT."),
    ] = None,
    library_file: Annotated[
        Path | None,
        typer.Option(
            "--library-file",
            metavar="PATH",
            help="With --shapes: the shared library to query, by default the one that PyTorch loads.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="With --shapes: the operands' type on lines that name none.")
    ] = "fp16",
    out_dtype: Annotated[
        str | None, typer.Option("--out-dtype", help="With --shapes: the output's type on lines that name none.")
    ] = None,
    attention: Annotated[
        Attention,
        typer.Option(
            "--attention",
            metavar="library|pinned",
            help="Who computes attention: PyTorch, or this package in an order that the lock holds.",
        ),
    ] = "library",
    script: Annotated[
        str | None, typer.Argument(metavar="SCRIPT", help="A Python script; its own arguments follow it.")
    ] = None,
) -> None:
    """Write a lock of a script's or a shape file's products.

    The library's device is needed, except with --library NAME:VERSION.  Options come before SCRIPT.

    Exit status: 0 all products are locked, 2 an argument is wrong, 3 the lock is written but some products have no
    descriptor or cannot be locked.
    """
    from bitwise_torch.locks.shape_file import read_problems
    from bitwise_torch.product_recording import recorded_products

    with lock_errors_as_sentences():
        of_tables = ":" in library
        if not of_tables and (architecture is not None or configuration):
            raise InputError("--arch and --config need --library NAME:VERSION: a device has one configuration")
        library = library or only_library()
        not_locked: Counter[str] = Counter()
        if (script is None) == (shapes is None):
            raise InputError("give either a script or --shapes with a file")
        if shapes is not None and attention != "library":
            raise InputError("--attention needs a script: a shape file has no attention")
        if shapes is not None:
            problems = list(read_problems(shapes, dtype, out_dtype))
            if of_tables:
                if library_file is not None:
                    raise InputError("--library-file is queried on a device: give --library without a version")
                content = lock_of_tables(library, architecture, problems, configuration or ())
            else:
                content = lock_problems(library, problems, library_file)
        else:
            if of_tables:
                raise InputError("--library NAME:VERSION needs --shapes: a script runs the library that it loads")
            if library_file is not None:
                raise InputError("--library-file needs --shapes: a script runs the library that it loads")
            path = _existing_script(str(script))
            with recorded_products(library, attention=attention) as recording:
                _run(path, ctx.args)
            content, not_locked = recording.lock(), recording.not_locked
        content.write(out)
    typer.echo(f"{out}: {len(content.entries)} products, {content.declined} of them without a descriptor")
    if content.operators:
        typer.echo(f"{len(content.operators)} calls of other operators are left to PyTorch, with samples")
    for sentence in _attention_sentences(content):
        typer.echo(sentence)
    for reason, count in _decline_reasons(content).most_common(MAXIMUM_REASONS):
        typer.echo(f"no descriptor, {count} times: {reason}")
    for reason, count in not_locked.most_common(MAXIMUM_REASONS):
        typer.echo(f"not locked, {count} times: {reason}")
    raise typer.Exit(INCOMPLETE_STATUS if content.declined or not_locked else 0)


@app.command()
def show(file: File, as_json: AsJson = False) -> None:
    """Print the provenance and the entries of a lock file."""
    from bitwise_torch.locks import read_lock

    with lock_errors_as_sentences():
        content = read_lock(file)
    if as_json:
        print_answer("lock-show", {"lock": content.model_dump(mode="json", exclude_defaults=True)})
        return
    for name, value in content.provenance.items():
        typer.echo(f"{name}: {value}")
    typer.echo(f"{len(content.entries)} products, {content.declined} of them without a descriptor")
    for sentence in _attention_sentences(content):
        typer.echo(sentence)
    for each in content.entries:
        typer.echo(f"{each.problem.words}: {_entry_text(each)}")


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A lock file.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The lock file to compare it with.")],
    as_json: AsJson = False,
) -> None:
    """List the products, and the pinned attention, that moved between two locks.

    A product has moved if it is summed in another order, so its bits may differ.

    Exit status: 0 all products are the same, 1 some moved, 2 a file is wrong, 3 none moved, but some have no descriptor
    or are in one file only.
    """
    from bitwise_torch.locks import attention_differences, differences, read_lock

    with lock_errors_as_sentences():
        lock_a, lock_b = read_lock(a), read_lock(b)
        found = differences(lock_a, lock_b)
        attention = attention_differences(lock_a, lock_b)
    counts = Counter(each.change for each in found)
    if as_json:
        print_answer("lock-diff", {
            "a": dict(lock_a.provenance), "b": dict(lock_b.provenance), "counts": dict(counts),
            "products": [{
                "problem": each.problem.model_dump(exclude_defaults=True), "change": each.change,
                "a": each.a and each.a.descriptor, "b": each.b and each.b.descriptor,
            } for each in found if each.change != "same"],
            "attention": [{"change": each.change, "sentence": each.sentence} for each in attention],
        })  # fmt: skip
    else:
        for name in dict.fromkeys((*lock_a.provenance, *lock_b.provenance)):
            values = [each.provenance.get(name, "not recorded") for each in (lock_a, lock_b)]
            if values[0] != values[1]:
                typer.echo(f"{name}: {values[0]} in a, {values[1]} in b")
        for each in found:
            if each.change == "moved":
                typer.echo(f"{each.problem.words}: moved\n  a: {_entry_text(each.a)}\n  b: {_entry_text(each.b)}")
            elif each.change != "same":
                typer.echo(f"{each.problem.words}: {each.change}")
        for difference in attention:
            typer.echo(difference.sentence)
        nothing = "both locks are empty" if lock_a.attention is lock_b.attention is None else "no product"
        typer.echo(", ".join(f"{counts[name]} {name}" for name in sorted(counts)) or nothing)
    if counts["moved"] or any(each.change == "moved" for each in attention):
        raise typer.Exit(MOVED_STATUS)
    raise typer.Exit(INCOMPLETE_STATUS if attention or counts.total() > counts["same"] else 0)


@app.command()
def check(
    file: File,
    write_digests: Annotated[
        bool, typer.Option("--write", help="Add the digests of this machine to the lock file.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the operators that a lock leaves to PyTorch: run a sample of each and compare its bytes.

    The products of a lock need no comparison, since their descriptors determine their bits.  Pinned attention is
    compared with the order that this package computes.

    Exit status: 0 all samples return the bytes of the machine that recorded the lock, 1 some differ, 2 an argument is
    wrong, 3 none differs, but some have no sample here, or the library's own runs of them may differ.
    """
    from bitwise_torch.locks import read_lock

    with lock_errors_as_sentences():
        from bitwise_torch.operator_samples import checked_operators
        from bitwise_torch.pinned_attention import moved_attention

        content = read_lock(file)
        found = checked_operators(content.operators)
        moved = moved_attention(content.attention or ())
        if write_digests:
            content.model_copy(update={"operators": tuple(each.operator for each in found)}).write(file)
    counts: Counter[str] = Counter(each.verdict for each in found)
    if as_json:
        print_answer("lock-check", {
            "notes": list(CHECK_NOTES),
            "counts": dict(counts),
            "operators": [
                {"operator": each.operator.operator, "arguments": each.operator.arguments, "verdict": each.verdict,
                 "reason": each.reason}
                for each in found
            ],
            "attention": moved,
        })  # fmt: skip
    else:
        for sentence in moved:
            typer.echo(sentence)
        if content.attention is not None and not moved:
            typer.echo(f"attention of {len(content.attention)} kinds of heads is computed here as it is locked")
        for each in found:
            if each.verdict != "agrees":
                reason = f" ({each.reason})" if each.reason else ""
                typer.echo(f"{each.operator.operator} {each.operator.arguments}: {each.verdict}{reason}")
        typer.echo(", ".join(f"{counts[name]} {name}" for name in sorted(counts)) or "no operator is left to PyTorch")
    if counts["differs"] or moved:
        raise typer.Exit(MOVED_STATUS)
    raise typer.Exit(INCOMPLETE_STATUS if counts["no sample"] or counts["not determined"] else 0)


@app.command(context_settings=_SCRIPT_SETTINGS)
def apply(
    ctx: typer.Context,
    file: File,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python script; its own arguments follow it.")],
    missing_pass: Annotated[
        bool, typer.Option("--pass", help="Let the library compute products that are not locked, and report them.")
    ] = False,
) -> None:
    """Run a script with the matrix products of a lock.

    Options come before LOCK.

    Exit status: that of the script; 2 where a product is not locked or a file is wrong.
    """
    from bitwise_torch.locks import read_lock
    from bitwise_torch.product_replay import locked_products

    with lock_errors_as_sentences():
        content = read_lock(file)
        path = _existing_script(script)
        with locked_products(content, "pass" if missing_pass else "error") as replay:
            _run(path, ctx.args)
    for sentence in replay.report():
        typer.echo(f"bitwise: {sentence}", err=True)


def lock_problems(library: str, problems: list[GEMMProblem], file: Path | None) -> Lock:
    """Return the lock of problems as a library on this machine computes them.

    `file` is the shared library to query, by default the one that is loaded.  Raises LockError.
    """
    from bitwise_core.plugins.profiles import NotCovered
    from bitwise_torch.library_profiles import lockable_profile
    from bitwise_torch.locks import LockError, finding_of, lock_of

    profile = lockable_profile(library, LockError)
    path = None if file is None else str(file)
    try:
        provenance = profile.provenance(library=path)
    except NotCovered as error:
        raise LockError(str(error)) from None
    return lock_of([(each, finding_of(profile, each, library=path)) for each in problems], provenance)


def lock_of_tables(
    library: str, architecture: str | None, problems: Sequence[GEMMProblem], configuration: Sequence[str]
) -> Lock:
    """Return the lock of problems as the tables of a library `NAME:VERSION` describe them, without a device.

    What the profile says of every problem is part of the provenance.  Raises InputError.
    """
    from bitwise_core.cli.library_descriptors import configuration_of, explainable_profile
    from bitwise_core.plugins.profiles import NotCovered
    from bitwise_torch.locks import lock_of
    from bitwise_torch.locks.lock_file import finding_in

    profile, given = explainable_profile(library, architecture), configuration_of(configuration)
    findings: list[tuple[GEMMProblem, Finding]] = []
    notes: list[str] | None = None
    for problem in problems:
        try:
            found = profile.explain(problem, given)
        except NotCovered as error:
            findings.append((problem, str(error)))
            continue
        findings.append((problem, finding_in(found.desc)))
        notes = [each for each in found.notes if notes is None or each in notes]
    provenance = {
        "library": library.replace(":", " "),
        "architecture": profile.architecture,
        "source": " ".join((f"The tables of {profile.name}, without a device.", *(notes or ()))),
    }
    settings = ", ".join(f"{name} {value}" for name, value in (given or {}).items())
    return lock_of(findings, {**provenance, **({"configuration": settings} if settings else {})})


def only_library() -> str:
    """Return the name of the only library whose products can be locked.  Raises InputError."""
    from bitwise_core.plugins import registry
    from bitwise_core.plugins.profiles import LockableProfile

    names = sorted({each.library for each in registry.default().profiles if isinstance(each, LockableProfile)})
    if len(names) != 1:
        if not names:
            missing = advice("libraries", otherwise="install one")
            raise InputError(f"no installed plugin describes the products of a library: {missing}")
        raise InputError(f"--library: several libraries are known, choose one of {', '.join(names)}")
    return names[0]


def _existing_script(script: str) -> str:
    if not Path(script).is_file():
        raise InputError(f"{script}: there is no such script; give the path of a Python file")
    return script


def _run(script: str, arguments: list[str]) -> None:
    """Run a script as `python SCRIPT` does.

    Returns where the script ends, also by an exit with status 0; an exit with another status ends the command with that
    status, and a text given to `sys.exit` is printed.  An exception of the script is printed with its traceback, and
    ends the command with status 1.  Raises BitwiseError.
    """
    before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code in (None, 0):
            return
        if not isinstance(end.code, int):
            typer.echo(str(end.code), err=True)
        raise typer.Exit(end.code if isinstance(end.code, int) else 1) from None
    except (BitwiseError, BrokenPipeError):
        raise
    except Exception as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != script:
            frames = frames.tb_next
        traceback.print_exception(error.with_traceback(frames))
        raise typer.Exit(1) from None
    finally:
        sys.argv, sys.path[:] = before


def _decline_reasons(content: Lock) -> Counter[str]:
    """Count the reasons why entries have no descriptor."""
    counts: Counter[str] = Counter()
    for each in content.entries:
        if each.declined is not None:
            # A reason names its product in front of "is not described" and in parentheses: remove it to group reasons.
            counts[each.declined.split(" is not described: ")[-1].split(" (")[0]] += 1
    return counts


def _attention_sentences(content: Lock) -> list[str]:
    """Return what a lock says of attention, and of operators of PyTorch whose own runs may differ."""
    from bitwise_torch.locks.library_operators import REMEDY

    sentences = (
        [] if content.attention is None else [f"attention is pinned, for {len(content.attention)} kinds of heads"]
    )
    sentences += [f"{each.words}: {each.text}" for each in content.attention or ()]
    return sentences + [
        f"the library's own runs of {operator} may differ: {reason}; {REMEDY}"
        for operator, reason in content.undetermined.items()
    ]


def _entry_text(entry: Entry | None) -> str:
    if entry is None or entry.descriptor is None:
        return f"no descriptor: {entry.declined if entry else 'there is no entry'}"
    steps = f", then {entry.steps}" if entry.steps is not None else ""
    added = ", rounded before the bias is added" if entry.rounded_first else ""
    added += ", its slices added to the addend" if entry.onto_addend else ""
    return f"{entry.descriptor}{added}{steps}"
