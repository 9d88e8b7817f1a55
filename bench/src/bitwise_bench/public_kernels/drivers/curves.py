"""hilbertsfc: indices along curves that fill a space, to and from coordinates."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bitwise_bench.public_kernels.packages import bare_package
from bitwise_bench.public_kernels.tensors import Tensors

_FOLDER = "hilbertsfc.torch._kernels.triton"


def _curve(t: Tensors, name: str, axes: int, bits: int, dtype: str, **settings: Any) -> None:
    for package in (_FOLDER,):
        bare_package(package)
    where = [t.integers(0, 1 << bits, 700, dtype=dtype) for _ in range(axes)]
    module = import_module(f"{_FOLDER}.{name}{axes}d_encode")
    t.call(getattr(module, f"{name}_encode_{axes}d_triton"), *where, nbits=bits, **settings)
    index = t.integers(0, 1 << (axes * bits), 700, dtype="int64" if axes * bits > 30 else "int32")
    module = import_module(f"{_FOLDER}.{name}{axes}d_decode")
    t.call(getattr(module, f"{name}_decode_{axes}d_triton"), index, nbits=bits, **settings)


def hilbert(t: Tensors) -> None:
    """Call the curves of Hilbert."""
    for axes, bits, dtype in ((2, 10, "int32"), (2, 20, "int64"), (3, 9, "int32"), (3, 16, "int64")):
        _curve(t, "hilbert", axes, bits, dtype)


def morton(t: Tensors) -> None:
    """Call the curves of Morton."""
    for axes, bits, dtype in ((2, 10, "int32"), (2, 20, "int64"), (3, 9, "int32"), (3, 16, "int64")):
        _curve(t, "morton", axes, bits, dtype)


CASES = {each.__name__: each for each in (hilbert, morton)}
