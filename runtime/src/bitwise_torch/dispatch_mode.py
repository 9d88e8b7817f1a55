"""Record the matrix products of a PyTorch program for a lock, or replace them with the products of a lock.

with recorded_products("cublas") as recording:
    model(x)
recording.lock().write("products.json")

with locked_products(read_lock("products.json")) as replay:
    model(x)

Both intercept torch.mm, addmm, bmm, baddbmm, mv, dot, _addmm_activation and _scaled_mm in PyTorch's dispatcher, below
autograd.  torch.matmul, linear layers, einsum and the products of a backward pass arrive there as one of them.
torch.compile does not compile what runs inside.  Products that do not pass through the dispatcher are not intercepted:
replays of CUDA graphs, and custom kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import DTYPES, BiasedGEMM, Epilogue, FinishedGEMM, GEMMProblem, ProblemError
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import LockableProfile, NotCovered
from bitwise_torch.locks import Entry, Finding, Lock, LockError, lock_of
from bitwise_torch.product_forms import FORMS, Form, NotLockable, finished_product, form_of
from bitwise_torch.products import ProductError, product_into
from bitwise_torch.tensor_problems import library_layout, problem_of

if TYPE_CHECKING:
    import torch

INTERCEPTED = ("mm", "addmm", "bmm", "mv", "dot", "baddbmm", "_addmm_activation", "_scaled_mm")
"""The intercepted operations, in the dispatcher's namespace `aten`."""

EXACT_K = 1 << 17
"""With fewer values of k, sums of products of int8 fit int32, and `_int_mm` returns the same integers everywhere."""

NOT_INTERCEPTED = (
    "_grouped_mm", "_int_mm", "_scaled_grouped_mm", "addbmm", "addbmm_", "addmm_", "addmv", "addmv_", "addr", "addr_",
    "baddbmm_", "vdot",
)  # fmt: skip
"""Operations that multiply matrices and are not intercepted: their bits are not locked."""

_ATTENTION_PREFIX = "_scaled_dot_product_"
"""The prefix of the attention operations, which multiply matrices and are not intercepted."""


_NOT_INTERCEPTED_REASON = f"this operation is not intercepted; only {', '.join(INTERCEPTED)} are"


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


def _not_intercepted(name: str) -> bool:
    return name in NOT_INTERCEPTED or name.startswith(_ATTENTION_PREFIX)


Handler = Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]
"""A function of an operation, its name without namespace, its arguments and its keyword arguments."""


def _dispatch_mode(handler: Handler) -> Any:
    """Return a mode of PyTorch's dispatcher that passes every product to a handler and runs all other operations."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Products(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            options = kwargs or {}
            if func.namespace != "aten":
                return func(*args, **options)
            name = func._schema.name.removeprefix("aten::")
            if name in INTERCEPTED or _not_intercepted(name):
                return handler(func, name, args, options)
            if torch.is_inference_mode_enabled() and func._can_decompose():
                # In inference mode the dispatcher does not decompose composite operations such as linear.
                with self:
                    found = func.decompose(*args, **options)
                if found is not NotImplemented:
                    return found
            return func(*args, **options)

    return Products()


def lockable_profile(library: str) -> LockableProfile:
    """Return the profile that describes a library's products for a lock.  Raises LockError."""
    profiles = [each for each in registry.default().profiles if isinstance(each, LockableProfile)]
    for each in profiles:
        if each.library == library:
            return each
    known = ", ".join(sorted({each.library for each in profiles})) or "none, install the plugin of one"
    raise LockError(f"no installed plugin describes the products of the library {library!r}; known libraries: {known}")


@dataclass
class Recording:
    """The products that ran: each problem with its descriptor or the reason why it has none.

    `not_locked` counts the products that no lock can hold, by operation and reason.  `products` counts all products.
    """

    library: str
    findings: list[tuple[GEMMProblem, Finding]] = field(default_factory=list)
    not_locked: Counter[str] = field(default_factory=Counter)
    products: int = 0
    _seen: set[tuple[GEMMProblem, tuple[int, int, int]]] = field(default_factory=set)

    def lock(self) -> Lock:
        """Return the lock of all products so far.  Raises LockError."""
        try:
            return lock_of(self.findings, lockable_profile(self.library).provenance())
        except NotCovered as error:
            raise LockError(str(error)) from None

    def handle(self, func: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run an operation and record its product."""
        result = func(*arguments, **options)
        self.products += 1
        if _is_exact(name, arguments):
            return result
        try:
            if _not_intercepted(name):
                raise NotLockable(_NOT_INTERCEPTED_REASON)
            product = intercepted_product(name, func._overloadname, arguments, options)
        except NotLockable as reason:
            self.not_locked[f"{name}: {reason}"] += 1
            return result
        alignment = (_alignment(product.a), _alignment(product.b), _alignment(result))
        if (product.problem, alignment) not in self._seen:
            self._seen.add((product.problem, alignment))
            self.findings.append((product.problem, self._descriptor(product, alignment)))
        return result

    def _descriptor(self, product: InterceptedProduct, alignment: tuple[int, int, int]) -> Finding:
        try:
            desc = lockable_profile(self.library).describe_problem(
                product.problem, alignment=alignment, device=product.a.device
            )
        except NotCovered as error:
            return str(error)
        if isinstance(desc, GEMMDesc | BiasedGEMM | FinishedGEMM):
            return desc
        return f"the library computes it as a {type(desc).__name__}, and a lock holds a GEMMDesc"


@contextmanager
def recorded_products(like: str) -> Iterator[Recording]:
    """Record the products that run inside; the library `like` computes them as usual.

    Products that no lock can hold are counted in `Recording.not_locked`.  Raises LockError where no installed plugin
    describes the library.
    """
    lockable_profile(like)
    recording = Recording(like)
    with _dispatch_mode(recording.handle):
        yield recording


@dataclass
class Replay:
    """The products that ran from a lock, counted by problem, and those that did not, by operation and reason."""

    lock: Lock
    missing: Literal["error", "pass"]
    replayed: Counter[GEMMProblem] = field(default_factory=Counter)
    not_replayed: Counter[str] = field(default_factory=Counter)
    _entries: dict[tuple[Any, ...], Entry] = field(default_factory=dict)

    def report(self) -> list[str]:
        """Return sentences that say how many products ran from the lock, and why others did not."""
        sentences = [
            f"{self.replayed.total()} products of {len(self.replayed)} problems ran from the lock, "
            f"{self.not_replayed.total()} ran in this machine's library"
        ]
        dropping = sum(self.lock.descriptor(each).k_dropped > 0 for each in self.replayed)
        if dropping:
            sentences.append(f"{dropping} of these problems leave the last values of k out, as the locked library did")
        return sentences + [f"not locked, {count} times: {reason}" for reason, count in self.not_replayed.most_common()]

    def handle(self, func: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run an operation from the lock, or in the library where `missing` is "pass".  Raises LockError."""
        if _is_exact(name, arguments):
            return func(*arguments, **options)
        try:
            if _not_intercepted(name):
                raise NotLockable(_NOT_INTERCEPTED_REASON)
            if any(0 in each.shape for each in arguments if hasattr(each, "shape")):
                return func(*arguments, **options)  # an empty product has no rounding
            product, entry = self._product_and_entry(name, func._overloadname, arguments, options)
        except (NotLockable, LockError) as reason:
            if self.missing == "error":
                raise LockError(f"torch.{name}: {reason}") from None
            self.not_replayed[f"{name}: {reason}"] += 1
            return func(*arguments, **options)
        out = options.get("out")
        if entry.finished is not None:
            result = finished_product(entry.finished, Form(product.a, product.b, product.operands, product.problem))
        else:
            result = locked_product(product, entry.desc, entry.rounded_first)
        if name in ("mv", "dot"):
            result = result[:, 0] if name == "mv" else result[0, 0]
        if out is not None:
            result = out.copy_(result)
        self.replayed[product.problem] += 1
        return result

    def _product_and_entry(
        self, name: str, overload: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[InterceptedProduct, Entry]:
        """Return the product that an operation computes and its entry, from the cache where it is known."""
        key = None if options else (name, overload, *map(_key_of, arguments))
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


def _key_of(argument: Any) -> Any:
    """Return the properties of an argument that determine the product: of a tensor all except its values."""
    try:
        return (type(argument), argument.dtype, argument.device, argument.shape, argument.stride(),
                argument.data_ptr() % 16 == 0)  # fmt: skip
    except AttributeError:
        return argument
    except RuntimeError:  # a tensor without memory has no data_ptr
        return type(argument)


@contextmanager
def locked_products(lock: Lock, missing: Literal["error", "pass"] = "error") -> Iterator[Replay]:
    """Replace the intercepted operations inside with products of a lock, independent of this device's library.

    A product for which the lock has no descriptor raises LockError.  With `missing="pass"` the library computes it, and
    it is counted in `Replay.not_replayed`.  Empty products are not replaced, nor is `torch._int_mm`, whose integers are
    exact below EXACT_K values of k.
    """
    if missing not in ("error", "pass"):
        raise LockError(f'missing is {missing!r}; give "error" or "pass"')
    replay = Replay(lock, missing)
    with _dispatch_mode(replay.handle):
        yield replay


def locked_product(product: InterceptedProduct, desc: GEMMDesc, rounded_first: bool = False) -> torch.Tensor:
    """Return a new tensor: the product with the bits of a descriptor, for each matrix of a batch, and the bias added.

    The sum is rounded to the output's type before the bias is added if `rounded_first`, else the bias is added in fp32.
    Raises ProductError.
    """
    import torch

    a, b, problem = product.a, product.b, product.problem
    sum_desc = desc if product.bias is None or rounded_first else _with_fp32_output(desc)
    shape = (*a.shape[:-1], b.shape[-1])
    out = torch.empty(shape, dtype=getattr(torch, DTYPES[sum_desc.output_dtype]), device=a.device)
    if problem.batch is None:
        product_into(a, b, out, sum_desc)
    else:
        for left, right, target in zip(a, b, out, strict=True):
            product_into(left, right, target, sum_desc)
    if product.bias is None:
        return out
    if desc.accumulator_dtype != "fp32":
        raise ProductError(
            f"a bias is added in fp32 only, and the descriptor accumulates in {desc.accumulator_dtype}: "
            "compute this product without its bias"
        )
    return out.float().add_(product.bias.float()).to(getattr(torch, DTYPES[problem.out]))


@lru_cache(maxsize=65536)
def _with_fp32_output(desc: GEMMDesc) -> GEMMDesc:
    """Return the descriptor of the sum before it is rounded to the output's type."""
    return desc.model_copy(update={"output_dtype": "fp32"})


def _alignment(matrix: torch.Tensor) -> int:
    """Return the largest power of two, at most 256, that divides the matrix's address in bytes."""
    address = int(matrix.data_ptr())
    return min(address & -address, 256) if address else 256
