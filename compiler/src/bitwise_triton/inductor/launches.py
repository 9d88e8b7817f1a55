"""The launches of kernels that TorchInductor compiled: their assembly, grid and arguments.

`result` is a compile result of Inductor: a compiled Triton kernel, its configuration and the compile metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bitwise_triton.compilation import CompiledKernel, CompileJob, compiled_kernel, configuration_name
from bitwise_triton.errors import CaptureError
from bitwise_triton.tensor_contents import Tensors, recorded_tensors
from bitwise_triton.tensor_stand_ins import stand_ins

if TYPE_CHECKING:
    from bitwise_core.execution.tensor_contents import TensorContents


_NUMBERS = (int, float, bool)


def launched_kernel(autotuner: Any, result: Any, arguments: Sequence[Any]) -> CompiledKernel:
    """Return the kernel of one configuration with the launch that these arguments of the autotuner give it.

    Raises CaptureError for a kernel or an argument that the manifest cannot describe.
    """
    configuration = result.config
    function = _function(autotuner, result)
    named, grid = _named_arguments(autotuner, result, arguments)
    signature = dict(result.compile_meta["signature"])
    values: Mapping[str, Any] = stand_ins(named)
    blocks = int(getattr(result.kernel.metadata, "num_ctas", 1) or 1)
    job = CompileJob(
        name=configuration_name({}, configuration.all_kwargs()),
        function=function,
        values=values,
        options={},
        grid=(int(grid[0]) * blocks, int(grid[1]), int(grid[2])),
        target=result.kernel.metadata.target,
    )
    return compiled_kernel(job, result.kernel, _runtime(signature, values), values, 0.0)


def launch_tensors(
    autotuner: Any, result: Any, arguments: Sequence[Any], tensors: Tensors, maximum_bytes: int
) -> dict[str, TensorContents]:
    """Return the contents of the tensors of a launch by buffer, without those that the autotuner sets to zero before.

    Raises CaptureError as `launched_kernel` does.
    """
    named, _ = _named_arguments(autotuner, result, arguments)
    return recorded_tensors(named, tensors, maximum_bytes, getattr(autotuner, "reset_to_zero_arg_names", None) or ())


def _function(autotuner: Any, result: Any) -> Any:
    return result.kernel.src.fn if getattr(result.kernel, "src", None) is not None else autotuner.fn


def _named_arguments(autotuner: Any, result: Any, arguments: Sequence[Any]) -> tuple[dict[str, Any], Sequence[int]]:
    """Return the arguments by the names of the parameters, and the grid."""
    passed, grid = autotuner._interpret_args_grid(tuple(arguments), result.config)
    function = _function(autotuner, result)
    constants = {parameter.name for parameter in function.params if parameter.is_constexpr}
    names = [name for name in autotuner.triton_meta["signature"] if name not in constants]
    if len(names) != len(passed):
        raise CaptureError(f"Kernel {function.__name__!r} takes {len(names)} arguments and got {len(passed)}.")
    return dict(zip(names, passed, strict=True)), grid


def _runtime(signature: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of the parameters that the assembly takes."""
    return {name: kind for name, kind in signature.items() if name in values and kind != "constexpr"}


def scalars_of(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments that are numbers, by place: a choice holds for launches with the same ones."""
    # By the exact type first: this runs at every launch.
    return tuple([each for each in enumerate(arguments) if type(each[1]) in _NUMBERS or isinstance(each[1], _NUMBERS)])
