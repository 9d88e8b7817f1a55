"""Costs of the batch-invariant mode: processes that prepare together and measure apart, and the ratios of times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from bitwise_bench.models.mode_costs import (
    STARVED,
    Costs,
    Measured,
    add_costs,
    eager_times,
    no_costs,
    ratios,
    ratios_of_turns,
    widths_of,
)

RECORDS = sorted(Path(__file__).parents[2].glob("records/train-equals-serve-*.json"))


def prepare(name: str) -> Mapping[str, Measured]:
    """Stand for the preparation of a model."""
    if name == "ended":
        raise SystemExit(3)
    if name == "slow":
        time.sleep(600)
    if name == "broken":
        raise ValueError(name)
    times = {"PyTorch": lambda: time.sleep(0.001), "mode": lambda: time.sleep(0.003)}
    return {f"{name} of 1": Measured(None, 1, times)}


def test_models_are_prepared_in_processes_and_measured() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    found = dict(Costs(["a", "b"], 1, prepare).measured())
    assert set(found) == {"a", "b"}
    assert set(found["a"]["a of 1, graph"]) == {"PyTorch", "mode"}
    assert min(found["a"]["a of 1, graph"]["mode"]) >= 3


def test_a_model_that_cannot_be_prepared_has_no_costs(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    found = dict(Costs(["broken", "a"], 1, prepare).measured())
    assert found["broken"] == {}
    assert found["a"]
    assert "broken could not be prepared" in capfd.readouterr().out
    with pytest.raises(RuntimeError, match="could not be measured"):
        dict(Costs(["ended"], 1, prepare).measured())


def test_a_model_that_takes_too_long_to_be_prepared_is_not_measured() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    assert dict(Costs(["slow"], 1, prepare, seconds=0.5).measured()) == {"slow": {}}


def test_ratios_are_geometric_means_by_kind() -> None:
    content = no_costs()
    add_costs(
        content, "x", {
            "prefill of 1": {"PyTorch": [9.0, 1.0, 0.0], "mode": [2.0]},
            "prefill of 2": {"PyTorch": [4.0], "mode": [2.0]},
        }
    )  # fmt: skip
    add_costs(content, "rows", {"mean of fp32 of 3 x 4, graph": {"PyTorch": [1.0], "mode": [3.0]}})
    add_costs(content, "y", {"decode of 1, graph": {"PyTorch": [2.0], "mode": [1.0]}})
    assert content["quartiles"]["x"]["prefill of 1"] == {"PyTorch": [0.5, 5.0]}
    assert content["ratios"] == {
        "prefill": {"mode": 1.0}, "decode, graph": {"mode": 0.5}, "rows": {"mean of fp32": {"mode": 3.0}},
    }  # fmt: skip
    assert ratios(content, []) == {}


def test_ratios_are_those_of_turns() -> None:
    """A machine that slows down for half of the turns does not change them."""
    content = no_costs()
    add_costs(content, "x", {"decode of 1": {"PyTorch": [1.0, 9.0, 2.0, 8.0], "mode": [2.0, 9.0, 3.0, 8.0]}})
    assert content["ratios of turns"]["x"]["decode of 1"] == {"mode": [1.0, 1.25, 1.625]}
    assert content["ratios"] == {"decode": {"mode": 1.25}}
    assert ratios_of_turns({"PyTorch": [1.0], "mode": [2.0]}) == ratios_of_turns({"mode": [1.0, 2.0]}) == {}


def test_times_without_workspaces_belong_to_their_model() -> None:
    content = no_costs()
    add_costs(content, f"x {STARVED}", {"decode of 1": {STARVED: [3.0, 3.0]}})
    assert content["ratios"] == {}
    add_costs(content, "x", {"decode of 1": {"PyTorch": [2.0, 2.0], "mode": [1.0]}})
    assert content["milliseconds"] == {"x": {"decode of 1": {STARVED: 3.0, "PyTorch": 2.0, "mode": 1.0}}}
    assert set(content["quartiles"]["x"]["decode of 1"]) == {STARVED, "PyTorch"}
    assert content["ratios"] == {"decode": {STARVED: 1.5, "mode": 0.5}}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_no_difference_in_the_mode_and_some_without_it(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    held_out = [each["held out"] for each in record["models"].values()]
    assert sum(held_out) >= 5 or (held_out and all(held_out))  # all models of drawn sizes are
    for each in record["models"].values():
        assert all(found for what, found in each["mode"].items() if what != "greatest divergence")
        assert each["mode"]["greatest divergence"] == 0
        assert each["without the mode, differing"]
    # Training may return the generation's bytes by chance in a model; none does in nearly all of a record.
    equal = [name for name, each in record["models"].items() if not each["without the mode, greatest divergence"]]
    assert len(equal) * 10 <= len(record["models"])


def test_scopes_take_turns_in_both_orders() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    order: list[str] = []

    @contextmanager
    def scope(name: str) -> Iterator[None]:
        order.append(name)
        yield

    found = eager_times(lambda: None, 1, {"PyTorch": partial(scope, "a"), "lock": partial(scope, "b")}, 3)
    assert "".join(order) == "abbaab"
    assert {name: len(each) for name, each in found.items()} == {"PyTorch": 3, "lock": 3}


def test_drawn_widths_are_those_of_their_seed_and_of_a_model_that_exists() -> None:
    found = [widths_of(f"drawn {seed} {number}") for seed in (1, 2) for number in range(30)]
    assert found == [widths_of(f"drawn {seed} {number}") for seed in (1, 2) for number in range(30)]
    assert found[:30] != found[30:]
    for _, fields in found:
        hidden, heads, groups = (fields[each] for each in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
        assert 2048 <= hidden <= 4096
        assert hidden % heads == heads % groups == fields["intermediate_size"] % 128 == 0
        assert hidden // heads == fields.get("head_dim", hidden // heads)
    assert len({kind for kind, _ in found}) > 5
