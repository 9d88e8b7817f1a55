"""The adversary on kernels whose threads work together: it finds a wrong Equal, and none on a slice of its kernels."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from bitwise_bench.adversary import folders, pair_rounds
from bitwise_bench.adversary.block_programs import BlockProgram, block_programs
from bitwise_bench.adversary.campaign import Tally, play_blocks, play_vendors, worker
from bitwise_bench.adversary.kernel_families.families import FAMILIES
from bitwise_bench.adversary.pair_rounds import analysed
from bitwise_bench.adversary.scopes import AUDITED, SCOPES
from bitwise_core.checker.parametric import polynomial
from bitwise_core.execution.data_loops import loop_systems
from bitwise_core.execution.executor import Executor
from bitwise_core.execution.memory import shared_memory
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.values.matrix_steps import mma_steps
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.opcodes.matrices import fragments
from bitwise_nvidia_sm90 import wgmma

LAUNCH = SCOPES["launch"]


def made(name: str, seed: str, count: int) -> list[BlockProgram]:
    return block_programs(name, FAMILIES[name], random.Random(seed), count)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_programs_can_be_sent_to_another_process(family: str) -> None:
    """A worker returns the programs of wrong pairs, and the first use of a language keeps its material."""
    program = made(family, family, 1)[0]
    assert program.frame.language.material.words is program.frame.language.words
    received = pickle.loads(pickle.dumps(program))
    assert received.text_key() == program.text_key()
    assert received.frame.language == program.frame.language
    assert received.frame.language.material.stores == program.frame.language.material.stores


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_kernels_of_a_family_are_assembled_and_analysed(family: str) -> None:
    """Some draws are of one text, or of kernels that the analysis does not follow."""
    language = FAMILIES[family].frame.language
    for turn in range(4):
        programs = made(family, f"{family} {turn}" if turn else family, 3)
        assert len({each.text_key() for each in programs}) == len(programs)
        if len(programs) > 1 and any(analysed(programs, LAUNCH)[0]):
            break
    else:
        pytest.fail("no draw has two texts and a kernel that is analysed")
    if language.suffix == ".ptx":
        assembler = Ptxas.locate(f"{language.architecture}a")
        assert all(assembler.digest(each.kernel.text) for each in programs)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_forms_do_not_depend_on_how_values_are_kept(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of loads, equal blocks, whole results of matrix steps and registers of groups only save time."""
    programs = made(family, f"{family} again", 3)
    forms, _ = analysed(programs, LAUNCH)

    def nothing(*arguments: object, **named: object) -> None:
        return None

    monkeypatch.setattr(SharedMemory, "_store_chunks", nothing)
    monkeypatch.setattr(mma_steps, "_alike_blocks", nothing)
    monkeypatch.setattr(fragments, "_loaded_elements", nothing)
    monkeypatch.setattr(fragments, "bundled", nothing)
    monkeypatch.setattr(wgmma, "_whole_accumulator", nothing)
    monkeypatch.setattr(Executor, "separates_registers", False)
    assert analysed(programs, LAUNCH)[0] == forms


def test_fused_sums_are_executed_as_the_assembler_fuses_them() -> None:
    name, scope = "sums that may be fused", SCOPES[AUDITED]
    first = made(name, name, 1)[0]
    product, begin = "mul{}.f32 %r30, %r10, %r11; add{}.f32 %r20, %r30, %r12;", first.chosen[0]
    bodies = product.format("", ""), "fma.rn.f32 %r20, %r10, %r11, %r12;", product.format(".rn", ".rn")
    fused, stated, rounded = (replace(first, chosen=(begin, each), kind="f32") for each in bodies)
    forms, reasons = analysed((fused, stated, rounded), scope)
    assert not reasons
    assert forms[0] == forms[1] != forms[2]
    one, other, third = (pair_rounds.executed(each, scope, 0) for each in (fused, stated, rounded))
    assert pair_rounds.pair_difference(one, other, "fp32") is None
    assert pair_rounds.pair_difference(one, third, "fp32") is not None


def test_programs_that_store_nothing_are_analysed_and_executed() -> None:
    nothing = [replace(each, chosen=("exit;",), slots=(("exit;",),)) for each in made("copies", "nothing", 2)[:2]]
    forms, _ = analysed(nothing, LAUNCH)
    assert forms[0] is not None
    assert forms[0] == forms[1]
    left, right = (pair_rounds.executed(each, LAUNCH, 1) for each in nothing)
    assert pair_rounds.pair_difference(left, right, "fp32") is None


def test_a_slice_of_the_search_finds_no_wrong_equal() -> None:
    tally = worker(seed=2, number=0, seconds=600, gpu=False, rounds=5, only_blocks=True)
    assert tally.errors == []
    assert sum(tally.equal.values()) > 5
    assert not tally.wrong


def first_wrong(
    family: str, seeds: Iterable[int], patch: pytest.MonkeyPatch, *, shrunk: bool = False
) -> pair_rounds.WrongPair:
    """Return the first wrong pair of kernels of one family; a test has broken a rule before."""
    patch.setattr("bitwise_bench.adversary.campaign.FAMILIES", {family: FAMILIES[family]})
    if not shrunk:
        patch.setattr(pair_rounds, "shrunk", lambda pair, *found: pair)
    tally = Tally()
    for seed in seeds:
        play_blocks(LAUNCH, random.Random(seed), tally, None)
        if tally.wrong_pairs:
            break
    return tally.wrong_pairs[0]


def test_contents_of_one_version_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both sides of a branch number their contents alike, so that a tile of one is taken for that of the other."""

    def count(memory: SharedMemory) -> None:
        memory.version += 1

    monkeypatch.setattr(SharedMemory, "changed", count)
    monkeypatch.setattr(shared_memory, "_VERSIONS", itertools.repeat(0))
    found = first_wrong("warpgroups", range(20), monkeypatch, shrunk=True)
    assert isinstance(found.left, BlockProgram)
    assert isinstance(found.right, BlockProgram)
    differences = [one != other for one, other in zip(found.left.chosen, found.right.chosen, strict=True)]
    assert sum(differences) == 1
    folders.write(found, tmp_path)
    replayed = folders.replay(tmp_path)
    assert replayed.wrong
    assert [int(each, 0) for each in replayed.values] == [int(each, 0) for each in found.values]


def test_arguments_that_are_narrowed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every launch, integers of 16 bits are taken not to wrap, so that a narrowed argument is the argument."""
    monkeypatch.setattr(polynomial, "INDEX_BITS", 0)
    found = first_wrong("launch arguments", range(8), monkeypatch)
    assert ", n = " in found.trials[0].name
    assert found.scope == "every launch"


def test_zeros_that_cut_an_accumulator_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of zeros in fp8 is taken to return any accumulator."""
    monkeypatch.setattr(mma_steps, "_where_cut", lambda accumulator, unchanged: unchanged)
    assert first_wrong("products of zeros", range(8), monkeypatch)


def test_loops_of_lanes_that_depend_on_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that lanes of a wave end together is taken for one of each lane."""
    monkeypatch.setattr(loop_systems, "threads_together", lambda *loop: (1, False))
    monkeypatch.setattr(loop_systems._Body, "_other_groups_decide", lambda *found: False)
    assert first_wrong("long loops of waves", [1], monkeypatch)


def test_pairs_of_vendors_that_are_equal_have_equal_bytes() -> None:
    tally = Tally()
    for seed in range(3):
        play_vendors(LAUNCH, random.Random(seed), tally)
    assert sum(tally.equal.values()) > 5
    assert not tally.wrong


def test_operations_that_differ_between_vendors_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The maximum of a signalling NaN is another one for each vendor."""
    monkeypatch.setattr(pair_rounds, "are_equal", lambda *pair: True)
    tally = Tally()
    play_vendors(LAUNCH, random.Random(0), tally)
    found = tally.wrong_pairs[0]
    assert {Path(each).suffix for each in found.texts()} == {".ptx", ".amdgcn", ".json"}
    assert found.arrays().keys() == {"in_f32", "out_fp32"}
