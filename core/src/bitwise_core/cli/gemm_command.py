"""`bitwise gemm`: the explanation of a product.  Its options are in `gemm_options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

from bitwise_core.cli.common import print_answer
from bitwise_core.cli.plan_names import PLAN_NAMES
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
from bitwise_core.descriptors.evaluation import unit_of
from bitwise_core.descriptors.summary import words
from bitwise_core.descriptors.text_figure import picture
from bitwise_core.errors import InputError
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.mma import MmaSpec
from bitwise_core.output_files import write_text
from bitwise_core.plugins import registry

PLANS: dict[str, Callable[..., GEMMDesc]] = dict(
    zip(
        PLAN_NAMES,
        (
            single_pass, split_k, per_mma, split_k_per_mma, three_level_chain, lane_tree_gemv, contiguous_slice_gemv,
            workspace_gemv,
        ),
        strict=True,
    )
)  # fmt: skip
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
        from bitwise_core.descriptors.svg_figure import to_svg

        try:
            write_text(svg, to_svg(desc, f"({m}, {desc.k}) times ({desc.k}, {n})"))
        except OSError as error:
            raise InputError(f"--svg {svg}: cannot be written ({error.strerror})") from None
    if as_json:
        print_answer("gemm", {
            "m": m, "n": n, "k": desc.k, "descriptor": desc.model_dump(mode="json", exclude_defaults=True),
            "text": desc.to_text(), "words": lines, "picture": drawing, "notes": list(notes),
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
        from bitwise_core.descriptors.evaluation import gemm_tree
        from bitwise_core.ir import render

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


def parsed(line: str, k: int) -> GEMMDesc:
    """Return the descriptor of a text.  Raises InputError where it is none, or has another k."""
    try:
        desc = GEMMDesc.from_text(line)
    except DescriptorError as error:
        raise InputError(str(error)) from None
    if desc.k != k:
        raise InputError(f"--desc: the descriptor has k = {desc.k}, and K is {k}: give the same number")
    return desc
