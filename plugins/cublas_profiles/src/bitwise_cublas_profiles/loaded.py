"""The cuBLASLt that PyTorch has loaded, asked on the device of the operands."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.problems import BiasedProduct, Problem
from bitwise_core.profiles import Undescribed
from bitwise_cublas_profiles.describe import biased_product_of, descriptor_of
from bitwise_cublas_profiles.profile import Declined, profile
from bitwise_cublas_profiles.question import Configuration, CublasError, Question, question_of_problem

KEPT = 65536
"""Answers kept of one process."""


SETTINGS = {
    "allow_fp16_accumulation": False,
    "allow_fp16_reduced_precision_reduction": True, "allow_fp16_reduced_precision_reduction_split_k": True,
    "allow_bf16_reduced_precision_reduction": True, "allow_bf16_reduced_precision_reduction_split_k": True,
}  # fmt: skip
"""PyTorch's defaults of what changes which kernel a product runs, under torch.backends.cuda.matmul; others were not
measured."""
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


_OF_BIASES = ("CUBLASLT_WORKSPACE_SIZE", "DISABLE_ADDMM_CUDA_LT", "TORCH_CUBLASLT_UNIFIED_WORKSPACE")
"""Variables that change how PyTorch adds a bias."""


def otherwise_added() -> str | None:
    """Which setting of how PyTorch adds a bias is not the one that was measured; None where all are."""
    found = next((name for name in _OF_BIASES if name in os.environ), None)
    return f"{found} is set: biases are measured as PyTorch adds them without it" if found else None


def otherwise() -> str | None:
    """Which setting of PyTorch is not the one that was measured, as a sentence; None where all are."""
    import torch

    matmul = torch.backends.cuda.matmul
    for name, default in SETTINGS.items():
        found = getattr(matmul, name, default)
        if found != default:
            return f"torch.backends.cuda.matmul.{name} is {found}: products are measured where it is {default}"
    library = torch.backends.cuda.preferred_blas_library()
    if not _measured(library):
        return f"PyTorch prefers {library} for products: they are measured where it prefers cuBLAS, its default"
    if _WORKSPACE in os.environ:
        return f"{_WORKSPACE} is set: products are measured with PyTorch's own workspace; start without it"
    return None


def _settings() -> Hashable:
    """What decides `otherwise`, read at once: PyTorch's own functions are several times as fast as its attributes."""
    import torch

    try:
        known = torch._C
        return (
            known._get_cublas_allow_fp16_accumulation(), known._get_cublas_allow_fp16_reduced_precision_reduction(),
            known._get_cublas_allow_bf16_reduced_precision_reduction(), torch.backends.cuda.preferred_blas_library(),
            _WORKSPACE in os.environ,
        )  # fmt: skip
    except AttributeError:  # another version's
        return otherwise()


@lru_cache(maxsize=16)
def _measured(library: Any) -> bool:
    """Whether a preferred library is one that was measured; kept, for its name is slow to ask for."""
    return str(library).endswith((".Cublas", ".Default"))


class Loaded:
    """Descriptors of what the one that PyTorch has loaded runs on the operands' device, kept by question."""

    def __init__(self) -> None:
        self._libraries: dict[tuple[int, str | None], tuple[Any, str]] = {}
        self._known: OrderedDict[tuple[Any, ...], GEMMDesc | Undescribed] = OrderedDict()

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        """The descriptor of what torch.mm runs for these tensors.  Raises Undescribed, with the key or the setting."""
        other = otherwise()
        if other is not None:
            raise Undescribed(other)
        at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), out.data_ptr()
        key = (
            a.device.index, a.dtype, b.dtype, out.dtype, a.shape, b.shape, a.stride(), b.stride(), out.stride(),
            at_a & -at_a & 255, at_b & -at_b & 255, at_out & -at_out & 255,
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._described(a, b, out)
            self._known[key] = found
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        if isinstance(found, Undescribed):
            raise Undescribed(*found.args)
        return found

    def mark(self, a: Any, b: Any, out: Any) -> tuple[Hashable, int, int, int]:
        """Settings and alignments; see `bitwise_core.profiles.MarkedProfile`."""
        at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), out.data_ptr()
        return _settings(), at_a & -at_a & 255, at_b & -at_b & 255, at_out & -at_out & 255

    def _described(self, a: Any, b: Any, out: Any) -> GEMMDesc | Undescribed:
        from bitwise_cublas_profiles.tensors import question_of

        try:
            asked = question_of(a, b, out)
            library, capability = self._library(a.device)
            known = profile(library.version, capability)
            return descriptor_of(asked, self._asked(library, asked, a.device), known)
        except (Declined, CublasError) as error:
            return Undescribed(str(error))

    def answered(
        self, problem: Problem, alignment: tuple[int, int, int], path: str | None, device: Any = None
    ) -> GEMMDesc | BiasedProduct:
        """See `LockableProfile`; one library is loaded for each path.  Raises Undescribed."""
        try:
            if device is not None and device.type != "cuda":
                raise CublasError(f"{problem.words} is not described: it lies on {device}, and cuBLAS runs on a GPU")
            index = _current() if device is None else device.index
            other = otherwise() if path is None else None
            if other is None and path is None and problem.epilogue == "bias":
                other = otherwise_added()
            if other is not None:
                raise Undescribed(other)
            library, capability = self._library(_device(index), path)
            asked = question_of_problem(problem, alignment)
            answered = self._asked(library, asked, _device(index))
            known = profile(library.version, capability)
            if asked.epilogue == "bias":
                return biased_product_of(asked, answered, known)
            return descriptor_of(asked, answered, known)
        except (Declined, CublasError) as error:
            raise Undescribed(str(error)) from None

    def provenance(self, path: str | None) -> dict[str, str]:
        """See `LockableProfile`.  Raises Undescribed."""
        from bitwise_cublas_profiles.driver import driver_version

        try:
            index = _current()
            library, capability = self._library(_device(index), path)
        except CublasError as error:
            raise Undescribed(str(error)) from None
        import torch

        properties = torch.cuda.get_device_properties(index)
        return {
            "library": f"cuBLASLt {library.version}", "device": properties.name, "capability": capability,
            "multiprocessors": str(properties.multi_processor_count), "driver": driver_version(),
            "torch": torch.__version__,
        }  # fmt: skip

    def _asked(self, library: Any, asked: Question, device: Any) -> Configuration:
        """The first answer, asked where the operands are: the heuristic looks at the device that is current."""
        import torch

        with torch.cuda.device(device):
            found: Configuration = library.ask(asked)[0].configuration
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
    """The current GPU's number.  Raises CublasError where there is none."""
    try:
        import torch
    except ImportError:
        raise CublasError("cuBLAS is asked through PyTorch, which is not installed") from None
    if not torch.cuda.is_available():
        raise CublasError("there is no GPU: what cuBLAS runs depends on it, and on its model")
    return int(torch.cuda.current_device())
