"""The buffers of a launch as an `.npz` file with one array for each buffer, under its name."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import IO

import numpy as np

from bitwise_core.errors import InputError
from bitwise_core.execution.buffers import fitting_arrays
from bitwise_core.execution.element_types import Array
from bitwise_core.execution.launch import Launch
from bitwise_core.input_files import open_file
from bitwise_core.output_files import write_file

MAXIMUM_BYTES = 1 << 30
"""The largest size of all arrays of a file together, uncompressed."""


_MALFORMED = (
    ValueError, TypeError, EOFError, KeyError, RuntimeError, SyntaxError, TokenError, struct.error, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip
"""What NumPy raises for archives and headers that are none."""


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
        with open_file(path, InputError) as file:
            found = np.load(file, allow_pickle=False)
            if not isinstance(found, np.lib.npyio.NpzFile):
                raise InputError(
                    f"{path}: holds one array without a name; write it with numpy.savez, one array for each buffer name"
                )
            with found:
                size = sum(each.file_size for each in zipfile.ZipFile(file).infolist())
                if size > MAXIMUM_BYTES:
                    raise InputError(f"{path}: has {size >> 20} MiB of arrays; the limit is {MAXIMUM_BYTES >> 20} MiB")
                return {name: found[name] for name in found.files}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or 'it is not an .npz file'})") from None
    except MemoryError:
        raise InputError(f"{path}: there is not enough memory for its arrays") from None
    except _MALFORMED:
        raise InputError(f"{path}: is not an .npz file of plain arrays; numpy.savez writes one") from None


def write_buffers(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to an `.npz` file.  Raises InputError."""
    try:
        write_file(path, lambda file: _write_archive(file, arrays))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def _write_archive(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    # numpy.savez takes the names as keyword arguments, which clash with a buffer named like one of its parameters.
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
