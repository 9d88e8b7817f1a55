"""The assemblers that `bitwise doctor` prints: the first is the one that is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitwise_core.plugins.tools import ToolMissing
from bitwise_nvidia_ptx.assembler import installed
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.tools import assemblers, disassemblers


def test_the_first_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="needs the assemblers of its wheel")
    own = tmp_path / "ptxas"
    own.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 1.2, V1.2.3'\n")
    own.chmod(0o755)
    without = assemblers("ptxas")
    assert (without[0].path, without[0].version) == (Ptxas.locate("sm_90").path, Ptxas.locate("sm_90").version)
    assert without[0].note.endswith("tried first, the one of Triton")
    monkeypatch.setenv("BITWISE_PTXAS", str(own))
    found = assemblers("ptxas")
    assert found[0].path == str(own)
    assert (found[0].version, found[0].note) == (
        "1.2.3",
        f"of BITWISE_PTXAS, tried first, Triton's is {without[0].version}",
    )
    assert found[1].note.endswith("of Triton 3.6.0, the one of Triton")
    assert {each.version for each in disassemblers()} - {"does not run"}
    own.write_text("#!/bin/sh\nexit 1\n")
    assert assemblers("ptxas")[0].version == "does not run"


def test_without_any_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "candidates", lambda name: iter(()))
    for look in (lambda: assemblers("ptxas"), disassemblers):
        with pytest.raises(ToolMissing, match=r"is found.*install Triton"):
            look()


def test_a_path_that_is_no_executable_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = str(tmp_path / "ptxas")
    monkeypatch.setenv("BITWISE_PTXAS", missing)
    monkeypatch.setattr(installed, "candidates", lambda name: iter(()))
    with pytest.raises(ToolMissing) as raised:
        assemblers("ptxas")
    assert f"no ptxas is found; {missing} (of BITWISE_PTXAS) is no executable file: install" in str(raised.value)
    monkeypatch.setenv("TRITON_PTXAS_PATH", missing)
    monkeypatch.setattr(installed, "candidates", lambda name: iter([("/bin/false", "on PATH")]))
    assert [(each.version, each.path, each.note) for each in assemblers("ptxas")] == [
        ("is no executable file", missing, "of BITWISE_PTXAS, an error where an assembler is needed"),
        ("is no executable file", missing, "of TRITON_PTXAS_PATH, passed over"),
        ("does not run", "/bin/false", "on PATH, tried first"),
    ]
