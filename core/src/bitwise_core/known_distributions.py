"""The distributions of this project by what they provide, so that an error can name the one to install.

The table is data: `python -m bitwise_bench.known_distributions` writes it from the extras of bitwise-core and from what
the plugins list.  No module of core depends on what is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from bitwise_core.installed_distributions import installed_version

Kind = Literal["architectures", "extensions", "targets", "matrix units", "libraries", "commands"]
"""What distributions provide: architectures that they read, extensions of assembly files, targets that the files state,
architectures of matrix units, libraries that they describe, subcommands of `bitwise`."""

ENTRY_POINT_GROUP = "bitwise"
"""The entry-point group of plugins."""

TABLE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, slots=True)
class KnownDistribution:
    """A distribution that an extra of bitwise-core installs: its name, its extra, its summary, and what it provides."""

    name: str
    extra: str
    summary: str
    provides: Mapping[str, tuple[str, ...]]

    @property
    def command(self) -> str:
        """The command that installs it."""
        return f"pip install 'bitwise-core[{self.extra}]'"

    @property
    def version(self) -> str | None:
        """The installed version, None where it is not installed."""
        return installed_version(self.name)


@cache
def known_distributions() -> tuple[KnownDistribution, ...]:
    """Return the distributions of the table, by name."""
    return tuple(
        KnownDistribution(
            name, each["extra"], each["summary"], {kind: tuple(found) for kind, found in each["provides"].items()}
        )
        for name, each in json.loads(TABLE.read_text(encoding="utf-8")).items()
    )


def advice(kind: Kind, value: str | None = None, otherwise: str = "") -> str:
    """Return which distribution to install for what no plugin provides, as the end of a sentence.

    It is the one that provides `value`, by default each that provides anything of the kind.  What is installed is not
    advised: where nothing is left, the result is `otherwise`.
    """
    provided = [each for each in known_distributions() if each.provides.get(kind)]
    if value is not None:
        provided = [each for each in provided if value in each.provides[kind]]
    absent = [f"{each.name} ({each.command})" for each in provided if each.version is None]
    return f"install {' or '.join(absent)}" if absent else otherwise
