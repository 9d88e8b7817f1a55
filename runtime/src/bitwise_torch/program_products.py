"""Record the matrix products of a PyTorch program for a lock, or replace them with the products of a lock.

with recorded_products("cublas") as recording:
    model(x)
recording.lock().write("products.json")

with locked_products(read_lock("products.json")) as replay:
    model(x)

Both intercept the operators of `interception.PRODUCTS` in PyTorch's dispatcher, below autograd.  torch.matmul, linear
layers, einsum and the products of a backward pass arrive there as one of them.  See `interception` for what is not
intercepted.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.problem import DTYPES, Epilogue, GEMMProblem, ProblemError
from bitwise_core.plugins.profiles import NotCovered
from bitwise_torch import calls_in_c, dispatch_cache, many_products
from bitwise_torch.grouped_products import GROUPED, GroupedCall, group_finding, grouped_call
from bitwise_torch.interception import (
    PRODUCTS,
    Intercepted,
    InterceptionError,
    OtherThreads,
    WithoutGradients,
    active,
)
from bitwise_torch.library_profiles import grouped_profile, lockable_profile
from bitwise_torch.locks import Entry, Finding, Lock, LockError, PinnedAttention, finding_of, lock_of
from bitwise_torch.locks.library_operators import REMEDY
from bitwise_torch.noted_operators import noted_operators
from bitwise_torch.operator_samples import (
    NotSampled,
    call_text,
    library_operator,
    list_call_text,
    machine_of,
)
from bitwise_torch.product_calls import group_of_lock
from bitwise_torch.product_forms import (
    FORMS,
    Form,
    NotLockable,
    biased_product,
    finished_product,
    form_of,
    fused_launch,
    with_bias_first,
)
from bitwise_torch.products import matmul, product_into
from bitwise_torch.ready_launches import Count, ReadyLaunches
from bitwise_torch.tensor_problems import alignment_of, library_layout, problem_of

if TYPE_CHECKING:
    import torch

    from bitwise_torch.pinned_attention import AttentionScope

EXACT_K = 1 << 17
"""With fewer values of k, sums of products of int8 fit int32, and `_int_mm` returns the same integers everywhere."""

MOST_LAUNCHES = 64
"""The greatest number of matrices of a batch whose launches are kept together."""

LARGE_MATRIX = 1 << 16
"""The greatest number of elements of a matrix of a batch that is computed in one launch with the others."""

_NO_LIBRARIES: set[str] = set()
"""Products of a lock warn of no library."""

_IN_PLACE = {"addmm_": "addmm", "addmv_": "addmv", "baddbmm_": "baddbmm", "addbmm_": "addbmm"}
"""By operation in place, which returns its first operand: the one whose result it has."""

_READY = frozenset({"mm", "addmm", "bmm", "_grouped_mm"})
"""Operations whose launches are kept, where all of their arguments are tensors."""

_VECTORS = ("mv", "dot", "addmv", "addmv_")
"""Operations whose result is a column of a product, or an element."""

_NOT_INTERCEPTED_REASON = f"no lock holds this operation; locks hold {', '.join(PRODUCTS)}"


class UndeterminedWarning(UserWarning):
    """A lock leaves an operator to PyTorch whose own runs may differ, so that it does not keep the recorded bytes."""


@dataclass(frozen=True)
class InterceptedProduct:
    """An intercepted operation: its operands in the layout that a library receives, and its problem.

    `operands` are those of the steps of a problem with a finish.
    """

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    problem: GEMMProblem
    operands: tuple[torch.Tensor, ...] = ()


def intercepted_product(
    name: str, overload: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> InterceptedProduct:
    """Return the product that an operation computes.  Raises NotLockable."""
    if name in _IN_PLACE:
        if not arguments[0].is_contiguous():
            raise NotLockable(f"the output is not contiguous, its strides are {tuple(arguments[0].stride())}")
        name = _IN_PLACE[name]
    if name in FORMS:
        _check_memory(*(each for each in (*arguments, *options.values()) if hasattr(each, "data_ptr")))
        form = form_of(name, overload, arguments, options)
        if form is not None:
            _check_output(overload, options)
            return InterceptedProduct(form.a, form.b, None, form.problem, form.operands)
    _check_vectors(name, arguments)
    a, b, bias = _operands(name, arguments)
    out_dtype = arguments[2 + (bias is not None)] if "dtype" in overload else (bias if bias is not None else a).dtype
    _check_memory(*(each for each in (a, b, bias, options.get("out")) if each is not None))
    _check_output(overload, options)
    epilogue: Epilogue = "none"
    if bias is not None:
        if "dtype" in overload:
            raise NotLockable("the bias is not of the output's type")
        if bias.dim() != 1 or bias.shape[0] != b.shape[1] or not bias.is_contiguous() or bias.dtype != a.dtype:
            raise NotLockable(
                f"the added tensor of shape {tuple(bias.shape)} and {bias.dtype} is not a dense vector of the "
                "output's columns in the operands' type"
            )
        if bias.data_ptr() % 16:
            raise NotLockable("the bias is not aligned to 16 bytes")
        epilogue = "bias"
    try:
        a, b = library_layout(a), library_layout(b)
        return InterceptedProduct(a, b, bias, problem_of(a, b, out_dtype, epilogue))
    except ProblemError as error:
        raise NotLockable(str(error)) from None


def _check_output(overload: str, options: dict[str, Any]) -> None:
    """Raise NotLockable for an output that is not contiguous."""
    if overload in ("out", "dtype_out") and not options["out"].is_contiguous():
        raise NotLockable(f"the output is not contiguous, its strides are {tuple(options['out'].stride())}")


def _operands(name: str, arguments: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Return the matrices that an operation multiplies, and its bias or None."""
    if name == "addmm":
        return arguments[1], arguments[2], arguments[0]
    a, b = arguments[:2]
    if name == "dot":
        a = a[None]
    return a, b[:, None] if name in ("mv", "dot") else b, None


def _check_vectors(name: str, arguments: tuple[Any, ...]) -> None:
    """Raise NotLockable for a product of vectors that the library does not compute as a product of matrices."""
    vectors = {"mv": arguments[1:2], "dot": arguments[:2]}.get(name, ())
    if any(each.stride(0) != 1 and each.shape[0] > 1 for each in vectors):
        raise NotLockable("a vector is not contiguous")
    if name == "dot" and str(arguments[0].dtype) not in ("torch.float16", "torch.bfloat16"):
        raise NotLockable(f"libraries have a kernel of their own for dot products of {arguments[0].dtype}")


def _products_of_batch(
    arguments: tuple[Any, ...], options: dict[str, Any]
) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Yield the matrices of addbmm, which adds them to its addend one after the other, and the options of addmm."""
    _, a, b = arguments
    alpha, beta = options.get("alpha", 1), options.get("beta", 1)
    for left, right in zip(a, b, strict=True):
        yield left, right, {"alpha": alpha, "beta": beta}
        beta = 1


def _is_exact(name: str, arguments: tuple[Any, ...]) -> bool:
    """Return whether an operation returns the same integers in every order."""
    return name == "_int_mm" and int(arguments[0].shape[1]) < EXACT_K


def _check_memory(*tensors: torch.Tensor) -> None:
    """Raise NotLockable unless all tensors are plain ones with memory on one device."""
    import torch

    for each in tensors:
        if type(each) not in (torch.Tensor, torch.nn.Parameter):
            raise NotLockable(f"a tensor is of the subclass {type(each).__name__}")
    devices = dict.fromkeys(str(each.device) for each in tensors)
    if len(devices) > 1:
        raise NotLockable(f"the tensors are on {' and '.join(devices)}")
    if "meta" in devices:
        raise NotLockable("the tensors are on the meta device and have no memory")


@dataclass
class Recording:
    """The products that ran: each problem with its descriptor or the reason why it has none.

    `not_locked` counts the products that no lock can hold, by operation and reason.  `products` counts all products.
    `attention` has the orders of pinned attention, None where PyTorch computes attention.
    """

    library: str
    findings: list[tuple[GEMMProblem, Finding]] = field(default_factory=list)
    not_locked: Counter[str] = field(default_factory=Counter)
    products: int = 0
    other_threads: OtherThreads = "cover"
    attention: dict[tuple[str, int, int], PinnedAttention] | None = None
    _found: dict[tuple[GEMMProblem, tuple[int, int, int]], Finding] = field(default_factory=dict)
    _calls: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _process: int = field(default_factory=os.getpid)
    calls_in_c: None = None
    """See `interception.Scope`."""

    def lock(self) -> Lock:
        """Return the lock of all products so far, and of the operators that PyTorch computes.

        The operators run on samples, twice each.  An UndeterminedWarning names those whose own runs may differ on one
        GPU.  Raises LockError.
        """
        operators = [
            library_operator(name, text, reason) for (name, text), reason in sorted(self._calls.items())
        ]  # fmt: skip
        try:
            provenance = lockable_profile(self.library, LockError).provenance()
        except NotCovered as error:
            raise LockError(str(error)) from None
        found = lock_of(
            self.findings, provenance, operators, None if self.attention is None else self.attention.values()
        )
        for operator, reason in found.undetermined.items():
            _warn_of(operator, reason)
        return found

    def handle(self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run an operation and record its product.  Raises InterceptionError in a forked process."""
        result = operation(*arguments, **options)
        if os.getpid() != self._process:
            if self.other_threads == "ignore":
                return result
            raise InterceptionError(
                f"torch.{name} ran in a process that was forked while products are recorded, and its record ends with "
                "the process: multiply in the recording process (a DataLoader with num_workers=0), or give the "
                'recording other_threads="ignore"'
            )
        self.products += 1
        if _is_exact(name, arguments):
            return result
        try:
            if name not in PRODUCTS:
                raise NotLockable(_NOT_INTERCEPTED_REASON)
            if name in GROUPED:
                findings = [self._group(grouped_call(name, arguments, options))]
            elif name in ("addbmm", "addbmm_"):
                findings = [
                    self._product(intercepted_product("addmm", "default", (result, a, b), each), result)
                    for a, b, each in _products_of_batch(arguments, options)
                ]
            else:
                findings = [
                    self._product(intercepted_product(name, operation.overload, arguments, options), result)
                ]  # fmt: skip
        except NotLockable as reason:
            self.not_locked[f"{name}: {reason}"] += 1
            self.note_call(operation.full_name, arguments, options)
            return result
        if any(isinstance(each, str) for each in findings):
            self.note_call(operation.full_name, arguments, options)
        return result

    def _product(self, product: InterceptedProduct, result: torch.Tensor) -> Finding:
        """Return what the library computes for a product, whose problem is noted."""
        alignment = (alignment_of(product.a), alignment_of(product.b), alignment_of(result))
        key = (product.problem, alignment)
        if key not in self._found:
            profile = lockable_profile(self.library, LockError)
            self._found[key] = finding_of(profile, product.problem, alignment=alignment, device=product.a.device)
            self.findings.append((product.problem, self._found[key]))
        return self._found[key]

    def _group(self, call: GroupedCall) -> Finding:
        """Return what the library computes for the groups of a call, whose key is noted."""
        key = (call.key, (256, 256, 256))
        found = self._found.get(key)
        if found is None or call.adds_groups:
            try:
                profile = grouped_profile(self.library, LockError)
            except LockError as error:
                raise NotLockable(str(error)) from None
            found = group_finding(profile, call)
            if self._found.get(key) != found:
                self._found[key] = found
                self.findings.append((call.key, found))
        return found

    def note_call(self, operator: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Note a call that PyTorch computes."""
        try:
            text = (list_call_text if operator.startswith("aten::_foreach_") else call_text)(arguments, options)
            self._calls.setdefault((operator, text), None)
        except NotSampled as reason:
            self._calls.setdefault((operator, ""), str(reason))


def _warn_of(operator: str, reason: str) -> None:
    warnings.warn(
        f"{operator} is left to PyTorch, whose own runs may differ, so that a lock may not return the recorded bytes: "
        f"{reason}; {REMEDY}", UndeterminedWarning, stacklevel=3,
    )  # fmt: skip


@contextmanager
def recorded_products(
    like: str, other_threads: OtherThreads = "cover", operators: bool = True,
    attention: Literal["library", "pinned"] = "library",
) -> Iterator[Recording]:  # fmt: skip
    """Record the products that run inside; the library `like` computes them as usual.

    Products that no lock can hold are counted in `Recording.not_locked`.  Products in threads in which neither this
    nor a lock was entered are recorded too, unless `other_threads` is "ignore", or "error".  Products in a process that
    is forked inside, such as a worker that loads data, would be lost with it: they raise InterceptionError, unless
    `other_threads` is "ignore".

    With `operators`, all other operators on floating-point numbers are noted as well, and the lock has samples of them,
    by which `bitwise lock check` compares machines.

    With `attention="pinned"`, this package computes scaled_dot_product_attention and its gradients, here and in
    `locked_products`, with the bits of the lock; functions of torch.compile run eagerly.  Calls that are not served,
    such as those with dropout, are counted in `Recording.not_locked`, and PyTorch computes them.  With "library",
    PyTorch computes attention, and the lock has samples.  Raises LockError where no installed plugin describes the
    library.
    """
    lockable_profile(like, LockError)
    _check_other_threads(other_threads)
    if attention not in ("library", "pinned"):
        raise LockError(f'attention is {attention!r}; give "library" or "pinned"')
    pinned: dict[tuple[str, int, int], PinnedAttention] | None = {} if attention == "pinned" else None
    recording = Recording(like, other_threads=other_threads, attention=pinned)
    noted = noted_operators(recording.note_call, cover=other_threads == "cover") if operators else nullcontext()
    with ExitStack() as stack:
        stack.enter_context(active(recording))
        stack.enter_context(noted)
        if pinned is not None:
            from bitwise_torch.pinned_attention import recorded_attention

            stack.enter_context(recorded_attention(pinned, recording.not_locked, other_threads))
        yield recording


@dataclass
class Replay:
    """The products that ran from a lock, counted by problem, and those that did not, by operation and reason."""

    lock: Lock
    missing: Literal["error", "pass"]
    not_replayed: Counter[str] = field(default_factory=Counter)
    other_threads: OtherThreads = "error"
    attention: AttentionScope | None = None
    """The calls of pinned attention, of a lock that pins it."""
    _warned: set[str] = field(default_factory=set)
    _library_calls: set[Hashable] = field(default_factory=set)
    _counts: dict[GEMMProblem, Count] = field(default_factory=dict)
    _ready: ReadyLaunches = field(default_factory=lambda: ReadyLaunches(calls_in_c.module()))
    _library_counts: dict[str, Count] = field(default_factory=dict)
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
    def library(self) -> Counter[str]:
        """How often the lock left an operator to PyTorch."""
        return Counter({operator: each.calls for operator, each in self._library_counts.items()})

    def report(self) -> list[str]:
        """Return sentences that say how many products ran from the lock, and why others did not."""
        sentences = [
            f"{self.replayed.total()} products of {len(self.replayed)} problems ran from the lock, "
            f"{self.not_replayed.total()} ran in this machine's library"
        ]
        if self.attention is not None:
            sentences.append(f"{self.attention.calls} calls of attention ran in the order of the lock")
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
        elif _call_key(operation, arguments, options) in self._library_calls:
            return self._left_to_pytorch(operation, arguments, options)
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
        if call in self._library_calls:
            return self._left_to_pytorch(operation, arguments, options)
        if _is_exact(name, arguments):
            return operation(*arguments, **options)
        try:
            if name not in PRODUCTS:
                raise NotLockable(_NOT_INTERCEPTED_REASON)
            if any(0 in each.shape for each in arguments if hasattr(each, "shape")):
                return operation(*arguments, **options)  # an empty product has no rounding
            if name in GROUPED:
                return self._groups(operation, grouped_call(name, arguments, options), arguments, ready)
            if name in ("addbmm", "addbmm_"):
                return _batch_added(name, arguments, options)
            product, entry = self._product_and_entry(call, name, operation.overload, arguments, options)
        except (NotLockable, LockError) as reason:
            problem = self._library_problem(operation, arguments, options)
            if problem is None:
                if call is not None:
                    self._library_calls.add(call)
                if operation.is_kernel:
                    count = self._library_count(operation.full_name)
                    self._ready.pass_on(operation.full_name, arguments, options, count)
                return self._left_to_pytorch(operation, arguments, options)
            if self.missing == "error":
                raise LockError(f"torch.{name}: {reason}{problem}") from None
            self.not_replayed[f"{name}: {reason}"] += 1
            return operation(*arguments, **options)
        out = arguments[0] if name in _IN_PLACE else options.get("out")
        count = self._count_of(product.problem)
        finished = entry.finished
        if finished is None and product.bias is not None:
            finished = biased_product(entry.desc, entry.rounded_first)
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
            launch = launch_of_batch(product, entry.desc, result) if ready is not None and direct else None
            if launch is not None:
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

    def _left_to_pytorch(self, operation: Intercepted, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run a call of which samples agree on this machine."""
        self._ready.add(self._library_count(operation.full_name))
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
                return ""
            machine = machine_of(text)
        except NotSampled:
            return ""
        if not entry.agrees_on(machine):
            if entry.reason is not None:
                return f"; its bits on other machines are unknown, since it has no sample: {entry.reason}"
            seen = ", ".join(entry.digests)
            return (
                f"; PyTorch computed it when the lock was recorded, and samples of it were compared on {seen}: run "
                "`bitwise lock check --write LOCK` on this machine"
                if machine not in entry.digests
                else f"; PyTorch computes it, and samples of it differ between {entry.recorded} and this machine"
            )
        if entry.undetermined is not None and entry.operator not in self._warned:
            self._warned.add(entry.operator)
            _warn_of(entry.operator, entry.undetermined)
        return None

    def _product_and_entry(
        self, call: Hashable, name: str, overload: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[InterceptedProduct, Entry]:
        """Return the product that an operation computes and its entry, from the cache where it is known."""
        key = None if options else call
        cached = None if key is None else self._entries.get(key)
        if cached is not None:
            a, b, bias = _operands(name, arguments)
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
    for a, b, each in _products_of_batch(arguments, options):
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

    A lock that pins attention computes it, and its gradients, in the recorded order.  A call that is not served raises
    LockError, or with `missing="pass"` runs in PyTorch and is counted.  A lock whose order this package does not
    compute raises LockError in either case.  An operator that is left to PyTorch and whose own runs may differ causes
    an UndeterminedWarning.
    """
    if missing not in ("error", "pass"):
        raise LockError(f'missing is {missing!r}; give "error" or "pass"')
    _check_other_threads(other_threads)
    replay = Replay(lock, missing, other_threads=other_threads)
    with ExitStack() as stack:
        stack.enter_context(active(replay))
        if lock.attention is not None:
            from bitwise_torch.pinned_attention import locked_attention

            replay.attention = stack.enter_context(
                locked_attention(lock.by_heads, missing, replay.not_replayed, other_threads)
            )
        yield replay


def _check_other_threads(other_threads: str) -> None:
    if other_threads not in get_args(OtherThreads):
        raise LockError(
            f"other_threads is {other_threads!r}; give one of {', '.join(map(repr, get_args(OtherThreads)))}"
        )


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
