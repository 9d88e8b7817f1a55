"""GEMMs locked on one machine and replayed on another, with fakes for both."""

from __future__ import annotations

import argparse
import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bitwise_bench.cublas import unprofiled_features
from bitwise_bench.cublas.portable_operands import Operands, hashed, patterns
from bitwise_bench.cublas.replays import cross_device_replay
from bitwise_cublas_profiles.describe import descriptor_of
from bitwise_cublas_profiles.profile import profile
from bitwise_cublas_profiles.query import Configuration, CublasError, GemmQuery, HeuristicResult, gemm_query

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

CAPABILITY = "9.0"


class Machine:
    """A fake cuBLASLt 13.1 on the CPU that selects algorithm 66 with `split` slices, or 24 unsplit for k below 256."""

    version = "13.1.0"

    def __init__(self, split: int, how: str = "right") -> None:
        self.split, self.how = split, how

    def heuristic(self, query: GemmQuery, count: int = 1) -> tuple[HeuristicResult, ...]:
        if query.k == 999:
            raise CublasError("no algorithm")
        split = 1 if query.k < 256 else self.split
        algorithm, stages = (24, 13) if query.k < 256 else (66, 36 if query.a in ("e4m3", "e5m2") else 35)
        return (
            HeuristicResult(
                Configuration(algorithm, 10, stages, split, 2 if split > 1 else 0, 0, 3, 2, 0), 0, 1.0, b""
            ),
        )

    def run_on(self, query: GemmQuery, result: HeuristicResult, a: Any, b: Any, out: Any, bias: Any = None) -> None:
        from bitwise_torch import matmul

        plain = replace(query, epilogue="none", batch=1, ld_a=None, ld_b=None, stride_a=None, stride_b=None)
        desc = descriptor_of(plain, result.configuration, profile(self.version, CAPABILITY), extrapolate=True)
        wide = desc.model_copy(update={"output_dtype": "fp32"})
        for left, right, target in zip(a, b, out, strict=True) if a.dim() == 3 else ((a, b, out),):
            sums = matmul(left, right, desc=wide)
            if self.how == "rounded":
                sums = sums.to(out.dtype).float()
            target.copy_((sums + bias.float() if bias is not None else sums).to(out.dtype))
        if self.how == "wrong":
            out.view(torch.int16)[..., 0, 0] += 1


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(
        library: Machine, query: GemmQuery, result: HeuristicResult, a: Any, b: Any, out: Any, *, bias: Any = None
    ) -> None:
        library.run_on(query, result, a, b, out, bias)

    monkeypatch.setattr("bitwise_cublas_profiles.tensors.run", run)


SHAPES = [
    (0, gemm_query(5, 9, 600, out="fp32")),
    (1, gemm_query(3, 8, 64, "bf16")),
    (2, gemm_query(4, 16, 512, "e4m3")),
    (3, gemm_query(2, 2, 999)),
    (4, replace(gemm_query(3, 4, 1024), transpose_a=True)),
]


def here(split: int) -> Any:
    return lambda path, seed: cross_device_replay.Machine(Machine(split), CAPABILITY, Operands(seed, "cpu", 1 << 16))


def given(folder: Path, **more: Any) -> argparse.Namespace:
    paths = {"lock": folder / "lock.json", "bytes": folder / "bytes.json", "out": folder / "travel.json"}
    return argparse.Namespace(**paths, library=None, seed=7, count=9, seconds=600.0, processes=1, **more)


def test_locked_products_are_reproduced_if_the_other_heuristic_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cross_device_replay, "machine_here", here(3))
    monkeypatch.setattr(cross_device_replay, "chosen", lambda seed, count: iter(SHAPES))
    loaded = {"library": "cuBLASLt 13.1.0", "device": "one", "driver": "1"}
    monkeypatch.setattr("bitwise_cublas_profiles.library_profile.PYTORCH_LIBRARY.provenance", lambda path: loaded)
    assert cross_device_replay.lock(given(tmp_path)) == 0
    assert capsys.readouterr().out == "4 shapes locked, declined: {'no algorithm': 1}\n"

    def replayed(split: int) -> dict[str, Any]:
        monkeypatch.setattr(cross_device_replay, "machine_here", here(split))
        monkeypatch.setattr(
            cross_device_replay,
            "run_workers",
            lambda work, processes, seconds, given: (list(work(0, 1, 1e12, given)), []),
        )
        assert cross_device_replay.replay(given(tmp_path)) == 0
        found: dict[str, Any] = json.loads((tmp_path / "travel.json").read_text())
        return found

    alike = replayed(3)["summary"]
    assert (alike["library here, same bytes"], alike["replayed, same bytes"]) == (4, 4)
    found = replayed(4)
    counts = found["summary"]
    assert counts["shapes"] == counts["replayed, same bytes"] == 4
    assert counts["another descriptor answered here"] == 3
    assert counts["library here, other bytes"] + counts["another descriptor, same bytes"] == 3
    assert counts["library here, other bytes"] == counts["replayed where the library differs, same bytes"] > 0
    assert counts["replayed, other bytes"] == counts["not run"] == counts["the same descriptor, other bytes"] == 0
    assert [row[:7] for row in found["rows"]][1] == [1, 3, 8, 64, "bf16", "NN", "bf16"]
    record, rows = tmp_path / "record.json", tmp_path / "rows.json.xz"
    arguments = [f"--{name}={path}" for name, path in vars(given(tmp_path)).items() if name in ("lock", "bytes", "out")]
    for _ in range(2):
        assert cross_device_replay.main(["archive", *arguments, f"--record={record}", f"--rows={rows}"]) == 0
    (kept,) = json.loads(record.read_text())["travels"]
    assert (kept["summary"], kept["locked"]["device"], kept["rows"]) == (counts, "one", "rows.json.xz")
    whole = json.loads(lzma.decompress(rows.read_bytes()))
    assert (whole["travel"], len(whole["lock"]["entries"]), len(whole["bytes"]["rows"])) == (found, 4, 4)


def test_operands_are_integer_hashes() -> None:
    counters = np.arange(1000, 3000, dtype=np.uint64) * np.uint64(17)
    mask = np.uint64(0xFFFFFFFF)
    found = (counters * np.uint64(0x9E3779B1) + np.uint64(5 * 0x632BE5AB)) & mask
    found ^= found >> np.uint64(16)
    found = found * np.uint64(0x85EBCA6B) & mask
    found ^= found >> np.uint64(13)
    found = found * np.uint64(0xC2B2AE35) & mask
    found ^= found >> np.uint64(16)
    assert (hashed(torch.from_numpy(counters.astype(np.int64)), 5).numpy().astype(np.uint64) == found).all()
    assert hashed(torch.arange(3), 7).tolist() == [232967401, 2835941786, 2191295641]
    for dtype, low, high in (("fp16", -7, 2), ("bf16", -13, 2), ("e4m3", -2, 2), ("e5m2", -5, 2)):
        for draw, bounds in (("flat", (-2, 0)), ("wide", (low, high))):
            pool = Operands(7, "cpu", 1 << 16).pool(dtype, draw)
            magnitudes = pool.float().abs()
            assert (magnitudes.min().item(), magnitudes.max().item() < 2.0 ** (bounds[1] + 1)) == (
                2.0 ** bounds[0],
                True,
            )
            assert magnitudes.max().item() >= 2.0 ** bounds[1]
    assert patterns(torch.arange(4), 7, "fp16", "flat").tolist()[0] & ~0x8000 < 0x4000


def test_batches_biases_and_padding_are_compared_with_plain_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "addmm", lambda bias, a, b: (a.float() @ b.float() + bias.float()).to(a.dtype))
    query = [
        ("bias", gemm_query(4, 6, 300, epilogue="bias")),
        ("batch", gemm_query(4, 6, 100, "bf16", batch=3, transpose_b=True)),
        ("gaps", gemm_query(4, 6, 100, ld_a=108, transpose_b=True)), ("batch", gemm_query(4, 6, 100, batch=1)),
        ("strided", gemm_query(4, 6, 100, batch=3, ld_a=300, stride_a=100, stride_b=0)),
        ("biased gaps", gemm_query(4, 6, 100, ld_b=8, epilogue="bias")),
    ]  # fmt: skip
    for how in ("right", "wrong", "rounded"):
        each = unprofiled_features.FeatureComparison(Machine(2, how), CAPABILITY, Operands(8, "cpu", 1 << 16))
        rows = [each.row(number, *which) for number, which in enumerate(query)]
        rows.append(each.row(9, "bias", gemm_query(1, 1, 999)))
        outcomes = [row[unprofiled_features.COLUMNS.index("outcome")] for row in rows]
        wanted = {"right": ["equal"] * 6, "wrong": ["different"] * 6}
        wanted["rounded"] = ["different", *["equal"] * 4, "different"]
        assert outcomes == [*wanted[how], "no answer"]
        assert all(len(row) == len(unprofiled_features.COLUMNS) for row in rows)
        assert unprofiled_features.summary(rows)["outcomes"]["bias: no answer"] == 1
    assert rows[0][-1] == {
        "draws": ["flat", "wide"],
        "other ways": {"rounded first": 2, "bias first": 0, "with the last slice, backward": 0, "slices rounded": 0},
    }
    kinds = [unprofiled_features.query_of_number(8, number) for number in range(60)]
    assert {found[0] for found in kinds if found} == set(unprofiled_features.KINDS)
    assert all(found[1].batch == 1 or found[0] in ("batch", "strided") for found in kinds if found)
    assert all(found[1].contiguous_batch for found in kinds if found and found[0] != "strided")
    assert not all(found[1].contiguous_batch for found in kinds if found)


RECORDS = Path(__file__).resolve().parents[2] / "records"


@pytest.mark.skipif(not RECORDS.exists(), reason="records are not part of an installed distribution")
def test_the_cpu_evaluation_has_the_recorded_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = RECORDS / "cublas-travel-h100-to-h200-13.1.json.xz"
    assert cross_device_replay.main(["check", f"--rows={rows}", "--count=12"]) == 0
    assert capsys.readouterr().out == "12 products evaluated to the recorded bytes, 0 to others\n"
    whole = json.loads(lzma.decompress(rows.read_bytes()))
    for entry in whole["lock"]["entries"]:
        if "k_dropped" not in entry.get("descriptor", "k_dropped"):
            entry["descriptor"] = entry["descriptor"][:-1] + " k_dropped=1)"
    found = [same for _, same in cross_device_replay.checked(whole, 4)]
    assert found == [False] * 4


@pytest.mark.skipif(not RECORDS.exists(), reason="records are not part of an installed distribution")
def test_replay_counts_match_the_recorded_rows() -> None:
    for each in json.loads((RECORDS / "cublas-travels-sm90.json").read_text())["travels"]:
        whole = json.loads(lzma.decompress((RECORDS / each["rows"]).read_bytes()))
        assert each["summary"] == cross_device_replay.summary(whole["travel"]["rows"])
        assert each["replayed"] == whole["travel"]["replayed"]


def test_a_slice_does_not_depend_on_its_pool() -> None:
    few, whole = Operands(3, "cpu", 1 << 16), Operands(3, "cpu", 1 << 16)
    for dtype in ("fp16", "e4m3"):
        whole.pool(dtype, "wide")
        one, other = (each.stretch(dtype, "wide", 777, 99).view(torch.uint8) for each in (few, whole))
        assert torch.equal(one, other)
    assert not few._pools
