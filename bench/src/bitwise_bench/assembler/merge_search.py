"""Search for sequences of PTX instructions that an assembler merges into instructions with other results.

    python -m bitwise_bench.assembler.merge_search --seconds 600 --jobs 2 --record records/merges-12.8.json
    python -m bitwise_bench.assembler.merge_search --ptxas /opt/ptxas --arch sm_100a --seconds 600
    python -m bitwise_bench.assembler.merge_search --gpu --seconds 120 --jobs 8
    python -m bitwise_bench.assembler.merge_search --gpu --usual --seconds 120 --jobs 8
    python -m bitwise_bench.assembler.merge_search --gpu --narrow --seconds 120 --jobs 8
    python -m bitwise_bench.assembler.merge_search --merge part-*.json --record records/assembler-merges-sm90.json

A sequence of two to four instructions is assembled as it is, and with each intermediate value hidden behind a shuffle
by which a lane reads itself.  The assembler merges a sequence if the machine code has other opcodes then.  Most merges
keep every bit.  Where there is a GPU of sm_90, all sequences are executed both ways, and those that return other bytes
must not be equal to the analysis.  The exit status is 1 if one is, or if a sequence cannot be executed.

`--usual` walks all pairs of kinds of operations that compilers use
(`bitwise_nvidia_ptx.assembler_choices.usual_operations`) in an order of the seed.  `--longer` draws sequences of three
and four of them, `--narrow` such sequences of what moves, extends, chooses and compares integers of 8 to 64 bits.

Sequences are drawn by their file: those of file N are the same in every search of one seed.  `--first` is the number
of the first file.  `--kinds PATTERN` draws pairs of some kinds again and again.  `--assemble FOLDER` assembles files
only, and `--images FOLDER --gpu` executes what is there.
"""

from __future__ import annotations

import json
import pickle
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from ctypes import c_void_p
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

from bitwise_bench.adversary.classes import analyse
from bitwise_bench.adversary.device import Device, DeviceError
from bitwise_bench.adversary.expressions import WIDTHS, Expression, constant, leaf
from bitwise_bench.adversary.instruction_sets.languages import LANGUAGES
from bitwise_bench.adversary.instruction_sets.ptx_vocabulary import HIDDEN, PTX, SAME_BITS
from bitwise_bench.adversary.instruction_sets.vocabulary import Spec
from bitwise_bench.adversary.judging import difference
from bitwise_bench.adversary.kernels import DTYPES
from bitwise_bench.adversary.programs import STORES, Program, written
from bitwise_bench.adversary.random_programs import LITERALS
from bitwise_bench.adversary.scopes import SCOPES
from bitwise_bench.adversary.sources import store_of
from bitwise_bench.command_line import command_parser
from bitwise_bench.environment import analysis_environment
from bitwise_core.output_files import write_text
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound, disassemblers
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.assembler_choices.usual_operations import is_unusual
from bitwise_nvidia_ptx.machine_code.sass_listing import listed_functions

SEQUENCES = 48
"""The sequences that are assembled in one file."""
BLOCKS = 64
"""The blocks of an execution."""
LENGTHS = (2, 2, 2, 2, 3, 3, 3, 4, 4)
"""The numbers of instructions of a sequence, each as often as it is drawn."""
EARLIER = 0.3
"""The share of operands of the third and fourth instruction that are earlier results, where one has the width."""
CARRIED = 0.3
"""The share of results that go through an operation that returns them."""
SLICE = 40.0
"""The seconds after which all processes are replaced, and what was found is written."""
MOST_CHANGES = 60
"""The changes of opcodes that a record of several searches lists, the most frequent ones."""
_OTHERS = "merged sequences with rarer changes that are Equal"
ALL, USUAL, LONGER, NARROW = (
    "all of the vocabulary",
    "pairs of those that compilers use",
    "three and four of those that compilers use",
    "three and four of those that move, extend, choose and compare integers",
)
"""What sequences consist of."""
_NARROW = re.compile(
    r"(cvt\.[su]\d+\.[su]\d+|mov\.b(32|64) |mov\.b\d+ mov|selp|prmt|bfe|bfi|(min|max)\.[su]|sh[lrf]|and\.b|or\.b|not\.b"
    r"|(neg|abs)\.s|(add|sub)\.[su]\d+ |setp\.\*\.[bsu]|(mul|mad)\.wide|rem|cvt\.\*\.f\d+\.[su](8|16)|mov\.b32 add).*"
)
"""Kinds of usual operations that move, extend, choose and compare integers."""
_OPCODE = re.compile(r"(?<![%.\w])[a-z]\w*(?:\.[\w:]+)+")
_VARIANT = re.compile(r"(?<=setp)\.\w+|\.r[nzmp](?=i?\.)")
"""What kinds of usual operations leave open: relations and roundings."""
_DRAWN: Mapping[str, Callable[[random.Random], str]] = {
    "#selector": lambda dice: f"0x{dice.getrandbits(16):04x}",
    "#divisor": lambda dice: str(dice.randrange(1, 1 << dice.randint(2, 15))),
}
"""Immediates of which half are drawn from all."""
_LITERAL = 0.35
"""The share of operands that are literals."""
_CARRIED = re.compile(
    r"(MOV|IMAD\.MOV|IMAD\.U32|PRMT|SHFL|SEL|NOP|BRA|EXIT|WARPSYNC|UMOV|S2R|S2UR|CS2R|R2UR|ULDC|LDC)\b.*"
)
"""Machine instructions that move values, and those around a kernel, whose number may change by a shuffle alone."""
_OLD_VERSIONS = {"12.4": "8.4", "12.5": "8.5", "12.6": "8.5", "12.7": "8.6"}
"""The newest PTX that assemblers read which do not read that of the programs."""

Opcodes: TypeAlias = Counter[str]


@dataclass(frozen=True, slots=True)
class MergedSequence:
    """A sequence of instructions, and the same one with each intermediate value hidden."""

    direct: Program
    hidden: Program


@dataclass(slots=True)
class Found:
    """What a search has found: counts, and examples of merged sequences by the change of their opcodes."""

    counts: Counter[str] = field(default_factory=Counter)
    changes: dict[str, list[str]] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    device: dict[str, str] = field(default_factory=dict)

    def add(self, other: Found) -> None:
        """Add what another search has found."""
        self.counts += other.counts
        for change, texts in other.changes.items():
            self.changes.setdefault(change, []).extend(texts)
        self.different += other.different
        self.failed += other.failed
        self.device |= other.device


def sequences(dice: random.Random, count: int, operations: str = ALL) -> Iterator[MergedSequence]:
    """Yield random sequences whose results can be stored."""
    while count:
        made = _drawn(dice, tuple(_specs(dice, operations)))
        if made is not None:
            count -= 1
            yield made


@cache
def ordered_pairs(seed: int, kinds: str = "") -> tuple[tuple[str, str], ...]:
    """Return all pairs of kinds of usual operations of which the second may take the first, in an order of a seed.

    With a pattern, only those of which one is a kind that begins with it.
    """
    begins = re.compile(kinds).match
    pairs = [(one, other) for one, others in usual_pairs().items() for other in others if begins(one) or begins(other)]
    random.Random(f"{seed} pairs").shuffle(pairs)
    return tuple(pairs)


def sequence_of(dice: random.Random, pair: tuple[str, str]) -> MergedSequence | None:
    """Return a random sequence of two kinds of usual operations, None where its result cannot be stored."""
    return _drawn(dice, tuple(dice.choice(usual_kinds()[kind]) for kind in pair))


@cache
def usual_kinds() -> Mapping[str, tuple[Spec, ...]]:
    """Return the operations of the vocabulary that compilers use, by their opcodes without roundings and relations."""
    found: dict[str, list[Spec]] = {}
    for spec in PTX.specs.values():
        opcodes = _OPCODE.findall(spec.text)
        moves = spec.crosses or spec.family in (HIDDEN, SAME_BITS) or not _takes_any(spec)
        bits = WIDTHS[spec.result] if len(opcodes) == 1 else 0
        if not moves and not any(is_unusual(each, bits) for each in opcodes):
            kind = " ".join(_VARIANT.sub(".*", each) for each in opcodes)
            found.setdefault(f"{kind} {spec.operands} {WIDTHS[spec.result]}", []).append(spec)
    return {kind: tuple(specs) for kind, specs in sorted(found.items())}


@cache
def usual_pairs() -> Mapping[str, tuple[str, ...]]:
    """Return the kinds of usual operations that may take the result of each kind."""
    kinds = usual_kinds()
    return {
        first: tuple(
            second
            for second, (other, *_) in kinds.items()
            if any(WIDTHS.get(each) == WIDTHS[one.result] for each in other.operands)
        )
        for first, (one, *_) in kinds.items()
    }


@cache
def _narrow_pairs() -> Mapping[str, tuple[str, ...]]:
    """Return the kinds of `_NARROW` that may take the result of each of them."""
    found = {
        first: tuple(each for each in seconds if _NARROW.fullmatch(each))
        for first, seconds in usual_pairs().items()
        if _NARROW.fullmatch(first)
    }
    return {first: seconds for first, seconds in found.items() if seconds}


def _takes_any(spec: Spec) -> bool:
    return any(not kind.startswith("#") for kind in spec.operands)


def _specs(dice: random.Random, operations: str) -> Iterator[Spec | None]:
    """Yield the operations of a sequence; None for one of a random family that takes the result of the last one."""
    length = dice.choice(LENGTHS)
    if operations == ALL:
        yield from [None] * length
        return
    pairs = _narrow_pairs() if operations == NARROW else usual_pairs()
    kind = dice.choice(sorted(pairs))
    for _ in range(max(3, length)):
        yield dice.choice(usual_kinds()[kind])
        kind = dice.choice(pairs[kind])


def _drawn(dice: random.Random, specs: Sequence[Spec | None]) -> MergedSequence | None:
    made: list[tuple[Expression, Expression]] = []
    for drawn in specs:
        spec = drawn or _next(dice, made[-1][0] if made else None)
        operands = [(each, each) for each in (_operand(dice, kind) for kind in spec.operands)]
        if made:
            widths = [WIDTHS.get(kind) for kind in spec.operands]
            places = [at for at, width in enumerate(widths) if width == made[-1][0].width]
            for at, width in enumerate(widths):
                earlier = [each for each in made[:-1] if each[0].width == width]
                if earlier and dice.random() < EARLIER:
                    operands[at] = _both(dice.choice(earlier))
            for at in places if dice.random() < 0.1 else [dice.choice(places)]:
                operands[at] = _both(made[-1])
        direct, hidden = (Expression(spec.key, tuple(side), spec.result) for side in zip(*operands, strict=True))
        made.append((direct, hidden))
        same = [each for each in PTX.families[SAME_BITS] if each.operands[0] == direct.kind]
        if same and dice.random() < CARRIED:
            carrier = dice.choice(same)
            others = tuple(_operand(dice, kind) for kind in carrier.operands[1:])
            one, other = _both(made[-1])
            direct, hidden = (Expression(carrier.key, (each, *others), direct.kind) for each in (one, other))
            made[-1] = direct, hidden
    direct, hidden = made[-1]
    if direct.kind == "p":
        one, other = constant(5, "i32"), constant(6, "i32")
        direct, hidden = (Expression("selp i32", (one, other, each), "i32") for each in (direct, hidden))
    store = store_of(LANGUAGES["ptx"].material, direct.width, direct.kind, dice, other=False)
    if store is None:
        return None
    return MergedSequence(Program(direct, store, "merged"), Program(hidden, store, "hidden"))


def _both(result: tuple[Expression, Expression]) -> tuple[Expression, Expression]:
    """Return a result as an operand: as it is, and hidden."""
    direct, hidden = result
    return direct, Expression(f"{HIDDEN} {hidden.kind}", (hidden,), hidden.kind)


def _next(dice: random.Random, inner: Expression | None) -> Spec:
    """Return an operation of a random family that may take a value, or any value."""
    while True:
        spec = dice.choice(PTX.families[dice.choice(sorted(PTX.families))])
        takes = inner is None or any(WIDTHS.get(kind) == inner.width for kind in spec.operands)
        if takes and not spec.crosses and _takes_any(spec):
            return spec


def _operand(dice: random.Random, kind: str) -> Expression | str:
    if kind in _DRAWN and dice.random() < 0.5:
        return _DRAWN[kind](dice)
    if kind.startswith("#"):
        return dice.choice(PTX.immediates[kind])
    if kind not in PTX.leaves or dice.random() < _LITERAL:
        return constant(dice.choice(LITERALS[kind]), kind)
    return leaf(f"{kind}.{dice.randrange(2)}", kind)


def module_of(programs: Sequence[Program], ptxas: Ptxas) -> str:
    """Return one text with an entry for each program, which an assembler reads."""
    version = _OLD_VERSIONS.get(".".join(ptxas.version.split(".")[:2]))
    parts: list[str] = []
    for number, program in enumerate(programs):
        text = LANGUAGES["ptx"].kernel([program]).text
        head, mark, body = text.partition(".visible .entry kernel(")
        if not parts:
            head = head.replace("sm_90a", ptxas.gpu)
            parts.append(head if version is None else re.sub(r"\.version \S+", f".version {version}", head))
        parts.append(f"{mark.replace('kernel', f'kernel_{number}')}{body}")
    return "".join(parts)


def assembled(programs: Sequence[Program], ptxas: Ptxas) -> bytes | None:
    """Return the machine code of programs, each an entry; None where the assembler refuses one."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernels.ptx", Path(folder) / "kernels.cubin"
        source.write_text(module_of(programs, ptxas))
        command = [ptxas.path, f"-arch={ptxas.gpu}", *ptxas.options, str(source), "-o", str(target)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        return target.read_bytes()


def opcodes_of(image: bytes, count: int, ptxas: Ptxas) -> list[Opcodes]:
    """Return the opcodes of each of the programs in machine code.  Raises PtxasNotFound."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "kernels.cubin"
        target.write_bytes(image)
        for tool in disassemblers(ptxas.path):
            done = subprocess.run([tool, "-c", str(target)], capture_output=True, text=True, check=False)
            if not done.returncode:
                found = listed_opcodes(done.stdout)
                return [found[f"kernel_{number}"] for number in range(count)]
    raise PtxasNotFound(f"no nvdisasm reads the object files of ptxas {ptxas.version}; install a newer one")


def listed_opcodes(listing: str) -> Mapping[str, Opcodes]:
    """Return the opcodes of each function of a listing by nvdisasm, without those that only move values."""
    return {
        name: Counter(each.mnemonic for each in function.instructions if not _CARRIED.match(each.mnemonic))
        for name, function in listed_functions(listing).items()
    }


def change_of(direct: Opcodes, hidden: Opcodes) -> str:
    """Return the opcodes that only one of two programs has, "" where they have the same."""
    sides = [" ".join(sorted((one - other).elements())) for one, other in ((hidden, direct), (direct, hidden))]
    return " -> ".join(sides) if any(sides) else ""


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched: the files of a seed, with sequences of some operations, and the folder of machine code.

    `kinds`: the pairs are those of kinds that begin with this pattern, if it is not empty.

    `images`: where the machine code of each file is read, and written if `assembles`; None if it is not kept.
    """

    operations: str
    ptxas: Ptxas
    seed: int
    gpu: bool = False
    images: Path | None = None
    assembles: bool = False
    kinds: str = ""

    @property
    def files(self) -> int | None:
        """The number of files, None if there is no last one: pairs of some kinds are drawn again and again."""
        whole = self.operations == USUAL and not self.kinds
        return -(-len(ordered_pairs(self.seed)) // SEQUENCES) if whole else None

    def drawn(self, number: int) -> list[MergedSequence]:
        """Return the sequences of a file."""
        dice = random.Random(f"{self.seed} {self.operations} {number}")
        if self.operations != USUAL:
            return list(sequences(dice, SEQUENCES, self.operations))
        every, places = ordered_pairs(self.seed, self.kinds), range(SEQUENCES * number, SEQUENCES * (number + 1))
        pairs = [every[place % len(every)] for place in places if self.kinds or place < len(every)]
        return [made for pair in pairs if (made := sequence_of(dice, pair)) is not None]

    def image_path(self, number: int) -> Path | None:
        """Return where the machine code of a file is kept."""
        return None if self.images is None else self.images / f"{number}.images"

    def parts(self, number: int, drawn: Sequence[MergedSequence], found: Found) -> list[tuple[list[int], bytes]]:
        """Return the machine code of a file, in parts of its sequences by their numbers; [] where none is kept."""
        path = self.image_path(number)
        if path is not None and path.exists():
            parts: list[tuple[list[int], bytes]] = pickle.loads(path.read_bytes())
            return parts
        if path is not None and not self.assembles:
            return []
        parts = list(_assembled_parts(drawn, list(range(len(drawn))), self.ptxas, found))
        if path is not None:
            path.write_bytes(pickle.dumps(parts))
        return parts


def _assembled_parts(
    drawn: Sequence[MergedSequence], numbers: list[int], ptxas: Ptxas, found: Found
) -> Iterator[tuple[list[int], bytes]]:
    """Yield numbers of sequences and their machine code; those that the assembler refuses are counted."""
    if not numbers:
        return
    chosen = [drawn[each] for each in numbers]
    image = assembled([program for each in chosen for program in (each.direct, each.hidden)], ptxas)
    if image is not None:
        yield numbers, image
    elif len(numbers) == 1:
        found.counts["refused"] += 1
    else:
        middle = len(numbers) // 2
        yield from _assembled_parts(drawn, numbers[:middle], ptxas, found)
        yield from _assembled_parts(drawn, numbers[middle:], ptxas, found)


def searched(search: Search, first: int, step: int, seconds: float) -> Found:
    """Search every `step`-th file from one on, for a time, or until a sequence cannot be executed.

    The device is then lost to this process.  Raises DeviceError where there is no device.
    """
    end = time.monotonic() + seconds
    found, number, files = Found(), first, search.files
    device = Device() if search.gpu else None
    if device is not None:
        device.assembler = search.ptxas
        found.device = device.environment()
    while time.monotonic() < end and not found.failed and (files is None or number < files):
        drawn = search.drawn(number)
        parts = search.parts(number, drawn, found)
        if not parts and search.images is not None and not search.assembles:
            break
        for numbers, image in parts:
            found.counts["sequences"] += len(numbers)
            if not search.assembles:
                _judge([drawn[each] for each in numbers], image, search.ptxas, device, found, number)
        found.counts["files"] += 1
        number += step
    return found


def _judge(
    drawn: Sequence[MergedSequence], image: bytes, ptxas: Ptxas, device: Device | None, found: Found, seed: int = 1
) -> None:
    """Compare sequences with themselves with hidden values: by their bytes where there is a device, else by opcodes."""
    if device is None:
        _judge_merged(drawn, image, ptxas, found)
    elif not found.failed:
        _judge_executed(drawn, image, ptxas, device, found, seed)


def _judge_merged(drawn: Sequence[MergedSequence], image: bytes, ptxas: Ptxas, found: Found) -> None:
    """Count the sequences that are merged, and those of them that are equal to the analysis."""
    opcodes = opcodes_of(image, 2 * len(drawn), ptxas)
    changes = [change_of(opcodes[2 * at], opcodes[2 * at + 1]) for at in range(len(drawn))]
    merged = [(each, change) for each, change in zip(drawn, changes, strict=True) if change]
    found.counts["merged"] += len(merged)
    equal = _are_equal([each for each, _ in merged])
    for (each, change), same in zip(merged, equal, strict=True):
        found.counts["merged, Equal" if same else "merged, not Equal"] += 1
        if same:
            found.changes.setdefault(change, []).append(written(each.direct))


def _are_equal(drawn: Sequence[MergedSequence]) -> list[bool]:
    """Return whether each sequence is equal to itself with hidden values, to the analysis."""
    if not drawn:
        return []
    # In one kernel, the two would share what they have in common, of which ptxas may make other numbers in each.
    sides = [[getattr(each, side) for each in drawn] for side in ("direct", "hidden")]
    direct, hidden = (analyse(side, LANGUAGES["ptx"], SCOPES["launch"]).forms for side in sides)
    return [one is not None and one == other for one, other in zip(direct, hidden, strict=True)]


def _judge_executed(
    drawn: Sequence[MergedSequence], image: bytes, ptxas: Ptxas, device: Device, found: Found, seed: int
) -> None:
    """Execute sequences both ways, up to one that fails; those with other bytes must not be equal to the analysis."""
    other: list[tuple[MergedSequence, str, int]] = []
    with device.loaded(image) as module:
        for at, each in enumerate(drawn):
            try:
                place = _executed(each, device, module, 2 * at, seed)
            except DeviceError as error:
                found.failed.append(f"{written(each.direct)}: {error}")
                break
            found.counts["executed"] += 1
            if place:
                other.append((each, place, at))
    if not other:
        return
    opcodes = opcodes_of(image, 2 * len(drawn), ptxas)
    for (each, place, at), same in zip(other, _are_equal([each for each, _, _ in other]), strict=True):
        found.counts["other bytes, Equal" if same else "other bytes, not Equal"] += 1
        if same:
            change = change_of(opcodes[2 * at], opcodes[2 * at + 1])
            found.different.append(f"{written(each.direct)}: {place} ({change})")


def _executed(each: MergedSequence, device: Device, module: c_void_p, number: int, seed: int) -> str:
    """Run a sequence both ways on inputs with special values; return an element that differs, or nothing.

    `number` is that of the entry of the sequence as it is; the next one hides its values.
    """
    language = LANGUAGES["ptx"]
    kernels = [language.kernel([program]) for program in (each.direct, each.hidden)]
    contents = language.inputs(kernels[0], BLOCKS, seed, finite=False)
    results = [
        device.run_entry(module, f"kernel_{number + at}", kernel, BLOCKS, contents)[0]
        for at, kernel in enumerate(kernels)
    ]
    other = difference(results[0], results[1], DTYPES[STORES[each.direct.store].buffer])
    if other is None:
        return ""
    return " and ".join(rows[other.sample].tobytes()[::-1].hex() for rows in results)


def record_of(found: Found, search: Search, seconds: float) -> dict[str, Any]:
    """Return what a search has found as JSON, with the assembler and the environment."""
    run = {
        "environment": {**analysis_environment(), **found.device},
        "ptxas": search.ptxas.version,
        "architecture": search.ptxas.gpu,
        "seconds": round(seconds),
        "seed": search.seed,
        "operations": search.operations + (f", one of {search.kinds}" if search.kinds else ""),
        "counts": {name: count for name, count in sorted(found.counts.items()) if count},
        "sequences with other bytes": sorted(found.different),
        "sequences that cannot be executed": sorted(found.failed),
    }
    return {"runs": [run], "merged sequences that are Equal": _shortened(found.changes)}


def merged_records(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record of several searches.  Raises ValueError if two have the same files, assembler, environment."""
    runs = [run for part in parts for run in part["runs"]]
    named = "seed", "operations", "files", "ptxas", "architecture", "environment"
    keys = [tuple(run.get(each) for each in named) for run in runs]
    if any(key in keys[:number] for number, key in enumerate(keys)):
        raise ValueError("two runs have the same files, assembler and environment: a run counts once")
    changes: dict[str, Any] = {}
    for change, found in (item for part in parts for item in part["merged sequences that are Equal"].items()):
        held = changes.setdefault(change, {"sequences": 0, "example": found["example"]})
        held["sequences"] += found["sequences"]
        held["example"] = min(held["example"], found["example"], key=lambda text: (len(text), text))
    ordered = sorted(changes.items(), key=lambda item: -item[1]["sequences"])
    others = sum(part.get(_OTHERS, 0) for part in parts)
    return {
        "runs": runs,
        "merged sequences that are Equal": dict(ordered[:MOST_CHANGES]),
        _OTHERS: others + sum(found["sequences"] for _, found in ordered[MOST_CHANGES:]),
    }


def _shortened(changes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the number of the sequences of each change, and the shortest one."""
    return {
        change: {"sequences": len(texts), "example": min(texts, key=lambda text: (len(text), text))}
        for change, texts in sorted(changes.items(), key=lambda item: -len(item[1]))
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, and write a record."""
    start = time.monotonic()
    parser = command_parser("assembler.merge_search", __doc__)
    parser.add_argument("--ptxas", help="the assembler (default: that of the installed Triton)")
    parser.add_argument("--arch", default="sm_90a", help="the architecture (default sm_90a)")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to search (default 600)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sequences (default 0)")
    drawn = parser.add_mutually_exclusive_group()
    drawn.add_argument("--usual", action="store_true", help="each pair of kinds of operations that compilers use")
    drawn.add_argument("--longer", action="store_true", help="three and four operations that compilers use")
    drawn.add_argument("--narrow", action="store_true", help="three and four operations on integers of 8 to 64 bits")
    parser.add_argument("--kinds", default="", help="a pattern: only pairs of kinds that begin so, again and again")
    parser.add_argument("--first", type=int, default=0, help="the number of the first file of sequences (default 0)")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--assemble", type=Path, metavar="FOLDER", help="assemble only, to files of this folder")
    kept.add_argument("--images", type=Path, metavar="FOLDER", help="search the files of this folder")
    parser.add_argument("--gpu", action="store_true", help="run merged sequences on a GPU of sm_90")
    parser.add_argument("--record", type=Path, help="write what is found here, as JSON")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="RECORD", help="merge records instead of a search")
    chosen = parser.parse_args(arguments)
    if chosen.merge:
        try:
            whole = merged_records([json.loads(path.read_text()) for path in chosen.merge])
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"--merge: a file is no record of such searches ({error})")
        return _finish(whole, chosen.record)
    if chosen.jobs < 1 or chosen.seconds <= 0:
        parser.error("--jobs and --seconds must be positive")
    if chosen.gpu and not chosen.arch.startswith("sm_90"):
        parser.error(f"--gpu: sequences for {chosen.arch} do not run on a GPU of sm_90")
    if chosen.kinds and not chosen.usual:
        parser.error("--kinds is a pattern of pairs: add --usual")
    operations = USUAL if chosen.usual else LONGER if chosen.longer else NARROW if chosen.narrow else ALL
    found, places = Found(), [chosen.first + number for number in range(chosen.jobs)]
    if chosen.assemble is not None:
        chosen.assemble.mkdir(parents=True, exist_ok=True)
    try:
        ptxas = Ptxas.locate(chosen.arch, path=chosen.ptxas)
        images, assembles = chosen.assemble or chosen.images, chosen.assemble is not None
        search = Search(operations, ptxas, chosen.seed, chosen.gpu, images, assembles, chosen.kinds)
        last: Found | None = None
        files = search.files
        while last is None or (
            last.counts["files"]
            and time.monotonic() - start < chosen.seconds
            and (files is None or min(places) < files)
        ):
            left = min(SLICE, chosen.seconds - (time.monotonic() - start))
            last = Found()
            with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("fork")) as pool:
                jobs = [pool.submit(searched, search, place, chosen.jobs, left) for place in places]
                for number, job in enumerate(jobs):
                    last.add(job.result())
                    places[number] += job.result().counts["files"] * chosen.jobs
            found.add(last)
            record = record_of(found, search, time.monotonic() - start)
            record["runs"][0]["files"] = {"first": chosen.first, "all before": min(places)}
            if chosen.record is not None:
                write_text(chosen.record, json.dumps(record, indent=1) + "\n")
    except (PtxasNotFound, DeviceError, ValueError) as error:
        parser.error(str(error))
    return _finish(record, chosen.record)


def _finish(record: Mapping[str, Any], path: Path | None) -> int:
    """Write and print a record; return the exit status."""
    if path is not None:
        write_text(path, json.dumps(record, indent=1) + "\n")
    found = False
    for run in record["runs"]:
        print(f"ptxas {run['ptxas']} for {run['architecture']}: {run['counts']}")
        for key, name in (
            ("sequences with other bytes", "other bytes"),
            ("sequences that cannot be executed", "not executed"),
        ):
            for each in run.get(key, ()):
                found = True
                print(f"{name}: {each}")
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
