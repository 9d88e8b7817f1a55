"""The driver calls of the adversary, against a driver that executes kernels on bit patterns."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from bitwise_bench.adversary import campaign, device, execution
from bitwise_bench.adversary.instruction_sets.language import Language
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.kernels import KernelText
from bitwise_bench.adversary.patterns import Array


class SimulatedDriver:
    """A CUDA driver with memory; `kernel` is the kernel that the next launch executes."""

    def __init__(self, capability: tuple[int, int] = (9, 0)) -> None:
        self.capability = dict(zip((75, 76), capability, strict=True))
        self.memory: dict[int, Array] = {}
        self.free = 0x1000
        self.kernel: KernelText | None = None
        self.launches = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *arguments: 0

    def cuDeviceGetAttribute(self, value: Any, number: int, handle: Any) -> int:  # noqa: N802
        value._obj.value = self.capability[number]
        return 0

    def cuMemAlloc_v2(self, pointer: Any, size: Any) -> int:  # noqa: N802
        pointer._obj.value = self.free
        self.memory[self.free] = np.full(size.value, 0xA5, dtype=np.uint8)
        self.free += size.value + 4096
        return 0

    def cuMemsetD8_v2(self, pointer: Any, value: Any, size: Any) -> int:  # noqa: N802
        self.memory[pointer.value][: size.value] = value.value
        return 0

    def cuMemcpyHtoD_v2(self, pointer: Any, source: Any, size: Any) -> int:  # noqa: N802
        ctypes.memmove(self.memory[pointer.value].ctypes.data, source, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, target: Any, pointer: Any, size: Any) -> int:  # noqa: N802
        ctypes.memmove(target, self.memory[pointer.value].ctypes.data, size.value)
        return 0

    def cuMemFree_v2(self, pointer: Any) -> int:  # noqa: N802
        del self.memory[pointer.value]
        return 0

    def cuLaunchKernel(self, function: Any, *arguments: Any) -> int:  # noqa: N802
        grid, block, parameters = arguments[0], arguments[3], arguments[8]
        kernel = self.kernel
        assert kernel is not None
        assert (block, arguments[1:3], arguments[4:6]) == (kernel.threads, (1, 1), (1, 1))
        pointers: dict[str, int] = {}
        for number, argument in enumerate(kernel.launch(grid).args):
            if argument.buffer is not None:
                pointers[argument.buffer] = ctypes.c_uint64.from_address(parameters[number]).value
            else:
                assert ctypes.c_uint32.from_address(parameters[number]).value == argument.value
        contents = {name: self.memory[place] for name, place in pointers.items() if name.startswith("in_")}
        done = execution.run(kernel, LANGUAGES["ptx"], grid, contents, finite=False)
        for place, rows in zip(kernel.places, done.results, strict=True):
            shape = (grid, kernel.stores[place.buffer], kernel.threads, place.size)
            self.memory[pointers[place.buffer]].reshape(shape)[:, place.slot] = rows.reshape(grid, -1, place.size)
        self.launches += 1
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> SimulatedDriver:
    found = SimulatedDriver()
    run = device.Device.run

    def noted(
        own: device.Device,
        kernel: KernelText,
        language: Language,
        blocks: int,
        contents: Mapping[str, Array],
        *,
        optimised: bool = True,
    ) -> list[Array]:
        found.kernel = kernel
        return run(own, kernel, language, blocks, contents, optimised=optimised)

    monkeypatch.setattr(device.Device, "run", noted)
    monkeypatch.setattr(device.ctypes, "CDLL", lambda name: found)
    monkeypatch.setattr(campaign, "DEVICE_BLOCKS", 2)
    return found


def test_a_search_with_a_gpu_compares_its_bytes_with_the_simulation(driver: SimulatedDriver) -> None:
    tally = campaign.worker(seed=3, number=0, seconds=60, gpu=True, rounds=12)
    assert tally.errors == []
    assert driver.launches > 12
    assert driver.memory == {}
    assert sum(tally.on_device.values()) == sum(tally.equal.values()) > 100
    assert sum(tally.device_wrong.values()) == 0
    assert list(tally.simulation) == ["programs compared with the GPU"]


def test_another_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.ctypes, "CDLL", lambda name: SimulatedDriver((8, 0)))
    with pytest.raises(device.DeviceError, match=r"capability 8\.0"):
        device.Device()
