"""Library profiles: the interface of plugins that describe the kernels of a library."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from bitwise_core.descriptors import Descriptor
from bitwise_core.descriptors.problem import BiasedGEMM, FinishedGEMM, GEMMProblem


class Profile(Protocol):
    """The descriptors of one library's kernels."""

    @property
    def name(self) -> str:
        """Its name, unique among profiles."""

    def describe(self, configuration: Mapping[str, Any]) -> Descriptor | None:
        """Return the descriptor whose bits the library returns in a configuration (version, architecture, ...).

        None where it is not known: for a missing or unknown key, and for a value that was not measured.  A guess is
        never returned.
        """


class NotCovered(ValueError):
    """A product of a library without a descriptor; the message names the product's key and what is missing."""


@runtime_checkable
class ProductProfile(Profile, Protocol):
    """A profile that describes its library's matrix products of tensors on a device."""

    @property
    def library(self) -> str:
        """The library's name; several profiles of one library have the same name and return the same descriptors."""

    def product(self, a: Any, b: Any, out: Any) -> Descriptor:
        """Return the descriptor of what the library runs for out[m, n] = a[m, k] b[k, n] with these tensors.

        It depends on the types, shapes, strides and alignment of all three, the device and the installed library.
        Raises NotCovered.
        """


@runtime_checkable
class CacheableProfile(ProductProfile, Protocol):
    """A profile whose descriptors may be cached."""

    def cache_token(self) -> Hashable:
        """Return a token of everything except the tensors that determines `product`, such as a library's settings.

        Two calls have the same descriptor if the token and, of each tensor, the type, shape, strides, device and the
        largest power of two up to 256 that divides the address are the same.
        """


@runtime_checkable
class LockableProfile(ProductProfile, Protocol):
    """A profile that describes problems without tensors, so that their descriptors can be locked."""

    def describe_problem(
        self, problem: GEMMProblem, *, alignment: tuple[int, int, int] = (256, 256, 256), library: str | None = None,
        device: Any = None,
    ) -> Descriptor:  # fmt: skip
        """Return the descriptor of what the library runs for a problem on a `torch.device`, by default the current one.

        `alignment` is the alignment of the addresses of a, b and out in bytes.  `library` is the path of the library
        to query, by default the loaded one.  With the epilogue `bias` the result is a BiasedGEMM, with a finish a
        FinishedGEMM.  Raises NotCovered.
        """

    def provenance(self, *, library: str | None = None) -> Mapping[str, str]:
        """Return the library, its version, the device, its driver and so on, by name.

        Raises NotCovered without a device.
        """


Support: TypeAlias = Literal["measured", "published"]
"""Whether a descriptor rests on measurements alone, or also on published statements that were not measured."""


@runtime_checkable
class SupportedProfile(LockableProfile, Protocol):
    """A profile that states what a problem's descriptor rests on."""

    def support(self, problem: GEMMProblem, *, library: str | None = None, device: Any = None) -> Support:
        """Return the support of the descriptor that `describe_problem` returns with these arguments.

        Raises NotCovered.
        """


@runtime_checkable
class GroupedProfile(ProductProfile, Protocol):
    """A profile that describes products of groups of matrices."""

    def describe_group(self, problem: GEMMProblem, *, device: Any = None) -> FinishedGEMM:
        """Return what the library computes for the product of one group on a `torch.device`.

        It depends on k, the types and the finish of the problem only.  Of scales, those of the rows are the first
        operand of the steps, and those of the columns the second.  Raises NotCovered.
        """


@dataclass(frozen=True, slots=True)
class Explanation:
    """A descriptor and its provenance as sentences: the record of the configuration, the measured rows.

    `desc` is a BiasedGEMM for a problem with the epilogue `bias`.
    """

    desc: Descriptor | BiasedGEMM
    notes: tuple[str, ...] = ()


@runtime_checkable
class ExplainableProfile(ProductProfile, Protocol):
    """A profile of one library version on one architecture that needs no device."""

    @property
    def version(self) -> str:
        """The part of the library's version that determines its kernels, such as `13.1`."""

    @property
    def architecture(self) -> str:
        """The name of the architecture in descriptors."""

    def explain(
        self, problem: GEMMProblem, configuration: Mapping[str, Any] | None, records: Path | None = None
    ) -> Explanation:
        """Return the descriptor of what the library runs for a problem in an algorithm configuration.

        `configuration` maps attributes to values; without it, a recorded one of this problem from the folder `records`
        is used.  Raises NotCovered; the message says what is missing and how to measure it.
        """
