"""Names, versions and entry points of installed distributions; names and versions from the first lines of metadata.

`importlib.metadata` reads the whole description of a distribution as an e-mail, each time that a name is asked for.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata
from importlib.metadata import Distribution, EntryPoints, PackageNotFoundError, distribution
from typing import Any

_HEADER = re.compile(r"^(Name|Version):[ \t]*+(\S++)[ \t]*+$", re.M)


def name_of(found: Distribution) -> str:
    """Return the name of a distribution."""
    return _headers(found).get("Name") or found.name


def version_of(found: Distribution) -> str:
    """Return the version of a distribution."""
    return _headers(found).get("Version") or found.version


def installed_version(name: str) -> str | None:
    """Return the version of the installed distribution of this name, None where there is none."""
    try:
        return version_of(distribution(name))
    except PackageNotFoundError:
        return None


def entry_points(*, group: str) -> EntryPoints:
    """Return the entry points of a group, of the distributions that were installed at the first call."""
    found: EntryPoints = _entry_points().select(group=group)
    return found


@cache
def _entry_points() -> Any:
    return metadata.entry_points()


def _headers(found: Distribution) -> dict[str, str]:
    """Return the name and the version as the file of a wheel states them, each once; nothing for another form."""
    head = (found.read_text("METADATA") or "").partition("\n\n")[0]
    pairs = _HEADER.findall(head)
    return dict(pairs) if len(pairs) == len(dict(pairs)) else {}
