"""Calls with addends, activations, scales and groups on a CPU: bytes of a toy library, its lock, and refused calls."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, Epilogue, GEMMDesc, Step
from bitwise_core.descriptors.evaluation import evaluate_finished
from bitwise_core.descriptors.problem import BiasedGEMM, Finish, FinishedGEMM, GEMMProblem, ProblemError
from bitwise_core.plugins import registry
from bitwise_torch import (
    NotCovered,
    ProductError,
    addmm,
    addmm_activation,
    addmv,
    baddbmm,
    grouped_mm,
    locked_products,
    matmul,
    product_calls,
    product_forms,
    ready_launches,
    recorded_products,
    scaled_mm,
)
from bitwise_torch.locks import Lock, LockError, lock_of
from bitwise_torch.locks.lock_diff import differences
from bitwise_torch.ready_launches import ReadyLaunches
from bitwise_torch.tensor_problems import problem_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def sums(problem: GEMMProblem, dtype: str = "fp32") -> GEMMDesc:
    return GEMMDesc(
        k=problem.k, left_dtype=problem.a, right_dtype=problem.b, output_dtype=dtype, path="fma", k_cuts=(Cut(span=3),)
    )


def finished(problem: GEMMProblem, finish: Finish) -> FinishedGEMM:
    """Return what the toy library computes: fused products of addends, and scales one after the other."""
    steps: list[Step | str] = ["multiply"] * {"none": 0, "tensor": 1, "row": 2, "blocks": 0}[finish.scales]
    if finish.addend != "none":
        fields: dict[str, Any] = {"value": finish.alpha, "operand_value": finish.beta, "operand_dtype": problem.out}
        steps.append(Step(name="axpby", fused="x", **fields))
    elif finish.alpha != 1:
        steps.append(Step(name="scale", value=finish.alpha))
    steps += ["relu"] if finish.activation == "relu" else []
    steps.append(Step(name="convert", dtype=problem.out))
    if finish.scales == "blocks":
        product = sums(problem).model_copy(update={"k_cuts": (Cut(span=128),)})
        return FinishedGEMM(product=product, steps=Epilogue.of(*steps), block_scaling="product_first")
    return FinishedGEMM(product=sums(problem), steps=Epilogue.of(*steps))


class Toy:
    """A library that covers fp16 and fp8, without gelu; biases are added in fp32."""

    name = library = "toy"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        raise NotCovered("toy describes problems only")

    def describe_problem(
        self, problem: GEMMProblem, *, alignment: Any = None, library: str | None = None, device: Any = None
    ) -> GEMMDesc | BiasedGEMM | FinishedGEMM:
        if problem.finish is not None:
            if problem.finish.activation == "gelu":
                raise NotCovered("toy has no gelu")
            return finished(problem, problem.finish)
        desc = sums(problem, problem.out)
        return BiasedGEMM(product=desc) if problem.epilogue == "bias" else desc

    def describe_group(self, problem: GEMMProblem, *, device: Any = None) -> FinishedGEMM:
        return finished(problem, problem.finish or Finish())

    def provenance(self, *, library: str | None = None) -> dict[str, str]:
        return {"library": "toy 1.0"}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.default(), profiles=(Toy(),))
    monkeypatch.setattr(registry, "default", lambda: found)


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def eighths(*shape: int, seed: int = 0) -> Any:
    return normal(*shape, seed=seed).float().to(torch.float8_e4m3fn)


def patterns(tensor: Any) -> Any:
    size = tensor.element_size()
    return tensor.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]).numpy().view(f"u{size}")


A, B, C = normal(4, 7), normal(7, 5, seed=1), normal(4, 5, seed=2)


def wanted(problem: GEMMProblem, finish: Finish, a: Any, b: Any, *operands: Any) -> Any:
    return evaluate_finished(finished(problem, finish), patterns(a), patterns(b), [patterns(each) for each in operands])


def problem(m: int = 4, n: int = 5, k: int = 7, **fields: Any) -> GEMMProblem:
    return GEMMProblem(m=m, n=n, k=k, **{"a": "fp16", "b": "fp16", "out": "fp16", **fields})


def test_addends_have_the_bytes_of_the_description() -> None:
    finish = Finish(alpha=1.3, beta=-0.7, addend="matrix")
    found = addmm(C, A, B, alpha=1.3, beta=-0.7, like="toy")
    assert (patterns(found) == wanted(problem(), finish, A, B, C)).all()
    vector = addmm(C[0], A, B, alpha=1.3, like="toy")
    finish = Finish(alpha=1.3, beta=1, addend="vector")
    assert (patterns(vector) == wanted(problem(), finish, A, B, C[0].expand(4, 5))).all()
    # A vector with another beta is a matrix, and an addend with beta = 0 is ignored, NaNs included.
    finish = Finish(beta=2, addend="matrix")
    assert (patterns(addmm(C[0], A, B, beta=2, like="toy")) == wanted(problem(), finish, A, B, C[0].expand(4, 5))).all()
    nan = torch.full_like(C, float("nan"))
    assert (patterns(addmm(nan, A, B, beta=0, alpha=3, like="toy")) == wanted(problem(), Finish(alpha=3), A, B)).all()
    plain = addmm(nan, A, B, beta=0, like="toy")
    assert torch.equal(plain, matmul(A, B, desc=sums(problem(), "fp16")))


def test_a_bias_alone_is_that_of_the_library() -> None:
    sum_in_fp32 = matmul(A, B, desc=sums(problem()), out_dtype=torch.float32)
    assert torch.equal(addmm(C[0], A, B, like="toy"), (sum_in_fp32 + C[0].float()).half())


def test_the_stride_of_a_single_row_is_part_of_a_problem_with_a_bias() -> None:
    stored, bias = normal(3, 12, seed=3), normal(5, seed=4)
    row = stored[:1, :7]
    dense = row.flatten().clone()[None]
    assert (row.stride(), dense.stride()) == ((12, 1), (7, 1))
    calls: tuple[tuple[str, tuple[Any, ...], dict[str, Any], int | None], ...] = (
        ("addmm", (bias, row, B), {}, 12), ("addmm", (bias, row, B), {"alpha": 0.5}, 12),
        ("addmm", (bias[None], row, B), {}, 12), ("_addmm_activation", (bias, row, B), {}, 12),
        ("addmm", (bias[None], row, B), {"beta": 0.5}, None), ("addmm", (bias, dense, B), {}, None),
    )  # fmt: skip
    for name, arguments, options, leading in calls:
        form, _ = product_calls.described_call(name, arguments, options, "toy")
        assert form.problem.ld_a == leading
    assert torch.equal(addmm(bias, row, B, like="toy"), addmm(bias, dense, B, like="toy"))
    with recorded_products("toy", operators=False) as recording:
        expected = torch.addmm(bias, row, B)
    lock = recording.lock()
    assert [each.problem.ld_a for each in lock.entries] == [12]
    with locked_products(lock), torch.no_grad():
        found = torch.addmm(bias, row, B)
        with pytest.raises(LockError, match="is not in the lock"):
            torch.addmm(bias, dense, B)
    assert found.shape == expected.shape
    for short in (stored.as_strided((1, 7), (3, 1)), stored.t()[:1, :3]):
        with pytest.raises(NotCovered, match="a is one row with the stride"):
            addmm(bias, short, normal(short.shape[1], 5), like="toy")


def test_batches_and_activations() -> None:
    a, b, c = normal(3, 4, 7), normal(3, 7, 5, seed=1), normal(3, 4, 5, seed=2)
    found = baddbmm(c, a, b, beta=0.3, like="toy")
    finish = Finish(beta=0.3, addend="matrix")
    for left, right, addend, out in zip(a, b, c, found, strict=True):
        assert (patterns(out) == wanted(problem(), finish, left, right, addend)).all()
    found = addmm_activation(C[0], A, B, like="toy")
    finish = Finish(beta=1, addend="vector", activation="relu")
    assert (patterns(found) == wanted(problem(), finish, A, B, C[0].expand(4, 5))).all()
    assert bool((found == 0).any())
    with pytest.raises(NotCovered, match="toy has no gelu"):
        addmm_activation(C[0], A, B, use_gelu=True, like="toy")


@pytest.mark.parametrize("scales", ["tensor", "row"])
def test_scaled_products(scales: str) -> None:
    a, b, bias = eighths(4, 7), eighths(5, 7, seed=1).t(), torch.randn(5).bfloat16()
    given = problem(a="e4m3", b="e4m3", out="bf16", transpose_b=True)
    scale_a, scale_b = (torch.rand(4, 1), torch.rand(1, 5)) if scales == "row" else (torch.rand(()), torch.rand(1))
    finish = Finish(scales=scales, beta=1, addend="vector", fast_accumulation=True)  # type: ignore[arg-type]
    operands = [scale_b.expand(4, 5), scale_a.expand(4, 5)] if scales == "row" else [(scale_a * scale_b).expand(4, 5)]
    options = {"bias": bias, "out_dtype": torch.bfloat16, "use_fast_accum": True}
    found = scaled_mm(a, b, scale_a, scale_b, like="toy", **options)
    assert (patterns(found) == wanted(given, finish, a, b, *operands, bias.expand(4, 5))).all()


@pytest.mark.parametrize("blocks", [(1, 128), (1, 1), (128, 1)])
def test_blocks_of_k_have_scales(blocks: tuple[Any, Any]) -> None:
    m, n, k = 130, 3, 140
    a, b, bias = eighths(m, k), eighths(n, k, seed=1).t(), torch.randn(n).bfloat16()
    scale_a, scale_b = torch.rand(-(-m // blocks[0]), 2), torch.rand(-(-n // blocks[1]), 2).t()
    given = problem(m, n, k, a="e4m3", b="e4m3", out="bf16", transpose_b=True)
    finish = Finish(scales="blocks", blocks=blocks, beta=1, addend="vector")
    rows, columns = (torch.arange(each) // size for each, size in zip((m, n), blocks, strict=True))
    operands = scale_a[rows], scale_b[:, columns], bias.expand(m, n)
    expected = wanted(given, finish, a, b, *operands)
    found = scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=torch.bfloat16, like="toy")
    assert (patterns(found) == expected).all()
    (p, s), one = (torch.zeros(m, n), torch.zeros(m, n)), np.zeros((m, n), np.float64)
    for block in range(2):  # sums of few eighths are exact
        part = slice(128 * block, 128 * (block + 1))
        p, s = a[:, part].float() @ b[part].float(), operands[0][:, block, None] * operands[1][None, block]
        one = (p.double().numpy() * s.double().numpy() + one).astype(np.float32).astype(np.float64)
    assert torch.equal(found, (torch.from_numpy(one).float() + bias.float()).bfloat16())
    lock = Lock.from_text(
        lock_of([(given.model_copy(update={"finish": finish}), finished(given, finish))], {}).to_text()
    )
    assert torch.equal(found, scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=torch.bfloat16, lock=lock))


def test_groups_are_products_of_their_parts() -> None:
    a, b = torch.randn(9, 6).bfloat16(), torch.randn(3, 6, 5).bfloat16()
    ends = torch.tensor([2, 2, 7], dtype=torch.int32)

    def product(left: Any, right: Any) -> Any:
        shape = {"m": left.shape[0], "n": right.shape[1], "k": left.shape[1]}
        given = GEMMProblem(**shape, a="bf16", b="bf16", out="bf16")
        return wanted(given, Finish(), left, right)

    found = grouped_mm(a, b, ends, like="toy")
    assert (patterns(found[:2]) == product(a[:2], b[0])).all()
    assert (patterns(found[2:7]) == product(a[2:7], b[2])).all()
    assert bool((found[7:] == 0).all())
    whole = grouped_mm(b.transpose(1, 2).contiguous(), b, like="toy")
    assert (patterns(whole[1]) == product(b[1].t(), b[1])).all()
    columns = grouped_mm(b.transpose(1, 2).contiguous(), a.t(), ends, like="toy")
    assert (patterns(columns[:, 2:7]) == product(b[2].t(), a.t()[:, 2:7])).all()
    parts = grouped_mm(a.t(), a, ends, like="toy")
    assert (patterns(parts[2]) == product(a.t()[:, 2:7], a[2:7])).all()
    assert bool((parts[1] == 0).all())
    scale_a, scale_b = torch.rand(9), torch.rand(3, 5)
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    found = grouped_mm(a, b, ends, scale_a=scale_a, scale_b=scale_b, like="toy")
    given = GEMMProblem(m=5, n=5, k=6, a="e4m3", b="e4m3", out="bf16")
    operands = scale_a[2:7, None].expand(5, 5), scale_b[2][None].expand(5, 5)
    assert (patterns(found[2:7]) == wanted(given, Finish(scales="row"), a[2:7], b[2], *operands)).all()


def test_a_program_is_recorded_and_replayed() -> None:
    calls = [
        lambda: torch.addmm(C, A, B, beta=0.5, alpha=2),
        lambda: torch.addmm(C[0], A, B),
        lambda: torch.addmm(C[0], A, B, alpha=2),
        lambda: torch.addmm(C, A, B, beta=0),
        lambda: torch.baddbmm(C[None], A[None], B[None]),
    ]
    with recorded_products("toy") as recording:
        for call in calls:
            call()
    lock = recording.lock()
    assert (len(lock.entries), lock.declined, recording.not_locked.total()) == (5, 0, 0)
    assert Lock.from_text(lock.to_text()) == lock
    assert {each.change for each in differences(lock, lock)} == {"same"}
    with locked_products(Lock.from_text(lock.to_text())) as replay:
        for _ in range(2):
            found = [call() for call in calls]
    assert replay.replayed.total() == 10
    assert torch.equal(found[0], addmm(C, A, B, beta=0.5, alpha=2, lock=lock))
    assert torch.equal(found[1], addmm(C[0], A, B, like="toy"))
    assert torch.equal(found[2], addmm(C[0], A, B, alpha=2, like="toy"))
    assert torch.equal(found[4], baddbmm(C[None], A[None], B[None], lock=lock))
    with locked_products(lock), pytest.raises(LockError, match=r"with 0\.25 times a matrix added is not in the lock"):
        torch.addmm(C, A, B, beta=0.25)


def test_addends_of_other_shapes_are_expanded() -> None:
    finish = Finish(beta=1, addend="matrix")
    for addend in (C[:, :1], C[:1, :1], C[0, :1], C[0, 0]):
        found = addmm(addend, A, B, like="toy")
        assert (patterns(found) == wanted(problem(), finish, A, B, addend.expand(4, 5).contiguous())).all()
    for addend in (C[0, :1], C[0, 0]):
        with pytest.raises(NotCovered, match="PyTorch takes some for a bias"):
            addmm(addend, A[:1], B, like="toy")
    row = wanted(problem(), Finish(beta=1, addend="row"), A, B, C[:1].expand(4, 5).contiguous())
    assert (patterns(addmm(C[:1], A, B, like="toy")) == row).all()
    scaled_row = wanted(problem(), Finish(beta=2, addend="matrix"), A, B, C[:1].expand(4, 5).contiguous())
    assert (patterns(addmm(C[:1], A, B, beta=2, like="toy")) == scaled_row).all()
    with pytest.raises(NotCovered, match="the added row is not dense"):
        addmm(torch.zeros(1, 10).half()[:, ::2], A, B, like="toy")
    scaled = addmv(C[:, 0], A, B[:, 0].contiguous(), alpha=0.3, beta=0.7, like="toy")
    rounded = Finish(alpha=float(torch.tensor(0.3).half()), beta=float(torch.tensor(0.7).half()), addend="matrix")
    assert rounded.alpha != 0.3
    assert (patterns(scaled[:, None]) == wanted(problem(n=1), rounded, A, B[:, :1], C[:, :1])).all()
    column = addmv(C[0, 0], A, B[:, 0].contiguous(), like="toy")
    expected = wanted(problem(n=1), finish, A, B[:, :1], C[:1, :1].expand(4, 1).contiguous())
    assert (patterns(column[:, None]) == expected).all()
    found = baddbmm(C[0], A[None], B[None], like="toy")
    assert (patterns(found[0]) == wanted(problem(), finish, A, B, C[:1].expand(4, 5).contiguous())).all()


def test_operations_in_place_and_sums_of_batches_are_replayed() -> None:
    a, b = normal(3, 4, 7), normal(3, 7, 5, seed=1)

    def steps() -> list[Any]:
        vector, out = C[:, 0].contiguous(), torch.empty(4, 5).half()
        return [
            C.clone().addmm_(A, B, beta=0.5), torch.addmv(vector, A, B[:, 0].contiguous(), alpha=2),
            vector.clone().addmv_(A, B[:, 0].contiguous()), C.expand(3, 4, 5).contiguous().baddbmm_(a, b),
            torch.addbmm(C, a, b, beta=0.5), torch.addbmm(C[:1], a, b, beta=0.5, out=out),
            C.clone().addbmm_(a[:1], b[:1]),
        ]  # fmt: skip

    with recorded_products("toy") as recording:
        steps()
    lock = recording.lock()
    assert (lock.declined, recording.not_locked.total()) == (0, 0)
    assert [each.problem.words.partition(" with ")[2] for each in lock.entries if each.problem.n == 5] == [
        "0.5 times a matrix added",
        "a matrix added",
        "a matrix added",
    ]
    with locked_products(lock) as replay:
        found = steps()
    assert (replay.replayed.total(), replay.not_replayed.total()) == (11, 0)
    half, one = Finish(beta=0.5, addend="matrix"), Finish(beta=1, addend="matrix")
    assert (patterns(found[0]) == wanted(problem(), half, A, B, C)).all()
    doubled = Finish(alpha=2, beta=1, addend="matrix")
    assert (patterns(found[1][:, None]) == wanted(problem(n=1), doubled, A, B[:, :1], C[:, :1])).all()
    assert (patterns(found[2][:, None]) == wanted(problem(n=1), one, A, B[:, :1], C[:, :1])).all()
    assert (patterns(found[3][2]) == wanted(problem(), one, a[2], b[2], C)).all()
    for addend, total in ((C, found[4]), (C[:1].expand(4, 5).contiguous(), found[5])):
        expected = addmm(addend, a[0], b[0], beta=0.5, lock=lock)
        for left, right in zip(a[1:], b[1:], strict=True):
            expected = addmm(expected, left, right, lock=lock)
        assert torch.equal(total, expected)
    assert torch.equal(found[6], addmm(C, a[0], b[0], lock=lock))


def test_groups_are_replayed_whatever_their_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.randn(9, 8).bfloat16(), torch.randn(3, 8, 16).bfloat16()
    ends = torch.tensor([2, 2, 7], dtype=torch.int32)
    with recorded_products("toy") as recording:
        torch._grouped_mm(a, b, offs=ends)
    lock = recording.lock()
    assert [each.problem.words for each in lock.entries] == ["a group of bf16 to bf16"]
    assert Lock.from_text(lock.to_text()) == lock
    other, more = torch.randn(6, 24).bfloat16(), torch.randn(2, 24, 16).bfloat16()
    parts = torch.tensor([4, 6], dtype=torch.int32)
    with locked_products(lock) as replay:
        found = torch._grouped_mm(other, more, offs=parts)
        assert torch.equal(found, grouped_mm(other, more, parts, like="toy"))
    assert torch.equal(found, grouped_mm(other, more, parts, lock=lock))
    assert replay.report() == ["1 products of 1 problems ran from the lock, 0 ran in this machine's library"]
    with locked_products(lock_of([], {})), pytest.raises(LockError, match="a group of bf16 to bf16 is not in the lock"):
        torch._grouped_mm(a, b, offs=ends)
    with pytest.raises(LockError, match="a group of e4m3 to bf16 with a scale for each row and column is not in"):
        grouped_mm(
            a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), ends, scale_a=torch.ones(9),
            scale_b=torch.ones(3, 16), lock=lock,
        )  # fmt: skip
    # A library whose order depends on k has no description for all groups.
    described = Toy.describe_group
    monkeypatch.setattr(
        Toy, "describe_group",
        lambda self, given, device=None: finished(given, Finish(alpha=float(given.k))) if given.k > 7
        else described(self, given, device=device),
    )  # fmt: skip
    with recorded_products("toy") as recording:
        torch._grouped_mm(a, b, offs=ends)
    assert recording.lock().entries[0].declined == (
        "the order of a group depends on k: that of 8 values is another one"
    )


def test_locks_whose_steps_differ_are_different() -> None:
    given = problem(finish=Finish(beta=0.5, addend="matrix"))
    one, other = finished(given, given.finish or Finish()), finished(given, Finish(beta=0.25, addend="matrix"))
    (found,) = differences(lock_of([(given, one)], {}), lock_of([(given, other)], {}))
    assert found.change == "moved"
    text = lock_of([(given, one)], {}).to_text()
    with pytest.raises(LockError, match="steps belong to a problem with a finish"):
        Lock.from_text(text.replace(',"finish":{"beta":0.5,"addend":"matrix"}', ""))
    with pytest.raises(LockError, match="its k or its types differ"):
        Lock.from_text(text.replace("name=convert dtype=fp16", "name=convert dtype=bf16"))
    with pytest.raises(LockError):
        Lock.from_text(text.replace("step(name=convert dtype=fp16)", "step(name=convert)"))


@pytest.mark.parametrize(
    ("error", "sentence", "call"),
    [
        (ProductError, "exactly one of like", lambda: addmm(C, A, B)),
        (ProductError, "argument 0 is a int", lambda: addmm(1, A, B, like="toy")),  # type: ignore[arg-type]
        (ProductError, "needs 2 axes, and k in both", lambda: addmm(C, A, A, like="toy")),
        (ProductError, "give one type", lambda: addmm(C, A, B.float(), like="toy")),
        (ProductError, "no installed plugin describes the products", lambda: addmm(C, A, B, like="other")),
        (ProductError, "computes no gradients", lambda: addmm(C.clone().requires_grad_(), A, B, like="toy")),
        (NotCovered, r"an addend of shape \(4, 3\) cannot be expanded to \(4, 5\)",
         lambda: addmm(C[:, :3], A, B, like="toy")),
        (NotCovered, "the addend is of torch.float32", lambda: addmm(C.float(), A, B, like="toy")),
        (NotCovered, "followed by the activation", lambda: addmm_activation(C, A, B, like="toy")),
        (NotCovered, "one scale for each operand, one for each row",
         lambda: scaled_mm(eighths(4, 7), eighths(7, 5), torch.rand(2, 1), torch.rand(1, 5), like="toy")),
        (NotCovered, "scales of torch.float16", lambda: scaled_mm(
            eighths(4, 7), eighths(7, 5), torch.ones(1).half(), torch.ones(1).half(), like="toy")),
        (LockError, "is not in the lock", lambda: addmm(C, A, B, beta=2, lock=lock_of([], {}))),
        (ProductError, "give both of scale_a and scale_b",
         lambda: grouped_mm(A, B, torch.tensor([4]), scale_a=torch.ones(4), like="toy")),
        (ProductError, "offsets unless both have 3", lambda: grouped_mm(A, B, like="toy")),
    ],
)  # fmt: skip
def test_calls_that_do_not_fit_are_refused(error: type[Exception], sentence: str, call: Any) -> None:
    with pytest.raises(error, match=sentence):
        call()


def test_steps_of_library_calls_are_no_operators_of_pytorch() -> None:
    step = Step(name="axpby", value=2.0, operand_value=3.0, fused="x")
    with pytest.raises(ProductError, match="axpby of a library's call has no operator of PyTorch"):
        matmul(A, B, desc=sums(problem(), "fp16"), epilogue=Epilogue.of(step), operands=(C,))


def test_scaled_sums_are_prepared_once_for_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, and before a bias, whose kernel has the sums."""
    said: list[Any] = []

    def prepared(desc: Any, a: Any, b: Any, scales_a: Any, scales_b: Any, out: Any) -> Any:
        said.append("prepared")
        return lambda *at: said.append(at)

    launcher: Any = SimpleNamespace(
        prepare_scaled=prepared, apply_epilogue=lambda steps, sums, operands, out: said.append((sums, operands)),
        name="stub", launch=None, product=None, serves=None,
    )  # fmt: skip
    monkeypatch.setattr(product_forms, "BlockScalingLauncher", SimpleNamespace)
    fused: dict[str, Any] = {}
    sums: dict[str, Any] = {}
    monkeypatch.setattr(product_forms, "_fused", fused)
    monkeypatch.setattr(product_forms, "_sums", sums)
    a, b, x, y, bias = (torch.ones(2, 2) for _ in range(5))
    for steps, operands in (["convert"], (x, y)), (["add", "convert"], (x, y, bias)):
        desc: Any = SimpleNamespace(
            steps=SimpleNamespace(steps=[SimpleNamespace(name=each) for each in steps]), product=None
        )
        for _ in range(2):
            product_forms._scaled_blocks("key", desc, launcher, a, b, operands, out := torch.empty(2, 2))
    launch = fused["key"][1]
    assert launch is not None
    assert (said[0], said[1], said[2]) == ("prepared", "prepared", "prepared")
    assert said[3][1] == (bias,)
    assert said[4][:2] == (a.data_ptr(), b.data_ptr())
    assert said[4][3:] == (x.data_ptr(), y.data_ptr())
    assert said[5][0].data_ptr() == said[4][2] != out.data_ptr()
    assert list(sums) == ["key"]


class Settings:
    """The launches of products with an addend, and the settings of the library, which are its token."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launches: list[tuple[int, ...]] = []
        self.settings = "a"
        monkeypatch.setattr(Toy, "cache_token", lambda _: self.settings, raising=False)
        monkeypatch.setattr(product_calls, "_ready", ReadyLaunches())
        monkeypatch.setattr(product_calls, "_tokens", {})
        monkeypatch.setattr(product_calls, "fused_launch", lambda *_: lambda *given: self.launches.append(given))
        monkeypatch.setattr(
            ready_launches, "_memory_of", lambda out: (lambda _: out, out.data_ptr() & -out.data_ptr() & 255)
        )


def test_a_repeated_product_with_an_addend_is_launched_for_the_same_settings_and_operands_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Settings(monkeypatch)
    a, b, bias = torch.randn(3, 8).half(), torch.randn(8, 5).half(), torch.randn(5).half()
    first = addmm(bias, a, b, like="toy")
    assert not seen.launches
    again = addmm(bias, a, b, like="toy")
    assert seen.launches == [(a.data_ptr(), b.data_ptr(), again.data_ptr(), bias.data_ptr())]
    assert again.data_ptr() == first.data_ptr()
    other = [
        lambda: addmm(bias, a, b, like="toy", alpha=2.0), lambda: addmm(bias, a[:2], b, like="toy"),
        lambda: addmm_activation(bias, a, b, like="toy"), lambda: addmm(torch._neg_view(bias), a, b, like="toy"),
    ]  # fmt: skip
    for call in other:
        call()
    assert len(seen.launches) == 1
    seen.settings = "b"
    addmm(bias, a, b, like="toy")
    assert len(seen.launches) == 1, "another setting may choose another descriptor"
    with pytest.raises(ProductError, match="computes no gradients"):
        addmm(bias, a.clone().requires_grad_(), b, like="toy")
    with pytest.raises(ProductError, match="computes no gradients"):
        addmm(bias.requires_grad_(), a, b, like="toy")


def test_a_batch_of_one_element_of_transposed_views_is_no_problem() -> None:
    a, b = torch.ones(3, 1, 8), torch.ones(3, 8, 1)
    assert problem_of(a, b).batch == 3
    for left, right in ((torch.ones(3, 8, 1).transpose(1, 2), b), (a, torch.ones(3, 1, 8).transpose(1, 2))):
        with pytest.raises(ProblemError, match="an operand is a view of transposed vectors"):
            problem_of(left, right)
        dense = (each.clone(memory_format=torch.contiguous_format) for each in (left, right))
        assert problem_of(*dense).k == 8
    assert problem_of(torch.ones(3, 8, 2).transpose(1, 2), b).m == 2
