"""Products of tensors on a CPU: bytes, refused arguments, and the one operator in traces and autograd graphs."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bitwise_core.descriptors import Cut, GEMMDesc, index_bits
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_core.plugins.launchers import ProductLaunch
from bitwise_torch import DroppedWarning, NotCovered, ProductError, describe, dispatch_cache, matmul, tune
from bitwise_torch.locks import Lock, LockError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

DESC = GEMMDesc(
    k=40, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma", k_cuts=(Cut(span=16),), k_dropped=3
)


class Toy:
    """A library with one descriptor, which covers fp16."""

    name = library = "toy"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        if a.dtype != torch.float16:
            raise NotCovered(f"toy 1.0 is not measured on {a.dtype}")
        return DESC


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.default(), profiles=(Toy(),))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.setattr("bitwise_torch.product_runs.warned_libraries", set())


def normal(rows: int, columns: int, seed: int = 0) -> Any:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).half()


def patterns(matrix: Any) -> Any:
    return matrix.detach().contiguous().view(torch.int16).numpy().view(np.uint16)


def test_tensors_on_the_cpu_of_any_strides_are_evaluated() -> None:
    a, b = normal(5, 40), normal(40, 7, 1)
    expected = evaluate(DESC, patterns(a), patterns(b))
    assert (patterns(matmul(a, b, desc=DESC)) == expected).all()
    assert (patterns(matmul(a.t().contiguous().t(), b[:, ::1], desc=DESC)) == expected).all()
    out = torch.empty(7, 5, dtype=torch.float16).t()
    assert matmul(a, b, desc=DESC, out=out) is out
    assert (patterns(out) == expected).all()
    ones = matmul(torch.ones(2, 40).half(), torch.ones(40, 2).half(), desc=DESC)
    assert ones.tolist() == [[37.0, 37.0], [37.0, 37.0]]


def test_a_library_is_reproduced_and_dropped_values_cause_one_warning(toy: None) -> None:
    a, b = normal(5, 40), normal(40, 7, 1)
    assert describe(a, b, like="toy") == DESC
    with pytest.warns(DroppedWarning, match="toy omits the last 3 of 40 values of k"):
        found = matmul(a, b, like="toy")
    assert (patterns(found) == evaluate(DESC, patterns(a), patterns(b))).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        matmul(a, b, like="toy")
    with pytest.raises(NotCovered, match=r"toy 1\.0 is not measured on torch\.bfloat16"):
        matmul(a.bfloat16(), b.bfloat16(), like="toy")
    with pytest.raises(
        ProductError, match="no installed plugin describes the products of the library 'other'; known libraries: toy"
    ):
        matmul(a, b, like="other")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:The PyTorch API of nested tensors")
def test_invalid_arguments_are_refused() -> None:
    a, b = normal(5, 40), normal(40, 7, 1)
    storage = torch.zeros(2000, dtype=torch.float16)
    held = storage[:200].view(5, 40)
    invalid: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("give exactly one of desc", a, b, {}),
        ("give exactly one of desc", a, b, {"desc": DESC, "like": "toy"}),
        ("a is of torch.float64; the supported types are float16", a.double(), b, {"desc": DESC}),
        ("a has 40 columns and b has 39 rows", a, b[:39], {"desc": DESC}),
        (r"b has the shape \(40, 0\); there is nothing to multiply", a, b[:, :0], {"desc": DESC}),
        ("a has 3 axes", a[None], b, {"desc": DESC}),
        ("a is a list", [[1.0]], b, {"desc": DESC}),
        ("a is on cpu and b is on meta", a, b.to("meta"), {"desc": DESC}),
        ("the descriptor has k = 40, and a has 39", a[:, :39], b[:39], {"desc": DESC}),
        ("a is of torch.bfloat16, and the descriptor has fp16", a.bfloat16(), b, {"desc": DESC}),
        (r"out has the shape \(5, 8\)", a, b, {"desc": DESC, "out": torch.empty(5, 8).half()}),
        ("out is of torch.float32; the product is of float16", a, b, {"desc": DESC, "out": torch.empty(5, 7)}),
        ("its elements overlap", a, b, {"desc": DESC, "out": torch.empty(5, 1).half().expand(5, 7)}),
        ("out overlaps a in memory", held, b, {"desc": DESC, "out": storage[199:234].view(5, 7)}),
        ("a is of torch.complex64; the supported types are", a.to(torch.complex64), b, {"desc": DESC}),
        ("b is of torch.int32; the supported types are", a, b.int(), {"desc": DESC}),
        ("b is of torch.float8_e4m3fnuz; the supported types are", a, b.to(torch.float8_e4m3fnuz), {"desc": DESC}),
        ("a has 1 axes; both operands need 2", a[0], b, {"desc": DESC}),
        ("b has 0 axes; both operands need 2", a, torch.tensor(1.0), {"desc": DESC}),
        (r"a has the shape \(0, 40\); there is nothing to multiply", a[:0], b, {"desc": DESC}),
        (r"a has the shape \(5, 0\); there is nothing to multiply", a[:, :0], b[:0], {"desc": DESC}),
        ("a is of the layout sparse_coo; give a dense tensor", a.to_sparse(), b, {"desc": DESC}),
        ("b is of the layout sparse_csr; give a dense tensor", a, b.float().to_sparse_csr(), {"desc": DESC}),
        ("a is nested; give a dense tensor", torch.nested.nested_tensor([a[0], a[1]]), b, {"desc": DESC}),
        (
            "the output's type torch.float64 is not supported; the types are",
            a,
            b,
            {"desc": DESC, "out_dtype": torch.float64},
        ),
        ("out is of torch.float32, and the descriptor has fp16", a, b, {"desc": DESC, "out_dtype": torch.float32}),
        ("out is a list", a, b, {"desc": DESC, "out": [1]}),
        (r"out has the shape \(1, 5, 7\)", a, b, {"desc": DESC, "out": torch.empty(1, 5, 7).half()}),
        (
            "out has the shape .* on meta; it needs .* on cpu",
            a,
            b,
            {"desc": DESC, "out": torch.empty(5, 7, device="meta").half()},
        ),
        ("out is of the layout sparse_coo", a, b, {"desc": DESC, "out": torch.empty(5, 7).half().to_sparse()}),
        ("desc is a int; give a GEMMDesc", a, b, {"desc": 3}),
        ("desc is a ReductionDesc; give a GEMMDesc", a, b, {"desc": index_bits(40)}),
        ("lock is a str; give the result of read_lock", a, b, {"lock": "products.json"}),
        ("no installed plugin describes the products of the library 3", a, b, {"like": 3}),
    ]
    for sentence, left, right, options in invalid:
        with pytest.raises(ProductError, match=sentence):
            matmul(left, right, **options)
        if "desc" in options and sentence.startswith(("a ", "b ")) and "descriptor" not in sentence:
            with pytest.raises(ProductError, match=sentence):
                describe(left, right, like="toy")


def test_gradients_are_those_of_the_ordinary_product(toy: None) -> None:
    a, b = normal(5, 40).requires_grad_(), normal(40, 7, 1).requires_grad_()
    with pytest.warns(DroppedWarning):
        found = matmul(a, b, like="toy", grad_like="torch")
    assert (patterns(found) == evaluate(DESC, patterns(a), patterns(b))).all()
    upstream = normal(5, 7, 2)
    found.backward(upstream)
    assert torch.equal(a.grad, upstream @ b.detach().t())
    assert torch.equal(b.grad, a.detach().t() @ upstream)
    with pytest.raises(ProductError, match="out does not support gradients"):
        matmul(a, b, desc=DESC, out=torch.empty(5, 7).half())


def test_a_trace_contains_one_operator() -> None:
    from bitwise_torch.product_operators import torch_operator

    a, b = normal(5, 40), normal(40, 7, 1)
    torch.library.opcheck(torch_operator(), (a, b, DESC.to_text(), "", "fp16", "torch"))
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    text = DESC.to_text()
    traced = torch.compile(lambda x, y: matmul(x, y, desc=text) + 1, backend=backend, fullgraph=True)
    assert torch.equal(traced(a, b), matmul(a, b, desc=DESC) + 1)
    assert len(graphs) == 1
    assert sum("bitwise.matmul" in target for target in graphs[0]) == 1


def test_a_trace_with_a_library_contains_one_operator_and_its_gradients(toy: None) -> None:
    a, b = normal(5, 40).requires_grad_(), normal(40, 7, 1).requires_grad_()
    traced = torch.compile(
        lambda x, y: matmul(x, y, like="toy", grad_like="torch") * 2, backend="aot_eager", fullgraph=True
    )
    with pytest.warns(DroppedWarning):
        found = traced(a, b)
    assert (patterns(found) == patterns(matmul(a, b, like="toy") * 2)).all()
    found.backward(torch.ones_like(found))
    upstream = torch.full((5, 7), 2.0).half()
    assert torch.equal(a.grad, upstream @ b.detach().t())
    assert torch.equal(b.grad, a.detach().t() @ upstream)


def test_a_trace_of_other_types_and_strides_returns_the_same_bits() -> None:
    desc = GEMMDesc(k=40, left_dtype="bf16", right_dtype="bf16", output_dtype="fp32", path="fma").to_text()
    traced = torch.compile(lambda x, y: matmul(x, y, desc=desc), backend="aot_eager", fullgraph=True)
    a, b = normal(40, 5).bfloat16().t(), normal(80, 14, 1).bfloat16()[::2, ::2]
    found = traced(a, b)
    assert found.dtype == torch.float32
    assert torch.equal(found, matmul(a, b, desc=desc))


def test_a_descriptor_record_only_causes_a_graph_break() -> None:
    a, b = normal(5, 40), normal(40, 7, 1)
    traced = torch.compile(lambda x, y: matmul(x, y, desc=DESC) + 1, backend="eager")
    assert torch.equal(traced(a, b), matmul(a, b, desc=DESC) + 1)


class Recorder:
    """A launcher for the meta device that records what it runs."""

    name = "recorder"

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.served = 0

    def missing(self) -> None:
        return None

    def launch(self, desc: Any, *operands: Any) -> Any:
        raise AssertionError

    def serves(self, desc: Any, device: Any) -> bool:
        self.served += 1
        return bool(device.type == "meta")

    def product(self, desc: Any, a: Any, b: Any, out: Any) -> None:
        self.ran.append((desc, tuple(a.stride()), tuple(out.shape), out.dtype))


@pytest.fixture
def recorder(toy: None, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    found = replace(registry.default(), launchers=(made,))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.setattr("bitwise_torch.dispatch_cache._calls", {})
    return made


def test_the_launcher_of_repeated_products_is_searched_for_once(recorder: Recorder) -> None:
    a, b = (torch.empty(shape, dtype=torch.float16, device="meta") for shape in ((5, 40), (40, 7)))
    for _ in range(3):
        assert matmul(a, b, desc=DESC).shape == (5, 7)
    assert (len(recorder.ran), recorder.served) == (3, 1)
    assert set(recorder.ran) == {(DESC, (40, 1), (5, 7), torch.float16)}
    matmul(a, b.t().contiguous().t(), desc=DESC)
    matmul(torch.empty(40, 5, dtype=torch.float16, device="meta").t(), b, desc=DESC.to_text())
    assert recorder.served == 3
    other = DESC.model_copy(update={"k_dropped": 2})
    matmul(a, b, desc=other)
    assert (recorder.ran[-1][0], recorder.served) == (other, 4)
    for _ in range(2):
        with pytest.raises(ProductError, match=r"a is of torch\.bfloat16"):
            matmul(a.bfloat16(), b, desc=DESC)


def test_the_profile_is_queried_in_every_call(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (torch.empty(shape, dtype=torch.float16, device="meta") for shape in ((5, 40), (40, 7)))
    with pytest.warns(DroppedWarning):
        matmul(a, b, like="toy")
    matmul(a, b, like="toy")
    assert (len(recorder.ran), recorder.served) == (2, 1)
    monkeypatch.setattr("bitwise_torch.product_runs.warned_libraries", set())
    with pytest.warns(DroppedWarning):
        matmul(a, b, like="toy")
    other = DESC.model_copy(update={"k_dropped": 0})
    monkeypatch.setattr(Toy, "product", lambda self, a, b, out: other)
    matmul(a, b, like="toy")
    assert recorder.ran[-1][0] is other

    def declined(self: Any, a: Any, b: Any, out: Any) -> Any:
        raise NotCovered("no longer")

    monkeypatch.setattr(Toy, "product", declined)
    with pytest.raises(NotCovered, match="no longer"):
        matmul(a, b, like="toy")


def test_a_cached_call_does_not_skip_the_checks_outside_its_key(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "serves", lambda self, desc, device: True)
    monkeypatch.setattr("bitwise_torch.product_runs._evaluate_on_cpu", None)

    class Elsewhere(torch.Tensor):  # type: ignore[misc, name-defined, unused-ignore]
        """A CPU tensor whose device is reported as cuda:0."""

        @property
        def device(self) -> Any:
            return torch.device("cuda", 0)

    desc = GEMMDesc(k=40, left_dtype="fp32", right_dtype="fp32", output_dtype="fp32", path="fma")
    memory = torch.zeros(1000)
    a, b = memory[:200].view(5, 40).as_subclass(Elsewhere), memory[200:480].view(40, 7).as_subclass(Elsewhere)
    out = memory[480:515].view(5, 7).as_subclass(Elsewhere)
    for _ in range(2):
        assert matmul(a, b, desc=desc, out=out) is out
    for name, start in (("a", 165), ("a", 199), ("b", 200), ("b", 479)):
        with pytest.raises(ProductError, match=f"out overlaps {name} in memory"):
            matmul(a, b, desc=desc, out=memory[start : start + 35].view(5, 7).as_subclass(Elsewhere))
    negated = torch.zeros(5, 7, dtype=torch.complex64).conj().imag
    plain = torch.zeros(5, 7, dtype=torch.complex64).imag
    assert negated.is_neg()
    assert negated.stride() == plain.stride()
    assert matmul(a, b, desc=desc, out=plain.as_subclass(Elsewhere)) is not None
    with pytest.raises(ProductError, match="out is a lazily negated view"):
        matmul(a, b, desc=desc, out=negated.as_subclass(Elsewhere))
    with pytest.raises(ProductError, match="out does not support gradients"):
        matmul(a.detach().requires_grad_(), b, desc=desc, out=out)
    assert len(recorder.ran) == 3


class TunableToy:
    """A launcher that records the requests to tune DESC."""

    name = "tunable"

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def missing(self) -> None:
        return None

    def launch(self, desc: Any, *operands: Any) -> Any:
        raise AssertionError(desc)

    def product(self, desc: Any, a: Any, b: Any, out: Any) -> None:
        raise AssertionError(desc)

    def serves(self, desc: Any, device: Any) -> bool:
        return bool(desc == DESC)

    def tune(self, desc: Any, a: Any, b: Any, out: Any, path: Any, most: int) -> tuple[str, float]:
        self.requests.append((desc, tuple(out.shape), path, most))
        return "configuration 2", 2e-6


def test_tune_passes_the_product_to_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = TunableToy()
    found = replace(registry.default(), profiles=(Toy(),), launchers=(launcher,))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.setattr("bitwise_torch.product_runs.warned_libraries", {"toy"})
    a, b = normal(5, 40), normal(40, 7, 1)
    assert tune(a, b, like="toy", most=3) == ("configuration 2", 2e-6)
    assert tune(a, b, desc=DESC.to_text()) == ("configuration 2", 2e-6)
    assert launcher.requests == [(DESC, (5, 7), None, 3), (DESC, (5, 7), None, 32)]
    with pytest.raises(ProductError, match="no installed plugin can tune products on cpu"):
        tune(a, b, desc=DESC.model_copy(update={"k_dropped": 0}))
    with pytest.raises(ProductError, match="give exactly one of desc"):
        tune(a, b)
    with pytest.raises(ProductError, match="a has 40 columns and b has 39 rows"):
        tune(a, b[1:], like="toy")


class CacheableToy(Toy):
    """A library whose cache tokens are those of `tokens`, one in each call."""

    tokens: tuple[int, ...] = (1, 1, 2, 2)

    def __init__(self) -> None:
        self.queries = 0
        self._remaining = iter(self.tokens)

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        self.queries += 1
        return DESC

    def cache_token(self) -> int:
        return next(self._remaining)


class PreparingRecorder(TunableToy):
    """A launcher that prepares products; `launches` has the addresses of those that ran again."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[tuple[int, int, int]] = []

    def prepare(self, desc: Any, a: Any, b: Any, out: Any) -> ProductLaunch:
        self.requests.append(desc)
        return lambda *addresses: self.launches.append(addresses)


def placed(matrix: Any, offset: int = 0) -> Any:
    """Return a copy of a matrix of 16-bit elements at an address that is `offset` elements after a multiple of 256."""
    memory = torch.empty(matrix.numel() + 128 + offset, dtype=matrix.dtype)
    start = -memory.data_ptr() % 256 // 2 + offset
    return memory[start : start + matrix.numel()].view(matrix.shape).copy_(matrix)


def cached(monkeypatch: pytest.MonkeyPatch, launcher: Any, arguments: dict[str, Any], **fields: Any) -> tuple[Any, Any]:
    """Return two operands on the CPU for which `matmul` with these arguments has a cached call of a launcher."""
    profile = fields.get("profile")
    found = replace(registry.default(), profiles=(profile,) if profile else (), launchers=(launcher,))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.setattr("bitwise_torch.product_runs.warned_libraries", {"toy"})
    monkeypatch.setattr(dispatch_cache, "_calls", {})
    a, b = placed(normal(5, 40)), placed(normal(40, 7, 1))
    names = ("desc", "like", "lock", "out_dtype", "out")
    _, key = dispatch_cache.repeated_product(a, b, *(arguments.get(each) for each in names), set())
    assert key is not None
    given: dict[str, Any] = {
        "registry": found, "given": (arguments.get("desc"), arguments.get("lock")), "profile": None, "desc": DESC,
        "launcher": launcher, "launch": None, "allocate": lambda a: a.new_empty(5, 7), "extents": (400, 560, 70),
        "alignment": 0,
    }  # fmt: skip
    dispatch_cache.store(key, dispatch_cache.CachedCall(**{**given, **fields}))
    return a, b


class FillingLauncher(TunableToy):
    """A launcher that fills the output with 5."""

    def product(self, desc: Any, a: Any, b: Any, out: Any) -> None:
        self.requests.append(desc)
        out.fill_(5.0)


def test_the_profile_is_queried_again_when_its_cache_token_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library, launcher = CacheableToy(), FillingLauncher()
    out = torch.empty(5, 7, dtype=torch.float16)
    a, b = cached(monkeypatch, launcher, {"like": "toy", "out": out}, profile=library, cache_token=1)
    assert matmul(a, b, like="toy", out=out)[0, 0] == 5
    assert matmul(a, b, like="toy", out=out)[0, 0] == 5
    assert (library.queries, launcher.requests) == (0, [DESC, DESC])
    assert (patterns(matmul(a, b, like="toy", out=out)) == evaluate(DESC, patterns(a), patterns(b))).all()
    assert (library.queries, len(launcher.requests)) == (1, 2)


def test_a_prepared_product_gets_the_addresses_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, out = PreparingRecorder(), torch.empty(5, 7, dtype=torch.float16)
    arguments: dict[str, Any] = {"desc": DESC, "out": out}
    a, b = cached(monkeypatch, launcher, arguments, launch=launcher.prepare(DESC, None, None, None))
    expected = []
    for each in (a, placed(a), a):
        assert matmul(each, b, **arguments) is out
        expected.append((each.data_ptr(), b.data_ptr(), out.data_ptr()))
    assert launcher.launches == expected
    matmul(placed(a, 64), b, **arguments)
    with pytest.raises(ProductError, match="out does not support gradients"):
        matmul(placed(a).requires_grad_(), b, **arguments)
    with pytest.raises(ProductError, match="a is a lazily negated view"):
        matmul(torch._neg_view(placed(a)), b, **arguments)
    with pytest.raises(ProductError, match="out is a lazily negated view"):
        matmul(a, b, desc=DESC, out=torch._neg_view(out))
    assert launcher.launches == expected
    with torch.no_grad():
        matmul(placed(a).requires_grad_(), b, **arguments)
    assert len(launcher.launches) == 4


def test_an_output_of_a_cached_call_may_touch_an_operand_and_not_overlap_it(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = PreparingRecorder()
    memory = placed(torch.zeros(512, dtype=torch.float16))
    operand, touching, overlapping = (memory[at : at + size] for at, size in ((0, 200), (200, 35), (184, 35)))
    arguments: dict[str, Any] = {"desc": DESC, "out": touching.view(5, 7)}
    _, b = cached(monkeypatch, launcher, arguments, launch=launcher.prepare(DESC, None, None, None))
    matmul(operand.view(5, 40), b, **arguments)
    assert len(launcher.launches) == 1
    with pytest.raises(ProductError, match="out overlaps a in memory"):
        matmul(operand.view(5, 40), b, desc=DESC, out=overlapping.view(5, 7))
    assert len(launcher.launches) == 1


def test_a_new_output_of_a_cached_call_has_the_alignment_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = PreparingRecorder()
    launch = launcher.prepare(DESC, None, None, None)
    a, b = cached(monkeypatch, launcher, {"desc": DESC}, launch=launch, alignment=1)  # no address is odd
    expected = evaluate(DESC, patterns(a), patterns(b))
    assert (patterns(matmul(a, b, desc=DESC)) == expected).all()
    assert launcher.launches == []
    cached(monkeypatch, launcher, {"desc": DESC}, launch=launch)
    found = [matmul(a, b, desc=DESC) for _ in range(50)]
    launched = {each[2] for each in launcher.launches}
    assert all(each % 256 == 0 for each in launched)
    assert all((patterns(each) == expected).all() for each in found if each.data_ptr() not in launched)


def test_a_cached_call_of_a_lock_is_that_of_the_same_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Lock(), Lock()
    launcher = PreparingRecorder()
    out = torch.empty(5, 7, dtype=torch.float16)
    arguments: dict[str, Any] = {"lock": first, "out": out}
    a, b = cached(monkeypatch, launcher, arguments, launch=launcher.prepare(DESC, None, None, None))
    assert matmul(a, b, **arguments) is out
    with pytest.raises(LockError, match="is not in the lock"):
        matmul(a, b, lock=second, out=out)
    assert len(launcher.launches) == 1


def test_tuning_empties_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = TunableToy()
    a, b = cached(monkeypatch, launcher, {"like": "nothing"})
    tune(a, b, desc=DESC)
    assert dispatch_cache._calls == {}


@pytest.mark.parametrize("like", [["toy"], {"toy": 1}, 5])
def test_a_library_that_is_not_a_name_raises(like: Any) -> None:
    with pytest.raises(ProductError, match="no installed plugin describes the products of the library"):
        matmul(normal(5, 40), normal(40, 7, 1), like=like)


@pytest.mark.parametrize(("tokens", "count"), [((1, 1), 1), ((1, 2), 0)])
def test_a_product_during_which_settings_changed_is_not_cached(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tokens: tuple[int, ...], count: int
) -> None:
    library = CacheableToy()
    library._remaining = iter(tokens)
    found = replace(registry.default(), profiles=(library,))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.setattr("bitwise_torch.product_runs.warned_libraries", {"toy"})
    a, b = (torch.empty(shape, dtype=torch.float16, device="meta") for shape in ((5, 40), (40, 7)))
    matmul(a, b, like="toy")
    assert len(dispatch_cache._calls) == count


def test_calls_of_tensor_subclasses_are_not_cached(recorder: Recorder) -> None:
    class Named(torch.Tensor):  # type: ignore[misc, unused-ignore]
        pass

    a, b = (torch.empty(shape, dtype=torch.float16, device="meta") for shape in ((5, 40), (40, 7)))
    matmul(a.as_subclass(Named), b, desc=DESC)
    assert dispatch_cache._calls == {}
    matmul(torch.nn.Parameter(a, requires_grad=False), b, desc=DESC)
    assert len(dispatch_cache._calls) == 1


def test_outputs_on_the_current_gpu_are_allocated_without_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cuda", lambda *given: asked.append(given))
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1, raising=False)
    operand = SimpleNamespace(new_empty_strided=lambda *given, dtype: (*given, dtype))
    for index in (1, 0):
        out: Any = SimpleNamespace(
            shape=torch.Size((5, 7)), stride=lambda: (7, 1), is_contiguous=lambda: True, dtype=torch.bfloat16,
            device=SimpleNamespace(type="cuda", index=index),
        )  # fmt: skip
        found = dispatch_cache.output_allocator(out)(operand)
        assert found == (None if index else ((5, 7), (7, 1), torch.bfloat16))
    assert asked == [((5, 7), (7, 1), torch.bfloat16)]
    on_cpu = dispatch_cache.output_allocator(torch.empty(7, 5, dtype=torch.float16).t())(torch.empty(1))
    assert (on_cpu.shape, on_cpu.stride(), on_cpu.dtype) == ((5, 7), (1, 5), torch.float16)
