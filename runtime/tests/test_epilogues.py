"""Epilogues of products on a CPU: bytes, gradients in described bits, traces, cached calls, and refused arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bitwise_core.descriptors import Epilogue, GEMMDesc, Step
from bitwise_core.descriptors.evaluation import evaluate_epilogue
from bitwise_core.plugins import registry
from bitwise_torch import FusionWarning, ProductError, epilogues, matmul
from bitwise_torch.product_operators import epilogue_operator, gradients_operator

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn,
          "e5m2": torch.float8_e5m2}  # fmt: skip
TEXT = Epilogue.of("bias", "relu", "add").to_text()


def desc_of(k: int, dtype: str = "fp16") -> GEMMDesc:
    """Return a descriptor in whose order PyTorch's own products would not add."""
    return GEMMDesc(
        k=k, left_dtype=dtype, right_dtype=dtype, output_dtype=dtype, path="fma", accumulator_dtype="fp16"
        if dtype == "fp16" else "fp32",
    )  # fmt: skip


class Toy:
    """A library that computes every product by a descriptor of its own."""

    name = library = "toy"

    def describe(self, configuration: Any) -> None:
        return None

    def product(self, a: Any, b: Any, out: Any) -> GEMMDesc:
        names = {each: name for name, each in DTYPES.items()}
        return desc_of(a.shape[1], names[a.dtype])


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(registry.default(), profiles=(Toy(),))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.setattr(epilogues, "_calls", {})


def normal(*shape: int, seed: int = 0, dtype: Any = torch.float16) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def patterns(matrix: Any) -> Any:
    size = matrix.element_size()
    signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]
    return matrix.detach().contiguous().view(signed).numpy().view(f"u{size}")


SEQUENCES = {
    "bias": Epilogue.of("bias"), "residual": Epilogue.of("bias", "add"), "product": Epilogue.of("multiply"),
    "scale and clamp": Epilogue.of(Step(name="scale", value=3.0), Step(name="clamp", low=-2.0, high=2.5)),
    "relu": Epilogue.of("relu", "bias"),
    "to e4m3": Epilogue.of(Step(name="scale", value=100.0), Step(name="convert", dtype="e4m3", saturate=True)),
    "to e5m2": Epilogue.of(Step(name="scale", value=1e4), Step(name="convert", dtype="e5m2")),
    "through fp32": Epilogue.of(Step(name="convert", dtype="fp32"), Step(name="scale", value=1.1), "bias"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_bytes_are_those_of_pytorchs_operators(name: str, dtype: str) -> None:
    """For the steps without a function, PyTorch's operators on a CPU are those on a GPU."""
    epilogue = SEQUENCES[name]
    a, b = normal(6, 40, dtype=DTYPES[dtype]), normal(40, 8, seed=1, dtype=DTYPES[dtype])
    a[0], a[1, 0], a[2, 0] = 0, float("inf"), float("nan")
    operands = [
        normal(8, seed=2, dtype=DTYPES[kind]) if step == "bias" else normal(6, 8, seed=3, dtype=DTYPES[kind])
        for step, kind in zip(epilogue.operands, epilogue.operand_types(dtype), strict=True)
    ]
    desc = desc_of(40, dtype)
    product = matmul(a, b, desc=desc)
    found = matmul(a, b, desc=desc, epilogue=epilogue, operands=operands)
    wanted = epilogues.eager(epilogue, product, operands)
    assert found.dtype == wanted.dtype
    # The pattern of a NaN is that of a GPU, where it is the canonical one.
    numbers = ~wanted.float().isnan().numpy()
    assert not numbers.all()
    assert (found.float().isnan() == wanted.float().isnan()).all()
    assert (patterns(found) == patterns(wanted))[numbers].all()
    text = matmul(a, b, desc=desc.to_text(), epilogue=epilogue.to_text(), operands=operands)
    assert (patterns(text) == patterns(found)).all()


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
@pytest.mark.parametrize("source", ["bf16", "fp16"])
@pytest.mark.parametrize("saturate", [True, False])
def test_every_conversion_to_8_bits_is_pytorchs(dtype: str, source: str, saturate: bool) -> None:
    x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(DTYPES[source]).reshape(256, 256)
    epilogue = Epilogue.of(Step(name="convert", dtype=dtype, saturate=saturate))
    found = evaluate_epilogue(epilogue, source, patterns(x))
    wanted = patterns(epilogues.eager(epilogue, x, ()))
    beyond = (x.abs().float() > 464).numpy() & (dtype == "e4m3") & (not saturate)
    assert (((found == wanted) | beyond) | x.isnan().numpy()).all()
    assert ((found & 0x7F) == 0x7F)[beyond].all()
    assert ((found & 0x7F) >= (0x7F if dtype == "e4m3" else 0x7D))[x.isnan().numpy()].all()


def test_gradients_are_products_of_the_library(toy: None) -> None:
    a, b = normal(5, 40).requires_grad_(), normal(40, 7, seed=1).requires_grad_()
    bias, residual = normal(7, seed=2).requires_grad_(), normal(5, 7, seed=3).requires_grad_()
    upstream = normal(5, 7, seed=4)
    found = matmul(a, b, like="toy", epilogue=TEXT, operands=(bias, residual))
    product = matmul(a.detach(), b.detach(), like="toy")
    assert torch.equal(found, torch.relu(product + bias) + residual)
    found.backward(upstream)
    inner = torch.where(product + bias > 0, upstream, 0)
    assert torch.equal(a.grad, matmul(inner, b.detach().t(), like="toy"))
    assert torch.equal(b.grad, matmul(a.detach().t(), inner, like="toy"))
    assert torch.equal(residual.grad, upstream)
    assert torch.equal(bias.grad, inner.sum(0))


def test_the_library_of_gradients_is_chosen(toy: None) -> None:
    for options, wanted in (
        ({"like": "toy"}, "toy"), ({"like": "toy", "grad_like": "torch"}, "torch"),
        ({"desc": desc_of(300)}, "torch"), ({"desc": desc_of(300), "grad_like": "toy"}, "toy"),
    ):  # fmt: skip
        a, b = normal(300, 300).requires_grad_(), normal(300, 20, seed=1).requires_grad_()
        upstream = normal(300, 20, seed=2)
        matmul(a, b, **options).backward(upstream)
        described = matmul(a.detach().t(), upstream, like="toy")
        ordinary = a.detach().t() @ upstream
        assert not torch.equal(described, ordinary)
        assert torch.equal(b.grad, described if wanted == "toy" else ordinary)


def test_an_expanded_gradient_is_a_dense_matrix_for_the_library(toy: None) -> None:
    a, b = normal(5, 40).requires_grad_(), normal(40, 7, seed=1)
    matmul(a, b, like="toy").sum().backward()
    assert torch.equal(a.grad, matmul(torch.ones(5, 7).half(), b.t(), like="toy"))


@pytest.mark.parametrize("steps", [
    ("bias", "gelu", "add"), ("gelu_tanh",), ("silu", "multiply"), ("swiglu",),
    (Step(name="scale", value=0.5), Step(name="clamp", low=-1.0, high=1.0), "relu"),
    (Step(name="convert", dtype="fp32"), Step(name="scale", value=0.3)),
], ids=str)  # fmt: skip
def test_gradients_of_the_steps_are_those_of_autograd(steps: tuple[Any, ...]) -> None:
    epilogue = Epilogue.of(*steps)
    product = normal(5, 7).requires_grad_()
    operands = [normal(*(7,) if each == "bias" else (5, 7), seed=2).requires_grad_() for each in epilogue.operands]
    found = epilogues.eager(epilogue, product, operands)
    upstream = normal(5, 7, seed=3, dtype=found.dtype)
    wanted = torch.autograd.grad(found, [product, *operands], upstream)
    with torch.no_grad():
        inner, others = epilogues.gradients(epilogue, product, operands, upstream)
    assert torch.equal(inner, wanted[0])
    assert all(torch.equal(each, other) for each, other in zip(others, wanted[1:], strict=True))


def test_a_trace_contains_one_operator_with_gradients(toy: None) -> None:
    a, b = normal(5, 40).requires_grad_(), normal(40, 7, seed=1).requires_grad_()
    bias, residual = normal(7, seed=2).requires_grad_(), normal(5, 7, seed=3)
    torch.library.opcheck(gradients_operator(), (normal(5, 7), [normal(7), normal(5, 7)], normal(5, 7), TEXT))
    torch.library.opcheck(
        epilogue_operator(matmul), (a, b, [bias, residual], TEXT, "", "toy", "fp16", "toy"),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )  # fmt: skip

    def step(a: Any, b: Any, bias: Any, residual: Any) -> Any:
        return matmul(a, b, like="toy", epilogue=TEXT, operands=(bias, residual)) * 2

    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return make_boxed_func(graph.forward)

    plain = step(a, b, bias, residual)
    wanted = torch.autograd.grad(plain.sum(), [a, b, bias])
    compiler = aot_autograd(fw_compiler=backend, bw_compiler=backend)
    traced = torch.compile(step, backend=compiler, fullgraph=True)
    found = traced(a, b, bias, residual)
    assert torch.equal(found, plain)
    gradients = torch.autograd.grad(found.sum(), [a, b, bias])
    counts = [sum(f"bitwise.{name}." in each for each in graphs[1]) for name in ("matmul", "epilogue_gradients")]
    assert counts == [3, 1]
    assert sum("bitwise.matmul_epilogue." in each for each in graphs[0]) == 1
    assert all(torch.equal(each, other) for each, other in zip(gradients, wanted, strict=True))
    with torch.no_grad():
        assert torch.equal(traced(a, b, bias, residual), plain)


def test_a_trace_changes_the_type() -> None:
    text, desc = SEQUENCES["to e4m3"].to_text(), desc_of(40).to_text()
    a, b = normal(5, 40), normal(40, 7, seed=1)
    traced = torch.compile(lambda x, y: matmul(x, y, desc=desc, epilogue=text), backend="aot_eager", fullgraph=True)
    assert torch.equal(traced(a, b).view(torch.uint8), matmul(a, b, desc=desc, epilogue=text).view(torch.uint8))


def test_invalid_arguments_are_refused() -> None:
    a, b, desc = normal(5, 40), normal(40, 7, seed=1), desc_of(40)
    bias = Epilogue.of("bias")
    invalid: list[tuple[str, dict[str, Any]]] = [
        ("out does not support an epilogue", {"epilogue": bias, "out": torch.empty(5, 7).half()}),
        ("operands are those of an epilogue", {"operands": (a,)}),
        ("epilogue is a int; give an Epilogue", {"epilogue": 3}),
        (r"the epilogue has 1 operands \(bias\), and 0 are given", {"epilogue": bias}),
        (r"operand 0 of the epilogue \(bias\) has the shape \(5, 7\)", {"epilogue": bias, "operands": (normal(5, 7),)}),
        ("this version of PyTorch saturates", {"epilogue": "epilogue(steps=[step(name=convert dtype=e4m3)])"}),
        ("is of torch.float32; the step is of float16", {"epilogue": bias, "operands": (torch.zeros(7),)}),
        ("operand 0 of the epilogue is a list", {"epilogue": bias, "operands": ([1.0] * 7,)}),
    ]
    saturates = not torch.tensor(1000.0).to(torch.float8_e4m3fn).isnan()
    for sentence, options in invalid:
        if "saturates" in sentence and not saturates:
            continue
        with pytest.raises(ProductError, match=sentence):
            matmul(a, b, desc=desc, **options)


class Fusing:
    """A launcher for the meta device, or for one that is said to be a GPU, whose fused kernels record their calls."""

    name = "fusing"
    formulas: Any = {}  # noqa: RUF012

    def __init__(self, wrong: bool = False) -> None:
        self.calls: list[tuple[int, ...]] = []
        self.prepared = 0
        self.wrong = wrong

    def missing(self) -> None:
        return None

    def launch(self, desc: Any, *operands: Any) -> Any:
        raise AssertionError

    def serves(self, desc: Any, device: Any) -> bool:
        return True

    def product(self, desc: Any, a: Any, b: Any, out: Any) -> None:
        out.copy_((a.float() @ b.float()).to(out.dtype))

    def prepare(self, desc: Any, a: Any, b: Any, out: Any) -> Any:
        self.product(desc, a, b, out)
        return lambda *addresses: None

    def prepare_epilogue(self, desc: Any, epilogue: Epilogue, a: Any, b: Any, operands: Any, out: Any) -> Any:
        self.prepared += 1
        product = (a.float() @ b.float()).to(torch.float16)
        out.copy_(epilogues.eager(epilogue, product, operands) + int(self.wrong))
        return lambda *addresses: self.calls.append(addresses)

    def apply_epilogue(self, epilogue: Epilogue, x: Any, operands: Any, out: Any) -> None:
        out.copy_(epilogues.eager(epilogue, x, operands))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let products on the CPU run by a launcher."""

    def install(launcher: Fusing) -> None:
        found = replace(registry.default(), launchers=(launcher,))
        monkeypatch.setattr(registry, "default", lambda: found)
        monkeypatch.setattr("bitwise_torch.product_runs.on_cpu", lambda tensor: False)
        monkeypatch.setattr(epilogues, "_calls", {})
        # Each product is computed anew: what this launcher prepares for products alone does nothing.
        monkeypatch.setattr("bitwise_torch.products._keep_call", lambda *arguments: None)
        monkeypatch.setattr("bitwise_torch.dispatch_cache._calls", {})

    return install


def test_repeated_calls_launch_the_fused_kernel(elsewhere: Any) -> None:
    launcher = Fusing()
    elsewhere(launcher)
    a, b, desc = normal(5, 40), normal(40, 7, seed=1), desc_of(40)
    bias, residual = normal(7, seed=2), normal(5, 7, seed=3)
    epilogue = Epilogue.from_text(TEXT)
    wanted = matmul(a, b, desc=desc, epilogue=epilogue, operands=(bias, residual))
    assert torch.equal(wanted, torch.relu((a.float() @ b.float()).half() + bias) + residual)
    assert (launcher.prepared, launcher.calls) == (1, [])
    out = matmul(a, b, desc=desc, epilogue=epilogue, operands=(bias, residual))
    if launcher.calls:  # the allocator may have returned memory of another alignment
        ((*given,),) = launcher.calls
        assert given == [each.data_ptr() for each in (a, b, out, bias, residual)]
    matmul(a, b, desc=desc, epilogue=epilogue, operands=(bias, residual.t().contiguous().t()))
    assert launcher.prepared == 2
    before = len(launcher.calls)
    recorded = matmul(a, b, desc=desc, epilogue=epilogue, operands=(bias.requires_grad_(), residual))
    assert recorded.requires_grad
    assert torch.equal(recorded, wanted)
    assert len(launcher.calls) == before
    with pytest.raises(ProductError, match="the epilogue has 2 operands"):
        matmul(a, b, desc=desc, epilogue=epilogue, operands=(bias,))


def test_a_kernel_of_other_bytes_does_not_run(elsewhere: Any) -> None:
    launcher = Fusing(wrong=True)
    elsewhere(launcher)
    a, b, desc = normal(5, 40), normal(40, 7, seed=1), desc_of(40)
    with pytest.warns(FusionWarning, match="returned other bytes than PyTorch's operators"):
        wanted = matmul(a, b, desc=desc, epilogue="epilogue(steps=[step(name=relu)])")
    found = matmul(a, b, desc=desc, epilogue="epilogue(steps=[step(name=relu)])")
    assert torch.equal(wanted, torch.relu((a.float() @ b.float()).half()))
    assert torch.equal(found, wanted)
    assert not launcher.calls


def test_a_function_of_other_bytes_is_not_fused(elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Fusing, epilogue: Epilogue, x: Any, operands: Any, out: Any) -> None:
        out.copy_(epilogues.eager(epilogue, x, operands))
        out[77, 3] += 1

    launcher = Fusing()
    elsewhere(launcher)
    a, b, desc = normal(5, 40), normal(40, 7, seed=1), desc_of(40)
    matmul(a, b, desc=desc, epilogue=Epilogue.of("silu"))
    assert launcher.prepared == 1
    monkeypatch.setattr(Fusing, "apply_epilogue", other)
    launcher = Fusing()
    elsewhere(launcher)
    for name in ("silu", "gelu"):
        matmul(a, b, desc=desc, epilogue=Epilogue.of(name))
        matmul(a, b, desc=desc, epilogue=Epilogue.of("swiglu"), operands=(normal(5, 7),))
    assert launcher.prepared == 0
    matmul(a, b, desc=desc, epilogue=Epilogue.of("relu"))
    assert launcher.prepared == 1
