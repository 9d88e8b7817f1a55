"""The products that intercepted operators compute: their operands in the layout of a library, and their problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors.problem import Epilogue, GEMMProblem, ProblemError
from bitwise_torch.interception import PRODUCTS
from bitwise_torch.product_forms import FORMS, OWN_KERNEL, NotLockable, form_of
from bitwise_torch.tensor_problems import library_layout, problem_of

if TYPE_CHECKING:
    import torch

EXACT_K = 1 << 17
"""With fewer values of k, sums of products of int8 fit int32, and `_int_mm` returns the same integers everywhere."""

IN_PLACE = {"addmm_": "addmm", "addmv_": "addmv", "baddbmm_": "baddbmm", "addbmm_": "addbmm"}
"""By operation in place, which returns its first operand: the one whose result it has."""

NOT_INTERCEPTED_REASON = f"no lock holds this operation; locks hold {', '.join(PRODUCTS)}"


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
    if name in IN_PLACE:
        if not arguments[0].is_contiguous():
            raise NotLockable(f"the output is not contiguous, its strides are {tuple(arguments[0].stride())}")
        name = IN_PLACE[name]
    if name in FORMS:
        _check_memory(*(each for each in (*arguments, *options.values()) if hasattr(each, "data_ptr")))
        form = form_of(name, overload, arguments, options)
        if form is not None:
            _check_output(overload, options)
            return InterceptedProduct(form.a, form.b, None, form.problem, form.operands)
    _check_vectors(name, arguments)
    a, b, bias = operands_of(name, arguments)
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
        problem = problem_of(a, b, out_dtype, epilogue)
        # Libraries have a function for dot products of every type, and one for those of a vector of OWN_KERNEL.
        own = "dot" if name == "dot" else "vector" if name == "mv" and str(a.dtype) == OWN_KERNEL else None
        if own is not None:
            fields = {each: getattr(problem, each) for each in type(problem).model_fields}
            problem = GEMMProblem(**fields | {own: True})
        return InterceptedProduct(a, b, bias, problem)
    except ProblemError as error:
        raise NotLockable(str(error)) from None


def _check_output(overload: str, options: dict[str, Any]) -> None:
    """Raise NotLockable for an output that is not contiguous."""
    if overload in ("out", "dtype_out") and not options["out"].is_contiguous():
        raise NotLockable(f"the output is not contiguous, its strides are {tuple(options['out'].stride())}")


def operands_of(name: str, arguments: tuple[Any, ...]) -> tuple[Any, Any, Any]:
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
    if name == "dot" and str(arguments[0].dtype) not in ("torch.float16", "torch.bfloat16", OWN_KERNEL):
        raise NotLockable(f"libraries have a kernel of their own for dot products of {arguments[0].dtype}")


def products_of_batch(arguments: tuple[Any, ...], options: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Yield the matrices of addbmm, which adds them to its addend one after the other, and the options of addmm."""
    _, a, b = arguments
    alpha, beta = options.get("alpha", 1), options.get("beta", 1)
    for left, right in zip(a, b, strict=True):
        yield left, right, {"alpha": alpha, "beta": beta}
        beta = 1


def is_exact(name: str, arguments: tuple[Any, ...]) -> bool:
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
