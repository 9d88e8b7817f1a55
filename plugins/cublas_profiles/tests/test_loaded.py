"""What is declined before the library is asked: settings of PyTorch under which nothing was measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_core.profiles import Undescribed
from bitwise_cublas_profiles import library, loaded, tensors
from bitwise_cublas_profiles.question import Answer, Configuration, Question, question


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    matmul = SimpleNamespace(**loaded.SETTINGS)
    cuda = SimpleNamespace(matmul=matmul, preferred_blas_library=lambda: "_BlasBackend.Cublas")
    torch = SimpleNamespace(backends=SimpleNamespace(cuda=cuda), cuda=cuda)
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


def test_the_library_is_asked_where_the_operands_are(
    settings: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, asked_at = [0], []

    @contextmanager
    def device(chosen: SimpleNamespace) -> Iterator[None]:
        current.append(chosen.index)
        yield
        current.pop()

    class Fake:
        version = "13.1.0"

        def __init__(self, path: object) -> None:
            assert path is None

        def ask(self, asked: Question) -> tuple[Answer, ...]:
            asked_at.append(current[-1])
            return (Answer(Configuration(66, 1, 35, 1, 0, 0, 0, 0, 0), 0, 1.0, b""),)

    settings.device, settings.get_device_capability = device, lambda _: (9, 0)
    monkeypatch.setattr(tensors, "question_of", lambda a, b, out: question(16, 16, a.shape[1]))
    monkeypatch.setattr(library, "Library", Fake)

    def matrix(index: int, k: int) -> Any:
        place = SimpleNamespace(index=index)
        return SimpleNamespace(
            device=place, dtype="float16", shape=(16, k), stride=lambda: (k, 1), data_ptr=lambda: 256
        )

    known = loaded.Loaded()
    for index, k in ((1, 32), (1, 32), (1, 64), (0, 32)):
        operand = matrix(index, k)
        assert known.product(operand, operand, operand).k == k
    assert (asked_at, current) == ([1, 1, 0], [0])
