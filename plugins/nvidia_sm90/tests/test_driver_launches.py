"""Launches through the CUDA driver: packed parameters, tensor maps, threads, streams and errors, on a stand-in."""

from __future__ import annotations

import builtins
import gc
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bitwise_nvidia_sm90.gemm import driver_launches as launches
from bitwise_nvidia_sm90.gemm import prepared_launches
from bitwise_nvidia_sm90.gemm.driver_launches import (
    Address,
    DriverError,
    Image,
    Kernel,
    Number,
    TensorMap,
    TooFewResources,
)
from fake_driver import INVALID_CONTEXT, LAUNCH_FAILED, FakeDriver

IMAGE = Image(b"code", "sum", 128, 1024)
MAP = TensorMap(0, "float16", 2, (48, 64), (72, 1), (16, 32), 3)
SIZES = {"sum": (8, 4, 8, 1, 2), "mapped": (128, 4, 128, 8), "merge": (8, 8)}
SUM = Kernel(IMAGE, (3, 2, 1), (Address(1), Number(-7), Number(1 << 40), Number(-1), Number(5)))
MAPPED = Kernel(
    replace(IMAGE, name="mapped"), (1, 1, 1), (MAP, Number(9), replace(MAP, matrix=2, dtype="bfloat16"), Address(1))
)
MERGE = Kernel(replace(IMAGE, name="merge"), (1, 1, 1), (Address(3), Address(2)))


@pytest.fixture(params=["python", "c"])
def fake(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> FakeDriver:
    found = FakeDriver(SIZES)
    if request.param == "c" and launches._module_in_c() is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(launches, "driver", lambda: found)
    monkeypatch.setattr(launches, "launch_address", found.launch_address if request.param == "c" else lambda: None)
    monkeypatch.setattr(launches, "_kernels", {})
    return found


def read(fake: FakeDriver) -> list[tuple[int, ...]]:
    return [each[3] for each in fake.launches]


def test_parameters_are_packed_in_order(fake: FakeDriver) -> None:
    launch = launches.launch_function([SUM, MERGE], 4, 0)
    for step in (0, 100):
        launch(5, step + 1, step + 2, step + 3, 1 << 63)
    numbers = (-7, 1 << 40, -1, 5)
    assert read(fake) == [(2, *numbers), (1 << 63, 3), (102, *numbers), (1 << 63, 103)]
    configuration = fake.launches[0][2]
    assert (configuration.gridDimX, configuration.gridDimY, configuration.gridDimZ) == (3, 2, 1)
    assert (configuration.blockDimX, configuration.blockDimY, configuration.blockDimZ) == (128, 1, 1)
    assert (configuration.sharedMemBytes, configuration.numAttrs) == (1024, 0)


def test_a_repeated_address_is_not_encoded_again(fake: FakeDriver) -> None:
    launch = launches.launch_function([MAPPED, MAPPED], 3, 0)
    launch(0, 1024, 2, 2048)
    assert [each[0] for each in fake.encoded] == [
        "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
        "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
    ]
    rank, address, shape, strides, box, steps = fake.encoded[0][1:7]
    assert (rank, address, shape, strides, box, steps) == (2, 1024, [64, 48], [144], [32, 16], [1, 1])
    assert fake.encoded[0][8] == 3
    launch(0, 1024, 4, 2048)
    assert len(fake.encoded) == 2
    launch(0, 1024, 6, 4096)
    assert len(fake.encoded) == 3
    launch(0, 1024, 8, 2048)
    assert len(fake.encoded) == 3
    expected = [(1024, 9, 2048, 2), (1024, 9, 2048, 4), (1024, 9, 4096, 6), (1024, 9, 2048, 8)]
    assert read(fake) == [each for each in expected for _ in range(2)]


def test_maps_are_dropped_when_there_are_too_many(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(launches, "MAP_CAPACITY", 5)
    monkeypatch.setattr(launches, "_kept_maps", 0)
    first, second = (launches.launch_function([MAPPED], 3, 0) for _ in range(2))
    expected = []
    for number in range(40):
        for launch in (first, second):
            launch(0, 64 * number, number, 64 * (number % 7))
            expected.append((64 * number, 9, 64 * (number % 7), number))
        assert sum(len(each.by_address) for each in launches._tables) <= 5
    assert read(fake) == expected
    first(0, 0, 0, 0)
    count = len(fake.encoded)
    first(0, 0, 1, 0)
    assert len(fake.encoded) == count


def test_threads_do_not_share_parameters(fake: FakeDriver) -> None:
    launch, count, times = launches.launch_function([MAPPED, MERGE], 4, 0), 8, 60
    barrier = threading.Barrier(count)
    interval = sys.getswitchinterval()

    def run(thread: int) -> None:
        barrier.wait()
        for each in range(times):
            base = 4096 * thread + 64 * (each % 5)
            launch(thread, base, base + 1, base + 2, base + 3)

    fake.during = lambda: time.sleep(0)
    threads = [threading.Thread(target=run, args=(each,)) for each in range(count)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for number in range(count):
        found = [(name, each) for name, stream, _, each in fake.launches if stream == number]
        bases = [4096 * number + 64 * (each % 5) for each in range(times)]
        assert found == [
            each
            for base in bases
            for each in (("mapped", (base, 9, base + 2, base + 1)), ("merge", (base + 3, base + 2)))
        ]


def test_a_launch_inside_of_a_launch_has_its_own_parameters(fake: FakeDriver) -> None:
    launch = launches.launch_function([SUM], 2, 0)

    def interrupt() -> None:
        fake.during = lambda: None
        launch(0, 1, 20)

    launch(0, 1, 2)
    fake.during = interrupt
    launch(0, 1, 10)
    assert [each[0] for each in read(fake)] == [2, 20, 10]


def test_streams_have_configurations(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "STREAM_CAPACITY", 3)
    image = replace(IMAGE, dependent=True, cluster=(2, 3, 1))
    launch = launches.launch_function([replace(SUM, image=image)], 2, 0)
    streams = [5, 6, 5, 7, 8, 5, 6, 7, 8]
    for each in streams:
        launch(each, 1, 2)
    assert [each[1] for each in fake.launches] == streams
    assert fake.launches[0][2] is fake.launches[2][2]
    assert fake.launches[0][2] is not fake.launches[5][2]
    dependent, cluster = fake.launches[-1][2].attrs
    assert fake.launches[-1][2].numAttrs == 2
    assert dependent.id == "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
    assert dependent.value.programmaticStreamSerializationAllowed == 1
    assert cluster.id == "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
    assert vars(cluster.value.clusterDim) == {"x": 2, "y": 3, "z": 1}


def test_an_image_is_loaded_once_on_each_device(fake: FakeDriver) -> None:
    for device in (0, 1, 0):
        launches.launch_function([SUM], 2, device)
    one, two = ([("push", f"context of device {device}"), ("load", b"code"), ("pop",)] for device in (0, 1))
    assert fake.calls == [*one, *two]


def test_large_shared_memory_and_clusters_are_requested(fake: FakeDriver) -> None:
    fake.attributes["CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES"] = 1024
    launches.load(replace(IMAGE, shared_bytes=48 << 10, cluster=(4, 4, 1)), 0)
    assert fake.calls[2:-1] == [
        ("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 48 << 10),
        ("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1),
    ]


def test_a_kernel_that_the_device_cannot_run_raises(fake: FakeDriver) -> None:
    with pytest.raises(TooFewResources, match="sum needs 232449 bytes of shared memory; a block has 232448"):
        launches.load(replace(IMAGE, shared_bytes=232449), 0)
    fake.attributes["CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK"] = 96
    with pytest.raises(TooFewResources, match="sum runs 128 threads; its registers allow 96"):
        launches.load(IMAGE, 0)
    assert fake.calls[-1] == ("pop",)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (SUM.parameters[1:], "the kernel sum has 5 parameters, and 4 are given"),
        ((MAP, *SUM.parameters[1:]), r"parameter 0 of the kernel sum has 8 bytes, and TensorMap\("),
        ((*SUM.parameters[:4], Address(0)), r"parameter 4 of the kernel sum has 2 bytes, and Address\("),
        ((*SUM.parameters[:4], Number(1 << 15)), "parameter 4 of the kernel sum has 2 bytes, too few for 32768"),
        ((Address(0), Number(1 << 31), *SUM.parameters[2:]), "parameter 1 of the kernel sum has 4 bytes, too few for"),
    ],
)
def test_parameters_of_another_kernel_raise(fake: FakeDriver, parameters: Any, said: str) -> None:
    with pytest.raises(DriverError, match=said):
        launches.launch_function([replace(SUM, parameters=parameters)], 2, 0)


def test_a_failed_call_is_a_sentence(fake: FakeDriver) -> None:
    launch = launches.launch_function([SUM], 2, 0)
    fake.statuses = [LAUNCH_FAILED]
    with pytest.raises(
        DriverError, match="cuLaunchKernelEx of the CUDA driver failed with the status 719: unspecified"
    ):
        launch(0, 1, 2)
    fake.statuses = [123]
    with pytest.raises(DriverError, match="status 123: an unknown error"):
        launch(0, 1, 2)
    launch(0, 1, 2)
    assert read(fake) == [(2, -7, 1 << 40, -1, 5)]


def test_a_thread_without_a_context_gets_one(fake: FakeDriver) -> None:
    launch = launches.launch_function([SUM], 2, 3)
    fake.statuses = [INVALID_CONTEXT]
    launch(0, 1, 2)
    assert fake.calls[-1] == ("set", "context of device 3")
    assert len(fake.launches) == 1
    fake.statuses = [INVALID_CONTEXT, INVALID_CONTEXT]
    with pytest.raises(DriverError, match="status 201"):
        launch(0, 1, 2)


def test_a_thread_without_a_context_gets_one_for_the_maps_of_its_call(fake: FakeDriver) -> None:
    launch = launches.launch_function([MAPPED], 3, 3)
    fake.encode_statuses = [INVALID_CONTEXT]
    launch(0, 4096, 8192, 12288)
    assert fake.calls[-1] == ("set", "context of device 3")
    assert len(fake.launches) == 1
    fake.encode_statuses = [INVALID_CONTEXT, INVALID_CONTEXT]
    with pytest.raises(DriverError, match="cuTensorMapEncodeTiled of the CUDA driver failed with the status 201"):
        launch(0, 256, 512, 1024)


def test_missing_bindings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_cuda(name: str, *arguments: Any, **options: Any) -> Any:
        if name.split(".")[0] == "cuda":
            raise ModuleNotFoundError("No module named 'cuda'")
        return real(name, *arguments, **options)

    launches.driver.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without_cuda)
    with pytest.raises(DriverError, match=r"bindings, which cannot be imported .*: run pip install cuda-bindings"):
        launches.driver()


def test_the_bindings_have_what_is_used() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    for name in vars(FakeDriver):
        if name.startswith(("cu", "CU")):
            assert hasattr(bindings, name), name
    configuration = launches._configuration(replace(IMAGE, dependent=True, cluster=(2, 3, 1)), (7, 8, 9), 77)
    assert (configuration.gridDimX, configuration.gridDimY, configuration.gridDimZ) == (7, 8, 9)
    assert (int(configuration.hStream), configuration.numAttrs, configuration.sharedMemBytes) == (77, 2, 1024)
    dependent, cluster = configuration.attrs
    assert dependent.value.programmaticStreamSerializationAllowed == 1
    assert (cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z) == (2, 3, 1)
    plain = launches._configuration(IMAGE, (1, 1, 1), 0)
    assert (plain.numAttrs, len(plain.attrs), int(plain.hStream)) == (0, 0, 0)
    launches.EncodedMaps(MAP, 0)
    assert int(bindings.CUresult.CUDA_SUCCESS) == 0
    assert int(bindings.CUresult.CUDA_ERROR_INVALID_CONTEXT) == INVALID_CONTEXT


def product(
    monkeypatch: pytest.MonkeyPatch, workspaces: Sequence[int], kernels: Sequence[Kernel]
) -> tuple[Any, list[Any]]:
    """Return a product launch on device 1 of a PyTorch stand-in, and its calls; the current device is 0 at first."""
    calls: list[Any] = []
    current = [0]

    @contextmanager
    def device(chosen: int) -> Iterator[None]:
        before, current[0] = current[0], chosen
        yield
        current[0] = before

    def allocate(size: int, stream: int) -> int:
        calls.append(("allocate", size, stream))
        return 7 << 20

    functions = SimpleNamespace(
        _cuda_getDevice=lambda: current[0],
        _cuda_getCurrentRawStream=lambda index: 10 + index,
        _cuda_cudaCachingAllocator_raw_alloc=allocate,
        _cuda_cudaCachingAllocator_raw_delete=lambda address: calls.append(("release", address)),
    )
    cuda = SimpleNamespace(current_device=None, device=device, caching_allocator_delete=None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=functions, cuda=cuda))
    return prepared_launches.product_launch(kernels, workspaces, 1), calls


def test_a_product_runs_on_its_device_and_stream(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, calls = product(monkeypatch, [], [SUM])
    launch(1, 2, 3)
    assert [(each[0], each[1]) for each in fake.launches] == [("sum", 11)]
    assert calls == []


def test_the_workspace_is_released_after_the_launches(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, calls = product(monkeypatch, [640], [SUM, MERGE])
    fake.during = lambda: calls.append("launch")
    launch(1, 2, 3)
    expected = [("allocate", 640, 11), "launch", "launch", ("release", 7 << 20)]
    assert calls == expected
    assert read(fake)[1] == (7 << 20, 3)
    fake.statuses = [0, LAUNCH_FAILED]
    with pytest.raises(DriverError):
        launch(1, 2, 3)
    assert calls == expected * 2


@pytest.mark.parametrize(
    ("sizes", "total", "starts"),
    [([640, 96], 864, [0, 768]), ([256, 512], 768, [0, 256]), ([1, 257, 30], 798, [0, 256, 768])],
)
def test_workspaces_are_one_allocation(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, sizes: list[int], total: int, starts: list[int]
) -> None:
    first, rest = 3, len(sizes) - 1
    kernels = [
        Kernel(MERGE.image, MERGE.grid, (Address(first + index), Address(0 if index else first + rest)))
        for index in range(len(sizes))
    ]
    launch, calls = product(monkeypatch, sizes, kernels)
    fake.during = lambda: calls.append("launch")
    launch(1, 2, 3)
    assert calls == [("allocate", total, 11), *["launch"] * len(sizes), ("release", 7 << 20)]
    addresses = [(7 << 20) + each for each in starts]
    assert read(fake) == [(each, 1 if index else addresses[-1]) for index, each in enumerate(addresses)]
    assert all(each + size <= after for each, size, after in zip(starts, sizes, [*starts[1:], total], strict=True))
