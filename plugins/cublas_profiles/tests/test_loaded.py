"""What is declined before the library is asked: settings of PyTorch under which nothing was measured."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_core.profiles import Undescribed
from bitwise_cublas_profiles import loaded


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    matmul = SimpleNamespace(**loaded.SETTINGS)
    cuda = SimpleNamespace(matmul=matmul, preferred_blas_library=lambda: "_BlasBackend.Cublas")
    torch = SimpleNamespace(backends=SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    return cuda


def test_defaults_of_this_and_of_older_versions_are_what_was_measured(settings: SimpleNamespace) -> None:
    assert loaded.otherwise() is None
    del settings.matmul.allow_fp16_reduced_precision_reduction_split_k
    del settings.matmul.allow_fp16_accumulation
    settings.preferred_blas_library = lambda: "_BlasBackend.Default"
    assert loaded.otherwise() is None


@pytest.mark.parametrize("name", loaded.SETTINGS)
def test_any_other_setting_is_declined_with_its_name(settings: SimpleNamespace, name: str) -> None:
    setattr(settings.matmul, name, not loaded.SETTINGS[name])
    operand: Any = None
    with pytest.raises(Undescribed, match=rf"matmul\.{name} is {not loaded.SETTINGS[name]}: products are measured"):
        loaded.Loaded().product(operand, operand, operand)


def test_another_library_or_workspace_is_declined(settings: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.preferred_blas_library = lambda: "_BlasBackend.Cublaslt"
    assert loaded.otherwise() == (
        "PyTorch prefers _BlasBackend.Cublaslt for products: they are measured where it prefers cuBLAS, its default"
    )
    settings.preferred_blas_library = lambda: "_BlasBackend.Cublas"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert loaded.otherwise() == (
        "CUBLAS_WORKSPACE_CONFIG is set: products are measured with PyTorch's own workspace; start without it"
    )
