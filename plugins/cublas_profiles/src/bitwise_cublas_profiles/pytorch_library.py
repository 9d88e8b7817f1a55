"""Descriptors of what PyTorch's own cuBLASLt runs, queried on the device of the operands."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.plugins.profiles import NotCovered
from bitwise_cublas_profiles.describe import biased_product_of, descriptor_of
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.query import Configuration, CublasError, GemmQuery, query_of_problem

CACHE_SIZE = 65536
"""Maximum number of cached descriptors in one process."""


SETTINGS = {
    "allow_fp16_accumulation": False,
    "allow_fp16_reduced_precision_reduction": True, "allow_fp16_reduced_precision_reduction_split_k": True,
    "allow_bf16_reduced_precision_reduction": True, "allow_bf16_reduced_precision_reduction_split_k": True,
}  # fmt: skip
"""PyTorch's defaults of the settings of torch.backends.cuda.matmul that select kernels. Only these were measured."""
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_ENCODED_WORKSPACE = os.environ.encodekey(_WORKSPACE)


_BIAS_VARIABLES = ("CUBLASLT_WORKSPACE_SIZE", "DISABLE_ADDMM_CUDA_LT", "TORCH_CUBLASLT_UNIFIED_WORKSPACE")
"""Environment variables that change how PyTorch adds a bias."""


def unmeasured_bias_setting() -> str | None:
    """The first variable set that changes how PyTorch adds a bias, as a sentence; None if there is none."""
    found = next((name for name in _BIAS_VARIABLES if name in os.environ), None)
    return f"{found} is set: biases were measured without it" if found else None


def unmeasured_setting() -> str | None:
    """The first PyTorch setting that differs from the measured ones, as a sentence; None if there is none."""
    import torch

    matmul = torch.backends.cuda.matmul
    for name, default in SETTINGS.items():
        found = getattr(matmul, name, default)
        if found != default:
            return f"torch.backends.cuda.matmul.{name} is {found}: products were measured with {default}"
    library = torch.backends.cuda.preferred_blas_library()
    if not _is_measured_library(library):
        return f"PyTorch prefers {library} for products: they were measured with cuBLAS, its default"
    if _WORKSPACE in os.environ:
        return f"{_WORKSPACE} is set: products were measured with PyTorch's own workspace; unset it"
    return None


def settings_token() -> Hashable:
    """A token of everything that `unmeasured_setting` reads; see `bitwise_core.plugins.profiles.CacheableProfile`.

    It calls PyTorch's C functions, which are faster than its attributes, and looks into the dictionary behind
    os.environ, whose own look-up raises and catches two exceptions for a variable that is not set.
    """
    import torch

    try:
        known = torch._C
        return (
            known._get_cublas_allow_fp16_accumulation(), known._get_cublas_allow_fp16_reduced_precision_reduction(),
            known._get_cublas_allow_bf16_reduced_precision_reduction(), int(known._get_blas_preferred_backend()),
            _ENCODED_WORKSPACE in vars(os.environ)["_data"],
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError):  # another version of PyTorch or Python
        return (unmeasured_setting(),)


@lru_cache(maxsize=16)
def _is_measured_library(library: Any) -> bool:
    """Whether a preferred BLAS library was measured. Cached: converting it to text is slow."""
    return str(library).endswith((".Cublas", ".Default"))


class PyTorchLibrary:
    """Descriptors of the GEMMs that PyTorch's cuBLASLt runs on the operands' device, cached by query."""

    def __init__(self) -> None:
        self._libraries: dict[tuple[int, str | None], tuple[Any, str]] = {}
        self._known: OrderedDict[tuple[Any, ...], GEMMDesc | NotCovered] = OrderedDict()

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        """The descriptor of what `torch.mm` runs for these tensors. Raises NotCovered with the key or the setting."""
        setting = unmeasured_setting()
        if setting is not None:
            raise NotCovered(setting)
        at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), out.data_ptr()
        key = (
            a.device.index, a.dtype, b.dtype, out.dtype, a.shape, b.shape, a.stride(), b.stride(), out.stride(),
            at_a & -at_a & 255, at_b & -at_b & 255, at_out & -at_out & 255,
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._described(a, b, out)
            self._known[key] = found
            if len(self._known) > CACHE_SIZE:
                self._known.popitem(last=False)
        if isinstance(found, NotCovered):
            raise NotCovered(*found.args)
        return found

    def _described(self, a: Any, b: Any, out: Any) -> GEMMDesc | NotCovered:
        from bitwise_cublas_profiles.tensors import query_of_tensors

        try:
            query = query_of_tensors(a, b, out)
            library, capability = self._library(a.device)
            known = profile(library.version, capability)
            return descriptor_of(query, self._query_heuristic(library, query, a.device), known)
        except CublasError as error:
            return NotCovered(str(error))

    def describe_problem(
        self, problem: GEMMProblem, alignment: tuple[int, int, int], path: str | None, device: Any = None
    ) -> GEMMDesc | BiasedGEMM:
        """See `LockableProfile`. One library is loaded for each path. Raises NotCovered."""
        try:
            if device is not None and device.type != "cuda":
                raise CublasError(f"{problem.words} is not described: it is on {device}, and cuBLAS runs on a GPU")
            index = _current() if device is None else device.index
            setting = unmeasured_setting() if path is None else None
            if setting is None and path is None and problem.epilogue == "bias":
                setting = unmeasured_bias_setting()
            if setting is not None:
                raise NotCovered(setting)
            library, capability = self._library(_device(index), path)
            query = query_of_problem(problem, alignment)
            configuration = self._query_heuristic(library, query, _device(index))
            known = profile(library.version, capability)
            if query.epilogue == "bias":
                return biased_product_of(query, configuration, known)
            return descriptor_of(query, configuration, known)
        except CublasError as error:
            raise NotCovered(str(error)) from None

    def provenance(self, path: str | None) -> dict[str, str]:
        """See `LockableProfile`. Raises NotCovered."""
        from bitwise_cublas_profiles.driver import driver_version

        try:
            index = _current()
            library, capability = self._library(_device(index), path)
        except CublasError as error:
            raise NotCovered(str(error)) from None
        import torch

        properties = torch.cuda.get_device_properties(index)
        return {
            "library": f"cuBLASLt {library.version}", "device": properties.name, "capability": capability,
            "multiprocessors": str(properties.multi_processor_count), "driver": driver_version(),
            "torch": torch.__version__,
        }  # fmt: skip

    def _query_heuristic(self, library: Any, query: GemmQuery, device: Any) -> Configuration:
        """The first heuristic result, queried with the operands' device current: the heuristic depends on the current
        device.
        """
        import torch

        with torch.cuda.device(device):
            found: Configuration = library.heuristic(query)[0].configuration
        return found

    def _library(self, device: Any, path: str | None = None) -> tuple[Any, str]:
        import torch

        from bitwise_cublas_profiles.library import Library

        key = (int(device.index), path)
        if key not in self._libraries:
            with torch.cuda.device(device):
                major, minor = torch.cuda.get_device_capability(device)
                self._libraries[key] = (Library(path), f"{major}.{minor}")
        return self._libraries[key]


def _device(index: int) -> Any:
    import torch

    return torch.device("cuda", index)


def _current() -> int:
    """Index of the current GPU. Raises CublasError if there is none."""
    try:
        import torch
    except ImportError:
        raise CublasError("cuBLAS is queried through PyTorch, which is not installed") from None
    if not torch.cuda.is_available():
        raise CublasError("there is no GPU: the kernel that cuBLAS selects depends on the GPU model")
    return int(torch.cuda.current_device())
