"""Configurations as `Source` records for the checker: compiled on demand, or read from a folder of compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.corpus.cases import Case
from bitwise_core.checker.sources import Source, buffer_numbers
from bitwise_core.execution.launch import Launch, ManifestError, read_manifest


@cache
def _buffers(target: str, family: str, group: str) -> tuple[tuple[str, int], ...]:
    from bitwise_bench.corpus import catalogue

    members = [case for case in catalogue.cases(target) if (case.family, case.group) == (family, group)]
    names = {array.name for case in members for array in case.arrays}
    return tuple(buffer_numbers(names).items())


def group_buffers(case: Case) -> dict[str, int]:
    """Return the buffer numbers that all configurations of the group share."""
    return dict(_buffers(case.target, case.family, case.group))


def compile_source(case: Case) -> tuple[Source, str, float]:
    """Compile a configuration; return its source, the digest of its text, and the compile time in seconds."""
    from bitwise_bench.compilation.capture import compile_case

    captured = compile_case(case)
    launch = Launch.model_validate({"file": f"{case.name}.{captured.extension}", **captured.manifest_entry})
    return Source(case.id, captured.assembly, launch), normalised_digest(captured.assembly), captured.compile_seconds


@cache
def _stored(folder: Path) -> Mapping[str, Launch]:
    return {launch.file: launch for launch in read_manifest(folder / "manifest.json").kernels}


def stored_source(case: Case, folder: Path) -> tuple[Source, str]:
    """Return the source of a configuration that `capture.write_folders` wrote to a folder, and the digest of its text.

    Raises ManifestError where the folder does not contain it.
    """
    place = folder / case.family / case.group
    launch = next((each for file, each in _stored(place).items() if Path(file).stem == case.name), None)
    if launch is None:
        raise ManifestError(f"{place / 'manifest.json'}: lists no kernel {case.name}; compile the corpus again")
    text = (place / launch.file).read_text(encoding="utf-8")
    return Source(case.id, text, launch), normalised_digest(text)
