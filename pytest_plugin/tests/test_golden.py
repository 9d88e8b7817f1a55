"""Golden kernels are written on request, proved equal in later runs, and files that are none are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitwise_core import Launch, Source
from bitwise_pytest.golden_file import GoldenFileError, GoldenKernels, record_of

pytest_plugins = ["pytester"]

TOYS = Path(__file__).parents[2] / "examples/toy_arch/tests/samples/toy1/row_sum"

TEST = """
def test_sum(bitwise_golden):
    bitwise_golden("sum", {kernel!r})

def test_folder(bitwise_golden):
    bitwise_golden("all", {folder!r})
"""


def written(pytester: pytest.Pytester, kernel: str) -> None:
    pytester.makepyfile(TEST.format(kernel=str(TOYS / kernel), folder=str(TOYS)))


def outcomes(pytester: pytest.Pytester, *options: str, alone: bool = False) -> tuple[dict[str, int], str]:
    """Run the tests, `alone` in a process of their own, and return how many passed and failed, and the output."""
    run = pytester.runpytest_subprocess if alone else pytester.runpytest_inprocess
    done = run("-p", "no:cacheprovider", *options)
    return done.parseoutcomes(), done.stdout.str()


def test_a_golden_kernel_is_written_and_proved(pytester: pytest.Pytester) -> None:
    written(pytester, "butterfly.toy")
    found, text = outcomes(pytester, alone=True)
    assert found == {"failed": 2}
    assert "has no golden kernel 'sum': run pytest --bitwise-update" in text
    assert not (pytester.path / "bitwise_golden.json").exists()
    assert outcomes(pytester, "--bitwise-update")[0] == {"passed": 2}
    assert outcomes(pytester)[0] == {"passed": 2}
    known = GoldenKernels.read(pytester.path / "bitwise_golden.json").kernels
    assert set(known) == {"sum", "all: butterfly.toy", "all: renamed.toy", "all: halves_first.toy"}
    assert known["sum"].text == (TOYS / "butterfly.toy").read_text()

    written(pytester, "renamed.toy")  # other text, the same bits
    assert outcomes(pytester)[0] == {"passed": 2}
    written(pytester, "halves_first.toy")
    found, text = outcomes(pytester)
    assert found == {"failed": 1, "passed": 1}
    assert "sum (golden) against sum: different: " in text
    assert outcomes(pytester, "--bitwise-update", "--bitwise-golden", "other.json")[0] == {"passed": 2}
    assert outcomes(pytester, "--bitwise-golden", "other.json")[0] == {"passed": 2}


SOURCE = Source("a", "text", Launch(file="a", grid=(2, 1, 1)))


def entry(**changes: Any) -> str:
    return json.dumps({"schema": 1, "kernels": {"a": {**record_of(SOURCE), **changes}}})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    GoldenKernels({"a": SOURCE, "b": Source("b", "other", None, "entry")}).write(tmp_path / "g.json")
    assert GoldenKernels.read(tmp_path / "g.json").kernels == {"a": SOURCE, "b": Source("b", "other", None, "entry")}
    assert GoldenKernels.read(tmp_path / "absent.json").kernels == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "it is no file of golden kernels of schema 1"),
        ('{"schema": 2, "kernels": {}}', "it is no file of golden kernels of schema 1"),
        ('{"schema": 1, "kernels": {}, "more": 1}', "it has other keys than `schema` and `kernels`"),
        ('{"schema": 1, "kernels": {"a": {}}}', "the kernel 'a' is no object with entry, launch, text"),
        ('{"schema": 1, "schema": 1}', "an object has the key 'schema' twice: remove one"),
        (entry(text="????"), "Only base64 data is allowed"),
        (entry(text=""), "the text of the kernel 'a' is incomplete or larger than 32 MiB"),
        (entry(text="AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), "the text of the kernel 'a' is damaged"),
        (entry(launch={"file": "a", "grid": ["2"]}), "the launch of the kernel 'a': grid.0: "),
        (entry(entry=7), "the entry of the kernel 'a' is no text"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    path.write_text(text)
    with pytest.raises(GoldenFileError) as raised:
        GoldenKernels.read(path)
    assert str(raised.value).startswith(f"{path}: {sentence}")
    assert str(raised.value).endswith("; write it again with --bitwise-update")


def test_a_large_text_in_little_space_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "golden.json"
    GoldenKernels({"a": Source("a", "x" * 3_000_000)}).write(path)
    assert path.stat().st_size < 10_000
    monkeypatch.setattr("bitwise_pytest.golden_file.MAXIMUM_TEXT", 1 << 20)
    with pytest.raises(GoldenFileError, match="is incomplete or larger than 1 MiB"):
        GoldenKernels.read(path)
