"""The search itself: whole launches on drawn buffers first, then the trees of the element where the kernels diverge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bitwise_core import numerics
from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import Arches, Options, Source, arch_pair, prepare
from bitwise_core.checker.comparison import Comparison, DivergenceTrace
from bitwise_core.checker.counterexamples.kernel_pair import NotFound, Pair, extended, pair_of
from bitwise_core.checker.counterexamples.tree_search import Evaluator, candidates, trees_of
from bitwise_core.checker.counterexamples.value_distributions import TELLING, draw, telling_patterns
from bitwise_core.checker.verdicts import Counterexample, Outcome, Verdict, different
from bitwise_core.execution.assumptions import FINITE
from bitwise_core.execution.buffers import Array, ElementType, element_types
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import ManifestError

FEW_SPECIAL = "few special values"
FIRST_KINDS = ("wide", "normal", "cancelling", "anything", "special", "positive", "subnormal", FEW_SPECIAL, FEW_SPECIAL)
"""What whole launches are run on before the trees are looked at."""

FIRST, TREES = 0.35, 0.75
"""The shares of the time after which whole launches give way to trees, and these to whole launches again."""

MAXIMUM_UNSEEN = 8
"""After so many inputs on which the trees differ and the bytes do not, the trees are left alone."""


def find_counterexample(
    left: Source,
    right: Source,
    arch: Arches,
    options: Options,
    found: Comparison | None = None,
    seconds: float = 60.0,
    seed: int = 0,
) -> Counterexample | NotFound:
    """An input on which two kernels with launches return different bytes, or why none was found.

    `found` is the comparison of the kernels under these options, where there is one: its programs and trees are used.
    Takes about `seconds` at most: a run that has begun is finished.  Never raises for what a text says.
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
                return NotFound(f"no input was tried: the launches state {stated} of the buffer {name}")
    parted = None if found is None else found.parted
    try:
        kernels = _prepared((left, right), arch, options, found)
        two = pair_of(kernels, known, parted, seconds, FINITE in options.assume)
        return _found(two, parted, np.random.default_rng(seed), start, seconds)
    except (Unsupported, AssemblyError, ManifestError) as error:
        return NotFound(f"no input was tried: {error}")
    except MemoryError:
        return NotFound("the search for an input ran out of memory")
    except Exception as error:
        # A fault here may neither take the verdict of the reading away nor change it.
        return NotFound(
            f"the search for an input failed, which is a fault of the search ({type(error).__name__}: {error})"
        )


def search_verdict(
    left: Source, right: Source, arch: Arches, options: Options, found: Comparison, seconds: float
) -> Verdict:
    """The verdict of a comparison after a search for a counterexample of about `seconds` at most (0: no search).

    Kernels that are proved equal are not run, nor kernels without a determined result.
    """
    verdict = found.verdict
    if verdict.outcome is Outcome.EQUAL or seconds <= 0 or any(result.nondeterministic for result in found.results):
        return verdict
    seen = find_counterexample(left, right, arch, options, found, seconds)
    if isinstance(seen, NotFound):
        return replace(verdict, notes=(*verdict.notes, seen.sentence))
    return different(verdict, seen)


def _prepared(
    sources: tuple[Source, Source], arch: Arches, options: Options, found: Comparison | None
) -> tuple[PreparedLaunch, PreparedLaunch]:
    results = (None, None) if found is None else found.results
    left, right = (
        result.prepared if result is not None and result.prepared is not None else prepare(source, own, options)
        for source, own, result in zip(sources, arch_pair(arch), results, strict=True)
    )
    return left, right


def _found(
    two: Pair, parted: DivergenceTrace | None, random: np.random.Generator, start: float, seconds: float
) -> Counterexample | NotFound:
    refused = ""
    for found in _whole(two, random, start + FIRST * seconds, FIRST_KINDS):
        if isinstance(found, Counterexample):
            return found
        refused = found or refused
    if not two.runs:
        return NotFound(f"no input could be run: {refused}")
    why = ""
    if parted is not None:
        by_trees = _by_trees(two, parted, random, start + TREES * seconds)
        if isinstance(by_trees, Counterexample):
            return by_trees
        why = by_trees
    while time.monotonic() < start + seconds:
        for found in _whole(two, random, start + seconds, (*TELLING, *TELLING, *[FEW_SPECIAL] * 6), mixed=True):
            if isinstance(found, Counterexample):
                return found
            refused = found or refused
    passed = time.monotonic() - start
    tried = f"no input was found on which the bytes differ, in {two.runs} runs of both kernels and {passed:.0f} s"
    parts = (tried, why, refused and f"some inputs could not be run ({refused})")
    return NotFound("; ".join(part for part in parts if part), two.runs)


def _whole(
    two: Pair, random: np.random.Generator, deadline: float, kinds: Sequence[str], mixed: bool = False
) -> Iterator[Counterexample | str | None]:
    """Runs on drawn buffers, kind by kind until the deadline; a sentence where a draw could not be run."""
    if not two.sizes:
        try:
            two.measure()
        except Unsupported as error:
            yield str(error)
    for kind in kinds:
        if two.runs and time.monotonic() >= deadline:
            return
        # Integers are addresses and bounds as often as data, so that most draws keep them small.
        largest = (None, 3, 1)[int(random.integers(3))] if mixed or kind == "normal" else 1
        if kind == FEW_SPECIAL:
            of = dict.fromkeys(two.forms, str(random.choice(["normal", "normal", "positive"])))
        elif mixed and random.random() < 0.5:
            of = {name: str(random.choice(TELLING)) for name in two.forms}
        else:
            of = dict.fromkeys(two.forms, kind)
        contents = {
            name: draw(form, max(1, two.sizes.get(name, 0) // form.bytes), of[name], random, largest)
            for name, form in two.forms.items()
        }
        if kind == FEW_SPECIAL:
            _place_few(contents, two.forms, random)
        drawn = kind if kind == FEW_SPECIAL else " and ".join(dict.fromkeys(of.values())) + " values"
        yield from _try(two, {name: patterns.view(np.uint8) for name, patterns in contents.items()}, drawn)


def _place_few(contents: Mapping[str, Array], forms: Mapping[str, ElementType], random: np.random.Generator) -> None:
    """A special value in a few elements of one buffer, or in one of them."""
    names = [name for name in contents if forms[name].format is not None]
    if names:
        name = str(random.choice(names))
        form, patterns = forms[name].format, contents[name]
        assert form is not None
        count = int(random.choice([1, 2, 1 + patterns.size // 1000]))
        patterns[random.integers(0, patterns.size, count)] = random.choice(telling_patterns(form))


def _try(two: Pair, contents: Mapping[str, Array], drawn: str) -> Iterator[Counterexample | str | None]:
    try:
        yield two.run(contents, drawn)
    except Unsupported as error:
        yield str(error)


def _by_trees(two: Pair, parted: DivergenceTrace, random: np.random.Generator, deadline: float) -> Counterexample | str:
    """Searches on the trees of the element where the kernels part, and runs what is found."""
    trees = trees_of(parted, two.forms)
    if trees is None:
        return "the trees where they part are too large to be searched"
    buffer = parted.buffer
    unseen = 0
    try:
        for found in candidates(
            trees,
            Evaluator(parted, two.forms),
            two.forms,
            two.forms[buffer].format,
            _differing(two, buffer),
            random,
            deadline,
        ):
            if isinstance(found, bool):
                return "" if found else "no input was found on which even the nodes where they part differ"
            for seen in _try(two, _contents(two, found), "values placed where the trees diverge"):
                if isinstance(seen, Counterexample):
                    return seen
            unseen += 1
            if unseen == MAXIMUM_UNSEEN:
                break
    except numerics.Unevaluable as error:
        return f"the trees where they part could not be searched: {error}"
    return "inputs on which the trees differ, as far as they can be shown, gave equal bytes"


def _contents(two: Pair, found: Mapping[tuple[str, int], int]) -> dict[str, Array]:
    """The bytes of buffers that hold patterns at places, and zeros elsewhere."""
    contents = {name: np.zeros(two.sizes.get(name, 0), dtype=np.uint8) for name in two.forms}
    for (name, index), pattern in found.items():
        width = two.forms[name].bytes
        contents[name] = extended(contents[name], max(contents[name].size, (index + 1) * width))
        word = np.frombuffer(pattern.to_bytes(width, "little"), dtype=np.uint8)
        contents[name][index * width : (index + 1) * width] = word
    return contents


def _differing(two: Pair, buffer: str) -> Callable[[Array, Array], Array]:
    def different(left: Array, right: Array) -> Array:
        form = two.forms[buffer].format
        if form is not None and left.dtype.itemsize == two.forms[buffer].bytes:
            return two.differ(buffer, left, right)
        return np.asarray(left != right)

    return different
