"""Launches of former calls: what decides them is in their key, and what they run is what ran first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bitwise_core.descriptors import Cut, DescriptorError, Epilogue, GEMMDesc, Step
from bitwise_core.descriptors.problem import Finish, FinishedGEMM, GEMMProblem
from bitwise_core.plugins import registry
from bitwise_torch import batch_invariant, calls_in_c, dispatch_cache, locked_products, many_products, recorded_products
from bitwise_torch.batch_invariance import row_functions, row_operators
from bitwise_torch.grouped_products import as_product
from bitwise_torch.intercepted_products import InterceptedProduct
from bitwise_torch.interception import restore_kernels
from bitwise_torch.locks import Entry, Lock, lock_of
from bitwise_torch.operator_samples import library_operator
from bitwise_torch.product_forms import with_bias_first
from bitwise_torch.product_replay import launch_of_batch
from bitwise_torch.products import product_into
from bitwise_torch.ready_launches import Count, ReadyLaunches
from bitwise_torch.tensor_problems import problem_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

K = 8

WIDE = 70000
"""Columns of a result whose memory is seldom aligned otherwise than before."""

_TO_BF16 = (Step(name="convert", dtype="bf16"),)
DESC = GEMMDesc(k=K, left_dtype="bf16", right_dtype="bf16", output_dtype="bf16", path="fma")


def tensor(*shape: int, seed: int = 0) -> Any:
    """Return a matrix whose address is a multiple of 64."""
    memory = torch.zeros(shape[0] * shape[1] + 64, dtype=torch.bfloat16)
    start = -memory.data_ptr() % 64 // 2
    found = memory[start : start + shape[0] * shape[1]].view(shape)
    return found.copy_(torch.randn(shape, generator=torch.Generator().manual_seed(seed)))


def test_a_kept_call_runs_for_the_same_operands_alone() -> None:
    ready, launches, count = ReadyLaunches(), [], Count()
    x = tensor(4, K)
    found, key = ready.run("f", (x,), ((-1,), True))
    assert found is None
    out = torch.empty(4, WIDE)
    ready.keep(key, (x,), out, lambda *given: launches.append(given), count)
    held = []  # until the allocator returns memory of the same alignment
    while (again := ready.run("f", (x,), ((-1,), True))[0]) is None and len(held) < 2000:
        held.append(torch.empty(4, WIDE + len(held)))
    assert again is not None
    assert launches == [(x.data_ptr(), again.data_ptr())]
    assert (again.shape, again.dtype, count.calls) == (out.shape, torch.float32, 1)
    others = [
        ("g", x, ((-1,), True)), ("f", x, ((-1,), False)), ("f", x.float(), ((-1,), True)), ("f", x[:2], ((-1,), True)),
        ("f", x.t(), ((-1,), True)), ("f", torch.nn.Parameter(x), ((-1,), True)),
    ]  # fmt: skip
    for name, each, rest in others:
        assert ready.run(name, (each,), rest)[0] is None
    assert len(launches) == 1


def test_a_kept_call_with_several_results_runs_for_the_same_operands_alone() -> None:
    ready, launches = ReadyLaunches(), []
    x, y = tensor(4, K), tensor(4, K, seed=1)
    found, key = ready.run_several("f", (x, y), (True,))
    assert found is None
    results = torch.empty(2, 3, 4, WIDE // 10).transpose(1, 2), torch.empty(WIDE, dtype=torch.float64)
    ready.keep_several(key, (x, y), results, lambda *given: launches.append(given))
    kept = ready._several[key]
    memories = [each for each in kept.results if each is not None]
    for each, (allocate, alignment) in zip(results, memories, strict=True):
        made = allocate(x)
        assert (made.shape, made.stride(), made.dtype) == (each.shape, each.stride(), each.dtype)
        assert alignment == each.data_ptr() & -each.data_ptr() & 255
    # The results themselves are memory of the same alignments.
    again = [(lambda _, each=each: each, alignment) for each, (_, alignment) in zip(results, memories, strict=True)]
    ready._several[key] = replace(kept, results=tuple(again))
    found, _ = ready.run_several("f", (x, y), (True,))
    assert found is not None
    assert all(one is other for one, other in zip(found, results, strict=True))
    assert launches == [(x.data_ptr(), y.data_ptr(), *(each.data_ptr() for each in results))]
    other = [(allocate, alignment ^ 64) for allocate, alignment in again]
    ready._several[key] = replace(kept, results=tuple(other))
    assert ready.run_several("f", (x, y), (True,)) == (None, key)
    others = ("g", (x, y), (True,)), ("f", (y.t(), x), (True,)), ("f", (x, y), (False,)), ("f", (x.float(), y), (True,))
    for name, operands, rest in others:
        assert ready.run_several(name, operands, rest)[0] is None
    assert len(launches) == 1
    gaps = torch.empty(4, 8)[:, :4]
    ready.keep_several("gaps", (x,), (gaps,), lambda *given: None)
    assert "gaps" not in ready._several


def test_operands_without_memory_and_arguments_without_a_hash_have_no_key() -> None:
    ready = ReadyLaunches()
    assert ready.run("f", (torch.ones(2, 2).to_sparse(),)) == (None, None)
    assert ready.run("f", (tensor(4, K),), ([1],)) == (None, None)


def test_other_plugins_empty_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    ready, x = ReadyLaunches(), tensor(4, K)
    _, key = ready.run("f", (x,))
    ready.keep(key, (x,), torch.empty(4), lambda *given: None)
    other = replace(registry.default(), profiles=())
    monkeypatch.setattr(registry, "default", lambda: other)
    assert ready.run("f", (x,))[0] is None


class Stub:
    """A launcher that prepares products of tensors on the CPU; what it prepared returns the product of PyTorch."""

    name = "stub"

    def __init__(self) -> None:
        self.prepared = 0
        self.launched: list[tuple[int, ...]] = []

    def missing(self) -> None:
        return None

    def launch(self, desc: Any, *operands: Any) -> Any:
        raise AssertionError

    def serves(self, desc: Any, device: Any) -> bool:
        return True

    def product(self, desc: Any, a: Any, b: Any, out: Any) -> None:
        raise AssertionError

    def prepare(self, desc: Any, a: Any, b: Any, out: Any) -> Any:
        self.prepared += 1
        out.fill_(1)
        return lambda *addresses: self.launched.append(addresses)

    def sequential(self, k: int, left: str, right: str, output: str, **options: Any) -> GEMMDesc:
        return DESC.model_copy(update={"left_dtype": left, "right_dtype": right, "output_dtype": output})

    def batched_product(self, desc: Any, a: Any, b: Any, out: Any) -> Any:
        return self.prepare(desc, a, b, out)

    def grouped_product(self, desc: Any, a: Any, b: Any, ends: Any, out: Any) -> Any:
        return self.prepare(desc, a, b, out)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    made = Stub()
    found = replace(registry.default(), launchers=(made,))
    monkeypatch.setattr(registry, "default", lambda: found)
    monkeypatch.setattr("bitwise_torch.product_runs.on_cpu", lambda tensor: False)
    monkeypatch.setattr(dispatch_cache, "_calls", {})
    return made


def test_a_batch_of_one_is_one_launch_and_the_evaluated_ones_of_others_are_not_kept(stub: Stub) -> None:
    a, b = tensor(4, K)[None], tensor(K, WIDE, seed=1)[None]
    with batch_invariant(strict=True) as mode:
        for _ in range(20):
            torch.bmm(a, b)
        assert stub.launched
        assert all(given[:2] == (a.data_ptr(), b.data_ptr()) for given in stub.launched)
        kept = len(mode._ready._calls)
        torch.bmm(a.expand(2, 4, K), b.expand(2, K, WIDE))
        assert len(mode._ready._calls) == kept


def test_a_setting_of_fp32_products_is_part_of_their_key(stub: Stub) -> None:
    a, b = tensor(4, K).float(), tensor(K, WIDE, seed=1).float()
    before = torch.get_float32_matmul_precision()
    with batch_invariant(strict=True) as mode:
        try:
            for precision in ("highest", "high", "highest"):
                torch.set_float32_matmul_precision(precision)
                for _ in range(20):
                    torch.mm(a, b)
        finally:
            torch.set_float32_matmul_precision(before)
        assert len({key[1] for key in mode._ready._calls}) == 2


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("centered", [False, True])
def test_the_launch_of_a_normalisation_takes_the_tensors_that_exist(
    monkeypatch: pytest.MonkeyPatch, weighted: bool, biased: bool, centered: bool
) -> None:
    seen: list[Any] = []

    def repetition(name: str, grid: Any, tensors: tuple[Any, ...], *rest: Any) -> Any:
        seen.append((name, grid, [None if each is None else each.data_ptr() for each in tensors], *rest))
        return lambda *addresses: seen.append(list(addresses))

    monkeypatch.setattr(row_functions, "_repetition", repetition)
    monkeypatch.setattr(row_functions, "_is_plain", lambda x: True)
    x, out = tensor(3, 64), tensor(3, 64, seed=1)
    weight, bias = torch.ones(64) if weighted else None, torch.ones(64) if biased else None
    statistics = [torch.ones(3, 1) for _ in range(1 + centered)]
    same = weight if weighted and biased else bias  # one tensor for both, and two in the call that repeats it
    found = row_functions.launch_of_normalised_rows(x, weight, same, (out, *statistics), 64, 1e-6)
    assert found is not None
    given = [each for each in (x, weight, bias, out, *statistics) if each is not None]
    found(*[each.data_ptr() for each in given])
    seen[0][2][2] = None if bias is None else bias.data_ptr()
    assert seen[0][:2] == ("normalised_rows", (-(-3 // row_functions.geometry(64)[0]["ROWS"]), 1, 1))
    assert seen[0][2] == seen[1]  # the addresses of another call in the same places
    assert seen[0][3:] == ((3, 64, 64.0, 1e-6), (centered, *row_functions.geometry(64)[0].values()))


@pytest.mark.parametrize(
    "wanted", [(True, True, True), (True, False, False), (False, True, False), (False, True, True)]
)
@pytest.mark.parametrize("name", ["native_layer_norm_backward", "_fused_rms_norm_backward"])
@pytest.mark.parametrize("rows", [3, 300])
def test_the_launch_of_the_gradients_of_a_normalisation_takes_the_tensors_that_exist(
    monkeypatch: pytest.MonkeyPatch, name: str, wanted: tuple[bool, ...], rows: int
) -> None:
    made: list[tuple[str, tuple[Any, ...]]] = []
    ran: list[tuple[str, tuple[Any, ...]]] = []

    def repetition(kernel: str, grid: Any, tensors: tuple[Any, ...], *rest: Any) -> Any:
        made.append((kernel, tuple(None if each is None else each.data_ptr() for each in tensors)))
        return lambda *addresses: ran.append((kernel, addresses))

    monkeypatch.setattr(row_functions, "_repetition", repetition)
    monkeypatch.setattr(row_functions, "_is_plain", lambda x: True)
    centered = name.startswith("native")
    g, x, weight, bias = tensor(rows, 64), tensor(rows, 64, seed=1), torch.ones(64), torch.ones(64)
    mean, scale = torch.ones(rows, 1), torch.ones(rows, 1)
    mask = list(wanted)
    if centered:
        arguments = (g, x, [64], mean, scale, weight, bias, mask)
    else:
        arguments, mask = (g, x, [64], scale, weight, mask[:2]), mask[:2]
    kinds = torch.empty_like(x), torch.ones(64), torch.ones(64)
    results = [each if there else None for each, there in zip(kinds, mask, strict=False)]
    launch = row_operators.launch_of_normalisation(name, arguments, results)
    assert launch is not None
    given = [each for each in (*arguments, *results) if isinstance(each, torch.Tensor)]
    launch(*[each.data_ptr() for each in given])
    names = {each.data_ptr() for each in given}
    # What lies between two kernels has other memory in each launch.
    known = [(kernel, tuple(each for each in at if each is None or each in names)) for kernel, at in made]
    assert known == [(kernel, tuple(each for each in at if each is None or each in names)) for kernel, at in ran]
    several = rows > 128
    columns = ["sum_of_columns"] if several else []
    of_weight = ["sum_of_column_products", *columns] if wanted[1] else []
    of_bias = ["sum_of_columns", *columns] if centered and wanted[2] else []
    of_input = ["normalisation_gradient_of_rows"] if wanted[0] else []
    assert [kernel for kernel, _ in ran] == [*of_input, *of_weight, *of_bias]


def test_the_launch_of_a_bias_takes_it_first() -> None:
    given = []
    with_bias_first(lambda *addresses: given.append(addresses))(1, 2, 3, 4)
    assert given == [(2, 3, 4, 1)]


@pytest.fixture
def in_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let tables in C keep calls of the CPU, whose results get memory of one alignment, as a GPU's do."""
    restore_kernels()  # those that another test left in place have no such tables
    made = calls_in_c.configured(lambda: -1)
    if made is None:
        pytest.skip("there is no C compiler, or PyTorch has no such function")
    monkeypatch.setattr(calls_in_c, "module", lambda: made)

    def memory_of(out: Any) -> tuple[Any, ...]:
        alignment = out.data_ptr() & -out.data_ptr() & 255

        def empty(shape: Any, strides: Any, dtype: Any) -> Any:
            size = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
            memory = torch.empty(size + 512 // dtype.itemsize, dtype=dtype)
            start = ((alignment or 256) - memory.data_ptr()) % 512 // dtype.itemsize
            return memory.as_strided(shape, strides, start)

        return empty, tuple(out.shape), out.stride(), out.dtype

    monkeypatch.setattr("bitwise_torch.ready_launches.gpu_memory_of", memory_of)
    yield
    restore_kernels()


@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("in_python", [False, True])
def test_a_call_that_is_not_locked_is_passed_on_in_c(
    stub: Stub, in_c: None, in_python: bool, out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_python:
        monkeypatch.setattr(calls_in_c, "module", lambda: None)
    a, b = tensor(4, K), tensor(K, WIDE, seed=1)
    other, target = tensor(5, K), tensor(4, WIDE)
    given = {"out": target} if out else {}
    expected = torch.mm(a, b)
    with locked_products(Lock(entries=()), missing="pass") as replay:
        found = [torch.mm(a, b, **given) for _ in range(3)]
        handled: list[str] = []
        real = type(replay).handle

        def handle(self: Any, operation: Any, name: str, *rest: Any) -> Any:
            handled.append(name)
            return real(self, operation, name, *rest)

        monkeypatch.setattr(type(replay), "handle", handle)
        found += [torch.mm(a, b, **given) for _ in range(20)]
        assert handled == (["mm"] * 20 if in_python else [])
        torch.mm(other, b)
        assert handled[-1] == "mm"
    assert all(torch.equal(each, expected) for each in found)
    counts = sorted(replay.not_replayed.values())
    assert counts == [1, 23]
    assert replay.report()[0] == "0 products of 0 problems ran from the lock, 24 ran in this machine's library"
    assert not stub.launched


@pytest.mark.parametrize("scope", ["mode", "lock"])
def test_a_product_that_ran_is_repeated_in_c(
    stub: Stub, in_c: None, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = tensor(4, K), tensor(K, WIDE, seed=1)
    lock = Lock(entries=(Entry(problem=problem_of(a, b), descriptor=DESC.to_text()),))
    with batch_invariant(strict=True) if scope == "mode" else locked_products(lock) as found:
        outputs = [torch.mm(a, b) for _ in range(20)]
        assert stub.prepared + len(stub.launched) == 20
        handled: list[str] = []
        real = type(found).handle

        def handle(self: Any, operation: Any, name: str, *rest: Any) -> Any:
            handled.append(name)
            return real(self, operation, name, *rest)

        monkeypatch.setattr(type(found), "handle", handle)
        more = [torch.mm(a, b) for _ in range(40)]
    assert len(handled) < len(more)
    for given in stub.launched:
        assert given[:2] == (a.data_ptr(), b.data_ptr())
        assert given[2] in {each.data_ptr() for each in (*outputs, *more)}
    if scope == "lock":
        assert found.replayed.total() == 60


def test_a_product_of_a_lock_into_an_output_is_repeated_in_c(
    stub: Stub, in_c: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, out = tensor(4, K), tensor(K, 64, seed=1), tensor(4, 64)
    lock = Lock(entries=(Entry(problem=problem_of(a, b), descriptor=DESC.to_text()),))
    with locked_products(lock) as replay:
        torch.mm(a, b, out=out)
        torch.mm(a, b, out=out)
        monkeypatch.setattr(type(replay), "handle", None)
        for _ in range(3):
            assert torch.mm(a, b, out=out) is out
    assert stub.launched[-3:] == [(a.data_ptr(), b.data_ptr(), out.data_ptr())] * 3
    assert replay.replayed.total() == 5


def test_what_a_lock_leaves_to_pytorch_is_passed_on_in_c(in_c: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, 1, 4, 4)
    with recorded_products("cublas") as recording:
        torch.nn.functional.conv2d(x, x)
    (text,) = [text for name, text in recording._calls if name == "aten::convolution"]
    operator = library_operator("aten::convolution", text, None)
    with locked_products(Lock(entries=(), operators=(operator,))) as replay:
        wanted = torch.nn.functional.conv2d(x, x)
        monkeypatch.setattr(type(replay), "handle", None)
        found = [torch.nn.functional.conv2d(x, x) for _ in range(3)]
    assert all(torch.equal(each, wanted) for each in found)
    assert replay.library == {"aten::convolution": 4}


def test_matrices_of_a_batch_are_launched_by_their_distances(stub: Stub) -> None:
    def batch(*shape: int) -> Any:
        memory = torch.zeros(math.prod(shape) + 256, dtype=torch.bfloat16)
        start = -memory.data_ptr() % 256 // 2
        return memory[start : start + math.prod(shape)].view(shape)

    a, b, out = batch(3, 4, K), batch(3, K, 64), batch(3, 4, 64)
    product = InterceptedProduct(a, b, None, problem_of(a, b))
    assert launch_of_batch(product, DESC, out) is None
    for left, right, target in zip(a, b, out, strict=True):
        product_into(left, right, target, DESC)
    launch = launch_of_batch(product, DESC, out)
    assert launch is not None
    stub.launched.clear()
    launch(256, 1024, 4096)
    assert stub.launched == [(256 + 8 * K * each, 1024 + 128 * K * each, 4096 + 512 * each) for each in range(3)]
    elsewhere = InterceptedProduct(a[:, 1:], b, None, problem_of(a[:, 1:], b))
    assert launch_of_batch(elsewhere, DESC, out) is None


class OnGPU:
    """A device that is no CPU."""

    type = "cuda"


GROUP = GEMMProblem(m=1, n=1, k=1, a="bf16", b="bf16", out="bf16", finish=Finish(), grouped=True)


def lock_of_groups(**changed: Any) -> Lock:
    """Return a lock of groups by the stub's order, or by another one."""
    product = DESC.model_copy(update={"output_dtype": "fp32", "k": 1} | changed)
    steps = Epilogue.of(Step(name="convert", dtype="bf16"))
    return lock_of([(GROUP, FinishedGEMM(product=product, steps=steps))], {})


@pytest.fixture
def one_launch(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """The stub, which computes groups and batches of tensors on the CPU in one launch."""
    real = many_products.launcher_of
    monkeypatch.setattr(many_products, "launcher_of", lambda desc, device: real(desc, OnGPU()))
    monkeypatch.setattr(many_products, "_launches", {})
    stub.sequential = lambda k, *types, **options: DESC.model_copy(  # type: ignore[method-assign]
        update={"k": k, **dict(zip(("left_dtype", "right_dtype", "output_dtype"), types, strict=True))}
    )
    return stub


@pytest.mark.parametrize("of_k", [False, True])
def test_groups_of_a_lock_are_one_launch_and_repeated_in_c(
    one_launch: Stub, in_c: None, of_k: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = tensor(64, K), tensor(3 * K, 512, seed=1).view(3, K, 512)
    if of_k:
        a, b = a.t(), tensor(64, 4096, seed=2)
    ends = torch.tensor([0, 20, 64], dtype=torch.int32)
    monkeypatch.setattr(torch.Tensor, "tolist", None)  # which waits for the device
    with locked_products(lock_of_groups()) as replay:
        found = [torch._grouped_mm(a, b, offs=ends) for _ in range(20)]
        handled: list[str] = []
        real = type(replay).handle

        def handle(self: Any, operation: Any, name: str, *rest: Any) -> Any:
            handled.append(name)
            return real(self, operation, name, *rest)

        monkeypatch.setattr(type(replay), "handle", handle)
        found += [torch._grouped_mm(a, b, offs=ends) for _ in range(40)]
    assert len(handled) < 40
    assert {tuple(each.shape) for each in found} == {(3, K, 4096) if of_k else (64, 512)}
    assert one_launch.prepared + len(one_launch.launched) == 60
    assert {given[:3] for given in one_launch.launched} == {(a.data_ptr(), b.data_ptr(), ends.data_ptr())}
    assert {given[3] for given in one_launch.launched} <= {each.data_ptr() for each in found}
    assert replay.replayed.total() == 60


def test_one_launch_computes_the_order_of_its_launcher_alone(one_launch: Stub) -> None:
    desc, device = DESC.model_copy(update={"k": 64}), torch.device("cpu")
    others = [
        desc.model_copy(update={"k_cuts": (Cut(count=2),)}), desc.model_copy(update={"output_dtype": "fp32"}),
        desc.model_copy(update={"k_dropped": 1}),
    ]  # fmt: skip
    one_launch.sequential = lambda *given, **options: desc  # type: ignore[method-assign]
    assert many_products.launcher_of(desc, device) is one_launch
    assert [many_products.launcher_of(each, device) for each in others] == [None] * 3

    def refuse(*given: Any, **options: Any) -> Any:
        raise DescriptorError("no such types")

    one_launch.sequential = refuse  # type: ignore[method-assign]
    assert many_products.launcher_of(desc, device) is None


def test_groups_are_one_product_where_a_conversion_to_bf16_is_their_only_step() -> None:
    sums = DESC.model_copy(update={"output_dtype": "fp32"})
    steps = (Step(name="convert", dtype="bf16"),), (Step(name="convert", dtype="fp16"),), (Step(name="relu"), *_TO_BF16)
    found = [as_product(FinishedGEMM(product=sums, steps=Epilogue.of(*each))) for each in steps]
    assert found == [DESC, None, None]


def test_small_matrices_of_a_batch_of_a_lock_are_one_launch(one_launch: Stub) -> None:
    a, b = tensor(12, K).view(3, 4, K), tensor(3 * K, 64, seed=1).view(3, K, 64)
    lock = Lock(entries=(Entry(problem=problem_of(a, b), descriptor=DESC.to_text()),))
    with locked_products(lock):
        for _ in range(20):
            torch.bmm(a, b)
    assert one_launch.prepared + len(one_launch.launched) == 20
    assert {given[:2] for given in one_launch.launched} == {(a.data_ptr(), b.data_ptr())}


@pytest.mark.parametrize("large", [False, True])
def test_matrices_that_are_large_or_of_other_types_run_one_by_one(one_launch: Stub, large: bool) -> None:
    def refuse(*given: Any) -> Any:
        raise DescriptorError("no kernel")

    one_launch.batched_product = refuse  # type: ignore[method-assign]
    n = 1 << 15 if large else 64
    a, b = tensor(12, K).view(3, 4, K), tensor(3 * K, n, seed=1).view(3, K, n)
    lock = Lock(entries=(Entry(problem=problem_of(a, b), descriptor=DESC.to_text()),))
    with locked_products(lock):
        torch.bmm(a, b)
    assert one_launch.prepared + len(one_launch.launched) == 3  # matrices of one alignment are prepared once


@pytest.mark.parametrize("scope", ["mode", "lock"])
def test_a_repeated_product_is_one_launch_for_its_addresses(stub: Stub, scope: str) -> None:
    a, b = tensor(4, K), tensor(K, WIDE, seed=1)
    entry = Entry(problem=problem_of(a, b), descriptor=DESC.to_text())
    lock = Lock(entries=(entry,))
    with batch_invariant(strict=True) if scope == "mode" else locked_products(lock) as found:
        outputs = [torch.mm(a, b).data_ptr() for _ in range(20)]  # mostly the memory that the last one released
    # A call is prepared again where the allocator returned memory of another alignment.
    assert stub.prepared + len(stub.launched) == 20
    assert stub.launched
    for given in stub.launched:
        assert given[:2] == (a.data_ptr(), b.data_ptr())
        assert given[2] in outputs
    if scope == "lock":
        assert found.replayed.total() == 20
