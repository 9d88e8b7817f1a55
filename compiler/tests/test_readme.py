"""The Python examples of the README, executed unchanged: comparison of configurations and pinned reductions."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

import importlib.util
import inspect
import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")
pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

import triton.language as tl  # noqa: E402

from bitwise_core.checker.partition import partition  # noqa: E402
from bitwise_core.checker.sources import Options  # noqa: E402
from bitwise_core.checker.verdicts import Outcome  # noqa: E402
from bitwise_triton import Buffer, compile_configuration  # noqa: E402
from bitwise_triton.equivalence import source_of  # noqa: E402
from bitwise_triton.reductions import pinned_reductions  # noqa: E402
from bitwise_triton.reductions.kernels import functions  # noqa: E402

FOLDER = Path(__file__).parents[1]


def examples(page: Path, word: str = "bitwise_triton.reductions") -> list[str]:
    """The Python examples of a page that contain `word`."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if word in block]


@triton.jit
def plain_sum(x, y, columns, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + column, mask=column < columns, other=0.0)
    tl.store(y + row, tl.sum(value, 0))


def classes(kernel: Any, blocks: tuple[int, ...], targets: tuple[str, ...] = ("sm_90",), columns: int = 200) -> int:
    """The number of classes of three warp counts, the blocks and the targets."""
    arguments: dict[str, Any] = {"x": Buffer("X", "fp32"), "y": Buffer("Y", "fp32"), "columns": columns}
    sources = []
    for target in targets:
        for block in blocks:
            for warps in (1, 2, 4):
                found = compile_configuration(
                    kernel, arguments, {"BLOCK": block}, grid=(3,), target=target, num_warps=warps
                )
                sources.append(replace(source_of(found, f"{target}-{block}x{warps}"), target=target))
    found = partition(sources, targets[0], Options(), workers=1)
    assert found.unknown == {}
    return len(found.classes)


def test_the_docstrings_have_the_examples_of_the_pages() -> None:
    kernel, around = examples(FOLDER / "README.md")
    assert textwrap.indent(kernel[kernel.index("@triton.jit") :], "    ") in (inspect.getdoc(functions) or "")
    assert textwrap.indent(around[around.index("with ") :], "    ") in (inspect.getdoc(pinned_reductions) or "")


def executed(text: str, folder: Path) -> Any:
    """The module that executes an example from a file, since Triton reads the source of its kernels."""
    path = folder / "example.py"
    path.write_text(text)
    specification = importlib.util.spec_from_file_location("example", path)
    assert specification is not None
    assert specification.loader is not None
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    return example


def test_the_configurations_of_the_example_are_compared(
    tmp_path: Path, triton_cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (text,) = examples(FOLDER / "README.md", "capture, compare, partition")
    example = executed(text, tmp_path)
    assert example.verdict.outcome is Outcome.DIFFERENT
    assert example.verdict.counterexample is not None
    assert example.classes == ((0,), (1,), (2,))
    assert found_files(tmp_path / "kernels") == ["manifest.json", *(f"row_sum_00{index}.ptx" for index in range(3))]


def found_files(folder: Path) -> list[str]:
    """The names of the files of a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def row_sum(tmp_path: Path) -> Any:
    """The kernel of the example."""
    return executed(examples(FOLDER / "README.md")[0], tmp_path).row_sum


def test_the_configurations_of_the_example_kernel_are_one_class(row_sum: Any, triton_cache: Any) -> None:
    assert classes(row_sum, (256, 512)) == 1


def test_it_is_one_class_for_both_vendors_with_and_without_padding(row_sum: Any, triton_cache: Any) -> None:
    """Rows with and without padding; Triton's AMD backend turns a constant padding of -0.0 into +0.0."""
    pytest.importorskip("bitwise_amd_gfx942", reason="needs the plugin of gfx942")
    assert classes(row_sum, (256, 512), ("sm_90", "gfx942"), 256) == 1
    assert classes(plain_sum, (256,), ("sm_90", "gfx942"), 256) > 1


def test_the_kernel_that_the_example_launches_is_one_class(
    triton_cache: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert classes(plain_sum, (256,)) > 1
    found: list[int] = []
    exec(examples(FOLDER / "README.md")[1], {"launch": lambda: found.append(classes(plain_sum, (256,)))})
    assert found == [1]
    assert capsys.readouterr().out == "3\n"
