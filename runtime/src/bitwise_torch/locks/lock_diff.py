"""The difference of two lock files: problems whose sums are computed in another order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.probing.reconstruction.equivalence import same_computation
from bitwise_torch.locks.lock_file import Entry, Lock

MAXIMUM_STEPS = 1 << 18
"""The most instructions of one output element whose order is compared with another one; it takes a second."""

Change = Literal["moved", "same", "only in a", "only in b", "unknown"]


@dataclass(frozen=True)
class Difference:
    """A problem of two locks with its entry in each.

    `change` is `moved` where the two descriptors compute differently, so that the bits may differ, and `unknown` where
    an entry has no descriptor, or where the descriptors differ, and no plugin has a matrix unit of theirs or one of
    them has more than MAXIMUM_STEPS instructions for an output element.
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


@dataclass(frozen=True)
class AttentionDifference:
    """Attention that two locks do not pin in one way."""

    sentence: str
    change: Literal["moved", "only in a", "only in b"]


def attention_differences(a: Lock, b: Lock) -> list[AttentionDifference]:
    """Return the differences of pinned attention; attention of a library has moved where the other lock pins it."""
    if (a.attention is None) != (b.attention is None):
        pinned, other = ("b", "a") if a.attention is None else ("a", "b")
        return [AttentionDifference(f"attention is pinned in {pinned} and the library's own in {other}", "moved")]
    found = []
    for heads in dict.fromkeys((*a.by_heads, *b.by_heads)):
        one, other_one = a.by_heads.get(heads), b.by_heads.get(heads)
        if one is None or other_one is None:
            side: Literal["only in a", "only in b"] = "only in b" if one is None else "only in a"
            found.append(AttentionDifference(f"{(one or b.by_heads[heads]).words}: {side}", side))
        elif one != other_one:
            sentence = f"{one.words}: moved\n  a: {one.text}\n  b: {other_one.text}"
            found.append(AttentionDifference(sentence, "moved"))
    return found


def _change(a: Entry | None, b: Entry | None) -> Change:
    if a is None or b is None:
        return "only in b" if a is None else "only in a"
    if a.descriptor is None or b.descriptor is None:
        return "unknown"
    fields = ("rounded_first", "steps", "scaled", "scale", "block_scaling", "onto_addend")
    if any(getattr(a, name) != getattr(b, name) for name in fields):
        return "moved"
    if a.descriptor == b.descriptor:
        return "same"
    if any(each.desc.k > MAXIMUM_STEPS * each.desc.instruction_k for each in (a, b)):
        return "unknown"
    try:
        return "same" if same_computation(a.desc, b.desc, registry.default().matrix_units) else "moved"
    except DescriptorError:
        return "unknown"
