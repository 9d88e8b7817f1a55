"""Descriptors evaluated with what the installed plugins hand over."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from bitwise_core import registry
from bitwise_core.descriptors import Record
from bitwise_core.evaluation import evaluate as evaluate_on
from bitwise_core.numeric import Bits


def evaluate(desc: Record, *operands: npt.ArrayLike, **options: Any) -> Bits:
    """The output's patterns; operands and options are those of `bitwise_core.evaluation.evaluate`.

    Raises DescriptorError.
    """
    return evaluate_on(desc, *operands, hardware=registry.default().hardware, **options)
