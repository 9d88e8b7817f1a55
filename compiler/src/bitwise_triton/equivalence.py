"""The one place that asks the checker: is each candidate's result the reference's, bit for bit?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bitwise_triton.compilation import CompiledKernel
from bitwise_triton.errors import CaptureError

if TYPE_CHECKING:
    from bitwise_core.checker import Options, Source
    from bitwise_core.machine.arch import Arch

Outcome = Literal["equal", "different", "unknown"]


@dataclass(frozen=True)
class CandidateVerdict:
    """What the checker says of one candidate, and why in a sentence."""

    outcome: Outcome
    reason: str


def checker(target: str, *, every_launch: bool, assume: Sequence[str]) -> tuple[Arch, Options]:
    """The architecture of a target and the checker's options.

    Raises CaptureError if no plugin has the target, or for an unknown assumption.
    """
    from bitwise_core import registry
    from bitwise_core.checker import Options

    try:
        return registry.default().arch(target), Options(every_launch=every_launch, assume=frozenset(assume))
    except (ValueError, registry.UnknownPluginError) as error:
        raise CaptureError(f"The kernels cannot be checked: {error}.") from None
    except registry.UnknownArchError as error:
        raise CaptureError(
            f"No checker is installed for {target}: {error}; install the plugin of that architecture."
        ) from None


def compare_with_reference(
    reference: CompiledKernel,
    candidates: Sequence[CompiledKernel],
    *,
    every_launch: bool,
    assume: Sequence[str],
    workers: int | None = None,
) -> list[CandidateVerdict]:
    """A verdict on each candidate, in order; equal kernels are read once, by up to `workers` processes.

    `every_launch` asks for a proof that holds for every launch rather than the captured one; `assume` names conditions
    under which an Equal may hold ("finite"). Raises CaptureError when no checker of the target is installed, or when
    `assume` names a condition that nobody knows.
    """
    from bitwise_core.partition import verdicts

    _, options = checker(reference.target, every_launch=every_launch, assume=assume)
    places = {_identity(reference): 0}
    others: list[CompiledKernel] = []
    for one in candidates:
        if one.target == reference.target and _identity(one) not in places:
            others.append(one)
            places[_identity(one)] = len(others)
    sources = [source_of(one) for one in others]
    answers = verdicts(source_of(reference), sources, reference.target, options, workers=workers)
    found = []
    for one in candidates:
        if one.target != reference.target:
            found.append(
                CandidateVerdict("unknown", f"It is compiled for {one.target}, the reference for {reference.target}.")
            )
            continue
        answer = answers[places[_identity(one)]]
        found.append(CandidateVerdict(answer.outcome.value, _sentence(answer.reason)))
    return found


def _identity(one: CompiledKernel) -> tuple[str, str]:
    return one.assembly, json.dumps(one.manifest_entry, sort_keys=True, default=str)


def source_of(one: CompiledKernel, name: str | None = None) -> Source:
    """A compiled configuration as the checker reads it, under `name` or its own."""
    from bitwise_core.checker import Source
    from bitwise_core.machine.launch import Launch

    name = one.name if name is None else name
    return Source(name, one.assembly, Launch.model_validate({"file": name, **one.manifest_entry}))


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:] + ("" if reason.endswith(".") else ".")
