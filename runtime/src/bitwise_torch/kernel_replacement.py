"""Replacement of the kernels of PyTorch's operators, and objects of a thread that autograd copies to its threads."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from bitwise_core.errors import BitwiseError
from bitwise_torch import calls_in_c

_KEYS = ("CPU", "CUDA")
"""The dispatch keys of the replaced kernels.  PyTorch for ROCm has the key CUDA, too."""


class InterceptionError(BitwiseError, RuntimeError):
    """An operator that ran where no scope can decide about it, or a PyTorch that cannot be intercepted."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of PyTorch: an overload of an operator for one dispatch key.

    `full_name` is the name with namespace and overload.
    """

    name: str
    overload: str
    full_name: str
    kernel: Any
    keys: Any

    def run(self, *arguments: Any, **options: Any) -> Any:
        """Run the kernel."""
        return self.kernel.call_boxed(self.keys, *arguments, **options)


KernelName = tuple[str, str]
"""A dispatch key, and the name of an operator with its overload."""


def kernel_names(wanted: Callable[[str, Any], bool]) -> tuple[KernelName, ...]:
    """Return the kernels of the operators that are wanted by their name, without overload, and their schema.

    Operators that consist of others have no kernel, but where a device has one of its own.
    """
    import torch

    found = []
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, name = schema.name.partition("::")
        if namespace != "aten" or not wanted(name, schema):
            continue
        full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        try:
            composite = torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd")
            has_kernel = (
                torch._C._dispatch_has_kernel_for_dispatch_key
                if composite
                else torch._C._dispatch_has_computed_kernel_for_dispatch_key
            )
            keys = [key for key in _KEYS if has_kernel(full, key)]
        except RuntimeError:  # an operator of TorchScript alone
            continue
        found += [(key, full.removeprefix("aten::")) for key in keys]
    return tuple(sorted(set(found)))


def replaced_kernels(names: Iterable[KernelName], replacement: Callable[[Kernel], Callable[..., Any]]) -> Any:
    """Replace kernels, and return the library that holds the replacements; `_destroy()` removes them.

    Raises InterceptionError where PyTorch is older than 2.10.
    """
    import torch

    if not hasattr(torch.library, "get_kernel"):
        raise InterceptionError(
            f"PyTorch {torch.__version__} cannot run a kernel that was replaced: install PyTorch 2.10 or later"
        )
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*other operators may also be overridden", UserWarning)
        for key, each in names:
            name, _, overload = each.partition(".")
            device = getattr(torch._C.DispatchKey, key)
            function = torch.library.get_kernel(f"aten::{each}", device)  # a key as text costs a dictionary of all keys
            kernel = Kernel(name, overload or "default", f"aten::{each}", function, torch._C.DispatchKeySet(device))
            library.impl(each, replacement(kernel), key)
    return library


_Value = TypeVar("_Value")


class ThreadObject(Generic[_Value]):
    """An object of each thread; autograd's threads have that of the thread whose backward pass they run."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._functions: tuple[str, Callable[[str], bool], Callable[[str], Any]] | None = None
        self._set: Callable[[str, Any], None] | None = None

    def get(self) -> _Value | None:
        """Return this thread's object, None where there is none."""
        if self._functions is None:
            self._functions = self.functions()
        key, is_there, read = self._functions
        found: _Value | None = read(key) if is_there(key) else None
        return found

    def functions(self) -> tuple[str, Callable[[str], bool], Callable[[str], Any]]:
        """Return the key, and the functions of a key that `get` calls: whether there is an object, and the object."""
        import torch

        return self.key, torch._C._is_key_in_tls, torch._C._get_obj_in_tls

    @contextmanager
    def held(self, value: _Value | None) -> Iterator[None]:
        """Set this thread's object for a block."""
        before = self.get()
        self.set(value)
        try:
            yield
        finally:
            self.set(before)

    def set(self, value: _Value | None) -> None:
        """Set this thread's object."""
        if self._set is None:
            self._set = _setter()
        self._set(self.key, value)


@cache
def _setter() -> Callable[[str, Any], None]:
    """Return the function that sets the object of a key in this thread."""
    import torch

    stash: Callable[[str, Any], None] = torch._C._stash_obj_in_tls
    if not _releases_more_than_it_holds():
        return stash
    module = calls_in_c.module()
    hold = _hold if module is None else module.hold

    def set_object(key: str, value: Any) -> None:
        hold(value)
        stash(key, value)

    return set_object


def _hold(value: Any) -> None:
    """Count a reference that PyTorch will release."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


@cache
def _releases_more_than_it_holds() -> bool:
    """Return whether this PyTorch releases an object of a thread without having counted its reference, as 2.11 does."""
    import torch

    probe = object()
    before = sys.getrefcount(probe)
    torch._C._stash_obj_in_tls("bitwise_torch.probe", probe)
    if sys.getrefcount(probe) > before:
        return False
    _hold(probe)
    return True
