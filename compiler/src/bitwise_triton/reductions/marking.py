"""What a marked reduction says of itself: its combine, its axis and its steps."""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_triton.reductions.order import Pair

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


def read_mark(text: str) -> Mark | None:
    """The mark that `text` stands for; None where it is another text."""
    if not text.startswith(f"{_WORD} "):
        return None
    _, kind, axis, places, order = text.split(" ", 4)
    return Mark(kind, int(axis), tuple(Pair(int(place)) for place in places.split(".")), order)
