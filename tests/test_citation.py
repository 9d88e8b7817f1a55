"""CITATION.cff names the version, where there is no tag, and the license of the distributions."""

from __future__ import annotations

import yaml

from workspace import FALLBACK_VERSION, ROOT, distribution


def test_the_citation_is_that_of_the_distributions() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = distribution("bitwise-core").pyproject["project"]
    assert {"cff-version", "message", "title", "authors"} <= found.keys()
    assert (found["version"], found["license"]) == (FALLBACK_VERSION, project["license"])
