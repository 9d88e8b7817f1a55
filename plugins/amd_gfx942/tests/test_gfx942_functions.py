"""The functions on bit patterns of the operations that only this architecture has."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_amd_gfx942 import target_operations
from bitwise_amd_gfx942.functions import functions_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.numerics import FloatFormat, nan_of, operation

FUNCTIONS = {
    name: function for target in target_operations.ARCHITECTURES for name, function in functions_of(target).items()
}


def patterns(bits: int, count: int, seed: int) -> np.ndarray:
    """Return random patterns of a width; half of them have the exponent of infinities and NaNs."""
    unsigned = np.dtype(f"uint{bits}")
    found = np.random.default_rng(seed).integers(0, 1 << bits, count, dtype=np.uint64).astype(unsigned)
    exponent = {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0000000000000}[bits]
    found[::2] |= unsigned.type(exponent)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_nan_of_arithmetic_is_the_canonical_one(name: str) -> None:
    meaning = operation(name)
    form = meaning.result
    if not isinstance(form, FloatFormat):
        pytest.skip("the result is no floating-point number")
    operands = [patterns(each.bits, 2000, 31 * place + 7) for place, each in enumerate(meaning.operands)]
    try:
        result = FUNCTIONS[name](*operands)
    except Unsupported:
        pytest.skip("some of these operands are not modelled")
    nans = nan_of(result, form)
    assert (result[nans] == form.canonical_nan).all()
