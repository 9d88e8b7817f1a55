"""Products of tensors on a CPU: what is evaluated, what is refused, and that traces and gradients see one operation."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bitwise_core import registry
from bitwise_core.descriptors import Cut, GEMMDesc
from bitwise_core.evaluation import evaluate
from bitwise_core.products import DroppedWarning, ProductError, Undescribed, describe, matmul

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

DESC = GEMMDesc(
    k=40, left_dtype="fp16", right_dtype="fp16", output_dtype="fp16", path="fma", k_cuts=(Cut(span=16),), k_dropped=3
)


class Toy:
    """A library that is one descriptor, for fp16 alone."""

    name = library = "toy"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        if a.dtype != torch.float16:
            raise Undescribed(f"toy 1.0 is not measured on {a.dtype}")
        return DESC


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.default(), profiles=(Toy(),))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.setattr("bitwise_core.products.tensors._told", set())


def drawn(rows: int, columns: int, seed: int = 0) -> Any:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).half()


def patterns(matrix: Any) -> Any:
    return matrix.detach().contiguous().view(torch.int16).numpy().view(np.uint16)


def test_tensors_of_the_cpu_are_evaluated_whatever_their_strides() -> None:
    a, b = drawn(5, 40), drawn(40, 7, 1)
    wanted = evaluate(DESC, patterns(a), patterns(b))
    assert (patterns(matmul(a, b, desc=DESC)) == wanted).all()
    assert (patterns(matmul(a.t().contiguous().t(), b[:, ::1], desc=DESC)) == wanted).all()
    out = torch.empty(7, 5, dtype=torch.float16).t()
    assert matmul(a, b, desc=DESC, out=out) is out
    assert (patterns(out) == wanted).all()
    ones = matmul(torch.ones(2, 40).half(), torch.ones(40, 2).half(), desc=DESC)
    assert ones.tolist() == [[37.0, 37.0], [37.0, 37.0]]


def test_a_library_is_followed_and_what_it_loses_is_told_once(toy: None) -> None:
    a, b = drawn(5, 40), drawn(40, 7, 1)
    assert describe(a, b, like="toy") == DESC
    with pytest.warns(DroppedWarning, match="toy leaves the last 3 of 40 values of k out"):
        found = matmul(a, b, like="toy")
    assert (patterns(found) == evaluate(DESC, patterns(a), patterns(b))).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        matmul(a, b, like="toy")
    with pytest.raises(Undescribed, match=r"toy 1\.0 is not measured on torch\.bfloat16"):
        matmul(a.bfloat16(), b.bfloat16(), like="toy")
    with pytest.raises(ProductError, match="no plugin knows the products of a library 'other'; there are: toy"):
        matmul(a, b, like="other")


def test_what_cannot_be_multiplied_is_refused_with_a_sentence() -> None:
    a, b = drawn(5, 40), drawn(40, 7, 1)
    storage = torch.zeros(2000, dtype=torch.float16)
    held = storage[:200].view(5, 40)
    refusals: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("exactly one of them", a, b, {}),
        ("exactly one of them", a, b, {"desc": DESC, "like": "toy"}),
        ("a is of torch.float64; there are float16", a.double(), b, {"desc": DESC}),
        ("a has 40 columns and b has 39 rows", a, b[:39], {"desc": DESC}),
        (r"b has the shape \(40, 0\); there is nothing to multiply", a, b[:, :0], {"desc": DESC}),
        ("a has 3 axes", a[None], b, {"desc": DESC}),
        ("a is a list", [[1.0]], b, {"desc": DESC}),
        ("a is on cpu and b on meta", a, b.to("meta"), {"desc": DESC}),
        ("the descriptor is of k = 40, and a has 39", a[:, :39], b[:39], {"desc": DESC}),
        ("a is of torch.bfloat16, and the descriptor says fp16", a.bfloat16(), b, {"desc": DESC}),
        (r"out has the shape \(5, 8\)", a, b, {"desc": DESC, "out": torch.empty(5, 8).half()}),
        ("out is of torch.float32; the product is of float16", a, b, {"desc": DESC, "out": torch.empty(5, 7)}),
        ("its elements overlap", a, b, {"desc": DESC, "out": torch.empty(5, 1).half().expand(5, 7)}),
        ("out overlaps a in memory", held, b, {"desc": DESC, "out": storage[199:234].view(5, 7)}),
    ]
    for why, left, right, options in refusals:
        with pytest.raises(ProductError, match=why):
            matmul(left, right, **options)


def test_gradients_are_those_of_the_ordinary_product(toy: None) -> None:
    a, b = drawn(5, 40).requires_grad_(), drawn(40, 7, 1).requires_grad_()
    with pytest.warns(DroppedWarning):
        found = matmul(a, b, like="toy")
    assert (patterns(found) == evaluate(DESC, patterns(a), patterns(b))).all()
    upstream = drawn(5, 7, 2)
    found.backward(upstream)
    assert torch.equal(a.grad, upstream @ b.detach().t())
    assert torch.equal(b.grad, a.detach().t() @ upstream)
    with pytest.raises(ProductError, match="out takes no gradients"):
        matmul(a, b, desc=DESC, out=torch.empty(5, 7).half())


def test_a_trace_holds_one_operation() -> None:
    from bitwise_core.products.operation import operation

    a, b = drawn(5, 40), drawn(40, 7, 1)
    torch.library.opcheck(operation(), (a, b, DESC.to_text(), "", "fp16"))
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    text = DESC.to_text()
    traced = torch.compile(lambda x, y: matmul(x, y, desc=text) + 1, backend=backend, fullgraph=True)
    assert torch.equal(traced(a, b), matmul(a, b, desc=DESC) + 1)
    assert len(graphs) == 1
    assert sum("bitwise.matmul" in target for target in graphs[0]) == 1
