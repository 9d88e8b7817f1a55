"""Kernels that the adversary executes in several orders, and often on a GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitwise_bench.adversary import device, kernel_mutants, ordered_rounds, pair_rounds
from bitwise_bench.adversary.block_programs import DRAWS, BlockProgram, block_programs
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.instruction_sets.ptx_forms import recorded_specs
from bitwise_bench.adversary.instruction_sets.ptx_vocabulary import PTX
from bitwise_bench.adversary.kernel_families import synchronised_kernels
from bitwise_bench.adversary.kernels import CELLS, PARTS
from bitwise_bench.adversary.scopes import SCOPES

LAUNCH = SCOPES["launch"]


def first_of(family: str, seed: int) -> BlockProgram:
    """Return the kernel from which a family makes others."""
    return block_programs(family, synchronised_kernels.FAMILIES[family], random.Random(seed), 0)[0]


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("tickets of blocks", 0), ("turns of blocks", 0), ("barriers of a grid", 4), ("look-back", 1),
        ("widths of global memory", 2),
    ],
)  # fmt: skip
def test_a_kernel_that_synchronises_is_determined_and_leaves_the_same_bytes_in_every_order(
    family: str, seed: int
) -> None:
    tally = ordered_rounds.OrderedTally()
    ordered_rounds.play([first_of(family, seed)], LAUNCH, random.Random(0), tally, None)
    assert tally.determined == 1
    assert tally.executions >= DRAWS
    assert not tally.wrong


def test_the_launch_gives_zeros_for_the_cells_by_which_blocks_synchronise() -> None:
    program = first_of("tickets of blocks", 0)
    launch = program.kernel.launch(program.blocks)
    given = launch.given()
    assert set(given) == {CELLS}
    assert not given[CELLS].patterns.any()
    assert program.kernel.bytes_of(PARTS, program.blocks) == 16 * program.threads * program.blocks


def racing() -> BlockProgram:
    """Return a kernel whose blocks store different numbers to one element."""
    program = first_of("locks", 0)
    stores = "st.global.u32 [%d51], %r9;"
    return BlockProgram(
        program.source, (stores,), ((stores,),), program.threads, program.kind, (0, 0), program.frame, program.blocks
    )


def test_other_bytes_in_another_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = ordered_rounds.OrderedTally()
    ordered_rounds.play([racing()], LAUNCH, random.Random(0), tally, None)
    assert not tally.determined
    monkeypatch.setattr(pair_rounds, "analysed", lambda programs, scope: ([0] * len(programs), []))
    ordered_rounds.play([racing()], LAUNCH, random.Random(0), tally, None)
    assert [place for _, _, place in tally.wrong] == [f"parts[0]: {racing().blocks - 1:#x} and 0x0"]


class CountingDevice:
    """A device whose runs leave numbers of their own."""

    def run_often(self, *arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield two different results."""
        for number in range(2):
            yield {PARTS: np.full(64, number, dtype=np.uint8)}


def test_other_bytes_of_another_run_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_rounds, "analysed", lambda programs, scope: ([0] * len(programs), []))
    monkeypatch.setattr(ordered_rounds, "_judge", lambda *arguments: None)
    tally = ordered_rounds.OrderedTally()
    ordered_rounds.play([racing()], LAUNCH, random.Random(0), tally, CountingDevice())  # type: ignore[arg-type]
    assert [place for _, _, place in tally.wrong_on_device] == ["parts[0]: 0x0 and 0x1010101"]


def test_programs_on_a_large_grid_are_compared_with_themselves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their form is a number among the programs that are analysed together."""
    judged: list[int] = []
    monkeypatch.setattr(pair_rounds, "analysed", lambda programs, scope: ([0] * len(programs), []))
    monkeypatch.setattr(ordered_rounds, "_judge", lambda members, *rest: judged.append(len(members)))
    programs = [replace(racing(), blocks=40_000, chosen=(text,)) for text in ("ret;", "bar.sync 0;")]
    ordered_rounds.play(programs, LAUNCH, random.Random(0), ordered_rounds.OrderedTally(), None)
    assert judged == [1, 1]


def test_a_kernel_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiting:
        def cuStreamQuery(self, stream: Any) -> int:  # noqa: N802
            return 600

    opened = device.Device.__new__(device.Device)
    opened.driver = Waiting()
    monkeypatch.setattr(device, "MOST_SECONDS", 0.0)
    with pytest.raises(device.DeviceStuck, match="runs for more than"):
        opened._wait(None)


def test_recorded_operations_are_words_of_the_adversary() -> None:
    found = list(recorded_specs(set()))
    assert len(found) > 2000
    known = [each for each in PTX.specs.values() if each.family.startswith("recorded ")]
    assert {"setp.ne.xor.f64 x|y, a, b, c; [f64 f64 pred -> pred pred]"} <= {each.key for each in known}
    assert all(set(each.operands) <= set(LANGUAGES["ptx"].words.leaves) | {"p", "q2"} for each in known)
    assert all(each.crosses for each in known if each.key.startswith(("redux", "vote")))


class MutatingDevice:
    """A device on which a mutant leaves other bytes, with `optimised_only` only where the assembler optimises."""

    def __init__(self, own: str, *, optimised_only: bool) -> None:
        self.own, self.optimised_only = own, optimised_only

    def run_launch(self, text: str, launch: Any, contents: Any, *, optimised: bool = True) -> dict[str, Any]:
        """Return the contents, with another first byte for a mutant."""
        other = text != self.own and (optimised or not self.optimised_only)
        return {name: each ^ np.uint8(other) for name, each in contents.items()}


@pytest.mark.parametrize("optimised_only", [True, False])
def test_mutants_of_a_compiled_kernel_are_executed_on_a_gpu(optimised_only: bool) -> None:
    pytest.importorskip("triton")
    name = kernel_mutants.small_cases()[0]
    opened: Any = MutatingDevice(kernel_mutants.compiled(name).text, optimised_only=optimised_only)
    found = kernel_mutants.judge(name, LAUNCH, random.Random(1), 2, opened)
    assert found.on_device == found.equal > 0
    wrong, right = (found.optimiser, found.device_wrong) if optimised_only else (found.device_wrong, found.optimiser)
    assert (len(wrong), right) == (found.equal, ())
