from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bitwise_cublas_profiles import audits, models, report
from bitwise_cublas_profiles.audit import audit, read_shapes
from bitwise_cublas_profiles.question import Answer, Configuration, CublasError, Question, question


class Recorded:
    """A library that answers from a table of split counts by k."""

    def __init__(self, splits: Mapping[int, int]) -> None:
        self.splits = splits

    def ask(self, asked: Question, count: int = 1) -> tuple[Answer, ...]:
        if asked.k not in self.splits:
            raise CublasError(f"no algorithm for {asked.words}")
        return (Answer(Configuration(66, 10, 35, self.splits[asked.k], 2, 0, 1, 0, 4), 1024, 0.5, bytes(64)),)


def test_an_audit_judges_every_shape_and_stops_at_none() -> None:
    questions = [question(1, 8, k) for k in (11528, 11520, 7)]
    found = list(audit(Recorded({11528: 9, 11520: 9}), questions))
    assert [each.tail.verdict if each.tail else each.error for each in found] == [
        "loses 8", "whole", "no algorithm for 1x8x7 fp16 NN to fp16",
    ]  # fmt: skip
    assert report.summary(found) == {
        "shapes": 3, "lose values": 1, "whole": 1, "unknown": 0, "no answer": 1, "run on ones": 0,
        "could not be run": 0, "not as judged": 0,
    }  # fmt: skip
    assert report.line(found[0]) == (
        "1x8x11528 fp16 NN to fp16: loses 8 (180 steps of 64 and 8 values over; 9 slices of 20 steps end at 11520 of "
        "11528); algorithm=66 tile=10 stages=35 split_k=9 reduction=2 custom=1 cluster_shape=4"
    )


@pytest.mark.parametrize(("returned", "confirmed"), [(11520, True), (11528, False), (11519, False)])
def test_ones_prove_or_refute_a_loss(returned: int, confirmed: bool) -> None:
    (found,) = audit(Recorded({11528: 9}), [question(1, 8, 11528)], lambda *_: returned)
    assert (found.counted, found.confirmed) == (returned, confirmed)
    assert ("NOT as judged" in report.line(found)) is not confirmed
    assert report.summary([found])["not as judged"] == (0 if confirmed else 1)


def test_what_cannot_be_run_says_why() -> None:
    def refuse(*_: object) -> int:
        raise CublasError("too large")

    (found,) = audit(Recorded({11528: 9}), [question(1, 8, 11528)], refuse)
    assert (found.confirmed, found.error) == (None, "too large")
    assert report.line(found).endswith("; not run: too large")


def test_a_file_of_shapes(tmp_path: Path) -> None:
    path = tmp_path / "shapes"
    path.write_text("# layers\n1 8 11528\n\n4x512x11528 bf16\n2, 3, 16, e4m3 # fp8\n")
    found = read_shapes(path, "fp16", workspace=0)
    assert [each.words for each in found] == [
        "1x8x11528 fp16 NN to fp16", "4x512x11528 bf16 NN to bf16", "2x3x16 e4m3 NT to bf16",
    ]  # fmt: skip
    assert {each.workspace for each in found} == {0}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 8\n", "{}:1: '1 8' is not of the form M N K or M N K dtype"),
        ("1 8 16\n1 8 x\n", "{}:2: '1 8 x' is not of the form M N K or M N K dtype"),
        ("1 8 16 fp64\n", "{}:1: 'fp64' is no type of operands; there are fp16, bf16, e4m3, e5m2, tf32, fp32"),
        ("1 0 16\n", "{}:1: n is 0; a matrix product needs at least 1 of it"),
        ("# nothing\n", "{}: holds no shape; write a line M N K for each"),
        (None, "{}: cannot be read (No such file or directory)"),
    ],
)
def test_a_file_with_a_mistake(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "shapes"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CublasError) as raised:
        read_shapes(path)
    assert str(raised.value) == sentence.format(path)


def test_audits_are_put_together(tmp_path: Path) -> None:
    questions = [question(1, 8, k) for k in (11528, 11520, 7)]
    findings = list(audit(Recorded({11528: 9, 11520: 1}), questions))
    content = {
        "version": "13.1.0", "device": "a GPU", "driver": "1", "summary": report.summary(findings),
        "shapes": [each.record() for each in findings],
    }  # fmt: skip
    path, out = tmp_path / "audit.json", tmp_path / "record.json"
    path.write_text(json.dumps(content))
    assert audits.main([str(path), str(path), "--out", str(out)]) == 0
    first, second = json.loads(out.read_text())["audits"]
    assert first == second
    assert (first["library"], first["device"], first["summary"]["with slices of k"]) == ("cuBLASLt 13.1.0", "a GPU", 1)
    assert first["rows"] == [
        [1, 8, 11528, "fp16", 66, 35, 9, 8, None], [1, 8, 11520, "fp16", 66, 35, 1, 0, None],
        [1, 8, 7, "fp16", None, None, None, None, None],
    ]  # fmt: skip


def test_the_published_number_of_shapes_of_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    models.main()
    path = tmp_path / "shapes"
    path.write_text(capsys.readouterr().out)
    assert len(read_shapes(path)) == 390
    found = models.published()
    assert len(set(found)) == 390
    assert {group: sum(each[0] == group for each in found) for group in models.PUBLISHED} == models.PUBLISHED
    bounds = {
        "attention": ((256, 16384), (2048, 18432), (2048, 16384)),
        "mlp up": ((256, 16384), (6144, 33792), (2048, 7168)),
        "mlp down": ((256, 16384), (2048, 7168), (6144, 33792)), "moe up": ((16, 3072), (512, 3072), (2048, 8192)),
        "moe down": ((16, 6144), (2048, 8192), (512, 3072)), "lm head": ((1, 256), (100352, 248320), (2048, 8192)),
        "lora": ((80, 16384), (768, 32768), (8, 64)),
    }  # fmt: skip
    for group, *sizes in found:
        assert all(low <= size <= high for size, (low, high) in zip(sizes, bounds[group], strict=True)), (group, sizes)
