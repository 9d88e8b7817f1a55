"""What `bitwise --help` imports, and the lines that it prints for commands whose modules it does not import."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest
import typer
from typer.testing import CliRunner

from bitwise_core.cli.commands import LATER, app
from bitwise_core.cli.lazy_commands import CommandReference
from bitwise_core.cli.plugin_commands import GROUP
from bitwise_core.known_distributions import ENTRY_POINT_GROUP

REFERENCES = {**LATER, **{each.name: each.load() for each in entry_points(group=GROUP)}}

HEAVY = ("numpy", "pydantic", "torch", "triton", "bitwise_core.checker", "bitwise_core.execution", "bitwise_core.ir")


def test_help_imports_no_analysis() -> None:
    script = "import sys; from bitwise_core.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert all(name in done.stdout for name in REFERENCES)
    imported = set(done.stderr.split())
    assert "bitwise_core.cli.commands" in imported
    assert not imported & set(HEAVY)


def test_versions_of_all_distributions_are_printed() -> None:
    printed = CliRunner().invoke(app, ["--version"]).stdout.splitlines()
    assert printed[0] == f"bitwise-core {version('bitwise-core')}"
    owners = {each.dist.name for group in (GROUP, ENTRY_POINT_GROUP) for each in entry_points(group=group) if each.dist}
    assert {line.partition(" ")[0] for line in printed} == {"bitwise-core", *owners}


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_the_line_of_a_command_is_that_of_its_own_help(name: str) -> None:
    reference = REFERENCES[name]
    assert isinstance(reference, CommandReference)
    loaded = reference.load()
    text = loaded.info.help if isinstance(loaded, typer.Typer) else inspect.getdoc(loaded)
    assert str(text).partition("\n")[0].startswith(reference.summary)


@pytest.mark.parametrize("name", [*sorted(REFERENCES), "partition", "diff"])
def test_the_help_of_a_command_imports_no_analysis(name: str) -> None:
    """The options of a command are defined apart from what answers it."""
    script = "import sys; from bitwise_core.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script, name, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    heavy = {*HEAVY, "bitwise_core.descriptors", "bitwise_core.plugins.registry"} - {"pydantic"}  # Typer imports it
    assert not set(done.stderr.split()) & heavy
