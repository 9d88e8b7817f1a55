"""Times of the divisions of few rows among programs, on drawn shapes: what `few_rows` chooses among.

    python -m bitwise_bench.attention.divisions --out FILE --seed 1 --decode 12 --pages 6 --uneven 6

A result has the seconds of every division of heads of the case's width, beside what the model expects of it, the
number of byte patterns of their outputs, and the seconds of PyTorch's backends.  Shapes that are measured here are not
held out.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bitwise_bench.attention import drawn, timing
from bitwise_bench.command_line import command_parser
from bitwise_bench.pinned_reductions.record import environment
from bitwise_core.output_files import write_text

KINDS = "decode", "pages", "uneven"
_LONGEST = 4e8
"""The bytes of keys and values above which calls are repeated less often."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write a result after each case."""
    parser = command_parser("attention.divisions", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="the file of the results")
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
                pool.apply_async(compile_division, (kind, case, place))
                for kind, case in cases for place in range(len(divisions_of(case)))
            ]  # fmt: skip
            for each in compiled:
                each.wait(max(0.0, end - time.monotonic()))
            pool.terminate()
    results: list[dict[str, Any]] = []
    for kind, case in [] if given.compile else cases:
        if time.monotonic() > end:
            break
        results.append({"kind": kind, "case": case, **measured(kind, case)})
        write_text(given.out, json.dumps({"environment": environment(), "results": results}, indent=1) + "\n")
    return 0


def divisions_of(case: dict[str, Any]) -> tuple[Any, ...]:
    """Return the divisions of the width of a case, and others that might be ones, by what decides their kernels."""
    from bitwise_nvidia_sm90.attention.few_rows import DEVICES

    found: dict[tuple[Any, ...], Any] = {}
    for each in (*DEVICES[case["depth"]].divisions, *_candidates(case["depth"])):
        kernel = {name: one for name, one in asdict(each).items() if name not in ("rate", "share", "start")}
        found.setdefault(tuple(kernel.values()), each)
    return tuple(found.values())


def _candidates(depth: int) -> Iterator[Any]:
    """Yield divisions in turns and of whole rows, which fill the memory of a multiprocessor."""
    from bitwise_nvidia_sm90.attention.few_rows import Division
    from bitwise_nvidia_sm90.attention.tree import key_block

    block, components = key_block(depth), min(64, depth & -depth)
    for kind, alone, blocks, resident in (
        ("turns", False, 1, 2), ("whole", False, 1, 2), ("once", False, 1, 2),
        ("whole", False, 4, 1), ("turns", False, 4, 1), ("once", False, 4, 1 if depth > 96 else 3),
        *((kind, False, 4, 2) for kind in ("once", "whole", "turns")),
    ):  # fmt: skip
        memory = (227 << 10) // resident - 2048
        slot = blocks * block * 2 * (components if alone else depth)
        exchanged = 0 if alone else 4 * 16 * blocks * block
        stages = min(16, (memory - exchanged) // slot)
        if blocks == 4:
            # Slots for the values of two tiles or of one lie beside the keys, or for two blocks of 32 KiB.
            values = 2 * block * (128 if depth == 192 else depth)
            left = [memory - 128 * block - count * values for count in ((2,) if values >= 1 << 15 else (8, 4))]
            stages = next((each // slot for each in left if each >= slot), 0)
        # One warp has no room for outputs of 256 components.
        least = max(2, depth // components) if alone else 1 if blocks == 4 else 3
        if stages >= least and not (alone and depth == 256):
            yield Division(
                kind != "whole", blocks, resident, stages, 1, 40.0, 1.0, 1.0, alone=alone, once=kind != "turns"
            )  # fmt: skip


def call_of(kind: str, case: dict[str, Any], place: int | None, small: bool = False) -> Any:
    """Return a call of attention with one of the divisions, None for the chosen one, or None where it does not apply.

    Of a `small` call the keys and values may be repeated.
    """
    import torch

    from bitwise_core.plugins.attention_calls import AttentionForm, AttentionOperands
    from bitwise_nvidia_sm90.attention.launch import attend, schedule_of_division
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
    operands = AttentionOperands(query, key, value, out, 1, longest, **extra)
    desc = attention_descriptor(form)
    if place is None:
        return partial(attend, desc, operands)
    schedule = schedule_of_division(divisions_of(case)[place], batch * groups, longest, heads // groups)
    return None if schedule is None else partial(attend, desc, operands, schedule)


def compile_division(kind: str, case: dict[str, Any], place: int) -> None:
    """Run one division of a case once, so that its kernels are cached."""
    import torch

    call = call_of(kind, case, place, small=True)
    if call is not None:
        call()
        torch.cuda.synchronize()


def measured(kind: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of the chosen division, of all, and of PyTorch's backends with keys of the mean length."""
    import torch

    from bitwise_nvidia_sm90.attention.few_rows import Work, seconds_of

    lengths = drawn.lengths_of(case) if kind == "uneven" else [case["keys"]] * case["batch"]
    mean = -(-sum(lengths) // len(lengths))
    depth, width = case["depth"], case.get("width", case["depth"])
    moved = 2 * sum(lengths) * case["groups"] * (depth + width)
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
    torch.cuda.empty_cache()
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    longest = -(-max(lengths) // case["page"]) * case["page"] if case.get("page") else max(lengths)
    share = case["heads"] // case["groups"]
    work = Work(case["batch"] * case["groups"], longest, share, depth, width, kind != "decode")
    divisions, digests = [], set()
    for place, division in enumerate(divisions_of(case)):
        call = call_of(kind, case, place)
        if call is not None:
            programs = min(division.resident * processors, work.units(division))
            expected = seconds_of(work, division, programs, processors)
            taken = seconds(call)
            digests.add(hashlib.sha256(call.args[1].out.view(torch.int16).cpu().numpy().tobytes()).hexdigest())
            divisions.append({"division": asdict(division), "seconds": taken, "expected": expected})
    return {
        "bytes": moved, "backends": found, "chosen": seconds(call_of(kind, case, None)), "divisions": divisions,
        "patterns": len(digests),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
