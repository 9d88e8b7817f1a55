"""Rounds on programs that are kernels of their own: their classes in the analysis, their bytes, and wrong pairs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from bitwise_bench.adversary.device import Device
from bitwise_bench.adversary.execution import Executed, run
from bitwise_bench.adversary.folders import MANIFEST, Element, element_of, manifest, typed
from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.judging import Difference, canonical, difference
from bitwise_bench.adversary.kernels import BUFFERS, DTYPES, KernelText
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.scopes import AUDITED, SCOPES, Scope
from bitwise_core.checker.analysis import Session
from bitwise_core.checker.comparison import compare, compare_large
from bitwise_core.checker.sources import Source
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.domains.domain import Unsupported

BLOCKS = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """A launch of a program: its kernel, and the bytes of its input.  `name` is unique within the program."""

    kernel: KernelText
    contents: Mapping[str, Array]
    name: str = ""


class WholeProgram(Protocol):
    """A program that is a kernel of its own and stores one element of a buffer, or several, in each thread."""

    @property
    def source(self) -> str:
        """What made the program, in records."""

    @property
    def language(self) -> Language:
        """The language of the program."""

    @property
    def states_roundings(self) -> bool:
        """Whether no operation leaves its rounding to the assembler."""

    def text_key(self) -> str:
        """Return the program as text."""

    def analysed_kernel(self) -> tuple[KernelText, int]:
        """Return the kernel whose form is compared, and the number of its blocks."""

    def trials(self, scope: Scope, seed: int) -> list[Trial]:
        """Return the launches in which Equal programs are compared, in the same order for all of one source."""

    def smaller(self, other: Self) -> Iterator[tuple[Self, Self]]:
        """Yield smaller pairs than this one."""


@dataclass(frozen=True, slots=True)
class WrongPair:
    """Two programs that the checker calls Equal, and a launch in which they return different bytes."""

    left: WholeProgram
    right: WholeProgram
    scope: str
    trials: tuple[Trial, Trial]
    sample: int
    element: Element
    values: tuple[str, str]
    with_nan: bool

    def entry(self) -> dict[str, Any]:
        """Return the pair for a record."""
        return {
            "left": self.left.text_key(), "right": self.right.text_key(), "scope": self.scope,
            "element": f"thread {self.sample} of {BLOCKS} blocks{self.trials[0].name}", "place": self.element.entry(),
            "values": list(self.values), "loaded": {}, "source": self.left.source, "confirmed": True,
            "with NaN": self.with_nan,
        }  # fmt: skip

    def arrays(self) -> Mapping[str, Array]:
        """See `WrongEqual.arrays`."""
        kernel, given = self.trials[0].kernel, self.trials[0].contents
        launch = kernel.launch(BLOCKS)
        zeros = {name: np.zeros(kernel.bytes_of(name, BLOCKS), dtype=np.uint8) for name in launch.buffers()}
        return typed(launch, {**zeros, **given})

    def texts(self) -> Mapping[str, str]:
        """See `WrongEqual.texts`."""
        kernels = {
            f"{side}{trial.kernel.file.removeprefix('kernel')}": trial.kernel
            for side, trial in zip(("left", "right"), self.trials, strict=True)
        }
        launches = {name: kernel.launch(BLOCKS) for name, kernel in kernels.items()}
        return {**{name: kernel.text for name, kernel in kernels.items()}, MANIFEST: manifest(launches)}


def analysed(programs: Sequence[WholeProgram], scope: Scope) -> tuple[list[Hashable | None], list[str]]:
    """Return the form of each program of one language, None where its analysis stopped, and the reasons of those.

    The form of a program on a large grid is the number of the first one that the checker calls Equal to it.
    """
    forms: list[Hashable | None] = []
    reasons: list[str] = []
    session = Session(BUFFERS, scope.options)
    first: dict[int, Source] = {}
    for number, program in enumerate(programs):
        source, arch = _source(program, scope), program.language.arch
        result = session.analyse(source, arch)
        if result.malformed or result.failed:
            raise RuntimeError(f"the adversary wrote a kernel that the analysis rejects: {result.unknown}")
        form: Hashable | None = None if result.signature is None else (_buffers(program), result.signature)
        if result.unknown is None and result.large:
            form = next((each for each in first if _are_equal(first[each], source, arch, session)), number)
            first.setdefault(form, source)
        forms.append(form)
        if form is None:
            reasons.append(f"{program.source}: {result.unknown}")
        elif result.program_only is not None:
            reasons.append(f"{program.source}: program only: {result.program_only}")
    return forms, reasons


def _source(program: WholeProgram, scope: Scope) -> Source:
    kernel, blocks = program.analysed_kernel()
    launch = kernel.launch(blocks)
    return Source("kernel", kernel.text, None if scope.options.every_launch else launch, launch.entry)


def _buffers(program: WholeProgram) -> tuple[str, ...]:
    kernel, blocks = program.analysed_kernel()
    return tuple(kernel.launch(blocks).buffers())


def _are_equal(left: Source, right: Source, arch: Arch, session: Session) -> bool:
    """Return whether the checker calls two kernels on a large grid Equal."""
    return compare_large((left, right), arch, session).outcome is Outcome.EQUAL


def are_equal(left: WholeProgram, right: WholeProgram, scope: Scope) -> bool:
    """Return whether the checker calls two programs Equal, which may be in different languages."""
    if left.language is right.language:
        forms, _ = analysed((left, right), scope)
        return forms[0] is not None and forms[0] == forms[1]
    found = compare(
        _source(left, scope), _source(right, scope), (left.language.arch, right.language.arch), scope.options
    )
    return found.verdict.outcome is Outcome.EQUAL


def executed(program: WholeProgram, scope: Scope, seed: int) -> list[Executed]:
    """Execute a program in each of its trials.  Raises Unsupported."""
    trials = program.trials(scope, seed)
    options = SCOPES["launch" if program.states_roundings else AUDITED].options
    return [
        run(each.kernel, program.language, BLOCKS, each.contents, finite=scope.finite, options=options)
        for each in trials
    ]


def executed_on_device(
    program: WholeProgram, scope: Scope, seed: int, device: Device, *, optimised: bool = True
) -> list[Array]:
    """Return the bytes of a program on a GPU in each of its trials."""
    trials = program.trials(scope, seed)
    return [device.run(each.kernel, program.language, BLOCKS, each.contents, optimised=optimised)[0] for each in trials]


def type_of(program: WholeProgram) -> str:
    """Return the type of the elements that a program stores."""
    return DTYPES[program.analysed_kernel()[0].places[0].buffer]


def pair_difference(left: Sequence[Executed], right: Sequence[Executed], dtype: str) -> tuple[int, Difference] | None:
    """Return the number of the trial and the sample in which two programs differ, the most serious one."""
    found: list[tuple[int, Difference]] = []
    for number, (first, second) in enumerate(zip(left, right, strict=True)):
        one, two = first.allowed[0], second.allowed[0]
        allowed = None if one is None or two is None else one & two
        nans = first.nans[0] | second.nans[0]
        seen = difference(first.results[0], second.results[0], dtype, allowed, nans)
        if seen is not None:
            found.append((number, seen))
    return min(found, key=lambda each: (each[1].covered, each[1].with_nan), default=None)


def device_difference(left: Sequence[Array], right: Sequence[Array], dtype: str) -> Difference | None:
    """Return a sample in which two programs differ on a GPU."""
    found = (difference(one, other, dtype) for one, other in zip(left, right, strict=True))
    return next((each for each in found if each is not None), None)


def wrong_pair(left: WholeProgram, right: WholeProgram, scope: Scope, seed: int, *, with_nan: bool) -> WrongPair | None:
    """Return the pair if the checker calls it Equal and its bytes differ; unless `with_nan`, without a NaN."""
    try:
        if not are_equal(left, right, scope):
            return None
        results = [executed(each, scope, seed) for each in (left, right)]
    except (Unsupported, RuntimeError):
        return None
    dtype = type_of(left)
    found = pair_difference(results[0], results[1], dtype)
    if found is None or found[1].covered or (found[1].with_nan and not with_nan):
        return None
    number, seen = found
    rows = [each[number].results[0][seen.sample : seen.sample + 1] for each in results]
    shown = [canonical(each, dtype)[0] for each in rows]
    column = int(np.flatnonzero(shown[0] != shown[1])[0])
    values = hex(int(shown[0][column])), hex(int(shown[1][column]))
    one, other = (each.trials(scope, seed)[number] for each in (left, right))
    element = element_of(one.kernel, 0, seen.sample, column)
    return WrongPair(left, right, scope.name, (one, other), seen.sample, element, values, seen.with_nan)


def shrunk(pair: WrongPair, scope: Scope, seed: int, most: int = 100) -> WrongPair:
    """Return a smaller pair that is as wrong, after at most `most` attempts."""
    attempts, progress = 0, True
    while progress:
        progress = False
        for left, right in pair.left.smaller(pair.right):
            attempts += 1
            if attempts > most:
                return pair
            found = wrong_pair(left, right, scope, seed, with_nan=pair.with_nan)
            if found is not None:
                pair, progress = found, True
                break
    return pair
