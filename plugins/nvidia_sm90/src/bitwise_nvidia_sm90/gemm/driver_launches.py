"""Launches of kernels through the CUDA driver.

A kernel image is loaded once on each device, and the parameters of a launch are packed once.  A call writes the
addresses of its matrices, and the tensor maps of those addresses, into the packed parameters.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias
from weakref import WeakSet

from bitwise_core.caching.c_modules import c_module

MAP_BYTES = 128
"""The size of a CUtensorMap."""
MAP_CAPACITY = 65536
"""The number of encoded tensor maps in a process; all are dropped when there are more."""
STREAM_CAPACITY = 256
"""The number of streams whose configurations a launch keeps; all are dropped when there are more."""
_MAP_ALIGNMENT = 64
_DEFAULT_SHARED_BYTES = 48 << 10
_PORTABLE_CLUSTER = 8
_NUMBER_FORMATS = {1: "=b", 2: "=h", 4: "=i", 8: "=q"}
_MAP_TYPES = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32"}
"""The type of a tensor map by the type of its matrix; all other types are copied as bytes."""


class DriverError(RuntimeError):
    """A call of the CUDA driver failed, or a kernel does not take its parameters; the message names the call."""


class TooFewResources(DriverError):
    """A kernel needs more threads or shared memory than the device has."""


@dataclass(frozen=True, slots=True)
class Image:
    """The object file of a kernel and the configuration of its launches, except the grid.

    `shared_bytes` is the dynamic shared memory of a block.  With `dependent`, the kernel may start before the previous
    one of its stream ends (programmatic dependent launch).
    """

    code: bytes
    name: str
    threads: int
    shared_bytes: int
    cluster: tuple[int, int, int] = (1, 1, 1)
    dependent: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """An integer parameter; its size is that of the kernel's parameter."""

    value: int


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a matrix, by its index in the addresses of a call."""

    matrix: int


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map by value over a matrix, given by its index in the addresses of a call.

    `dtype` is PyTorch's name of the element type without `torch.`, `size` the bytes of an element.  `shape`, `strides`
    and `box` are in elements, outermost axis first; the last stride is 1.  `swizzle` is the driver's code.
    """

    matrix: int
    dtype: str
    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


Parameter: TypeAlias = Number | Address | TensorMap


@dataclass(frozen=True, slots=True)
class Kernel:
    """A launch of an image: its grid and its parameters in order."""

    image: Image
    grid: tuple[int, int, int]
    parameters: tuple[Parameter, ...]


LaunchFunction: TypeAlias = Callable[..., None]
"""Launches kernels on a stream, given by its handle, for matrices at the addresses that follow it."""


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel on one device: the driver's function and module, and the size of each parameter in bytes."""

    function: Any
    module: Any
    sizes: tuple[int, ...]


@cache
def driver() -> Any:
    """Return the bindings of the CUDA driver.  Raises DriverError where they are not installed."""
    try:
        from cuda.bindings import driver as bindings
    except ImportError as error:
        raise DriverError(
            f"kernels are launched through the CUDA driver's Python bindings, which cannot be imported ({error}): "
            "run pip install cuda-bindings"
        ) from None
    return bindings


def checked(name: str, *arguments: Any) -> Any:
    """Call a function of the driver and return its result.  Raises DriverError."""
    status, *found = getattr(driver(), name)(*arguments)
    if status:
        raise _failure(name, status)
    return found[0] if found else None


def _failure(name: str, status: Any) -> DriverError:
    text = driver().cuGetErrorString(status)[1]
    words = text.decode("ascii", "replace") if text else "an unknown error"
    return DriverError(f"{name} of the CUDA driver failed with the status {int(status)}: {words}")


_kernels: dict[tuple[Image, int], LoadedKernel] = {}
_loading = RLock()  # a signal handler may load a kernel too


def load(image: Image, device: int) -> LoadedKernel:
    """Load an image on a device; a loaded image is returned again.  Raises TooFewResources and DriverError."""
    with _loading:
        found = _kernels.get((image, device))
        if found is None:
            handle = checked("cuDeviceGet", device)
            checked("cuCtxPushCurrent", checked("cuDevicePrimaryCtxRetain", handle))
            try:
                found = _kernels[image, device] = _load(image, handle)
            finally:
                checked("cuCtxPopCurrent")
    return found


def active_clusters(image: Image, device: int) -> int:
    """Return how many clusters of a kernel fit on a device at once.  Raises TooFewResources and DriverError."""
    loaded = load(image, device)
    configuration = _configuration(image, image.cluster, 0)
    return int(checked("cuOccupancyMaxActiveClusters", loaded.function, configuration))


def _load(image: Image, device: Any) -> LoadedKernel:
    """Load an image in the current context, which is that of the device."""
    functions = driver().CUfunction_attribute
    attribute = driver().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    available = checked("cuDeviceGetAttribute", attribute, device)
    module = checked("cuModuleLoadData", image.code)
    function = checked("cuModuleGetFunction", module, image.name.encode())
    threads = checked("cuFuncGetAttribute", functions.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function)
    if image.threads > threads:
        raise TooFewResources(f"the kernel {image.name} runs {image.threads} threads; its registers allow {threads}")
    static = checked("cuFuncGetAttribute", functions.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
    shared = static + image.shared_bytes
    if shared > available:
        raise TooFewResources(f"the kernel {image.name} needs {shared} bytes of shared memory; a block has {available}")
    if shared > _DEFAULT_SHARED_BYTES:
        attribute = functions.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked("cuFuncSetAttribute", function, attribute, image.shared_bytes)
        checked("cuFuncSetCacheConfig", function, driver().CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED)
    if math.prod(image.cluster) > _PORTABLE_CLUSTER:
        attribute = functions.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        checked("cuFuncSetAttribute", function, attribute, 1)
    return LoadedKernel(function, module, _parameter_sizes(function))


def _parameter_sizes(function: Any) -> tuple[int, ...]:
    """Return the size of each parameter of a kernel in bytes.  Raises DriverError."""
    sizes: list[int] = []
    while True:
        status, _, *size = driver().cuFuncGetParamInfo(function, len(sizes))
        if status == driver().CUresult.CUDA_ERROR_INVALID_VALUE:  # the kernel has no parameter of this index
            return tuple(sizes)
        if status:
            raise _failure("cuFuncGetParamInfo", status)
        sizes.append(int(size[0]))


def bind_context(device: int) -> None:
    """Make the primary context of a device current in this thread.  Raises DriverError.

    A new thread has no context until a call of the CUDA runtime needs one.
    """
    checked("cuCtxSetCurrent", checked("cuDevicePrimaryCtxRetain", checked("cuDeviceGet", device)))


class EncodedMaps:
    """The encoded tensor maps of one TensorMap for a device, by address."""

    def __init__(self, described: TensorMap, device: int) -> None:
        bindings, rank = driver(), len(described.shape)
        kind = _MAP_TYPES.get(described.dtype, "UINT8")
        if kind == "UINT8" and described.size != 1:
            raise DriverError(f"a tensor map of {described.dtype}: only bytes, 16-bit and 32-bit floats are supported")
        self._before = (getattr(bindings.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"), rank)
        self._after = (
            [bindings.cuuint64_t(each) for each in reversed(described.shape)],
            [bindings.cuuint64_t(each * described.size) for each in reversed(described.strides[:-1])],
            [bindings.cuuint32_t(each) for each in reversed(described.box)],
            [bindings.cuuint32_t(1)] * rank,
            bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            bindings.CUtensorMapSwizzle(described.swizzle),
            bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            bindings.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        self._device = device
        self.by_address: dict[int, bytes] = {}
        with _encoding:
            _tables.add(self)

    def encode(self, address: int) -> bytes:
        """Return the map of the matrix at an address, and keep it.  Raises DriverError."""
        arguments = (*self._before, address, *self._after)
        status, *_ = made = driver().cuTensorMapEncodeTiled(*arguments)
        if status == driver().CUresult.CUDA_ERROR_INVALID_CONTEXT:
            bind_context(self._device)
            status, *_ = made = driver().cuTensorMapEncodeTiled(*arguments)
        if status:
            raise _failure("cuTensorMapEncodeTiled", status)
        found = made[1]
        encoded = ctypes.string_at(int(found.getPtr()), MAP_BYTES)
        _keep(self.by_address, address, encoded)
        return encoded


_tables: WeakSet[EncodedMaps] = WeakSet()
_encoding = RLock()
_kept_maps = 0


def _keep(table: dict[int, bytes], address: int, encoded: bytes) -> None:
    """Add a map to a table; clear all tables of the process where they are full."""
    global _kept_maps
    with _encoding:
        if _kept_maps >= MAP_CAPACITY:
            for each in _tables:
                each.by_address.clear()
            _kept_maps = 0
        table[address] = encoded
        _kept_maps += 1


def launch_function(kernels: Sequence[Kernel], matrices: int, device: int) -> LaunchFunction:
    """Return a function that launches kernels in order on a device, which must be current in the calling thread.

    `matrices` is the number of addresses of a call.  The images are loaded.  Several threads may call the function at
    once.  Raises TooFewResources, and DriverError for parameters that are not those of the kernel; the function raises
    DriverError.
    """
    loaded = [load(each.image, device) for each in kernels]
    layout = _Layout(kernels, [each.sizes for each in loaded], matrices)
    maps = [(each.matrix, EncodedMaps(each, device)) for each in layout.maps]
    return _launch_in_c(kernels, loaded, layout, maps, device) or _launch_in_python(
        kernels, loaded, layout, maps, device
    )


_Maps: TypeAlias = Sequence[tuple[int, EncodedMaps]]
"""The matrix of each map of a launch, and its encoded maps."""


def _launch_in_python(
    kernels: Sequence[Kernel], loaded: Sequence[LoadedKernel], layout: _Layout, tables: _Maps, device: int
) -> LaunchFunction:
    launch_kernel = driver().cuLaunchKernelEx
    no_context = driver().CUresult.CUDA_ERROR_INVALID_CONTEXT
    configurations: dict[int, list[tuple[Any, Any]]] = {}  # by stream
    free: list[tuple[bytearray, int, tuple[int, ...]]] = []  # packed parameters that no call uses
    maps = [(matrix, table.by_address, table.encode) for matrix, table in tables]
    pack = layout.changing.pack_into

    def launch(stream: int, *addresses: int) -> None:
        configured = configurations.get(stream)
        if configured is None:
            if len(configurations) >= STREAM_CAPACITY:
                configurations.clear()
            configured = configurations[stream] = [
                (_configuration(each.image, each.grid, stream), kernel.function)
                for each, kernel in zip(kernels, loaded, strict=True)
            ]
        encoded = [known.get(addresses[matrix]) or encode(addresses[matrix]) for matrix, known, encode in maps]
        try:
            packed = free.pop()
        except IndexError:
            packed = layout.packed()
        memory, start, pointers = packed
        pack(memory, start, *encoded, *addresses)
        for (configuration, function), parameters in zip(configured, pointers):  # noqa: B905  (strict costs time)
            (status,) = launch_kernel(configuration, function, parameters, 0)
            if status:
                if status == no_context:
                    bind_context(device)
                    (status,) = launch_kernel(configuration, function, parameters, 0)
                if status:
                    raise _failure("cuLaunchKernelEx", status)
        free.append(packed)

    return launch


@cache
def launch_address() -> int | None:
    """Return the address of the driver's function cuLaunchKernelEx, None where there is no driver."""
    try:
        return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx, ctypes.c_void_p).value
    except (AttributeError, OSError):
        return None


@cache
def _module_in_c() -> Any:
    return c_module(Path(__file__).with_name("prepared_launch.c"))


def _launch_in_c(
    kernels: Sequence[Kernel], loaded: Sequence[LoadedKernel], layout: _Layout, tables: _Maps, device: int
) -> LaunchFunction | None:
    """Return the function that `_launch_in_python` returns, in C, at a fraction of its cost; None where it cannot be
    compiled.
    """
    address = launch_address()
    module = None if address is None else _module_in_c()
    if module is None:
        return None
    configurations: dict[int, tuple[Any, ...]] = {}  # by stream

    def configure(stream: int) -> tuple[Any, ...]:
        found = configurations.get(stream)
        if found is None:
            if len(configurations) >= STREAM_CAPACITY:
                configurations.clear()
            made = [_configuration(each.image, each.grid, stream) for each in kernels]
            found = configurations[stream] = (*(int(each.getPtr()) for each in made), made)
        return found

    def failed(code: int, failures: int) -> None:
        status = driver().CUresult(code)
        if status != driver().CUresult.CUDA_ERROR_INVALID_CONTEXT or failures:
            raise _failure("cuLaunchKernelEx", status)
        bind_context(device)

    functions = tuple(
        (int(each.function), tuple(offsets)) for each, offsets in zip(loaded, layout.offsets, strict=True)
    )
    maps = tuple((matrix, table.by_address, table.encode) for matrix, table in tables)
    try:
        found: LaunchFunction = module.Launch(
            address, functions, layout.matrices, maps, bytes(layout.constants), configure, failed
        )
    except ValueError:  # too many parameters for its memory
        return None
    return found


def on_current_stream(
    launch: LaunchFunction, device: int, current_device: Callable[[], int], current_stream: Callable[[int], int],
    elsewhere: Callable[..., None],
) -> Callable[..., None] | None:  # fmt: skip
    """Return a function of the addresses of matrices that launches on the current stream of a device, in C.

    It calls `elsewhere`, a function of the addresses, where another device is the current one.  It is None where
    `launch` is not in C.
    """
    module = None if launch_address() is None else _module_in_c()
    if module is None or not isinstance(launch, module.Launch):
        return None
    found: Callable[..., None] = module.StreamLaunch(launch, device, current_device, current_stream, elsewhere)
    return found


def _configuration(image: Image, grid: tuple[int, int, int], stream: int) -> Any:
    """Return the driver's configuration of a launch on a stream."""
    bindings = driver()
    found = bindings.CUlaunchConfig()
    found.gridDimX, found.gridDimY, found.gridDimZ = grid
    found.blockDimX, found.blockDimY, found.blockDimZ = image.threads, 1, 1
    found.sharedMemBytes = image.shared_bytes
    found.hStream = bindings.CUstream(stream)
    attributes = []
    if image.dependent:
        attribute = bindings.CUlaunchAttribute()
        attribute.id = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    if image.cluster != (1, 1, 1):
        attribute = bindings.CUlaunchAttribute()
        attribute.id = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = image.cluster
        attributes.append(attribute)
    found.attrs = attributes
    found.numAttrs = len(attributes)
    return found


class _Layout:
    """The memory of the parameters of a call: tensor maps, addresses, numbers, and each kernel's pointers to them.

    Maps and addresses change between calls; they come first, so that one call of `changing` writes all.  Kernels share
    equal maps and addresses.
    """

    def __init__(self, kernels: Sequence[Kernel], sizes: Sequence[Sequence[int]], matrices: int) -> None:
        given = [each for kernel in kernels for each in kernel.parameters]
        self.maps = list(dict.fromkeys(each for each in given if isinstance(each, TensorMap)))
        self.matrices = matrices
        self.changing = struct.Struct(f"={f'{MAP_BYTES}s' * len(self.maps)}{'Q' * matrices}")
        self.constants = bytearray()
        self.offsets = [self._kernel_offsets(*each) for each in zip(kernels, sizes, strict=True)]

    def _kernel_offsets(self, kernel: Kernel, sizes: Sequence[int]) -> list[int]:
        """Return the offset of each parameter of a kernel, and add its numbers.  Raises DriverError."""
        name = kernel.image.name
        if len(sizes) != len(kernel.parameters):
            raise DriverError(f"the kernel {name} has {len(sizes)} parameters, and {len(kernel.parameters)} are given")
        found = []
        for position, (size, each) in enumerate(zip(sizes, kernel.parameters, strict=True)):
            expected = {Address: (8,), TensorMap: (MAP_BYTES,), Number: tuple(_NUMBER_FORMATS)}[type(each)]
            if size not in expected:
                raise DriverError(f"parameter {position} of the kernel {name} has {size} bytes, and {each} is given")
            if isinstance(each, TensorMap):
                found.append(self.maps.index(each) * MAP_BYTES)
            elif isinstance(each, Address):
                found.append(len(self.maps) * MAP_BYTES + 8 * each.matrix)
            else:
                found.append(self.changing.size + len(self.constants))
                try:
                    self.constants += struct.pack(_NUMBER_FORMATS[size], each.value).ljust(8, b"\0")
                except struct.error:
                    raise DriverError(
                        f"parameter {position} of the kernel {name} has {size} bytes, too few for {each.value}"
                    ) from None
        return found

    def packed(self) -> tuple[bytearray, int, tuple[int, ...]]:
        """Return new memory, the offset in it where the changing part starts, and the address of each kernel's
        pointers.
        """
        pointers_at = self.changing.size + len(self.constants)
        memory = bytearray(_MAP_ALIGNMENT + pointers_at + 8 * sum(map(len, self.offsets)))
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        start = -address % _MAP_ALIGNMENT
        constants = start + self.changing.size
        memory[constants : constants + len(self.constants)] = self.constants
        found = []
        for offsets in self.offsets:
            found.append(address + start + pointers_at)
            pointers = [address + start + each for each in offsets]
            struct.pack_into(f"={len(pointers)}Q", memory, start + pointers_at, *pointers)
            pointers_at += 8 * len(pointers)
        return memory, start, tuple(found)
