"""The table of canonical rules: everything that the checker uses to identify two computations.

A rule whose obligation was not discharged cannot be loaded: `proofs.json` holds the proof of each instance by the digest
of its statement, and `load` rejects a rule whose statement has no proof.
"""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.ir.rules.conversions import CONVERSIONS
from bitwise_core.ir.rules.extrema import EXTREMA, SELECTED_EXTREMA
from bitwise_core.ir.rules.guards import GUARDS
from bitwise_core.ir.rules.inferences import INFERENCES
from bitwise_core.ir.rules.integers import LINEAR, MASKS
from bitwise_core.ir.rules.products import DOCUMENTED_VALUES, FUSED_PRODUCTS, PRODUCTS, QUOTIENTS, ZERO_FACTORS
from bitwise_core.ir.rules.rule import Inference, Rule
from bitwise_core.ir.rules.selections import SELECTIONS
from bitwise_core.ir.rules.sums import SIGNS, SUMS
from bitwise_core.ir.rules.symmetries import SYMMETRIES

RULES: tuple[Rule, ...] = (
    *SYMMETRIES,
    *SUMS,
    *SIGNS,
    *PRODUCTS,
    *FUSED_PRODUCTS,
    *ZERO_FACTORS,
    *QUOTIENTS,
    *DOCUMENTED_VALUES,
    *EXTREMA,
    *SELECTED_EXTREMA,
    *CONVERSIONS,
    *SELECTIONS,
    *GUARDS,
    *LINEAR,
    *MASKS,
)

__all__ = ["INFERENCES", "RULES", "all_inferences", "all_rules", "register"]

_REGISTERED_RULES: list[Rule] = []
_REGISTERED_INFERENCES: list[Inference] = []


def register(rules: Iterable[Rule], inferences: Iterable[Inference] = ()) -> None:
    """Add the rules of an architecture, over operations that it declares.

    A plugin calls it at import time, before anything is analysed.
    """
    _REGISTERED_RULES.extend(rules)
    _REGISTERED_INFERENCES.extend(inferences)


def all_rules() -> tuple[Rule, ...]:
    """Return the rules of core and of the architectures."""
    return (*RULES, *_REGISTERED_RULES)


def all_inferences() -> tuple[Inference, ...]:
    """Return the inferences of core and of the architectures."""
    return (*INFERENCES, *_REGISTERED_INFERENCES)
