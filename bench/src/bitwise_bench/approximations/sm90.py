"""The approximate instructions of an sm_90 GPU against the functions of `bitwise_nvidia_sm90.approximations`.

    python -m bitwise_bench.approximations.sm90 --out FILE.json [--tables FOLDER] [--processes N]

Forms with .ftz are compared on all 2**32 operands, the others and the division on 2**27 random ones.
Needs torch, Triton and an sm_90 GPU.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.command_line import command_parser
from bitwise_nvidia_sm90.approximations import FUNCTIONS, Words, encode

CHUNK = 1 << 24
DRAWN_CHUNKS = 8
TABLE_OPERANDS = {"rcp": (0x3F800000, 1 << 23), "rsqrt": (0x3F800000, 1 << 24), "sqrt": (0x3F800000, 1 << 24)}


def instruction(name: str) -> str:
    """Return the PTX opcode of an operation."""
    return name.split("@")[0].replace(".fp32", ".f32")


def on_device(opcode: str, *operands: Words) -> Words:
    """Return the results of one instruction on the GPU, element by element, as uint32 bit patterns."""
    import torch
    import triton

    from bitwise_bench.corpus.kernels.approximations import binary, unary

    inputs = [torch.from_numpy(each.view(np.int32)).cuda() for each in operands]
    output = torch.empty_like(inputs[0])
    kernel, sources = (unary, "$1") if len(inputs) == 1 else (binary, "$1, $2")
    kernel[(triton.cdiv(output.numel(), 4096),)](
        *inputs, output, output.numel(), OPCODE=f"{opcode} $0, {sources};", BLOCK=4096
    )
    found: Words = output.cpu().numpy().view(np.uint32)
    return found


def measured_table(name: str) -> Words:
    """Return the results of the unit for every significand (see `approximations.REFERENCES`)."""
    if name == "ex2":
        operands = (np.arange(1 << 23) / 2.0**23).astype(np.float32).view(np.uint32)
    else:
        first, count = TABLE_OPERANDS[name]
        operands = np.arange(first, first + count, dtype=np.uint32)
    return on_device(f"{name}.approx.ftz.f32", operands)


def _drawn(seed: int) -> Words:
    """Return CHUNK random patterns: half uniform, half with exponents close to that of 1."""
    generator = np.random.default_rng(seed)
    words = generator.integers(0, 1 << 32, CHUNK, dtype=np.uint32)
    words[::2] = (words[::2] & np.uint32(0x83FFFFFF)) | np.uint32(0x3C000000)
    return words


def differing(task: tuple[str, int]) -> tuple[str, int, list[str]]:
    """Return the name, how many results of one chunk of operands differ, and the first three of them."""
    name, chunk = task
    first = np.arange(CHUNK, dtype=np.uint32) + np.uint32(chunk * CHUNK) if ".ftz" in name else _drawn(2 * chunk)
    operands = [first] if not name.startswith("div") else [first, _drawn(2 * chunk + 1)]
    device, here = on_device(instruction(name), *operands), FUNCTIONS[name](*operands)
    wrong = np.flatnonzero(device != here)
    shown = [" ".join(f"{int(each[index]):08x}" for each in (*operands, device, here)) for index in wrong[:3]]
    return name, len(wrong), shown


def _tasks() -> Iterator[tuple[str, int]]:
    for name in FUNCTIONS:
        if ".literal" not in name:
            yield from ((name, chunk) for chunk in range((1 << 32) // CHUNK if ".ftz" in name else DRAWN_CHUNKS))


def main(arguments: list[str] | None = None) -> int:
    """Measure and compare; the exit status is 1 where a result differs."""
    parser = command_parser("approximations.sm90", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="write the record here, as JSON")
    parser.add_argument("--tables", type=Path, help="write the measured tables to this folder")
    parser.add_argument("--processes", type=int, default=4, help="worker processes (default 4)")
    options = parser.parse_args(arguments)
    import torch
    import triton

    digests = {}
    for name in ("rcp", "rsqrt", "sqrt", "ex2"):
        results = measured_table(name)
        digests[name] = sha256(results.astype("<u4").tobytes()).hexdigest()
        if options.tables is not None:
            options.tables.mkdir(parents=True, exist_ok=True)
            (options.tables / f"{name}.xz").write_bytes(encode(name, results))
    compared: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for name, count, shown in pool.map(differing, _tasks(), chunksize=4):
            compared[name] += CHUNK
            wrong[name] += count
            if shown:
                examples.setdefault(name, shown)
    record: dict[str, Any] = {
        "environment": {
            "gpu": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "torch": torch.__version__,
            "triton": triton.__version__,
        },
        "tables": digests,
        "functions": {name: {"compared": compared[name], "different": wrong[name]} for name in compared},
        "examples": examples,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
