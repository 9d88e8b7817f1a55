"""Launches of PTX kernels through the CUDA driver; needs an sm_90 GPU and an assembler, and no torch."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.execution.launch import Argument, Launch, scalar_bits
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas

Bytes = npt.NDArray[np.uint8]

SHARED_BYTES = 227 * 1024
SCRATCH_BYTES = 1 << 24
BEYOND_BYTES = 1 << 16
"""Memory behind each buffer."""
_DYNAMIC_SHARED_MEMORY, _LARGE_CLUSTERS, _STATIC_SHARED_MEMORY = 8, 14, 1
_CLUSTER_SHAPE = 4


class DeviceError(RuntimeError):
    """The driver or the assembler reported an error."""


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class _Configuration(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def assemble(text: str, *, fp_fusion: bool) -> bytes:
    """Return the machine code of a PTX text for sm_90a.  Raises DeviceError and `installed.PtxasNotFound`.

    `fp_fusion`: the assembler may fuse a product and a sum whose roundings are not stated, as Triton lets it do.
    """
    assembler = Ptxas.locate("sm_90a", fp_fusion=fp_fusion, text=text)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(text)
        command = [assembler.path, f"--gpu-name={assembler.gpu}", *assembler.options, str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DeviceError(f"ptxas rejects the kernel: {done.stderr.strip()[:300]}")
        return target.read_bytes()


def _check(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"{what} failed with CUDA error {status}")


@cache
def _driver() -> Any:
    """Return the driver with a current context on the first GPU.  Raises DeviceError."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise DeviceError("this machine has no CUDA driver; run the command on one with an sm_90 GPU") from None
    _check(driver.cuInit(0), "starting the driver")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(driver.cuDeviceGet(ctypes.byref(device), 0), "finding a GPU")
    _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "making a context")
    _check(driver.cuCtxSetCurrent(context), "making a context")
    return driver


class LoadedKernel:
    """A kernel on the GPU, for one launch.

    `image` is its machine code, and `parameters` the number of parameters of its entry: those without an argument point
    to scratch memory of zeros.  Raises DeviceError, also for a tensor map among the arguments.
    """

    def __init__(self, image: bytes, launch: Launch, parameters: int) -> None:
        driver = _driver()
        if any(argument.tensor_map is not None for argument in launch.args):
            raise DeviceError("the launch has a tensor map, which is not made here")
        assert launch.entry is not None
        assert launch.block is not None
        self._launch, self._scratches = launch, parameters - len(launch.args)
        self._module, self._function, static = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        _check(driver.cuModuleLoadData(ctypes.byref(self._module), image), "loading")
        _check(
            driver.cuModuleGetFunction(ctypes.byref(self._function), self._module, launch.entry.encode()),
            "finding the entry",
        )
        _check(
            driver.cuFuncGetAttribute(ctypes.byref(static), _STATIC_SHARED_MEMORY, self._function),
            "reading an attribute",
        )
        self._shared = SHARED_BYTES - static.value
        _check(driver.cuFuncSetAttribute(self._function, _DYNAMIC_SHARED_MEMORY, self._shared), "setting shared memory")
        if int(np.prod(launch.cluster or (1, 1, 1))) > 8:
            _check(driver.cuFuncSetAttribute(self._function, _LARGE_CLUSTERS, 1), "allowing large clusters")

    def run(self, contents: Mapping[str, Bytes], beyond: int = 0) -> dict[str, Bytes]:
        """Launch the kernel on these contents of its buffers, and return the contents after it.

        Memory behind each buffer has the byte `beyond` in every place.  Raises DeviceError.
        """
        driver, launch = _driver(), self._launch
        memory = {name: _upload(driver, contents[name], beyond) for name in launch.buffers()}
        addresses = {name: place.value for name, place in memory.items()}
        for name, given in launch.given().items():
            if given.pointers:
                _copy(driver, memory[name], given.placed(addresses))
        scratch = [_zeros(driver, SCRATCH_BYTES) for _ in range(self._scratches)]
        cells = [*(_cell(argument, memory) for argument in launch.args), *scratch]
        table = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(each) for each in cells])
        shape = _Attribute(_CLUSTER_SHAPE, b"", (ctypes.c_uint * 16)(*(launch.cluster or (1, 1, 1))))
        configuration = _Configuration(
            (ctypes.c_uint * 3)(*launch.grid),
            (ctypes.c_uint * 3)(*(launch.block or ())),
            self._shared,
            None,
            ctypes.pointer(shape),
            0 if launch.cluster is None else 1,
        )
        _check(driver.cuLaunchKernelEx(ctypes.byref(configuration), self._function, table, None), "launching")
        _check(driver.cuCtxSynchronize(), "running")
        found = {name: _download(driver, place, contents[name].size) for name, place in memory.items()}
        for each in (*memory.values(), *scratch):
            _check(driver.cuMemFree_v2(each), "freeing memory")
        return found

    def unload(self) -> None:
        """Free the machine code.  Raises DeviceError."""
        _check(_driver().cuModuleUnload(self._module), "unloading")


def _cell(argument: Argument, memory: Mapping[str, ctypes.c_uint64]) -> Any:
    """Return the memory that holds an argument."""
    if argument.kind == "buffer":
        return ctypes.c_uint64(0 if argument.buffer is None else memory[argument.buffer].value + argument.offset)
    bits, width = scalar_bits(argument)
    return ctypes.create_string_buffer(bits.to_bytes(width, "little"), width)


def _zeros(driver: Any, size: int) -> ctypes.c_uint64:
    place = ctypes.c_uint64()
    _check(driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(size)), "allocating memory")
    _check(driver.cuMemsetD8_v2(place, ctypes.c_ubyte(0), ctypes.c_size_t(size)), "clearing memory")
    return place


def _upload(driver: Any, content: Bytes, beyond: int) -> ctypes.c_uint64:
    place, size = ctypes.c_uint64(), ctypes.c_size_t(content.size + BEYOND_BYTES)
    _check(driver.cuMemAlloc_v2(ctypes.byref(place), size), "allocating memory")
    _check(driver.cuMemsetD8_v2(place, ctypes.c_ubyte(beyond), size), "filling memory")
    _copy(driver, place, content)
    return place


def _copy(driver: Any, place: ctypes.c_uint64, content: Bytes) -> None:
    data = np.ascontiguousarray(content)
    _check(driver.cuMemcpyHtoD_v2(place, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.size)), "copying")


def _download(driver: Any, place: ctypes.c_uint64, size: int) -> Bytes:
    found = np.zeros(size, dtype=np.uint8)
    _check(driver.cuMemcpyDtoH_v2(ctypes.c_void_p(found.ctypes.data), place, ctypes.c_size_t(size)), "copying")
    return found
