"""Record the matrix products of a PyTorch program for a lock.

with recorded_products("cublas") as recording:
    model(x)
recording.lock().write("products.json")

The operators of `interception.PRODUCTS` are intercepted in PyTorch's dispatcher, below autograd.  torch.matmul, linear
layers, einsum and the products of a backward pass arrive there as one of them.  See `interception` for what is not
intercepted, and `product_replay` for the products of a lock.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_core.plugins.profiles import CacheableProfile, NotCovered
from bitwise_torch.grouped_products import GROUPED, GroupedCall, group_finding, grouped_call
from bitwise_torch.intercepted_products import (
    NOT_INTERCEPTED_REASON,
    InterceptedProduct,
    intercepted_product,
    is_exact,
    products_of_batch,
)
from bitwise_torch.interception import (
    PRODUCTS,
    Intercepted,
    InterceptionError,
    OtherThreads,
    active,
    check_other_threads,
)
from bitwise_torch.library_profiles import grouped_profile, lockable_profile
from bitwise_torch.locks import Finding, Lock, LockError, PinnedAttention, finding_of, lock_of
from bitwise_torch.locks.library_operators import warn_of_undetermined
from bitwise_torch.noted_operators import noted_operators
from bitwise_torch.operator_samples import NotSampled, call_text, library_operator, list_call_text
from bitwise_torch.product_forms import NotLockable
from bitwise_torch.started_processes import refused_in_processes, warn_of_earlier_processes
from bitwise_torch.tensor_problems import alignment_of

if TYPE_CHECKING:
    import torch

_IN_A_PROCESS = (
    "in a process that was started while products are recorded, and its record ends with the process: multiply in the "
    'recording process (a DataLoader with num_workers=0), or give the recording other_threads="ignore"'
)


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
    _found: dict[tuple[GEMMProblem, tuple[int, int, int], Hashable], Finding] = field(default_factory=dict)
    """What the library computes for a problem, the alignments of its tensors, and the library's settings."""
    _settings: Callable[[], Hashable] | None = None
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
            warn_of_undetermined(operator, reason)
        return found

    def handle(self, operation: Intercepted, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run an operation and record its product.  Raises InterceptionError in a forked process."""
        result = operation(*arguments, **options)
        if os.getpid() != self._process:
            if self.other_threads == "ignore":
                return result
            raise InterceptionError(f"torch.{name} ran {_IN_A_PROCESS}")
        self.products += 1
        if is_exact(name, arguments):
            return result
        try:
            if name not in PRODUCTS:
                raise NotLockable(NOT_INTERCEPTED_REASON)
            if name in GROUPED:
                findings = [self._group(grouped_call(name, arguments, options))]
            elif name in ("addbmm", "addbmm_"):
                findings = [
                    self._product(intercepted_product("addmm", "default", (result, a, b), each), result)
                    for a, b, each in products_of_batch(arguments, options)
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
        key = (product.problem, alignment, self._current_settings())
        if key not in self._found:
            profile = lockable_profile(self.library, LockError)
            self._found[key] = finding_of(profile, product.problem, alignment=alignment, device=product.a.device)
            self.findings.append((product.problem, self._found[key]))
        return self._found[key]

    def _current_settings(self) -> Hashable:
        """Return the settings of the library, under which one problem may have another descriptor."""
        if self._settings is None:
            profile = lockable_profile(self.library, LockError)
            self._settings = profile.cache_token if isinstance(profile, CacheableProfile) else lambda: None
        return self._settings()

    def _group(self, call: GroupedCall) -> Finding:
        """Return what the library computes for the groups of a call, whose key is noted."""
        key = (call.key, (256, 256, 256), self._current_settings())
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


@contextmanager
def recorded_products(
    like: str, other_threads: OtherThreads = "cover", operators: bool = True,
    attention: Literal["library", "pinned"] = "library",
) -> Iterator[Recording]:  # fmt: skip
    """Record the products that run inside; the library `like` computes them as usual.

    Products that no lock can hold are counted in `Recording.not_locked`.  Products in threads in which neither this
    nor a lock was entered are recorded too, unless `other_threads` is "ignore", or "error".  Products in a process that
    Python's multiprocessing starts inside, or that is forked there, such as a worker that loads data, would be lost
    with it: they raise InterceptionError, unless `other_threads` is "ignore".  An EarlierProcessWarning names processes
    that run already.

    With `operators`, all other operators on floating-point numbers are noted as well, and the lock has samples of them,
    by which `bitwise lock check` compares machines.

    With `attention="pinned"`, this package computes scaled_dot_product_attention and its gradients, here and in
    `locked_products`, with the bits of the lock; functions of torch.compile run eagerly.  Calls that are not served,
    such as those with dropout, are counted in `Recording.not_locked`, and PyTorch computes them.  With "library",
    PyTorch computes attention, and the lock has samples.  Raises LockError where no installed plugin describes the
    library.
    """
    lockable_profile(like, LockError)
    check_other_threads(other_threads, LockError)
    if attention not in ("library", "pinned"):
        raise LockError(f'attention is {attention!r}; give "library" or "pinned"')
    pinned: dict[tuple[str, int, int], PinnedAttention] | None = {} if attention == "pinned" else None
    recording = Recording(like, other_threads=other_threads, attention=pinned)
    noted = noted_operators(recording.note_call, cover=other_threads == "cover") if operators else nullcontext()
    warn_of_earlier_processes("a recording")
    with ExitStack() as stack:
        stack.enter_context(refused_in_processes(_IN_A_PROCESS, other_threads))
        stack.enter_context(active(recording))
        stack.enter_context(noted)
        if pinned is not None:
            from bitwise_torch.pinned_attention import recorded_attention

            stack.enter_context(recorded_attention(pinned, recording.not_locked, other_threads))
        yield recording
