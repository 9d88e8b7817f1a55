"""The one place that asks the checker: is each candidate's result the reference's, bit for bit?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bitwise_triton.compilation import Captured
from bitwise_triton.errors import CaptureError

if TYPE_CHECKING:
    from bitwise_core.checker import Source

Outcome = Literal["equal", "different", "unproved", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """What the checker says of one candidate, and why in a sentence."""

    outcome: Outcome
    reason: str


def equal_to_reference(
    reference: Captured,
    candidates: Sequence[Captured],
    *,
    every_launch: bool,
    assume: Sequence[str],
    workers: int | None = None,
) -> list[Verdict]:
    """A verdict on each candidate, in order; equal kernels are read once, by up to `workers` processes.

    `every_launch` asks for a proof that holds for every launch rather than the captured one; `assume` names conditions
    under which an equality may hold ("finite"). Raises CaptureError when no checker of the target is installed, or when
    `assume` names a condition that nobody knows.
    """
    from bitwise_core import registry
    from bitwise_core.checker import Options
    from bitwise_core.equivalence import verdicts

    try:
        options = Options(every_launch=every_launch, assume=frozenset(assume))
        registry.default().arch(reference.target)
    except (ValueError, registry.UnknownPluginError) as error:
        raise CaptureError(f"The kernels cannot be checked: {error}.") from None
    except registry.UnknownArchError as error:
        raise CaptureError(
            f"No checker is installed for {reference.target}: {error}; install the plugin of that architecture."
        ) from None
    places = {_identity(reference): 0}
    others: list[Captured] = []
    for one in candidates:
        if one.target == reference.target and _identity(one) not in places:
            others.append(one)
            places[_identity(one)] = len(others)
    sources = [source_of(one) for one in others]
    answers = verdicts(source_of(reference), sources, reference.target, options, workers=workers)
    found = []
    for one in candidates:
        if one.target != reference.target:
            found.append(Verdict("unknown", f"It is compiled for {one.target}, the reference for {reference.target}."))
            continue
        answer = answers[places[_identity(one)]]
        found.append(Verdict(answer.outcome.value, _sentence(answer.reason)))
    return found


def _identity(one: Captured) -> tuple[str, str]:
    return one.assembly, json.dumps(one.manifest_entry, sort_keys=True, default=str)


def source_of(one: Captured, name: str | None = None) -> Source:
    """A compiled configuration as the checker reads it, under `name` or its own."""
    from bitwise_core.checker import Source
    from bitwise_core.machine.launch import Launch

    name = one.name if name is None else name
    return Source(name, one.assembly, Launch.model_validate({"file": name, **one.manifest_entry}))


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:] + ("" if reason.endswith(".") else ".")
