"""The command `bitwise` and its subcommands, whose modules are imported when a subcommand is called."""

from __future__ import annotations

from typing import Annotated

import typer

from bitwise_core.cli.common import versions
from bitwise_core.cli.lazy_commands import CommandReference, Commands, add_lazy_command

app = typer.Typer(
    name="bitwise",
    cls=Commands,
    help="Say which bits a GPU kernel returns, and which kernels return the same bits.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_versions(wanted: bool) -> None:
    """Print the versions of the distributions of bitwise and of its plugins, and exit."""
    if not wanted:
        return
    for name, number in versions().items():
        typer.echo(f"{name} {number}")
    raise typer.Exit


@app.callback()
def bitwise(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_versions, is_eager=True,
            help="Print the versions of bitwise-core and of the distributions that extend it.",
        ),
    ] = False,
) -> None:  # fmt: skip
    """Hold the options of `bitwise` itself."""


COMMANDS = {
    "partition": CommandReference(
        "bitwise_core.cli.kernel_commands:partition", "Partition the kernels of a folder by equal bits."
    ),
    "determinism": CommandReference(
        "bitwise_core.cli.kernel_commands:determinism", "Prove that kernels return the same bits in every run."
    ),
    "diff": CommandReference("bitwise_core.cli.kernel_commands:diff", "Prove that two kernels return the same bits."),
    "tree": CommandReference("bitwise_core.cli.kernel_commands:tree", "Print how one output element is computed."),
    "run": CommandReference(
        "bitwise_core.cli.kernel_commands:run", "Run a kernel on the CPU with the GPU's exact bits."
    ),
    "cache": CommandReference(
        "bitwise_core.cli.cache_command:command", "Show or remove the results that are kept on disk between runs."
    ),
    "doctor": CommandReference(
        "bitwise_core.cli.doctor_command:command",
        "Print what is installed and found, and what each missing part would enable.",
    ),
    "probe": CommandReference(
        "bitwise_core.cli.probe_options:command", "Find the summation order of a Python function."
    ),
    "gemm": CommandReference("bitwise_core.cli.gemm_options:command", "Explain the bits of a matrix product."),
    "plugins": CommandReference(
        "bitwise_core.cli.plugins_command:command", "List the installed plugins and what they provide."
    ),
}
"""The subcommands of this distribution, in the order of the help."""

for _name, _reference in COMMANDS.items():
    add_lazy_command(app, _name, _reference.summary, _reference.load)
