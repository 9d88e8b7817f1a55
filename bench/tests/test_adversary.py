"""The adversary: it finds a rule that is wrong, and nothing on a fixed slice of its programs."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bitwise_bench.adversary import campaign, execution, folders, pair_rounds
from bitwise_bench.adversary.__main__ import main
from bitwise_bench.adversary.campaign import Round, Tally, play, worker
from bitwise_bench.adversary.classes import analyse, grouped
from bitwise_bench.adversary.expressions import Expression, constant, leaf
from bitwise_bench.adversary.findings import finding
from bitwise_bench.adversary.folders import Element
from bitwise_bench.adversary.instruction_sets import gfx942_kernel
from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.judging import difference
from bitwise_bench.adversary.kernel_mutants import WrongMutant
from bitwise_bench.adversary.kernels import DTYPES, KernelText
from bitwise_bench.adversary.loops import LoopProgram, accumulator, row_value
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.programs import STORES, Program, distinct, written
from bitwise_bench.adversary.record import counts_so_far, failed, merged, record_of
from bitwise_bench.adversary.rewriting import Term, built
from bitwise_bench.adversary.scopes import AUDITED, SCOPES
from bitwise_bench.adversary.shrinking import witness
from bitwise_bench.adversary.sources import SOURCES, Material
from bitwise_bench.mutants.detection_rate import Kernel
from bitwise_bench.mutants.generation import Mutant
from bitwise_core import api
from bitwise_core.checker.verdicts import Outcome
from bitwise_core.execution.architecture import infos_of
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import Operation
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas

PTX, GFX942 = LANGUAGES["ptx"], LANGUAGES["gfx942"]
OWN_STORE = {"f32": "fp32", "i32": "u32", "f16": "fp16", "bf16": "bf16", "i16": "u16", "f64": "fp64", "i64": "u64",
             "h2": "fp16x2", "b2": "bf16x2", "q2": "u16"}  # fmt: skip


def value_of(kind: str, number: int, language: Language) -> Expression:
    if kind == "p":
        opcode = {"ptx": "setp.lt.f32", "gfx942": "v_cmp_lt_f32_e64"}[language.name]
        return Expression(opcode, (leaf(f"f32.{(2 - number) % 3}", "f32"), leaf("f32.3", "f32")), "p")
    if kind == "q2":
        return Expression("as i16 q2", (leaf(f"i16.{number}", "i16"),), "q2")
    return leaf(f"{kind}.{number}", kind)


def stored(root: Expression, kind: str) -> Program:
    """Return a program that stores an expression as a value of a kind."""
    if kind == "p":
        root, kind = Expression("selp i32", (constant(1, "i32"), constant(2, "i32"), root), "i32"), "i32"
    return Program(root, OWN_STORE[kind])


def every_operation(language: Language) -> list[Program]:
    found = []
    words = language.words
    for spec in words.specs.values():
        operands = [
            words.immediates[kind][1] if kind.startswith("#") else value_of(kind, number, language)
            for number, kind in enumerate(spec.operands)
        ]
        found.append(stored(Expression(spec.key, tuple(operands), spec.result), spec.result))
    return found


def test_every_operation_of_ptx_is_assembled() -> None:
    assert Ptxas.locate("sm_90a").digest(PTX.kernel(every_operation(PTX)).text)


def test_every_operation_of_gfx942_is_assembled() -> None:
    libtriton = pytest.importorskip("triton._C.libtriton")
    libtriton.llvm.init_targets()
    assert libtriton.amd.assemble_amdgcn(GFX942.kernel(every_operation(GFX942)).text, "gfx942", "")


@pytest.mark.parametrize("name", sorted(LANGUAGES))
def test_every_operation_is_analysed_and_executed(name: str) -> None:
    language = LANGUAGES[name]
    programs = every_operation(language)
    assert len(distinct(programs)) == len(language.words.specs)
    analysed = analyse(programs, language, SCOPES["launch"])
    assert analysed.reasons == ()
    executed = execution.execute(programs, language, 1, 0, finite=False)
    assert len(executed.results) == len(programs)


def accesses(program: Program, language: Language) -> Hashable:
    """Return the registers that each instruction of a program's kernel reads and writes."""
    kernel = language.arch.parse(language.kernel([program]).text, "kernel").kernel(None)
    return tuple((each.reads, each.writes) for each in infos_of(kernel, language.arch.opcodes))


@pytest.mark.parametrize("name", sorted(LANGUAGES))
def test_every_operation_is_a_function_of_its_operands(name: str) -> None:
    """A text that reads a register before it writes it depends on the programs with which it shares registers.

    What its instructions read and write decides this; of programs that agree in it, one is analysed alone.
    """
    language = LANGUAGES[name]
    alike = {accesses(program, language): program for program in every_operation(language)}
    for program in alike.values():
        assert analyse([program], language, SCOPES["launch"]).reasons == (), written(program)


def test_the_high_half_of_every_value_of_16_bits_of_gfx942_is_zero() -> None:
    halves = [program.root for program in every_operation(GFX942) if program.root.width == 16]
    programs = [Program(Expression("as f16 i32", (root,), "i32"), "u32") for root in halves]
    assert len(programs) > 70
    for program in programs:
        assert analyse([program], GFX942, SCOPES["launch"]).reasons == (), written(program)
    executed = execution.execute(programs, GFX942, 8, 1, finite=False)
    high = [rows.view(np.uint16)[:, 1] for rows in executed.results]
    assert [written(each) for each, half in zip(programs, high, strict=True) if half.any()] == []


def test_a_text_that_keeps_a_part_of_its_register_depends_on_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest case of what the two tests before this one exclude: the high half that v_fma_f16 keeps."""
    keeps = replace(GFX942.words.specs["v_fma_f16"], text="v_fma_f16 @, $0, $1, $2")
    specs = {**GFX942.words.specs, "v_fma_f16": keeps}
    monkeypatch.setattr(gfx942_kernel, "GFX942_WORDS", replace(GFX942.words, specs=specs))
    x, y, z = (leaf(f"f16.{number}", "f16") for number in range(3))
    fused = Program(Expression("as f16 i32", (Expression("v_fma_f16", (x, y, z), "f16"),), "i32"), "u32")
    other = Program(Expression("v_not_b32_e32", (leaf("i32.0", "i32"),), "i32"), "u32")
    assert "nothing wrote" in analyse([fused], GFX942, SCOPES["launch"]).reasons[0]
    assert analyse([other, fused], GFX942, SCOPES["launch"]).reasons == ()


def bind(term: Term, kind: str, bound: dict[str, Expression | str], language: Language) -> None:
    if term.spec is not None:
        for each, of in zip(term.operands, term.spec.operands, strict=True):
            bind(each, of, bound, language)
    elif term.bits is None and term.name not in bound:
        taken = [each for each in bound.values() if isinstance(each, Expression) and each.kind == kind]
        bound[term.name] = value_of(kind, len(taken), language)


@pytest.mark.parametrize("name", sorted(LANGUAGES))
def test_every_identity_holds_on_bit_patterns(name: str) -> None:
    language = LANGUAGES[name]
    rules = list({rule.text: rule for rule in language.material.identities}.values())
    programs = []
    for rule in rules:
        bound: dict[str, Expression | str] = {}
        bind(rule.left, rule.kind, bound, language)
        sides = [built(term, bound) for term in (rule.left, rule.right)]
        programs += [stored(side, rule.kind) for side in sides if isinstance(side, Expression)]
    assert len(programs) == 2 * len(rules) > 100
    wrong = []
    for start in range(0, len(programs), 200):
        executed = execution.execute(programs[start : start + 200], language, 8, 1, finite=False)
        for index in range(0, len(executed.results), 2):
            dtype = DTYPES[STORES[programs[start + index].store].buffer]
            if difference(executed.results[index], executed.results[index + 1], dtype) is not None:
                wrong.append(rules[(start + index) // 2].text)
    assert wrong == []


def test_programs_of_a_class_differ_as_text_and_have_equal_forms() -> None:
    programs = distinct(SOURCES["rewritings"](PTX.material, random.Random("1"), 40))
    analysed = analyse(programs, PTX, SCOPES["launch"])
    classes = grouped(analysed.forms)
    assert sum(len(each) - 1 for each in classes) > 10
    assert len({written(program) for program in programs}) == len(programs)


def test_a_slice_of_the_search_finds_no_wrong_equal() -> None:
    tally = worker(seed=7, number=0, seconds=600, gpu=False, rounds=20)
    assert tally.errors == []
    assert sum(tally.equal.values()) > 200
    assert {scope.split(", ")[1] for scope in tally.equal} - {AUDITED} == set(SCOPES) - {AUDITED}
    assert [name for name in tally.wrong if "without NaN" in name] == []
    assert [name for name in tally.wrong if name.startswith(("ptx, launch", "ptx, every launch"))] == []


@pytest.fixture
def broken_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the operands of a subtraction in the order of their hashes: a - b and b - a are confused."""
    floating = TermDomain.floating

    def exchanged(domain: TermDomain, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        if operation.verb == "sub":
            operands = sorted(map(as_symbolic_vector, operands), key=lambda each: each.words.tobytes())
        return floating(domain, operation, operands, properties)

    monkeypatch.setattr(TermDomain, "floating", exchanged)


def subtractions(of: Material, dice: random.Random, count: int) -> list[Program]:
    roots = [program for program in SOURCES["mutants"](of, dice, count) if "sub.rn.f32" in written(program)]
    x, y, z = (leaf(f"f32.{number}", "f32") for number in range(3))
    difference_of = Expression("mul.rn.f32", (Expression("sub.rn.f32", (x, y), "f32"), z), "f32")
    other = Expression("mul.rn.f32", (Expression("sub.rn.f32", (y, x), "f32"), z), "f32")
    return [*roots, Program(difference_of, "fp32", "test"), Program(other, "fp32", "test")]


@pytest.mark.parametrize("scope", sorted(SCOPES))
def test_a_wrong_rule_is_reported_with_a_small_pair(scope: str, broken_rule: None, tmp_path: Path) -> None:
    tally = Tally()
    play(Round(PTX, SCOPES[scope], "subtractions", subtractions, random.Random(3), 1, 20), tally, None)
    assert tally.errors == []
    assert any("without NaN" in name for name in tally.wrong)
    found = next(each for each in tally.findings if not each.with_nan)
    assert found.confirmed
    assert found.opcodes == {"sub.rn.f32"}
    folders.write(found, tmp_path)
    left, right = tmp_path / "left.ptx", tmp_path / "right.ptx"
    launch = None if scope == "every launch" else tmp_path / "manifest.json"
    assume = ("finite",) if scope == "finite" else ()
    verdict = api.compare(left, right, launch, assume=assume, audit_contraction=False, search_seconds=0)
    assert verdict.outcome is Outcome.EQUAL
    with np.load(tmp_path / "input.npz") as buffers:
        outputs = [api.run(each, buffers, tmp_path / "manifest.json")["out_fp32"] for each in (left, right)]
    assert (outputs[0].view(np.uint32) != outputs[1].view(np.uint32)).any()
    assert found.values[0] in (tmp_path / "README.md").read_text()
    replayed = folders.replay(tmp_path)
    assert replayed.wrong
    assert replayed.values == found.values


@pytest.mark.parametrize("scope", sorted(SCOPES))
def test_wrong_loops_are_replayed(scope: str, broken_rule: None, tmp_path: Path) -> None:
    total, value = accumulator("f32", 0), row_value("f32", 0)
    left, right = (
        LoopProgram("f32", (constant(0x3F800000, "f32"),), (Expression("sub.rn.f32", pair, "f32"),), total)
        for pair in ((total, value), (value, total))
    )
    pair = pair_rounds.wrong_pair(left, right, SCOPES[scope], 0, with_nan=False)
    assert pair is not None
    folders.write(pair, tmp_path)
    replayed = folders.replay(tmp_path)
    assert replayed.wrong
    assert [int(each, 0) for each in replayed.values] == [int(each, 0) for each in pair.values]


def test_wrong_mutants_are_replayed(broken_rule: None, tmp_path: Path) -> None:
    kernels = [PTX.kernel([program]) for program in subtractions(PTX.material, random.Random(0), 0)[-2:]]
    launch = kernels[0].launch(1)
    contents = {name: np.zeros(kernels[0].bytes_of(name, 1), dtype=np.uint8) for name in launch.buffers()}
    contents |= PTX.inputs(kernels[0], 1, 0, finite=False)
    first, second = (execution.run(each, PTX, 1, contents, finite=False).results[0].view(np.uint32) for each in kernels)
    index = int(np.flatnonzero(first != second)[0])
    mutant = Mutant("swap operands", 1, "a", "b", kernels[1].text)
    element = Element("out_fp32", index, "fp32")
    values = hex(int(first[index, 0])), hex(int(second[index, 0]))
    kernel = Kernel("difference", kernels[0].text, launch)
    folders.write(WrongMutant(kernel, mutant, "launch", element, values, contents), tmp_path)
    replayed = folders.replay(tmp_path)
    assert replayed.wrong
    assert [int(each, 0) for each in replayed.values] == [int(each, 0) for each in values]


def test_the_search_itself_finds_a_wrong_rule(broken_rule: None) -> None:
    tally = worker(seed=8, number=0, seconds=600, gpu=False, rounds=16)
    assert any("without NaN" in name for name in tally.wrong)
    assert any("sub" in opcode for each in tally.findings if not each.with_nan for opcode in each.opcodes)


def test_a_worker_writes_its_counts_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "SECONDS_BETWEEN_COUNTS", 0)
    worker(seed=3, number=0, seconds=600, gpu=False, rounds=2, counts=tmp_path / "0.json")
    part = json.loads((tmp_path / "0.json").read_text())
    record = record_of([part], (), {}, seed=3, jobs=1, seconds=7.0)
    programs = sum(part["programs"].values())
    assert programs > 0
    assert counts_so_far(record).startswith(f"7 s: {programs} programs, ")


class FalseDevice:
    """A GPU whose programs return the bytes of the simulation, except for the last one.

    `faulty_optimiser`: the last one is right where the assembler does not optimise.
    """

    def __init__(self, *, faulty_optimiser: bool) -> None:
        self.faulty_optimiser = faulty_optimiser

    def run(
        self,
        kernel: KernelText,
        language: Language,
        blocks: int,
        contents: Mapping[str, Array],
        *,
        optimised: bool = True,
    ) -> list[Array]:
        rows = list(execution.run(kernel, language, blocks, contents, finite=False).results)
        return rows if self.faulty_optimiser and not optimised else [*rows[:-1], rows[-1] ^ np.uint8(1)]


def sums(of: Material, dice: random.Random, count: int) -> list[Program]:
    x, y = (leaf(f"i32.{number}", "i32") for number in range(2))
    return [Program(Expression("add.s32", pair, "i32"), "u32", "test") for pair in ((x, y), (y, x))]


@pytest.mark.parametrize("faulty_optimiser", [False, True])
def test_other_bytes_on_a_gpu_are_reported(monkeypatch: pytest.MonkeyPatch, *, faulty_optimiser: bool) -> None:
    monkeypatch.setattr(campaign, "DEVICE_BLOCKS", 1)
    tally = Tally()
    device = FalseDevice(faulty_optimiser=faulty_optimiser)
    play(Round(PTX, SCOPES["launch"], "sums", sums, random.Random(0), 1, 2), tally, device)  # type: ignore[arg-type]
    assert sum(tally.wrong.values()) == 0
    assert sum(tally.on_device.values()) == 1
    wrong = tally.optimiser if faulty_optimiser else tally.device_wrong
    assert sum(wrong.values()) == sum(tally.optimiser.values()) + sum(tally.device_wrong.values()) == 1
    suffix = ", only where the assembler optimises" if faulty_optimiser else ""
    assert tally.simulation == {"programs compared with the GPU": 2, f"other bytes{suffix}": 1}
    kinds = {f"{each}, optimised" if faulty_optimiser else each for each in ("pair", "simulation")}
    assert {each["what"] for each in tally.device_differences} == kinds
    record = record_of([tally.portable()], [], {"gpu": "none"}, seed=0, jobs=1, seconds=1.0)
    assert failed(record) is not faulty_optimiser


def test_records_are_merged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    play(Round(PTX, SCOPES["launch"], "sums", sums, random.Random(0), 1, 2), tally, None)
    parts = [record_of([tally.portable()], [], {}, seed=seed, jobs=1, seconds=1.0) for seed in (0, 1)]
    assert merged(parts)["equal"] == {"ptx, launch, test": 2}
    with pytest.raises(ValueError, match="seed 0"):
        merged([parts[0], parts[0]])
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.json").write_text(json.dumps(part))
    whole = tmp_path / "whole.json"
    assert main(["--merge", str(tmp_path / "0.json"), str(tmp_path / "1.json"), "--record", str(whole)]) == 0
    assert json.loads(whole.read_text())["equal"] == {"ptx, launch, test": 2}
    assert "2 pairs Equal" in capsys.readouterr().out


def test_folders_are_replayed_by_the_command(
    broken_rule: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = (leaf(f"f32.{number}", "f32") for number in range(2))
    left, right = (Program(Expression("sub.rn.f32", pair, "f32"), "fp32") for pair in ((x, y), (y, x)))
    seen = witness(left, right, PTX, SCOPES["launch"], (0,), with_nan=False)
    assert seen is not None
    folders.write(finding(seen, PTX, SCOPES["launch"]), tmp_path)
    assert main(["--replay", str(tmp_path)]) == 1
    assert f"{tmp_path}: equal, different bytes" in capsys.readouterr().out
    monkeypatch.undo()
    assert main(["--replay", str(tmp_path)]) == 0
    assert f"{tmp_path}: unproved, different bytes" in capsys.readouterr().out
    (tmp_path / "left.ptx").write_text("no kernel")
    with pytest.raises(SystemExit) as stopped:
        main(["--replay", str(tmp_path)])
    assert stopped.value.code == 2
    assert f"--replay: {tmp_path}: cannot be replayed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "must be positive"),
        (["--replay", "missing"], "missing: is no folder that --found has written"),
        (["--merge", "missing.json"], "is not a record"),
        (["--gpu", "--seconds", "1"], "--gpu: "),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver(name: str) -> None:
        raise OSError(f"{name} not found")

    monkeypatch.setattr("bitwise_bench.adversary.device.ctypes.CDLL", no_driver)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_forms_of_several_kernels_name_their_buffers() -> None:
    left = Program(Expression("not.b32", (leaf("i32.0", "i32"),), "i32"), "u32", "test")
    right = Program(Expression("not.b32", (leaf("h2.0", "h2"),), "i32"), "u32", "test")
    forms = [analyse([each], PTX, SCOPES["launch"]).forms[0] for each in (left, right)]
    assert forms[0] != forms[1]


def test_a_pair_that_is_equal_in_the_context_of_another_program_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    floating = TermDomain.floating

    def confused(domain: TermDomain, operation: Operation, operands: Sequence[Value], properties: int = 0) -> Value:
        if operation.name == "sqrt.rn.fp32":
            monkeypatch.setattr(domain, "confused", True, raising=False)
        if operation.verb == "sub" and getattr(domain, "confused", False):
            operands = sorted(map(as_symbolic_vector, operands), key=lambda each: each.words.tobytes())
        return floating(domain, operation, operands, properties)

    monkeypatch.setattr(TermDomain, "floating", confused)
    x, y = (leaf(f"f32.{number}", "f32") for number in range(2))
    first = [Expression("sub.rn.f32", pair, "f32") for pair in ((x, y), (y, x))]
    others = [Expression(opcode, (x,), "f32") for opcode in ("sqrt.rn.f32", "rcp.rn.f32")]

    def together(of: Material, dice: random.Random, count: int) -> list[Program]:
        return [Program(each, "fp32", "test") for each in (*others, *first)]

    tally = Tally()
    play(Round(PTX, SCOPES["launch"], "together", together, random.Random(0), 1, 2), tally, None)
    assert sum(tally.wrong.values()) == 1
    assert tally.unshrunk == []
    (found,) = tally.findings
    assert found.context == ("sqrt.rn.f32 f32.0; fp32 v0",)
    assert found.confirmed
    folders.write(found, tmp_path)
    assert found.context[0] in (tmp_path / "README.md").read_text()
    assert folders.replay(tmp_path).wrong
    monkeypatch.setattr(TermDomain, "floating", floating)
    replayed = folders.replay(tmp_path)
    assert replayed.verdict is Outcome.UNPROVED
    assert replayed.values == found.values
