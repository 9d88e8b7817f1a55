"""A training step recorded and replayed on a CPU, with a fake library."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.cublas.portable_operands import Operands
from bitwise_bench.cublas.replays import layer_replay
from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.plugins import registry
from bitwise_torch import locked_products
from bitwise_torch.locks import read_lock

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Library:
    """A fake profile: multiply-add chains in parts of 5, without the last one."""

    name = library = "cublas"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        raise AssertionError

    def describe_problem(self, problem: GEMMProblem, **options: Any) -> GEMMDesc:
        types = {"left_dtype": problem.a, "right_dtype": problem.b, "output_dtype": problem.out}
        return GEMMDesc(k=problem.k, **types, path="fma", k_cuts=(Cut(span=5),), k_dropped=1)

    def provenance(self, *, library: str | None = None) -> dict[str, str]:
        return {"library": "a library", "device": "a CPU", "driver": "none", "torch": torch.__version__}


def test_a_training_step_is_reproduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = replace(registry.default(), profiles=(Library(),))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.setattr(
        "bitwise_cublas_profiles.library_profile.PYTORCH_LIBRARY.provenance", lambda path: {"device": "another CPU"}
    )
    monkeypatch.setattr(layer_replay, "CASES", (("bf16", 8, 16), ("fp16", 12, 24)))
    monkeypatch.setattr(layer_replay, "Operands", lambda seed: Operands(seed, "cpu", 1 << 17))
    paths = {name: tmp_path / f"{name}.json" for name in ("lock", "bytes", "out")}
    arguments = [text for name, path in paths.items() for text in (f"--{name}", str(path))]
    assert layer_replay.main(["record", *arguments]) == 0
    assert json.loads(capsys.readouterr().out) == {"products": 14, "declined": [], "left": {}}
    content = json.loads(paths["bytes"].read_text())
    with locked_products(read_lock(paths["lock"])):
        content["cases"] = {
            " ".join(map(str, case)): layer_replay.hashes(layer_replay.step(layer_replay.Operands(11), *case))
            for case in layer_replay.CASES
        }
    paths["bytes"].write_text(json.dumps(content))
    assert layer_replay.main(["replay", *arguments]) == 0
    replayed = json.loads(paths["out"].read_text())
    assert (replayed["tensors"], replayed["other bytes locked"]) == (12, 0)
    assert replayed["other bytes unlocked"] > 0
    assert replayed["reports"] == [
        f"{name}: {sentence}"
        for name in ("bf16 8 16", "fp16 12 24")
        for sentence in (
            "9 products of 7 problems ran from the lock, 0 ran in this machine's library",
            "7 of these problems leave the last values of k out, as the locked library did",
        )
    ]
