"""PyTorch settings without measurements, which are declined before the library is queried."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.plugins.profiles import LockableProfile, NotCovered
from bitwise_cublas_profiles import driver, library, plugin, pytorch_library, tensors
from bitwise_cublas_profiles.query import Configuration, GemmQuery, HeuristicResult, gemm_query, query_of_problem


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    matmul = SimpleNamespace(**pytorch_library.SETTINGS)
    cuda = SimpleNamespace(matmul=matmul, preferred_blas_library=lambda: "_BlasBackend.Cublas")
    torch = SimpleNamespace(backends=SimpleNamespace(cuda=cuda), cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    return cuda


def test_defaults_of_pytorch_versions_are_the_measured_settings(settings: SimpleNamespace) -> None:
    assert pytorch_library.unmeasured_setting() is None
    del settings.matmul.allow_fp16_reduced_precision_reduction_split_k
    del settings.matmul.allow_fp16_accumulation
    settings.preferred_blas_library = lambda: "_BlasBackend.Default"
    assert pytorch_library.unmeasured_setting() is None


@pytest.mark.parametrize("name", pytorch_library.SETTINGS)
def test_any_other_setting_is_declined_with_its_name(settings: SimpleNamespace, name: str) -> None:
    setattr(settings.matmul, name, not pytorch_library.SETTINGS[name])
    operand: Any = None
    with pytest.raises(
        NotCovered, match=rf"matmul\.{name} is {not pytorch_library.SETTINGS[name]}: products were measured"
    ):
        pytorch_library.PyTorchLibrary().product(operand, operand, operand)


def test_another_library_or_workspace_is_declined(settings: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.preferred_blas_library = lambda: "_BlasBackend.Cublaslt"
    assert pytorch_library.unmeasured_setting() == (
        "PyTorch prefers _BlasBackend.Cublaslt for products: they were measured with cuBLAS, its default"
    )
    settings.preferred_blas_library = lambda: "_BlasBackend.Cublas"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert pytorch_library.unmeasured_setting() == (
        "CUBLAS_WORKSPACE_CONFIG is set: products were measured with PyTorch's own workspace; unset it"
    )


def test_the_heuristic_is_queried_on_the_device_of_the_operands(
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

        def heuristic(self, query: GemmQuery) -> tuple[HeuristicResult, ...]:
            asked_at.append(current[-1])
            return (HeuristicResult(Configuration(66, 1, 35, 1, 0, 0, 0, 0, 0), 0, 1.0, b""),)

    settings.device, settings.get_device_capability = device, lambda _: (9, 0)
    monkeypatch.setattr(tensors, "query_of_tensors", lambda a, b, out: gemm_query(16, 16, a.shape[1]))
    monkeypatch.setattr(library, "Library", Fake)

    def matrix(index: int, k: int) -> Any:
        place = SimpleNamespace(index=index)
        return SimpleNamespace(
            device=place, dtype="float16", shape=(16, k), stride=lambda: (k, 1), data_ptr=lambda: 256
        )

    known = pytorch_library.PyTorchLibrary()
    for index, k in ((1, 32), (1, 32), (1, 64), (0, 32)):
        operand = matrix(index, k)
        assert known.product(operand, operand, operand).k == k
    assert (asked_at, current) == ([1, 1, 0], [0])


def test_problems_are_queried_from_the_library_at_a_path(
    settings: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    query: list[tuple[str | None, GemmQuery]] = []

    class Fake:
        version = "13.1.0"

        def __init__(self, path: str | None) -> None:
            self.path = path

        def heuristic(self, question_: GemmQuery) -> tuple[HeuristicResult, ...]:
            query.append((self.path, question_))
            return (HeuristicResult(Configuration(66, 1, 35, 1, 0, 0, 0, 0, 0), 0, 1.0, b""),)

    properties = SimpleNamespace(name="a GPU", multi_processor_count=132)
    torch = sys.modules["torch"]
    for name, what in {
        "device": lambda _: nullcontext(), "get_device_capability": lambda _: (9, 0), "is_available": lambda: True,
        "current_device": lambda: 0, "get_device_properties": lambda _: properties,
    }.items():  # fmt: skip
        setattr(settings, name, what)
    monkeypatch.setattr(torch, "device", lambda kind, index: SimpleNamespace(type=kind, index=index), raising=False)
    monkeypatch.setattr(torch, "__version__", "2.11.0", raising=False)
    monkeypatch.setattr(library, "Library", Fake)
    monkeypatch.setattr(driver, "driver_version", lambda: "580.1")
    profile = next(each for each in plugin.bitwise_profiles() if isinstance(each, LockableProfile))
    known = pytorch_library.PyTorchLibrary()
    monkeypatch.setattr(plugin, "PYTORCH_LIBRARY", known)
    problem = GEMMProblem(m=16, n=24, k=640, a="fp16", b="fp16", out="fp16", transpose_b=True)
    for path in (None, None, "other.so"):
        found = profile.describe_problem(problem, library=path, alignment=(64, 64, 16))
        assert isinstance(found, GEMMDesc)
        assert found.k == 640
    wanted = gemm_query(16, 24, 640, transpose_b=True, alignment=(64, 64, 16))
    assert query == [(None, wanted), (None, wanted), ("other.so", wanted)]
    assert profile.provenance(library="other.so") == {
        "library": "cuBLASLt 13.1.0", "device": "a GPU", "capability": "9.0", "multiprocessors": "132",
        "driver": "580.1", "torch": "2.11.0",
    }  # fmt: skip
    biased = problem.model_copy(update={"epilogue": "bias"})
    assert query_of_problem(biased).workspace == 1 << 20
    assert profile.describe_problem(biased) == BiasedGEMM(product=profile.describe_problem(problem))
    declined = [
        (biased.model_copy(update={"n": 1}), {}, "PyTorch adds a bias on one column with kernels of its own"),
        (problem, {"device": SimpleNamespace(type="cpu")}, "and cuBLAS runs on a GPU"),
        (problem, {"alignment": (64, 8, 64)}, "pointers without 16-byte alignment are not measured"),
        (problem.model_copy(update={"a": "fp32"}), {}, "are not measured|have no rows"),
    ]
    for other, options, why in declined:
        with pytest.raises(NotCovered, match=why):
            profile.describe_problem(other, **options)
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "4096")
    with pytest.raises(NotCovered, match="CUBLASLT_WORKSPACE_SIZE is set: biases were measured without it"):
        profile.describe_problem(biased)
    assert profile.describe_problem(problem) == found
    settings.is_available = lambda: False
    with pytest.raises(NotCovered, match="there is no GPU: the kernel that cuBLAS selects depends on the GPU model"):
        profile.describe_problem(problem)


def test_a_missing_driver_is_unknown() -> None:
    assert driver.driver_version("libnothing-of-the-kind.so") == "unknown"


def test_the_token_changes_with_settings(settings: SimpleNamespace) -> None:
    (described, *_) = plugin.bitwise_profiles()
    assert described.cache_token() == (None,)  # type: ignore[attr-defined]
    settings.matmul.allow_fp16_accumulation = True
    (found,) = described.cache_token()  # type: ignore[attr-defined]
    assert found.startswith("torch.backends.cuda.matmul.allow_fp16_accumulation")


def test_the_token_has_the_values_of_pytorchs_functions(
    settings: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, object] = {
        "_get_cublas_allow_fp16_accumulation": False,
        "_get_cublas_allow_fp16_reduced_precision_reduction": (True, True),
        "_get_cublas_allow_bf16_reduced_precision_reduction": (True, True),
        "_get_blas_preferred_backend": 0,
    }
    functions = SimpleNamespace(**{name: lambda name=name: said[name] for name in said})
    monkeypatch.setattr(sys.modules["torch"], "_C", functions, raising=False)
    tokens = [pytorch_library.settings_token()]
    assert tokens == [(False, (True, True), (True, True), 0, False)]
    for name, other in (
        ("_get_cublas_allow_fp16_accumulation", True),
        ("_get_cublas_allow_fp16_reduced_precision_reduction", (True, False)),
        ("_get_cublas_allow_bf16_reduced_precision_reduction", (False, True)),
        ("_get_blas_preferred_backend", 1),
    ):
        said[name] = other
        tokens.append(pytorch_library.settings_token())
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    tokens.append(pytorch_library.settings_token())
    assert len(set(tokens)) == 6
    del functions._get_cublas_allow_fp16_accumulation
    assert pytorch_library.settings_token() == (pytorch_library.unmeasured_setting(),)


def test_pytorchs_own_functions_follow_its_settings() -> None:
    torch = pytest.importorskip("torch")
    token = pytorch_library.settings_token()
    assert isinstance(token, tuple)
    assert len(token) == 5
    matmul = torch.backends.cuda.matmul
    for name in pytorch_library.SETTINGS:
        if name.endswith("_split_k"):
            continue
        default = getattr(matmul, name)
        try:
            setattr(matmul, name, not default)
            assert pytorch_library.settings_token() != token
        finally:
            setattr(matmul, name, default)
        assert pytorch_library.settings_token() == token
