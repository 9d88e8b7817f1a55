"""torch.mm, addmm and bmm of whatever runs, noted for a lock or replaced by a lock's products.

with recorded_products("cublas") as recording:
    model(x)
recording.lock().write("products.json")

with locked_products(read_lock("products.json")) as replayed:
    model(x)

Both look at the operations that PyTorch's dispatcher carries out, below gradients: torch.matmul, linear layers, einsum
and the products of a backward pass are among them.  torch.compile leaves what runs inside uncompiled.  What never comes
to the dispatcher is not seen: replays of captured graphs, and kernels of one's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import DTYPES, BiasedGEMM, Epilogue, GEMMProblem, ProblemError
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import LockableProfile, NotCovered, ProductProfile
from bitwise_torch.locks import Entry, Lock, LockError, What, locked
from bitwise_torch.products import ProductError, run
from bitwise_torch.tensor_problems import dense, problem_of

if TYPE_CHECKING:
    import torch

TAKEN = ("mm", "addmm", "bmm")
"""Operations that are taken over, of the dispatcher's namespace `aten`."""
LEFT = (
    "_addmm_activation", "_grouped_mm", "_int_mm", "_scaled_grouped_mm", "_scaled_mm", "addbmm", "addmv", "addr",
    "baddbmm", "dot", "mv", "vdot",
)  # fmt: skip
"""Operations that multiply matrices and are not taken over: none of their bits is locked."""


_ATTENTION = "_scaled_dot_product_"
"""What operations of attention begin with, which multiply matrices too."""


class Passed(Exception):
    """Why a product is none that a lock could hold: it runs as ever, by an explicit choice."""


@dataclass(frozen=True)
class Product:
    """One operation that is taken over: its operands, as a library is given them, and the problem that they are."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    problem: GEMMProblem


def product_of(name: str, overload: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Product:
    """The product that an operation is.  Raises Passed for one that no lock holds."""
    given = list(arguments)
    added = given.pop(0) if name == "addmm" else None
    a, b = given[:2]
    out_dtype = given[2] if "dtype" in overload else (added if added is not None else a).dtype
    _check(*(each for each in (a, b, added, options.get("out")) if each is not None))
    if overload in ("out", "dtype_out"):
        out = options["out"]
        if not out.is_contiguous():
            raise Passed(f"an output with the strides {tuple(out.stride())}")
    epilogue: Epilogue = "none"
    if added is not None:
        if "dtype" in overload:
            raise Passed("a bias of another type than the output's")
        if options.get("beta", 1) != 1 or options.get("alpha", 1) != 1:
            raise Passed(f"beta = {options.get('beta', 1)} and alpha = {options.get('alpha', 1)}")
        if added.dim() != 1 or added.shape[0] != b.shape[1] or not added.is_contiguous() or added.dtype != a.dtype:
            raise Passed(f"a matrix of {tuple(added.shape)} and {added.dtype} that is added")
        if added.data_ptr() % 16:
            raise Passed("a bias that does not begin at a multiple of 16 bytes")
        epilogue = "bias"
    try:
        a, b = dense(a), dense(b)
        return Product(a, b, added, problem_of(a, b, out_dtype, epilogue))
    except ProblemError as error:
        raise Passed(str(error)) from None


def _check(*tensors: torch.Tensor) -> None:
    """Raises Passed for what is not plain memory on one device."""
    import torch

    for each in tensors:
        if type(each) not in (torch.Tensor, torch.nn.Parameter):
            raise Passed(f"tensors of the class {type(each).__name__}")
    devices = dict.fromkeys(str(each.device) for each in tensors)
    if len(devices) > 1:
        raise Passed(f"tensors on {' and '.join(devices)}")
    if "meta" in devices:
        raise Passed("tensors without memory")


def _left(name: str) -> bool:
    return name in LEFT or name.startswith(_ATTENTION)


def _mode(meet: Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """A mode of PyTorch's dispatcher that gives every product, by name, to a function, and runs the rest as ever."""
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
            if name in TAKEN or _left(name):
                return meet(func, name, args, options)
            if torch.is_inference_mode_enabled() and func._can_decompose():
                # Without gradients to see to, the dispatcher hands what is made of other operations over whole.
                with self:
                    found = func.decompose(*args, **options)
                if found is not NotImplemented:
                    return found
            return func(*args, **options)

    return Products()


def lockable(like: str) -> LockableProfile:
    """The profile that is asked for a library's descriptors.  Raises LockError."""
    profiles = [each for each in registry.default().profiles if isinstance(each, ProductProfile)]
    for each in profiles:
        if each.library == like and isinstance(each, LockableProfile):
            return each
    known = ", ".join(sorted({each.library for each in profiles if isinstance(each, LockableProfile)})) or "none"
    raise LockError(f"no plugin answers for the products of a library {like!r}; there are: {known}")


@dataclass
class Recording:
    """What ran: a descriptor for each problem, or why there is none, and what multiplied and is in no lock."""

    like: str
    found: list[tuple[GEMMProblem, What]] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    products: int = 0
    _known: dict[tuple[GEMMProblem, tuple[int, int, int]], None] = field(default_factory=dict)

    def lock(self) -> Lock:
        """The lock of all that ran so far.  Raises LockError."""
        try:
            return locked(self.found, lockable(self.like).provenance())
        except NotCovered as error:
            raise LockError(str(error)) from None

    def meet(self, func: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Runs an operation and notes it."""
        result = func(*arguments, **options)
        self.products += 1
        try:
            if _left(name):
                raise Passed("it is not taken over")
            product = product_of(name, func._overloadname, arguments, options)
        except Passed as why:
            self.left[f"{name}: {why}"] += 1
            return result
        alignment = (_alignment(product.a), _alignment(product.b), _alignment(result))
        if (product.problem, alignment) not in self._known:
            self._known[product.problem, alignment] = None
            self.found.append((product.problem, self._descriptor(product, alignment)))
        return result

    def _descriptor(self, product: Product, alignment: tuple[int, int, int]) -> What:
        try:
            desc = lockable(self.like).answered(product.problem, alignment=alignment, device=product.a.device)
        except NotCovered as error:
            return str(error)
        if isinstance(desc, GEMMDesc | BiasedGEMM):
            return desc
        return f"it is described by a {type(desc).__name__}, not by a GEMMDesc"


@contextmanager
def recorded_products(like: str) -> Iterator[Recording]:
    """Notes the products of a library that run inside; they run as ever.

    What multiplies and cannot be locked is counted in `left`.  Raises LockError where no plugin answers for the
    library.
    """
    lockable(like)
    recording = Recording(like)
    with _mode(recording.meet):
        yield recording


@dataclass
class Replayed:
    """What ran from a lock, how often, and what did not: each with why, and how often."""

    lock: Lock
    missing: Literal["error", "pass"]
    replayed: Counter[GEMMProblem] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    _known: dict[tuple[Any, ...], Entry] = field(default_factory=dict)

    def report(self) -> list[str]:
        """Sentences on what was replayed and what was not."""
        found = [
            f"{self.replayed.total()} products of {len(self.replayed)} problems ran as locked, "
            f"{self.passed.total()} as the library runs them here"
        ]
        dropping = sum(self.lock.described(each).k_dropped > 0 for each in self.replayed)
        if dropping:
            found.append(f"{dropping} of these problems leave the last values of k out, as the library did")
        return found + [f"not locked, {count} times: {why}" for why, count in self.passed.most_common()]

    def meet(self, func: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Runs an operation from the lock, or passes it through by choice.  Raises LockError."""
        try:
            if _left(name):
                raise Passed("it is not taken over")
            if any(0 in each.shape for each in arguments if hasattr(each, "shape")):
                return func(*arguments, **options)  # nothing is multiplied, and no bit is in question
            product, entry = self._found(name, func._overloadname, arguments, options)
        except (Passed, LockError) as why:
            if self.missing == "error":
                raise LockError(f"torch.{name}: {why}") from None
            self.passed[f"{name}: {why}"] += 1
            return func(*arguments, **options)
        out = options.get("out")
        result = multiplied(product, entry.desc, entry.rounded_first)
        if out is not None:
            result = out.copy_(result)
        self.replayed[product.problem] += 1
        return result

    def _found(
        self, name: str, overload: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Product, Entry]:
        """The product that an operation is, and its entry; one like an earlier one is checked no more."""
        key = None if options else (name, overload, *map(_alike, arguments))
        known = None if key is None else self._known.get(key)
        if known is not None:
            tensors = arguments[1:] if name == "addmm" else arguments
            bias = arguments[0] if name == "addmm" else None
            return Product(dense(tensors[0]), dense(tensors[1]), bias, known.problem), known
        product = product_of(name, overload, arguments, options)
        entry = self.lock.entry(product.problem)
        if entry.descriptor is None:
            raise LockError(f"{product.problem.words} is locked without a descriptor: {entry.declined}")
        if key is not None:
            self._known[key] = entry
        return product, entry


def _alike(argument: Any) -> Any:
    """What of an argument decides which product it makes: of a tensor all but its values."""
    try:
        return (type(argument), argument.dtype, argument.device, argument.shape, argument.stride(),
                argument.data_ptr() % 16 == 0)  # fmt: skip
    except AttributeError:
        return argument
    except RuntimeError:  # no memory to be asked for
        return type(argument)


@contextmanager
def locked_products(lock: Lock, missing: Literal["error", "pass"] = "error") -> Iterator[Replayed]:
    """Replaces torch.mm, addmm and bmm inside by the products of a lock, whatever this device's library would run.

    A product that the lock has no descriptor for, or that no lock holds, is a LockError; with `missing="pass"` it runs
    as ever and is counted.  Products without elements run as ever.
    """
    if missing not in ("error", "pass"):
        raise LockError(f'missing is {missing!r}; give "error" or "pass"')
    replayed = Replayed(lock, missing)
    with _mode(replayed.meet):
        yield replayed


def multiplied(product: Product, desc: GEMMDesc, rounded_first: bool = False) -> torch.Tensor:
    """A new tensor: the product in a descriptor's bits, each matrix of a batch alike, and its bias.

    Raises ProductError.
    """
    import torch

    a, b, problem = product.a, product.b, product.problem
    summed = desc if product.bias is None or rounded_first else _in_fp32(desc)
    shape = (*a.shape[:-1], b.shape[-1])
    out = torch.empty(shape, dtype=getattr(torch, DTYPES[summed.output_dtype]), device=a.device)
    if problem.batch is None:
        run(a, b, out, summed, None)
    else:
        for left, right, target in zip(a, b, out, strict=True):
            run(left, right, target, summed, None)
    if product.bias is None:
        return out
    if desc.accumulator_dtype != "fp32":
        raise ProductError(f"a bias is added in fp32, and the descriptor accumulates in {desc.accumulator_dtype}")
    return out.float().add_(product.bias.float()).to(getattr(torch, DTYPES[problem.out]))


@lru_cache(maxsize=65536)
def _in_fp32(desc: GEMMDesc) -> GEMMDesc:
    """The descriptor of the sum before it is rounded to the output's type."""
    return desc.model_copy(update={"output_dtype": "fp32"})


def _alignment(matrix: torch.Tensor) -> int:
    address = int(matrix.data_ptr())
    return min(address & -address, 256) if address else 256
