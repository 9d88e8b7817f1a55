"""Results of configurations on disk: one file for each group, to which compressed parts are appended.

A part that was not written completely, because the process was killed, is ignored and overwritten.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from bitwise_bench.published_corpus.catalogue import Group


def shard_path(folder: Path, group: Group) -> Path:
    """Return the file of a group in the folder of a target."""
    return folder / f"{group.kernel}-{group.dtype}.jsonl.xz"


def read_shard(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of the complete parts by the id of their configuration; none where there is no file."""
    entries, _ = _complete(path)
    return {entry["id"]: entry for entry in entries}


def valid_entries(
    entries: Mapping[str, Mapping[str, Any]], names: Collection[str], definition: str, reader: str
) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a group that are not measured again.

    Those of another definition of its kernels are.  Classes of two readers cannot be compared, so an incomplete group
    of another reader is measured from its start.
    """
    found = {name: each for name, each in entries.items() if each.get("definition") == definition}
    complete = found.keys() >= set(names) and len({each.get("reader") for each in found.values()}) == 1
    return found if complete else {name: each for name, each in found.items() if each.get("reader") == reader}


def keep_only(path: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the file of a group by these entries, in one part."""
    if path.exists():
        replaced = path.with_suffix(".new")
        replaced.unlink(missing_ok=True)
        if entries:
            append(replaced, entries.values())
            replaced.replace(path)
        else:
            path.unlink()


def append(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Append entries as one part, after the last complete part."""
    lines = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(lzma.compress(lines.encode(), preset=6))


def repair(path: Path) -> None:
    """Cut off what follows the last complete part."""
    _, size = _complete(path)
    if path.exists() and path.stat().st_size > size:
        with path.open("r+b") as file:
            file.truncate(size)


def _complete(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the entries of the complete parts, and their size in bytes."""
    content = path.read_bytes() if path.exists() else b""
    entries: list[dict[str, Any]] = []
    size = 0
    while size < len(content):
        decompressor = lzma.LZMADecompressor()
        try:
            text = decompressor.decompress(content[size:])
        except (lzma.LZMAError, EOFError):
            break
        if not decompressor.eof:
            break
        entries += [json.loads(line) for line in text.splitlines()]
        size = len(content) - len(decompressor.unused_data)
    return entries, size
