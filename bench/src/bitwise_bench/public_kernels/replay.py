"""The configurations of an intercepted launch, compiled, and run from the same inputs; hashes of what they write."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.draws.inputs import digest_of
from bitwise_bench.public_kernels.block_orders import has_atomic_operations
from bitwise_bench.public_kernels.configurations import Configuration
from bitwise_bench.public_kernels.interception import (
    MAXIMUM_BLOCKS,
    Intercepted,
    Storage,
    replaced_tensors,
)
from bitwise_bench.public_kernels.package_compilation import package_kernel
from bitwise_bench.public_kernels.residue import FILLINGS, filled, leave
from bitwise_triton.compilation import CompiledKernel
from bitwise_triton.errors import CaptureError
from bitwise_triton.tensor_contents import buffer_bytes, give_tensors, state_sizes

DRAWS = ("captured", "perturbed.1", "perturbed.2", "shuffled", "wide", "normal")
"""The contents of tensors of floats: those of the launch; their multiples by random factors around 1; these in another
order; these times powers of two; and normal numbers times powers of two, positive where all of the launch are.  Tensors
of integers and booleans keep their contents, which the manifest has."""

REPEATS = len(FILLINGS)
"""Runs from each draw with nothing else on the GPU, each with another filling of the memory that nothing wrote."""

DISTURBED = {False: 5, True: 60}
"""Runs from each draw beside other work, without and with atomic operations in the kernel."""

UNCHANGED = "-"
"""The hash of a memory to which nothing was written, or what it held already."""

BEYOND_BUFFERS = "the kernel changed memory that is no argument of it"

_NAMES = {
    "torch.float16": "fp16",
    "torch.bfloat16": "bf16",
    "torch.float32": "fp32",
    "torch.float64": "fp64",
    "torch.float8_e4m3fn": "fp8e4nv",
    "torch.float8_e5m2": "fp8e5",
}


class DeviceLost(RuntimeError):
    """The GPU cannot be used from this process any more."""


class ChangedBeyond(RuntimeError):
    """A kernel changed memory behind one of its buffers."""


@dataclass(frozen=True)
class Compiled:
    """A configuration, its compiled kernel, and the function that launches it with tensors over other memory.

    `cpu_seconds` are those of compiling it, with the assembler.
    """

    kernel: CompiledKernel
    digest: str
    launch: Callable[[Mapping[int, Any]], None]
    cpu_seconds: float
    configuration: Configuration | None = None


def compiled_configurations(launch: Intercepted) -> tuple[list[Compiled], list[str]]:
    """Return the different kernels of a launch, and the errors of configurations that do not compile."""
    memory = {address: storage.tensor for address, storage in launch.storages.items()}
    found: dict[object, Compiled] = {}
    errors = []
    for configuration in launch.configurations:
        try:
            compile_one = _compiled if launch.arguments is None else _compiled_by_inductor
            one = compile_one(launch, configuration, memory)
        except CaptureError as error:
            errors.append(str(error)[:300])
            continue
        grid = one.kernel.grid
        if grid[0] * grid[1] * grid[2] > MAXIMUM_BLOCKS:
            errors.append(f"{one.kernel.name}: {grid[0] * grid[1] * grid[2]} blocks")
            continue
        found.setdefault((one.digest, grid), replace(one, configuration=configuration))
    return list(found.values()), errors


def _compiled(launch: Intercepted, configuration: Configuration, memory: Mapping[int, Any]) -> Compiled:
    from triton.runtime.driver import driver

    values = {name: replaced_tensors(value, memory) for name, value in configuration.values.items()}
    target = driver.active.get_current_target()
    kernel, used = package_kernel(launch, configuration, values, target)

    def run(other: Mapping[int, Any]) -> None:
        passed = {name: replaced_tensors(value, other) for name, value in configuration.values.items()}
        if configuration.hook is not None:
            configuration.hook(dict(passed))
        launch.kernel.run(grid=configuration.grid, warmup=False, **passed, **configuration.options)

    return Compiled(kernel, normalised_digest(kernel.assembly), run, used)


def _compiled_by_inductor(launch: Intercepted, configuration: Configuration, memory: Mapping[int, Any]) -> Compiled:
    import torch

    from bitwise_triton.inductor.launches import launch_tensors, launch_values, launched_kernel

    assert launch.arguments is not None
    launcher = configuration.options["launcher"]
    result = getattr(launcher, "bitwise_result", None)
    if result is None:
        raise CaptureError(f"{launch.name}: a launcher without its compile result")
    arguments = tuple(replaced_tensors(value, memory) for value in launch.arguments)
    try:
        kernel = launched_kernel(launch.kernel, result, arguments)
        recorded = launch_tensors(launch.kernel, result, arguments, True, 1 << 20)
        kernel = give_tensors(kernel, recorded)
        kernel = state_sizes(kernel, buffer_bytes(launch_values(launch.kernel, result, arguments)))
        kernel = replace(kernel, compile_seconds=getattr(result, "bitwise_seconds", 0.0))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CaptureError(f"{launch.name}: {type(error).__name__}: {error}") from None
    positional = launch.arguments

    def run(other: Mapping[int, Any]) -> None:
        passed = [replaced_tensors(value, other) for value in positional]
        launcher(*passed, stream=torch.cuda.current_stream().cuda_stream)

    return Compiled(kernel, normalised_digest(kernel.assembly), run, getattr(result, "bitwise_cpu_seconds", 0.0))


def drawn(storages: Mapping[int, Storage], draw: str, seed: str) -> dict[int, Any]:
    """Return new memory with the contents of a draw, as bytes by the old address."""
    return {
        address: _drawn(storage, draw, f"{seed} {place}") for place, (address, storage) in enumerate(storages.items())
    }


def _drawn(storage: Storage, draw: str, seed: str) -> Any:
    import torch

    whole, dtype = storage.tensor, storage.dtype
    if draw == DRAWS[0] or dtype is None or not dtype.is_floating_point or whole.numel() % dtype.itemsize:
        return whole.clone()
    number = int.from_bytes(hashlib.sha256(f"{seed} {draw}".encode()).digest()[:6], "little")
    generator = torch.Generator().manual_seed(number)
    found, count = whole.view(dtype), whole.numel() // dtype.itemsize
    if dtype.itemsize == 1:  # random factors would leave few of the values of 8 bits
        order = torch.randperm(count, generator=generator).to(whole.device)
        return whole[order] if draw in ("shuffled", "wide") else whole.clone()
    if draw == "normal":
        numbers = torch.randn(count, generator=generator)
        numbers *= torch.exp2(torch.randint(-6, 7, (count,), generator=generator).float())
        positive = bool((found.to(torch.float64) >= 0).all())
        numbers = numbers.abs() if positive else numbers
        return numbers.to(whole.device).to(dtype).contiguous().view(torch.uint8)
    factors = 0.875 + 0.25 * torch.rand(count, generator=generator)
    if draw in ("shuffled", "wide"):
        found = found[torch.randperm(count, generator=generator).to(whole.device)]
    if draw == "wide":
        reach = 4 if dtype == torch.float16 else 8
        factors *= torch.exp2(torch.randint(-reach, reach + 1, (count,), generator=generator).float())
    scaled = found.to(torch.float64) * factors.to(whole.device).to(torch.float64)
    return scaled.to(dtype).contiguous().view(torch.uint8)


def recorded_bytes(launch: Intercepted, compiled: Sequence[Compiled]) -> list[dict[str, Any]]:
    """Return for each kernel the hashes of all its memory after a run, by draw, and whether repetitions agree.

    Raises DeviceLost after a fault of the device.
    """
    import torch

    hashes: list[dict[str, Any]] = [{"hashes": [], "moved": [], "error": None} for _ in compiled]
    for draw in DRAWS:
        inputs = drawn(launch.storages, draw, launch.name)
        kept = {address: each.to("cpu", copy=True) for address, each in inputs.items()}
        for one, entry in zip(compiled, hashes, strict=True):
            if entry["error"] is not None:
                continue
            try:
                rows = [_hashes(launch, inputs, _one_run(one, inputs, filling)) for filling in FILLINGS]
                rows += _disturbed_rows(launch, one, inputs)
            except ChangedBeyond:
                rows = []
            except Exception as error:
                entry["error"] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                check_device(error)
                continue
            changed = [address for address, each in inputs.items() if not torch.equal(each.cpu(), kept[address])]
            if changed or not rows:  # a kernel that writes beyond its buffers leaves other inputs to the next one
                entry["error"] = BEYOND_BUFFERS
                inputs |= {address: kept[address].to(inputs[address].device, copy=True) for address in changed}
                continue
            entry["hashes"].append(rows[0])
            if any(row != rows[0] for row in rows):
                entry["moved"].append(draw)
    return hashes


def check_device(error: BaseException) -> None:
    """Raise DeviceLost if the device cannot be used any more."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").cpu()
    except Exception:
        raise DeviceLost(f"{type(error).__name__}: {error}") from error


def _disturbed_rows(launch: Intercepted, one: Compiled, inputs: Mapping[int, Any]) -> list[list[str]]:
    """Return the hashes of runs beside other work that left other bytes than the first of them, and of that one."""
    import torch

    first: dict[int, Any] | None = None
    rows = []
    for _ in range(DISTURBED[has_atomic_operations(one.kernel.assembly)]):
        memory = _one_run(one, inputs, FILLINGS[0], _disturb)
        if first is None or any(not torch.equal(memory[address], first[address]) for address in memory):
            rows.append(_hashes(launch, inputs, memory))
            first = memory if first is None else first
    return rows


def _disturb() -> None:
    from bitwise_bench.public_kernels.disturbance import disturbance

    disturbance().start()


def _one_run(
    one: Compiled, inputs: Mapping[int, Any], filling: int, before: Callable[[], object] = lambda: None
) -> dict[int, Any]:
    """Return the memory after a run from the inputs; `before` is called before the launch.

    Memory that nothing wrote has the byte `filling`.  Raises ChangedBeyond.
    """
    import torch

    memory, behind = {}, []
    for address, bytes_ in inputs.items():
        memory[address], rest = filled(bytes_, filling)
        behind.append(rest)
    leave(filling)
    torch.cuda.synchronize()
    before()
    one.launch(memory)
    torch.cuda.synchronize()
    if behind and not bool((torch.cat(behind) == filling).all()):
        raise ChangedBeyond(BEYOND_BUFFERS)
    return memory


def _hashes(launch: Intercepted, inputs: Mapping[int, Any], memory: Mapping[int, Any]) -> list[str]:
    import torch

    row = []
    for address, after in memory.items():
        if torch.equal(after, inputs[address]):
            row.append(UNCHANGED)
            continue
        name = _NAMES.get(str(launch.storages[address].dtype), "u8")
        data = np.asarray(after.cpu().numpy())
        width = launch.storages[address].dtype.itemsize if name != "u8" else 1
        row.append(digest_of(data[: data.size - data.size % width].view(f"u{width}"), name))
    return row


def write_for_target(folder: Path, launch: Intercepted, target: str, compiled: Sequence[Compiled], bytes_: Any) -> None:
    """Write the configurations of a launch compiled for a target on which they cannot run.

    A kernel has no hashes, and moved as that of its configuration did that ran.
    """
    from bitwise_bench.public_kernels.other_targets import compiled_for

    kernels, moved, errors = [], [], []
    for place, one in enumerate(compiled):
        assert one.configuration is not None
        try:
            kernel, digest, seconds = compiled_for(launch, one.configuration, target)
        except CaptureError as error:
            errors.append(str(error)[:300])
            continue
        kernels.append(Compiled(kernel, digest, lambda memory: None, seconds))
        ran = {"moved": [], "error": None} if not bytes_ else bytes_[place]
        moved.append({"hashes": [], "moved": ran["moved"], "error": ran["error"]})
    if kernels:
        write_launch(folder, launch, kernels, errors, moved)


def write_launch(
    folder: Path, launch: Intercepted, compiled: Sequence[Compiled], errors: Sequence[str], bytes_: Any
) -> None:
    """Write a launch to a folder: its kernels, `manifest.json`, and `bytes.json`, which is written last.

    What an earlier run left there is removed.
    """
    from bitwise_triton.configurations import write_folder

    shutil.rmtree(folder, ignore_errors=True)
    names = [f"{place:02d}" for place in range(len(compiled))]
    write_folder([one.kernel for one in compiled], folder, names)
    entries = []
    for place, (name, one) in enumerate(zip(names, compiled, strict=True)):
        entry = {
            "file": f"{name}.{one.kernel.extension}",
            "name": one.kernel.name,
            "digest": one.digest,
            "compile seconds": round(one.kernel.compile_seconds, 3),
            "compile CPU seconds": round(one.cpu_seconds, 3),
        }
        entries.append({**entry, **(bytes_[place] if bytes_ else {})})
    content = {
        "kernel": launch.name,
        "tuned": launch.own,
        "left out": launch.left_out,
        "errors": list(errors),
        "draws": list(DRAWS) if bytes_ else [],
        "repeats": REPEATS,
        "fillings": list(FILLINGS),
        "disturbed runs": DISTURBED[False],
        "disturbed runs with atomic operations": DISTURBED[True],
        "kernels": entries,
    }
    (folder / "bytes.json").write_text(json.dumps(content) + "\n")
