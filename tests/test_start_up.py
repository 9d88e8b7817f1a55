"""What `bitwise --help` imports, and the lines that it prints for commands whose modules it does not import."""

from __future__ import annotations

import inspect
import resource
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bitwise_core.cli.commands import COMMANDS, app
from bitwise_core.cli.lazy_commands import CommandReference
from bitwise_core.cli.plugin_commands import GROUP
from bitwise_core.known_distributions import ENTRY_POINT_GROUP

ROOT = Path(__file__).parents[1]

REFERENCES = {**COMMANDS, **{each.name: each.load() for each in entry_points(group=GROUP)}}

SAMPLE = "plugins/nvidia_sm90/tests/samples/sm_90/row_sum"

HEAVY = ("numpy", "pydantic", "torch", "triton", "bitwise_core.checker", "bitwise_core.execution", "bitwise_core.ir")


def test_help_imports_no_analysis() -> None:
    imported = imported_by("--help")
    assert "bitwise_core.cli.commands" in imported
    assert not imported & set(HEAVY)


def test_help_lists_every_command() -> None:
    printed = CliRunner().invoke(app, ["--help"]).stdout
    assert all(f" {name} " in printed for name in COMMANDS)


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


def imported_by(*arguments: str) -> set[str]:
    """Return the modules that a command imports."""
    script = "import sys; from bitwise_core.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_the_help_of_a_command_imports_no_analysis(name: str) -> None:
    """The options of a command are defined apart from what answers it."""
    heavy = {*HEAVY, "bitwise_core.descriptors", "bitwise_core.plugins.registry"} - {"pydantic"}  # Typer imports it
    assert not imported_by(name, "--help") & heavy


def test_plugins_are_listed_without_what_they_provide() -> None:
    """A plugin refers to its architectures, launchers and profiles: the list imports their names and matrix rows."""
    plugins = {each.value.partition(".")[0] for each in entry_points(group=ENTRY_POINT_GROUP)} - {"bitwise_pytest"}
    light = ("plugin", "references", "matrix_units", "matrix_rows", "scaled_kinds", "data_files", "versions",
             "command_references")  # fmt: skip
    found = {name for name in imported_by("plugins") if name.startswith("bitwise_")}
    assert not found & {f"bitwise_core.{name}" for name in ("checker", "execution", "ir", "descriptors", "assembly")}
    heavy = {name for name in found for plugin in plugins if name.startswith(f"{plugin}.")}
    assert not {name for name in heavy if name.rpartition(".")[2] not in light}


def test_a_kernel_is_read_with_the_modules_of_its_architecture() -> None:
    found = imported_by("partition", str(ROOT / SAMPLE), "--workers", "1", "--no-contraction-audit", "--no-cache")
    assert "bitwise_nvidia_sm90.architecture" in found
    others = ("bitwise_amd_gfx942.opcodes", "bitwise_amd_gfx942.rules", "bitwise_nvidia_sm100.tcgen05",
              "bitwise_nvidia_sm90.launcher", "bitwise_cublas_profiles.describe", "bitwise_toy.opcodes")  # fmt: skip
    assert not found & set(others)


def test_a_product_is_explained_without_the_profiles_of_other_vendors() -> None:
    found = imported_by("gemm", "128", "128", "128", "--arch", "sm_90", *OF_CUBLAS.split())
    assert "bitwise_cublas_profiles.library_profile" in found
    assert "bitwise_rocblas_profiles.library_profile" not in found


@pytest.mark.parametrize(
    "command", [("partition", ""), ("determinism", ""), ("diff", "/row_sum_0.ptx", "/row_sum_1.ptx")]
)
def test_a_recalled_answer_loads_no_architecture(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BITWISE_NO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = ROOT / SAMPLE
    name, *files = command
    arguments = (name, *(f"{folder}{each}" for each in files), "--no-contraction-audit")
    analysis = {"bitwise_nvidia_sm90.architecture", "bitwise_core.execution.machine", "bitwise_core.checker.analysis"}
    assert imported_by(*arguments) >= analysis
    # The second run recalls what the texts state, too: it parses none of them.
    parsers = {"bitwise_core.assembly.module", "bitwise_nvidia_ptx.text.parser"}
    assert not imported_by(*arguments) & (analysis | parsers | {"numpy"})


def cpu_seconds(*command: str) -> float:
    """Return the CPU time of a command, whatever it answers."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


MAIN = "from bitwise_core.command import main; main()"
ANALYSIS = "import numpy, pydantic, typer, rich"
OF_CUBLAS = "--library cublas:13.1 --config algorithm=66,stages=35,split_k=1,reduction=0,custom=1"
START_UP = {
    "--help": "import typer, rich",
    "--version": "import typer, rich",
    "plugins": ANALYSIS,
    "doctor": ANALYSIS,
    "cache": ANALYSIS,
    "partition a": ANALYSIS,
    "determinism a": ANALYSIS,
    "diff a b": ANALYSIS,
    "tree a --element y[0]": ANALYSIS,
    "run a --inputs b --out c": ANALYSIS,
    "gemm 128 128 128 --arch sm_90": ANALYSIS,
    f"gemm 128 128 128 --arch sm_90 {OF_CUBLAS}": ANALYSIS,
    "probe a:b 4 4 4": ANALYSIS,
    "lock show a": ANALYSIS,
    f"determinism {SAMPLE}": ANALYSIS,
    f"partition {SAMPLE}": ANALYSIS,
    f"diff {SAMPLE}/row_sum_0.ptx {SAMPLE}/row_sum_1.ptx": ANALYSIS,
}
"""Commands that end before any heavy work, and the imports of libraries that each may take twice the time of.

The first run of one on a sample keeps its answer, which the others recall.
"""

LIMIT = 2.0
NOISE = 1.1
"""The least times of two series of runs of one command differ by up to a tenth on a busy machine."""

MINIMUM_RUNS, MAXIMUM_RUNS = 4, 20
"""A process beside others takes more CPU time than alone, by how much changes from one second to the next.

The least times of equally many runs in turn are compared, since a time of a quiet second and one of a busy second
cannot be.
"""

LIBRARY_SECONDS: dict[str, float] = {}
"""The least CPU time of each import of libraries so far.

A command that takes at most twice this time needs no further run.
"""


@pytest.mark.skipif(bool(sys.flags.dont_write_bytecode), reason="modules are compiled in every process")
@pytest.mark.parametrize("command", START_UP)
def test_the_start_of_a_command_takes_at_most_twice_the_time_of_its_libraries(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # `doctor` counts the files of the cache
    monkeypatch.delenv("BITWISE_NO_CACHE")
    monkeypatch.chdir(ROOT)
    imports = START_UP[command]
    cpu_seconds("-c", MAIN, *command.split())
    own = libraries = float("inf")
    for runs in range(1, MAXIMUM_RUNS + 1):
        own = min(own, cpu_seconds("-c", MAIN, *command.split()))
        if own <= LIMIT * LIBRARY_SECONDS.get(imports, 0):
            return
        libraries = min(libraries, cpu_seconds("-c", imports))
        LIBRARY_SECONDS[imports] = min(libraries, LIBRARY_SECONDS.get(imports, libraries))
        if runs >= MINIMUM_RUNS and own <= LIMIT * libraries:
            return
    assert own <= NOISE * LIMIT * libraries


def test_the_pytest_plugin_imports_no_analysis() -> None:
    """Every run of pytest imports it where it is installed."""
    script = "import sys; import bitwise_pytest.plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & set(HEAVY)
