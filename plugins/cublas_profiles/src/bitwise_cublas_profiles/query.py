"""A cuBLASLt heuristic query: all inputs of the heuristic, and the algorithm configuration that it returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from bitwise_cublas_profiles.workspaces import BIAS_WORKSPACE, WORKSPACE

if TYPE_CHECKING:
    from bitwise_core.descriptors.problem import GEMMProblem


class CublasError(Exception):
    """An invalid query, or a failure of the library. The message is a sentence for the caller."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """A matrix element type: its `cudaDataType_t` code and its size in bytes."""

    code: int
    size: int


TYPES = MappingProxyType(
    {
        "fp32": ElementType(0, 4),
        "fp16": ElementType(2, 2),
        "bf16": ElementType(14, 2),
        "e4m3": ElementType(28, 1),
        "e5m2": ElementType(29, 1),
    }
)

FP8 = frozenset({"e4m3", "e5m2"})

COMPUTE = MappingProxyType({"fp32": 68, "tf32": 77, "fp16": 64})
"""`cublasComputeType_t` codes: fp32 accumulation, fp32 operands rounded to tf32, and fp16 accumulation."""

EPILOGUES = MappingProxyType({"none": 1, "relu": 2, "bias": 4, "relu_bias": 6, "gelu": 32, "gelu_bias": 36})

DTYPES = ("fp16", "bf16", "e4m3", "e5m2", "tf32", "fp32")
"""Values of `--dtype`: the operand type, or tf32 for fp32 operands on tensor cores."""


@dataclass(frozen=True, slots=True)
class GemmQuery:
    """One GEMM C[m, n] = A[m, k] B[k, n], row-major, with every input of the heuristic.

    `a`, `b` and `c` name element types. A transposed operand is stored as [k, m] or [n, k]. Leading dimensions and
    batch strides are in elements; None means dense. `workspace` is the limit in bytes. `alignment` gives the alignment
    of the pointers of A, B and C in bytes; the heuristic may choose another algorithm for another alignment. A bias has
    n elements of the type of C. With `blocks`, 128 values of k have a scale of their own, which so many rows of A and
    columns of B share: 1 or 128. `reductions` is a mask of the REDUCTION_SCHEMEs that split K may have, None for all.
    Raises CublasError for an invalid query.
    """

    m: int
    n: int
    k: int
    a: str = "fp16"
    b: str = "fp16"
    c: str = "fp16"
    compute: str = "fp32"
    transpose_a: bool = False
    transpose_b: bool = False
    batch: int = 1
    ld_a: int | None = None
    ld_b: int | None = None
    ld_c: int | None = None
    stride_a: int | None = None
    stride_b: int | None = None
    stride_c: int | None = None
    epilogue: str = "none"
    fast_accumulation: bool = False
    blocks: tuple[int, int] | None = None
    workspace: int = WORKSPACE
    alignment: tuple[int, int, int] = (256, 256, 256)
    reductions: int | None = None

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            if getattr(self, name) < 1:
                raise CublasError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if max(self.m, self.n, self.k) >= 1 << 31:
            raise CublasError(f"{self.m} x {self.n} x {self.k}: a dimension of 2**31 or more is not measured")
        for name in ("a", "b", "c"):
            if getattr(self, name) not in TYPES:
                raise CublasError(
                    f"{getattr(self, name)!r} is not an element type of {name}; choose one of {', '.join(TYPES)}"
                )
        if self.compute not in COMPUTE:
            raise CublasError(f"{self.compute!r} is not a compute type; choose one of {', '.join(COMPUTE)}")
        if self.compute == "tf32" and (self.a, self.b) != ("fp32", "fp32"):
            raise CublasError(f"tf32 needs fp32 operands, not {self.a} and {self.b}")
        if self.compute == "fp16" and (self.a, self.b, self.c) != ("fp16", "fp16", "fp16"):
            raise CublasError(f"fp16 accumulation needs matrices of fp16, not {self.a}, {self.b} and {self.c}")
        if self.epilogue not in EPILOGUES:
            raise CublasError(f"{self.epilogue!r} is not an epilogue; choose one of {', '.join(EPILOGUES)}")
        if self.workspace < 0:
            raise CublasError(f"the workspace limit is {self.workspace} bytes; it must be 0 or more")
        for name, rows, columns in (("a", *self.stored_a), ("b", *self.stored_b), ("c", self.m, self.n)):
            leading = getattr(self, f"ld_{name}")
            if leading is not None and leading < columns:
                raise CublasError(
                    f"the leading dimension of {name} is {leading}; its {rows} rows of {columns} elements would overlap"
                )

    @property
    def multiplied(self) -> str:
        """The type in which A is multiplied: tf32 for fp32 operands on tensor cores, else its own."""
        return "tf32" if self.compute == "tf32" else self.a

    @property
    def scale_type(self) -> Literal["fp16", "fp32"]:
        """The type of the factors alpha and beta: that in which sums are accumulated."""
        return "fp16" if self.compute == "fp16" else "fp32"

    @property
    def stored_a(self) -> tuple[int, int]:
        """Rows and columns of A as stored in memory."""
        return (self.k, self.m) if self.transpose_a else (self.m, self.k)

    @property
    def stored_b(self) -> tuple[int, int]:
        """Rows and columns of B as stored in memory."""
        return (self.n, self.k) if self.transpose_b else (self.k, self.n)

    @property
    def contiguous_batch(self) -> bool:
        """Whether the matrices of the batch are contiguous in A, B and C."""
        return self._is_contiguous_batch("a") and self._is_contiguous_batch("b") and self.contiguous_output_batch

    @property
    def contiguous_output_batch(self) -> bool:
        """Whether the matrices of the batch are contiguous in C, with dense rows."""
        return self.ld_c in (None, self.n) and self._is_contiguous_batch("c")

    def _is_contiguous_batch(self, name: str) -> bool:
        rows, columns = {"a": self.stored_a, "b": self.stored_b, "c": (self.m, self.n)}[name]
        stride = getattr(self, f"stride_{name}")
        return stride in (None, rows * (getattr(self, f"ld_{name}") or columns))

    @property
    def transposes(self) -> str:
        """Two letters for A and B: N if rows are dense in memory, T if columns are."""
        return "".join("T" if each else "N" for each in (self.transpose_a, self.transpose_b))

    @property
    def dense_ld(self) -> dict[str, int]:
        """Leading dimensions of dense matrices, in elements."""
        return {"a": self.stored_a[1], "b": self.stored_b[1], "c": self.n}

    @property
    def description(self) -> str:
        """The query in short form, for messages."""
        types = self.compute if self.compute == "tf32" else self.a if self.a == self.b else f"{self.a} x {self.b}"
        types += " accumulated in fp16" if self.compute == "fp16" else ""
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m}x{self.n}x{self.k} {types} {self.transposes} to {self.c}"


def gemm_query(m: int, n: int, k: int, dtype: str = "fp16", out: str | None = None, **options: Any) -> GemmQuery:
    """The usual query for operands of a type of DTYPES; the types of B and C follow from it.

    C has the type of A, or bf16 for fp8. fp8 operands take B as [n, k], the only layout that sm_90 supports. `options`
    are fields of GemmQuery. Raises CublasError.
    """
    if dtype not in DTYPES:
        raise CublasError(f"{dtype!r} is not an operand type; choose one of {', '.join(DTYPES)}")
    if dtype == "tf32":
        base = GemmQuery(m, n, k, "fp32", "fp32", out or "fp32", "tf32")
    elif dtype in FP8:
        # The library does not multiply two e5m2 operands; B is e4m3.
        base = GemmQuery(m, n, k, dtype, "e4m3", out or "bf16", transpose_b=True)
    else:
        base = GemmQuery(m, n, k, dtype, dtype, out or dtype)
    return replace(base, **options)


def query_of_problem(problem: GEMMProblem, alignment: tuple[int, int, int] = (256, 256, 256)) -> GemmQuery:
    """The query of a problem with PyTorch's workspace limit, which is smaller for a GEMM with a bias.

    Operands and outputs of tf32 are fp32 operands that tensor cores multiply, and an fp32 output. Raises CublasError,
    also for a bias on a single column: PyTorch adds it with kernels of its own.
    """
    if problem.finish is not None:
        raise CublasError(
            f"{problem.words} is not described without a GPU: the nearest product that a configuration explains has no "
            "factors, added matrix, activation or scales"
        )
    if problem.dot:
        raise CublasError(f"{problem.words} is not described without a GPU: cuBLAS has a function of its own for it")
    if problem.epilogue == "bias" and problem.n == 1:
        raise CublasError(
            f"{problem.words} is not described: PyTorch adds a bias on one column with kernels of its own"
        )
    a, b, out = ("fp32" if each == "tf32" else each for each in (problem.a, problem.b, problem.out))
    compute = "tf32" if problem.a == problem.b == "tf32" else "fp32"
    found = GemmQuery(
        problem.m, problem.n, problem.k, a, b, out, compute, problem.transpose_a, problem.transpose_b,
        problem.batch or 1, problem.ld_a, problem.ld_b, None, problem.stride_a, problem.stride_b,
        epilogue=problem.epilogue, alignment=alignment,
        workspace=BIAS_WORKSPACE if problem.epilogue == "bias" else WORKSPACE,
    )  # fmt: skip
    if problem.batch is None or (problem.m, problem.n) != (1, 1):
        return found
    if problem.batch == 1:
        raise CublasError(f"{problem.words} is not described: one product of one element is not measured as a batch")
    return of_elements(found)


def of_elements(query: GemmQuery) -> GemmQuery:
    """The query of a batch of one element: PyTorch takes its result for one with dense columns.

    It then passes A first, and both operands transposed.
    """
    return replace(
        query, a=query.b, b=query.a, transpose_a=not query.transpose_b, transpose_b=not query.transpose_a,
        ld_a=query.ld_b, ld_b=query.ld_a, stride_a=query.stride_b, stride_b=query.stride_a,
        alignment=(query.alignment[1], query.alignment[0], query.alignment[2]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Configuration:
    """The attributes of an algorithm configuration, numbered as in the library's header."""

    algorithm: int
    tile: int
    stages: int
    split_k: int
    reduction: int
    swizzle: int
    custom: int
    inner_shape: int
    cluster_shape: int

    def record(self) -> dict[str, int]:
        """The attributes as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """What decides bits in a heuristic result: the configuration, and the workspace that it needs in bytes."""

    configuration: Configuration
    workspace: int


@dataclass(frozen=True, slots=True)
class HeuristicResult:
    """One result of the heuristic: the configuration, the workspace that it needs in bytes, and its expected wave
    count.

    `opaque` is the library's `cublasLtMatmulAlgo_t` of 64 bytes. It is valid for this library on this GPU model only.
    """

    configuration: Configuration
    workspace: int
    waves: float
    opaque: bytes
