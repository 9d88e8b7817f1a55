"""The HTML page of several sections, without external resources."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version

import jinja2

from bitwise_core.report.section import Section


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bitwise_core.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("page.html")


def render(title: str, sections: Sequence[Section]) -> str:
    """Return the page with all sections."""
    return _template().render(title=title, sections=sections, version=version("bitwise-core"))
