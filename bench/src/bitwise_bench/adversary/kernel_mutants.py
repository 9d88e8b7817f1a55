"""Mutants of compiled kernels that the checker calls Equal, judged by bytes.

The kernels are configurations of the corpus, compiled here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from bitwise_bench.adversary.device import Device
from bitwise_bench.adversary.folders import MANIFEST, Element, manifest, typed
from bitwise_bench.adversary.judging import canonical
from bitwise_bench.adversary.patterns import Array, drawn
from bitwise_bench.adversary.scopes import Scope
from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.corpus import catalogue
from bitwise_bench.corpus.cases import DTYPE_BYTES, FLOAT_DTYPES, Case
from bitwise_bench.draws.inputs import inputs_of
from bitwise_bench.mutants.detection_rate import Kernel, compiled
from bitwise_bench.mutants.generation import Mutant, mutants, variants
from bitwise_bench.simulation.execution import size
from bitwise_conformance.suite.time_limit import TimeLimitExceeded, time_limit
from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import Session, prepare
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Source, buffer_numbers
from bitwise_core.checker.verdicts import Outcome, verdict
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import ManifestError
from bitwise_core.execution.simulation import simulate
from bitwise_core.plugins import registry

MOST_WARPS = 8
"""The warps of the largest launch whose mutants are executed."""
ANALYSIS_SECONDS = 10.0
EXECUTION_SECONDS = 15.0
_KINDS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16", "fp64": "f64"}


@dataclass(frozen=True, slots=True)
class WrongMutant:
    """A mutant that is Equal to its kernel and returns other bytes: the element, both patterns and the input."""

    kernel: Kernel
    mutant: Mutant
    scope: str
    element: Element
    values: tuple[str, str]
    contents: Mapping[str, Array]

    def arrays(self) -> Mapping[str, Array]:
        """See `WrongEqual.arrays`."""
        return typed(self.kernel.launch, self.contents)

    def texts(self) -> Mapping[str, str]:
        """See `WrongEqual.texts`."""
        texts = {"left.ptx": self.kernel.text, "right.ptx": self.mutant.text}
        return {**texts, MANIFEST: manifest(dict.fromkeys(texts, self.kernel.launch))}

    def entry(self) -> dict[str, Any]:
        """Return the finding for a record."""
        return {
            "left": self.kernel.name, "right": f"{self.mutant.kind}: {self.mutant.before} -> {self.mutant.after}",
            "scope": self.scope, "element": f"{self.element.buffer}[{self.element.index}]",
            "place": self.element.entry(), "values": list(self.values), "loaded": {},
            "source": "mutants of compiled kernels", "confirmed": True, "with NaN": True,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """Counts of one kernel: mutants, those that are Equal, those that are Unknown, and the wrong ones.

    `on_device`: those that a GPU executed.  `device_wrong`: those with other bytes there, and `optimiser` those of them
    that have the same bytes without optimisation by the assembler.
    """

    made: int
    equal: int
    unknown: int
    wrong: tuple[WrongMutant, ...]
    on_device: int = 0
    device_wrong: tuple[Mutant, ...] = ()
    optimiser: tuple[Mutant, ...] = ()


@cache
def small_cases() -> tuple[str, ...]:
    """Return the configurations of the corpus whose launches are small."""
    return tuple(case.id for case in catalogue.cases() if size(case) <= MOST_WARPS)


def judge(name: str, scope: Scope, dice: random.Random, count: int, device: Device | None = None) -> Judged:
    """Compile a configuration, make `count` mutants, and judge those that are Equal to it, also on a GPU.

    Raises the errors of the compiler, and Unsupported where the kernel itself cannot be executed.
    """
    kernel, case = compiled(name), catalogue.by_id()[name]
    seed = str(dice.random())
    changed = [*mutants(kernel.text, seed, count), *variants(kernel.text, seed)]
    shifted = variants(kernel.text, seed + "again")
    changed += [each for variant in shifted for each in mutants(variant.text, seed, max(1, count // 8))]
    texts = {normalised_digest(kernel.text)}
    different = []
    for each in changed:
        digest = normalised_digest(each.text)
        if digest not in texts:
            texts.add(digest)
            different.append(each)
    session = Session(buffer_numbers(set(kernel.launch.buffers())), scope.options)
    original = _analysed(session, kernel, kernel.text, scope)
    if original is None or original.signature is None:
        return Judged(len(different), 0, len(different), ())
    equal, unknown = [], 0
    for each in different:
        found = _analysed(session, kernel, each.text, scope)
        if found is None or found.unknown is not None:
            unknown += 1
        elif verdict(original, found, scope.options).outcome is Outcome.EQUAL:
            equal.append(each)
    wrong = _compared(kernel, case, equal, scope, dice) if equal else []
    judged = Judged(len(different), len(equal), unknown, tuple(wrong))
    if device is None or not equal or scope.finite:
        return judged
    on_device, faulty, optimiser = _compared_on_device(kernel, case, equal, dice, device)
    return replace(judged, on_device=on_device, device_wrong=tuple(faulty), optimiser=tuple(optimiser))


def _analysed(session: Session, kernel: Kernel, text: str, scope: Scope) -> AnalysisResult | None:
    launch = None if scope.options.every_launch else kernel.launch
    try:
        with time_limit(ANALYSIS_SECONDS):
            arch = registry.default().arch("sm_90")
            return session.analyse(Source(kernel.name, text, launch, kernel.launch.entry), arch)
    except TimeLimitExceeded:
        return None


def _compared(
    kernel: Kernel, case: Case, equal: Sequence[Mutant], scope: Scope, dice: random.Random
) -> list[WrongMutant]:
    """Execute the kernel and its Equal mutants on a few inputs, and return those with other bytes."""
    found: dict[str, WrongMutant] = {}
    for draw in ("normal", "zeros") if scope.finite else ("normal", "special", "patterns"):
        contents = _contents(case, draw, dice)
        try:
            expected = _bytes(kernel.text, kernel, contents, scope)
        except (Unsupported, TimeLimitExceeded):
            continue
        for mutant in equal:
            try:
                rows = _bytes(mutant.text, kernel, contents, scope)
            except (Unsupported, TimeLimitExceeded, AssemblyError, ManifestError):
                continue
            for array in case.outputs:
                if array.name not in rows or mutant.text in found:
                    continue
                start = array.offset * DTYPE_BYTES[array.dtype]
                first, second = (canonical(each[array.name][start:], array.dtype) for each in (expected, rows))
                places = np.flatnonzero(first != second)
                if places.size:
                    index = int(places[0])
                    values = hex(int(first[index])), hex(int(second[index]))
                    element = Element(array.name, array.offset + index, array.dtype)
                    found[mutant.text] = WrongMutant(kernel, mutant, scope.name, element, values, contents)
    return list(found.values())


def _compared_on_device(
    kernel: Kernel, case: Case, equal: Sequence[Mutant], dice: random.Random, device: Device
) -> tuple[int, list[Mutant], list[Mutant]]:
    """Run the kernel and its Equal mutants on a GPU.

    Return how many mutants ran, those with other bytes, and those with other bytes only where the assembler optimises.
    """
    inputs = [_contents(case, draw, dice) for draw in ("normal", "special", "patterns")]
    before = [{name: each[name] for name in kernel.launch.buffers()} for each in inputs]

    def differs(mutant: Mutant, *, optimised: bool) -> bool | None:
        for contents in before:
            first, second = (
                device.run_launch(text, kernel.launch, contents, optimised=optimised)
                for text in (kernel.text, mutant.text)
            )
            if first is None or second is None:
                return None
            for array in case.outputs:
                start = array.offset * DTYPE_BYTES[array.dtype]
                one, other = (canonical(each[array.name][start:], array.dtype) for each in (first, second))
                if (one != other).any():
                    return True
        return False

    found = [(mutant, differs(mutant, optimised=True)) for mutant in equal]
    wrong = [mutant for mutant, other in found if other]
    plain = [mutant for mutant in wrong if differs(mutant, optimised=False)]
    return sum(other is not None for _, other in found), plain, [each for each in wrong if each not in plain]


def _contents(case: Case, draw: str, dice: random.Random) -> dict[str, Array]:
    """Return the bytes of every buffer; `patterns` replaces the floating-point inputs by special patterns."""
    bits = inputs_of(case, "special" if draw == "patterns" else draw)
    found = {}
    for array in case.arrays:
        values = bits[array.name]
        special = draw == "patterns" and array.dtype in FLOAT_DTYPES and array.dtype in _KINDS
        if special and array.role != "output" and array.kind not in ("zero", "index"):
            generator = np.random.default_rng(dice.randrange(1 << 30))
            values = drawn(_KINDS[array.dtype], values.size, generator)
        padding = np.zeros(array.offset * DTYPE_BYTES[array.dtype], dtype=np.uint8)
        found[array.name] = np.concatenate([padding, np.ascontiguousarray(values).view(np.uint8)])
    return found


def _bytes(text: str, kernel: Kernel, contents: dict[str, Array], scope: Scope) -> dict[str, Array]:
    launch = kernel.launch
    with time_limit(EXECUTION_SECONDS):
        arch = registry.default().arch("sm_90")
        prepared = prepare(Source(kernel.name, text, launch), arch, scope.options)
        before = {name: contents[name] for name in launch.buffers()}
        return dict(simulate(prepared, before, finite=scope.finite).after)
