"""The reading of the corpus for an architecture, where that of another one holds for it.

    python -m bitwise_bench.readings.carried_readings --from reading-sm_100.json \
        --recorded records/bytes-sm100-simulated-triton-3.6.0.json.gz --target sm_103 --folder sm_103 \
        --records bytes-sm103.json.gz --log sm_103.jsonl --out reading-sm_103.json

The reading of a family holds where the compiler writes the text of each of its kernels for both architectures, but for
`.target`, both execute it alike (`bitwise_bench.simulation.carried_bytes`), and the assembler fuses the same products.
Every other family is read.  `--log` holds what is known of each kernel, so that an interrupted run can be continued.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.sources import stored_source
from bitwise_bench.corpus.cases import Case
from bitwise_bench.readings.precision import MODES, measure_named, records_of, summarise
from bitwise_bench.recorded_bytes import RecordError, load_records
from bitwise_bench.simulation.carried_bytes import carried, same_audit
from bitwise_core.plugins import registry

COUNTS = ("kernels", "compared", "unknown", "excluded", "classes", "byte_classes", "nondeterministic")
"""The counts of a reading, which are sums over families."""


def joined(known: Mapping[str, Any], read: Mapping[str, Any], families: Sequence[str]) -> dict[str, Any]:
    """Return the reading whose `families` are those of `known`, and whose others were read."""
    chosen = {name: known["families"][name] for name in families} | dict(read["families"])
    found = {**read, "families": chosen, "modes": {}, "carried": {"families": len(families)}}
    for mode in read["modes"]:
        counts = {name: sum(each[mode][name] for each in chosen.values()) for name in COUNTS}
        mixed = [pair for each in chosen.values() for pair in each[mode]["mixed"]]
        ratio = round(counts["classes"] / max(1, counts["byte_classes"]), 3)
        found["modes"][mode] = {**counts, "mixed": mixed, "ratio": ratio}
    kernels = sum(known["families"][name][next(iter(read["modes"]))]["kernels"] for name in families)
    found["carried"] = {"families": len(families), "kernels": kernels, "from": known["target"]}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Read what has to be read, and write the reading; the exit status is 1 where a class has two byte patterns."""
    parser = command_parser("readings.carried_readings", __doc__)
    parser.add_argument("--from", dest="known", type=Path, required=True, help="the reading of an architecture")
    parser.add_argument("--recorded", type=Path, required=True, help="its bytes, with the digests of its texts")
    parser.add_argument("--target", required=True, help="the other architecture")
    parser.add_argument("--folder", type=Path, required=True, help="the kernels compiled for it")
    parser.add_argument("--records", type=Path, help="the bytes of the other architecture")
    parser.add_argument("--modes", nargs="*", choices=MODES, default=["launch", "matrix arithmetic"])
    parser.add_argument("--left-out", nargs="*", default=[], help="these families are not read")
    parser.add_argument("--log", type=Path, required=True, help="a file of what is known of each kernel")
    parser.add_argument("--out", type=Path, required=True, help="write the reading here, as JSON")
    chosen = parser.parse_args(arguments)
    from bitwise_bench.corpus import catalogue

    try:
        recorded, own = load_records(chosen.recorded), records_of(chosen.target, chosen.records)
    except RecordError as error:
        parser.error(str(error))
    known = json.loads(chosen.known.read_text(encoding="utf-8"))
    families: dict[str, list[Case]] = {}
    for case in catalogue.cases(chosen.target):
        if case.family not in chosen.left_out:
            families.setdefault(case.family, []).append(case)
    lines = chosen.log.read_text(encoding="utf-8").splitlines() if chosen.log.exists() else []
    log: dict[tuple[str, str], Any] = {(each["what"], each["id"]): each["found"] for each in map(json.loads, lines)}

    def noted(what: str, case: Case, found: Any) -> Any:
        log[what, case.id] = found
        with chosen.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, "id": case.id, "found": found}) + "\n")
        return found

    arches = registry.default().arch(known["target"]), registry.default().arch(chosen.target)
    same, outcomes = [], Counter[str]()
    for family, cases in families.items():
        held = carried(cases, chosen.folder, recorded)
        if family in known["families"] and len(held) == len(cases) == known["families"][family]["launch"]["kernels"]:
            for case in cases:
                if ("audit", case.id) not in log:
                    source, _ = stored_source(case, chosen.folder)
                    assert source.launch is not None
                    noted("audit", case, same_audit(source.text, source.launch.entry, *arches))
            if all(log["audit", case.id] for case in cases):
                same.append(family)
        outcomes["carried" if family in same else "read"] += len(cases)
        print(f"{family}: {'carried' if family in same else 'to be read'}", file=sys.stderr, flush=True)
    print(f"{outcomes['carried']} configurations of {len(same)} families hold, {outcomes['read']} are read", flush=True)
    results = []
    for family, cases in families.items():
        for case in cases if family not in same else ():
            job = (chosen.target, case.id, chosen.folder, tuple(chosen.modes))
            found = log.get(("reading", case.id))
            results.append(found or noted("reading", case, measure_named(job)))
    summary = joined(known, summarise(results, [], own, chosen.modes, chosen.target), same)
    summary["left out"] = chosen.left_out
    chosen.out.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    for mode, each in summary["modes"].items():
        print(
            f"{mode:14} {each['classes']} classes, {each['byte_classes']} byte classes, ratio {each['ratio']}, "
            f"{each['unknown']} of {each['kernels']} unknown, {len(each['mixed'])} mixed"
        )
    return 1 if any(each["mixed"] for each in summary["modes"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
