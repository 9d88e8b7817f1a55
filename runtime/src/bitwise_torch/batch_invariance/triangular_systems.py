"""torch.linalg.solve_triangular by substitution, in an order that no number of systems and of right sides changes.

An unknown that is known is multiplied by its column and subtracted from the right side, unknown after unknown, in
fp32: each number is rounded like that of the element-wise operators that do it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bitwise_torch.batch_invariance.row_operators import NotServed, check_floats, result_into

if TYPE_CHECKING:
    import torch


def _solve_triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Any = None
) -> Any:
    import torch

    check_floats(a, b)
    if a.dtype != torch.float32 or b.dtype != torch.float32:
        raise NotServed(f"a system of {a.dtype} and {b.dtype}; fp32 is served")
    if not left:  # x a = b
        found = _substituted(a.transpose(-2, -1), b.transpose(-2, -1), not upper, unitriangular).transpose(-2, -1)
    else:
        found = _substituted(a, b, upper, unitriangular)
    return result_into(found.contiguous(), out)


def _substituted(a: torch.Tensor, b: torch.Tensor, upper: bool, unitriangular: bool) -> torch.Tensor:
    """Return the x[..., n, k] with a x = b, for a[..., n, n] of which one triangle is read."""
    import torch

    size, shape = int(a.shape[-1]), torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rest = b.expand(*shape, *b.shape[-2:]).clone()
    for place in reversed(range(size)) if upper else range(size):
        known = rest[..., place : place + 1, :]
        if not unitriangular:
            known.div_(a[..., place : place + 1, place : place + 1])
        others = slice(0, place) if upper else slice(place + 1, size)
        # Two operators: one that multiplies and subtracts may round once on some devices.
        rest[..., others, :] -= a[..., others, place : place + 1] * known
    return rest


SYSTEMS: dict[str, Callable[..., Any]] = {"linalg_solve_triangular": _solve_triangular}
"""By the name of an operator in the namespace `aten`: the function that computes all of its overloads."""
