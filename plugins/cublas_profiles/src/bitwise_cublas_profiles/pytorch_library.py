"""Descriptors of what PyTorch's own cuBLASLt runs, queried on the device of the operands."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, Finish, FinishedGEMM, GEMMProblem
from bitwise_core.plugins.profiles import NotCovered, Support
from bitwise_cublas_profiles.describe import biased_product_of, descriptor_of
from bitwise_cublas_profiles.dots import dot_of
from bitwise_cublas_profiles.finishes import (
    adds_row,
    block_scaled_product_of,
    finished_product_of,
    group_of,
    plain_problem,
    row_scaled_product_of,
    scaled_product_of,
    scaled_query,
)
from bitwise_cublas_profiles.profile import Profile, UnmeasuredRows, profile
from bitwise_cublas_profiles.pytorch_settings import PyTorchSettings, current_settings
from bitwise_cublas_profiles.query import CublasError, GemmQuery, HeuristicResult, query_of_problem

CACHE_SIZE = 65536
"""Maximum number of cached descriptors in one process."""


class PyTorchLibrary:
    """Descriptors of the GEMMs that PyTorch's cuBLASLt runs on the operands' device, cached by query."""

    def __init__(self) -> None:
        self._libraries: dict[tuple[int, str | None], tuple[Any, str]] = {}
        self._known: OrderedDict[tuple[Any, ...], GEMMDesc | NotCovered] = OrderedDict()

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        """The descriptor of what `torch.mm` runs for these tensors. Raises NotCovered with the key or the setting."""
        try:
            settings = current_settings()
        except CublasError as error:
            raise NotCovered(str(error)) from None
        at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), out.data_ptr()
        key = (
            settings, a.device.index, a.dtype, b.dtype, out.dtype, a.shape, b.shape, a.stride(), b.stride(),
            out.stride(),
            at_a & -at_a & 255, at_b & -at_b & 255, at_out & -at_out & 255,
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._described(a, b, out, settings)
            self._known[key] = found
            if len(self._known) > CACHE_SIZE:
                self._known.popitem(last=False)
        if isinstance(found, NotCovered):
            raise NotCovered(*found.args)
        return found

    def _described(self, a: Any, b: Any, out: Any, settings: PyTorchSettings) -> GEMMDesc | NotCovered:
        from bitwise_cublas_profiles.tensors import query_of_tensors

        try:
            query = settings.applied(query_of_tensors(a, b, out))
            library, capability = self._library(a.device)
            known = profile(library.version, capability)
            found = self._query_heuristic(library, query, a.device)
            return descriptor_of(query, found.configuration, known, workspace=found.workspace)
        except CublasError as error:
            return NotCovered(str(error))

    def describe_problem(
        self, problem: GEMMProblem, alignment: tuple[int, int, int], path: str | None, device: Any = None
    ) -> GEMMDesc | BiasedGEMM | FinishedGEMM:
        """See `LockableProfile`. One library is loaded for each path. Raises NotCovered."""
        try:
            return self._described_problem(problem, alignment, path, device, lambda known: known)
        except CublasError as error:
            raise NotCovered(str(error)) from None

    def support(self, problem: GEMMProblem, path: str | None, device: Any = None) -> Support:
        """See `SupportedProfile`. Raises NotCovered."""
        recordings: list[UnmeasuredRows] = []

        def recording(known: Profile) -> Profile:
            recordings.append(UnmeasuredRows.of(known))
            return recordings[-1]

        try:
            self._described_problem(problem, (256, 256, 256), path, device, recording)
        except CublasError as error:
            raise NotCovered(str(error)) from None
        return "published" if any(each.names for each in recordings) else "measured"

    def _described_problem(
        self, problem: GEMMProblem, alignment: tuple[int, int, int], path: str | None, device: Any,
        prepared: Callable[[Profile], Profile],
    ) -> GEMMDesc | BiasedGEMM | FinishedGEMM:  # fmt: skip
        """What the library computes for a problem, by the rows of a prepared profile. Raises CublasError."""
        if device is not None and device.type != "cuda":
            raise CublasError(f"{problem.words} is not described: it is on {device}, and cuBLAS runs on a GPU")
        index = _current() if device is None else device.index
        library, capability = self._library(_device(index), path)
        if problem.finish is not None:
            known = prepared(profile(library.version, capability))
            return self._finished(problem, problem.finish, alignment, path, _device(index), library, known)
        if problem.dot and problem.a == "fp32":
            return dot_of(problem, prepared(profile(library.version, capability)))
        query = query_of_problem(problem.model_copy(update={"dot": False}), alignment)
        if path is None:
            query = current_settings().applied(query, vector=problem.vector, dot=problem.dot)
        known = prepared(profile(library.version, capability))
        return _described_answer(query, self._query_heuristic(library, query, _device(index)), known)

    def _finished(
        self, problem: GEMMProblem, finish: Finish, alignment: tuple[int, int, int], path: str | None, device: Any,
        library: Any, known: Profile,
    ) -> FinishedGEMM:  # fmt: skip
        """What the library, or a kernel of PyTorch, computes for a problem with a finish. Raises CublasError."""
        import torch

        settings = current_settings() if path is None else PyTorchSettings()
        if finish.scales == "row":
            return row_scaled_product_of(problem, known, torch.__version__)
        if finish.scales in ("tensor", "blocks"):
            query = replace(scaled_query(problem, finish, settings.lt_workspace), alignment=alignment)
            found = self._query_heuristic(library, query, device)
            if finish.scales == "blocks":
                return block_scaled_product_of(problem, query, found.configuration, known, torch.__version__)
            return scaled_product_of(problem, query, found.configuration, known, found.workspace)
        plain = query_of_problem(plain_problem(problem, finish, known, torch.__version__), alignment)
        query = settings.applied(plain, vector=problem.vector)
        if adds_row(problem, finish):
            query = replace(query, epilogue="none")
        if finish.activation == "relu":
            query = replace(query, epilogue="relu_bias")
        found = self._query_heuristic(library, query, device)
        return finished_product_of(
            replace(query, epilogue="none"), found.configuration, known, finish, found.workspace
        )  # fmt: skip

    def describe_group(self, problem: GEMMProblem, device: Any) -> FinishedGEMM:
        """See `GroupedProfile`. Raises NotCovered."""
        import torch

        try:
            if device is None or device.type != "cuda":
                raise CublasError(f"{problem.words} in a group is not described: PyTorch's kernels run on a GPU")
            library, capability = self._library(device)
            return group_of(problem, profile(library.version, capability), torch.__version__)
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

    def _query_heuristic(self, library: Any, query: GemmQuery, device: Any) -> HeuristicResult:
        """The first heuristic result, queried with the operands' device current: the heuristic depends on the current
        device.
        """
        import torch

        with torch.cuda.device(device):
            found: HeuristicResult = library.heuristic(query)[0]
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


def _described_answer(query: GemmQuery, found: HeuristicResult, known: Profile) -> GEMMDesc | BiasedGEMM:
    if query.epilogue == "bias":
        return biased_product_of(query, found.configuration, known, workspace=found.workspace)
    return descriptor_of(query, found.configuration, known, workspace=found.workspace)


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
