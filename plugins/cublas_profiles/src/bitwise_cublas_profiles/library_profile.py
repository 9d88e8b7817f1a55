"""A data file as a profile of cuBLASLt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, FinishedGEMM, GEMMProblem
from bitwise_core.plugins.profiles import Explanation, Support
from bitwise_cublas_profiles import profile
from bitwise_cublas_profiles.data_files import DataFile
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.explanation import explain
from bitwise_cublas_profiles.pytorch_library import PyTorchLibrary
from bitwise_cublas_profiles.pytorch_settings import settings_token
from bitwise_cublas_profiles.query import Configuration, CublasError, gemm_query

STRING_KEYS = ("version", "capability", "dtype", "output", "transposes")
INTEGER_KEYS = ("m", "n", "k", *(each.name for each in fields(Configuration)))


@dataclass(frozen=True)
class CublasProfile:
    """One data file as a profile of cuBLASLt on one architecture, such as `cublaslt_13.1_sm_90`.

    `describe` takes a configuration with exactly the string keys STRING_KEYS (`dtype` and `output` are the element
    types of A and C, `transposes` is two letters, N or T, for A and B) and the integer keys INTEGER_KEYS (the shape,
    and every attribute of the algorithm configuration that the library's heuristic returned).
    """

    known: profile.Profile
    library = "cublas"
    cache_token = staticmethod(settings_token)

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        """The descriptor of what `torch.mm` runs on these tensors, for any version and architecture; see
        `ProductProfile`.
        """
        return PYTORCH_LIBRARY.product(a, b, out)

    def describe_problem(
        self, problem: GEMMProblem, *, alignment: tuple[int, int, int] = (256, 256, 256), library: str | None = None,
        device: Any = None,
    ) -> GEMMDesc | BiasedGEMM | FinishedGEMM:  # fmt: skip
        """The descriptor of what cuBLASLt runs for a problem on the current GPU; see `LockableProfile`."""
        return PYTORCH_LIBRARY.describe_problem(problem, alignment, library, device)

    def support(self, problem: GEMMProblem, *, library: str | None = None, device: Any = None) -> Support:
        """Whether the rows of a problem's descriptor were all measured; see `SupportedProfile`."""
        return PYTORCH_LIBRARY.support(problem, library, device)

    def describe_group(self, problem: GEMMProblem, *, device: Any = None) -> FinishedGEMM:
        """The descriptor of what PyTorch's own kernels compute for a group of matrices; see `GroupedProfile`."""
        return PYTORCH_LIBRARY.describe_group(problem, device)

    def provenance(self, *, library: str | None = None) -> Mapping[str, str]:
        """The cuBLASLt version, the GPU and its driver; see `LockableProfile`."""
        return PYTORCH_LIBRARY.provenance(library)

    def explain(
        self, problem: GEMMProblem, configuration: Mapping[str, Any] | None, records: Path | None = None
    ) -> Explanation:
        """The descriptor of a given algorithm configuration, without a GPU; see `ExplainableProfile`."""
        return explain(self.known, problem, configuration, records)

    @property
    def version(self) -> str:
        """Version of cuBLASLt as major.minor."""
        return self.known.key[0]

    @property
    def architecture(self) -> str:
        """The architecture's name as in descriptors."""
        return self.known.architecture

    @property
    def name(self) -> str:
        """`cublaslt_VERSION_ARCHITECTURE`."""
        return f"cublaslt_{self.known.key[0]}_{self.known.architecture}"

    def describe(self, configuration: Mapping[str, Any]) -> GEMMDesc | None:
        """See `bitwise_core.plugins.profiles.Profile`."""
        if configuration.keys() != {*STRING_KEYS, *INTEGER_KEYS}:
            return None
        words = {name: configuration[name] for name in STRING_KEYS}
        numbers = {name: configuration[name] for name in INTEGER_KEYS}
        if not all(isinstance(each, str) for each in words.values()):
            return None
        if not all(type(each) is int and each >= 0 for each in numbers.values()):
            return None
        if (words["version"], words["capability"]) != self.known.key or words["transposes"] not in _TRANSPOSES:
            return None
        a, b = _TRANSPOSES[words["transposes"]]
        m, n, k = (numbers.pop(name) for name in ("m", "n", "k"))
        try:
            query = gemm_query(m, n, k, words["dtype"], words["output"], transpose_a=a, transpose_b=b)
            return descriptor_of(query, Configuration(**numbers), self.known)
        except CublasError:
            return None


PYTORCH_LIBRARY = PyTorchLibrary()
_TRANSPOSES = {f"{a}{b}": (a == "T", b == "T") for a in "NT" for b in "NT"}


def profile_of(file: DataFile) -> CublasProfile:
    """The profile of a data file of this distribution."""
    found = {(each.key[0], each.architecture): each for each in profile.profiles().values()}
    return CublasProfile(found[file.version, file.architecture])
