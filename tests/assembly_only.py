"""Compilation by Triton up to the assembly text, for tests that read and execute texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = "assembly-only"


@contextmanager
def assembly_only(*, lines: bool = False) -> Iterator[None]:
    """Compile without machine code, and without `lines` of the source, which take up to a third of the time.

    The kernels are in a folder of their own in Triton's cache, where no launch finds them.  Those that are in
    `recorded_kernels` are not compiled.
    """
    from triton import knobs

    from recorded_kernels import cache_manager, complete_keys, keys_of_any_folder

    def without_machine_code(backend: Any, stages: dict[str, Any], *_: Any) -> None:
        stages[backend.binary_ext] = lambda text, metadata: b""

    # Where the first module that imports Triton is imported in a test, no fixture of the session completes the keys.
    with (
        complete_keys(), keys_of_any_folder(), knobs.cache.scope(), knobs.runtime.scope(), knobs.compilation.scope()
    ):  # fmt: skip
        folder = Path(knobs.cache.dir)
        knobs.cache.dir = str(folder if folder.name == FOLDER else folder / FOLDER)
        knobs.runtime.add_stages_inspection_hook = without_machine_code
        knobs.compilation.disable_line_info = not lines
        knobs.cache.manager_class = cache_manager()
        yield
