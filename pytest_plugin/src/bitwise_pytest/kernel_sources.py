"""The kernels of an assertion: configurations of a Triton kernel, or assembly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from bitwise_core import BitwiseError, Source, api
from bitwise_core.checker.kernel_files import extensions, read_folder, read_kernel
from bitwise_core.plugins import registry

Kernels: TypeAlias = Any
"""A Triton kernel, a folder or a file of assembly, a text, a `Source`, or a sequence of such."""


def sources_of(
    kernel: Kernels, configs: Sequence[Any] | None, args: Mapping[str, Any] | None, launch: Any, options: Any,
    *, whole_names: bool = False,
) -> tuple[Source, ...]:  # fmt: skip
    """Return the kernels with their launches.

    With `configs`, `kernel` is compiled by `bitwise_triton.capture` with `args` and `options`.  Otherwise files have
    the launches of their manifests, and `launch` is that of a text or of a file without one.  A configuration is named
    by the settings in which it differs from the others, or by all of them (`whole_names`).  Raises
    BitwiseError, also for a configuration that does not compile, and TypeError for arguments that do not belong
    together.
    """
    if configs is not None:
        return _captured(kernel, configs, args, options, whole_names)
    if args is not None or options:
        names = ", ".join([*(["args"] if args is not None else []), *options])
        raise TypeError(f"{names}: only configurations of a Triton kernel take these: give `configs`")
    if isinstance(kernel, str | Path) and "\n" not in str(kernel) and Path(kernel).is_dir():
        if launch is not None:
            raise TypeError(f"{kernel}: the launches of a folder are read from its manifest.json: omit `launch`")
        return read_folder(Path(kernel), extensions(registry.default())).sources
    given = kernel if isinstance(kernel, Sequence) and not isinstance(kernel, str) else [kernel]
    return tuple(_source(each, launch, f"kernel {number}") for number, each in enumerate(given, 1))


def _source(kernel: Any, launch: Any, name: str) -> Source:
    if isinstance(kernel, str | Path) and "\n" not in str(kernel) and launch is None:
        return read_kernel(str(kernel))
    return api.source_of(kernel, launch, name)


def _captured(
    kernel: Any, configs: Sequence[Any], args: Mapping[str, Any] | None, options: Mapping[str, Any], whole_names: bool
) -> tuple[Source, ...]:
    try:
        from bitwise_triton import capture
        from bitwise_triton.compilation import configuration_name
        from bitwise_triton.equivalence import source_of
    except ImportError as error:
        raise BitwiseError(f"{error}: install bitwise-triton (pip install 'bitwise-pytest[triton]')") from None
    if args is None or "grid" not in options:
        raise TypeError("configurations are compiled for a launch: give `args` and `grid`")
    if not configs:
        raise TypeError("configs: the sequence is empty: give at least one configuration")
    settings = [each.all_kwargs() for each in configs]
    names = [configuration_name({}, each) for each in (settings if whole_names else _differing(settings))]
    unique = [name if names.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(names)]
    captured = capture(kernel, configs, args, workers=1, **options)
    return tuple(source_of(each, name) for each, name in zip(captured, unique, strict=True))


def _differing(settings: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the settings in which configurations differ, or all of them where none differs."""
    names = dict.fromkeys(name for each in settings for name in each)
    varied = [name for name in names if any(each.get(name) != settings[0].get(name) for each in settings)]
    return [{name: each[name] for name in varied if name in each} for each in settings] if varied else settings


def renamed(source: Source, name: str) -> Source:
    """Return a kernel under another name."""
    launch = None if source.launch is None else source.launch.model_copy(update={"file": name})
    return replace(source, name=name, launch=launch)
