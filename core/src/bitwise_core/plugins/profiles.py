"""What a plugin hands over of a library's kernels."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from bitwise_core.descriptors import Descriptor
from bitwise_core.descriptors.problem import GEMMProblem


class Profile(Protocol):
    """What is known of the kernels of one library."""

    @property
    def name(self) -> str:
        """Its name, unique among profiles."""

    def describe(self, configuration: Mapping[str, Any]) -> Descriptor | None:
        """The descriptor whose bits the library returns in a configuration (version, architecture, algorithm, ...).

        None where it is not known: for a key that the profile does not know or does not find, and for a value that
        it has no row for.  A guess is never returned.
        """


class NotCovered(ValueError):
    """What is asked of a library has no descriptor: the message names the key, and says what is missing."""


@runtime_checkable
class ProductProfile(Profile, Protocol):
    """A profile that knows what its library does for a matrix product of tensors on a device."""

    @property
    def library(self) -> str:
        """The name that its library is asked for by; profiles of one library may share it, and answer alike."""

    def product(self, a: Any, b: Any, out: Any) -> Descriptor:
        """The descriptor of what the library runs for out[m, n] = a[m, k] b[k, n], tensors as they lie on the device.

        The types, the strides and the alignment of all three, the device and the installed library belong to the
        question.  Raises NotCovered.
        """


@runtime_checkable
class CacheableProfile(ProductProfile, Protocol):
    """A profile that says quickly whether its answer is still the same."""

    def cache_token(self, a: Any, b: Any, out: Any) -> Hashable:
        """What decides the answer of `product` beside types, shapes, strides and device.

        Where these and the mark are those of an earlier answer, `product` would give that answer again.
        """


@runtime_checkable
class LockableProfile(ProductProfile, Protocol):
    """A profile that is asked of problems without tensors, so that its answers can be written down."""

    def describe_problem(
        self, problem: GEMMProblem, *, alignment: tuple[int, int, int] = (256, 256, 256), library: str | None = None,
        device: Any = None,
    ) -> Descriptor:  # fmt: skip
        """The descriptor of what the library runs for a problem on a `torch.device`, the current one by default.

        `alignment` is what the addresses of a, b and out are multiples of, in bytes; `library` the path of one to ask
        instead of that which is loaded.  With the epilogue `bias` it is a BiasedProduct.  Raises NotCovered.
        """

    def provenance(self, *, library: str | None = None) -> Mapping[str, str]:
        """The library, its version, the device, its driver and so on, by name.  Raises NotCovered without a device."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A descriptor and where it comes from, a sentence each: the configuration's record, the rows it rests on."""

    desc: Descriptor
    notes: tuple[str, ...] = ()


@runtime_checkable
class ExplainableProfile(ProductProfile, Protocol):
    """A profile of one version on one architecture that says without a device what its library runs."""

    @property
    def version(self) -> str:
        """The library's version, as far as it decides: `13.1`."""

    @property
    def architecture(self) -> str:
        """The architecture, as descriptors name it."""

    def explain(
        self, problem: GEMMProblem, configuration: Mapping[str, Any] | None, records: Path | None = None
    ) -> Explanation:
        """The descriptor of what the library runs for a problem in an algorithm configuration, attributes by name.

        Without a configuration it is one that `records`, a folder, has of this very problem.  Raises NotCovered, with
        what is missing and how it is found out.
        """
