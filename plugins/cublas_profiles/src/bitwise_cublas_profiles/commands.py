"""`bitwise cublas ask`, `bitwise cublas audit` and `bitwise cublas invariance`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitwise_core.cli.common import print_answer
from bitwise_cublas_profiles.invariance.command import invariance
from bitwise_cublas_profiles.workspaces import WORKSPACE

if TYPE_CHECKING:
    from bitwise_cublas_profiles.audit import Finding
    from bitwise_cublas_profiles.library import Library
    from bitwise_cublas_profiles.query import GemmQuery, HeuristicResult

WRONG_INPUT, LOSSES = 2, 1

app = typer.Typer(
    name="cublas",
    help="Query cuBLASLt's heuristic: products whose sums drop values, and batch invariance of products.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

M = Annotated[int, typer.Argument(metavar="M", min=1, help="The rows of A and C.")]
N = Annotated[int, typer.Argument(metavar="N", min=1, help="The columns of B and C.")]
K = Annotated[int, typer.Argument(metavar="K", min=1, help="The length of the sums.")]
Dtype = Annotated[str, typer.Option("--dtype", help="The operands' type: fp16, bf16, e4m3, e5m2, tf32 or fp32.")]
OutDtype = Annotated[
    str | None, typer.Option("--out-dtype", help="The output's type; by default the operands' type, bf16 for fp8.")
]
LibraryPath = Annotated[
    Path | None, typer.Option("--library", metavar="PATH", help="A libcublasLt.so; by default PyTorch's.")
]
Workspace = Annotated[int, typer.Option("--workspace", min=0, metavar="BYTES", help="The limit of the workspace.")]
Transposes = Annotated[str | None, typer.Option("--transposes", help="How A and B are stored: NN, NT, TN or TT.")]
Epilogue = Annotated[
    str, typer.Option("--epilogue", help="The epilogue: none, relu, gelu, bias, relu_bias or gelu_bias.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def cublas() -> None:
    """Query cuBLASLt's heuristic: products whose sums drop values, and batch invariance of products."""


@app.command()
def ask(
    m: M, n: N, k: K, dtype: Dtype = "fp16", out: OutDtype = None, library: LibraryPath = None,
    workspace: Workspace = WORKSPACE, transposes: Transposes = None, epilogue: Epilogue = "none",
    batch: Annotated[int, typer.Option("--batch", min=1, help="The number of products.")] = 1,
    leading: Annotated[
        str | None, typer.Option("--leading", metavar="A,B,C", help="The leading dimensions, in elements; - for dense.")
    ] = None,
    strides: Annotated[
        str | None,
        typer.Option("--batch-strides", metavar="A,B,C", help="The strides of the batch, in elements; - for dense."),
    ] = None,
    alignment: Annotated[
        str | None, typer.Option("--alignment", metavar="A,B,C", help="The alignment of the pointers, in bytes.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="The number of results, best first.")] = 1,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Print what the heuristic selects for C[M, N] = A[M, K] B[K, N]; needs a GPU of the target model.

    Exit status: 0 printed, 2 an argument is wrong or the library has no result.
    """
    from bitwise_cublas_profiles import report
    from bitwise_cublas_profiles.library import Library
    from bitwise_cublas_profiles.query import gemm_query

    with _errors():
        options: dict[str, Any] = {"workspace": workspace, "epilogue": epilogue, "batch": batch, **_stored(transposes)}
        for name, option, text in (("ld", "--leading", leading), ("stride", "--batch-strides", strides)):
            options |= {f"{name}_{matrix}": each for matrix, each in zip("abc", _three(option, text), strict=True)}
        if alignment is not None:
            options["alignment"] = tuple(each or 256 for each in _three("--alignment", alignment))
        query = gemm_query(m, n, k, dtype, out, **options)
        with Library(library) as loaded:
            results = loaded.heuristic(query, count)
            version, path = loaded.version, str(loaded.path)
    if as_json:
        found = [{**each.configuration.record(), "workspace": each.workspace, "waves": each.waves} for each in results]
        print_answer("cublas-ask", {"version": version, "library": path, "query": query.description, "results": found})
        return
    for result in results:
        typer.echo(f"{query.description}: {report.one_line(result.configuration)}; workspace {result.workspace} bytes")


@app.command(name="audit")
def audit_command(
    m: Annotated[int | None, typer.Argument(metavar="M", min=1, help="The rows of A and C.")] = None,
    n: Annotated[int | None, typer.Argument(metavar="N", min=1, help="The columns of B and C.")] = None,
    k: Annotated[int | None, typer.Argument(metavar="K", min=1, help="The length of the sums.")] = None,
    shapes: Annotated[
        Path | None, typer.Option("--shapes", metavar="FILE", help="One shape to a line: M N K, or M N K dtype.")
    ] = None,
    dtype: Dtype = "fp16", out: OutDtype = None, library: LibraryPath = None, workspace: Workspace = WORKSPACE,
    transposes: Transposes = None,
    run: Annotated[bool, typer.Option("--run", help="Check each prediction by a run on ones.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Report the shapes whose sums drop the last values of k, from the heuristic's result.

    Exit status: 0 none drops any, 1 some do, 2 an argument is wrong, 3 some are unknown.
    """
    from bitwise_cublas_profiles.audit import audit, read_shapes
    from bitwise_cublas_profiles.driver import gpu_provenance
    from bitwise_cublas_profiles.library import Library
    from bitwise_cublas_profiles.query import CublasError, gemm_query

    with _errors():
        options: dict[str, Any] = {"workspace": workspace, **_stored(transposes)}
        if shapes is not None and m is None:
            queries = read_shapes(shapes, dtype, out, **options)
        elif shapes is None and m is not None and n is not None and k is not None:
            queries = [gemm_query(m, n, k, dtype, out, **options)]
        else:
            raise CublasError("give one shape, M N K, or a file of them with --shapes")
        with Library(library) as loaded:
            findings = list(audit(loaded, queries, _counter(loaded) if run else None))
            version = loaded.version
    show(findings, version, as_json, gpu_provenance())
    raise typer.Exit(status(findings))


def status(findings: list[Finding]) -> int:
    """The exit status of an audit."""
    if any(each.dropped_k is not None and each.dropped_k.count for each in findings):
        return LOSSES
    return 3 if any(each.dropped_k is None or each.dropped_k.count is None for each in findings) else 0


def show(findings: list[Finding], version: str, as_json: bool, where: Mapping[str, str] | None = None) -> None:
    """Print an audit: every incomplete shape, all shapes if there are few, and a summary."""
    from bitwise_cublas_profiles import report

    if as_json:
        records = [each.record() for each in findings]
        content = {"version": version, **(where or {}), "summary": report.summary(findings), "shapes": records}
        print_answer("cublas-audit", content)
        return
    few = len(findings) <= 20
    for each in findings:
        if few or each.dropped_k is None or each.dropped_k.count != 0 or each.confirmed is False:
            typer.echo(report.finding_line(each))
    for sentence in report.summary_lines(findings):
        typer.echo(f"cuBLASLt {version}: {sentence}")


def _counter(loaded: Library) -> Callable[[GemmQuery, HeuristicResult], int]:
    from bitwise_cublas_profiles.query import CublasError

    def count(query: GemmQuery, result: HeuristicResult) -> int:
        from bitwise_cublas_profiles.tensors import count_ones

        try:
            return count_ones(loaded, query, result)
        except ImportError:
            raise CublasError("--run needs PyTorch, which is not installed") from None

    return count


def _three(option: str, text: str | None) -> list[int | None]:
    """Integers for A, B and C; None for a dense matrix."""
    from bitwise_cublas_profiles.query import CublasError

    if text is None:
        return [None, None, None]
    parts = [each.strip() for each in text.split(",")]
    if len(parts) != 3 or not all(each == "-" or (each.isascii() and each.isdigit()) for each in parts):
        raise CublasError(f"{option}: {text!r} is not of the form A,B,C; each is a number or -")
    return [None if each == "-" else int(each) for each in parts]


def _stored(transposes: str | None) -> dict[str, Any]:
    from bitwise_cublas_profiles.query import CublasError

    if transposes is None:
        return {}
    if len(transposes) != 2 or set(transposes) - {"N", "T"}:
        raise CublasError(f"--transposes: {transposes!r} is not one of NN, NT, TN and TT")
    return {"transpose_a": transposes[0] == "T", "transpose_b": transposes[1] == "T"}


@contextmanager
def _errors() -> Iterator[None]:
    from bitwise_cublas_profiles.query import CublasError

    try:
        yield
    except CublasError as error:
        typer.echo(f"bitwise: {error}", err=True)
        raise typer.Exit(WRONG_INPUT) from None


@wraps(invariance)
def _invariance(*arguments: Any, **options: Any) -> None:
    with _errors():
        invariance(*arguments, **options)


app.command(name="invariance")(_invariance)
