"""Facts of values follow from the value itself, whatever was computed before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.rewriting import rule_plans
from bitwise_core.execution.values.symbolic_vector import NOT_NEGATIVE, Value, has_flag
from bitwise_core.numerics import operation


def maxima(order: Sequence[str]) -> dict[str, bool]:
    """Return whether max(w, y) is known not to be negative, for two non-negative bf16 that are widened to w.

    The first one is a maximum with 0, and a number; the second one is a magnitude, and NaN if its operand is.
    """
    rule_plans.plan_of.cache_clear()
    domain = TermDomain()
    half: Value = domain.load(np.arange(4, dtype=np.uint64)[None] * 2 + (1 << 40), 16)
    other = domain.load(np.arange(4, dtype=np.uint64)[None] * 4 + (2 << 40), 32)
    narrow = {
        "a number": domain.floating(operation("max.bf16"), [half, np.zeros((1, 1), dtype=np.uint16)]),
        "a number or NaN": domain.floating(operation("abs.bf16"), [half]),
    }
    found = {}
    for name in order:
        wide = domain.floating(operation("convert.fp32.bf16"), [narrow[name]])
        largest = domain.floating(operation("max.fp32"), [wide, other])
        found[name] = has_flag(as_symbolic_vector(largest), NOT_NEGATIVE) is True
    return found


@pytest.mark.parametrize("order", [("a number", "a number or NaN"), ("a number or NaN", "a number")])
def test_a_maximum_is_not_negative_only_beside_a_number(order: Sequence[str]) -> None:
    assert maxima(order) == {"a number": True, "a number or NaN": False}
