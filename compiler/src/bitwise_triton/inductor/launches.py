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
    if getattr(result.kernel, "asm", None) is None:
        raise CaptureError("The kernel was compiled before same_bits was entered, and is machine code only.")
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


def launch_values(autotuner: Any, result: Any, arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of a launch by the names of the parameters.

    Raises CaptureError as `launched_kernel` does.
    """
    return _named_arguments(autotuner, result, arguments)[0]


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


def numbers_of(arguments: Sequence[Any]) -> tuple[tuple[int, str, str], ...]:
    """Return the place, type and exact value of each argument that is a number: a choice holds for the same ones."""
    return tuple(
        (place, type(each).__name__, float(each).hex() if isinstance(each, float) else repr(each))
        for place, each in enumerate(arguments)
        if isinstance(each, _NUMBERS)
    )
