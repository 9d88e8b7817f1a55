"""Kernels whose text does not determine their bytes, although the bytes were the same in all runs on a GPU.

The criterion does not use the reading's own claim that a result is not determined.  It is a witness: two executions on
bit patterns, in two orders of the threads that the programming model allows, that leave different bytes from the same
inputs (`bitwise_core.checker.order_witness`).  Only kernels that are Unknown are executed.  One for which no witness is
found counts as determined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.kernel_files import read_folder
from bitwise_core.checker.order_witness import find_order_witness
from bitwise_core.checker.sources import Options
from bitwise_core.errors import InputError
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.time_limit import TimeLimitExceeded, time_limit
from bitwise_core.plugins import registry

CRITERION = (
    "A kernel is determined if it ran, all runs returned the same bytes, and no witness was found that its text does "
    "not determine them. A witness is a pair of executions of the text on bit patterns, in two orders of the threads, "
    "that leave different bytes from the same inputs. It is searched for every kernel that is Unknown and whose bytes "
    "did not move, whatever the reading says about it."
)
"""What a record with witnesses counts as determined; it is fixed before the kernels are read."""


def with_witnesses(
    folder: Path,
    entries: Sequence[Mapping[str, Any]],
    extensions: tuple[str, ...],
    target: str,
    seconds: float,
    executor: Executor,
) -> list[dict[str, Any]]:
    """Return launches whose Unknown kernels have a `witness`, a sentence, where two executions leave different bytes.

    Each kernel is executed for at most some seconds.  Kernels whose bytes moved on the GPU are not executed.
    """
    waiting = {
        (entry["launch"], kernel["file"]): executor.submit(
            witness_of, str(folder / entry["launch"]), kernel["file"], extensions, target, seconds
        )
        for entry in entries
        for kernel in entry["kernels"]
        if kernel["unknown"] is not None and not kernel["moved"] and not kernel["error"]
    }
    found = {name: each.result() for name, each in waiting.items()}
    return [
        {
            **entry,
            "kernels": [
                {**kernel, "witness": sentence}
                if (sentence := found.get((entry["launch"], kernel["file"]))) is not None
                else dict(kernel)
                for kernel in entry["kernels"]
            ],
        }
        for entry in entries
    ]


def witness_of(place: str, file: str, extensions: tuple[str, ...], target: str, seconds: float) -> str | None:
    """Return what differs between two orders of the threads of a kernel, or None where no difference was found."""
    try:
        source = next(each for each in read_folder(Path(place), extensions).sources if each.name == file)
        seed = int.from_bytes(hashlib.sha256(f"{Path(place).name} {file}".encode()).digest()[:4], "little")
        with time_limit(seconds):
            prepared = prepare(source, registry.default().arch(target), Options())
            found = find_order_witness(prepared, seed)
    except (InputError, Unsupported, TimeLimitExceeded, MemoryError):
        return None
    return None if found.element is None else found.reason
