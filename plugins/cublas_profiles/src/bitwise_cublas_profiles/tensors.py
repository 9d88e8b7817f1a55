"""Queries of PyTorch tensors, and heuristic results run on tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitwise_cublas_profiles.library import Library, Pointers
from bitwise_cublas_profiles.query import FP8, CublasError, GemmQuery, HeuristicResult, of_elements
from bitwise_cublas_profiles.workspaces import WORKSPACE

if TYPE_CHECKING:
    import torch

_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_LARGEST_ALIGNMENT = 256


def torch_type(name: str) -> torch.dtype:
    """PyTorch's dtype of an element type of GemmQuery."""
    import torch

    found: torch.dtype = getattr(torch, _NAMES[name])
    return found


def type_name(dtype: Any) -> str:
    """The element type of a PyTorch dtype. Raises CublasError for one that is not measured."""
    name = str(dtype).removeprefix("torch.")
    for ours, theirs in _NAMES.items():
        if theirs == name:
            return ours
    raise CublasError(f"matrices of {name} are not measured; there are {', '.join(_NAMES.values())}")


def query_of_tensors(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *, compute: str = "fp32", workspace: int = WORKSPACE,
    epilogue: str = "none", fast_accumulation: bool = False,
) -> GemmQuery:  # fmt: skip
    """The query of out[m, n] = a[m, k] b[k, n] or a batch of it, with the tensors' strides and alignments.

    Raises CublasError for mismatched shapes, types or devices, and for operands with neither dense rows nor dense
    columns.
    """
    if not a.dim() == b.dim() == out.dim() or a.dim() not in (2, 3):
        raise CublasError(f"a, b and out have {a.dim()}, {b.dim()} and {out.dim()} axes; all need 2, or 3 with a batch")
    if not a.device == b.device == out.device or a.device.type != "cuda":
        raise CublasError(f"a is on {a.device}, b on {b.device} and out on {out.device}; all must be on one GPU")
    (m, k), (inner, n) = a.shape[-2:], b.shape[-2:]
    batches = {each.shape[0] if each.dim() == 3 else 1 for each in (a, b, out)}
    if k != inner or tuple(out.shape[-2:]) != (m, n) or len(batches) > 1:
        raise CublasError(f"{tuple(a.shape)} x {tuple(b.shape)} to {tuple(out.shape)}: the shapes do not match")
    transpose_a, ld_a = _stored("a", a)
    transpose_b, ld_b = _stored("b", b)
    transpose_c, ld_c = _stored("out", out)
    if transpose_c:
        raise CublasError("the rows of out are not dense; swap the operands and transpose them instead")
    stride_a, stride_b, stride_c = (each.stride(0) if each.dim() == 3 else None for each in (a, b, out))
    found = GemmQuery(
        m, n, k, type_name(a.dtype), type_name(b.dtype), type_name(out.dtype), compute, transpose_a, transpose_b,
        batches.pop(), ld_a, ld_b, ld_c, stride_a, stride_b, stride_c, epilogue=epilogue,
        fast_accumulation=fast_accumulation, workspace=workspace,
        alignment=(_alignment(a), _alignment(b), _alignment(out)),
    )  # fmt: skip
    if a.dim() == 2 or (m, n) != (1, 1):
        return found
    if found.batch == 1 or (k > 1 and (a.stride(1) == 1 or (b.stride(1) == 1 and b.stride(2) >= k))):
        raise CublasError(
            f"{found.description} is not described: as a batch, one product of one element is not measured, and "
            "neither are views of transposed vectors"
        )
    return of_elements(found)


def _stored(name: str, matrix: torch.Tensor) -> tuple[bool, int]:
    """Whether a matrix is stored transposed, and its leading dimension in elements."""
    rows, columns = matrix.shape[-2:]
    row, column = matrix.stride()[-2:]
    if 0 in (rows, columns):
        raise CublasError(f"{name} has the shape {tuple(matrix.shape)}; the product is empty")
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return False, max(row if rows > 1 else columns, columns)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return True, max(column if columns > 1 else rows, rows)
    raise CublasError(f"{name} has the strides {tuple(matrix.stride())}: neither its rows nor its columns are dense")


def _alignment(matrix: torch.Tensor) -> int:
    address = matrix.data_ptr()
    return min(address & -address, _LARGEST_ALIGNMENT) if address else _LARGEST_ALIGNMENT


def run(
    library: Library, query: GemmQuery, result: HeuristicResult | None, a: torch.Tensor, b: torch.Tensor,
    out: torch.Tensor, *, bias: torch.Tensor | None = None, scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Run a heuristic result on the current stream of the tensors' device; None lets the library choose.

    Raises CublasError.
    """
    import torch

    size = result.workspace if result is not None else query.workspace
    space = torch.empty(size, dtype=torch.uint8, device=out.device) if size else None
    pointers = Pointers(
        a.data_ptr(), b.data_ptr(), out.data_ptr(), *(each.data_ptr() if each is not None else 0
                                                     for each in (space, bias, scale_a, scale_b)),
    )  # fmt: skip
    with torch.cuda.device(out.device):
        library.run(query, result, pointers, torch.cuda.current_stream(out.device).cuda_stream)


def operands(query: GemmQuery, fill: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """GPU tensors A, B and C of a query without custom strides. All elements of A and B are `fill`."""
    import torch

    def matrix(rows: int, columns: int, transposed: bool, name: str) -> torch.Tensor:
        shape = (columns, rows) if transposed else (rows, columns)
        whole = (query.batch, *shape) if query.batch > 1 else shape
        # Not every PyTorch build can fill an fp8 tensor; every build converts to fp8.
        made = torch.full(whole, fill, dtype=torch.float32 if name in FP8 else torch_type(name), device="cuda")
        made = made.to(torch_type(name))
        return made.transpose(-1, -2) if transposed else made

    a = matrix(query.m, query.k, query.transpose_a, query.a)
    b = matrix(query.k, query.n, query.transpose_b, query.b)
    shape = (query.batch, query.m, query.n) if query.batch > 1 else (query.m, query.n)
    return a, b, torch.full(shape, float("nan"), dtype=torch_type(query.c), device="cuda")


_EXACT_INTEGERS = {"fp32": 1 << 24, "fp16": 1 << 11, "bf16": 1 << 8}
"""Largest n such that the output type represents every integer up to n."""


def count_ones(library: Library, query: GemmQuery, result: HeuristicResult) -> int:
    """The number of values of k in the sum, the minimum over all output elements: the result is run on ones.

    The longer output axis counts windows of k (ones inside, zeros outside) short enough for the output type to be
    exact, so the query itself is unchanged. Raises CublasError.
    """
    import torch

    if query.c not in _EXACT_INTEGERS:
        raise CublasError(f"an output of {query.c} cannot hold the counts; use one of {', '.join(_EXACT_INTEGERS)}")
    a, b, out = operands(query)
    capacity = _EXACT_INTEGERS[query.c]
    windows = -(-query.k // capacity)
    along_rows = query.m >= query.n
    places = query.m if along_rows else query.n
    window_of = torch.arange(query.k, device="cuda") // capacity
    total = 0
    for base in range(0, windows, places):
        wanted = torch.arange(base, base + places, device="cuda")
        inside = (wanted[:, None] == window_of[None, :]).to(torch.float32)
        (a if along_rows else b.transpose(-1, -2)).copy_(inside)
        out.fill_(float("nan"))
        run(library, query, result, a, b, out)
        counts = out.float() if along_rows else out.float().transpose(-1, -2)
        fewest = counts.amin(dim=-1).reshape(-1, places).amin(dim=0)[: windows - base]
        if bool(fewest.isnan().any()):
            raise CublasError(f"{query.description}: the library did not write every output element")
        total += int(fewest.sum(dtype=torch.float64).item())
    return total
