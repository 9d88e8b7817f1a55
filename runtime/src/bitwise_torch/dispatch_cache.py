"""A cache of the products that ran: the checks and look-ups of one call hold for later calls of the same key.

The key holds types, shapes, strides and device.  Everything else is checked in every call: whether the output overlaps
an operand, gradients, negated views, and whether the profile's answer is unchanged.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.plugins import registry
from bitwise_core.plugins.launchers import ProductLauncher
from bitwise_core.plugins.profiles import ProductProfile

if TYPE_CHECKING:
    import torch

CAPACITY = 4096
"""The maximum number of calls; a full cache is emptied."""

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CachedCall:
    """A call that ran.

    `given_desc` is the `desc` argument of the call: the key holds its id, so it must stay alive.  `profile` is None for
    a call with a descriptor.  `extents` are the distances in bytes from the first to the last byte of a, b and out.
    `cache_token` is that of a CacheableProfile.
    """

    registry: registry.Registry
    given_desc: GEMMDesc | str | None
    profile: ProductProfile | None
    desc: GEMMDesc
    launcher: ProductLauncher
    shape: tuple[int, int]
    dtype: Any
    extents: tuple[int, int, int]
    cache_token: Hashable = None


_calls: dict[Key, CachedCall] = {}


def key_of(a: Any, b: Any, desc: GEMMDesc | str | None, like: str | None, out_dtype: Any, out: Any) -> Key | None:
    """Return the key of a call's arguments; None where an argument is not a strided tensor."""
    try:
        key = (
            type(a), a.dtype, a.device, a.shape, a.stride(), type(b), b.dtype, b.device, b.shape, b.stride(),
            desc if isinstance(desc, str) else id(desc), like, out_dtype,
        )  # fmt: skip
        return key if out is None else (*key, type(out), out.dtype, out.device, out.shape, out.stride())
    except (AttributeError, RuntimeError, TypeError):
        return None


def store(key: Key, call: CachedCall) -> None:
    """Add a call that ran to the cache."""
    if len(_calls) >= CAPACITY:
        _calls.clear()
    _calls[key] = call


def cached_product(
    key: Key, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, warned: set[str]
) -> torch.Tensor | None:
    """Run a product by its cached call, and return it; None where the call is not cached or must be checked in full.

    `warned` holds the libraries whose dropped values of k were already warned of.  Raises what the profile and the
    launcher raise.
    """
    call = _calls.get(key)
    if call is None or call.registry is not registry.default():
        return None
    if a.requires_grad or b.requires_grad or a.is_neg() or b.is_neg():
        return None
    if out is None:
        import torch

        out = torch.empty(call.shape, dtype=call.dtype, device=a.device)
    else:
        if out.requires_grad or out.is_neg():
            return None
        extent_a, extent_b, extent = call.extents
        start, start_a, start_b = out.data_ptr(), a.data_ptr(), b.data_ptr()
        if (start < start_a + extent_a and start_a < start + extent) or (
            start < start_b + extent_b and start_b < start + extent
        ):
            return None
    if call.profile is not None:
        if call.cache_token is not None:  # only a CacheableProfile has one; an isinstance check would cost microseconds
            unchanged = call.profile.cache_token(a, b, out) == call.cache_token  # type: ignore[attr-defined]
        else:
            unchanged = call.profile.product(a, b, out) is call.desc
        if not unchanged or (call.desc.k_dropped and call.profile.library not in warned):
            return None
    call.launcher.product(call.desc, a, b, out)
    return out
