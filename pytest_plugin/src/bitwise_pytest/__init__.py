"""Assertions for tests on the bits that GPU kernels return.

The pytest plugin, `bitwise_pytest.plugin`, adds the fixture `bitwise_golden` and its options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_pytest.array_bytes import assert_bytes_equal
    from bitwise_pytest.kernel_assertions import assert_deterministic, assert_same_bits

__all__ = ["assert_bytes_equal", "assert_deterministic", "assert_same_bits"]

if not TYPE_CHECKING:  # every run of pytest imports the package
    __getattr__ = lazy_names(
        __name__,
        {
            "array_bytes": ("assert_bytes_equal",),
            "kernel_assertions": ("assert_deterministic", "assert_same_bits"),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
