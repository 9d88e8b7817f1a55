"""What cuBLASLt is asked: everything that its heuristic looks at, and the configuration that it answers with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from bitwise_core.problems import Problem

MEBIBYTE = 1 << 20

WORKSPACE = 32 * MEBIBYTE
"""The allowance that PyTorch gives on sm_90, in bytes."""


BIAS_WORKSPACE = MEBIBYTE
"""The allowance that PyTorch gives where the library adds a bias, in bytes."""


class CublasError(Exception):
    """What is wrong with a question, or with the library asked; its text is a sentence."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type of matrix elements: its number in `cudaDataType_t`, and its size in bytes."""

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

COMPUTE = MappingProxyType({"fp32": 68, "tf32": 77})
"""`cublasComputeType_t`: accumulation in fp32, and fp32 operands rounded to tf32."""

EPILOGUES = MappingProxyType({"none": 1, "relu": 2, "bias": 4, "relu_bias": 6, "gelu": 32, "gelu_bias": 36})

DTYPES = ("fp16", "bf16", "e4m3", "e5m2", "tf32", "fp32")
"""What `--dtype` takes: the operands' type, tf32 for fp32 operands on tensor cores."""


@dataclass(frozen=True, slots=True)
class Question:
    """One problem C[m, n] = A[m, k] B[k, n], row-major, as the heuristic sees it.

    `a`, `b` and `c` name the element types.  A transposed operand is stored as [k, m] or [n, k].  Leading dimensions
    and batch strides are in elements, None for the dense ones.  `workspace` is the allowance in bytes and `alignment`
    what the pointers of A, B and C are multiples of, in bytes: the same shape under two of them may get two answers.
    A bias has n elements of the type of C.  Raises CublasError for what no library can be asked.
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
    workspace: int = WORKSPACE
    alignment: tuple[int, int, int] = (256, 256, 256)

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            if getattr(self, name) < 1:
                raise CublasError(f"{name} is {getattr(self, name)}; a matrix product needs at least 1 of it")
        if max(self.m, self.n, self.k) >= 1 << 31:
            raise CublasError(f"{self.m} x {self.n} x {self.k}: a dimension of 2**31 or more is not measured")
        for name in ("a", "b", "c"):
            if getattr(self, name) not in TYPES:
                raise CublasError(f"{getattr(self, name)!r} is no element type of {name}; there are {', '.join(TYPES)}")
        if self.compute not in COMPUTE:
            raise CublasError(f"{self.compute!r} is no way to compute; there are {', '.join(COMPUTE)}")
        if self.compute == "tf32" and (self.a, self.b) != ("fp32", "fp32"):
            raise CublasError(f"tf32 is computed on fp32 operands, not on {self.a} and {self.b}")
        if self.epilogue not in EPILOGUES:
            raise CublasError(f"{self.epilogue!r} is no epilogue; there are {', '.join(EPILOGUES)}")
        if self.workspace < 0:
            raise CublasError(f"a workspace of {self.workspace} bytes cannot be allowed; 0 allows none")
        for name, rows, columns in (("a", *self.stored_a), ("b", *self.stored_b), ("c", self.m, self.n)):
            leading = getattr(self, f"ld_{name}")
            if leading is not None and leading < columns:
                raise CublasError(
                    f"the leading dimension of {name} is {leading}; its {rows} rows of {columns} elements would overlap"
                )

    @property
    def stored_a(self) -> tuple[int, int]:
        """Rows and columns of A as it lies in memory."""
        return (self.k, self.m) if self.transpose_a else (self.m, self.k)

    @property
    def stored_b(self) -> tuple[int, int]:
        """Rows and columns of B as it lies in memory."""
        return (self.n, self.k) if self.transpose_b else (self.k, self.n)

    @property
    def consecutive(self) -> bool:
        """Whether the matrices of a batch follow one another without gaps, in A, B and C."""
        return self._follow("a") and self._follow("b") and self.consecutive_output

    @property
    def consecutive_output(self) -> bool:
        """Whether those of C do, without gaps between their rows."""
        return self.ld_c in (None, self.n) and self._follow("c")

    def _follow(self, name: str) -> bool:
        rows, columns = {"a": self.stored_a, "b": self.stored_b, "c": (self.m, self.n)}[name]
        stride = getattr(self, f"stride_{name}")
        return stride in (None, rows * (getattr(self, f"ld_{name}") or columns))

    @property
    def letters(self) -> str:
        """How A and B lie: N for rows that are dense, T for columns that are."""
        return "".join("T" if each else "N" for each in (self.transpose_a, self.transpose_b))

    @property
    def widths(self) -> dict[str, int]:
        """The leading dimensions, in elements, of matrices without gaps."""
        return {"a": self.stored_a[1], "b": self.stored_b[1], "c": self.n}

    @property
    def words(self) -> str:
        """The question in short, for messages."""
        types = self.compute if self.compute == "tf32" else self.a if self.a == self.b else f"{self.a} x {self.b}"
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m}x{self.n}x{self.k} {types} {self.letters} to {self.c}"


def question(m: int, n: int, k: int, dtype: str = "fp16", out: str | None = None, **options: Any) -> Question:
    """The usual question for operands of a type of DTYPES: the types of B and C, and fp8's transposes, follow from it.

    C has the type of A, bf16 for fp8; fp8 takes B as [n, k], the one form that sm_90 multiplies.  `options` are fields
    of Question.  Raises CublasError.
    """
    if dtype not in DTYPES:
        raise CublasError(f"{dtype!r} is no type of operands; there are {', '.join(DTYPES)}")
    if dtype == "tf32":
        base = Question(m, n, k, "fp32", "fp32", out or "fp32", "tf32")
    elif dtype in FP8:
        # Two operands of e5m2 are not multiplied: the library takes e4m3 on the other side.
        base = Question(m, n, k, dtype, "e4m3", out or "bf16", transpose_b=True)
    else:
        base = Question(m, n, k, dtype, dtype, out or dtype)
    return replace(base, **options)


def question_of_problem(problem: Problem, alignment: tuple[int, int, int] = (256, 256, 256)) -> Question:
    """The question that a problem is, with the workspace that PyTorch allows: less where it adds a bias.

    Raises CublasError, also for a bias on one column, which PyTorch adds by other kernels.
    """
    if problem.epilogue == "bias" and problem.n == 1:
        raise CublasError(
            f"{problem.words} is not described: a bias on one column is added by kernels of PyTorch's own"
        )
    return Question(
        problem.m, problem.n, problem.k, problem.a, problem.b, problem.out, "fp32", problem.transpose_a,
        problem.transpose_b, problem.batch or 1, problem.ld_a, problem.ld_b, None, problem.stride_a, problem.stride_b,
        epilogue=problem.epilogue, alignment=alignment,
        workspace=BIAS_WORKSPACE if problem.epilogue == "bias" else WORKSPACE,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every attribute of an algorithm configuration; numbers as the library's header counts them."""

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
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the heuristic: what it would run, the workspace that needs in bytes, and the library's own record.

    `opaque` is the library's record of 64 bytes, good for this library on this GPU model; an answer is run from it.
    """

    configuration: Configuration
    workspace: int
    waves: float
    opaque: bytes
