"""Verdicts of the checker on compiled kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bitwise_triton.compilation import CompiledKernel
from bitwise_triton.errors import CaptureError

if TYPE_CHECKING:
    from bitwise_core.checker.sources import Options, Source
    from bitwise_core.execution.architecture import Arch

Outcome = Literal["equal", "different", "unproved", "unknown"]


@dataclass(frozen=True)
class CandidateVerdict:
    """The checker's outcome for one candidate, and the reason as a sentence.

    `of_reference`: the reference is Unknown, and so is every candidate compared with it.
    """

    outcome: Outcome
    reason: str
    of_reference: bool = False


def checker(
    target: str, *, every_launch: bool, assume: Sequence[str], time_limit: float | None = None
) -> tuple[Arch, Options]:
    """The architecture of a target and the checker's options.  `time_limit` is in seconds (None: the default).

    Raises CaptureError if no plugin has the target, or for an unknown assumption.
    """
    from bitwise_core.checker.sources import Options
    from bitwise_core.limits import READING_SECONDS
    from bitwise_core.plugins import registry

    try:
        limit = READING_SECONDS if time_limit is None else time_limit
        options = Options(every_launch=every_launch, assume=frozenset(assume), time_limit=limit)
        return registry.default().arch(target), options
    except (ValueError, registry.UnknownPluginError) as error:
        raise CaptureError(f"The kernels cannot be checked: {error}.") from None
    except registry.UnknownArchError as error:
        raise CaptureError(f"No checker is installed for {target}: {error}.") from None


def compare_with_reference(
    reference: CompiledKernel,
    candidates: Sequence[CompiledKernel],
    *,
    every_launch: bool,
    assume: Sequence[str],
    workers: int | None = None,
    time_limit: float | None = None,
) -> list[CandidateVerdict]:
    """A verdict for each candidate against the reference, in order. Identical kernels are analysed once, in up to
    `workers` processes.

    `every_launch` requires a proof for every launch instead of the captured one. `assume` names conditions that a proof
    may use ("finite"). A kernel that is read for more than `time_limit` seconds (None: the default) is Unknown. Raises
    CaptureError if the target has no checker, or for an unknown assumption.
    """
    from bitwise_core.checker.partition import verdicts
    from bitwise_core.checker.readings import open_cache

    _, options = checker(reference.target, every_launch=every_launch, assume=assume, time_limit=time_limit)
    places = {_identity(reference): 0}
    others: list[CompiledKernel] = []
    for one in candidates:
        if one.target == reference.target and _identity(one) not in places:
            others.append(one)
            places[_identity(one)] = len(others)
    sources = [source_of(one) for one in others]
    answers = verdicts(source_of(reference), sources, reference.target, options, workers=workers, cache=open_cache())
    found = []
    for one in candidates:
        if one.target != reference.target:
            found.append(
                CandidateVerdict("unknown", f"It is compiled for {one.target}, the reference for {reference.target}.")
            )
            continue
        answer = answers[places[_identity(one)]]
        of_reference = answers[0].outcome.value == "unknown"
        found.append(CandidateVerdict(answer.outcome.value, _sentence(answer.reason), of_reference))
    return found


def _identity(one: CompiledKernel) -> tuple[str, str]:
    return one.assembly, json.dumps(one.manifest_entry, sort_keys=True, default=str)


def source_of(one: CompiledKernel, name: str | None = None) -> Source:
    """A compiled configuration as the checker's `Source`, named `name` or by its own name."""
    from bitwise_core.checker.sources import Source
    from bitwise_core.execution.launch import Launch

    name = one.name if name is None else name
    return Source(name, one.assembly, Launch.model_validate({"file": name, **one.manifest_entry}))


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:] + ("" if reason.endswith(".") else ".")
