"""`bitwise gemm`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from bitwise_core.checker.kernel_files import InputError
from bitwise_core.cli import library_descriptors
from bitwise_core.cli.common import print_json
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
from bitwise_core.ir.text import render
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.mma import MmaSpec
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
_GIVEN = ("k", "dtype", "instruction", "output_dtype", "accumulator_dtype")


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
    """The descriptor of a plan.  Raises InputError."""
    if plan not in PLANS:
        raise InputError(f"there is no plan {plan!r}; there are {', '.join(PLANS)}")
    make = PLANS[plan]
    parameters = inspect.signature(make).parameters
    given: dict[str, Any] = {"output_dtype": output, "accumulator_dtype": accumulator}
    other = right or dtype
    for name in (dtype, other, accumulator):
        if name not in FLOAT_FORMATS:
            raise InputError(f"there is no floating-point type {name!r}; there are {', '.join(FLOAT_FORMATS)}")
    allowed = [name for name in parameters if name not in _GIVEN]
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or name not in allowed:
            raise InputError(f"--with {setting}: the plan {plan} takes NAME=VALUE with {', '.join(allowed)}")
        given[name] = _value(value)
    missing = [n for n in allowed if parameters[n].default is inspect.Parameter.empty and n not in given]
    if missing:
        raise InputError(f"the plan {plan} needs {', '.join(f'--with {name}=VALUE' for name in missing)}")
    if "instruction" in parameters:
        given["instruction"] = _instruction(dtype, other, accumulator, architecture, family)
    try:
        return make(k, (dtype, other), **given)
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
    """The largest instruction of an architecture that takes the types, of the family if one is given."""
    units = registry.default().matrix_units.values()
    architectures = sorted({row.architecture for row in units})
    if architecture is None or architecture not in architectures:
        asked = "--arch ARCH names the matrix unit" if architecture is None else f"no plugin knows {architecture!r}"
        raise InputError(f"{asked}; there are {', '.join(architectures) or 'none: install a plugin'}")
    fitting = [
        row
        for row in units
        if (row.architecture, row.left, row.right, row.accumulator) == (architecture, left, right, accumulator)
    ]
    families = sorted({row.family for row in fitting})
    if family is None:
        if len({row.arithmetic for row in fitting if row.k == max(each.k for each in fitting)}) > 1:
            raise InputError(
                f"{architecture} takes {left} times {right} in {accumulator} by {', '.join(families)}, whose bits "
                "differ: say which with --family"
            )
    else:
        fitting = [row for row in fitting if row.family == family]
    if not fitting:
        kinds = sorted({f"{row.left} times {row.right} in {row.result}" for row in units
                        if row.architecture == architecture and row.result in FLOAT_FORMATS})  # fmt: skip
        by = f" by {family!r}, but by {', '.join(families)}" if families else f"; it has {', '.join(kinds)}"
        raise InputError(f"{architecture} has no unit of {left} times {right} in {accumulator}{by}")
    chosen = max(fitting, key=lambda row: (row.k, row.family != "fused", row.family))
    return Instruction(architecture=chosen.architecture, family=chosen.family, k=chosen.k)


def run(
    m: int, n: int, desc: GEMMDesc, element: str | None, width: int, as_json: bool, notes: tuple[str, ...] = (),
    svg: Path | None = None,
) -> None:  # fmt: skip
    """Prints a descriptor of an (m, n) product, and draws it where `svg` says.  Raises InputError."""
    try:
        unit: MmaSpec | None = unit_of(desc, registry.default().matrix_units)
    except DescriptorError as error:
        raise InputError(str(error)) from None
    row, column = (0, 0) if element is None else _place(element, m, n)
    lines, drawn = words(desc, unit), picture(desc, width)
    if svg is not None:
        try:
            svg.write_text(to_svg(desc, f"({m}, {desc.k}) times ({desc.k}, {n})"), encoding="utf-8")
        except OSError as error:
            raise InputError(f"--svg {svg}: it cannot be written ({error.strerror})") from None
    if as_json:
        print_json({
            "m": m, "n": n, "k": desc.k, "descriptor": desc.model_dump(mode="json", exclude_defaults=True),
            "text": desc.to_text(), "words": lines, "picture": drawn, **({"notes": list(notes)} if notes else {}),
        })  # fmt: skip
        return
    alike = (
        "every element of C is computed alike"
        if desc.iteration_rotation is None
        else "tiles of C differ in their turns"
    )
    typer.echo(f"({m}, {desc.k}) times ({desc.k}, {n}); {alike}.")
    for line in lines:
        typer.echo(line)
    typer.echo("\n" + "\n".join(drawn) + "\n")
    typer.echo(desc.to_text())
    for note in notes:
        typer.echo(note)
    if element is not None:
        typer.echo("")
        typer.echo(render(gemm_tree(desc, row, column, n)), nl=False)


def _place(element: str, m: int, n: int) -> tuple[int, int]:
    try:
        row, column = (int(each) for each in element.split(","))
    except ValueError:
        raise InputError(f"--element {element}: give a row and a column, as in --element 0,0") from None
    if not (0 <= row < m and 0 <= column < n):
        raise InputError(f"--element {element}: C is ({m}, {n})")
    return row, column


def command(
    sizes: list[int] = typer.Argument(metavar="M N K", min=1, help="A is (M, K), B is (K, N)."),  # noqa: B008
    dtype: str = typer.Option("fp16", "--dtype", help="The operands' type: fp16, bf16, tf32, e4m3, fp32, ..."),
    right: str | None = typer.Option(None, "--right-dtype", help="B's type, where it is another."),
    output: str | None = typer.Option(None, "--out-dtype", help="The output's type; by default the operands'."),
    accumulator: str = typer.Option("fp32", "--accumulator", help="The accumulator's type."),
    architecture: str | None = typer.Option(None, "--arch", metavar="ARCH", help="Whose matrix unit."),
    family: str | None = typer.Option(None, "--family", help="Which of its instructions, where their bits differ."),
    plan: str = typer.Option("single-pass", "--plan", help=f"One of {', '.join(PLANS)}."),
    settings: list[str] = typer.Option([], "--with", metavar="NAME=VALUE", help="What the plan takes, as slices=4."),  # noqa: B008
    line: str | None = typer.Option(None, "--desc", metavar="TEXT", help="A descriptor's own line, instead of a plan."),
    element: str | None = typer.Option(None, "--element", metavar="ROW,COLUMN", help="Print this element's tree too."),
    library: str | None = typer.Option(
        None, "--library", metavar="NAME:VERSION", help="What a version of a library runs."
    ),
    configuration: list[str] = typer.Option(  # noqa: B008
        [], "--config", metavar="NAME=NUMBER", help="With --library: the library's algorithm configuration; JSON too."
    ),
    transposes: str | None = typer.Option(
        None, "--transposes", help="With --library: how A and B lie, NN, NT, TN or TT."
    ),
    records: Path = typer.Option(  # noqa: B008
        Path("records"), "--records", metavar="FOLDER", help="With --library and no --config: where recorded ones are."
    ),
    svg: Path | None = typer.Option(None, "--svg", metavar="FILE", help="Draw the K axis into this file too."),  # noqa: B008
    width: int = typer.Option(72, "--width", min=40, max=400, help="Characters of the picture."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Explain the bits of a matrix product: its descriptor in words, and a picture of the K axis.  No GPU is needed.

    Exit status: 0 explained, 2 something is wrong in an argument.
    """
    from bitwise_core.cli.common import as_errors

    with as_errors():
        if len(sizes) != 3:
            raise InputError(f"give three sizes, M N K, not {len(sizes)}")
        m, n, k = sizes
        notes: tuple[str, ...] = ()
        if library is not None:
            if line is not None or settings or plan != "single-pass":
                raise InputError("--library says itself what is computed: leave --plan, --with and --desc out")
            folder = records if records.is_dir() else None
            found = library_descriptors.described(
                library, architecture, (m, n, k), (dtype, right or dtype), output, transposes, configuration, folder
            )
            assert isinstance(found.desc, GEMMDesc)
            desc, notes = found.desc, found.notes
        elif configuration:
            raise InputError("--config is the configuration of a library: name it with --library")
        elif line is None:
            desc = describe(k, dtype, right, architecture, family, plan, settings, output, accumulator)
        else:
            desc = _written(line, k)
        run(m, n, desc, element, width, as_json, notes, svg)


def _written(line: str, k: int) -> GEMMDesc:
    try:
        desc = GEMMDesc.from_text(line)
    except DescriptorError as error:
        raise InputError(str(error)) from None
    if desc.k != k:
        raise InputError(f"the descriptor is of k = {desc.k}, and K is {k}: make them one")
    return desc
