"""`bitwise gemm`: its options.  What explains the product is imported when the command runs."""

from __future__ import annotations

from pathlib import Path

import typer

from bitwise_core.cli.common import as_errors
from bitwise_core.cli.plan_names import PLAN_NAMES
from bitwise_core.errors import InputError


def command(
    sizes: list[int] = typer.Argument(metavar="M N K", min=1, help="A is (M, K), B is (K, N)."),  # noqa: B008
    dtype: str = typer.Option("fp16", "--dtype", help="The operands' type: fp16, bf16, tf32, e4m3, fp32, ..."),
    right: str | None = typer.Option(None, "--right-dtype", help="The type of B; by default that of A."),
    output: str | None = typer.Option(None, "--out-dtype", help="The output's type; by default the operands' type."),
    accumulator: str = typer.Option("fp32", "--accumulator", help="The accumulator's type."),
    architecture: str | None = typer.Option(
        None, "--arch", metavar="ARCH", help="The architecture; with --library, the only one that has it."
    ),
    family: str | None = typer.Option(
        None, "--family", help="The matrix instruction, where the architecture has several of different bits."
    ),
    plan: str = typer.Option("single-pass", "--plan", help=f"The algorithm: one of {', '.join(PLAN_NAMES)}."),
    settings: list[str] = typer.Option(  # noqa: B008
        [], "--with", metavar="NAME=VALUE", help="A parameter of the plan, such as slices=4."
    ),
    line: str | None = typer.Option(
        None, "--desc", metavar="TEXT", help="The text of a descriptor, instead of a plan."
    ),
    element: str | None = typer.Option(
        None, "--element", metavar="ROW,COLUMN", help="Also print the dependence tree of this element of C."
    ),
    library: str | None = typer.Option(
        None, "--library", metavar="NAME:VERSION", help="Explain what this version of a library runs."
    ),
    configuration: list[str] = typer.Option(  # noqa: B008
        [],
        "--config",
        metavar="NAME=NUMBER",
        help="With --library: the library's algorithm configuration; a JSON object is accepted too.",
    ),
    transposes: str | None = typer.Option(
        None, "--transposes", help="With --library: the layouts of A and B, NN, NT, TN or TT."
    ),
    records: Path = typer.Option(  # noqa: B008
        Path("records"),
        "--records",
        metavar="FOLDER",
        help="With --library and without --config: the folder of recorded configurations.",
    ),
    svg: Path | None = typer.Option(None, "--svg", metavar="FILE", help="Also draw the K axis into this SVG file."),  # noqa: B008
    width: int = typer.Option(72, "--width", min=40, max=400, help="The width of the picture in characters."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Explain the bits of a matrix product.

    The output is the product's descriptor in words and a picture of the K axis.  No GPU is needed.

    Exit status: 0 explained, 2 an argument is wrong.
    """
    with as_errors():
        from bitwise_core.cli.gemm_command import describe, parsed, run
        from bitwise_core.cli.library_descriptors import explain_product

        if len(sizes) != 3:
            raise InputError(f"give three sizes, M N K, and not {len(sizes)}")
        m, n, k = sizes
        notes: tuple[str, ...] = ()
        if library is not None:
            if line is not None or settings or plan != "single-pass":
                raise InputError("--library determines what is computed: omit --plan, --with and --desc")
            folder = records if records.is_dir() else None
            found = explain_product(
                library, architecture, (m, n, k), (dtype, right or dtype), output, transposes, configuration, folder
            )
            desc, notes = found
        elif configuration:
            raise InputError("--config is the algorithm configuration of a library: name the library with --library")
        elif line is None:
            desc = describe(k, dtype, right, architecture, family, plan, settings, output, accumulator)
        else:
            desc = parsed(line, k)
        run(m, n, desc, element, width, as_json, notes, svg)
