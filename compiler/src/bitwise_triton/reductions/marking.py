"""What a marked reduction says of itself: its combine, its axis and its steps; and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitwise_triton.reductions.order import Order, Pair
from bitwise_triton.reductions.placement import Plan

if TYPE_CHECKING:
    from bitwise_core.descriptors import ReductionDesc

_WORD = "pinned_reduction"


@dataclass(frozen=True)
class Mark:
    """A reduction to be made later: its kind, as `kernels.steps.combiner` takes it, its axis, steps and order."""

    kind: str
    axis: int
    steps: tuple[Pair, ...]
    order: str

    @property
    def text(self) -> str:
        """What stands in a kernel for this mark."""
        places = ".".join(str(step.position) for step in self.steps)
        return f"{_WORD} {self.kind} {self.axis} {places} {self.order}"


@dataclass(frozen=True)
class Placed:
    """A marked reduction that was made: its mark, the type of its values and where it was made."""

    mark: Mark
    dtype: str
    plan: Plan

    def sentence(self, kernel: str) -> str:
        """Where it is made, or why it stays where the compiler has put it."""
        start = f"Kernel {kernel}, a reduction over axis {self.mark.axis} in the order {self.mark.order!r}: "
        plan = self.plan
        if plan.move is None:
            return f"{start}it stays in its layout, since {plan.reason}."
        return f"{start}it moves before step {plan.before}, at a cost of {plan.cost} rather than {plan.stay}."

    def descriptor(self) -> ReductionDesc | None:
        """The descriptor of a sum of floats; None for other reductions."""
        if self.mark.kind not in ("sum", "totals", "rounded") or not self.dtype.startswith(("fp", "bf")):
            return None
        return Order(self.mark.order).descriptor(1 << len(self.mark.steps), self.dtype, self.dtype)


def read_mark(text: str) -> Mark | None:
    """The mark that `text` stands for; None where it is another text."""
    if not text.startswith(f"{_WORD} "):
        return None
    _, kind, axis, places, order = text.split(" ", 4)
    return Mark(kind, int(axis), tuple(Pair(int(place)) for place in places.split(".")), order)
