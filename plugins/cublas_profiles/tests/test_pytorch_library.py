"""PyTorch's settings as queries of the library, and those that are declined before it is queried."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, Finish, FinishedGEMM, GEMMProblem
from bitwise_core.plugins.profiles import GroupedProfile, LockableProfile, NotCovered
from bitwise_core.plugins.references import loaded
from bitwise_cublas_profiles import driver, library, library_profile, plugin, pytorch_library, pytorch_settings, tensors
from bitwise_cublas_profiles.pytorch_settings import PyTorchSettings, current_settings, stated_settings
from bitwise_cublas_profiles.query import (
    Configuration,
    CublasError,
    GemmQuery,
    HeuristicResult,
    gemm_query,
    query_of_problem,
)

FLAGS = {
    "allow_fp16_accumulation": False, "allow_tf32": False,
    "allow_fp16_reduced_precision_reduction": True, "allow_fp16_reduced_precision_reduction_split_k": True,
    "allow_bf16_reduced_precision_reduction": True, "allow_bf16_reduced_precision_reduction_split_k": True,
}  # fmt: skip
VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "TORCH_CUBLASLT_UNIFIED_WORKSPACE", "DISABLE_ADDMM_CUDA_LT",
)  # fmt: skip


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    pytorch_settings._readers.cache_clear()
    matmul = SimpleNamespace(**FLAGS)
    cuda = SimpleNamespace(matmul=matmul, preferred_blas_library=lambda: "_BlasBackend.Cublas")
    torch = SimpleNamespace(backends=SimpleNamespace(cuda=cuda), cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pytorch_settings, "AT_START", {})
    yield cuda
    pytorch_settings._readers.cache_clear()


@pytest.fixture
def started_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Set an environment variable as if the process had started with it."""
    known: dict[str, str] = {}
    monkeypatch.setattr(pytorch_settings, "AT_START", known)

    def start(name: str, value: str) -> None:
        monkeypatch.setenv(name, value)
        known[name] = value

    return start


def test_defaults_of_pytorch_versions_are_the_measured_settings(settings: SimpleNamespace) -> None:
    assert current_settings() == PyTorchSettings()
    del settings.matmul.allow_fp16_reduced_precision_reduction_split_k
    del settings.matmul.allow_fp16_accumulation
    settings.preferred_blas_library = lambda: "_BlasBackend.Default"
    assert current_settings() == PyTorchSettings()


@pytest.mark.parametrize(
    ("value", "workspace"), [(":4096:8", 32 << 20), (":16:8", 128 << 10), (":0:0", 0), (":4096:2:16:8", 8320 << 10)]
)
def test_the_workspace_is_the_sum_of_its_parts(
    settings: SimpleNamespace, started_with: Callable[[str, str], None], value: str, workspace: int
) -> None:
    started_with("CUBLAS_WORKSPACE_CONFIG", value)
    found = current_settings()
    assert found.applied(gemm_query(64, 64, 64)).workspace == workspace
    biased = gemm_query(64, 64, 64, epilogue="bias", workspace=1 << 20)
    assert found.applied(biased).workspace == min(workspace, 1 << 20)
    started_with("CUBLASLT_WORKSPACE_SIZE", "16384")
    assert found.applied(biased).workspace == min(workspace, 16 << 20)
    assert found.applied(gemm_query(64, 64, 64)).workspace == workspace


def test_reductions_and_tf32_are_those_of_the_flags(settings: SimpleNamespace) -> None:
    settings.matmul.allow_fp16_reduced_precision_reduction = False
    found = current_settings()
    assert [found.applied(gemm_query(64, 64, 64, name)).reductions for name in ("fp16", "bf16", "fp32")] == [
        2, None, None,
    ]  # fmt: skip
    settings.matmul.allow_bf16_reduced_precision_reduction = False
    settings.matmul.allow_bf16_reduced_precision_reduction_split_k = False
    found = current_settings()
    assert found.applied(gemm_query(64, 64, 64, "bf16", epilogue="bias")).reductions == 0
    with pytest.raises(CublasError, match="PyTorch does not multiply bf16 matrices without a bias"):
        found.applied(gemm_query(64, 64, 64, "bf16"))
    assert found.applied(gemm_query(64, 64, 64, "fp32")).compute == "fp32"
    settings.matmul.allow_tf32 = True
    assert current_settings().applied(gemm_query(64, 64, 64, "fp32")) == gemm_query(64, 64, 64, "tf32")
    assert current_settings().applied(gemm_query(64, 64, 64, "fp16")).compute == "fp32"


def test_products_by_cublaslt_have_its_workspace_and_may_disallow_split_k(
    settings: SimpleNamespace, started_with: Callable[[str, str], None]
) -> None:
    settings.preferred_blas_library = lambda: "_BlasBackend.Cublaslt"
    started_with("CUBLASLT_WORKSPACE_SIZE", "1")
    settings.matmul.allow_bf16_reduced_precision_reduction = False
    settings.matmul.allow_bf16_reduced_precision_reduction_split_k = False
    found = current_settings().applied(gemm_query(64, 64, 64, "bf16"))
    assert (found.workspace, found.reductions) == (1024, 0)
    stated = stated_settings(None, 1, 0, lt_products=True)
    assert stated.applied(gemm_query(64, 64, 64, "bf16")) == found
    for query in (gemm_query(64, 64, 64, "fp32"), gemm_query(64, 64, 64, batch=2), gemm_query(64, 1, 64)):
        assert stated.applied(query).workspace == 1024
    column = gemm_query(64, 1, 64, "fp32")
    assert stated.applied(column).workspace == 1024
    # A dot product runs a function of cuBLAS.
    for dtype in ("fp16", "bf16"):
        one = gemm_query(1, 1, 64, dtype)
        assert stated.applied(one).workspace == 1024
        full = replace(stated, fp16_reductions=None, bf16_reductions=None)
        assert full.applied(one, dot=True) == one
    # Of a product with a vector, cuBLAS computes that of fp32 as it does without the preference.
    assert stated.applied(column, vector=True) == stated_settings(None, 1, 0).applied(column)
    assert stated.applied(column, vector=True).workspace > 1024
    for query in (gemm_query(64, 1, 64), gemm_query(64, 1, 64, "bf16")):
        assert stated.applied(query, vector=True) == stated.applied(query)


@pytest.mark.parametrize("value", [None, ":4096:8", ":16:8", ":0:0"])
@pytest.mark.parametrize("size", [None, 0, 1, 65536])
def test_stated_settings_are_those_of_a_process_with_these_values(
    settings: SimpleNamespace, started_with: Callable[[str, str], None], value: str | None, size: int | None
) -> None:
    if value is not None:
        started_with("CUBLAS_WORKSPACE_CONFIG", value)
    if size is not None:
        started_with("CUBLASLT_WORKSPACE_SIZE", str(size))
    stated = stated_settings(value, size)
    for query in (gemm_query(64, 64, 64, "bf16"), gemm_query(64, 64, 64, "bf16", epilogue="bias")):
        assert stated.applied(query) == current_settings().applied(query)


def test_settings_that_mix_two_interfaces_are_read_by_the_other_one(settings: SimpleNamespace) -> None:
    class Mixed:
        fp32_precision = "tf32"

        @property
        def allow_tf32(self) -> bool:
            raise RuntimeError

    settings.matmul = Mixed()
    assert current_settings().tf32
    Mixed.fp32_precision = "ieee"
    assert not current_settings().tf32


def test_unmeasured_settings_are_declined_with_their_names(
    settings: SimpleNamespace, started_with: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    operand: Any = None
    settings.preferred_blas_library = lambda: "_BlasBackend.Ck"
    with pytest.raises(NotCovered, match=r"PyTorch prefers _BlasBackend\.Ck for products"):
        pytorch_library.PyTorchLibrary().product(operand, operand, operand)
    settings.preferred_blas_library = lambda: "_BlasBackend.Cublas"
    settings.matmul.allow_fp16_accumulation = True
    assert current_settings().applied(gemm_query(64, 64, 64)) == gemm_query(64, 64, 64, compute="fp16")
    assert current_settings().applied(gemm_query(64, 64, 64, batch=2)).compute == "fp16"
    biased = current_settings().applied(gemm_query(64, 64, 64, epilogue="bias"))
    assert (biased.compute, biased.workspace) == ("fp16", 1 << 20)
    with pytest.raises(CublasError, match=r"matmul\.allow_fp16_accumulation is True: with it products of fp16"):
        current_settings().applied(replace(gemm_query(64, 64, 64), c="fp32"))
    assert current_settings().applied(gemm_query(1, 1, 64, batch=2)).compute == "fp16"
    one = gemm_query(1, 1, 64)
    assert current_settings().applied(one).compute == "fp16"
    assert current_settings().applied(one, dot=True) == one
    assert current_settings().applied(gemm_query(64, 64, 64, "bf16")) == gemm_query(64, 64, 64, "bf16")
    started_with("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with pytest.raises(CublasError, match="CUBLAS_WORKSPACE_CONFIG is set: fp8 products were measured without it"):
        current_settings().applied(gemm_query(64, 64, 64, "e4m3"))
    biased = gemm_query(64, 64, 64, "bf16", epilogue="bias")
    for name, value, why in (
        ("CUBLASLT_WORKSPACE_SIZE", "many", "is 'many': give a number of KiB"),
        ("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "0", "biases were measured without it for this workspace"),
        ("DISABLE_ADDMM_CUDA_LT", "1", "biases were measured without it"),
    ):
        started_with(name, value)
        with pytest.raises(CublasError, match=why):
            current_settings().applied(biased)
        monkeypatch.delenv(name)
        del pytorch_settings.AT_START[name]  # type: ignore[attr-defined]
    started_with("CUBLAS_WORKSPACE_CONFIG", "large")
    with pytest.raises(CublasError, match="is 'large': products were measured with values such as :4096:8"):
        current_settings()


def test_variables_that_change_after_the_start_are_declined(
    settings: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the default under another name
    assert current_settings() == PyTorchSettings()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with pytest.raises(CublasError, match="was changed to ':16:8' after Python started"):
        current_settings()
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "0")
    with pytest.raises(CublasError, match="CUBLASLT_WORKSPACE_SIZE was changed after Python started"):
        current_settings().applied(gemm_query(64, 64, 64, epilogue="bias"))
    monkeypatch.setattr(pytorch_settings, "AT_START", None)  # a system that does not say
    assert current_settings().applied(gemm_query(64, 64, 64, epilogue="bias")).workspace == 0


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


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_vector_of_fp32_is_multiplied_by_cublas_and_a_matrix_of_one_column_by_the_preferred_library(
    dtype: str, settings: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch prefers cuBLASLt: the workspace of a query is that of the library that PyTorch runs."""
    asked: list[int] = []

    class Fake:
        version = "13.1.0"

        def heuristic(self, query: GemmQuery) -> tuple[HeuristicResult, ...]:
            asked.append(query.workspace)
            return (HeuristicResult(Configuration(0, 11, 0, 1, 0, 0, 0, 0, 0), 0, 1.0, b""),)

    settings.preferred_blas_library = lambda: "_BlasBackend.Cublaslt"
    known = pytorch_library.PyTorchLibrary()
    monkeypatch.setattr(known, "_library", lambda device, path=None: (Fake(), "9.0"))
    monkeypatch.setattr(pytorch_library, "descriptor_of", lambda query, given, known, workspace: query.workspace)
    monkeypatch.setattr(pytorch_library, "finished_product_of", lambda query, *_: query.workspace)
    monkeypatch.setattr(pytorch_library, "profile", lambda version, capability: None)
    monkeypatch.setattr(pytorch_library, "_device", lambda index: index)
    monkeypatch.setattr(pytorch_library, "_current", lambda: 0)
    monkeypatch.setattr(settings, "device", lambda _: nullcontext(), raising=False)
    column = GEMMProblem(m=640, n=1, k=4096, a=dtype, b=dtype, out=dtype)
    fields = {name: getattr(column, name) for name in GEMMProblem.model_fields} | {"vector": True}
    added = Finish(alpha=0.5, beta=1.0, addend="matrix")
    vector, vector_added = GEMMProblem(**fields), GEMMProblem(**fields | {"finish": added})
    monkeypatch.setattr(pytorch_library, "plain_problem", lambda problem, *_: vector if problem.vector else column)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**vars(sys.modules["torch"]), __version__="2.11"))
    for problem in (column, vector, vector_added):
        known.describe_problem(problem, (256, 256, 256), None)
    cublas = 32 << 20 if dtype == "fp32" else 1 << 20
    assert asked == [1 << 20, cublas, cublas]


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
            stages = 36 if question_.a == "e4m3" else 35
            return (HeuristicResult(Configuration(66, 1, stages, 1, 0, 0, 0, 0, 0), 0, 1.0, b""),)

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
    profile = next(each for each in map(loaded, plugin.bitwise_profiles()) if isinstance(each, LockableProfile))
    known = pytorch_library.PyTorchLibrary()
    monkeypatch.setattr(library_profile, "PYTORCH_LIBRARY", known)
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
    query.clear()
    added = finish(problem, addend="matrix", beta=0.5)
    assert isinstance(profile.describe_problem(added), FinishedGEMM)
    profile.describe_problem(finish(problem, addend="vector", beta=1, activation="relu"))
    profile.describe_problem(finish(problem.model_copy(update={"m": 1, "transpose_b": False}), addend="matrix", beta=1))
    assert [(each.epilogue, each.workspace) for _, each in query] == [
        ("none", 32 << 20), ("relu_bias", 1 << 20), ("none", 1 << 20),
    ]  # fmt: skip
    query.clear()
    eighths = problem.model_copy(update={"a": "e4m3", "b": "e4m3", "out": "bf16"})
    scaled = profile.describe_problem(finish(eighths, scales="tensor", fast_accumulation=True))
    assert isinstance(scaled, FinishedGEMM)
    assert [(each.fast_accumulation, each.workspace) for _, each in query] == [(True, 1 << 20)]
    assert isinstance(profile.describe_problem(finish(eighths, scales="row")), FinishedGEMM)
    assert len(query) == 1  # a kernel of PyTorch has no query
    assert isinstance(profile, GroupedProfile)
    group = finish(problem.model_copy(update={"a": "bf16", "b": "bf16", "out": "bf16"}))
    assert isinstance(profile.describe_group(group, device=torch.device("cuda", 0)), FinishedGEMM)
    with pytest.raises(NotCovered, match="PyTorch's kernels run on a GPU"):
        profile.describe_group(group)
    declined = [
        (finish(problem, addend="vector", beta=1, activation="gelu"), {}, "the nearest described call is"),
        (finish(eighths, scales="tensor").model_copy(update={"b": "fp16"}), {}, "operand types are not multiplied"),
        (biased.model_copy(update={"n": 1}), {}, "PyTorch adds a bias on one column with kernels of its own"),
        (problem, {"device": SimpleNamespace(type="cpu")}, "and cuBLAS runs on a GPU"),
        (problem.model_copy(update={"batch": 2}), {"alignment": (64, 8, 64)}, "unaligned operands are not measured"),
        (problem.model_copy(update={"a": "fp32"}), {}, "are not measured"),
    ]
    for other, options, why in declined:
        with pytest.raises(NotCovered, match=why):
            profile.describe_problem(other, **options)
    settings.is_available = lambda: False
    with pytest.raises(NotCovered, match="there is no GPU: the kernel that cuBLAS selects depends on the GPU model"):
        profile.describe_problem(problem)


def finish(problem: GEMMProblem, **fields: Any) -> GEMMProblem:
    """Return a problem with a finish."""
    return problem.model_copy(update={"finish": Finish(**fields)})


def test_a_missing_driver_is_unknown() -> None:
    assert driver.driver_version("libnothing-of-the-kind.so") == "unknown"


def test_the_token_changes_with_settings(settings: SimpleNamespace) -> None:
    (described, *_) = map(loaded, plugin.bitwise_profiles())
    assert described.cache_token() == PyTorchSettings()  # type: ignore[attr-defined]
    settings.matmul.allow_tf32 = True
    assert described.cache_token() == PyTorchSettings(tf32=True)  # type: ignore[attr-defined]
    settings.preferred_blas_library = lambda: "_BlasBackend.Cublaslt"
    assert described.cache_token() == PyTorchSettings(tf32=True, lt_products=True)  # type: ignore[attr-defined]
    settings.preferred_blas_library = lambda: "_BlasBackend.Ck"
    assert described.cache_token().startswith("PyTorch prefers")  # type: ignore[attr-defined]


def test_the_token_has_the_values_of_pytorchs_functions(
    settings: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, object] = {
        "_get_cublas_allow_fp16_accumulation": False,
        "_get_cublas_allow_fp16_reduced_precision_reduction": (True, True),
        "_get_cublas_allow_bf16_reduced_precision_reduction": (True, True),
        "_get_blas_preferred_backend": SimpleNamespace(value=0),
        "_get_cublas_allow_tf32": False,
    }
    functions = SimpleNamespace(**{name: lambda name=name: said[name] for name in said})
    monkeypatch.setattr(sys.modules["torch"], "_C", functions, raising=False)
    tokens = [pytorch_settings.settings_token()]
    assert tokens == [(False, (True, True), (True, True), 0, False, None)]
    for name, other in (
        ("_get_cublas_allow_fp16_accumulation", True),
        ("_get_cublas_allow_fp16_reduced_precision_reduction", (True, False)),
        ("_get_cublas_allow_bf16_reduced_precision_reduction", (False, True)),
        ("_get_blas_preferred_backend", SimpleNamespace(value=1)),
        ("_get_cublas_allow_tf32", True),
    ):
        said[name] = other
        tokens.append(pytorch_settings.settings_token())
    for value in (":4096:8", ":16:8"):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value)
        tokens.append(pytorch_settings.settings_token())
    assert len(set(tokens)) == 8
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    del functions._get_cublas_allow_fp16_accumulation
    pytorch_settings._readers.cache_clear()
    assert pytorch_settings.settings_token() == current_settings()


def test_pytorchs_own_functions_follow_its_settings() -> None:
    torch = pytest.importorskip("torch")
    token = pytorch_settings.settings_token()
    assert isinstance(token, tuple)
    assert len(token) == 6
    matmul = torch.backends.cuda.matmul
    for name in FLAGS:
        if name.endswith("_split_k"):
            continue
        default = getattr(matmul, name)
        try:
            setattr(matmul, name, not default)
            assert pytorch_settings.settings_token() != token
        finally:
            setattr(matmul, name, default)
        assert pytorch_settings.settings_token() == token


def test_a_batch_of_one_element_is_asked_for_with_transposed_operands_in_the_other_order() -> None:
    one = GEMMProblem(m=1, n=1, k=300, a="fp16", b="fp16", out="fp16", batch=4, stride_a=320, stride_b=640)
    query = query_of_problem(one, (16, 32, 256))
    assert (query.transposes, query.stride_a, query.stride_b) == ("TT", 640, 320)
    assert query.alignment == (32, 16, 256)
    assert (query.ld_a, query.ld_b, query.batch) == (None, None, 4)
    with pytest.raises(CublasError, match="one product of one element is not measured as a batch"):
        query_of_problem(one.model_copy(update={"batch": 1, "stride_a": None, "stride_b": None}))
    for other in ({"batch": None, "stride_a": None, "stride_b": None}, {"m": 2}, {"n": 2}):
        assert query_of_problem(one.model_copy(update=other)).transposes == "NN"
