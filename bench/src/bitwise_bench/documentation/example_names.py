"""Examples that are not executed: the modules, names, keywords, commands and options in them must exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from bitwise_bench.documentation.page_links import ROOT
from bitwise_core.cli.lazy_commands import loaded

_SESSION = r'^@nox\.session(?:\(.*?name="([\w-]+)".*\)|.*)\ndef (\w+)'


@cache
def application() -> Any:
    """Return the application of the command `bitwise` with the commands of all distributions."""
    from bitwise_core.cli.commands import app
    from bitwise_core.cli.plugin_commands import add_commands

    add_commands(app)
    return app


@cache
def command_tree() -> TyperGroup:
    """Return the command `bitwise`; `bitwise_core.cli.lazy_commands.loaded` loads its subcommands."""
    found = typer.main.get_command(application())
    assert isinstance(found, TyperGroup)
    return found


def run_command(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run `bitwise` in this process; its exit status, what it printed, and its errors."""
    done = CliRunner().invoke(application(), list(arguments), prog_name="bitwise")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def faults_of_shell(text: str) -> list[str]:
    """Return a sentence for each command of a shell text that does not exist or has an unknown option."""
    faults: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for command in _commands(words):
            faults += _faults_of_command(command)
    return faults


def _commands(words: Sequence[str]) -> Iterator[list[str]]:
    """Divide a line at the operators of the shell."""
    found: list[str] = []
    for word in words:
        if word in ("&&", "|", ";"):
            yield found
            found = []
        else:
            found.append(word)
    if found:
        yield found


def _faults_of_command(words: Sequence[str]) -> Iterator[str]:
    name, *rest = words
    if name == "bitwise":
        yield from _faults_of_bitwise(rest)
    elif name.startswith("python") and rest[:1] == ["-m"] and rest[1].startswith("bitwise"):
        if importlib.util.find_spec(rest[1]) is None:
            yield f"there is no module {rest[1]}"
    elif name.endswith("nox") and "-s" in rest:
        sessions = re.findall(_SESSION, (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE)
        known = {session or function for session, function in sessions}
        for word in rest[rest.index("-s") + 1 :]:
            if word.startswith("-"):
                break
            if word not in known:
                yield f"there is no session {word}"
    elif "install" in rest:
        yield from _faults_of_requirements(rest[rest.index("install") + 1 :])


def _faults_of_requirements(words: Sequence[str]) -> Iterator[str]:
    """Return the distributions of this repository, and their extras, that do not exist."""
    for name, extras in re.findall(r"\b(bitwise-[\w-]+)(?:\[([\w,]+)\])?", " ".join(words)):
        found = _projects().get(name)
        if found is None:
            yield f"there is no distribution {name}"
            continue
        missing = {extra for extra in extras.split(",") if extra} - set(found.get("optional-dependencies", {}))
        if missing:
            yield f"{name} has no extra {sorted(missing)[0]}"


@cache
def _projects() -> dict[str, Mapping[str, Any]]:
    places = ("*", "plugins/*", "examples/*")
    files = [path for place in places for path in ROOT.glob(f"{place}/pyproject.toml")]
    found = [tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in files]
    return {project["name"]: project for project in found}


def _faults_of_bitwise(arguments: list[str]) -> Iterator[str]:
    """Parse the arguments as the command would, without running it."""
    command: Any = command_tree()
    context = None
    name: str | None = "bitwise"
    try:
        while True:
            context = command.make_context(name, list(arguments), parent=context)
            if not isinstance(command, TyperGroup):
                return
            # What the group left for its subcommand, whose name may be one that the group adds.
            name, found, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
            command = loaded(found, str(name))
    except typer.Exit:
        return
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        yield f"bitwise {shlex.join(arguments)}: {error.format_message()}"


def faults_of_python(text: str) -> list[str]:
    """Return a sentence for each name of this repository that a Python text uses and that does not exist."""
    return list(_faults_of_tree(ast.parse(text)))


def _faults_of_tree(tree: ast.Module) -> Iterator[str]:
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bitwise"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if hasattr(module, alias.name):
                    known[alias.asname or alias.name] = getattr(module, alias.name)
                elif not hasattr(module, "__path__") or not importlib.util.find_spec(f"{node.module}.{alias.name}"):
                    yield f"{node.module} has no name {alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("bitwise"):
                    known[alias.asname or alias.name] = importlib.import_module(alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = known.get(node.value.id)
            if inspect.ismodule(owner) and not hasattr(owner, node.attr):
                yield f"{node.value.id} has no name {node.attr}"
        elif isinstance(node, ast.Call) and (called := _called(node.func, known)) is not None:
            yield from _faults_of_keywords(node, called)


def _called(node: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_called(node.value, known), node.attr, None)
    return None


def _faults_of_keywords(node: ast.Call, called: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(called).parameters
    except (TypeError, ValueError):
        return
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in parameters:
            yield f"{ast.unparse(node.func)} has no parameter {keyword.arg}"
