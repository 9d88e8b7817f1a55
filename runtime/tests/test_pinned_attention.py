"""Attention that a lock pins, and operators of PyTorch whose own runs may differ."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from typer.testing import CliRunner

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.plugins import registry
from bitwise_torch import (
    attention,
    batch_invariant,
    locked_products,
    operator_samples,
    product_replay,
    recorded_products,
)
from bitwise_torch.lock_command import app
from bitwise_torch.locks import (
    LibraryOperator,
    Lock,
    LockError,
    PinnedAttention,
    attention_differences,
    lock_of,
    read_lock,
)
from bitwise_torch.locks.library_operators import UndeterminedWarning
from bitwise_torch.operator_samples import checked_operators
from bitwise_torch.product_recording import Recording
from bitwise_torch.product_replay import Replay
from bitwise_torch.receipts import Receipt, receipt_differences, receipt_of, verified
from bitwise_torch.receipts.receipt_file import Environment

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

HERE = Environment(packages={}, python="3", machine="m")
BACKWARD = "aten::_scaled_dot_product_cudnn_attention_backward"
CALL = '[[{"tensor":["float16",[1],[1],"cuda"]}],{}]'
LEFT = LibraryOperator(operator=BACKWARD, arguments=CALL, recorded="a GPU", digests={"a GPU": "0" * 64})


class Toy:
    """A library whose products of fp16 are sums in order."""

    name = library = "toy"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> None:
        return None

    def describe_problem(self, problem: GEMMProblem, **options: Any) -> GEMMDesc:
        return GEMMDesc(
            k=problem.k, left_dtype=problem.a, right_dtype=problem.b, output_dtype=problem.out, path="fma"
        )  # fmt: skip

    def provenance(self, *, library: str | None = None) -> dict[str, str]:
        return {"library": "toy 1.0"}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.default(), profiles=(Toy(),))
    monkeypatch.setattr(registry, "default", lambda: found)


def heads(width: int, device: str = "cpu", dtype: Any = torch.float16, length: int = 5) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(1, 2, length, width, generator=generator).to(device, dtype).requires_grad_() for _ in range(3)
    ]  # fmt: skip


def step(width: int, device: str = "cpu", **options: Any) -> list[Any]:
    """Return attention and its gradients."""
    torch.manual_seed(0)
    operands = heads(width, device)
    out = torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=True, **options)
    out.backward(out.detach())
    return [out.detach(), *(each.grad for each in operands)]


def pinned_lock(width: int = 64) -> Lock:
    with recorded_products("toy", operators=False, attention="pinned") as recording:
        step(width)
    return recording.lock()


@pytest.mark.parametrize(("width", "products", "kernels"), [(64, 0, True), (24, 6, False)])
def test_attention_of_a_lock_has_the_recorded_bytes(width: int, products: int, kernels: bool, tmp_path: Path) -> None:
    with recorded_products("toy", operators=False, attention="pinned") as recording:
        wanted = step(width)
    assert not recording.not_locked
    recording.lock().write(tmp_path / "lock.json")
    lock = read_lock(tmp_path / "lock.json")
    assert lock == recording.lock()
    assert lock.version == 3
    assert lock.attention is not None
    (entry,) = lock.attention
    assert entry.heads == ("fp16", width, width)
    assert (entry.descriptor is not None) == kernels == bool(entry.gradient)
    with locked_products(lock) as replay:
        found = step(width)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert replay.replayed.total() == products
    assert not replay.library
    assert replay.report()[1] == "1 calls of attention ran in the order of the lock"
    free = step(width)
    assert not all(torch.equal(one, other) for one, other in zip(free, wanted, strict=True))
    query, key, value = heads(width)
    if kernels:
        assert torch.equal(attention(query, key, value, is_causal=True), wanted[0])
        with batch_invariant():
            assert all(torch.equal(one, other) for one, other in zip(step(width), wanted, strict=True))


def test_attention_is_the_librarys_by_default() -> None:
    with recorded_products("toy", operators=False) as recording:
        found = step(64)
    lock = recording.lock()
    assert lock.attention is None
    assert lock.version == 2
    assert '"attention"' not in lock.to_text()
    assert all(torch.equal(one, other) for one, other in zip(found, step(64), strict=True))
    with (
        pytest.raises(LockError, match='attention is \'own\'; give "library" or "pinned"'),
        recorded_products("toy", attention="own"),  # type: ignore[arg-type]
    ):
        pass


def test_another_order_than_the_locks_is_refused() -> None:
    lock = pinned_lock()
    (entry,) = lock.attention or ()
    text = str(entry.descriptor)
    for other in (
        entry.model_copy(update={"order": entry.order + 1}), entry.model_copy(update={"gradient": None}),
        entry.model_copy(update={"descriptor": text.replace("chunk=512", "chunk=256")}),
    ):  # fmt: skip
        assert other != entry
        moved = lock.model_copy(update={"attention": (other,)})
        missings: tuple[Literal["error", "pass"], ...] = ("error", "pass")
        for missing in missings:
            sentence = "attention of fp16 with heads of 64 and 64 components is locked as"
            with pytest.raises(LockError, match=sentence), locked_products(moved, missing):
                step(64)


@pytest.mark.parametrize(("width", "kernels"), [(72, 96), (80, 96), (112, 128), (176, 192), (200, 256)])
def test_heads_between_the_widths_of_kernels_have_the_order_of_the_next_one(width: int, kernels: int) -> None:
    """The zeros behind their components change no sum, and the scale is that of the narrower heads."""
    from bitwise_torch.pinned_attention import described

    narrow, wide = (torch.zeros(1, 1, 1, each, dtype=torch.float16) for each in (width, kernels))
    found, expected = described(narrow, narrow), described(wide, wide)
    assert (found.depth, found.width) == (width, width)
    assert found.descriptor is not None
    assert (found.descriptor, found.gradient) == (expected.descriptor, expected.gradient)
    given = [each.detach()[..., :1].repeat(1, 1, 1, width) for each in heads(64)]
    padded = [torch.nn.functional.pad(each, (0, kernels - width)) for each in given]
    function = torch.nn.functional.scaled_dot_product_attention
    with batch_invariant(strict=True):
        out = function(*given, is_causal=True)
        same = function(*padded, is_causal=True, scale=width**-0.5)
    assert torch.equal(out, same[..., :width])


def test_calls_that_are_not_served_are_errors_or_counted() -> None:
    lock = pinned_lock()
    with recorded_products("toy", operators=False, attention="pinned") as recording:
        found = step(64, dropout_p=0.5)
    assert all(torch.equal(one, other) for one, other in zip(found, step(64, dropout_p=0.5), strict=True))
    assert recording.not_locked.total() >= 1
    (reason,) = (each for each in recording.not_locked if each.startswith("scaled_dot_product_attention: "))
    assert "a dropout of 0 is served" in reason
    for call in (partial(step, 64, dropout_p=0.5), partial(step, 32)):
        sentence = r"is served|is not in the lock, whose heads are fp16 64 and 64"
        with pytest.raises(LockError, match=sentence), locked_products(lock):
            call()
        with locked_products(lock, "pass") as replay:
            call()
        assert replay.not_replayed.total() >= 1
        assert replay.attention is not None
        assert replay.attention.calls == 0
    operands = [each.double() for each in heads(64)]
    with locked_products(lock), pytest.raises(LockError, match=r"attention of torch\.float64; one type of fp32"):
        torch.nn.functional.scaled_dot_product_attention(*operands)


def test_a_mask_with_a_window_has_the_bytes_of_this_version_of_the_order() -> None:
    """Where this fails on purpose, `ORDER_VERSION` must change."""
    query, key, value = (each.detach() for each in heads(64, length=6))
    row = torch.arange(6)
    distance = row[:, None] - row
    mask = (distance >= 0) & (distance < 3)
    with locked_products(pinned_lock()):
        found = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
    digest = hashlib.sha256(found.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
    assert digest[:16] == "a683497e5c3c9a8c"


def test_lock_files_with_wrong_attention_are_refused() -> None:
    lock = pinned_lock()
    text = lock.to_text()
    line = text.split('"attention": [\n')[1].split("\n]")[0]
    gradient = '"gradient":' + line.split('"gradient":')[1]
    for sentence, content in (
        ("attention is pinned in version 3, and the lock has 2", text.replace('"version": 3', '"version": 2')),
        (
            "attention of fp16 with heads of 64 and 64 components is listed twice",
            text.replace(line, f"{line},\n{line}"),
        ),
        ("depth: input should be less than or equal to 65536", text.replace('"depth":64', '"depth":65537')),
        ("there is no descriptor 'attentiom'", text.replace('"attention(', '"attentiom(')),
        (
            "needs one of outputs",
            text.replace(line, line.replace('"descriptor"', '"gone"').split('"gone"')[0] + gradient),
        ),
        ("there is no such field", text.replace('"depth"', '"deep"')),
    ):
        with pytest.raises(LockError, match=sentence):
            Lock.from_text(content)


def test_differences_of_attention() -> None:
    one, free = pinned_lock(), lock_of([], {})
    (entry,) = one.attention or ()
    other = one.model_copy(update={"attention": (entry.model_copy(update={"order": 2}),)})
    wide = PinnedAttention(dtype="fp32", depth=8, width=8, order=1)
    more = one.model_copy(update={"attention": (entry, wide)})
    assert attention_differences(one, one) == attention_differences(free, free) == []
    assert [each.change for each in attention_differences(one, other)] == ["moved"]
    assert [each.change for each in attention_differences(one, more)] == ["only in b"]
    (found,) = attention_differences(free, one)
    assert (found.change, found.sentence) == ("moved", "attention is pinned in b and the library's own in a")


def test_the_command_shows_and_compares_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(
        "import torch\nx = torch.ones(1, 2, 3, 64).half()\n"
        "torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)\n"
    )

    def ran(*arguments: str) -> tuple[int, str]:
        found = CliRunner().invoke(app, list(arguments))
        return found.exit_code, found.output

    assert ran("--out", "a.json", "--attention", "pinned", "script.py")[0] == 0
    assert ran("--out", "b.json", "script.py")[0] == 3
    (entry,) = (content := read_lock("a.json")).attention or ()
    assert f"attention of fp16 with heads of 64 and 64 components: {entry.text}\n" in ran("show", "a.json")[1]
    content.model_copy(update={"attention": (entry.model_copy(update={"order": 7}),)}).write("c.json")
    assert ran("diff", "a.json", "b.json") == (
        1, "attention is pinned in a and the library's own in b\nno product\n",
    )  # fmt: skip
    assert ran("diff", "a.json", "c.json")[0] == 1
    assert ran("diff", "a.json", "a.json")[0] == 0
    status, text = ran("check", "a.json")
    assert status in (0, 3)
    assert "attention of 1 kinds of heads is computed here as it is locked" in text
    status, text = ran("check", "c.json")
    assert status == 1
    assert "components: locked as attention(" in text
    assert ran("apply", "a.json", "script.py")[1].count("1 calls of attention ran in the order of the lock") == 1
    read_lock("b.json").model_copy(update={"operators": (LEFT,)}).write("d.json")
    assert "own runs of aten::_scaled_dot_product_cudnn_attention_backward may differ: " in ran("show", "d.json")[1]
    monkeypatch.setattr(operator_samples, "machine_of", lambda text: "a GPU")
    monkeypatch.setattr(operator_samples, "sample_digest", lambda operator, text: "0" * 64)
    status, text = ran("check", "d.json")
    assert status == 3
    assert "1 not determined" in text


def test_receipts_state_pinned_attention_and_operators_that_may_differ() -> None:
    lock = pinned_lock().model_copy(update={"operators": (LEFT,)})
    receipt = receipt_of(lock, {}, HERE)
    assert Receipt.from_text(receipt.to_text()) == receipt
    assert receipt.content == lock
    kinds = {each.name: each.kind for each in receipt.claims}
    assert kinds["attention.pinned"] == kinds["pytorch.not-determined"] == "assumed"
    assert "pytorch.sampled" not in kinds
    outcomes = {each.claim: each.outcome for each in verified(receipt, lock=lock, where=HERE)}
    assert outcomes["lock"] == "held"
    assert outcomes["pytorch.not-determined"] == "not checked"
    plain = receipt_of(lock.model_copy(update={"attention": None, "version": 2}), {}, HERE)
    assert [each.part for each in receipt_differences(receipt, plain)] == ["attention", "claim"]


def test_operators_whose_own_runs_may_differ_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = LEFT.model_copy(update={"operator": "aten::_scaled_dot_product_cudnn_attention"})
    on_cpu = LEFT.model_copy(update={"arguments": CALL.replace("cuda", "cpu")})
    assert forward.undetermined is on_cpu.undetermined is None
    assert "cuDNN" in str(LEFT.undetermined)
    for module in (operator_samples, product_replay):
        monkeypatch.setattr(module, "machine_of", lambda text: "a GPU")
    monkeypatch.setattr(operator_samples, "sample_digest", lambda operator, text: "0" * 64)
    assert [each.verdict for each in checked_operators([LEFT, forward])] == ["not determined", "agrees"]
    monkeypatch.setattr(product_replay, "call_text", lambda arguments, options: CALL)
    replay = Replay(lock_of([], {}, [LEFT]), "error")

    class Operation:
        full_name = BACKWARD

    with pytest.warns(UndeterminedWarning, match='own runs may differ, .*record with attention="pinned"'):
        assert replay._library_problem(Operation(), (), {}) is None  # type: ignore[arg-type]
    assert replay._library_problem(Operation(), (), {}) is None  # type: ignore[arg-type]
    replay._library_count(BACKWARD).memory[0] += 1
    assert any("own runs of aten::_scaled_dot_product_cudnn" in each for each in replay.report())
    recording = Recording("toy", _calls={(BACKWARD, CALL): None}, not_locked=Counter())
    with pytest.warns(UndeterminedWarning):
        assert list(recording.lock().undetermined) == [BACKWARD]


@pytest.mark.gpu
def test_attention_of_a_lock_on_a_gpu() -> None:
    with recorded_products("toy", operators=False, attention="pinned") as recording:
        wanted = step(128, "cuda")
    with locked_products(recording.lock()) as replay:
        found = step(128, "cuda")
    assert replay.attention is not None
    assert replay.attention.calls == 1
    assert not replay.library
    on_cpu = step_in_lock(recording.lock())
    for one, other, third in zip(wanted, found, on_cpu, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one.cpu(), third)


def step_in_lock(lock: Lock) -> list[Any]:
    with locked_products(lock):
        return step(128)
