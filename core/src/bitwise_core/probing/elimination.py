"""Elimination of candidates for a callable by random inputs."""

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
    """The first draw on which the bytes of each candidate differ, None for those that agreed on all `draws`."""

    draws: int
    first_difference: Mapping[str, int | None]

    @property
    def survivors(self) -> tuple[str, ...]:
        """The candidates that returned the callable's bytes on every draw."""
        return tuple(name for name, draw in self.first_difference.items() if draw is None)


def normal_draw(random: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return standard normal numbers: terms of similar magnitude, so that sums differ by their roundings."""
    return random.standard_normal(shape)


def wide_draw(random: np.random.Generator, shape: tuple[int, ...], spread: int = 12) -> npt.NDArray[np.float64]:
    """Return normal numbers times random powers of two from 2^-spread to 2^spread.

    Terms of very different magnitude show values that are dropped or rounded early.
    """
    return random.standard_normal(shape) * 2.0 ** random.integers(-spread, spread + 1, size=shape)


def eliminate(
    subject: Callable[..., Any], candidates: Mapping[str, Callable[..., Any]], draw: Draw, draws: int = 10,
    seed: int = 0, arrays: OperandArrays = NUMPY,
) -> Elimination:  # fmt: skip
    """Run the subject and the remaining candidates on random arguments; eliminate candidates whose bytes differ.

    `draw(random)` returns the arguments; `arrays` converts the results, which have one shape and type.
    """
    random = np.random.default_rng(seed)
    first_difference: dict[str, int | None] = dict.fromkeys(candidates)
    for number in range(draws):
        arguments = draw(random)
        expected = arrays.to_patterns(subject(*arguments)).tobytes()
        for name, candidate in candidates.items():
            if first_difference[name] is None and arrays.to_patterns(candidate(*arguments)).tobytes() != expected:
                first_difference[name] = number
    return Elimination(draws, first_difference)
