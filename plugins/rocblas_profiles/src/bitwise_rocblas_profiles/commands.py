"""`bitwise rocblas ask`, `bitwise rocblas describe` and `bitwise rocblas coverage`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bitwise_core.cli.common import print_answer

if TYPE_CHECKING:
    from bitwise_core.descriptors import GEMMDesc
    from bitwise_rocblas_profiles.libraries import Device
    from bitwise_rocblas_profiles.problem import Call
    from bitwise_rocblas_profiles.selection import Selected
    from bitwise_rocblas_profiles.tables import LogicFile


WRONG_INPUT, UNKNOWN = 2, 3

app = typer.Typer(
    name="rocblas",
    help="Show which kernel rocBLAS or hipBLASLt selects on gfx942, and which bits follow; derived, not measured.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

M = Annotated[int, typer.Argument(metavar="M", min=1, help="The rows of A and D.")]
N = Annotated[int, typer.Argument(metavar="N", min=1, help="The columns of B and D.")]
K = Annotated[int, typer.Argument(metavar="K", min=1, help="The length of the sums.")]
Dtype = Annotated[
    str, typer.Option("--dtype", help="The operands' type: fp16, bf16, fp32, tf32, e4m3fnuz or e5m2fnuz.")
]
RightDtype = Annotated[str | None, typer.Option("--right-dtype", help="The type of B; by default that of A.")]
OutDtype = Annotated[
    str | None, typer.Option("--out-dtype", help="The output's type; by default the operands' type, fp32 for tf32.")
]
Transposes = Annotated[str, typer.Option("--transposes", help="How A and B are stored: NN, NT, TN or TT.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="The number of products.")]
Workspace = Annotated[
    int | None, typer.Option("--workspace", min=0, metavar="BYTES", help="The limit of the workspace.")
]
DeviceName = Annotated[str, typer.Option("--device", help="The device: MI300X, MI300A or MI308X.")]
StaggerOption = Annotated[
    str | None, typer.Option("--stagger", metavar="M|N", help="hipBLASLt: the tiles that StaggerUMapping 0 counts.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def rocblas() -> None:
    """Show which kernel rocBLAS or hipBLASLt selects on gfx942, and which bits follow; derived, not measured."""


@app.command()
def ask(
    m: M, n: N, k: K,
    name: Annotated[str, typer.Option("--library", metavar="NAME:VERSION", help="The library.")] = "rocblas:6.2",
    dtype: Dtype = "fp16", right: RightDtype = None, out: OutDtype = None, transposes: Transposes = "NN",
    batch: Batch = 1, workspace: Workspace = None, on: DeviceName = "MI300X",
    types: Annotated[str | None, typer.Option("--types", help="hipBLASLt: the problem type, as in file names.")] = None,
    stagger: StaggerOption = None,
    bias: Annotated[bool, typer.Option("--bias", help="With a bias.")] = False,
    alpha: Annotated[float, typer.Option("--alpha", help="The factor of the product.")] = 1.0,
    beta: Annotated[float, typer.Option("--beta", help="The factor of C.")] = 0.0,
    compute: Annotated[str, typer.Option("--compute", help="The type of the sums: fp32 or fp16.")] = "fp32",
    column_major: Annotated[
        bool, typer.Option("--column-major", help="The arguments are those of the library's call, column-major.")
    ] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Print what a library selects for D[M, N] = A[M, K] B[K, N], and the descriptor that follows.  No GPU is needed.

    Exit status: 0 described, 2 an argument is wrong or no kernel is selected, 3 the kernel is not described.
    """
    from bitwise_rocblas_profiles.libraries import device, library, transposed
    from bitwise_rocblas_profiles.library_profile import stagger_of

    with _errors():
        known = library(name)
        call = _call(
            (m, n, k), dtype, right, out, transposes, batch, known.workspace if workspace is None else workspace, bias,
            compute, column_major,
        )  # fmt: skip
        answer = known.answer(call, device(on), types, stagger_of(stagger))
        desc = scaled(answer.desc, answer.selected, alpha, beta, bias)
        _show(desc if column_major else transposed(desc), answer.selected, answer.notes, bias, as_json)


@app.command(name="describe")
def describe_command(
    m: M, n: N, k: K,
    logic: Annotated[Path, typer.Option("--logic", metavar="FILE", help="A logic file of Tensile or TensileLite.")],
    number: Annotated[
        int | None, typer.Option("--solution", min=0, help="Its position in the file; by default the selected one.")
    ] = None,
    batch: Batch = 1, workspace: Workspace = None, on: DeviceName = "MI300X", stagger: StaggerOption = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Print the descriptor of a solution of your own logic file, for a column-major call of the file's types.

    Exit status: 0 described, 2 an argument is wrong or no kernel is selected, 3 the kernel is not described.
    """
    from bitwise_rocblas_profiles.describe import describe as described
    from bitwise_rocblas_profiles.describe import types_of
    from bitwise_rocblas_profiles.libraries import NOT_MEASURED, device, selected_words
    from bitwise_rocblas_profiles.library_profile import stagger_of
    from bitwise_rocblas_profiles.logic_files import read_logic_file
    from bitwise_rocblas_profiles.problem import Call

    with _errors():
        file = read_logic_file(logic, str(logic))
        where = device(on)
        types, problem = types_of(file.problem), file.problem
        space = (128 if file.generator == "Tensile" else 76) << 20 if workspace is None else workspace
        call = Call(
            m, n, k, types.a, types.b, types.d, types.compute, bool(problem["TransposeA"]),
            bool(problem["TransposeB"]), batch, multiplied=types.multiplied, workspace=space,
        )  # fmt: skip
        selected = _solution(file, number, call, where)
        desc = described(selected.solution, file, call, stagger_of(stagger))
        notes = (
            f"{logic} on {where.name}: {call.words}; workspace {space} bytes.",
            selected_words(selected),
            NOT_MEASURED,
        )
        _show(desc, selected, notes, False, as_json)


def _solution(file: LogicFile, number: int | None, call: Call, where: Device) -> Selected:
    from bitwise_rocblas_profiles.errors import NotSelected, RocblasError
    from bitwise_rocblas_profiles.libraries import select_in
    from bitwise_rocblas_profiles.selection import Selected
    from bitwise_rocblas_profiles.tables import Row

    if number is None:
        selected = select_in([file], call, where)
        if selected is None:
            raise NotSelected(f"{file.path}: no solution may run {call.words} on {where.name}")
        return selected
    if number >= len(file.solutions):
        raise RocblasError(f"--solution {number}: {file.path} has {len(file.solutions)} solutions, counted from 0")
    return Selected(file, number, Row(call.m, call.n, call.batch, call.k, number, 0.0), 0.0)


@app.command(name="coverage")
def coverage_command(
    name: Annotated[
        str | None, typer.Option("--library", metavar="NAME:VERSION", help="Default: every library.")
    ] = None,
    logic: Annotated[list[Path] | None, typer.Option("--logic", metavar="FILE", help="Logic files instead.")] = None,
    stagger: StaggerOption = None,
    as_json: AsJson = False,
) -> None:
    """Count the solutions that are described, and those that are declined by reason.

    Exit status: 0 counted, 2 an argument is wrong.
    """
    from bitwise_rocblas_profiles.coverage import coverage
    from bitwise_rocblas_profiles.libraries import NOT_MEASURED, libraries, library
    from bitwise_rocblas_profiles.library_profile import stagger_of
    from bitwise_rocblas_profiles.logic_files import read_logic_file

    with _errors():
        chosen = stagger_of(stagger)
        if logic:
            given = {str(path): coverage([read_logic_file(path, str(path))], chosen) for path in logic}
        else:
            known = [library(name)] if name is not None else list(libraries().values())
            given = {each.description: coverage(each.table.files, chosen) for each in known}
    if as_json:
        content = {
            each: {"solutions": found.solutions, "described": found.described, "declined": dict(found.declined)}
            for each, found in given.items()
        }
        print_answer("rocblas-coverage", {"note": NOT_MEASURED, "coverage": content})
        return
    for each, found in given.items():
        typer.echo(f"{each}:")
        for line in found.lines():
            typer.echo(f"  {line}")
    typer.echo(NOT_MEASURED)


def scaled(desc: GEMMDesc, selected: Selected, alpha: float, beta: float, bias: bool) -> GEMMDesc:
    """Return a descriptor with alpha.  Raises Declined for beta, and for alpha beside a bias."""
    from bitwise_core.descriptors import GEMMDesc
    from bitwise_rocblas_profiles.errors import Declined

    if beta != 0.0:
        raise Declined("beta", f"beta = {beta}")
    if alpha == 1.0:
        return desc
    if bias:
        raise Declined("alpha", f"alpha = {alpha}")
    return GEMMDesc(**{**dict(desc), "alpha": alpha})


def _call(
    sizes: tuple[int, int, int], dtype: str, right: str | None, out: str | None, transposes: str, batch: int,
    workspace: int, bias: bool, compute: str, column_major: bool,
) -> Call:  # fmt: skip
    from bitwise_core.descriptors.problem import GEMMProblem
    from bitwise_rocblas_profiles.errors import RocblasError
    from bitwise_rocblas_profiles.problem import Call, call_of_problem, letter

    if len(transposes) != 2 or set(transposes) - {"N", "T"}:
        raise RocblasError(f"--transposes: {transposes!r} is not one of NN, NT, TN and TT")
    if compute not in ("fp32", "fp16"):
        raise RocblasError(f"--compute: {compute!r} is not fp32 or fp16")
    a, b = transposes[0] == "T", transposes[1] == "T"
    stored = out or ("fp32" if dtype == "tf32" else dtype)
    m, n, k = sizes
    summed = "H" if compute == "fp16" else "S"
    if column_major:
        output = "S" if stored == "tf32" else letter(stored)
        return Call(
            m, n, k, letter(dtype), letter(right or dtype), output, summed, a, b, batch, bias=bias, workspace=workspace
        )
    problem = GEMMProblem(
        m=m, n=n, k=k, a=dtype, b=right or dtype, out=stored, transpose_a=a, transpose_b=b,
        batch=batch if batch > 1 else None, epilogue="bias" if bias else "none",
    )  # fmt: skip
    return replace(call_of_problem(problem, workspace), compute=summed)


def _show(desc: GEMMDesc, selected: Selected, notes: Sequence[str], bias: bool, as_json: bool) -> None:
    from bitwise_core.descriptors.summary import words

    lines = words(desc)
    if bias:
        lines.append("The bias is added in fp32 to the sum, before it is rounded to the output's type.")
    if as_json:
        content: dict[str, Any] = {
            "file": selected.file.path, "solution": selected.number, "parameters": dict(selected.solution.bits),
            "descriptor": desc.model_dump(mode="json", exclude_defaults=True), "text": desc.to_text(),
            "words": lines, "bias": bias, "measured": False, "notes": list(notes),
        }  # fmt: skip
        print_answer("rocblas-describe", content)
        return
    for line in (*lines, "", desc.to_text(), *notes):
        typer.echo(line)


@contextmanager
def _errors() -> Iterator[None]:
    from bitwise_core.descriptors import DescriptorError
    from bitwise_rocblas_profiles.errors import Declined, RocblasError

    try:
        yield
    except Declined as error:
        typer.echo(f"bitwise: the kernel is not described, {error}", err=True)
        raise typer.Exit(UNKNOWN) from None
    except (RocblasError, DescriptorError) as error:
        typer.echo(f"bitwise: {error}", err=True)
        raise typer.Exit(WRONG_INPUT) from None
