"""The buffers of a launch as arrays in a file: `.npz`, one array for each buffer, by its name."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitwise_core.folder import InputError
from bitwise_core.machine.lanes import Array
from bitwise_core.machine.launch import Launch

_NATIVE = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16",
    "i64": "int64", "u64": "uint64", "i32": "int32", "u32": "uint32",
    "i16": "int16", "u16": "uint16", "i8": "int8", "u8": "uint8", "i1": "bool",
}  # fmt: skip
_PATTERNS = {"bf16": "uint16", "tf32": "uint32"}


@dataclass(frozen=True, slots=True)
class Form:
    """How a buffer's elements stand in an array: NumPy's type (a format that NumPy lacks as an unsigned integer)."""

    name: str | None
    kind: np.dtype[np.generic] | None


def forms(launch: Launch) -> dict[str, Form]:
    """The form of each buffer's elements as the launch states it; of a buffer whose type it does not state, nothing."""
    found: dict[str, Form] = {}
    for argument in launch.args:
        described = argument.tensor_map if argument.tensor_map is not None else argument
        if described.buffer is None:
            continue
        name = described.dtype
        known = found.get(described.buffer)
        if known is None or known.name is None:
            kind = _NATIVE.get(name or "") or _PATTERNS.get(name or "") or ("uint8" if _is_byte(name) else None)
            found[described.buffer] = Form(name, None if kind is None else np.dtype(kind))
    return found


def _is_byte(name: str | None) -> bool:
    return name is not None and name.startswith("fp8")


def read_buffers(path: Path, launch: Launch) -> dict[str, Array]:
    """The arrays of a launch's buffers.  Raises InputError with a sentence for each that is missing or does not fit."""
    stored = _load(path)
    sentences = []
    result: dict[str, Array] = {}
    for name, form in forms(launch).items():
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
        return f"holds {array.dtype.name}, and the launch says {form.name}: store {allowed}"
    return None


def _load(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: holds one array without a name; write it with numpy.savez, by buffer names")
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or 'it is no .npz file'})") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: is no .npz file of plain arrays ({error})") from None


def contents(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The bytes of each array, on one axis."""
    return {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in arrays.items()}


def arrays_of(after: Mapping[str, Array], before: Mapping[str, Array], launch: Launch) -> dict[str, Array]:
    """Bytes as arrays of the shapes that they had before, in the types that the launch states."""
    kinds = forms(launch)
    return {
        name: after[name].view(kinds[name].kind or array.dtype).reshape(array.shape) for name, array in before.items()
    }


def write_buffers(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes a file of arrays.  Raises InputError."""
    try:
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
