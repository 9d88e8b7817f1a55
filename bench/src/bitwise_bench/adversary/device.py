"""Execution of kernels of many programs on an NVIDIA GPU, through its driver; needs no torch."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.adversary.kernels import KernelText
from bitwise_bench.adversary.language import Language
from bitwise_bench.adversary.patterns import Array
from bitwise_core.execution.launch import Argument, scalar_bits


class DeviceError(RuntimeError):
    """The driver or the assembler refused a call or is missing; the message names it."""


class Device:
    """The first GPU of this machine.  Raises DeviceError without a driver or a GPU of compute capability 9.0."""

    def __init__(self) -> None:
        try:
            self.driver: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(
                f"the driver of the GPU cannot be loaded ({error}); run on a machine with a GPU"
            ) from None
        from bitwise_nvidia_ptx.assembler import Ptxas
        from bitwise_nvidia_ptx.installed_assemblers import PtxasNotFound

        try:
            self.assembler = Ptxas.locate("sm_90a")
        except PtxasNotFound as error:
            raise DeviceError(str(error)) from None
        self.check("cuInit", 0)
        self.device = ctypes.c_int()
        self.check("cuDeviceGet", ctypes.byref(self.device), 0)
        major = self._attribute(75), self._attribute(76)
        if major != (9, 0):
            raise DeviceError(f"the GPU has compute capability {major[0]}.{major[1]}; a GPU of 9.0 is needed")
        context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.check("cuCtxSetCurrent", context)
        self._images: dict[tuple[str, bool], bytes] = {}

    def check(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.  Raises DeviceError."""
        status = getattr(self.driver, name)(*arguments)
        if status:
            raise DeviceError(f"{name} failed with CUDA error {status}")

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.check("cuDeviceGetAttribute", ctypes.byref(value), number, self.device)
        return value.value

    def environment(self) -> dict[str, str]:
        """Return the names and versions of the GPU, the driver's interface and the assembler."""
        name = ctypes.create_string_buffer(256)
        self.check("cuDeviceGetName", name, 256, self.device)
        version = ctypes.c_int()
        self.check("cuDriverGetVersion", ctypes.byref(version))
        return {
            "gpu": name.value.decode(),
            "cuda driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "ptxas": self.assembler.version,
        }

    def allocated(self, size: int) -> ctypes.c_uint64:
        """Return the address of new memory of a size in bytes."""
        pointer = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def assembled(self, text: str, *, optimised: bool = True) -> bytes:
        """Return the machine code of a text; that of the last text is kept for another launch."""
        if (text, optimised) not in self._images:
            self._images = {(text, optimised): self._assembled(text, () if optimised else ("-O0",))}
        return self._images[text, optimised]

    def _assembled(self, text: str, level: tuple[str, ...]) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
            source.write_text(text)
            command = [
                self.assembler.path,
                "-arch=sm_90a",
                *level,
                *self.assembler.options,
                str(source),
                "-o",
                str(target),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise DeviceError(f"ptxas refuses a kernel of the adversary: {done.stderr.strip()[:500]}\n{text}")
            return target.read_bytes()

    def run(
        self,
        kernel: KernelText,
        language: Language,
        blocks: int,
        contents: Mapping[str, Array],
        *,
        optimised: bool = True,
    ) -> list[Array]:
        """Return the bytes of each program, of shape (samples, bytes), on these contents of the input buffers.

        `optimised`: the assembler optimises the kernel, as it does by default.
        """
        image = self.assembled(kernel.text, optimised=optimised)
        launch = kernel.launch(blocks)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check("cuModuleLoadData", ctypes.byref(module), image)
        held: dict[str, ctypes.c_uint64] = {}
        try:
            entry = (launch.entry or "kernel").encode()
            self.check("cuModuleGetFunction", ctypes.byref(function), module, entry)
            for name in launch.buffers():
                size = kernel.bytes_of(name, blocks)
                pointer = held[name] = self.allocated(size)
                if name in contents:
                    given = np.ascontiguousarray(contents[name])
                    self.check("cuMemcpyHtoD_v2", pointer, given.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(size))
                else:
                    self.check("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0), ctypes.c_size_t(size))
            cells = [_cell(argument, held) for argument in launch.args]
            table = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells])
            self.check("cuLaunchKernel", function, blocks, 1, 1, kernel.threads, 1, 1, 0, None, table, None)
            self.check("cuCtxSynchronize")
            found = {}
            for name in kernel.stores:
                store = np.zeros(kernel.bytes_of(name, blocks), dtype=np.uint8)
                self.check(
                    "cuMemcpyDtoH_v2", store.ctypes.data_as(ctypes.c_void_p), held[name], ctypes.c_size_t(store.size)
                )
                found[name] = store.reshape(blocks, kernel.stores[name], -1)
        finally:
            for pointer in held.values():
                self.driver.cuMemFree_v2(pointer)
            self.driver.cuModuleUnload(module)
        return [
            found[place.buffer][:, place.slot].reshape(blocks * kernel.threads, place.size) for place in kernel.places
        ]


def _cell(argument: Argument, pointers: Mapping[str, Any]) -> Any:
    """Return the memory that holds an argument."""
    if argument.buffer is not None:
        return pointers[argument.buffer]
    bits, width = scalar_bits(argument)
    return ctypes.create_string_buffer(bits.to_bytes(width, "little"), width)
