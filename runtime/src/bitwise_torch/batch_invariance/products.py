"""PyTorch's operators that multiply matrices, each with a function of the same arguments and one order of each sum.

The order is a function of k and the types: one sum over all k, the descriptor that a plugin's launcher names
(`SequentialLauncher`).  Its schedules differ in tiles, for few rows and for many, and not in bits.  Products of a batch
and of groups run in one launch each.  Tensors on the CPU are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import Cut, DescriptorError, Epilogue, GEMMDesc
from bitwise_core.descriptors.epilogue import Step
from bitwise_core.descriptors.problem import BLOCK_K, DTYPES, NAMES, FinishedGEMM, GEMMProblem
from bitwise_core.plugins import registry
from bitwise_core.plugins.launchers import SequentialLauncher
from bitwise_torch import dispatch_cache, many_products
from bitwise_torch.batch_invariance.row_operators import NotServed
from bitwise_torch.grouped_products import grouped_call
from bitwise_torch.product_forms import (
    Form,
    NotLockable,
    blocks_of_scales,
    finished_product,
    fused_launch,
    with_bias_first,
)
from bitwise_torch.products import matmul, product_into

if TYPE_CHECKING:
    import torch

CAPACITY = 65536
"""The number of descriptors that are kept; a full cache is emptied."""

_Function = Callable[..., Any]


def sequential_launcher(device: Any) -> SequentialLauncher:
    """Return the launcher whose order products on a device have; any for the CPU.  Raises NotServed."""
    known = registry.default()
    key = (id(known), device)
    found = _launchers.get(key)
    if found is None or found[0] is not known:
        _launchers[key] = found = (known, _launcher_of(known, device))
    return found[1]


_launchers: dict[tuple[int, Any], tuple[registry.Registry, SequentialLauncher]] = {}


def _launcher_of(known: registry.Registry, device: Any) -> SequentialLauncher:
    for each in known.launchers:
        if not isinstance(each, SequentialLauncher):
            continue
        if device.type == "cpu" or each.serves(each.sequential(64, "bf16", "bf16", "bf16"), device):
            return each
    raise NotServed(f"no installed plugin has kernels of one order for any number of rows on {device}")


def descriptor_of(a: torch.Tensor, b: torch.Tensor, output: Any, one_accumulator: bool = True) -> GEMMDesc:
    """Return the descriptor of the product of two tensors by their last axes, cached.  Raises NotServed.

    fp32 operands are rounded to tf32 where PyTorch's setting of fp32 products allows it.
    """
    device = a.device
    rounded = a.dtype.itemsize == 4 and device.type != "cpu" and _allows_tf32()
    key = (a.dtype, b.dtype, output, a.shape[-1], device, rounded, one_accumulator)
    known, found = registry.default(), _descriptors.get(key)
    if found is not None and found[0] is known:
        return found[1]
    left, right, out = (NAMES.get(str(each)) for each in (a.dtype, b.dtype, output))
    if left is None or right is None or out is None:
        raise NotServed(f"{a.dtype} times {b.dtype} to {output}; the types are {', '.join(DTYPES.values())}")
    launcher = sequential_launcher(device)
    try:
        desc = launcher.sequential(
            int(a.shape[-1]), left, right, out, rounded=rounded and left == "fp32", one_accumulator=one_accumulator
        )
    except DescriptorError as error:
        raise NotServed(str(error)) from None
    if len(_descriptors) >= CAPACITY:
        _descriptors.clear()
    _descriptors[key] = known, desc
    return desc


_descriptors: dict[Any, tuple[registry.Registry, GEMMDesc]] = {}
"""The descriptors of former products, by all that decides them, each with the registry that it comes from."""


def _allows_tf32() -> bool:
    import torch

    return bool(torch.get_float32_matmul_precision() != "highest")


def _check(*tensors: Any) -> None:
    """Raise NotServed unless all tensors are plain dense ones on one device."""
    import torch

    device = tensors[0].device
    for each in tensors:
        if type(each) is not torch.Tensor and type(each) is not torch.nn.Parameter:
            raise NotServed(f"a tensor is of the subclass {type(each).__name__}; plain tensors are served")
        if each.layout != torch.strided or each.is_neg():
            raise NotServed("a tensor is sparse or a lazily negated view; dense ones are served")
        if each.device != device:
            raise NotServed("the tensors are on several devices; one is served")


def _product(a: Any, b: Any, out: Any, dtype: Any) -> Any:
    """Return a[m, k] b[k, n] of a dtype, in `out` where it is given."""
    import torch

    _check(a, b, *(() if out is None else (out,)))
    shape = (a.shape[0], b.shape[1])
    if 0 in a.shape or 0 in b.shape:
        return _into(torch.zeros(shape, dtype=dtype, device=a.device), out)
    desc = descriptor_of(a, b, dtype)
    if out is None:
        return matmul(a, b, desc=desc)
    if _is_apart(out, a, b, shape, dtype):
        product_into(a, b, out, desc)
        return out
    return _into(matmul(a, b, desc=desc), out)


def _is_apart(out: Any, a: Any, b: Any, shape: tuple[Any, Any], dtype: Any) -> bool:
    """Return whether a product can be computed into an output: it is dense, of its type, in other storage."""
    storages = {each.untyped_storage().data_ptr() for each in (a, b)}
    return (
        tuple(out.shape) == shape and out.dtype == dtype and bool(out.is_contiguous())
        and out.untyped_storage().data_ptr() not in storages
    )  # fmt: skip


def _mm(a: Any, b: Any, out_dtype: Any = None, *, out: Any = None) -> Any:
    return _product(a, b, out, out_dtype or a.dtype)


def _mv(a: Any, vector: Any, *, out: Any = None) -> Any:
    return _into(_product(a, vector[:, None], None, a.dtype)[:, 0], out)


def _dot(a: Any, b: Any, *, out: Any = None) -> Any:
    return _into(_product(a[None], b[:, None], None, a.dtype)[0, 0], out)


def _into(value: Any, out: Any) -> Any:
    if out is None:
        return value
    if tuple(out.shape) != tuple(value.shape):
        out.resize_(value.shape)
    return out.copy_(value)


def _bmm(a: Any, b: Any, out_dtype: Any = None, *, out: Any = None) -> Any:
    return _into(batch_product(a, b, out_dtype or a.dtype), out)


def batch_product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a[i] b[i] for tensors of 3 axes, of a dtype.  Raises NotServed."""
    import torch

    _check(a, b)
    out = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=dtype, device=a.device)
    if 0 in a.shape or 0 in b.shape:
        return out.zero_()
    desc = descriptor_of(a, b, dtype)
    if a.device.type == "cpu" or a.shape[0] == 1:
        for left, right, target in zip(a, b, out, strict=True):
            product_into(left, right, target, desc)
        return out
    try:
        many_products.batched(sequential_launcher(a.device), desc, a, b, out)
    except DescriptorError:
        for left, right, target in zip(a, b, out, strict=True):
            product_into(left, right, target, desc)
    return out


def _finished(a: Any, b: Any, dtype: Any, steps: tuple[Step | str, ...], operands: tuple[Any, ...],
              one_accumulator: bool = True) -> Any:  # fmt: skip
    """Return the steps on the fp32 sums of a product, the last of which has a dtype; matrices of a batch one by one."""
    _check(a, b, *operands)
    if 0 in a.shape or b.shape[-1] == 0:
        raise NotServed("an empty product with an addend; products of at least one number are served")
    return finished_product(*_form(a, b, dtype, steps, operands, one_accumulator))


def _form(
    a: Any, b: Any, dtype: Any, steps: tuple[Step | str, ...], operands: tuple[Any, ...], one_accumulator: bool = True
) -> tuple[FinishedGEMM, Form]:
    """Return the description and the form of the steps on the fp32 sums of a product."""
    import torch

    shape = (*a.shape[:-1], b.shape[-1])
    sums = descriptor_of(a, b, torch.float32, one_accumulator)
    desc = _finished_descriptor(sums, steps)
    expanded = tuple(each.expand(shape) for each in operands)
    kind = NAMES[str(a.dtype)], NAMES[str(b.dtype)], NAMES[str(dtype)]
    batch = int(shape[0]) if a.dim() == 3 else None
    problem = GEMMProblem(
        m=int(shape[-2]), n=int(shape[-1]), k=int(a.shape[-1]), a=kind[0], b=kind[1], out=kind[2], batch=batch
    )
    return desc, Form(a, b, expanded, problem)


@lru_cache(maxsize=65536)
def _finished_descriptor(sums: GEMMDesc, steps: tuple[Step | str, ...]) -> FinishedGEMM:
    return FinishedGEMM(product=sums, steps=Epilogue.of(*steps))


def _with_addend(addend: Any, a: Any, b: Any, alpha: Any, beta: Any, after: tuple[str, ...] = ()) -> Any:
    """Return alpha a b + beta addend, and steps after it.

    With alpha = beta = 1 the product is rounded to its type before the addend is added, as by separate operators:
    PyTorch's linear layers call this operator or two others, which depends on the strides of their input.
    """
    alpha, beta = float(alpha), float(beta)
    kind = NAMES.get(str(addend.dtype))
    if kind is None or addend.dtype != a.dtype:
        raise NotServed(f"an addend of {addend.dtype} on operands of {a.dtype}; one type is served")
    rounded = Step(name="convert", dtype=kind)
    if beta == 0.0:
        scaled: tuple[Step | str, ...] = () if alpha == 1.0 else (Step(name="scale", value=alpha),)
        return _finished(a, b, a.dtype, (*scaled, rounded, *after), ())
    if alpha == beta == 1.0:
        return _finished(a, b, a.dtype, (*_sum_of_linear_layer(kind), *after), (addend,))
    step = Step(name="axpby", value=alpha, operand_value=beta, fused="x", operand_dtype=kind)
    return _finished(a, b, a.dtype, (step, rounded, *after), (addend,))


def _sum_of_linear_layer(kind: str) -> tuple[Step | str, ...]:
    """Return the steps of a product of a type, and a sum after it."""
    return Step(name="convert", dtype=kind), "add"


def _addmm(
    addend: Any, a: Any, b: Any, out_dtype: Any = None, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Any:
    if out_dtype is not None and out_dtype != a.dtype:
        raise NotServed(f"an output of {out_dtype} on operands of {a.dtype}; one type is served")
    if 0 in a.shape or b.shape[-1] == 0:
        empty = addend.expand(*a.shape[:-1], b.shape[-1])
        return _into(empty * beta if float(beta) else empty * 0, out)
    return _into(_with_addend(addend, a, b, alpha, beta), out)


def _addmm_in_place(addend: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return addend.copy_(_addmm(addend, a, b, beta=beta, alpha=alpha))


def _addmm_activation(
    addend: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False, out: Any = None
) -> Any:
    return _into(_with_addend(addend, a, b, alpha, beta, ("gelu_tanh" if use_gelu else "relu",)), out)


def _scaled_mm(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False, *, out: Any = None,
) -> Any:  # fmt: skip
    import torch

    m, n = int(a.shape[0]), int(b.shape[1])
    if scale_result is not None or {scale_a.dtype, scale_b.dtype} != {torch.float32}:
        raise NotServed("a scale of the result, or scales that are not fp32; fp32 scales of the operands are served")
    operands: tuple[Any, ...]
    if scale_a.numel() == scale_b.numel() == 1:
        operands = (scale_a.reshape(1, 1) * scale_b.reshape(1, 1),)
    elif (tuple(scale_a.shape), tuple(scale_b.shape)) == ((m, 1), (1, n)):
        operands = (scale_b, scale_a)
    elif (blocks := blocks_of_scales(a, b, scale_a, scale_b)) is not None and a.shape[1] <= BLOCK_K:
        # One row and its columns have one scale each in some of these shapes, which are those of the first case.
        rows, columns = _repeated(scale_a, blocks[0], 0, m), _repeated(scale_b, blocks[1], 1, n)
        operands = (rows * columns,)
    elif blocks is not None:
        return _into(_scaled_blocks(a, b, scale_a, scale_b, bias, out_dtype or _narrow(out)), out)
    else:
        raise NotServed(
            "scales of other shapes; one scale for each operand, for each row and column, or for each block of 128 "
            "values of k are served"
        )
    steps: tuple[Step | str, ...] = ("multiply",) * len(operands)
    dtype = out_dtype or _narrow(out)
    if bias is not None:
        steps, operands = (*steps, Step(name="add", operand_dtype=NAMES[str(bias.dtype)])), (*operands, bias)
    steps = (*steps, Step(name="convert", dtype=NAMES[str(dtype)]))
    return _into(_finished(a, b, dtype, steps, operands, bool(use_fast_accum)), out)


def _repeated(scales: Any, times: int, axis: int, length: int) -> Any:
    """Return scales that `times` rows or columns share as one for each of `length`."""
    return scales.repeat_interleave(times, axis).narrow(axis, 0, length)


def _narrow(out: Any) -> Any:
    """Return the type of an output, bf16 where none is given."""
    import torch

    return torch.bfloat16 if out is None else out.dtype


def _scaled_blocks(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, dtype: Any) -> Any:
    """Return a product of which each block of 128 values of k has scales, and a bias, of a dtype."""
    import torch

    _check(a, b, scale_a, scale_b, *(() if bias is None else (bias,)))
    if 0 in a.shape or 0 in b.shape:
        raise NotServed("an empty product with scales; products of at least one number are served")
    added = () if bias is None else (Step(name="add", operand_dtype=NAMES[str(bias.dtype)]),)
    steps = (*added, Step(name="convert", dtype=NAMES[str(dtype)]))
    desc = _blocks_descriptor(descriptor_of(a, b, torch.float32, False), steps)
    shape = int(a.shape[0]), int(b.shape[1])
    operands = (scale_a, scale_b, *(() if bias is None else (bias.expand(shape),)))
    kind = NAMES[str(a.dtype)], NAMES[str(b.dtype)], NAMES[str(dtype)]
    problem = GEMMProblem(m=shape[0], n=shape[1], k=int(a.shape[1]), a=kind[0], b=kind[1], out=kind[2])
    return finished_product(desc, Form(a, b, operands, problem))


@lru_cache(maxsize=65536)
def _blocks_descriptor(sums: GEMMDesc, steps: tuple[Step, ...]) -> FinishedGEMM:
    """Return the product whose accumulators, of 128 values of k each, are multiplied by the product of two scales."""
    product = sums.model_copy(update={"k_cuts": (Cut(span=BLOCK_K),)})
    return FinishedGEMM(product=product, steps=Epilogue.of(*steps), block_scaling="product_first")


_TENSOR_WISE, _ROW_WISE = 0, 1
"""The numbers of torch.nn.functional.ScalingType."""


def _scaled_mm_by_recipes(
    a: Any, b: Any, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any, swizzle_b: Any,
    bias: Any = None, out_dtype: Any = None, contraction_dim: Any = (), use_fast_accum: bool = False, *,
    out: Any = None,
) -> Any:  # fmt: skip
    """Compute torch.nn.functional.scaled_mm, which names what has a scale."""
    recipes = list(recipe_a), list(recipe_b)
    if recipes not in (([_TENSOR_WISE],) * 2, ([_ROW_WISE],) * 2) or any((*swizzle_a, *swizzle_b)) or contraction_dim:
        raise NotServed(
            "scales of blocks by recipes; one scale for each operand, or for each row and column, is served"
        )
    left, right = scale_a[0], scale_b[0]
    if recipes[0] == [_ROW_WISE]:
        left, right = left.reshape(-1, 1), right.reshape(1, -1)
    return _scaled_mm(a, b, left, right, bias, None, out_dtype, use_fast_accum, out=out)


def _scaled_grouped_mm(
    a: Any, b: Any, scale_a: Any, scale_b: Any, offs: Any = None, bias: Any = None, scale_result: Any = None,
    out_dtype: Any = None, use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """Compute the groups one by one: their bounds are read, which waits for the device."""
    import torch

    _check(a, b, scale_a, scale_b, *(() if offs is None else (offs,)))
    if {a.dtype, b.dtype} - {torch.float8_e4m3fn, torch.float8_e5m2}:
        raise NotServed(f"groups of {a.dtype} and {b.dtype} with scales; those of fp8 are served")
    try:
        options = {"bias": bias, "scale_result": scale_result, "out_dtype": out_dtype, "use_fast_accum": use_fast_accum}
        call = grouped_call("_scaled_grouped_mm", (a, b, scale_a, scale_b, offs), options)
    except NotLockable as reason:
        raise NotServed(str(reason)) from None
    steps = ("multiply", "multiply", Step(name="convert", dtype="bf16"))

    def describe(problem: GEMMProblem) -> FinishedGEMM:
        launcher = sequential_launcher(a.device)
        sums = launcher.sequential(problem.k, problem.a, problem.b, "fp32", one_accumulator=bool(use_fast_accum))
        return _finished_descriptor(sums, steps)

    return call.result(describe)


def _grouped_mm(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if bias is not None:
        raise NotServed("a bias of groups; add it to the result")
    return grouped_product(a, b, offs, out_dtype or a.dtype)


def grouped_product(a: torch.Tensor, b: torch.Tensor, ends: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return the products of groups as torch._grouped_mm does, of a dtype.  Raises NotServed.

    Groups are ranges of the rows of a 2-axis `a`, of the columns of a 2-axis `b`, or of k where both have 2 axes.
    """
    import torch

    axes = (a.dim(), b.dim())
    if axes == (3, 3):
        return batch_product(a, b, dtype)
    if axes == (3, 2):  # the transposed products have the same sums
        return grouped_product(b.t(), a.transpose(1, 2), ends, dtype).t()
    _check(a, b, ends)
    groups = int(ends.shape[0])
    shape = (int(a.shape[0]), int(b.shape[-1]))
    out = torch.empty(shape if axes == (2, 3) else (groups, *shape), dtype=dtype, device=a.device)
    if 0 in a.shape or 0 in b.shape:
        return out.zero_()
    desc = descriptor_of(a, b, dtype)
    if a.device.type != "cpu":
        try:
            many_products.grouped(sequential_launcher(a.device), desc, a, b, ends.to(torch.int32), out)
        except DescriptorError as error:
            raise NotServed(str(error)) from None
        return out
    out.zero_()
    begin = 0
    for group, end in enumerate(int(each) for each in ends.tolist()):
        if axes == (2, 3) and end > begin:
            product_into(a[begin:end], b[group], out[begin:end], desc)
        elif end > begin:
            x, y = a[:, begin:end], b[begin:end]
            product_into(x, y, out[group], descriptor_of(x, y, dtype))
        begin = max(begin, end)
    return out


PRODUCT_OPERATORS: dict[str, _Function] = {
    "mm": _mm, "addmm": _addmm, "addmm_": _addmm_in_place, "bmm": _bmm, "baddbmm": _addmm, "mv": _mv, "dot": _dot,
    "_addmm_activation": _addmm_activation, "_scaled_mm": _scaled_mm, "_scaled_mm_v2": _scaled_mm_by_recipes,
    "_grouped_mm": _grouped_mm, "_scaled_grouped_mm": _scaled_grouped_mm,
}  # fmt: skip
"""By the name of an operator in the namespace `aten`: the function that computes all of its overloads."""


def setting_of_product(operand: Any) -> tuple[bool, ...]:
    """Return the settings of PyTorch that decide the descriptor of a product beside its operands: one for fp32."""
    return (_allows_tf32(),) if operand.dtype.itemsize == 4 else ()


def launch_of_product(name: str, arguments: tuple[Any, ...], out: Any) -> Callable[..., None] | None:
    """Return the launch of a call of mm, bmm, addmm with factors of 1, or _grouped_mm, whose result is `out`.

    It is a function of the addresses of the tensors in the order of the arguments, and of the result.  It is None
    where several kernels ran.
    """
    if name == "_grouped_mm":
        return _launch_of_groups(arguments, out)
    if not out.numel() or len(arguments) != (3 if name == "addmm" else 2):
        return None
    if name == "addmm":
        addend, a, b = arguments
        if not a.shape[1]:
            return None
        finished, form = _form(a, b, a.dtype, _sum_of_linear_layer(NAMES[str(a.dtype)]), (addend,))
        launch = fused_launch(finished, form, out)
        return None if launch is None else with_bias_first(launch)
    a, b = arguments
    if not a.shape[-1]:
        return None
    desc = descriptor_of(a, b, a.dtype)
    if name == "bmm" and a.shape[0] != 1:
        return many_products.launch_of_batch(desc, a, b, out)
    if name == "bmm":
        key = dispatch_cache.call_key(a[0], b[0], desc, out=out[0])
    else:
        key = dispatch_cache.call_key(a, b, desc)
    call = dispatch_cache.known_call(key)
    return None if call is None else call.launch


def _launch_of_groups(arguments: tuple[Any, ...], out: Any) -> Callable[..., None] | None:
    """Return the launch of the products of groups of rows or of k; None for others, and for no numbers."""
    import torch

    a, b, *rest = arguments
    if len(rest) != 1 or a.dim() != 2 or rest[0].dtype != torch.int32 or 0 in a.shape or 0 in b.shape:
        return None
    return many_products.launch_of_groups(descriptor_of(a, b, a.dtype), a, b, rest[0], out)
