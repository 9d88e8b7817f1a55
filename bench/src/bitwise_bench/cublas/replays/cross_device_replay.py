"""Reproducibility across devices: GEMMs locked on one GPU and replayed on another, byte for byte.

    python -m bitwise_bench.cublas.replays.cross_device_replay lock --lock lock.json --bytes bytes.json
    python -m bitwise_bench.cublas.replays.cross_device_replay replay --lock lock.json --bytes bytes.json \
        --out replay.json
    python -m bitwise_bench.cublas.replays.cross_device_replay replay ... --library /path/to/libcublasLt.so.12
    python -m bitwise_bench.cublas.replays.cross_device_replay archive ... --record records/replays.json \
        --rows replay.json.xz
    python -m bitwise_bench.cublas.replays.cross_device_replay check --rows records/replay.json.xz

`lock` queries the heuristic for shapes of all regimes. It writes a lock file of the descriptors, and a file of hashes
of cuBLASLt's outputs for two sets of operands that every machine generates with identical bits. `replay` runs the
locked GEMMs, and this machine's cuBLASLt or another library, on the same operands. `archive` adds the counts to a
record and writes the lock, the hashes and the rows to a compressed file. `check` evaluates the small GEMMs of such a
file on the CPU and compares them with the first machine's hashes; it needs no GPU. The plugins must be installed.
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

from bitwise_bench.cublas.portable_operands import DRAWS, Operands
from bitwise_bench.cublas.sweeps.random_queries import REGIMES, random_query
from bitwise_bench.cublas.worker_processes import run_workers
from bitwise_core.descriptors import GEMMDesc
from bitwise_core.descriptors.problem import GEMMProblem
from bitwise_cublas_profiles.profile import Profile, profile
from bitwise_cublas_profiles.query import CublasError, GemmQuery, HeuristicResult, query_of_problem
from bitwise_torch.locks import Lock, lock_of, read_lock

MAXIMUM_OUTPUT, MAXIMUM_OPERAND, MAXIMUM_PRODUCTS = 1 << 21, 1 << 24, 1 << 33
MAXIMUM_EVALUATED = 1 << 19
"""Largest number of multiply-adds of a GEMM that is evaluated on the CPU."""
_DIGITS = 16
BYTES = ("number", "m", "n", "k", "a", "transposes", "c", "sha256")
"""Columns of the file of hashes: the shape's number under its seed, and the first digits of a hash over all draws."""
COLUMNS = (*BYTES[:-1], "here", "answer", "replayed", "about")
"""Columns of a replay. `here`: this machine's library returned the locked bytes. `answer`: its heuristic selected the
same descriptor. `replayed`: the locked GEMM returned the locked bytes. `about`: why something is missing.
"""


def problem_of(query: GemmQuery) -> GEMMProblem:
    """The problem of a query without padding."""
    return GEMMProblem(
        m=query.m, n=query.n, k=query.k, a=query.a, b=query.b, out=query.c, transpose_a=query.transpose_a,
        transpose_b=query.transpose_b,
    )  # fmt: skip


def chosen(seed: int, count: int) -> Iterator[tuple[int, GemmQuery]]:
    """The first `count` small shapes of a seed, each a different problem."""
    number = -1
    seen: set[GEMMProblem] = set()
    while len(seen) < count:
        number += 1
        query = random_query(seed, number, 0.2).query
        small = query.m * query.n <= MAXIMUM_OUTPUT and query.m * query.n * query.k <= MAXIMUM_PRODUCTS
        problem = problem_of(query)
        # A problem normalises the layout of vectors.
        query = replace(query, transpose_a=problem.transpose_a, transpose_b=problem.transpose_b)
        if small and max(query.m * query.k, query.k * query.n) <= MAXIMUM_OPERAND and problem not in seen:
            seen.add(problem)
            yield number, query


class Machine:
    """A library on a GPU, its profile, and operands."""

    def __init__(self, library: Any, capability: str, operands: Operands) -> None:
        self.library, self.operands = library, operands
        self.known: Profile | str = "no library"
        try:
            if library is not None:
                self.known = profile(library.version, capability)
        except CublasError as error:
            self.known = str(error)

    def described(self, query: GemmQuery, result: HeuristicResult) -> GEMMDesc | str:
        """The descriptor of a heuristic result, or why there is none."""
        from bitwise_cublas_profiles.describe import descriptor_of

        if isinstance(self.known, str):
            return self.known
        try:
            return descriptor_of(query, result.configuration, self.known)
        except CublasError as error:
            return str(error)

    def theirs(self, query: GemmQuery, result: HeuristicResult, number: int) -> str:
        """The hash of what the library returns for a heuristic result."""
        from bitwise_cublas_profiles.tensors import run

        def launch(a: Any, b: Any, out: Any) -> None:
            run(self.library, query, result, a, b, out)

        return self.hashed(query, number, launch)

    def hashed(self, query: GemmQuery, number: int, launch: Any) -> str:
        """The hash of a GEMM's outputs over all draws. All NaNs count as one value."""
        import torch

        from bitwise_cublas_profiles.tensors import torch_type

        digest = hashlib.sha256()
        for draw in DRAWS:
            out = torch.full((query.m, query.n), -7.0, dtype=torch_type(query.c), device=self.operands.device)
            launch(*self.operands.draw(query, number, draw), out)
            out = torch.where(out.isnan(), torch.full_like(out, float("nan")), out)
            digest.update(out.view(torch.uint8).cpu().numpy().tobytes())
        return digest.hexdigest()[:_DIGITS]


def machine_here(path: str | None, seed: int) -> Machine:
    """The current GPU with PyTorch's cuBLASLt or the library at `path`. Raises CublasError."""
    import torch

    from bitwise_cublas_profiles.library import Library

    major, minor = torch.cuda.get_device_capability()
    return Machine(Library(path), f"{major}.{minor}", Operands(seed))


def lock(given: argparse.Namespace) -> int:
    """Write the lock and the hashes of as many shapes as the time allows."""
    from bitwise_cublas_profiles.library_profile import PYTORCH_LIBRARY

    machine = machine_here(given.library, given.seed)
    found: list[tuple[GEMMProblem, GEMMDesc | str]] = []
    rows: list[list[Any]] = []
    deadline = time.time() + given.seconds
    declined: Counter[str] = Counter()
    for number, query in chosen(given.seed, given.count):
        if time.time() > deadline:
            break
        try:
            result = machine.library.heuristic(query)[0]
        except CublasError as error:
            declined[str(error)[:100]] += 1
            continue
        desc = machine.described(query, result)
        found.append((problem_of(query), desc))
        if isinstance(desc, str):
            declined[desc.split(" is not described: ")[-1].split(" (algorithm")[0]] += 1
            continue
        rows.append([number, query.m, query.n, query.k, query.a, query.transposes, query.c,
                     machine.theirs(query, result, number)])  # fmt: skip
    provenance = PYTORCH_LIBRARY.provenance(given.library)
    lock_of(found, provenance).write(given.lock)
    content = {**provenance, "seed": given.seed, "draws": list(DRAWS), "regimes": list(REGIMES),
               "declined": dict(declined), "columns": list(BYTES)}  # fmt: skip
    text = json.dumps(content)[:-1] + ', "rows": [\n'
    text += ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    given.bytes.write_text(text + "\n]}\n", encoding="utf-8")
    print(f"{len(rows)} shapes locked, declined: {dict(declined)}")
    return 0


class Replay:
    """One process: the locked GEMMs and the library's, compared with the locked hashes."""

    def __init__(self, content: Lock, machine: Machine) -> None:
        self.lock, self.machine = content, machine

    def row(self, recorded: Sequence[Any]) -> list[Any]:
        """The row of COLUMNS for one recorded hash."""
        from bitwise_torch import matmul

        row = dict(zip(BYTES, recorded, strict=True))
        number, wanted = row["number"], row["sha256"]
        query = recorded_query(row)
        same: bool | None = None
        alike: bool | None = None
        replayed: bool | None = None
        about = None
        entry = self.lock.entry(problem_of(query))
        try:
            found = self.machine.hashed(
                query, number, lambda a, b, out: matmul(a, b, lock=self.lock, out=out, out_dtype=out.dtype)
            )
            replayed = found == wanted
            result = self.machine.library.heuristic(query)[0]
            same = self.machine.theirs(query, result, number) == wanted
            described = self.machine.described(query, result)
            alike = None if isinstance(described, str) else described == entry.desc
        except (CublasError, ValueError) as error:
            about = f"{type(error).__name__}: {error}"[:300]
        return [*recorded[:-1], same, alike, replayed, about]


def recorded_query(row: dict[str, Any]) -> GemmQuery:
    """The query of a row of the file of hashes."""
    b = "e4m3" if row["a"] == "e5m2" else row["a"]
    first, second = (letter == "T" for letter in row["transposes"])
    return query_of_problem(
        GEMMProblem(
            m=row["m"], n=row["n"], k=row["k"], a=row["a"], b=b, out=row["c"], transpose_a=first, transpose_b=second
        )
    )


def replayed_rows(start: int, step: int, deadline: float, given: argparse.Namespace) -> Iterator[list[Any]]:
    """The rows of one process: every `step`-th recorded row from `start`."""
    content = json.loads(given.bytes.read_text(encoding="utf-8"))
    replaying = Replay(read_lock(given.lock), machine_here(given.library, content["seed"]))
    for recorded in content["rows"][start : given.count : step]:
        if time.time() > deadline:
            break
        yield replaying.row(recorded)


def replay(given: argparse.Namespace) -> int:
    """Replay in several processes and write the record. The exit status is 1 if a replayed GEMM differs."""
    from bitwise_cublas_profiles.library_profile import PYTORCH_LIBRARY

    content = json.loads(given.bytes.read_text(encoding="utf-8"))
    rows, died = run_workers(replayed_rows, given.processes, given.seconds, given)
    rows.sort(key=lambda row: int(row[0]))
    counted = summary(rows)
    written = {name: content[name] for name in ("library", "device", "driver", "seed", "draws", "regimes", "declined")}
    head = json.dumps({"locked": written, "replayed": PYTORCH_LIBRARY.provenance(given.library), "summary": counted,
                       "died": died, "columns": list(COLUMNS)})  # fmt: skip
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    given.out.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(json.dumps({**counted, "died": died}, indent=1))
    return 1 if counted["replayed, other bytes"] or died else 0


def summary(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Counts of shapes by what this machine's library and the locked GEMMs returned."""
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
    """Why a row did not run, without the name of its GEMM."""
    kind, _, sentence = about.partition(": ")
    return f"{kind}: {sentence.partition(' is ')[2] or sentence}"[:80]


def archive(given: argparse.Namespace) -> int:
    """Add a replay to the record, and write its lock, hashes and rows to a compressed file."""
    replayed = json.loads(given.out.read_text(encoding="utf-8"))
    replayed["summary"] = summary(replayed["rows"])
    whole = {
        "travel": replayed, "bytes": json.loads(given.bytes.read_text(encoding="utf-8")),
        "lock": json.loads(given.lock.read_text(encoding="utf-8")),
    }  # fmt: skip
    given.rows.write_bytes(lzma.compress(json.dumps(whole, separators=(",", ":")).encode(), preset=9))
    counted = {name: replayed[name] for name in ("locked", "replayed", "summary")} | {"rows": given.rows.name}
    before = json.loads(given.record.read_text(encoding="utf-8"))["travels"] if given.record.exists() else []
    content = {"travels": [*(each for each in before if each["rows"] != given.rows.name), counted]}
    given.record.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


def checked(whole: dict[str, Any], count: int) -> Iterator[tuple[dict[str, Any], bool]]:
    """The first `count` small GEMMs of an archived file, and whether the CPU evaluation has the recorded bytes."""
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
            recorded_query(row), row["number"],
            lambda a, b, out: matmul(a, b, lock=content, out=out, out_dtype=out.dtype),
        )  # fmt: skip
        yield row, digest == row["sha256"]


def check(given: argparse.Namespace) -> int:
    """Evaluate small GEMMs. The exit status is 1 if bytes differ."""
    whole = json.loads(lzma.decompress(given.rows.read_bytes()))
    outcomes: Counter[bool] = Counter()
    for row, same in checked(whole, given.count):
        outcomes[same] += 1
        if not same:
            print(json.dumps(row))
    print(f"{outcomes[True]} products evaluated to the recorded bytes, {outcomes[False]} to others")
    return 1 if outcomes[False] else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        prog="bitwise_bench.cublas.replays.cross_device_replay", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("what", choices=("lock", "replay", "archive", "check"))
    parser.add_argument("--lock", type=Path, help="the lock file")
    parser.add_argument("--bytes", type=Path, help="the file of hashes")
    parser.add_argument("--out", type=Path, help="the record of a replay")
    parser.add_argument("--seed", type=int, default=7, help="seed of the shapes and the operands (default 7)")
    parser.add_argument("--count", type=int, default=4000, help="number of shapes (default 4000)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="start no new shape after this many seconds (default 60)"
    )
    parser.add_argument("--processes", type=int, default=14, help="worker processes of a replay (default 14)")
    parser.add_argument("--library", help="path of a libcublasLt (default: PyTorch's)")
    parser.add_argument("--record", type=Path, help="the record of all replays, to which archive adds one")
    parser.add_argument("--rows", type=Path, help="archive writes it, check reads it (.json.xz)")
    given = parser.parse_args(arguments)
    needed = {
        "lock": ("lock", "bytes"), "replay": ("lock", "bytes", "out"),
        "archive": ("lock", "bytes", "out", "record", "rows"), "check": ("rows",),
    }  # fmt: skip
    for name in needed[given.what]:
        if getattr(given, name) is None:
            parser.error(f"{given.what} needs --{name}")
    return {"lock": lock, "replay": replay, "archive": archive, "check": check}[given.what](given)


if __name__ == "__main__":
    sys.exit(main())
