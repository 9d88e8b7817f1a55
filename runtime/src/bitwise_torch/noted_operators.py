"""Note the operators that compute with floats, other than those that scopes intercept.

Their kernels are replaced while they are noted, so that the operators of a program, and the kernels that they choose,
are those of the program as it runs otherwise.  Element-wise operators of two tensors, such as additions and divisions,
are not noted: they round correctly, and PyTorch gives Python numbers to a replaced kernel in place of their tensors.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from bitwise_torch.interception import is_intercepted
from bitwise_torch.kernel_replacement import (
    InterceptionError,
    Kernel,
    KernelName,
    ThreadObject,
    kernel_names,
    replaced_kernels,
)

Note = Callable[[str, tuple[Any, ...], dict[str, Any]], None]
"""A function of an operator's name with namespace and overload, its arguments, and its keyword arguments."""

_UNNOTED = re.compile(
    r"^(_?empty|new_|_?copy|_to_copy|_?unsafe_view|clone|detach|_?reshape|zeros|ones|full|fill_|zero_|contiguous|lift|"
    r"set_|_?resize|is_|_?has_|record_stream|_?local_scalar|_?foreach_copy|_?assert|_version|_?pin_memory|sym_|"
    r"_?nested|_?coalesce|_?sparse|_?fw_primal|_?make_dual|_?conj|_?neg_view|resolve|_?efficientzerotensor|sparse_)"
)
"""The beginnings of the names of operators that compute nothing, or nothing for dense tensors."""

_NUMBERS = frozenset(
    {"other", "exponent", "value", "weight", "end", "min", "max", "n", "x", "q", "values", "condition"}
)
"""The names of tensor arguments of element-wise operators for which a program may give a number."""

_ELEMENTWISE = frozenset({"_add_relu", "rsub", "where", "fill", "masked_fill", "index_fill", "floor_divide"})
"""Element-wise operators that some releases of PyTorch do not tag as such."""

_note: ThreadObject[Note] = ThreadObject("bitwise_torch.note")
_lock = threading.Lock()
_active: list[Any] = []
"""The library of replaced kernels, once for each block in which operators are noted."""
_covering: list[Note] = []
"""The notes of the operators of threads that have none of their own."""


@contextmanager
def noted_operators(note: Note, cover: bool = False) -> Iterator[None]:
    """Call `note` for each operator of this thread, and of its backward passes, that has a tensor of floats.

    With `cover`, the operators of threads without a note of their own are noted as well.  Operators that run inside of
    others are not noted.  Raises InterceptionError where PyTorch is older than 2.10.
    """
    with _lock:
        _active.append(_active[0] if _active else replaced_kernels(_noted_kernels(), _replacement))
        if cover:
            _covering.append(note)
    try:
        with _note.held(note):
            yield
    finally:
        with _lock:
            library = _active.pop()
            if cover:
                _covering.remove(note)
            if not _active:
                library._destroy()


def _inside(operator: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Note nothing: an operator runs inside of another one."""


@cache
def _noted_kernels() -> tuple[KernelName, ...]:
    return kernel_names(_is_noted)


def _is_noted(name: str, schema: Any) -> bool:
    """Return whether calls of an operator are noted: it returns new tensors, or writes to its arguments."""
    views = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
    if views or is_intercepted(name) or not computes(name, schema):
        return False
    return _NUMBERS.isdisjoint(_tensors(schema)) or not _takes_numbers(name, schema.overload_name)


def computes(name: str, schema: Any) -> bool:
    """Return whether an operator, whose name is without namespace and overload, computes with tensors that it gets."""
    return bool(_tensors(schema)) and (is_intercepted(name) or not _UNNOTED.match(name))


def _tensors(schema: Any) -> list[str]:
    """Return the names of the arguments that are tensors or lists of them."""
    return [each.name for each in schema.arguments if "Tensor" in str(each.type)]


def _takes_numbers(name: str, overload: str) -> bool:
    """Return whether an operator may have a number for a tensor argument that has one of the names above."""
    import torch

    if name in _ELEMENTWISE or torch._C._should_allow_numbers_as_tensors(name):
        return True

    packet = getattr(torch.ops.aten, name, None)
    found = None if packet is None else getattr(packet, overload or "default", None)
    return found is None or torch.Tag.pointwise in found.tags or name.endswith("_") or name.startswith("_foreach_")


def _replacement(kernel: Kernel) -> Callable[..., Any]:
    """Return a function that notes the calls of a kernel in threads that note operators."""

    def replacement(*arguments: Any, **options: Any) -> Any:
        own = _note.get()
        notes = tuple(_covering) if own is None else (own,)
        if not notes or own is _inside:
            return kernel.run(*arguments, **options)
        with _note.held(_inside):
            result = _result(kernel, arguments, options)
            if _has_floats(arguments) or _has_floats(tuple(options.values())):
                for note in notes:
                    note(kernel.full_name, arguments, options)
        return result

    return replacement


def _result(kernel: Kernel, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    try:
        return kernel.run(*arguments, **options)
    except RuntimeError as error:
        if "Expected a value of type 'Tensor' for argument" not in str(error):
            raise
        raise InterceptionError(
            f"{kernel.full_name} was called with a number in place of a tensor, and a replaced kernel cannot run it: "
            "record with operators=False"
        ) from None


def _has_floats(values: tuple[Any, ...]) -> bool:
    import torch

    return any(
        isinstance(each, torch.Tensor) and each.is_floating_point()
        for value in values for each in (value if isinstance(value, list | tuple) else (value,))
    )  # fmt: skip
