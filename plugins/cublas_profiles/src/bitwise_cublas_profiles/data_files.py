"""The data files of this distribution: one for each library version and architecture."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable


@dataclass(frozen=True)
class DataFile:
    """A data file, named `ARCHITECTURE-VERSION.json`."""

    architecture: str
    version: str
    file: Traversable

    @property
    def name(self) -> str:
        """The name of its profile, `cublaslt_VERSION_ARCHITECTURE`."""
        return f"cublaslt_{self.version}_{self.architecture}"


def data_files() -> list[DataFile]:
    """Return the data files by version and architecture."""
    found = []
    for each in files("bitwise_cublas_profiles").joinpath("data").iterdir():
        architecture, _, version = each.name.removesuffix(".json").rpartition("-")
        if each.name.endswith(".json"):
            found.append(DataFile(architecture, version, each))
    return sorted(found, key=lambda each: (each.version, each.architecture))
