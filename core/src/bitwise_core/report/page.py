"""The HTML page of several sections, without external resources."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import jinja2

from bitwise_core.report.section import Section

BUNDLED = files("bitwise_core.report") / "bundled"
"""The folder of the libraries, as they are published, with their licences."""


@dataclass(frozen=True, slots=True)
class Library:
    """A JavaScript library of the page: its published file, with the digest and the place of origin."""

    name: str
    version: str
    licence: str
    file: str
    licence_file: str
    package: str
    sha256: str

    @property
    def text(self) -> str:
        """The library without the comment that names a file for debuggers."""
        lines = (BUNDLED / self.file).read_text(encoding="utf-8").splitlines()
        return "\n".join(line for line in lines if not line.startswith("//# sourceMappingURL="))


def libraries() -> tuple[Library, ...]:
    """Return the bundled libraries."""
    return tuple(Library(**each) for each in json.loads((BUNDLED / "libraries.json").read_text(encoding="utf-8")))


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("bitwise_core.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def _part(name: str) -> str:
    return (files("bitwise_core.report") / name).read_text(encoding="utf-8")


def script_json(content: Any) -> str:
    """Return JSON that may stand in a script element: no text of it ends the element or begins a comment."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def render(title: str, sections: Sequence[Section]) -> str:
    """Return the page with all sections."""
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            sections=sections,
            records=[script_json(each.record()) for each in sections],
            libraries=libraries(),
            style=_part("page.css"),
            script=_part("page.js"),
            version=version("bitwise-core"),
        )
    )
