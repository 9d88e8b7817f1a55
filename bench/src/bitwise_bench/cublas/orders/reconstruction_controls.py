"""Random descriptors of every family reconstructed as black boxes, and wrong ones that the tests must reject.

    python -m bitwise_bench.cublas.orders.reconstruction_controls --out records/probe-controls.json

Writes the section `descriptors` of the record and keeps the others.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.cublas.orders.descriptor_mutations import mutated
from bitwise_core.descriptors import (
    Cut,
    DescriptorError,
    GEMMDesc,
    Instruction,
    contiguous_slice_gemv,
    lane_tree_gemv,
    per_mma,
    single_pass,
    split_k,
    split_k_per_mma,
    three_level_chain,
    workspace_gemv,
)
from bitwise_core.descriptors.evaluation import unit_of
from bitwise_core.plugins import registry
from bitwise_core.plugins.installed import evaluate
from bitwise_core.probing.operand_arrays import PatternArrays, patterns_of
from bitwise_core.probing.reconstruction import reconstruct_product, same_computation
from bitwise_core.probing.reconstruction.partial_sums import Axis, nodes_of
from bitwise_core.probing.reconstruction.products import COMPARED_ELEMENTS, DRAWS_PER_KIND, draw_operands

ARCHITECTURE = "sm_90"
SINGLE = Instruction(architecture=ARCHITECTURE, family="wgmma", k=16)
STEP = {k: Instruction(architecture=ARCHITECTURE, family="mma.sync", k=k) for k in (8, 16)}
EIGHT = Instruction(architecture=ARCHITECTURE, family="wgmma", k=32)
NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}

CHANGES = 4
"""Wrong descriptors tried for each right one."""
TESTS = ("experiments", "flat", "wide", "cancelling", "vanishing", "halves")
"""What can reject a wrong descriptor: the order experiments, and each kind of draw."""


def _types(source: random.Random) -> dict[str, Any]:
    dtype = source.choice(("fp16", "bf16"))
    return {"dtype": dtype, "output_dtype": source.choice((dtype, dtype, "fp32"))}


def _sliced(source: random.Random, partial: str, merge: str) -> GEMMDesc:
    """Split K with finished slices and running sums in the output type or fp32, with one or several instructions a
    step.
    """
    dtype = source.choice(("fp16", "bf16"))
    kept: dict[str, Any] = {"partial_dtype": dtype if partial == "output" else "fp32",
            "merge_dtype": dtype if merge == "output" else "fp32"}  # fmt: skip
    k, slices = source.randint(100, 400), source.randint(2, 6)
    if source.random() < 0.3:
        return split_k(k, dtype, SINGLE, slices=slices, tile=16, **kept)
    unit = STEP[source.choice((8, 16))]
    return split_k_per_mma(
        k, dtype, unit, slices=slices, tile=source.choice((8, 16, 64)), k_loop_step=source.choice((32, 64)), **kept
    )  # fmt: skip


def _dropped(source: random.Random) -> GEMMDesc:
    slices, over = source.randint(9, 12), 8
    return split_k(
        64 * slices + over, source.choice(("fp16", "bf16")), SINGLE, slices=slices, tile=64, k_dropped=over
    )  # fmt: skip


def _from_zero(source: random.Random) -> GEMMDesc:
    found = _sliced(source, "output", "fp32")
    cut = found.k_cuts[0].model_copy(update={"start": "zero"})
    return found.model_copy(update={"k_cuts": (cut,)})


FAMILIES: dict[str, Callable[[random.Random], GEMMDesc]] = {
    "single accumulator": lambda s: single_pass(s.randint(60, 400), instruction=SINGLE, **_types(s)),
    "an addition a step": lambda s: single_pass(
        s.randint(60, 400), instruction=SINGLE, use_fast_accum=False, **_types(s)
    ),
    "per step, short turn first": lambda s: per_mma(
        s.randint(60, 400), instruction=STEP[s.choice((8, 16))], k_loop_step=s.choice((32, 64, 128)), **_types(s)
    ),
    "slices, fp32 workspace": lambda s: _sliced(s, "fp32", "fp32"),
    "slices, parts of the output's type": lambda s: _sliced(s, "output", "fp32"),
    "slices, parts of the output's type, from zero": _from_zero,
    "slices, a chain in the output's type": lambda s: _sliced(s, "fp32", "output"),
    "slices, parts and chain in the output's type": lambda s: _sliced(s, "output", "output"),
    "slices that drop a tail": _dropped,
    "chunks": lambda s: three_level_chain(
        s.randint(60, 300), chunks=s.choice((1, 2, 4)), span=s.choice((None, 16, 32)), **_types(s)
    ),
    "lanes": lambda s: lane_tree_gemv(
        s.randint(100, 300), lanes=s.choice((2, 4, 8, 16, 32)), tile=s.choice((1, 2, 4)),
        count_down=s.random() < 0.7, **_types(s),
    ),
    "lanes that close accumulators": lambda s: lane_tree_gemv(
        s.randint(200, 400), lanes=s.choice((2, 4, 8)), tile=1, chunk_tiles=s.choice((8, 16)), **_types(s)
    ),
    "lanes of contiguous slices": lambda s: contiguous_slice_gemv(
        s.randint(200, 400), lanes=s.choice((4, 8)), chunk=16, **_types(s)
    ),
    "slices of lanes": lambda s: workspace_gemv(
        s.randint(200, 400), slices=s.randint(2, 4), lanes=s.choice((4, 8)), **_types(s)
    ),
    "fp8, blocks of 128": lambda s: single_pass(
        s.randint(130, 400), s.choice(("e4m3", ("e5m2", "e4m3"))), EIGHT, block=128, output_dtype="bf16"
    ),
    "fp8, slices of blocks": lambda s: split_k(
        s.randint(300, 500), "e4m3", EIGHT, slices=2, tile=128, block=128, output_dtype="bf16"
    ),
}  # fmt: skip


def read(task: tuple[str, int]) -> dict[str, Any]:
    """The reconstruction of one descriptor of a family, and the tests of wrong descriptors near it."""
    family, number = task
    source = random.Random(f"{family}:{number}")
    desc = FAMILIES[family](source)
    fp8 = desc.left_dtype.startswith("e")
    shape = (24, 24) if fp8 else (1, 128) if number % 2 else (128, 1)
    units = registry.default().matrix_units
    found = reconstruct_product(
        lambda a, b: evaluate(desc, a, b), *shape, desc.k, NAMES[desc.left_dtype],
        units=units, dtype_b=NAMES[desc.right_dtype],
        arrays=PatternArrays(NAMES[desc.output_dtype]), architecture=ARCHITECTURE,
    )  # fmt: skip
    among = any(isinstance(each, GEMMDesc) and same_computation(each, desc, units) for each in found.survivors)
    if found.desc is not None:
        outcome = "equal" if among else "wrong"
    else:
        outcome = ("undecided" if _agree(found.survivors, desc) else "among") if among else "open"
        if not among and found.survivors:
            outcome = "undecided" if _agree((*found.survivors, desc), desc) else "open"
    controls = [_caught(desc, *each) for each in _wrong(desc, source)]
    return {"family": family, "outcome": outcome, "descriptor": str(desc), "controls": controls,
            "survivors": len(found.survivors), "probes": found.revealed.probes}  # fmt: skip


def _wrong(desc: GEMMDesc, source: random.Random) -> list[tuple[str, GEMMDesc]]:
    """Wrong descriptors such as a wrong table entry would give, one for each kind of change, none equivalent to the
    right one.
    """
    found: dict[str, GEMMDesc] = {}
    for _ in range(4 * CHANGES):
        each = mutated(desc, source)
        if each is not None and each[0] not in found and len(found) < CHANGES and _other(each[1], desc):
            found[each[0]] = each[1]
    if desc.k_cuts and desc.k_cuts[0].layout == "contiguous" and desc.k_cuts[0].merge == "chain":
        outer, kept = desc.k_cuts[0], desc.output_dtype
        changes: dict[str, dict[str, Any]] = {"start": {"start": "first" if outer.start == "zero" else "zero"}}
        for name in ("partial_dtype", "merge_dtype"):
            changes[name] = {name: kept if getattr(outer, name) == "fp32" else "fp32"}
        if outer.count is not None:
            changes["count"] = {"count": outer.count + 1}
        for change, fields in changes.items():
            cut = Cut(**{**{name: getattr(outer, name) for name in Cut.model_fields}, **fields})
            wrong = desc.model_copy(update={"k_cuts": (cut, *desc.k_cuts[1:])})
            if cut != outer and _other(wrong, desc):
                found[change] = wrong
    return list(found.items())


def _other(one: GEMMDesc, desc: GEMMDesc) -> bool:
    try:
        return not same_computation(one, desc, registry.default().matrix_units)
    except DescriptorError:
        return False


def _caught(desc: GEMMDesc, change: str, wrong: GEMMDesc) -> dict[str, Any]:
    """The tests that distinguish a wrong descriptor from the right one."""
    axis, units = Axis.of(desc.k), registry.default().matrix_units
    right, other = (nodes_of(axis, each, unit_of(each, units)) for each in (desc, wrong))
    found: dict[str, Any] = {
        "change": change,
        "experiments": right != other,
        **dict.fromkeys(TESTS[1:], False),
    }
    for kind, a, b in _draws(desc, 5, DRAWS_PER_KIND):
        if not found[kind]:
            found[kind] = _bytes(desc, a, b) != _bytes(wrong, a, b)
    return found


def _draws(desc: GEMMDesc, seed: int, draws: int) -> Any:
    size = 8 if desc.left_dtype.startswith("e") else COMPARED_ELEMENTS
    dtypes = NAMES[desc.left_dtype], NAMES[desc.right_dtype]
    for kind, _, a, b in draw_operands((size, 64 // size), desc.k, desc.k_dropped, dtypes, seed, draws):
        yield kind, patterns_of(a, dtypes[0]), patterns_of(b, dtypes[1])


def _bytes(desc: GEMMDesc, a: Any, b: Any) -> bytes:
    return np.ascontiguousarray(evaluate(desc, a, b)).tobytes()


def _agree(survivors: Sequence[Any], desc: GEMMDesc) -> bool:
    """Whether descriptors return the same bytes on further draws."""
    return all(
        len({_bytes(each, a, b) for each in survivors}) == 1 for seed in (11, 12) for _, a, b in _draws(desc, seed, 20)
    )


def survey(each: int, processes: int, families: Sequence[str] = tuple(FAMILIES)) -> dict[str, Any]:
    """Counts of outcomes for every family, and of wrong descriptors that each test rejected."""
    listed = [(family, number) for family in families for number in range(each)]
    if processes > 1:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            rows = list(pool.map(read, listed))
    else:
        rows = [read(task) for task in listed]
    result: dict[str, Any] = {"architecture": ARCHITECTURE, "draws": DRAWS_PER_KIND, "families": {}}
    for family in families:
        mine = [row for row in rows if row["family"] == family]
        controls = [control for row in mine for control in row["controls"]]
        kinds = Counter(control["change"] for control in controls)
        result["families"][family] = {
            "descriptors": len(mine), "outcomes": dict(sorted(Counter(row["outcome"] for row in mine).items())),
            "not equal": [[row["outcome"], row["descriptor"]] for row in mine if row["outcome"] != "equal"][:8],
            "controls": len(controls), "changes": dict(sorted(kinds.items())),
            "caught": {test: sum(control[test] for control in controls) for test in TESTS}
            | {"any": sum(any(control[test] for test in TESTS) for control in controls)},
        }  # fmt: skip
    every = result["families"].values()
    result["outcomes"] = dict(sum((Counter(found["outcomes"]) for found in every), Counter()))
    result["controls"] = sum(found["controls"] for found in every)
    result["caught"] = {
        test: sum(found["caught"][test] for found in result["families"].values()) for test in (*TESTS, "any")
    }
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the section. The exit status is 1 if a reconstruction was wrong or failed."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.orders.reconstruction_controls", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="the record whose section is written (JSON)")
    parser.add_argument("--each", type=int, default=3, help="descriptors of every family (default 3)")
    parser.add_argument("--processes", type=int, default=2, help="processes at once (default 2)")
    chosen = parser.parse_args(arguments)
    registry.default()
    found = survey(chosen.each, chosen.processes)
    content = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    chosen.out.write_text(json.dumps({**content, "descriptors": found}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: found[name] for name in ("outcomes", "controls", "caught")}))
    return 1 if set(found["outcomes"]) - {"equal", "undecided"} else 0


if __name__ == "__main__":
    raise SystemExit(main())
