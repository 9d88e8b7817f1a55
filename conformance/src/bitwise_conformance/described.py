"""Kernels of the corpus as descriptors, evaluated on a CPU against the bytes that a GPU returned.

    python -m bitwise_conformance.described records/bytes-sm90-h100-triton-3.6.0.json

What a tile, a number of warps or of stages does not decide is in no descriptor: one evaluation answers for all the
configurations of a group that share it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bitwise_conformance.cases import DTYPE_BYTES, Array, Case, Scalar
from bitwise_conformance.described_attention import attention
from bitwise_conformance.described_reductions import Loop, thread_sum
from bitwise_conformance.draws import digest_of, inputs_of
from bitwise_conformance.environment import reading_environment
from bitwise_conformance.records import Records, load_records
from bitwise_core.descriptors import Cut, Fold, GEMMDesc, Instruction, Record, ReductionDesc, single_pass
from bitwise_core.installed import evaluate
from bitwise_core.numeric import Bits

GROUP, WARP, SHARED = "wgmma", "mma.sync", "fused"
NATIVE = {"fp16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "fp64": 4}
FORMATS = {"fp8e4nv": "e4m3", "fp8e5": "e5m2"}


@dataclass(frozen=True, slots=True)
class Described:
    """A descriptor, the operands' buffers with their shapes, whether each is stored transposed, and the output.

    `batch` problems of these shapes follow one another in every buffer.
    """

    desc: Record
    operands: tuple[tuple[str, tuple[int, ...], bool], ...]
    output: str
    batch: int = 1


def _numbers(case: Case) -> dict[str, int]:
    return {each.name: int(each.value) for each in case.arguments if isinstance(each, Scalar)}


def _arrays(case: Case) -> dict[str, Array]:
    return {array.name: array for array in case.arrays}


def _format(dtype: str) -> str:
    return FORMATS.get(dtype, dtype)


def _instruction(case: Case, dtype: str, total: str = "fp32") -> Instruction:
    """wgmma for tiles of at least 64 rows and 4 warps, mma.sync below; where both run one step, its own name."""
    if dtype in ("fp16", "bf16", "tf32") and total == "fp32":
        return Instruction(architecture="sm_90", family=SHARED, k=NATIVE[dtype])
    small = case.constants["BM"] < 64 or case.num_warps < 4 or dtype == "fp64"
    return Instruction(architecture="sm_90", family=WARP if small else GROUP, k=NATIVE[dtype])


def _product(case: Case, desc: GEMMDesc, order: str = "nn") -> Described:
    sizes = _numbers(case)
    m, n, k = (sizes[name] for name in "mnk")
    operands = ("a", (m, k), order[0] == "t"), ("b", (k, n), order[1] == "t")
    return Described(desc, operands, "c", _arrays(case)["a"].elements // (m * k))


def _plain(case: Case) -> Described:
    """One accumulator over the whole axis."""
    a, c = _arrays(case)["a"].dtype, _arrays(case)["c"].dtype
    dtype = "tf32" if case.family == "gemm_tf32" else _format(a)
    total = {"gemm_fp16_sum": "fp16", "gemm_fp64": "fp64"}.get(case.family, "fp32")
    desc = single_pass(
        _numbers(case)["k"], dtype, _instruction(case, dtype, total), output_dtype=c, accumulator_dtype=total
    )  # fmt: skip
    step = case.constants["BK"]
    if case.family == "gemm_fp64" and desc.k % step:
        # Multiply-adds of zeros make +0 of a -0 that underflow left: the zeros beyond the last k are part of the walk.
        turns = {"k_loop_step": step, "turn_permutation": tuple(range(step))}
        desc = GEMMDesc(**{**dict(desc), **turns})
    order = case.group.split("-")[1] if case.family == "gemm_layouts" else "nn"
    return _product(case, desc, order)


def _fp8(case: Case) -> Described:
    """fp8: wgmma closes its accumulator as often as it is told to; without wgmma operands are widened to fp16."""
    arrays, k = _arrays(case), _numbers(case)["k"]
    dtype, imprecise = _format(arrays["a"].dtype), case.constants["IMPRECISE"]
    instruction = _instruction(case, dtype)
    if imprecise == 0 or instruction.family == WARP:
        wide = Instruction(architecture="sm_90", family=WARP, k=16)
        plain = single_pass(k, "fp16", wide, output_dtype=arrays["c"].dtype)
        changes = {"left_dtype": dtype, "right_dtype": dtype, "multiplied_as": "fp16"}
        # A thread's four neighbours of 8 bits are two pairs of 16, and each pair goes to an instruction of its own.
        pairs = tuple(k for half in (0, 1) for k in range(32) if k % 4 // 2 == half)
        turns = {"k_loop_step": 32, "turn_permutation": pairs}
        return _product(case, GEMMDesc(**{**dict(plain), **changes, **turns}), "nt")
    plain = single_pass(k, dtype, instruction, output_dtype=arrays["c"].dtype)
    cuts = (Cut(span=imprecise, start="zero"),) if imprecise > 0 else ()
    return _product(case, GEMMDesc(**{**dict(plain), "k_cuts": cuts}), "nt")


def _row_sum(case: Case) -> Described:
    """Rows of one program each; a thread loads 16 bytes where the compiler knows that rows are aligned to them."""
    source, target = _arrays(case)["source"], _arrays(case)["target"]
    columns = _numbers(case)["columns"]
    aligned = columns % 16 == 0 and source.offset == 0
    narrow = case.function.__name__ == "row_sum_narrow"
    early = case.constants.get("EARLY")
    loop: Loop | None = None if early is None else "sums" if early else "places"
    desc = thread_sum(
        columns,
        case.constants["BLOCK"],
        case.num_warps,
        16 // DTYPE_BYTES[source.dtype] if aligned else 1,
        dtype=source.dtype,
        accumulator_dtype=source.dtype if narrow else "fp32",
        output_dtype=target.dtype,
        loop=loop,
    )
    return Described(desc, (("source", (source.elements // columns, columns), False),), "target")


def _groups(case: Case) -> Described:
    """An accumulator that closes after some turns, added to a sum from +0; of one turn the compiler makes one walk."""
    if case.constants["GROUPS"] == 1:
        return _plain(case)
    arrays = _arrays(case)
    span = case.constants["BK"] * case.constants["GROUPS"]
    dtype = arrays["a"].dtype
    plain = single_pass(_numbers(case)["k"], dtype, _instruction(case, dtype), output_dtype=arrays["c"].dtype)
    return _product(case, GEMMDesc(**{**dict(plain), "k_cuts": (Cut(span=span, start="zero"),)}))


def _reduce(case: Case) -> Described | None:
    """The parts of a split added in order, from +0."""
    arrays, constants = _arrays(case), case.constants
    if constants["TREE"]:
        return None
    size, parts = _numbers(case)["size"], constants["SPLIT"]
    desc = ReductionDesc(
        length=parts,
        dtype="fp32",
        output_dtype=arrays["c"].dtype,
        folds=(Fold(stride=1, count=parts, start="zero"),),
    )
    return Described(desc, (("workspace", (size, parts), True),), "c")


def _attention(case: Case) -> Described | None:
    """Forward kernels of 16-bit types."""
    arrays, constants = _arrays(case), case.constants
    dtype = arrays["query"].dtype
    if dtype == "fp32":
        return None
    head, length = constants["HEAD"], _numbers(case)["length"]
    scale = next(float(each.value) for each in case.arguments if isinstance(each, Scalar) and each.name == "scale")
    desc = attention(
        dtype,
        head,
        (constants["BM"], constants["BN"]),
        case.num_warps,
        scale=scale,
        causal=constants["CAUSAL"],
        fill=constants["FILL"],
        skip=constants["SKIP"],
        output_dtype=arrays["output"].dtype,
    )
    operands = tuple((name, (length, head), False) for name in ("query", "key", "value"))
    return Described(desc, operands, "output", arrays["query"].elements // (length * head))


FAMILIES: Mapping[str, Callable[[Case], Described | None]] = {
    "gemm": _plain,
    "gemm_swizzled": _plain,
    "gemm_wrapped": _plain,
    "gemm_layouts": _plain,
    "gemm_fp16_sum": _plain,
    "gemm_tf32": _plain,
    "gemm_fp64": _plain,
    "gemm_fp8e4nv": _fp8,
    "gemm_fp8e5": _fp8,
    "gemm_batched": _plain,
    "gemm_kgroup": _groups,
    "split_k_reduce": _reduce,
    "row_sum": _row_sum,
    "row_sum_loop": _row_sum,
    "attention": _attention,
    "attention_causal": _attention,
}
"""How the kernels of a family are described; None where one has no descriptor here."""


def described(case: Case) -> Described | None:
    """What a case computes, as a descriptor; None where it has none here."""
    make = FAMILIES.get(case.family)
    return None if make is None else make(case)


def result(case: Case, what: Described, draw: str) -> Bits:
    """The output's patterns for one draw, flat."""
    inputs = inputs_of(case, draw)
    found = []
    for problem in range(what.batch):
        operands = []
        for name, shape, transposed in what.operands:
            stored = inputs[name].reshape(what.batch, *(shape[::-1] if transposed else shape))[problem]
            operands.append(stored.T if transposed else stored)
        found.append(evaluate(what.desc, *operands).reshape(-1))
    return np.concatenate(found)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of some cases: how many were compared, how many evaluations answered for them, and which differ.

    `different` gives the draws whose bytes are not the recorded ones, by the case's id; `without` counts the cases of
    described families that have no descriptor.
    """

    cases: int
    evaluations: int
    different: Mapping[str, tuple[str, ...]]
    without: int


def against(cases: Iterable[Case], recorded: Records, draws: Sequence[str] | None = None) -> Outcome:
    """Evaluates the descriptors of cases on draws (all recorded ones by default) and compares their outputs' hashes."""
    chosen, records = list(recorded.draws if draws is None else draws), recorded.by_id()
    known: dict[tuple[str, str, Described], tuple[str, ...]] = {}
    different: dict[str, tuple[str, ...]] = {}
    count = without = 0
    for case in cases:
        record = records.get(case.id)
        if case.family not in FAMILIES or record is None or not record.usable:
            continue
        what = described(case)
        if what is None:
            without += 1
            continue
        count += 1
        key = case.family, case.group, what
        if key not in known:
            dtype = _arrays(case)[what.output].dtype
            known[key] = tuple(digest_of(result(case, what, draw), dtype) for draw in chosen)
        place = record.outputs.index(what.output)
        wrong = [
            draw
            for draw, found in zip(chosen, known[key], strict=True)
            if found != record.hashes[recorded.draws.index(draw)][place]
        ]
        if wrong:
            different[case.id] = tuple(wrong)
    return Outcome(count, len(known), different, without)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; the exit status is 1 where bytes are other than the recorded ones."""
    parser = argparse.ArgumentParser(prog="bitwise_conformance.described", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("records", type=Path, help="the recorded bytes")
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), help="these families only")
    parser.add_argument("--draws", nargs="*", help="these draws only")
    parser.add_argument("--out", type=Path, help="write the counts here, as JSON")
    chosen = parser.parse_args(arguments)
    from bitwise_conformance import corpus

    recorded = load_records(chosen.records)
    families: dict[str, dict[str, int]] = {}
    for family in chosen.families:
        found = against((case for case in corpus.cases() if case.family == family), recorded, chosen.draws)
        for name, draws in found.different.items():
            print(f"{name}: {', '.join(draws)}")
        families[family] = {
            "configurations": found.cases,
            "descriptors": found.evaluations,
            "differ": len(found.different),
            "without": found.without,
        }
        print(family, families[family], flush=True)
    if chosen.out:
        kept = {
            "environment": {**reading_environment(), "gpu": recorded.environment["gpu"]},
            "draws": list(chosen.draws or recorded.draws),
            "families": families,
        }
        chosen.out.write_text(json.dumps(kept, indent=1) + "\n")
    return 1 if any(each["differ"] for each in families.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
