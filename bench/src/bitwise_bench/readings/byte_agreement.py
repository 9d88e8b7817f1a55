"""Equivalence classes of the corpus against recorded bytes: soundness and overpartition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bitwise_bench.recorded_bytes import CaseRecord


@dataclass(frozen=True, slots=True)
class KernelResult:
    """The analysis of one configuration: its id, the digest of its text, its signature or the reason of Unknown.

    `nondeterministic`: there is no signature because the kernel was proved to be nondeterministic.
    """

    id: str
    digest: str
    signature: str | None
    unknown: str | None = None
    nondeterministic: bool = False


@dataclass(frozen=True, slots=True)
class Agreement:
    """The equivalence classes of a set of results and the byte classes of the same kernels.

    `compared` counts the kernels that were analysed and have usable recorded bytes, `unknown` those that are Unknown,
    `nondeterministic` those proved to be nondeterministic (not included in `unknown`), and `excluded` those whose text
    differs from the recorded one or whose recorded bytes are not repeatable.  `mixed` holds one pair of kernels with
    different bytes from each class that has one: every such pair is a wrong Equal.
    """

    kernels: int
    compared: int
    unknown: int
    excluded: int
    classes: int
    byte_classes: int
    mixed: tuple[tuple[str, str], ...]
    nondeterministic: int = 0

    @property
    def ratio(self) -> float:
        """Equivalence classes over byte classes; 1 is the optimum."""
        return self.classes / self.byte_classes if self.byte_classes else 1.0


def compare(
    results: Iterable[KernelResult], recorded: Mapping[str, CaseRecord], draws: Sequence[int] | None = None
) -> Agreement:
    """Compare results with the recorded bytes of kernels of the same text, for some kinds of input (default: all)."""

    def bytes_of(record: CaseRecord) -> object:
        return record.label if draws is None else tuple(record.hashes[index] for index in draws)

    classes: dict[tuple[str, str], list[CaseRecord]] = {}
    byte_classes: set[tuple[str, object]] = set()
    kernels = unknown = nondeterministic = excluded = compared = 0
    for result in results:
        kernels += 1
        group = result.id.rsplit("/", 1)[0]
        if result.signature is None:
            nondeterministic += result.nondeterministic
            unknown += not result.nondeterministic
            continue
        record = recorded.get(result.id)
        if record is None or not record.usable or record.digest != result.digest:
            excluded += 1
            continue
        compared += 1
        classes.setdefault((group, result.signature), []).append(record)
        byte_classes.add((group, bytes_of(record)))
    mixed = []
    for members in classes.values():
        other = next((each for each in members if bytes_of(each) != bytes_of(members[0])), None)
        if other is not None:
            mixed.append((members[0].id, other.id))
    return Agreement(
        kernels, compared, unknown, excluded, len(classes), len(byte_classes), tuple(mixed), nondeterministic
    )
