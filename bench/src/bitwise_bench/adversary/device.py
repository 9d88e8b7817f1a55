"""Execution of kernels of many programs on an NVIDIA GPU, through its driver; needs no torch."""

from __future__ import annotations

import ctypes
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.kernels import KernelText
from bitwise_bench.adversary.patterns import Array
from bitwise_core.execution.launch import Argument, Launch, scalar_bits


class DeviceError(RuntimeError):
    """The driver or the assembler refused a call or is missing; the message names it."""


class DeviceStuck(DeviceError):
    """A kernel does not end; nothing else can be run on the device by this process."""


MOST_SECONDS = 10.0
"""How long a kernel may run."""
_DYNAMIC_SHARED_BYTES = 8
"""The driver's number of the attribute of a function that limits its dynamic shared memory."""
_ENOUGH_SHARED = 96 << 10
"""The bytes of dynamic shared memory of a launch that does not say how many it needs."""
_NOT_READY = 600
"""The driver's answer about a stream with work that has not ended."""
_NOISE = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry noise(.param .u64 .ptr .global .align 16 place, .param .u32 cycles)
{ .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<6>;
ld.param.u64 %d0, [place]; ld.param.u32 %r0, [cycles]; cvt.u64.u32 %d1, %r0; mov.u64 %d2, %clock64;
AGAIN: red.global.add.u32 [%d0], 1; mov.u64 %d3, %clock64; sub.u64 %d4, %d3, %d2; setp.lt.u64 %p1, %d4, %d1;
@%p1 bra AGAIN;
ret; }
"""
"""Work that keeps multiprocessors and memory busy for some cycles."""


class Device:
    """The first GPU of this machine.  Raises DeviceError without a driver or a GPU of compute capability 9.0."""

    def __init__(self) -> None:
        try:
            self.driver: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(
                f"the driver of the GPU cannot be loaded ({error}); run on a machine with a GPU"
            ) from None
        from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
        from bitwise_nvidia_ptx.assembler.ptxas import Ptxas

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
        self._noise: tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64] | None = None

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
        with self.loaded(self.assembled(kernel.text, optimised=optimised)) as module:
            return self.run_entry(module, "kernel", kernel, blocks, contents)

    @contextmanager
    def loaded(self, image: bytes) -> Iterator[ctypes.c_void_p]:
        """Load machine code for a time."""
        module = ctypes.c_void_p()
        self.check("cuModuleLoadData", ctypes.byref(module), image)
        try:
            yield module
        finally:
            self.driver.cuModuleUnload(module)

    def run_entry(
        self, module: ctypes.c_void_p, entry: str, kernel: KernelText, blocks: int, contents: Mapping[str, Array]
    ) -> list[Array]:
        """Return what `run` returns, of a kernel that is an entry of loaded machine code."""
        launch, function = kernel.launch(blocks), ctypes.c_void_p()
        held: dict[str, ctypes.c_uint64] = {}
        try:
            self.check("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
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
            self._wait(None)
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
        return [
            found[place.buffer][:, place.slot].reshape(blocks * kernel.threads, place.size) for place in kernel.places
        ]

    def run_launch(
        self, text: str, launch: Launch, contents: Mapping[str, Array], *, optimised: bool = True
    ) -> dict[str, Array] | None:
        """Return the bytes of every buffer after a launch; None for one with clusters or tensor maps."""
        if launch.cluster is not None or launch.block is None or any(each.tensor_map for each in launch.args):
            return None
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check("cuModuleLoadData", ctypes.byref(module), self.assembled(text, optimised=optimised))
        held: dict[str, ctypes.c_uint64] = {}
        try:
            self.check("cuModuleGetFunction", ctypes.byref(function), module, (launch.entry or "kernel").encode())
            for name in launch.buffers():
                given = np.ascontiguousarray(contents[name])
                held[name] = self.allocated(given.size)
                data = given.ctypes.data_as(ctypes.c_void_p)
                self.check("cuMemcpyHtoD_v2", held[name], data, ctypes.c_size_t(given.size))
            shared = launch.shared or (_ENOUGH_SHARED if ".extern .shared" in text else 0)
            self.check("cuFuncSetAttribute", function, _DYNAMIC_SHARED_BYTES, shared)
            # Compilers add pointers to scratch memory, which these kernels do not use.
            rest = [ctypes.c_uint64(0)] * (text.partition("{")[0].count(".param ") - len(launch.args))
            cells = [*(_cell(argument, held) for argument in launch.args), *rest]
            table = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells])
            self.check("cuLaunchKernel", function, *launch.grid, *launch.block, shared, None, table, None)
            self._wait(None)
            after = {name: np.zeros(contents[name].size, dtype=np.uint8) for name in held}
            for name, rows in after.items():
                target = rows.ctypes.data_as(ctypes.c_void_p)
                self.check("cuMemcpyDtoH_v2", target, held[name], ctypes.c_size_t(rows.size))
        finally:
            for pointer in held.values():
                self.driver.cuMemFree_v2(pointer)
            self.driver.cuModuleUnload(module)
        return after

    def _wait(self, stream: ctypes.c_void_p | None) -> None:
        """Wait for a stream.  Raises DeviceError, and DeviceStuck after a time."""
        end = time.monotonic() + MOST_SECONDS
        while (status := self.driver.cuStreamQuery(stream)) == _NOT_READY:
            if time.monotonic() > end:
                raise DeviceStuck(f"a kernel runs for more than {MOST_SECONDS:g} seconds")
        if status:
            raise DeviceError(f"a kernel failed with CUDA error {status}")

    def _disturb(self, dice: random.Random) -> ctypes.c_void_p:
        """Start work on another stream, and return the stream."""
        if self._noise is None:
            stream, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
            self.check("cuStreamCreate", ctypes.byref(stream), 1)
            self.check("cuModuleLoadData", ctypes.byref(module), self._assembled(_NOISE, ()))
            self.check("cuModuleGetFunction", ctypes.byref(function), module, b"noise")
            self._noise = stream, function, self.allocated(64)
        stream, function, place = self._noise
        cells = place, ctypes.c_uint32(dice.randrange(200, 40_000))
        table = (ctypes.c_void_p * 2)(*[ctypes.addressof(cell) for cell in cells])
        blocks, threads = dice.choice((1, 20, 132, 400)), dice.choice((32, 256, 1024))
        self.check("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, stream, table, None)
        return stream

    def run_often(
        self, kernel: KernelText, blocks: int, contents: Mapping[str, Array], times: int, dice: random.Random
    ) -> Iterator[dict[str, Array]]:
        """Yield the bytes of every buffer after each of several runs on these contents; others begin with zeros.

        Other work runs beside most of them, and the dynamic shared memory of a block varies, so that blocks and warps
        run in other orders.
        """
        launch, module, function = kernel.launch(blocks), ctypes.c_void_p(), ctypes.c_void_p()
        stream: ctypes.c_void_p | None = None
        self.check("cuModuleLoadData", ctypes.byref(module), self.assembled(kernel.text))
        held: dict[str, ctypes.c_uint64] = {}
        try:
            self.check("cuModuleGetFunction", ctypes.byref(function), module, (launch.entry or "kernel").encode())
            sizes = {name: kernel.bytes_of(name, blocks) for name in launch.buffers()}
            for name, size in sizes.items():
                held[name] = self.allocated(size)
            cells = [_cell(argument, held) for argument in launch.args]
            table = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(cell) for cell in cells])
            for number in range(times):
                for name, size in sizes.items():
                    if name in contents:
                        given = np.ascontiguousarray(contents[name])
                        data = given.ctypes.data_as(ctypes.c_void_p)
                        self.check("cuMemcpyHtoD_v2", held[name], data, ctypes.c_size_t(size))
                    else:
                        self.check("cuMemsetD8_v2", held[name], ctypes.c_ubyte(0), ctypes.c_size_t(size))
                self.check("cuCtxSynchronize")
                if number % 4:
                    stream = self._disturb(dice)
                shared = dice.choice((0, 0, 8192, 32768))
                self.check("cuLaunchKernel", function, blocks, 1, 1, kernel.threads, 1, 1, shared, None, table, None)
                self._wait(None)
                after = {name: np.zeros(size, dtype=np.uint8) for name, size in sizes.items()}
                for name, rows in after.items():
                    target = rows.ctypes.data_as(ctypes.c_void_p)
                    self.check("cuMemcpyDtoH_v2", target, held[name], ctypes.c_size_t(rows.size))
                yield after
        finally:
            if stream is not None:
                self.driver.cuStreamSynchronize(stream)
            for pointer in held.values():
                self.driver.cuMemFree_v2(pointer)
            self.driver.cuModuleUnload(module)


def _cell(argument: Argument, pointers: Mapping[str, Any]) -> Any:
    """Return the memory that holds an argument."""
    if argument.kind == "buffer":
        return ctypes.c_uint64(0 if argument.buffer is None else pointers[argument.buffer].value + argument.offset)
    bits, width = scalar_bits(argument)
    return ctypes.create_string_buffer(bits.to_bytes(width, "little"), width)
