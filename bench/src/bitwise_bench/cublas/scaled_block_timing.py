"""Times of fp8 products whose blocks of 128 values of k have scales: torch._scaled_mm against kernels with its bytes.

    python -m bitwise_bench.cublas.scaled_block_timing --out records/cublas-scaled-blocks-sm90-h200.json
    python -m bitwise_bench.cublas.scaled_block_timing --most 8 --out times.json

Each product runs under the launcher's own choice and, with --most, under that many schedules, and must return the
library's bytes.  Times are of consecutive launches in a CUDA graph, in microseconds, taken in turn.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bitwise_bench.cublas.schedule_timing import row_class
from bitwise_nvidia_sm90.gemm.block_scaling import BlockScaling
from bitwise_nvidia_sm90.gemm.graph_times import in_turn
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.prepared_launches import prepare
from bitwise_nvidia_sm90.gemm.scaled_blocks import prepare_scaled, schedules
from bitwise_nvidia_sm90.gemm.schedule import Schedule

LAYERS = ((2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (5120, 5120), (3072, 8192))
"""n and k of layers of models whose weights have scales of blocks, and of two others."""
ROWS = (1, 16, 64, 128, 512, 2048, 4096)
BLOCKS = ((1, 128), (1, 1), (128, 1))
"""The rows of A, and the columns of B, that share a scale."""
_ROUNDS, _VECTOR = 3, 4
_DRAWN_FROM = 120
"""The schedules after the first ones, in their order, of which some are drawn."""


def layers() -> list[tuple[int, int, int, tuple[int, int]]]:
    """Return m, n, k and the blocks of the products that are reported."""
    return [(m, n, k, blocks) for blocks in BLOCKS for m in ROWS for n, k in LAYERS]


def drawn(seed: int, count: int = 48) -> list[tuple[int, int, int, tuple[int, int]]]:
    """Return m, n, k and the blocks of drawn products, most with more than 128 rows; no layer has their n and k.

    The library takes scales of rows of their own in lines of whole vectors of 16 bytes.
    """
    dice, found = random.Random(seed), list[tuple[int, int, int, tuple[int, int]]]()
    while len(found) < count:
        first, last = ((1, 16), (17, 128), (129, 1024), (1025, 4096), (257, 1024), (129, 4096))[len(found) // 3 % 6]
        n, k = 128 * round(2 ** dice.uniform(4, 7)), 512 * round(2 ** dice.uniform(2, 5))  # scales fill whole lines
        m = round(math.exp(dice.uniform(math.log(first), math.log(last))))
        blocks = BLOCKS[len(found) % 3]
        if (n, k) not in LAYERS:
            found.append((_VECTOR * -(-m // _VECTOR) if blocks[0] == 1 else m, n, k, blocks))
    return found


def scales(rows: int, k: int, shared: int, generator: Any) -> Any:
    """Return scales of `shared` rows and 128 values of k each, as PyTorch takes them."""
    import torch

    found = torch.rand(-(-rows // shared), k // 128, device="cuda", generator=generator) + 0.01
    if shared == 1:
        return found.t().contiguous().t()
    padded = torch.zeros(found.shape[0], 4 * -(-found.shape[1] // 4), device="cuda")
    padded[:, : found.shape[1]] = found
    return padded[:, : found.shape[1]]


def measured(
    m: int, n: int, k: int, blocks: tuple[int, int], most: int, others: int = 0, first_call: int = 0
) -> dict[str, Any]:
    """Return the record of one product, under `most` schedules and `others` that are drawn from those after them.

    `first_call` is the number of schedules of which the fastest is timed, as BITWISE_TIMED_SCHEDULES chooses it.
    """
    import torch

    from bitwise_core.descriptors.problem import FinishedGEMM
    from bitwise_torch import NotCovered
    from bitwise_torch.product_calls import described_call

    generator = torch.Generator(device="cuda").manual_seed(m + n + k)
    a = torch.randn(m, k, device="cuda", generator=generator).to(torch.float8_e4m3fn)
    b = torch.randn(n, k, device="cuda", generator=generator).to(torch.float8_e4m3fn).t()
    scales_a, scales_b = scales(m, k, blocks[0], generator), scales(n, k, blocks[1], generator).t()
    options = {"out_dtype": torch.bfloat16}
    record: dict[str, Any] = {"m": m, "n": n, "k": k, "blocks": list(blocks)}
    try:
        _, desc = described_call("_scaled_mm", (a, b, scales_a, scales_b), options, "cublas")
    except NotCovered as error:
        return {**record, "declined": str(error)[:300]}
    assert isinstance(desc, FinishedGEMM)
    theirs = partial(torch._scaled_mm, a, b, scales_a, scales_b, **options)
    wanted, out = theirs(), torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    given = tuple(each.data_ptr() for each in (a, b, out, scales_a, scales_b))
    launches: dict[str, Callable[[], Any]] = {"cublas": theirs}
    launches["default"] = partial(prepare_scaled(desc, a, b, scales_a, scales_b, out), *given)
    wrong = [] if torch.equal(out.view(torch.int16), wanted.view(torch.int16)) else ["default"]
    if first_call:
        out.fill_(-7.0)
        launches["first call"] = partial(prepare_scaled(desc, a, b, scales_a, scales_b, out, first_call), *given)
        wrong += [] if torch.equal(out.view(torch.int16), wanted.view(torch.int16)) else ["first call"]
    planned, left_first = plan(desc.product), desc.block_scaling == "left_first"
    scaling, names = BlockScaling(scales_a, scales_b, left_first), dict[str, Schedule]()
    ranked = schedules(planned, a, b, out, scales_a, scales_b, left_first=left_first) if most else []
    later = ranked[most : most + _DRAWN_FROM]
    drawn_later = random.Random(str((m, n, k, blocks))).sample(later, min(others, len(later)))
    for each in (*ranked[:most], *drawn_later):
        if len(names) == most + others:
            break
        try:
            launch = prepare(desc.product, planned, each, a, b, out, scaling=scaling).launch
        except UnsupportedGEMM:
            continue
        names[str(len(names))] = each
        launches[str(len(names) - 1)] = partial(launch, *given)
        if not torch.equal(out.view(torch.int16), wanted.view(torch.int16)):
            wrong.append(str(each))
    times = in_turn(launches, _ROUNDS)
    usual = asdict(Schedule(0))
    record |= {"descriptor": desc.product.to_text(), "order": desc.block_scaling, "wrong": wrong}
    record |= {name: round(times[name], 2) for name in ("cublas", "default", "first call") if name in times}
    if names:
        record["times"] = [
            [{name: value for name, value in asdict(each).items() if value != usual[name]}, round(times[place], 2)]
            for place, each in names.items()
        ]
    return record


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return geometric means of the library's time over ours: of all, by blocks and by rows; the least is `slowest`."""
    timed = [(row, row["cublas"] / row["default"]) for row in rows if "default" in row]
    groups: dict[str, list[float]] = {}
    for row, ratio in timed:
        for name in ("all", "x".join(map(str, row["blocks"])), row_class(row["m"])):
            groups.setdefault(name, []).append(ratio)
    chosen = [row["cublas"] / row["first call"] for row in rows if "first call" in row]
    if chosen:
        groups["first call"] = chosen
    return {
        **{name: round(math.exp(sum(map(math.log, each)) / len(each)), 3) for name, each in groups.items()},
        **({"first call, slowest": round(min(chosen), 3)} if chosen else {}),
        "slowest": round(min((ratio for _, ratio in timed), default=0.0), 3), "products": len(timed),
        "declined": len(rows) - len(timed), "other bytes": sum(len(row.get("wrong", ())) for row in rows),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print.  The exit status is 1 if bytes differ."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.scaled_block_timing", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=0, help="schedules tried of every product (default 0)")
    parser.add_argument(
        "--first-call", type=int, default=0, help="time the fastest of so many as at a first call (default 0)"
    )
    parser.add_argument("--others", type=int, default=0, help="schedules drawn from those after them (default 0)")
    parser.add_argument("--drawn", type=int, help="time products drawn from this seed, not the layers")
    parser.add_argument("--every", type=int, default=1, help="take every so many products (default 1)")
    parser.add_argument("--skip", type=int, default=0, help="leave out this many products before (default 0)")
    parser.add_argument("--seconds", type=float, default=60.0, help="start no product after this time (default 60)")
    given = parser.parse_args(arguments)
    import torch

    from bitwise_cublas_profiles.library import Library

    with Library() as library:
        version = library.version
    found: dict[str, Any] = {
        "environment": {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "library": version}
    }
    found["set"] = "layers" if given.drawn is None else f"drawn from {given.drawn}"
    problems = (layers() if given.drawn is None else drawn(given.drawn))[given.skip :: given.every]
    rows: list[dict[str, Any]] = []
    deadline = time.time() + given.seconds
    for problem in problems:
        if time.time() > deadline:
            break
        rows.append(measured(*problem, given.most, given.others, given.first_call))
        head = {**found, "summary": {**summary(rows), "problems that were not reached": len(problems) - len(rows)}}
        lines = ",\n".join(json.dumps(row) for row in rows)
        given.out.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{lines}\n]\n}}\n', encoding="utf-8")
    print(json.dumps(summary(rows), indent=1))
    return 1 if any(row.get("wrong") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
