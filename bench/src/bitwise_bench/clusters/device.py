"""Launches of PTX kernels in clusters through the CUDA driver; needs an sm_90 GPU and the ptxas of Triton."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.clusters.programs import Bytes, Program
from bitwise_core.execution.launch import scalar_bits

SHARED_BYTES = 227 * 1024
SCRATCH_BYTES = 1 << 24
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


def assemble(text: str) -> bytes:
    """Return the machine code of a PTX text for sm_90a, with every rounding stated.  Raises DeviceError."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(text)
        command = [knobs.nvidia.ptxas.path, "-arch=sm_90a", "--fmad=false", str(source), "-o", str(target)]
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


def run(program: Program, parameters: int) -> dict[str, Bytes]:
    """Launch a kernel, and return the bytes of every buffer after it.  `parameters` is the number that its entry takes.

    Parameters without an argument point to scratch memory.  Raises DeviceError.
    """
    driver, launch = _driver(), program.launch
    module, function, static = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    _check(driver.cuModuleLoadData(ctypes.byref(module), assemble(program.text)), "loading")
    assert launch.entry is not None
    assert launch.block is not None
    _check(driver.cuModuleGetFunction(ctypes.byref(function), module, launch.entry.encode()), "finding the entry")
    _check(driver.cuFuncGetAttribute(ctypes.byref(static), _STATIC_SHARED_MEMORY, function), "reading an attribute")
    shared = SHARED_BYTES - static.value
    _check(driver.cuFuncSetAttribute(function, _DYNAMIC_SHARED_MEMORY, shared), "setting shared memory")
    cluster = launch.cluster or (1, 1, 1)
    if int(np.prod(cluster)) > 8:
        _check(driver.cuFuncSetAttribute(function, _LARGE_CLUSTERS, 1), "allowing large clusters")
    memory = {name: _upload(driver, content) for name, content in program.contents.items()}
    cells: list[Any] = []
    for argument in launch.args:
        if argument.kind == "buffer":
            cells.append(memory[argument.buffer] if argument.buffer is not None else ctypes.c_uint64(0))
        else:
            bits, width = scalar_bits(argument)
            cells.append(ctypes.create_string_buffer(bits.to_bytes(width, "little"), width))
    scratch = [_upload(driver, np.zeros(SCRATCH_BYTES, dtype=np.uint8)) for _ in range(parameters - len(cells))]
    cells += scratch
    table = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(each) for each in cells])
    shape = _Attribute(_CLUSTER_SHAPE, b"", (ctypes.c_uint * 16)(*cluster))
    configuration = _Configuration(
        (ctypes.c_uint * 3)(*launch.grid),
        (ctypes.c_uint * 3)(*launch.block),
        shared,
        None,
        ctypes.pointer(shape),
        0 if launch.cluster is None else 1,
    )
    _check(driver.cuLaunchKernelEx(ctypes.byref(configuration), function, table, None), "launching")
    _check(driver.cuCtxSynchronize(), "running")
    found = {name: _download(driver, memory[name], content.size) for name, content in program.contents.items()}
    for each in (*memory.values(), *scratch):
        _check(driver.cuMemFree_v2(each), "freeing memory")
    _check(driver.cuModuleUnload(module), "unloading")
    return found


def _upload(driver: Any, content: Bytes) -> ctypes.c_uint64:
    place = ctypes.c_uint64()
    _check(driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(content.size)), "allocating memory")
    data = np.ascontiguousarray(content)
    _check(driver.cuMemcpyHtoD_v2(place, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.size)), "copying")
    return place


def _download(driver: Any, place: ctypes.c_uint64, size: int) -> Bytes:
    found = np.zeros(size, dtype=np.uint8)
    _check(driver.cuMemcpyDtoH_v2(ctypes.c_void_p(found.ctypes.data), place, ctypes.c_size_t(size)), "copying")
    return found
