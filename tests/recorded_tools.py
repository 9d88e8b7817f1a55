"""Answers of assemblers and disassemblers that tests ask, recorded under the digest of the tool and of what it reads.

A tool that is given the same files and options returns the same bytes.  The key covers the tool's own file, so that
another version is run, as is any text that was never assembled: a change of a text, or of an option, is tested on what
the tool returns for it.  `tests/test_recorded_tools.py` runs tools again and compares.

    RECORDED_TOOLS=FOLDER python -m pytest        # FOLDER is empty at the start
    PYTHONPATH=tests python -m recorded_tools FOLDER

records what the tests have asked, and drops everything else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "recorded_tools.json.xz"
TOOLS = frozenset({"ptxas", "ptxas-blackwell", "nvdisasm", "cuobjdump"})
FOLDER_VARIABLE = "RECORDED_TOOLS"
"""The environment variable with the folder for the answers that a session of tests asks."""
KNOWN_OPTIONS = frozenset({"capture_output", "text", "check", "timeout", "cwd"})
"""Options of `subprocess.run` under which an answer may be a recorded one."""

_BINARY = b"\x7fELF"
"""How a tool begins.  A script in its place is one of a test, or runs a tool whose file is not part of the key."""

UNRECORDED: Counter[str] = Counter()
"""How many questions this process put to tools because no answer is recorded, by the name of the tool.

Those to scripts do not count: what a script answers is never recorded.
"""

run_tool: Callable[..., Any] = subprocess.run


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool returned: its status, what it printed, and its output file in base 64, None without one."""

    status: int
    printed: str
    complained: str
    written: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """A command: its key, the paths that it names, whose names are not part of an answer, and its output file."""

    key: str
    paths: tuple[str, ...]
    target: Path | None

    def portable(self, text: str) -> str:
        """Return a text of the tool without the paths of this command."""
        for place, path in enumerate(self.paths):
            text = text.replace(path, f"<path {place}>")
        return text

    def own(self, text: str) -> str:
        """Return a portable text with the paths of this command."""
        for place, path in enumerate(self.paths):
            text = text.replace(f"<path {place}>", path)
        return text


@cache
def _digest_of_tool(path: str, modified: int, size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _is_binary(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_BINARY)) == _BINARY


def question(command: list[str], cwd: str | None = None) -> Question | None:
    """Return a command as a question; None where the program is none of `TOOLS`, or reads nothing."""
    tool, folder = Path(command[0]), Path(cwd or ".")
    if tool.name not in TOOLS or not tool.is_file():
        return None
    status, target = tool.stat(), None
    parts = [_digest_of_tool(str(tool), status.st_mtime_ns, status.st_size)]
    paths: list[str] = []
    for place, argument in enumerate(command[1:], 1):
        path = folder / argument
        if command[place - 1] == "-o":
            target = path
            parts.append("output")
        elif not argument.startswith("-") and path.is_file():
            parts.append(f"input {hashlib.sha256(path.read_bytes()).hexdigest()}")
        else:
            parts.append(f"option {argument}")
            continue
        paths.append(argument)
    if not any(each.startswith("input ") for each in parts):
        return None
    return Question(hashlib.sha256(json.dumps(parts).encode()).hexdigest(), tuple(paths), target)


@cache
def recorded() -> dict[str, Answer]:
    """Return the recorded answers by key."""
    if not RECORD.is_file():
        return {}
    return {key: Answer(**each) for key, each in json.loads(lzma.decompress(RECORD.read_bytes())).items()}


def asked(put: Question, command: list[str], cwd: str | None = None, timeout: float | None = None) -> Answer:
    """Run the tool and return its answer, which leaves the output file in place.  Raises what `subprocess.run` does."""
    done = run_tool(command, capture_output=True, text=True, check=False, timeout=timeout, cwd=cwd)
    written = None
    if put.target is not None and put.target.is_file():
        written = base64.b64encode(put.target.read_bytes()).decode()
    return Answer(done.returncode, put.portable(done.stdout), put.portable(done.stderr), written)


def run(command: Any, **options: Any) -> Any:
    """Return what `subprocess.run` does, without running a tool whose answer is recorded."""
    put = None
    if options.keys() <= KNOWN_OPTIONS and options.get("text") and options.get("capture_output"):
        arguments, cwd = [os.fspath(each) for each in command], options.get("cwd")
        put = question(arguments, cwd)
    if put is None:
        return run_tool(command, **options)
    answer, folder = recorded().get(put.key), os.environ.get(FOLDER_VARIABLE)
    if answer is None and not _is_binary(arguments[0]):
        return run_tool(command, **options)
    if answer is None:
        UNRECORDED[Path(arguments[0]).name] += 1
        if folder is None:
            return run_tool(command, **options)
        answer = asked(put, arguments, cwd, options.get("timeout"))
    elif put.target is not None and answer.written is not None:
        put.target.write_bytes(base64.b64decode(answer.written))
    if folder is not None and answer.status >= 0:
        Path(folder, put.key).write_text(json.dumps(asdict(answer)))
    done = subprocess.CompletedProcess(command, answer.status, put.own(answer.printed), put.own(answer.complained))
    if options.get("check"):
        done.check_returncode()
    return done


def record(folder: Path) -> int:
    """Write the answers of a folder in place of `RECORD`; return their number."""
    found = {path.name: json.loads(path.read_text()) for path in sorted(folder.iterdir())}
    content = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
    RECORD.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    return len(found)


if __name__ == "__main__":
    print(record(Path(sys.argv[1])), "answers are recorded")
