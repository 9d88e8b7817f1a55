"""Rules of selects and predicates."""

from __future__ import annotations

from bitwise_core.ir.rules.rule import Rule, over

_WIDTHS = over(w=("1", "8", "16", "32", "64"))
_BOTH = {"x": "b{w}", "y": "b{w}"}

SELECTIONS = (
    Rule("not_not", "not.b1(not.b1(p))", "p", over(), "Two negations cancel."),
    Rule(
        "select_not",
        "select(not.b1(p), x, y)",
        "select(p, y, x)",
        _WIDTHS,
        "One is selected or the other.",
        formats=_BOTH,
    ),
    Rule("select_true", "select(0x1, x, y)", "x", _WIDTHS, "The predicate is true.", formats=_BOTH),
    Rule("select_false", "select(0x0, x, y)", "y", _WIDTHS, "The predicate is false.", formats=_BOTH),
    Rule("select_same", "select(p, x, x)", "x", _WIDTHS, "Either side is x.", formats={"x": "b{w}"}),
    Rule(
        "disjunction",
        "or.b1(p, q)",
        "not.b1(and.b1(not.b1(p), not.b1(q)))",
        over(),
        "One of two holds unless neither does.",
    ),
    Rule("and_true", "and.b1(p, 0x1)", "p", over(), "True is the neutral element."),
    Rule("and_false", "and.b1(p, 0x0)", "0x0", over(), "False decides the conjunction."),
    Rule(
        "select_in_false_side",
        "select(p, x, select(q, y, x))",
        "select(and.b1(q, not.b1(p)), y, x)",
        _WIDTHS,
        "y is selected where q holds and p does not.",
        formats=_BOTH,
    ),
    Rule(
        "select_of_same_in_false_side",
        "select(p, x, select(q, x, y))",
        "select(and.b1(not.b1(p), not.b1(q)), y, x)",
        _WIDTHS,
        "y is selected where neither holds.",
        formats=_BOTH,
    ),
    Rule(
        "select_in_true_side",
        "select(p, select(q, x, y), y)",
        "select(and.b1(p, q), x, y)",
        _WIDTHS,
        "x is selected where both hold.",
        formats=_BOTH,
    ),
    Rule(
        "select_of_same_in_true_side",
        "select(p, select(q, x, y), x)",
        "select(and.b1(p, not.b1(q)), y, x)",
        _WIDTHS,
        "y is selected where p holds and q does not.",
        formats=_BOTH,
    ),
    Rule(
        "select_decided_before",
        "select(p, select(p, x, y), z)",
        "select(p, x, z)",
        _WIDTHS,
        "Where the predicate is true, the inner select has selected x.",
        formats={**_BOTH, "z": "b{w}"},
    ),
    Rule(
        "select_decided_otherwise",
        "select(p, z, select(p, x, y))",
        "select(p, z, y)",
        _WIDTHS,
        "Where the predicate is false, the inner select has selected y.",
        formats={**_BOTH, "z": "b{w}"},
    ),
    Rule(
        "select_of_slices",
        "select(p, slice.{low}.{w}(x), slice.{low}.{w}(y))",
        "slice.{low}.{w}(select(p, x, y))",
        tuple(
            each
            for each in over(low=("0", "8", "16", "24", "32", "48"), w=("8", "16", "32"), whole=("16", "32", "64"))
            if int(each["low"]) + int(each["w"]) <= int(each["whole"])
            and int(each["low"]) % int(each["w"]) == 0
            and each["w"] != each["whole"]
        ),
        "A select of bits selects the same bits.",
        formats={"x": "b{whole}", "y": "b{whole}"},
    ),
)
