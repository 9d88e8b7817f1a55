"""The forms of JSON answers of this distribution's commands; their JSON Schemas are published in docs/schemas."""

from __future__ import annotations

from typing import Any, Literal

from bitwise_core.cli.answer_forms import Answer, Form


class LockShowAnswer(Answer):
    """The answer of `bitwise lock show`: the content of the lock file."""

    lock: dict[str, Any]


class LockedProduct(Form):
    """A product that is not the same in two locks: how it changed, and its descriptor in each."""

    problem: dict[str, Any]
    change: str
    a: str | None
    b: str | None


class LockedAttention(Form):
    """Pinned attention that is not the same in two locks."""

    change: Literal["moved", "only in a", "only in b"]
    sentence: str


class LockDiffAnswer(Answer):
    """The answer of `bitwise lock diff`: the provenance of both locks, the products by how they changed, and pinned
    attention that changed.
    """

    a: dict[str, Any]
    b: dict[str, Any]
    counts: dict[str, int]
    products: list[LockedProduct]
    attention: list[LockedAttention]


class CheckedOperator(Form):
    """An operator that a lock leaves to PyTorch, and whether its sample returns the recorded bytes."""

    operator: str
    arguments: str
    verdict: str
    reason: str


class LockCheckAnswer(Answer):
    """The answer of `bitwise lock check`; `attention` has a sentence for each order of attention that is another one
    here.
    """

    notes: list[str]
    counts: dict[str, int]
    operators: list[CheckedOperator]
    attention: list[str]


class ReceiptCheck(Form):
    """A claim of a receipt that was checked."""

    claim: str
    kind: str
    outcome: Literal["held", "failed", "not checked"]
    details: list[str]


class ReceiptVerifyAnswer(Answer):
    """The answer of `bitwise receipt verify`."""

    outcome: Literal["held", "failed", "not checked"]
    checks: list[ReceiptCheck]
    notes: list[str]


class ReceiptDifference(Form):
    """A difference of two receipts; `unknown`: it is of products whose bits are not known."""

    part: str
    sentence: str
    unknown: bool


class ReceiptDiffAnswer(Answer):
    """The answer of `bitwise receipt diff`."""

    differences: list[ReceiptDifference]


FORMS: dict[str, type[Answer]] = {
    "lock-show": LockShowAnswer,
    "lock-diff": LockDiffAnswer,
    "lock-check": LockCheckAnswer,
    "receipt-verify": ReceiptVerifyAnswer,
    "receipt-diff": ReceiptDiffAnswer,
}
"""The forms by the name of the command."""
