"""What was measured of one cuBLASLt on one architecture: rows of a data file, each with where it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from bitwise_cublas_profiles.question import CublasError

Row = Mapping[str, Any]
Key = tuple[str, str]
"""cuBLASLt's major.minor, and the compute capability: ("13.1", "9.0")."""

SECTIONS = ("units", "layouts", "algorithms", "stages", "merges", "grains", "chains", "lanes", "slices")
"""The tables of a profile; every row of them says in `provenance` whether it was measured or published."""

OPTIONAL = ("forms",)
"""Tables that a profile may lack: `forms` are batches, biases and rows with gaps, by algorithm, with slices or not."""


class Declined(CublasError):
    """A configuration whose bits nobody has measured: the message holds the key, and what is missing."""


@dataclass(frozen=True)
class Profile:
    """One data file: `key`, the architecture's name, the tables of SECTIONS, and `about`, everything else it says."""

    key: Key
    architecture: str
    tables: Mapping[str, tuple[Row, ...]]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The key in words, for messages."""
        version, capability = self.key
        return f"cuBLASLt {version} on compute capability {capability}"

    def row(self, section: str, letters: str | None = None, **wanted: Any) -> Row | None:
        """The row of a table that has these values, None where there is none.

        Rows that say `where` hold for the layouts named there, and others of the same values for others.
        """
        for each in self.tables[section]:
            if letters not in each.get("where", (letters,)):
                continue
            if all(each.get(name) == value for name, value in wanted.items()):
                self.used(section, each)
                return each
        return None

    def used(self, section: str, row: Row) -> None:
        """Called for every row that a description rests on; for those who count."""


def read(text: str) -> Profile:
    """The profile of a data file's text.  Raises ValueError for one that lacks a table or a row's provenance."""
    content = json.loads(text)
    tables = {name: tuple(content.pop(name)) for name in SECTIONS}
    tables |= {name: tuple(content.pop(name, ())) for name in OPTIONAL}
    for name, rows in tables.items():
        for each in rows:
            if each.get("provenance") not in ("measured", "published"):
                raise ValueError(f"a row of {name} does not say where it comes from: {each}")
    key = (content.pop("version"), content.pop("capability"))
    return Profile(key, content.pop("architecture"), tables, content)


@cache
def profiles() -> Mapping[Key, Profile]:
    """Every profile of this distribution, by its key."""
    folder = files("bitwise_cublas_profiles").joinpath("data")
    found = [read(each.read_text(encoding="utf-8")) for each in folder.iterdir() if each.name.endswith(".json")]
    return {each.key: each for each in sorted(found, key=lambda each: each.key)}


def profile(version: str, capability: str) -> Profile:
    """The profile of a library and an architecture; `version` may have a patch number, which is not looked at.

    Raises Declined, with the key, where there is none.
    """
    key = (".".join(version.split(".")[:2]), capability)
    found = profiles().get(key)
    if found is None:
        known = ", ".join(" on ".join(each) for each in profiles())
        raise Declined(
            f"cuBLASLt {key[0]} on compute capability {key[1]} is not measured; there are profiles of {known}"
        )
    return found
