"""`bitwise plugins`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from bitwise_core.cli.common import print_json
from bitwise_core.plugins import registry


def run(as_json: bool) -> None:
    """Lists the plugins.  Raises DuplicateNameError, UnknownPluginError."""
    found = registry.default()
    if as_json:
        print_json(
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
                "broken": [
                    {"name": broken.name, "distribution": broken.distribution, "reason": broken.reason}
                    for broken in found.broken
                ],
            }
        )
        return
    console = Console(highlight=False)
    if not found.plugins and not found.broken:
        console.print("No plugin is installed; an architecture's plugin brings its instructions.")
        return
    table = Table(box=None, header_style="bold")
    for title in ("plugin", "distribution", "architectures", "matrix units", "profiles", "launchers", "patch sets"):
        table.add_column(title)
    for plugin in found.plugins:
        kinds = (plugin.arches, plugin.profiles, plugin.launchers, plugin.patchsets)
        listed = [", ".join(each.name for each in kind) or "-" for kind in kinds]
        # Rows are many: the table counts them, and --json lists them.
        listed.insert(1, str(len(plugin.matrix_units) or "-"))
        table.add_row(plugin.name, f"{plugin.distribution} {plugin.version}", *listed)
    console.print(table)
    for broken in found.broken:
        console.print(f"could not be loaded: {broken}", style="yellow", markup=False)
