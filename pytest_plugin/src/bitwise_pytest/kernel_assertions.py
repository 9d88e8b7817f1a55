"""Assertions about kernels, which the checker proves without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bitwise_core import Determinism, Outcome, Partition, Source, compare, determinism, partition
from bitwise_pytest.kernel_sources import Kernels, sources_of


def assert_same_bits(
    kernel: Kernels,
    configs: Sequence[Any] | None = None,
    args: Mapping[str, Any] | None = None,
    *,
    launch: Any = None,
    assume: Iterable[str] = (),
    search_seconds: float = 5.0,
    **options: Any,
) -> None:
    """Fail unless all kernels are proved to return the same bits for their launch.

    `kernel`, `configs`, `args` and the options (`grid`, `constants`, `target`, `tensors`) are those of
    `bitwise_triton.capture`.  Without `configs`, `kernel` is a folder of assembly, or a sequence of files, texts and
    `Source` records, with the `launch` of those that have none.  `assume` names conditions that a proof may use
    ("finite").  Where a proof is missing, a counterexample is searched for during `search_seconds`.  Raises
    BitwiseError for a kernel that does not compile or cannot be read, and TypeError for arguments that do not fit.
    """
    __tracebackhide__ = True
    sources = sources_of(kernel, configs, args, launch, options)
    found = partition(sources, assume=tuple(assume), workers=1)
    if len(found.classes) == 1 and not found.unknown:
        return
    words = _first_pair(sources, found, assume, search_seconds)
    raise AssertionError("\n".join([*_classes(found.classes, found.unknown), words]))


def assert_deterministic(
    kernel: Kernels,
    configs: Sequence[Any] | None = None,
    args: Mapping[str, Any] | None = None,
    *,
    launch: Any = None,
    assume: Iterable[str] = (),
    **options: Any,
) -> None:
    """Fail unless every kernel is proved to return the same bits in every run.

    The arguments are those of `assert_same_bits`.  Raises BitwiseError and TypeError as it does.
    """
    __tracebackhide__ = True
    sources = sources_of(kernel, configs, args, launch, options)
    report = determinism(sources, assume=tuple(assume), workers=1)
    lines = []
    for each in report.kernels:
        if each.outcome is not Determinism.DETERMINISTIC:
            lines += [f"{each.name} is {each.outcome.value}: {each.reason}", *(f"  {place}" for place in each.places)]
    if lines:
        raise AssertionError("\n".join(["not every kernel is proved to be deterministic", *lines]))


def _classes(classes: Sequence[Sequence[str]], unknown: Mapping[str, str]) -> list[str]:
    lines = [f"the kernels are in {len(classes)} classes" if len(classes) > 1 else "nothing is proved of the kernel"]
    for number, names in enumerate(classes, 1):
        reason = f", unknown: {unknown[names[0]]}" if names[0] in unknown else ""
        lines.append(f"  class {number}: {', '.join(names)}{reason}")
    return lines


def _first_pair(sources: Sequence[Source], found: Partition, assume: Iterable[str], seconds: float) -> str:
    """Return the verdict on the first kernels of two classes, in words."""
    known = [names[0] for names in found.classes if names[0] not in found.unknown]
    if len(known) < 2:
        return "a kernel that is unknown is proved to be equal to no other"
    one, other = (next(each for each in sources if each.name == name) for name in known[:2])
    return verdict_words(one, other, assume, seconds)[1]


def verdict_words(one: Source, other: Source, assume: Iterable[str], seconds: float) -> tuple[bool, str]:
    """Return whether two kernels are proved equal, and the verdict in words: counterexample and divergence."""
    verdict = compare(one, other, assume=tuple(assume), search_seconds=seconds)
    lines = [f"{one.name} against {other.name}: {verdict.outcome.value}: {verdict.reason}"]
    if verdict.counterexample is not None:
        lines.append(f"  on an input, {verdict.counterexample.sentence}")
    found = verdict.divergence
    if found is not None:
        lines.append(f"  the first divergence is at {found.element}{f': {found.meaning}' if found.meaning else ''}")
        for source, side in ((one, found.left), (other, found.right)):
            if side is not None:
                lines.append(f"    {source.name}{f':{side.line}' if side.line else ''}: {side.node}")
    return verdict.outcome is Outcome.EQUAL, "\n".join(lines)
