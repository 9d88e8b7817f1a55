from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from bitwise_core.cli.lazy_commands import CommandReference
from bitwise_core.cli.plugin_commands import GROUP, add_commands


def application() -> typer.Typer:
    app = typer.Typer()

    @app.command()
    def own() -> None:
        typer.echo("own")

    @app.command(name="other")
    def second() -> None:
        typer.echo("other")

    return app


added = typer.Typer()


@added.command()
def hello() -> None:
    typer.echo("hello")


@added.command()
def again() -> None:
    typer.echo("again")


NO_APPLICATION = 3


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    import sys
    import types

    fake = types.ModuleType("extensions_under_test")
    fake.__dict__.update(
        added=added, NO_APPLICATION=NO_APPLICATION, REFERENCE=CommandReference(f"{fake.__name__}:added", "Say hello."),
        MISSING=CommandReference(f"{fake.__name__}:missing", "Say nothing."),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    return fake.__name__


def test_a_distribution_adds_a_group_of_commands(module: str) -> None:
    app = application()
    add_commands(app, (entry("more", f"{module}:added"),))
    assert CliRunner().invoke(app, ["more", "hello"]).stdout == "hello\n"
    assert CliRunner().invoke(app, ["own"]).stdout == "own\n"


def test_a_reference_is_loaded_when_its_command_runs(module: str) -> None:
    app = application()
    add_commands(app, (entry("more", f"{module}:REFERENCE"), entry("absent", f"{module}:MISSING")))
    assert CliRunner().invoke(app, ["more", "again"]).stdout == "again\n"
    assert "more    Say hello." in CliRunner().invoke(app, ["--help"]).stdout
    shown = CliRunner().invoke(app, ["more", "--help"]).stdout
    assert "hello" in shown
    assert "again" in shown
    done = CliRunner().invoke(app, ["more", "--nothing"])
    assert (done.exit_code, "No such option: --nothing" in done.stderr) == (2, True)
    done = CliRunner().invoke(app, ["absent", "--help"])
    assert done.exit_code == 2
    assert done.stderr.startswith(
        "bitwise: the command absent of an unknown distribution cannot be loaded: AttributeError: "
    )


@pytest.mark.parametrize("name", ["own", "other"])
def test_a_taken_name_is_ignored(module: str, name: str) -> None:
    app = application()
    add_commands(app, (entry(name, f"{module}:added"),))
    assert CliRunner().invoke(app, [name]).stdout == f"{name}\n"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:app", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("extensions_under_test:NO_APPLICATION", "extensions_under_test:NO_APPLICATION is not a Typer application"),
    ],
)
def test_a_broken_command_reports_its_reason_and_affects_no_other(module: str, value: str, reason: str) -> None:
    app = application()
    add_commands(app, (entry("broken", value), entry("more", f"{module}:added")))
    done = CliRunner().invoke(app, ["broken", "sub", "--option"])
    sentence = f"bitwise: the command broken of an unknown distribution cannot be loaded: {reason}\n"
    assert (done.exit_code, done.stderr) == (2, sentence)
    assert CliRunner().invoke(app, ["more", "again"]).stdout == "again\n"
