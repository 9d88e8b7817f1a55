"""Receipts: a written file reads back, every change to one is found, and the command's exit statuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bitwise_core.descriptors import Cut, GEMMDesc, Instruction
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.input_files import MAXIMUM_BYTES
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import NotCovered
from bitwise_torch.answer_forms import ReceiptDiffAnswer, ReceiptVerifyAnswer
from bitwise_torch.locks import LibraryOperator, lock_of
from bitwise_torch.receipt_command import app
from bitwise_torch.receipts import (
    Check,
    Receipt,
    ReceiptError,
    read_receipt,
    receipt_differences,
    receipt_of,
    verified,
)
from bitwise_torch.receipts import receipt_file as files
from bitwise_torch.receipts.receipt_file import Environment, Package, schema

HERE = Environment(
    packages={"bitwise-core": Package(version="0.1.0", code="0" * 64)}, python="3.12.1", machine="Linux x86_64",
    device={"library": "toy 1.0", "device": "a GPU"}, variables={"CUBLAS_WORKSPACE_CONFIG": ":16:8"},
)  # fmt: skip
ORIGIN = {"library": "toy 1.0", "device": "a GPU"}


def problem(m: int, n: int, k: int, **more: Any) -> GEMMProblem:
    return GEMMProblem(m=m, n=n, k=k, a="fp16", b="fp16", out="fp16", **more)


def descriptor(k: int, span: int = 3, **more: Any) -> GEMMDesc:
    return GEMMDesc(**{
        "k": k, "left_dtype": "fp16", "right_dtype": "fp16", "output_dtype": "fp16", "path": "fma",
        "k_cuts": (Cut(span=span),), **more,
    })  # fmt: skip


MATRIX = descriptor(
    64, 32, path="matrix", instruction=Instruction(architecture="sm_90", family="wgmma", k=16), instruction_k=16
)
LOCK = lock_of(
    [(problem(4, 5, 20), descriptor(20)), (problem(1, 1, 7), "no row"), (problem(8, 8, 64), MATRIX),
     (problem(2, 2, 20), descriptor(20, k_dropped=4))], ORIGIN,
)  # fmt: skip


class Toy:
    """A library that computes the lock's descriptors; `changes` are others, `supported` says what they rest on."""

    name = library = "toy"

    def __init__(self, support: str = "measured", **changes: Any) -> None:
        self.supported, self.changes = support, changes

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        raise AssertionError

    def describe_problem(self, problem: GEMMProblem, **_: Any) -> GEMMDesc:
        entry = LOCK.by_problem[problem]
        if entry.descriptor is None:
            raise NotCovered("no row")
        return entry.desc.model_copy(update=self.changes)

    def support(self, problem: GEMMProblem, **_: Any) -> Any:
        return self.supported

    def provenance(self, **_: Any) -> dict[str, str]:
        return ORIGIN


def outcomes(checks: list[Check]) -> dict[str, str]:
    return {each.claim: each.outcome for each in checks}


@pytest.fixture
def receipt() -> Receipt:
    return receipt_of(LOCK, {}, HERE, Toy())


def test_the_claims_of_each_product(receipt: Receipt) -> None:
    measured, without, matrix, dropping = receipt.operators
    rows = ("products.order", "products.rows")
    assert measured.claims == ("products.measured", *rows, "products.complete")
    assert without.claims == ("products.without-descriptor",)
    unit = "unit.wgmma_k16_fp32_fp16_fp16_fp32_sm_90"
    assert matrix.claims == ("products.measured", *rows, "products.complete", unit)
    assert dropping.claims == ("products.measured", *rows, "products.dropped")
    assert {each.name: each.kind for each in receipt.claims} == {
        "environment": "assumed", unit: "measured", "products.measured": "measured", "products.order": "proved",
        "products.rows": "proved", "products.complete": "proved", "products.without-descriptor": "assumed",
        "products.dropped": "proved",
    }  # fmt: skip
    assert [each.name for each in receipt.claims if each.discharge is None] == []


def test_what_was_not_measured_is_assumed() -> None:
    for profile, name in ((Toy("published"), "products.published"), (None, "products.not-asked"),
                          (Toy(k_cuts=()), "products.not-asked")):  # fmt: skip
        found = receipt_of(LOCK, {}, HERE, profile)
        assert name in found.operators[0].claims
        assert {each.kind for each in found.claims if each.name == name} == {"assumed"}
        assert "products.measured" not in {each.name for each in found.claims}


def test_an_order_of_tiles_of_rows_is_stated() -> None:
    from bitwise_core.descriptors.gemm import Rotation

    rotated = descriptor(20, k_cuts=(), k_loop_step=4, iteration_rotation=Rotation(axis="rows", tile=2, period=2))
    found = receipt_of(lock_of([(problem(4, 5, 20), rotated)], {}), {}, HERE)
    assert "products.rows-of-one-position" in found.operators[0].claims
    assert "products.rows" not in {each.name for each in found.claims}


def test_a_file_reads_back(receipt: Receipt, tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    receipt.write(path)
    assert read_receipt(path) == receipt
    assert [each.name for each in tmp_path.iterdir()] == ["receipt.json"]
    with pytest.raises(ReceiptError, match="cannot be written"):
        receipt.write(tmp_path / "none" / "receipt.json")


def test_every_claim_is_checked(receipt: Receipt, tmp_path: Path) -> None:
    found = verified(receipt, lock=LOCK, profile=Toy(), where=HERE)
    assert outcomes(found) == {
        "lock": "held", "operators": "held", "environment": "held", "products.measured": "held",
        "products.order": "held", "products.rows": "held", "products.complete": "held", "products.dropped": "held",
        "products.without-descriptor": "not checked", "unit.wgmma_k16_fp32_fp16_fp16_fp32_sm_90": "held",
    }  # fmt: skip
    assert outcomes(verified(receipt, where=HERE))["products.measured"] == "not checked"
    assert outcomes(verified(receipt, where=replaced(HERE, device={})))["environment"] == "not checked"
    without = replaced(HERE, packages={"bitwise-core": Package(version="0.1.0")})
    for one, other in ((HERE, without), (without, HERE)):
        assert outcomes(verified(replaced_environment(receipt, one), where=other))["environment"] == "not checked"


def replaced_environment(receipt: Receipt, where: Environment) -> Receipt:
    return receipt.model_copy(update={"environment": where})


def replaced(where: Environment, **fields: Any) -> Environment:
    return where.model_copy(update=fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"packages": {}}, "bitwise-core is not installed"),
        ({"packages": {"bitwise-core": Package(version="0.2.0")}}, "bitwise-core is 0.2.0, not 0.1.0"),
        ({"packages": {"bitwise-core": Package(version="0.1.0", code="1" * 64)}}, "bitwise-core 0.1.0 has other code"),
        ({"python": "3.13.0"}, "python is 3.13.0, not 3.12.1"),
        ({"variables": {}}, "CUBLAS_WORKSPACE_CONFIG is not set, not :16:8"),
        ({"variables": {"CUBLAS_WORKSPACE_CONFIG": ":16:8", "NVIDIA_TF32_OVERRIDE": "0"}},
         "NVIDIA_TF32_OVERRIDE is 0, not not set"),
        ({"device": {"library": "toy 1.1", "device": "a GPU"}}, "library is toy 1.1, not toy 1.0"),
    ],
)  # fmt: skip
def test_another_environment_fails(receipt: Receipt, fields: dict[str, Any], sentence: str) -> None:
    (check,) = [each for each in verified(receipt, where=replaced(HERE, **fields)) if each.claim == "environment"]
    assert (check.outcome, check.details) == ("failed", (sentence,))


def test_a_library_that_moved_fails(receipt: Receipt) -> None:
    for profile, sentence in (
        (Toy(k_cuts=()), "4x5x20 fp16 NN to fp16: moved"),
        (Toy("published"), "4x5x20 fp16 NN to fp16: its descriptor is published, not measured"),
    ):
        (check,) = [each for each in verified(receipt, profile=profile, where=HERE) if each.kind == "measured"
                    and each.claim.startswith("products.")]  # fmt: skip
        assert (check.outcome, check.details[0]) == ("failed", sentence)


def changed(receipt: Receipt, change: Callable[[Any], None]) -> Receipt:
    content = json.loads(receipt.to_text())
    change(content)
    return Receipt.from_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (lambda it: it["operators"].pop(), {"lock", "products.dropped"}),
        (lambda it: it["recorded"].update(device="other"), {"lock", "environment"}),
        (lambda it: it["environment"]["device"].update(device="other"), {"environment"}),
        (lambda it: it["operators"][3].update(descriptor=descriptor(20).to_text()), {"lock", "operators",
                                                                                    "products.dropped"}),
        (lambda it: it["operators"][1]["claims"].append("products.order"), {"operators"}),
        (lambda it: it["operators"][0]["claims"].clear(), {"operators"}),
        (lambda it: it["operators"][0].update(support="published"), {"operators", "products.published"}),
        (lambda it: it["claims"][0].update(kind="proved"), {"environment"}),
        (lambda it: it["claims"].append({**it["claims"][0], "name": "all.equal", "kind": "proved"}), {"all.equal"}),
        (lambda it: [each.update(kind="proved") for each in it["claims"] if "without" in each["name"]],
         {"products.without-descriptor"}),
        (lambda it: [each.update(scope="everywhere") for each in it["claims"] if each["name"] == "products.measured"],
         {"products.measured"}),
    ],
)  # fmt: skip
def test_a_changed_receipt_fails(receipt: Receipt, change: Callable[[Any], None], failed: set[str]) -> None:
    found = outcomes(verified(changed(receipt, change), where=HERE))
    assert {name for name, outcome in found.items() if outcome == "failed"} == failed


def test_another_statement_on_a_matrix_unit_is_not_checked(receipt: Receipt) -> None:
    def change(it: Any) -> None:
        (unit,) = [each for each in it["claims"] if each["name"].startswith("unit.")]
        unit["kind"] = "proved"

    found = outcomes(verified(changed(receipt, change), where=HERE))
    assert found["unit.wgmma_k16_fp32_fp16_fp16_fp32_sm_90"] == "not checked"


def test_files_are_compared_by_content(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_bytes(b"abc")
    receipt = receipt_of(LOCK, {"kernel": path}, HERE)
    assert receipt.kernels[0].digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert outcomes(verified(receipt, where=HERE))["file.kernel"] == "not checked"
    assert outcomes(verified(receipt, files={"kernel": path}, where=HERE))["file.kernel"] == "held"
    path.write_bytes(b"abd")
    assert outcomes(verified(receipt, files={"kernel": path}, where=HERE))["file.kernel"] == "failed"
    with pytest.raises(ReceiptError, match="cannot be read"):
        receipt_of(LOCK, {"kernel": tmp_path / "none"}, HERE)


def test_differences(receipt: Receipt, tmp_path: Path) -> None:
    assert [each for each in receipt_differences(receipt, receipt) if not each.unknown] == []
    path = tmp_path / "kernel.ptx"
    path.write_bytes(b"abc")
    other_lock = lock_of(
        [(problem(4, 5, 20), descriptor(20, 5)), (problem(8, 8, 64), MATRIX)], {**ORIGIN, "device": "another GPU"}
    )
    other = receipt_of(other_lock, {"kernel": path}, replaced(HERE, python="3.13.0"), Toy("published"))
    assert [(each.part, each.sentence) for each in receipt_differences(receipt, other)] == [
        ("environment", "in b python is 3.13.0, not 3.12.1"),
        ("environment", "device: a GPU in a, another GPU in b"),
        ("product", "4x5x20 fp16 NN to fp16: moved"),
        ("product", "1x1x7 fp16 NN to fp16: only in a"),
        ("product", "2x2x20 fp16 NN to fp16: only in a"),
        ("file", "kernel: only in b"),
        ("claim", "products.dropped: only in a"),
        ("claim", "products.measured: only in a"),
        ("claim", "products.not-asked: only in b"),
        ("claim", "products.published: only in b"),
        ("claim", "products.without-descriptor: only in a"),
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda it: it.update(version=2), "the receipt has version 2 and this bitwise reads version 1"),
        (lambda it: it.update(format="x"), 'this is not a receipt; a receipt has "format": "bitwise-receipt"'),
        (lambda it: it.update(more=1), "receipt: more: there is no such field"),
        (lambda it: it.update(lock="abc"), "lock: string should match pattern"),
        (lambda it: it["claims"].append(it["claims"][0]), "two claims have one name: remove one"),
        (lambda it: it["claims"].pop(0) and it["operators"][0]["claims"].append("environment"),
         "4x5x20 fp16 NN to fp16 names the claim 'environment', which the receipt lacks"),
        (lambda it: it["operators"].append(it["operators"][0]), "two operators have one problem: remove one"),
        (lambda it: it["operators"][0].update(descriptor="gemm(k=3)"), "is not a descriptor"),
        (lambda it: it["operators"][0].update(descriptor=None), "exactly one of `descriptor` and `declined`"),
        (lambda it: it["claims"][0].update(kind="certain"), "claims.0.kind"),
        (lambda it: it["claims"][0].pop("discharge"), "claims.0.discharge: is missing: give it"),
        (lambda it: it.update(kernels=[{"name": "a", "digest": "0" * 64, "bytes": 1}] * 2),
         "two kernels have one name: rename one"),
    ],
)  # fmt: skip
def test_other_files_are_refused_with_a_sentence(
    receipt: Receipt, change: Callable[[Any], None], sentence: str
) -> None:
    with pytest.raises(ReceiptError) as raised:
        changed(receipt, change)
    assert str(raised.value).startswith("the receipt: ")
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"{", "this is not complete JSON"), (b"[]", "this is not a receipt"), (b"\xff", "it is not text")],
)
def test_files_that_are_no_receipt(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "receipt.json"
    path.write_bytes(content)
    with pytest.raises(ReceiptError, match=sentence):
        read_receipt(path)
    with pytest.raises(ReceiptError, match="cannot be read"):
        read_receipt(tmp_path / "none")


def test_long_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    with path.open("wb") as file:
        file.truncate(MAXIMUM_BYTES + 1)
    with pytest.raises(ReceiptError, match="has more than 64 MiB"):
        read_receipt(path)


def test_the_published_schema_is_that_of_the_records() -> None:
    path = Path(files.__file__).parent / "receipt.schema.json"
    assert json.loads(path.read_text()) == schema()


def ran(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = replace(registry.default(), profiles=(Toy(),))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.chdir(tmp_path)
    LOCK.write("lock.json")
    lock_of([(problem(4, 5, 20), descriptor(20))], ORIGIN).write("small.json")
    return tmp_path


def test_the_command_writes_verifies_and_compares(folder: Path) -> None:
    assert ran("lock.json", "--ask") == (
        3, "receipt.json: 4 products, 1 of them without a descriptor; claims: 4 proved, 2 measured, 2 assumed\n", "",
    )  # fmt: skip
    status, out, _ = ran("verify", "receipt.json", "--ask", "--lock", "lock.json")
    assert (status, "products.without-descriptor (assumed): not checked" in out) == (3, True)
    assert ran("write", "small.json", "--out", "small-receipt.json", "--ask")[0] == 0
    assert ran("verify", "small-receipt.json", "--ask")[0] == 0
    status, out, _ = ran("verify", "small-receipt.json", "--lock", "lock.json", "--json")
    assert (status, json.loads(out)["outcome"], json.loads(out)["checks"][0]["outcome"]) == (1, "failed", "failed")
    assert ReceiptVerifyAnswer.model_validate_json(out).form == "receipt-verify/1"
    assert ran("diff", "small-receipt.json", "small-receipt.json") == (0, "0 differences\n", "")
    status, out, _ = ran("diff", "small-receipt.json", "receipt.json", "--json")
    assert (status, {each.part for each in ReceiptDiffAnswer.model_validate_json(out).differences}) == (
        1,
        {"product", "claim"},
    )
    assert ran("diff", "receipt.json", "receipt.json") == (
        3, "product: 1x1x7 fp16 NN to fp16: unknown\n1 difference\n", "",
    )  # fmt: skip
    assert json.loads(ran("schema")[1]) == schema()


def test_the_command_says_what_a_plugin_could_not_confirm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = replace(registry.default(), profiles=(Toy(k_cuts=()),))
    monkeypatch.setattr(registry, "default", lambda: moved)
    status, out, _ = ran("small.json", "--ask")
    assert (status, out.splitlines()[1].split(":")[0]) == (0, "1 products are assumed")
    assert "assumed:" not in ran("small.json")[1]


def test_the_command_says_that_it_is_not_on_the_machine_of_the_run(folder: Path) -> None:
    lock_of([(problem(4, 5, 20), descriptor(20))], {**ORIGIN, "device": "another GPU"}).write("other.json")
    status, out, _ = ran("other.json")
    assert (status, out.splitlines()[1]) == (0, "this is not the machine of the run: device is a GPU, not another GPU")
    assert len(ran("small.json")[1].splitlines()) == 1


def test_a_file_that_the_receipt_has_not_is_refused(folder: Path) -> None:
    Path("k.ptx").write_text("x")
    ran("small.json", "--file", "kernel=k.ptx")
    status, _, error = ran("verify", "receipt.json", "--file", "other=k.ptx")
    assert (status, "--file: the receipt has no file 'other'; its files are kernel" in error) == (2, True)
    ran("small.json")
    assert "it has no files" in ran("verify", "receipt.json", "--file", "other=k.ptx")[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.json"], "none.json: cannot be read (No such file or directory)"),
        (["small.json", "--file", "a"], "--file: 'a' is not of the form NAME=PATH"),
        (["small.json", "--file", "a=none.ptx"], "none.ptx: cannot be read (No such file or directory)"),
        (["small.json", "--file", "a=x", "--file", "a=y"], "--file: the name 'a' is given twice"),
        (["small.json", "--out", "none/a.json"], "none/a.json: cannot be written (No such file or directory)"),
        (["verify", "small.json"], 'small.json: this is not a receipt; a receipt has "format": "bitwise-receipt"'),
        (["diff", "none.json", "small.json"], "none.json: cannot be read (No such file or directory)"),
    ],
)
def test_mistakes_on_the_command_line(folder: Path, arguments: list[str], sentence: str) -> None:
    assert ran(*arguments) == (2, "", f"bitwise: {sentence}\n")


def test_calls_that_are_left_to_pytorch_are_claimed_and_compared() -> None:
    silu = '[[{"tensor":["float32",[2],[1],"cpu"]}],{}]'
    sampled = LibraryOperator(operator="aten::silu", arguments=silu, recorded="one", digests={"one": "a" * 64})
    unsampled = LibraryOperator(operator="aten::dropout", arguments="", recorded="one", reason="it is random")
    plain = receipt_of(LOCK, {}, HERE)
    receipt = receipt_of(LOCK.model_copy(update={"operators": (sampled, unsampled)}), {}, HERE)
    assert plain.lock != receipt.lock
    assert {each.name: each.kind for each in receipt.claims if each.name.startswith("pytorch.")} == {
        "pytorch.sampled": "measured", "pytorch.without-sample": "assumed",
    }  # fmt: skip
    outcomes = {each.claim: (each.outcome, each.details) for each in verified(receipt, where=HERE)}
    assert outcomes["lock"] == ("held", ())
    assert outcomes["pytorch.sampled"] == ("not checked", ("run the samples on this machine with --ask",))
    assert outcomes["pytorch.without-sample"] == ("not checked", ("1 calls of PyTorch's operators have no sample",))
    forged = receipt.model_copy(update={"library": (unsampled,)})
    assert {each.claim for each in verified(forged, where=HERE) if each.outcome == "failed"} == {
        "lock", "pytorch.sampled",
    }  # fmt: skip
    other = sampled.model_copy(update={"digests": {"one": "b" * 64}})
    found = receipt_differences(receipt, receipt_of(LOCK.model_copy(update={"operators": (other,)}), {}, HERE))
    sentences = [each.sentence for each in found if each.part == "call"]
    assert sentences == [f"aten::silu {silu}: samples returned other bytes", "aten::dropout : only in a"]
    assert Receipt.from_text(receipt.to_text()) == receipt
    with pytest.raises(ReceiptError, match="two calls of one operator of PyTorch have equal arguments"):
        Receipt.from_text(receipt.to_text().replace("aten::dropout", "aten::silu").replace(
            '"arguments": ""', f'"arguments": {json.dumps(silu)}'
        ))  # fmt: skip
