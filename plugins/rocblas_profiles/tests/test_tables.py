"""Logic files, the tables made of them, and faults in both."""

from __future__ import annotations

import json
import lzma
from contextlib import suppress
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logic_writer import text_of

from bitwise_rocblas_profiles.coverage import coverage
from bitwise_rocblas_profiles.errors import OPEN, RocblasError
from bitwise_rocblas_profiles.generate import main, table_of
from bitwise_rocblas_profiles.libraries import libraries
from bitwise_rocblas_profiles.logic_files import logic_file, read_logic_file
from bitwise_rocblas_profiles.logic_text import parse
from bitwise_rocblas_profiles.tables import LogicFile, Table, bundled, from_bytes, to_bytes
from covering import examples

FOLDER = files("bitwise_rocblas_profiles").joinpath("data")


def small(file: LogicFile, count: int = 3) -> LogicFile:
    """Return a file with its first solutions only."""
    rows = tuple(row for row in file.rows if row.solution < count)[:5]
    return replace(file, solutions=file.solutions[:count], rows=rows or (replace(file.rows[0], solution=0),), blob="")


def test_the_tables_name_their_source_and_licence() -> None:
    for table in bundled():
        assert table.source["repository"] in ("ROCm/rocBLAS", "ROCm/hipBLASLt")
        assert table.source["licence"] == "MIT"
        assert "Advanced Micro Devices" in table.source["copyright"]
        assert len(table.source["commit"]) == 40
        assert table.source["commit"] in FOLDER.joinpath("LICENSE-ROCm.md").read_text().replace("\n", "")
    assert [(len(table.files), sum(len(f.solutions) for f in table.files)) for table in bundled()] == [
        (272, 4481), (110, 4330),
    ]  # fmt: skip


def test_the_tables_have_canonical_bytes() -> None:
    names = sorted(each.name for each in FOLDER.iterdir() if each.name.endswith(".json.xz"))
    for name, table in zip(names, bundled(), strict=True):
        content = FOLDER.joinpath(name).read_bytes()
        assert lzma.decompress(to_bytes(table)) == lzma.decompress(content)
        assert from_bytes(content, name).source == table.source


@pytest.mark.parametrize("number", range(0, 382, 9))
def test_a_written_logic_file_is_read_again(number: int, tmp_path: Path) -> None:
    every = [file for table in bundled() for file in table.files]
    file = small(every[number])
    path = tmp_path / Path(file.path).name
    path.write_text(text_of(file))
    found = read_logic_file(path, file.path)
    assert len(found.blob) == 40
    one, other = (Table(each.generator, {}, (replace(each, blob=""),)) for each in (found, file))
    assert to_bytes(one) == to_bytes(other)
    assert found.tag == file.tag


def test_the_generator_makes_the_table_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = [small(file) for file in bundled()[1].files[:6]]
    for file in chosen:
        (tmp_path / "logic" / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "logic" / file.path).write_text(text_of(file))
    other = (tmp_path / "logic" / chosen[0].path).parent / "other.yaml"
    other.write_text(text_of(chosen[0]).replace("gfx942", "gfx90a", 1))
    out = tmp_path / "table.json.xz"
    given = [str(tmp_path / "logic"), "--repository", "ROCm/rocBLAS", "--version", "rocm-9", "--commit", "0" * 40]
    assert main([*given, "--out", str(out)]) == 0
    found = from_bytes(out.read_bytes(), "table")
    assert (found.source["tag"], found.source["licence"], found.generator) == ("rocm-9", "MIT", "Tensile")
    assert [(each.path, each.rows) for each in found.files] == sorted((each.path, each.rows) for each in chosen)
    end = Path(chosen[0].path).name
    assert table_of(tmp_path / "logic", {}, [end]).missing == ({"path": chosen[0].path},)
    assert main([str(tmp_path), *given[1:], "--out", str(tmp_path / "no" / "folder")]) == 2
    assert "cannot be written (No such file or directory)" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty"), *given[1:], "--out", str(out)]) == 2
    assert "has no logic file for gfx942: give a folder of one library" in capsys.readouterr().err


def test_every_solution_is_described_or_declined_by_name() -> None:
    found = {name: coverage(each.table.files) for (name, _), each in libraries().items()}
    chosen = coverage(libraries()["hipblaslt", "2024-10"].table.files, "N")
    assert set(found["rocblas"].declined) | set(found["hipblaslt"].declined) <= set(OPEN)
    assert (found["rocblas"].solutions, found["rocblas"].described) == (4330, 4042)
    assert found["rocblas"].declined == {
        "vector ALU": 221, "direct to registers": 45, "stochastic rounding": 16, "other kernel": 4, "tree of slices": 2,
    }  # fmt: skip
    assert (chosen.solutions, chosen.described) == (4481, 4312)
    assert chosen.declined == {"type": 82, "stochastic rounding": 76, "custom kernel": 11}
    # Without the caller's choice of the tiles that count, every kernel whose loops start elsewhere is declined.
    assert found["hipblaslt"].declined == {
        "stagger axis": 2776, "type": 82, "stochastic rounding": 76, "custom kernel": 11,
    }  # fmt: skip
    assert next(found["rocblas"].lines()) == "4042 of 4330 solutions are described (93.3 %)"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: b"", "is no table of solutions"),
        (lambda content: content[:-20], "is no table of solutions"),
        (lambda content: lzma.compress(b"[]"), "is no table of solutions"),
        (lambda content: lzma.compress(b'{"format": "other/1"}'), "its format is 'other/1'"),
    ],
)
def test_a_bad_table_is_refused(change: object, sentence: str) -> None:
    content = FOLDER.joinpath("rocblas-6.2.2-gfx942.json.xz").read_bytes()
    with pytest.raises(RocblasError, match=sentence):
        from_bytes(change(content), "table")  # type: ignore[operator]


@pytest.mark.parametrize("key", ["bits", "pairs", "files", "generator", "bits_fields"])
def test_a_table_with_a_fault_is_refused(key: str) -> None:
    content = json.loads(lzma.decompress(FOLDER.joinpath("rocblas-6.2.2-gfx942.json.xz").read_bytes()))
    content[key] = [[0]] if key != "generator" else "Other"
    with pytest.raises(RocblasError, match=r"^table is no table of solutions"):
        from_bytes(lzma.compress(json.dumps(content).encode()), "table")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("- a: 1\n  b:\n  - x\n  - 'y''z'\n  c: {d: [1, 2.5], e: .inf}\n- []\n", [
            {"a": 1, "b": ["x", "y'z"], "c": {"d": [1, 2.5], "e": float("inf")}}, []]),
        ("- - - [1, -2]\n    - [0, 1.0e+3]\n  - - [3]\n", [[[[1, -2], [0, 1000.0]], [[3]]]]),
        ("# a comment\n---\n- true\n- null\n- ~\n- false\n- ''\n- 4.31.0\n", [True, None, None, False, "", "4.31.0"]),
        ("- {a: 1,\n   b: 'x: y'}\n- last: -1\n", [{"a": 1, "b": "x: y"}, {"last": -1}]),
        ("-\n  - 1\n- 2\n", [[1], 2]),
        ("a:\nb: Device 0049\n", {"a": None, "b": "Device 0049"}),
    ],
)  # fmt: skip
def test_the_values_of_a_text(text: str, value: object) -> None:
    assert parse(text, "file") == value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "file: the file is empty"),
        ("- [1, 2", "file:2: did not find expected ',' or ']'"),
        ("- a: 1\n   b: 2\n", "file:2: mapping values are not allowed in this context"),
        ("- &anchor x\n", "file:1: anchors and aliases are not supported"),
        ("- 1\n- *anchor\n", "file:2: anchors and aliases are not supported"),
        ("- !tag x\n", "file:1: tags are not supported"),
        ("- [1 2}\n", "file:1: did not find expected ',' or ']'"),
        ("- [1] 2\n", "file:1: did not find expected"),
        ("- 1\n--- 2\n", "file:2: but found another document"),
        ("a: 1\na: 2\n", "file:2: a key is given twice"),
        ("[a]: 1\n", "file:1: a key is no text"),
        ("- x\n\t- y\n", "file:2: found a tab character that violates indentation"),
        ("- \x00\n", "file: the character at position 2 is not allowed"),
        ("- " + "1" * 5000 + "\n", "file: Exceeds the limit"),
        ("- " * 50 + "1\n", "file:1: values are nested too deeply"),
        ("- " + "[" * 50 + "]" * 50 + "\n", "file:1: values are nested too deeply"),
    ],
)
def test_a_text_that_is_no_logic_file_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(RocblasError) as caught:
        parse(text, "file")
    assert str(caught.value).startswith(sentence)


SAMPLE = text_of(small(bundled()[1].files[0], 1))


@given(data=st.data())
@settings(max_examples=examples(300), deadline=None)
def test_a_changed_file_gives_a_record_or_a_sentence(data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(SAMPLE)))
    end = data.draw(st.integers(begin, min(len(SAMPLE), begin + 60)))
    inserted = data.draw(st.text("[]{}-: ,'\"\n01aé\t#.~|&", max_size=6))
    text = SAMPLE[:begin] + inserted + SAMPLE[end:]
    found = None
    with suppress(RocblasError):
        found = logic_file(parse(text, "file"), "file")
    if found is not None:
        coverage([found], "N")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("gfx942", "[gfx942]", "its third entry is no architecture, but ['gfx942']"),
        ("DataType: 11", "DataType: 99", "DataType = 99 is the number of no type"),
        ("  TLUA: true\n", "", "its problem type has no TLUA"),
        ("    GlobalLoadVectorWidthA", "    Other", "its first solution has neither GlobalLoadVectorWidthA"),
        ("- DeviceEfficiency", "- DeviceEfficiency\n- Random", "selects by 'Random', which is unknown"),
        ("    - [0, ", "    - [7, ", "row 0 of its sizes is not [[M, N, batch, K], [solution, speed]]"),
    ],
)
def test_a_logic_file_with_a_fault_is_refused(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    assert old in SAMPLE
    path = tmp_path / "logic.yaml"
    path.write_text(SAMPLE.replace(old, new, 1))
    with pytest.raises(RocblasError) as caught:
        read_logic_file(path, "logic.yaml")
    assert sentence in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RocblasError, match=r"cannot be read \(No such file or directory\)"):
        read_logic_file(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RocblasError, match=r"cannot be read \(it is not text\)"):
        read_logic_file(tmp_path / "bytes.yaml")
    with pytest.raises(RocblasError, match="is not a list of 10 or more entries"):
        logic_file({}, "x")


def test_the_page_lists_everything_that_is_declined() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "rocblas.md").read_text()
    listed = page.split("<!-- declined -->\n")[1].split("<!-- end -->")[0]
    assert listed == "".join(f"| {name} | {words} |\n" for name, words in OPEN.items())
