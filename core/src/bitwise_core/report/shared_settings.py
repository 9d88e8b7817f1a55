"""Settings of configurations as text, and what the configurations of a class share that others lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

MAXIMUM_VALUES = 4
"""A setting with more values in one class says nothing about it."""

MAXIMUM_COMBINATIONS = 3
"""A class of more products of values is named by all values of each setting."""


def settings_of(text: str | None) -> dict[str, str]:
    """Return the settings of a configuration's text, such as `BLOCK=64, num_warps=4`; a bare name has the value yes."""
    pairs = [part.partition("=") for part in (text or "").split(", ") if part]
    return {name: value or "yes" for name, _, value in pairs}


def values_of(settings: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the distinct values of each setting; the value of a setting that a kernel lacks is empty."""
    names = dict.fromkeys(name for each in settings for name in each)
    return {name: list(dict.fromkeys(each.get(name, "") for each in settings)) for name in names}


def shared(members: Sequence[Mapping[str, str]], overall: Mapping[str, Sequence[str]]) -> str:
    """Return the settings that tell a class from some other kernel, such as `num_warps=4, BLOCK=64|128`.

    `overall` are the values of each setting in all kernels (`values_of`).
    Where a class has not every combination of these values, the result lists those that it has:
    `num_warps=4; BLOCK=64, STAGES=1|2 or BLOCK=128, STAGES=1`.  The result is empty where each setting has all of its
    values in the class, or too many of them to list.
    """
    inside = values_of(members)
    names = [
        name for name, values in inside.items() if len(values) < len(overall[name]) and len(values) <= MAXIMUM_VALUES
    ]
    varied = [name for name in names if len(inside[name]) > 1]
    rows = dict.fromkeys(tuple(each.get(name, "") for name in varied) for each in members)
    found = min((_combinations(list(rows), order) for order in (-1, 1)), key=len)
    if not 1 < len(found) <= MAXIMUM_COMBINATIONS:
        return _text((name, inside[name]) for name in names)
    common = _text((name, inside[name]) for name in names if name not in varied)
    alternatives = " or ".join(_text(zip(varied, each, strict=True)) for each in found)
    return f"{common}; {alternatives}" if common else alternatives


def _combinations(rows: Sequence[tuple[str, ...]], order: int) -> list[tuple[tuple[str, ...], ...]]:
    """Return disjoint products of values that have the rows together.

    The values of one column after another, from the first or (`order` -1) from the last, are united in products that
    are equal in all other columns.
    """
    found: list[tuple[tuple[str, ...], ...]] = [tuple((value,) for value in row) for row in rows]
    for place in range(len(rows[0]))[::order]:
        united: dict[tuple[tuple[str, ...], ...], tuple[str, ...]] = {}
        for each in found:
            others = (*each[:place], *each[place + 1 :])
            united[others] = (*united.get(others, ()), *each[place])
        found = [(*others[:place], values, *others[place:]) for others, values in united.items()]
    return found


def _text(settings: Iterable[tuple[str, Sequence[str]]]) -> str:
    return ", ".join(f"{name}={'|'.join(value or 'none' for value in values)}" for name, values in settings)


def class_names(classes: Sequence[Sequence[str]], configurations: Mapping[str, str]) -> list[str]:
    """Return what the kernels of each class share; `configurations` maps files to settings.

    A name such as `FILE#2` is the second launch of a file.
    """
    of = {name: settings_of(configurations.get(name.partition("#")[0])) for names in classes for name in names}
    overall = values_of(list(of.values()))
    return [shared([of[name] for name in names], overall) for names in classes]
