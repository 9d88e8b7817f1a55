"""Matrix products of PyTorch tensors with the bits of a descriptor, of a library, or of a lock file.

desc = describe(a, b, like="cublas")
c = matmul(a, b, desc=desc)
c = matmul(a, b, like="cublas")
c = matmul(a, b, lock=read_lock("products.json"))
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import Epilogue, GEMMDesc
from bitwise_core.descriptors.problem import DTYPES, NAMES, ProblemError
from bitwise_core.errors import BitwiseError
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_core.plugins.launchers import PreparingLauncher, ProductLaunch, ProductLauncher
from bitwise_core.plugins.profiles import CacheableProfile, NotCovered, ProductProfile
from bitwise_torch import dispatch_cache, epilogues
from bitwise_torch.library_profiles import no_launcher, product_profile
from bitwise_torch.locks import Lock
from bitwise_torch.tensor_problems import problem_of

if TYPE_CHECKING:
    import torch

__all__ = ["DroppedWarning", "NotCovered", "ProductError", "describe", "matmul"]

_FP8_TYPES = frozenset({"e4m3", "e5m2"})
_warned_libraries: set[str] = set()


class ProductError(BitwiseError, ValueError):
    """Operands or arguments of a product that do not fit; the message names them and says what to do."""


class DroppedWarning(UserWarning):
    """The library whose bits are returned omits the last values of k from the sum."""


def describe(a: torch.Tensor, b: torch.Tensor, *, like: str, out_dtype: torch.dtype | None = None) -> GEMMDesc:
    """Return the descriptor of what a library runs for a[m, k] b[k, n] with these tensors on their device.

    `like` is the name of the library.  The output's type is `out_dtype`, by default that of `a` (bf16 for fp8).  Raises
    ProductError for operands that do not fit, and NotCovered, naming the key, for a product that was not measured.
    """
    _check_operands(a, b)
    return descriptor_of(a, b, _empty_output(a, b, _output_format(a, out_dtype)), like)


def matmul(
    a: torch.Tensor, b: torch.Tensor, *, desc: GEMMDesc | str | None = None, like: str | None = None,
    lock: Lock | None = None, out_dtype: torch.dtype | None = None, out: torch.Tensor | None = None,
    epilogue: Epilogue | str | None = None, operands: Sequence[torch.Tensor] = (), grad_like: str | None = None,
) -> torch.Tensor:  # fmt: skip
    """Return a[m, k] b[k, n] with the bits of a descriptor, of a library, or of a lock, or an epilogue of it.

    Exactly one of `desc`, `like` and `lock` is given.  `desc` is a descriptor or its text; inside torch.compile it must
    be the text.  `like` is the name of a library.  `lock` gives the descriptor of its entry for these shapes, strides
    and types.  Tensors on a GPU run on its current stream by a plugin's launcher; tensors on the CPU are evaluated,
    which is slow.  The operands may have any strides; a library's profile may not cover some.

    `epilogue`, an Epilogue or its text, has the bytes of PyTorch's operators for its steps, one after the other, with
    `operands` for the steps that have one.  Where a plugin has kernels for the product and the steps, they are fused.

    The products of gradients have the bits of the library `grad_like`, by default `like`; "torch" stands for PyTorch's
    ordinary products, which also compute them with `desc` or `lock` alone.  `out` does not support gradients.

    With `like`, a descriptor that omits values of k (`k_dropped`) causes a DroppedWarning once in a process.  Raises
    ProductError, NotCovered, LockError or DescriptorError.
    """
    import torch

    if epilogue is not None:
        if out is not None:
            raise ProductError("out does not support an epilogue: omit out")
        return _product_with_epilogue(a, b, epilogue, operands, desc, like, lock, out_dtype, grad_like)
    if operands:
        raise ProductError("operands are those of an epilogue: give epilogue as well")
    key = None
    if not torch.compiler.is_compiling():
        repeated, key = dispatch_cache.repeated_product(a, b, desc, like, lock, out_dtype, out, _warned_libraries)
        if repeated is not None:
            return repeated
    if sum(each is not None for each in (desc, like, lock)) != 1:
        raise ProductError(
            "give exactly one of desc, a descriptor, like, the name of a library, and lock, the result of read_lock"
        )
    given = (desc, lock)
    if lock is not None:
        if not isinstance(lock, Lock):
            raise ProductError(f"lock is a {type(lock).__name__}; give the result of read_lock")
        if out is not None:
            _check_tensor("out", out)
        desc = _locked_descriptor(lock, a, b, out_dtype if out is None or out_dtype is not None else out.dtype)
    _check_operands(a, b)
    if desc is not None and not isinstance(desc, (GEMMDesc, str)):
        raise ProductError(f"desc is a {type(desc).__name__}; give a GEMMDesc or the text of one")
    if out is not None:
        _check_tensor("out", out)
    if out is None and _must_trace(a, b):
        return _traced_product(a, b, desc, like, out_dtype, grad_like)
    if isinstance(desc, str):
        desc = parse_descriptor(desc)
    if desc is not None and out_dtype is None:
        name = desc.output_dtype
    else:
        name = _output_format(a, out.dtype if out is not None and out_dtype is None else out_dtype)
    target = _empty_output(a, b, name) if out is None else _checked_out(a, b, out, name)
    ran = run_product(a, b, target, desc, like)
    _keep_call(key, given, ran, a, b, target)
    return target


def product_into(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, desc: GEMMDesc) -> None:
    """Compute out = a b for checked operands by a descriptor; what was checked once is not checked again.

    Raises what `matmul` raises.
    """
    repeated, key = dispatch_cache.repeated_product(a, b, desc, None, None, None, out, _warned_libraries)
    if repeated is None:
        _keep_call(key, (desc, None), run_product(a, b, out, desc, None), a, b, out)


def _keep_call(
    key: dispatch_cache.Key | None, given: tuple[GEMMDesc | str | None, Lock | None], ran: RanProduct | None,
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor,
) -> None:  # fmt: skip
    """Add a call that ran on a device to the cache, for tensors of PyTorch's own types and unchanged settings."""
    import torch

    if key is None or ran is None or not {type(a), type(b)} <= {torch.Tensor, torch.nn.Parameter}:
        return
    if isinstance(ran.profile, CacheableProfile) and ran.profile.cache_token() != ran.cache_token:
        return  # another thread changed a setting, and the descriptor may be of before or after
    dispatch_cache.store(key, _cached_call(given, ran, a, b, out))


def _cached_call(
    given: tuple[GEMMDesc | str | None, Lock | None], ran: RanProduct, a: torch.Tensor, b: torch.Tensor,
    out: torch.Tensor,
) -> dispatch_cache.CachedCall:  # fmt: skip
    """Return the cached call of a product that ran."""
    extent_a, extent_b, extent = (last - first for first, last in map(_address_range, (a, b, out)))
    at = out.data_ptr()
    return dispatch_cache.CachedCall(
        registry=registry.default(),
        given=given,
        profile=ran.profile,
        desc=ran.desc,
        launcher=ran.launcher,
        launch=ran.launch,
        allocate=dispatch_cache.output_allocator(out),
        extents=(extent_a, extent_b, extent),
        alignment=at & -at & 255,
        cache_token=ran.cache_token,
        drops=ran.desc.k_dropped > 0,
    )


def _locked_descriptor(lock: Lock, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None) -> GEMMDesc:
    """Return the descriptor of a lock's entry for two tensors.  Raises ProductError and LockError."""
    import torch

    if torch.compiler.is_compiling():
        raise ProductError(
            "inside torch.compile, give desc instead of lock: lock.descriptor(problem_of(a, b)).to_text()"
        )
    _check_operands(a, b)
    try:
        return lock.descriptor(problem_of(a, b, out_dtype))
    except ProblemError as error:
        raise ProductError(str(error)) from None


@dataclass(frozen=True, slots=True)
class RanProduct:
    """A product that a launcher ran.

    `profile` is None for a product by a descriptor, `launch` for a launcher that does not prepare products.
    `cache_token` is that of a CacheableProfile before it described the product.
    """

    profile: ProductProfile | None
    desc: GEMMDesc
    launcher: ProductLauncher
    launch: ProductLaunch | None
    cache_token: Hashable


def run_product(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, desc: GEMMDesc | None, like: str | None
) -> RanProduct | None:
    """Compute out = a b for checked operands by `desc`, or by `like` where `desc` is None.

    Return None for operands on the CPU.  Raises what `matmul` raises.
    """
    profile, token = None, None
    if desc is None:
        assert like is not None
        profile = product_profile(like, ProductError)
        token = profile.cache_token() if isinstance(profile, CacheableProfile) else None
        desc = _described(profile, a, b, out)
        if desc.k_dropped and like not in _warned_libraries:
            _warned_libraries.add(like)
            warnings.warn(
                f"{like} omits the last {desc.k_dropped} of {desc.k} values of k from this sum, and this product "
                "reproduces that; later products that omit values cause no warning",
                DroppedWarning,
                stacklevel=3,
            )
    _check_types(desc, a, b, out)
    for name, each in (("a", a), ("b", b), ("out", out)):
        if each.is_neg():
            raise ProductError(f"{name} is a lazily negated view; give {name}.resolve_neg()")
    if _on_cpu(a):
        _evaluate_on_cpu(desc, a, b, out)
        return None
    for launcher in registry.default().launchers:
        if isinstance(launcher, ProductLauncher) and launcher.serves(desc, a.device):
            if isinstance(launcher, PreparingLauncher):
                return RanProduct(profile, desc, launcher, launcher.prepare(desc, a, b, out), token)
            launcher.product(desc, a, b, out)
            return RanProduct(profile, desc, launcher, None, token)
    raise ProductError(no_launcher(desc, a.device))


def descriptor_of(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, like: str) -> GEMMDesc:
    """Return the descriptor of what a library runs for checked operands; see `describe`."""
    return _described(product_profile(like, ProductError), a, b, out)


def _described(profile: ProductProfile, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> GEMMDesc:
    desc = profile.product(a, b, out)
    if not isinstance(desc, GEMMDesc):
        raise NotCovered(f"{profile.library} computes this product as a {type(desc).__name__}; matmul runs a GEMMDesc")
    return desc


def _check_operands(a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ProductError unless a and b are matrices of supported types on one device whose shapes match."""
    for name, each in (("a", a), ("b", b)):
        _check_tensor(name, each)
        if each.dim() != 2:
            raise ProductError(f"{name} has {each.dim()} axes; both operands need 2: multiply a batch matrix by matrix")
        if str(each.dtype) not in NAMES:
            raise ProductError(f"{name} is of {each.dtype}; the supported types are {', '.join(DTYPES.values())}")
        if 0 in each.shape:
            raise ProductError(f"{name} has the shape {tuple(each.shape)}; there is nothing to multiply")
    if a.shape[1] != b.shape[0]:
        raise ProductError(
            f"a has {a.shape[1]} columns and b has {b.shape[0]} rows; both numbers must be k "
            f"({tuple(a.shape)} times {tuple(b.shape)})"
        )
    if a.device != b.device:
        raise ProductError(f"a is on {a.device} and b is on {b.device}; move both to one device")


def _check_tensor(name: str, each: Any) -> None:
    """Raise ProductError unless an argument is a strided tensor."""
    if not hasattr(each, "data_ptr"):
        raise ProductError(f"{name} is a {type(each).__name__}; give a PyTorch tensor")
    if each.is_nested or str(each.layout) != "torch.strided":
        kind = "nested" if each.is_nested else f"of the layout {str(each.layout).removeprefix('torch.')}"
        raise ProductError(f"{name} is {kind}; give a dense tensor, for example {name}.to_dense()")


def _output_format(a: torch.Tensor, dtype: torch.dtype | None) -> str:
    """Return the name of the output's format: that of `dtype`, by default that of `a` (bf16 for fp8)."""
    if dtype is None:
        name = NAMES[str(a.dtype)]
        return "bf16" if name in _FP8_TYPES else name
    if str(dtype) not in NAMES:
        raise ProductError(f"the output's type {dtype} is not supported; the types are {', '.join(DTYPES.values())}")
    return NAMES[str(dtype)]


def _empty_output(a: torch.Tensor, b: torch.Tensor, name: str) -> torch.Tensor:
    import torch

    return torch.empty((a.shape[0], b.shape[1]), dtype=getattr(torch, DTYPES[name]), device=a.device)


def _checked_out(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, name: str) -> torch.Tensor:
    """Return `out` if it can hold the product in the format `name`.  Raises ProductError."""
    shape = (a.shape[0], b.shape[1])
    if tuple(out.shape) != shape or out.device != a.device:
        raise ProductError(f"out has the shape {tuple(out.shape)} on {out.device}; it needs {shape} on {a.device}")
    if NAMES.get(str(out.dtype)) != name:
        raise ProductError(f"out is of {out.dtype}; the product is of {DTYPES[name]}")
    if any(each.requires_grad for each in (a, b, out)) and dispatch_cache.gradients_enabled():
        raise ProductError("out does not support gradients: omit it, or multiply inside torch.no_grad()")
    row_stride, column_stride = out.stride()
    if not ((column_stride >= 1 and row_stride >= (shape[1] - 1) * column_stride + 1) or (
        row_stride >= 1 and column_stride >= (shape[0] - 1) * row_stride + 1
    )):  # fmt: skip
        raise ProductError(f"out has the strides {out.stride()}, so its elements overlap: give a dense tensor")
    for other, each in (("a", a), ("b", b)):
        low, high = _address_range(out)
        first, last = _address_range(each)
        if low < last and first < high:
            raise ProductError(f"out overlaps {other} in memory; give a tensor with memory of its own")
    return out


def _address_range(matrix: torch.Tensor) -> tuple[int, int]:
    """Return the address of a matrix's first byte and the address after its last byte."""
    last = sum((length - 1) * step for length, step in zip(matrix.shape, matrix.stride(), strict=True))
    start = matrix.data_ptr()
    return start, start + (last + 1) * matrix.element_size()


def _check_types(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Raise ProductError unless k and the types are those of the descriptor."""
    if desc.k != a.shape[1]:
        raise ProductError(f"the descriptor has k = {desc.k}, and a has {a.shape[1]} columns")
    for name, each, dtype in (("a", a, desc.left_dtype), ("b", b, desc.right_dtype), ("out", out, desc.output_dtype)):
        if NAMES.get(str(each.dtype)) != dtype:
            raise ProductError(f"{name} is of {each.dtype}, and the descriptor has {dtype}")
    if desc.operand_scales:
        raise ProductError("the descriptor has operand scales, which matmul does not support: give one without")


def _on_cpu(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "cpu")


def _evaluate_on_cpu(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Compute out = a b for operands on the CPU by evaluating the descriptor on bit patterns."""
    import torch

    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

    def patterns(matrix: torch.Tensor) -> Any:
        found = matrix.detach().contiguous().view(integers[matrix.element_size()]).numpy()
        return found.view(f"u{matrix.element_size()}")

    result = evaluate(desc, patterns(a), patterns(b))
    size = out.element_size()
    bits = torch.from_numpy(result.view("u1" if size == 1 else f"i{size}")).view(out.dtype)
    out.detach().copy_(bits)


def _must_trace(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether the product must be one PyTorch operator: inside torch.compile, or where gradients are needed."""
    import torch

    return bool(torch.compiler.is_compiling() or ((a.requires_grad or b.requires_grad) and torch.is_grad_enabled()))


def _traced_product(
    a: torch.Tensor, b: torch.Tensor, desc: GEMMDesc | str | None, like: str | None, out_dtype: torch.dtype | None,
    grad_like: str | None,
) -> torch.Tensor:  # fmt: skip
    import torch

    _register_operator()
    text, name = _traced_descriptor(a, desc, out_dtype)
    found: torch.Tensor = torch.ops.bitwise.matmul(a, b, text, like or "", name, grad_like or like or "torch")
    return found


def _traced_descriptor(a: torch.Tensor, desc: GEMMDesc | str | None, out_dtype: torch.dtype | None) -> tuple[str, str]:
    """Return the text of a descriptor, empty for None, and the format of the product, as a trace has them."""
    import torch

    if desc is None:
        return "", _output_format(a, out_dtype)
    if isinstance(desc, str):
        return desc, _output_format_of_text(desc) if out_dtype is None else _output_format(a, out_dtype)
    if torch.compiler.is_compiling():
        raise ProductError("inside torch.compile, desc must be the descriptor's text: give desc.to_text()")
    return desc.to_text(), desc.output_dtype if out_dtype is None else _output_format(a, out_dtype)


def _product_with_epilogue(
    a: torch.Tensor, b: torch.Tensor, epilogue: Epilogue | str, operands: Sequence[torch.Tensor],
    desc: GEMMDesc | str | None, like: str | None, lock: Lock | None, out_dtype: torch.dtype | None,
    grad_like: str | None,
) -> torch.Tensor:  # fmt: skip
    """Return an epilogue of a product; the arguments are those of `matmul`."""
    import torch

    if torch.compiler.is_compiling():
        return _traced_epilogue(a, b, epilogue, operands, desc, like, lock, out_dtype, grad_like)
    try:
        key = epilogues.call_key(a, b, epilogue, operands, desc, like, lock, out_dtype)
    except (AttributeError, RuntimeError, TypeError):  # an argument is not a tensor with memory
        key = None
    call = None if key is None else epilogues.known_call(key)
    if call is not None and call.launch is not None:
        recorded = dispatch_cache.gradients_enabled() and any(each.requires_grad for each in (a, b, *operands))
        found = None if recorded else epilogues.run(call, a, b, operands)
        if found is not None:
            return found
    steps = epilogues.parse_epilogue(epilogue) if isinstance(epilogue, str) else epilogue
    if not isinstance(steps, Epilogue):
        raise ProductError(f"epilogue is a {type(epilogue).__name__}; give an Epilogue or the text of one")
    unsuited = epilogues.sequence_problem(steps)
    if unsuited is not None:
        raise ProductError(unsuited)
    for position, each in enumerate(operands):
        _check_tensor(f"operand {position} of the epilogue", each)
    recorded = dispatch_cache.gradients_enabled() and any(each.requires_grad for each in (a, b, *operands))
    product = matmul(a, b, desc=desc, like=like, lock=lock, out_dtype=out_dtype, grad_like=grad_like)
    if call is None:
        shape = (int(product.shape[0]), int(product.shape[1]))
        problem = epilogues.operand_problem(steps, NAMES[str(product.dtype)], shape, product.device, operands)
        if problem is not None:
            raise ProductError(problem)
    if recorded or call is not None or key is None:
        return epilogues.eager(steps, product, operands)
    if _on_cpu(product):
        return epilogues.evaluated(steps, product, operands)
    given = (epilogue, desc, lock)
    profile, token = None, None
    if lock is not None:
        desc = _locked_descriptor(lock, a, b, out_dtype)
    elif isinstance(desc, str):
        desc = parse_descriptor(desc)
    elif desc is None:
        assert like is not None
        profile = product_profile(like, ProductError)
        token = profile.cache_token() if isinstance(profile, CacheableProfile) else None
        desc = _described(profile, a, b, product)
    return epilogues.first_call(key, given, profile, token, desc, steps, a, b, operands, product)


def _traced_epilogue(
    a: torch.Tensor, b: torch.Tensor, epilogue: Epilogue | str, operands: Sequence[torch.Tensor],
    desc: GEMMDesc | str | None, like: str | None, lock: Lock | None, out_dtype: torch.dtype | None,
    grad_like: str | None,
) -> torch.Tensor:  # fmt: skip
    import torch

    if not isinstance(epilogue, str):
        raise ProductError("inside torch.compile, epilogue must be a text: give epilogue.to_text()")
    if (desc is None) == (like is None) or lock is not None:
        raise ProductError("inside torch.compile, give exactly one of desc, a descriptor's text, and like")
    _check_operands(a, b)
    _register_operator()
    text, name = _traced_descriptor(a, desc, out_dtype)
    found: torch.Tensor = torch.ops.bitwise.matmul_epilogue(
        a, b, list(operands), epilogue, text, like or "", name, grad_like or like or "torch"
    )
    return found


@lru_cache(maxsize=65536)
def parse_descriptor(text: str) -> GEMMDesc:
    """Return the descriptor of a text; the result is cached.  Raises DescriptorError."""
    return GEMMDesc.from_text(text)


@cache
def torch_operator() -> Any:
    """Register the PyTorch operator that represents a product in traces and in autograd graphs, and return it.

    `bitwise::matmul(a, b, desc, like, dtype, grad_like)`: `desc` is a descriptor's text or empty, `like` a library's
    name or empty, `dtype` the output's format, `grad_like` the library whose bits the products of gradients have, or
    "torch".  Repeated calls return the same operator.
    """
    import torch

    def product(a: torch.Tensor, b: torch.Tensor, desc: str, like: str, dtype: str, grad_like: str) -> torch.Tensor:
        out = _empty_like_product(a, b, dtype)
        run_product(a, b, out, parse_descriptor(desc) if desc else None, like or None)
        return out

    def fake(a: torch.Tensor, b: torch.Tensor, desc: str, like: str, dtype: str, grad_like: str) -> torch.Tensor:
        return _empty_like_product(a, b, dtype)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.grad_like = inputs[5]

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        a, b = ctx.saved_tensors
        needed = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        return *_product_gradients(a, b, gradient, ctx.grad_like, needed), None, None, None, None

    made = torch.library.custom_op(
        "bitwise::matmul", product, mutates_args=(),
        schema="(Tensor a, Tensor b, str desc, str like, str dtype, str grad_like) -> Tensor",
    )  # fmt: skip
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=setup)
    return made


def _empty_like_product(a: torch.Tensor, b: torch.Tensor, dtype: str) -> torch.Tensor:
    import torch

    return a.new_empty((a.shape[0], b.shape[1]), dtype=getattr(torch, DTYPES[dtype]))


def _product_gradients(
    a: torch.Tensor, b: torch.Tensor, gradient: torch.Tensor, like: str, needed: tuple[bool, bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of a and b that are needed, with the bits of a library, or of PyTorch's products."""
    import torch

    if 0 in gradient.stride():  # an expanded matrix, of which a library receives a dense copy
        gradient = gradient.contiguous()

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if like == "torch":
            return x @ y
        # The operator, since gradients may be traced.
        found: torch.Tensor = torch.ops.bitwise.matmul(x, y, "", like, _output_format(x, None), like)
        return found

    left = product(gradient.to(b.dtype), b.t()).to(a.dtype) if needed[0] else None
    right = product(a.t(), gradient.to(a.dtype)).to(b.dtype) if needed[1] else None
    return left, right


@cache
def gradients_operator() -> Any:
    """Register the PyTorch operator that represents the gradients of an epilogue in traces, and return it.

    `bitwise::epilogue_gradients(product, operands, upstream, epilogue)` returns those of the product and of each
    operand.  As one operator it has the bytes of PyTorch's eager operators: a compiler would fuse them, and round less
    often.  Repeated calls return the same operator.
    """
    import torch

    def compute(
        product: torch.Tensor, operands: list[torch.Tensor], upstream: torch.Tensor, epilogue: str
    ) -> list[torch.Tensor]:
        inner, others = epilogues.gradients(epilogues.parse_epilogue(epilogue), product, operands, upstream)
        # The results of an operator are no views of its arguments, nor one tensor twice.
        return [each.contiguous().clone() for each in (inner, *others)]

    def fake(
        product: torch.Tensor, operands: list[torch.Tensor], upstream: torch.Tensor, epilogue: str
    ) -> list[torch.Tensor]:
        return [each.new_empty(each.shape) for each in (product, *operands)]

    made = torch.library.custom_op(
        "bitwise::epilogue_gradients", compute, mutates_args=(),
        schema="(Tensor product, Tensor[] operands, Tensor upstream, str epilogue) -> Tensor[]",
    )  # fmt: skip
    made.register_fake(fake)
    return made


@cache
def epilogue_operator() -> Any:
    """Register the PyTorch operator that represents a product with an epilogue in traces, and return it.

    `bitwise::matmul_epilogue(a, b, operands, epilogue, desc, like, dtype, grad_like)`: `epilogue` is a text, the other
    arguments are those of `bitwise::matmul`.  Its gradients compute the product again.  Repeated calls return the same
    operator.
    """
    import torch

    def product(
        a: torch.Tensor, b: torch.Tensor, operands: list[torch.Tensor], epilogue: str, desc: str, like: str, dtype: str,
        grad_like: str,
    ) -> torch.Tensor:  # fmt: skip
        found = matmul(
            a, b, desc=desc or None, like=like or None, out_dtype=getattr(torch, DTYPES[dtype]), epilogue=epilogue,
            operands=operands, grad_like=grad_like,
        )  # fmt: skip
        return found

    def fake(
        a: torch.Tensor, b: torch.Tensor, operands: list[torch.Tensor], epilogue: str, desc: str, like: str, dtype: str,
        grad_like: str,
    ) -> torch.Tensor:  # fmt: skip
        return _empty_like_product(a, b, epilogues.parse_epilogue(epilogue).output_dtype(dtype))

    def setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        a, b, operands, *ctx.texts = inputs
        ctx.save_for_backward(a, b, *operands)

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        a, b, *operands = ctx.saved_tensors
        epilogue, desc, like, dtype, grad_like = ctx.texts
        product = torch.ops.bitwise.matmul(a, b, desc, like, dtype, grad_like)
        inner, *others = torch.ops.bitwise.epilogue_gradients(product, operands, gradient, epilogue)
        needed = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        return *_product_gradients(a, b, inner, grad_like, needed), others, None, None, None, None, None

    made = torch.library.custom_op(
        "bitwise::matmul_epilogue", product, mutates_args=(),
        schema="(Tensor a, Tensor b, Tensor[] operands, str epilogue, str desc, str like, str dtype, "
        "str grad_like) -> Tensor",
    )  # fmt: skip
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=setup)
    return made


def _register_operator() -> bool:
    """Register the operators; torch.compile treats the result as a constant."""
    torch_operator()
    gradients_operator()
    epilogue_operator()
    return True


def _output_format_of_text(text: str) -> str:
    """Return the output format of a descriptor's text; torch.compile treats the result as a constant."""
    return parse_descriptor(text).output_dtype


# The attribute that torch.compiler.assume_constant_result sets; PyTorch must not be imported here.
_register_operator._dynamo_marked_constant = True  # type: ignore[attr-defined]
_output_format_of_text._dynamo_marked_constant = True  # type: ignore[attr-defined]
