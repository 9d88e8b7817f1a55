"""The search itself: whole launches on drawn buffers first, then the trees of the element where the kernels part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bitwise_core import numeric
from bitwise_core.asm import AssemblyError
from bitwise_core.buffers import Array, Form, forms
from bitwise_core.checker import MAXIMUM_LANES, Options, Prepared, Source, prepare
from bitwise_core.difference import Parted
from bitwise_core.engine.execution import execute
from bitwise_core.machine.arch import Arch
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.launch import POINTER_SHIFT, ManifestError
from bitwise_core.machine.state import THREAD_SHIFT
from bitwise_core.numeric import FLOAT_FORMATS, FloatFormat, nan_of, storage
from bitwise_core.search.trees import Evaluator, candidates, trees_of
from bitwise_core.search.values import TELLING, draw, telling_patterns

WHOLE_LANES = MAXIMUM_LANES >> 3
"""Launches of more threads are not run whole: the blocks that store the element where the kernels part are."""

FEW_SPECIAL = "few special values"
FIRST_KINDS = ("wide", "normal", "cancelling", "anything", "special", "positive", "subnormal", FEW_SPECIAL, FEW_SPECIAL)
"""What whole launches are run on before the trees are looked at."""

FIRST, TREES = 0.35, 0.75
"""The shares of the time after which whole launches give way to trees, and these to whole launches again."""

MAXIMUM_UNSEEN = 8
"""After so many inputs on which the trees differ and the bytes do not, the trees are left alone."""


@dataclass(frozen=True, slots=True)
class Distinction:
    """An input on which two kernels return different bytes, found and run.

    `arrays` holds every buffer before the launch.  The element of the smallest index that differs holds the patterns
    `left` and `right` of `size` bytes each; `count` elements differ.  `drawn` says what the input was made of.
    """

    arrays: Mapping[str, Array]
    buffer: str
    index: int
    size: int
    left: int
    right: int
    count: int
    drawn: str
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What was seen, for people."""
        digits = 2 * self.size
        return (
            f"{self.buffer}[{self.index}] is 0x{self.left:0{digits}x} and 0x{self.right:0{digits}x}"
            f" (elements that differ: {self.count}; {self.drawn})"
        )


@dataclass(frozen=True, slots=True)
class NotFound:
    """Why there is no input on which two kernels' bytes differ: a sentence, and how often both were run."""

    sentence: str
    runs: int = 0


@dataclass(slots=True)
class _Search:
    """Two kernels under search: their buffers' forms, and how many bytes of each are accessed as far as is known."""

    kernels: tuple[Prepared, Prepared]
    forms: Mapping[str, Form]
    blocks: tuple[list[int] | None, list[int] | None]
    only: tuple[str, int, int] | None
    sizes: dict[str, int] = field(default_factory=dict)
    runs: int = 0

    def run(self, contents: Mapping[str, Array], drawn: str) -> Distinction | None:
        """Runs both kernels on the same bytes.  Raises Unreadable."""
        done = []
        for each, blocks in zip(self.kernels, self.blocks, strict=True):
            names = each.ready.launch.buffers()
            done.append(execute(each.ready, {name: contents[name] for name in names}, open_ended=True, blocks=blocks))
        self.runs += 1
        for name in contents:
            found = max(each.after[name].size for each in done if name in each.after)
            width = self.forms[name].bytes
            self.sizes[name] = max(self.sizes.get(name, width), -(-found // width) * width)
        padded = {name: _padded(content, self.sizes[name]) for name, content in contents.items()}
        for name, before in padded.items():
            after = [_padded(each.after[name], before.size) if name in each.after else before for each in done]
            kind = np.dtype(f"uint{8 * self._width(name)}")
            left, right = (each.view(kind) for each in after)
            places = np.flatnonzero(self.differ(name, left, right))
            if self.only is not None:
                at, offset, size = self.only
                inside = (places * kind.itemsize >= offset) & (places * kind.itemsize < offset + size)
                places = places[inside & (at == name)]
            if places.size:
                place = int(places[0])
                arrays = {each: self._typed(each, content) for each, content in padded.items()}
                notes = tuple(dict.fromkeys(note for each in done for note in each.notes))
                return Distinction(
                    arrays, name, place, kind.itemsize, int(left[place]), int(right[place]), places.size, drawn, notes
                )
        return None

    def _width(self, name: str) -> int:
        return self.forms[name].bytes

    def _typed(self, name: str, content: Array) -> Array:
        kind = self.forms[name].kind
        return content if kind is None else content.view(kind)

    def differ(self, name: str, left: Array, right: Array) -> Array:
        """Which elements differ, two NaNs counted as one; of an unknown type, which bytes differ in every format."""
        form = self.forms[name].format
        unequal = np.asarray(left != right)
        if not unequal.any():
            return unequal
        if form is not None:
            return unequal & ~(nan_of(left, form) & nan_of(right, form))
        if self.forms[name].kind is None:
            for each in _ANY_FORMAT:
                unequal &= ~_both_nan(left, right, each)
        return unequal


_ANY_FORMAT = tuple(each for each in FLOAT_FORMATS.values() if each.bits in (8, 16, 32, 64))


def _both_nan(left: Array, right: Array, form: FloatFormat) -> Array:
    """Which bytes belong to a word that is a NaN of the format on both sides."""
    size = form.bits // 8
    whole = left.size // size * size
    words = [each[:whole].view(storage(form.bits)) for each in (left, right)]
    found = np.zeros(left.size, dtype=np.bool_)
    found[:whole] = np.repeat(nan_of(words[0], form) & nan_of(words[1], form), size)
    return found


def distinguish(
    left: Source,
    right: Source,
    arch: Arch,
    options: Options,
    parted: Parted | None,
    seconds: float = 60.0,
    seed: int = 0,
) -> Distinction | NotFound:
    """An input on which two kernels with launches return different bytes, or why there is none.

    Takes about `seconds` at most: a run that has begun is finished.  Never raises for what a text says.
    """
    start = time.monotonic()
    launches = [each.launch for each in (left, right) if each.launch is not None]
    if len(launches) < 2:
        return NotFound("no input was tried: a kernel has no launch")
    known = forms(launches)
    for launch in launches:
        for name, each in forms([launch]).items():
            if each != known[name]:
                stated = f"{known[name].name} and {each.name or 'no type'}"
                return NotFound(f"no input was tried: the launches state {stated} of the buffer {name}")
    if options.assume:
        # A run does not say whether a number on the way overflowed.
        return NotFound(f"no input was tried: none is held against the assumption {', '.join(sorted(options.assume))}")
    try:
        kernels = prepare(left, arch, options), prepare(right, arch, options)
        two = _Search(kernels, known, *_part(kernels, parted, tuple(sorted(known))))
        return _found(two, parted, np.random.default_rng(seed), start, seconds)
    except (Unreadable, AssemblyError, ManifestError) as error:
        return NotFound(f"no input was tried: {error}")
    except MemoryError:
        return NotFound("the search for an input ran out of memory")
    except Exception as error:
        # What was read stands: a fault here may neither take the verdict away nor change it.
        return NotFound(
            f"the search for an input failed, which is a fault of the search ({type(error).__name__}: {error})"
        )


def _part(
    kernels: tuple[Prepared, Prepared], parted: Parted | None, names: tuple[str, ...]
) -> tuple[tuple[list[int] | None, list[int] | None], tuple[str, int, int] | None]:
    """Which blocks are run, and the element that is looked at where they are not all: buffer, offset, bytes."""
    if all(each.ready.launch.blocks * each.ready.threads <= WHOLE_LANES for each in kernels):
        return (None, None), None
    if parted is None or None in parted.element.threads:
        raise Unreadable("the launches are too large to be run whole, and no element is known in which they part")
    element = parted.element
    first, second = ([int(thread or 0) >> THREAD_SHIFT] for thread in element.threads)
    name = names[(element.address >> POINTER_SHIFT) - 1]
    return (first, second), (name, element.address & ((1 << POINTER_SHIFT) - 1), element.size)


def _found(
    two: _Search, parted: Parted | None, random: np.random.Generator, start: float, seconds: float
) -> Distinction | NotFound:
    refused = ""
    for found in _whole(two, random, start + FIRST * seconds, FIRST_KINDS):
        if isinstance(found, Distinction):
            return found
        refused = found or refused
    if not two.runs:
        return NotFound(f"no input could be run: {refused}")
    why = ""
    if parted is not None:
        by_trees = _by_trees(two, parted, random, start + TREES * seconds)
        if isinstance(by_trees, Distinction):
            return by_trees
        why = by_trees
    while time.monotonic() < start + seconds:
        for found in _whole(two, random, start + seconds, (*TELLING, *TELLING, *[FEW_SPECIAL] * 6), mixed=True):
            if isinstance(found, Distinction):
                return found
            refused = found or refused
    passed = time.monotonic() - start
    tried = f"no input was found on which the bytes differ, in {two.runs} runs of both kernels and {passed:.0f} s"
    parts = (tried, why, refused and f"some inputs could not be run ({refused})")
    return NotFound("; ".join(part for part in parts if part), two.runs)


def _whole(
    two: _Search, random: np.random.Generator, deadline: float, kinds: Sequence[str], mixed: bool = False
) -> Iterator[Distinction | str | None]:
    """Runs on drawn buffers, kind by kind until the deadline; a sentence where a draw could not be run."""
    if not two.runs:
        yield from _try(two, {name: np.zeros(0, dtype=np.uint8) for name in two.forms}, "zeros everywhere")
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


def _place_few(contents: Mapping[str, Array], forms: Mapping[str, Form], random: np.random.Generator) -> None:
    """A special value in a few elements of one buffer, or in one of them."""
    names = [name for name in contents if forms[name].format is not None]
    if names:
        name = str(random.choice(names))
        form, patterns = forms[name].format, contents[name]
        assert form is not None
        count = int(random.choice([1, 2, 1 + patterns.size // 1000]))
        patterns[random.integers(0, patterns.size, count)] = random.choice(telling_patterns(form))


def _try(two: _Search, contents: Mapping[str, Array], drawn: str) -> Iterator[Distinction | str | None]:
    try:
        yield two.run(contents, drawn)
    except Unreadable as error:
        yield str(error)


def _by_trees(two: _Search, parted: Parted, random: np.random.Generator, deadline: float) -> Distinction | str:
    """Searches on the trees of the element where the kernels part, and runs what is found."""
    trees = trees_of(parted, two.forms)
    if trees is None:
        return "the trees where they part are too large to be searched"
    names = tuple(sorted(two.forms))
    buffer = names[(parted.element.address >> POINTER_SHIFT) - 1]
    unseen = 0
    try:
        for found in candidates(
            trees, Evaluator(parted, two.forms), two.forms, _differing(two, buffer), random, deadline
        ):
            if isinstance(found, bool):
                return "" if found else "no input was found on which even the nodes where they part differ"
            for distinction in _try(two, _contents(two, found), "values placed where the trees part"):
                if isinstance(distinction, Distinction):
                    return distinction
            unseen += 1
            if unseen == MAXIMUM_UNSEEN:
                break
    except numeric.Unevaluable as error:
        return f"the trees where they part could not be searched: {error}"
    return "inputs on which the trees differ, as far as they can be shown, gave equal bytes"


def _contents(two: _Search, found: Mapping[tuple[str, int], int]) -> dict[str, Array]:
    """The bytes of buffers that hold patterns at places, and zeros elsewhere."""
    contents = {name: np.zeros(two.sizes.get(name, 0), dtype=np.uint8) for name in two.forms}
    for (name, index), pattern in found.items():
        width = two.forms[name].bytes
        contents[name] = _padded(contents[name], max(contents[name].size, (index + 1) * width))
        word = np.frombuffer(pattern.to_bytes(width, "little"), dtype=np.uint8)
        contents[name][index * width : (index + 1) * width] = word
    return contents


def _differing(two: _Search, buffer: str) -> Callable[[Array, Array], Array]:
    def different(left: Array, right: Array) -> Array:
        form = two.forms[buffer].format
        if form is not None and left.dtype.itemsize == two.forms[buffer].bytes:
            return two.differ(buffer, left, right)
        return np.asarray(left != right)

    return different


def _padded(content: Array, size: int) -> Array:
    found = np.zeros(max(size, content.size), dtype=np.uint8)
    found[: content.size] = content
    return found
