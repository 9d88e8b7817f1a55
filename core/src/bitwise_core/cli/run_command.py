"""`bitwise run`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer

from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.kernel_runs import run_kernel
from bitwise_core.checker.sources import Options, Source
from bitwise_core.cli.buffer_files import read_buffers, write_buffers
from bitwise_core.cli.common import UNKNOWN, print_answer
from bitwise_core.errors import InputError
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.buffers import arrays_of, buffer_bytes, element_types
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import ManifestError
from bitwise_core.execution.values.symbolic_vector import Array


def run(source: Source, arch: Arch, options: Options, inputs: Path, out: Path, as_json: bool) -> int:
    """Run a kernel on the arrays of a file, write every buffer after the launch, and return the exit status.

    Raises InputError.
    """
    if source.launch is None:
        raise InputError(f"{source.name}: has no launch; a kernel is run for one launch: give --manifest")
    before = read_buffers(inputs, source.launch)
    try:
        prepared, done = run_kernel(source, arch, options, buffer_bytes(before))
    except (AssemblyError, ManifestError) as error:
        raise InputError(str(error) if isinstance(error, AssemblyError) else f"{source.name}: {error}") from None
    except Unsupported as error:
        typer.echo(f"bitwise: {source.name} cannot be run: {error}", err=True)
        return UNKNOWN
    after = arrays_of(done.after, before, source.launch)
    write_buffers(out, after)
    kinds = element_types([source.launch])
    changed = {name: _count_changed(done.after[name], old, before[name]) for name, old in buffer_bytes(before).items()}
    notes = (*prepared.notes, *done.notes)
    if as_json:
        buffers = {
            name: {
                "format": kinds[name].name,
                "type": array.dtype.name,
                "elements": array.size,
                "changed": changed[name],
            }
            for name, array in after.items()
        }
        print_answer("run", {"kernel": source.name, "out": str(out), "buffers": buffers, "notes": notes}, (arch,))
        return 0
    for name, array in after.items():
        kind = kinds[name].name or array.dtype.name
        typer.echo(f"{name}: {array.size} elements of {kind}, {changed[name]} of them changed")
    for note in notes:
        typer.echo(f"note: {note}")
    return 0


def _count_changed(after: Array, before: Array, array: Array) -> int:
    """Return how many elements the launch changed; `array` gives the size of an element in bytes."""
    size = array.dtype.itemsize
    if size not in (1, 2, 4, 8):
        return int(np.count_nonzero((after != before).reshape(-1, size).any(axis=1)))
    patterns = np.dtype(f"u{size}")
    return int(np.count_nonzero(after.view(patterns) != before.view(patterns)))
