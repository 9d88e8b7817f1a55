"""The type of a buffer's elements, by its name in a manifest, and the arrays that can hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat

# A recalled answer is read without NumPy.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"

_NATIVE = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16",
    "i64": "int64", "u64": "uint64", "i32": "int32", "u32": "uint32",
    "i16": "int16", "u16": "uint16", "i8": "int8", "u8": "uint8", "i1": "bool",
}  # fmt: skip
_COMPILER_FORMATS = {"fp8e4nv": "e4m3", "fp8e5": "e5m2", "fp8e4b8": "e4m3fnuz", "fp8e5b16": "e5m2fnuz"}
"""Names that compilers give to formats, and the names that `bitwise_core.numerics` uses."""

ELEMENT_TYPES = (
    *_NATIVE, *(name for name, each in FLOAT_FORMATS.items() if name not in _NATIVE and each.bits % 8 == 0),
    *_COMPILER_FORMATS,
)  # fmt: skip
"""The names of element types."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """The type of a buffer's elements: its name in the launch (None if the launch has none) and its NumPy type.

    A format that NumPy lacks is held in an array of unsigned integers.  `kind` is None if the type is unknown, `format`
    if it is not a floating-point format.
    """

    name: str | None
    kind: np.dtype[Any] | None
    format: FloatFormat | None

    @property
    def bytes(self) -> int:
        """The width of an element in bytes; 1 if the type is unknown."""
        return 1 if self.kind is None else self.kind.itemsize


def element_type(name: str | None) -> ElementType:
    """Return the element type with this name in a manifest."""
    import numpy as np

    found = FLOAT_FORMATS.get(_COMPILER_FORMATS.get(name or "", name or ""))
    if name in _NATIVE:
        return ElementType(name, np.dtype(_NATIVE[name]), found)
    if found is not None and found.bits % 8 == 0:
        return ElementType(name, np.dtype(f"uint{found.bits}"), found)
    return ElementType(name, None, None)


def array_mismatch(array: Array, form: ElementType) -> str | None:
    """Return why an array cannot hold a buffer's elements, as the end of a sentence; None if it can."""
    if not array.size:
        return "is empty"
    if not array.flags.c_contiguous:
        return "is stored column by column (Fortran order); store it row by row, as numpy.ascontiguousarray does"
    if form.kind is None:
        if array.dtype.kind not in "biuf" or array.dtype.itemsize not in (1, 2, 4, 8) or not array.dtype.isnative:
            return f"holds {array.dtype.name}, which is no type of a kernel's elements"
        return None
    import numpy as np

    patterns = np.dtype(f"uint{8 * form.kind.itemsize}")
    if array.dtype not in (form.kind, patterns):
        allowed = form.kind.name if form.kind == patterns else f"{form.kind.name} (or {patterns.name}, its patterns)"
        if not array.dtype.isnative:
            return f"holds {array.dtype.name} in the byte order of another machine: store {allowed} in this one's"
        return f"holds {array.dtype.name}, and the launch says {form.name}: store {allowed}"
    return None
