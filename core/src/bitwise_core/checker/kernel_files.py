"""Files and folders of kernels, read into sources; whatever is wrong with them is said in one sentence a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import Source
from bitwise_core.errors import BitwiseError
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.launch import Launch, Manifest, ManifestError, read_manifest
from bitwise_core.plugins.registry import Registry

MAXIMUM_BYTES = 32 << 20
"""Larger files are refused before they are read: no compiler writes a kernel of that size."""

MANIFEST = "manifest.json"

_NUMBERED = re.compile(r"(.+)#([1-9]\d*)\Z", re.DOTALL)


class InputError(BitwiseError, ValueError):
    """What is wrong in the input: `sentences` holds one for each fault, and each names its file."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


@dataclass(frozen=True, slots=True)
class Folder:
    """The kernels of a folder, in the manifest's order or by name, and whether a manifest gives their launches.

    `configurations` describes files, as a manifest's `configurations` do.
    """

    sources: tuple[Source, ...]
    has_manifest: bool
    configurations: Mapping[str, str] = field(default_factory=dict)


def read_text(path: Path) -> str:
    """The text of a file of at most `MAXIMUM_BYTES`.  Raises InputError."""
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder; name a file")
        if not path.is_file():
            raise InputError(f"{path}: is not a file" if path.exists() else f"{path}: there is no such file")
        size = path.stat().st_size
        if size > MAXIMUM_BYTES:
            raise InputError(f"{path}: is {size >> 20} MiB large; files of up to {MAXIMUM_BYTES >> 20} MiB are read")
        with path.open("rb") as file:
            data = file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if not data.strip():
        raise InputError(f"{path}: is empty")
    place = data.find(0)
    if place >= 0:
        raise InputError(f"{path}: is not text (a zero byte at offset {place}); give the assembly, not a binary")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {data[error.start]:#04x} at offset {error.start})") from None


def manifest_of(path: Path) -> Manifest:
    """The manifest in a file.  Raises InputError."""
    read_text(path)
    try:
        found = read_manifest(path)
    except ManifestError as error:
        raise InputError(str(error)) from None
    if not found.kernels:
        raise InputError(f"{path}: names no kernels")
    return found


def extensions(arches: Iterable[Arch]) -> tuple[str, ...]:
    """The endings of the files that some architecture reads.  Raises InputError where there is no architecture."""
    found = tuple(sorted({arch.extension for arch in arches}))
    if not found:
        raise InputError("no plugin of an architecture is installed: `bitwise plugins` lists what is")
    return found


def read_folder(folder: Path, endings: Sequence[str]) -> Folder:
    """The kernels of a folder: those of its manifest, and Unknown-to-be any file beside them that has no launch.

    Without a manifest every file with one of `endings` is a kernel without a launch.
    Raises InputError with one sentence for each file that cannot be read.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder" if folder.exists() else f"{folder}: there is no such folder")
    present = sorted(path.name for path in folder.iterdir() if path.suffix in endings)
    has_manifest = (folder / MANIFEST).exists()
    manifest = manifest_of(folder / MANIFEST) if has_manifest else Manifest(kernels=())
    launches = manifest.kernels
    listed = {launch.file for launch in launches}
    rest = [name for name in present if name not in listed]
    if not launches and not rest:
        raise InputError(f"{folder}: holds no assembly ({', '.join(endings)})")
    texts, sentences = _texts(
        folder, [*listed, *rest], missing=f"{folder / MANIFEST} names it, and there is no such file"
    )
    if sentences:
        raise InputError(*sentences)
    sources = [
        Source(name, texts[launch.file], launch) for name, launch in zip(_names(launches), launches, strict=True)
    ]
    titles = manifest.configurations if isinstance(manifest.configurations, dict) else {}
    configurations = {str(file): str(title) for file, title in titles.items()}
    return Folder((*sources, *(Source(name, texts[name]) for name in rest)), has_manifest, configurations)


def _texts(folder: Path, names: Iterable[str], missing: str) -> tuple[dict[str, str], list[str]]:
    texts: dict[str, str] = {}
    sentences: list[str] = []
    for name in sorted(set(names)):
        path = folder / name
        try:
            if not path.exists():
                raise InputError(f"{path}: {missing}")
            texts[name] = read_text(path)
        except (InputError, OSError, ValueError) as error:
            sentences.append(str(error))
    return texts, sentences


def _names(launches: Sequence[Launch]) -> list[str]:
    """Names of kernels: the file's, and from its second launch on the file's with the launch's number."""
    seen: dict[str, int] = {}
    names = []
    for launch in launches:
        seen[launch.file] = seen.get(launch.file, 0) + 1
        names.append(launch.file if seen[launch.file] == 1 else f"{launch.file}#{seen[launch.file]}")
    return names


def read_kernel(name: str, manifest: Path | None = None, entry: str | None = None) -> Source:
    """One kernel named by its file, or by its file and the number of its launch, `FILE#2`.

    Its launch is that of `manifest`, or of the manifest beside the file where there is one; `entry` chooses among the
    launches, and the entries of a file without launches.  Raises InputError.
    """
    path, number = Path(name), 0
    found = _NUMBERED.fullmatch(name)
    if found is not None and not path.exists():
        path, number = Path(found[1]), int(found[2])
    text = read_text(path)
    where = manifest or path.parent / MANIFEST
    if manifest is None and not where.exists():
        if number:
            raise InputError(f"{path}: has no launch {number}, for there is no {MANIFEST} beside it")
        return Source(path.name, text, entry=entry)
    # A file of one name may stand in several folders of a manifest; the whole path under it decides where it can.
    launches = [launch for launch in manifest_of(where).kernels if _same_file(where.parent / launch.file, path)]
    if not launches:
        launches = [launch for launch in manifest_of(where).kernels if Path(launch.file).name == path.name]
    if not launches:
        if manifest is not None:
            raise InputError(f"{where}: has no launch of {path.name}")
        return Source(path.name, text, entry=entry)
    chosen = _chosen(launches, where, path.name, number, entry)
    return Source(f"{path.name}#{number}" if number else path.name, text, chosen)


def _same_file(left: Path, right: Path) -> bool:
    try:
        return left.resolve() == right.resolve()
    except (OSError, ValueError):
        return False


def _chosen(launches: Sequence[Launch], where: Path, name: str, number: int, entry: str | None) -> Launch:
    if number:
        if number > len(launches):
            raise InputError(f"{where}: has {len(launches)} launches of {name}, so there is no {name}#{number}")
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


def find_arch(sources: Sequence[Source], registry: Registry, target: str | None) -> Arch:
    """The architecture named by `target`, or by the first text that can be parsed; every reading checks its own text.

    Raises InputError where nothing models it, and with a sentence for each text where none can be parsed.
    """
    if target is not None:
        for arch in registry.arches.values():
            if target == arch.name or target in arch.targets:
                return arch
        raise InputError(_unmodelled(registry, target))
    sentences: list[str] = []
    for source in sources:
        refused: list[str] = []
        for arch in _readers(registry, source.name):
            try:
                stated = arch.parse(source.text, source.name).target
            except AssemblyError as error:
                refused.append(str(error))
                continue
            except RecursionError:
                refused.append(f"{source.name}: nests too deeply to be read")
                continue
            for each in registry.arches.values():
                if stated in each.targets:
                    return each
            raise InputError(f"{source.name}: {_unmodelled(registry, stated)}")
        sentences += [f"{each}{_no_reader(registry, source.name)}" for each in refused[:1]]
    raise InputError(*sentences)


def targeted(sources: Sequence[Source], registry: Registry, target: str | None) -> tuple[Arch, tuple[Source, ...]]:
    """The architecture of `find_arch`, and the kernels, each with its own target where another parser reads its file.

    Raises InputError, as `find_arch` does for the kernels of every parser.
    """
    arch = find_arch(sources, registry, target)
    others: dict[Callable[..., object], list[Source]] = {}
    for source in sources:
        parsers = [each.parse for each in _readers(registry, source.name)]
        if arch.parse not in parsers:
            others.setdefault(parsers[0], []).append(source)
        elif _no_reader(registry, source.name):
            find_arch((source,), registry, None)
    targets = {
        id(source): found.name for group in others.values() for found in [find_arch(group, registry, None)]
        for source in group
    }  # fmt: skip
    return arch, tuple(replace(each, target=targets.get(id(each))) for each in sources)


def arch_of(source: Source, arch: Arch, registry: Registry) -> Arch:
    """The architecture that a kernel is read for: its own, or that of the kernels beside it."""
    return arch if source.target is None else registry.arch(source.target)


def targets_of(sources: Iterable[Source], arch: Arch) -> tuple[str, ...]:
    """The names of the architectures that the kernels are read for."""
    return tuple(dict.fromkeys((arch.name, *(each.target for each in sources if each.target is not None))))


def _readers(registry: Registry, name: str) -> list[Arch]:
    """One architecture for each parser that may read the file: all of them where its ending tells nothing."""
    parsers: dict[Callable[..., object], Arch] = {}
    stem = name.split("#")[0]
    for arch in registry.arches.values():
        if stem.endswith(arch.extension):
            parsers.setdefault(arch.parse, arch)
    return list((parsers or {arch.parse: arch for arch in registry.arches.values()}).values())


def _no_reader(registry: Registry, name: str) -> str:
    """The end of a sentence where no plugin that is installed is for files of such an ending, else nothing."""
    ending, read = Path(name.split("#")[0]).suffix, extensions(registry.arches.values())
    if not ending or ending in read:
        return ""
    return (
        f"; the plugins that are installed read {', '.join(read)}: install that of the architecture of {ending} "
        "(pip install bitwise-VENDOR), or give the file its own ending"
    )


def _unmodelled(registry: Registry, target: str) -> str:
    known = ", ".join(sorted({name for arch in registry.arches.values() for name in (arch.name, *arch.targets)}))
    sentence = f"no plugin models the target {target}; those modelled: {known or 'none'}"
    if registry.broken:
        sentence += "; plugins that could not be loaded: " + "; ".join(map(str, registry.broken))
    return sentence
