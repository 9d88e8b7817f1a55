"""Replace the matrix products of a PyTorch program with the products of a lock.

with locked_products(read_lock("products.json")) as replay:
    model(x)

The operators are intercepted as `product_recording` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.problem import DTYPES, GEMMProblem
from bitwise_torch import calls_in_c, dispatch_cache, many_products
from bitwise_torch.grouped_products import GROUPED, GroupedCall, grouped_call
from bitwise_torch.intercepted_products import (
    IN_PLACE,
    NOT_INTERCEPTED_REASON,
    InterceptedProduct,
    intercepted_product,
    is_exact,
    operands_of,
    products_of_batch,
)
from bitwise_torch.interception import (
    PRODUCTS,
    Intercepted,
    OtherThreads,
    WithoutGradients,
    active,
    check_other_threads,
)
from bitwise_torch.locks import Entry, Lock, LockError
from bitwise_torch.locks.library_operators import REMEDY, warn_of_undetermined
from bitwise_torch.operator_samples import NotSampled, call_text, machine_of
from bitwise_torch.product_calls import group_of_lock
from bitwise_torch.product_forms import (
    Form,
    NotLockable,
    biased_product,
    finished_product,
    fused_launch,
    with_bias_first,
)
from bitwise_torch.products import matmul, product_into
from bitwise_torch.ready_launches import Count, ReadyLaunches
from bitwise_torch.started_processes import passed_on, warn_of_earlier_processes
from bitwise_torch.tensor_problems import library_layout, problem_of

if TYPE_CHECKING:
    import torch

    from bitwise_torch.pinned_attention import AttentionScope

MOST_LAUNCHES = 64
"""The greatest number of matrices of a batch whose launches are kept together."""

LARGE_MATRIX = 1 << 16
"""The greatest number of elements of a matrix of a batch that is computed in one launch with the others."""

_NO_LIBRARIES: set[str] = set()
"""Products of a lock warn of no library."""

_READY = frozenset({"mm", "addmm", "bmm", "_grouped_mm"})
"""Operations whose launches are kept, where all of their arguments are tensors."""

_VECTORS = ("mv", "dot", "addmv", "addmv_")
"""Operations whose result is a column of a product, or an element."""


@dataclass
class Replay:
    """The products that ran from a lock, counted by problem, and those that did not, by operation and reason."""

    lock: Lock
    missing: Literal["error", "pass"]
    other_threads: OtherThreads = "error"
    processes: int = 0
    """The number of processes that were started with this lock; the other counts do not have their products."""
    attention: AttentionScope | None = None
    """The calls of pinned attention, of a lock that pins it."""
    _warned: set[str] = field(default_factory=set)
    _passed: dict[Hashable, Count] = field(default_factory=dict)
    """The counts of calls that PyTorch computes."""
    _counts: dict[GEMMProblem, Count] = field(default_factory=dict)
    _ready: ReadyLaunches = field(default_factory=lambda: ReadyLaunches(calls_in_c.module()))
    _library_counts: dict[str, Count] = field(default_factory=dict)
    _missed: dict[str, Count] = field(default_factory=dict)
    _missed_attention: Counter[str] = field(default_factory=Counter)
    _entries: dict[Hashable, Entry] = field(default_factory=dict)

    calls_in_c: Any = field(init=False)
    """See `interception.Scope`."""

    def __post_init__(self) -> None:
        self.calls_in_c = self._ready.calls_in_c

    @property
    def replayed(self) -> Counter[GEMMProblem]:
        """How often the product of each problem ran from the lock."""
        return Counter({problem: each.calls for problem, each in self._counts.items()})

    @property
    def not_replayed(self) -> Counter[str]:
        """How often a call that is not in the lock ran in the library, by operation and reason."""
        return Counter({reason: each.calls for reason, each in self._missed.items()}) + self._missed_attention

    @property
    def library(self) -> Counter[str]:
        """How often the lock left an operator to PyTorch."""
        return Counter({operator: each.calls for operator, each in self._library_counts.items()})

    def note_process(self) -> None:
        """Count a process that was started with this lock."""
        self.processes += 1

    def report(self) -> list[str]:
        """Return sentences that say how many products ran from the lock, and why others did not."""
        sentences = [
            f"{self.replayed.total()} products of {len(self.replayed)} problems ran from the lock, "
            f"{self.not_replayed.total()} ran in this machine's library"
        ]
        if self.attention is not None:
            sentences.append(f"{self.attention.calls} calls of attention ran in the order of the lock")
        if self.processes:
            sentences.append(f"what {self.processes} processes ran that were started with the lock is not counted here")
        if self.library:
            sentences.append(
                f"PyTorch computed {self.library.total()} calls of {', '.join(sorted(self.library))}; samples of them "
                "agree with those of the machine that recorded the lock"
            )
        sentences += [
            f"the library's own runs of {operator} may differ: {reason}; {REMEDY}"
            for operator, reason in self.lock.undetermined.items() if operator in self.library
        ]  # fmt: skip
        dropping = sum(self.lock.descriptor(each).k_dropped > 0 for each in self.replayed)
        if dropping:
            sentences.append(f"{dropping} of these problems leave the last values of k out, as the locked library did")
        return sentences + [f"not locked, {count} times: {reason}" for reason, count in self.not_replayed.most_common()]

    def handle(self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run an operation from the lock, or in the library where `missing` is "pass".  Raises LockError."""
        key: Hashable = None
        if not options and name in _READY and operation.overload == "default":
            found, key = self._ready.run(name, arguments)
            if found is not None:
                return found
        elif (count := self._passed.get(_call_key(operation, arguments, options))) is not None:
            return self._passed_on(count, operation, arguments, options)
        # The operands are those of a kernel: autograd recorded the operation already.
        with WithoutGradients():
            if name == "mm" and operation.overload in ("default", "out"):
                return self._product_of_matrices(operation, arguments, options, key)
            return self._result(operation, name, arguments, options, None, key)

    def _product_of_matrices(
        self, operation: Intercepted, arguments: tuple[Any, ...], options: dict[str, Any], ready: Hashable
    ) -> Any:
        a, b = arguments
        out = options.get("out")
        found, key = dispatch_cache.repeated_product(a, b, None, None, self.lock, None, out, _NO_LIBRARIES)
        if found is None or key is None:
            return self._result(operation, "mm", arguments, options, key, None)
        count = self._count_of(problem_of(a, b, found.dtype))
        self._ready.add(count)
        call = dispatch_cache.known_call(key)
        if call is not None and call.launch is not None:
            if ready is not None:
                self._ready.keep(ready, arguments, found, call.launch, count, (operation.full_name, arguments))
            elif out is not None:
                self._ready.keep_into(operation.full_name, arguments, options, call.launch, count)
        return found

    def _result(
        self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any],
        key: dispatch_cache.Key | None, ready: Hashable,
    ) -> Any:  # fmt: skip
        """Run an operation whose product is not cached.

        `key` is that of a product of two matrices, `ready` that of a product that may be kept with its launch.
        """
        call = _call_key(operation, arguments, options)
        if (passed := self._passed.get(call)) is not None:
            return self._passed_on(passed, operation, arguments, options)
        if is_exact(name, arguments):
            return operation(*arguments, **options)
        try:
            if name not in PRODUCTS:
                raise NotLockable(NOT_INTERCEPTED_REASON)
            if any(0 in each.shape for each in arguments if hasattr(each, "shape")):
                return operation(*arguments, **options)  # an empty product has no rounding
            if name in GROUPED:
                return self._groups(operation, grouped_call(name, arguments, options), arguments, ready)
            if name in ("addbmm", "addbmm_"):
                return _batch_added(name, arguments, options)
            product, entry = self._product_and_entry(call, name, operation.overload, arguments, options)
        except (NotLockable, LockError) as reason:
            problem = self._library_problem(operation, arguments, options)
            if problem is not None and self.missing == "error":
                raise LockError(f"torch.{name}: {reason}{problem}") from None
            if problem is None:
                passed = self._library_count(operation.full_name)
            else:
                passed = self._missed.setdefault(f"{name}: {reason}", Count())
            if call is not None:
                self._passed[call] = passed
            if operation.is_kernel:
                self._ready.pass_on(operation.full_name, arguments, options, passed)
            return self._passed_on(passed, operation, arguments, options)
        out = arguments[0] if name in IN_PLACE else options.get("out")
        count = self._count_of(product.problem)
        finished = entry.finished
        if finished is None and product.bias is not None:
            finished = biased_product(entry.biased)
        if key is not None and _is_direct(product, arguments, out):
            result = matmul(product.a, product.b, lock=self.lock, out=out)
        elif finished is not None:
            form = _form_of(product)
            result = finished_product(finished, form)
            same = product.a is arguments[1] and product.b is arguments[2] if product.bias is not None else False
            launch = fused_launch(finished, form, result) if same else None
            if launch is not None and ready is not None:
                call_in_c = (operation.full_name, arguments)
                self._ready.keep(ready, arguments, result, with_bias_first(launch), count, call_in_c)
            elif launch is not None and name == "addmm" and out is not None and _is_memory_of(result, out):
                self._ready.keep_into(operation.full_name, arguments, options, with_bias_first(launch), count)
        else:
            result = locked_product(product, entry.desc)
            direct = product.a is arguments[0] and product.b is arguments[1] and name == "bmm"
            into = direct and out is not None and _is_memory_of(result, out)
            kept = into or (direct and ready is not None)
            launch = launch_of_batch(product, entry.desc, result) if kept else None
            if launch is not None and into:
                self._ready.keep_into(operation.full_name, arguments, options, launch, count)
            elif launch is not None:
                self._ready.keep(ready, arguments, result, launch, count, (operation.full_name, arguments))
        if name in _VECTORS:
            result = result[0, 0] if name == "dot" else result[:, 0]
        if out is not None and result is not out:
            result = out.copy_(result)
        self._ready.add(count)
        return result

    def _groups(
        self, operation: Intercepted, call: GroupedCall, arguments: tuple[Any, ...], ready: Hashable
    ) -> torch.Tensor:
        """Return the result of products of groups from the lock.  Raises LockError."""
        describe, count = group_of_lock(self.lock, call), self._count_of(call.key)
        result = call.result(describe)
        launch = None if ready is None else call.launch_of(describe, result)
        if launch is not None:
            self._ready.keep(ready, arguments, result, launch, count, (operation.full_name, arguments))
        self._ready.add(count)
        return result

    def _passed_on(
        self, count: Count, operation: Intercepted, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Count a call, and run it as usual."""
        self._ready.add(count)
        return operation(*arguments, **options)

    def _library_count(self, operator: str) -> Count:
        """Return the count of an operator that is left to PyTorch."""
        found = self._library_counts.get(operator)
        return self._library_counts.setdefault(operator, Count()) if found is None else found

    def _count_of(self, problem: GEMMProblem) -> Count:
        """Return the count of a problem."""
        found = self._counts.get(problem)
        return self._counts.setdefault(problem, Count()) if found is None else found

    def _library_problem(
        self, operation: Intercepted, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> str | None:
        """Return None for a call that the lock leaves to PyTorch and whose samples agree here, else why not."""
        try:
            text = call_text(arguments, options)
            entry = self.lock.by_call.get((operation.full_name, text))
            if entry is None:
                others = sum(each.operator == operation.full_name for each in self.lock.operators)
                return (
                    f"; the lock leaves {others} other calls of {operation.full_name} to PyTorch, and has no sample of "
                    "this one: record a run that has it, with these shapes, types and strides"
                    if others else ""
                )  # fmt: skip
            machine = machine_of(text)
        except NotSampled:
            return ""
        if not entry.agrees_on(machine):
            if entry.reason is not None:
                remedy = f"; {REMEDY}" if entry.undetermined else ""
                return f"; its bits on other machines are unknown, since it has no sample: {entry.reason}{remedy}"
            seen = ", ".join(entry.digests)
            return (
                f"; PyTorch computed it when the lock was recorded, and samples of it were compared on {seen}: run "
                "`bitwise lock check --write LOCK` on this machine"
                if machine not in entry.digests
                else f"; PyTorch computes it, and samples of it differ between {entry.recorded} and this machine"
            )
        if entry.undetermined is not None and entry.operator not in self._warned:
            self._warned.add(entry.operator)
            warn_of_undetermined(entry.operator, entry.undetermined)
        return None

    def _product_and_entry(
        self, call: Hashable, name: str, overload: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[InterceptedProduct, Entry]:
        """Return the product that an operation computes and its entry, from the cache where it is known."""
        key = None if options else call
        cached = None if key is None else self._entries.get(key)
        if cached is not None:
            a, b, bias = operands_of(name, arguments)
            return InterceptedProduct(library_layout(a), library_layout(b), bias, cached.problem), cached
        product = intercepted_product(name, overload, arguments, options)
        entry = self.lock.entry(product.problem)
        if entry.descriptor is None:
            raise LockError(f"{product.problem.words} is locked without a descriptor: {entry.declined}")
        if key is not None and product.problem.finish is None:
            self._entries[key] = entry
        return product, entry


def _batch_added(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Run addbmm as the products that it consists of, which the scope of this thread receives."""
    import torch

    _, a, b = arguments
    total = arguments[0].expand(a.shape[1], b.shape[2]).contiguous()
    for a, b, each in products_of_batch(arguments, options):
        total = torch.addmm(total, a, b, **each)
    if name == "addbmm_" or "out" in options:
        return (arguments[0] if name == "addbmm_" else options["out"]).copy_(total)
    return total


def _is_memory_of(result: torch.Tensor, out: torch.Tensor) -> bool:
    """Return whether a launch that left a result in its memory can leave it in that of an output."""
    ends = result.data_ptr(), out.data_ptr()
    return (result.dtype, result.shape, result.stride()) == (out.dtype, out.shape, out.stride()) and (
        len({at & -at & 255 for at in ends}) == 1
    )


def _is_direct(product: InterceptedProduct, arguments: tuple[Any, ...], out: Any) -> bool:
    """Return whether `matmul` computes a product of two matrices into its output without copies."""
    return (
        product.a is arguments[0]
        and product.b is arguments[1]
        and (out is None or tuple(out.shape) == (product.problem.m, product.problem.n))
    )


def _call_key(operation: Intercepted, arguments: tuple[Any, ...], options: dict[str, Any]) -> Hashable:
    """Return what determines the product of a call, or its samples; None where an argument is a list."""
    found = (
        operation.full_name, *[_key_of(each) if hasattr(each, "data_ptr") else each for each in arguments],
        *[(name, _key_of(each) if hasattr(each, "data_ptr") else each) for name, each in options.items()],
    )  # fmt: skip
    try:
        hash(found)
    except TypeError:
        return None
    return found


def _key_of(tensor: Any) -> Any:
    """Return the properties of a tensor that determine a product: all except its values."""
    try:
        aligned = tensor.data_ptr() % 16 == 0
    except RuntimeError:  # a tensor without memory
        return type(tensor)
    return type(tensor), tensor.dtype, tensor.get_device(), tensor.shape, tensor.stride(), aligned


@contextmanager
def locked_products(
    lock: Lock, missing: Literal["error", "pass"] = "error", other_threads: OtherThreads = "error"
) -> Iterator[Replay]:
    """Replace the intercepted operations inside with products of a lock, independent of this device's library.

    A product for which the lock has no descriptor raises LockError.  With `missing="pass"` the library computes it, and
    it is counted in `Replay.not_replayed`.  Empty products are not replaced, nor is `torch._int_mm`, whose integers are
    exact below EXACT_K values of k.

    The lock holds for this thread and for the backward passes that it runs.  Products in threads in which no lock was
    entered raise InterceptionError; with `other_threads="cover"` they run from this lock where it is the only one, and
    with "ignore" in the library.

    A process that Python's multiprocessing starts in this block, in whatever way, has the lock in its first thread
    until it ends; one that is started anew, and not forked, has none with `other_threads="ignore"`.  An
    EarlierProcessWarning names those that run already.

    A lock that pins attention computes it, and its gradients, in the recorded order.  A call that is not served raises
    LockError, or with `missing="pass"` runs in PyTorch and is counted.  A lock whose order this package does not
    compute raises LockError in either case.  An operator that is left to PyTorch and whose own runs may differ causes
    an UndeterminedWarning.
    """
    if not isinstance(lock, Lock):
        raise LockError(f"lock is a {type(lock).__name__}; give the result of bitwise_torch.locks.read_lock")
    if missing not in ("error", "pass"):
        raise LockError(f'missing is {missing!r}; give "error" or "pass"')
    check_other_threads(other_threads, LockError)
    warn_of_earlier_processes("a lock")
    replay = Replay(lock, missing, other_threads=other_threads)
    with ExitStack() as stack:
        again = partial(locked_products, lock, missing, other_threads)
        stack.enter_context(passed_on(again, other_threads, replay.note_process))
        stack.enter_context(active(replay))
        if lock.attention is not None:
            from bitwise_torch.pinned_attention import locked_attention

            replay.attention = stack.enter_context(
                locked_attention(lock.by_heads, missing, replay._missed_attention, other_threads)
            )
        yield replay


def locked_product(product: InterceptedProduct, desc: GEMMDesc) -> torch.Tensor:
    """Return a new tensor: the product with the bits of a descriptor, for each matrix of a batch.

    Raises ProductError.
    """
    import torch

    a, b = product.a, product.b
    out = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=getattr(torch, DTYPES[desc.output_dtype]), device=a.device)
    if product.problem.batch is None:
        product_into(a, b, out, desc)
    elif not _in_one_launch(product, desc, out):
        for left, right, target in zip(a, b, out, strict=True):
            product_into(left, right, target, desc)
    return out


def _in_one_launch(product: InterceptedProduct, desc: GEMMDesc, out: torch.Tensor) -> bool:
    """Compute all matrices of a batch in one launch and return True; False for few, large or empty ones."""
    a, b, problem = product.a, product.b, product.problem
    if problem.batch is None or problem.batch < 2 or problem.m * problem.n > LARGE_MATRIX or 0 in (*a.shape, *b.shape):
        return False
    launcher = many_products.launcher_of(desc, a.device)
    if launcher is None:
        return False
    try:
        many_products.batched(launcher, desc, a, b, out)
    except DescriptorError:  # no kernel of many products has these types
        return False
    return True


def launch_of_batch(product: InterceptedProduct, desc: GEMMDesc, out: torch.Tensor) -> Callable[..., None] | None:
    """Return the launch of the product of a batch that ran, a function of the addresses of a, b and out.

    It is None where a matrix was not launched by its addresses, and for more matrices than MOST_LAUNCHES.
    """
    together = many_products.launch_of_batch(desc, product.a, product.b, out)
    if together is not None:
        return together
    begin = product.a.data_ptr(), product.b.data_ptr(), out.data_ptr()
    # The distances of matrices then decide their alignments.
    if not 0 < len(product.a) <= MOST_LAUNCHES or any(at % 256 for at in begin):
        return None
    launches = []
    for matrices in zip(product.a, product.b, out, strict=True):
        left, right, target = matrices
        call = dispatch_cache.known_call(dispatch_cache.call_key(left, right, desc, out=target))
        if call is None or call.launch is None:
            return None
        distances = (each.data_ptr() - at for each, at in zip(matrices, begin, strict=True))
        launches.append((call.launch, *distances))

    def launch(a: int, b: int, target: int) -> None:
        for run, of_a, of_b, of_target in launches:
            run(a + of_a, b + of_b, target + of_target)

    return launch


def _form_of(product: InterceptedProduct) -> Form:
    """Return a product as a form; its bias is the operand of a step."""
    operands = product.operands
    if product.bias is not None:
        operands = (product.bias.expand(product.a.shape[0], product.b.shape[1]),)
    return Form(product.a, product.b, operands, product.problem)
