"""Products like an earlier one: what its checks and searches found holds for the same types, strides and device.

What these do not decide is looked at in every call: where the memory lies, gradients, negated views, and what the
profile answers.
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

KEPT = 4096
"""Calls kept of one process; where there are more, all are forgotten."""

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Earlier:
    """A call that ran: `asked` is the descriptor given, held so that its id names it.

    `lengths` are the bytes from the first of a matrix to behind its last, of a, b and out; `mark` is the profile's,
    None where it gives none.
    """

    registry: registry.Registry
    asked: GEMMDesc | str | None
    profile: ProductProfile | None
    desc: GEMMDesc
    launcher: ProductLauncher
    shape: tuple[int, int]
    dtype: Any
    lengths: tuple[int, int, int]
    mark: Hashable = None


_kept: dict[Key, Earlier] = {}


def key_of(a: Any, b: Any, desc: GEMMDesc | str | None, like: str | None, out_dtype: Any, out: Any) -> Key | None:
    """What decides the checks of a call; None for what is no tensor of strides."""
    try:
        found = (
            type(a), a.dtype, a.device, a.shape, a.stride(), type(b), b.dtype, b.device, b.shape, b.stride(),
            desc if isinstance(desc, str) else id(desc), like, out_dtype,
        )  # fmt: skip
        return found if out is None else (*found, type(out), out.dtype, out.device, out.shape, out.stride())
    except (AttributeError, RuntimeError, TypeError):
        return None


def keep(key: Key, earlier: Earlier) -> None:
    """Remembers a call that ran."""
    if len(_kept) >= KEPT:
        _kept.clear()
    _kept[key] = earlier


def again(key: Key, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, told: set[str]) -> torch.Tensor | None:
    """The product, where an earlier call shows that nothing is to be refused or told; None where all is to be checked.

    `told` has the libraries whose dropped values were warned of.  Raises what the profile and the launcher raise.
    """
    earlier = _kept.get(key)
    if earlier is None or earlier.registry is not registry.default():
        return None
    if a.requires_grad or b.requires_grad or a.is_neg() or b.is_neg():
        return None
    if out is None:
        import torch

        out = torch.empty(earlier.shape, dtype=earlier.dtype, device=a.device)
    else:
        if out.requires_grad or out.is_neg():
            return None
        length_a, length_b, length = earlier.lengths
        start, start_a, start_b = out.data_ptr(), a.data_ptr(), b.data_ptr()
        if (start < start_a + length_a and start_a < start + length) or (
            start < start_b + length_b and start_b < start + length
        ):
            return None
    if earlier.profile is not None:
        if earlier.mark is not None:
            same = earlier.profile.mark(a, b, out) == earlier.mark  # type: ignore[attr-defined]
        else:
            same = earlier.profile.product(a, b, out) is earlier.desc
        if not same or (earlier.desc.k_dropped and earlier.profile.library not in told):
            return None
    earlier.launcher.product(earlier.desc, a, b, out)
    return out
