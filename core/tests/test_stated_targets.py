"""The target that a text states is parsed once, and again where the text, the parser or the code is another one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_texts import row_sum

from bitwise_core.assembly.module import Module
from bitwise_core.caching.entry_files import EntryFolder
from bitwise_core.checker.readings import ReadingCache
from bitwise_core.checker.sources import Source
from bitwise_core.checker.stated_targets import FOLDER, stated_target
from bitwise_core.errors import InputError
from bitwise_core.plugins.references import Deferred

parser = pytest.importorskip("bitwise_nvidia_ptx.text.parser")

TEXT = row_sum()
PARSE: Callable[[str, str], Module] = parser.parse
SOURCE = Source("a.ptx", TEXT)
REFERENCE = Deferred("bitwise_nvidia_ptx.text.parser:parse")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the texts that are parsed."""
    names: list[str] = []

    def counted(text: str, name: str) -> Module:
        names.append(name)
        return PARSE(text, name)

    monkeypatch.setattr(parser, "parse", counted)
    monkeypatch.setattr(parser, "other", counted, raising=False)
    return names


@pytest.fixture
def opened(folder: EntryFolder, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ReadingCache]:
    """A function that opens the cache of a process that runs the given code."""

    def of(code: str) -> ReadingCache:
        monkeypatch.setattr("bitwise_core.checker.readings.environment", lambda: code)
        return ReadingCache(folder)

    return of


@pytest.fixture
def folder(tmp_path: Path) -> EntryFolder:
    return EntryFolder(tmp_path / "readings")


def test_a_text_is_parsed_once(parsed: list[str], folder: EntryFolder, opened: Callable[[str], ReadingCache]) -> None:
    targets = [stated_target(source, REFERENCE, opened("code")) for source in [SOURCE] * 2]
    assert targets == ["sm_90", "sm_90"]
    # The name of the file is no part of what a text states.
    assert stated_target(Source("b.ptx", TEXT), REFERENCE, opened("code")) == "sm_90"
    assert parsed == ["a.ptx"]
    assert EntryFolder(folder.path.with_name(FOLDER)).usage().entries == 1
    assert folder.usage().entries == 0


def test_another_text_is_parsed(parsed: list[str], opened: Callable[[str], ReadingCache]) -> None:
    stated_target(SOURCE, REFERENCE, opened("code"))
    other = Source("a.ptx", TEXT.replace(".target sm_90", ".target sm_100"))
    assert stated_target(other, REFERENCE, opened("code")) == "sm_100"
    assert parsed == ["a.ptx"] * 2


def test_another_parser_and_other_code_parse_again(parsed: list[str], opened: Callable[[str], ReadingCache]) -> None:
    for reference, code in ((REFERENCE, "code"), (Deferred("bitwise_nvidia_ptx.text.parser:other"), "code"),
                            (REFERENCE, "other code")):  # fmt: skip
        assert stated_target(SOURCE, reference, opened(code)) == "sm_90"
    assert parsed == ["a.ptx"] * 3


def test_nothing_is_kept_where_the_code_is_unknown(
    parsed: list[str], folder: EntryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bitwise_core.checker.readings.environment", lambda: None)
    for _ in range(2):
        assert stated_target(SOURCE, REFERENCE, ReadingCache(folder)) == "sm_90"
    assert parsed == ["a.ptx"] * 2
    assert not folder.path.parent.joinpath(FOLDER).exists()


def test_nothing_is_kept_where_the_code_has_changed_meanwhile(
    parsed: list[str], folder: EntryFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bitwise_core.checker.readings.environment", lambda: "other code")
    for _ in range(2):
        assert stated_target(SOURCE, REFERENCE, ReadingCache(folder, "code")) == "sm_90"
    assert parsed == ["a.ptx"] * 2


def test_a_parser_that_is_no_reference_parses_every_time(
    parsed: list[str], opened: Callable[[str], ReadingCache]
) -> None:
    for _ in range(2):
        stated_target(SOURCE, lambda text, name: parser.parse(text, name), opened("code"))
        stated_target(SOURCE, REFERENCE, None)
    assert parsed == ["a.ptx"] * 4


def test_a_text_that_cannot_be_parsed_is_refused_every_time(
    parsed: list[str], opened: Callable[[str], ReadingCache]
) -> None:
    for name in ("a.ptx", "b.ptx"):
        with pytest.raises(InputError, match=f"{re.escape(name)}:1: "):
            stated_target(Source(name, "garbage"), REFERENCE, opened("code"))
    assert parsed == ["a.ptx", "b.ptx"]


def test_a_nested_text_has_a_sentence(opened: Callable[[str], ReadingCache]) -> None:
    def nested(text: str, name: str) -> Module:
        raise RecursionError

    with pytest.raises(InputError, match=r"a\.ptx: is nested too deeply"):
        stated_target(SOURCE, nested, opened("code"))


def test_other_errors_of_a_parser_are_its_own(opened: Callable[[str], ReadingCache]) -> None:
    def broken(text: str, name: str) -> Module:
        raise KeyError(name)

    with pytest.raises(KeyError):
        stated_target(SOURCE, broken, opened("code"))
