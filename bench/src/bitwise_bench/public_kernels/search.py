"""Search for inputs on which kernels with equal recorded bytes differ, and run all kernels of their launches on them.

    python -m bitwise_bench.public_kernels.search public-kernels --inputs inputs --seconds 20
    python -m bitwise_bench.public_kernels.search public-kernels --inputs inputs --gpu --out searched.json
    python -m bitwise_bench.public_kernels.read public-kernels --searched searched.json

The first command needs no GPU.  It takes the launches with two classes that returned the same bytes, searches an input
for each pair of such classes as `bitwise diff` does, and writes the inputs.  The second one runs the kernels of all
launches with several kernels on an sm_90 GPU, on the inputs found and on drawn ones: those with such pairs first, then
those with atomic operations, whose blocks run in other orders too.
Tensors of integers and booleans keep the contents of the launch, as in the recording.  `read` compares the bytes with
the classes.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_bench.gpu.driver import DeviceError, LoadedKernel, assemble
from bitwise_bench.public_kernels.block_orders import has_atomic_operations, reordered
from bitwise_bench.public_kernels.read import TARGET, launch_folders, read_launch, unpacked
from bitwise_bench.public_kernels.sources import SOURCES
from bitwise_bench.worker_pool import PoisonedProcess, run_all
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.comparison import compare
from bitwise_core.checker.counterexamples import find_counterexample
from bitwise_core.checker.counterexamples.kernel_pair import zero_extended
from bitwise_core.checker.counterexamples.value_distributions import (
    DISTINGUISHING_KINDS,
    ORDER_KINDS,
    draw,
    special_patterns,
)
from bitwise_core.checker.kernel_files import read_folder
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.verdicts import Counterexample
from bitwise_core.execution.buffers import buffer_bytes, element_types
from bitwise_core.execution.determined_runs import simulate_determined
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.element_types import Array, ElementType
from bitwise_core.numerics import nan_of
from bitwise_core.plugins import registry

BEYOND = (0x00, 0x3C, 0xBF)
"""The byte behind every buffer in each repetition: a kernel that reads beyond its buffers may return other bytes."""

ORDERS = 4
"""Other orders of the blocks in which a kernel with atomic operations runs, as often as in its own."""

_MOST_FURTHER_DRAWS = 1 << 14

FEW_SPECIAL = "few special values"
"""The name of the inputs with a special value in a few elements of one buffer."""

PLAN = "pairs.json"
"""The file of a launch that was searched, in its folder among the inputs."""

Contents = dict[str, Array]
"""The bytes of each buffer before a launch."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Search inputs, or run the kernels on them; the exit status is 1 where no launch ran on the GPU."""
    parser = command_parser("public_kernels.search", __doc__)
    parser.add_argument("folder", type=Path, help="the folder that `record` wrote, or its archive")
    parser.add_argument("--inputs", type=Path, required=True, help="the folder of the inputs")
    parser.add_argument("--sources", nargs="*", default=[], help="these sources only")
    parser.add_argument("--launches", nargs="*", default=[], help="these launches only, as source/case/launch")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="time for one pair, on the GPU for the further draws of a launch"
    )
    parser.add_argument("--gpu", action="store_true", help="run the kernels on the inputs, and search no others")
    parser.add_argument("--draws", type=int, default=32, help="drawn inputs of a launch on the GPU (default 32)")
    parser.add_argument("--until", type=float, default=600.0, help="start no launch after this time (default 600 s)")
    parser.add_argument("--out", type=Path, help="add what the GPU returned to this JSON file")
    parser.add_argument("--processes", type=int, default=2, help="worker processes (default 2)")
    chosen = parser.parse_args(arguments)
    if chosen.gpu and chosen.out is None:
        parser.error("give --out to write what the GPU returned")
    with tempfile.TemporaryDirectory() as temporary:
        folder = unpacked(chosen.folder, Path(temporary))
        settings = {
            "folder": str(folder.resolve()),
            "inputs": str(chosen.inputs.resolve()),
            "seconds": chosen.seconds,
            "draws": chosen.draws,
            "until": time.time() + chosen.until,
        }
        wanted = chosen.sources or list(SOURCES)
        names = [str(place.relative_to(folder)) for place in launch_folders(folder)]
        names = [name for name in names if name.split("/")[0] in wanted and name in (chosen.launches or names)]
        searched = [name for name in names if (chosen.inputs / name / PLAN).exists()]
        others = [name for name in names if name not in searched]
        if chosen.gpu:
            others.sort(key=lambda name: not _any_atomic_operation(folder / name))
        names = [*searched, *others] if chosen.gpu else others
        job = run_launch if chosen.gpu else search_launch
        batches, seconds = [[name] for name in names], 30 * chosen.seconds + 120
        keep = _keeping(chosen.out) if chosen.gpu else _report
        answers = run_all(job, batches, settings, processes=chosen.processes, seconds=seconds, report=keep)
    if not chosen.gpu:
        pairs = [pair for answer in answers.values() for pair in answer.get("pairs", ())]
        print(f"{sum(pair['input'] is not None for pair in pairs)} of {len(pairs)} pairs have an input")
        return 0
    ran = sum(bool(answer.get("kernels")) for answer in answers.values())
    print(f"{ran} launches ran, {sum('error' in answer for answer in answers.values())} did not")
    return 0 if ran else 1


def _keeping(out: Path) -> Callable[[str, dict[str, Any]], None]:
    """Return a function that reports a launch, and adds it to a file, so that a run that is cut keeps what ran."""
    from bitwise_bench.gpu.launching import environment

    before = json.loads(out.read_text(encoding="utf-8")) if out.exists() else None
    machine, answers = environment(), dict[str, dict[str, Any]]()

    def keep(name: str, answer: dict[str, Any]) -> None:
        _report(name, answer)
        answers[name] = answer
        ran = {each: found for each, found in answers.items() if found.get("kernels")}
        failed = {each: found["error"] for each, found in answers.items() if "error" in found}
        unfinished = out.with_name(f"{out.name}.part")
        unfinished.write_text(json.dumps(searched_record(machine, ran, failed, before), indent=1) + "\n")
        unfinished.replace(out)

    return keep


def _any_atomic_operation(place: Path) -> bool:
    return any(has_atomic_operations(file.read_text(encoding="utf-8")) for file in place.glob("*.ptx"))


def _report(name: str, answer: dict[str, Any]) -> None:
    if answer.get("error"):
        print(f"{name}: {answer['error']}", flush=True)
    for pair in answer.get("pairs", ()):
        words = pair["words"] if "differ" not in pair else f"{pair['words']}; on the GPU: {pair['differ']}"
        print(f"{name}: {pair['left']} and {pair['right']}: {words}", flush=True)


def searched_record(
    environment: Mapping[str, str],
    ran: Mapping[str, Any],
    failed: Mapping[str, str],
    before: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the record of the launches that ran, with those of an earlier run that did not run again."""
    launches = {**({} if before is None else before["launches"]), **ran}
    missing = {**({} if before is None else before["not run"]), **failed}
    return {
        "environment": dict(environment),
        "repeats": len(BEYOND),
        "other orders of blocks": ORDERS,
        "launches": dict(sorted(launches.items())),
        "not run": {name: words for name, words in sorted(missing.items()) if name not in launches},
    }


def search_launch(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Search inputs that tell classes of a launch with equal recorded bytes apart; a job for `worker_pool.run_all`.

    Writes the inputs as `.npz` files of the bytes of each buffer, and `pairs.json` where there is such a pair.
    """
    if time.time() > settings["until"]:
        return {"error": "out of time"}
    place, options = Path(settings["folder"]) / name, Options()
    entry = read_launch(place, name, options)
    equal: dict[str, dict[int, str]] = {}
    for kernel in usable(entry["kernels"]):
        equal.setdefault(json.dumps(kernel["hashes"]), {}).setdefault(kernel["class"], kernel["file"])
    waiting = [list(classes.values()) for classes in equal.values() if len(classes) > 1]
    if not waiting:
        return {}
    sources = {source.name: source for source in read_folder(place, (".ptx",)).sources}
    target = Path(settings["inputs"]) / name
    target.mkdir(parents=True, exist_ok=True)
    pairs, environment = [], analysis_environment()
    while waiting:
        left, right, *others = waiting.pop()
        found = _input_of(sources[left], sources[right], options, settings["seconds"])
        pair = {"left": left, "right": right, "input": None}
        if isinstance(found, str):
            pairs.append({**pair, "words": found})
            parts = [[left, *others]]
        else:
            file = f"{len(pairs):02d}.npz"
            # The arguments of this function are the names of the arrays.
            np.savez_compressed(target / file, **found[0])  # type: ignore[arg-type]
            pairs.append({**pair, "input": file, "words": found[1]})
            parts = _divided([left, right, *others], sources, options, found[0])
        waiting += [part for part in parts if len(part) > 1]
    plan = {"environment": environment, "pairs": pairs}
    (target / PLAN).write_text(json.dumps(plan, indent=1) + "\n")
    return {"pairs": pairs}


def usable(kernels: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the kernels of a launch that ran with the same bytes in all repetitions, and have a class."""
    for each in kernels:
        if each["hashes"] and not (each["moved"] or each["error"] or each["unknown"]):
            yield each


def _input_of(left: Source, right: Source, options: Options, seconds: float) -> tuple[Contents, str] | str:
    """Return an input on which two kernels differ when they are simulated, and the difference; or why there is none."""
    arch = registry.default().arch(TARGET)
    found = find_counterexample(left, right, arch, options, compare(left, right, arch, options), seconds)
    if isinstance(found, Counterexample):
        return buffer_bytes(found.arrays), found.sentence
    return found.sentence


def _divided(
    files: Sequence[str], sources: Mapping[str, Source], options: Options, contents: Contents
) -> list[list[str]]:
    """Return the kernels, which have a class, in parts with equal bytes on an input, when they are simulated.

    One that cannot be simulated joins the first part.
    """
    arch = registry.default().arch(TARGET)
    parts: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        source = sources[file]
        assert source.launch is not None
        forms = element_types([source.launch])
        own = {name: contents[name] for name in source.launch.buffers()}
        try:
            after = simulate_determined(prepare(source, arch, options), own, open_ended=True).after
            key = tuple(digest(after[name][: own[name].size], forms[name]) for name in sorted(own))
        except Unsupported:
            key = next(iter(parts), ())
        parts.setdefault(key, []).append(file)
    return list(parts.values())


def digest(data: Array, form: ElementType) -> str:
    """Return the first digits of the SHA-256 of the bytes of a buffer, with one pattern for all NaNs of its format."""
    kind = form.format
    if kind is not None:
        patterns = data[: data.size - data.size % form.bytes].view(f"u{form.bytes}").copy()
        patterns[nan_of(patterns, kind)] = np.array(kind.canonical_nan or 0, dtype=patterns.dtype)
        data = patterns
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:16]


def run_launch(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run the kernels of a launch on the inputs found and on drawn ones; a job for `worker_pool.run_all`.

    Returns for each kernel the number of its byte pattern over all inputs (`label`) and the inputs on which repetitions
    returned other bytes (`moved`; where the size of a buffer is not stated, only with the same memory behind it, since
    the kernel may read beyond what was allocated), and for each pair with an input whether the bytes differ there.  The
    labels count the inputs on which all runs of all kernels agreed.  While the kernels of a pair agree on every input,
    further ones are drawn for some seconds; only those on which such kernels differ are kept.
    """
    if time.time() > settings["until"]:
        return {"error": "out of time"}
    place, inputs = Path(settings["folder"]) / name, Path(settings["inputs"]) / name
    plan = json.loads((inputs / PLAN).read_text(encoding="utf-8")) if (inputs / PLAN).exists() else {"pairs": []}
    described = json.loads((place / "bytes.json").read_text(encoding="utf-8"))
    digests = {kernel["file"]: kernel["digest"] for kernel in described["kernels"]}
    moved = {kernel["file"] for kernel in described["kernels"] if kernel["moved"] or kernel["error"]}
    sources = {each.name: each for each in read_folder(place, (".ptx",)).sources if each.name not in moved}
    if len(sources) < 2 and not any(has_atomic_operations(each.text) for each in sources.values()):
        return {"kernels": {}}
    found = {file: np.load(inputs / file) for file in sorted({pair["input"] for pair in plan["pairs"]} - {None})}
    contents = {file: {buffer: arrays[buffer] for buffer in arrays.files} for file, arrays in found.items()}
    sizes = buffer_sizes(list(sources.values()), list(contents.values()))
    draws = _drawn(name, list(sources.values()), sizes, settings["draws"])
    kernels = {file: [_loaded(each) for each in in_orders(source)] for file, source in sources.items()}
    rows: dict[str, dict[str, str | None]] = {file: {} for file in kernels}
    moves: dict[str, list[str]] = {file: [] for file in kernels}
    known = sizes_are_stated(list(sources.values()))

    def run(input_name: str, given: Contents) -> None:
        whole = {buffer: zero_extended(data, sizes[buffer]) for buffer, data in given.items()}
        for file, orders in kernels.items():
            row, moved_there = _row(sources[file], orders, whole, 1 if known else 2)
            rows[file][input_name] = row
            if moved_there or (row is None and known):
                moves[file].append(input_name)

    for input_name, given in chain(contents.items(), draws):
        run(input_name, given)
    end, more = time.monotonic() + settings["seconds"], settings["draws"] + _MOST_FURTHER_DRAWS
    for input_name, given in islice(_drawn(name, list(sources.values()), sizes, more), settings["draws"], None):
        pairs = undivided(plan["pairs"], rows)
        if time.monotonic() > end or not pairs:
            break
        whole = {buffer: zero_extended(data, sizes[buffer]) for buffer, data in given.items()}
        found_once = {
            file: _outputs(sources[file], kernels[file][0], whole, BEYOND[0])
            for file in set(chain.from_iterable(pairs))
        }
        if any(found_once[left] != found_once[right] for left, right in pairs):
            run(input_name, given)
    for kernel in chain.from_iterable(kernels.values()):
        kernel.unload()
    tried = list(next(iter(rows.values())))
    counted = [each for each in tried if all(row[each] is not None for row in rows.values())]
    labels: dict[tuple[str | None, ...], int] = {}
    label = {file: labels.setdefault(tuple(row[each] for each in counted), len(labels)) for file, row in rows.items()}
    for pair in plan["pairs"]:
        if pair["input"] in counted:
            pair["differ"] = rows[pair["left"]][pair["input"]] != rows[pair["right"]][pair["input"]]
    return {
        "kernels": {
            file: {
                "digest": digests[file],
                "label": label[file],
                "moved": moves[file],
            }
            for file in sorted(rows)
        },
        "inputs": len(counted),
        "pairs": plan["pairs"],
    }


def undivided(
    pairs: Sequence[Mapping[str, Any]], rows: Mapping[str, Mapping[str, str | None]]
) -> list[tuple[str, str]]:
    """Return the kernels of the pairs that agree on every input, and of which neither moved on one."""
    found = [(pair["left"], pair["right"]) for pair in pairs]
    stable = {file for file, row in rows.items() if None not in row.values()}
    return [(left, right) for left, right in found if {left, right} <= stable and rows[left] == rows[right]]


def _loaded(source: Source) -> LoadedKernel:
    """Return a kernel on the GPU, assembled as Triton does."""
    assert source.launch is not None
    parsed = registry.default().arch(TARGET).parse(source.text, source.name).kernel(source.launch.entry)
    return LoadedKernel(assemble(source.text, fp_fusion=True), source.launch, len(parsed.parameters))


def in_orders(source: Source) -> list[Source]:
    """Return a kernel and, if it has atomic operations, kernels in which its blocks start in other orders."""
    launch = source.launch
    assert launch is not None
    if launch.blocks == 1 or not has_atomic_operations(source.text):
        return [source]
    texts = [reordered(source.text, launch.grid, random.Random(number)) for number in range(ORDERS)]
    return [source, *(replace(source, text=text) for text in dict.fromkeys(texts) if text is not None)]


def sizes_are_stated(sources: Sequence[Source]) -> bool:
    """Return whether the launches state the sizes of all their buffers, or give their contents."""
    launches = [source.launch for source in sources if source.launch is not None]
    return all({*launch.sizes(), *launch.given()} >= set(launch.buffers()) for launch in launches)


def _row(source: Source, kernels: Sequence[LoadedKernel], contents: Contents, repeats: int) -> tuple[str | None, bool]:
    """Return one digest of all buffers after a run, and whether runs with the same memory behind them differ.

    The digest is None where any runs differ.  Raises PoisonedProcess.
    """
    rows: dict[int, set[str]] = {beyond: set() for beyond in BEYOND}
    for kernel, beyond, _ in product(kernels, BEYOND, range(repeats)):
        rows[beyond].add(_outputs(source, kernel, contents, beyond))
    different = set().union(*rows.values())
    return (different.pop() if len(different) == 1 else None), any(len(each) > 1 for each in rows.values())


def _outputs(source: Source, kernel: LoadedKernel, contents: Contents, beyond: int) -> str:
    """Return one digest of all buffers after a run.  Raises PoisonedProcess."""
    assert source.launch is not None
    forms = element_types([source.launch])
    try:
        after = kernel.run(contents, beyond)
    except DeviceError as error:
        # After a fault this process cannot use the device.
        raise PoisonedProcess(str(error)) from error
    return " ".join(f"{buffer} {digest(after[buffer], forms[buffer])}" for buffer in sorted(after))


def buffer_sizes(sources: Sequence[Source], found: Sequence[Contents]) -> dict[str, int]:
    """Return the size in bytes of each buffer of kernels of one launch: as stated, given, found or accessed.

    The size of a buffer of which nothing else is known is what the first and the last block access, when they are
    simulated on zeros.  Raises DeviceError where they cannot be.
    """
    sizes: dict[str, int] = {}
    launches = [source.launch for source in sources if source.launch is not None]
    stated = [launch.sizes() for launch in launches]
    given = [{name: each.patterns.size for name, each in launch.given().items()} for launch in launches]
    for each in (*stated, *given, *({name: data.size for name, data in contents.items()} for contents in found)):
        sizes |= {buffer: max(sizes.get(buffer, 0), size) for buffer, size in each.items()}
    forms = element_types(launches)
    unknown = sorted(set(forms) - set(sizes))
    if unknown:
        arch = registry.default().arch(TARGET)
        try:
            for source, launch in zip(sources, launches, strict=True):
                contents = {name: np.zeros(sizes.get(name, 0), dtype=np.uint8) for name in launch.buffers()}
                contents |= {name: each.patterns for name, each in launch.given().items()}
                blocks = sorted({0, launch.blocks - 1})
                prepared = prepare(source, arch, Options())
                after = simulate_determined(prepared, contents, open_ended=True, blocks=blocks).after
                for name in unknown:
                    width = forms[name].bytes
                    reached = -(-after[name].size // width) * width if name in after else 0
                    sizes[name] = max(sizes.get(name, width), reached)
        except Unsupported as error:
            raise DeviceError(f"the size of the buffer {unknown[0]} is not known: {error}") from None
    return sizes


def _drawn(
    name: str, sources: Sequence[Source], sizes: Mapping[str, int], count: int
) -> Iterator[tuple[str, Contents]]:
    """Yield inputs of a launch, drawn from its name, as many as `count` says.

    After one of each distribution, every second input is of one of those that show another order of a sum, and every
    fourth has numbers near 1 with a special value in a few elements of one buffer.
    """
    launches = [source.launch for source in sources if source.launch is not None]
    given = {buffer: each.patterns for launch in launches for buffer, each in launch.given().items()}
    forms = element_types(launches)
    for number in range(count):
        seed = int.from_bytes(hashlib.sha256(f"{name} {number}".encode()).digest()[:8], "little")
        random = np.random.default_rng(seed)
        kind = DISTINGUISHING_KINDS[number % len(DISTINGUISHING_KINDS)]
        further = number >= len(DISTINGUISHING_KINDS)
        orders, few = further and number % 2 == 1, further and number % 4 == 0
        if further:
            kind = "normal" if few else str(random.choice(ORDER_KINDS if orders else DISTINGUISHING_KINDS))
        contents = {}
        for buffer, form in forms.items():
            if buffer in given:
                contents[buffer] = given[buffer]
                continue
            own = kind if orders or few or random.random() < 0.75 else str(random.choice(DISTINGUISHING_KINDS))
            drawn = draw(form, max(1, sizes[buffer] // form.bytes), own, random, 1)
            if number % 3 == 2 and not (orders or few):
                _insert_nans(drawn, form, random)
            contents[buffer] = drawn.view(np.uint8)
        if few:
            _insert_special_value(contents, {name: form for name, form in forms.items() if name not in given}, random)
        yield f"draw {number}: {FEW_SPECIAL if few else kind}", contents


def _insert_special_value(
    contents: Mapping[str, Array], forms: Mapping[str, ElementType], random: np.random.Generator
) -> None:
    """Put an infinity, a NaN, a zero or the largest or smallest number into a few elements of one buffer."""
    names = [name for name, form in forms.items() if form.format is not None]
    if names:
        name = str(random.choice(names))
        form = forms[name].format
        assert form is not None
        patterns = contents[name].view(f"u{forms[name].bytes}")
        patterns[random.integers(0, patterns.size, int(random.integers(1, 4)))] = random.choice(special_patterns(form))


def _insert_nans(patterns: Array, form: ElementType, random: np.random.Generator) -> None:
    """Put NaNs of any payload into a few elements of a buffer of numbers: what they become is part of the bytes."""
    kind = form.format
    if kind is None or kind.infinity is None:
        return
    where = random.integers(0, patterns.size, 1 + patterns.size // 500)
    payloads = random.integers(1, 1 << kind.mantissa_bits, where.size, dtype=np.uint64) << np.uint64(kind.padding)
    signs = random.integers(0, 2, where.size, dtype=np.uint64) << np.uint64(kind.bits - 1)
    patterns[where] = (payloads | signs | np.uint64(kind.infinity)).astype(patterns.dtype)


if __name__ == "__main__":
    sys.exit(main())
