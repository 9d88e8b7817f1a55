"""Times of the divisions of few rows among programs, on drawn shapes: what `few_rows` chooses among.

    python -m bitwise_bench.attention.divisions --out FILE --seed 1 --decode 12 --pages 6 --uneven 6

A result has the seconds of every division of heads of the case's width, the number of byte patterns of their outputs,
and the seconds of PyTorch's backends.  Shapes that are measured here are not
held out.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bitwise_bench.attention import drawn, timing
from bitwise_bench.command_line import command_parser
from bitwise_bench.pinned_reductions.record import environment
from bitwise_core.output_files import write_text

KINDS = "decode", "pages", "uneven"
_PARTS = 3
"""The processes among which the kernels of a case are divided."""
_SLOW = 3.0
"""The ratio to the fastest division from which on one call is timed alone."""
_LONGEST = 4e8
"""The bytes of keys and values above which calls are repeated less often."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write a run to the record after each case."""
    parser = command_parser("attention.divisions", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="the record, of which earlier runs are kept")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the shapes")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, default=0, help=f"the number of shapes of {kind}")
    parser.add_argument("--cases", type=Path, help="a file of pairs of a kind and a case, in place of drawn ones")
    parser.add_argument("--workers", type=int, default=8, help="processes that compile")
    parser.add_argument("--seconds", type=float, default=300, help="the time of all")
    parser.add_argument("--compile", action="store_true", help="compile alone, which fills the cache of Triton")
    given = parser.parse_args(arguments)
    end = time.monotonic() + given.seconds
    drawers = {"decode": drawn.equal_lengths, "pages": drawn.pages, "uneven": drawn.uneven}
    cases = [(kind, case) for kind in KINDS for case in drawers[kind](given.seed, getattr(given, kind))]
    if given.cases is not None:
        cases = [(str(kind), dict(case)) for kind, case in json.loads(given.cases.read_text())]
    if given.workers:
        with get_context("spawn").Pool(given.workers) as pool:
            compiled = [
                pool.apply_async(compile_divisions, (kind, case, divisions_of(case)[part::_PARTS]))
                for kind, case in cases for part in range(_PARTS)
            ]  # fmt: skip
            for each in compiled:
                each.wait(max(0.0, end - time.monotonic()))
            pool.terminate()
    if given.compile:
        return 0
    results: list[dict[str, Any]] = []
    runs = json.loads(given.out.read_text())["runs"] if given.out.exists() else []
    import torch

    versions = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "driver": timing.driver_version()}
    runs.append({"environment": environment() | versions, "results": results})
    for kind, case in cases:
        if time.monotonic() > end:
            break
        results.append({"kind": kind, "case": case, **measured(kind, case)})
        write_text(given.out, json.dumps({"runs": runs}) + "\n")
    return 0


DIVISIONS = {
    64: ("split 4 3 1", "split 4 2 1", "split 1 6 4 alone", "split 1 9 3 alone", "whole 1 9 3 alone", "whole 4 2 1"),
    96: ("split 4 2 1", "split 1 6 9 alone", "split 1 9 6 alone", "whole 1 2 6", "whole 4 1 2", "whole 4 2 1"),
    128: ("split 1 2 3", "split 1 1 6", "split 1 6 2 alone", "split 1 3 4 alone", "whole 1 1 6", "whole 1 2 3"),
    192: ("split 1 1 6", "split 1 2 4", "split 1 5 5 alone", "whole 1 1 6", "whole 1 2 4", "whole 4 1 1"),
    256: ("split 4 1 1", "split 1 1 6", "split 1 2 3", "whole 1 1 6", "whole 1 2 3", "whole 4 1 1"),
}
"""The divisions that are measured, by the width of query and key: blocks, resident programs and stages."""


def division_of_text(text: str) -> Any:
    """Return the division that a text of `DIVISIONS` names."""
    from bitwise_nvidia_sm90.attention.few_rows import Division

    kind, blocks, resident, stages, *alone = text.split()
    return Division(kind == "split", int(blocks), int(resident), int(stages), bool(alone))


def divisions_of(case: dict[str, Any]) -> tuple[str, ...]:
    """Return the texts of the divisions that are measured for heads of the width of a case."""
    return DIVISIONS[case["depth"]]


def operands_of(kind: str, case: dict[str, Any], small: bool = False) -> tuple[Any, Any]:
    """Return the descriptor of a case and its operands, the keys and values of which may be repeated where `small`."""
    import torch

    from bitwise_core.plugins.attention_calls import AttentionForm, AttentionOperands
    from bitwise_nvidia_sm90.attention.tree import attention_descriptor

    batch, heads, groups, depth = (case[name] for name in ("batch", "heads", "groups", "depth"))
    width, size = case.get("width", depth), case.get("page", 0)
    lengths = drawn.lengths_of(case) if kind == "uneven" else [case["keys"]] * batch
    generator = torch.Generator(device="cuda").manual_seed(0)

    def tensor(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    def integers(values: Any) -> Any:
        return torch.as_tensor(values).int().cuda()

    extra: dict[str, Any] = {}
    form = AttentionForm("bf16", depth, width, depth**-0.5, kind == "uneven" and not size)
    longest = max(lengths)
    if size:
        counts = [-(-each // size) for each in lengths]
        longest = max(counts) * size
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0))
        table = torch.zeros((batch, max(counts)), dtype=torch.int64)
        for row, own in enumerate(order.split(counts)):
            table[row, : len(own)] = own
        if small:
            table, counts = table * 0, [1]
        query = tensor(batch, 1, heads, depth)
        key, value = (tensor(sum(counts), size, groups, each) for each in (depth, width))
        extra = {"page_table": integers(table), "key_lengths": integers(lengths)}
    elif kind == "uneven":
        query = tensor(batch, heads, depth)
        key, value = (tensor(sum(lengths), groups, each) for each in (depth, width))
        starts = torch.tensor([0, *lengths]).cumsum(0)
        extra = {"query_starts": integers(range(batch + 1)), "key_starts": integers(starts)}
    else:
        query = tensor(batch, 1, heads, depth)
        key, value = (tensor(batch, case["keys"], groups, each) for each in (depth, width))
        extra = {"first_position": 0}
    out = torch.empty((*query.shape[:-1], width), dtype=query.dtype, device="cuda")
    return attention_descriptor(form), AttentionOperands(query, key, value, out, 1, longest, **extra)


def call_of(case: dict[str, Any], desc: Any, operands: Any, text: str | None, ordered: bool = False) -> Any:
    """Return a call of attention with a division, None for the chosen one, or None where it does not apply.

    The descriptor and the operands are those of the case.  With `ordered` programs take long parts first.
    """
    from bitwise_nvidia_sm90.attention.launch import attend, schedule_of_division

    if text is None:
        return partial(attend, desc, operands)
    rows, share = case["batch"] * case["groups"], case["heads"] // case["groups"]
    schedule = schedule_of_division(division_of_text(text), rows, operands.longest_keys, share)
    return None if schedule is None else partial(attend, desc, operands, replace(schedule, ordered=ordered))


def compile_divisions(kind: str, case: dict[str, Any], texts: Iterable[str]) -> None:
    """Run divisions of a case once, so that their kernels are cached."""
    import torch

    given = operands_of(kind, case, small=True)
    for text, ordered in product(texts, (False, True) if kind != "decode" else (False,)):
        call = call_of(case, *given, text, ordered)
        try:
            if call is not None:
                call()
        except RuntimeError as error:
            print(f"{kind} {case} {text}: {type(error).__name__}: {error}", flush=True)
    torch.cuda.synchronize()


def measured(kind: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of the chosen division, of all, and of PyTorch's backends with keys of the mean length."""
    import torch

    lengths = drawn.lengths_of(case) if kind == "uneven" else [case["keys"]] * case["batch"]
    mean = -(-sum(lengths) // len(lengths))
    moved = 2 * sum(lengths) * case["groups"] * (case["depth"] + case.get("width", case["depth"]))
    repetitions = 3 if moved > _LONGEST else 10

    def seconds(call: Any) -> float | None:
        try:
            return timing.graph_seconds(call, repetitions)
        except (RuntimeError, ValueError, TypeError) as error:
            print(f"{kind} {case}: {type(error).__name__}: {error}", flush=True)
            return None

    backends = timing.implementations(timing.tensors_of(case, 1, mean), False)
    del backends["bitwise"]
    found = {name: seconds(each) for name, each in backends.items()}
    del backends
    desc, operands = operands_of(kind, case)
    chosen = seconds(call_of(case, desc, operands, None))
    taken: dict[bool, dict[str, float]] = {False: {}, True: {}}
    digests = set()
    for ordered, text in product((False, True) if kind != "decode" else (False,), divisions_of(case)):
        call = call_of(case, desc, operands, text, ordered)
        if call is not None:
            operands.out.zero_()
            least = min(taken[False].values(), default=math.inf)
            once = _once(call)
            found_seconds = once if once > _SLOW * least else seconds(call)
            if found_seconds is not None:
                taken[ordered][text] = found_seconds
            digests.add(hashlib.sha256(operands.out.view(torch.int16).cpu().numpy().tobytes()).hexdigest())
    return {
        "bytes": moved, "backends": found, "chosen": chosen, "seconds": taken[False], "ordered": taken[True],
        "patterns": len(digests),
    }  # fmt: skip


def _once(call: Any) -> float:
    """Return the time of one call after another one, without what a graph saves."""
    import torch

    call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1000


if __name__ == "__main__":
    sys.exit(main())
