"""Settings of configurations as text, and what the configurations of a class share that others lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MAXIMUM_VALUES = 4
"""A setting with more values in one class says nothing about it."""


def settings_of(text: str | None) -> dict[str, str]:
    """Return the settings of a configuration's text, such as `BLOCK=64, num_warps=4`; a bare name has the value yes."""
    pairs = [part.partition("=") for part in (text or "").split(", ") if part]
    return {name: value or "yes" for name, _, value in pairs}


def values_of(settings: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the distinct values of each setting; the value of a setting that a kernel lacks is empty."""
    names = dict.fromkeys(name for each in settings for name in each)
    return {name: list(dict.fromkeys(each.get(name, "") for each in settings)) for name in names}


def shared(members: Sequence[Mapping[str, str]], everyone: Sequence[Mapping[str, str]]) -> str:
    """Return the settings that tell a class from some other kernel, such as `num_warps=4, BLOCK=64|128`.

    The result is empty where each setting has all of its values in the class, or too many of them to list.
    """
    inside, overall = values_of(members), values_of(everyone)
    return ", ".join(
        f"{name}={'|'.join(value or 'none' for value in values)}"
        for name, values in inside.items()
        if len(values) < len(overall[name]) and len(values) <= MAXIMUM_VALUES
    )


def class_names(classes: Sequence[Sequence[str]], configurations: Mapping[str, str]) -> list[str]:
    """Return what the kernels of each class share; `configurations` maps files to settings.

    A name such as `FILE#2` is the second launch of a file.
    """
    of = {name: settings_of(configurations.get(name.partition("#")[0])) for names in classes for name in names}
    everyone = list(of.values())
    return [shared([of[name] for name in names], everyone) for names in classes]
