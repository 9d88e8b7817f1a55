"""`bitwise doctor`: what is there of this machine, and what each missing part would enable."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from bitwise_core.cli.common import as_errors, print_answer, versions
from bitwise_core.cli.exit_status import printable

if TYPE_CHECKING:
    from bitwise_core.known_distributions import KnownDistribution
    from bitwise_core.plugins.registry import Registry
    from bitwise_core.plugins.tools import Found, Tool

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Line:
    """A distribution, a tool or a launcher: what was found, or what is missing, and what it enables."""

    name: str
    found: tuple[str, ...] = ()
    missing: str = ""
    enables: str = ""


def command(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print what is installed and found, and what each missing part would enable.

    Distributions and plugins, assemblers and their versions, GPUs and drivers, launchers, and the caches.

    Exit status: 0 printed, 2 an argument is wrong.
    """
    with as_errors():
        found = checkup()
        if as_json:
            print_answer("doctor", found)
        else:
            for line in lines(found):
                typer.echo(printable(line))


def checkup() -> dict[str, Any]:
    """Return what is found, as JSON holds it.  Raises DuplicateNameError and UnknownPluginError of the registry."""
    from bitwise_core.known_distributions import known_distributions
    from bitwise_core.plugins import registry

    loaded = registry.default()
    installed = (Line(name, (number,)) for name, number in versions().items())
    absent = (_absent(each) for each in known_distributions() if each.version is None)
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "distributions": [asdict(each) for each in (*installed, *absent)],
        "plugins": [
            {"name": each.name, "distribution": each.distribution, "version": each.version,
             "architectures": [arch.name for arch in each.arches]}
            for each in loaded.plugins
        ],
        "broken": [asdict(each) for each in loaded.broken],
        "found_tools": [
            {**_looked_for(tool), "plugin": plugin.name} for plugin in loaded.plugins for tool in plugin.tools
        ],
        "launchers": [asdict(_launcher(each)) for plugin in loaded.plugins for each in plugin.launchers],
        "caches": _caches(loaded),
    }  # fmt: skip


def _absent(known: KnownDistribution) -> Line:
    provided = [f"{kind} {', '.join(found)}" for kind, found in known.provides.items() if kind != "targets"]
    return Line(known.name, missing=f"not installed: {known.command}", enables="; ".join(provided) or known.summary)


def _tried(attempt: Callable[[], _Result]) -> _Result | str:
    """Return a plugin's answer, or the reason why it has none."""
    from bitwise_core.plugins.tools import ToolMissing

    try:
        return attempt()
    except ToolMissing as error:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third-party module may raise anything
        return f"the plugin failed to look for it ({type(error).__name__}: {error})"


def _looked_for(tool: Tool) -> dict[str, Any]:
    answer: Any = _tried(lambda: [_recorded(each) for each in tool.look()])
    found, missing = ([], answer) if isinstance(answer, str) else (answer, "" if answer else "it is not found")
    return {"name": tool.name, "found": found, "missing": missing, "enables": tool.enables}


def _recorded(found: Found) -> dict[str, str]:
    return {"version": found.version, "path": found.path, "note": found.note}


def _launcher(item: Any) -> Line:
    missing = _tried(lambda: _missing(item))
    return Line(item.name, ("it can run",) if missing is None else (), missing or "")


def _missing(item: Any) -> str | None:
    """Return what a launcher lacks, or None.  It is loaded unless its reference says what it lacks."""
    from bitwise_core.plugins.references import LauncherReference, loaded

    missing: str | None = item.missing() if isinstance(item, LauncherReference) else None
    return loaded(item).missing() if missing is None else missing


def _caches(loaded: Registry) -> list[dict[str, Any]]:
    from bitwise_core.caching.entry_files import EntryFolder, cache_directory, folders, size_limit

    try:
        present = folders()
    except OSError:  # the directory cannot be read, so nothing in it can
        directory = cache_directory()
        present = {} if directory is None else {directory.name: EntryFolder(directory)}
    found = []
    for name, folder in present.items():
        usage = folder.usage()
        found.append(
            {"name": name, "path": str(folder.path), "entries": usage.entries, "size": usage.size,
             "limit": size_limit(), "writable": os.access(folder.path, os.W_OK)}
        )  # fmt: skip
    return found


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the text of what was found."""
    yield f"Python {found['python']} ({found['executable']}) on {found['platform']}"
    yield from _section("distributions", (Line(**each) for each in found["distributions"]))
    yield from _section(
        "plugins",
        [Line(each["name"], (_plugin(each),)) for each in found["plugins"]]
        + [Line(each["name"], missing=f"could not be loaded: {each['reason']}") for each in found["broken"]],
    )
    yield from _section("tools", (Line(each["name"], tuple(map(_tool, each["found"])), each["missing"],
                                       each["enables"]) for each in found["found_tools"]))  # fmt: skip
    yield from _section("launchers", (Line(**each) for each in found["launchers"]))
    yield from _section("caches", (Line(each["name"], (_cache(each),)) for each in found["caches"]))


def _section(title: str, rows: Iterable[Line]) -> Iterator[str]:
    yield ""
    yield title
    rows = list(rows)
    for row in rows:
        name = f"  {row.name:<24} "
        for text in row.found:
            yield f"{name}{text}"
            name = " " * len(name)
        if row.missing:
            yield f"{name}missing: {row.missing}"
            if row.enables:
                yield f"{' ' * len(name)}it enables: {row.enables}"
    if not rows:
        yield "  none"


def _plugin(each: dict[str, Any]) -> str:
    reads = f", reads {', '.join(each['architectures'])}" if each["architectures"] else ""
    return f"of {each['distribution']} {each['version']}{reads}"


def _tool(each: dict[str, str]) -> str:
    return " ".join(filter(None, (each["version"], each["path"], each["note"] and f"({each['note']})")))


def _cache(each: dict[str, Any]) -> str:
    count = "1 entry" if each["entries"] == 1 else f"{each['entries']} entries"
    size = f"{count}, {each['size'] / (1 << 20):.1f} of at most {each['limit'] >> 20} MiB"
    return f"{each['path']}: {size}" + ("" if each["writable"] else "; it cannot be written")
