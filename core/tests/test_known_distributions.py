"""What no plugin provides is answered with the distribution to install."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bitwise_core import known_distributions
from bitwise_core.checker.kernel_files import extensions
from bitwise_core.cli import app
from bitwise_core.descriptors import DescriptorError, Instruction, single_pass
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.errors import InputError
from bitwise_core.known_distributions import KnownDistribution, advice
from bitwise_core.plugins import registry

TABLE = (
    KnownDistribution(
        "bitwise-one", "one", "Reads one.",
        {"targets": ("one_1",), "extensions": (".one",), "matrix units": ("one_1",), "commands": ("first",)},
    ),
    KnownDistribution("bitwise-two", "two", "Reads two.", {"targets": ("two_1",), "libraries": ("blas",)}),
)  # fmt: skip
ONE = "install bitwise-one (pip install 'bitwise-core[one]')"
TWO = "install bitwise-two (pip install 'bitwise-core[two]')"


COMMANDS = {
    "diff": ("a.one",),
    "tree": ("--element", "y[0]"),
    "run": ("--inputs", "in.npz", "--out", "out.npz"),
    "determinism": (),
}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The table of two distributions, and the names of those that are installed."""
    names: set[str] = set()

    def version(name: str) -> str | None:
        return "1" if name in names else None

    monkeypatch.setattr(known_distributions, "known_distributions", lambda: TABLE)
    monkeypatch.setattr(registry, "known_distributions", lambda: TABLE)
    monkeypatch.setattr(known_distributions, "installed_version", version)
    return names


def test_the_provider_is_named_unless_it_is_installed(installed: set[str]) -> None:
    assert advice("targets", "two_1") == TWO
    assert advice("targets") == f"{ONE} or {TWO.removeprefix('install ')}"
    assert (advice("targets", "three_1"), advice("targets", "three_1", "nothing")) == ("", "nothing")
    installed.add("bitwise-two")
    assert (advice("targets", "two_1"), advice("targets")) == ("", ONE)


def test_errors_name_the_distribution(installed: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = registry.load([])
    monkeypatch.setattr(registry, "default", lambda: empty)
    with pytest.raises(registry.UnknownArchError) as of_arch:
        empty.arch("one_1")
    assert str(of_arch.value) == f"no plugin models the architecture 'one_1'; available: none; {ONE}"
    with pytest.raises(registry.UnknownMatrixUnitError) as of_unit:
        empty.matrix_unit("mma_k8_fp32_fp16_fp16_fp32_satfinite_one_1")
    assert str(of_unit.value).endswith(f"the nearest: there are none; {ONE}")
    with pytest.raises(InputError) as of_files:
        extensions(empty)
    assert str(of_files.value) == f"no architecture plugin is installed; {ONE}"
    desc = single_pass(4, "fp16", Instruction(architecture="one_1", family="mma", k=4))
    with pytest.raises(DescriptorError) as of_desc:
        evaluate(desc, np.zeros((1, 4), np.float16), np.zeros((4, 1), np.float16))
    assert str(of_desc.value) == f"no plugin has matrix units of one_1: there are none; {ONE}"
    kernel = tmp_path / "a.one"
    kernel.write_text("text")
    for arguments, sentence in (
        *(
            (
                [name, str(kernel), *(str(kernel) if each == "a.one" else each for each in more)],
                f"no architecture plugin is installed; {ONE}",
            )
            for name, more in COMMANDS.items()
        ),
        (["gemm", "8", "8", "8", "--library", "blas:1", "--arch", "two_1"], TWO),
        (["gemm", "8", "8", "8", "--arch", "one_1"], ONE),
        (["first", "--any"], f"No installed plugin adds the command 'first': {ONE}."),
    ):
        done = CliRunner().invoke(app, arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        # The lines of a usage error are wrapped in a frame.
        assert sentence.replace(" ", "") in "".join(done.stderr.replace("│", "").split())
