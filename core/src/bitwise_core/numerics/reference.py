"""The page of operations, written from the tables: `python -m bitwise_core.numerics.reference > core/OPERATIONS.md`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bitwise_core.numerics.formats import FORMATS
from bitwise_core.numerics.verbs import (
    APPROXIMATIONS,
    FLOAT_VERBS,
    INTEGER_VERBS,
    TRUTH_TABLES,
    Verb,
)

_HEAD = """# Operations

Every operation that core, a plugin or a tree names is one of these. A name is
`<verb>[.<modifier>...].<format>[.<format>][@<architecture>]`, with the modifiers in the order of the table: of each
group, in parentheses, at most one, of a group marked \\* exactly one. `bitwise_core.numerics.operation(name)` gives
the record, and refuses any other name with the nearest one. This page is written from the tables of
`bitwise_core.numerics.operations`.

Operands are a, b, c, d. A subnormal operand or result is a zero of its sign with `ftz`; `sat` clamps a result to [0,
1], a NaN to 0; `relu` turns a negative result into +0; `satfinite` makes the greatest number of a result that
overflows. The roundings are to nearest, ties to even (`rn`) or away from zero (`rna`), toward zero (`rz`), up (`ru`)
and down (`rd`). All NaN results are the format's canonical NaN.
"""

_CONVERSIONS = """
## Conversions

`convert[.<rounding>][.ftz][.satfinite][.sat or .relu].<format>.<format>`, the result's format first. Between
floating-point formats a rounding is named unless every number of the operand's format is one of the result's. `rni`,
`rzi`, `rmi` and `rpi` round to an integer, to nearest even, toward zero, down and up: in the same format, or to an
integer format, clamped to its range. Between integers the low bits are kept, or the sign of a signed operand
extended; `convert.sat` clamps.
"""

_APPROXIMATIONS = """
## Approximations

The hardware decides their bits: they have no evaluation, and the name carries the architecture. An architecture that
knows the bits gives them by the full name (`BitSupport.functions`).
"""

_OWN = """
## Operations of one architecture

A plugin declares what no other architecture has with `bitwise_core.numerics.declare`; such a name ends in `@` and the
architecture.
"""


def page() -> str:
    """The page, in Markdown."""
    return "".join(
        (
            _HEAD,
            "\n## Floating-point numbers\n",
            *_table(FLOAT_VERBS),
            "\n## Integers\n\n",
            "b names patterns whose sign does not matter; s and u in its place mean the same.\n",
            *_table(INTEGER_VERBS),
            _CONVERSIONS,
            _APPROXIMATIONS,
            *_table(APPROXIMATIONS),
            _OWN,
        )
    )


def _table(rows: Sequence[Verb]) -> Iterator[str]:
    yield "\n| verb | modifiers | formats | operands | result | what it is | commutes |\n"
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
    """Formats, those of integers shortened: b8..b64."""
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
