"""What this distribution hands over: a profile for every data file."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.hookspecs import hookimpl
from bitwise_core.problems import BiasedProduct, Problem
from bitwise_core.profiles import Explanation, Profile
from bitwise_cublas_profiles import profile
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.explained import explained
from bitwise_cublas_profiles.loaded import Loaded
from bitwise_cublas_profiles.question import Configuration, CublasError, question

WORDS = ("version", "capability", "dtype", "output", "transposes")
NUMBERS = ("m", "n", "k", *(each.name for each in fields(Configuration)))


@dataclass(frozen=True)
class Described:
    """A data file as a profile of cuBLASLt on one architecture, `cublaslt_13.1_sm_90`.

    It is asked by exactly these keys: the words of WORDS (`dtype` and `output` name the types of A and C, `transposes`
    is two letters, N or T, for A and B) and the numbers of NUMBERS: the shape, and every attribute of the algorithm
    configuration that the library's heuristic answered with.
    """

    known: profile.Profile
    library = "cublas"

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        """The descriptor of what torch.mm runs, whatever its version and architecture; see `ProductProfile`."""
        return LOADED.product(a, b, out)

    def mark(self, a: Any, b: Any, out: Any) -> Hashable:
        """See `bitwise_core.profiles.MarkedProfile`."""
        return LOADED.mark(a, b, out)

    def answered(
        self, problem: Problem, *, alignment: tuple[int, int, int] = (256, 256, 256), library: str | None = None,
        device: Any = None,
    ) -> GEMMDesc | BiasedProduct:  # fmt: skip
        """The descriptor of what cuBLASLt runs for a problem on a GPU; see `LockableProfile`."""
        return LOADED.answered(problem, alignment, library, device)

    def provenance(self, *, library: str | None = None) -> Mapping[str, str]:
        """cuBLASLt's version, the GPU and its driver; see `LockableProfile`."""
        return LOADED.provenance(library)

    def explained(
        self, problem: Problem, configuration: Mapping[str, Any] | None, records: Path | None = None
    ) -> Explanation:
        """The descriptor in an algorithm configuration, without a GPU; see `ExplainableProfile`."""
        return explained(self.known, problem, configuration, records)

    @property
    def version(self) -> str:
        """cuBLASLt's major.minor."""
        return self.known.key[0]

    @property
    def architecture(self) -> str:
        """The architecture as descriptors name it."""
        return self.known.architecture

    @property
    def name(self) -> str:
        """The library's version and the architecture."""
        return f"cublaslt_{self.known.key[0]}_{self.known.architecture}"

    def describe(self, configuration: Mapping[str, Any]) -> GEMMDesc | None:
        """See `bitwise_core.profiles.Profile`."""
        if configuration.keys() != {*WORDS, *NUMBERS}:
            return None
        words = {name: configuration[name] for name in WORDS}
        numbers = {name: configuration[name] for name in NUMBERS}
        if not all(isinstance(each, str) for each in words.values()):
            return None
        if not all(type(each) is int and each >= 0 for each in numbers.values()):
            return None
        if (words["version"], words["capability"]) != self.known.key or words["transposes"] not in _LETTERS:
            return None
        a, b = _LETTERS[words["transposes"]]
        m, n, k = (numbers.pop(name) for name in ("m", "n", "k"))
        try:
            asked = question(m, n, k, words["dtype"], words["output"], transpose_a=a, transpose_b=b)
            return descriptor_of(asked, Configuration(**numbers), self.known)
        except CublasError:
            return None


LOADED = Loaded()
_LETTERS = {f"{a}{b}": (a == "T", b == "T") for a in "NT" for b in "NT"}


@hookimpl
def bitwise_profiles() -> Iterable[Profile]:
    """What is known of cuBLASLt, by version and architecture."""
    return [Described(each) for each in profile.profiles().values()]
