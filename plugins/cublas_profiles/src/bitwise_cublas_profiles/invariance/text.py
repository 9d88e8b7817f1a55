"""Certificates as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bitwise_cublas_profiles.invariance.answers import as_record
from bitwise_cublas_profiles.invariance.certificate import Boundary, Certificate, Interval, Verdict
from bitwise_cublas_profiles.invariance.witnesses import Described, product_of
from bitwise_cublas_profiles.query import Answer

CLAIM = (
    "For all M of one class, a row of x with the same bits gives a row of the output with the same bits, whatever the "
    "other rows of x are."
)
SCOPE = (
    "M from 1 to the last one stated; M is the number of rows of the product as the library receives it, so that the "
    "rows of all sequences of a batch count.",
    "The library version and the GPU model stated: their heuristic and its answers.",
    "The settings of PyTorch stated, in force before its first product.",
    "Operands without a batch, whose rows are contiguous and whose addresses are multiples of 256.",
    "A class without `any_row`: the row has the same number in x for both M.",
)
ASSUMPTIONS = (
    "The library runs the first answer of its heuristic, as measured for PyTorch under these settings.",
    "The profile's rows give the order of a kernel's sum: measured on whole outputs, or published where `published` "
    "lists them.",
    "The bits of a matrix instruction are those of its row, for every element of its tile.",
)

_SHOWN = 12
"""The number of boundaries and classes of a product that the text lists."""


def as_json(certificate: Certificate) -> dict[str, Any]:
    """A certificate as a JSON object."""
    query = certificate.query
    return {
        "n": query.n, "k": query.k, "dtype": certificate.product.dtype, "operator": certificate.product.operator,
        "query": {
            "transposes": query.transposes, "epilogue": query.epilogue, "workspace": query.workspace,
            "reductions": query.reductions,
        },
        "rows": certificate.last,
        "verdict": certificate.verdict.value,
        "classes": [
            {
                "number": each.number, **_descriptor(each.descriptor), "any_row": each.any_row,
                "published": sorted(each.published),
                "rows": [[span.first, span.last] for span in certificate.intervals if span.bits == each.number],
            }
            for each in certificate.classes
        ],
        "without_descriptor": [
            {"rows": [each.first, each.last], "reason": each.reason} for each in certificate.declined
        ],
        "boundaries": [
            {
                "between": [each.left.last, each.right.first], "classes": [each.left.bits, each.right.bits],
                "left": as_record(each.left.right), "right": as_record(each.right.left),
                "removed": list(each.removed), "added": list(each.added),
                "witness": each.witness and each.witness.record(),
            }
            for each in certificate.boundaries
        ],
        "witnesses": [[one, other, each.record()] for one, other, each in certificate.witnesses],
    }  # fmt: skip


def _descriptor(found: Described) -> dict[str, Any]:
    rounded = getattr(found, "rounded_first", None)
    text = product_of(found).to_text()
    onto = {"slices_added_to_bias": True} if getattr(found, "onto_bias", False) else {}
    return {"descriptor": text} if rounded is None else {"descriptor": text, "bias_rounded_first": rounded, **onto}


def lines(certificate: Certificate) -> Iterator[str]:
    """A certificate as lines: the verdict, the boundaries with what changes, and the classes."""
    yield f"{certificate.product.words}: {headline(certificate)}"
    for boundary in certificate.boundaries[:_SHOWN]:
        yield from _boundary_lines(boundary)
    if len(certificate.boundaries) > _SHOWN:
        yield f"  ... {len(certificate.boundaries) - _SHOWN} more boundaries (--json lists them)"
    for each in certificate.classes[:_SHOWN]:
        where = _ranges([span for span in certificate.intervals if span.bits == each.number])
        yield f"  class {each.number}, M = {where}: {product_of(each.descriptor).to_text()}"


def headline(certificate: Certificate) -> str:
    """The verdict on one line."""
    last, verdict = certificate.last, certificate.verdict
    if verdict is Verdict.INVARIANT:
        return f"invariant for M = 1 to {last}"
    classes = f"{len(certificate.classes)} {'class' if len(certificate.classes) == 1 else 'classes'} of bits"
    declined = f", no descriptor for M = {_ranges(certificate.declined)}" if certificate.declined else ""
    if verdict is Verdict.UNKNOWN:
        return f"unknown: {classes}{declined}"
    if verdict is Verdict.UNPROVED:
        return f"unproved: {classes} by descriptor, and no drawn operands with other bytes{declined}"
    first = next((each for each in certificate.boundaries if each.witness is not None), None)
    where = "" if first is None else f", first from M = {first.left.last} to {first.right.first}"
    return f"not invariant: {classes}{where}{declined}"


def _boundary_lines(boundary: Boundary) -> Iterator[str]:
    left, right = boundary.left, boundary.right
    head = f"  M = {left.last} to {right.first}:"
    if left.bits is None or right.bits is None:
        side = left if left.bits is None else right
        yield f"{head} {'until' if side is left else 'from'} there no descriptor: {side.reason}"
        return
    shown = "other bytes" if boundary.witness is not None else "another descriptor"
    yield f"{head} class {left.bits} to class {right.bits}, {shown}; {_changed(left.right, right.left)}"
    for sign, sentences in (("-", boundary.removed), ("+", boundary.added)):
        for sentence in sentences:
            yield f"    {sign} {sentence}"


def _changed(one: Answer | None, other: Answer | None) -> str:
    if one is None or other is None:
        return "another answer"
    before, after = one.configuration.record(), other.configuration.record()
    changed = [f"{name} {before[name]} -> {after[name]}" for name in before if before[name] != after[name]]
    return ", ".join(changed) or "the same configuration"


def _ranges(intervals: Sequence[Interval]) -> str:
    found = [f"{each.first}" if each.first == each.last else f"{each.first}-{each.last}" for each in intervals]
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more ranges" if len(found) > _SHOWN else "")
