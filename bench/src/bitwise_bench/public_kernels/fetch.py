"""Fetch the Python files of the public packages from PyPI.

    python -m bitwise_bench.public_kernels.fetch --into packages

Nothing is installed or built: the files are taken from the archives, for `record` to import.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from bitwise_bench.command_line import command_parser
from bitwise_bench.public_kernels.sources import SOURCES, Source

_SUFFIXES = (".py", ".yaml", ".npy")
_DATA = ("VERSION",)
_MAXIMUM_BYTES = 1 << 20
# The metadata of a source archive is made without compiling its extensions.
_NOT_BUILT = {
    "MAMBA_SKIP_CUDA_BUILD": "TRUE",
    "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE",
    "VLLM_TARGET_DEVICE": "empty",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch the packages; the exit status is 1 where one could not be fetched."""
    parser = command_parser("public_kernels.fetch", __doc__)
    parser.add_argument("--into", type=Path, required=True, help="the folder for the files, one folder for a source")
    parser.add_argument("--archives", type=Path, help="take archives from this folder where it has them")
    parser.add_argument("--sources", nargs="*", default=[], help="these sources only")
    chosen = parser.parse_args(arguments)
    failed, digests = 0, {}
    for source in SOURCES.values():
        if source.archive == "installed" or (chosen.sources and source.name not in chosen.sources):
            continue
        with tempfile.TemporaryDirectory() as folder:
            archive = _stored(source, chosen.archives) or _downloaded(source, Path(folder))
            if archive is None:
                failed += 1
                continue
            digests[source.name] = [archive.name, hashlib.sha256(archive.read_bytes()).hexdigest()]
            count = sum(1 for _ in _extracted(archive, chosen.into / source.name, source.only))
            print(f"{source.name}: {count} files of {archive.name}")
        for distribution, version in source.needs:
            needed = replace(source, distribution=distribution, version=version, archive="wheel", only=distribution)
            with tempfile.TemporaryDirectory() as folder:
                archive = _stored(needed, chosen.archives) or _downloaded(needed, Path(folder))
                if archive is None:
                    failed += 1
                    continue
                count = sum(1 for _ in _extracted(archive, chosen.into / source.name / source.root, distribution))
                print(f"{source.name}: {count} files of {archive.name}")
    (chosen.into / "archives.json").write_text(json.dumps(digests, indent=1) + "\n")
    return 1 if failed else 0


def _stored(source: Source, archives: Path | None) -> Path | None:
    if archives is None:
        return None
    stem = source.distribution.replace("-", "_")
    return next(iter(sorted(archives.glob(f"{stem}-{source.version}[-.]*"))), None)


def _downloaded(source: Source, folder: Path) -> Path | None:
    kind = "--only-binary=:all:" if source.archive == "wheel" else "--no-binary=:all:"
    wanted = f"{source.distribution}=={source.version}"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", kind, wanted]
    # The version in an archive's metadata must be the one that is asked for, whatever it is built for.
    version = {"VLLM_VERSION_OVERRIDE": source.version}
    done = subprocess.run(
        [*command, "-d", str(folder)],
        env={**os.environ, **_NOT_BUILT, **version},
        capture_output=True,
        text=True,
        check=False,
    )
    found = next(folder.iterdir(), None)
    if found is None:
        print(f"{source.name}: {wanted} could not be fetched: {done.stderr.strip()[-300:]}", file=sys.stderr)
    return found


def _extracted(archive: Path, folder: Path, only: str | tuple[str, ...]) -> Iterator[Path]:
    """Write the Python files of an archive to a folder."""
    for name, data in _members(archive):
        path = PurePosixPath(name)
        outside = path.is_absolute() or ".." in path.parts
        wanted = (
            name.startswith(only) and (path.suffix in _SUFFIXES or path.name in _DATA) and len(data) <= _MAXIMUM_BYTES
        )
        if outside or not wanted:
            continue
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        yield target


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, wheel.read(name)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file.read()


if __name__ == "__main__":
    sys.exit(main())
