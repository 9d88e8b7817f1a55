"""Evaluation of descriptors with the matrix units and functions of the installed plugins."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from bitwise_core.descriptors import Record
from bitwise_core.descriptors.evaluation import evaluate as evaluate_on
from bitwise_core.numerics import Bits
from bitwise_core.plugins import registry


def evaluate(desc: Record, *operands: npt.ArrayLike, **options: Any) -> Bits:
    """Return the output's bit patterns, as `bitwise_core.descriptors.evaluation.evaluate` does.

    Raises DescriptorError.
    """
    return evaluate_on(desc, *operands, hardware=registry.default().hardware, **options)
