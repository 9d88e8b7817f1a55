"""Contents of memory for trees, many at once: telling patterns where the trees part, quiet ones elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bitwise_core.checker.counterexamples.value_distributions import QUIET, TELLING, draw, telling_patterns
from bitwise_core.execution.buffers import Array, ElementType
from bitwise_core.numerics import FloatFormat, operation

SAMPLES = 256
"""Contents of memory tried at once."""

_CHUNK = 32
"""So many of them are drawn in one way."""

Place = tuple[str, int]
"""An element: its buffer, and its index in elements of the buffer's width."""

Samples = Mapping[Place, Array]
"""The patterns of every element, one for each content of memory."""


def near(places: Iterable[Place], forms: Mapping[str, ElementType], random: np.random.Generator) -> dict[Place, Array]:
    """Telling patterns of all kinds; in some contents of memory one element is special among usual ones."""
    found = _filled(places, forms, random, TELLING)
    for start in range(0, SAMPLES, _CHUNK):
        if random.random() < 0.3:
            _needles(found, forms, random, np.arange(start, start + _CHUNK))
    return _by_place(found)


def elsewhere(
    places: Iterable[Place], forms: Mapping[str, ElementType], random: np.random.Generator, around: Samples
) -> dict[Place, Array]:
    """Quiet patterns; in some contents of memory a few elements are those `around` with the other sign."""
    found = _filled(places, forms, random, QUIET)
    for start in range(0, SAMPLES, _CHUNK):
        if random.random() < 0.5:
            _opposites(found, forms, random, np.arange(start, start + _CHUNK), around)
    return _by_place(found)


def with_special(
    places: Iterable[Place], special: Iterable[Place], forms: Mapping[str, ElementType], random: np.random.Generator
) -> dict[Place, Array]:
    """Numbers about 1, and among the elements named `special` one of them that is: infinite, a NaN, huge, or tiny."""
    chosen = _filled(special, forms, random, ("normal",))
    for start in range(0, SAMPLES, _CHUNK):
        _needles(chosen, forms, random, np.arange(start, start + _CHUNK))
    return {**_by_place(_filled(places, forms, random, ("normal", "positive"))), **_by_place(chosen)}


def fed_back(
    samples: Samples,
    results: Array,
    form: FloatFormat,
    among: Sequence[Place],
    forms: Mapping[str, ElementType],
    random: np.random.Generator,
) -> dict[Place, Array]:
    """The contents with the result, a pattern of `form` for each, taken from one of the elements `among`.

    Where the result is a sum with that element, what is left of it is what rounding left: the next result shows it.
    """
    found = dict(samples)
    mine: dict[str, list[Place]] = {}
    for place in among:
        if forms[place[0]].format is not None:
            mine.setdefault(place[0], []).append(place)
    names = list(mine)
    if not names:
        return found
    numbers = _numbers(form, results)
    for start in range(0, SAMPLES, _CHUNK):
        columns = np.arange(start, start + _CHUNK)
        elements = mine[names[int(random.integers(len(names)))]]
        place = elements[int(random.integers(len(elements)))]
        kind = forms[place[0]].format
        assert kind is not None
        old = _numbers(kind, found[place][columns])
        with np.errstate(all="ignore"):
            less = (old - numbers[columns]).view(np.uint64)
        patterns = operation(f"convert.rn.{kind.name}.fp64").evaluate(less)
        usable = np.isfinite(old) & np.isfinite(numbers[columns]) & np.isfinite(_numbers(kind, patterns))
        changed = found[place].copy()
        changed[columns] = np.where(usable, patterns, changed[columns])
        found[place] = changed
    return found


def _numbers(form: FloatFormat, patterns: Array) -> Array:
    found: Array = operation(f"convert.fp64.{form.name}").evaluate(patterns).view(np.float64)
    return found


_Filled = dict[str, tuple[list[Place], Array]]
"""For each buffer its elements, and their patterns: a row for each element, a column for each content."""


def _filled(
    places: Iterable[Place], forms: Mapping[str, ElementType], random: np.random.Generator, kinds: Sequence[str]
) -> _Filled:
    mine: dict[str, list[Place]] = {}
    for place in places:
        mine.setdefault(place[0], []).append(place)
    parts: dict[str, list[Array]] = {name: [] for name in mine}
    for _ in range(SAMPLES // _CHUNK):
        shared = None if random.random() < 0.5 else str(random.choice(kinds))
        largest = (None, 3, 1)[int(random.integers(3))]
        for name, elements in mine.items():
            kind = shared or str(random.choice(kinds))
            drawn = draw(forms[name], _CHUNK * len(elements), kind, random, largest)
            parts[name].append(drawn.reshape(len(elements), _CHUNK))
    return {name: (elements, np.concatenate(parts[name], axis=1)) for name, elements in mine.items()}


def _by_place(found: _Filled) -> dict[Place, Array]:
    return {place: row for elements, rows in found.values() for place, row in zip(elements, rows, strict=True)}


def _floats(found: _Filled, forms: Mapping[str, ElementType]) -> list[str]:
    return [name for name in found if forms[name].format is not None]


def _needles(found: _Filled, forms: Mapping[str, ElementType], random: np.random.Generator, columns: Array) -> None:
    """One special element of one buffer in each of the columns."""
    names = _floats(found, forms)
    if not names:
        return
    name = str(random.choice(names))
    form = forms[name].format
    assert form is not None
    rows = found[name][1]
    rows[random.integers(0, len(rows), columns.size), columns] = random.choice(telling_patterns(form), columns.size)


def _opposites(
    found: _Filled, forms: Mapping[str, ElementType], random: np.random.Generator, columns: Array, around: Samples
) -> None:
    """Patterns of `around` with the other sign, or next to that, in a few elements of the same buffers."""
    step = int(random.choice([0, 0, 1, -1]))
    for name in _floats(found, forms):
        form = forms[name].format
        assert form is not None
        models = [patterns for place, patterns in around.items() if place[0] == name]
        if not models:
            continue
        rows = found[name][1]
        sign = rows.dtype.type(1 << (form.bits - 1))
        for _ in range(int(random.integers(1, 4))):
            model = models[int(random.integers(len(models)))][columns] ^ sign
            magnitude = (model & ~sign).astype(np.int64) + (step << form.padding)
            magnitude = np.clip(magnitude, 0, form.largest_magnitude << form.padding)
            rows[random.integers(0, len(rows), columns.size), columns] = magnitude.astype(rows.dtype) | (model & sign)
