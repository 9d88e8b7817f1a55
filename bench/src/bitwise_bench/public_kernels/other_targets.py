"""The configurations of an intercepted launch, compiled for targets other than that of the GPU at hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.public_kernels.configurations import Configuration
from bitwise_bench.public_kernels.interception import Intercepted, replaced_tensors, without_cache
from bitwise_bench.readings.compile_times import cpu_seconds
from bitwise_triton.compilation import CompiledKernel, compile_job, configuration_name, make_job
from bitwise_triton.errors import CaptureError
from bitwise_triton.targets import gpu_target
from bitwise_triton.tensor_contents import buffer_bytes, give_tensors, recorded_tensors, state_sizes
from bitwise_triton.tensor_stand_ins import stand_ins

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "enable_fp_fusion", "sanitize_overflow", "debug")
"""Compile options that do not depend on the target."""


def compiled_for(launch: Intercepted, configuration: Configuration, target: str) -> tuple[CompiledKernel, str, float]:
    """Return a kernel for a target such as "sm_100", the digest of its text, and the CPU seconds of compiling it.

    Raises CaptureError where it does not compile, or has a launch that depends on the target.
    """
    memory = {address: storage.tensor for address, storage in launch.storages.items()}
    used = cpu_seconds()
    compile_one = _of_package if launch.arguments is None else _of_inductor
    kernel = compile_one(launch, configuration, memory, target)
    return kernel, normalised_digest(kernel.assembly), cpu_seconds() - used


def _of_package(
    launch: Intercepted, configuration: Configuration, memory: Mapping[int, Any], target: str
) -> CompiledKernel:
    values = {name: replaced_tensors(value, memory) for name, value in configuration.values.items()}
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
    with without_cache():
        compiled = compile_job(job)
    return state_sizes(give_tensors(compiled, recorded_tensors(values)), buffer_bytes(values))


def _of_inductor(
    launch: Intercepted, configuration: Configuration, memory: Mapping[int, Any], target: str
) -> CompiledKernel:
    import triton

    from bitwise_triton.inductor.launches import launch_tensors, launch_values, launched_kernel

    assert launch.arguments is not None
    result = getattr(configuration.options["launcher"], "bitwise_result", None)
    if result is None or getattr(result.kernel, "src", None) is None:
        raise CaptureError(f"{launch.name}: a launcher without its compile result")
    arguments = tuple(replaced_tensors(value, memory) for value in launch.arguments)
    metadata = result.kernel.metadata
    options = {name: getattr(metadata, name) for name in _OPTIONS if hasattr(metadata, name)}
    try:
        with without_cache():
            compiled = triton.compile(result.kernel.src, target=gpu_target(target), options=options)
        other = SimpleNamespace(kernel=compiled, config=result.config, compile_meta=result.compile_meta)
        kernel = launched_kernel(launch.kernel, other, arguments)
        kernel = give_tensors(kernel, launch_tensors(launch.kernel, other, arguments, True, 1 << 20))
        return state_sizes(kernel, buffer_bytes(launch_values(launch.kernel, other, arguments)))
    except Exception as error:  # whatever the compiler raises
        raise CaptureError(" ".join(f"{launch.name}: {type(error).__name__}: {error}".split())[:300]) from None
