"""Matrix products of PyTorch tensors in bits that a descriptor decides, or those of a library.

desc = describe(a, b, like="cublas")
c = matmul(a, b, desc=desc)
c = matmul(a, b, like="cublas")
c = matmul(a, b, lock=read_lock("products.json"))
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import DTYPES, NAMES, ProblemError
from bitwise_core.errors import BitwiseError
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_core.plugins.launchers import ProductLauncher
from bitwise_core.plugins.profiles import CacheableProfile, NotCovered, ProductProfile
from bitwise_torch import dispatch_cache
from bitwise_torch.locks import Lock
from bitwise_torch.tensor_problems import problem_of

if TYPE_CHECKING:
    import torch

__all__ = ["DroppedWarning", "NotCovered", "ProductError", "describe", "matmul"]

_FP8 = frozenset({"e4m3", "e5m2"})
_told: set[str] = set()


class ProductError(BitwiseError, ValueError):
    """Operands that cannot be multiplied as asked: the message says which, and what to do."""


class DroppedWarning(UserWarning):
    """The library whose bits are returned leaves the last values of k out of the sum."""


def describe(a: torch.Tensor, b: torch.Tensor, *, like: str, out_dtype: torch.dtype | None = None) -> GEMMDesc:
    """The descriptor of what a library runs for a[m, k] b[k, n], for tensors as they lie on the device.

    `like` is the name of a library's profile.  The output has the type of `a`, bf16 for fp8, unless `out_dtype` gives
    one.  Raises ProductError for operands that do not fit, and NotCovered, with the key, for what is not measured.
    """
    _check(a, b)
    return _described(a, b, _empty(a, b, _output(a, out_dtype)), like)[1]


def matmul(
    a: torch.Tensor, b: torch.Tensor, *, desc: GEMMDesc | str | None = None, like: str | None = None,
    lock: Lock | None = None, out_dtype: torch.dtype | None = None, out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """a[m, k] b[k, n] in the bits of a descriptor, of a library, `like` its name, or of a lock: one of them is given.

    `desc` is a descriptor or its text; a trace of torch.compile takes the text.  With `lock` the descriptor is that of
    the lock's entry for these shapes, strides and types.  Tensors of a device run on its current
    stream by a plugin's launcher; those of the CPU are evaluated, slowly.  Any strides are read as they are; `like` may
    decline some.  Gradients are taken by the ordinary products of PyTorch, whose bits nothing decides; `out` takes
    none.  Where a descriptor leaves values of k out (`k_dropped`), `like` warns once in a process, by DroppedWarning.
    Raises ProductError, NotCovered, LockError or DescriptorError.
    """
    if sum(each is not None for each in (desc, like, lock)) != 1:
        raise ProductError(
            "give desc, the descriptor, like, the name of a library, or lock, what read_lock gave: exactly one of them"
        )
    if lock is not None:
        if not isinstance(lock, Lock):
            raise ProductError(f"lock is a {type(lock).__name__}; give what read_lock gave")
        if out is not None:
            _check_tensor("out", out)
        desc = _locked(lock, a, b, out_dtype if out is None or out_dtype is not None else out.dtype)
    key = None if _compiling() else dispatch_cache.key_of(a, b, desc, like, out_dtype, out)
    if key is not None:
        done = dispatch_cache.again(key, a, b, out, _told)
        if done is not None:
            return done
    asked = desc
    _check(a, b)
    if desc is not None and not isinstance(desc, (GEMMDesc, str)):
        raise ProductError(f"desc is a {type(desc).__name__}; give a GEMMDesc or the text of one")
    if out is not None:
        _check_tensor("out", out)
    if out is None and _traced(a, b):
        return _traced_product(a, b, desc, like, out_dtype)
    if isinstance(desc, str):
        desc = read(desc)
    if desc is not None and out_dtype is None:
        name = desc.output_dtype
    else:
        name = _output(a, out.dtype if out is not None and out_dtype is None else out_dtype)
    target = _empty(a, b, name) if out is None else _checked_out(a, b, out, name)
    ran = run(a, b, target, desc, like)
    if ran is not None and key is not None:
        shape = (int(a.shape[0]), int(b.shape[1]))
        lengths = [last - first for first, last in map(_span, (a, b, target))]
        mark = ran[0].mark(a, b, target) if isinstance(ran[0], CacheableProfile) else None
        earlier = dispatch_cache.Earlier(
            registry.default(), asked, *ran, shape, target.dtype, (lengths[0], lengths[1], lengths[2]), mark
        )
        dispatch_cache.keep(key, earlier)
    return target


def _locked(lock: Lock, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None) -> GEMMDesc:
    """The descriptor of a lock's entry.  Raises ProductError and LockError."""
    if _compiling():
        raise ProductError(
            "while torch.compile traces, give desc instead of lock: lock.described(problem_of(a, b)).to_text()"
        )
    _check(a, b)
    key = (a.dtype, b.dtype, a.shape, b.shape, a.stride(), b.stride(), out_dtype)
    found = lock.of_tensors.get(key)
    if found is None:
        try:
            found = lock.of_tensors[key] = lock.described(problem_of(a, b, out_dtype))
        except ProblemError as error:
            raise ProductError(str(error)) from None
    return found


def run(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, desc: GEMMDesc | None, like: str | None
) -> tuple[ProductProfile | None, GEMMDesc, ProductLauncher] | None:
    """out = a b for operands that fit; `desc` or `like` is given.  Raises what `matmul` raises.

    Returns who described it, the descriptor and who ran it; None for operands of the CPU.
    """
    profile = None
    if desc is None:
        assert like is not None
        profile, desc = _described(a, b, out, like)
        if desc.k_dropped and like not in _told:
            _told.add(like)
            warnings.warn(
                f"{like} leaves the last {desc.k_dropped} of {desc.k} values of k out of this sum, and so does this "
                "product; later ones that do are not mentioned",
                DroppedWarning,
                stacklevel=3,
            )
    _check_types(desc, a, b, out)
    for name, each in (("a", a), ("b", b), ("out", out)):
        if each.is_neg():
            raise ProductError(f"{name} is a negated view; give {name}.resolve_neg()")
    if a.device.type == "cpu":
        _evaluated(desc, a, b, out)
        return None
    for launcher in registry.default().launchers:
        if isinstance(launcher, ProductLauncher) and launcher.serves(desc, a.device):
            launcher.product(desc, a, b, out)
            return profile, desc, launcher
    raise ProductError(f"no plugin runs this descriptor on {a.device}: {desc.to_text()}")


def described(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, like: str) -> GEMMDesc:
    """The descriptor of what a library runs for operands that fit; see `describe`."""
    return _described(a, b, out, like)[1]


def _described(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, like: str) -> tuple[ProductProfile, GEMMDesc]:
    profiles = registry.default().profiles
    for each in profiles:
        if isinstance(each, ProductProfile) and each.library == like:
            found = each.product(a, b, out)
            if not isinstance(found, GEMMDesc):
                raise NotCovered(f"{like} describes this product by a {type(found).__name__}, not by a GEMMDesc")
            return each, found
    known = ", ".join(sorted({each.library for each in profiles if isinstance(each, ProductProfile)})) or "none"
    raise ProductError(f"no plugin knows the products of a library {like!r}; there are: {known}")


def _check(a: torch.Tensor, b: torch.Tensor) -> None:
    for name, each in (("a", a), ("b", b)):
        _check_tensor(name, each)
        if each.dim() != 2:
            raise ProductError(f"{name} has {each.dim()} axes; both operands have 2: take a batch apart")
        if str(each.dtype) not in NAMES:
            raise ProductError(f"{name} is of {each.dtype}; there are {', '.join(DTYPES.values())}")
        if 0 in each.shape:
            raise ProductError(f"{name} has the shape {tuple(each.shape)}; there is nothing to multiply")
    if a.shape[1] != b.shape[0]:
        raise ProductError(
            f"a has {a.shape[1]} columns and b has {b.shape[0]} rows; they are one k "
            f"({tuple(a.shape)} times {tuple(b.shape)})"
        )
    if a.device != b.device:
        raise ProductError(f"a is on {a.device} and b on {b.device}; move one to the other's device")


def _check_tensor(name: str, each: Any) -> None:
    """A tensor whose elements lie in memory by strides.  Raises ProductError."""
    if not hasattr(each, "data_ptr"):
        raise ProductError(f"{name} is a {type(each).__name__}; matmul and describe take tensors of PyTorch")
    if each.is_nested or str(each.layout) != "torch.strided":
        kind = "nested" if each.is_nested else f"of the layout {str(each.layout).removeprefix('torch.')}"
        raise ProductError(f"{name} is {kind}; give a dense tensor, as {name}.to_dense() makes of most")


def _output(a: torch.Tensor, dtype: torch.dtype | None) -> str:
    if dtype is None:
        name = NAMES[str(a.dtype)]
        return "bf16" if name in _FP8 else name
    if str(dtype) not in NAMES:
        raise ProductError(f"the output would be of {dtype}; there are {', '.join(DTYPES.values())}")
    return NAMES[str(dtype)]


def _empty(a: torch.Tensor, b: torch.Tensor, name: str) -> torch.Tensor:
    import torch

    return torch.empty((a.shape[0], b.shape[1]), dtype=getattr(torch, DTYPES[name]), device=a.device)


def _checked_out(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, name: str) -> torch.Tensor:
    wanted = (a.shape[0], b.shape[1])
    if tuple(out.shape) != wanted or out.device != a.device:
        raise ProductError(f"out has the shape {tuple(out.shape)} on {out.device}; it takes {wanted} on {a.device}")
    if NAMES.get(str(out.dtype)) != name:
        raise ProductError(f"out is of {out.dtype}; the product is of {DTYPES[name]}")
    if any(each.requires_grad for each in (a, b, out)) and _gradients():
        raise ProductError("out takes no gradients: leave it out, or multiply inside torch.no_grad()")
    rows, columns = out.stride()
    if not ((columns >= 1 and rows >= (wanted[1] - 1) * columns + 1) or (
        rows >= 1 and columns >= (wanted[0] - 1) * rows + 1
    )):  # fmt: skip
        raise ProductError(f"out has the strides {out.stride()}: its elements overlap")
    for other, each in (("a", a), ("b", b)):
        low, high = _span(out)
        first, last = _span(each)
        if low < last and first < high:
            raise ProductError(f"out overlaps {other} in memory; give one of its own")
    return out


def _span(matrix: torch.Tensor) -> tuple[int, int]:
    reach = sum((length - 1) * step for length, step in zip(matrix.shape, matrix.stride(), strict=True))
    start = matrix.data_ptr()
    return start, start + (reach + 1) * matrix.element_size()


def _check_types(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    if desc.k != a.shape[1]:
        raise ProductError(f"the descriptor is of k = {desc.k}, and a has {a.shape[1]} columns")
    for name, each, wanted in (("a", a, desc.left_dtype), ("b", b, desc.right_dtype), ("out", out, desc.output_dtype)):
        if NAMES.get(str(each.dtype)) != wanted:
            raise ProductError(f"{name} is of {each.dtype}, and the descriptor says {wanted}")
    if desc.operand_scales:
        raise ProductError("the descriptor has scales of operands, which matmul does not take")


def _evaluated(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    import torch

    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

    def patterns(matrix: torch.Tensor) -> Any:
        found = matrix.detach().contiguous().view(integers[matrix.element_size()]).numpy()
        return found.view(f"u{matrix.element_size()}")

    result = evaluate(desc, patterns(a), patterns(b))
    size = out.element_size()
    bits = torch.from_numpy(result.view("u1" if size == 1 else f"i{size}")).view(out.dtype)
    out.detach().copy_(bits)


def _compiling() -> bool:
    import torch

    return bool(torch.compiler.is_compiling())


def _gradients() -> bool:
    import torch

    return bool(torch.is_grad_enabled())


def _traced(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether PyTorch must see one operation: a trace, or gradients."""
    import torch

    return bool(torch.compiler.is_compiling() or ((a.requires_grad or b.requires_grad) and torch.is_grad_enabled()))


def _traced_product(
    a: torch.Tensor, b: torch.Tensor, desc: GEMMDesc | str | None, like: str | None, out_dtype: torch.dtype | None
) -> torch.Tensor:
    import torch

    _register()
    if desc is None:
        text, name = "", _output(a, out_dtype)
    elif isinstance(desc, str):
        text = desc
        name = _output_of(desc) if out_dtype is None else _output(a, out_dtype)
    elif torch.compiler.is_compiling():
        raise ProductError("while torch.compile traces, desc is the descriptor's text: give desc.to_text()")
    else:
        text, name = desc.to_text(), desc.output_dtype if out_dtype is None else _output(a, out_dtype)
    found: torch.Tensor = torch.ops.bitwise.matmul(a, b, text, like or "", name)
    return found


@lru_cache(maxsize=65536)
def read(text: str) -> GEMMDesc:
    """The descriptor of a text, kept.  Raises DescriptorError."""
    return GEMMDesc.from_text(text)


@cache
def operation() -> Any:
    """The operation of PyTorch that is a product in traces and in graphs of gradients, registered once.

    `bitwise::matmul(a, b, desc, like, dtype)`, where `desc` is a descriptor's text, or `like` a library's name.
    """
    import torch

    def empty(a: torch.Tensor, b: torch.Tensor, dtype: str) -> torch.Tensor:
        return a.new_empty((a.shape[0], b.shape[1]), dtype=getattr(torch, DTYPES[dtype]))

    def product(a: torch.Tensor, b: torch.Tensor, desc: str, like: str, dtype: str) -> torch.Tensor:
        out = empty(a, b, dtype)
        run(a, b, out, read(desc) if desc else None, like or None)
        return out

    def fake(a: torch.Tensor, b: torch.Tensor, desc: str, like: str, dtype: str) -> torch.Tensor:
        return empty(a, b, dtype)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        left = (gradient.to(b.dtype) @ b.t()).to(a.dtype) if ctx.needs_input_grad[0] else None
        right = (a.t() @ gradient.to(a.dtype)).to(b.dtype) if ctx.needs_input_grad[1] else None
        return left, right, None, None, None

    made = torch.library.custom_op(
        "bitwise::matmul", product, mutates_args=(),
        schema="(Tensor a, Tensor b, str desc, str like, str dtype) -> Tensor",
    )  # fmt: skip
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=setup)
    return made


def _register() -> bool:
    """Registers the operation; the result is a constant to a trace."""
    operation()
    return True


def _output_of(text: str) -> str:
    """The type of the output of a descriptor's text; a constant to a trace."""
    return read(text).output_dtype


# What torch.compiler.assume_constant_result sets; PyTorch is not loaded here.
_register._dynamo_marked_constant = True  # type: ignore[attr-defined]
_output_of._dynamo_marked_constant = True  # type: ignore[attr-defined]
