"""`bitwise probe`: the search for the order.  Its options are in `probe_options`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import typer

from bitwise_core.cli.common import UNKNOWN, print_answer
from bitwise_core.errors import InputError
from bitwise_core.plugins import registry
from bitwise_core.probing import ProbeError, describe_shape, tree_shape
from bitwise_core.probing.operand_arrays import NUMPY, OperandArrays
from bitwise_core.probing.reconstruction import Reconstruction, reconstruct_product, reconstruct_sum

OPERANDS = "bitwise.operands"
"""The entry-point group of array kinds."""


def run(
    target: str, sizes: tuple[int, ...], dtype: str, device: str | None, transpose_b: bool, architecture: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Print the order and the descriptor of a callable and return the exit status.  Raises InputError.

    `sizes` are m, n and k of a matrix product, or the rows and the length of a sum.
    """
    function = find(target)
    arrays = NUMPY if device is None else operand_arrays("torch", device)
    try:
        if len(sizes) == 3:
            m, n, k = sizes
            result = reconstruct_product(
                function, m, n, k, dtype, units=registry.default().matrix_units, arrays=arrays,
                transpose_b=transpose_b, architecture=architecture,
            )  # fmt: skip
        else:
            rows, length = sizes
            result = reconstruct_sum(function, rows, length, dtype, arrays=arrays)
    except ProbeError as error:
        raise InputError(f"{target}: {error}") from None
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        # A third-party callable may reject its arguments with any of these.
        raise InputError(f"{target}: the call with {dtype} operands of sizes {sizes} failed: {error}") from None
    if as_json:
        print_answer("probe", {"target": target, "sizes": list(sizes), "dtype": dtype, **record_of(result)})
    else:
        _print(target, result)
    return 0 if result.desc is not None else UNKNOWN


def operand_arrays(kind: str, device: str) -> OperandArrays:
    """Return the arrays of an installed kind on a device.  Raises InputError."""
    for entry in entry_points(group=OPERANDS, name=kind):
        try:
            arrays: OperandArrays = entry.load()(device)
        except ImportError as error:
            raise InputError(f"--device {device}: {error}") from None
        return arrays
    raise InputError(
        f"--device {device}: needs {kind} tensors: install bitwise-{kind} (pip install 'bitwise-core[{kind}]')"
    )


def record_of(result: Reconstruction) -> dict[str, Any]:
    """Return a reconstruction as a JSON object, each descriptor as its text."""
    revealed = result.revealed
    shape = tree_shape(revealed.tree) if revealed.tree is not None else None
    return {
        "form": shape.record() if shape else None, "words": describe_shape(shape) if shape else None,
        "dropped": list(revealed.dropped), "descriptor": str(result.desc) if result.desc is not None else None,
        "alike": list(result.equivalent_instructions), "survivors": [str(each) for each in result.survivors],
        "parted": [{"descriptor": str(each), "kind": kind, "draw": draw} for each, kind, draw in result.rejected],
        "open": list(result.unresolved), "walk": revealed.method, "probes": revealed.probes,
        "launches": revealed.launches,
    }  # fmt: skip


def _print(target: str, result: Reconstruction) -> None:
    revealed = result.revealed
    unresolved = "not determined: " + "; ".join(result.unresolved)
    order = unresolved if revealed.tree is None else describe_shape(tree_shape(revealed.tree))
    typer.echo(f"{target}: {order}")
    if revealed.dropped:
        shown = ", ".join(map(str, revealed.dropped[:20])) + (", ..." if len(revealed.dropped) > 20 else "")
        typer.echo(f"{len(revealed.dropped)} positions reach no output: {shown}")
    if result.desc is not None:
        typer.echo(str(result.desc))
        if result.equivalent_instructions:
            typer.echo(f"instructions that return the same bits: {', '.join(result.equivalent_instructions)}")
    elif revealed.tree is not None:
        typer.echo(f"descriptor {unresolved}")
        for each in result.survivors:
            typer.echo(f"  {each}")
    if result.rejected:
        count = len(result.rejected)
        words = (
            "1 other descriptor of this order returns"
            if count == 1
            else f"{count} other descriptors of this order return"
        )
        typer.echo(f"{words} other bytes", err=True)
    typer.echo(f"{revealed.probes} probes in {revealed.launches} launches", err=True)


def find(target: str) -> Callable[..., Any]:
    """Return the callable of `module:name`; the current folder is on the module path.  Raises InputError."""
    module, separator, name = target.partition(":")
    if not separator or not module or not name:
        raise InputError(f"{target!r} is not of the form MODULE:FUNCTION, such as numpy:matmul")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        attribute: Any = importlib.import_module(module)
    except Exception as error:  # a third-party module may raise anything
        raise InputError(f"{target}: the module {module} cannot be imported ({error})") from None
    for part in name.split("."):
        if not hasattr(attribute, part):
            raise InputError(f"{target}: the module {module} has no {name}")
        attribute = getattr(attribute, part)
    if not callable(attribute):
        raise InputError(f"{target}: {name} is not callable; name a function")
    function: Callable[..., Any] = attribute
    return function
