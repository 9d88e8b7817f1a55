"""Verification of a receipt: each claim is derived or compared again, on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bitwise_core.plugins.profiles import NotCovered, SupportedProfile
from bitwise_torch.locks import Lock, differences, finding_of, lock_of
from bitwise_torch.operator_samples import checked_operators
from bitwise_torch.receipts.claims import (
    ATTENTION,
    DESCRIBED,
    ENVIRONMENT,
    SAMPLED,
    UNDETERMINED,
    UNSAMPLED,
    WITHOUT,
    call_claim,
    claims_of,
)
from bitwise_torch.receipts.environments import environment
from bitwise_torch.receipts.receipt_file import Claim, Environment, Operator, Receipt
from bitwise_torch.receipts.writing import kernel, lock_digest

Outcome = Literal["held", "failed", "not checked"]


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome for one claim, or for a part of the receipt, with its reasons."""

    claim: str
    kind: str
    outcome: Outcome
    details: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the check as a JSON object."""
        return {"claim": self.claim, "kind": self.kind, "outcome": self.outcome, "details": list(self.details)}


def verified(
    receipt: Receipt, *, lock: Lock | None = None, files: Mapping[str, Path] | None = None,
    profile: SupportedProfile | None = None,    where: Environment | None = None,
) -> list[Check]:  # fmt: skip
    """Return a check for the lock, for the derivation of the claims, and for every claim.

    `lock` is compared with the receipt's; `files` are those of kernels by name; `profile` describes every problem again
    on this machine; `where` is by default the environment of this process.  Raises ReceiptError for
    a file that cannot be read.
    """
    found = [_lock_check(receipt, lock)]
    given = [(each.entry, each.support) for each in receipt.operators]
    derived = claims_of(given, receipt.library, receipt.kernels, receipt.attention)
    by_name = {each.name: each for each in derived.claims}
    stated = {each.name for each in receipt.claims}
    lacking = [each for each in derived.claims if each.name not in stated]
    found += [Check(each.name, each.kind, "failed", ("the receipt lacks this claim",)) for each in lacking]
    wrong = [
        one.problem.words for one, other in zip(receipt.operators, derived.operators, strict=True)
        if one.claims != other.claims
    ]  # fmt: skip
    outcome: Outcome = "failed" if wrong else "held"
    found.append(Check("operators", "proved", outcome, tuple(f"{each}: other claims follow" for each in wrong[:40])))
    for claim in receipt.claims:
        expected = by_name.get(claim.name)
        if expected is None or (expected != claim and not claim.name.startswith("unit.")):
            found.append(Check(claim.name, claim.kind, "failed", ("it does not follow from the receipt",)))
        else:
            found.append(_claim_check(receipt, claim, expected, files or {}, profile, where))
    return found


def _lock_check(receipt: Receipt, lock: Lock | None) -> Check:
    if lock_digest(receipt.content) != receipt.lock:
        return Check("lock", "proved", "failed", ("the operators are not those of the lock with this digest",))
    if lock is not None and lock_digest(lock) != receipt.lock:
        return Check("lock", "proved", "failed", ("the given lock has another digest",))
    return Check("lock", "proved", "held")


def _claim_check(
    receipt: Receipt, claim: Claim, expected: Claim, files: Mapping[str, Path], profile: SupportedProfile | None,
    where: Environment | None,
) -> Check:  # fmt: skip
    details: tuple[str, ...] = ()
    outcome: Outcome
    if claim.name == ENVIRONMENT:
        here = where or environment()
        details = tuple(dict.fromkeys((
            *environment_differences(receipt.environment, here),
            *device_differences(receipt.recorded, here.device),
            *device_differences(receipt.environment.device, here.device),
        )))  # fmt: skip
        unknown = tuple(_not_compared(receipt, here))
        outcome = "failed" if details else "not checked" if unknown else "held"
        details += unknown
    elif claim.name.startswith("unit."):
        outcome = "held" if expected == claim else "not checked"
        details = () if expected == claim else (f"the installed plugins say: {expected.kind}, {expected.method}",)
    elif claim.name.startswith("file."):
        name = claim.name.removeprefix("file.")
        if name not in files:
            outcome, details = "not checked", (f"give the file with --file {name}=PATH",)
        else:
            recorded = next(each for each in receipt.kernels if each.name == name)
            same = kernel(name, files[name]) == recorded
            outcome = "held" if same else "failed"
            details = () if same else (f"{files[name]} has another content",)
    elif claim.name in DESCRIBED.values():
        if profile is None:
            outcome, details = "not checked", ("ask the library on the recorded device with --ask",)
        else:
            moved = tuple(_moved([each for each in receipt.operators if claim.name in each.claims], profile))
            outcome, details = ("failed" if moved else "held"), moved[:40]
            if not moved and claim.kind == "assumed":
                outcome, details = "not checked", (claim.method,)
    elif claim.name == SAMPLED:
        if profile is None:
            outcome, details = "not checked", ("run the samples on this machine with --ask",)
        else:
            sampled = [each for each in receipt.library if call_claim(each) == SAMPLED]
            checks = checked_operators(sampled)
            details = tuple(f"{each.operator.operator}: {each.verdict}" for each in checks if each.verdict != "agrees")
            differ = any(each.verdict == "differs" for each in checks)
            outcome = "failed" if differ else "not checked" if details else "held"
            details = details[:40]
    elif claim.name == UNSAMPLED:
        count = sum(call_claim(each) == UNSAMPLED for each in receipt.library)
        outcome, details = "not checked", (f"{count} calls of PyTorch's operators have no sample",)
    elif claim.name == UNDETERMINED:
        count = sum(call_claim(each) == UNDETERMINED for each in receipt.library)
        outcome, details = "not checked", (f"the library's own runs of {count} calls may differ",)
    elif claim.name == ATTENTION:
        outcome, details = "not checked", (claim.discharge or "",)
        if profile is not None:
            from bitwise_torch.pinned_attention import moved_attention

            moved = tuple(moved_attention(receipt.attention or ()))
            outcome, details = ("failed", moved) if moved else ("not checked", (claim.method,))
    elif claim.name == WITHOUT:
        count = sum(each.descriptor is None for each in receipt.operators)
        outcome, details = "not checked", (f"{count} products have no descriptor",)
    else:
        outcome = "held"  # it was derived again from the descriptors
    return Check(claim.name, claim.kind, outcome, details)


def environment_differences(one: Environment, other: Environment) -> Iterator[str]:
    """Yield a sentence for each difference of two environments, the first of which is the receipt's."""
    for name in sorted({*one.packages, *other.packages}):
        before, after = one.packages.get(name), other.packages.get(name)
        if before is None or after is None:
            yield f"{name} is {'not in the receipt' if before is None else 'not installed'}"
        elif before.version != after.version:
            yield f"{name} is {after.version}, not {before.version}"
        elif before.code != after.code and None not in (before.code, after.code):
            yield f"{name} {after.version} has other code"
    for field in ("python", "machine"):
        if getattr(one, field) != getattr(other, field):
            yield f"{field} is {getattr(other, field)}, not {getattr(one, field)}"
    for name in sorted({*one.variables, *other.variables}):
        if one.variables.get(name) != other.variables.get(name):
            yield f"{name} is {other.variables.get(name, 'not set')}, not {one.variables.get(name, 'not set')}"


def _not_compared(receipt: Receipt, here: Environment) -> Iterator[str]:
    """Yield a sentence for each part of the environment that cannot be compared."""
    if (receipt.recorded or receipt.environment.device) and not here.device:
        yield "no library and device are found here"
    for name, package in receipt.environment.packages.items():
        there = here.packages.get(name)
        if there is None or there.version != package.version:
            continue
        if (package.code is None) != (there.code is None):
            yield f"{name}: its code has a digest {'here' if package.code is None else 'in the receipt'} only"


def device_differences(recorded: Mapping[str, str], here: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each difference in what is recorded of library and device, and what is found here."""
    for name in sorted({*recorded} & {*here}):
        if recorded[name] != here[name]:
            yield f"{name} is {here[name]}, not {recorded[name]}"


def _moved(operators: Sequence[Operator], profile: SupportedProfile) -> Iterator[str]:
    """Yield the products that the library describes otherwise on this machine, or on another support."""
    for each in operators:
        finding = finding_of(profile, each.problem)
        if isinstance(finding, str):
            yield f"{each.problem.words}: {finding}"
            continue
        try:
            now = lock_of([(each.problem, finding)], {})
            (change,) = {found.change for found in differences(Lock(entries=(each.entry,)), now)}
            support = profile.support(each.problem)
        except NotCovered as error:
            yield f"{each.problem.words}: {error}"
            continue
        if change != "same":
            yield f"{each.problem.words}: {change}"
        elif each.support not in ("not asked", support):
            yield f"{each.problem.words}: its descriptor is {support}, not {each.support}"
