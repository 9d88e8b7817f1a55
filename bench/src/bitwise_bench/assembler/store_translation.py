"""Record how ptxas translates the stores of compiled kernels: how many of which width, and inside of which branches.

    python -m bitwise_bench.assembler.store_translation FOLDER... --out records/store-translation-sm90.json

A folder holds PTX texts, or recorded kernels of the tests (`.json.xz`).  Of each plain store to shared or global memory
the record counts whether its machine code is one store of the same width, copies of it, wider or narrower ones, or
none, and whether a branch that is no branch of the text may have parted the lanes of a warp there.  Of shuffles it
counts whether any branch between lanes may have.
"""

from __future__ import annotations

import json
import lzma
import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_nvidia_ptx.assembler.installed import installed_assemblers
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.machine_code.sass_listing import (
    ListedFunction,
    ListedInstruction,
    SassInstruction,
    listed_functions,
)

_STORE = re.compile(r"^\s*(?:@!?\S+\s+)?st\.(shared|global)((?:\.[\w:]+)*)\s")
_ROOT = re.compile(r"^\s*(?:@!?\S+\s+)?([a-z]\w*)")
_TARGET = re.compile(r"`\((\S+)\)")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}

_NEAR = 16
"""How many instructions may be between a wait and the branch that repeats it."""


def text_stores(text: str) -> Mapping[int, tuple[str, int]]:
    """Return the plain stores of a text by line: the memory and the bytes of each."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _STORE.match(line)
        if match is None:
            continue
        modifiers = match[2].split(".")
        count = next((int(each[1:]) for each in modifiers if re.fullmatch(r"v\d", each)), 1)
        bits = re.search(r"\d+$", modifiers[-1])
        if bits is not None:
            found[number] = match[1], count * int(bits[0]) // 8
    return found


def machine_store(step: SassInstruction) -> tuple[str, int] | None:
    """Return the memory and the bytes of a store; None for another instruction."""
    if step.opcode not in ("STS", "STG"):
        return None
    size = next((_WIDTHS[each] for each in step.mnemonic.split(".") if each in _WIDTHS), 4)
    return "shared" if step.opcode == "STS" else "global", size


@dataclass(frozen=True, slots=True)
class _Open:
    """The branches that may have parted a warp, and those that had where each convergence barrier was set.

    ptxas sets such a barrier before a branch, unless it knows that all lanes of a warp take it alike.
    """

    branches: frozenset[int] = frozenset()
    saved: tuple[tuple[str, frozenset[int]], ...] = ()

    def joined(self, other: _Open) -> _Open:
        """Return what may be open on either of two paths."""
        one, two = dict(self.saved), dict(other.saved)
        saved = {key: one.get(key, frozenset()) | two.get(key, frozenset()) for key in one.keys() | two.keys()}
        return _Open(self.branches | other.branches, tuple(sorted(saved.items())))


def open_branches(function: ListedFunction, roots: Mapping[int, str]) -> list[bool]:
    """Return for each instruction whether a branch between lanes that the text does not have may have parted its warp.

    BSYNC joins what was parted since the BSSY of its barrier, WARPSYNC and a barrier of the block everything.
    `roots` names the instruction of each line of the text.
    """
    steps = function.instructions
    places = {each.address: place for place, each in enumerate(steps)}
    found: list[_Open | None] = [None] * len(steps)
    work = [(0, _Open())]
    while work:
        place, state = work.pop()
        if place >= len(steps):
            continue
        before = found[place]
        joined = state if before is None else before.joined(state)
        if joined == before:
            continue
        found[place] = joined
        step, saved = steps[place], dict(joined.saved)
        after = joined
        if step.opcode == "BSSY":
            saved[step.operands[0]] = joined.branches
            after = replace(joined, saved=tuple(sorted(saved.items())))
        elif step.opcode == "BSYNC":
            branches = saved.pop(step.operands[0], joined.branches)
            after = _Open(branches, tuple(sorted(saved.items())))
        elif step.opcode in ("WARPSYNC", "BAR"):
            after = replace(joined, branches=frozenset())
        if step.opcode == "BRA":
            target = _TARGET.search(step.operation)
            conditional = step.guard is not None or any("P" in each for each in step.operands[:-1])
            if conditional and saved and _made(steps, place, roots):
                after = replace(after, branches=after.branches | {place})
            if target is not None and target[1] in function.labels:
                work.append((places.get(function.labels[target[1]], len(steps)), after))
            if conditional:
                work.append((place + 1, after))
        elif step.opcode not in ("EXIT", "RET", "BRX", "JMP") or step.guard is not None:
            work.append((place + 1, after))
    return [bool(each and each.branches) for each in found]


def _made(steps: Sequence[ListedInstruction], place: int, roots: Mapping[int, str]) -> bool:
    """Return whether a conditional branch between lanes is none of the text, as far as its line tells."""
    step = steps[place]
    return "UP" not in (step.guard or "") and roots.get(step.line) != "bra" and not _repeats(steps, place)


def _repeats(steps: Sequence[ListedInstruction], place: int) -> bool:
    """Return whether a branch repeats what a warp does together: a wait at an mbarrier, or a request for registers."""
    predicate = (steps[place].guard or "").lstrip("!")
    before = steps[max(0, place - _NEAR) : place]
    return any(
        each.opcode in ("SYNCS", "USETMAXREG") and any(predicate in one for one in each.operands) for each in before
    )


def translation(text: str, listing: str) -> Counter[str]:
    """Return how the stores of a text are translated, and how often."""
    stores = text_stores(text)
    roots = {number: match[1] for number, line in enumerate(text.splitlines(), 1) if (match := _ROOT.match(line))}
    functions = listed_functions(listing).values()
    made: dict[int, list[tuple[str, int, bool]]] = defaultdict(list)
    for function in functions:
        for step, parted in zip(function.instructions, open_branches(function, roots), strict=True):
            store = machine_store(step)
            if store is not None:
                made[step.line].append((*store, parted))
    counts: Counter[str] = Counter()
    for line, (memory, size) in stores.items():
        found = made.get(line, [])
        sizes = {each[1] for each in found}
        if not found:
            how = "none"
        elif sizes == {size}:
            how = "one" if len(found) == 1 else "copies"
        else:
            how = "wider" if min(sizes) > size else "narrower" if max(sizes) < size else "several widths"
        counts[f"{memory}, {size} bytes: {how}"] += 1
        counts[f"{memory}: parted by a branch of ptxas"] += any(each[2] for each in found)
    for function in functions:
        for step, parted in zip(function.instructions, open_branches(function, {}), strict=True):
            if step.opcode == "SHFL":
                counts[f"shuffles{': parted by a branch' if parted else ''}"] += 1
    return counts


def listed(text: str) -> str | None:
    """Return the machine code of a text with its lines, None where ptxas rejects it."""
    target = re.search(r"\.target\s+(sm_\w+)", text)
    if target is None:
        return None
    assembler = Ptxas.locate(target[1])
    tool = next(each.disassembler for each in installed_assemblers() if each.path == assembler.path)
    with tempfile.TemporaryDirectory() as folder:
        source, image = Path(folder) / "k.ptx", Path(folder) / "k.cubin"
        source.write_text(text)
        command = [assembler.path, f"-arch={target[1]}", "-lineinfo", str(source), "-o", str(image)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        shown = [str(tool), "-c", "--print-line-info-ptx", str(image)]
        return subprocess.run(shown, capture_output=True, text=True, check=True).stdout


def texts(folders: Sequence[Path], target: str) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the kernels in folders that are written for a target."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.name.endswith(".json.xz"):
                kernels = json.loads(lzma.decompress(path.read_bytes())).get("kernels", {})
                found = ((f"{path.name}/{name}", text) for each in kernels.values() for name, text in each.items())
                yield from ((name, text) for name, text in found if name.endswith(".ptx") and target in text)
            elif path.suffix == ".ptx" and target in (text := path.read_text()):
                yield str(path), text


def _studied(kernel: tuple[str, str]) -> tuple[str, Counter[str] | None]:
    name, text = kernel
    if not text_stores(text):
        return name, Counter()
    listing = listed(text)
    return name, None if listing is None else translation(text, listing)


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the counts."""
    parser = command_parser("assembler.store_translation", __doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of PTX texts or of recorded kernels")
    parser.add_argument("--target", default="sm_90", help="texts for this target (default sm_90)")
    parser.add_argument("--out", type=Path, required=True, help="write the record here")
    parser.add_argument("--processes", type=int, default=4, help="this many processes assemble")
    chosen = parser.parse_args(arguments)
    every = {text: name for name, text in texts(chosen.folders, chosen.target)}
    counts: Counter[str] = Counter()
    unusual: dict[str, dict[str, int]] = {}
    kernels = 0
    with ProcessPoolExecutor(chosen.processes) as pool:
        for name, found in pool.map(_studied, [(name, text) for text, name in every.items()], chunksize=4):
            if found is None:
                counts["texts that ptxas rejects"] += 1
                continue
            kernels += bool(found)
            counts += found
            odd = {key: count for key, count in found.items() if count and not key.endswith(": one")}
            if odd:
                unusual[name] = odd
    record: dict[str, Any] = {
        "environment": {**analysis_environment(), "ptxas": Ptxas.locate("sm_90a").version},
        "kernels with stores": kernels,
        "stores": dict(sorted(counts.items())),
        "kernels with another translation": unusual,
    }
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({key: record[key] for key in ("kernels with stores", "stores")}, indent=1))


if __name__ == "__main__":
    main()
