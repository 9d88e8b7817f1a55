"""Digests of two GPUs' records are compared by name, where the runs have one shape and equal weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitwise_bench.models.drawn_models import drawn_fields
from bitwise_bench.models.train_equals_serve import COMPARED, differing_digests, holds, other_record, unfinished
from bitwise_bench.result_tables.model_tables import train_equals_serve
from bitwise_core.errors import BitwiseError

SHAPE = {"tokens": 96, "batches": [1, 3]}
DIGESTS = {"weights": "a", "logits": "b", "gradients": "c"}


def record(**changed: str) -> dict[str, Any]:
    return {"digests": {**DIGESTS, **changed}}


def test_equal_digests_do_not_differ() -> None:
    assert differing_digests(record(), record()) == []


def test_each_other_digest_is_named() -> None:
    assert differing_digests(record(), record(logits="x", gradients="y")) == ["logits", "gradients"]


def test_with_other_weights_nothing_else_is_compared() -> None:
    assert differing_digests(record(), record(weights="x", logits="y")) == ["weights"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ({"shape": {"tokens": 95}, "models": {}}, "has the shape"),
        ({"shape": SHAPE, "models": {"llama": {}}}, "has no digests"),
    ],
)
def test_a_record_that_cannot_be_compared_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "other.json"
    if content is not None:
        path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BitwiseError, match=message):
        other_record(path, SHAPE)


@pytest.mark.parametrize(("differing", "held"), [([], True), (["logits"], False)])
def test_a_model_whose_bytes_differ_on_another_gpu_does_not_hold(differing: list[str], held: bool) -> None:
    found = {
        "mode": {"prefill by 1": True, "greatest divergence": 0.0},
        "without the mode, differing": ["prefill by 1"],
        "digests that differ": differing,
    }
    assert holds(found) is held


def test_a_model_that_could_not_run_does_not_hold() -> None:
    assert not holds({"error": "RuntimeError: out of memory"})


def test_a_model_that_has_not_finished_is_kept_and_does_not_hold(tmp_path: Path) -> None:
    found = {"held out": True, "unfinished": True, "mode": {"a": True}, "without the mode, differing": ["a"]}
    (tmp_path / "x.json").write_text(json.dumps(found), encoding="utf-8")
    assert unfinished(tmp_path, ["x", "y"]) == {"x": found}
    assert not holds(found)
    record = {"models": {"x": found}, "environment": {"gpu": "G"}}
    record["shape"] = {"tokens": 1, "batches": [1], "chunks": [1], "generated tokens": 1}
    assert "| x (held out) (unfinished) | 1 of 1 | - | 1 of 1 | - |" in train_equals_serve(record)


def test_digests_that_one_record_alone_has_are_not_compared() -> None:
    newer = record(**{"prefill by 1": "x"})
    assert differing_digests(newer, record()) == differing_digests(record(), newer) == []
    assert differing_digests(newer, record(**{"prefill by 1": "y"})) == ["prefill by 1"]


def test_drawn_sizes_follow_the_seed_and_keep_what_belongs_together() -> None:
    for name, (_, fields) in COMPARED.items():
        one, again, other = (drawn_fields(fields, name, seed) for seed in (5, 5, 6))
        assert one == again != other
        assert one.keys() == {*fields, "tie_word_embeddings"}
        for width, heads in (("hidden_size", "num_attention_heads"), ("n_embd", "n_head")):
            if width in one:
                assert one[width] % one[heads] == 0
        for of_keys in ("num_key_value_heads", "num_kv_heads"):
            if of_keys in one:
                assert one["num_attention_heads"] % one[of_keys] == 0
        assert one.get("word_embed_proj_dim", one.get("hidden_size")) == one.get("hidden_size")
