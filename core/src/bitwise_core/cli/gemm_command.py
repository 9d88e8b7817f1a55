"""`bitwise gemm`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from bitwise_core.cli import library_descriptors
from bitwise_core.cli.common import as_errors, print_json
from bitwise_core.descriptors import (
    DescriptorError,
    GEMMDesc,
    Instruction,
    contiguous_slice_gemv,
    lane_tree_gemv,
    per_mma,
    single_pass,
    split_k,
    split_k_per_mma,
    three_level_chain,
    workspace_gemv,
)
from bitwise_core.descriptors.evaluation import gemm_tree, unit_of
from bitwise_core.descriptors.summary import words
from bitwise_core.descriptors.svg_figure import to_svg
from bitwise_core.descriptors.text_figure import picture
from bitwise_core.errors import InputError
from bitwise_core.ir.text import render
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.output_files import write_text
from bitwise_core.plugins import registry

PLANS: dict[str, Callable[..., GEMMDesc]] = {
    "single-pass": single_pass,
    "split-k": split_k,
    "per-mma": per_mma,
    "split-k-per-mma": split_k_per_mma,
    "three-level-chain": three_level_chain,
    "lane-tree-gemv": lane_tree_gemv,
    "contiguous-slice-gemv": contiguous_slice_gemv,
    "workspace-gemv": workspace_gemv,
}
_COMMON_PARAMETERS = ("k", "dtype", "instruction", "output_dtype", "accumulator_dtype")
"""Parameters of a plan that have an argument or option of their own; all others are set by --with."""


def describe(
    k: int,
    dtype: str,
    right: str | None,
    architecture: str | None,
    family: str | None,
    plan: str,
    settings: Iterable[str],
    output: str | None,
    accumulator: str,
) -> GEMMDesc:
    """Return the descriptor of a plan.

    `right` is the type of B, by default that of A.  `settings` are NAME=VALUE pairs of the plan's own parameters.
    Raises InputError.
    """
    if plan not in PLANS:
        raise InputError(f"--plan: there is no plan {plan!r}; choose one of {', '.join(PLANS)}")
    make = PLANS[plan]
    parameters = inspect.signature(make).parameters
    arguments: dict[str, Any] = {"output_dtype": output, "accumulator_dtype": accumulator}
    right = right or dtype
    for name in (dtype, right, accumulator):
        if name not in FLOAT_FORMATS:
            raise InputError(f"there is no floating-point type {name!r}; choose one of {', '.join(FLOAT_FORMATS)}")
    allowed = [name for name in parameters if name not in _COMMON_PARAMETERS]
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or name not in allowed:
            raise InputError(
                f"--with {setting}: give NAME=VALUE; the parameters of the plan {plan} are {', '.join(allowed)}"
            )
        arguments[name] = _value(value)
    missing = [n for n in allowed if parameters[n].default is inspect.Parameter.empty and n not in arguments]
    if missing:
        raise InputError(f"--plan: the plan {plan} needs {', '.join(f'--with {name}=VALUE' for name in missing)}")
    if "instruction" in parameters:
        arguments["instruction"] = _instruction(dtype, right, accumulator, architecture, family)
    try:
        return make(k, (dtype, right), **arguments)
    except DescriptorError as error:
        raise InputError(str(error)) from None


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text


def _instruction(left: str, right: str, accumulator: str, architecture: str | None, family: str | None) -> Instruction:
    """Return the instruction of an architecture that takes these types, the one of largest k, of `family` if given."""
    units = registry.default().matrix_units.values()
    architectures = sorted({row.architecture for row in units})
    if architecture is None or architecture not in architectures:
        fault = (
            "this plan runs on a matrix unit: name its architecture with --arch"
            if architecture is None
            else f"--arch: no installed plugin has matrix units of {architecture!r}"
        )
        found = registry.default().advice("matrix units", architecture or "")
        raise InputError(f"{fault}; known architectures: {', '.join(architectures) or 'none'}{found}")
    fitting = [
        row
        for row in units
        if (row.architecture, row.left, row.right, row.accumulator) == (architecture, left, right, accumulator)
    ]
    families = sorted({row.family for row in fitting})
    if family is None:
        if len({row.arithmetic for row in fitting if row.k == max(each.k for each in fitting)}) > 1:
            raise InputError(
                f"{architecture} multiplies {left} by {right} in {accumulator} with {', '.join(families)}, whose bits "
                "differ: choose one with --family"
            )
    else:
        fitting = [row for row in fitting if row.family == family]
    if not fitting:
        kinds = sorted({f"{row.left} times {row.right} in {row.result}" for row in units
                        if row.architecture == architecture and row.result in FLOAT_FORMATS})  # fmt: skip
        product = f"{left} times {right} in {accumulator}"
        if families:
            raise InputError(
                f"--family: {architecture} has no instruction {family!r} for {product}; choose one of "
                f"{', '.join(families)}"
            )
        raise InputError(f"{architecture} has no matrix unit for {product}; it has units for {', '.join(kinds)}")
    chosen = max(fitting, key=lambda row: (row.k, row.family != "fused", row.family))
    return Instruction(architecture=chosen.architecture, family=chosen.family, k=chosen.k)


def run(
    m: int, n: int, desc: GEMMDesc, element: str | None, width: int, as_json: bool, notes: tuple[str, ...] = (),
    svg: Path | None = None,
) -> None:  # fmt: skip
    """Print a descriptor of an (m, n) product, and draw its K axis into the file `svg`.  Raises InputError."""
    try:
        unit: MmaSpec | None = unit_of(desc, registry.default().matrix_units)
    except DescriptorError as error:
        raise InputError(str(error)) from None
    row, column = (0, 0) if element is None else _row_and_column(element, m, n)
    lines, drawing = words(desc, unit), picture(desc, width)
    if svg is not None:
        try:
            write_text(svg, to_svg(desc, f"({m}, {desc.k}) times ({desc.k}, {n})"))
        except OSError as error:
            raise InputError(f"--svg {svg}: cannot be written ({error.strerror})") from None
    if as_json:
        print_json({
            "m": m, "n": n, "k": desc.k, "descriptor": desc.model_dump(mode="json", exclude_defaults=True),
            "text": desc.to_text(), "words": lines, "picture": drawing, **({"notes": list(notes)} if notes else {}),
        })  # fmt: skip
        return
    elements = (
        "every element of C is computed in the same way"
        if desc.iteration_rotation is None
        else "the order of iterations depends on the tile of C"
    )
    typer.echo(f"({m}, {desc.k}) times ({desc.k}, {n}); {elements}.")
    for line in lines:
        typer.echo(line)
    typer.echo("\n" + "\n".join(drawing) + "\n")
    typer.echo(desc.to_text())
    for note in notes:
        typer.echo(note)
    if element is not None:
        typer.echo("")
        typer.echo(render(gemm_tree(desc, row, column, n)), nl=False)


def _row_and_column(element: str, m: int, n: int) -> tuple[int, int]:
    try:
        row, column = (int(each) for each in element.split(","))
    except ValueError:
        raise InputError(f"--element {element}: give a row and a column, as in --element 0,0") from None
    if not (0 <= row < m and 0 <= column < n):
        raise InputError(f"--element {element}: C has {m} rows and {n} columns, counted from 0")
    return row, column


def command(
    sizes: list[int] = typer.Argument(metavar="M N K", min=1, help="A is (M, K), B is (K, N)."),  # noqa: B008
    dtype: str = typer.Option("fp16", "--dtype", help="The operands' type: fp16, bf16, tf32, e4m3, fp32, ..."),
    right: str | None = typer.Option(None, "--right-dtype", help="The type of B; by default that of A."),
    output: str | None = typer.Option(None, "--out-dtype", help="The output's type; by default the operands' type."),
    accumulator: str = typer.Option("fp32", "--accumulator", help="The accumulator's type."),
    architecture: str | None = typer.Option(None, "--arch", metavar="ARCH", help="The matrix unit's architecture."),
    family: str | None = typer.Option(
        None, "--family", help="The matrix instruction, where the architecture has several of different bits."
    ),
    plan: str = typer.Option("single-pass", "--plan", help=f"The algorithm: one of {', '.join(PLANS)}."),
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
        if len(sizes) != 3:
            raise InputError(f"give three sizes, M N K; {len(sizes)} are given")
        m, n, k = sizes
        notes: tuple[str, ...] = ()
        if library is not None:
            if line is not None or settings or plan != "single-pass":
                raise InputError("--library determines what is computed: omit --plan, --with and --desc")
            folder = records if records.is_dir() else None
            found = library_descriptors.explain_product(
                library, architecture, (m, n, k), (dtype, right or dtype), output, transposes, configuration, folder
            )
            assert isinstance(found.desc, GEMMDesc)
            desc, notes = found.desc, found.notes
        elif configuration:
            raise InputError("--config is the algorithm configuration of a library: name the library with --library")
        elif line is None:
            desc = describe(k, dtype, right, architecture, family, plan, settings, output, accumulator)
        else:
            desc = _parsed(line, k)
        run(m, n, desc, element, width, as_json, notes, svg)


def _parsed(line: str, k: int) -> GEMMDesc:
    try:
        desc = GEMMDesc.from_text(line)
    except DescriptorError as error:
        raise InputError(str(error)) from None
    if desc.k != k:
        raise InputError(f"--desc: the descriptor has k = {desc.k}, and K is {k}: give the same number")
    return desc
