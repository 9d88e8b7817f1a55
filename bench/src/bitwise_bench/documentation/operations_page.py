"""The reference page of operations.

python -m bitwise_bench.documentation.operations_page > core/OPERATIONS.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bitwise_core.numerics.formats import FORMATS
from bitwise_core.numerics.verb_functions import (
    APPROXIMATIONS,
    FLOAT_VERBS,
    INTEGER_VERBS,
    TRUTH_TABLES,
    Verb,
)

_HEAD = """# Operations

Core, the plugins and the expression trees name operations from this vocabulary only. A name is
`<verb>[.<modifier>...].<format>[.<format>][@<architecture>]`, with the modifiers in the order of the table: at most one
of each group in parentheses, exactly one of a group marked \\*. `bitwise_core.numerics.operation(name)` returns the
record of an operation; for any other name it raises an error that gives the nearest one. This page is generated from
the tables of `bitwise_core.numerics.verb_functions`.

Operands are a, b, c, d. `ftz` flushes subnormal operands and results to zeros of their sign; `sat` clamps a result to
[0, 1], and a NaN to 0; `relu` replaces a negative result by +0; `satfinite` replaces an overflow or an infinity by the
largest finite number of its sign. The roundings are: to nearest with ties to even (`rn`) or away from zero (`rna`),
toward zero (`rz`), up (`ru`) and down (`rd`). Every NaN result is the format's canonical NaN.
"""

_CONVERSIONS = """
## Conversions

`convert[.<rounding>][.ftz][.satfinite][.sat or .relu].<format>.<format>`, with the result's format first. A conversion
between floating-point formats names a rounding unless the result's format holds every number of the operand's. `rni`,
`rzi`, `rmi` and `rpi` round to an integer, to nearest even, toward zero, down and up: in the same format, or to an
integer format, clamped to its range. A conversion between integers keeps the low bits, or extends a signed operand by
its sign; `convert.sat` clamps.
"""

_APPROXIMATIONS = """
## Approximations

The hardware decides their bits: they have no evaluation, and the name ends in the architecture. An architecture whose
bits are known provides a function under the full name (`BitSupport.functions`).
"""

_OWN = """
## Operations of one architecture

A plugin declares operations that no other architecture has with `bitwise_core.numerics.declare`; such a name ends in
`@` and the architecture.
"""


def page() -> str:
    """Return the page, in Markdown."""
    return "".join(
        (
            _HEAD,
            "\n## Floating-point numbers\n",
            *_table(FLOAT_VERBS),
            "\n## Integers\n\n",
            "The formats b are for operations that do not depend on the sign; s and u are accepted in their place.\n",
            *_table(INTEGER_VERBS),
            _CONVERSIONS,
            _APPROXIMATIONS,
            *_table(APPROXIMATIONS),
            _OWN,
        )
    )


def _table(rows: Sequence[Verb]) -> Iterator[str]:
    yield "\n| verb | modifiers | formats | operands | result | value | commutative |\n"
    yield f"|{' --- |' * 7}\n"
    for row in rows:
        cells = (
            f"`{row.verb}`",
            " ".join(_group(group, row.required and not place) for place, group in enumerate(row.modifiers)),
            _formats(row.formats),
            ", ".join(each or "same" for each in row.operands),
            {"": "same", "wide": "twice as wide"}.get(row.result, row.result),
            row.says.replace("|", "\\|"),
            "yes" if row.commutative else "",
        )
        yield f"| {' | '.join(cells)} |\n"


def _group(group: Sequence[str], required: bool) -> str:
    words = "two hexadecimal digits" if group == TRUTH_TABLES else " ".join(group)
    return f"({words}){'*' if required else ''}"


def _formats(names: Sequence[str]) -> str:
    """Return the formats as text, those of integers as ranges: b8..b64."""
    floats = [name for name in names if name in FORMATS and name.startswith(("fp", "bf", "tf", "e"))]
    found = [*floats]
    for letter in "bsu":
        widths = [int(name[1:]) for name in names if name not in floats and name[0] == letter]
        if len(widths) > 1:
            found.append(f"{letter}{min(widths)}..{letter}{max(widths)}")
        found.extend(f"{letter}{bits}" for bits in widths if len(widths) == 1)
    return " ".join(found)


if __name__ == "__main__":
    print(page(), end="")
