"""Assembly of kernels that tests read and execute, recorded under the keys of Triton's cache.

The key is Triton's own: a digest of the kernel's source with all that it calls, its arguments and options, the target,
and the files of the compiler.  For AMD's targets Triton takes the paths of device libraries, which differ in every
installation; here it is their content, as it is for NVIDIA's.  The constants that a called function uses are part of
Triton's key only if that function was hashed before; here they always are (`complete_keys`).  The key has no digest of
Python code that runs while a kernel is compiled, so that of the pinned reductions is kept beside it.  What has another
key is compiled: a recorded kernel is never another one than the compiler would return, and a test that reads one can
fail as before.

    TRITON_CACHE_DIR=FOLDER python -m pytest        # FOLDER is empty at the start
    PYTHONPATH=tests python -m recorded_kernels FOLDER

records what the tests have used, and drops everything else.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "recorded_kernels"
CODE = Path(__file__).parents[1] / "compiler" / "src" / "bitwise_triton" / "reductions"
"""What runs while a kernel is compiled: functions of Triton's builtins, and passes over its modules."""
TEXTS = (".json", ".ptx", ".amdgcn")
BINARIES = (".cubin", ".hsaco")
"""Files of one kernel in the cache of `assembly_only`: those that are recorded, and those that are empty."""

UNRECORDED: Counter[str] = Counter()
"""How many kernels of this process no recorded one has the key of, by the name of their function.

Those that an earlier process compiled count, since a fresh machine compiles them, and those that the compiler refuses
do not: there is nothing to record.
"""

_LIBRARY = re.compile(r'(?<=")/[^"]*?/(?=triton/backends/)')
_FILE = re.compile(r'(^\s*\.file\s+(?:\d+\s+)?)(?:"[^"]*"\s+(?="))?"[^"]*?([^"/]+)"', re.M)
"""Folders of the machine that records: of libraries in the metadata of a kernel, of its source in the text."""

_DEBUG_SECTION = re.compile(
    r'^\s*\.section\s+(?:\.debug_\w+\s*\{.*?\}|"?\.debug_\w+.*?(?=^\s*\.(?:section|text|data)\b|\Z))', re.M | re.S
)
"""Sections for debuggers, which are not recorded: they repeat the lines, and name folders once more."""


_COUNTED: set[str] = set()
"""The keys of the kernels in `UNRECORDED`."""


def count(name: str, key: str) -> None:
    """Count a kernel that is not recorded, once in a process."""
    if key not in _COUNTED:
        _COUNTED.add(key)
        UNRECORDED[name] += 1


@cache
def code_digest() -> str:
    """Return the digest of `CODE`."""
    digest = hashlib.sha256()
    for path in sorted(CODE.rglob("*.py")):
        digest.update(f"{path.relative_to(CODE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def digest_of_file(path: str) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@contextmanager
def keys_of_any_folder() -> Iterator[None]:
    """Let keys of AMD's targets contain the content of device libraries in place of their paths."""
    from triton.backends.amd.compiler import HIPOptions

    def digest(options: Any) -> str:
        known = {**vars(options), "extern_libs": [(name, digest_of_file(path)) for name, path in options.extern_libs]}
        return hashlib.sha256("_".join(f"{name}-{value}" for name, value in known.items()).encode()).hexdigest()

    before, HIPOptions.hash = HIPOptions.hash, digest
    try:
        yield
    finally:
        HIPOptions.hash = before


@contextmanager
def complete_keys() -> Iterator[None]:
    """Hash a called function before its constants are added to those of its caller, as Triton does in later calls.

    A key then does not depend on what a process compiled before.  It must hold from the first compilation on.
    """
    from triton.runtime.jit import DependenciesFinder

    before = DependenciesFinder._update_hash

    def update(finder: Any, function: Any) -> None:
        assert function.cache_key
        before(finder, function)

    DependenciesFinder._update_hash = update
    try:
        yield
    finally:
        DependenciesFinder._update_hash = before


@cache
def kernels_named(name: str) -> dict[str, dict[str, str]]:
    """Return the recorded kernels of a function by key: the contents of their files by the files' names."""
    path = FOLDER / f"{name}.json.xz"
    if not path.is_file():
        return {}
    content = json.loads(lzma.decompress(path.read_bytes()))
    found: dict[str, dict[str, str]] = content["kernels"] if content["code"] == code_digest() else {}
    return found


@cache
def cache_manager() -> Any:
    """Return a manager of Triton's cache that finds recorded kernels beside those of its folder."""
    from triton.runtime.cache import FileCacheManager

    class RecordedKernels(FileCacheManager):  # type: ignore[misc]
        """The files of one key, which are written from the record when they are first asked for."""

        def get_group(self, filename: str) -> dict[str, str] | None:
            """Return the paths of the files that belong to a file."""
            found: dict[str, str] | None = super().get_group(filename)
            name = filename.removesuffix(".json")
            files = kernels_named(name).get(self.key)
            if found is not None and files is None:
                count(name, self.key)
            if found is not None or files is None:
                return found
            super().put_group(filename, {name: self.put(text, name) for name, text in files.items()})
            written: dict[str, str] | None = super().get_group(filename)
            return written

        def put_group(self, filename: str, group: dict[str, str]) -> None:
            """Keep the files of a kernel that was compiled."""
            count(filename.removesuffix(".json"), self.key)
            super().put_group(filename, group)

    return RecordedKernels


def portable(text: str) -> str:
    """Return the text of a file without what differs between machines."""
    return _FILE.sub(r'\1"\2"', _LIBRARY.sub("", _DEBUG_SECTION.sub("", text)))


def record(folder: Path) -> int:
    """Write the kernels of a cache folder to `FOLDER` in place of what is there; return their number."""
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for group in sorted(folder.glob("*/__grp__*.json")):
        name = group.stem.removeprefix("__grp__")
        files = {
            path.name: "" if path.suffix in BINARIES else portable(path.read_text())
            for path in sorted(group.parent.iterdir())
            if path.suffix in TEXTS + BINARIES and not path.name.startswith("__grp__")
        }
        found[name][group.parent.name] = files
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json.xz"):
        path.unlink()
    for name, kernels in found.items():
        known = {"code": code_digest(), "kernels": kernels}
        content = json.dumps(known, sort_keys=True, separators=(",", ":")).encode()
        (FOLDER / f"{name}.json.xz").write_bytes(lzma.compress(content, preset=9))
    return sum(map(len, found.values()))


if __name__ == "__main__":
    from assembly_only import FOLDER as ASSEMBLY_ONLY

    print(record(Path(sys.argv[1]) / ASSEMBLY_ONLY), "kernels are recorded")
