"""Recorded answers of tools are those of the tools, and are given to their own questions alone."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import recorded_tools as R
from bitwise_nvidia_ptx.assembler import ptxas as assembler
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound, disassemblers
from bitwise_nvidia_ptx.assembler.ptxas import AssemblyFailed, Ptxas, _listing
from contraction_kernels import ADD, MUL, STORE, kernel

TEXT = kernel(MUL, ADD, STORE)


@pytest.fixture(autouse=True)
def uncounted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What these tests compile and ask by intention; the summary of a session does not list it.

    No object file of an earlier test is held in the process, so that the tools are asked for every one.
    """
    count: Counter[str] = Counter()
    monkeypatch.setattr(R, "UNRECORDED", count)
    monkeypatch.setattr(assembler, "_RECENT", assembler._RecentFiles(0))
    return count


@pytest.fixture
def ptxas() -> Ptxas:
    try:
        return Ptxas.locate("sm_90")
    except PtxasNotFound as error:
        pytest.skip(str(error))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tools that were run on files; a tool that is asked for its version reads none."""
    found: list[str] = []
    run_tool = R.run_tool

    def counted(command: Any, **options: Any) -> Any:
        if R.question([os.fspath(each) for each in command], options.get("cwd")) is not None:
            found.append(Path(command[0]).name)
        return run_tool(command, **options)

    monkeypatch.setattr(R, "run_tool", counted)
    return found


def answers(ptxas: Ptxas) -> list[Any]:
    """Return an object file, its listing, and the message for a text that is rejected."""
    code = ptxas.assemble(TEXT)
    with pytest.raises(AssemblyFailed) as refused:
        ptxas._assemble(".version 8.7\n", [])
    return [code, _listing(disassemblers(ptxas.path)[0], code), str(refused.value)]


def test_recorded_answers_are_those_of_the_tools(ptxas: Ptxas, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if not disassemblers(ptxas.path):
        pytest.skip("no disassembler is found")
    known = answers(ptxas)
    if ran:
        pytest.skip("the answers are those of another version of ptxas")
    monkeypatch.setattr(R, "recorded", dict)
    run = len(ran)
    assert answers(ptxas) == known
    assert (run, len(ran)) == (0, 3)


def test_another_text_option_or_tool_is_run(
    ptxas: Ptxas, ran: list[str], tmp_path: Path, uncounted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(R.FOLDER_VARIABLE, raising=False)  # the answers that this test asks for stay unrecorded
    source, target = tmp_path / "kernel.ptx", tmp_path / "kernel.cubin"
    source.write_text(TEXT)
    command = [ptxas.path, "--gpu-name=sm_90a", str(source), "-o", str(target)]
    first = R.question(command)
    assert first is not None
    moved = tmp_path / "other.ptx"
    moved.write_text(TEXT)
    same = R.question([*command[:2], str(moved), "-o", str(tmp_path / "other.cubin")])
    assert same is not None
    assert same.key == first.key
    tool = tmp_path / "ptxas"
    tool.write_text(f'#!/bin/sh\nexec {ptxas.path} "$@"\n')
    tool.chmod(0o755)
    moved.write_text(f"{TEXT}// another line\n")
    others = (
        [*command, "-O1"], [str(tool), *command[1:]], [*command[:2], str(moved), *command[3:]], [*command[:3]],
    )  # fmt: skip
    keys = [found.key for each in others if (found := R.question(each)) is not None]
    assert len({first.key, *keys}) == 5
    assert not {*keys[1:]} & R.recorded().keys()
    R.run([str(tool), *command[1:]], capture_output=True, text=True)
    assert ran == ["ptxas"]
    assert uncounted == {}
    assert target.read_bytes()[:4] == b"\x7fELF"
    R.run([*command, "-O1"], capture_output=True, text=True)
    assert ran == ["ptxas"] * 2
    assert uncounted == {"ptxas": 1}


def test_other_programs_are_no_questions(tmp_path: Path) -> None:
    assert R.question(["/bin/cat", __file__]) is None
    assert R.question([str(tmp_path / "ptxas"), __file__]) is None
    installed: Any = subprocess.run
    assert installed is R.run
    assert subprocess.run(["cat", __file__], capture_output=True, text=True, check=True).stdout.startswith('"""Rec')


def test_paths_of_a_command_are_no_part_of_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, source = tmp_path / "ptxas", tmp_path / "a.ptx"
    tool.write_text('#!/bin/sh\necho "$1, line 3"; echo "wrong $3" >&2; exit 2\n')
    tool.chmod(0o755)
    source.write_text("text")
    command = [str(tool), str(source), "-o", str(tmp_path / "a.cubin")]
    put = R.question(command)
    assert put is not None
    answer = R.asked(put, command)
    assert answer == R.Answer(2, "<path 0>, line 3\n", "wrong <path 1>\n", None)
    monkeypatch.setattr(R, "recorded", lambda: {put.key: answer})
    moved = tmp_path / "there" / "b.ptx"
    moved.parent.mkdir()
    moved.write_text("text")
    done = R.run([str(tool), "b.ptx", "-o", "b.cubin"], cwd=moved.parent, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "b.ptx, line 3\n", "wrong b.cubin\n")
    with pytest.raises(subprocess.CalledProcessError):
        R.run(command, capture_output=True, text=True, check=True)
