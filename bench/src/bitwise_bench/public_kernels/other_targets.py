"""The configurations of an intercepted launch, compiled for targets other than that of the GPU at hand."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.public_kernels.configurations import Configuration
from bitwise_bench.public_kernels.interception import Intercepted, replaced_tensors, without_cache
from bitwise_bench.public_kernels.package_compilation import package_kernel
from bitwise_bench.readings.compile_times import cpu_seconds
from bitwise_triton.compilation import CompiledKernel
from bitwise_triton.errors import CaptureError
from bitwise_triton.targets import gpu_target
from bitwise_triton.tensor_contents import buffer_bytes, give_tensors, state_sizes

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
    kernel, _ = package_kernel(launch, configuration, values, target)
    return kernel


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
