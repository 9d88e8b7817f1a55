"""The search: whole launches on random buffers first, then the trees of the element where the kernels diverge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bitwise_core import numerics
from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.counterexamples.kernel_pair import KernelPair, NotFound, make_pair, zero_extended
from bitwise_core.checker.counterexamples.tree_search import Evaluator, build_trees, candidates
from bitwise_core.checker.counterexamples.value_distributions import (
    DISTINGUISHING_KINDS,
    NEUTRAL_KINDS,
    ORDER_KINDS,
    WORDS,
    draw,
    special_patterns,
)
from bitwise_core.checker.results import conflicting_tensors, given_digests
from bitwise_core.checker.sources import Arches, Options, Source, arch_pair
from bitwise_core.checker.trees.divergence import DivergenceTrace
from bitwise_core.checker.verdicts import Comparison, Counterexample, Outcome, Verdict, refuted
from bitwise_core.checker.wording import counted
from bitwise_core.execution.assumptions import FINITE
from bitwise_core.execution.buffers import element_types
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.element_types import Array, ElementType
from bitwise_core.execution.launch import ManifestError

FEW_SPECIAL = "few special values"
INITIAL_KINDS = (
    "wide",
    "normal",
    "cancelling",
    "absorbing",
    "levels",
    "anything",
    "special",
    "positive",
    "subnormal",
    FEW_SPECIAL,
    FEW_SPECIAL,
    *ORDER_KINDS * 8,
)
"""The distributions of the inputs on which whole launches are executed before the trees are searched."""

INITIAL_SHARE, TREE_SHARE = 0.35, 0.75
"""The shares of the time limit at which the search changes from launches to trees, and back to launches."""

MAXIMUM_TOGETHER, SECONDS_TOGETHER, BYTES_TOGETHER = 32, 0.5, 1 << 26
"""The largest number of inputs that are run at once, and about how long that takes and how much they hold."""

MAXIMUM_UNCONFIRMED = 8
"""The search of the trees ends after this many inputs on which the trees differ but the bytes are equal."""


def find_counterexample(
    left: Source,
    right: Source,
    arch: Arches,
    options: Options,
    comparison: Comparison | None = None,
    seconds: float = 60.0,
    seed: int = 0,
) -> Counterexample | NotFound:
    """Search for an input on which two kernels with launches return different bytes, or say why none was found.

    `comparison` is the comparison of the kernels under these options, if there is one: its programs and trees are
    reused.  Takes about `seconds`; a run that has started is completed.  Never raises because of a text.
    """
    start = time.monotonic()
    launches = [each.launch for each in (left, right) if each.launch is not None]
    if len(launches) < 2:
        return NotFound("no input was tried: a kernel has no launch")
    known = element_types(launches)
    for launch in launches:
        for name, each in element_types([launch]).items():
            if each.kind is not None and each != known[name]:
                stated = f"{known[name].name} and {each.name}"
                return NotFound(f"no input was tried: the launches declare the buffer {name} as {stated}")
    one_launch = replace(options, every_launch=False)
    conflict = conflicting_tensors(given_digests(left, one_launch), given_digests(right, one_launch))
    if conflict is not None:
        return NotFound(f"no input was tried: {conflict}")
    trace = None if comparison is None else comparison.trace
    try:
        prepared = _prepare((left, right), arch, options, comparison)
        finite = FINITE in options.assume
        kernels = make_pair(prepared, known, trace, seconds, finite, _determined(comparison, options))
        return _search(kernels, trace, np.random.default_rng(seed), start, seconds)
    except (Unsupported, AssemblyError, ManifestError) as error:
        return NotFound(f"no input was tried: {error}")
    except MemoryError:
        return NotFound("the search for an input ran out of memory")
    except Exception as error:
        # An internal error of the search must not change the verdict of the analysis.
        return NotFound(f"internal error of the search for an input, which is a bug ({type(error).__name__}: {error})")


def search_verdict(
    left: Source, right: Source, arch: Arches, options: Options, comparison: Comparison, seconds: float
) -> Verdict:
    """The verdict of a comparison after a search for a counterexample of about `seconds` (0: no search).

    Kernels that are proved equal and nondeterministic kernels are not executed.
    """
    verdict = comparison.verdict
    if (
        verdict.outcome is Outcome.EQUAL
        or seconds <= 0
        or any(result.nondeterministic for result in comparison.results)
    ):
        return verdict
    counterexample = find_counterexample(left, right, arch, options, comparison, seconds)
    if isinstance(counterexample, NotFound):
        return replace(verdict, notes=(*verdict.notes, counterexample.sentence))
    return refuted(verdict, counterexample)


def _prepare(
    sources: tuple[Source, Source], arch: Arches, options: Options, comparison: Comparison | None
) -> tuple[PreparedLaunch, PreparedLaunch]:
    results = (None, None) if comparison is None else comparison.results
    left, right = (
        result.prepared if result is not None and result.prepared is not None else prepare(source, own, options)
        for source, own, result in zip(sources, arch_pair(arch), results, strict=True)
    )
    return left, right


def _determined(comparison: Comparison | None, options: Options) -> tuple[bool, bool]:
    """Whether the results of both kernels are proved to be determined, which a complete analysis of one proves."""
    if comparison is None or options.every_launch:
        return False, False
    left, right = (result.unknown is None for result in comparison.results)
    return left, right


def _search(
    kernels: KernelPair, trace: DivergenceTrace | None, random: np.random.Generator, start: float, seconds: float
) -> Counterexample | NotFound:
    failure = ""
    for found in _run_launches(kernels, random, start + INITIAL_SHARE * seconds, INITIAL_KINDS):
        if isinstance(found, Counterexample):
            return found
        failure = found or failure
    if not kernels.runs:
        return NotFound(f"no input could be run: {failure}")
    tree_note = ""
    if trace is not None:
        by_trees = _search_trees(kernels, trace, random, start + TREE_SHARE * seconds)
        if isinstance(by_trees, Counterexample):
            return by_trees
        tree_note = by_trees
    while time.monotonic() < start + seconds:
        for found in _run_launches(
            kernels,
            random,
            start + seconds,
            (*DISTINGUISHING_KINDS, *["absorbing", "levels"] * 8, *DISTINGUISHING_KINDS, *[FEW_SPECIAL] * 6),
            mixed=True,
        ):
            if isinstance(found, Counterexample):
                return found
            failure = found or failure
    passed = time.monotonic() - start
    runs = counted(kernels.runs, "run")
    tried = f"no input was found on which the bytes differ, in {runs} of both kernels and {passed:.0f} s"
    parts = (tried, tree_note, failure and f"some inputs could not be run ({failure})")
    return NotFound("; ".join(part for part in parts if part), kernels.runs)


def _run_launches(
    kernels: KernelPair, random: np.random.Generator, deadline: float, kinds: Sequence[str], mixed: bool = False
) -> Iterator[Counterexample | str | None]:
    """Run both kernels on random buffers, one distribution after another until the deadline.

    Yields a counterexample, None where the bytes are equal, or a sentence where an input could not be executed.
    """
    if not kernels.sizes:
        try:
            kernels.measure()
        except Unsupported as error:
            yield str(error)
    waiting, count = list(kinds), 1
    while waiting and not (kernels.runs and time.monotonic() >= deadline):
        inputs = [_drawn_input(kernels, random, kind, mixed) for kind in waiting[:count]]
        del waiting[:count]
        start = time.monotonic()
        for found in kernels.run_together(inputs):
            yield str(found) if isinstance(found, Unsupported) else found
        of_one = (time.monotonic() - start) / len(inputs)
        size = max(1, sum(kernels.sizes.values()))
        count = max(1, min(MAXIMUM_TOGETHER, int(SECONDS_TOGETHER / max(of_one, 1e-3)), BYTES_TOGETHER // size))


def _drawn_input(
    kernels: KernelPair, random: np.random.Generator, kind: str, mixed: bool
) -> tuple[dict[str, Array], str]:
    """The bytes of all buffers, of a distribution or of several if `mixed`, and what was drawn in words."""
    # Integers are often addresses and bounds, so most draws keep them small.
    largest = (None, 3, 1)[int(random.integers(3))] if mixed or kind == "normal" else 1
    if kind == FEW_SPECIAL:
        kind_of = dict.fromkeys(kernels.forms, str(random.choice(["normal", "normal", "positive"])))
    elif mixed and kind in ORDER_KINDS and random.random() < 0.5:
        kind_of = dict.fromkeys(kernels.forms, kind)
    elif mixed and random.random() < 0.5:
        kind_of = {name: str(random.choice(DISTINGUISHING_KINDS)) for name in kernels.forms}
    elif mixed and random.random() < 0.5:
        # The other buffers mask no difference in the sums of one.
        kind_of = {name: str(random.choice(NEUTRAL_KINDS)) for name in kernels.forms}
        kind_of[str(random.choice(list(kernels.forms)))] = kind
    else:
        kind_of = dict.fromkeys(kernels.forms, kind)
    contents = {
        name: draw(form, max(1, kernels.sizes.get(name, 0) // form.bytes), kind_of[name], random, largest)
        for name, form in kernels.forms.items()
    }
    if kind == FEW_SPECIAL:
        _insert_special_values(contents, kernels.forms, random)
    drawn = kind if kind == FEW_SPECIAL else " and ".join(dict.fromkeys(WORDS[each] for each in kind_of.values()))
    return {name: patterns.view(np.uint8) for name, patterns in contents.items()}, drawn


def _insert_special_values(
    contents: Mapping[str, Array], forms: Mapping[str, ElementType], random: np.random.Generator
) -> None:
    """Put one special value into one or a few elements of one buffer."""
    names = [name for name in contents if forms[name].format is not None]
    if names:
        name = str(random.choice(names))
        form, patterns = forms[name].format, contents[name]
        assert form is not None
        count = int(random.choice([1, 2, 1 + patterns.size // 1000]))
        patterns[random.integers(0, patterns.size, count)] = random.choice(special_patterns(form))


def _run(kernels: KernelPair, contents: Mapping[str, Array], drawn: str) -> Iterator[Counterexample | str | None]:
    try:
        yield kernels.run(contents, drawn)
    except Unsupported as error:
        yield str(error)


def _search_trees(
    kernels: KernelPair, trace: DivergenceTrace, random: np.random.Generator, deadline: float
) -> Counterexample | str:
    """Search the trees of the divergent element for inputs, and run both kernels on each."""
    trees = build_trees(trace, kernels.forms)
    if trees is None:
        return "the trees of the divergent element are too large to be searched"
    buffer = trace.buffer
    unconfirmed = 0
    try:
        for found in candidates(
            trees,
            Evaluator(trace, kernels.forms),
            kernels.forms,
            kernels.forms[buffer].format,
            _difference_in_buffer(kernels, buffer),
            random,
            deadline,
        ):
            if isinstance(found, bool):
                return "" if found else "no input was found on which the divergent nodes differ"
            for counterexample in _run(kernels, _contents(kernels, found), "values chosen at the divergent nodes"):
                if isinstance(counterexample, Counterexample):
                    return counterexample
            unconfirmed += 1
            if unconfirmed == MAXIMUM_UNCONFIRMED:
                break
    except numerics.Unevaluable as error:
        return f"the trees of the divergent element could not be searched: {error}"
    return "all inputs found on which the trees differ gave equal bytes"


def _contents(kernels: KernelPair, found: Mapping[tuple[str, int], int]) -> dict[str, Array]:
    """The bytes of all buffers, with these patterns at their elements and zeros elsewhere."""
    contents = {name: np.zeros(kernels.sizes.get(name, 0), dtype=np.uint8) for name in kernels.forms}
    for (name, index), pattern in found.items():
        width = kernels.forms[name].bytes
        contents[name] = zero_extended(contents[name], max(contents[name].size, (index + 1) * width))
        word = np.frombuffer(pattern.to_bytes(width, "little"), dtype=np.uint8)
        contents[name][index * width : (index + 1) * width] = word
    return contents


def _difference_in_buffer(kernels: KernelPair, buffer: str) -> Callable[[Array, Array], Array]:
    def different(left: Array, right: Array) -> Array:
        form = kernels.forms[buffer].format
        if form is not None and left.dtype.itemsize == kernels.forms[buffer].bytes:
            return kernels.differ(buffer, left, right)
        return np.asarray(left != right)

    return different
