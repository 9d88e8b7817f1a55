"""The results of the matrix units of a GPU against the rows of their instructions.

    python -m bitwise_bench.matrix_units.probes --out FILE.json --results FILE.npz
    python -m bitwise_bench.matrix_units.probes --architecture sm_100 --out FILE.json --results FILE.npz

runs every mma.sync, wgmma and tcgen05 row of the architecture (needs torch, Triton and the GPU) on the random operands
of `operands.KINDS`, with one instruction and with a chain of several, and on the directed cases of `directed_cases`.
FILE.json records for each row
how many results differ from it, by kind of operands, and the result of every directed case.  FILE.npz contains all
results;

    python -m bitwise_bench.matrix_units.probes --again FILE.npz

compares them with the rows again, on any machine, since the operands are generated from a seed.  With
`--samples FILE --count N` it also writes N operands and results of every row to a file of samples.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bitwise_bench.matrix_units.directed_cases import directed_cases, tiles
from bitwise_bench.matrix_units.operands import Operands, draw, kinds_of
from bitwise_core.numerics import Bits
from bitwise_core.numerics.mma import FusedSum, IntegerSum, MmaSpec, SequentialMultiplyAdd, multiply_accumulate
from bitwise_core.plugins import registry

Device: TypeAlias = Callable[[MmaSpec, Operands], tuple[Bits, list[str]]]
"""Runs tiles through the instruction of a row; returns the results and the instructions in the compiled text."""

DISTINGUISHING = 2
ARCHITECTURE = "sm_90"
SHAPES = {"mma.sync": (16, 8), "wgmma": (64, 16), "tcgen05": (128, 32)}
TILES = {"mma.sync": 104, "wgmma": 14, "tcgen05": 4}
"""Tiles for each kind of operands: more than 100,000 results per row."""
CHAINS = (1, 4)
"""Lengths of the chains of instructions; see `depths` for the minimum."""


def rows(architecture: str = ARCHITECTURE) -> list[MmaSpec]:
    """Return the rows of an architecture that are probed: integers by mma.sync only, of one type."""
    return [
        row
        for row in registry.default().matrix_units.values()
        if row.architecture == architecture
        and row.family in SHAPES
        and not (isinstance(row.arithmetic, IntegerSum) and (row.family != "mma.sync" or row.left != row.right))
    ]


def depths(row: MmaSpec) -> list[int]:
    """Return the k of the products: Triton does not use wgmma and tcgen05 for k below 16."""
    least = 1 if row.family == "mma.sync" else 16
    return sorted({max(row.k * chain, least) for chain in CHAINS})


def batches(row: MmaSpec) -> list[tuple[str, int, int]]:
    """Return the batches of random operands of a row: kind, number of tiles, depth."""
    kinds = kinds_of(row)
    share = TILES[row.family] * 8 // len(kinds)
    return [
        (kind, share if depth == min(depths(row)) else max(1, share // 4), depth)
        for depth in depths(row)
        for kind in kinds
    ]


def operands(row: MmaSpec, kind: str, count: int, depth: int) -> Operands:
    """Return the operands of a batch; the directed cases form one batch."""
    m, n = SHAPES[row.family]
    if kind != "directed_cases":
        return draw(row, kind, count, m, n, depth)
    directed = tiles(row, directed_cases(row), m, n)
    padding = depth - row.k
    return Operands(
        np.pad(directed.a, ((0, 0), (0, 0), (0, padding))),
        np.pad(directed.b, ((0, 0), (0, padding), (0, 0))),
        directed.c,
    )


def every_batch(row: MmaSpec) -> list[tuple[str, int, int]]:
    """Return the batches of random operands, and that of the directed cases if there are any."""
    directed = (
        []
        if isinstance(row.arithmetic, IntegerSum)
        else [("directed_cases", len(directed_cases(row)), min(depths(row)))]
    )
    return batches(row) + directed


def key(row: MmaSpec, kind: str, depth: int) -> str:
    """Return the name of the results of a batch."""
    return f"{row.name}/{kind}/{depth}"


def record(row: MmaSpec, results: dict[str, Bits]) -> dict[str, Any]:
    """Return the comparison of measured results with a row."""
    found: dict[str, Any] = {"differing": {}, "compared": 0}
    for kind, count, depth in every_batch(row):
        given = operands(row, kind, count, depth)
        returned = results[key(row, kind, depth)]
        expected = multiply_accumulate(row, given.a, given.b, given.c)
        if kind == "directed_cases":
            found["directed_cases"] = _directed_results(row, returned, expected)
            continue
        found["differing"][f"{kind}, k {depth}"] = int((returned != expected).sum())
        found["compared"] += returned.size
    return found


def _directed_results(row: MmaSpec, returned: Bits, expected: Bits) -> dict[str, Any]:
    """Return the result of each directed case; where it differs, also that of the row."""
    digits = row.form("result").bits // 4
    answers: dict[str, Any] = {}
    for case, tile, ours in zip(directed_cases(row), returned, expected, strict=True):
        patterns = [f"{int(each):0{digits}x}" for each in np.unique(tile)]
        row_says = f"{int(ours[0, 0]):0{digits}x}"
        same = patterns == [row_says]
        answers[case.label] = patterns[0] if same else {"returned": patterns, "row": row_says}
    return answers


def probe_row(row: MmaSpec, device: Device) -> tuple[dict[str, Bits], dict[str, Any]]:
    """Run every batch of a row on the device; return the results and their comparison with the row."""
    results: dict[str, Bits] = {}
    digest, instructions = sha256(), set[str]()
    for kind, count, depth in every_batch(row):
        given = operands(row, kind, count, depth)
        results[key(row, kind, depth)], used = device(row, given)
        instructions |= set(used)
        for each in (given.a, given.b, given.c):
            digest.update(np.ascontiguousarray(each).tobytes())
    return results, {"instructions": sorted(instructions), "operands": digest.hexdigest(), **record(row, results)}


def neighbours(row: MmaSpec) -> list[MmaSpec]:
    """Return rows that differ from a row in one parameter of its arithmetic."""
    rule = row.arithmetic
    if isinstance(rule, SequentialMultiplyAdd):
        return [replace(row, arithmetic=SequentialMultiplyAdd())] if rule.nan_order else []
    if not isinstance(rule, FusedSum):
        return []
    changes: list[dict[str, Any]] = [{"fraction_bits": rule.fraction_bits + 1}, {"zero_products": True}]
    changes += [{"least_exponent": None}] if rule.least_exponent is not None else []
    changes += [{"widened": None}] if rule.widened is not None else []
    changes += [{"accumulator_last": False}, {"order": "ascending"}] if rule.accumulator_last else []
    changes += [{"products": rule.products // 2}] if rule.order == "ascending" and rule.products > 1 else []
    return [replace(row, arithmetic=replace(rule, **change)) for change in changes]


def sample(row: MmaSpec, results: dict[str, Bits], count: int) -> dict[str, Bits]:
    """Return some results of a row with their operands, of one depth: a (n, k), b (n, k), c and d (n).

    `count` are chosen at random; of each kind, up to DISTINGUISHING more for every neighbour of the row are results
    that the neighbour does not give.
    """
    chosen = [each for each in batches(row) if each[2] == min(depths(row))]
    generator = np.random.default_rng(len(chosen))
    parts: dict[str, list[Bits]] = {"a": [], "b": [], "c": [], "d": []}
    for kind, tile_count, depth in chosen:
        given, returned = operands(row, kind, tile_count, depth), results[key(row, kind, depth)]
        wanted = [generator.choice(returned.size, count // len(chosen), replace=False)]
        for other in neighbours(row):
            differ = np.flatnonzero(multiply_accumulate(other, given.a, given.b, given.c) != returned)
            wanted.append(generator.choice(differ, min(DISTINGUISHING, len(differ)), replace=False))
        tile, i, j = np.unravel_index(np.unique(np.concatenate(wanted)), returned.shape)
        for name, values in (("a", given.a[tile, i]), ("b", given.b[tile, :, j])):
            parts[name].append(values)
        parts["c"].append(given.c[tile, i, j])
        parts["d"].append(returned[tile, i, j])
    return {f"{row.name}/{name}": np.concatenate(values) for name, values in parts.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the probes, or compare earlier results; the exit status is 1 where a row differs from them."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="bitwise_bench.matrix_units.probes",
    )
    parser.add_argument("--architecture", default=ARCHITECTURE, help=f"that of the GPU (default {ARCHITECTURE})")
    parser.add_argument("--out", type=Path, help="write the record here, as JSON")
    parser.add_argument("--results", type=Path, help="write all results here (.npz)")
    parser.add_argument(
        "--again", type=Path, metavar="FILE.npz", help="compare these results instead of running the GPU"
    )
    parser.add_argument("--samples", type=Path, help="with --again: write samples here (.npz)")
    parser.add_argument("--count", type=int, default=256, help="samples of each row (default 256)")
    chosen = parser.parse_args(arguments)
    if chosen.again is not None:
        return _again(chosen)
    if chosen.out is None or chosen.results is None:
        parser.error("give --out and --results to run the probes, or --again to compare earlier results")
    from bitwise_bench.matrix_units.device import environment, run

    found: dict[str, Any] = {"environment": environment()}
    kept: dict[str, Bits] = {}
    for row in rows(chosen.architecture):
        try:
            results, found[row.name] = probe_row(row, run)
        except Exception as error:  # the remaining rows are still probed
            found[row.name] = {"failed": f"{type(error).__name__}: {error}"[:2000]}
            print(row.name, found[row.name], flush=True)
            continue
        kept.update(results)
        _print(row.name, found[row.name])
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    _save(chosen.results, kept)
    return _status(found)


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    np.savez_compressed(path, **arrays)


def _again(chosen: argparse.Namespace) -> int:
    with np.load(chosen.again) as file:
        results: dict[str, Bits] = dict(file)
    found: dict[str, Any] = {}
    kept: dict[str, Bits] = {}
    for row in rows(chosen.architecture):
        if any(name.startswith(f"{row.name}/") for name in results):
            found[row.name] = record(row, results)
            _print(row.name, found[row.name])
            kept.update(sample(row, results, chosen.count))
    if chosen.samples is not None:
        _save(chosen.samples, kept)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    return _status(found)


def _print(name: str, found: dict[str, Any]) -> None:
    differing = {kind: count for kind, count in found["differing"].items() if count}
    other = [label for label, answer in found.get("directed_cases", {}).items() if not isinstance(answer, str)]
    total = f"{sum(differing.values())} of {found['compared']} differ {differing or ''}"
    print(f"{name}: {total}; {len(other)} directed cases differ {other[:6] or ''}", flush=True)


def _status(found: dict[str, Any]) -> int:
    differ = [
        name
        for name, each in found.items()
        if name != "environment"
        and (
            "failed" in each
            or any(each["differing"].values())
            or not all(isinstance(answer, str) for answer in each.get("directed_cases", {}).values())
        )
    ]
    print(
        f"{len(differ)} of {len(found) - ('environment' in found)} rows differ" if differ else "every row agrees",
        flush=True,
    )
    return int(bool(differ))


if __name__ == "__main__":
    raise SystemExit(main())
