"""Times of fp8 products whose blocks of 128 values of k have scales: torch._scaled_mm against kernels with its bytes.

    python -m bitwise_bench.cublas.times.scaled_block_timing --out records/cublas-scaled-blocks-sm90-h200.json
    python -m bitwise_bench.cublas.times.scaled_block_timing --most 8 --out times.json

Each product runs under the launcher's own choice and, with --most, under that many schedules, and must return the
library's bytes.  Times are of consecutive launches in a CUDA graph, in microseconds, taken in turn.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from bitwise_bench.cublas.times.schedule_timing import row_class
from bitwise_bench.cublas.worker_processes import Parts
from bitwise_core.descriptors.problem import FinishedGEMM
from bitwise_nvidia_sm90.gemm.block_scaling import BlockScaling
from bitwise_nvidia_sm90.gemm.graph_times import in_turn
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.prepared_launches import compile_kernels, prepare
from bitwise_nvidia_sm90.gemm.scaled_blocks import prepare_scaled, schedules, triton_call
from bitwise_nvidia_sm90.gemm.schedule import Schedule

LAYERS = ((2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (5120, 5120), (3072, 8192))
"""n and k of layers of models whose weights have scales of blocks, and of two others."""
ROWS = (1, 16, 64, 128, 512, 2048, 4096)
BLOCKS = ((1, 128), (1, 1), (128, 1))
"""The rows of A, and the columns of B, that share a scale."""
Product: TypeAlias = tuple[int, int, int, tuple[int, int]]
"""m, n, k and the blocks of a product."""
_ROUNDS, _VECTOR = 3, 4
_DRAWN_FROM = 200
"""The schedules after the first ones, in their order, of which some are drawn."""
_POLL_SECONDS = 0.02


def layers() -> list[Product]:
    """Return m, n, k and the blocks of the products that are reported."""
    return [(m, n, k, blocks) for blocks in BLOCKS for m in ROWS for n, k in LAYERS]


def drawn(seed: int, count: int = 48) -> list[Product]:
    """Return m, n, k and the blocks of drawn products, most with more than 128 rows; no layer has their n and k.

    The library takes scales of rows of their own in lines of whole vectors of 16 bytes.
    """
    dice, found = random.Random(seed), list[Product]()
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


@dataclass(frozen=True, eq=False)
class Operands:
    """The operands of a product, its descriptor, and the order of its scales."""

    a: Any
    b: Any
    scales_a: Any
    scales_b: Any
    desc: FinishedGEMM

    @property
    def left_first(self) -> bool:
        """Whether a sum is multiplied by the scale of A alone first."""
        return self.desc.block_scaling == "left_first"

    @property
    def scaling(self) -> BlockScaling:
        """The scales, as kernels take them."""
        return BlockScaling(self.scales_a, self.scales_b, self.left_first)


def operands(given: Product) -> Operands:
    """Return drawn operands of a product, and what the library computes of them.  Raises NotCovered."""
    import torch

    from bitwise_torch.product_calls import described_call

    m, n, k, blocks = given
    generator = torch.Generator(device="cuda").manual_seed(m + n + k)
    a = torch.randn(m, k, device="cuda", generator=generator).to(torch.float8_e4m3fn)
    b = torch.randn(n, k, device="cuda", generator=generator).to(torch.float8_e4m3fn).t()
    scales_a, scales_b = scales(m, k, blocks[0], generator), scales(n, k, blocks[1], generator).t()
    _, desc = described_call("_scaled_mm", (a, b, scales_a, scales_b), {"out_dtype": torch.bfloat16}, "cublas")
    assert isinstance(desc, FinishedGEMM)
    return Operands(a, b, scales_a, scales_b, desc)


def output(given: Operands) -> Any:
    """Return an output of the product without values."""
    import torch

    return torch.empty(given.a.shape[0], given.b.shape[1], device="cuda", dtype=torch.bfloat16)


def to_try(given: Operands, out: Any, most: int, others: int) -> list[Schedule]:
    """Return the first `most` schedules, and `others` that are drawn from those after them."""
    if not most:
        return []
    ranked = schedules(
        plan(given.desc.product), given.a, given.b, out, given.scales_a, given.scales_b, left_first=given.left_first
    )
    later = ranked[most : most + _DRAWN_FROM]
    text = f"{tuple(given.a.shape)} {tuple(given.b.shape)} {tuple(given.scales_a.shape)} {tuple(given.scales_b.shape)}"
    return [*ranked[:most], *random.Random(text).sample(later, min(others, len(later)))]


def compiled(part: int, parts: int, problems: Sequence[Product], options: argparse.Namespace, ready: Any) -> None:
    """Compile the kernels of a share of the products, in order; `ready` holds the place of each that is done."""
    from bitwise_torch import NotCovered

    for place in range(part, len(problems), parts):
        with suppress(NotCovered):
            given = operands(problems[place])
            out, planned = output(given), plan(given.desc.product)
            call = triton_call(given.desc, given.a, given.b, out, given.scales_a, given.scales_b)
            call.kernel.warmup(grid=call.grid, **call.arguments, **call.constants, **call.options)
            # The first ones are those of the default and of a first call, too.
            for each in to_try(given, out, max(options.most, options.first_call, 1), options.others):
                with suppress(UnsupportedGEMM):
                    compile_kernels(planned, each, given.a, given.b, out, given.scaling)
        ready[place] = True


def measured(problem: Product, most: int, others: int = 0, first_call: int = 0) -> dict[str, Any]:
    """Return the record of one product, under `most` schedules and `others` that are drawn from those after them.

    `first_call` is the number of schedules of which the fastest is timed, as BITWISE_TIMED_SCHEDULES chooses it.
    """
    import torch

    from bitwise_torch import NotCovered

    m, n, k, blocks = problem
    record: dict[str, Any] = {"m": m, "n": n, "k": k, "blocks": list(blocks)}
    try:
        found = operands(problem)
    except NotCovered as error:
        return {**record, "declined": str(error)[:300]}
    a, b, scales_a, scales_b, desc = found.a, found.b, found.scales_a, found.scales_b, found.desc
    theirs = partial(torch._scaled_mm, a, b, scales_a, scales_b, out_dtype=torch.bfloat16)
    wanted, out = theirs(), output(found)
    given = tuple(each.data_ptr() for each in (a, b, out, scales_a, scales_b))
    launches: dict[str, Callable[[], Any]] = {"cublas": theirs}
    launches["default"] = partial(prepare_scaled(desc, a, b, scales_a, scales_b, out), *given)
    wrong = [] if torch.equal(out.view(torch.int16), wanted.view(torch.int16)) else ["default"]
    if first_call:
        out.fill_(-7.0)
        launches["first call"] = partial(prepare_scaled(desc, a, b, scales_a, scales_b, out, first_call), *given)
        wrong += [] if torch.equal(out.view(torch.int16), wanted.view(torch.int16)) else ["first call"]
    planned, names = plan(desc.product), dict[str, Schedule]()
    for each in to_try(found, out, most, others):
        out.fill_(-7.0)
        try:
            launch = prepare(desc.product, planned, each, a, b, out, scaling=found.scaling).launch
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
        prog="bitwise_bench.cublas.times.scaled_block_timing", description=(__doc__ or "").split("\n")[0]
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
    parser.add_argument("--count", type=int, default=48, help="the number of drawn products (default 48)")
    parser.add_argument("--processes", type=int, default=8, help="compile processes (default 8)")
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
    problems = (layers() if given.drawn is None else drawn(given.drawn, given.count))[given.skip :: given.every]
    rows: list[dict[str, Any]] = []
    deadline = time.time() + given.seconds
    with (
        multiprocessing.Manager() as manager,
        Parts(compiled, (problems, given, ready := manager.dict()), given.processes) as parts,
    ):
        for place, problem in enumerate(problems):
            while place not in ready and time.time() < deadline and parts.alive(place % given.processes):
                time.sleep(_POLL_SECONDS)
            if time.time() > deadline:
                break
            rows.append(measured(problem, given.most, given.others, given.first_call))
            head = {**found, "summary": {**summary(rows), "problems that were not reached": len(problems) - len(rows)}}
            lines = ",\n".join(json.dumps(row) for row in rows)
            text = f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{lines}\n]\n}}\n'
            given.out.write_text(text, encoding="utf-8")
    print(json.dumps(summary(rows), indent=1))
    return 1 if any(row.get("wrong") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
