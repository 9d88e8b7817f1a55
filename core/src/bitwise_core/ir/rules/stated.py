"""The canonical rules and inferences of core as they are stated; `table` holds them after the check of their proofs."""

from __future__ import annotations

from bitwise_core.ir.rules.conversions import CONVERSIONS
from bitwise_core.ir.rules.extrema import COMPARISONS, EXTREMA, INTEGER_EXTREMA, SELECTED_EXTREMA
from bitwise_core.ir.rules.guards import GUARDS
from bitwise_core.ir.rules.inferences import IMPLIED, INFERENCES
from bitwise_core.ir.rules.integers import BOUNDED, LINEAR, MASKS, NARROW
from bitwise_core.ir.rules.products import DOCUMENTED_VALUES, FUSED_PRODUCTS, PRODUCTS, QUOTIENTS, ZERO_FACTORS
from bitwise_core.ir.rules.proofs import PROOFS
from bitwise_core.ir.rules.rule import Rule
from bitwise_core.ir.rules.selections import SELECTIONS
from bitwise_core.ir.rules.sums import SIGNS, SUMS
from bitwise_core.ir.rules.symmetries import SYMMETRIES
from bitwise_core.ir.rules.zero_signs import ZERO_SIGNS

STATED_RULES: tuple[Rule, ...] = (
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
    *COMPARISONS,
    *INTEGER_EXTREMA,
    *CONVERSIONS,
    *SELECTIONS,
    *GUARDS,
    *LINEAR,
    *MASKS,
    *BOUNDED,
    *NARROW,
    *ZERO_SIGNS,
)

__all__ = ["IMPLIED", "INFERENCES", "PROOFS", "STATED_RULES"]
