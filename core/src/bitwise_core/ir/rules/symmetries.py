"""Commutative and associative operations, and what the order of operands does not affect."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from bitwise_core.ir.rules.rule import IEEE, Parameters, Rule, over
from bitwise_core.numerics.verb_functions import FLOAT_VERBS, INTEGER_VERBS, Verb

_INTEGER_SETS = over(op=("add", "mul", "and", "or", "xor"), t=("b8", "b16", "b32", "b64"))
_PREDICATES = over(op=("and", "or", "xor"), t="b1")
_EXTREMA = over(op=("max", "min"), t=(*IEEE, *(f"{s}{w}" for s in "su" for w in (8, 16, 32, 64))))
_BY_SIGN = over(op=("maxbysign", "minbysign"), t=("b32", "b64"))
_PROPAGATING = over(op=("max.nan", "min.nan"), t=IEEE)


def _commutative(arity: int) -> tuple[Parameters, ...]:
    """Return the operations of the vocabulary that are declared commutative."""
    verbs = (each for each in (*FLOAT_VERBS, *INTEGER_VERBS) if each.commutative and len(each.operands) == arity)
    return tuple({"op": name} for verb in verbs for name in _names(verb))


def _names(verb: Verb) -> Iterator[str]:
    """Yield the names of a verb's operations."""
    for form in verb.formats:
        groups = [
            (*(() if verb.required and not place else ("",)), *group) for place, group in enumerate(verb.modifiers)
        ]
        for chosen in product(*groups):
            yield ".".join((verb.verb, *(each for each in chosen if each), form))


SYMMETRIES = (
    Rule(
        "commutes",
        "{op}(x, y)",
        "{op}(y, x)",
        _commutative(2),
        "The exact result does not depend on the order, and zeros and NaNs are treated alike on both sides.",
        execution="order",
    ),
    Rule(
        "factors_commute",
        "{op}(x, y, z)",
        "{op}(y, x, z)",
        _commutative(3),
        "The product, distance or sum of the first two operands does not depend on their order.",
        execution="order",
    ),
    Rule(
        "associates",
        "{op}.{t}({op}.{t}(x, y), z)",
        "{op}.{t}(x, {op}.{t}(y, z))",
        _INTEGER_SETS + _PREDICATES + _EXTREMA + _BY_SIGN + _PROPAGATING,
        "Arithmetic modulo a power of two is a ring, bits form a lattice, and numbers, with -0 below +0, are ordered.",
        refuted=over(op=("add.rn", "mul.rn"), t=IEEE),
        execution="set",
    ),
)
