"""`bitwise diff` and `bitwise tree` on hand-written kernels: divergences and trees."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from toy_texts import launch, row_sum, write
from typer.testing import CliRunner

from bitwise_core.cli import app, diff_command

pytest.importorskip("bitwise_nvidia_sm90", reason="needs the plugin of an architecture")

PLAIN, SWAPPED, NEIGHBOURS = row_sum(), row_sum(swapped=True), row_sum(neighbours=True)
LAUNCHES = [launch("a.ptx"), launch("b.ptx"), launch("c.ptx")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts: dict[str, str | bytes] = {"a.ptx": PLAIN, "b.ptx": SWAPPED, "c.ptx": NEIGHBOURS}
    return write(tmp_path, texts, LAUNCHES)


def line_of(text: str, begin: str) -> int:
    """Return the line number of the first instruction that starts with `begin`."""
    return next(number for number, line in enumerate(text.split("\n"), 1) if line.startswith(begin))


def diff(folder: Path, left: str, right: str, *options: str) -> tuple[int, dict[str, Any]]:
    arguments = ["diff", str(folder / left), str(folder / right), "--json", "--no-search", *options]
    done = CliRunner().invoke(app, arguments)
    assert done.stderr == ""
    return done.exit_code, json.loads(done.stdout)


def test_equal(folder: Path) -> None:
    status, found = diff(folder, "a.ptx", "b.ptx")
    assert (status, found["outcome"], found["scope"], found["divergence"]) == (0, "equal", "launch", None)


def test_an_unproved_verdict_has_the_element_the_node_and_the_lines(folder: Path) -> None:
    status, found = diff(folder, "a.ptx", "c.ptx")
    line = line_of(PLAIN, "add.rn.f32")
    assert (status, found["outcome"], found["counterexample"]) == (4, "unproved", None)
    assert found["divergence"] == {
        "element": "Y[0]",
        "buffer": "Y",
        "offset": 0,
        "size": 4,
        "left": {
            "node": "add.rn.fp32(X[0], X[32])",
            "operation": "add.rn.fp32",
            "line": line,
            "source": "kernel.py:4",
            "calls": [],
        },
        "right": {
            "node": "add.rn.fp32(X[0], X[1])",
            "operation": "add.rn.fp32",
            "line": line,
            "source": "kernel.py:4",
            "calls": [],
        },
        "depth": 5,
        "why_not": None,
        "meaning": "a.ptx and c.ptx sum the same 64 terms in different orders; a.ptx has the partial sum "
        "((0+32)+(16+48))+((8+40)+(24+56)), c.ptx has ((0+1)+(32+33))+((16+17)+(48+49)), where 0 is X[0] and 63 is "
        "X[63]",
    }


def test_the_divergence_shows_different_operations(folder: Path) -> None:
    maximum = PLAIN.replace("add.rn.f32 %f5, %f1, %f2;", "max.f32 %f5, %f1, %f2;")
    write(folder, {"c.ptx": maximum}, LAUNCHES)
    _, found = diff(folder, "a.ptx", "c.ptx")
    assert found["divergence"]["left"]["node"] == "add.rn.fp32(X[0], X[32])"
    assert found["divergence"]["right"]["node"] == "max.fp32(X[0], X[32])"
    assert found["divergence"]["meaning"] == "a.ptx rounds the sum separately (add.rn.fp32), c.ptx computes max.fp32"
    assert found["divergence"]["depth"] == 5


def test_the_first_element_that_differs_is_reported(folder: Path) -> None:
    # Only the last row's block takes another second element.
    line = "ld.global.f32 %f2, [%rd4+128];"
    own = f"setp.eq.u32 %p2, %r2, 3;\n{line}\n@%p2 ld.global.f32 %f2, [%rd4+64];"
    write(folder, {"c.ptx": PLAIN.replace(line, own)}, LAUNCHES)
    _, found = diff(folder, "a.ptx", "c.ptx")
    divergence = found["divergence"]
    assert (divergence["element"], divergence["offset"], divergence["size"]) == ("Y[3]", 12, 4)
    assert divergence["right"]["node"] == "add.rn.fp32(X[192], X[208])"


def test_an_element_that_one_side_does_not_store(folder: Path) -> None:
    write(folder, {}, [launch("a.ptx"), launch("b.ptx", grid=[3])])
    status, found = diff(folder, "a.ptx", "b.ptx")
    assert (status, found["divergence"]["element"]) == (4, "Y[3]")
    assert found["divergence"]["why_not"] == "b.ptx does not store an element of that width there"


def test_the_text_output_shows_the_divergence(folder: Path) -> None:
    done = CliRunner().invoke(app, ["diff", str(folder / "a.ptx"), str(folder / "c.ptx"), "--no-search"])
    line = line_of(PLAIN, "add.rn.f32")
    assert done.exit_code == 4
    assert done.stdout.startswith("Unproved for this launch: the canonical dependence trees differ\n")
    assert f"  {diff_command.UNPROVED} No counterexample was searched for.\n" in done.stdout
    assert re.search(r"^first divergence, in Y\[0\], \d+ levels? below the stored value:$", done.stdout, re.M)
    assert f"a.ptx:{line}, from kernel.py:4" in done.stdout


def test_unknown(folder: Path) -> None:
    strange = PLAIN.replace("mov.u32 %r1, %tid.x;", "frobnicate.b32 %r1, %r1;")
    write(folder, {"c.ptx": strange}, LAUNCHES)
    status, found = diff(folder, "a.ptx", "c.ptx")
    line = line_of(strange, "frobnicate")
    assert (status, found["outcome"]) == (3, "unknown")
    assert found["reason"] == f"c.ptx: the instruction frobnicate.b32 is not modelled at line {line}"


def test_the_option_manifest(folder: Path, tmp_path: Path) -> None:
    (folder / "manifest.json").rename(tmp_path / "launches.json")
    assert diff(folder, "a.ptx", "b.ptx", "--manifest", str(tmp_path / "launches.json"))[0] == 0


def test_without_a_manifest_the_verdict_is_for_every_launch(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    write(folder, {"b.ptx": PLAIN.replace("%f5", "%f8")}, None)
    status, found = diff(folder, "a.ptx", "b.ptx")
    assert (status, found["outcome"], found["scope"]) == (0, "equal", "every launch")


def test_a_launch_is_chosen_by_its_number(folder: Path) -> None:
    write(folder, {}, [launch("a.ptx"), launch("a.ptx", grid=[2]), launch("b.ptx", grid=[2])])
    assert diff(folder, "a.ptx#2", "b.ptx")[0] == 0
    assert diff(folder, "a.ptx#1", "b.ptx")[0] == 4


def error_of(*arguments: str) -> str:
    """Return the one line that a command prints about an error."""
    done = CliRunner().invoke(app, list(arguments))
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    return done.stderr.removeprefix("bitwise: ").removesuffix("\n")


def test_errors(folder: Path) -> None:
    a, manifest = str(folder / "a.ptx"), folder / "manifest.json"
    write(folder, {"bad.ptx": PLAIN[:400]}, [launch("a.ptx"), launch("a.ptx"), launch("b.ptx"), launch("bad.ptx")])
    b = str(folder / "b.ptx")
    assert error_of("diff", a, b) == f"{manifest}: has 2 launches of a.ptx; name one by its number from 1, as in FILE#2"
    assert error_of("diff", f"{a}#{3}", b) == f"{manifest}: has 2 launches of a.ptx, so there is no a.ptx#3"
    assert error_of("diff", str(folder / "gone.ptx"), b) == f"{folder / 'gone.ptx'}: there is no such file"
    assert error_of("diff", str(folder), b) == f"{folder}: is a folder; name a file"
    assert error_of("diff", b, str(folder / "bad.ptx")).startswith("bad.ptx:")
    assert error_of("diff", b, str(folder / "c.ptx")).startswith("c.ptx: has no launch and the other kernel has one")
    assert (
        error_of("diff", b, b, "--entry", "other")
        == f"{manifest}: has no launch of the entry 'other' of b.ptx, only of row_sum"
    )


def tree(folder: Path, element: str, form: str = "text", *, whole: bool = False) -> str:
    options = ["--element", element, "--format", form, *(["--whole"] if whole else [])]
    done = CliRunner().invoke(app, ["tree", str(folder / "a.ptx"), *options])
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def butterfly(lane: int, base: int, distance: int = 1) -> list[str]:
    """Return the lines of the tree of one lane's sum after the butterfly rounds down to a distance."""
    if distance == 32:
        return ["add.rn.fp32", f"  X[{base // 4 + lane}]", f"  X[{base // 4 + lane + 32}]"]
    sides = [butterfly(each, base, 2 * distance) for each in (lane, lane ^ distance)]
    return ["add.rn.fp32", *(f"  {line}" for side in sides for line in side)]


def test_the_tree_as_text(folder: Path) -> None:
    assert tree(folder, "Y[2]", whole=True).split("\n") == [*butterfly(0, 512), ""]
    lines = tree(folder, "Y[2]").splitlines()
    assert (len(lines), lines[:6]) == (15, butterfly(0, 512)[:6])
    assert lines[-1].startswith("  the same operations on 32 elements, X[")


def test_the_tree_as_json_has_source_lines(folder: Path) -> None:
    found = json.loads(tree(folder, "Y[0]", "json"))
    root = found["nodes"][found["root"]]
    assert (found["element"], found["complete"], len(found["nodes"])) == ("Y[0]", True, 127)
    last = [number for number, line in enumerate(PLAIN.split("\n"), 1) if line.startswith("add.rn.f32")][-1]
    assert (root["node"], root["bits"], root["line"], root["source"]) == ("add.rn.fp32", 32, last, "kernel.py:5")
    loads = {node["node"] for node in found["nodes"] if node["kind"] == "load"}
    assert loads == {f"load X+{4 * index} b32" for index in range(64)}
    assert all(operand < number for number, node in enumerate(found["nodes"]) for operand in node.get("operands", ()))


def test_the_tree_as_svg(folder: Path) -> None:
    picture = ElementTree.fromstring(tree(folder, "Y[0]", "svg"))
    titles = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "add.rn.fp32: 15 nodes"
    assert "the same operations on 32 elements" in "".join(picture.itertext())


def test_errors_in_elements(folder: Path) -> None:
    a = str(folder / "a.ptx")
    assert error_of("tree", a, "--element", "Y") == (
        "--element: 'Y' is not of the form BUFFER[INDEX]; give a stored element, such as 'Y[0]'"
    )
    assert error_of("tree", a, "--element", "Z[0]") == "--element: a.ptx has no buffer 'Z'; its buffers are X, Y"
    assert error_of("tree", a, "--element", "X[0]") == "--element: a.ptx does not store X[0]; nothing is stored there"
    assert (
        error_of("tree", a, "--element", "Y[4]") == "--element: a.ptx does not store Y[4]; the last element stored is 3"
    )
    (folder / "manifest.json").unlink()
    assert error_of("tree", a, "--element", "Y[0]").startswith("a.ptx: has no launch")


def test_a_verdict_without_the_contraction_audit_says_so(folder: Path) -> None:
    status, found = diff(folder, "a.ptx", "b.ptx", "--no-contraction-audit")
    assert status == 0
    assert any("contraction is not audited" in note for note in found["notes"]), found["notes"]
    _, audited = diff(folder, "a.ptx", "b.ptx")
    assert not any("contraction is not audited" in note for note in audited["notes"]), audited["notes"]


COUNT = """.version 8.3
.target sm_90
.address_size 64
.visible .entry row_sum(.param .u64 x, .param .u64 y)
.reqntid 32
{{
.reg .b32 %r<9>;
.reg .b64 %rd<9>;
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
ld.global.b32 %r2, [%rd4];
and.b32 %r3, %r2, 3;
mul.wide.u32 %rd5, %r3, 4;
add.s64 %rd6, %rd2, %rd5;
red.global.add.u32 [%rd6], {addend};
ret;
}}
"""


def test_contributions_to_computed_addresses_that_differ_have_no_element(tmp_path: Path) -> None:
    texts: dict[str, str | bytes] = {
        f"{name}.ptx": COUNT.format(addend=each) for name, each in zip("ab", (1, 2), strict=True)
    }
    folder = write(tmp_path, texts, [launch("a.ptx"), launch("b.ptx")])
    status, found = diff(folder, "a.ptx", "b.ptx")
    assert (status, found["outcome"], found["divergence"]) == (4, "unproved", None)
    assert diff(folder, "a.ptx", "a.ptx")[1]["outcome"] == "equal"


def test_a_fault_of_the_program_is_no_verdict(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(diff_command, "compare_or_recall", broken)
    done = CliRunner().invoke(app, ["diff", str(folder / "a.ptx"), str(folder / "b.ptx")])
    assert (done.exit_code, done.stdout) == (2, "")
    sentence = "bitwise: internal error (ZeroDivisionError: oh); please report it"
    assert done.stderr == f"{sentence}, with the traceback that BITWISE_TRACEBACK=1 prints\n"
    monkeypatch.setenv("BITWISE_TRACEBACK", "1")
    done = CliRunner().invoke(app, ["diff", str(folder / "a.ptx"), str(folder / "b.ptx")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Traceback")
    assert done.stderr.splitlines()[-1].startswith(sentence)
