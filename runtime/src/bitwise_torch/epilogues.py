"""Epilogues of products: the sequence of PyTorch's operators that they stand for, and calls of fused kernels.

A fused kernel runs only where it returns the bytes of the sequence.  Before the first use of an activation or of a
conversion to 8 bits, all inputs of 16 bits are compared with PyTorch's operator on that device; and the first result of
each call is compared with that of the sequence.  A call that differs, or that no launcher fuses, runs the sequence.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import DescriptorError, Epilogue, GEMMDesc, Step
from bitwise_core.descriptors.epilogue import FUNCTIONS, OPERANDS, SATURATED
from bitwise_core.descriptors.evaluation import evaluate_epilogue
from bitwise_core.descriptors.problem import DTYPES, NAMES
from bitwise_core.plugins import registry
from bitwise_core.plugins.launchers import EpilogueLaunch, EpilogueLauncher
from bitwise_core.plugins.profiles import CacheableProfile, ProductProfile
from bitwise_torch.dispatch_cache import output_allocator

if TYPE_CHECKING:
    import torch

CAPACITY = 4096
"""The maximum number of cached calls; a full cache is emptied."""
LARGEST_COMPARED = 1 << 26
"""Elements of the largest output whose first result is compared with that of the sequence."""


class FusionWarning(UserWarning):
    """A fused kernel returned other bytes than PyTorch's operators; the operators run instead."""


@lru_cache(maxsize=4096)
def parse_epilogue(text: str) -> Epilogue:
    """Return the epilogue of a text; the result is cached.  Raises DescriptorError."""
    return Epilogue.from_text(text)


def eager(epilogue: Epilogue, product: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the result of PyTorch's operators, one for each step (two for `swiglu`), on a product."""
    import torch

    found, rest = product, list(operands)
    for step in epilogue.steps:
        other = rest.pop(0) if step.name in OPERANDS else None
        match step.name:
            case "bias" | "add":
                found = found + other
            case "multiply":
                found = found * other
            case "swiglu":
                found = torch.nn.functional.silu(other) * found
            case "scale":
                found = found * step.value
            case "clamp":
                found = found.clamp(step.low, step.high)
            case "relu":
                found = torch.relu(found)
            case "gelu" | "gelu_tanh":
                found = torch.nn.functional.gelu(found, approximate="tanh" if step.name == "gelu_tanh" else "none")
            case "silu":
                found = torch.nn.functional.silu(found)
            case "convert":
                if step.saturate:
                    found = found.clamp(-SATURATED[step.dtype or ""], SATURATED[step.dtype or ""])
                found = found.to(_type(step.dtype or ""))
    return found


def sequence_problem(epilogue: Epilogue) -> str | None:
    """Return a sentence where PyTorch has no operator of a step, or one with another overflow, else None."""
    for step in epilogue.steps:
        if step.name == "axpby" or step.operand_dtype is not None:
            return f"the step {step.name} of a library's call has no operator of PyTorch: give the steps of operators"
        if step.nan == "zero":
            return "a relu of a library's call that returns 0 for a NaN is no operator of PyTorch: leave nan out"
        if step.dtype == "e4m3" and not step.saturate and _saturates():
            return "this version of PyTorch saturates conversions to float8_e4m3fn: give the step saturate=true"
    return None


@cache
def _saturates() -> bool:
    import torch

    return not bool(torch.tensor(1000.0).to(torch.float8_e4m3fn).isnan())


def gradients(
    epilogue: Epilogue, product: torch.Tensor, operands: Sequence[torch.Tensor], upstream: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the gradients of the product and of each operand, for that of the output.

    They are those of the sequence in PyTorch's autograd.
    """
    import torch

    aten = torch.ops.aten
    inputs, found, rest = [], product, list(operands)
    for step in epilogue.steps:
        count = int(step.name in OPERANDS)
        inputs.append((step, found, rest[:count]))
        found = eager(Epilogue(steps=(step,)), found, rest[:count])
        rest = rest[count:]
    others: list[torch.Tensor] = []
    for step, x, other in reversed(inputs):
        match step.name:
            case "bias":
                others.append(upstream.sum(0))
            case "add":
                others.append(upstream)
            case "multiply":
                others.append(upstream * x)
                upstream = upstream * other[0]
            case "swiglu":
                others.append(aten.silu_backward(upstream * x, other[0]))
                upstream = upstream * torch.nn.functional.silu(other[0])
            case "scale":
                upstream = upstream * step.value
            case "clamp":
                upstream = torch.where((x >= step.low) & (x <= step.high), upstream, 0)
            case "relu":
                upstream = aten.threshold_backward(upstream, torch.relu(x), 0)
            case "gelu" | "gelu_tanh":
                approximate = "tanh" if step.name == "gelu_tanh" else "none"
                upstream = aten.gelu_backward(upstream, x, approximate=approximate)
            case "silu":
                upstream = aten.silu_backward(upstream, x)
            case "convert":
                upstream = upstream.to(x.dtype)
    return upstream, others[::-1]


def operand_problem(
    epilogue: Epilogue, dtype: str, shape: tuple[int, int], device: Any, operands: Sequence[torch.Tensor]
) -> str | None:
    """Return what is wrong with the operands of a product of this type and shape, None where they fit."""
    names = epilogue.operands
    if len(operands) != len(names):
        return f"the epilogue has {len(names)} operands ({', '.join(names) or 'none'}), and {len(operands)} are given"
    for position, (name, kind, each) in enumerate(zip(names, epilogue.operand_types(dtype), operands, strict=True)):
        what = f"operand {position} of the epilogue ({name})"
        if not hasattr(each, "data_ptr"):
            return f"{what} is a {type(each).__name__}; give a PyTorch tensor"
        wanted = shape[2 - OPERANDS[name] :]
        if tuple(each.shape) != wanted or each.device != device or str(each.layout) != "torch.strided":
            return f"{what} has the shape {tuple(each.shape)} on {each.device}; it needs {wanted} on {device}"
        if NAMES.get(str(each.dtype)) != kind:
            return f"{what} is of {each.dtype}; the step is of {DTYPES[kind]}"
        if each.is_neg():
            return f"{what} is a lazily negated view; give its resolve_neg()"
    return None


def evaluated(epilogue: Epilogue, product: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the epilogue of a product on the CPU, evaluated on bit patterns.

    Raises DescriptorError for an activation without a formula.
    """
    import torch

    def patterns(tensor: torch.Tensor) -> Any:
        size = tensor.element_size()
        signed = tensor.detach().contiguous().view(_integer(size)).numpy()
        return signed.view(f"u{size}")

    launchers = [each for each in registry.default().launchers if isinstance(each, EpilogueLauncher)]
    formulas = launchers[0].formulas if launchers else {}
    dtype = NAMES[str(product.dtype)]
    bits = evaluate_epilogue(
        epilogue, dtype, patterns(product), [patterns(each) for each in operands], formulas=formulas,
        hardware=registry.default().hardware,
    )  # fmt: skip
    target = _type(epilogue.output_dtype(dtype))
    size = bits.dtype.itemsize
    return torch.from_numpy(bits.view("u1" if size == 1 else f"i{size}").copy()).view(target)


@dataclass(frozen=True, slots=True)
class CachedCall:
    """A call that ran: `launch` is None for one that runs the sequence.

    `given` are the arguments whose ids are in the key, so that they stay alive.  The other fields are those of
    `dispatch_cache.CachedCall`.
    """

    registry: registry.Registry
    given: tuple[Any, ...]
    profile: ProductProfile | None
    cache_token: Hashable
    launch: EpilogueLaunch | None
    allocate: Callable[[Any], Any]
    alignment: int


_calls: dict[tuple[Any, ...], CachedCall] = {}


def clear() -> None:
    """Empty the cache, so that the next calls ask the launchers again."""
    _calls.clear()


def call_key(
    a: torch.Tensor, b: torch.Tensor, epilogue: Epilogue | str, operands: Sequence[torch.Tensor], desc: Any, like: Any,
    lock: Any, out_dtype: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the key of a call with checked arguments: all that decides its launch."""
    tensors = []
    for each in (a, b, *operands):
        at = each.data_ptr()
        tensors.append((type(each), each.dtype, each.device, each.shape, each.stride(), at & -at & 255, each.is_neg()))
    identities = (each if type(each) is str else id(each) for each in (epilogue, desc))
    return (*tensors, *identities, like, id(lock), out_dtype)


def fuses(
    a: torch.Tensor, b: torch.Tensor, epilogue: Epilogue | str, operands: Sequence[torch.Tensor], *, like: str
) -> bool:
    """Return whether a call that ran with these arguments runs a fused kernel when it is repeated."""
    call = known_call(call_key(a, b, epilogue, operands, None, like, None, None))
    return call is not None and call.launch is not None


def known_call(key: tuple[Any, ...]) -> CachedCall | None:
    """Return the cached call of a key, None where there is none or the plugins or the settings changed."""
    call = _calls.get(key)
    if call is None or call.registry is not registry.default():
        return None
    # Only calls of a CacheableProfile are added; an isinstance check would cost microseconds.
    if call.profile is not None and call.profile.cache_token() != call.cache_token:  # type: ignore[attr-defined]
        return None
    return call


def run(call: CachedCall, a: torch.Tensor, b: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the result of a cached call with a launch, None where its output would have another alignment."""
    assert call.launch is not None
    out = call.allocate(a)
    at = out.data_ptr()
    if at & -at & 255 != call.alignment:
        return None
    call.launch(a.data_ptr(), b.data_ptr(), at, *(each.data_ptr() for each in operands))
    return out


def first_call(
    key: tuple[Any, ...], given: tuple[Any, ...], profile: ProductProfile | None, token: Hashable, desc: GEMMDesc,
    epilogue: Epilogue, a: torch.Tensor, b: torch.Tensor, operands: Sequence[torch.Tensor], product: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Return the result of a call that is not in the cache, for the product itself, and add the call to the cache.

    The fused kernel runs as well, and its bytes are compared with those of the sequence.  Nothing is fused or added
    while a CUDA graph is captured, or where the profile has no token that says that its answers are unchanged.
    """
    import torch

    wanted = eager(epilogue, product, operands)
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    if capturing or not (profile is None or isinstance(profile, CacheableProfile)):
        return wanted
    out = torch.empty_like(wanted, memory_format=torch.contiguous_format)
    launch = _fused(desc, epilogue, a, b, operands, out)
    if launch is not None and wanted.numel() <= LARGEST_COMPARED and not _same_bytes(out, wanted):
        warnings.warn(
            f"a fused kernel returned other bytes than PyTorch's operators for {epilogue.to_text()} of "
            f"{desc.to_text()}, and they run instead: please report this",
            FusionWarning,
            stacklevel=4,
        )
        launch = None
    unchanged = not isinstance(profile, CacheableProfile) or profile.cache_token() == token
    if unchanged and {type(a), type(b)} <= {torch.Tensor, torch.nn.Parameter}:
        if len(_calls) >= CAPACITY:
            _calls.clear()
        at = out.data_ptr()
        allocate = output_allocator(out)
        _calls[key] = CachedCall(registry.default(), given, profile, token, launch, allocate, at & -at & 255)
    return wanted


def _fused(
    desc: GEMMDesc, epilogue: Epilogue, a: torch.Tensor, b: torch.Tensor, operands: Sequence[torch.Tensor],
    out: torch.Tensor,
) -> EpilogueLaunch | None:  # fmt: skip
    """Compute out by a fused kernel and return its launch, None where no launcher has one that is known to be right."""
    for launcher in registry.default().launchers:
        if isinstance(launcher, EpilogueLauncher) and launcher.serves(desc, a.device):
            try:
                if all(_confirmed(launcher, each, kind, a.device) for each, kind in _to_confirm(epilogue, desc)):
                    return launcher.prepare_epilogue(desc, epilogue, a, b, operands, out)
            except DescriptorError:
                continue
    return None


def _to_confirm(epilogue: Epilogue, desc: GEMMDesc) -> list[tuple[Step, str]]:
    """Return the steps whose bits PyTorch's build decides, each with the type of its input."""
    dtype, found = desc.output_dtype, []
    for step, target in zip(epilogue.steps, epilogue.types(dtype), strict=True):
        if step.name in FUNCTIONS or (step.name == "convert" and target in ("e4m3", "e5m2")):
            found.append((step, dtype))
        elif step.name == "swiglu":
            found.append((Step(name="silu"), dtype))
        dtype = target
    return found


def _confirmed(launcher: EpilogueLauncher, step: Step, dtype: str, device: Any) -> bool:
    """Return `_compare` of these arguments, which runs once in a process."""
    key = (id(launcher), step, dtype, device)
    if key not in _compared:
        _compared[key] = (launcher, _compare(launcher, step, dtype, device))
    return _compared[key][1]


_compared: dict[tuple[Any, ...], tuple[EpilogueLauncher, bool]] = {}
"""The results of comparisons; a launcher stays alive, so that its id stays unique."""


def _compare(launcher: EpilogueLauncher, step: Step, dtype: str, device: Any) -> bool:
    """Return whether a step returns the bytes of PyTorch's operator, for all numbers of a type of 16 bits.

    An activation of fp32 is not confirmed: it has too many inputs.  Conversions of fp32 are compared on the numbers
    of bf16 and on their neighbours.  A NaN is compared as the canonical one, which is what products return.
    """
    import torch

    if dtype == "fp32" and step.name in FUNCTIONS:
        return False
    patterns = torch.arange(65536, dtype=torch.int32, device=device)
    if dtype == "fp32":
        patterns = torch.cat([(patterns << 16) + each for each in (-1, 0, 1, 1 << 15)])
    x = (patterns if dtype == "fp32" else patterns.to(torch.int16)).view(_type(dtype)).reshape(-1, 256)
    canonical = torch.full((), float("nan"), dtype=x.dtype, device=device)
    canonical.view(_integer(x.element_size())).fill_(0x7FFFFFFF if dtype == "fp32" else 0x7FFF)
    x = torch.where(x.isnan(), canonical, x)
    epilogue = Epilogue(steps=(step,))
    wanted = eager(epilogue, x, ())
    out = torch.empty_like(wanted)
    launcher.apply_epilogue(epilogue, x, (), out)
    return _same_bytes(out, wanted)


def _same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    import torch

    bits = _integer(left.element_size())
    return bool(torch.equal(left.contiguous().view(bits), right.contiguous().view(bits)))


def _integer(size: int) -> Any:
    import torch

    return {1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]


def _type(name: str) -> Any:
    import torch

    return getattr(torch, DTYPES[name])
