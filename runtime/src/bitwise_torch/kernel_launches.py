"""The kernels that a callable launches on a device, their grids, and the memory that the callable allocates."""

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
    """One launched kernel: its mangled name, its grid in blocks, its block in threads, its shared memory in bytes."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_memory: int


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """The kernels in the order of their start; `memory` is the peak of a call without its result, in bytes."""

    kernels: tuple[KernelLaunch, ...]
    memory: int


def profile(function: Callable[..., Any], *arguments: Any) -> KernelProfile:
    """Call a function of tensors on one device and return the kernels that PyTorch's profiler reports.

    The function is called three times: a warm-up that loads and compiles, a call that measures the memory of PyTorch's
    allocator, and a profiled call.  Raises ProbeError where PyTorch is not installed or the tensors are not on one GPU.
    """
    try:
        import torch
        from torch.profiler import ProfilerActivity, supported_activities
        from torch.profiler import profile as profiler
    except ImportError:
        raise ProbeError("a profile needs PyTorch, which is not installed: install the package torch") from None
    devices = {each.device for each in arguments if isinstance(each, torch.Tensor)}
    if len(devices) != 1 or (device := devices.pop()).type == "cpu":
        raise ProbeError("the tensors are not on one GPU: move all of them to the device to be profiled")
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
    with profiler(activities=activities) as trace:
        function(*arguments)
        module.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(path))
        return KernelProfile(kernels_of(json.loads(path.read_text())), max(0, int(memory)))


def kernels_of(trace: dict[str, Any]) -> tuple[KernelLaunch, ...]:
    """Return the kernels in a Chrome trace of PyTorch's profiler."""
    events = [each for each in trace.get("traceEvents", []) if each.get("cat") == "kernel"]
    found = []
    for event in sorted(events, key=lambda each: float(each.get("ts", 0))):
        details = event.get("args", {})
        found.append(
            KernelLaunch(
                str(event.get("name", "")), tuple(details.get("grid", ())), tuple(details.get("block", ())),
                int(details.get("shared memory", 0)),
            )
        )  # fmt: skip
    return tuple(found)
