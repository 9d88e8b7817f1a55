"""Launchers: the interface of plugins that run descriptors on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from bitwise_core.descriptors import Epilogue, GEMMDesc, Record
from bitwise_core.descriptors.evaluation import Formulas
from bitwise_core.descriptors.problem import FinishedGEMM
from bitwise_core.numerics import Bits

ProductLaunch: TypeAlias = Callable[[int, int, int], None]
"""A prepared product: a function of the addresses of a, b and out; see `PreparingLauncher.prepare`."""

EpilogueLaunch: TypeAlias = Callable[..., None]
"""A prepared product with an epilogue: a function of the addresses of a, b, out and the epilogue's operands."""


class Launcher(Protocol):
    """Runs descriptors on one kind of device."""

    @property
    def name(self) -> str:
        """Its name, unique among launchers."""

    def missing(self) -> str | None:
        """Return what this machine lacks to run it, as the end of a sentence; None where it can run."""

    def launch(self, desc: Record, *operands: Bits) -> Bits:
        """Run a descriptor on the device and return the output's bit patterns, those of `evaluate(desc, *operands)`.

        Raises DescriptorError for a descriptor that it does not support.
        """


@runtime_checkable
class ProductLauncher(Launcher, Protocol):
    """A launcher that computes matrix products of tensors on its device."""

    def serves(self, desc: Record, device: Any) -> bool:
        """Return whether it supports this descriptor on this device, a `torch.device`."""

    def product(self, desc: Record, a: Any, b: Any, out: Any) -> None:
        """Compute out = a b with the bits of the descriptor, on the device's current stream.

        Raises DescriptorError for a descriptor that it does not support.
        """


@runtime_checkable
class PreparingLauncher(ProductLauncher, Protocol):
    """A launcher that prepares a product once and repeats it at little cost."""

    def prepare(self, desc: Record, a: Any, b: Any, out: Any) -> ProductLaunch:
        """Compute out = a b as `product` does, and return a function that computes it for other tensors.

        The function takes the addresses of a, b and out.  Their types, shapes, strides and device must be those of this
        call, and each address must be a multiple of the same powers of two up to 256.  It launches on the device's
        current stream, from any thread, also from several at once.  It keeps no tensor alive.
        """


@runtime_checkable
class TunableLauncher(ProductLauncher, Protocol):
    """A launcher with several kernel configurations for a descriptor, all of the same bits."""

    def tune(self, desc: Record, a: Any, b: Any, out: Any, path: Path | None, most: int) -> tuple[str, float]:
        """Measure at most `most` kernel configurations for out = a b, and use the fastest one from now on.

        Return its name and the time of a launch in seconds.  It is stored in the file `path`, or in the launcher's
        default file.  `out` is overwritten.  Raises DescriptorError for a descriptor that it does not support, and
        RuntimeError where two configurations return different bytes.
        """


@runtime_checkable
class EpilogueLauncher(PreparingLauncher, Protocol):
    """A launcher that computes products with an epilogue in the kernels that store them."""

    @property
    def formulas(self) -> Formulas:
        """The activation functions of its epilogues."""

    def prepare_epilogue(
        self, desc: Record, epilogue: Epilogue, a: Any, b: Any, operands: Sequence[Any], out: Any
    ) -> EpilogueLaunch:
        """Compute out = epilogue(a b, operands), and return a function that computes it for other tensors.

        The function is that of `prepare`, with the addresses of the operands after that of out.  Raises DescriptorError
        for a descriptor or an epilogue that it does not support, or where separate kernels are expected to be faster.
        """

    def apply_epilogue(self, epilogue: Epilogue, x: Any, operands: Sequence[Any], out: Any) -> None:
        """Compute out = epilogue(x, operands) for a matrix x in place of a product.

        Raises DescriptorError for an epilogue that it does not support.
        """


@runtime_checkable
class BlockScalingLauncher(ProductLauncher, Protocol):
    """A launcher that computes products whose blocks of k have scales."""

    def prepare_scaled(
        self, desc: FinishedGEMM, a: Any, b: Any, scales_a: Any, scales_b: Any, out: Any
    ) -> EpilogueLaunch:
        """Compute the sums of a b that `desc.block_scaling` describes, rounded to the type of out.

        The scales are those of `FinishedGEMM`, with any strides; instead of a row of scales for each row of A, or a
        column for each column of B, there may be one for each BLOCK_K of them.  Return a function that computes the
        sums of other tensors: that of `prepare`, with the addresses of the scales after that of out.  Raises
        DescriptorError for a description that it does not support.
        """


@runtime_checkable
class SequentialLauncher(ProductLauncher, Protocol):
    """A launcher with one order for the products of any number of rows, and kernels for many products at once."""

    def sequential(
        self, k: int, left: str, right: str, output: str, *, rounded: bool = False, one_accumulator: bool = True
    ) -> GEMMDesc:
        """Return the descriptor of the sum over k that is fast for any number of rows, of which it is no function.

        `left`, `right` and `output` name types.  With `rounded`, operands of fp32 may be rounded for a matrix unit.
        Without `one_accumulator`, sums of narrow types are collected in several accumulators.  Raises DescriptorError
        for types that it does not multiply.
        """

    def batched_product(self, desc: Record, a: Any, b: Any, out: Any) -> EpilogueLaunch:
        """Compute out[i] = a[i] b[i] for tensors of 3 axes with any strides, and return a function that repeats it.

        The function is that of `PreparingLauncher.prepare`.  Raises DescriptorError for a descriptor that it does not
        support.
        """

    def grouped_product(self, desc: Record, a: Any, b: Any, ends: Any, out: Any) -> EpilogueLaunch:
        """Compute the products of groups, whose bounds are read on the device, and return a function that repeats it.

        The function is that of `PreparingLauncher.prepare`, of the addresses of a, b, ends and out.

        `ends` holds the end of each group, int32, ascending.  A group is a range of the rows of a 2-axis `a`, which its
        matrix of a 3-axis `b` multiplies; or a range of k where both have 2 axes, with a matrix of `out` for each.
        `desc` gives types and order for any k.  Rows outside of the groups become 0.  Raises DescriptorError.
        """
