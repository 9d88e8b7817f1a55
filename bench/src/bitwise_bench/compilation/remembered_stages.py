"""Compilation of many configurations: stages whose input was seen are not run again, and no file is kept.

Configurations often differ only until a stage of Triton's compiler: the number of stages of a loop pipeline does not
reach a kernel without loops, and fusion of products changes nothing after the last translation.  The result of a stage
is a function of its input text and the options that the stage reads.
"""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEPT = 96
"""Results of stages that a process keeps."""

UNREAD: Mapping[tuple[str, str], frozenset[str]] = {
    ("cuda", "llir"): frozenset({"num_stages", "enable_fp_fusion"}),
    ("cuda", "ptx"): frozenset({"num_stages"}),
    ("cuda", "cubin"): frozenset({"num_stages", "num_warps", "maxnreg"}),
    ("hip", "llir"): frozenset({"num_stages"}),
    ("hip", "amdgcn"): frozenset({"num_stages"}),
    ("hip", "hsaco"): frozenset({"num_stages"}),
}
"""The options that a stage of a backend does not read, or that its input states; other stages always run."""


@dataclass
class Compilation:
    """What this process compiled.

    `files` are those of the most recent kernel by their suffix, `folders` those in Triton's cache that were not
    discarded.  `ran` and `recalled` count stages.
    """

    files: dict[str, Path] = field(default_factory=dict)
    folders: set[Path] = field(default_factory=set)
    ran: int = 0
    recalled: int = 0

    def binary(self) -> bytes:
        """Return the object file of the most recent compilation.  Raises KeyError before the first one."""
        suffix = next(each for each in (".cubin", ".hsaco") if each in self.files)
        return self.files[suffix].read_bytes()

    def discard(self) -> None:
        """Delete the compiled kernels from Triton's cache."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        self.files, self.folders = {}, set()


@contextmanager
def remembered_stages(cache: Path) -> Iterator[Compilation]:
    """Let the compilations of this process use the folder `cache` as Triton's cache, and recall stages.

    Processes may share the folder: launchers stay there, kernels until they are discarded.
    """
    from triton import knobs

    compilation = Compilation()
    results: OrderedDict[tuple[str, str, str], tuple[Any, dict[str, Any]]] = OrderedDict()

    def remembered(stage: str, run: Callable[[Any, Any], Any], options: str) -> Callable[[Any, Any], Any]:
        def stage_of(source: Any, metadata: dict[str, Any]) -> Any:
            key = (stage, options, str(source))
            found = results.get(key)
            if found is None:
                before = dict(metadata)
                result = run(source, metadata)
                added = {name: value for name, value in metadata.items() if name not in before or before[name] != value}
                found = results[key] = result, added
                compilation.ran += 1
                if len(results) > KEPT:
                    results.popitem(last=False)
            else:
                results.move_to_end(key)
                compilation.recalled += 1
            metadata.update(found[1])
            return found[0]

        return stage_of

    def inspect(backend: Any, stages: dict[str, Any], options: Any, language: Any, capability: Any) -> None:
        for stage, run in stages.items():
            unread = UNREAD.get((backend.target.backend, stage))
            if unread is not None:
                read = {name: value for name, value in sorted(vars(options).items()) if name not in unread}
                stages[stage] = remembered(stage, run, repr(read))

    def listen(*, metadata_group: Mapping[str, str], **_: Any) -> None:
        compilation.files = {Path(path).suffix: Path(path) for path in metadata_group.values()}
        compilation.folders |= {path.parent for path in compilation.files.values()}

    with knobs.cache.scope(), knobs.runtime.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(cache)
        knobs.runtime.add_stages_inspection_hook = inspect
        knobs.compilation.listener = listen
        # Places in the source would make texts differ that are otherwise equal.
        knobs.compilation.disable_line_info = True
        yield compilation
