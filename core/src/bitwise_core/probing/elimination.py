"""Candidates for a callable, separated on fresh draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.probing.operand_arrays import NUMPY, OperandArrays

Draw = Callable[[np.random.Generator], tuple[Any, ...]]


@dataclass(frozen=True)
class Elimination:
    """For each candidate the first draw that its bytes differ on, None for those that agreed on all `draws`."""

    draws: int
    parted: Mapping[str, int | None]

    @property
    def survivors(self) -> tuple[str, ...]:
        """The candidates that returned the same bytes on every draw."""
        return tuple(name for name, draw in self.parted.items() if draw is None)


def normal_draw(random: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Normal numbers: sums of like magnitudes, where groupings cancel alike and roundings show."""
    return random.standard_normal(shape)


def wide_draw(random: np.random.Generator, shape: tuple[int, ...], spread: int = 12) -> npt.NDArray[np.float64]:
    """Normal numbers times powers of two: magnitudes far apart, where what is dropped or rounded early shows."""
    return random.standard_normal(shape) * 2.0 ** random.integers(-spread, spread + 1, size=shape)


def eliminate(
    subject: Callable[..., Any], candidates: Mapping[str, Callable[..., Any]], draw: Draw, draws: int = 10,
    seed: int = 0, arrays: OperandArrays = NUMPY,
) -> Elimination:  # fmt: skip
    """Runs the subject and every candidate left on fresh draws; a candidate goes at the first byte that differs.

    `draw(random)` returns the arguments; `arrays` reads the results, which have one shape and type.
    """
    random = np.random.default_rng(seed)
    parted: dict[str, int | None] = dict.fromkeys(candidates)
    for number in range(draws):
        arguments = draw(random)
        expected = arrays.to_patterns(subject(*arguments)).tobytes()
        for name, candidate in candidates.items():
            if parted[name] is None and arrays.to_patterns(candidate(*arguments)).tobytes() != expected:
                parted[name] = number
    return Elimination(draws, parted)
