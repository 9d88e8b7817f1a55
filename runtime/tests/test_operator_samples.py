"""Samples of operators that a lock leaves to PyTorch: their texts, their digests, and locks that hold them."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import NotCovered
from bitwise_torch import locked_products, noted_operators, recorded_products
from bitwise_torch.answer_forms import LockCheckAnswer
from bitwise_torch.lock_command import app
from bitwise_torch.locks import LibraryOperator, LockError, read_lock
from bitwise_torch.operator_samples import (
    NotSampled,
    _divide,
    _drawn_call,
    call_text,
    checked_operators,
    list_call_text,
    machine_of,
    sample_digest,
)

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Toy:
    """A library that covers fp16."""

    name = library = "toy"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        raise AssertionError

    def describe_problem(
        self, problem: GEMMProblem, *, alignment: Any = None, library: str | None = None, device: Any = None
    ) -> GEMMDesc:
        if problem.a != "fp16":
            raise NotCovered(f"toy is not measured on {problem.a}")
        return GEMMDesc(k=problem.k, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma")

    def provenance(self, *, library: str | None = None) -> dict[str, str]:
        return {"library": "toy"}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.default(), profiles=(Toy(),))
    monkeypatch.setattr(registry, "default", lambda: found)


def checked(path: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *options, str(path)])
    return result.exit_code, result.stdout


def attention(x: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


def test_lists_of_equal_tensors_are_sampled_once() -> None:
    many, one = [torch.randn(3, 4) for _ in range(50)] + [torch.randn(5)], [torch.randn(3, 4), torch.randn(5)]
    text = list_call_text((many, [1.0] * 51), {"alpha": 2})
    assert text == call_text((one, [1.0, 1.0]), {"alpha": 2})
    assert text != list_call_text((many, [1.0] * 50 + [2.0]), {"alpha": 2})
    assert sample_digest("aten::_foreach_mul_.ScalarList", list_call_text((many, [0.5] * 51), {}))


def test_a_large_tensor_repeats_drawn_values() -> None:
    large = call_text((torch.empty(600_000),), {})
    assert sample_digest("aten::neg", large) == sample_digest("aten::neg", large)
    assert sample_digest("aten::neg", large) != sample_digest("aten::neg", call_text((torch.empty(600_001),), {}))


def test_a_text_determines_a_sample() -> None:
    x = torch.randn(3, 4).t()
    text = call_text((x, 0.5, [x, None]), {"dtype": torch.float16, "out": x})
    tensor = {"tensor": ["float32", [4, 3], [1, 4], "cpu"]}
    assert json.loads(text) == [[tensor, 0.5, [tensor, None]], {"dtype": {"dtype": "float16"}, "out": tensor}]
    operator, text = "aten::silu", call_text((x,), {})
    assert sample_digest(operator, text) == sample_digest(operator, text)
    others = {sample_digest(operator, call_text((each,), {})) for each in (x, x.contiguous(), x.half(), x[:2])}
    assert len(others) == 4
    text = call_text((x, x), {})
    assert sample_digest("aten::add_.Tensor", text) == sample_digest("aten::add_.Tensor", text)
    assert sample_digest("aten::add.Tensor", text) != sample_digest("aten::sub.Tensor", text)


def test_positions_of_groups_and_sequences_divide_the_rows() -> None:
    a, b = torch.empty(100, 32, dtype=torch.bfloat16), torch.empty(3, 32, 48, dtype=torch.bfloat16)
    x, ends = torch.empty(100, 2, 16), torch.empty(3, dtype=torch.int32)
    assert _ends(call_text((a, b, ends), {})) == [32, 64, 100]
    assert _ends(call_text((b, torch.empty(32, 96)), {"offs": ends})) == [32, 64, 96]
    assert _ends(call_text((a, torch.empty(32, 96), ends), {})) == [0, 16, 32]
    assert sample_digest("aten::_grouped_mm", call_text((a, b, ends), {}))
    starts = torch.empty(5, dtype=torch.int32)
    arguments, options = _drawn_call(call_text((x, x[:64], x, starts, starts, 25, 25, 0.0, True, False), {}))
    names = [each.name for each in torch.ops.aten._flash_attention_forward.default._schema.arguments]
    named = dict(zip(names, arguments, strict=False)) | options
    _divide(named)
    assert (named["cum_seq_q"].tolist(), named["cum_seq_k"].tolist()) == ([0, 25, 50, 75, 100], [0, 16, 32, 48, 64])


def _ends(text: str) -> list[int]:
    arguments, options = _drawn_call(text)
    named = dict(zip(("self", "mat2", "offs"), arguments, strict=False)) | options
    _divide(named)
    found: list[int] = named["offs"].tolist()
    return found


def test_drawn_integers_do_not_decrease() -> None:
    ((drawn,), _) = _drawn_call(call_text((torch.empty(500, dtype=torch.int64),), {}))
    assert drawn.tolist() == sorted(drawn.tolist())
    assert set(drawn.tolist()) == {0, 1}


@pytest.mark.parametrize(("operator", "arguments", "reason"), [
    ("aten::no_such", "[[],{}]", "has no operator aten::no_such"),
    ("aten::silu", "[[", "its arguments cannot be read"),
    ("aten::silu", '[[{"tensor":["float32",[4],[-1],"cpu"]}],{}]', "a stride is negative"),
    ("aten::silu", '[[{"tensor":["float32",[1000000,1000000],[1000000,1],"cpu"]}],{}]', "more than 536870912 elements"),
    ("aten::silu", '[[{"tensor":["complex64",[4],[1],"cpu"]}],{}]', "complex64 are not drawn"),
    ("aten::silu", '[[{"module":"os"}],{}]', "'module' is no kind of argument"),
    ("aten::silu", '[[{"tensor":["load",[4],[1],"cpu"]}],{}]', "its arguments cannot be read"),
    ("aten::mm", '[[{"tensor":["float32",[4,4],[4,1],"cpu"]}],{}]', "it fails for drawn values"),
    ("aten::silu", '[[{"tensor":["quint8",[4],[1],"cpu"]}],{}]', "its tensors cannot be drawn"),
    ("aten::silu", '[[{"tensor":["bits8",[4],[1],"cpu"]}],{}]', "its tensors cannot be drawn"),
    ("aten::silu.overloads", "[[],{}]", "has no operator aten::silu.overloads"),
    ("aten::from_file", '[["made",true,10],{"dtype":{"dtype":"uint8"}}]', "it computes with no tensor"),
    ("aten::bernoulli", '[[{"tensor":["float32",[4],[1],"cpu"]}],{}]', "it draws random numbers"),
])  # fmt: skip
def test_a_call_without_a_sample_has_a_reason(operator: str, arguments: str, reason: str) -> None:
    with pytest.raises(NotSampled, match=reason):
        sample_digest(operator, arguments)


def test_a_lock_leaves_attention_and_declined_products_to_pytorch(tmp_path: Path) -> None:
    a, b, x = torch.randn(4, 20).half(), torch.randn(20, 5).half(), torch.randn(1, 2, 8, 16)

    def step() -> list[Any]:
        y = attention(x)
        return [a @ b, torch.nn.functional.silu(y), y.flatten(2) @ torch.ones(128, 3)]

    with recorded_products("toy") as recording:
        expected = step()
    recording.lock().write(tmp_path / "lock.json")
    lock = read_lock(tmp_path / "lock.json")
    assert [each.problem.words for each in lock.entries if each.descriptor] == ["4x5x20 fp16 NN to fp16"]
    names = {each.operator for each in lock.operators}
    assert names == {"aten::_scaled_dot_product_flash_attention_for_cpu", "aten::mm", "aten::silu"}
    (declined,) = [each for each in lock.operators if each.operator == "aten::mm"]
    assert "float32" in declined.arguments
    with locked_products(lock) as replay:
        for found, other in zip(step()[1:], expected[1:], strict=True):
            assert torch.equal(found, other)
        attention(x)
    assert replay.library == {"aten::_scaled_dot_product_flash_attention_for_cpu": 2, "aten::mm": 1}
    assert replay.report()[1] == (
        "PyTorch computed 3 calls of aten::_scaled_dot_product_flash_attention_for_cpu, aten::mm; samples of them "
        "agree with those of the machine that recorded the lock"
    )
    sentence = "leaves 1 other calls of aten::_scaled_dot_product_flash_attention_for_cpu to PyTorch, .* record a run"
    with locked_products(lock), pytest.raises(LockError, match=sentence):
        attention(x[:, :, :4])
    with locked_products(lock), pytest.raises(LockError, match=r"no lock holds this operation.*_scaled_grouped_mm$"):
        torch.nn.functional.conv1d(x[0], x[0])


def test_inference_is_recorded_as_it_runs() -> None:
    x, w = torch.randn(2, 8, 20).half()[:, -1:], torch.nn.Parameter(torch.randn(5, 20).half())

    def step() -> Any:
        return torch.nn.functional.silu(torch.nn.functional.linear(x, w)) + torch.nn.functional.rms_norm(w[:, :5], (5,))

    with torch.inference_mode(), recorded_products("toy") as recording:
        step()
    lock = recording.lock()
    assert [each.problem.words for each in lock.entries] == ["2x5x20 fp16 NT to fp16 ld_a=160"]
    names = {each.operator for each in lock.operators}
    assert names >= {"aten::silu", "aten::mean.dim", "aten::rsqrt"}
    assert not names & {"aten::linear", "aten::rms_norm", "aten::mm"}
    with torch.inference_mode(), locked_products(lock) as replay:
        step()
    assert replay.replayed.total() == 1


def test_operators_of_a_backward_pass_are_noted_once_and_run_as_before() -> None:
    def step(x: Any) -> Any:
        y = torch.nn.functional.dropout(torch.where(x > 0, x, 0.0) * 2 + 1 / (1 + x * x), 0.0)
        (torch.softmax(y, -1) ** 2.0).sum().backward()
        return x.grad

    given = torch.randn(3, 4)
    expected = step(given.clone().requires_grad_())
    with recorded_products("toy") as recording:
        assert torch.equal(step(given.clone().requires_grad_()), expected)
    operators = recording.lock().operators
    names = [each.operator for each in operators]
    assert {"aten::_softmax", "aten::_softmax_backward_data", "aten::sum"} <= set(names)
    assert not {"aten::mul.Tensor", "aten::add.Tensor", "aten::where.self"} & set(names)
    assert all(each.digests for each in operators)
    assert noted_operators._active == []


@pytest.mark.parametrize("expression", [
    "x // 2", "7 // x", "x.floor_divide_(2.0)", "torch.floor_divide(x, 2)", "x % 3", "torch.fmod(x, 2)", "2 ** x",
    "torch.rsub(x, 1)", "torch.true_divide(x, 3)", "torch.where(x > 0, 1.0, x)", "x.masked_fill(x > 0, 2.0)",
    "x.index_fill(0, torch.tensor([1]), 2.0)", "x.clamp(0, 1)", "torch.lerp(x, x, 0.5)", "torch.xlogy(x, 2)",
    "torch.special.xlog1py(2, x)", "torch.isin(x, 1.0)", "x.fill_(3)", "x.index_put((torch.tensor([0]),), x[0])",
    "x.__setitem__(0, 2.0)", "torch.heaviside(x, x)", "torch.copysign(x, -1)", "x.addcmul(x, x, value=2)",
    "torch.linspace(0, 1, 4)", "torch.bucketize(1.0, x[0])", "torch.logical_or(x, x)", "x.eq(2)", "x.ldexp(x)",
])  # fmt: skip
def test_numbers_in_place_of_tensors_do_not_stop_a_recording(expression: str) -> None:
    def run() -> Any:
        x = torch.arange(1.0, 13.0).reshape(3, 4)
        return eval(expression, {"torch": torch, "x": x}), x

    expected = run()
    with recorded_products("toy") as recording:
        found = run()
    assert [None if each is None else each.tolist() for each in found] == [
        None if each is None else each.tolist() for each in expected
    ]
    recording.lock()


def test_another_machine_compares_samples_before_it_replays(tmp_path: Path) -> None:
    x, path = torch.randn(1, 2, 8, 16), tmp_path / "lock.json"
    with recorded_products("toy", operators=False) as recording:
        attention(x)
    lock = recording.lock()
    (entry,) = lock.operators
    here = machine_of(entry.arguments)
    assert entry.recorded == here
    digest = entry.digests[here]

    def on_another_machine(found: str) -> LibraryOperator:
        return entry.model_copy(update={"recorded": "far", "digests": {"far": found}})

    lock.model_copy(update={"operators": (on_another_machine(digest),)}).write(path)
    with locked_products(read_lock(path)), pytest.raises(LockError, match="compared on far: run `bitwise lock check"):
        attention(x)
    assert checked(path) == (0, "1 agrees\n")
    assert LockCheckAnswer.model_validate_json(checked(path, "--json")[1]).counts == {"agrees": 1}
    assert len(read_lock(path).operators[0].digests) == 1
    assert checked(path, "--write")[0] == 0
    with locked_products(read_lock(path)) as replay:
        attention(x)
    assert replay.library.total() == 1
    lock.model_copy(update={"operators": (on_another_machine("0" * 64),)}).write(path)
    status, printed = checked(path, "--write")
    assert (status, printed.splitlines()[-1]) == (1, "1 differs")
    with locked_products(read_lock(path)), pytest.raises(LockError, match="differ between far and this machine"):
        attention(x)
    changed = entry.model_copy(update={"digests": {here: "0" * 64}})
    assert [each.verdict for each in checked_operators([changed])] == ["differs"]
    assert [each.operator for each in checked_operators([changed])] == [changed]


def test_an_operator_without_a_sample_is_not_replayed() -> None:
    a = torch.randn(4, 20).half()
    index = torch.tensor([7, 3])
    with recorded_products("toy") as recording:
        torch.nn.functional.dropout(a.float())
        torch.index_select(a, 0, index % 4)
        torch._addmm_activation(a[0].float(), a.float(), torch.ones(20, 20))
    found = {each.operator: each for each in recording.lock().operators}
    assert found["aten::bernoulli_.float"].reason == "it draws random numbers"
    assert found["aten::index_select"].digests
    assert found["aten::_addmm_activation"].digests
    verdicts = {each.operator.operator: each.verdict for each in checked_operators(found.values())}
    assert (verdicts["aten::bernoulli_.float"], verdicts["aten::index_select"]) == ("no sample", "agrees")


@pytest.mark.parametrize(("other_threads", "noted"), [("cover", True), ("ignore", False)])
def test_operators_of_other_threads_are_noted_where_their_products_are(other_threads: Any, noted: bool) -> None:
    with recorded_products("toy", other_threads=other_threads) as recording:
        thread = threading.Thread(target=lambda: torch.softmax(torch.ones(2, 3), -1))
        thread.start()
        thread.join()
    assert ("aten::_softmax" in {name for name, _ in recording._calls}) == noted
    assert noted_operators._covering == []
