"""Launches of configurations on a GPU with random inputs, and hashes of the outputs; needs torch and Triton."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from bitwise_bench.compilation.capture import compile_case
from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.corpus.cases import DTYPE_BYTES, Array, Case, Descriptor
from bitwise_bench.draws.formats import Bits
from bitwise_bench.draws.inputs import DRAWS, digest_of, draw, input_positions
from bitwise_bench.worker_pool import PoisonedProcess

TORCH_NAMES = MappingProxyType(
    {
        "fp8e4nv": "float8_e4m3fn",
        "fp8e5": "float8_e5m2",
        "fp16": "float16",
        "bf16": "bfloat16",
        "fp32": "float32",
        "fp64": "float64",
        "i1": "bool",
        "i8": "int8",
        "u8": "uint8",
        "i16": "int16",
        "i32": "int32",
        "u32": "uint32",
        "i64": "int64",
    }
)
_CARRIERS = MappingProxyType({1: "uint8", 2: "int16", 4: "int32", 8: "int64"})


@lru_cache(maxsize=512)
def cached_draw(array: Array, group: str, kind: str, place: int) -> Bits:
    """Return `draw(...)`, cached for repeated launches."""
    return draw(array, group, kind, place)


def upload(array: Array, bits: Bits, device: str) -> Any:
    """Return a 1-D tensor on `device` with the contents `bits`, `array.offset` elements into its allocation."""
    return _elements(array, _allocation(array, bits, device))


def _allocation(array: Array, bits: Bits, device: str) -> Any:
    import torch

    width = DTYPE_BYTES[array.dtype]
    carrier = bits.view(f"i{width}" if width > 1 else "u1")
    store = torch.zeros(array.offset + array.elements, dtype=getattr(torch, _CARRIERS[width]), device=device)
    store[array.offset :] = torch.from_numpy(carrier.copy())
    return store


def _elements(array: Array, allocation: Any) -> Any:
    import torch

    return allocation.view(getattr(torch, TORCH_NAMES[array.dtype]))[array.offset :]


@lru_cache(maxsize=512)
def _drawn_allocation(array: Array, group: str, kind: str, place: int, device: str) -> Any:
    """Return an allocation with the contents of a draw, which launches copy."""
    return _allocation(array, cached_draw(array, group, kind, place), device)


def download(array: Array, tensor: Any) -> Bits:
    """Return the contents of `tensor` as unsigned patterns of the element width of `array`."""
    width = DTYPE_BYTES[array.dtype]
    host = _carried(array, tensor).cpu().contiguous().numpy()
    return np.asarray(host).view(f"u{width}")


def _carried(array: Array, tensor: Any) -> Any:
    """Return the elements of `tensor` as integers of their width."""
    import torch

    return tensor.view(getattr(torch, _CARRIERS[DTYPE_BYTES[array.dtype]]))


def prepare(case: Case, kind: str, device: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the launch arguments by parameter name, and the tensor of every buffer, with new inputs of `kind`."""
    tensors: dict[str, Any] = {}
    launch: dict[str, Any] = {}
    group = f"{case.family}/{case.group}"
    for array, place in input_positions(case):
        drawn = _drawn_allocation(array, group, kind, place, device)
        tensors[array.name] = _elements(array, drawn.clone())
    for argument in case.arguments:
        if isinstance(argument, Array):
            launch[argument.name] = tensors[argument.name]
        elif isinstance(argument, Descriptor):
            from triton.tools.tensor_descriptor import TensorDescriptor

            base = tensors[argument.array.name]
            launch[argument.name] = TensorDescriptor(
                base, list(argument.shape), list(argument.strides), list(argument.block)
            )
        else:
            launch[argument.name] = argument.value
    return launch, tensors


def record_case(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Compile and launch the configuration with the id `name`, hash its outputs; a job for `worker_pool.run_all`.

    `settings["repeats"]` is the number of launches per kind of input, `settings["target"]` the architecture of the GPU.
    Raises PoisonedProcess after a device fault.
    """
    from bitwise_bench.corpus import catalogue

    case = catalogue.by_id(settings["target"])[name]
    answer: dict[str, Any] = {"outputs": [array.name for array in case.outputs]}
    try:
        answer["captured"] = normalised_digest(compile_case(case).assembly)
    except Exception as error:  # the launch below is recorded nevertheless
        answer["captured"] = None
        answer["capture_error"] = " ".join(str(error).split())[:300]
    try:
        return {**answer, **launch_case(case, settings["repeats"])}
    except Exception as error:
        check_device(error)
        raise


def launch_case(case: Case, repeats: int) -> dict[str, Any]:
    """Launch a configuration `repeats` times for each kind of input; hash the outputs of the first launch of each.

    Returns the digest of the kernel, the hashes by kind and output, and whether all repetitions returned the same.
    """
    import torch
    import triton

    def allocate(size: int, alignment: int, stream: int | None) -> Any:
        return torch.empty(size, dtype=torch.int8, device="cuda")

    triton.set_allocator(allocate)
    digest: str | None = None
    written: dict[str, list[Any]] = {array.name: [] for array in case.outputs}
    for kind in DRAWS:
        for _ in range(repeats):
            launch, tensors = prepare(case, kind, "cuda")
            kernel = case.function[case.grid](
                **launch, **case.constants, num_warps=case.num_warps, num_stages=case.num_stages, **case.options
            )
            digest = digest or normalised_digest(kernel.asm["ptx"])
            for array in case.outputs:
                # Tensors of 8-bit floats cannot be stacked.
                written[array.name].append(_carried(array, tensors[array.name]))
    # One copy for each output: a wait for the device costs more than a small launch.
    contents = {array.name: download(array, torch.stack(written[array.name])) for array in case.outputs}
    hashes: list[list[str]] = []
    repeated = True
    for first in range(0, repeats * len(DRAWS), repeats):
        rows = [_hashes(case, contents, first)]
        for other in range(first + 1, first + repeats):
            equal = all(np.array_equal(each[first], each[other]) for each in contents.values())
            rows.append(rows[0] if equal else _hashes(case, contents, other))
        repeated = repeated and all(row == rows[0] for row in rows)
        hashes.append(rows[0])
    return {"digest": digest, "hashes": hashes, "repeated": repeated}


def _hashes(case: Case, contents: Mapping[str, Bits], launch: int) -> list[str]:
    return [digest_of(contents[array.name][launch], array.dtype) for array in case.outputs]


def check_device(error: BaseException) -> None:
    """Raise PoisonedProcess if the device cannot be used any more from this process."""
    if _device_unusable():
        raise PoisonedProcess(f"{type(error).__name__}: {error}") from error


def _device_unusable() -> bool:
    """Return whether the device context of this process is unusable."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").cpu()
    except Exception:
        return True
    return False


def environment() -> dict[str, str]:
    """Return the GPU and the versions of driver, torch, CUDA, Triton, ptxas, Python and NumPy."""
    import platform
    import subprocess

    import torch
    import triton
    from triton.backends.nvidia.compiler import get_ptxas_version

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    asked = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip().splitlines()
    name, driver = ([part.strip() for part in asked[0].split(",")] + ["?", "?"])[:2] if asked else ("?", "?")
    major, minor = torch.cuda.get_device_capability()
    return {
        "gpu": name,
        "driver": driver,
        "architecture": f"sm_{major}{minor}",
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": triton.__version__,
        "ptxas": get_ptxas_version().strip().splitlines()[-1],
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def missing_architecture(target: str) -> str | None:
    """Return a sentence that says why this machine does not launch kernels of an architecture, None if it does."""
    import torch

    if not torch.cuda.is_available():
        return f"this machine has no CUDA GPU; kernels for {target} are launched on one"
    major, minor = torch.cuda.get_device_capability()
    own = f"sm_{major}{minor}"
    return None if own == target else f"the GPU of this machine is {own}, and the kernels are for {target}"
