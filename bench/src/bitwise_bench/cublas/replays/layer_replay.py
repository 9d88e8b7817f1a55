"""Forward and backward steps of layers, recorded on one GPU and replayed with identical bits on another.

    python -m bitwise_bench.cublas.replays.layer_replay record --lock layers.lock.json --bytes layers.bytes.json
    python -m bitwise_bench.cublas.replays.layer_replay replay --lock layers.lock.json --bytes layers.bytes.json \
        --out FILE

The step has a layer without a bias, one with a bias, and a batch of products of its outputs, in fp16 and bf16 and for
several row counts. Weights and inputs are hashed from counters. All outputs and all gradients that products compute
are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.portable_operands import Operands
from bitwise_torch import locked_products, recorded_products
from bitwise_torch.locks import read_lock

CASES = tuple((dtype, rows, width) for dtype in ("fp16", "bf16") for rows, width in (
    (16, 4096), (48, 2048), (64, 5120), (256, 2048), (512, 4096), (2048, 2048),
))  # fmt: skip
"""Operand type, rows of the input, and width of the layers."""


def step(operands: Operands, dtype: str, rows: int, width: int) -> dict[str, Any]:
    """Outputs and gradients of one step, by name."""
    import torch
    from torch.nn.functional import linear, relu

    pool = operands.pool(dtype, "flat")

    def taken(start: int, *shape: int) -> Any:
        size = 1
        for each in shape:
            size *= each
        return pool[start : start + size].view(shape).clone().requires_grad_()

    x, first, second = taken(0, rows, width), taken(1 << 12, width, width), taken(1 << 14, width, width)
    bias = taken(1 << 16, width)
    hidden = relu(linear(x, first)) * 2**-6
    y = linear(hidden, second, bias)
    heads = (y * 2**-6).view(4, rows // 4, width)
    scores = torch.bmm(heads, heads.transpose(1, 2))
    loss = y.float().square().mean() + scores.float().mean()
    loss.backward()
    return {"hidden": hidden, "y": y, "scores": scores, "x.grad": x.grad, "first.grad": first.grad,
            "second.grad": second.grad}  # fmt: skip


def hashes(found: dict[str, Any]) -> dict[str, str]:
    """The first digits of a hash of each tensor's bytes."""
    import torch

    def digest(tensor: Any) -> str:
        data = tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes()
        return hashlib.sha256(data).hexdigest()[:16]

    return {name: digest(tensor) for name, tensor in found.items()}


def record(given: argparse.Namespace, operands: Operands) -> int:
    """Write the lock of all cases and the hashes."""
    rows = {}
    with recorded_products("cublas", operators=False) as recording:
        for case in CASES:
            rows[" ".join(map(str, case))] = hashes(step(operands, *case))
    lock = recording.lock()
    lock.write(given.lock)
    given.bytes.write_text(json.dumps({**lock.provenance, "seed": operands.seed, "cases": rows}, indent=1) + "\n")
    declined = [f"{each.problem.words}: {each.declined}" for each in lock.entries if each.declined]
    print(
        json.dumps({"products": len(lock.entries), "declined": declined, "left": dict(recording.not_locked)}, indent=1)
    )
    return 0


def replay(given: argparse.Namespace, operands: Operands) -> int:
    """Run every case unlocked and from the lock. The exit status is 1 if a replayed tensor differs."""
    from bitwise_cublas_profiles.library_profile import PYTORCH_LIBRARY

    wanted = json.loads(given.bytes.read_text(encoding="utf-8"))
    lock = read_lock(given.lock)
    found: dict[str, dict[str, list[str]]] = {}
    reports: list[str] = []
    for case in CASES:
        name = " ".join(map(str, case))
        for how in ("unlocked", "locked"):
            with locked_products(lock, "pass") if how == "locked" else nullcontext() as replayed:
                mine = hashes(step(operands, *case))
            other = [each for each, digest in mine.items() if digest != wanted["cases"][name][each]]
            found.setdefault(name, {})[how] = other
            reports += [f"{name}: {each}" for each in replayed.report()] if replayed is not None else []
    content = {
        "recorded": {name: wanted[name] for name in ("library", "device", "driver", "torch")},
        "replayed": PYTORCH_LIBRARY.provenance(None), "tensors": sum(len(each) for each in wanted["cases"].values()),
        "other bytes unlocked": sum(len(each["unlocked"]) for each in found.values()),
        "other bytes locked": sum(len(each["locked"]) for each in found.values()),
        "other bytes by case": found, "reports": reports,
    }  # fmt: skip
    given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(content, indent=1))
    return 1 if content["other bytes locked"] else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or replay."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.replays.layer_replay", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("what", choices=("record", "replay"))
    parser.add_argument("--lock", type=Path, required=True, help="the lock file")
    parser.add_argument("--bytes", type=Path, required=True, help="the file of hashes")
    parser.add_argument("--out", type=Path, help="the record of a replay")
    parser.add_argument("--seed", type=int, default=11, help="seed of weights and inputs (default 11)")
    given = parser.parse_args(arguments)
    if given.what == "replay" and given.out is None:
        parser.error("replay needs --out")
    operands = Operands(given.seed)
    return record(given, operands) if given.what == "record" else replay(given, operands)


if __name__ == "__main__":
    sys.exit(main())
