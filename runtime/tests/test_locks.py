"""Products recorded and replayed on a CPU: the entries of a lock, and the products that run from it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.descriptors.problem import BiasedGEMM, GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_torch import NotCovered, ProductError, locked_products, matmul, recorded_products
from bitwise_torch.interception import PRODUCTS, InterceptionError
from bitwise_torch.locks import LockError, lock_of
from bitwise_torch.tensor_problems import problem_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


NOT_INTERCEPTED = f"no lock holds this operation; locks hold {', '.join(PRODUCTS)}"


def descriptor(k: int, span: int = 3) -> GEMMDesc:
    return GEMMDesc(
        k=k, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma", k_cuts=(Cut(span=span),)
    )


class Toy:
    """A library that covers fp16; it sums in blocks of 3 values of k, or of 4 for products with 5 columns."""

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


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


def patterns(matrix: Any) -> Any:
    return matrix.detach().contiguous().view(torch.int16).numpy().view(np.uint16)


def evaluated(desc: GEMMDesc, a: Any, b: Any) -> Any:
    return evaluate(desc, patterns(a), patterns(b))


def problem(m: int, n: int, k: int, **more: Any) -> GEMMProblem:
    return GEMMProblem(m=m, n=n, k=k, a="fp16", b="fp16", out="fp16", **more)


def test_a_model_is_recorded_and_replayed_with_its_gradients(toy: None) -> None:
    layer = torch.nn.Linear(16, 5, bias=False).half()
    layer.weight.data = normal(5, 16, seed=1)
    x = normal(2, 3, 16).requires_grad_()

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
    assert not recording.not_locked
    with locked_products(lock) as replay:
        y = step()
    flat = x.detach().view(6, 16)
    expected = evaluated(descriptor(16, 4), flat, layer.weight.t())
    assert (patterns(y).reshape(6, 5) == expected).all()
    upstream = (2 * y.detach()).view(6, 5)
    assert (patterns(layer.weight.grad) == evaluated(descriptor(6), upstream.t(), flat)).all()
    assert (patterns(x.grad).reshape(6, 16) == evaluated(descriptor(5), upstream, layer.weight)).all()
    assert replay.report() == ["3 products of 3 problems ran from the lock, 0 ran in this machine's library"]


def test_a_product_under_several_settings_of_the_library_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    """As products in fp32, of which a setting rounds the operands to tf32."""
    setting = {"block": 3}

    class Setting(Toy):
        def describe_problem(self, problem: GEMMProblem, **_: Any) -> GEMMDesc:
            return descriptor(problem.k, setting["block"])

        def cache_token(self) -> int:
            return setting["block"]

    found = replace(registry.default(), profiles=(Setting(),))
    monkeypatch.setattr(registry, "default", lambda: found)
    a, b = normal(4, 20), normal(20, 6, seed=1)
    with recorded_products("toy") as recording:
        for setting["block"] in (3, 3, 4, 3):
            a @ b
        a @ normal(20, 7)
    lock = recording.lock()
    assert [each.descriptor is None for each in lock.entries] == [True, False]
    assert "several descriptors" in str(lock.entries[0].declined)
    with locked_products(lock), pytest.raises(LockError, match="several descriptors"):
        a @ b


def test_every_form_of_a_product_is_intercepted(toy: None) -> None:
    a, b, batch = normal(4, 20), normal(20, 5, seed=1), normal(3, 20, 5, seed=2)
    bias, out = normal(5, seed=3), torch.empty(4, 5).half()
    rows = normal(20)[:1].expand(4, 20)
    lock = lock_of(
        [(problem(4, 5, 20), descriptor(20)), (problem(4, 5, 20, batch=3), descriptor(20, 7)),
         (problem(4, 5, 20, batch=1), descriptor(20, 8)), (problem(4, 5, 20, epilogue="bias"), descriptor(20, 9))], {},
    )  # fmt: skip
    with locked_products(lock) as replay:
        for found in (torch.mm(a, b), a @ b, torch.matmul(a, b), a.mm(b), torch.mm(a, b, out=out)):
            assert (patterns(found) == evaluated(descriptor(20), a, b)).all()
        assert (patterns(torch.mm(rows, b)) == evaluated(descriptor(20), rows, b)).all()
        with torch.inference_mode():
            assert (patterns(torch.nn.functional.linear(a, b.t())) == evaluated(descriptor(20), a, b)).all()
        assert (patterns(torch.einsum("ik,kj->ij", a, b)) == evaluated(descriptor(20, 8), a, b)).all()
        many = torch.bmm(a.expand(3, 4, 20).contiguous(), batch)
        added = torch.addmm(bias, a, b)
        assert torch.equal(torch.mm(normal(0, 20), b), torch.empty(0, 5).half())
    for each, right in zip(many, batch, strict=True):
        assert (patterns(each) == evaluated(descriptor(20, 7), a, right)).all()
    wide = descriptor(20, 9).model_copy(update={"output_dtype": "fp32"})
    sums = torch.from_numpy(evaluated(wide, a, b).view(np.float32))
    assert torch.equal(added, (sums + bias.float()).half())
    assert (replay.replayed.total(), replay.not_replayed.total()) == (10, 0)


def test_a_bias_is_added_before_or_after_the_rounding_of_the_lock(toy: None) -> None:
    a, b, bias = normal(9, 40), normal(40, 33, seed=1), normal(33, seed=3)
    desc, found = descriptor(40), {}
    for rounded_first in (False, True):
        finding = BiasedGEMM(product=desc, rounded_first=rounded_first)
        lock = lock_of([(problem(9, 33, 40, epilogue="bias"), finding)], {})
        with locked_products(lock):
            found[rounded_first] = torch.nn.functional.linear(a, b.t(), bias)
    sums = {}
    for dtype, size in (("fp32", 4), ("fp16", 2)):
        bits = evaluated(desc.model_copy(update={"output_dtype": dtype}), a, b)
        sums[dtype] = torch.from_numpy(bits.view(f"f{size}")).float()
    assert torch.equal(found[False], (sums["fp32"] + bias.float()).half())
    assert torch.equal(found[True], (sums["fp16"] + bias.float()).half())
    assert not torch.equal(found[False], found[True])


def test_compiled_functions_run_from_the_lock(toy: None) -> None:
    a, b = normal(4, 20), normal(20, 5, seed=1)
    dropping = descriptor(20).model_copy(update={"k_dropped": 8})
    lock = lock_of([(problem(4, 5, 20), dropping)], {})
    compiled = torch.compile(lambda x, y: torch.relu(x @ y), backend="aot_eager")
    compiled(a, b)
    with locked_products(lock) as replay:
        found = compiled(a, b)
    expected = evaluated(dropping, a, b)
    assert (patterns(found) == np.where(expected >> 15, 0, expected)).all()
    assert replay.report() == [
        "1 products of 1 problems ran from the lock, 0 ran in this machine's library",
        "1 of these problems leave the last values of k out, as the locked library did",
    ]


def test_a_product_that_is_not_locked_is_an_error_or_runs_in_the_library(toy: None) -> None:
    a, b = normal(4, 20), normal(20, 5, seed=1)
    lock = lock_of([(problem(9, 5, 20), "it was not measured")], {"library": "toy 1.0", "device": "one"})
    refused = [
        (r"torch\.mm: 4x5x20 fp16 NN to fp16 is not in the lock \(1 products of toy 1\.0, one\): record it",
         lambda: a @ b),
        ("torch.mm: 9x5x20 fp16 NN to fp16 is locked without a descriptor: it was not measured",
         lambda: normal(9, 20) @ b),
        ("torch.mv: 4x1x20 fp16 NN to fp16 is not in the lock", lambda: torch.mv(a, b[:, 0].contiguous())),
        ("torch.mv: a vector is not contiguous", lambda: torch.mv(a, b[:, 0])),
        ("torch.dot: a dot product of 20 fp32 to fp32 is not in the lock",
         lambda: torch.dot(a[0].float(), a[1].float())),
        (r"torch.dot: libraries have a kernel of their own for dot products of torch\.float64",
         lambda: torch.dot(a[0].double(), a[1].double())),
        ("torch.mv: 4x1x20 fp32 NN by a vector to fp32 is not in the lock",
         lambda: torch.mv(a.float(), b[:, 0].contiguous().float())),
        ("torch.mm: 4x1x20 fp32 NN to fp32 is not in the lock",
         lambda: torch.mm(a.float(), b[:, :1].contiguous().float())),
        ("torch.addmv: 4x1x20 fp32 NN by a vector to fp32 with a matrix added is not in the lock",
         lambda: torch.addmv(normal(4).float(), a.float(), a[0].float())),
        ("torch.addmv: 4x1x20 fp16 NN to fp16 with a matrix added is not in the lock",
         lambda: torch.addmv(normal(4), a, a[0])),
        ("torch.addmm: 4x5x20 fp16 NN to fp16 with a matrix added is not in the lock",
         lambda: torch.addbmm(normal(4, 5), a[None], b[None])),
        ("torch.addmm_: 4x5x20 fp16 NN to fp16 with 3.0 times a matrix added is not in the lock",
         lambda: normal(4, 5).addmm_(a, b, beta=3)),
        (r"torch.addmm_: the output is not contiguous, its strides are \(1, 4\)",
         lambda: normal(5, 4).t().addmm_(a, b)),
        (f"torch.addr: {NOT_INTERCEPTED}", lambda: torch.addr(normal(4, 5), normal(4), normal(5))),
        ("torch.addmm: 4x5x20 fp16 NN to fp16 with 2.0 times a matrix added is not in the lock",
         lambda: torch.addmm(normal(5), a, b, beta=2)),
        ("torch.addmm: 4x5x20 fp16 NN to fp16 with a matrix added is not in the lock",
         lambda: torch.addmm(normal(4, 5), a, b)),
        (r"torch.mm: the output is not contiguous, its strides are \(1, 4\)",
         lambda: torch.mm(a, b, out=normal(5, 4).t())),
        ("torch.mm: matrices of torch.float64 are not supported", lambda: a.double() @ b.double()),
    ]  # fmt: skip
    for sentence, call in refused:
        with locked_products(lock), pytest.raises(LockError, match=sentence):
            call()

    class Own(torch.Tensor):  # type: ignore[misc, name-defined, unused-ignore]
        """A tensor subclass."""

    invalid = [
        ("torch.mm: a tensor is of the subclass Own", lambda: torch.mm(a.as_subclass(Own), b)),
        (r"torch.mm: \(4, 20\) times \(4, 20\): the shapes do not match", lambda: torch.mm(a, a)),
    ]
    for sentence, call in invalid:
        with locked_products(lock), pytest.raises(LockError, match=sentence):
            call()
    meta = torch.empty(20, 5, dtype=torch.float16, device="meta")
    with locked_products(lock):
        assert (meta.t() @ meta).shape == (5, 5)  # there are no bits
    with locked_products(lock, "pass") as replay:
        for _, call in refused:
            call()
        assert torch.equal(a @ b, (a @ b))
    assert replay.not_replayed.total() == len(refused) + 2
    assert replay.report()[:2] == [
        "0 products of 0 problems ran from the lock, 20 ran in this machine's library",
        "not locked, 3 times: mm: 4x5x20 fp16 NN to fp16 is not in the lock (1 products of toy 1.0, one): "
        'record it, or let the library compute it with missing="pass" (`bitwise lock apply --pass`)',
    ]
    with pytest.raises(LockError, match="other_threads is 'all'; give one of 'error', 'cover', 'ignore'"):
        locked_products(lock, other_threads="all").__enter__()  # type: ignore[arg-type]
    with pytest.raises(LockError, match="lock is a str; give the result of"), locked_products("a.json"):  # type: ignore[arg-type]
        pass
    with pytest.raises(LockError, match='missing is \'ask\'; give "error" or "pass"'), locked_products(lock, "ask"):  # type: ignore[arg-type]
        pass


def test_a_recording_counts_products_that_cannot_be_locked(toy: None) -> None:
    with recorded_products("toy") as recording:
        normal(2, 3).float() @ normal(3, 2).float()
        torch.vdot(normal(3), normal(3))
    lock = recording.lock()
    assert (lock.declined, lock.entries[0].declined) == (1, "toy 1.0 is not measured on fp32")
    assert lock.provenance == {"library": "toy 1.0", "device": "the CPU"}
    assert dict(recording.not_locked) == {f"vdot: {NOT_INTERCEPTED}": 1}
    with pytest.raises(
        LockError, match="no installed plugin describes the products of the library 'other'; known libraries: toy"
    ):
        recorded_products("other").__enter__()


def test_matmul_takes_a_lock(toy: None) -> None:
    a, b = normal(4, 20), normal(20, 5, seed=1)
    lock = lock_of([(problem(4, 5, 20), descriptor(20)), (problem(4, 5, 20, ld_a=40), descriptor(20, 6))], {})
    for _ in range(2):
        assert (patterns(matmul(a, b, lock=lock)) == evaluated(descriptor(20), a, b)).all()
        gapped = normal(4, 40)[:, :20]
        assert (patterns(matmul(gapped, b, lock=lock)) == evaluated(descriptor(20, 6), gapped, b)).all()
    with pytest.raises(LockError, match="4x5x20 fp16 NT to fp16 is not in the lock"):
        matmul(a, b.t().contiguous().t(), lock=lock)
    with pytest.raises(LockError, match="4x5x20 fp16 NN to fp32 is not in the lock"):
        matmul(a, b, lock=lock, out_dtype=torch.float32)
    with pytest.raises(ProductError, match="give exactly one of desc"):
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
    for a, b, expected in cases:
        assert problem_of(a, b) == expected
    narrow = torch.empty(4, 4).to(torch.float8_e4m3fn)
    assert problem_of(narrow, narrow).out == "bf16"


def test_products_of_vectors_are_products_of_matrices(toy: None) -> None:
    a, x, y = normal(6, 20), normal(20, seed=1), normal(20, seed=2)
    with recorded_products("toy") as recording:
        torch.mv(a, x)
        torch.mv(a.t().contiguous().t(), x)
        torch.dot(x, y)
    lock = recording.lock()
    assert [each.problem for each in lock.entries] == [
        problem(6, 1, 20), problem(6, 1, 20, transpose_a=True), problem(1, 1, 20, dot=True),
    ]  # fmt: skip
    assert not recording.not_locked
    with locked_products(lock) as replay:
        for _ in range(2):  # the second time from the cache
            assert (patterns(torch.mv(a, x)) == evaluated(descriptor(20), a, x[:, None])[:, 0]).all()
            found = torch.dot(x, y)
            assert found.shape == ()
            assert (patterns(found[None]) == evaluated(descriptor(20), x[None], y[:, None])[0]).all()
        out = torch.empty(6, dtype=torch.float16)
        assert torch.mv(a, x, out=out) is out
    assert (patterns(out) == evaluated(descriptor(20), a, x[:, None])[:, 0]).all()
    assert replay.replayed.total() == 5


def test_a_dot_product_of_fp32_is_a_problem_of_its_own(toy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = normal(20).float(), normal(20, seed=1).float()
    chunks = GEMMDesc(
        k=20, left_dtype="fp32", right_dtype="fp32", output_dtype="fp32", path="fma", k_cuts=(Cut(span=7),)
    )
    monkeypatch.setattr(Toy, "describe_problem", lambda self, problem, **options: chunks)
    with recorded_products("toy", operators=False) as recording:
        torch.dot(x, y)
        x[None] @ y[:, None]
    lock = recording.lock()
    assert [each.problem.dot for each in lock.entries] == [True, False]
    with locked_products(lock) as replay:
        found = [torch.dot(x, y) for _ in range(2)]
    assert (replay.replayed.total(), found[0].shape) == (2, ())
    expected = evaluate(chunks, x[None].numpy().view(np.uint32), y[:, None].numpy().view(np.uint32))
    assert all(each[None, None].numpy().view(np.uint32) == expected for each in found)


def test_products_of_integers_are_exact_and_need_no_lock(toy: None) -> None:
    a, b = torch.full((32, 64), -128, dtype=torch.int8), torch.full((64, 8), 127, dtype=torch.int8)
    with recorded_products("toy") as recording:
        torch._int_mm(a, b)
    assert (recording.products, dict(recording.not_locked), recording.lock().entries) == (1, {}, ())
    with locked_products(recording.lock()) as replay:
        assert (torch._int_mm(a, b) == -128 * 127 * 64).all()
        long = torch.zeros((32, 1 << 17), dtype=torch.int8)
        with pytest.raises(LockError, match=f"torch._int_mm: {NOT_INTERCEPTED}"):
            torch._int_mm(long, long.t())
    assert not replay.not_replayed


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("other_threads", ["cover", "ignore"])
def test_a_product_in_a_forked_process_is_not_lost_silently(toy: None, other_threads: Any) -> None:
    a, b = normal(4, 16), normal(16, 5)
    with recorded_products("toy", other_threads=other_threads, operators=False):
        child = os.fork()
        if child == 0:
            try:
                torch.mm(a, b)
            except InterceptionError as error:
                os._exit(3 if "num_workers=0" in str(error) else 4)
            finally:
                os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (3 if other_threads == "cover" else 5)
