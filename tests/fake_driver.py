"""A stand-in for the bindings of the CUDA driver that reads the parameters of every launch from memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

SUCCESS, INVALID_VALUE, INVALID_CONTEXT, LAUNCH_FAILED = 0, 1, 201, 719
MAP = 128


class Codes:
    """An enumeration whose members are their own names."""

    def __getattr__(self, name: str) -> str:
        return name


class EncodedMap:
    """A tensor map: its bytes are its number in the driver, and the address of its matrix."""

    def __init__(self, number: int, address: int) -> None:
        text = number.to_bytes(8, "little") + address.to_bytes(8, "little")
        self.memory = ctypes.create_string_buffer(text.ljust(MAP, b"m"), MAP)

    def getPtr(self) -> int:  # noqa: N802  (the name in the bindings)
        return ctypes.addressof(self.memory)


class Result(int):
    """A status of the driver."""

    CUDA_ERROR_INVALID_VALUE = INVALID_VALUE
    CUDA_ERROR_INVALID_CONTEXT = INVALID_CONTEXT


class Function(str):
    """A kernel of the driver, its name; as a number, the place of the name in a list."""

    names: ClassVar[list[str]] = []

    def __int__(self) -> int:
        if str(self) not in self.names:
            self.names.append(str(self))
        return self.names.index(str(self))


class Configuration(SimpleNamespace):
    """The configuration of a launch, which has an address."""

    by_address: ClassVar[dict[int, Configuration]] = {}

    def getPtr(self) -> int:  # noqa: N802
        self.by_address[id(self)] = self
        return id(self)


class FakeDriver:
    """The functions that the launches use.

    `sizes` are the sizes of the parameters of each kernel by name.  `launches` has, for each launch, the kernel's name,
    the stream, the configuration and the parameters: numbers, and addresses of tensor maps.  `during` is called in each
    launch before its parameters are read, and `statuses` and `encode_statuses` are the next results of launches and of
    encoded maps.
    """

    CUresult = Result
    CUfunction_attribute = CUdevice_attribute = CUfunc_cache = CUtensorMapDataType = Codes()
    CUtensorMapInterleave = CUtensorMapL2promotion = CUtensorMapFloatOOBfill = CUlaunchAttributeID = Codes()
    CUtensorMapSwizzle = cuuint64_t = cuuint32_t = CUstream = int
    CUlaunchConfig = Configuration

    def __init__(self, sizes: dict[str, tuple[int, ...]]) -> None:
        self.sizes = sizes
        self.launches: list[tuple[str, int, Any, tuple[int, ...]]] = []
        self.encoded: list[tuple[Any, ...]] = []
        self.calls: list[tuple[Any, ...]] = []
        self.attributes = {
            "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 1024, "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES": 0,
        }  # fmt: skip
        self.during: Callable[[], None] = lambda: None
        self.statuses: list[int] = []
        self.encode_statuses: list[int] = []

    def CUlaunchAttribute(self) -> Any:  # noqa: N802
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def cuGetErrorString(self, status: int) -> tuple[int, bytes | None]:  # noqa: N802
        return (SUCCESS, b"unspecified launch failure") if status == LAUNCH_FAILED else (INVALID_VALUE, None)

    def cuDeviceGet(self, device: int) -> tuple[int, str]:  # noqa: N802
        return SUCCESS, f"device {device}"

    def cuDeviceGetAttribute(self, attribute: str, device: str) -> tuple[int, int]:  # noqa: N802
        assert attribute == "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"
        return SUCCESS, 232448

    def cuDevicePrimaryCtxRetain(self, device: str) -> tuple[int, str]:  # noqa: N802
        return SUCCESS, f"context of {device}"

    def cuCtxPushCurrent(self, context: str) -> tuple[int]:  # noqa: N802
        self.calls.append(("push", context))
        return (SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[int, str]:  # noqa: N802
        self.calls.append(("pop",))
        return SUCCESS, ""

    def cuCtxSetCurrent(self, context: str) -> tuple[int]:  # noqa: N802
        self.calls.append(("set", context))
        return (SUCCESS,)

    def cuModuleLoadData(self, code: bytes) -> tuple[int, bytes]:  # noqa: N802
        self.calls.append(("load", code))
        return SUCCESS, code

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[int, str]:  # noqa: N802
        return SUCCESS, Function(name.decode())

    def cuFuncGetAttribute(self, attribute: str, function: str) -> tuple[int, int]:  # noqa: N802
        return SUCCESS, self.attributes[attribute]

    def cuFuncSetAttribute(self, function: str, attribute: str, value: int) -> tuple[int]:  # noqa: N802
        self.calls.append((attribute, value))
        return (SUCCESS,)

    def cuFuncSetCacheConfig(self, function: str, preferred: str) -> tuple[int]:  # noqa: N802
        return (SUCCESS,)

    def cuFuncGetParamInfo(self, function: str, index: int) -> tuple[int, int, int]:  # noqa: N802
        sizes = self.sizes[function]
        return (SUCCESS, 0, sizes[index]) if index < len(sizes) else (INVALID_VALUE, 0, 0)

    def cuTensorMapEncodeTiled(self, *arguments: Any) -> tuple[int, EncodedMap]:  # noqa: N802
        self.encoded.append(arguments)
        status = self.encode_statuses.pop(0) if self.encode_statuses else SUCCESS
        return status, EncodedMap(len(self.encoded), arguments[2])

    def launch_address(self) -> int:
        """Return the address of cuLaunchKernelEx as a function in C."""

        def launch_kernel(configuration: int, function: int | None, pointers: int, extra: int | None) -> int:
            name = Function.names[function or 0]
            return int(self.cuLaunchKernelEx(Configuration.by_address[configuration], name, pointers, extra or 0)[0])

        self.callback = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(launch_kernel)
        found = ctypes.cast(self.callback, ctypes.c_void_p).value
        assert found is not None
        return found

    def cuLaunchKernelEx(self, configuration: Any, function: str, pointers: int, extra: int) -> tuple[int]:  # noqa: N802
        assert extra == 0
        self.during()
        if self.statuses and (status := self.statuses.pop(0)):
            return (status,)
        sizes = self.sizes[function]
        read = []
        for pointer, size in zip((ctypes.c_uint64 * len(sizes)).from_address(pointers), sizes, strict=True):
            data = ctypes.string_at(pointer, size)
            if size == MAP:
                assert pointer % 64 == 0
                data = data[8:16]
            else:
                assert pointer % size == 0
            read.append(int.from_bytes(data, "little", signed=size < 8))
        self.launches.append((function, configuration.hStream, configuration, tuple(read)))
        return (SUCCESS,)
