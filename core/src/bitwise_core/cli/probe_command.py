"""`bitwise probe`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import typer

from bitwise_core.checker.kernel_files import InputError
from bitwise_core.cli.common import print_json
from bitwise_core.plugins import registry
from bitwise_core.probing import ProbeError, describe_shape, tree_shape
from bitwise_core.probing.operand_arrays import NUMPY, OperandArrays
from bitwise_core.probing.reconstruction import Reconstruction, reconstruct_product, reconstruct_sum

UNKNOWN = 3
OPERANDS = "bitwise.operands"


def run(
    target: str, sizes: tuple[int, ...], dtype: str, device: str | None, transpose_b: bool, architecture: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Reveals the order and the descriptor of a callable and gives the exit status.  Raises InputError."""
    function = find(target)
    arrays = NUMPY if device is None else operand_arrays("torch", device)
    try:
        if len(sizes) == 3:
            m, n, k = sizes
            made = reconstruct_product(
                function, m, n, k, dtype, units=registry.default().matrix_units, arrays=arrays,
                transpose_b=transpose_b, architecture=architecture,
            )  # fmt: skip
        else:
            rows, length = sizes
            made = reconstruct_sum(function, rows, length, dtype, arrays=arrays)
    except ProbeError as error:
        raise InputError(f"{target}: {error}") from None
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        # The callable is a stranger's: whatever it does not take is told in its own words.
        raise InputError(f"{target}: called with {dtype} of {sizes}, it failed: {error}") from None
    if as_json:
        print_json({"target": target, "sizes": list(sizes), "dtype": dtype, **record_of(made)})
    else:
        _print(target, made)
    return 0 if made.desc is not None else UNKNOWN


def operand_arrays(kind: str, device: str) -> OperandArrays:
    """Arrays of an installed kind on a device (entry-point group `bitwise.operands`).  Raises InputError."""
    for entry in entry_points(group=OPERANDS, name=kind):
        try:
            found: OperandArrays = entry.load()(device)
        except ImportError as error:
            raise InputError(f"--device {device}: {error}") from None
        return found
    raise InputError(f"--device {device} needs {kind} tensors: install the package bitwise-{kind}")


def record_of(made: Reconstruction) -> dict[str, Any]:
    """A reconstruction as JSON has it; descriptors are their own lines of text."""
    found = made.revealed
    form = tree_shape(found.tree) if found.tree is not None else None
    return {
        "form": form.record() if form else None, "words": describe_shape(form) if form else None,
        "dropped": list(found.dropped), "descriptor": str(made.desc) if made.desc is not None else None,
        "alike": list(made.alike), "survivors": [str(each) for each in made.survivors],
        "parted": [{"descriptor": str(each), "kind": kind, "draw": draw} for each, kind, draw in made.parted],
        "open": list(made.open), "walk": found.walk, "probes": found.probes, "launches": found.launches,
    }  # fmt: skip


def _print(target: str, made: Reconstruction) -> None:
    found = made.revealed
    order = "open: " + "; ".join(made.open) if found.tree is None else describe_shape(tree_shape(found.tree))
    typer.echo(f"{target}: {order}")
    if found.dropped:
        shown = ", ".join(map(str, found.dropped[:20])) + (", ..." if len(found.dropped) > 20 else "")
        typer.echo(f"{len(found.dropped)} positions reach no output: {shown}")
    if made.desc is not None:
        typer.echo(str(made.desc))
        if made.alike:
            typer.echo(f"the same bits by {', '.join(made.alike)}")
    elif found.tree is not None:
        typer.echo(f"open: {'; '.join(made.open)}")
        for each in made.survivors:
            typer.echo(f"  {each}")
    if made.parted:
        typer.echo(f"{len(made.parted)} other descriptors of this order returned other bytes", err=True)
    typer.echo(f"{found.probes} probes in {found.launches} launches", err=True)


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
    architecture: str | None = typer.Option(None, "--arch", metavar="ARCH", help="Whose matrix units it may run on."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Read off its outputs alone in which order a function adds, and which descriptor it follows.

    c = f(a, b) multiplies (M, K) by (K, N); y = f(x) adds the rows of (ROWS, LENGTH). The order is found by
    experiments; of the descriptors that have it, those stay whose bytes come back on fresh draws.
    Exit status: 0 the descriptor is found, 3 something is open, 2 something is wrong in an argument.
    """
    from bitwise_core.cli.common import as_errors

    with as_errors():
        if len(sizes) not in (2, 3):
            raise InputError(f"give three sizes, M N K, for f(a, b), or two, ROWS LENGTH, for f(x); not {len(sizes)}")
        status = run(target, tuple(sizes), dtype, device, transpose_b, architecture, as_json)
    raise typer.Exit(status)
