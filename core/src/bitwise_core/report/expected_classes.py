"""The classes that a folder of kernels is expected to have, in a file, and how a partition differs from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitwise_core.checker.partition import Partition
from bitwise_core.errors import InputError
from bitwise_core.input_files import read_text
from bitwise_core.json_text import parse_json
from bitwise_core.output_files import write_text
from bitwise_core.report.findings import Finding

SCHEMA = 1
"""The version of the file's form."""

SCOPES = ("launch", "every launch")


@dataclass(frozen=True, slots=True)
class ExpectedClasses:
    """Classes of kernel names, and the scope of the proofs: `launch` or `every launch`."""

    classes: tuple[tuple[str, ...], ...]
    scope: str

    @classmethod
    def of(cls, found: Partition) -> ExpectedClasses:
        """Return the classes of a partition."""
        return cls(found.classes, found.scope)

    @classmethod
    def read(cls, path: Path) -> ExpectedClasses:
        """Read a file.  Raises InputError."""
        try:
            text = read_text(path, InputError)
        except InputError as error:
            raise error if path.exists() else InputError(f"{error}; --update-expected writes it") from None
        try:
            return cls._of_content(parse_json(text))
        except ValueError as error:
            raise InputError(f"{path}: is no file of expected classes ({error}); --update-expected writes it") from None

    @classmethod
    def _of_content(cls, content: Any) -> ExpectedClasses:
        if not isinstance(content, dict) or set(content) != {"schema", "scope", "classes"}:
            raise ValueError("it is no object with schema, scope and classes")
        if content["schema"] != SCHEMA or type(content["schema"]) is not int or content["scope"] not in SCOPES:
            raise ValueError(f"its schema is not {SCHEMA}, or its scope is none of {', '.join(SCOPES)}")
        classes = content["classes"]
        if not isinstance(classes, list) or not all(isinstance(each, list) and each for each in classes):
            raise ValueError("its classes are no lists of names")
        names = [name for each in classes for name in each]
        if not all(isinstance(name, str) and name.isprintable() for name in names) or len(set(names)) < len(names):
            raise ValueError("a name is no printable text, or is in two places")
        return cls(tuple(map(tuple, classes)), content["scope"])

    def write(self, path: Path) -> None:
        """Write a file as a whole.  Raises InputError."""
        content = {"schema": SCHEMA, "scope": self.scope, "classes": [list(each) for each in self.classes]}
        try:
            write_text(path, json.dumps(content, indent=1) + "\n")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None

    def differences(self, found: Partition) -> Iterator[Finding]:
        """Yield what a partition lacks or adds.

        Errors are kernels of an expected class that are not proved equal, kernels that are missing or were not
        expected, and proofs of a narrower scope.  Classes that are proved to be one are notes.
        """
        if self.scope == "every launch" and found.scope == "launch":
            yield Finding(
                "", "scope", "error", "equality was expected for every launch, and is proved for the given one"
            )
        place = {name: number for number, names in enumerate(found.classes) for name in names}
        listed = {name for names in self.classes for name in names}
        for name in place:
            if name not in listed:
                yield Finding(name, "unexpected-kernel", "error", f"{name} is in no expected class")
        first: dict[int, str] = {}
        for names in self.classes:
            present = [name for name in names if name in place]
            for name in names:
                if name not in place:
                    yield Finding(name, "missing-kernel", "error", f"{name} is expected, and there is no such kernel")
            for name in present[1:]:
                if place[name] != place[present[0]]:
                    why = f" ({found.unknown[name]})" if name in found.unknown else ""
                    words = f"{name} is no longer proved to return the bits of {present[0]}{why}"
                    yield Finding(name, "class-split", "error", words)
            if present:
                known = first.setdefault(place[present[0]], present[0])
                if known != present[0]:
                    words = f"{present[0]} is proved to return the bits of {known}, which was not expected"
                    yield Finding(present[0], "class-merged", "note", words)
