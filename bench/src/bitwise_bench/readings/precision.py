"""Precision of the verdicts over the whole corpus, against recorded bytes, and the time that they take.

    python -m bitwise_bench.readings.precision --out records/reading-sm90.json
    python -m bitwise_bench.readings.precision --target gfx942 --out records/reading-gfx942.json

Every kernel is compiled and analysed for its launch, with and without the assumption that all values are finite, and
for every launch; where matrix units have one published arithmetic, also under the assumption that they compute it.
All of them assume what `assumed` states.
Times are wall-clock seconds of one process on one core.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.sources import compile_source, group_buffers, stored_source
from bitwise_bench.corpus.cases import DEFAULT_TARGET, Argument, Array, Case, Scalar
from bitwise_bench.draws.inputs import NOT_FINITE
from bitwise_bench.environment import analysis_environment
from bitwise_bench.readings.assumed import assumed
from bitwise_bench.readings.byte_agreement import Agreement, KernelResult, compare
from bitwise_bench.recorded_bytes import RecordError, Records, load_records
from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import analyse
from bitwise_core.checker.sources import Options
from bitwise_core.execution.assumptions import FINITE, MATRIX_ARITHMETIC
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import ManifestError
from bitwise_core.plugins import registry

RECORDED_BYTES: Mapping[str, Path] = {
    "sm_90": Path("records/bytes-sm90-h100-triton-3.6.0.json"),
    "gfx942": Path("records/bytes-gfx942-simulated-triton-3.6.0.json"),
    "sm_100": Path("records/bytes-sm100-simulated-triton-3.6.0.json.gz"),
}
"""The recorded bytes of the corpus for each architecture."""

MODES: Mapping[str, Options] = {
    "launch": Options(),
    "finite": Options(assume=frozenset({FINITE})),
    "every launch": Options(every_launch=True),
    "matrix arithmetic": Options(assume=frozenset({MATRIX_ARITHMETIC})),
}
"""The options of each analysis."""

UNITS_OF_ONE_ARITHMETIC = ("sm_100", "sm_103")
"""The architectures with matrix units whose published rows agree, and that nobody here has compared."""

ROW_FAMILIES = (
    "row_",
    "softmax_row",
    "layer_norm",
    "rms_norm",
    "log_sum_exp",
    "square_sum",
    "cross_entropy",
    "welford",
)


def modes_of(target: str) -> tuple[str, ...]:
    """Return the analyses that an architecture supports."""
    arch = registry.default().arch(target)
    return tuple(
        mode
        for mode, options in MODES.items()
        if (arch.every_launch is not None or not options.every_launch)
        and (target in UNITS_OF_ONE_ARITHMETIC or MATRIX_ARITHMETIC not in options.assume)
    )


def measure(case: Case, modes: Iterable[str] | None = None, folder: Path | None = None) -> dict[str, Any]:
    """Compile and analyse one configuration: digest, signatures or reasons of Unknown by mode, and seconds by step.

    `folder` holds compiled kernels, which are then not compiled again.
    """
    seconds: dict[str, float] = {}
    if folder is None:
        source, digest, seconds["compile"] = compile_source(case)
    else:
        source, digest = stored_source(case, folder)
    arch = registry.default().arch(case.target)
    modes = modes_of(case.target) if modes is None else tuple(modes)
    assert source.launch is not None
    scalars = {each.name: each.value for each in case.arguments if isinstance(each, Scalar)}
    result: dict[str, Any] = {"id": case.id, "digest": digest, "scalars": repr(scalars), "seconds": seconds}
    result |= {"signatures": {}, "unknown": {}, "nondeterministic": []}
    start = time.perf_counter()
    try:
        module = arch.parse(source.text, source.name)
        seconds["parse"] = time.perf_counter() - start
        start = time.perf_counter()
        if arch.audit_contraction is not None:
            audit = arch.audit_contraction(module, source.text, source.launch.entry)
            arch = replace(arch, audit_contraction=lambda *_: audit)  # all analyses share one audit
        seconds["audit"] = time.perf_counter() - start
    except (AssemblyError, Unsupported) as error:
        result["unknown"] = {mode: str(error) for mode in modes}
        return result
    buffers = group_buffers(case)
    for mode in modes:
        options = MODES[mode]
        options = replace(options, assume=options.assume | assumed([case.target]))
        found = analyse(source, arch, buffers, options)
        seconds[mode] = found.seconds
        if found.signature is None:
            result["unknown"][mode] = found.unknown
            result["nondeterministic"] += [mode] * found.nondeterministic
        else:
            result["signatures"][mode] = found.signature.hex()
    return result


def measure_named(job: tuple[str, str, Path | None, Sequence[str]]) -> dict[str, Any]:
    """Return `measure` of the configuration (target, id, folder, modes), with the reason for one that fails.

    What the compiler does not take is `uncompiled`; anything else is Unknown.
    """
    from bitwise_bench.corpus import catalogue
    from bitwise_triton import CaptureError

    target, name, folder, modes = job
    try:
        return measure(catalogue.by_id(target)[name], modes, folder)
    except (CaptureError, ManifestError) as error:
        return {"id": name, "uncompiled": " ".join(str(error).split())[:300]}
    except Exception as error:  # part of the result
        reason = " ".join(str(error).split())[:300]
        return {
            "id": name,
            "digest": "",
            "seconds": {},
            "signatures": {},
            "unknown": dict.fromkeys(modes, reason),
            "nondeterministic": [],
        }


def gemm_cases(target: str = DEFAULT_TARGET, m: int = 256, n: int = 256, k: int = 1024) -> list[Case]:
    """Return the configurations of one group of the corpus on a larger matrix product."""
    from bitwise_bench.corpus import catalogue

    numbers = {"m": m, "n": n, "k": k}
    sizes = {"a": m * k, "b": k * n, "c": m * n}
    found = []
    for case in catalogue.cases(target):
        if (case.family, case.group) != ("gemm", "fp16-128x128x96"):
            continue
        strides = {"stride_am": k, "stride_bk": n, "stride_cm": n}
        arguments: list[Argument] = []
        for argument in case.arguments:
            if isinstance(argument, Array):
                arguments.append(replace(argument, elements=sizes[argument.name]))
            elif isinstance(argument, Scalar):
                arguments.append(replace(argument, value={**numbers, **strides}.get(argument.name, argument.value)))
        blocks = -(-m // case.constants["BM"]) * -(-n // case.constants["BN"])
        found.append(replace(case, arguments=tuple(arguments), grid=(blocks, 1, 1)))
    return found


def measure_gemm(job: tuple[str, int]) -> dict[str, Any]:
    """Return `measure` of one of the `gemm_cases`, for its launch."""
    return measure(gemm_cases(job[0])[job[1]], ("launch",))


def quantiles(values: Iterable[float]) -> dict[str, float | int]:
    """Return number, median, ninth decile and maximum of some durations in seconds."""
    ordered = sorted(values)
    if not ordered:
        return {"kernels": 0}
    return {
        "kernels": len(ordered),
        "median": round(ordered[len(ordered) // 2], 4),
        "p90": round(ordered[int(0.9 * len(ordered))], 4),
        "longest": round(ordered[-1], 4),
    }


def agreement_of(results: Sequence[Mapping[str, Any]], mode: str, records: Records) -> Agreement:
    """Return the agreement of one mode; for `finite`, with the bytes of inputs without infinities and NaNs.

    Equal for every launch means equal for the same arguments, so that mode separates kernels with different scalars.
    """

    def signature(result: Mapping[str, Any]) -> str | None:
        found: str | None = result["signatures"].get(mode)
        return f"{found} {result['scalars']}" if found and mode == "every launch" else found

    of_mode = [
        KernelResult(r["id"], r["digest"], signature(r), r["unknown"].get(mode), mode in r["nondeterministic"])
        for r in results
    ]
    finite = [index for index, kind in enumerate(records.draws) if kind not in NOT_FINITE]
    return compare(of_mode, records.by_id(), finite if mode == "finite" else None)


def draws_run(records: Records) -> dict[str, int]:
    """Return the numbers of kinds of input and configurations, of those with all kinds, and the fewest kinds of one."""
    counts = [sum(any(row) for row in case.hashes) for case in records.cases if case.usable]
    kinds = len(records.draws)
    whole = sum(count == kinds for count in counts)
    return {"kinds": kinds, "configurations": len(counts), "on all": whole, "fewest": min(counts, default=0)}


def summarise(
    results: Sequence[Mapping[str, Any]],
    gemms: Sequence[Mapping[str, Any]],
    records: Records,
    modes: Sequence[str] = tuple(MODES),
    target: str = DEFAULT_TARGET,
) -> dict[str, Any]:
    """Return the record: agreement by mode and family, reasons of Unknown, what did not compile, and times."""
    uncompiled = sorted(str(r["id"]) for r in results if "uncompiled" in r)
    results = [r for r in results if "uncompiled" not in r]
    families = list(dict.fromkeys(str(r["id"]).split("/")[0] for r in results))
    summary: dict[str, Any] = {
        "environment": analysis_environment(),
        "target": target,
        "simulated": "simulated" in records.environment,
        "draws": draws_run(records),
        "modes": {},
        "families": {},
        "unknown": {},
        "uncompiled": uncompiled,
        "seconds": {},
    }
    for mode in modes:
        summary["modes"][mode] = _plain(agreement_of(results, mode, records))
        reasons = Counter(
            re.sub(r" at line \d+|%\w+", "", str(r["unknown"][mode]))[:160]
            for r in results
            if mode in r["unknown"] and mode not in r["nondeterministic"]
        )
        summary["unknown"][mode] = dict(reasons.most_common(40))
    for family in families:
        members = [r for r in results if str(r["id"]).split("/")[0] == family]
        summary["families"][family] = {mode: _plain(agreement_of(members, mode, records)) for mode in modes}
    rows = [r for r in results if str(r["id"]).startswith(ROW_FAMILIES)]
    sets: dict[str, Sequence[Mapping[str, Any]]] = {"all": results, "rows": rows, "gemm 256x256x1024": gemms}
    steps = ("compile", "parse", "audit", *modes)
    for name, measured in sets.items():
        summary["seconds"][name] = {
            step: quantiles(r["seconds"][step] for r in measured if step in r["seconds"] and step not in r["unknown"])
            for step in steps
        }
    return summary


def _plain(agreement: Agreement) -> dict[str, Any]:
    return {**asdict(agreement), "mixed": [list(pair) for pair in agreement.mixed], "ratio": round(agreement.ratio, 3)}


def records_of(target: str, path: Path | None = None) -> Records:
    """Return the bytes of a file, or of the file that is kept for the target.

    Raises RecordError where there is no such file, or where it holds the bytes of another architecture.
    """
    path = path or RECORDED_BYTES.get(target)
    if path is None:
        raise RecordError(f"no bytes are recorded for {target}; give a file with --records")
    records = load_records(path)
    recorded = records.environment.get("architecture")
    if recorded != target:
        raise RecordError(f"{path} holds the bytes of {recorded}, not of {target}; give another file with --records")
    return records


def of_all(summary: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the kernels of the families of a sample, and how many are Unknown if those not read are as those read."""
    found = {name: each["launch"] for name, each in summary["families"].items() if "launch" in each}
    unknown = sum(sizes[name] * each["unknown"] / each["kernels"] for name, each in found.items())
    return {"kernels of these families": sum(sizes[name] for name in found), "unknown of these": round(unknown)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the exit status is 1 where a class of the concrete analysis has two byte patterns."""
    parser = command_parser("readings.precision", __doc__)
    parser.add_argument("--records", type=Path, help="the recorded bytes (default: those in records/ of the target)")
    parser.add_argument("--target", default=DEFAULT_TARGET, help="the architecture (default sm_90)")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument("--sample", type=int, default=0, help="at most this many configurations of a family (0: all)")
    parser.add_argument("--whole", nargs="*", default=[], help="with --sample: all configurations of these families")
    parser.add_argument("--no-bytes", action="store_true", help="read only, and compare no bytes")
    parser.add_argument(
        "--folder", type=Path, help="read compiled kernels from this folder, which take no compile time"
    )
    parser.add_argument("--modes", nargs="*", choices=MODES, help="these analyses (default: all of the architecture)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("--out", type=Path, help="write the measurements here, as JSON")
    chosen = parser.parse_args(arguments)
    from bitwise_bench.corpus import catalogue
    from bitwise_bench.corpus.targets import sampled

    target = chosen.target
    try:
        records = Records({}, (), ()) if chosen.no_bytes else records_of(target, chosen.records)
    except RecordError as error:
        parser.error(str(error))
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"  # a cache hit has no compile time
    modes = tuple(mode for mode in modes_of(target) if not chosen.modes or mode in chosen.modes)
    cases = sampled(catalogue.cases(target), chosen.sample, chosen.whole)
    names = [case.id for case in cases if not chosen.families or case.family in chosen.families]
    start = time.monotonic()
    results: list[dict[str, Any]] = []
    with ProcessPoolExecutor(chosen.workers) as pool:
        for result in pool.map(measure_named, [(target, name, chosen.folder, modes) for name in names]):
            results.append(result)
            if len(results) % 100 == 0:
                print(
                    f"{len(results)} of {len(names)} after {time.monotonic() - start:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
        jobs = [(target, index) for index in range(len(gemm_cases(target)))] if not chosen.families else []
        gemms = list(pool.map(measure_gemm, jobs))
    summary = summarise(results, gemms, records, modes, target)
    if chosen.sample:
        sizes = Counter(case.family for case in catalogue.cases(target))
        summary["sample"] = {"of a family": chosen.sample, "whole": chosen.whole, **of_all(summary, sizes)}
    for mode, agreement in summary["modes"].items():
        print(
            f"{mode:14} {agreement['classes']} classes, {agreement['byte_classes']} byte classes, "
            f"ratio {agreement['ratio']}, "
            f"{agreement['unknown']} of {agreement['kernels']} unknown, "
            f"{agreement['nondeterministic']} nondeterministic, {len(agreement['mixed'])} mixed"
        )
    mixed = summary["modes"].get("launch", {}).get("mixed", [])
    for pair in mixed:
        print(f"DIFFERENT BYTES IN ONE CLASS: {pair[0]} and {pair[1]}")
    for name, steps in summary["seconds"].items():
        print(name, {step: (each.get("median"), each.get("p90")) for step, each in steps.items()})
    if chosen.out:
        chosen.out.write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if mixed else 0


if __name__ == "__main__":
    sys.exit(main())
