"""The table of canonical rules, which the checker executes.

A rule whose obligation was not discharged cannot be loaded: the import of this module raises RuleError unless
`proofs.json` holds the proof of every instance as it is stated (`proofs.checked`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bitwise_core.ir.rules import stated
from bitwise_core.ir.rules.proofs import PROOFS, checked
from bitwise_core.ir.rules.rule import Inference, Rule

IMPLIED = stated.IMPLIED
"""Facts that follow from a fact of the same value."""

RULES, INFERENCES = checked(stated.STATED_RULES, stated.INFERENCES, PROOFS, IMPLIED)
"""The proved rules, and the proved inferences of facts about results."""

_REGISTERED_RULES: list[Rule] = []
_REGISTERED_INFERENCES: list[Inference] = []
_OBSERVERS: list[Callable[[], object]] = []


def register(rules: Sequence[Rule], inferences: Sequence[Inference], proofs: Path) -> None:
    """Add the rules of an architecture, over operations that it declares, whose proofs a file of its own holds.

    A plugin calls it at import time, before anything of it is analysed.  Raises RuleError for a rule without a proof.
    """
    proved = checked(rules, inferences, proofs)
    _REGISTERED_RULES.extend(proved[0])
    _REGISTERED_INFERENCES.extend(proved[1])
    for each in _OBSERVERS:
        each()


def call_on_change(observer: Callable[[], object]) -> None:
    """Call a function whenever rules are added: what was computed from the table is out of date."""
    _OBSERVERS.append(observer)


def all_rules() -> tuple[Rule, ...]:
    """Return the rules of core and of the architectures."""
    return (*RULES, *_REGISTERED_RULES)


def all_inferences() -> tuple[Inference, ...]:
    """Return the inferences of core and of the architectures."""
    return (*INFERENCES, *_REGISTERED_INFERENCES)
