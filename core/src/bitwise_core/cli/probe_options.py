"""`bitwise probe`: its options.  What calls the function is imported when the command runs."""

from __future__ import annotations

import typer

from bitwise_core.cli.common import as_errors
from bitwise_core.errors import InputError


def command(
    target: str = typer.Argument(
        metavar="MODULE:FUNCTION", help="A Python function: f(a, b) with three sizes, f(x) with two."
    ),
    sizes: list[int] = typer.Argument(metavar="M N K | ROWS LENGTH", min=1, help="The sizes of its arguments."),  # noqa: B008
    dtype: str = typer.Option("float32", "--dtype", help="The operands' type, by its name in NumPy or PyTorch."),
    device: str | None = typer.Option(
        None, "--device", help="Call the function with PyTorch tensors on this device, instead of NumPy arrays."
    ),
    transpose_b: bool = typer.Option(False, "--transpose-b", help="Pass b as the transpose of a dense (N, K) array."),
    architecture: str | None = typer.Option(
        None, "--arch", metavar="ARCH", help="Consider only the matrix units of this architecture."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Find the summation order of a Python function.

    c = f(a, b) multiplies (M, K) by (K, N); y = f(x) adds the rows of (ROWS, LENGTH). The order is determined by
    probes. Of the descriptors with this order, those remain that return the function's bytes on random inputs.

    Exit status: 0 one descriptor is found, 2 an argument is wrong, 3 the order or the descriptor is not determined.
    """
    with as_errors():
        if len(sizes) not in (2, 3):
            raise InputError(
                f"give three sizes, M N K, for f(a, b), or two, ROWS LENGTH, for f(x), and not {len(sizes)}"
            )
        from bitwise_core.cli.probe_command import run

        status = run(target, tuple(sizes), dtype, device, transpose_b, architecture, as_json)
    raise typer.Exit(status)
