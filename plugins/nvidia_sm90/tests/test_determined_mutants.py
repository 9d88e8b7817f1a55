"""Mutants of compiled kernels: one that is Equal to itself for every launch is Equal to itself in its launch.

The concrete analysis, which executes all blocks of the launch, is the oracle: it follows every address and barrier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.parametric.access_history import AccessHistory
from bitwise_core.checker.parametric.loops.loop_summary import LoopSummary
from bitwise_core.checker.parametric.signature import parametric_signature
from bitwise_core.checker.sources import Options, Source, buffer_numbers
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch, read_manifest
from bitwise_core.plugins import registry

SAMPLES = Path(__file__).parent / "samples" / "sm_90"
ARCH = registry.default().arch("sm_90")
ORDER = re.compile(r"bar\.|wait_group|fence|st\.shared|stmatrix|commit_group|wait")
"""Instructions that write shared memory or order its accesses."""


@cache
def sample(name: str) -> tuple[str, Launch]:
    folder = SAMPLES / name.rsplit("_", 1)[0]
    launch = next(each for each in read_manifest(folder / "manifest.json").kernels if each.file == f"{name}.ptx")
    return (folder / launch.file).read_text(), launch


def without_a_line(lines: list[str], index: int) -> str:
    return "\n".join(lines[:index] + lines[index + 1 :])


def with_line(lines: list[str], index: int, line: str) -> str:
    return "\n".join([*lines[:index], line, *lines[index + 1 :]])


def mutants(text: str, chosen: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Texts with one change, each with its description."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        what = line.strip()
        if not what.endswith(";") or what.startswith((".", "//", "ret", "}")) or not chosen.search(what):
            continue
        yield f"line {index + 1} without {what}", without_a_line(lines, index)
        if "%ctaid" in what or "%tid" in what:
            yield f"line {index + 1}, 0 for {what}", with_line(lines, index, re.sub(r"%(ctaid|tid)\.\w", "0", line))
        if "shared" in what:
            moved = re.sub(r"\[\s*(%r\d+)(?:\s*\+\s*(\d+))?", lambda m: f"[{m[1]}+{int(m[2] or 0) + 4}", line)
            yield f"line {index + 1}, 4 bytes on: {what}", with_line(lines, index, moved)
        for old, new in (("xor.b32", "or.b32"), ("and.b32", "or.b32"), ("shl.b32", "shr.u32")):
            if old in what:
                yield f"line {index + 1}, {new} for {what}", with_line(lines, index, line.replace(old, new))


def determined(text: str, launch: Launch) -> tuple[bool, bool]:
    """Whether the kernel is Equal to itself for every launch, by the parametric analysis alone, and in its launch."""
    try:
        module = ARCH.parse(text, "mutant.ptx")
        parametric_signature(module, module.kernel(launch.entry), ARCH)
    except (Unsupported, AssemblyError):
        return False, False
    options = Options(audit_contraction=False)
    found = analyse(Source("mutant.ptx", text, launch), ARCH, buffer_numbers(set(launch.buffers())), options)
    return True, found.unknown is None


MUTATED = {
    "row_sum_1": (re.compile(""), 50, 1),
    "softmax_row_0": (re.compile(r"tid|shared|bar|st\.global|mad|mul|shfl|setp"), 15, 2),
    "rotate_1": (re.compile(r"tid|st\.global|mad|mul|setp|add"), 20, 1),
    "gemm_0": (ORDER, 2, 6),
    "gemm_1": (ORDER, 2, 3),
}
"""The instructions of a sample that change, the least number of mutants that are not determined, and of how many
mutants one is tried in a turn: those of one kind follow each other and are alike."""
TURNS = [(name, start) for name, (_, _, step) in MUTATED.items() for start in range(step)]


@pytest.mark.parametrize(
    ("name", "start"), [pytest.param(*each, marks=pytest.mark.exhaustive if each[1] else ()) for each in TURNS]
)
def test_mutants_are_equal_to_themselves_only_if_their_result_is_determined(name: str, start: int) -> None:
    chosen, fewest, step = MUTATED[name]
    text, launch = sample(name)
    assert determined(text, launch) == (True, True)
    found = {what: determined(each, launch) for what, each in islice(mutants(text, chosen), start, None, step)}
    assert [what for what, (every, one) in found.items() if every and not one] == []
    assert sum(not every for every, _ in found.values()) >= fewest


@pytest.mark.parametrize("name", ["row_sum_0", "softmax_row_0", "gemm_0"])
def test_a_block_independent_address_is_rejected(name: str) -> None:
    """The address of every store is the base of the buffer."""
    text, launch = sample(name)
    target = re.findall(r"ld\.param\.b64\s+(%rd\d+)", text)[-1]
    stored = re.sub(r"(st\.global\S*\s+\[\s*)%rd\d+", rf"\g<1>{target}", text)
    assert stored != text
    module = ARCH.parse(stored, "mutant.ptx")
    with pytest.raises(Unsupported):
        parametric_signature(module, module.kernel(launch.entry), ARCH)


@pytest.mark.parametrize("name", ["row_sum_0", "softmax_row_0"])
def test_a_floating_point_sum_in_memory_is_rejected(name: str) -> None:
    text, launch = sample(name)
    pattern = r"st\.global\.(?:v\d\.)?b32\s*\[\s*(%rd\d+)[^\]]*\]\s*,\s*\{\s*(%r\d+)[^}]*\}"
    added = re.sub(pattern, r"red.global.add.f32 [\1], \2", text)
    assert added != text
    module = ARCH.parse(added, "mutant.ptx")
    with pytest.raises(Unsupported, match="order of threads"):
        parametric_signature(module, module.kernel(launch.entry), ARCH)


@pytest.mark.parametrize("name", ["gemm_0", "gemm_1"])
def test_histories_of_accesses_are_those_of_whole_iterations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop leaves the same accesses whether only its accesses or all of its instructions are executed."""
    text, launch = sample(name)
    found: dict[bool, list[object]] = {False: [], True: []}
    executed = LoopSummary._executed_histories
    whole = False

    def record(summary: LoopSummary, pcs: Sequence[int], iterations: int) -> list[AccessHistory]:
        histories = executed(summary, pcs, iterations)
        assert (len(pcs) == len(summary.loop.body)) <= whole
        found[whole].append([(each.races.states(), len(each.reads.queues)) for each in histories])
        return histories

    def refuse(summary: LoopSummary) -> list[int]:
        raise Unsupported("all instructions are executed")

    monkeypatch.setattr(LoopSummary, "_executed_histories", record)
    for whole in (False, True):
        if whole:
            monkeypatch.setattr(LoopSummary, "_access_slice", refuse)
        module = ARCH.parse(text, "kernel.ptx")
        assert parametric_signature(module, module.kernel(launch.entry), ARCH).program_only is None
    assert found[False] == found[True]
    assert found[True]
