"""The compilation of an intercepted kernel of a package in one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitwise_bench.public_kernels.configurations import Configuration
from bitwise_bench.public_kernels.interception import Intercepted, without_cache
from bitwise_bench.readings.compile_times import cpu_seconds
from bitwise_triton.compilation import CompiledKernel, compile_job, configuration_name, make_job
from bitwise_triton.tensor_contents import buffer_bytes, give_tensors, recorded_tensors, state_sizes
from bitwise_triton.tensor_stand_ins import stand_ins


def package_kernel(
    launch: Intercepted, configuration: Configuration, values: Mapping[str, Any], target: object
) -> tuple[CompiledKernel, float]:
    """Return a kernel for a target, with the contents and sizes of its buffers, and the CPU seconds of compiling it.

    `values` are the arguments of the launch by name.  Raises CaptureError where it does not compile.
    """
    shown = {name: value for name, value in configuration.options.items() if value is not None}
    constants = [each.name for each in launch.kernel.params if each.is_constexpr]
    numbers = {name: values[name] for name in constants if isinstance(values.get(name), bool | int | str)}
    job = make_job(
        launch.kernel,
        stand_ins(values),
        {},
        configuration.options,
        grid=configuration.grid or (1, 1, 1),
        target=target,
        name=configuration_name(numbers, shown),
    )
    used = cpu_seconds()
    with without_cache():
        compiled = compile_job(job)
    used = cpu_seconds() - used
    return state_sizes(give_tensors(compiled, recorded_tensors(values)), buffer_bytes(values)), used
