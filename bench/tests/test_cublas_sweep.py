from __future__ import annotations

import json
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_bench.cublas.sweeps import sweep, sweep_records
from bitwise_bench.cublas.sweeps.random_queries import REGIMES, random_query
from bitwise_bench.cublas.sweeps.sweep_operands import CANCELLING, DRAWS, KINDS, PLAIN, Pools
from bitwise_bench.cublas.sweeps.sweep_records import COLUMNS
from bitwise_cublas_profiles.query import gemm_query

LINE: list[Any] = [5, 1, 64, 64, 1024, "fp16", "NN", "fp16", 0, 66, 10, 35, 1, 0, 1, 4, "equal", None, None, "01234567"]


def line(**changed: Any) -> list[Any]:
    found = dict(zip(COLUMNS, LINE, strict=True))
    return list({**found, **changed}.values())


def test_a_sweep_is_counted_and_archived(tmp_path: Path) -> None:
    about = {"gpu": "some", "library": "13.1.0", "columns": list(COLUMNS)}
    rows = [
        line(number=7, control=["slices", 0, 2]), line(), line(number=6, candidate=1, outcome="declined", about="why"),
        line(number=8, a="bf16", control=["slices", 3, 1]), line(number=9, control=["slices", 0, 0]),
    ]  # fmt: skip
    file = tmp_path / "sweep.jsonl"
    file.write_text("\n".join(map(json.dumps, [about, *rows])) + '\n[10, "cut o', encoding="utf-8")
    assert sweep_records.main([str(file), "--record", str(tmp_path / "kept-13.1")]) == 0
    found = json.loads((tmp_path / "kept-13.1.json").read_text(encoding="utf-8"))
    assert found["environment"] == {"gpu": "some", "library": "13.1.0"}
    assert (found["shapes"], found["not compared"], found["different"]) == (5, {"why": 1}, [])
    assert found["outcomes"] == {"bf16: equal": 1, "candidate fp16: declined": 1, "fp16: equal": 3}
    assert found["families"]["algorithm 66 single fp16: equal"] == 3
    assert found["controls run, caught, and caught with cancelling draws"] == {"slices algorithm 66": [3, 1, 2]}
    again, kept = sweep_records.read_lines(tmp_path / "kept-13.1.jsonl.xz")
    assert (again, [row[0] for row in kept]) == (about, [5, 6, 7, 8, 9])
    file.write_text("\n".join(map(json.dumps, [about, line(outcome="different", about=[1, 2, 3, 4, 5])])))
    assert sweep_records.main([str(file)]) == 1
    assert sweep_records.main([str(tmp_path / "nothing")]) == 2


def test_a_file_of_another_gpu_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = {"gpu": "H200", "library": "13.1.0", "seed": 1, "draws": DRAWS, "candidates": 0.1, "shares": {}}
    monkeypatch.setattr(sweep, "environment", lambda chosen: now)
    file = tmp_path / "sweep.jsonl"
    file.write_text(json.dumps({**now, "gpu": "H100"}) + "\n", encoding="utf-8")
    assert sweep.main(["--out", str(file)]) == 2
    assert capsys.readouterr().err == f"{file}: its gpu is H100, and now it is H200\n"
    assert file.read_text(encoding="utf-8").count("\n") == 1


def test_types_are_drawn_with_their_frequencies(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.share("fp16=92.5") == ("fp16", 92.5)
    for wrong in ("fp16", "fp16=0", "fp64=1", "=", "fp16=x"):
        with pytest.raises(SystemExit):
            sweep.main(["--out", "nowhere", "--shares", wrong])
        assert f"argument --shares: invalid share value: '{wrong}'" in capsys.readouterr().err
    assert {random_query(1, number, shares=[("bf16", 1)]).query.a for number in range(50)} == {"bf16"}


def test_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 3)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert sweep.visible() == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert sweep.visible() == ["2", "5"]


def test_regimes_cover_their_shapes() -> None:
    shapes = [random_query(1, number).query for number in range(6000)]
    assert max(each.n for each in shapes) > 115_000
    assert max(each.m for each in shapes) > 100_000
    assert max(each.k for each in shapes) > 280_000
    assert min(each.k for each in shapes) == 8
    assert {each.a for each in shapes} == {"fp16", "bf16", "e4m3", "e5m2"}
    assert len(REGIMES) == 6


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "e4m3", "e5m2"])
@pytest.mark.parametrize("transposes", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("k", [2, 9, 64, 1001])
def test_exact_sums_of_cancelling_draws_are_zero(dtype: str, transposes: str, k: int) -> None:
    torch = pytest.importorskip("torch")
    pools = Pools(1, "cpu", 1 << 18)
    query = replace(
        gemm_query(5, 16, k, dtype), transpose_a=transposes[0] == "T", transpose_b=transposes[1] == "T"
    )  # fmt: skip
    plain = [pools.operands(query, 3, 0), pools.operands(query, 3, 0)]
    assert all((left.double() == right.double()).all() for left, right in zip(*plain, strict=True))
    for draw in range(DRAWS - CANCELLING, DRAWS):
        a, b = pools.operands(query, 3, draw)
        assert [a.stride(), b.stride()] == [each.stride() for each in plain[0]]
        # Each product is a double; a sum of them in doubles need not be.
        terms = (a.double()[:, :, None] * b.double()[None]).transpose(1, 2).reshape(-1, k)
        assert not any(map(math.fsum, terms.tolist()))
        assert (a.double().abs() @ b.double().abs()).all()
        assert bool(torch.isfinite(a.float()).all())


@pytest.mark.parametrize("transposes", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "e4m3", "e5m2"])
def test_rows_of_negative_zeros_and_columns_of_positive_numbers(dtype: str, transposes: str) -> None:
    torch = pytest.importorskip("torch")
    pools = Pools(1, "cpu", 1 << 18)
    query = replace(gemm_query(8, 16, 200, dtype), transpose_a=transposes[0] == "T", transpose_b=transposes[1] == "T")
    before = [each.double() for each in pools.operands(query, 3, 0)]
    a, b = pools.operands(query, 3, KINDS.index("zeros"))
    assert all((old == new.double()).all() for old, new in zip(before, pools.operands(query, 3, 0), strict=True))
    rows, columns = a.double(), b.double().t()
    negative, zero = torch.signbit(rows), rows == 0
    assert sorted(Counter(zip((negative.all(1)).tolist(), zero.all(1).tolist(), strict=True)).items()) == [
        ((False, False), 4), ((True, False), 2), ((True, True), 2)
    ]  # fmt: skip
    few = ~negative.all(1) & (zero.sum(1) > 150)
    assert few.sum() == 2
    assert (negative & zero)[few].any()
    assert (~negative & zero)[few].any()
    assert sorted((torch.signbit(columns).sum(1) == 0).tolist()) == [False] * 4 + [True] * 12
    assert ((columns == 0).all(1)).sum() == 4


@pytest.mark.parametrize("transposes", ["NN", "TT"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "e4m3", "e5m2"])
@pytest.mark.parametrize("k", [1, 100, 20_000])
def test_sums_of_tiny_draws_underflow_in_some_rows_only(dtype: str, transposes: str, k: int) -> None:
    torch = pytest.importorskip("torch")
    pools = Pools(1, "cpu", 1 << 20)
    query = replace(gemm_query(8, 16, k, dtype), transpose_a=transposes[0] == "T", transpose_b=transposes[1] == "T")
    a, b = pools.operands(query, 3, KINDS.index("tiny"))
    assert torch.signbit(a.double()).all(1).sum() >= 6
    assert (~torch.signbit(b.double())).all(0).sum() >= 12
    sums = (a.double() @ b.double()).to(torch.bfloat16 if query.c == "bf16" else torch.float16)
    vanished = (sums == 0).double().mean(1)
    if dtype in ("fp16", "bf16"):
        assert (vanished > 0.9).any()
        assert (vanished < 0.7).any()
        assert bool(torch.signbit(sums[vanished == 1]).any())
    else:
        assert float(a.double().abs().max()) < 2.0**-6


def test_ten_draws_have_no_special_kinds() -> None:
    assert (PLAIN, KINDS[:PLAIN]) == (10, ("flat", "wide") * 5)
    assert [kind for kind in KINDS if "cancelling" in kind] == list(KINDS[-CANCELLING:])
