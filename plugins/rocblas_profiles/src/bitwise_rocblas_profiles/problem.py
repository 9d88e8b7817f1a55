"""A matrix product as a call of rocBLAS or hipBLASLt: column-major, with the letters that their files give to types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_rocblas_profiles.errors import RocblasError

MEBIBYTE = 1 << 20
LETTERS: Mapping[str, str] = MappingProxyType(
    {"fp32": "S", "fp16": "H", "bf16": "B", "tf32": "X", "e4m3fnuz": "F8", "e5m2fnuz": "B8"}
)
"""The libraries' letters of the types that are described; X is fp32 multiplied as tf32."""
FORMATS: Mapping[str, str] = MappingProxyType({letter: name for name, letter in LETTERS.items()})
BYTES: Mapping[str, int] = MappingProxyType({"S": 4, "X": 4, "H": 2, "B": 2, "F8": 1, "B8": 1, "D": 8, "I8": 1, "I": 4})


@dataclass(frozen=True, slots=True)
class Call:
    """D[m, n] = op(A)[m, k] op(B)[k, n], or `batch` of them, all column-major.

    `a`, `b` and `d` are letters of LETTERS; with X both operands are.  Leading dimensions are in elements; the matrices
    of a batch and their columns have no gaps where they are None.  `compute` is S, or H for sums in fp16.  `multiplied`
    are the types that A and B are multiplied in, by default their own, or fp16 beside fp16.  `workspace` is the size
    of the buffer for partial sums that the caller allows, in bytes.  Raises RocblasError.
    """

    m: int
    n: int
    k: int
    a: str = "H"
    b: str = "H"
    d: str = "H"
    compute: str = "S"
    transpose_a: bool = False
    transpose_b: bool = False
    batch: int = 1
    lda: int | None = None
    ldb: int | None = None
    ldd: int | None = None
    bias: bool = False
    multiplied: tuple[str, str] | None = None
    workspace: int = 128 * MEBIBYTE

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch"):
            if getattr(self, name) < 1:
                raise RocblasError(f"{name} is {getattr(self, name)}: give a size of at least 1")
        for name, rows in (("lda", self.stored_a), ("ldb", self.stored_b), ("ldd", self.m)):
            given = getattr(self, name)
            if given is not None and given < rows:
                raise RocblasError(f"{name} is {given}: the columns of the matrix have {rows} elements")
        if self.workspace < 0:
            raise RocblasError(f"the workspace is {self.workspace} bytes: give at least 0")

    @property
    def stored_a(self) -> int:
        """The number of rows of A in memory."""
        return self.k if self.transpose_a else self.m

    @property
    def stored_b(self) -> int:
        """The number of rows of B in memory."""
        return self.n if self.transpose_b else self.k

    @property
    def factors(self) -> tuple[str, str]:
        """The letters of the types in which A and B are multiplied."""
        if self.multiplied is not None:
            return self.multiplied
        return ("H", "H") if "H" in (self.a, self.b) else (self.a, self.b)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """M, N, batch and K, in the order of the logic files' indices."""
        return self.m, self.n, self.batch, self.k

    @property
    def strides(self) -> Mapping[str, tuple[int, int]]:
        """The strides of A, B, C and D between elements of a column and between columns."""
        lda, ldb, ldd = self.lda or self.stored_a, self.ldb or self.stored_b, self.ldd or self.m
        return {"A": (1, lda), "B": (1, ldb), "C": (1, ldd), "D": (1, ldd)}

    @property
    def letters(self) -> str:
        """How A and B are stored: N, or T where the operand is transposed."""
        return "".join("T" if each else "N" for each in (self.transpose_a, self.transpose_b))

    @property
    def words(self) -> str:
        """The call on one line."""
        types = self.a if self.a == self.b else f"{self.a} x {self.b}"
        batch = f", batch {self.batch}" if self.batch > 1 else ""
        bias = ", bias" if self.bias else ""
        return (
            f"{self.letters} M {self.m} N {self.n} K {self.k}{batch}, {types} to {self.d} in {self.compute}{bias}, "
            "column-major"
        )


def letter(name: str) -> str:
    """Return the libraries' letter of a type.  Raises RocblasError, which names the types that are described."""
    if name in ("e4m3", "e5m2"):
        raise RocblasError(f"gfx942 multiplies {name}fnuz, not {name}: give that type")
    if name not in LETTERS:
        raise RocblasError(f"products of {name} are not described; described are those of {', '.join(LETTERS)}")
    return LETTERS[name]


def call_of_problem(problem: GEMMProblem, workspace: int) -> Call:
    """Return the column-major call of a row-major problem: the transposed product, so that A and B change places.

    Raises RocblasError, also for a vector: whether a framework passes it as transposed is not known.
    """
    if problem.finish is not None:
        raise RocblasError(
            f"{problem.words} is not described: factors, added matrices, activations and scales are not; the nearest "
            "described call is the product alone, or with a bias"
        )
    for name in ("a", "b"):
        if 1 in problem.stored(name) and getattr(problem, f"ld_{name}") is None:
            raise RocblasError(
                f"{name} is a vector, which a framework may pass as it is or transposed, and the library selects by "
                "that: give the call itself, bitwise rocblas ask --column-major"
            )
    if problem.stride_a is not None or problem.stride_b is not None:
        raise RocblasError("strides between the matrices of a batch are not described: use contiguous ones")
    return Call(
        problem.n, problem.m, problem.k, letter(problem.b), letter(problem.a), _output(problem.out),
        transpose_a=problem.transpose_b, transpose_b=problem.transpose_a, batch=problem.batch or 1, lda=problem.ld_b,
        ldb=problem.ld_a, bias=problem.epilogue == "bias", workspace=workspace,
    )  # fmt: skip


def _output(name: str) -> str:
    return "S" if name == "tf32" else letter(name)
