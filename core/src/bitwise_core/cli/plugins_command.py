"""`bitwise plugins`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from bitwise_core.cli.common import aligned, as_errors, print_answer
from bitwise_core.cli.exit_status import printable


def command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the installed plugins and what they provide.

    Plugins that could not be loaded are listed with the reason.
    """
    with as_errors():
        _print(as_json)


def _print(as_json: bool) -> None:
    """Print the installed plugins.  Raises DuplicateNameError, UnknownPluginError."""
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
    if not found.plugins and not found.broken:
        missing = advice("targets", otherwise="install one")
        typer.echo(f"No plugin is installed, so no architecture is known: {missing}.")
        return
    supported = [each.cells for each in capabilities(found)]
    if supported:
        _print_table([TITLES, *supported])
        typer.echo()
    rows = [("plugin", "distribution", "profiles", "launchers", "patch sets")]
    for plugin in found.plugins:
        profiles, launchers, patchsets = (
            ", ".join(each.name for each in kind) or "-"
            for kind in (plugin.profiles, plugin.launchers, plugin.patchsets)
        )
        rows.append((plugin.name, f"{plugin.distribution} {plugin.version}", profiles, launchers, patchsets))
    _print_table(rows)
    for broken in found.broken:
        typer.echo(f"could not be loaded: {printable(str(broken))}")


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    for line in aligned([[printable(cell) for cell in row] for row in rows]):
        typer.echo(line)
