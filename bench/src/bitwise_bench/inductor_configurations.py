"""Times of many configurations of each reduction that TorchInductor generates for a model, free and pinned.

    python -m bitwise_bench.inductor_configurations --models mlp decoder --folder configurations

A GPU is needed.  The folder gets the source of each kernel and `times.jsonl`: for each configuration its time, its
registers, and the layouts of its reductions.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_bench.inductor_models import OPEN, built

_TIMED = 15
_FLUSHED_BYTES = 128 << 20
_AT_ONCE = 6
"""Configurations that one process of the pool compiles."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = command_parser("inductor_configurations", __doc__)
    parser.add_argument("--models", nargs="+", choices=tuple(OPEN), default=tuple(OPEN), help="by default all")
    parser.add_argument("--orders", nargs="+", default=("free", "auto"), help="'free' and orders of pinned reductions")
    parser.add_argument("--folder", type=Path, required=True, help="write the results here")
    parser.add_argument("--seconds", type=float, default=120.0, help="end after this time")
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    _measure(chosen.models, chosen.orders, chosen.folder, time.time() + chosen.seconds)
    return 0


def configurations(sizes: dict[str, int], hint: str, persistent: bool) -> Iterator[tuple[int, int, int]]:
    """Yield rows, columns and warps of a block."""
    rows, columns = sizes["x"], math.prod(size for name, size in sizes.items() if name != "x")
    inner = [columns] if persistent else [2**place for place in range(1, 12) if 2**place <= columns]
    for x, r, warps in itertools.product([2**place for place in range(9)], inner, (1, 2, 4, 8, 16)):
        each = x * r / (32 * warps)
        if x > rows or not 2 <= each <= (32 if persistent else 16) or (x > 1 and x * r > 16384):
            continue
        if not persistent:
            allowed = {"INNER": x <= 8 and r >= 256, "OUTER": x >= 16}.get(hint, True)
            if not allowed or each < 4 or warps in (1, 16) or not 1024 <= x * r <= 8192:
                continue
        yield x, r, warps


def compiled_layouts(
    source: str, name: str, listed: Sequence[tuple[int, int, int]], persistent: bool, order: str
) -> Any:
    """Compile configurations of a kernel into Triton's cache.  Returns the lines of their layouts, or the error."""
    found = []
    with _pinned(order):
        kernel = _loaded(source, name)
        for each in listed:
            try:
                result = kernel._precompile_config(_config(each, persistent))
                found.append(_layouts(result) if order == "free" else [])
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}"[:300])
    return found


def _layouts(result: Any) -> Any:
    assembly = getattr(result.kernel, "asm", None)
    if assembly is None:
        return []
    lines = assembly["ttgir"].splitlines()
    kept = [each for each in lines if re.match(r"#\w+ = #ttg", each)]
    inside = 0
    for each in lines:
        if '"tt.reduce"' in each:
            inside = 1
        elif inside and each.strip().startswith("})"):
            inside = 0
            kept.append(each.strip()[:400])
    return kept


def _config(each: tuple[int, int, int], persistent: bool) -> Any:
    import triton

    x, r, warps = each
    return triton.Config({"XBLOCK": x, **({} if persistent else {"R0_BLOCK": r})}, num_warps=warps, num_stages=1)


def _pinned(order: str) -> Any:
    from bitwise_triton.reductions import pinned_reductions

    return nullcontext() if order == "free" else pinned_reductions(order)


def _loaded(source: str, name: str) -> Any:
    from torch._inductor.codecache import PyCodeCache

    return getattr(PyCodeCache.load(source), name)


def _measure(models: Sequence[str], orders: Sequence[str], folder: Path, end: float) -> None:
    import torch
    from torch._inductor import config
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    from bitwise_bench.attention.timing import driver_version

    began = time.time()
    config.use_static_cuda_launcher = False
    (folder / "environment.json").write_text(
        json.dumps({**analysis_environment(), "gpu": torch.cuda.get_device_name(), "driver": driver_version()})
    )
    seen: dict[str, tuple[str, Any, tuple[Any, ...]]] = {}
    run = CachingAutotuner.run
    current = [""]

    def recorded(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if self.heuristic_type.name in ("REDUCTION", "PERSISTENT_REDUCTION"):
            seen.setdefault(f"{current[0]} {self.filename}", (current[0], self, arguments))
        return run(self, *arguments, **keywords)

    CachingAutotuner.run = recorded
    for current[0] in models:
        torch.manual_seed(7)
        torch._dynamo.reset()
        workload = built(torch, current[0])
        workload.results(torch.compile(workload.function))
        print(f"{time.time() - began:6.1f} s: {current[0]} runs, {len(seen)} kernels", flush=True)
    CachingAutotuner.run = run
    stream = torch.cuda.current_stream().cuda_stream
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.uint8, device="cuda")

    def timed(launcher: Any, arguments: tuple[Any, ...]) -> float:
        pairs = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(_TIMED)]
        launcher(*arguments, stream=stream)
        for first, last in pairs:
            flushed.zero_()
            first.record()
            launcher(*arguments, stream=stream)
            last.record()
        torch.cuda.synchronize()
        return float(statistics.median(first.elapsed_time(last) for first, last in pairs))

    ranked = []
    for model, tuner, arguments in seen.values():
        ranked.append((timed(tuner.launchers[0], arguments), model, tuner, arguments))
    ranked.sort(key=lambda each: -each[0])
    pool, tasks = AsyncCompile.process_pool(), []
    for number, (default, model, tuner, arguments) in enumerate(ranked):
        name, meta = tuner.fn.__name__, tuner.inductor_meta
        persistent = tuner.heuristic_type.name == "PERSISTENT_REDUCTION"
        hint = getattr(meta.get("reduction_hint"), "name", "")
        source = Path(tuner.filename).read_text()
        hint = hint or next(iter(re.findall(r"reduction_hint=ReductionHint\.(\w+)", source)), "")
        if "y" in tuner.size_hints or len(tuner.size_hints) > 2 or meta.get("RSPLIT_SIZE"):
            listed: list[tuple[int, int, int]] = []
        else:
            listed = list(configurations(tuner.size_hints, hint, persistent))
        (folder / f"{number}.py").write_text(source)
        kept = (
            "num_load",
            "num_store",
            "num_reduction",
            "RSPLIT_SIZE",
            "no_x_dim",
        )
        _write(folder, {
            "kernel": number, "name": name, "model": model, "persistent": persistent, "sizes": dict(tuner.size_hints),
            "hint": hint, "default": str(tuner.launchers[0].config), "ms": default, "candidates": len(listed),
            "meta": {each: meta[each] for each in kept if each in meta},
            "numbers": [each for each in arguments if isinstance(each, int)],
            "signature": {key: str(value) for key, value in tuner.triton_meta["signature"].items()},
            "digest": hashlib.sha256(source.encode()).hexdigest(),
        })  # fmt: skip
        for order in orders:
            for first in range(0, len(listed), _AT_ONCE):
                part = listed[first : first + _AT_ONCE]
                task = pool.submit(compiled_layouts, source, name, part, persistent, order)
                tasks.append((task, number, source, name, part, persistent, order, arguments))
    print(f"{time.time() - began:6.1f} s: {sum(len(each[4]) for each in tasks)} configurations", flush=True)
    for task, number, source, name, part, persistent, order, arguments in tasks:
        try:
            layouts = task.result(timeout=max(0.1, end - time.time() - 3))
        except Exception as error:
            print(f"{number} {order}: {type(error).__name__}: {error}"[:2000], flush=True)
            if time.time() > end - 3:
                break
            continue
        with _pinned(order):
            kernel = _loaded(source, name)
            for each, lines in zip(part, layouts, strict=True):
                found: dict[str, Any] = {"kernel": number, "order": order, "config": each, "layouts": lines}
                try:
                    launcher = kernel._precompile_config(_config(each, persistent)).make_launcher()
                    found.update(ms=timed(launcher, arguments), registers=launcher.n_regs, spills=launcher.n_spills,
                                 shared=launcher.shared)  # fmt: skip
                except Exception as error:
                    found["error"] = f"{type(error).__name__}: {error}"[:300]
                _write(folder, found)
        if time.time() > end - 3:
            break
    print(f"{time.time() - began:6.1f} s: ended", flush=True)


def _write(folder: Path, line: dict[str, Any]) -> None:
    with open(folder / "times.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    from bitwise_bench import inductor_configurations  # whose functions other processes can import

    sys.exit(inductor_configurations.main())
