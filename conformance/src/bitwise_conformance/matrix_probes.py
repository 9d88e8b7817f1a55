"""What a GPU's matrix units return for zero products, tiny sums and wide exponents (needs torch, Triton and a GPU).

`python -m bitwise_conformance.matrix_probes --out FILE` writes, per type and unit (mma.sync through a tile of 16
rows, wgmma through one of 64):
- the accumulators' bits after a step whose products are all zero, for accumulators +0, -0 and 1;
- the bits after products of -0 only, and after negative products too small for the result;
- the number of results that differ between the two units over random operands of wide exponents.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

TYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
DEPTH = {"float16": 16, "bfloat16": 16, "float32": 16, "float8_e4m3fn": 32, "float8_e5m2": 32}


def main(arguments: list[str] | None = None) -> int:
    """Runs all probes and writes their results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiles", type=int, default=200, help="random tiles per type")
    options = parser.parse_args(arguments)
    import torch
    import triton

    results: dict[str, Any] = {
        "environment": {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    }
    for name in TYPES:
        results[name] = {"zeros": _zeros(name), **_compare(name, options.tiles)}
    options.out.write_text(json.dumps(results, indent=1))
    print(json.dumps(results))
    return 0


def _run(left: Any, right: Any, start: Any) -> Any:
    import torch

    from bitwise_conformance.corpus.matrix_probes import fused_steps

    out = torch.empty_like(start)
    fused_steps[(1,)](left, right, start, out, left.shape[0], right.shape[1], left.shape[1], num_warps=4)
    return out


def _bits(value: Any) -> list[str]:
    import torch

    words = value.view(torch.int32).unique().cpu().tolist()
    return [f"{word & 0xFFFFFFFF:08x}" for word in words][:8]


def _zeros(name: str) -> dict[str, dict[str, list[str]]]:
    import torch

    kind, depth = getattr(torch, name), DEPTH[name]
    tiny = {
        "float16": 2.0**-14,
        "bfloat16": 2.0**-100,
        "float32": 2.0**-100,
        "float8_e4m3fn": 2.0**-9,
        "float8_e5m2": 2.0**-16,
    }[name]
    found: dict[str, dict[str, list[str]]] = {}
    for unit, rows in (("mma.sync", 16), ("wgmma", 64)):

        def filled(value: float, *shape: int) -> Any:
            return torch.full(shape, value, device="cuda", dtype=torch.float32)

        cases: dict[str, list[str]] = {}
        for label, a, b in (("+0*+0", 0.0, 0.0), ("-0*+0", -0.0, 0.0), ("-0*1", -0.0, 1.0), ("tiny", -tiny, tiny)):
            for start in (0.0, -0.0, 1.0):
                left, right = filled(a, rows, depth).to(kind), filled(b, depth, 64).to(kind)
                cases[f"{label} on {start}"] = _bits(_run(left, right, filled(start, rows, 64)))
        found[unit] = cases
    return found


def _compare(name: str, tiles: int) -> dict[str, int]:
    import torch

    kind, depth = getattr(torch, name), DEPTH[name]
    generator = torch.Generator(device="cuda").manual_seed(20)
    differing = total = 0
    for _ in range(tiles):

        def wide(*shape: int) -> Any:
            span = {"float16": 10, "bfloat16": 30, "float32": 30, "float8_e4m3fn": 6, "float8_e5m2": 12}[name]
            exponent = torch.randint(-span, span, shape, device="cuda", generator=generator).float()
            return torch.randn(shape, device="cuda", generator=generator) * torch.exp2(exponent)

        left, right, start = wide(64, depth).to(kind), wide(depth, 64).to(kind), wide(64, 64)
        whole = _run(left, right, start)
        for row in range(0, 64, 16):
            part = _run(left[row : row + 16].contiguous(), right, start[row : row + 16].contiguous())
            differing += int((part.view(torch.int32) != whole[row : row + 16].view(torch.int32)).sum())
            total += part.numel()
    return {"compared": total, "differing": differing}


if __name__ == "__main__":
    raise SystemExit(main())
