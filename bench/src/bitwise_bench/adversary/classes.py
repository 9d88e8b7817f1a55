"""Classes of programs that the checker calls Equal."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.kernels import BUFFERS, KernelText
from bitwise_bench.adversary.programs import Program
from bitwise_bench.adversary.scopes import Scope
from bitwise_core.checker.analysis import Session
from bitwise_core.checker.sources import Source
from bitwise_core.execution.launch import POINTER_SHIFT


@dataclass(frozen=True, slots=True)
class Analysed:
    """The canonical form of each program, None where the analysis stopped, and the reasons of those."""

    forms: tuple[Hashable | None, ...]
    reasons: tuple[str, ...]


def analyse(programs: Sequence[Program], language: Language, scope: Scope) -> Analysed:
    """Analyse programs.  Two programs with the same form are Equal by the verdict of this scope.

    For one launch all programs share a kernel.  If its analysis stops, its halves are analysed, so that one program
    affects no other.
    """
    if scope.options.every_launch:
        return _one_by_one(programs, language, scope)
    kernel = language.kernel(programs)
    session = Session(BUFFERS, scope.options)
    result = session.analyse(Source("kernel", kernel.text, kernel.launch(1)), language.arch)
    if result.malformed or result.failed:
        raise RuntimeError(f"the adversary wrote a kernel that the analysis rejects: {result.unknown}")
    if result.outputs is not None and result.unknown is None:
        return Analysed(tuple(_forms(kernel, result.outputs, session)), ())
    if len(programs) == 1:
        return Analysed((None,), (str(result.unknown),))
    middle = len(programs) // 2
    left, right = (analyse(part, language, scope) for part in (programs[:middle], programs[middle:]))
    return Analysed((*left.forms, *right.forms), (*left.reasons, *right.reasons))


def _forms(kernel: KernelText, outputs: object, session: Session) -> list[Hashable]:
    assert isinstance(outputs, dict)
    found: dict[tuple[str, int], list[Hashable]] = {}
    for buffer, number in session.buffers.items():
        output = outputs.get(number)
        if output is None:
            continue
        slot_bytes = kernel.slot_bytes(buffer)
        offset = output.address.astype(np.int64) & ((1 << POINTER_SHIFT) - 1)
        slots, places = offset // slot_bytes, offset % slot_bytes
        rows = zip(slots.tolist(), places.tolist(), output.size.tolist(), *output.words.tolist(), strict=True)
        for slot, *row in rows:
            found.setdefault((buffer, slot), []).append(tuple(row))
    # A program whose threads all end early stores nothing.
    return [(place.buffer, tuple(found.get((place.buffer, place.slot), ()))) for place in kernel.places]


def _one_by_one(programs: Sequence[Program], language: Language, scope: Scope) -> Analysed:
    forms: list[Hashable | None] = []
    reasons: list[str] = []
    for program in programs:
        kernel = language.kernel([program])
        launch = kernel.launch(1)
        session = Session(BUFFERS, scope.options)
        result = session.analyse(Source("kernel", kernel.text, None, launch.entry), language.arch)
        if result.malformed or result.failed:
            raise RuntimeError(
                f"the adversary wrote a kernel that the analysis rejects: {result.unknown}\n{kernel.text}"
            )
        if result.signature is None:
            forms.append(None)
            reasons.append(str(result.unknown))
        else:
            # Kernels with other buffers have other parameters.
            forms.append((launch.buffers(), result.signature))
    return Analysed(tuple(forms), tuple(reasons))


def grouped(forms: Sequence[Hashable | None]) -> list[list[int]]:
    """Return the classes of at least two programs, as indices in order."""
    found: dict[Hashable, list[int]] = {}
    for index, form in enumerate(forms):
        if form is not None:
            found.setdefault(form, []).append(index)
    return [each for each in found.values() if len(each) > 1]
