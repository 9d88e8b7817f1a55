"""One configuration of the corpus: a kernel, its compile-time constants and options, and one concrete launch.

The records hold no tensors, and this module imports no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["input", "output", "inout", "scratch"]
DrawKind: TypeAlias = Literal["float", "positive", "integer", "index", "zero"]

DTYPE_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "fp8e4nv": 1,
        "fp8e5": 1,
        "fp16": 2,
        "bf16": 2,
        "fp32": 4,
        "fp64": 8,
        "i1": 1,
        "i8": 1,
        "u8": 1,
        "i16": 2,
        "i32": 4,
        "u32": 4,
        "i64": 8,
    }
)
DEFAULT_TARGET = "sm_90"
FLOAT_DTYPES = frozenset({"fp8e4nv", "fp8e5", "fp16", "bf16", "fp32", "fp64"})


class CaseError(ValueError):
    """A configuration is inconsistent; the message names it and what to change."""


@dataclass(frozen=True, slots=True)
class Array:
    """One buffer of a launch.

    `elements` is the number of elements from the pointer that the kernel receives.  The allocation starts `offset`
    elements before that pointer (0: aligned to 256 bytes, so the compiler may assume 16).  `kind` is the distribution
    of an input: any float, a non-negative float, any integer of the type, an integer from 0 to `below` - 1, or zeros.
    Outputs are filled with a fixed byte pattern before the launch, scratch buffers with zeros.
    """

    name: str
    dtype: str
    elements: int
    role: Role = "input"
    kind: DrawKind = "float"
    below: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise CaseError(f"buffer {self.name}: unknown element type {self.dtype}; use one of {sorted(DTYPE_BYTES)}")
        if self.elements <= 0 or self.offset < 0:
            raise CaseError(f"buffer {self.name}: it needs at least one element and an offset of 0 or more")
        if self.kind == "index" and self.below <= 0:
            raise CaseError(f"buffer {self.name}: an index buffer needs `below`, the number of its values")

    @property
    def read(self) -> bool:
        """Whether the kernel reads this buffer, so that it is filled with random values before the launch."""
        return self.role in ("input", "inout")

    @property
    def written(self) -> bool:
        """Whether the bytes of this buffer are compared after the launch."""
        return self.role in ("output", "inout")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A run-time scalar: an int (passed in 32 or 64 bits, the smaller that holds it) or a float (passed as fp32)."""

    name: str
    value: int | float


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor map of `array` encoded on the host; `shape`, `strides`, `block` in elements, slowest axis first."""

    name: str
    array: Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.shape) == len(self.strides) == len(self.block):
            raise CaseError(f"tensor map {self.name}: shape, strides and block must have the same number of entries")


Argument: TypeAlias = Array | Scalar | Descriptor


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration with its launch.

    Configurations of one (family, group) have the same output buffers and compute the same function on the same
    inputs, so their bytes are comparable.  `arguments` are the run-time arguments, in any order; `constants` the
    compile-time constants; `options` further compile options; `target` the architecture it is compiled for.
    """

    family: str
    group: str
    name: str
    function: Any
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    num_warps: int = 4
    num_stages: int = 3
    tags: frozenset[str] = field(default=frozenset())
    target: str = DEFAULT_TARGET

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        names = [argument.name for argument in self.arguments] + list(self.constants)
        if len(set(names)) != len(names):
            raise CaseError(f"case {self.id}: two arguments share a name: {names}")
        if not any(array.written for array in self.arrays):
            raise CaseError(f"case {self.id}: no buffer has the role output or inout; declare one to compare")

    @property
    def id(self) -> str:
        """The stable name of the configuration, unique in the corpus."""
        return f"{self.family}/{self.group}/{self.name}"

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Every buffer of the launch, those of tensor maps included, in the order of the arguments."""
        held = (a.array if isinstance(a, Descriptor) else a for a in self.arguments)
        return tuple(a for a in held if isinstance(a, Array))

    @property
    def outputs(self) -> tuple[Array, ...]:
        """The buffers whose bytes are compared, in the order of the arguments."""
        return tuple(array for array in self.arrays if array.written)
