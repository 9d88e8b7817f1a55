"""Files and folders of kernels, read into sources, with one error sentence for each file that cannot be read."""

from __future__ import annotations

import os
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bitwise_core.checker.sources import Source
from bitwise_core.checker.stated_targets import Parser, stated_target
from bitwise_core.checker.wording import counted
from bitwise_core.errors import InputError
from bitwise_core.execution.launch import Launch, Manifest, ManifestError, read_manifest
from bitwise_core.input_files import read_bytes
from bitwise_core.known_distributions import advice
from bitwise_core.plugins.references import ArchReference
from bitwise_core.plugins.registry import Registry
from bitwise_core.visible_text import visible

if TYPE_CHECKING:
    from bitwise_core.checker.readings import ReadingCache
    from bitwise_core.execution.architecture import Arch

MAXIMUM_BYTES = 32 << 20
"""Larger files are rejected: no compiler writes a kernel of this size."""

MANIFEST = "manifest.json"

_NUMBERED = re.compile(r"(.+)#([1-9]\d{0,8})\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Folder:
    """The kernels of a folder, in the order of the manifest or by name, and whether there is a manifest.

    `configurations` maps file names to descriptions, as in the manifest.
    """

    sources: tuple[Source, ...]
    has_manifest: bool
    configurations: Mapping[str, str] = field(default_factory=dict)


def read_text(path: Path, expected: str = "the assembly") -> str:
    """The text of a file of at most `MAXIMUM_BYTES`, which is `expected` in words.  Raises InputError."""
    try:
        missing = not path.exists()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if missing:
        what = "links to a missing file" if path.is_symlink() else "there is no such file"
        raise InputError(f"{path}: {what}")
    data = read_bytes(path, InputError, MAXIMUM_BYTES)
    if not data.strip():
        raise InputError(f"{path}: is empty")
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise InputError(f"{path}: is UTF-16 text; save it as UTF-8")
    zero = data.find(0)
    if zero >= 0:
        raise InputError(f"{path}: is not text (a zero byte at offset {zero}); give {expected}, not a binary")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {data[error.start]:#04x} at offset {error.start})") from None


def load_manifest(path: Path) -> Manifest:
    """The manifest in a file.  Raises InputError."""
    read_text(path, "a manifest in JSON")
    try:
        found = read_manifest(path)
    except ManifestError as error:
        raise InputError(str(error)) from None
    if not found.kernels:
        raise InputError(f"{path}: names no kernels")
    return found


def extensions(registry: Registry) -> tuple[str, ...]:
    """The file name extensions of all installed architectures.  Raises InputError where there is no architecture."""
    found = tuple(sorted({each.extension for each in registry.arches.references.values()}))
    if not found:
        missing = advice("extensions", otherwise="`bitwise plugins` lists the installed plugins")
        state = f"loaded{registry.broken_sentence()}" if registry.broken else "installed"
        raise InputError(f"no architecture plugin is {state}; {missing}")
    return found


def check_folder(folder: Path) -> None:
    """Raise InputError where a path is not a folder, or cannot be read."""
    try:
        if not folder.is_dir():
            raise InputError(f"{folder}: is not a folder" if folder.exists() else f"{folder}: there is no such folder")
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror})") from None


def read_folder(folder: Path, suffixes: Sequence[str]) -> Folder:
    """Read the kernels of a folder: those of its manifest, and every other file with one of `suffixes`.

    The other files have no launch, so they are Unknown in an analysis for given launches.  Without a manifest, all
    files are kernels without a launch.  Raises InputError with one sentence for each file that cannot be read.
    """
    check_folder(folder)
    present = sorted(path.name for path in folder.iterdir() if path.suffix in suffixes)
    unprintable = [f"{folder}: holds {visible(name)}: rename the file" for name in present if not name.isprintable()]
    if unprintable:
        raise InputError(*unprintable)
    has_manifest = (folder / MANIFEST).exists()
    manifest = load_manifest(folder / MANIFEST) if has_manifest else Manifest(kernels=())
    launches = manifest.kernels
    listed = {launch.file for launch in launches}
    rest = [name for name in present if name not in listed]
    if not launches and not rest:
        raise InputError(f"{folder}: holds no assembly ({', '.join(suffixes)})")
    texts, sentences = _read_texts(folder, listed, rest)
    if sentences:
        raise InputError(*sentences)
    sources = [
        Source(name, texts[launch.file], launch) for name, launch in zip(_names(launches), launches, strict=True)
    ]
    titles = manifest.configurations if isinstance(manifest.configurations, dict) else {}
    configurations = {str(file): visible(str(title)) for file, title in titles.items()}
    return Folder((*sources, *(Source(name, texts[name]) for name in rest)), has_manifest, configurations)


def _read_texts(folder: Path, listed: set[str], rest: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the text of each file that the manifest lists, and of the rest, and a sentence for each that fails."""
    texts: dict[str, str] = {}
    sentences: list[str] = []
    for name in sorted({*listed, *rest}):
        path = folder / name
        try:
            if name in listed and not path.exists():
                slashed = name.replace("\\", "/")
                instead = f"; write {slashed}" if slashed != name and (folder / slashed).is_file() else ""
                raise InputError(f"{path}: {folder / MANIFEST} names it, and there is no such file{instead}")
            texts[name] = read_text(path)
        except (InputError, OSError, ValueError) as error:
            sentences.append(str(error))
    return texts, sentences


def _names(launches: Sequence[Launch]) -> list[str]:
    """The names of kernels: the file name; from the second launch of a file on, followed by `#` and its number."""
    seen: dict[str, int] = {}
    names = []
    for launch in launches:
        seen[launch.file] = seen.get(launch.file, 0) + 1
        names.append(launch.file if seen[launch.file] == 1 else f"{launch.file}#{seen[launch.file]}")
    return names


def read_kernel(name: str, manifest: Path | None = None, entry: str | None = None) -> Source:
    """Read one kernel, named by its file, or by its file and the number of its launch, as in `FILE#2`.

    The launch is that of `manifest`, by default the manifest in the folder of the file, if any.  `entry` selects among
    the launches, or among the entries of a file without launches.  Raises InputError.
    """
    path, number = Path(name), 0
    found = _NUMBERED.fullmatch(name)
    if found is not None and not os.path.exists(path):
        path, number = Path(found[1]), int(found[2])
    text = read_text(path)
    where = manifest or path.parent / MANIFEST
    if manifest is None and not where.exists():
        if number:
            raise InputError(f"{path}: has no launch {number}: there is no {MANIFEST} in its folder")
        return Source(path.name, text, entry=entry)
    # A manifest may list files with the same name in several folders; the whole path decides if one matches.
    launches = [launch for launch in load_manifest(where).kernels if _same_file(where.parent / launch.file, path)]
    if not launches:
        launches = [launch for launch in load_manifest(where).kernels if Path(launch.file).name == path.name]
    if not launches:
        if manifest is not None:
            raise InputError(f"{where}: has no launch of {path.name}")
        return Source(path.name, text, entry=entry)
    chosen = _select_launch(launches, where, path.name, number, entry)
    return Source(f"{path.name}#{number}" if number else path.name, text, chosen)


def _same_file(left: Path, right: Path) -> bool:
    try:
        return left.resolve() == right.resolve()
    except (OSError, ValueError):
        return False


def _select_launch(launches: Sequence[Launch], where: Path, name: str, number: int, entry: str | None) -> Launch:
    if number:
        if number > len(launches):
            raise InputError(
                f"{where}: has {counted(len(launches), 'launch')} of {name}, so there is no {name}#{number}"
            )
        return launches[number - 1]
    matching = [launch for launch in launches if entry is None or launch.entry in (None, entry)]
    if not matching:
        named = ", ".join(sorted({launch.entry or "" for launch in launches}))
        raise InputError(f"{where}: has no launch of the entry {entry!r} of {name}, only of {named}")
    if len(matching) > 1:
        raise InputError(
            f"{where}: has {len(matching)} launches of {name}; name one by its number from 1, as in FILE#2"
        )
    if entry is not None and matching[0].entry is None:
        return matching[0].model_copy(update={"entry": entry})
    return matching[0]


def find_target(
    sources: Sequence[Source], registry: Registry, target: str | None, cache: ReadingCache | None = None
) -> ArchReference:
    """The architecture named by `target`, or the target of the first text that can be parsed; it is not loaded.

    The other texts are not checked here: each analysis checks the target of its own text.  Raises InputError where no
    plugin models the target or there is no architecture, and with a sentence for each text where none can be parsed.
    """
    if target is not None:
        for each in registry.arches.references.values():
            if target == each.name or target in each.targets:
                return each
        raise InputError(_unmodelled_target(registry, target))
    extensions(registry)
    sentences: list[str] = []
    for source in sources:
        errors: list[str] = []
        for parse in _parsers(registry, source.name):
            try:
                stated = stated_target(source, parse, cache)
            except InputError as error:
                errors.append(str(error))
                continue
            for each in registry.arches.references.values():
                if stated in each.targets:
                    return each
            raise InputError(f"{source.name}: {_unmodelled_target(registry, stated)}")
        sentences += [f"{each}{_missing_plugin_hint(registry, source.name)}" for each in errors[:1]]
    raise InputError(*sentences)


def resolve_targets(
    sources: Sequence[Source], registry: Registry, target: str | None, cache: ReadingCache | None = None
) -> tuple[ArchReference, tuple[Source, ...]]:
    """The architecture of `find_target`, and the sources with `target` set where the file belongs to another parser.

    Raises InputError, as `find_target` does, for the kernels of each parser, and where none belongs to `target`.
    """
    arch = find_target(sources, registry, target, cache)
    parser = arch.parse
    others: dict[Parser, list[Source]] = {}
    for source in sources:
        parsers = _parsers(registry, source.name)
        if parser not in parsers:
            others.setdefault(parsers[0], []).append(source)
        elif _missing_plugin_hint(registry, source.name):
            find_target((source,), registry, None, cache)
    if target is not None and sum(map(len, others.values())) == len(sources):
        raise InputError(f"no kernel is for the target {target}, whose files are named *{arch.extension}")
    targets = {
        id(source): found.name for group in others.values() for found in [find_target(group, registry, None, cache)]
        for source in group
    }  # fmt: skip
    return arch, tuple(replace(each, target=targets.get(id(each))) for each in sources)


def target_of(source: Source, arch: ArchReference, registry: Registry) -> ArchReference:
    """The architecture of a kernel: that of its `target`, or else `arch`.  It is not loaded."""
    return arch if source.target is None else registry.reference(source.target)


def arch_of(source: Source, arch: Arch, registry: Registry) -> Arch:
    """The architecture of a kernel: that of its `target`, or else `arch`."""
    return arch if source.target is None else registry.arch(source.target)


def targets_of(sources: Iterable[Source], arch: Arch | ArchReference) -> tuple[str, ...]:
    """The names of the architectures of the kernels, without repetition."""
    return tuple(dict.fromkeys((arch.name, *(each.target for each in sources if each.target is not None))))


def _parsers(registry: Registry, name: str) -> list[Parser]:
    """The parsers of files with this extension, without repetition; all parsers where no extension matches."""
    stem, known = name.split("#")[0], registry.arches.references.values()
    matching = dict.fromkeys(each.parse for each in known if stem.endswith(each.extension))
    return list(matching or dict.fromkeys(each.parse for each in known))


def _missing_plugin_hint(registry: Registry, name: str) -> str:
    """The end of an error sentence where no installed plugin parses files with this extension, else empty."""
    suffix, known_suffixes = Path(name.split("#")[0]).suffix, extensions(registry)
    if not suffix or suffix in known_suffixes:
        return ""
    missing = advice("extensions", suffix, otherwise=f"install the plugin for {suffix} files")
    return f"; the installed plugins parse {', '.join(known_suffixes)}: {missing}, or rename the file"


def _unmodelled_target(registry: Registry, target: str) -> str:
    references = registry.arches.references.values()
    known = ", ".join(sorted({name for each in references for name in (each.name, *each.targets)}))
    sentence = f"no plugin models the target {target}; those modelled: {known or 'none'}"
    return sentence + registry.broken_sentence() + registry.advice("targets", target)
