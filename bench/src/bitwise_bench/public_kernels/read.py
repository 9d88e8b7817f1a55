"""Read the kernels that `record` wrote, and compare their classes with their bytes.

    python -m bitwise_bench.public_kernels.read public-kernels --out records/public-kernels-sm90-h100.json

Every launch is partitioned by itself, with the contents of its tensors of integers and booleans.  No GPU is needed.
With `--searched`, kernels with the same recorded bytes also count as different where `search` found that they are.
The launches are in two parts by a hash of their names: what is `open` may be looked at to mend the reading, and what is
`held out` is read to measure it.
"""

from __future__ import annotations

import hashlib
import json
import math
import resource
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compressed_text import read_text
from bitwise_bench.environment import analysis_environment
from bitwise_bench.public_kernels.agreement import PARTS, agreement, part_of, reasons_of
from bitwise_bench.public_kernels.sources import SOURCES
from bitwise_bench.public_kernels.witnesses import CRITERION, with_witnesses
from bitwise_bench.readings.assumed import reading
from bitwise_core.checker.kernel_files import read_folder
from bitwise_core.checker.partition import partition
from bitwise_core.checker.readings import open_cache
from bitwise_core.checker.sources import Options
from bitwise_core.errors import InputError
from bitwise_core.execution.assumptions import ASSUMPTIONS
from bitwise_core.limits import READING_SECONDS

TARGET = "sm_90"
EXTENSIONS = (".ptx", ".amdgcn")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the launches of a folder; the exit status is 1 where a class mixes bytes, or a moved kernel was missed."""
    parser = command_parser("public_kernels.read", __doc__)
    parser.add_argument("folder", type=Path, help="the folder that `record` wrote, or its archive")
    parser.add_argument("--out", type=Path, help="write the result here, as JSON")
    parser.add_argument("--unknown", type=Path, help="write the kernels that are Unknown here, as Markdown")
    parser.add_argument("--sources", nargs="*", default=[], help="these sources only")
    parser.add_argument("--part", choices=PARTS, help="the launches of this part only")
    parser.add_argument("--target", default=TARGET, help=f"the target of kernels that name none (default {TARGET})")
    parser.add_argument("--also", choices=sorted(ASSUMPTIONS), help="read launches with Unknown again, assuming this")
    parser.add_argument("--witnesses", action="store_true", help="execute Unknown kernels in several orders of threads")
    parser.add_argument("--kept", type=Path, nargs="*", default=[], help="records whose launches are not read again")
    parser.add_argument("--all-in", choices=PARTS, help="the part of all launches that are read (default: by hash)")
    parser.add_argument("--seen", type=Path, nargs="*", default=[], help="records whose kernels are left out")
    parser.add_argument("--once", action="store_true", help="leave out texts that another launch has")
    parser.add_argument("--times", type=Path, nargs="*", default=[], help="what `times` wrote")
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--kernel-seconds", type=float, default=READING_SECONDS, help="time limit of a kernel")
    parser.add_argument("--until", type=float, default=1e9, help="start no launch after this time, in seconds")
    parser.add_argument("--limit", type=int, help="read at most this many launches")
    parser.add_argument("--searched", type=Path, help="what `search --gpu` wrote")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = unpacked(chosen.folder, Path(temporary))
        searched = json.loads(chosen.searched.read_text(encoding="utf-8")) if chosen.searched else None
        wanted = chosen.sources or list(SOURCES)
        launches = [place for place in launch_folders(folder) if place.relative_to(folder).parts[0] in wanted]
        launches = [
            place for place in launches if chosen.part in (None, part_of(place.relative_to(folder).as_posix()))
        ][: chosen.limit]
        options = replace(reading(chosen.target), time_limit=chosen.kernel_seconds)
        before = [json.loads(read_text(path)) for path in chosen.kept]
        kept = [entry for each in before for entry in kept_entries(each)]
        names = {entry["launch"] for entry in kept}
        launches = [place for place in launches if place.relative_to(folder).as_posix() not in names]

        def keep(found: list[dict[str, Any]]) -> None:
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(_record(folder, [*kept, *found], None), indent=1) + "\n")

        entries = _read_all(folder, launches, options, chosen.workers, chosen.until, keep, chosen.target)
        if chosen.also is not None:
            names = {entry["launch"] for entry in entries if any(kernel["unknown"] for kernel in entry["kernels"])}
            again = [place for place in launches if place.relative_to(folder).as_posix() in names]
            assumed = replace(options, assume=options.assume | {chosen.also})
            keep(entries)
            others = _read_all(folder, again, assumed, chosen.workers, math.inf, _kept_nowhere, chosen.target)
            entries = with_assumption(entries, others, chosen.also)
        is_new = bool(entries)
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        if chosen.witnesses:
            keep(entries)
            with ProcessPoolExecutor(chosen.workers) as executor:
                limit = chosen.kernel_seconds
                found = with_witnesses(folder, [*kept, *entries], EXTENSIONS, chosen.target, limit, executor)
            kept, entries = found[: len(kept)], found[len(kept) :]
        if chosen.all_in is not None:
            entries = [{**entry, "part": chosen.all_in} for entry in entries]
        entries = sorted([*kept, *entries], key=lambda entry: str(entry["launch"]))
        if chosen.once:
            entries = without_repeated(entries)
        if chosen.seen:
            seen = digests_of([json.loads(read_text(path)) for path in chosen.seen])
            entries = without_seen(entries, seen)
        for path in chosen.times:
            entries = with_times(entries, json.loads(path.read_text(encoding="utf-8")))
        if searched is not None:
            try:
                entries = [with_searched(entry, searched) for entry in entries]
            except InputError as error:
                parser.error(f"{chosen.searched}: {error}")
        record = _record(folder, entries, searched)
    if before and not is_new:
        record["environment"]["reading"] = before[0]["environment"]["reading"]
    if chosen.witnesses or any("criterion" in each for each in before):
        record["criterion"] = CRITERION
    peaks = [each["largest process, MiB"] for each in before if "largest process, MiB" in each]
    record["largest process, MiB"] = max([*peaks, largest])
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    if chosen.unknown is not None:
        chosen.unknown.write_text(unknown_page(entries))
    print(summary(record))
    whole = record["total"]
    return 1 if whole["mixed"] or whole["missed"] else 0


def _read_all(
    folder: Path,
    launches: Sequence[Path],
    options: Options,
    workers: int,
    until: float,
    keep: Callable[[list[dict[str, Any]]], object],
    target: str,
) -> list[dict[str, Any]]:
    """Read several launches at once: one has too few kernels for many processes.  None starts after `until` seconds.

    Those that cannot be read are reported, and left out.  `keep` is called repeatedly with what was read.

    Their order is that of hashes, so that those of a reading that ended early are a fair sample.
    """
    start, entries = time.monotonic(), list[dict[str, Any]]()
    names = [place.relative_to(folder).as_posix() for place in launches]
    names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
    with ProcessPoolExecutor(workers) as executor, ThreadPoolExecutor(workers) as threads:

        def read(name: str) -> dict[str, Any] | str:
            if time.monotonic() > start + until:
                return "out of time"
            try:
                return {**read_launch(folder / name, name, options, executor, target), "part": part_of(name)}
            except InputError as error:
                return str(error)

        waiting = {threads.submit(read, name): name for name in names}
        for number, done in enumerate(as_completed(waiting), 1):
            answer = done.result()
            if isinstance(answer, str):
                print(f"{waiting[done]}: {answer}", file=sys.stderr, flush=True)
            else:
                entries.append(answer)
            if sys.stderr.isatty() or number % 20 == 0:
                print(
                    f"{number} of {len(names)} launches, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True
                )
                keep(entries)
    return entries


def _kept_nowhere(entries: list[dict[str, Any]]) -> None:
    """Ignore what was read so far."""


def launch_folders(folder: Path) -> list[Path]:
    """Return the folders of launches below a folder, in order."""
    return sorted(path.parent for path in folder.rglob("bytes.json"))


def read_launch(
    place: Path, name: str, options: Options, executor: Executor | None = None, target: str = TARGET
) -> dict[str, Any]:
    """Partition the kernels of a launch, and return the outcome of each with its bytes."""
    described = json.loads((place / "bytes.json").read_text(encoding="utf-8"))
    sources = read_folder(place, EXTENSIONS).sources
    found = partition(sources, target, options, executor=executor, workers=1, cache=open_cache())
    class_of = {file: number for number, members in enumerate(found.classes) for file in members}
    kernels = []
    for entry, result in zip(described["kernels"], found.results, strict=True):
        file = entry["file"]
        kernels.append(
            {
                "file": file,
                "configuration": entry["name"],
                "digest": entry["digest"],
                "class": class_of[file],
                "unknown": found.unknown.get(file),
                "undetermined": result.nondeterministic,
                "places": sorted({each.kind for each in result.places}),
                "seconds": round(result.seconds, 3),
                "compile seconds": entry.get("compile seconds") or None,
                "hashes": entry.get("hashes") or None,
                "moved": entry.get("moved") or [],
                "error": entry.get("error"),
            }
        )
    return {"launch": name, "kernel": described["kernel"], "tuned": described["tuned"], "kernels": kernels}


def with_assumption(
    entries: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], name: str
) -> list[dict[str, Any]]:
    """Return launches whose Unknown kernels have what they are under an assumption, of which `others` are readings.

    `assuming` has by the name of the assumption the reason for Unknown, or None for a kernel that has a class.
    """
    reasons = {(entry["launch"], kernel["file"]): kernel["unknown"] for entry in others for kernel in entry["kernels"]}
    return [
        {
            **entry,
            "kernels": [
                {**kernel, "assuming": {name: reasons[entry["launch"], kernel["file"]]}}
                if kernel["unknown"] and (entry["launch"], kernel["file"]) in reasons
                else kernel
                for kernel in entry["kernels"]
            ],
        }
        for entry in entries
    ]


def kept_entries(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the launches of a record as `read_launch` does, with the number of a byte class in place of its hashes."""
    base: dict[str, Any] = {
        "unknown": None,
        "undetermined": False,
        "places": [],
        "seconds": 0.0,
        "compile seconds": None,
    }
    base |= {"moved": [], "error": None}
    return [
        {
            **entry,
            "kernels": [
                {**base, **kernel, "hashes": [kernel["bytes"]] if "bytes" in kernel else None}
                for kernel in entry["kernels"]
            ],
        }
        for entry in record["launches"]
    ]


def digests_of(records: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the digests of the texts of all kernels of records."""
    return frozenset(
        kernel["digest"] for record in records for entry in record["launches"] for kernel in entry["kernels"]
    )


def without_seen(entries: Iterable[Mapping[str, Any]], seen: frozenset[str]) -> list[dict[str, Any]]:
    """Return launches without the kernels whose digests are in `seen`, and without those that have no other."""
    left = [
        {**entry, "kernels": [each for each in entry["kernels"] if each["digest"] not in seen]} for entry in entries
    ]
    return [entry for entry in left if entry["kernels"]]


def without_repeated(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return launches in which each text is a kernel of one launch only: of an open one before a held-out one.

    Two kernels of one launch with the same text differ in the grid, and are two kernels.
    """
    ordered = sorted(entries, key=lambda entry: (PARTS.index(entry["part"]), str(entry["launch"])))
    first: dict[str, str] = {}
    for entry in ordered:
        for kernel in entry["kernels"]:
            first.setdefault(kernel["digest"], entry["launch"])
    left = [
        {**entry, "kernels": [each for each in entry["kernels"] if first[each["digest"]] == entry["launch"]]}
        for entry in ordered
    ]
    return sorted((entry for entry in left if entry["kernels"]), key=lambda entry: str(entry["launch"]))


def with_times(entries: Iterable[Mapping[str, Any]], times: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return launches whose kernels have the CPU seconds that `times` measured, where it did.

    `CPU seconds` are those of reading and of compiling; the second is None where it was not measured.
    """
    found = times["launches"]
    return [
        {
            **entry,
            "kernels": [
                {**kernel, "CPU seconds": [measured["reading"], measured["compiling"]]}
                if (measured := found.get(entry["launch"], {}).get(kernel["file"])) is not None
                else kernel
                for kernel in entry["kernels"]
            ],
        }
        for entry in entries
    ]


def with_searched(entry: Mapping[str, Any], searched: Mapping[str, Any]) -> dict[str, Any]:
    """Return a launch with the number of the byte pattern of each kernel over the inputs of a search (`searched`).

    Where it was not searched the number is 0: nothing more than the recorded bytes is known.  The inputs on which its
    bytes moved are added to those of the recording.  `inputs` is the number of the others, `pairs` are the searches.
    Raises InputError for the search of other kernels.
    """
    launch = searched["launches"].get(entry["launch"], {"kernels": {}})
    found = launch["kernels"]
    kernels = []
    for kernel in entry["kernels"]:
        mine = found.get(kernel["file"])
        if mine is not None and mine["digest"] != kernel["digest"]:
            raise InputError(f"{entry['launch']}/{kernel['file']} is not the kernel that was searched; search again")
        moved = [] if mine is None else mine.get("moved", [])
        label = 0 if mine is None else mine["label"]
        kernels.append({**kernel, "moved": list(dict.fromkeys([*kernel["moved"], *moved])), "searched": label})
    about = {name: launch[name] for name in ("inputs", "pairs") if launch.get(name)}
    return {**entry, "kernels": kernels, **about}


def _record(folder: Path, entries: Sequence[Mapping[str, Any]], searched: Mapping[str, Any] | None) -> dict[str, Any]:
    environment = folder / "environment.json"
    recorded = json.loads(environment.read_text(encoding="utf-8")) if environment.exists() else {}
    by_source: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        by_source.setdefault(entry["launch"].split("/")[0], []).append(entry)
    return {
        "environment": {"bytes": recorded, "reading": analysis_environment()}
        | ({} if searched is None else {"search": searched["environment"]}),
        "sources": {
            name: {
                "distribution": SOURCES[name].distribution,
                "version": SOURCES[name].version,
                "licence": SOURCES[name].licence,
                **agreement(mine),
            }
            for name, mine in by_source.items()
        },
        "total": agreement(entries),
        "parts": _by_part(entries),
        "reasons": reasons_of(entries),
        "launches": [_short(entry) for entry in entries],
    }


def _by_part(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {part: _groups([each for each in entries if each["part"] == part]) for part in PARTS}


def _groups(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of launches of packages, of those of TorchInductor, and of all."""
    compiled = {name for name, source in SOURCES.items() if source.inductor}
    is_compiled = [entry["launch"].split("/")[0] in compiled for entry in entries]
    return {
        "packages": agreement([each for each, other in zip(entries, is_compiled, strict=True) if not other]),
        "TorchInductor": agreement([each for each, other in zip(entries, is_compiled, strict=True) if other]),
        "all": agreement(entries),
    }


def _short(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a launch with a byte class in the place of the hashes."""
    labels: dict[str, int] = {}
    kernels = []
    for kernel in entry["kernels"]:
        short = {name: value for name, value in kernel.items() if name not in ("hashes", "bytes") and value}
        if kernel["hashes"] and not kernel["moved"] and not kernel["error"]:
            short["bytes"] = labels.setdefault(json.dumps(kernel["hashes"]), len(labels))
        kernels.append({**short, "class": kernel["class"]})
    return {**entry, "kernels": kernels}


def unknown_page(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the reasons for Unknown with their counts and kernels, as Markdown."""
    lines = ["# Kernels that are Unknown", ""]
    for reason in reasons_of(entries):
        lines += [f"## {reason['kernels']} kernels of {len(reason['launches'])} launches: {reason['reason']}", ""]
        lines += [f"- `{path}`: {words}" for path, words in reason["examples"]]
        lines.append("")
    return "\n".join(lines)


def summary(record: Mapping[str, Any]) -> str:
    """Return the figures of every source as text."""
    lines = [_line("source", "kernels", "determined", "Unknown", "classes", "bytes", "ratio", "functions", "mixed",
                   "moved", "named", "missed", "median s", "p90 s", "max s")]  # fmt: skip
    for name, each in [*record["sources"].items(), ("all", record["total"])]:
        seconds = each["seconds"]
        lines.append(
            _line(name, each["kernels"], each["determined"], each["unknown"], each["classes"], each["byte classes"],
                  each["ratio"], each["functions"], len(each["mixed"]), each["moved"], each["named"], each["missed"],
                  *(f"{seconds[key]:.2f}" for key in ("median", "p90", "most")))
        )  # fmt: skip
    lines += [
        f"{each['kernels']:5} {each['reason']}   e.g. {each['examples'][0][0]}" for each in record["reasons"][:12]
    ]
    return "\n".join(lines)


def _line(*cells: object) -> str:
    return "".join(f"{cells[0]!s:20}") + "".join(f"{cell!s:>11}" for cell in cells[1:])


def unpacked(path: Path, temporary: Path) -> Path:
    """Return a folder, or that which an archive of it contains."""
    if path.is_dir():
        return path
    with tarfile.open(path) as archive:
        archive.extractall(temporary, filter="data")
    return next(each for each in temporary.iterdir() if each.is_dir())


if __name__ == "__main__":
    sys.exit(main())
