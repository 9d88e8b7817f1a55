"""Random memory contents for the evaluation of trees.

Elements below the divergent nodes get patterns that expose differences of order, rounding and special values; the
other elements get patterns that do not mask a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bitwise_core.checker.counterexamples.value_distributions import (
    DISTINGUISHING_KINDS,
    NEUTRAL_KINDS,
    draw,
    special_patterns,
)
from bitwise_core.execution.element_types import Array, ElementType
from bitwise_core.numerics import FloatFormat, operation

SAMPLES = 256
"""The number of memory contents that are evaluated at once."""

_CHUNK = 32
"""The number of memory contents that are drawn from the same distributions."""

ElementIndex = tuple[str, int]
"""An element: the name of its buffer, and its index in elements of the buffer."""

Samples = Mapping[ElementIndex, Array]
"""The patterns of every element, shape (SAMPLES,): one for each memory content."""


def contents_near_divergence(
    elements: Iterable[ElementIndex], forms: Mapping[str, ElementType], random: np.random.Generator
) -> dict[ElementIndex, Array]:
    """Patterns for elements below the divergent nodes; in some memory contents one of them is a special value."""
    found = _filled(elements, forms, random, DISTINGUISHING_KINDS)
    for start in range(0, SAMPLES, _CHUNK):
        if random.random() < 0.3:
            _insert_special_values(found, forms, random, np.arange(start, start + _CHUNK))
    return _by_element(found)


def contents_elsewhere(
    elements: Iterable[ElementIndex], forms: Mapping[str, ElementType], random: np.random.Generator, around: Samples
) -> dict[ElementIndex, Array]:
    """Patterns for the other elements; in some memory contents a few are patterns of `around` with opposite sign."""
    found = _filled(elements, forms, random, NEUTRAL_KINDS)
    for start in range(0, SAMPLES, _CHUNK):
        if random.random() < 0.5:
            _insert_opposites(found, forms, random, np.arange(start, start + _CHUNK), around)
    return _by_element(found)


def contents_with_special(
    elements: Iterable[ElementIndex],
    special: Iterable[ElementIndex],
    forms: Mapping[str, ElementType],
    random: np.random.Generator,
) -> dict[ElementIndex, Array]:
    """Numbers near 1, with one special value (an infinity, a NaN, a huge or tiny number) among `special`."""
    chosen = _filled(special, forms, random, ("normal",))
    for start in range(0, SAMPLES, _CHUNK):
        _insert_special_values(chosen, forms, random, np.arange(start, start + _CHUNK))
    return {**_by_element(_filled(elements, forms, random, ("normal", "positive"))), **_by_element(chosen)}


def with_feedback(
    samples: Samples,
    results: Array,
    form: FloatFormat,
    among: Sequence[ElementIndex],
    forms: Mapping[str, ElementType],
    random: np.random.Generator,
) -> dict[ElementIndex, Array]:
    """The memory contents with the result subtracted from one of the elements `among`.

    `results` holds one pattern of `form` for each memory content.  If the result is a sum that contains the element,
    the next result is the rounding error of the sum, which exposes a difference of rounding.
    """
    found = dict(samples)
    by_buffer: dict[str, list[ElementIndex]] = {}
    for element in among:
        if forms[element[0]].format is not None:
            by_buffer.setdefault(element[0], []).append(element)
    names = list(by_buffer)
    if not names:
        return found
    doubles = _as_doubles(form, results)
    for start in range(0, SAMPLES, _CHUNK):
        columns = np.arange(start, start + _CHUNK)
        buffer_elements = by_buffer[names[int(random.integers(len(names)))]]
        element = buffer_elements[int(random.integers(len(buffer_elements)))]
        kind = forms[element[0]].format
        assert kind is not None
        old = _as_doubles(kind, found[element][columns])
        with np.errstate(all="ignore"):
            difference = (old - doubles[columns]).view(np.uint64)
        patterns = operation(f"convert.rn.{kind.name}.fp64").evaluate(difference)
        usable = np.isfinite(old) & np.isfinite(doubles[columns]) & np.isfinite(_as_doubles(kind, patterns))
        changed = found[element].copy()
        changed[columns] = np.where(usable, patterns, changed[columns])
        found[element] = changed
    return found


def _as_doubles(form: FloatFormat, patterns: Array) -> Array:
    found: Array = operation(f"convert.fp64.{form.name}").evaluate(patterns).view(np.float64)
    return found


_Filled = dict[str, tuple[list[ElementIndex], Array]]
"""For each buffer its elements and their patterns, shape (elements, memory contents)."""


def _filled(
    elements: Iterable[ElementIndex],
    forms: Mapping[str, ElementType],
    random: np.random.Generator,
    kinds: Sequence[str],
) -> _Filled:
    by_buffer: dict[str, list[ElementIndex]] = {}
    for element in elements:
        by_buffer.setdefault(element[0], []).append(element)
    parts: dict[str, list[Array]] = {name: [] for name in by_buffer}
    for _ in range(SAMPLES // _CHUNK):
        shared = None if random.random() < 0.5 else str(random.choice(kinds))
        largest = (None, 3, 1)[int(random.integers(3))]
        for name, buffer_elements in by_buffer.items():
            kind = shared or str(random.choice(kinds))
            drawn = draw(forms[name], _CHUNK * len(buffer_elements), kind, random, largest)
            parts[name].append(drawn.reshape(len(buffer_elements), _CHUNK))
    return {name: (buffer_elements, np.concatenate(parts[name], axis=1)) for name, buffer_elements in by_buffer.items()}


def _by_element(found: _Filled) -> dict[ElementIndex, Array]:
    return {
        element: row
        for buffer_elements, rows in found.values()
        for element, row in zip(buffer_elements, rows, strict=True)
    }


def _floating_buffers(found: _Filled, forms: Mapping[str, ElementType]) -> list[str]:
    return [name for name in found if forms[name].format is not None]


def _insert_special_values(
    found: _Filled, forms: Mapping[str, ElementType], random: np.random.Generator, columns: Array
) -> None:
    """Put one special value into an element of one buffer in each of the columns."""
    names = _floating_buffers(found, forms)
    if not names:
        return
    name = str(random.choice(names))
    form = forms[name].format
    assert form is not None
    rows = found[name][1]
    rows[random.integers(0, len(rows), columns.size), columns] = random.choice(special_patterns(form), columns.size)


def _insert_opposites(
    found: _Filled, forms: Mapping[str, ElementType], random: np.random.Generator, columns: Array, around: Samples
) -> None:
    """Put patterns of `around` with opposite sign, or adjacent ones, into a few elements of the same buffers."""
    step = int(random.choice([0, 0, 1, -1]))
    for name in _floating_buffers(found, forms):
        form = forms[name].format
        assert form is not None
        models = [patterns for element, patterns in around.items() if element[0] == name]
        if not models:
            continue
        rows = found[name][1]
        sign = rows.dtype.type(1 << (form.bits - 1))
        for _ in range(int(random.integers(1, 4))):
            model = models[int(random.integers(len(models)))][columns] ^ sign
            magnitude = (model & ~sign).astype(np.int64) + (step << form.padding)
            magnitude = np.clip(magnitude, 0, form.largest_magnitude << form.padding)
            rows[random.integers(0, len(rows), columns.size), columns] = magnitude.astype(rows.dtype) | (model & sign)
