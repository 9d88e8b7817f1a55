"""`bitwise lock`: locks from shape files and scripts, show, diff, apply, and errors in arguments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import Explanation, NotCovered
from bitwise_torch.answer_forms import LockDiffAnswer, LockShowAnswer
from bitwise_torch.interception import PRODUCTS
from bitwise_torch.lock_command import app
from bitwise_torch.locks import lock_of, read_lock
from bitwise_torch.locks.shape_file import problem_of_line


def descriptor(k: int, cut: Cut | None = None) -> GEMMDesc:
    return GEMMDesc(
        k=k, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma", k_cuts=(cut,) if cut else ()
    )


class Toy:
    """A library that cuts k into two parts, or into three with another library file; it covers fp16."""

    name = library = "toy"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        raise AssertionError

    def describe_problem(
        self, problem: GEMMProblem, *, alignment: Any = None, library: str | None = None, device: Any = None
    ) -> GEMMDesc:
        if problem.a != "fp16" or problem.batch:
            raise NotCovered(f"{problem.words} by toy is not described: it is not measured (m {problem.m})")
        return descriptor(problem.k, Cut(count=3 if library else 2))

    def provenance(self, *, library: str | None = None) -> dict[str, str]:
        return {"library": "toy 1.1" if library else "toy 1.0", "device": "the CPU"}

    version, architecture = "1.0", "toy1"

    def explain(self, problem: GEMMProblem, configuration: Any, records: Path | None = None) -> Explanation:
        product = self.describe_problem(problem, library="tables" if configuration else None)
        desc = BiasedGEMM(product=product) if problem.epilogue == "bias" else product
        return Explanation(desc, (f"Asked for {problem.words}.", "Nothing was measured."))


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = replace(registry.default(), profiles=(Toy(),))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.chdir(tmp_path)


def ran(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_a_shape_file_is_locked_shown_and_compared() -> None:
    Path("shapes.txt").write_text("1 2 30 # a\n\n4x5x30,fp16 NT out=fp16\n6 7 2\n")
    assert ran("--shapes", "shapes.txt", "--out", "a.json") == (
        0,
        "a.json: 3 products, 0 of them without a descriptor\n",
        "",
    )
    Path("shapes.txt").write_text("1 2 30\n4 5 30 NT\n6 7 2\n8 8 8 bf16\n9 9 9 batch=2\n1 1 1 bf16")
    status, said, _ = ran("--shapes", "shapes.txt", "--out", "b.json", "--library-file", "other.so", "--library", "toy")
    assert (status, said) == (
        3,
        "b.json: 6 products, 3 of them without a descriptor\nno descriptor, 3 times: it is not measured\n",
    )
    status, said, _ = ran("show", "a.json")
    assert (status, said.splitlines()) == (0, [
        "library: toy 1.0", "device: the CPU", "3 products, 0 of them without a descriptor",
        f"1x2x30 fp16 NN to fp16: {descriptor(30, Cut(count=2)).to_text()}",
        f"4x5x30 fp16 NT to fp16: {descriptor(30, Cut(count=2)).to_text()}",
        f"6x7x2 fp16 NN to fp16: {descriptor(2, Cut(count=2)).to_text()}",
    ])  # fmt: skip
    status, said, _ = ran("diff", "a.json", "b.json")
    # k = 2 in two parts, or in three of which the last is empty: adding one more zero does not change the sum.
    assert (status, said.splitlines()) == (1, [
        "library: toy 1.0 in a, toy 1.1 in b",
        "1x2x30 fp16 NN to fp16: moved", f"  a: {descriptor(30, Cut(count=2)).to_text()}",
        f"  b: {descriptor(30, Cut(count=3)).to_text()}",
        "4x5x30 fp16 NT to fp16: moved", f"  a: {descriptor(30, Cut(count=2)).to_text()}",
        f"  b: {descriptor(30, Cut(count=3)).to_text()}",
        "8x8x8 bf16 NN to bf16: only in b", "2 of 9x9x9 fp16 NN to fp16: only in b", "1x1x1 bf16 NN to bf16: only in b",
        "2 moved, 3 only in b, 1 same",
    ])  # fmt: skip
    assert ran("diff", "a.json", "a.json") == (0, "3 same\n", "")
    status, said, _ = ran("diff", "a.json", "b.json", "--json")
    assert (status, json.loads(said)["counts"]) == (1, {"moved": 2, "only in b": 3, "same": 1})
    LockDiffAnswer.model_validate_json(said)
    shown = LockShowAnswer.model_validate_json(ran("show", "b.json", "--json")[1])
    assert (shown.form, shown.lock["provenance"]["library"]) == ("lock-show/1", "toy 1.1")


def test_a_lock_of_tables_needs_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toy, "provenance", None)
    Path("shapes.txt").write_text("1 2 30\n4 5 30 bias\n8 8 8 bf16\n")
    named = ("--shapes", "shapes.txt", "--library", "toy:1.0", "--arch", "toy1")
    said = "a.json: 3 products, 1 of them without a descriptor\nno descriptor, 1 times: it is not measured\n"
    assert ran(*named, "--out", "a.json") == (3, said, "")
    lock = read_lock("a.json")
    assert ran(*named[:-2], "--out", "b.json") == (3, said.replace("a.json", "b.json"), "")
    assert read_lock("b.json") == lock  # toy1 is the only architecture of toy 1.0
    assert lock.provenance == {
        "library": "toy 1.0", "architecture": "toy1",
        "source": "The tables of toy, without a device. Nothing was measured.",
    }  # fmt: skip
    plain, biased, declined = lock.entries
    assert plain.desc == descriptor(30, Cut(count=2))
    assert (biased.desc, biased.rounded_first) == (descriptor(30, Cut(count=2)), False)
    assert declined.declined == "8x8x8 bf16 NN to bf16 by toy is not described: it is not measured (m 8)"
    assert ran(*named, "--config", "parts=3", "--out", "b.json")[0] == 3
    other = read_lock("b.json")
    assert (other.entries[0].desc, other.provenance["configuration"]) == (descriptor(30, Cut(count=3)), "parts 3")


def test_diff_compares_what_descriptors_compute() -> None:
    problems = [GEMMProblem(m=m, n=2, k=30, a="fp16", b="fp16", out="fp16") for m in (1, 2, 3)]
    lock_of([(problems[0], descriptor(30, Cut(count=3))), (problems[1], "no row")], {}).write("a.json")
    lock_of([(problems[0], descriptor(30, Cut(span=10))), (problems[1], descriptor(30)), (problems[2], descriptor(30))],
           {}).write("b.json")  # fmt: skip
    said = "2x2x30 fp16 NN to fp16: unknown\n3x2x30 fp16 NN to fp16: only in a\n1 only in a, 1 same, 1 unknown\n"
    assert ran("diff", "b.json", "a.json") == (3, said, "")


CUT = (
    "this is not complete JSON (Expecting property name enclosed in double quotes: line 1 column 42 (char 41)); the "
    "file may be truncated: write it again"
)


LINE = "M N K, optionally followed by a type, a layout (NN, NT, TN or TT), out=TYPE, batch=B or bias"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing.py"], "nothing.py: there is no such script; give the path of a Python file"),
        (["--out", "x.json"], "give either a script or --shapes with a file"),
        (["--shapes", "none.txt"], "none.txt: cannot be read (No such file or directory)"),
        (["--shapes", "bad.txt"], f"bad.txt:2: '3 4' is not of the form {LINE}"),
        (["--shapes", "word.txt"], f"word.txt:1: 'TX' is not understood: a line is of the form {LINE}"),
        (["--shapes", "zero.txt"], "zero.txt:1: GEMMProblem: m: input should be greater than or equal to 1, not 0"),
        (["--shapes", "fp64.txt"], f"fp64.txt:1: 'fp64' is not understood: a line is of the form {LINE}"),
        (["--shapes", "good.txt", "--dtype", "fp64"], "good.txt:1: 'fp64' is not a supported type of matrices; "
         "choose one of fp16, bf16, fp32, e4m3, e5m2"),
        (["--shapes", "empty.txt"], f"empty.txt: has no product; write lines of the form {LINE}"),
        (["--shapes", "good.txt", "--library", "other"], "no installed plugin describes the products of the "
         "library 'other'; known libraries: toy"),
        (["--shapes", "good.txt", "--library", "toy:2.0", "--arch", "toy1"], "--library: toy 2.0 on toy1 is not "
         "described; available: toy:1.0 on toy1"),
        (["--shapes", "good.txt", "--library", "toy:2.0"], "--library: toy 2.0 is not described; available: toy:1.0 on "
         "toy1"),
        (["--shapes", "good.txt", "--library", "toy:1.0", "--arch", "toy1", "--library-file", "x"],
         "--library-file is queried on a device: give --library without a version"),
        (["--shapes", "good.txt", "--arch", "toy1"],
         "--arch and --config need --library NAME:VERSION: a device has one configuration"),
        (["script.py", "--library", "toy:1.0", "--arch", "toy1"],
         "--library NAME:VERSION needs --shapes: a script runs the library that it loads"),
        (["--shapes", "good.txt", "--out", "no/folder.json"], "no/folder.json: cannot be written (No such file or "
         "directory)"),
        (["script.py", "--library-file", "x"],
         "--library-file needs --shapes: a script runs the library that it loads"),
        (["show", "none.json"], "none.json: cannot be read (No such file or directory)"),
        (["show", "cut.json"], f"cut.json: {CUT}"),
        (["diff", "next.json", "next.json"], "next.json: the lock file has version 9 and this bitwise reads versions 1 "
         "to 3: write the lock again, or install the bitwise that wrote the file"),
        (["apply", "cut.json", "script.py"], f"cut.json: {CUT}"),
    ],
)  # fmt: skip
def test_errors(arguments: list[str], sentence: str) -> None:
    files = {
        "bad.txt": "1 2 3\n3 4", "word.txt": "1 2 3 TX", "zero.txt": "0 1 2", "fp64.txt": "1 2 3 fp64",
        "empty.txt": "# nothing\n", "good.txt": "1 2 3\n", "script.py": "",
        "cut.json": '{"format": "bitwise-lock", "version": 1, "p'[:-2],
        "next.json": '{"format": "bitwise-lock", "version": 9}',
    }  # fmt: skip
    for name, text in files.items():
        Path(name).write_text(text)
    if arguments[0] == "script.py":
        arguments = [*arguments[1:], arguments[0]]
    assert ran(*arguments) == (2, "", f"bitwise: {sentence}\n")


def test_lines_of_shape_files() -> None:
    def problem(**fields: Any) -> GEMMProblem:
        return GEMMProblem(**{"m": 1, "n": 2, "k": 3, "a": "fp16", "b": "fp16", "out": "fp16", **fields})

    cases = {
        "1 2 3": problem(), "1x2x3, bf16": problem(a="bf16", b="bf16", out="bf16"),
        "1,2,3 TN out=fp32 batch=4": problem(transpose_a=True, out="fp32", batch=4),
        "1 2 3 bias": problem(epilogue="bias"),
        "1 2 3 e4m3": problem(a="e4m3", b="e4m3", out="bf16", transpose_b=True),
        "1 2 3 e5m2 out=fp32": problem(a="e5m2", b="e4m3", out="fp32", transpose_b=True),
    }  # fmt: skip
    for line, expected in cases.items():
        assert problem_of_line(line) == expected
    assert problem_of_line("1 2 3", "bf16", "fp32") == problem(a="bf16", b="bf16", out="fp32")


SCRIPT = """
import sys
import torch
a = torch.arange(8).reshape(2, 4).half()
print(sys.argv[1:], (a @ a.t()).tolist())
if "more" in sys.argv:
    torch.addr(a, a[:, 0], a[0])
sys.exit(len(sys.argv) - 2)
"""


def test_a_script_is_recorded_and_run_from_its_lock() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    Path("script.py").write_text(SCRIPT)
    printed = "['one'] [[14.0, 38.0], [38.0, 126.0]]\n"
    assert ran("script.py", "one") == (0, printed + "lock.json: 1 products, 0 of them without a descriptor\n", "")
    lock = read_lock("lock.json")
    assert [each.problem.words for each in lock.entries] == ["2x2x4 fp16 NT to fp16"]
    dropping = descriptor(4).model_copy(update={"k_dropped": 1})
    lock_of([(lock.entries[0].problem, dropping)], {}).write("lock.json")
    said = "bitwise: 1 products of 1 problems ran from the lock, 0 ran in this machine's library\n"
    said += "bitwise: 1 of these problems leave the last values of k out, as the locked library did\n"
    assert ran("apply", "lock.json", "script.py", "one") == (0, "['one'] [[5.0, 17.0], [17.0, 77.0]]\n", said)
    reason = f"no lock holds this operation; locks hold {', '.join(PRODUCTS)}"
    status, printed, said = ran("apply", "lock.json", "script.py", "more")
    assert (status, said) == (2, f"bitwise: torch.addr: {reason}\n")
    assert ran("apply", "lock.json", "script.py", "one", "two")[0] == 1
    Path("refuses.py").write_text("import sys; sys.exit('there is no data')")
    assert ran("apply", "lock.json", "refuses.py") == (1, "", "there is no data\n")
    Path("fails.py").write_text("def run():\n    {}[3]\nrun()\n")
    for arguments in (("fails.py",), ("apply", "lock.json", "fails.py")):
        status, printed, said = ran(*arguments)
        assert (status, printed) == (1, "")
        assert [line for line in said.splitlines() if "File" in line] == [
            '  File "fails.py", line 3, in <module>', '  File "fails.py", line 2, in run',
        ]  # fmt: skip
        assert said.endswith("KeyError: 3\n")
    status, printed, said = ran("apply", "--pass", "lock.json", "script.py", "more")
    assert (status, said.splitlines()[1]) == (
        0,
        "bitwise: 1 of these problems leave the last values of k out, as the locked library did",
    )
    assert said.splitlines()[2] == f"bitwise: not locked, 1 times: addr: {reason}"
    status, printed, said = ran("--out", "more.json", "script.py", "more")
    assert (status, printed.splitlines()[1:]) == (
        3, ["more.json: 1 products, 0 of them without a descriptor",
            "1 calls of other operators are left to PyTorch, with samples", f"not locked, 1 times: addr: {reason}"]
    )  # fmt: skip
