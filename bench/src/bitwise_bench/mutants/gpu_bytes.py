"""The bytes that Equal mutants return on a GPU, compared with those of the original.

    python -m bitwise_bench.mutants.detection_rate --survivors FOLDER
    python -m bitwise_bench.mutants.gpu_bytes FOLDER --out gpu_bytes.json

An Equal mutant with other bytes than its original is a soundness bug.  Needs torch and an sm_90 GPU.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.corpus.cases import Case
from bitwise_bench.draws.inputs import digest_of
from bitwise_bench.gpu.launching import cached_draw, download, upload
from bitwise_bench.worker_pool import PoisonedProcess, run_all
from bitwise_core.execution.launch import Launch, TensorMap, scalar_bits

DRAWS = ("normal", "wide", "zeros", "special")
SHARED_BYTES = 227 * 1024
SCRATCH_BYTES = 1 << 24
_ELEMENT_KINDS = {
    "u8": (0, 1),
    "i8": (0, 1),
    "fp8e4nv": (0, 1),
    "fp8e5": (0, 1),
    "u16": (1, 2),
    "i16": (1, 2),
    "u32": (2, 4),
    "i32": (3, 4),
    "fp16": (6, 2),
    "fp32": (7, 4),
    "fp64": (8, 8),
    "bf16": (9, 2),
}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


def _check(status: int, what: str) -> None:
    if status:
        raise PoisonedProcess(f"{what} failed with CUDA error {status}")


@lru_cache(maxsize=1)
def _driver() -> Any:
    import torch

    torch.zeros(1, device="cuda")
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(maxsize=4)
def _function(path: str, entry: str) -> Any:
    """Return the kernel of a PTX file, assembled without contraction, and its dynamic shared memory in bytes."""
    from triton import knobs

    ptxas = knobs.nvidia.ptxas.path
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        command = [ptxas, "-arch=sm_90a", "--fmad=false", path, "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ValueError(f"ptxas refuses {path}: {done.stderr.strip()[:300]}")
        image = cubin.read_bytes()
    driver = _driver()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(driver.cuModuleLoadData(ctypes.byref(module), image), "loading")
    _check(driver.cuModuleGetFunction(ctypes.byref(function), module, entry.encode()), "finding the entry")
    static = ctypes.c_int()
    driver.cuFuncGetAttribute(ctypes.byref(static), 1, function)
    _check(driver.cuFuncSetAttribute(function, 8, SHARED_BYTES - static.value), "setting shared memory")
    return function, SHARED_BYTES - static.value


def _tensor_map(described: TensorMap, address: int) -> Any:
    if described.fp4_padded or described.round_f32_to_tf32:
        raise ValueError("tensor maps of padded or rounded elements are not encoded here")
    kind, width = _ELEMENT_KINDS[described.dtype]
    rank = len(described.shape)
    store = ctypes.create_string_buffer(128 + 64)
    place = (ctypes.addressof(store) + 63) // 64 * 64
    sizes = (ctypes.c_uint64 * rank)(*described.shape[::-1])
    strides = (ctypes.c_uint64 * max(1, rank - 1))(*[stride * width for stride in described.strides[::-1][1:]])
    box = (ctypes.c_uint32 * rank)(*described.block[::-1])
    steps = (ctypes.c_uint32 * rank)(*[1] * rank)
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(place),
        kind,
        rank,
        ctypes.c_void_p(address + described.offset),
        sizes,
        strides,
        box,
        steps,
        0,
        _SWIZZLES[described.swizzle],
        2,
        0,
    )
    if status:
        raise ValueError(f"the tensor map cannot be encoded: CUDA error {status}")
    return store, place


def launch_bytes(path: str, launch: Launch, parameters: int, case: Case, kind: str) -> list[str]:
    """Return the hashes of the outputs of one launch on new inputs of `kind`."""
    import torch

    assert launch.entry is not None
    assert launch.block is not None
    function, shared = _function(path, launch.entry)
    group = f"{case.family}/{case.group}"
    tensors: dict[str, Any] = {}
    for array in case.arrays:
        if array.name not in tensors:
            tensors[array.name] = upload(array, cached_draw(array, group, kind, 0), "cuda")
    held: list[Any] = []
    pointers: list[int] = []
    for argument in launch.args:
        if argument.tensor_map is not None:
            store, place = _tensor_map(argument.tensor_map, tensors[argument.tensor_map.buffer].data_ptr())
            held.append(store)
            pointers.append(place)
            continue
        if argument.kind == "buffer":
            cell: Any = ctypes.c_uint64(0 if argument.buffer is None else tensors[argument.buffer].data_ptr())
        else:
            bits, width = scalar_bits(argument)
            cell = ctypes.create_string_buffer(bits.to_bytes(width, "little"), width)
        held.append(cell)
        pointers.append(ctypes.addressof(cell))
    for _ in range(parameters - len(launch.args)):
        scratch = torch.zeros(SCRATCH_BYTES, dtype=torch.uint8, device="cuda")
        cell = ctypes.c_uint64(scratch.data_ptr())
        held += [scratch, cell]
        pointers.append(ctypes.addressof(cell))
    table = (ctypes.c_void_p * len(pointers))(*pointers)
    torch.cuda.synchronize()
    _check(_driver().cuLaunchKernel(function, *launch.grid, *launch.block, shared, None, table, None), "launching")
    _check(_driver().cuCtxSynchronize(), "running")
    return [digest_of(download(array, tensors[array.name]), array.dtype) for array in case.outputs]


def compare_bytes(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Compare the bytes of one survivor, given by its index, with those of its original; a job for `run_all`."""
    from bitwise_bench.corpus import catalogue
    from bitwise_core.plugins import registry

    folder = Path(settings["folder"])
    entry = json.loads((folder / "survivors.json").read_text())[int(name)]
    case = catalogue.by_id()[entry["kernel"]]
    launch = Launch.model_validate(entry["launch"])
    original, mutant = str(folder / entry["original"]), str(folder / entry["file"])
    parameters = len(
        registry.default().arch("sm_90").parse(Path(original).read_text(), original).kernel(launch.entry).parameters
    )
    differs, nondeterministic = [], []
    for kind in DRAWS:
        expected = launch_bytes(original, launch, parameters, case, kind)
        if launch_bytes(original, launch, parameters, case, kind) != expected:
            nondeterministic.append(kind)
        found = [launch_bytes(mutant, launch, parameters, case, kind) for _ in range(2)]
        if any(row != expected for row in found):
            differs.append(kind)
    return {
        "digest": normalised_digest(Path(mutant).read_text())[:16],
        "differs": differs,
        "nondeterministic": nondeterministic,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every survivor; the exit status is 1 where one returns other bytes than its original."""
    parser = command_parser("mutants.gpu_bytes", __doc__)
    parser.add_argument(
        "folder", type=Path, help="the folder written by `bitwise_bench.mutants.detection_rate --survivors`"
    )
    parser.add_argument("--out", type=Path, required=True, help="write the results here, as JSON")
    parser.add_argument("--processes", type=int, default=12, help="worker processes (default 12)")
    parser.add_argument("--seconds", type=float, default=40.0, help="time limit of one mutant (default 40)")
    parser.add_argument("--first", type=int, help="the first N survivors only", metavar="N")
    chosen = parser.parse_args(arguments)
    entries = json.loads((chosen.folder / "survivors.json").read_text())
    names = [str(index) for index in range(len(entries))][: chosen.first]
    batches = [names[start : start + 8] for start in range(0, len(names), 8)]
    answers = run_all(
        compare_bytes,
        batches,
        {"folder": str(chosen.folder)},
        processes=chosen.processes,
        seconds=chosen.seconds,
        report=lambda name, answer: None,
    )
    keys = ("kernel", "kind", "line", "before", "after")
    found = [
        {**{key: entry[key] for key in keys}, **answers[str(index)]}
        for index, entry in enumerate(entries)
        if str(index) in answers
    ]
    from bitwise_bench.gpu.launching import environment

    chosen.out.write_text(json.dumps({"environment": environment(), "mutants": found}, indent=1) + "\n")
    for verdict in ("error", "nondeterministic", "differs"):
        print(verdict, dict(Counter(entry["kind"] for entry in found if entry.get(verdict))))
    print(
        "same",
        dict(
            Counter(
                entry["kind"] for entry in found if entry.get("differs") == [] and not entry.get("nondeterministic")
            )
        ),
    )
    return 1 if any(entry.get("differs") for entry in found) else 0


if __name__ == "__main__":
    sys.exit(main())
