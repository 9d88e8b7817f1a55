"""The difference of two lock files: problems whose sums are computed in another order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.probing.reconstruction.equivalence import same_computation
from bitwise_torch.locks.lock_file import Entry, Lock

Change = Literal["moved", "same", "only in a", "only in b", "unknown"]


@dataclass(frozen=True)
class Difference:
    """A problem of two locks with its entry in each.

    `change` is `moved` where the two descriptors compute differently, so that the bits may differ, and `unknown` where
    an entry has no descriptor, or where the descriptors differ and no plugin has a matrix unit of theirs.
    """

    problem: GEMMProblem
    change: Change
    a: Entry | None
    b: Entry | None


def differences(a: Lock, b: Lock) -> list[Difference]:
    """Return a difference for every problem of either lock: the problems of `a` in order, then the others of `b`."""
    result = []
    for problem in dict.fromkeys((*a.by_problem, *b.by_problem)):
        entry_a, entry_b = a.by_problem.get(problem), b.by_problem.get(problem)
        result.append(Difference(problem, _change(entry_a, entry_b), entry_a, entry_b))
    return result


def _change(a: Entry | None, b: Entry | None) -> Change:
    if a is None or b is None:
        return "only in b" if a is None else "only in a"
    if a.descriptor is None or b.descriptor is None:
        return "unknown"
    if any(
        getattr(a, name) != getattr(b, name) for name in ("rounded_first", "steps", "scaled", "scale", "block_scaling")
    ):
        return "moved"
    if a.descriptor == b.descriptor:
        return "same"
    try:
        return "same" if same_computation(a.desc, b.desc, registry.default().matrix_units) else "moved"
    except DescriptorError:
        return "unknown"
