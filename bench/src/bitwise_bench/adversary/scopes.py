"""The scopes of verdicts that the adversary attacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bitwise_core.checker.sources import Options
from bitwise_core.execution.assumptions import FINITE


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope: its name in records, and the options of its analyses.

    The contraction audit is off, except in the scope `AUDITED`, because every operation of the programs states its
    rounding.
    """

    name: str
    options: Options

    @property
    def finite(self) -> bool:
        """Whether the verdict assumes finite values."""
        return FINITE in self.options.assume


AUDITED = "audited launch"
"""The scope of programs that leave roundings to the assembler."""

SCOPES: Mapping[str, Scope] = MappingProxyType(
    {
        scope.name: scope
        for scope in (
            Scope("launch", Options(audit_contraction=False)),
            Scope("finite", Options(assume=frozenset({FINITE}), audit_contraction=False)),
            Scope("every launch", Options(every_launch=True, audit_contraction=False)),
            Scope(AUDITED, Options()),
        )
    }
)
"""The scopes by name."""
