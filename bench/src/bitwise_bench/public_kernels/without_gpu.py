"""Launches on a machine without a GPU: they are described and compiled, and do nothing.

Operators run on tensors of the CPU.  What a kernel would have written stays as it was, so that launches whose shapes
depend on results differ from those of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

TARGET = "sm_90"
_PROPERTIES = {
    "name": "NVIDIA H100 80GB HBM3",
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "total_memory": 80 << 30,
    "warp_size": 32,
    "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "L2_cache_size": 50 << 20,
    "gcnArchName": "",
    "uuid": "0",
}
_LIMITS = {
    "max_shared_mem": 232448,
    "multiprocessor_count": 132,
    "max_num_regs": 65536,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}


def _tensors_on_the_cpu() -> Any:
    """Return a mode of torch in which tensors that are asked for on a GPU are made on the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    def moved(value: Any) -> Any:
        is_gpu = isinstance(value, torch.device | str) and str(value).split(":")[0] == "cuda"
        return torch.device("cpu") if is_gpu else value

    def called(self: Any, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function is torch.Tensor.cuda:
            return arguments[0]
        if function is torch.device:
            return function(*arguments, **(keywords or {}))
        named = {name: moved(value) for name, value in (keywords or {}).items()}
        return function(*(moved(value) for value in arguments), **named)

    return type("OnTheCpu", (TorchFunctionMode,), {"__torch_function__": called})()


class _ChosenDevice(nullcontext[None]):
    """The context in which a GPU is chosen."""

    def __init__(self, device: Any = None) -> None:
        super().__init__()


class _Driver:
    """The driver of Triton for a GPU that is not there."""

    launcher_cls = None

    def __init__(self) -> None:
        self.utils = SimpleNamespace(get_device_properties=lambda device: dict(_LIMITS))
        self.binary_ext = "cubin"

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return (9, 0)

    def set_current_device(self, device: int) -> None:
        """Ignore the choice."""

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Any:
        return lambda call, **settings: [0.0, 0.0, 0.0]

    def is_active(self) -> bool:
        return True


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Make Triton and torch say that an H100 is there, for packages that ask; tensors stay on the CPU."""
    import torch
    from triton.runtime.driver import driver

    properties = SimpleNamespace(**_PROPERTIES)
    cuda = torch.cuda
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_name": lambda device=None: _PROPERTIES["name"],
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": lambda device=None: properties,
        "is_bf16_supported": lambda *arguments, **keywords: True,
        "device": _ChosenDevice,
        "device_of": _ChosenDevice,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "manual_seed_all": lambda seed: None,
        "manual_seed": lambda seed: None,
        "current_stream": lambda device=None: SimpleNamespace(cuda_stream=0, wait_stream=lambda other: None),
        "stream": lambda stream: nullcontext(),
        "Stream": lambda *arguments, **keywords: SimpleNamespace(wait_stream=lambda other: None),
        "is_current_stream_capturing": lambda: False,
        "mem_get_info": lambda device=None: (70 << 30, 80 << 30),
    }
    before = {name: getattr(cuda, name) for name in answers}
    accelerator = torch.accelerator.current_accelerator
    cuda_version, torch_version = torch.version.cuda, torch.version
    try:
        driver.set_active(_Driver())
        for name, answer in answers.items():
            setattr(cuda, name, answer)
        torch.accelerator.current_accelerator = lambda *arguments, **keywords: torch.device("cuda")
        torch.Tensor.is_cuda = True
        torch_version.cuda = cuda_version or "12.8"
        with _tensors_on_the_cpu():
            yield
    finally:
        for name, answer in before.items():
            setattr(cuda, name, answer)
        torch.accelerator.current_accelerator = accelerator
        del torch.Tensor.is_cuda
        torch_version.cuda = cuda_version
        driver._active = None
