"""Products on a GPU, from a descriptor alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.measured_schedules import Unequal, candidates
from bitwise_nvidia_sm90.gemm.plan import Plan, Refused, plan
from bitwise_nvidia_sm90.gemm.prepared_launches import ALIGNMENT, Prepared, by_triton, prepare
from bitwise_nvidia_sm90.gemm.schedule import Schedule, default

if TYPE_CHECKING:
    import torch

KEPT = 4096
"""Launches kept of one process; where there are more, all are forgotten."""
LARGEST = 1 << 26
"""Elements of the largest output that is compared."""
_kept: dict[tuple[Any, ...], Prepared] = {}
_compared: set[tuple[str, ...]] = set()


@lru_cache(maxsize=65536)
def planned(desc: GEMMDesc) -> Plan:
    """The plan of a descriptor, kept.  Raises Refused."""
    return plan(desc)


def run(
    desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, chosen: Schedule | None = None
) -> torch.Tensor:
    """out = a b in the bits of the descriptor, on the current stream of the current device, and out.

    The matrices have two axes, any strides, and the descriptor's types and k.  Without a schedule the one that was
    found fast, or is expected to be, runs; kernels that do so for the first time are compared with others.  Raises
    Refused, and Unequal where their bytes differ.
    """
    key = (
        id(desc), chosen, a.data_ptr() % ALIGNMENT == 0, b.data_ptr() % ALIGNMENT == 0, out.data_ptr() % ALIGNMENT == 0,
        a.device, a.dtype, b.dtype, out.dtype, a.shape, b.shape, a.stride(), b.stride(),
        out.stride(),
    )  # fmt: skip
    found = _kept.get(key)
    if found is not None:
        found.run(a, b, out)
        return out
    prepared = prepare(desc, planned(desc), chosen, a, b, out) if chosen else _first(desc, a, b, out)
    if len(_kept) >= KEPT:
        _kept.clear()
    _kept[key] = prepared
    return out


def bare(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
    """The launches that `run` makes, by Triton's own dispatch: what the host's time of a product is compared with."""
    made = planned(desc)
    return by_triton(made, _first(desc, a, b, out).chosen, a, b, out)


def forget() -> None:
    """Forgets the launches kept, so that schedules are chosen anew."""
    _kept.clear()


def _first(desc: GEMMDesc, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Prepared:
    """Runs the first schedule that these operands allow.  Raises Refused, and Unequal."""
    from triton.runtime.errors import OutOfResources

    made, why = planned(desc), Refused("no schedule runs this descriptor")
    for chosen in candidates(desc, made, a, b, out, most=4):
        try:
            found = prepare(desc, made, chosen, a, b, out)
        except Refused as error:
            why = error
        except OutOfResources as error:
            why = Refused(f"{chosen}: {error}")
        else:
            _compare(made, found, a, b, out)
            return found
    raise why


def _compare(made: Plan, found: Prepared, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Compares the first product of compiled kernels with one under the schedule that runs everywhere.

    Assemblers have been seen to break a kernel whose PTX is right.  Nothing is compared while a CUDA graph is captured,
    or of more than LARGEST elements, or where memory does not hold the output twice.  Raises Unequal.
    """
    import torch

    code = tuple(each.code for each in found.launches)
    everywhere = default(made, *(int(each) for each in out.shape))
    if found.chosen == everywhere or code in _compared or out.numel() > LARGEST:
        return
    if torch.cuda.is_current_stream_capturing():
        return
    try:
        again = torch.empty_like(out)
        prepare(found.desc, made, everywhere, a, b, again)
    except torch.OutOfMemoryError:
        return
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[out.element_size()]
    one, other = out.view(bits), again.view(bits)
    if not torch.equal(one, other):
        raise Unequal(
            f"{found.chosen} and {everywhere} returned different bytes for {found.desc.to_text()}: the compiler or the "
            "assembler of this machine broke one of the kernels; nothing here can say which"
        )
    if bool((one != one[0, 0]).any()):  # a product of one value alone would show little
        _compared.add(code)
