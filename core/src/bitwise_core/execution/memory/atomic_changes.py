"""The content of an element after an atomic exchange, comparison and exchange, increment or decrement."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.machine import literal
from bitwise_core.execution.memory.global_memory import Change
from bitwise_core.execution.values.symbolic_vector import Value, width
from bitwise_core.numerics import operation


def exchange(domain: Domain, value: Value) -> Change:
    """The content becomes the value."""
    return lambda old: value


def compare_and_exchange(domain: Domain, expected: Value, value: Value) -> Change:
    """The content becomes the value if it is the expected one, bit by bit."""
    equal = operation(f"eq.b{width(value)}")
    return lambda old: domain.select(domain.integer(equal, [old, expected]), value, old)


def increment(domain: Domain, limit: Value) -> Change:
    """The content becomes the next number, or 0 if it is at least the limit."""
    bits = width(limit)
    reached, add = operation(f"ge.u{bits}"), operation(f"add.b{bits}")

    def change(old: Value) -> Value:
        after = domain.integer(add, [old, literal(1, bits)])
        return domain.select(domain.integer(reached, [old, limit]), literal(0, bits), after)

    return change


def decrement(domain: Domain, limit: Value) -> Change:
    """The content becomes the number before, or the limit if it is 0 or above the limit."""
    bits = width(limit)
    equal, above, subtract = operation(f"eq.b{bits}"), operation(f"gt.u{bits}"), operation(f"sub.b{bits}")
    either = operation("or.b1")

    def change(old: Value) -> Value:
        wraps = domain.integer(either, [domain.integer(equal, [old, literal(0, bits)]),
                                        domain.integer(above, [old, limit])])  # fmt: skip
        return domain.select(wraps, limit, domain.integer(subtract, [old, literal(1, bits)]))

    return change


ONE_OPERAND: Mapping[str, Callable[[Domain, Value], Change]] = {
    "exchange": exchange,
    "increment": increment,
    "decrement": decrement,
}
"""The changes by one operand, by name."""
