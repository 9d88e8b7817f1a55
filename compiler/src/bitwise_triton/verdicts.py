"""The one place that asks the checker: is each candidate's result the reference's, bit for bit?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bitwise_triton.compilation import Captured
from bitwise_triton.errors import CaptureError

Outcome = Literal["equal", "different", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """What the checker says of one candidate, and why in a sentence."""

    outcome: Outcome
    reason: str


def equal_to_reference(
    reference: Captured, candidates: Sequence[Captured], *, every_launch: bool, assume: Sequence[str]
) -> list[Verdict]:
    """A verdict on each candidate, in order.

    `every_launch` asks for a proof that holds for every launch rather than the captured one; `assume` names conditions
    under which an Equal may hold ("finite"). Raises CaptureError when no checker is installed.
    """
    raise CaptureError("No checker is installed; install bitwise-core and the plugin of the target's architecture.")
