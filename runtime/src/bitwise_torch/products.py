"""Matrix products of PyTorch tensors with the bits of a descriptor, of a library, or of a lock file.

desc = describe(a, b, like="cublas")
c = matmul(a, b, desc=desc)
c = matmul(a, b, like="cublas")
c = matmul(a, b, lock=read_lock("products.json"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bitwise_core.descriptors import Epilogue, GEMMDesc
from bitwise_core.descriptors.problem import NAMES, ProblemError
from bitwise_core.plugins import registry
from bitwise_core.plugins.profiles import CacheableProfile
from bitwise_torch import dispatch_cache, epilogues, product_runs
from bitwise_torch.library_profiles import product_profile
from bitwise_torch.locks import Lock
from bitwise_torch.product_arguments import (
    ProductError,
    address_range,
    check_operands,
    check_tensor,
    checked_out,
    empty_output,
    output_format,
)
from bitwise_torch.product_operators import epilogue_operator, gradients_operator, torch_operator
from bitwise_torch.product_runs import (
    RanProduct,
    described,
    descriptor_of,
    parse_descriptor,
    run_product,
)
from bitwise_torch.tensor_problems import problem_of

if TYPE_CHECKING:
    import torch


def describe(a: torch.Tensor, b: torch.Tensor, *, like: str, out_dtype: torch.dtype | None = None) -> GEMMDesc:
    """Return the descriptor of what a library runs for a[m, k] b[k, n] with these tensors on their device.

    `like` is the name of the library.  The output's type is `out_dtype`, by default that of `a` (bf16 for fp8).  Raises
    ProductError for operands that do not fit, and NotCovered, naming the key, for a product that was not measured.
    """
    check_operands(a, b)
    return descriptor_of(a, b, empty_output(a, b, output_format(a, out_dtype)), like)


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
        repeated, key = dispatch_cache.repeated_product(
            a, b, desc, like, lock, out_dtype, out, product_runs.warned_libraries
        )
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
            check_tensor("out", out)
        desc = _locked_descriptor(lock, a, b, out_dtype if out is None or out_dtype is not None else out.dtype)
    check_operands(a, b)
    if desc is not None and not isinstance(desc, (GEMMDesc, str)):
        raise ProductError(f"desc is a {type(desc).__name__}; give a GEMMDesc or the text of one")
    if out is not None:
        check_tensor("out", out)
    if out is None and _must_trace(a, b):
        return _traced_product(a, b, desc, like, out_dtype, grad_like)
    if isinstance(desc, str):
        desc = parse_descriptor(desc)
    if desc is not None and out_dtype is None:
        name = desc.output_dtype
    else:
        name = output_format(a, out.dtype if out is not None and out_dtype is None else out_dtype)
    target = empty_output(a, b, name) if out is None else checked_out(a, b, out, name)
    ran = run_product(a, b, target, desc, like)
    _keep_call(key, given, ran, a, b, target)
    return target


def product_into(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, desc: GEMMDesc) -> None:
    """Compute out = a b for checked operands by a descriptor; what was checked once is not checked again.

    Raises what `matmul` raises.
    """
    repeated, key = dispatch_cache.repeated_product(a, b, desc, None, None, None, out, product_runs.warned_libraries)
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
    extent_a, extent_b, extent = (last - first for first, last in map(address_range, (a, b, out)))
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
    check_operands(a, b)
    try:
        return lock.descriptor(problem_of(a, b, out_dtype))
    except ProblemError as error:
        raise ProductError(str(error)) from None


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
        return "", output_format(a, out_dtype)
    if isinstance(desc, str):
        return desc, _output_format_of_text(desc) if out_dtype is None else output_format(a, out_dtype)
    if torch.compiler.is_compiling():
        raise ProductError("inside torch.compile, desc must be the descriptor's text: give desc.to_text()")
    return desc.to_text(), desc.output_dtype if out_dtype is None else output_format(a, out_dtype)


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
        check_tensor(f"operand {position} of the epilogue", each)
    recorded = dispatch_cache.gradients_enabled() and any(each.requires_grad for each in (a, b, *operands))
    product = matmul(a, b, desc=desc, like=like, lock=lock, out_dtype=out_dtype, grad_like=grad_like)
    if call is None:
        shape = (int(product.shape[0]), int(product.shape[1]))
        problem = epilogues.operand_problem(steps, NAMES[str(product.dtype)], shape, product.device, operands)
        if problem is not None:
            raise ProductError(problem)
    if recorded or call is not None or key is None:
        return epilogues.eager(steps, product, operands)
    if product_runs.on_cpu(product):
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
        desc = described(profile, a, b, product)
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
    check_operands(a, b)
    _register_operator()
    text, name = _traced_descriptor(a, desc, out_dtype)
    found: torch.Tensor = torch.ops.bitwise.matmul_epilogue(
        a, b, list(operands), epilogue, text, like or "", name, grad_like or like or "torch"
    )
    return found


def _register_operator() -> bool:
    """Register the operators; torch.compile treats the result as a constant."""
    torch_operator()
    gradients_operator()
    epilogue_operator(matmul)
    return True


def _output_format_of_text(text: str) -> str:
    """Return the output format of a descriptor's text; torch.compile treats the result as a constant."""
    return parse_descriptor(text).output_dtype


# The attribute that torch.compiler.assume_constant_result sets; PyTorch must not be imported here.
_register_operator._dynamo_marked_constant = True  # type: ignore[attr-defined]
_output_format_of_text._dynamo_marked_constant = True  # type: ignore[attr-defined]
