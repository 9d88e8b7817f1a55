"""Placeholders of reductions that are lowered after layout assignment, and the records of their lowering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitwise_triton.reductions.layout_pass import LayoutChoice
from bitwise_triton.reductions.order import Order, Pair

if TYPE_CHECKING:
    from bitwise_core.descriptors import ReductionDesc

_WORD = "pinned_reduction"


@dataclass(frozen=True)
class Placeholder:
    """A reduction to be lowered later: its kind, as `kernels.steps.combine_function` takes it, its axis, steps and
    order.
    """

    kind: str
    axis: int
    steps: tuple[Pair, ...]
    order: str

    @property
    def text(self) -> str:
        """The placeholder's text in a kernel."""
        places = ".".join(str(step.position) for step in self.steps)
        return f"{_WORD} {self.kind} {self.axis} {places} {self.order}"


@dataclass(frozen=True)
class LoweredReduction:
    """A lowered reduction: its placeholder, the type of its values, and the layout that was chosen."""

    placeholder: Placeholder
    dtype: str
    choice: LayoutChoice

    def sentence(self, kernel: str) -> str:
        """The chosen layout, or why the compiler's layout is kept, as a sentence."""
        start = (
            f"Kernel {kernel}, a reduction over axis {self.placeholder.axis} in the order {self.placeholder.order!r}: "
        )
        choice = self.choice
        if choice.move is None:
            return f"{start}it keeps its layout, since {choice.reason}."
        return f"{start}it moves before step {choice.before}, at cost {choice.cost} instead of {choice.current_cost}."

    def descriptor(self) -> ReductionDesc | None:
        """The descriptor of a sum of floats; None for other reductions."""
        if self.placeholder.kind not in ("sum", "totals", "rounded") or not self.dtype.startswith(("fp", "bf")):
            return None
        return Order(self.placeholder.order).descriptor(1 << len(self.placeholder.steps), self.dtype, self.dtype)


def parse_placeholder(text: str) -> Placeholder | None:
    """The placeholder with this text, or None for other text."""
    if not text.startswith(f"{_WORD} "):
        return None
    _, kind, axis, places, order = text.split(" ", 4)
    return Placeholder(kind, int(axis), tuple(Pair(int(place)) for place in places.split(".")), order)
