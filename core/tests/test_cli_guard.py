"""Whatever happens, the command's exit status is that of its answer, of an error (2), or of an interrupt (130)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

from bitwise_core.cli import app, diff_command

MAIN = "from bitwise_core.cli import main; main()"


def python(script: str, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("raised", "status", "sentence"),
    [
        ("KeyboardInterrupt", 130, ""),
        (
            "SystemExit(1)", 2,
            "bitwise: internal error (SystemExit: 1); please report it, with the traceback that BITWISE_TRACEBACK=1 "
            "prints\n",
        ),
        ("MemoryError", 2, "bitwise: there is not enough memory\n"),
        (
            "ZeroDivisionError('oh \\x1b[31m')", 2,
            "bitwise: internal error (ZeroDivisionError: oh \\x1b[31m); please report it, with the traceback that "
            "BITWISE_TRACEBACK=1 prints\n",
        ),
    ],
)  # fmt: skip
def test_what_ends_the_import_of_the_commands(raised: str, status: int, sentence: str) -> None:
    script = f"""
import sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "bitwise_core.cli.commands":
            raise {raised}
sys.meta_path.insert(0, Finder())
{MAIN}
"""
    done = python(script, "--help")
    assert (done.returncode, done.stdout, done.stderr) == (status, "", sentence)


def test_an_interrupt_outside_of_a_command_is_no_answer() -> None:
    script = f"""
import bitwise_core.cli.kernel_commands as commands
def interrupt(*arguments, **keywords):
    raise KeyboardInterrupt
commands.as_errors = interrupt
{MAIN}
"""
    assert python(script, "partition", "folder").returncode == 130


PROGRAM = "from bitwise_core.command import main; main()"


@pytest.mark.parametrize("module", ["bitwise_core.cli", "typer", "bitwise_core.checker.readings", "pydantic"])
def test_an_interrupt_while_a_module_is_imported(module: str) -> None:
    script = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
{PROGRAM}
"""
    done = python(script, "determinism", __file__)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_in_a_destructor_and_one_after_another() -> None:
    for what in ("destroyed = Destroyed(); del destroyed", "try: press()\n    finally: press()"):
        script = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import bitwise_core.cli.kernel_commands as commands
def press():
    signal.raise_signal(signal.SIGINT)
class Destroyed:
    def __del__(self):
        press()
def work(*arguments, **keywords):
    {what}
commands.as_errors = work
{PROGRAM}
"""
        done = python(script, "determinism", __file__)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error(unbuffered: str) -> None:
    """It is found when the command ends, or with the first line that it prints."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-c", MAIN, "plugins"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot be written (No space left on device)" in done.stderr


def test_a_closed_pipe_is_an_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "plugins", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == ("", 2)
    process.stderr.close()


def test_closed_standard_output_is_an_error() -> None:
    """Without a number of its own, the status would be that of an answer about kernels."""
    done = subprocess.run(
        f'exec "{sys.executable}" -c "{MAIN}" plugins >&-', shell=True, stderr=subprocess.PIPE, text=True
    )
    assert (done.returncode, done.stderr) == (2, "bitwise: standard output is closed\n")


def test_with_closed_standard_error_no_sentence_is_on_standard_output() -> None:
    command = f'exec "{sys.executable}" -c "{MAIN}" tree missing.ptx --element y[0] 2>&-'
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (2, "")


def test_an_encoding_may_lack_characters(tmp_path: Path) -> None:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    folder = write(tmp_path, {"\u00fc \u20ac.ptx": row_sum()}, [launch("\u00fc \u20ac.ptx")])
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "1"}
    text, answer = (
        subprocess.run(
            [sys.executable, "-c", MAIN, "partition", str(folder), *form],
            capture_output=True, encoding="latin-1", env=environment, check=True,
        )
        for form in ((), ("--json",))
    )  # fmt: skip
    assert "\n  \u00fc \\u20ac.ptx\n" in text.stdout
    assert json.loads(answer.stdout)["classes"][0] == ["\u00fc \u20ac.ptx"]


def test_a_pipe_that_is_closed_while_tables_are_printed(tmp_path: Path) -> None:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    folder = write(tmp_path, {f"{'a' * 60}{n}.ptx": row_sum() for n in range(40)}, None)
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "partition", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == ("", 2)
    process.stderr.close()


def test_a_sentence_that_repeats_a_long_word_is_short() -> None:
    done = python(MAIN, "tree", f"a.ptx#{'9' * 5000}", "--element", f"y[{'9' * 100000}]")
    assert done.returncode == 2
    assert len(done.stderr) < 8000
    assert "internal error" not in done.stderr


def test_a_plugin_that_ends_the_process_gives_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    folder = write(tmp_path, {"a.ptx": row_sum()}, [launch("a.ptx")])

    def end(*arguments: object) -> None:
        sys.exit(0)

    monkeypatch.setattr(diff_command, "compare_or_recall", end)
    done = CliRunner().invoke(app, ["diff", str(folder / "a.ptx"), str(folder / "a.ptx")])
    sentence = "bitwise: a plugin ended the command (0); the plugin must raise an error instead\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", sentence)


def test_no_text_of_a_file_reaches_the_terminal_as_a_command_to_it(tmp_path: Path) -> None:
    pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")
    texts = {"a.ptx": row_sum(), "b.ptx": row_sum(neighbours=True)}
    located = {name: re.sub(r'\.file 1 "[^"]*"', '.file 1 "\x1b[31mevil.py"', text) for name, text in texts.items()}
    assert all("\x1b" in text for text in located.values())
    folder = write(tmp_path, located, [launch(name) for name in located])
    for arguments in (
        ["diff", str(folder / "a.ptx"), str(folder / "b.ptx"), "--no-search"],
        ["partition", str(folder)],
        ["determinism", str(folder)],
        ["tree", str(folder / "a.ptx"), "--element", "Y[0]"],
    ):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code in (0, 4)
        assert "evil.py" in done.stdout or arguments[0] != "diff"
        assert "\x1b" not in done.stdout
    (folder / "\x1b[31m.ptx").write_text(row_sum())
    done = CliRunner().invoke(app, ["partition", str(folder)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"bitwise: {folder}: holds \\x1b[31m.ptx: rename the file\n"
