"""What a callable does on a device: the kernels that it launches, over which grids, and the memory that it takes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitwise_core.probing.instrument import ProbeError


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launched kernel: its name as the device's compiler wrote it, blocks and threads along three axes."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_memory: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Kernels in the order of their start; `memory` is what a call held beyond its result, in bytes."""

    kernels: tuple[KernelLaunch, ...]
    memory: int


def profile(function: Callable[..., Any], *arguments: Any) -> Profile:
    """Calls a function of tensors on one device and reports its kernels, by PyTorch's profiler.

    The function is called three times: first unobserved, so that what is loaded or compiled once does not count.
    Memory is counted where PyTorch's allocator gave it.  Raises ProbeError for tensors on no device, or no profiler.
    """
    try:
        import torch
        from torch.profiler import ProfilerActivity, supported_activities
        from torch.profiler import profile as observe
    except ImportError:
        raise ProbeError("profiles are read through PyTorch, which is not installed") from None
    devices = {each.device for each in arguments if isinstance(each, torch.Tensor)}
    if len(devices) != 1 or (device := devices.pop()).type == "cpu":
        raise ProbeError("the tensors are not on one device; give all of them on the device whose kernels are wanted")
    module = torch.get_device_module(device)
    function(*arguments)
    module.synchronize()
    module.reset_peak_memory_stats()
    before = module.memory_allocated()
    result = function(*arguments)
    module.synchronize()
    memory = module.max_memory_allocated() - before
    memory -= result.nelement() * result.element_size() if isinstance(result, torch.Tensor) else 0
    activities = [each for each in supported_activities() if each != ProfilerActivity.CPU]
    with observe(activities=activities) as observed:
        function(*arguments)
        module.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        observed.export_chrome_trace(str(path))
        return Profile(kernels_of(json.loads(path.read_text())), max(0, int(memory)))


def kernels_of(trace: dict[str, Any]) -> tuple[KernelLaunch, ...]:
    """The kernels of a trace as PyTorch's profiler writes it."""
    events = [each for each in trace.get("traceEvents", []) if each.get("cat") == "kernel"]
    found = []
    for event in sorted(events, key=lambda each: float(each.get("ts", 0))):
        about = event.get("args", {})
        found.append(
            KernelLaunch(
                str(event.get("name", "")), tuple(about.get("grid", ())), tuple(about.get("block", ())),
                int(about.get("shared memory", 0)),
            )
        )  # fmt: skip
    return tuple(found)
