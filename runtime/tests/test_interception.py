"""Interception of PyTorch's operators: which operators, in which threads, and what an exception leaves behind."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from bitwise_torch import calls_in_c, interception
from bitwise_torch.interception import InterceptionError, OtherThreads, active

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
LSTM = torch.nn.LSTM(4, 4)


@pytest.fixture(autouse=True, params=["python", "c"])
def _kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace kernels by functions in Python and in C, not by those that another test left in place."""
    interception.restore_kernels()
    made = calls_in_c.configured(lambda: -1) if request.param == "c" else None
    if request.param == "c" and made is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(calls_in_c, "module", lambda: made)
    yield
    interception.restore_kernels()


@dataclass
class Trace:
    """Counts the operators that it receives, and adds a number to the results of products."""

    added: float = 0.0
    other_threads: OtherThreads = "error"
    seen: list[str] = field(default_factory=list)
    calls_in_c: None = None

    def handle(self, operation: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.seen.append(name if operation.overload == "default" else f"{name}.{operation.overload}")
        result = operation(*arguments, **options)
        return result + self.added if self.added else result


def test_products_of_both_passes_are_intercepted_and_nothing_else_is() -> None:
    layer, x = torch.nn.Linear(4, 3), torch.randn(2, 4, requires_grad=True)
    trace = Trace()
    with active(trace):
        torch.nn.functional.gelu(layer(x)).sum().backward()
        torch.mm(x.detach(), torch.ones(4, 2), out=torch.empty(2, 2))
    torch.mm(x, torch.ones(4, 2))
    assert trace.seen == ["addmm", "mm", "mm", "mm.out"]


def test_checkpointed_and_compiled_products_are_intercepted() -> None:
    layer, x = torch.nn.Linear(4, 3, bias=False), torch.randn(2, 4, requires_grad=True)
    checkpointed = Trace()
    with active(checkpointed), torch.utils.checkpoint.set_checkpoint_early_stop(False):
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert checkpointed.seen == ["mm"] * 4
    compiled = Trace()
    with active(compiled):
        torch.compile(layer, backend="aot_eager", fullgraph=True)(x).sum().backward()
    assert compiled.seen == ["mm"] * 3


def test_every_operator_that_multiplies_matrices_is_named() -> None:
    """An operator of a later PyTorch with a usual name must be listed, unless it is composed of others."""
    products = re.compile(
        r"^_?(\w+_)?(mm|bmm|mv|dot|addmm|baddbmm|addbmm|addmv|addr|matmul|convolution|attention|rnn|rnn_layer|cdist)_?"
        r"(_v2|_activation|(_add)?_relu|_transpose|_4bit|_for_cpu|_with_scales_and_zeros|_forward|_backward"
        r"|_forward_no_dropout_inplace)?$"
    )
    # Sparse tensors and those of MKL-DNN are not intercepted; the lists of `_foreach_mm`, and the gradients of products
    # of nested tensors, are products of their own; `_slow_conv2d` and others run inside of `convolution`.
    other = re.compile(
        r"sparse|mkldnn_convolution|mps|_foreach|_overrideable|smm|hspmm|^matmul_backward|_nnpack|quantized"
    )
    found = set()
    for full in torch._C._dispatch_get_all_op_names():
        name = full.removeprefix("aten::").partition(".")[0]
        if not full.startswith("aten::") or not products.match(name) or other.search(name):
            continue
        if not torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"):
            found.add(name)
    named = found & {*interception.PRODUCTS, *interception.WATCHED}
    assert not {each for each in found - named if not each.startswith(interception.ATTENTION_PREFIX)}
    assert len(named) >= 20


@pytest.mark.parametrize(("name", "call"), [
    ("addmm_", lambda a: a.clone().addmm_(a, a)),
    ("baddbmm_", lambda a: a[None].clone().baddbmm_(a[None], a[None])),
    ("addmv", lambda a: torch.addmv(a[0], a, a[0])),
    ("convolution", lambda a: torch.nn.functional.conv1d(a[None], a[None])),
    ("_cdist_forward", lambda a: torch.cdist(a, a)),
    ("mkldnn_rnn_layer", lambda a: LSTM(a[None])[0].detach()),
    ("mv", lambda a: torch.mv(a, a[0])),
])  # fmt: skip
def test_an_operator_is_intercepted_once(name: str, call: Callable[[Any], Any]) -> None:
    a = torch.randn(4, 4)
    trace, expected = Trace(), call(a)
    with active(trace):
        assert torch.equal(call(a), expected)
    assert trace.seen == [name]


def test_scopes_nest() -> None:
    a = torch.ones(2, 2)
    outer, inner = Trace(10), Trace(100)
    with active(outer):
        with active(inner):
            assert torch.equal(a @ a, torch.full((2, 2), 112.0))
        assert torch.equal(a @ a, torch.full((2, 2), 12.0))
    assert torch.equal(a @ a, torch.full((2, 2), 2.0))
    assert (outer.seen, inner.seen) == (["mm", "mm"], ["mm"])


def test_scopes_of_two_threads_stay_apart() -> None:
    a, both = torch.ones(2, 2), threading.Barrier(2)

    def run(added: float) -> bool:
        trace = Trace(added)
        with active(trace):
            both.wait()
            x = a.clone().requires_grad_()
            found = [x @ a for _ in range(50)]
            found[-1].sum().backward()
            both.wait()
        assert len(trace.seen) == 51
        assert torch.equal(x.grad, torch.full((2, 2), 2 + added))
        return all(float(each[0, 0].detach()) == 2 + added for each in found)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, (10.0, 100.0))) == [True, True]


def test_tasks_that_take_turns_in_their_scopes_are_refused() -> None:
    """The first task's product goes to the scope of the second one, which passes it on; a lock would compute it."""
    traces, x = (Trace(), Trace()), torch.ones(2, 2)

    async def product(trace: Trace) -> None:
        with active(trace):
            await asyncio.sleep(0)
            torch.mm(x, x)

    async def both() -> list[BaseException | None]:
        return await asyncio.gather(*map(product, traces), return_exceptions=True)

    errors = asyncio.run(both())
    assert ["let no other task of asyncio run" in str(each) for each in errors] == [True, True]
    assert [each.seen for each in traces] == [["mm"], ["mm", "mm"]]
    asyncio.run(product(traces[0]))
    assert traces[0].seen == ["mm", "mm"]


def test_a_scope_ends_in_its_thread() -> None:
    stack = ExitStack()
    stack.enter_context(active(Trace()))
    with ThreadPoolExecutor(1) as pool, pytest.raises(InterceptionError, match="ended in another thread"):
        pool.submit(stack.close).result()
    interception.MULTIPLYING._of_thread.set(None)


def test_a_thread_without_a_scope_is_covered_or_refused() -> None:
    a = torch.ones(2, 2)

    def elsewhere() -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: float((a @ a)[0, 0])).result()

    with active(Trace(10)), pytest.raises(InterceptionError, match=r"torch\.mm ran in the thread .* which has no lock"):
        elsewhere()
    for other_threads, expected in (("cover", 12.0), ("ignore", 2.0)):
        with active(Trace(10, other_threads)):  # type: ignore[arg-type]
            assert elsewhere() == expected
    with active(Trace(10, "cover")), active(Trace(20, "cover")), pytest.raises(InterceptionError):
        elsewhere()
    assert elsewhere() == 2.0


def test_scopes_are_released() -> None:
    """Each scope is freed when its last block ends, and not before."""
    a, freed = torch.ones(2, 2), []
    for _ in range(100):
        scope = Trace()
        weakref.finalize(scope, freed.append, 1)
        with active(scope):
            torch.mm(a, a)
            torch.mm(a, a)
        assert scope.seen == ["mm", "mm"]
    del scope
    gc.collect()
    assert len(freed) == 100


def test_kernels_stay_replaced_where_scopes_follow_each_other() -> None:
    a, group = torch.ones(2, 2, requires_grad=True), interception.MULTIPLYING
    held = []
    for _ in range(2 * interception.KEPT_FROM):
        scope = Trace()
        with active(scope), active(Trace()):
            torch.mm(a, a)
        assert scope.seen
        held.append(group.library)
        # Without a scope, PyTorch's kernels run, also for gradients and in other threads.
        before = len(scope.seen)
        (a @ a).sum().backward()
        assert torch.equal(a.grad, torch.full((2, 2), 4.0))
        a.grad = None
        assert len(scope.seen) == before
    first = interception.KEPT_FROM - 1
    assert held[:first] == [None] * first
    assert held[first] is not None
    assert all(each is held[first] for each in held[first:])
    with active(Trace()):
        interception.restore_kernels()
        assert group.library is held[first]
    interception.restore_kernels()
    assert group.library is None
    with active(Trace()):
        pass
    assert group.library is None


def test_an_exception_leaves_nothing_behind() -> None:
    class Refusal(Exception):
        pass

    class Refusing(Trace):
        def handle(self, operation: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
            raise Refusal

    a = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(Refusal), active(Refusing()):
        torch.mm(a, a)
    product = a @ a
    with pytest.raises(Refusal), active(Refusing()):
        product.sum().backward()
    assert torch.is_grad_enabled()
    assert torch.equal(a @ a, torch.full((2, 2), 2.0))
    assert interception.MULTIPLYING.library is None
    assert not interception.MULTIPLYING.scopes()
