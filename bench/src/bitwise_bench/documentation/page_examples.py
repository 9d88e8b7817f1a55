"""The examples of a page of documentation: they run, and print what the page shows.

    python -m bitwise_bench.documentation.page_examples [--write] [--gpu] PAGE ...

runs the examples of Markdown pages in the repository; `--write` writes what they print into the pages. With `--gpu`,
blocks that need a GPU run as well.

The fenced blocks of a page run in order, in one folder and with one set of Python names.  A block in the language
`text` after a `sh` or `python` block is what that block prints; `...` stands for any text in it.  A comment before a
block changes this:

| comment | meaning |
| --- | --- |
| `<!-- example: gpu -->` | the block needs a GPU: its names, options and commands must exist, and it does not run |
| `<!-- example: torch -->` | the same, but the block runs where PyTorch is installed |
| `<!-- example: install -->` | the block installs something: sessions of nox and extras that it names must exist |
| `<!-- example: file=NAME -->` | the block is the content of a file, which is written and not run |
| `<!-- example: name=NAME -->` | the Python block runs as the file of that name |
| `<!-- example: status=N -->` | the exit status of the last command |
| `<!-- example: shown -->` | the block is to be read only: it shows a form, or part of a file that a test compares |
| `<!-- folder: NAME = PATH -->` | the folder has a copy of this file or folder of the repository |
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from bitwise_bench.documentation.example_names import faults_of_python, faults_of_shell, run_command
from bitwise_bench.documentation.page_links import ROOT

_MARK = re.compile(r"<!-- example: (.*?) -->")
_FOLDER = re.compile(r"<!-- folder: (\S+) = (\S+) -->")
_TESTED_ELSEWHERE = re.compile(r"<!-- [\w-]+-(?:command|commands|diff|example) -->\s*$")
_SHELL = {"sh", "bash"}
_NOT_RUN = {"", "text", "diff", "markdown", "ini", "c"}
_KNOWN = {*_NOT_RUN, *_SHELL, "python", "pycon", "json", "toml", "yaml"}
_SECONDS = re.compile(r"\bin \d+\.\d+ s\b")
_OPERATORS = re.compile(r"[|<>&;$`*]")


@dataclass(frozen=True)
class Example:
    """One fenced block: its language, text, marks by name, and the block that shows what it prints.

    `line` is the number of its first line of text; `output_lines` are the first line of the text that it prints and
    the one after its end.
    """

    language: str
    text: str
    line: int
    marks: dict[str, str] = field(default_factory=dict)
    output: str | None = None
    output_lines: tuple[int, int] | None = None


def examples(page: str) -> list[Example]:
    """Return the examples of a page in order.  Raises ValueError for a language that no rule covers."""
    found: list[Example] = []
    comment = ""
    follows = False
    for token in MarkdownIt("commonmark").parse(page):
        if token.type == "html_block":
            comment, follows = token.content, False
            continue
        if token.type != "fence":
            comment, follows = ("", False) if token.block and token.nesting >= 0 else (comment, follows)
            continue
        assert token.map is not None
        first, end = token.map[0] + 2, token.map[1]
        language = token.info.split()[0] if token.info else ""
        if language not in _KNOWN:
            raise ValueError(f"line {first - 1}: a block in the language {language!r}, which no rule covers")
        if language == "text" and follows:
            last = found.pop()
            found.append(Example(last.language, last.text, last.line, last.marks, token.content, (first, end)))
        else:
            marks = dict(part.partition("=")[::2] for mark in _MARK.findall(comment) for part in mark.split())
            if _TESTED_ELSEWHERE.search(comment):
                marks["shown"] = ""
            found.append(Example(language, token.content, first, marks))
        follows, comment = language in {*_SHELL, "python"}, ""
    return found


@dataclass
class Run:
    """The examples of one page while they run in a folder: the faults so far, and what each example printed."""

    folder: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "example"})
    faults: list[str] = field(default_factory=list)
    printed: dict[int, str] = field(default_factory=dict)
    gpu: bool = False

    def example(self, each: Example) -> None:
        """Run or check one example."""
        marks, language = each.marks, each.language
        try:
            if "file" in marks:
                (self.folder / marks["file"]).write_text(each.text, encoding="utf-8")
            elif "shown" in marks or language in _NOT_RUN:
                pass
            elif ("gpu" in marks and not self.gpu) or "install" in marks or ("torch" in marks and not _found("torch")):
                self._check(each)
            elif language in _SHELL:
                self._compare(each, self._shell(each))
            elif language == "python":
                self._compare(each, self._python(each))
            elif language == "pycon":
                self._session(each)
            else:
                _parse(language, each.text)
        except Exception as error:
            self.faults.append(f"line {each.line}: {type(error).__name__}: {error}")

    def _check(self, each: Example) -> None:
        check = faults_of_shell if each.language in _SHELL else faults_of_python
        self.faults += [f"line {each.line}: {fault}" for fault in check(each.text)]

    def _compare(self, each: Example, printed: str) -> None:
        self.printed[each.line] = printed
        if each.output is not None and not matches(each.output, printed):
            self.faults.append(f"line {each.line}: the page shows\n{each.output}and the example prints\n{printed}")

    def _python(self, each: Example) -> str:
        # A file, since Triton reads the source of its kernels.
        path = self.folder / each.marks.get("name", f"line_{each.line}.py")
        path.write_text(each.text, encoding="utf-8")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(each.text, path, "exec"), self.names)
        return printed.getvalue()

    def _session(self, each: Example) -> None:
        found = doctest.DocTestParser().get_doctest(each.text, self.names, "example", None, each.line)
        report: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(found, out=report.append, clear_globs=False)
        self.names.update(found.globs)
        self.faults += report

    def _shell(self, each: Example) -> str:
        commands = [line for line in each.text.replace("\\\n", " ").splitlines() if shlex.split(line, comments=True)]
        if not all(line.startswith("bitwise ") and not _OPERATORS.search(line.split(" #")[0]) for line in commands):
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
            done = subprocess.run(
                ["bash", "-e", "-c", each.text], capture_output=True, text=True, check=False,
                env={**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip
            self._status(each, done.returncode, done.stderr)
            return done.stdout
        printed = ""
        for command in commands:
            arguments = shlex.split(command, comments=True)[1:]
            status, output, errors = run_command(arguments)
            printed += output
            if command is commands[-1] and "status" in each.marks:
                self._status(each, status, errors)
            elif status not in ((0, 1, 3, 4) if arguments[0] in ("diff", "determinism", "probe") else (0,)):
                self.faults.append(f"line {each.line}: {command}: exit status {status}: {errors}{output}")
        return printed

    def _status(self, each: Example, status: int, errors: str) -> None:
        if status != int(each.marks.get("status", 0)):
            self.faults.append(f"line {each.line}: exit status {status}: {errors}")


def matches(shown: str, printed: str) -> bool:
    """Return whether a page shows what was printed, spaces at the ends of lines apart; `...` stands for any text."""
    want, got = ("\n".join(line.rstrip() for line in text.splitlines()) + "\n" for text in (shown, printed))
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)


def _found(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _parse(language: str, text: str) -> None:
    """Read a block of data.  JSON may be the elements of a list."""
    if language == "json":
        try:
            json.loads(text)
        except ValueError:
            json.loads(f"[{text}]")
    elif language == "toml":
        import tomllib

        tomllib.loads(text)
    elif language == "yaml":
        import yaml

        yaml.safe_load(text)


@contextlib.contextmanager
def _working_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def run(page: str, folder: Path, *, gpu: bool = False) -> Run:
    """Run the examples of a page in an empty folder, with `gpu` those that need a GPU, too.

    The result has a sentence for each fault.
    """
    running = Run(folder, gpu=gpu)
    for name, path in _FOLDER.findall(page):
        source = ROOT / path
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / name)
    with tempfile.TemporaryDirectory() as cache, _environment(XDG_CACHE_HOME=cache), _working_folder(folder):
        for each in examples(page):
            running.example(each)
    return running


def written(page: str, printed: dict[int, str]) -> str:
    """Return the page with what its examples printed, where it shows something else."""
    lines = page.splitlines(keepends=True)
    for each in reversed(examples(page)):
        if each.output is not None and each.line in printed and not matches(each.output, printed[each.line]):
            assert each.output_lines is not None
            first, end = each.output_lines
            shown = _SECONDS.sub("in ... s", printed[each.line])
            lines[first - 1 : end - 1] = [f"{line.rstrip()}\n" for line in shown.splitlines()]
    return "".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the examples of pages.  The exit status is 1 if one has a fault."""
    parser = argparse.ArgumentParser(prog="python -m bitwise_bench.documentation.page_examples")
    parser.add_argument("--write", action="store_true", help="write what the examples print into the pages")
    parser.add_argument("--gpu", action="store_true", help="run the blocks that need a GPU")
    parser.add_argument("pages", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    faults = []
    for path in options.pages:
        page = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            found = run(page, Path(folder), gpu=options.gpu)
        if options.write:
            path.write_text(written(page, found.printed), encoding="utf-8")
        faults += [f"{path}: {fault}" for fault in found.faults]
    print(*faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
