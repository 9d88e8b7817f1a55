"""The commands and their options; what each does stands in a module of its own."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bitwise_core.checker.analysis import Options
from bitwise_core.cli import (
    diff_command,
    gemm_command,
    partition_command,
    plugins_command,
    probe_command,
    run_command,
    tree_command,
)
from bitwise_core.cli.common import as_errors, assumptions

app = typer.Typer(
    name="bitwise",
    help="Say which bits a GPU kernel returns, and which kernels return the same ones.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Target = Annotated[
    str | None, typer.Option("--target", metavar="ARCH", help="The architecture; by default what the files state.")
]
ParametricSupport = Annotated[
    bool, typer.Option("--every-launch", help="Ask for proofs that hold for every launch, not only the manifest's.")
]
Assume = Annotated[
    list[str] | None, typer.Option("--assume", metavar="CONDITION", help="A condition that a proof may use: finite.")
]
NoContractionAudit = Annotated[
    bool,
    typer.Option(
        "--no-contraction-audit", help="Do not audit which products the assembler fuses into sums; verdicts say so."
    ),
]
ManifestFile = Annotated[
    Path | None,
    typer.Option("--manifest", metavar="FILE", help="Launches; by default manifest.json beside each file."),
]
Entry = Annotated[str | None, typer.Option("--entry", metavar="NAME", help="The entry, where a file has several.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Form(StrEnum):
    """How a tree is printed."""

    TEXT = "text"
    JSON = "json"
    SVG = "svg"


def _options(every_launch: bool, assume: list[str] | None, no_audit: bool) -> Options:
    return Options(every_launch=every_launch, assume=assumptions(assume or ()), audit_contraction=not no_audit)


@app.command()
def partition(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder of assembly, with or without manifest.json.")],
    target: Target = None,
    every_launch: ParametricSupport = False,
    assume: Assume = None,
    no_contraction_audit: NoContractionAudit = False,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes; by default one a core.")] = None,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a report for browsers too.")
    ] = None,
) -> None:
    """Partition the kernels of a folder into classes that are proved to return the same bits.

    Exit status: 0 done (Unknown kernels are classes of their own), 2 something is wrong in a file or an argument.
    """
    with as_errors():
        partition_command.run(
            path, target, _options(every_launch, assume, no_contraction_audit), workers, as_json, html
        )


@app.command()
def diff(
    left: Annotated[str, typer.Argument(metavar="A", help="An assembly file, or FILE#2 for its second launch.")],
    right: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    manifest: ManifestFile = None,
    entry: Entry = None,
    target: Target = None,
    every_launch: ParametricSupport = False,
    assume: Assume = None,
    no_contraction_audit: NoContractionAudit = False,
    search: Annotated[
        bool, typer.Option("--search/--no-search", help="Search for a counterexample where no proof is found.")
    ] = True,
    search_seconds: Annotated[float, typer.Option("--search-seconds", min=1, help="How long to search.")] = 5.0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.npz", help="Where to write the input of a counterexample.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether two kernels return the same bits; if not, where they diverge, with an input that shows it.

    Exit status: 0 equal, 1 different (a counterexample was found and run), 4 unproved (the canonical forms differ), 3
    unknown (a kernel could not be read), 2 something is wrong in a file or an argument.
    """
    with as_errors():
        options = _options(every_launch, assume, no_contraction_audit)
        searching = diff_command.Searching(search_seconds, out) if search else None
        status = diff_command.run(left, right, manifest, entry, target, options, as_json, searching)
    raise typer.Exit(status)


@app.command()
def tree(
    kernel: Annotated[str, typer.Argument(metavar="A", help="An assembly file, or FILE#2 for its second launch.")],
    element: Annotated[str, typer.Option("--element", metavar="Y[0]", help="A buffer and the index of an element.")],
    manifest: ManifestFile = None,
    entry: Entry = None,
    target: Target = None,
    assume: Assume = None,
    no_contraction_audit: NoContractionAudit = False,
    form: Annotated[Form, typer.Option("--format", help="How to print it.")] = Form.TEXT,
    whole: Annotated[bool, typer.Option("--whole", help="Leave nothing out of a large tree.")] = False,
) -> None:
    """Print how one output element is computed: its dependence tree over the initial content of memory.

    Exit status: 0 printed, 3 the kernel cannot be read, 2 something is wrong in a file or an argument.
    """
    with as_errors():
        options = _options(False, assume, no_contraction_audit)
        status = tree_command.run(kernel, element, manifest, entry, target, options, form.value, whole)
    raise typer.Exit(status)


@app.command()
def run(
    kernel: Annotated[str, typer.Argument(metavar="A", help="An assembly file, or FILE#2 for its second launch.")],
    inputs: Annotated[Path, typer.Option("--inputs", metavar="FILE.npz", help="The buffers before the launch.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.npz", help="Where to write the buffers after it.")],
    manifest: ManifestFile = None,
    entry: Entry = None,
    target: Target = None,
    no_contraction_audit: NoContractionAudit = False,
    as_json: AsJson = False,
) -> None:
    """Run a kernel on bit patterns, without a GPU: every buffer's bytes are those that the GPU returns.

    The arrays are named as the manifest's buffers; types that NumPy lacks (bf16, fp8) are unsigned integers.
    Exit status: 0 written, 3 the kernel cannot be run exactly, 2 something is wrong in a file or an argument.
    """
    with as_errors():
        options = _options(False, None, no_contraction_audit)
        status = run_command.run(kernel, inputs, out, manifest, entry, target, options, as_json)
    raise typer.Exit(status)


app.command(name="probe", no_args_is_help=True)(probe_command.command)
app.command(name="gemm", no_args_is_help=True)(gemm_command.command)


@app.command(name="plugins")
def list_plugins(as_json: AsJson = False) -> None:
    """List the installed plugins, what each models, and those that could not be loaded."""
    with as_errors():
        plugins_command.run(as_json)
