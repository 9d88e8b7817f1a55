"""The tables of a library version as a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.plugins.profiles import Explanation, NotCovered
from bitwise_rocblas_profiles.describe import Stagger
from bitwise_rocblas_profiles.errors import RocblasError
from bitwise_rocblas_profiles.libraries import Answer, Library, device, libraries, transposed
from bitwise_rocblas_profiles.problem import call_of_problem
from bitwise_rocblas_profiles.versions import ARCHITECTURE

STRING_KEYS = ("version", "device", "dtype", "output", "transposes")
INTEGER_KEYS = ("m", "n", "k", "workspace")
CHOICES = ("types", "stagger")
OPTIONS = ("device", "workspace", *CHOICES)
_TRANSPOSES = {f"{a}{b}": (a == "T", b == "T") for a in "NT" for b in "NT"}


@dataclass(frozen=True)
class TensileProfile:
    """The tables of one library version as a profile, such as `rocblas_6.2_gfx942`.

    Its descriptors are derived from published parameters and not measured.  `describe` takes a configuration with
    exactly the string keys STRING_KEYS and the integer keys INTEGER_KEYS, of a row-major product, and for hipBLASLt the
    strings CHOICES: the tag of a problem type, and M or N.
    """

    library: str
    version: str
    """The library's version, as `bitwise gemm --library` takes it."""
    architecture: str = ARCHITECTURE

    @property
    def known(self) -> Library:
        """The tables, which are read when they are asked for: a plugin is loaded by every command."""
        return libraries()[self.library, self.version]

    @property
    def name(self) -> str:
        """`LIBRARY_VERSION_ARCHITECTURE`."""
        return f"{self.library}_{self.version}_{self.architecture}"

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        """Raise NotCovered: a descriptor that is derived and not measured does not stand for a library's product."""
        raise NotCovered(
            f"products of {self.library} are derived from published tables and not measured, so that no tensors are "
            f"multiplied with its bits: see bitwise gemm M N K --library {self.library}:{self.version} --arch "
            f"{ARCHITECTURE}"
        )

    def explain(
        self, problem: GEMMProblem, configuration: Mapping[str, Any] | None, records: Path | None = None
    ) -> Explanation:
        """Return what the library runs for a row-major problem; see `ExplainableProfile`.

        `configuration` may name the device, the workspace in bytes, and for hipBLASLt the problem type `types` and
        `stagger`, M or N.  Raises NotCovered.
        """
        given = dict(configuration or {})
        unknown = sorted(given.keys() - set(OPTIONS))
        if unknown:
            raise NotCovered(f"there is no option {unknown[0]}; there are {', '.join(OPTIONS)}")
        try:
            answer = self._answer(problem, given)
        except (RocblasError, DescriptorError) as error:
            raise NotCovered(str(error)) from None
        desc = transposed(answer.desc)
        return Explanation(BiasedGEMM(product=desc) if problem.epilogue == "bias" else desc, answer.notes)

    def describe(self, configuration: Mapping[str, Any]) -> GEMMDesc | None:
        """See `bitwise_core.plugins.profiles.Profile`."""
        strings = (*STRING_KEYS, *(CHOICES if self.library == "hipblaslt" else ()))
        if configuration.keys() != {*strings, *INTEGER_KEYS}:
            return None
        words = {name: configuration[name] for name in strings}
        numbers = {name: configuration[name] for name in INTEGER_KEYS}
        if not all(isinstance(each, str) for each in words.values()):
            return None
        if not all(type(each) is int and each >= 0 for each in numbers.values()):
            return None
        if words["version"] != self.version or words["transposes"] not in _TRANSPOSES:
            return None
        a, b = _TRANSPOSES[words["transposes"]]
        given = {name: configuration[name] for name in OPTIONS if name in configuration}
        try:
            problem = GEMMProblem(
                m=numbers["m"], n=numbers["n"], k=numbers["k"], a=words["dtype"], b=words["dtype"], out=words["output"],
                transpose_a=a, transpose_b=b,
            )  # fmt: skip
            return transposed(self._answer(problem, given).desc)
        except (RocblasError, DescriptorError):
            return None

    def _answer(self, problem: GEMMProblem, given: Mapping[str, Any]) -> Answer:
        workspace = given.get("workspace", self.known.workspace)
        if type(workspace) is not int:
            raise RocblasError(f"the workspace is {workspace!r}: give a number of bytes")
        types = given.get("types")
        if types is not None and not isinstance(types, str):
            raise RocblasError(f"types is {types!r}: give the name of a problem type")
        call = call_of_problem(problem, workspace)
        return self.known.answer(
            call, device(str(given.get("device", "MI300X"))), types, stagger_of(given.get("stagger"))
        )


def stagger_of(given: object) -> Stagger | None:
    """Return the choice of `stagger`.  Raises RocblasError for anything but M and N."""
    if given is None or given == "M" or given == "N":
        return given
    raise RocblasError(f"stagger is {given!r}: give M or N, the tiles that StaggerUMapping 0 counts")
