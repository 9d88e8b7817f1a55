"""`bitwise plugins`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from bitwise_core.cli.common import as_errors, print_answer
from bitwise_core.cli.exit_status import printable


def command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the installed plugins and what they provide.

    Plugins that could not be loaded are listed with the reason.
    """
    with as_errors():
        _print(as_json)


def _print(as_json: bool) -> None:
    """Print the installed plugins.  Raises DuplicateNameError, UnknownPluginError."""
    from rich.console import Console
    from rich.table import Table

    from bitwise_core.known_distributions import advice
    from bitwise_core.plugins import registry
    from bitwise_core.plugins.capabilities import TITLES, capabilities

    found = registry.default()
    if as_json:
        print_answer(
            "plugins",
            {
                "plugins": [
                    {
                        "name": plugin.name,
                        "distribution": plugin.distribution,
                        "version": plugin.version,
                        "architectures": [{"name": arch.name, "targets": list(arch.targets)} for arch in plugin.arches],
                        "matrix_units": [
                            {"name": unit.name, "status": unit.status, "source": unit.source}
                            for unit in plugin.matrix_units
                        ],
                        "profiles": [each.name for each in plugin.profiles],
                        "launchers": [each.name for each in plugin.launchers],
                        "patchsets": [each.name for each in plugin.patchsets],
                    }
                    for plugin in found.plugins
                ],
                "capabilities": [asdict(each) for each in capabilities(found)],
                "broken": [
                    {"name": broken.name, "distribution": broken.distribution, "reason": broken.reason}
                    for broken in found.broken
                ],
            },
        )
        return
    console = Console(highlight=False)
    if not found.plugins and not found.broken:
        console.print(
            f"No plugin is installed, so no architecture is known: {advice('targets', otherwise='install one')}.",
            markup=False,
            soft_wrap=True,
        )
        return
    supported = Table(box=None, header_style="bold")
    for title in TITLES:
        supported.add_column(title)
    for each in capabilities(found):
        supported.add_row(*each.cells)
    table = Table(box=None, header_style="bold")
    for title in ("plugin", "distribution", "profiles", "launchers", "patch sets"):
        table.add_column(title)
    for plugin in found.plugins:
        provided = (plugin.profiles, plugin.launchers, plugin.patchsets)
        cells = [", ".join(each.name for each in kind) or "-" for kind in provided]
        table.add_row(plugin.name, f"{plugin.distribution} {plugin.version}", *cells)
    if supported.row_count:
        console.print(supported)
        console.print()
    console.print(table)
    for broken in found.broken:
        console.print(f"could not be loaded: {printable(str(broken))}", style="yellow", markup=False)
