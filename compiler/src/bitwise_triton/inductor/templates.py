"""The choices of TorchInductor's templates (products, convolutions, attention) that return the same bits."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from bitwise_triton.compilation import CompiledKernel
from bitwise_triton.errors import CaptureError
from bitwise_triton.inductor.launches import launched_kernel
from bitwise_triton.inductor.reference import is_of_the_configuration
from bitwise_triton.inductor.selection import Rules, compared, publish

Templates = Literal["library", "triton"]

_BIAS_OF_ONE_ROW = "bias_addmm"


class DoesNotCompile(CaptureError):
    """A template that compiles in no process, and cannot be chosen."""


def restricted(choices: Sequence[Any], templates: Templates, rules: Rules) -> list[Any]:
    """Return the choices that return the bits of the reference.

    The reference is a call of a library where there is one and `templates` is "library", and otherwise the Triton
    template nearest to 128 x 128 elements in eight warps that compiles.  A call of a library is in a class of its own.
    With a bias that is the same in all rows, it is the call that gets one row of it: the library adds it to the
    product, where the other call first writes it to every row.
    """
    from torch._inductor.select_algorithm import ExternKernelCaller, TritonTemplateCaller

    found = list(choices)
    library = [each for each in found if isinstance(each, ExternKernelCaller)]
    if library and templates == "library":
        return [next((each for each in library if each.name == _BIAS_OF_ONE_ROW), library[0])]
    kernels = [each for each in found if isinstance(each, TritonTemplateCaller)]
    return _class_of_reference(kernels, rules) if kernels else found[:1]


def _class_of_reference(choices: Sequence[Any], rules: Rules) -> list[Any]:
    start = time.perf_counter()
    kernels = {id(each): _kernel(each) for each in choices}
    ordered = sorted(choices, key=_distance)
    first = next((each for each in ordered if not isinstance(kernels[id(each)], DoesNotCompile)), ordered[0])
    others = [each for each in choices if each is not first]
    verdicts = compared(kernels[id(first)], [kernels[id(each)] for each in others], rules)
    names = [_described(each) for each in (first, *others)]
    publish(choices[0].name, names, verdicts, time.perf_counter() - start, rules)
    equal = {id(each) for each, verdict in zip(others, verdicts, strict=True) if verdict.outcome == "equal"}
    return [each for each in choices if each is first or id(each) in equal]


def _distance(choice: Any) -> tuple[float, str]:
    """Return how far a template is from 128 x 128 elements in eight warps, in factors of two, and its description."""
    found = dict(re.findall(r"\b(BLOCK_M|BLOCK_N|num_warps)=(\d+)", _described(choice)))
    wanted = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8}
    distances = (abs(math.log2(int(found.get(name, 1)) / size)) for name, size in wanted.items())
    return sum(distances), _described(choice)


def _described(choice: Any) -> str:
    return str(choice.description or choice.name)


def _kernel(choice: Any) -> CompiledKernel | CaptureError:
    """Compile the kernel of a template choice, with the launch that would benchmark it."""
    from torch._inductor.codecache import PyCodeCache

    request = choice.bmreq
    try:
        module = PyCodeCache.load_by_key_path(request.module_cache_key, request.module_path, set_sys_modules=False)
        autotuner = getattr(module, request.kernel_name)
        autotuner.precompile()
        return launched_kernel(autotuner, autotuner.compile_results[0], _arguments(request))
    except CaptureError as error:
        return error
    except Exception as error:
        if not is_of_the_configuration(error):  # in other processes it compiles, and may be the reference
            raise CaptureError(
                f"The template {choice.name} cannot be compiled here: {type(error).__name__}: {error}"
            ) from error
        return DoesNotCompile(f"The template {choice.name} cannot be compiled: {type(error).__name__}: {error}")


def _arguments(request: Any) -> list[Any]:
    """Return the arguments of a benchmark request, with a torch.dtype for each tensor."""
    import torch
    from torch._inductor import select_algorithm

    workspace = getattr(select_algorithm, "WORKSPACE_ARG_PLACEHOLDER", None)
    outputs = request.output_tensor_meta
    tensors = [*request.input_tensor_meta, *(outputs if isinstance(outputs, list) else [outputs])]
    extra = [torch.uint8 if workspace is not None and each is workspace else each for each in request.extra_args]
    return [*(each.dtype for each in tensors), *extra]


def preprocessing(templates: Templates, rules: Rules) -> Callable[[list[Any]], list[Any]]:
    """Return the function that Inductor calls with the choices of a template, before it compares them."""
    return lambda choices: restricted(choices, templates, rules) if len(choices) > 1 else choices
