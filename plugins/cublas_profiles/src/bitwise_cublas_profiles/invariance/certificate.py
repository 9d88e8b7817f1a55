"""The classes of bits of a product over its number of rows, from the library's answers and a profile."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import pairwise

from bitwise_core.descriptors import DescriptorError
from bitwise_core.descriptors.evaluation import unit_of
from bitwise_core.descriptors.problem import BiasedGEMM
from bitwise_core.descriptors.summary import words
from bitwise_core.plugins import registry
from bitwise_core.probing.reconstruction.equivalence import ValueTable, structure
from bitwise_cublas_profiles.describe import biased_product_of, depends_on_rows, descriptor_of
from bitwise_cublas_profiles.invariance.answers import Run
from bitwise_cublas_profiles.invariance.products import Product
from bitwise_cublas_profiles.invariance.witnesses import Described, Witness, find_witness, product_of
from bitwise_cublas_profiles.profile import Profile, UnmeasuredRows
from bitwise_cublas_profiles.query import Answer, CublasError, GemmQuery

NO_ALGORITHM = "the library has no algorithm for this query"


class Verdict(Enum):
    """What a certificate shows. `UNPROVED`: descriptors differ, but no drawn operands show other bytes. `UNKNOWN`: some
    numbers of rows have no descriptor, and no boundary is shown.
    """

    INVARIANT = "invariant"
    NOT_INVARIANT = "not invariant"
    UNPROVED = "unproved"
    UNKNOWN = "unknown"


STATUS = {Verdict.INVARIANT: 0, Verdict.NOT_INVARIANT: 1, Verdict.UNKNOWN: 3, Verdict.UNPROVED: 4}
"""The exit status of each verdict, as those of `bitwise diff`."""


@dataclass(frozen=True)
class BitsClass:
    """Descriptors that make the same roundings of the same sums.

    `published` names the rows of the profile that its descriptors rest on and that were not measured.
    """

    number: int
    descriptor: Described
    published: frozenset[str] = frozenset()

    @property
    def any_row(self) -> bool:
        """Whether a row has these bits at every position: whether no tile of rows has an order of its own."""
        rotation = product_of(self.descriptor).iteration_rotation
        return rotation is None or rotation.axis != "rows"

    @property
    def words(self) -> list[str]:
        """The class as sentences."""
        desc = product_of(self.descriptor)
        unit = registry.default().matrix_units.get(desc.instruction_name) if desc.instruction is not None else None
        found = words(desc, unit)
        if isinstance(self.descriptor, BiasedGEMM):
            first = self.descriptor.rounded_first
            added = f"The bias is added to the {'sum rounded to the output type' if first else 'fp32 sum'}."
            found.append("The slices are added to the bias." if self.descriptor.onto_bias else added)
        return found


@dataclass(frozen=True)
class Interval:
    """Numbers of rows from `first` to `last` of one class; without a class, `reason` says why there is no descriptor.

    `left` and `right` are the answers at both ends.
    """

    first: int
    last: int
    bits: int | None
    reason: str
    left: Answer | None
    right: Answer | None


@dataclass(frozen=True)
class Boundary:
    """Two neighbouring intervals of other bits, or of which one has no descriptor.

    `removed` and `added` are the sentences on the descriptor at M = last of the left interval and M = first of the
    right one that the other does not have. `witness` shows that bytes differ.
    """

    left: Interval
    right: Interval
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    witness: Witness | None = None


@dataclass(frozen=True)
class Certificate:
    """What is known of the bits of a product for M from 1 to `last`."""

    product: Product
    query: GemmQuery
    last: int
    classes: tuple[BitsClass, ...]
    intervals: tuple[Interval, ...]
    boundaries: tuple[Boundary, ...]
    witnesses: tuple[tuple[int, int, Witness], ...] = field(default=())
    """Pairs of classes whose bytes differ."""

    @property
    def declined(self) -> tuple[Interval, ...]:
        """The intervals without a descriptor."""
        return tuple(each for each in self.intervals if each.bits is None)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on all M from 1 to `last`."""
        if self.witnesses:
            return Verdict.NOT_INVARIANT
        if self.declined:
            return Verdict.UNKNOWN
        return Verdict.INVARIANT if len(self.classes) == 1 else Verdict.UNPROVED

    def bits_at(self, m: int) -> int | None:
        """The class of a number of rows, None if it has no descriptor."""
        return next(each.bits for each in self.intervals if each.first <= m <= each.last)


class Certifier:
    """Certificates by one profile. Descriptors that several products share are compared once."""

    def __init__(self, known: Profile) -> None:
        self.known = known
        self._witnesses: dict[tuple[Described, Described], Witness | None] = {}
        self._structures: dict[Described, Hashable] = {}
        self._table = ValueTable()

    def certificate(self, product: Product, query: GemmQuery, runs: Sequence[Run]) -> Certificate:
        """The certificate of a product from the answers to its query, in ascending M from 1 without gaps."""
        by_structure: dict[Hashable, BitsClass] = {}
        descriptors: dict[int, Described] = {}
        intervals: list[Interval] = []
        for first, last, answer in _divided(runs, self.known):
            found, published = self._described(replace(query, m=first), answer)
            if isinstance(found, str):
                number, reason = None, found
            else:
                key = self._structure(found)
                known = by_structure.get(key) or BitsClass(len(by_structure), found)
                by_structure[key] = replace(known, published=known.published | published)
                number, reason = known.number, ""
                descriptors[number] = known.descriptor
            before = intervals[-1] if intervals else None
            if before is not None and (before.bits, before.reason) == (number, reason):
                intervals[-1] = replace(before, last=last, right=answer)
            else:
                intervals.append(Interval(first, last, number, reason, answer, answer))
        classes = tuple(sorted(by_structure.values(), key=lambda each: each.number))
        boundaries = tuple(self._boundary(classes, one, other) for one, other in pairwise(intervals))
        shown = {}
        for one, other in pairwise(each.bits for each in intervals if each.bits is not None):
            if one != other and (pair := (min(one, other), max(one, other))) not in shown:
                witness = self._witness(descriptors[pair[0]], descriptors[pair[1]])
                if witness is not None:
                    shown[pair] = witness
        return Certificate(
            product, query, runs[-1].last, classes, tuple(intervals), boundaries,
            tuple((*pair, witness) for pair, witness in shown.items()),
        )  # fmt: skip

    def _described(self, query: GemmQuery, answer: Answer | None) -> tuple[Described | str, frozenset[str]]:
        """The descriptor and the rows not measured that it rests on, or the reason why there is none."""
        if answer is None:
            return NO_ALGORITHM, frozenset()
        profile = UnmeasuredRows.of(self.known)
        try:
            if query.epilogue == "bias":
                found: Described = biased_product_of(query, answer.configuration, profile)
            else:
                found = descriptor_of(query, answer.configuration, profile, workspace=answer.workspace)
        except CublasError as error:
            # The message names the M that it was found for. It holds for every M of the interval.
            return str(error).split(" is not described: ")[-1], frozenset()
        return found, frozenset(profile.names)

    def _structure(self, found: Described) -> Hashable:
        """The computation of a descriptor: equal ones return equal bits."""
        if found not in self._structures:
            desc = product_of(found)
            bias = (found.rounded_first, found.onto_bias) if isinstance(found, BiasedGEMM) else None
            try:
                unit = unit_of(desc, registry.default().matrix_units)
                self._structures[found] = (bias, structure(desc, self._table, unit))
            except DescriptorError:  # no installed plugin has the matrix unit
                self._structures[found] = (bias, desc)
        return self._structures[found]

    def _boundary(self, classes: Sequence[BitsClass], left: Interval, right: Interval) -> Boundary:
        if left.bits is None or right.bits is None:
            return Boundary(left, right)
        one, other = classes[left.bits], classes[right.bits]
        before, after = one.words, other.words
        return Boundary(
            left, right, tuple(each for each in before if each not in after),
            tuple(each for each in after if each not in before), self._witness(one.descriptor, other.descriptor),
        )  # fmt: skip

    def _witness(self, left: Described, right: Described) -> Witness | None:
        if (left, right) not in self._witnesses:
            self._witnesses[left, right] = find_witness(left, right)
        return self._witnesses[left, right]


def _divided(runs: Iterable[Run], known: Profile) -> Iterator[tuple[int, int, Answer | None]]:
    """Runs cut where a descriptor may change without another answer: after M = 1, and everywhere for some kernels."""
    for run in runs:
        first = run.first
        if run.answer is not None and depends_on_rows(run.answer.configuration, known):
            yield from ((m, m, run.answer) for m in range(first, run.last + 1))
            continue
        if first == 1:
            yield 1, 1, run.answer
            first = 2
        if first <= run.last:
            yield first, run.last, run.answer


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several products: not invariant if one is not, invariant if all are."""
    found = set(verdicts)
    order = (Verdict.NOT_INVARIANT, Verdict.UNKNOWN, Verdict.UNPROVED)
    return next((each for each in order if each in found), Verdict.INVARIANT)
