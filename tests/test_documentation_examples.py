"""Every code block of README.md and docs/ runs and prints what the page shows, or is checked where it needs a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bitwise_bench.documentation.example_names import faults_of_python, faults_of_shell
from bitwise_bench.documentation.page_examples import Example, examples, matches, run, written
from bitwise_bench.documentation.page_links import OUTSIDE
from workspace import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if "```" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page(
    page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="needs the compiler and the assembler that Triton brings")
    # Pages show the same kernels: the workers of a session compile each once.
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    monkeypatch.setenv("TRITON_CACHE_DIR", str(shared / "triton-of-examples"))
    folder = tmp_path / "example"
    folder.mkdir()
    found = run(page.read_text(encoding="utf-8"), folder)
    assert "\n".join(found.faults) == "", f"python -m bitwise_bench.documentation.page_examples --write {page.name}"


@pytest.mark.parametrize("path", [path for path in OUTSIDE if "/" in path])
def test_the_names_in_the_examples_of_a_package_exist(path: str) -> None:
    """The tests of a package execute its examples where they can be executed."""
    faults = []
    for each in examples((ROOT / path).read_text(encoding="utf-8")):
        if each.language in ("sh", "bash"):
            faults += faults_of_shell(each.text)
        elif each.language == "python":
            faults += faults_of_python(each.text)
    assert faults == []


PAGE = """
Text.

<!-- example: status=3 -->
```sh
first
```

```python
print(1 + 1)
```

```text
2
```

<!-- example: file=kernel.ptx gpu -->
```c
text
```

```text
not printed by anything
```
"""


def test_a_page_is_divided_into_its_examples() -> None:
    assert examples(PAGE) == [
        Example("sh", "first\n", 6, {"status": "3"}),
        Example("python", "print(1 + 1)\n", 10, {}, "2\n", (14, 15)),
        Example("c", "text\n", 19, {"file": "kernel.ptx", "gpu": ""}),
        Example("text", "not printed by anything\n", 23),
    ]


def test_a_language_without_a_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 1: a block in the language 'perl'"):
        examples("```perl\n1\n```\n")


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        ("```python\nprint(3)\n```\n```text\n2\n```\n", "the page shows\n2\nand the example prints\n3\n"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```pycon\n>>> 1 + 1\n3\n\n```\n", "Expected:\n    3\nGot:\n    2"),
        ("```sh\nfalse\n```\n", "exit status 1"),
        ("<!-- example: status=1 -->\n```sh\ntrue\n```\n", "exit status 0"),
        ("```sh\nbitwise partition nowhere\n```\n", "exit status 2"),
        ("```json\n{1}\n```\n", "JSONDecodeError"),
        ("<!-- example: gpu -->\n```sh\nbitwise partition x --colour\n```\n", "No such option: --colour"),
        ("<!-- example: gpu -->\n```sh\nbitwise cublas audt 1\n```\n", "audt"),
        ("<!-- example: gpu -->\n```sh\nbitwise gem 1 2 3\n```\n", "No such command 'gem'"),
        ("<!-- example: gpu -->\n```python\nfrom bitwise_core import compere\n```\n", "has no name compere"),
        ("<!-- example: gpu -->\n```python\nimport bitwise_core as b\nb.compere()\n```\n", "b has no name compere"),
        ("<!-- example: gpu -->\n```python\nimport bitwise_core as b\nb.compare(x, y, z=1)\n```\n", "no parameter z"),
        ("<!-- example: gpu -->\n```python\nimport (\n```\n", "SyntaxError"),
        ("<!-- example: install -->\n```sh\n.venv/bin/nox -s bild\n```\n", "there is no session bild"),
        ("<!-- example: install -->\n```sh\npip install 'bitwise-core[amt]'\n```\n", "bitwise-core has no extra amt"),
        ("<!-- example: install -->\n```sh\npip install bitwise-cor\n```\n", "there is no distribution bitwise-cor"),
        ("<!-- example: install -->\n```sh\npython -m bitwise_core.x\n```\n", "there is no module bitwise_core.x"),
    ],
)
def test_a_fault_of_an_example_is_found(block: str, fault: str, tmp_path: Path) -> None:
    (found,) = run(block, tmp_path).faults
    assert fault in found


def test_a_block_that_needs_a_gpu_runs_where_it_is_asked_for(tmp_path: Path) -> None:
    page = "<!-- example: gpu -->\n```python\n1 / 0\n```\n"
    assert run(page, tmp_path).faults == []
    (found,) = run(page, tmp_path, gpu=True).faults
    assert "ZeroDivisionError" in found


def test_examples_of_a_page_share_their_folder_and_names(tmp_path: Path) -> None:
    page = (
        "<!-- folder: sample.ptx = plugins/nvidia_sm90/tests/samples/sm_90/row_sum/row_sum_0.ptx -->\n"
        "<!-- example: file=number.txt -->\n```text\n7\n```\n```python\nimport pathlib\nx = 1\n```\n"
        "```pycon\n>>> x + int(pathlib.Path('number.txt').read_text())\n8\n\n```\n```sh\ntest -s sample.ptx\n```\n"
    )
    assert run(page, tmp_path).faults == []


def test_what_is_printed_is_written_into_a_page_where_it_differs(tmp_path: Path) -> None:
    page = (
        "```python\nprint('a 12 ms\\nb')\n```\n\n```text\na ... ms\nb\n```\n\n"
        "```python\nprint(2)\n```\n```text\nold\n```\nEnd.\n"
    )
    found = run(page, tmp_path)
    assert written(page, found.printed) == page.replace("old", "2")


def test_modules_and_names_of_an_example_are_found() -> None:
    assert faults_of_python("from bitwise_core.plugins import profiles, registry\nregistry.default()\n") == []
    assert faults_of_python("from bitwise_core.plugins import nothing\n") == [
        "bitwise_core.plugins has no name nothing"
    ]
    assert faults_of_python("from bitwise_core.limits import nothing\n") == ["bitwise_core.limits has no name nothing"]


def test_dots_stand_for_any_text() -> None:
    assert matches("in ... s\n", "in 0.5 s  \n")
    assert not matches("in ... s\n", "in 0.5 ms\n")
