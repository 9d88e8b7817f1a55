"""What moved between two lock files: problems whose sums are made in another order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.probing.reconstruction.equivalence import same
from bitwise_torch.locks.lock_file import Entry, Lock

Change = Literal["moved", "same", "only in a", "only in b", "unknown"]


@dataclass(frozen=True)
class Difference:
    """A problem of two locks: `moved` where its bits may have.

    `unknown` where one of them has no descriptor, or where no plugin knows an instruction of two that differ.
    """

    problem: GEMMProblem
    change: Change
    a: Entry | None
    b: Entry | None


def differences(a: Lock, b: Lock) -> list[Difference]:
    """Every problem of either lock, those of `a` first, in order."""
    found = []
    for problem in dict.fromkeys((*a.by_problem, *b.by_problem)):
        one, other = a.by_problem.get(problem), b.by_problem.get(problem)
        found.append(Difference(problem, _change(one, other), one, other))
    return found


def _change(one: Entry | None, other: Entry | None) -> Change:
    if one is None or other is None:
        return "only in b" if one is None else "only in a"
    if one.descriptor is None or other.descriptor is None:
        return "unknown"
    if one.rounded_first != other.rounded_first:
        return "moved"
    if one.descriptor == other.descriptor:
        return "same"
    try:
        return "same" if same(one.desc, other.desc, registry.default().matrix_units) else "moved"
    except DescriptorError:
        return "unknown"
