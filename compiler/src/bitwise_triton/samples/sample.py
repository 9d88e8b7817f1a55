"""The record of a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitwise_triton.arguments import Argument
from bitwise_triton.compilation import Grid


@dataclass(frozen=True)
class Sample:
    """A kernel, its tuning space, one launch, and an element of the result to show.

    `element` has the form of the `bitwise` command, `Y[0]`.
    """

    name: str
    title: str
    kernel: Any
    configurations: Sequence[Any]
    arguments: Mapping[str, Argument]
    grid: Grid
    element: str
