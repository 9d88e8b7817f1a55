"""The content that an atomic exchange, comparison and exchange, increment or decrement leaves, on Python integers."""

from __future__ import annotations

from collections.abc import Callable

EDGES = (0, 1, 2, 5, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32, (1 << 63) + 5, (1 << 64) - 1)


def increment(old: int, limit: int) -> int:
    return 0 if old >= limit else old + 1


def decrement(old: int, limit: int) -> int:
    return limit if old == 0 or old > limit else old - 1


CHANGES: dict[str, Callable[[int, int, int], int]] = {
    "exchange": lambda old, expected, value: value,
    "compare": lambda old, expected, value: value if old == expected else old,
    "increment": lambda old, expected, value: increment(old, value),
    "decrement": lambda old, expected, value: decrement(old, value),
}
"""The content after an operation, from the content before it, the expected content, and the operand."""


def rows(count: int, bits: int) -> list[tuple[int, int, int]]:
    """Return contents, expected contents and operands, of which some are equal or adjacent."""
    numbers = [each & ((1 << bits) - 1) for each in EDGES]
    size = len(numbers)
    found = [(numbers[i % size], numbers[(i if i % 3 else i // 2) % size], numbers[(i * 5 + i // size) % size])
             for i in range(count)]  # fmt: skip
    assert any(old == expected for old, expected, _ in found)
    assert any(old != expected for old, expected, _ in found)
    return found
