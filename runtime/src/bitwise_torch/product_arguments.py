"""The arguments of products: checks of operands, outputs and types, and the errors that they raise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import DTYPES, NAMES
from bitwise_core.errors import BitwiseError
from bitwise_core.plugins.profiles import NotCovered
from bitwise_torch import dispatch_cache

if TYPE_CHECKING:
    import torch

__all__ = [
    "NotCovered", "ProductError", "address_range", "check_operands", "check_tensor", "check_types", "checked_out",
    "empty_output", "output_format",
]  # fmt: skip

_FP8_TYPES = frozenset({"e4m3", "e5m2"})


class ProductError(BitwiseError, ValueError):
    """Operands or arguments of a product that do not fit; the message names them and says what to do."""


def check_operands(a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ProductError unless a and b are matrices of supported types on one device whose shapes match."""
    for name, each in (("a", a), ("b", b)):
        check_tensor(name, each)
        if each.dim() != 2:
            raise ProductError(f"{name} has {each.dim()} axes; both operands need 2: multiply a batch matrix by matrix")
        if str(each.dtype) not in NAMES:
            raise ProductError(f"{name} is of {each.dtype}; the supported types are {', '.join(DTYPES.values())}")
        if 0 in each.shape:
            raise ProductError(f"{name} has the shape {tuple(each.shape)}; there is nothing to multiply")
    if a.shape[1] != b.shape[0]:
        raise ProductError(
            f"a has {a.shape[1]} columns and b has {b.shape[0]} rows; both numbers must be k "
            f"({tuple(a.shape)} times {tuple(b.shape)})"
        )
    if a.device != b.device:
        raise ProductError(f"a is on {a.device} and b is on {b.device}; move both to one device")


def check_tensor(name: str, each: Any) -> None:
    """Raise ProductError unless an argument is a strided tensor."""
    if not hasattr(each, "data_ptr"):
        raise ProductError(f"{name} is a {type(each).__name__}; give a PyTorch tensor")
    if each.is_nested or str(each.layout) != "torch.strided":
        kind = "nested" if each.is_nested else f"of the layout {str(each.layout).removeprefix('torch.')}"
        raise ProductError(f"{name} is {kind}; give a dense tensor, for example {name}.to_dense()")


def output_format(a: torch.Tensor, dtype: torch.dtype | None) -> str:
    """Return the name of the output's format: that of `dtype`, by default that of `a` (bf16 for fp8)."""
    if dtype is None:
        name = NAMES[str(a.dtype)]
        return "bf16" if name in _FP8_TYPES else name
    if str(dtype) not in NAMES:
        raise ProductError(f"the output's type {dtype} is not supported; the types are {', '.join(DTYPES.values())}")
    return NAMES[str(dtype)]


def empty_output(a: torch.Tensor, b: torch.Tensor, name: str) -> torch.Tensor:
    """Return an output of a product in the format `name`; its elements are not initialised."""
    import torch

    return torch.empty((a.shape[0], b.shape[1]), dtype=getattr(torch, DTYPES[name]), device=a.device)


def checked_out(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, name: str) -> torch.Tensor:
    """Return `out` if it can hold the product in the format `name`.  Raises ProductError."""
    shape = (a.shape[0], b.shape[1])
    if tuple(out.shape) != shape or out.device != a.device:
        raise ProductError(f"out has the shape {tuple(out.shape)} on {out.device}; it needs {shape} on {a.device}")
    if NAMES.get(str(out.dtype)) != name:
        raise ProductError(f"out is of {out.dtype}; the product is of {DTYPES[name]}")
    if any(each.requires_grad for each in (a, b, out)) and dispatch_cache.gradients_enabled():
        raise ProductError("out does not support gradients: omit it, or multiply inside torch.no_grad()")
    row_stride, column_stride = out.stride()
    if not ((column_stride >= 1 and row_stride >= (shape[1] - 1) * column_stride + 1) or (
        row_stride >= 1 and column_stride >= (shape[0] - 1) * row_stride + 1
    )):  # fmt: skip
        raise ProductError(f"out has the strides {out.stride()}, so its elements overlap: give a dense tensor")
    for other, each in (("a", a), ("b", b)):
        low, high = address_range(out)
        first, last = address_range(each)
        if low < last and first < high:
            raise ProductError(f"out overlaps {other} in memory; give a tensor with memory of its own")
    return out


def address_range(matrix: torch.Tensor) -> tuple[int, int]:
    """Return the address of a matrix's first byte and the address after its last byte."""
    last = sum((length - 1) * step for length, step in zip(matrix.shape, matrix.stride(), strict=True))
    start = matrix.data_ptr()
    return start, start + (last + 1) * matrix.element_size()


def check_types(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Raise ProductError unless k and the types are those of the descriptor."""
    if desc.k != a.shape[1]:
        raise ProductError(f"the descriptor has k = {desc.k}, and a has {a.shape[1]} columns")
    for name, each, dtype in (("a", a, desc.left_dtype), ("b", b, desc.right_dtype), ("out", out, desc.output_dtype)):
        if NAMES.get(str(each.dtype)) != dtype:
            raise ProductError(f"{name} is of {each.dtype}, and the descriptor has {dtype}")
    if desc.operand_scales:
        raise ProductError("the descriptor has operand scales, which matmul does not support: give one without")
