"""`bitwise probe`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import typer

from bitwise_core.cli.inputs import print_json
from bitwise_core.folder import InputError
from bitwise_core.probe import ProbeError, Subject, form_of, product_subject, reduction_subject, reveal, words

UNKNOWN = 3


def run(target: str, sizes: tuple[int, ...], dtype: str, device: str | None, transpose_b: bool, as_json: bool) -> int:
    """Reveals the order of a callable and gives the exit status.  Raises InputError."""
    function = find(target)
    try:
        if len(sizes) == 3:
            m, n, k = sizes
            subject: Subject = product_subject(function, m, n, k, dtype, device=device, transpose_b=transpose_b)
        else:
            rows, length = sizes
            subject = reduction_subject(function, rows, length, dtype, device=device)
        found = reveal(subject)
    except ProbeError as error:
        raise InputError(f"{target}: {error}") from None
    except ImportError as error:
        raise InputError(f"{target}: {error}; --device needs PyTorch") from None
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        # The callable is a stranger's: whatever it does not take is told in its own words.
        raise InputError(f"{target}: called with {dtype} of {sizes}, it failed: {error}") from None
    form = form_of(found.tree) if found.tree is not None else None
    if as_json:
        print_json(
            {
                "target": target, "sizes": list(sizes), "dtype": dtype, "form": form.record() if form else None,
                "words": words(form) if form else None, "dropped": list(found.dropped), "open": list(found.open),
                "walk": found.walk, "probes": found.probes, "launches": found.launches,
            }
        )  # fmt: skip
    else:
        typer.echo(f"{target}: {words(form) if form else 'open: ' + '; '.join(found.open)}")
        if found.dropped:
            shown = ", ".join(map(str, found.dropped[:20])) + (", ..." if len(found.dropped) > 20 else "")
            typer.echo(f"{len(found.dropped)} positions reach no output: {shown}")
        typer.echo(f"{found.probes} probes in {found.launches} launches", err=True)
    return 0 if form is not None else UNKNOWN


def find(target: str) -> Callable[..., Any]:
    """The callable of `module:name`; modules of the current folder are found too.  Raises InputError."""
    module, separator, name = target.partition(":")
    if not separator or not module or not name:
        raise InputError(f"{target!r} is not of the form module:function, as in numpy:matmul")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # whatever a stranger's module raises is told in its own words
        raise InputError(f"{target}: the module {module} cannot be imported ({error})") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{target}: {module} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{target}: {name} is no function")
    function: Callable[..., Any] = found
    return function


def command(
    target: str = typer.Argument(metavar="MODULE:FUNCTION", help="f(a, b) for three sizes, f(x) for two."),
    sizes: list[int] = typer.Argument(metavar="M N K | ROWS LENGTH", min=1, help="The shapes it is called with."),  # noqa: B008
    dtype: str = typer.Option("float32", "--dtype", help="The operands' type, as NumPy or PyTorch call it."),
    device: str | None = typer.Option(None, "--device", help="Give it PyTorch tensors on this device, not arrays."),
    transpose_b: bool = typer.Option(False, "--transpose-b", help="b lies in memory as (n, k)."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Read off its outputs alone in which order a function adds.

    c = f(a, b) multiplies (M, K) by (K, N); y = f(x) adds the rows of (ROWS, LENGTH).
    Exit status: 0 the order is found, 3 something is open, 2 something is wrong in an argument.
    """
    from bitwise_core.cli.inputs import as_errors

    with as_errors():
        if len(sizes) not in (2, 3):
            raise InputError(f"give three sizes, M N K, for f(a, b), or two, ROWS LENGTH, for f(x); not {len(sizes)}")
        status = run(target, tuple(sizes), dtype, device, transpose_b, as_json)
    raise typer.Exit(status)
