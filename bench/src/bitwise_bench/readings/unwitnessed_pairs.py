"""Pairs of kernels that are not proved equal, and those of them without a known counterexample.

    python -m bitwise_bench.gpu.recorder --dry-run --folder corpus
    python -m bitwise_bench.readings.unwitnessed_pairs corpus --bytes records/bytes-sm90-h100-triton-3.6.0.json \\
        --out pairs.json

Every folder with a manifest is one group.  Its kernels are partitioned, and for pairs of representatives of two classes
a counterexample is searched: an input on which the bytes differ.  Without one, two different trees may still compute
the same function.  With `--equals`, pairs of one class are tried too: a counterexample of such a pair proves a wrong
Equal.  With `--surrogates`, approximate instructions whose bits are not known are executed by the functions with which
the bytes of an architecture without a GPU are simulated: such a counterexample separates what these functions compute.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.compilation.text_digest import normalised_digest
from bitwise_bench.environment import analysis_environment
from bitwise_bench.readings.assumed import reading
from bitwise_bench.recorded_bytes import CaseRecord, load_records
from bitwise_bench.simulation.recorder import with_surrogates
from bitwise_bench.worker_pool import run_all
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.counterexamples import NotFound, find_counterexample
from bitwise_core.checker.kernel_files import extensions, find_target, read_folder
from bitwise_core.checker.partition import partition
from bitwise_core.checker.sources import Source
from bitwise_core.checker.verdicts import Counterexample, Outcome
from bitwise_core.execution.architecture import Arch
from bitwise_core.plugins import registry

AGREE, DIFFER, NOT_RECORDED = "agree", "differ", "not recorded"
"""Whether the recorded bytes of a pair are the same for every kind of input."""

LONGEST_NODE = 240


def groups(folder: Path, families: Iterable[str] = ()) -> list[str]:
    """Return the relative paths of the folders with a manifest, `family/group` in a corpus; of some families only."""
    wanted = frozenset(families)
    names = sorted(path.parent.relative_to(folder).as_posix() for path in folder.rglob("manifest.json"))
    return [name for name in names if not wanted or name.split("/")[0] in wanted]


def search_group(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Search for counterexamples of the pairs of one group; a job for `worker_pool.run_all`."""
    if time.time() >= settings["until"]:
        return {"skipped": True}
    folder = Path(settings["folder"]) / name
    kernels = [each for each in read_folder(folder, extensions(registry.default())).sources if each.launch]
    arch = _arch_of(kernels[0], settings)
    found = partition(kernels, arch.name, reading(arch.name), workers=1)
    by_name = {each.name: each for each in kernels}
    firsts = [by_name[members[0]] for members in found.classes if members[0] not in found.unknown]
    records = load_records(settings["bytes"]).by_id() if settings["bytes"] else {}
    pairs = [(pair, recorded_agreement(name, pair, records)) for pair in itertools.combinations(firsts, 2)]
    if settings["agreeing"]:
        pairs = [pair for pair in pairs if pair[1] == AGREE]
    chosen = choose_pairs(pairs, settings["pairs"], f"{settings['seed']} {name}")
    tried = []
    for (left, right), said in chosen:
        if time.time() >= settings["until"]:
            break
        tried.append({**try_pair(left, right, settings), "bytes": said})
    equals = []
    for one, other in equal_pairs(found.classes, settings["equals"], f"{settings['seed']} {name}"):
        if time.time() >= settings["until"]:
            break
        seen = find_counterexample(
            by_name[one], by_name[other], arch, reading(arch.name), None, settings["seconds"], settings["seed"]
        )
        equals.append(
            {
                "left": one,
                "right": other,
                "ran": not isinstance(seen, NotFound) or seen.runs > 0,
                "input": seen.sentence if isinstance(seen, Counterexample) else None,
            }
        )
    return {"kernels": len(kernels), "classes": len(firsts), "pairs": len(pairs), "tried": tried, "equals": equals}


def _arch_of(kernel: Source, settings: Mapping[str, Any]) -> Arch:
    found = registry.default().arch(find_target([kernel], registry.default(), None).name)
    return with_surrogates(found) if settings.get("surrogates") else found


def equal_pairs(classes: Iterable[Sequence[str]], count: int, seed: str) -> list[tuple[str, str]]:
    """Return two members of each of up to `count` classes with several members, chosen by a seed."""
    shared = [list(members) for members in classes if len(members) > 1]
    random.Random(seed).shuffle(shared)
    pairs = [random.Random(seed).sample(members, 2) for members in shared[:count]]
    return [(left, right) for left, right in pairs]


Pair = tuple[tuple[Source, Source], str]


def choose_pairs(pairs: Sequence[Pair], count: int, seed: str) -> list[Pair]:
    """Return up to `count` pairs (0: all) chosen by a seed; pairs whose recorded bytes agree come first."""
    shuffled = list(pairs)
    random.Random(seed).shuffle(shuffled)
    shuffled.sort(key=lambda pair: pair[1] != AGREE)
    return shuffled[: count or None]


def recorded_agreement(group: str, pair: Iterable[Source], records: Mapping[str, CaseRecord]) -> str:
    """Return whether the recorded bytes of a pair agree; NOT_RECORDED unless both are usable and of the same text."""
    found = [records.get(f"{group}/{Path(each.name).stem}") for each in pair]
    for record, source in zip(found, pair, strict=True):
        if record is None or not record.usable or record.digest != normalised_digest(source.text):
            return NOT_RECORDED
    return AGREE if len({record.hashes for record in found if record is not None}) == 1 else DIFFER


def try_pair(left: Source, right: Source, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on a pair, and its counterexample or the reason why there is none."""
    arch = _arch_of(left, settings)
    start = time.monotonic()
    compared = compare(left, right, arch, reading(arch.name))
    divergence = compared.verdict.divergence
    answer: dict[str, Any] = {"left": left.name, "right": right.name, "outcome": compared.verdict.outcome.value}
    if divergence is not None:
        sides = (divergence.left, divergence.right)
        answer["element"] = divergence.element
        answer["nodes"] = [None if side is None else side.node[:LONGEST_NODE] for side in sides]
    if compared.verdict.outcome is not Outcome.UNPROVED:
        return {**answer, "reason": compared.verdict.reason}
    seen = find_counterexample(left, right, arch, reading(arch.name), compared, settings["seconds"], settings["seed"])
    witnessed = isinstance(seen, Counterexample)
    return {
        **answer,
        "outcome": (Outcome.DIFFERENT if witnessed else Outcome.UNPROVED).value,
        "witnessed": witnessed,
        "reason": seen.drawn if isinstance(seen, Counterexample) else seen.sentence,
        "seconds": round(time.monotonic() - start, 1),
    }


def summary(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts, by agreement of recorded bytes and by family, and the pairs without a counterexample."""
    done = {name: answer for name, answer in sorted(answers.items()) if "tried" in answer}
    tried = [(name, each) for name, answer in done.items() for each in answer["tried"] if "witnessed" in each]
    families: dict[str, Counter[str]] = {}
    for name, each in tried:
        count = families.setdefault(name.split("/")[0], Counter())
        count["pairs"] += 1
        count["witnessed"] += each["witnessed"]
        count["agreeing"] += each["bytes"] == AGREE
        count["agreeing, witnessed"] += each["bytes"] == AGREE and each["witnessed"]
    kept = ("left", "right", "bytes", "element", "nodes", "reason")
    return {
        "groups": {
            "all": len(answers),
            "done": len(done),
            "out of time": sum(bool(answer.get("skipped")) for answer in answers.values()),
            "failed": {name: answer["error"] for name, answer in sorted(answers.items()) if answer.get("error")},
        },
        "kernels": sum(answer["kernels"] for answer in done.values()),
        "classes": sum(answer["classes"] for answer in done.values()),
        "pairs of classes": sum(answer["pairs"] for answer in done.values()),
        "tried": len(tried),
        "witnessed": sum(each["witnessed"] for _, each in tried),
        "by bytes": {
            said: {
                "tried": sum(each["bytes"] == said for _, each in tried),
                "witnessed": sum(each["bytes"] == said and each["witnessed"] for _, each in tried),
            }
            for said in (AGREE, DIFFER, NOT_RECORDED)
        },
        "equals": {
            "tried": sum(each["ran"] for answer in done.values() for each in answer["equals"]),
            "distinguished": [
                {"group": name, **each}
                for name, answer in done.items()
                for each in answer["equals"]
                if each["input"] is not None
            ],
        },
        "families": {family: dict(count) for family, count in sorted(families.items())},
        "unwitnessed": [
            {"group": name, **{key: each[key] for key in kept if key in each}}
            for name, each in tried
            if not each["witnessed"]
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Search for counterexamples in a folder of groups.

    The exit status is 1 where a group failed or a pair of one class has a counterexample, else 0.
    """
    parser = command_parser("readings.unwitnessed_pairs", __doc__)
    parser.add_argument("folder", type=Path, help="a folder of groups, each a folder with a manifest")
    parser.add_argument("--bytes", type=Path, help="the recorded bytes; pairs whose bytes agree are tried first")
    parser.add_argument("--families", nargs="*", default=[], help="these families only")
    parser.add_argument(
        "--pairs", type=int, default=4, help="pairs of classes tried in each group, 0 for all (default 4)"
    )
    parser.add_argument("--agreeing", action="store_true", help="pairs whose recorded bytes agree only")
    parser.add_argument("--equals", type=int, default=0, help="pairs of one class tried in each group (default 0)")
    parser.add_argument("--surrogates", action="store_true", help="execute approximations by surrogate functions")
    parser.add_argument("--seconds", type=float, default=20.0, help="time limit of one search (default 20)")
    parser.add_argument("--minutes", type=float, default=30.0, help="no search starts after this time (default 30)")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the pairs and the inputs (default 0)")
    parser.add_argument(
        "--out", type=Path, help="write the counts and the pairs without a counterexample here, as JSON"
    )
    chosen = parser.parse_args(arguments)
    names = groups(chosen.folder, chosen.families)
    if not names:
        parser.error(f"{chosen.folder}: contains no group with a manifest.json of these families")
    random.Random(chosen.seed).shuffle(names)
    start = time.monotonic()
    settings = {
        "folder": str(chosen.folder),
        "bytes": None if chosen.bytes is None else str(chosen.bytes),
        "pairs": chosen.pairs,
        "equals": chosen.equals,
        "agreeing": chosen.agreeing,
        "surrogates": chosen.surrogates,
        "seconds": chosen.seconds,
        "seed": chosen.seed,
        "until": time.time() + 60 * chosen.minutes,
    }

    def report(name: str, answer: dict[str, Any]) -> None:
        for each in answer.get("tried", ()):
            said = {True: "witnessed", False: "UNWITNESSED", None: each["outcome"]}[each.get("witnessed")]
            print(f"{said}: {name}: {each['left']} and {each['right']} ({each['bytes']}): {each['reason']}", flush=True)
        for each in answer.get("equals", ()):
            if each["input"] is not None:
                print(f"WRONG EQUAL: {name}: {each['left']} and {each['right']}: {each['input']}", flush=True)
        if answer.get("error"):
            print(f"failed: {name}: {answer['error']}", flush=True)

    limit = 60 * chosen.minutes + 10 * chosen.seconds
    answers = run_all(
        search_group, [[name] for name in names], settings, processes=chosen.processes, seconds=limit, report=report
    )
    found = summary(answers)
    print(
        f"{found['witnessed']} of {found['tried']} pairs have a counterexample, {time.monotonic() - start:.0f} s;"
        f" {found['groups']['done']} of {len(names)} groups, {found['pairs of classes']} pairs of classes in them;"
        f" {found['equals']['tried']} pairs of one class tried, {len(found['equals']['distinguished'])} distinguished"
    )
    if chosen.out is not None:
        stated = {key: settings[key] for key in ("pairs", "agreeing", "surrogates", "equals", "seconds", "seed")}
        stated |= {"minutes": chosen.minutes, "families": chosen.families, "processes": chosen.processes}
        content = {"environment": analysis_environment(), "settings": stated, **found}
        chosen.out.write_text(json.dumps(content, indent=1) + "\n")
    return 1 if found["groups"]["failed"] or found["equals"]["distinguished"] else 0


if __name__ == "__main__":
    sys.exit(main())
