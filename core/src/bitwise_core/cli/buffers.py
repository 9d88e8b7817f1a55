"""The buffers of a launch as arrays in a file: `.npz`, one array for each buffer, by its name."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bitwise_core.buffers import Array, Form, forms
from bitwise_core.folder import InputError
from bitwise_core.machine.launch import Launch


def read_buffers(path: Path, launch: Launch) -> dict[str, Array]:
    """The arrays of a launch's buffers.  Raises InputError with a sentence for each that is missing or does not fit."""
    stored = _load(path)
    sentences = []
    result: dict[str, Array] = {}
    for name, form in forms([launch]).items():
        if name not in stored:
            there = ", ".join(stored) or "none"
            sentences.append(f"{path}: has no array for the buffer {name} of the launch; its arrays: {there}")
            continue
        array = stored[name]
        fault = _fault(array, form)
        if fault is not None:
            sentences.append(f"{path}: the array {name} {fault}")
            continue
        result[name] = array
    if sentences:
        raise InputError(*sentences)
    return result


def _fault(array: Array, form: Form) -> str | None:
    if not array.size:
        return "is empty"
    if not array.flags.c_contiguous:
        return "is stored column by column (Fortran order); store it row by row, as numpy.ascontiguousarray does"
    if form.kind is None:
        if array.dtype.kind not in "biuf" or array.dtype.itemsize not in (1, 2, 4, 8) or not array.dtype.isnative:
            return f"holds {array.dtype.name}, which is no type of a kernel's elements"
        return None
    patterns = np.dtype(f"uint{8 * form.kind.itemsize}")
    if array.dtype not in (form.kind, patterns):
        allowed = form.kind.name if form.kind == patterns else f"{form.kind.name} (or {patterns.name}, its patterns)"
        if not array.dtype.isnative:
            return f"holds {array.dtype.name} in the byte order of another machine: store {allowed} in this one's"
        return f"holds {array.dtype.name}, and the launch says {form.name}: store {allowed}"
    return None


def _load(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            if not isinstance(found, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: holds one array without a name; write it with numpy.savez, by buffer names")
            with found:
                return {name: found[name] for name in found.files}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or 'it is no .npz file'})") from None
    except (ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: is no .npz file of plain arrays ({error})") from None


def arrays_of(after: Mapping[str, Array], before: Mapping[str, Array], launch: Launch) -> dict[str, Array]:
    """Bytes as arrays of the shapes that they had before, in the types that the launch states."""
    kinds = forms([launch])
    return {
        name: after[name].view(kinds[name].kind or array.dtype).reshape(array.shape) for name, array in before.items()
    }


def write_buffers(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes a file of arrays.  Raises InputError."""
    try:
        # numpy.savez takes the names as its own parameters, and a buffer may be called as one of those is.
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
