"""Do a library's bits travel?  Products locked on one GPU, replayed on another, against the bytes of the first.

    python -m bitwise_cublas_profiles.travel lock --lock lock.json --bytes bytes.json
    python -m bitwise_cublas_profiles.travel replay --lock lock.json --bytes bytes.json --out travel.json
    python -m bitwise_cublas_profiles.travel replay ... --library /path/to/libcublasLt.so.12
    python -m bitwise_cublas_profiles.travel keep ... --record records/travels.json --rows records/travel.json.xz
    python -m bitwise_cublas_profiles.travel check --rows records/travel.json.xz

`lock` asks the heuristic for shapes of all regimes, writes a lock file of the descriptors, and a file with hashes of
what cuBLASLt returned on two draws of operands that any machine makes alike.  `replay` runs the lock's products, and
cuBLASLt as it answers there, or another library, on the same operands.  `keep` adds what was counted to
a record, and writes everything beside it.  `check` evaluates the small products of such a file on the CPU, against the
first machine's hashes; it takes no GPU.  Needs the plugins installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.problems import Problem
from bitwise_cublas_profiles.processes import together
from bitwise_cublas_profiles.profile import Profile, profile
from bitwise_cublas_profiles.question import Answer, CublasError, Question, question_of_problem
from bitwise_cublas_profiles.seeded import DRAWS, Operands
from bitwise_cublas_profiles.shapes import REGIMES, drawn
from bitwise_torch.locks import Lock, locked, read_lock

MAXIMUM_OUTPUT, MAXIMUM_OPERAND, MAXIMUM_PRODUCTS = 1 << 21, 1 << 24, 1 << 33
MAXIMUM_EVALUATED = 1 << 19
"""Multiply-adds of a product that is small enough for a CPU."""
_DIGITS = 16
BYTES = ("number", "m", "n", "k", "a", "transposes", "c", "sha256")
"""Columns of the file of hashes: the shape's number under its seed, and the first digits of a hash over both draws."""
COLUMNS = (*BYTES[:-1], "here", "answer", "replayed", "about")
"""Columns of a replay.  `here` says whether this machine's own library returned the lock's bytes, `answer` whether its
heuristic answered with the same descriptor, `replayed` whether the lock's product returned them; `about` is why not."""


def problem_of(asked: Question) -> Problem:
    """The problem that a question without gaps is."""
    return Problem(
        m=asked.m, n=asked.n, k=asked.k, a=asked.a, b=asked.b, out=asked.c, transpose_a=asked.transpose_a,
        transpose_b=asked.transpose_b,
    )  # fmt: skip


def chosen(seed: int, count: int) -> Iterator[tuple[int, Question]]:
    """The first `count` shapes of a seed that are small enough to be many, every one another problem."""
    number = -1
    seen: set[Problem] = set()
    while len(seen) < count:
        number += 1
        asked = drawn(seed, number, 0.2).asked
        small = asked.m * asked.n <= MAXIMUM_OUTPUT and asked.m * asked.n * asked.k <= MAXIMUM_PRODUCTS
        problem = problem_of(asked)
        # A vector lies as a problem says.
        asked = replace(asked, transpose_a=problem.transpose_a, transpose_b=problem.transpose_b)
        if small and max(asked.m * asked.k, asked.k * asked.n) <= MAXIMUM_OPERAND and problem not in seen:
            seen.add(problem)
            yield number, asked


class Machine:
    """A library on a GPU, what is known of it, and operands."""

    def __init__(self, library: Any, capability: str, operands: Operands) -> None:
        self.library, self.operands = library, operands
        self.known: Profile | str = "no library"
        try:
            if library is not None:
                self.known = profile(library.version, capability)
        except CublasError as error:
            self.known = str(error)

    def described(self, asked: Question, answer: Answer) -> GEMMDesc | str:
        """The descriptor of an answer, or why there is none."""
        from bitwise_cublas_profiles.describe import descriptor_of

        if isinstance(self.known, str):
            return self.known
        try:
            return descriptor_of(asked, answer.configuration, self.known)
        except CublasError as error:
            return str(error)

    def theirs(self, asked: Question, answer: Answer, number: int) -> str:
        """The hash of what the library returns for an answer."""
        from bitwise_cublas_profiles.tensors import run

        def launch(a: Any, b: Any, out: Any) -> None:
            run(self.library, asked, answer, a, b, out)

        return self.hashed(asked, number, launch)

    def hashed(self, asked: Question, number: int, launch: Any) -> str:
        """The hash over all draws of what a product returns; NaNs count as one value."""
        import torch

        from bitwise_cublas_profiles.tensors import torch_type

        digest = hashlib.sha256()
        for draw in DRAWS:
            out = torch.full((asked.m, asked.n), -7.0, dtype=torch_type(asked.c), device=self.operands.device)
            launch(*self.operands.draw(asked, number, draw), out)
            out = torch.where(out.isnan(), torch.full_like(out, float("nan")), out)
            digest.update(out.view(torch.uint8).cpu().numpy().tobytes())
        return digest.hexdigest()[:_DIGITS]


def machine_here(path: str | None, seed: int) -> Machine:
    """The current GPU with PyTorch's cuBLASLt, or with that of a path.  Raises CublasError."""
    import torch

    from bitwise_cublas_profiles.library import Library

    major, minor = torch.cuda.get_device_capability()
    return Machine(Library(path), f"{major}.{minor}", Operands(seed))


def lock(given: argparse.Namespace) -> int:
    """Writes the lock and the hashes of as many shapes as the time allows."""
    from bitwise_cublas_profiles.plugin import LOADED

    machine = machine_here(given.library, given.seed)
    found: list[tuple[Problem, GEMMDesc | str]] = []
    rows: list[list[Any]] = []
    deadline = time.time() + given.seconds
    declined: Counter[str] = Counter()
    for number, asked in chosen(given.seed, given.count):
        if time.time() > deadline:
            break
        try:
            answer = machine.library.ask(asked)[0]
        except CublasError as error:
            declined[str(error)[:100]] += 1
            continue
        desc = machine.described(asked, answer)
        found.append((problem_of(asked), desc))
        if isinstance(desc, str):
            declined[desc.split(" is not described: ")[-1].split(" (algorithm")[0]] += 1
            continue
        rows.append([number, asked.m, asked.n, asked.k, asked.a, asked.letters, asked.c,
                     machine.theirs(asked, answer, number)])  # fmt: skip
    provenance = LOADED.provenance(given.library)
    locked(found, provenance).write(given.lock)
    content = {**provenance, "seed": given.seed, "draws": list(DRAWS), "regimes": list(REGIMES),
               "declined": dict(declined), "columns": list(BYTES)}  # fmt: skip
    text = json.dumps(content)[:-1] + ', "rows": [\n'
    text += ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    given.bytes.write_text(text + "\n]}\n", encoding="utf-8")
    print(f"{len(rows)} shapes locked, declined: {dict(declined)}")
    return 0


class Replay:
    """One process: the lock's products and the library's, against the hashes of the machine that wrote the lock."""

    def __init__(self, content: Lock, machine: Machine) -> None:
        self.lock, self.machine = content, machine

    def row(self, recorded: Sequence[Any]) -> list[Any]:
        """The row of COLUMNS for one of the recorded hashes."""
        from bitwise_torch import matmul

        row = dict(zip(BYTES, recorded, strict=True))
        number, wanted = row["number"], row["sha256"]
        asked = drawn_question(row)
        same: bool | None = None
        alike: bool | None = None
        replayed: bool | None = None
        about = None
        entry = self.lock.entry(problem_of(asked))
        try:
            found = self.machine.hashed(
                asked, number, lambda a, b, out: matmul(a, b, lock=self.lock, out=out, out_dtype=out.dtype)
            )
            replayed = found == wanted
            answer = self.machine.library.ask(asked)[0]
            same = self.machine.theirs(asked, answer, number) == wanted
            described = self.machine.described(asked, answer)
            alike = None if isinstance(described, str) else described == entry.desc
        except (CublasError, ValueError) as error:
            about = f"{type(error).__name__}: {error}"[:300]
        return [*recorded[:-1], same, alike, replayed, about]


def drawn_question(row: dict[str, Any]) -> Question:
    """The question of a row of the file of hashes."""
    b = "e4m3" if row["a"] == "e5m2" else row["a"]
    first, second = (letter == "T" for letter in row["transposes"])
    return question_of_problem(
        Problem(
            m=row["m"], n=row["n"], k=row["k"], a=row["a"], b=b, out=row["c"], transpose_a=first, transpose_b=second
        )
    )


def replayed_rows(start: int, step: int, deadline: float, given: argparse.Namespace) -> Iterator[list[Any]]:
    """The rows of one process: every `step`-th of the recorded ones from `start` on."""
    content = json.loads(given.bytes.read_text(encoding="utf-8"))
    replaying = Replay(read_lock(given.lock), machine_here(given.library, content["seed"]))
    for recorded in content["rows"][start : given.count : step]:
        if time.time() > deadline:
            break
        yield replaying.row(recorded)


def replay(given: argparse.Namespace) -> int:
    """Replays in several processes and writes the record; the exit status is 1 where a replayed product differs."""
    from bitwise_cublas_profiles.plugin import LOADED

    content = json.loads(given.bytes.read_text(encoding="utf-8"))
    rows, died = together(replayed_rows, given.processes, given.seconds, given)
    rows.sort(key=lambda row: int(row[0]))
    counted = summary(rows)
    written = {name: content[name] for name in ("library", "device", "driver", "seed", "draws", "regimes", "declined")}
    head = json.dumps({"locked": written, "replayed": LOADED.provenance(given.library), "summary": counted,
                       "died": died, "columns": list(COLUMNS)})  # fmt: skip
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    given.out.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(json.dumps({**counted, "died": died}, indent=1))
    return 1 if counted["replayed, other bytes"] or died else 0


def summary(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """How many shapes ran, what the machine's own library returned, and what the lock's products did."""
    at = {name: place for place, name in enumerate(COLUMNS)}

    def count(**wanted: Any) -> int:
        return sum(all(row[at[name]] == value for name, value in wanted.items()) for row in rows)

    return {
        "shapes": len(rows),
        "library here, same bytes": count(here=True),
        "library here, other bytes": count(here=False),
        "replayed, same bytes": count(replayed=True),
        "replayed, other bytes": count(replayed=False),
        "replayed where the library differs, same bytes": count(here=False, replayed=True),
        "another descriptor answered here": count(answer=False),
        "another descriptor, same bytes": count(answer=False, here=True),
        "the same descriptor, other bytes": count(answer=True, here=False),
        "not run": count(replayed=None),
        "why not": dict(Counter(_why(str(row[at["about"]])) for row in rows if row[at["about"]]).most_common(10)),
        "by operands": {
            name: [count(a=name), count(a=name, here=False), count(a=name, replayed=True)]
            for name in sorted({str(row[at["a"]]) for row in rows})
        },
    }


def _why(about: str) -> str:
    """Why a row did not run, without the product that it is about."""
    kind, _, sentence = about.partition(": ")
    return f"{kind}: {sentence.partition(' is ')[2] or sentence}"[:80]


def keep(given: argparse.Namespace) -> int:
    """Writes a replay into the record of all, and its lock, hashes and rows into a file of their own, compressed."""
    travelled = json.loads(given.out.read_text(encoding="utf-8"))
    travelled["summary"] = summary(travelled["rows"])
    whole = {
        "travel": travelled, "bytes": json.loads(given.bytes.read_text(encoding="utf-8")),
        "lock": json.loads(given.lock.read_text(encoding="utf-8")),
    }  # fmt: skip
    given.rows.write_bytes(lzma.compress(json.dumps(whole, separators=(",", ":")).encode(), preset=9))
    counted = {name: travelled[name] for name in ("locked", "replayed", "summary")} | {"rows": given.rows.name}
    before = json.loads(given.record.read_text(encoding="utf-8"))["travels"] if given.record.exists() else []
    content = {"travels": [*(each for each in before if each["rows"] != given.rows.name), counted]}
    given.record.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


def checked(whole: dict[str, Any], count: int) -> Iterator[tuple[dict[str, Any], bool]]:
    """The first `count` small products of a file that `keep` wrote, and whether a CPU makes the recorded bytes."""
    from bitwise_torch import matmul

    content = Lock.from_text(json.dumps(whole["lock"]))
    machine = Machine(None, "none", Operands(whole["bytes"]["seed"], "cpu"))
    for values in whole["bytes"]["rows"]:
        row = dict(zip(BYTES, values, strict=True))
        if row["m"] * row["n"] * row["k"] > MAXIMUM_EVALUATED:
            continue
        if count == 0:
            return
        count -= 1
        digest = machine.hashed(
            drawn_question(row), row["number"],
            lambda a, b, out: matmul(a, b, lock=content, out=out, out_dtype=out.dtype),
        )  # fmt: skip
        yield row, digest == row["sha256"]


def check(given: argparse.Namespace) -> int:
    """Evaluates small products; the exit status is 1 where bytes differ."""
    whole = json.loads(lzma.decompress(given.rows.read_bytes()))
    outcomes: Counter[bool] = Counter()
    for row, same in checked(whole, given.count):
        outcomes[same] += 1
        if not same:
            print(json.dumps(row))
    print(f"{outcomes[True]} products evaluated to the recorded bytes, {outcomes[False]} to others")
    return 1 if outcomes[False] else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Lock or replay."""
    parser = argparse.ArgumentParser(prog="bitwise_cublas_profiles.travel", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("lock", "replay", "keep", "check"))
    parser.add_argument("--lock", type=Path, help="the lock file")
    parser.add_argument("--bytes", type=Path, help="the file of hashes")
    parser.add_argument("--out", type=Path, help="the record of a replay")
    parser.add_argument("--seed", type=int, default=7, help="of the shapes and the operands of a lock (default 7)")
    parser.add_argument("--count", type=int, default=4000, help="how many shapes (default 4000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long shapes are begun (default 60)")
    parser.add_argument("--processes", type=int, default=14, help="of a replay, on the one GPU (default 14)")
    parser.add_argument("--library", help="path of a libcublasLt (default: the one of the installed PyTorch)")
    parser.add_argument("--record", type=Path, help="the record of all replays, to which keep adds one")
    parser.add_argument("--rows", type=Path, help="where keep writes everything, and what check reads (.json.xz)")
    given = parser.parse_args(arguments)
    needed = {
        "lock": ("lock", "bytes"), "replay": ("lock", "bytes", "out"),
        "keep": ("lock", "bytes", "out", "record", "rows"), "check": ("rows",),
    }  # fmt: skip
    for name in needed[given.what]:
        if getattr(given, name) is None:
            parser.error(f"{given.what} needs --{name}")
    return {"lock": lock, "replay": replay, "keep": keep, "check": check}[given.what](given)


if __name__ == "__main__":
    sys.exit(main())
