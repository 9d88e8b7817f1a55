"""Kernels of forms on the GPU of this machine, through the CUDA driver."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bitwise_bench.register_operations.forms import Form
from bitwise_bench.register_operations.kernels import FormsKernel
from bitwise_bench.register_operations.operands import CASES, Words


class DriverError(RuntimeError):
    """A call of the CUDA driver failed; the message names the call and its status."""


@dataclass(frozen=True, slots=True)
class Device:
    """The first GPU, with its primary context current in this thread.  `Device.open()` makes one."""

    driver: ctypes.CDLL

    @classmethod
    def open(cls) -> Device:
        """Load the driver and make the context current.  Raises OSError without a driver, and DriverError."""
        device = cls(ctypes.CDLL("libcuda.so.1"))
        number, context = ctypes.c_int(), ctypes.c_void_p()
        device._call("cuInit", ctypes.c_uint(0))
        device._call("cuDeviceGet", ctypes.byref(number), ctypes.c_int(0))
        device._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
        device._call("cuCtxSetCurrent", context)
        return device

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self.driver, name)(*arguments)
        if status:
            raise DriverError(f"{name} of the CUDA driver failed with the status {status}")

    def results(self, kernel: FormsKernel, cubin: bytes) -> Mapping[Form, tuple[Words, ...]]:
        """Return the results of all forms of a kernel, whose object file is `cubin`.  Raises DriverError."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"forms"))
        given = np.ascontiguousarray(kernel.input_bytes)
        out = np.zeros(kernel.output_size, dtype=np.uint8)
        places = [self._uploaded(each) for each in (out, given)]
        pointers = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in places))
        one, none = ctypes.c_uint(1), ctypes.c_uint(0)
        self._call(
            "cuLaunchKernel", function, one, one, one, ctypes.c_uint(CASES), one, one, none, None, pointers, None
        )
        self._call("cuCtxSynchronize")
        self._call("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), places[0], ctypes.c_size_t(out.nbytes))
        for each in places:
            self._call("cuMemFree_v2", each)
        self._call("cuModuleUnload", module)
        return kernel.results(out)

    def _uploaded(self, content: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> ctypes.c_uint64:
        place = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(content.nbytes))
        source = content.ctypes.data_as(ctypes.c_void_p)
        self._call("cuMemcpyHtoD_v2", place, source, ctypes.c_size_t(content.nbytes))
        return place
