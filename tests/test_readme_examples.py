"""The Python example of the README, executed in the repository with its output compared."""

from __future__ import annotations

import doctest
import re

import pytest

from workspace import ROOT

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
pytest.importorskip("triton", reason="needs the assembler that Triton brings")


def test_the_python_example_prints_what_the_readme_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"<!-- python-example -->\n```pycon\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(ROOT)
    example = doctest.DocTestParser().get_doctest(text, {}, "README.md", "README.md", 0)
    report: list[str] = []
    found = doctest.DocTestRunner().run(example, out=report.append)
    assert report == []
    assert (found.failed, found.attempted) == (0, text.count(">>> "))
    assert found.attempted > 0
