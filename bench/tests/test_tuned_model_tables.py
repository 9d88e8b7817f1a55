"""The table of models that are tuned inside `same_bits`."""

from __future__ import annotations

from typing import Any

from bitwise_bench.result_tables.tuned_model_tables import tuned_models

ENVIRONMENT = {"gpu": "H200", "torch": "2.11", "triton": "3.6"}


def run(model: str, mode: str, digest: str, seconds: float) -> dict[str, Any]:
    return {
        "model": model, "mode": mode, "digest": digest, "tuning seconds": 20.0, "proof seconds": 3.0,
        "GPU seconds": [seconds, seconds], "step seconds": [2 * seconds], "graph seconds": [],
    }  # fmt: skip


def test_a_model_has_its_ratios_its_noise_and_its_byte_patterns() -> None:
    runs = [run("mlp", "free", "a", 1.0), run("mlp", "free", "b", 1.25), run("mlp", "same bits", "c", 1.5),
            run("mlp", "same bits", "c", 1.5), run("encoder", "free", "a", 2.0), run("encoder", "same bits", "d", 2.0),
            run("mixer", "free", "a", 2.0)]  # fmt: skip
    lines = tuned_models([{"runs": runs, "environment": ENVIRONMENT}]).splitlines()
    assert lines[2] == "| mlp | 2 / 2 | 1 / 2 | 1.333 | 1.250 | 1.333 | 1.250 | - | - | 20 / 20 | 3 |"
    assert lines[3] == "| encoder (held out) | 1 / 1 | 1 / 1 | 1.000 | - | 1.000 | - | - | - | 20 / 20 | 3 |"
    assert len(lines) == 6
    assert "GPU 1.155 (at most 1.333), step 1.155 (at most 1.333)." in lines[5]
