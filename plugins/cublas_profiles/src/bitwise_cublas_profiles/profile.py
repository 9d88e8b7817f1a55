"""Measurements of one cuBLASLt version on one architecture: the rows of a data file, each with its provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bitwise_cublas_profiles.data_files import data_files
from bitwise_cublas_profiles.query import CublasError

Row = Mapping[str, Any]
Key = tuple[str, str]
"""cuBLASLt's major.minor version and the compute capability: ("13.1", "9.0")."""

SECTIONS = ("units", "layouts", "algorithms", "stages", "merges", "granularities", "chains", "lanes", "slices")
"""Required tables of a profile. The `provenance` field of each row is `measured` or `published`.

A published row with a field `doubtful`, a reason, may be wrong. `shapes` counts the measured shapes whose outputs were
compared in full, `sampled` those that were compared in some elements at least, and `fp32` those of fp32 operands in a
row of other operands."""

OPTIONAL = ("features", "fma", "finishes", "rectifiers", "pytorch", "block_scales", "dots")
"""Tables that a profile may lack. `features` lists batches, biases and padded rows by algorithm, with and without split
K, and `fma` the kernels of fp32 operands that accumulate each slice in one chain. `finishes` has the orders of alpha,
beta and addends by algorithm, `rectifiers` what relu makes of a NaN by algorithm, `dots` the tiles of dot products,
`pytorch` the calls whose kernel or query PyTorch decides, and its versions measured, and `block_scales` the order of
the scales of blocks of k, by the rows of A and the columns of B that share one.
"""


class RowNotCovered(CublasError):
    """No measurement covers this configuration. The message has the key and the missing row."""


@dataclass(frozen=True)
class Profile:
    """One data file: its key, the architecture's name, the tables of SECTIONS and OPTIONAL, and its other fields in
    `about`.
    """

    key: Key
    architecture: str
    tables: Mapping[str, tuple[Row, ...]]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """The key as text for messages."""
        version, capability = self.key
        return f"cuBLASLt {version} on compute capability {capability}"

    def row(self, section: str, layout: str | None = None, /, **wanted: Any) -> Row | None:
        """The first row of a table with these values, or None.

        A row with a `where` field applies only to the layouts (transposes of A and B) listed there.
        """
        for each in self.tables[section]:
            if layout not in each.get("where", (layout,)):
                continue
            if all(each.get(name) == value for name, value in wanted.items()):
                self.record_use(section, each)
                return each
        return None

    def record_use(self, section: str, row: Row) -> None:
        """Called with every row that a description uses. Subclasses override it to record provenance."""


@dataclass(frozen=True)
class UnmeasuredRows(Profile):
    """A profile that keeps the names of the rows which descriptions use and which were not measured."""

    names: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, known: Profile) -> UnmeasuredRows:
        """A profile with the same tables."""
        return cls(known.key, known.architecture, known.tables, known.about)

    def record_use(self, section: str, row: Row) -> None:
        """Keep the name of a row that was not measured."""
        if row["provenance"] != "measured":
            keys = ("family", "operands", "algorithm", "stages", "reduction", "custom", "granularity")
            self.names.add(f"{section} {' '.join(f'{key}={row[key]}' for key in keys if key in row)}")


def read(text: str) -> Profile:
    """Parse a data file. Raises ValueError if a table is missing or a row has no provenance."""
    content = json.loads(text)
    tables = {name: tuple(content.pop(name)) for name in SECTIONS}
    tables |= {name: tuple(content.pop(name, ())) for name in OPTIONAL}
    for name, rows in tables.items():
        for each in rows:
            if each.get("provenance") not in ("measured", "published"):
                raise ValueError(f"a row of {name} has no provenance, which is measured or published: {each}")
            if "doubtful" in each and each["provenance"] != "published":
                raise ValueError(f"a row of {name} is measured and doubtful: {each}")
    key = (content.pop("version"), content.pop("capability"))
    return Profile(key, content.pop("architecture"), tables, content)


@cache
def profiles() -> Mapping[Key, Profile]:
    """Every profile of this distribution, by key."""
    found = [read(each.file.read_text(encoding="utf-8")) for each in data_files()]
    return {each.key: each for each in sorted(found, key=lambda each: each.key)}


def profile(version: str, capability: str) -> Profile:
    """The profile of a library version on a compute capability. A patch number in `version` is ignored.

    Raises RowNotCovered if there is none.
    """
    key = (".".join(version.split(".")[:2]), capability)
    found = profiles().get(key)
    if found is None:
        known = ", ".join(" on ".join(each) for each in profiles())
        raise RowNotCovered(
            f"cuBLASLt {key[0]} on compute capability {key[1]} is not measured; there are profiles of {known}"
        )
    return found
