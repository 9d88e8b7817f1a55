"""Samples of PyTorch's operators: a call's arguments as text, tensors with drawn values for it, and its digest.

A lock names the operators that it leaves to PyTorch by such texts.  Two machines whose samples have equal digests
returned equal bytes for the same shapes, types and strides, with the same drawn values.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bitwise_core.errors import BitwiseError
from bitwise_core.json_text import parse_json
from bitwise_torch.interception import ATTENTION_PREFIX, without_interception
from bitwise_torch.locks import LibraryOperator
from bitwise_torch.locks.library_operators import REMEDY
from bitwise_torch.noted_operators import computes

if TYPE_CHECKING:
    import torch

MAXIMUM_ELEMENTS = 1 << 29
"""The maximum number of elements of a sample's tensors, all together."""

_DRAWN_ELEMENTS = 1 << 18
"""The number of drawn values of a tensor; a larger one repeats them."""


class NotSampled(Exception):
    """A call that has no sample; the text is the reason."""


class SampleError(BitwiseError, RuntimeError):
    """A sample that stopped the GPU, so that the program cannot go on."""


_STARTS = {
    "cum_seq_q": "query", "cum_seq_k": "key", "cu_seqlens_q": "query", "cu_seqlens_k": "key",
}  # fmt: skip
"""Arguments that hold the first rows of sequences and the number of all rows, and the tensor of these rows."""

_GROUP_ENDS = "offs"
"""The argument of products that holds the end of each group."""

_GROUP_STEP = 16
"""Elements: the ends of groups are multiples of it, as kernels of eight-bit operands require."""


def call_text(arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Return the text of a call's arguments: tensors by type, shape, strides and kind of device, other values whole.

    Raises NotSampled for an argument of another kind.
    """
    fields = [[_encoded(each) for each in arguments], {name: _encoded(options[name]) for name in sorted(options)}]
    return json.dumps(fields, separators=(",", ":"))


def list_call_text(arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Return the text of a call of an operator that computes each element of its lists on its own.

    Elements that differ in no type, shape, stride and number are listed once.  Raises NotSampled.
    """
    lists = [at for at, each in enumerate(arguments) if isinstance(each, list | tuple)]
    length = min((len(arguments[at]) for at in lists), default=0)
    seen: dict[str, int] = {}
    for position in range(length):
        seen.setdefault(json.dumps([_encoded(arguments[at][position]) for at in lists]), position)
    kept = [
        [each[position] for position in seen.values()] if at in lists else each for at, each in enumerate(arguments)
    ]
    return call_text(tuple(kept), options)


def _encoded(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            raise NotSampled(f"a tensor is of the type {type(value).__name__} and the layout {value.layout}")
        return {"tensor": [_name(value.dtype), list(value.shape), list(value.stride()), value.device.type]}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list | tuple):
        return [_encoded(each) for each in value]
    for kind in ("dtype", "layout", "memory_format"):
        if isinstance(value, getattr(torch, kind)):
            return {kind: _name(value)}
    if isinstance(value, torch.device):
        return {"device": value.type}
    raise NotSampled(f"an argument is a {type(value).__name__}")


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.")


def machine_of(text: str) -> str:
    """Return the machine on which a call runs here: its device and the version of PyTorch.  Raises NotSampled."""
    import torch

    if '"cuda"' not in text:
        return f"{platform.machine()} CPU, PyTorch {torch.__version__}"
    if not torch.cuda.is_available():
        raise NotSampled("its tensors are on a GPU, and PyTorch has none here")
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()} {major}.{minor}, PyTorch {torch.__version__}"


def library_operator(operator: str, text: str, reason: str | None) -> LibraryOperator:
    """Return the entry of a call with the digest of a sample on this machine; `reason` says why there is no sample."""
    machine = f"PyTorch {_torch_version()}"
    if reason is None:
        try:
            machine = machine_of(text)
            return LibraryOperator(
                operator=operator, arguments=text, recorded=machine, digests={machine: sample_digest(operator, text)}
            )
        except NotSampled as error:
            reason = str(error)
    return LibraryOperator(operator=operator, arguments=text, recorded=machine, reason=reason)


@dataclass(frozen=True, slots=True)
class CheckedOperator:
    """An operator with the digest of this machine, where it has a sample.

    `verdict` says whether the sample returned the bytes of the machine that recorded it.  It is "not determined" where
    it did, and the library's own runs may differ nevertheless.
    """

    operator: LibraryOperator
    verdict: Literal["agrees", "differs", "no sample", "not determined"]
    reason: str = ""


def checked_operators(operators: Iterable[LibraryOperator]) -> list[CheckedOperator]:
    """Run a sample of each operator on this machine."""
    return [_checked(each) for each in operators]


def _checked(operator: LibraryOperator) -> CheckedOperator:
    if operator.reason is not None:
        return CheckedOperator(operator, "no sample", operator.reason)
    try:
        machine = machine_of(operator.arguments)
        digest = sample_digest(operator.operator, operator.arguments)
    except NotSampled as error:
        return CheckedOperator(operator, "no sample", str(error))
    if digest == operator.digests[operator.recorded]:
        found = operator.with_digest(machine, digest)
        if operator.undetermined is None:
            return CheckedOperator(found, "agrees")
        return CheckedOperator(
            found, "not determined", f"the library's own runs may differ: {operator.undetermined}; {REMEDY}"
        )
    if machine == operator.recorded:
        return CheckedOperator(operator, "differs", "on the machine that recorded it")
    return CheckedOperator(operator.with_digest(machine, digest), "differs")


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def sample_digest(operator: str, text: str) -> str:
    """Return the digest of an operator's outputs, in hexadecimal digits, for drawn values of a call's tensors.

    Raises NotSampled for a call that draws random numbers, is too large, fails, or returns different bytes twice.
    """
    import torch

    found = _overload(operator)
    if torch.Tag.nondeterministic_seeded in found.tags and not operator.startswith(f"aten::{ATTENTION_PREFIX}"):
        raise NotSampled("it draws random numbers")
    first, second = (_digest_of_run(found, text) for _ in range(2))
    if first != second:
        raise NotSampled("two runs of a sample returned different bytes on one machine")
    return first


def _overload(operator: str) -> Any:
    import torch

    name, _, overload = operator.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, name, None)
    found = None if packet is None else getattr(packet, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise NotSampled(f"PyTorch {torch.__version__} has no operator {operator}")
    if not computes(name, found._schema):  # aten::from_file writes a file
        raise NotSampled("it computes with no tensor")
    return found


def _digest_of_run(overload: Any, text: str) -> str:
    import torch

    arguments, options = _drawn_call(text)
    schema = overload._schema
    named = {**dict(zip([each.name for each in schema.arguments], arguments, strict=False)), **options}
    _divide(named)
    try:
        with torch.no_grad(), without_interception():
            result = overload(*arguments, **options)
        outputs = list(result) if isinstance(result, list | tuple) else [result]
        outputs += [
            named[each.name] for each in schema.arguments
            if each.alias_info is not None and each.alias_info.is_write and each.name in named
        ]  # fmt: skip
        only_floats = schema.name.startswith(f"aten::{ATTENTION_PREFIX}")  # others describe random numbers
        digest = hashlib.sha256()
        for each in outputs:
            for tensor in each if isinstance(each, list | tuple) else [each]:
                if isinstance(tensor, torch.Tensor) and (tensor.is_floating_point() or not only_floats):
                    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
                    digest.update(tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        reason = _first_line(error)
        if isinstance(error, getattr(torch, "AcceleratorError", ())):
            raise SampleError(
                f"a sample of {schema.name} stopped the GPU ({reason}): record with operators=False"
            ) from None
        raise NotSampled(f"it fails for drawn values ({reason})") from None
    return digest.hexdigest()


def _divide(named: dict[str, Any]) -> None:
    """Write positions that divide rows evenly into arguments that hold the positions of sequences or groups."""
    import torch

    for name, rows in _STARTS.items():
        if isinstance(found := named.get(name), torch.Tensor) and found.numel() > 1:
            total, parts = named[rows].shape[0], found.numel() - 1
            found.copy_(torch.arange(parts + 1) * total // parts)
    if isinstance(ends := named.get(_GROUP_ENDS), torch.Tensor):
        left, right = named["self"], named["mat2"]
        axes = {(2, 3): left.shape[0], (3, 2): right.shape[-1], (2, 2): left.shape[1]}
        total, parts = axes.get((left.dim(), right.dim()), 0), ends.numel()
        evenly = torch.arange(1, parts + 1) * total // parts // _GROUP_STEP * _GROUP_STEP
        evenly[-1:] = total
        ends.copy_(evenly)


def _drawn_call(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments and options of a text with drawn tensors.  Raises NotSampled."""
    try:
        content = parse_json(text)
        arguments, options = content
        drawn = _Drawn()
        return [drawn.value(each) for each in arguments], {str(name): drawn.value(options[name]) for name in options}
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise NotSampled(f"its arguments cannot be read ({_first_line(error)})") from None
    except RuntimeError as error:
        raise NotSampled(f"its tensors cannot be drawn ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class _Drawn:
    """Draws the tensors of a call; equal texts give equal values on every machine."""

    def __init__(self) -> None:
        self.tensors = 0
        self.elements = 0

    def value(self, field: Any) -> Any:
        import torch

        if isinstance(field, list):
            return [self.value(each) for each in field]
        if not isinstance(field, dict):
            return field
        ((kind, content),) = field.items()
        if kind == "tensor":
            return self.tensor(*content)
        if kind == "float":
            return float(content)
        if kind == "device":
            return torch.device(content)
        if kind not in ("dtype", "layout", "memory_format"):
            raise ValueError(f"{kind!r} is no kind of argument")
        return getattr(torch, content)

    def tensor(self, dtype: str, shape: list[int], stride: list[int], device: str) -> torch.Tensor:
        """Return a tensor of normally distributed numbers; integers are zeros, followed by ones.

        Such integers are valid as indices, as positions that do not decrease, and as lengths.
        """
        import torch

        if any(each < 0 for each in (*shape, *stride)):
            raise ValueError("a shape or a stride is negative")
        extent = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        self.elements += extent
        if self.elements > MAXIMUM_ELEMENTS:
            raise NotSampled(f"its tensors have more than {MAXIMUM_ELEMENTS} elements")
        kind = getattr(torch, dtype)
        generator = np.random.Generator(np.random.PCG64(self.tensors))
        self.tensors += 1
        drawn = min(extent, _DRAWN_ELEMENTS)
        if kind.is_floating_point:
            values = torch.from_numpy(generator.standard_normal(drawn, np.float32))
        elif kind.is_complex:
            raise NotSampled(f"samples of {dtype} are not drawn")
        else:
            values = torch.from_numpy(np.sort(generator.integers(0, 2, drawn, np.int8)))
        values = values.to(device=device, dtype=kind)
        if drawn < extent:
            values = values.repeat(-(-extent // drawn))
        return values.as_strided(shape, stride)
