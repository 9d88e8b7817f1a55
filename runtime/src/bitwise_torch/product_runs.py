"""Products that run: what a library computes, by whom a descriptor is run, and its evaluation on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_core.plugins.launchers import PreparingLauncher, ProductLaunch, ProductLauncher
from bitwise_core.plugins.profiles import CacheableProfile, NotCovered, ProductProfile
from bitwise_torch.library_profiles import no_launcher, product_profile
from bitwise_torch.product_arguments import ProductError, check_types

if TYPE_CHECKING:
    import torch

warned_libraries: set[str] = set()
"""The libraries of which a product omitted values of k in this process."""


class DroppedWarning(UserWarning):
    """The library whose bits are returned omits the last values of k from the sum."""


@dataclass(frozen=True, slots=True)
class RanProduct:
    """A product that a launcher ran.

    `profile` is None for a product by a descriptor, `launch` for a launcher that does not prepare products.
    `cache_token` is that of a CacheableProfile before it described the product.
    """

    profile: ProductProfile | None
    desc: GEMMDesc
    launcher: ProductLauncher
    launch: ProductLaunch | None
    cache_token: Hashable


def run_product(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, desc: GEMMDesc | None, like: str | None
) -> RanProduct | None:
    """Compute out = a b for checked operands by `desc`, or by `like` where `desc` is None.

    Return None for operands on the CPU.  Raises what `matmul` raises.
    """
    profile, token = None, None
    if desc is None:
        assert like is not None
        profile = product_profile(like, ProductError)
        token = profile.cache_token() if isinstance(profile, CacheableProfile) else None
        desc = described(profile, a, b, out)
        if desc.k_dropped and like not in warned_libraries:
            warned_libraries.add(like)
            warnings.warn(
                f"{like} omits the last {desc.k_dropped} of {desc.k} values of k from this sum, and this product "
                "reproduces that; later products that omit values cause no warning",
                DroppedWarning,
                stacklevel=3,
            )
    check_types(desc, a, b, out)
    for name, each in (("a", a), ("b", b), ("out", out)):
        if each.is_neg():
            raise ProductError(f"{name} is a lazily negated view; give {name}.resolve_neg()")
    if on_cpu(a):
        _evaluate_on_cpu(desc, a, b, out)
        return None
    for launcher in registry.default().launchers:
        if isinstance(launcher, ProductLauncher) and launcher.serves(desc, a.device):
            if isinstance(launcher, PreparingLauncher):
                return RanProduct(profile, desc, launcher, launcher.prepare(desc, a, b, out), token)
            launcher.product(desc, a, b, out)
            return RanProduct(profile, desc, launcher, None, token)
    raise ProductError(no_launcher(desc, a.device))


def descriptor_of(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, like: str) -> GEMMDesc:
    """Return the descriptor of what a library runs for checked operands; see `describe`."""
    return described(product_profile(like, ProductError), a, b, out)


def described(profile: ProductProfile, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> GEMMDesc:
    """Return the descriptor of what a library of a profile runs for checked operands.  Raises NotCovered."""
    desc = profile.product(a, b, out)
    if not isinstance(desc, GEMMDesc):
        raise NotCovered(f"{profile.library} computes this product as a {type(desc).__name__}; matmul runs a GEMMDesc")
    return desc


@lru_cache(maxsize=65536)
def parse_descriptor(text: str) -> GEMMDesc:
    """Return the descriptor of a text; the result is cached.  Raises DescriptorError."""
    return GEMMDesc.from_text(text)


def on_cpu(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is on the CPU, where products are evaluated."""
    return bool(tensor.device.type == "cpu")


def _evaluate_on_cpu(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Compute out = a b for operands on the CPU by evaluating the descriptor on bit patterns."""
    import torch

    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

    def patterns(matrix: torch.Tensor) -> Any:
        found = matrix.detach().contiguous().view(integers[matrix.element_size()]).numpy()
        return found.view(f"u{matrix.element_size()}")

    result = evaluate(desc, patterns(a), patterns(b))
    size = out.element_size()
    bits = torch.from_numpy(result.view("u1" if size == 1 else f"i{size}")).view(out.dtype)
    out.detach().copy_(bits)
