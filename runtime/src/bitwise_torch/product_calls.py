"""PyTorch's products with addends, activations, scales and groups, with the bits of a library or of a lock.

c = addmm(addend, a, b, beta=0.5, like="cublas")
c = scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, lock=read_lock("products.json"))
c = grouped_mm(a, b, offsets, like="cublas")

The arguments are those of PyTorch's functions of these names.  None of them computes gradients: a program that needs
them runs under `locked_products`.  All raise ProductError, NotCovered and LockError.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc, Record
from bitwise_core.descriptors.problem import BiasedGEMM, FinishedGEMM, GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import GroupedProfile, NotCovered
from bitwise_torch import dispatch_cache
from bitwise_torch.grouped_products import GroupedCall, with_length
from bitwise_torch.library_profiles import grouped_profile, lockable_profile
from bitwise_torch.locks import Lock, LockError
from bitwise_torch.product_arguments import ProductError
from bitwise_torch.product_forms import (
    Form,
    NotLockable,
    biased_product,
    finished_product,
    form_of,
    fused_launch,
    with_bias_first,
)
from bitwise_torch.products import matmul
from bitwise_torch.ready_launches import ReadyLaunches
from bitwise_torch.tensor_problems import alignment_of, problem_of

if TYPE_CHECKING:
    import torch

CAPACITY = 4096
"""The number of descriptions that are kept for each library's token; a full cache is emptied."""


def addmm(
    addend: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1,
    like: str | None = None, lock: Lock | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return beta addend + alpha a b with the bits of torch.addmm; see the module."""
    return _called("addmm", (addend, a, b), {"beta": beta, "alpha": alpha}, like, lock)


def addmv(
    addend: torch.Tensor, a: torch.Tensor, x: torch.Tensor, *, beta: float = 1, alpha: float = 1,
    like: str | None = None, lock: Lock | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return beta addend + alpha a x for a vector x, with the bits of torch.addmv; see the module."""
    return _called("addmv", (addend, a, x), {"beta": beta, "alpha": alpha}, like, lock)[:, 0]


def baddbmm(
    addend: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1,
    like: str | None = None, lock: Lock | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return beta addend + alpha a b for each matrix of a batch, with the bits of torch.baddbmm; see the module."""
    return _called("baddbmm", (addend, a, b), {"beta": beta, "alpha": alpha}, like, lock)


def addmm_activation(
    addend: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, alpha: float = 1, use_gelu: bool = False,
    like: str | None = None, lock: Lock | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return relu(addend + alpha a b) for a vector, with the bits of torch._addmm_activation; see the module."""
    options = {"beta": 1, "alpha": alpha, "use_gelu": use_gelu}
    return _called("_addmm_activation", (addend, a, b), options, like, lock)


def scaled_mm(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, *,
    bias: torch.Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
    like: str | None = None, lock: Lock | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return the product of scaled fp8 matrices with the bits of torch._scaled_mm; see the module."""
    options = {"bias": bias, "out_dtype": out_dtype, "use_fast_accum": use_fast_accum}
    return _called("_scaled_mm", (a, b, scale_a, scale_b), options, like, lock)


def described_call(
    name: str, arguments: Sequence[Any], options: dict[str, Any], like: str
) -> tuple[Form, GEMMDesc | FinishedGEMM]:
    """Return a call of an operation of FORMS as a form, and what a library computes for it.

    The result of addmv is a column of the form's.  Raises ProductError and NotCovered.
    """
    form = _checked_form(name, arguments, options)
    return form, _described(like, form)


def _called(
    name: str, arguments: tuple[Any, ...], options: dict[str, Any], like: str | None, lock: Lock | None
) -> torch.Tensor:
    _check_source(like, lock)
    if lock is not None:
        form = _checked_form(name, arguments, options)
        return product_of_form(_locked(lock, form.problem), form)
    token, ready = _token_of(like or "") if name in _READY and _is_launched(arguments) else None, None
    if token is not None:
        found, ready = _ready.run(name, arguments, (like, token, *options.values()))
        if found is not None:
            return found
    form = _checked_form(name, arguments, options)
    desc = _described(like or "", form)
    result = product_of_form(desc, form)
    if ready is not None and form.a is arguments[1] and form.b is arguments[2] and len(form.operands) == 1:
        launch = fused_launch(desc, form, result) if isinstance(desc, FinishedGEMM) else None
        if launch is not None and _token_of(like or "") == token:
            _ready.keep(ready, arguments, result, with_bias_first(launch))
    return result


def _is_launched(arguments: tuple[Any, ...]) -> bool:
    """Return whether operands are tensors whose memory a kernel reads as it is, and no gradients are recorded."""
    try:
        return not any(
            each.is_neg() or (each.requires_grad and dispatch_cache.gradients_enabled()) for each in arguments
        )
    except AttributeError:
        return False


def _token_of(library: str) -> Hashable:
    """Return the token that says that a library's answers are unchanged, None where its profile has none."""
    known = _tokens.get(library)
    if known is None or known[0] is not registry.default():
        profile = lockable_profile(library, ProductError)
        known = _tokens[library] = registry.default(), getattr(profile, "cache_token", lambda: None)
    return known[1]()


_tokens: dict[str, tuple[registry.Registry, Callable[[], Hashable]]] = {}
_ready = ReadyLaunches()
_READY = frozenset({"addmm", "_addmm_activation"})
"""The calls of an addend and two matrices that one launch may compute."""


def _check_source(like: str | None, lock: Lock | None) -> None:
    if (like is None) == (lock is None):
        raise ProductError("give exactly one of like, the name of a library, and lock, the result of read_lock")


def product_of_form(desc: GEMMDesc | FinishedGEMM, form: Form) -> torch.Tensor:
    """Return the result of a form by its description, for each matrix of a batch.

    Raises ProductError and DescriptorError.
    """
    if isinstance(desc, FinishedGEMM):
        return finished_product(desc, form)
    if form.problem.batch is not None:
        import torch

        return torch.stack([matmul(x, y, desc=desc) for x, y in zip(form.a, form.b, strict=True)])
    return matmul(form.a, form.b, desc=desc)


def _checked_form(name: str, arguments: Sequence[Any], options: dict[str, Any]) -> Form:
    """Return the form of a call whose arguments fit.  Raises ProductError and NotCovered."""
    for position, each in enumerate(arguments):
        if not hasattr(each, "data_ptr"):
            raise ProductError(f"argument {position} is a {type(each).__name__}; give a PyTorch tensor")
        _check_gradients(each)
    _check_shapes(name, arguments)
    try:
        form = form_of(name, "", arguments, options)
    except NotLockable as reason:
        raise NotCovered(f"torch.{name}: {reason}") from None
    if form is None:
        addend, a, b = arguments
        form = Form(a, b, (addend.expand(a.shape[0], b.shape[1]),), problem_of(a, b, a.dtype, "bias"))
    return form


def _check_shapes(name: str, arguments: Sequence[Any]) -> None:
    a, b = arguments[:2] if name == "_scaled_mm" else arguments[1:3]
    if name == "addmv" and b.dim() == 1:
        b = b[:, None]
    axes = 3 if name == "baddbmm" else 2
    if a.dim() != axes or b.dim() != axes or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise ProductError(f"{tuple(a.shape)} times {tuple(b.shape)}: torch.{name} needs {axes} axes, and k in both")
    if a.dtype != b.dtype and name != "_scaled_mm":
        raise ProductError(f"a is of {a.dtype} and b of {b.dtype}; give one type")
    if a.device != b.device:
        raise ProductError(f"a is on {a.device} and b is on {b.device}; move both to one device")


def _check_gradients(tensor: Any) -> None:
    if tensor.requires_grad and dispatch_cache.gradients_enabled():
        raise ProductError(
            "this function computes no gradients: call it inside torch.no_grad(), or run the program under "
            "locked_products"
        )


def _locked(lock: Lock, problem: GEMMProblem) -> GEMMDesc | FinishedGEMM:
    entry = lock.entry(problem)
    if entry.finished is not None:
        return entry.finished
    return biased_product(entry.biased) if problem.epilogue == "bias" else entry.desc


_known: dict[Any, GEMMDesc | FinishedGEMM] = {}


def _described(like: str, form: Form) -> GEMMDesc | FinishedGEMM:
    """Return what a library computes for a form, cached.  Raises NotCovered and ProductError."""
    profile = lockable_profile(like, ProductError)
    alignment = alignment_of(form.a), alignment_of(form.b), 256
    token = getattr(profile, "cache_token", lambda: None)()
    key = (id(profile), token, form.problem, alignment, form.a.device)
    if key not in _known:
        found: Record = profile.describe_problem(form.problem, alignment=alignment, device=form.a.device)
        if not isinstance(found, GEMMDesc | BiasedGEMM | FinishedGEMM):
            raise NotCovered(f"{like} computes this product as a {type(found).__name__}")
        if len(_known) >= CAPACITY:
            _known.clear()
        if isinstance(found, BiasedGEMM):
            found = biased_product(found)
        _known[key] = found
    return _known[key]


def grouped_mm(
    a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor | None = None, *, like: str | None = None,
    lock: Lock | None = None, scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Return products of groups in bf16 with the bits of torch._grouped_mm, with scales of torch._scaled_grouped_mm.

    `offsets` holds the end of each group in rows of a 2-axis `a`, columns of a 2-axis `b`, or values of k where both
    have 2 axes.  With scales, and where `a` alone has 3 axes, its values are read, which waits for the device.
    Elements outside of the groups are 0.  `scale_a` has a scale for each row of `a`, `scale_b` for each column of `b`,
    for each group.  Raises ProductError, NotCovered and LockError.
    """
    for each in (a, b, scale_a, scale_b):
        if each is not None:
            _check_gradients(each)
    _check_source(like, lock)
    call = GroupedCall(a, b, offsets, scale_a, scale_b, use_fast_accum)
    if lock is not None:
        return call.result(group_of_lock(lock, call))
    profile = grouped_profile(like or "", ProductError)
    return call.result(lambda problem: _group(profile, problem, a.device))


def group_of_lock(lock: Lock, call: GroupedCall) -> Callable[[GEMMProblem], FinishedGEMM]:
    """Return what a lock says of the groups of a call, a function of the problem of a group.  Raises LockError."""
    entry = lock.entry(call.key)
    if entry.finished is None:
        raise LockError(f"{call.key.words} is locked without a descriptor: {entry.declined}")
    found = entry.finished
    return lambda problem: with_length(found, problem.k)


_groups_known: dict[Any, FinishedGEMM] = {}


def _group(profile: GroupedProfile, problem: GEMMProblem, device: Any) -> FinishedGEMM:
    """Return the description of a group, cached by what decides it: k, the types and the finish."""
    key = (id(profile), problem.k, problem.a, problem.b, problem.finish, device)
    if key not in _groups_known:
        if len(_groups_known) >= CAPACITY:
            _groups_known.clear()
        _groups_known[key] = profile.describe_group(problem, device=device)
    return _groups_known[key]
