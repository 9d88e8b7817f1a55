"""Assertions for tests on the bits that GPU kernels return.

The pytest plugin, `bitwise_pytest.plugin`, adds the fixture `bitwise_golden` and its options.
"""

from __future__ import annotations

from bitwise_pytest.array_bytes import assert_bytes_equal
from bitwise_pytest.kernel_assertions import assert_deterministic, assert_same_bits

__all__ = ["assert_bytes_equal", "assert_deterministic", "assert_same_bits"]
