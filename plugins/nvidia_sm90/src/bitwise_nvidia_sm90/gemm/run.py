"""Run a matrix product on a GPU with the bits of a descriptor."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.device_costs import costs_of_device
from bitwise_nvidia_sm90.gemm.expected_times import operator_seconds
from bitwise_nvidia_sm90.gemm.fusions import Fusion
from bitwise_nvidia_sm90.gemm.matrix_layouts import ALIGNMENT
from bitwise_nvidia_sm90.gemm.measured_schedules import ScheduleMismatch, candidates, least_expected
from bitwise_nvidia_sm90.gemm.plan import Plan, UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.prepared_launches import PreparedProduct, prepare, triton_dispatch
from bitwise_nvidia_sm90.gemm.schedule import Schedule, fallback

if TYPE_CHECKING:
    import torch

CACHE_SIZE = 4096
"""The number of prepared products in the cache; it is cleared when full."""
LARGEST_COMPARED = 1 << 26
"""Elements of the largest output that is compared with the fallback schedule's."""
_prepared: dict[tuple[Any, ...], PreparedProduct] = {}
_compared: set[tuple[str, ...]] = set()
"""The compiled kernels whose bytes were compared, by the hashes of their code."""


@lru_cache(maxsize=65536)
def planned(desc: GEMMDesc) -> Plan:
    """Return the plan of a descriptor, cached.  Raises UnsupportedGEMM."""
    return plan(desc)


def run(
    desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, chosen: Schedule | None = None
) -> torch.Tensor:
    """Compute out = a b as `run_prepared` does; return out."""
    run_prepared(desc, a, b, out, chosen)
    return out


def run_prepared(
    desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, chosen: Schedule | None = None
) -> PreparedProduct:
    """Compute out = a b with the bits of the descriptor, on the current stream of the current device.

    Return the prepared product, which computes it again.  The matrices have two axes, any strides, and the descriptor's
    types and k.  Without `chosen`, the first supported schedule of `measured_schedules.candidates` runs, and the first
    result of its kernels is compared with that of the fallback schedule.  Raises UnsupportedGEMM, and ScheduleMismatch
    if the bytes differ.
    """
    key = (
        id(desc), chosen, a.data_ptr() % ALIGNMENT == 0, b.data_ptr() % ALIGNMENT == 0, out.data_ptr() % ALIGNMENT == 0,
        a.device, a.dtype, b.dtype, out.dtype, a.shape, b.shape, a.stride(), b.stride(),
        out.stride(),
    )  # fmt: skip
    found = _prepared.get(key)
    if found is not None:
        found.launch(a.data_ptr(), b.data_ptr(), out.data_ptr())
        return found
    prepared = prepare(desc, planned(desc), chosen, a, b, out) if chosen else _run_first_supported(desc, a, b, out)
    if len(_prepared) >= CACHE_SIZE:
        _prepared.clear()
    _prepared[key] = prepared
    return prepared


def run_fused(
    desc: GEMMDesc, fusion: Fusion, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, chosen: Schedule | None = None
) -> PreparedProduct:
    """Compute out = the epilogue of a b, on the current stream of the current device; return the prepared product.

    Without `chosen`, the first supported schedule of `measured_schedules.candidates` runs.  Raises UnsupportedGEMM,
    also where separate kernels are expected to take less time.
    """
    fusion.check()
    plan, failure = planned(desc), UnsupportedGEMM("no schedule runs this descriptor with this epilogue")
    if not chosen and not is_faster(plan, fusion, a, b, out):
        raise UnsupportedGEMM("separate kernels are expected to take less time than one with this epilogue")
    for each in (chosen,) if chosen else candidates(desc, plan, a, b, out, 4, fusion.matrices):
        try:
            return prepare(desc, plan, each, a, b, out, fusion)
        except UnsupportedGEMM as error:
            failure = error
    raise failure


def is_faster(plan: Plan, fusion: Fusion, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> bool:
    """Return whether kernels with an epilogue are expected to be faster than those of a product and of its steps.

    The errors of both expected times are much the same, so there is no margin: of 96 products of models on an H200, a
    kernel with the epilogue took longer than separate ones in 1.  Where there is no model of the product's time they
    are.
    """
    found = expected_seconds_of(plan, fusion, a, b, out)
    return found is None or found[0] <= found[1]


def expected_seconds_of(
    plan: Plan, fusion: Fusion, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> tuple[float, float] | None:
    """Return the expected seconds of kernels with an epilogue, and of a product and PyTorch's operators.

    None where there is no model of the product's time.
    """
    fused = least_expected(plan, a, b, out, out.element_size(), fusion.matrices)
    product = least_expected(plan, a, b, out, fusion.element_size)
    if fused is None or product is None:
        return None
    device = costs_of_device(out.device)
    return fused, product + sum(operator_seconds(each, device) for each in fusion.bytes_of_operators(out.numel()))


def triton_launch(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
    """Return a function that makes the launches of `run` through Triton's dispatch: the baseline for host time."""
    return triton_dispatch(planned(desc), _run_first_supported(desc, a, b, out).chosen, a, b, out)


def clear_cache() -> None:
    """Clear the prepared products, so that the next calls choose schedules again."""
    _prepared.clear()


def _run_first_supported(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> PreparedProduct:
    """Run the first schedule that these operands allow.  Raises UnsupportedGEMM and ScheduleMismatch."""
    plan, failure = planned(desc), UnsupportedGEMM("no schedule runs this descriptor")
    for chosen in candidates(desc, plan, a, b, out, most=4):
        try:
            found = prepare(desc, plan, chosen, a, b, out)
        except UnsupportedGEMM as error:
            failure = error
        else:
            _compare_with_fallback(plan, found, a, b, out)
            return found
    raise failure


def _compare_with_fallback(
    plan: Plan, found: PreparedProduct, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> None:
    """Compare the first result of compiled kernels with that of the fallback schedule.  Raises ScheduleMismatch."""
    reference = fallback(plan, *(int(each) for each in out.shape))
    if found.chosen != reference:
        names = f"{found.chosen} and {reference}", found.desc.to_text()
        compare_first(found.code, out, lambda other: prepare(found.desc, plan, reference, a, b, other), names)


def compare_first(
    code: tuple[str, ...], out: torch.Tensor, compute: Callable[[torch.Tensor], object], names: tuple[str, str]
) -> None:
    """Compare the first result of kernels, whose hashes are `code`, with what `compute` writes to a tensor like it.

    An assembler can miscompile a kernel whose PTX is correct.  Nothing is compared while a CUDA graph is captured, for
    more than LARGEST_COMPARED elements, or if there is no memory for a second output.  `names` are those of both
    computations, and of the product.  Raises ScheduleMismatch.
    """
    import torch

    if code in _compared or out.numel() > LARGEST_COMPARED or torch.cuda.is_current_stream_capturing():
        return
    try:
        expected = torch.empty_like(out)
        compute(expected)
    except torch.OutOfMemoryError:
        return
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[out.element_size()]
    result = out.view(bits)
    if not torch.equal(result, expected.view(bits)):
        raise ScheduleMismatch(
            f"{names[0]} returned different bytes for {names[1]}: the compiler or the assembler of this machine "
            "miscompiled one of the kernels; which one is unknown"
        )
    if bool((result != result[0, 0]).any()):  # an output of one repeated value would hide most errors
        _compared.add(code)
