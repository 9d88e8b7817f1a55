"""Fixtures of the tests that run ptxas."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas


@pytest.fixture(scope="module")
def ptxas() -> Ptxas:
    try:
        return Ptxas.locate("sm_90")
    except PtxasNotFound as error:
        pytest.skip(str(error))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "bitwise" / "ptxas"
