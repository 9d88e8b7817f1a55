"""The buffers of a launch as an `.npz` file with one array for each buffer, under its name."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bitwise_core.checker.kernel_files import InputError
from bitwise_core.execution.buffers import fitting_arrays
from bitwise_core.execution.element_types import Array
from bitwise_core.execution.launch import Launch


def read_buffers(path: Path, launch: Launch) -> dict[str, Array]:
    """Return the arrays of a launch's buffers; those whose contents the launch gives may be missing in the file.

    Raises InputError with a sentence for each array that is missing or does not fit.
    """
    stored = _load(path)
    result, faults = fitting_arrays(launch, stored)
    missing = f"of the launch; the file's arrays: {', '.join(stored) or 'none'}"
    sentences = [
        f"{path}: has no array for the buffer {name} {missing}"
        if fault is None
        else f"{path}: the array {name} {fault}"
        for name, fault in faults.items()
    ]
    if sentences:
        raise InputError(*sentences)
    return result


def _load(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            if not isinstance(found, np.lib.npyio.NpzFile):
                raise InputError(
                    f"{path}: holds one array without a name; write it with numpy.savez, one array for each buffer name"
                )
            with found:
                return {name: found[name] for name in found.files}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or 'it is not an .npz file'})") from None
    except (ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: is not an .npz file of plain arrays ({error})") from None


def write_buffers(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to an `.npz` file.  Raises InputError."""
    try:
        # numpy.savez takes the names as keyword arguments, which clash with a buffer named like one of its parameters.
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
