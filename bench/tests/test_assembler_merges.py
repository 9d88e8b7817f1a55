"""The search for sequences that an assembler merges: what it draws, finds and records."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import nullcontext
from ctypes import c_void_p
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from bitwise_bench.adversary.device import Device, DeviceError
from bitwise_bench.adversary.expressions import WIDTHS, Expression, constant, leaf, operations, replaced
from bitwise_bench.adversary.instruction_sets.ptx_vocabulary import HIDDEN
from bitwise_bench.adversary.kernels import KernelText
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.programs import Program
from bitwise_bench.assembler import merge_search as merges
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas

LISTING = """
	.section	.text.kernel_1,"ax",@progbits
.text.kernel_1:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   FMNMX R5, R2, 1, PT ;
        /*0020*/               @!P0 FADD.SAT R5, R5, 0 ;
        /*0030*/                   EXIT ;
	.section	.text.kernel_0,"ax",@progbits
        /*0000*/              @UP1 FMNMX R5, R2, 1, PT ;
        /*0010*/                   MOV R6, R5 ;
"""


@pytest.fixture(scope="module")
def ptxas() -> Ptxas:
    try:
        return Ptxas.locate("sm_90a")
    except PtxasNotFound as error:
        pytest.skip(str(error))


def sequence(inner: Expression, outer: str, *others: Expression) -> merges.MergedSequence:
    kept = Expression(f"{HIDDEN} {inner.kind}", (inner,), inner.kind)
    direct, hidden = (Expression(outer, (each, *others), inner.kind) for each in (inner, kept))
    store = {"f32": "fp32", "i32": "u32"}[inner.kind]
    return merges.MergedSequence(Program(direct, store), Program(hidden, store))


CLAMP = sequence(
    Expression("min.f32", (leaf("f32.0", "f32"), constant(0x3F800000, "f32")), "f32"), "max.f32", constant(0, "f32")
)
LOGIC = sequence(
    Expression("and.b32", (leaf("i32.0", "i32"), leaf("i32.1", "i32")), "i32"), "xor.b32", leaf("i32.0", "i32")
)
APART = sequence(
    Expression("add.rn.f32", (leaf("f32.0", "f32"), leaf("f32.1", "f32")), "f32"), "mul.rn.f32", leaf("f32.0", "f32")
)


def judged(found: merges.Found, ptxas: Ptxas, device: Device | None = None) -> None:
    """Judge the three sequences."""
    drawn = [CLAMP, LOGIC, APART]
    for numbers, image in merges._assembled_parts(drawn, [0, 1, 2], ptxas, found):
        assert numbers == [0, 1, 2]
        merges._judge(drawn, image, ptxas, device, found)


def test_a_listing_is_read_without_what_moves_values() -> None:
    found = merges.listed_opcodes(LISTING)
    assert found == {"kernel_1": Counter({"FMNMX": 1, "FADD.SAT": 1}), "kernel_0": Counter({"FMNMX": 1})}
    assert merges.change_of(found["kernel_1"], found["kernel_0"]) == " -> FADD.SAT"
    assert merges.change_of(found["kernel_0"], found["kernel_0"]) == ""


@pytest.mark.parametrize("operations_drawn", [merges.LONGER, merges.NARROW])
def test_usual_sequences_have_only_operations_that_compilers_use(operations_drawn: str) -> None:
    texts = {each.key: each.text for kinds in merges.usual_kinds().values() for each in kinds}
    assert {"add.rn.f32", "setp.lt.s32", "cvt.u32.u16", "selp i32"} <= texts.keys()
    for unusual in ("add.rn.sat.f32", "sad.u32", "fma.rn.relu.f16x2", "set.lt.u32.f32"):
        assert unusual not in texts
    carriers = {each.key for each in merges.PTX.families[merges.SAME_BITS]} | {"selp i32"}
    for drawn in merges.sequences(random.Random(6), 200, operations_drawn):
        for each in operations(drawn.direct.root):
            assert each.opcode in texts or each.opcode in carriers


def test_pairs_of_usual_operations_take_results() -> None:
    kinds = merges.usual_kinds()
    pairs = merges.usual_pairs()
    assert sum(map(len, pairs.values())) > 50_000
    for first, seconds in list(pairs.items())[::20]:
        width = WIDTHS[kinds[first][0].result]
        for second in seconds[::20]:
            assert any(WIDTHS.get(each) == width for each in kinds[second][0].operands)


def test_files_of_a_seed_walk_every_pair_once() -> None:
    """Each pair has one sequence, the order depends on the seed, and a file is the same in every search."""
    pairs = merges.ordered_pairs(3)
    assert len(set(pairs)) == len(pairs) == sum(map(len, merges.usual_pairs().values()))
    assert pairs != merges.ordered_pairs(4)
    search = merges.Search(merges.USUAL, cast("Ptxas", None), 3)
    assert search.files is not None
    assert (search.files - 1) * merges.SEQUENCES < len(pairs) <= search.files * merges.SEQUENCES
    assert search.drawn(2) == search.drawn(2) != search.drawn(3)
    opcodes = {each.opcode for drawn in search.drawn(0) for each in operations(drawn.direct.root)}
    chosen = {spec.key for pair in pairs[: merges.SEQUENCES] for kind in pair for spec in merges.usual_kinds()[kind]}
    assert opcodes <= chosen | {each.key for each in merges.PTX.families[merges.SAME_BITS]} | {"selp i32"}


def test_sequences_differ_only_in_what_is_hidden() -> None:
    drawn = list(merges.sequences(random.Random(5), 200))
    lengths = Counter(sum(not each.opcode.startswith(HIDDEN) for each in operations(one.hidden.root)) for one in drawn)
    assert {2, 3, 4} <= set(lengths)
    assert any(len(set(_uses(each.direct.root))) < len(_uses(each.direct.root)) for each in drawn)
    for each in drawn:
        shown = replaced(each.hidden.root, lambda node: None)
        while shown != (less := replaced(shown, _uncovered)):
            shown = less
        assert shown == each.direct.root
        assert each.hidden.root != each.direct.root
        assert each.direct.store == each.hidden.store


def _uses(root: Expression) -> list[Expression]:
    """Return the results that the operations of a sequence use, each as often as it is used."""
    every = operations(root)
    return [inner for each in every for inner in each.inner if inner in every]


def _uncovered(node: Expression) -> Expression | None:
    return node.inner[0] if node.opcode.startswith(f"{HIDDEN} ") else None


def test_merged_sequences_are_found_and_judged(ptxas: Ptxas) -> None:
    """The clamp is merged and not Equal, the logic is merged and Equal, and the sum and the product stay apart."""
    found = merges.Found()
    judged(found, ptxas)
    assert found.counts == {"merged": 2, "merged, not Equal": 1, "merged, Equal": 1}
    assert found.changes == {"LOP3.LUT -> ": ["and.b32 i32.0, i32.1; xor.b32 v0, i32.0; u32 v1"]}


class OtherDevice:
    """A device on which a hidden value changes the results of some programs, and one program ends the context."""

    def __init__(self, changed: set[int], fails: int) -> None:
        self.changed, self.fails, self.entries = changed, fails, list[str]()

    def loaded(self, image: bytes) -> nullcontext[c_void_p]:
        return nullcontext(c_void_p())

    def run_entry(self, module: c_void_p, entry: str, kernel: KernelText, blocks: int, contents: object) -> list[Array]:
        self.entries.append(entry)
        number = int(entry.removeprefix("kernel_"))
        if number == self.fails:
            raise DeviceError("a kernel failed with CUDA error 715")
        return [np.full((blocks * kernel.threads, 4), number in self.changed, np.uint8)]


def test_other_bytes_are_a_finding_where_the_analysis_is_equal(ptxas: Ptxas) -> None:
    """The clamp has other bytes and is not Equal, the logic has other bytes and is Equal."""
    found, device = merges.Found(), OtherDevice({1, 3}, fails=7)
    judged(found, ptxas, cast("Device", device))
    assert device.entries == [f"kernel_{each}" for each in range(6)]
    assert found.counts == {"executed": 3, "other bytes, Equal": 1, "other bytes, not Equal": 1}
    (line,) = found.different
    assert line == "and.b32 i32.0, i32.1; xor.b32 v0, i32.0; u32 v1: 00000000 and 01010101 (LOP3.LUT -> )"


def test_a_sequence_that_ends_the_context_is_a_finding(ptxas: Ptxas) -> None:
    found, device = merges.Found(), OtherDevice({1}, fails=3)
    judged(found, ptxas, cast("Device", device))
    assert device.entries == [f"kernel_{each}" for each in range(4)]
    assert found.counts == {"executed": 1, "other bytes, not Equal": 1}
    assert found.failed == ["and.b32 i32.0, i32.1; xor.b32 v0, i32.0; u32 v1: a kernel failed with CUDA error 715"]
    record = merges.record_of(found, merges.Search(merges.ALL, ptxas, 1), 2.0)
    assert merges._finish(record, None) == 1


def test_a_record_names_the_assembler_and_its_merges(ptxas: Ptxas, tmp_path: Path) -> None:
    target = tmp_path / "found.json"
    assert merges.main(["--seconds", "0.1", "--record", str(target), "--seed", "3"]) == 0
    record = json.loads(target.read_text())
    (run,) = record["runs"]
    assert run["ptxas"] == ptxas.version
    assert run["architecture"] == "sm_90a"
    assert run["counts"]["sequences"] >= merges.SEQUENCES - run["counts"].get("refused", 0)
    assert run["files"] == {"first": 0, "all before": run["counts"]["files"]}


def test_machine_code_that_is_kept_is_judged_later(
    ptxas: Ptxas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search of a folder judges the sequences that were assembled there, and ends behind the last file."""
    monkeypatch.setattr(merges, "SEQUENCES", 4)
    kept, target = tmp_path / "images", tmp_path / "found.json"
    given = ["--narrow", "--seconds", "0.1", "--seed", "3", "--record", str(target)]
    assert merges.main([*given, "--assemble", str(kept)]) == 0
    (run,) = json.loads(target.read_text())["runs"]
    files = run["counts"]["files"]
    assert run["counts"] == {"files": files, "sequences": 4 * files}
    assert sorted(each.name for each in kept.iterdir()) == sorted(f"{number}.images" for number in range(files))
    given[2] = "60"
    assert merges.main([*given, "--images", str(kept)]) == 0
    (run,) = json.loads(target.read_text())["runs"]
    assert run["counts"]["sequences"] == 4 * files
    assert run["files"] == {"first": 0, "all before": files}
    assert "merged" in run["counts"]


def test_records_are_joined_once(ptxas: Ptxas, capsys: pytest.CaptureFixture[str]) -> None:
    found = merges.Found(Counter(sequences=3), {"A -> ": ["x; y", "y; z; x"]})
    one = merges.record_of(found, merges.Search(merges.ALL, ptxas, 1), 2.0)
    found.different.append("y; z: 1 and 2")
    found.changes["A -> "].append("z")
    other = merges.record_of(found, merges.Search(merges.ALL, ptxas, 2), 2.0)
    whole = merges.merged_records([one, other])
    assert [run["seed"] for run in whole["runs"]] == [1, 2]
    assert whole["merged sequences that are Equal"] == {"A -> ": {"sequences": 5, "example": "z"}}
    rarer = merges.record_of(
        merges.Found(changes={f"{each} -> ": ["x"] for each in range(70)}), merges.Search(merges.ALL, ptxas, 3), 2.0
    )
    most = merges.merged_records([whole, rarer])
    assert len(most["merged sequences that are Equal"]) == merges.MOST_CHANGES
    assert sum(each["sequences"] for each in most["merged sequences that are Equal"].values()) == 5 + 59
    assert most[merges._OTHERS] == 11
    with pytest.raises(ValueError, match="a run counts once"):
        merges.merged_records([one, other, one])
    assert merges._finish(one, None) == 0
    assert merges._finish(whole, None) == 1
    assert "other bytes: y; z: 1 and 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--jobs", "0"], "--jobs and --seconds must be positive"),
        (["--gpu", "--arch", "sm_100a"], "sequences for sm_100a do not run on a GPU of sm_90"),
        (["--arch", "gfx942"], "the architecture 'gfx942' is not of the form sm_90 or sm_90a"),
        (["--ptxas", "/nowhere"], "/nowhere is not an executable file"),
    ],
)
def test_wrong_arguments_are_sentences(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        merges.main(arguments)
    assert reason in capsys.readouterr().err
