"""A cache of the products that ran: the checks and look-ups of one call hold for later calls of the same key.

The key holds types, shapes, strides, devices and the alignments of the addresses.  Everything else is checked in every
call: whether the output overlaps an operand, gradients, negated views, and whether the profile's answer is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.plugins import registry
from bitwise_core.plugins.launchers import ProductLaunch, ProductLauncher
from bitwise_core.plugins.profiles import ProductProfile

if TYPE_CHECKING:
    import torch

    from bitwise_torch.locks import Lock

CAPACITY = 4096
"""The maximum number of calls; a full cache is emptied."""


Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CachedCall:
    """A call that ran.

    `given` are the `desc` and `lock` arguments of the call: the key holds their ids, so they must stay alive.
    `profile` is None for a call without `like`; `cache_token` is that of a CacheableProfile.  `launch` is the prepared
    product of a PreparingLauncher.  `extents` are the distances in bytes from the first to the last byte of a, b and
    out.  `allocate` is that of `output_allocator`.  `alignment` is the largest power of two below 256 that divides the
    output's address, 0 for larger ones.  `drops` says that the descriptor omits values of k.
    """

    registry: registry.Registry
    given: tuple[GEMMDesc | str | None, Lock | None]
    profile: ProductProfile | None
    desc: GEMMDesc
    launcher: ProductLauncher
    launch: ProductLaunch | None
    allocate: Callable[[Any], Any]
    extents: tuple[int, int, int]
    alignment: int
    cache_token: Hashable = None
    drops: bool = False


_calls: dict[Key, CachedCall] = {}


def store(key: Key, call: CachedCall) -> None:
    """Add a call that ran to the cache."""
    if len(_calls) >= CAPACITY:
        _calls.clear()
    _calls[key] = call


def known_call(key: Key) -> CachedCall | None:
    """Return the cached call of a key."""
    return _calls.get(key)


def clear() -> None:
    """Empty the cache, so that the next calls ask the launchers again."""
    _calls.clear()


def call_key(
    a: Any, b: Any, desc: Any = None, like: Any = None, lock: Any = None, out_dtype: Any = None, out: Any = None
) -> Key:
    """Return the key of a call of `matmul`.  Raises AttributeError, RuntimeError or TypeError for other arguments."""
    at_out = 0 if out is None else out.data_ptr()
    return _key(a, a.data_ptr(), b, b.data_ptr(), desc, like, lock, out_dtype, out, at_out)


def _key(
    a: Any, at_a: int, b: Any, at_b: int, desc: Any, like: Any, lock: Any, out_dtype: Any, out: Any, at_out: int
) -> Key:
    """Return the key of a call whose operands have these addresses.

    `get_device` takes half the time of `device`, and tells GPUs apart, whose calls alone are cached.
    """
    if out is None:
        return (
            type(a), a.dtype, a.get_device(), a.shape, a.stride(), at_a & -at_a & 255,
            type(b), b.dtype, b.get_device(), b.shape, b.stride(), at_b & -at_b & 255,
            desc if type(desc) is str else id(desc), like, id(lock), out_dtype,
        )  # fmt: skip
    return (
        type(a), a.dtype, a.get_device(), a.shape, a.stride(), at_a & -at_a & 255,
        type(b), b.dtype, b.get_device(), b.shape, b.stride(), at_b & -at_b & 255,
        desc if type(desc) is str else id(desc), like, id(lock), out_dtype,
        type(out), out.dtype, out.get_device(), out.shape, out.stride(), at_out & -at_out & 255,
    )  # fmt: skip


def repeated_product(
    a: Any, b: Any, desc: Any, like: Any, lock: Any, out_dtype: Any, out: Any, warned: set[str]
) -> tuple[torch.Tensor | None, Key | None]:
    """Run a product by its cached call; return it, and the key of the call.

    The arguments are those of `matmul`, of any type.  The product is None where the call is not cached or must be
    checked in full.  The key is None for arguments that are not strided tensors with memory.  `warned` holds the
    libraries whose dropped values of k were already warned of.  Raises what the profile and the launcher raise.
    """
    key: Key | None = None
    try:
        at_a, at_b, at_out = a.data_ptr(), b.data_ptr(), 0 if out is None else out.data_ptr()
        key = _key(a, at_a, b, at_b, desc, like, lock, out_dtype, out, at_out)
        call = _calls.get(key)
    except (AttributeError, RuntimeError, TypeError):  # not such a tensor, or an argument that is not hashable
        return None, None
    if call is None or call.registry is not registry.default() or a.is_neg() or b.is_neg():
        return None, key
    if (a.requires_grad or b.requires_grad or (out is not None and out.requires_grad)) and gradients_enabled():
        return None, key
    if out is None:
        out = call.allocate(a)
        at_out = out.data_ptr()
        if at_out & -at_out & 255 != call.alignment:
            return None, key
    else:
        if out.is_neg():
            return None, key
        extent_a, extent_b, extent = call.extents
        if (at_out < at_a + extent_a and at_a < at_out + extent) or (
            at_out < at_b + extent_b and at_b < at_out + extent
        ):
            return None, key
    if call.profile is not None:
        if call.cache_token is not None:  # only a CacheableProfile has one; an isinstance check would cost microseconds
            unchanged = call.profile.cache_token() == call.cache_token  # type: ignore[attr-defined]
        else:
            unchanged = call.profile.product(a, b, out) is call.desc
        if not unchanged or (call.drops and call.profile.library not in warned):
            return None, key
    if call.launch is not None:
        call.launch(at_a, at_b, at_out)
    else:
        call.launcher.product(call.desc, a, b, out)
    return out, key


def output_allocator(out: torch.Tensor) -> Callable[[Any], Any]:
    """Return a function of an operand that returns new memory as a tensor of the shape, axes and type of `out`.

    `out` is dense, its axes in any order.  On the current GPU it calls what code of Inductor calls, at half the cost of
    `new_empty`.
    """
    import torch

    shape, strides, dtype, index = *_dense_layout(out), out.dtype, out.device.index
    memory = gpu_memory_of(out)
    current_device = getattr(torch._C, "_cuda_getDevice", None)
    if memory is None or current_device is None:
        return lambda operand: operand.new_empty_strided(shape, strides, dtype=dtype)
    empty = memory[0]

    def allocate(operand: Any) -> Any:
        if current_device() == index:
            return empty(shape, strides, dtype)
        return operand.new_empty_strided(shape, strides, dtype=dtype)

    return allocate


def gpu_memory_of(out: torch.Tensor) -> tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], Any] | None:
    """Return a function that allocates memory like that of a dense `out` on the current GPU, and its three arguments.

    Return None where `out` is not on a GPU, or PyTorch has no such function.
    """
    import torch

    empty = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "_empty_strided_cuda", None)
    return None if out.device.type != "cuda" or empty is None else (empty, *_dense_layout(out), out.dtype)


def _dense_layout(out: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and the strides of new memory for a dense tensor."""
    import torch

    like = torch.empty(out.shape, device="meta") if out.is_contiguous() else out
    return tuple(map(int, out.shape)), tuple(map(int, like.stride()))


def gradients_enabled() -> bool:
    """Return whether PyTorch records operations for gradients."""
    import torch

    return bool(torch.is_grad_enabled())
