"""Descriptors evaluated with what the installed plugins hand over."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from bitwise_core.descriptors import Record
from bitwise_core.descriptors.evaluation import evaluate as evaluate_on
from bitwise_core.numerics import Bits
from bitwise_core.plugins import registry


def evaluate(desc: Record, *operands: npt.ArrayLike, **options: Any) -> Bits:
    """The output's patterns; operands and options are those of `bitwise_core.descriptors.evaluation.evaluate`.

    Raises DescriptorError.
    """
    return evaluate_on(desc, *operands, hardware=registry.default().hardware, **options)
