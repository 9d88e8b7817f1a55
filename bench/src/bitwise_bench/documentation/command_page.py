"""The reference page of the command.

    python -m bitwise_bench.documentation.command_page > docs/reference/command-line.md

The page follows from what the commands of all distributions declare, not from the form in which Typer prints it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from copy import copy
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from bitwise_bench.documentation.example_names import application

_HEAD = """# Command line

This page is generated from the commands of all distributions. `bitwise COMMAND --help` prints the same, and
`bitwise --version` the versions of the distributions.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([_HEAD, *_application(application(), "bitwise", 2)])


def _application(app: typer.Typer, path: str, level: int) -> Iterator[str]:
    """Return the sections of the commands of an application, in the order of their declaration."""
    for command in app.registered_commands:
        callback = command.callback
        assert callback is not None
        name = command.name or callback.__name__.replace("_", "-")
        loader = getattr(command.cls, "loader", None)
        found = callback if loader is None else loader()
        if isinstance(found, typer.Typer):
            yield _heading(f"{path} {name}", level)
            yield from _paragraphs(command.help or "")
            yield from _application(found, f"{path} {name}", level + 1)
        else:
            yield from _command(found, f"{path} {name}", level)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield _heading(f"{path} {group.name}", level)
        yield from _application(group.typer_instance, f"{path} {group.name}", level + 1)


def _heading(path: str, level: int) -> str:
    return f"{'#' * level} {path}\n"


def _command(callback: Callable[..., Any], path: str, level: int) -> Iterator[str]:
    """Return the section of one command."""
    yield _heading(path, level)
    yield from _paragraphs(inspect.getdoc(callback) or "")
    hints = get_type_hints(callback, include_extras=True)
    arguments, options = [], []
    for parameter in inspect.signature(callback).parameters.values():
        info, base, default = _declaration(parameter, hints[parameter.name])
        if isinstance(info, ArgumentInfo):
            name = (info.metavar or parameter.name.upper()).replace(" | ", " or ")
            arguments.append((name, info, default))
        elif isinstance(info, OptionInfo):
            options.append((_names(info, parameter.name, base), info, default))
    usage = " ".join([path, *(["[OPTIONS]"] if options else []), *(name for name, _, _ in arguments)])
    yield f"```text\n{usage}\n```\n"
    rows = [
        *(f"| `{name}` | {_text(info.help or '')} | {_default(default)} |" for name, info, default in arguments),
        *(f"| {names} | {_text(info.help or '')} | {_default(default)} |" for names, info, default in options),
    ]
    if rows:
        yield "\n".join(["| argument or option | meaning | default |", "| --- | --- | --- |", *rows]) + "\n"


def _declaration(parameter: inspect.Parameter, hint: Any) -> tuple[Any, Any, Any]:
    """Return what declares a parameter, in its annotation or as its default, its type, and its default."""
    if isinstance(parameter.default, ArgumentInfo | OptionInfo):
        return parameter.default, hint, parameter.default.default
    base, *extras = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    found = [each for each in extras if isinstance(each, ArgumentInfo | OptionInfo)]
    if not found:
        return None, base, None
    # In an annotation, Typer takes the first name in the place of a default.
    first = found[0].default
    if isinstance(first, str):
        found[0] = copy(found[0])
        found[0].param_decls = (first, *(found[0].param_decls or ()))
    return found[0], base, parameter.default


def _names(info: OptionInfo, name: str, base: Any) -> str:
    """Return the names of an option with what stands for its value."""
    declared = tuple(info.param_decls or ())
    if not declared:
        flag = name.replace("_", "-")
        declared = (f"--{flag}/--no-{flag}",) if base is bool else (f"--{flag}",)
    names = ", ".join(f"`{part}`" for each in declared for part in each.split("/"))
    return names if base is bool else f"{names} `{(info.metavar or _value(base)).replace('|', ' or ')}`"


def _value(base: Any) -> str:
    """Return what stands for a value of a type."""
    inner = [each for each in get_args(base) if each is not NoneType]
    if get_origin(base) is not None and inner:
        return _value(inner[0])
    if isinstance(base, type) and issubclass(base, Enum):
        return " or ".join(str(each.value) for each in base)
    name = str(base.__name__)
    return {"int": "NUMBER", "float": "NUMBER", "str": "TEXT", "Path": "FILE"}.get(name, name.upper())


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty or value is ...:
        return "required"
    if value in (None, False, ()) or value == []:
        return ""
    shown = value.value if isinstance(value, Enum) else value
    return "yes" if shown is True else f"`{shown}`"


def _paragraphs(text: str) -> Iterator[str]:
    """Return the paragraphs of a help text, each in one line."""
    for paragraph in text.split("\n\n"):
        if line := " ".join(paragraph.replace("\b", "").split()):
            yield f"{_text(line)}\n"


def _text(text: str) -> str:
    """Return a text in which Markdown reads no emphasis, HTML, link or column."""
    for mark in "\\*_|[<":
        text = text.replace(mark, f"\\{mark}")
    return text


if __name__ == "__main__":
    sys.stdout.write(page())
