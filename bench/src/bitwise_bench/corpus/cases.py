"""What one configuration of the corpus is: a kernel, its constants and options, and one concrete launch.

The records hold no tensor and import no compiler, so that tests may read them anywhere.
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
    """A case of the corpus contradicts itself; the message names the case and what to change."""


@dataclass(frozen=True, slots=True)
class Array:
    """One buffer of a launch.

    `elements` counts the elements from the pointer that the kernel receives; `offset` is how many elements
    before that pointer the allocation starts (0: aligned to 256 bytes, so the compiler may assume 16).
    `kind` says how an input is drawn: any float, a float that is not negative, any integer of the type,
    an integer from 0 to `below` - 1, or zeros.  Outputs are filled with a fixed pattern, scratch with zeros.
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
            raise CaseError(f"buffer {self.name}: {self.dtype} is no element type; use one of {sorted(DTYPE_BYTES)}")
        if self.elements <= 0 or self.offset < 0:
            raise CaseError(f"buffer {self.name}: needs at least one element and an offset of 0 or more")
        if self.kind == "index" and self.below <= 0:
            raise CaseError(f"buffer {self.name}: an index draw needs `below`, the number of values it may take")

    @property
    def read(self) -> bool:
        """Whether the launch starts from drawn values of this buffer."""
        return self.role in ("input", "inout")

    @property
    def written(self) -> bool:
        """Whether the bytes of this buffer are part of the result."""
        return self.role in ("output", "inout")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A run-time number: Python int (32 or 64 bits as it fits) or float (passed as fp32)."""

    name: str
    value: int | float


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor map made on the host over `array`: `shape`, `strides` and `block` count elements, slowest first."""

    name: str
    array: Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.shape) == len(self.strides) == len(self.block):
            raise CaseError(f"tensor map {self.name}: shape, strides and block must have equally many entries")


Argument: TypeAlias = Array | Scalar | Descriptor


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration with its launch.

    Cases of one (family, group) have the same output buffers and compute the same mathematics on the same
    inputs, so their bytes are comparable.  `arguments` are the run-time arguments by parameter name, in any
    order; `constants` the compile-time ones; `options` what else the compiler is told; `target` the architecture
    that it is compiled for.
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
            raise CaseError(f"case {self.id}: two arguments have one name among {names}")
        if not any(array.written for array in self.arrays):
            raise CaseError(f"case {self.id}: no buffer has the role output or inout, so there is nothing to compare")

    @property
    def id(self) -> str:
        """The stable name of the case, unique in the corpus."""
        return f"{self.family}/{self.group}/{self.name}"

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Every buffer of the launch, those behind tensor maps included, in argument order."""
        held = (a.array if isinstance(a, Descriptor) else a for a in self.arguments)
        return tuple(a for a in held if isinstance(a, Array))

    @property
    def outputs(self) -> tuple[Array, ...]:
        """The buffers whose bytes are compared, in argument order."""
        return tuple(array for array in self.arrays if array.written)
