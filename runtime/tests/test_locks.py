"""Products written down and replayed on a CPU: what a lock file holds, and what runs from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_torch import NotCovered, ProductError, locked_products, matmul, recorded_products
from bitwise_torch.locks import LockError, lock_of
from bitwise_torch.tensor_problems import problem_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def descriptor(k: int, span: int = 3) -> GEMMDesc:
    return GEMMDesc(
        k=k, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma", k_cuts=(Cut(span=span),)
    )


class Toy:
    """A library whose sums close an accumulator every 3 values, for fp16 alone; with 5 columns every 4."""

    name = library = "toy"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        return self.describe_problem(problem_of(a, b, out.dtype))

    def describe_problem(
        self, problem: GEMMProblem, *, alignment: Any = None, library: str | None = None, device: Any = None
    ) -> GEMMDesc:
        assert device is None or device.type == "cpu"
        if (problem.a, problem.out) != ("fp16", "fp16"):
            raise NotCovered(f"toy 1.0 is not measured on {problem.a}")
        return descriptor(problem.k, 4 if problem.n == 5 else 3)

    def provenance(self, *, library: str | None = None) -> dict[str, str]:
        return {"library": "toy 1.0", "device": "the CPU"}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.default(), profiles=(Toy(),))
    monkeypatch.setattr(registry, "default", lambda: found)


def drawn(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def patterns(matrix: Any) -> Any:
    return matrix.detach().contiguous().view(torch.int16).numpy().view(np.uint16)


def owed(desc: GEMMDesc, a: Any, b: Any) -> Any:
    return evaluate(desc, patterns(a), patterns(b))


def problem(m: int, n: int, k: int, **more: Any) -> GEMMProblem:
    return GEMMProblem(m=m, n=n, k=k, a="fp16", b="fp16", out="fp16", **more)


def test_a_model_is_recorded_and_replayed_with_its_gradients(toy: None) -> None:
    layer = torch.nn.Linear(16, 5, bias=False).half()
    layer.weight.data = drawn(5, 16, seed=1)
    x = drawn(2, 3, 16).requires_grad_()

    def step() -> Any:
        x.grad = layer.weight.grad = None
        y = layer(x)
        (y * y).sum().backward()
        return y

    with recorded_products("toy") as recording:
        step()
    lock = recording.lock()
    assert [each.problem for each in lock.entries] == [
        problem(6, 5, 16, transpose_b=True), problem(5, 16, 6, transpose_a=True), problem(6, 16, 5),
    ]  # fmt: skip
    assert not recording.left
    with locked_products(lock) as replayed:
        y = step()
    flat = x.detach().view(6, 16)
    wanted = owed(descriptor(16, 4), flat, layer.weight.t())
    assert (patterns(y).reshape(6, 5) == wanted).all()
    upstream = (2 * y.detach()).view(6, 5)
    assert (patterns(layer.weight.grad) == owed(descriptor(6), upstream.t(), flat)).all()
    assert (patterns(x.grad).reshape(6, 16) == owed(descriptor(5), upstream, layer.weight)).all()
    assert replayed.report() == ["3 products of 3 problems ran as locked, 0 as the library runs them here"]


def test_every_form_of_a_product_is_taken_over(toy: None) -> None:
    a, b, batch = drawn(4, 20), drawn(20, 5, seed=1), drawn(3, 20, 5, seed=2)
    bias, out = drawn(5, seed=3), torch.empty(4, 5).half()
    rows = drawn(20)[:1].expand(4, 20)
    lock = lock_of(
        [(problem(4, 5, 20), descriptor(20)), (problem(4, 5, 20, batch=3), descriptor(20, 7)),
         (problem(4, 5, 20, batch=1), descriptor(20, 8)), (problem(4, 5, 20, epilogue="bias"), descriptor(20, 9))], {},
    )  # fmt: skip
    with locked_products(lock) as replayed:
        for found in (torch.mm(a, b), a @ b, torch.matmul(a, b), a.mm(b), torch.mm(a, b, out=out)):
            assert (patterns(found) == owed(descriptor(20), a, b)).all()
        assert (patterns(torch.mm(rows, b)) == owed(descriptor(20), rows, b)).all()
        with torch.inference_mode():
            assert (patterns(torch.nn.functional.linear(a, b.t())) == owed(descriptor(20), a, b)).all()
        assert (patterns(torch.einsum("ik,kj->ij", a, b)) == owed(descriptor(20, 8), a, b)).all()
        many = torch.bmm(a.expand(3, 4, 20).contiguous(), batch)
        added = torch.addmm(bias, a, b)
        assert torch.equal(torch.mm(drawn(0, 20), b), torch.empty(0, 5).half())
    for each, right in zip(many, batch, strict=True):
        assert (patterns(each) == owed(descriptor(20, 7), a, right)).all()
    wide = descriptor(20, 9).model_copy(update={"output_dtype": "fp32"})
    sums = torch.from_numpy(owed(wide, a, b).view(np.float32))
    assert torch.equal(added, (sums + bias.float()).half())
    assert (replayed.replayed.total(), replayed.passed.total()) == (10, 0)


def test_a_bias_is_added_where_the_lock_says(toy: None) -> None:
    a, b, bias = drawn(9, 40), drawn(40, 33, seed=1), drawn(33, seed=3)
    desc, found = descriptor(40), {}
    for rounded_first in (False, True):
        what = BiasedGEMM(product=desc, rounded_first=rounded_first)
        lock = lock_of([(problem(9, 33, 40, epilogue="bias"), what)], {})
        with locked_products(lock):
            found[rounded_first] = torch.nn.functional.linear(a, b.t(), bias)
    sums = {each: torch.from_numpy(owed(desc.model_copy(update={"output_dtype": each}), a, b).view(f"f{size}")).float()
            for each, size in (("fp32", 4), ("fp16", 2))}  # fmt: skip
    assert torch.equal(found[False], (sums["fp32"] + bias.float()).half())
    assert torch.equal(found[True], (sums["fp16"] + bias.float()).half())
    assert not torch.equal(found[False], found[True])


def test_what_is_compiled_runs_from_the_lock_too(toy: None) -> None:
    a, b = drawn(4, 20), drawn(20, 5, seed=1)
    dropping = descriptor(20).model_copy(update={"k_dropped": 8})
    lock = lock_of([(problem(4, 5, 20), dropping)], {})
    compiled = torch.compile(lambda x, y: torch.relu(x @ y), backend="aot_eager")
    compiled(a, b)
    with locked_products(lock) as replayed:
        found = compiled(a, b)
    wanted = owed(dropping, a, b)
    assert (patterns(found) == np.where(wanted >> 15, 0, wanted)).all()
    assert replayed.report() == [
        "1 products of 1 problems ran as locked, 0 as the library runs them here",
        "1 of these problems leave the last values of k out, as the library did",
    ]


def test_what_is_not_locked_is_an_error_or_passes_by_choice(toy: None) -> None:
    a, b = drawn(4, 20), drawn(20, 5, seed=1)
    lock = lock_of([(problem(9, 5, 20), "nobody measured it")], {"library": "toy 1.0", "device": "one"})
    refused = [
        (r"torch\.mm: 4x5x20 fp16 NN to fp16 is not in the lock \(1 products of toy 1\.0, one\): record it",
         lambda: a @ b),
        ("torch.mm: 9x5x20 fp16 NN to fp16 is locked without a descriptor: nobody measured it",
         lambda: drawn(9, 20) @ b),
        ("torch.mv: it is not taken over", lambda: torch.mv(a, b[:, 0])),
        ("torch.baddbmm: it is not taken over", lambda: torch.baddbmm(drawn(1), a[None], b[None])),
        ("torch.addmm: beta = 2 and alpha = 1", lambda: torch.addmm(drawn(5), a, b, beta=2)),
        (r"torch.addmm: a matrix of \(4, 5\) and torch.float16 that is added", lambda: torch.addmm(drawn(4, 5), a, b)),
        (r"torch.mm: an output with the strides \(1, 4\)", lambda: torch.mm(a, b, out=drawn(5, 4).t())),
        ("torch.mm: matrices of torch.float64 are not described", lambda: a.double() @ b.double()),
    ]  # fmt: skip
    for why, call in refused:
        with locked_products(lock), pytest.raises(LockError, match=why):
            call()

    class Own(torch.Tensor):  # type: ignore[misc, name-defined, unused-ignore]
        """Tensors of a class of one's own."""

    meta = torch.empty(20, 5, dtype=torch.float16, device="meta")
    unlike = [
        ("torch.mm: tensors on cpu and meta", lambda: torch.mm(a, b, out=meta)),
        ("torch.mm: tensors without memory", lambda: meta.t() @ meta),
        ("torch.mm: tensors of the class Own", lambda: torch.mm(a.as_subclass(Own), b)),
        (r"torch.mm: \(4, 20\) times \(4, 20\): the shapes do not fit", lambda: torch.mm(a, a)),
    ]
    for why, call in unlike:
        with locked_products(lock), pytest.raises(LockError, match=why):
            call()
    with locked_products(lock, "pass") as replayed:
        for _, call in refused:
            call()
        assert torch.equal(a @ b, (a @ b))
    assert replayed.passed.total() == 10
    assert replayed.report()[:2] == [
        "0 products of 0 problems ran as locked, 10 as the library runs them here",
        "not locked, 3 times: mm: 4x5x20 fp16 NN to fp16 is not in the lock (1 products of toy 1.0, one): "
        "record it, or let it pass by an explicit choice",
    ]
    with pytest.raises(LockError, match='missing is \'ask\'; give "error" or "pass"'), locked_products(lock, "ask"):  # type: ignore[arg-type]
        pass


def test_a_recording_says_what_it_could_not_note(toy: None) -> None:
    with recorded_products("toy") as recording:
        drawn(2, 3).float() @ drawn(3, 2).float()
        torch.dot(drawn(3), drawn(3))
    lock = recording.lock()
    assert (lock.declined, lock.entries[0].declined) == (1, "toy 1.0 is not measured on fp32")
    assert lock.provenance == {"library": "toy 1.0", "device": "the CPU"}
    assert dict(recording.left) == {"dot: it is not taken over": 1}
    with pytest.raises(LockError, match="no plugin answers for the products of a library 'other'; there are: toy"):
        recorded_products("other").__enter__()


def test_matmul_takes_a_lock(toy: None) -> None:
    a, b = drawn(4, 20), drawn(20, 5, seed=1)
    lock = lock_of([(problem(4, 5, 20), descriptor(20)), (problem(4, 5, 20, ld_a=40), descriptor(20, 6))], {})
    for _ in range(2):
        assert (patterns(matmul(a, b, lock=lock)) == owed(descriptor(20), a, b)).all()
        gapped = drawn(4, 40)[:, :20]
        assert (patterns(matmul(gapped, b, lock=lock)) == owed(descriptor(20, 6), gapped, b)).all()
    with pytest.raises(LockError, match="4x5x20 fp16 NT to fp16 is not in the lock"):
        matmul(a, b.t().contiguous().t(), lock=lock)
    with pytest.raises(LockError, match="4x5x20 fp16 NN to fp32 is not in the lock"):
        matmul(a, b, lock=lock, out_dtype=torch.float32)
    with pytest.raises(ProductError, match="exactly one of them"):
        matmul(a, b, lock=lock, like="toy")
    with pytest.raises(ProductError, match="a has 3 axes"):
        matmul(a[None], b, lock=lock)


def test_problems_of_tensors() -> None:
    x = torch.empty(6, 40).half()
    cases = [
        (x, x.t(), problem(6, 6, 40, transpose_b=True)),
        (x[:, :8], x.t()[:8], problem(6, 6, 8, ld_a=40, transpose_b=True, ld_b=40)),
        (x[:1], x.t(), problem(1, 6, 40, transpose_b=True)),
        (x[:, :1], x[:1], problem(6, 40, 1, ld_a=40)),
        (x[:1].t(), x[0, :6][None], problem(40, 6, 1, transpose_a=True, transpose_b=True)),
        (x, x.t()[:, :1], problem(6, 1, 40, transpose_b=True)),
        (x[:, ::2], x.t()[::2], problem(6, 6, 20)),
        (x.view(2, 3, 40), x.view(2, 40, 3), problem(3, 3, 40, batch=2)),
        (x.view(2, 3, 40), x[:1, :6].view(1, 6, 1).expand(2, 6, 40).transpose(1, 2).contiguous(),
         problem(3, 6, 40, batch=2)),
        (x.view(2, 3, 40)[:, :2], x.view(2, 40, 3), problem(2, 3, 40, batch=2, stride_a=120)),
        (x.view(1, 6, 40), x.view(1, 40, 6), problem(6, 6, 40, batch=1)),
    ]  # fmt: skip
    for a, b, wanted in cases:
        assert problem_of(a, b) == wanted
    narrow = torch.empty(4, 4).to(torch.float8_e4m3fn)
    assert problem_of(narrow, narrow).out == "bf16"
