"""The differences of two receipts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bitwise_torch.locks import Lock, attention_differences, differences
from bitwise_torch.receipts.receipt_file import Receipt
from bitwise_torch.receipts.verification import environment_differences

Part = Literal["environment", "product", "attention", "call", "file", "claim"]


@dataclass(frozen=True, slots=True)
class ReceiptDifference:
    """One difference.  `unknown` marks products of which one has no descriptor, so that their bits are not compared."""

    part: Part
    sentence: str
    unknown: bool = False


def receipt_differences(a: Receipt, b: Receipt) -> list[ReceiptDifference]:
    """Return the differences of two receipts: environment, products, attention, calls of PyTorch, files, claims.

    Products with descriptors that make the same roundings of the same sums do not differ.
    """
    return [*_environments(a, b), *_products(a, b), *_attention(a, b), *_calls(a, b), *_files(a, b), *_claims(a, b)]


def _environments(a: Receipt, b: Receipt) -> Iterator[ReceiptDifference]:
    for sentence in environment_differences(a.environment, b.environment):
        yield ReceiptDifference("environment", f"in b {sentence}")
    for name in dict.fromkeys((*a.recorded, *b.recorded)):
        values = [each.recorded.get(name, "not recorded") for each in (a, b)]
        if values[0] != values[1]:
            yield ReceiptDifference("environment", f"{name}: {values[0]} in a, {values[1]} in b")


def _products(a: Receipt, b: Receipt) -> Iterator[ReceiptDifference]:
    for found in differences(Lock(entries=a.entries), Lock(entries=b.entries)):
        if found.change != "same":
            yield ReceiptDifference("product", f"{found.problem.words}: {found.change}", found.change == "unknown")


def _attention(a: Receipt, b: Receipt) -> Iterator[ReceiptDifference]:
    for found in attention_differences(a.content, b.content):
        yield ReceiptDifference("attention", found.sentence)


def _calls(a: Receipt, b: Receipt) -> Iterator[ReceiptDifference]:
    """Yield the calls that PyTorch computes in one receipt only, and those whose recorded samples differ."""
    left, right = a.content.by_call, b.content.by_call
    for call in dict.fromkeys((*left, *right)):
        one, other = left.get(call), right.get(call)
        if one is None or other is None:
            yield ReceiptDifference("call", f"{call[0]} {call[1]}: only in {'b' if one is None else 'a'}")
        elif not one.digests or not other.digests:
            yield ReceiptDifference("call", f"{call[0]} {call[1]}: there is no sample", unknown=True)
        elif one.digests[one.recorded] != other.digests[other.recorded]:
            yield ReceiptDifference("call", f"{call[0]} {call[1]}: samples returned other bytes")


def _files(a: Receipt, b: Receipt) -> Iterator[ReceiptDifference]:
    left, right = ({each.name: each.digest for each in receipt.kernels} for receipt in (a, b))
    for name in sorted({*left, *right}):
        if left.get(name) != right.get(name):
            how = "has another content" if name in left and name in right else f"only in {'a' if name in left else 'b'}"
            yield ReceiptDifference("file", f"{name}: {how}")


def _claims(a: Receipt, b: Receipt) -> Iterator[ReceiptDifference]:
    left, right = ({each.name: each for each in receipt.claims} for receipt in (a, b))
    for name in sorted({*left, *right}):
        if name.startswith("file."):
            continue
        one, other = left.get(name), right.get(name)
        if one is None or other is None:
            yield ReceiptDifference("claim", f"{name}: only in {'b' if one is None else 'a'}")
        elif one != other:
            sides = f"{one.kind} in a ({one.method}), {other.kind} in b ({other.method})"
            yield ReceiptDifference("claim", f"{name}: {sides}")
