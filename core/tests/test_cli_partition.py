"""`bitwise partition` on hand-written kernels: classes, reasons, exit statuses and messages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

from bitwise_core.checker.kernel_files import extensions
from bitwise_core.checker.wording import COMMON_NOTES
from bitwise_core.cli import answered_questions, app
from bitwise_core.cli.common import print_list
from bitwise_core.plugins import registry

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

PLAIN, SWAPPED, NEIGHBOURS, TWO_ROWS = row_sum(), row_sum(swapped=True), row_sum(neighbours=True), row_sum(rows=2)
TEXTS = {"a.ptx": PLAIN, "b.ptx": SWAPPED, "c.ptx": NEIGHBOURS, "d.ptx": TWO_ROWS}
LAUNCHES = [launch("a.ptx"), launch("b.ptx"), launch("c.ptx"), launch("d.ptx", rows=2)]


def partition(folder: Path, *options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["partition", str(folder), "--json", "--workers", "1", *options])
    assert (done.exit_code, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_kernels_of_equal_trees_are_one_class(tmp_path: Path) -> None:
    found = partition(write(tmp_path, dict(TEXTS), LAUNCHES))
    assert found["classes"] == [["a.ptx", "b.ptx", "d.ptx"], ["c.ptx"]]
    assert (found["unknown"], found["scope"], found["target"]) == ({}, "launch", "sm_90")
    assert isinstance(found["seconds"], float)


def test_the_order_of_a_maximum_does_not_matter(tmp_path: Path) -> None:
    texts: dict[str, str | bytes] = {
        "a.ptx": row_sum(combine="max.f32"),
        "b.ptx": row_sum(combine="max.f32", neighbours=True),
    }
    found = partition(write(tmp_path, texts, LAUNCHES[:2]))
    assert found["classes"] == [["a.ptx", "b.ptx"]]


def test_several_processes_return_the_same_classes(tmp_path: Path) -> None:
    found = partition(write(tmp_path, dict(TEXTS), LAUNCHES), "--workers", "2")
    assert found["classes"] == [["a.ptx", "b.ptx", "d.ptx"], ["c.ptx"]]


def test_several_launches_of_a_file_are_numbered(tmp_path: Path) -> None:
    again = launch("a.ptx", grid=[2])
    found = partition(write(tmp_path, {"a.ptx": PLAIN, "b.ptx": SWAPPED}, [*LAUNCHES[:2], again]))
    assert found["classes"] == [["a.ptx", "b.ptx"], ["a.ptx#2"]]


def test_an_unmodelled_instruction_is_unknown_with_its_line(tmp_path: Path) -> None:
    line = PLAIN.split("\n").index("ld.param.u64 %rd1, [x];") + 1
    strange = PLAIN.replace("ld.param.u64 %rd1, [x];", "frobnicate.b32 %r1, %r1;")
    found = partition(write(tmp_path, {"a.ptx": PLAIN, "b.ptx": strange}, LAUNCHES[:2]))
    assert found["classes"] == [["a.ptx"], ["b.ptx"]]
    assert found["unknown"] == {"b.ptx": f"the instruction frobnicate.b32 is not modelled at line {line}"}


def test_a_file_without_a_launch_is_unknown(tmp_path: Path) -> None:
    found = partition(write(tmp_path, {"a.ptx": PLAIN, "b.ptx": SWAPPED}, LAUNCHES[:1]))
    assert found["classes"] == [["a.ptx"], ["b.ptx"]]
    assert found["unknown"] == {"b.ptx": "the manifest has no launch of it"}


def test_without_a_manifest_the_classes_hold_for_every_launch(tmp_path: Path) -> None:
    renamed = PLAIN.replace("%f5", "%f8").replace("row_sum", "another_name")
    found = partition(write(tmp_path, {"a.ptx": PLAIN, "b.ptx": renamed, "c.ptx": NEIGHBOURS}, None))
    assert found["scope"] == "every launch"
    assert found["classes"] == [["a.ptx", "b.ptx"], ["c.ptx"]]


def test_the_option_every_launch(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": PLAIN}, LAUNCHES[:2])
    assert partition(folder, "--every-launch")["scope"] == "every launch"


def test_the_text_output_has_classes_reasons_and_notes(tmp_path: Path) -> None:
    strange = PLAIN.replace("mov.u32 %r1, %tid.x;", "frobnicate.b32 %r1, %r1;")
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": SWAPPED, "c.ptx": strange}, LAUNCHES[:3])
    done = CliRunner().invoke(app, ["partition", str(folder), "--workers", "1"])
    assert done.exit_code == 0
    assert "3 kernels, 1 class, 1 unknown, for the given launch" in done.stdout
    assert "a.ptx, b.ptx" in done.stdout
    assert "frobnicate" in done.stdout
    assert f"note: {COMMON_NOTES[0]}\n" in done.stdout
    assert done.stderr == ""


def test_the_html_report_is_self_contained(tmp_path: Path) -> None:
    folder = write(tmp_path, dict(TEXTS), LAUNCHES)
    page = tmp_path / "page.html"
    partition(folder, "--html", str(page))
    text = page.read_text()
    assert "How Y[0] is computed" in text
    assert "diverges at Y[0]" in text
    assert "sum the same 64 terms in different orders" in text
    assert "add.rn.fp32(X[0], X[32])" in text
    text = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(?:src|href)\s*=\s*["']|@import|url\(""", text)
    assert "default-src 'none'" in text


BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "is empty"),
    "blank": (" \n\n", "is empty"),
    "binary": (b"\x7fELF\x02\x01\x00\x00", "is not text (a zero byte at offset 6); give the assembly, not a binary"),
    "UTF-16": (".version 8.3\n".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "not UTF-8": (b".version 8.3\n\xff\xfe\n", "is not UTF-8 text (byte 0xff at offset 13)"),
}


@pytest.mark.parametrize("what", BAD)
def test_an_unreadable_file_is_reported_in_one_line(what: str, tmp_path: Path) -> None:
    content, sentence = BAD[what]
    folder = write(tmp_path, {"a.ptx": PLAIN, "bad.ptx": content}, None)
    done = CliRunner().invoke(app, ["partition", str(folder), "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"bitwise: {folder / 'bad.ptx'}: {sentence}\n"


def test_files_of_windows_are_read(tmp_path: Path) -> None:
    """Files with byte order marks and line ends of Windows are those without; a path with backslashes is refused."""
    folder = write(tmp_path, dict(TEXTS), LAUNCHES)
    expected = partition(folder)["classes"]
    for path in folder.iterdir():
        path.write_bytes(BOM_UTF8 + path.read_bytes().replace(b"\n", b"\r\n"))
    assert partition(folder)["classes"] == expected

    (folder / "sub").mkdir()
    write(folder / "sub", {"a.ptx": PLAIN}, None)
    write(folder, {}, [launch("sub\\a.ptx")])
    done = CliRunner().invoke(app, ["partition", str(folder)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith("there is no such file; write sub/a.ptx\n")


def test_a_link_to_a_missing_file_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": PLAIN}, None)
    (folder / "b.ptx").symlink_to("gone.ptx")
    (folder / "c.ptx").symlink_to("c.ptx")
    done = CliRunner().invoke(app, ["partition", str(folder)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "".join(f"bitwise: {folder / n}.ptx: links to a missing file\n" for n in "bc")


@pytest.mark.parametrize("command", ["partition", "determinism"])
def test_a_path_that_cannot_be_examined_is_an_error(command: str) -> None:
    """As one below a folder that its user may not read."""
    name = "x" * 300
    done = CliRunner().invoke(app, [command, name])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"bitwise: {name}: cannot be read (File name too long)\n"


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": PLAIN}, None)
    with (folder / "huge.ptx").open("wb") as file:
        file.truncate(50 << 20)
    done = CliRunner().invoke(app, ["partition", str(folder)])
    assert done.exit_code == 2
    assert done.stderr == f"bitwise: {folder / 'huge.ptx'}: has more than 32 MiB; at most that is read\n"


MALFORMED = {
    "truncated": PLAIN[: len(PLAIN) // 2],
    "truncated in its head": PLAIN[:30],
    "garbled": PLAIN.replace("ld.param.u64 %rd1, [x];", "ld.param.u64 %rd1, [x;"),
    "noise": "The quick brown fox\njumps over the lazy dog.\n" * 5,
    "a megabyte of brackets": "{" * (1 << 20),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_text_that_cannot_be_parsed_is_an_error(what: str, tmp_path: Path) -> None:
    texts: dict[str, str | bytes] = {"a.ptx": PLAIN, "bad.ptx": MALFORMED[what]}
    folder = write(tmp_path, texts, [launch("a.ptx"), launch("bad.ptx")])
    done = CliRunner().invoke(app, ["partition", str(folder), "--workers", "1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("bitwise: bad.ptx:")
    assert "Traceback" not in done.stderr


def test_every_unreadable_file_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": "", "b.ptx": b"\0", "c.ptx": PLAIN}, None)
    done = CliRunner().invoke(app, ["partition", str(folder)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 2)


MANIFESTS: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "is not JSON"),
    "no kernels": ('{"kernels": []}', "names no kernels"),
    "another shape": ("[1, 2]", "manifest.json: "),
    "a zero byte": (
        "{\0}",
        "is not text (a zero byte at offset 1); give a manifest in JSON, not a binary",
    ),
    "an object in place of a list": ('{"kernels": {}}', "manifest.json: kernels: input should be a list, not {{}}\n"),
    "a missing file": (
        json.dumps({"kernels": [launch("gone.ptx")]}),
        "gone.ptx: {folder}/manifest.json names it, and there is no such file",
    ),
    "a grid of nothing": (json.dumps({"kernels": [launch("a.ptx", grid=[0])]}), "kernels.0.grid.0: "),
    "an unknown entry": (
        json.dumps({"kernels": [launch("a.ptx", entry="column_sum")]}),
        "bitwise: a.ptx: has no entry 'column_sum'; its entries: row_sum\n",
    ),
    "too many arguments": (
        json.dumps({"kernels": [launch("a.ptx", args=[{"buffer": "X"}, {"buffer": "Y"}, {"i32": 3}])]}),
        "bitwise: a.ptx: the launch gives 3 arguments and the entry row_sum takes 2\n",
    ),
    "an argument of another width": (
        json.dumps({"kernels": [launch("a.ptx", args=[{"buffer": "X"}, {"i32": 3}])]}),
        "bitwise: a.ptx: the parameter y is 8 bytes wide, but the launch gives it a scalar of 4 (i32)\n",
    ),
    "an argument of no kind": (json.dumps({"kernels": [launch("a.ptx", args=[{"kind": "i33"}])]}), "kind 'i33'"),
    "another block": (
        json.dumps({"kernels": [launch("a.ptx", block=[64])]}),
        "bitwise: a.ptx: the text of row_sum requires blocks of (32, 1, 1) threads, the launch has (64, 1, 1)\n",
    ),
}


@pytest.mark.parametrize("what", MANIFESTS)
def test_an_error_in_a_manifest_is_reported_in_one_line(what: str, tmp_path: Path) -> None:
    text, sentence = MANIFESTS[what]
    folder = write(tmp_path, {"a.ptx": PLAIN, "manifest.json": text}, None)
    done = CliRunner().invoke(app, ["partition", str(folder), "--workers", "1"])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert sentence.format(folder=folder) in done.stderr


def test_targets(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": PLAIN, "b.ptx": PLAIN.replace("sm_90", "sm_90a")}, LAUNCHES[:2])
    assert partition(folder)["classes"] == [["a.ptx", "b.ptx"]]
    assert partition(folder, "--target", "sm_90a")["target"] == "sm_90"
    done = CliRunner().invoke(app, ["partition", str(folder), "--target", "sm_12345"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("bitwise: no plugin models the target sm_12345; those modelled: ")
    done = CliRunner().invoke(app, ["partition", str(folder), "--target", "toy1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "bitwise: no kernel is for the target toy1, whose files are named *.toy\n"


def test_sources_are_shown_in_a_page_and_read_before_the_analysis(tmp_path: Path) -> None:
    folder = write(tmp_path, {"a.ptx": "no assembly"}, None)
    done = CliRunner().invoke(app, ["partition", str(folder), "--source", "k.py"])
    assert (done.exit_code, done.stderr) == (
        2,
        "bitwise: --source: the page of --html shows sources: give that option too\n",
    )
    binary = tmp_path / "k.py"
    binary.write_bytes(b"\0")
    done = CliRunner().invoke(app, ["partition", str(folder), "--html", str(tmp_path / "x"), "--source", str(binary)])
    sentence = f"bitwise: {binary}: is not text (a zero byte at offset 0); give a source, not a binary\n"
    assert (done.exit_code, done.stderr) == (2, sentence)


def test_files_for_different_targets_are_not_compared(tmp_path: Path) -> None:
    texts: dict[str, str | bytes] = {"a.ptx": PLAIN, "b.ptx": PLAIN.replace("sm_90", "sm_80")}
    done = CliRunner().invoke(app, ["partition", str(write(tmp_path, texts, LAUNCHES[:2])), "--workers", "1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "bitwise: b.ptx: is for the target sm_80, but the requested architecture is sm_90\n"


def test_a_folder_without_kernels(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path, {"a.ptx": PLAIN}, None)
    endings = ", ".join(extensions(registry.default()))
    assert ".ptx" in endings
    for name, sentence in (
        ("gone", "there is no such folder"),
        ("empty", f"holds no assembly ({endings})"),
        ("a.ptx", "is not a folder"),
    ):
        done = CliRunner().invoke(app, ["partition", str(tmp_path / name)])
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"bitwise: {tmp_path / name}: {sentence}\n")


def test_an_unknown_condition(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["partition", str(tmp_path), "--assume", "sunshine"])
    assert done.exit_code == 2
    known = (
        "any-lane, finite, lowest-lane, matrix-arithmetic, pipeline-in-order, proxies-apart, proxies-together, "
        "units-apart, warp-order, work-stealing"
    )
    assert done.stderr == f"bitwise: --assume: the condition 'sunshine' is unknown; known conditions: {known}\n"


def test_plugins_are_listed() -> None:
    done = CliRunner().invoke(app, ["plugins", "--json"])
    found = json.loads(done.stdout)
    names = {arch["name"] for plugin in found["plugins"] for arch in plugin["architectures"]}
    assert names == set(registry.default().arches)
    rows = {each["architecture"]: each for each in found["capabilities"]}
    assert names | {"sm_70", "sm_75"} >= set(rows) >= names
    shown = CliRunner().invoke(app, ["plugins"], env={"COLUMNS": "250"}).stdout
    for each in rows.values():
        assert [line.split() for line in shown.splitlines()].count(" ".join(each.values()).split()) == 1
    assert [broken["name"] for broken in found["broken"]] == [broken.name for broken in registry.default().broken]


def test_no_name_is_divided(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"a kernel with  spaces {number}.ptx" for number in range(7)]
    print_list(names)
    lines = capsys.readouterr().out.splitlines()
    assert [name for line in lines for name in line[2:].removesuffix(",").split(", ")] == names
    assert [line.endswith(",") for line in lines] == [True] * (len(lines) - 1) + [False]
    assert max(map(len, lines)) <= 103
    print_list([])
    assert capsys.readouterr().out == ""


def test_progress_is_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(answered_questions, "SECONDS_BETWEEN_LINES", 0.0)
    with answered_questions.progress("analysing kernels") as advance:
        assert advance is not None
        advance(1, 3)
        advance(3, 3)
    assert capsys.readouterr() == ("", "analysing kernels: 1 of 3\n")


def test_the_command_as_a_process(tmp_path: Path) -> None:
    folder = write(tmp_path, dict(TEXTS), LAUNCHES)
    command = [sys.executable, "-c", "from bitwise_core.cli import main; main()", "partition"]
    done = subprocess.run([*command, str(folder), "--json"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["classes"] == [["a.ptx", "b.ptx", "d.ptx"], ["c.ptx"]]
    done = subprocess.run([*command, str(folder / "gone")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"bitwise: {folder / 'gone'}: there is no such folder\n"
