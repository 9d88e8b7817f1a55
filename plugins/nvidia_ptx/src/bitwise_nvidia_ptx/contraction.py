"""What ptxas did to the roundings of a PTX text: the text that states every one of them, proved by its machine code.

An `add`, `sub` or `mul` without `.rn` may be fused with others by ptxas (`contraction_scan` says which), so the
text alone does not fix the bits.  `settle` looks for a text that does, and whose machine code is that of the
original.  How the text was found is irrelevant; the proof has two premises only:

1. *The rewritten text leaves ptxas no choice.*  Either each of its floating-point adds, subs and muls carries a
   rounding modifier and it was assembled with `--fmad=false` (both documented to rule fusion out, and seen to
   rule out the scaled products and the fused divisions too), or the analysis finds no candidate pair in it.
2. *Equal machine code does equal things*: code, constant banks, initialised memory, shared sizes and relocations are
   compared byte for byte.  Where no text gives the same bytes, one is enough whose code has the same instructions in
   the same order and differs in the names of predicate registers only; `machine_code` proves that they carry the same
   values.

In a text found that way an approximate instruction may be written out as the steps ptxas takes for it; where none
of them is fused, the returned text has the instruction itself, and where one is, the steps with all range
checks.  That the checks which ptxas dropped never fire is ptxas's own deduction.

A text without candidate pairs needs no assembler, nor does one assembled with `--fmad=false` (fp fusion off).
The remaining trust is in ptxas compiling correctly what leaves it no choice, and in it being the ptxas, with the
options, that made the kernel; hand over the kernel's own object file (`cubin`) to check the latter too, which
saves one run as well.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from bitwise_nvidia_ptx.assembler import NO_FUSION, AssemblyFailed, Ptxas, PtxasNotFound, code_digest
from bitwise_nvidia_ptx.contraction_pairs import Pair, pairs
from bitwise_nvidia_ptx.contraction_rewrite import Division, Fusion, choices, expandable, rewrite
from bitwise_nvidia_ptx.contraction_scan import Program, scan

__all__ = ["AssemblyFailed", "Method", "Ptxas", "PtxasNotFound", "Settled", "candidates", "settle"]

Method = Literal[
    "no candidates",
    "machine code equal, none contracted",
    "machine code equal, pairs contracted",
    "machine code equal but for names of predicates, none contracted",
    "machine code equal but for names of predicates, pairs contracted",
    "unsettled",
]
_DIVISIONS = (
    Division(),
    Division(tiny_first=True),
    Division(tiny=False, absolute=False),
    Division(tiny=False),
    Division(large=False, tiny=False),
    Division(large=False),
)
_RUNS = 14
_BATCH = 2


@dataclass(frozen=True)
class Settled:
    """The outcome for one text.

    `text` states every rounding, with the original's line numbers (the original itself if unsettled); `pairs`
    are the lines (product, sum) ptxas fused; `reason` says in a sentence why the answer holds, or what
    prevented one; `seconds` is wall time; `runs` counts assemblies asked for, cached ones included;
    `ptxas_version` is "" where none was needed.
    """

    text: str
    method: Method
    pairs: tuple[tuple[int, int], ...]
    reason: str
    seconds: float
    runs: int
    ptxas_version: str
    options: tuple[str, ...]

    @property
    def settled(self) -> bool:
        """Whether `text` states what the machine does."""
        return self.method != "unsettled"


@dataclass(frozen=True)
class _Attempt:
    """A text to assemble, the text to return should it match, and the fusions it makes."""

    assembled: str
    fuse: bool
    returned: str
    fusions: tuple[Fusion, ...] = ()


def candidates(text: str) -> tuple[tuple[int, int], ...]:
    """Lines (product, consumer) of every pair ptxas is free to fuse, as far as can be excluded; () if none."""
    program = scan(text)
    return tuple(_lines(program, pair) for pair in pairs(program))


def settle(
    text: str,
    *,
    arch: str | None = None,
    ptxas: Ptxas | None = None,
    entry: str | None = None,
    cubin: bytes | None = None,
    runs: int = _RUNS,
) -> Settled:
    """The text that says what the machine code of `text` does, or why there is none.

    `ptxas` is located for `arch` if not given, and only once it is needed; `cubin` is the kernel's own object
    file, if at hand; `runs` bounds the assemblies.  All functions of the file are settled together, so
    `entry` only has to be in the text.
    Raises PtxasNotFound if there are candidates and no assembler, ValueError if neither `arch` nor `ptxas` is given
    then or `entry` is not in the text.
    """
    begin = time.perf_counter()
    if entry is not None and entry not in text:
        raise ValueError(f"the text has no entry {entry!r}; name one of its entries")
    program = scan(text)
    stated = rewrite(program)
    found = pairs(program)
    if not found:
        reason = "no product can reach an instruction that could be fused with it"
        return Settled(stated, "no candidates", (), reason, time.perf_counter() - begin, 0, "", ())
    if ptxas is not None and NO_FUSION in ptxas.options:
        reason = "fp fusion is off: ptxas runs with --fmad=false"
        return Settled(stated, "no candidates", (), reason, time.perf_counter() - begin, 0, "", ptxas.options)
    if ptxas is None:
        if arch is None:
            raise ValueError("the text has pairs that ptxas may fuse; give settle the architecture or a Ptxas")
        ptxas = Ptxas.locate(arch)
    done = _search(program, found, stated, ptxas, cubin, runs)
    method, returned, fusions, reason, count = done
    lines = tuple((program.statements[f.product].line, program.statements[f.consumer].line) for f in fusions)
    seconds = time.perf_counter() - begin
    return Settled(returned, method, lines, reason, seconds, count, ptxas.version, (*ptxas.options, ptxas.gpu))


def _search(
    program: Program, open_pairs: tuple[Pair, ...], stated: str, ptxas: Ptxas, cubin: bytes | None, runs: int
) -> tuple[Method, str, tuple[Fusion, ...], str, int]:
    text = program.text
    product, consumer = _lines(program, open_pairs[0])
    count = 0
    tried: list[_Attempt] = []
    with ThreadPoolExecutor(_BATCH) as pool:
        try:
            original = pool.submit(code_digest, cubin) if cubin is not None else pool.submit(ptxas.digest, text)
            count += cubin is None
            pending = iter(_distinct(_attempts(program, open_pairs, stated)))
            while count < runs and (batch := list(itertools.islice(pending, min(_BATCH - (count == 1), runs - count)))):
                found = [pool.submit(ptxas.digest, attempt.assembled, fuse=attempt.fuse) for attempt in batch]
                wanted = original.result()
                count += len(batch)
                for attempt, future in zip(batch, found, strict=True):
                    try:
                        equal = future.result() == wanted
                    except AssemblyFailed:
                        continue
                    tried.append(attempt)
                    if equal and attempt.fusions:
                        reason = f"{len(attempt.fusions)} products fused by hand give the same machine code"
                        return "machine code equal, pairs contracted", attempt.returned, attempt.fusions, reason, count
                    if equal:
                        reason = "the text with every rounding stated gives the same machine code"
                        return "machine code equal, none contracted", attempt.returned, (), reason, count
        except AssemblyFailed as error:
            return "unsettled", text, (), str(error), count
    wanted_code = text if cubin is None else cubin
    renamed = next((attempt for attempt in tried if _like(ptxas, wanted_code, attempt)), None)
    if renamed is not None and renamed.fusions:
        reason = f"{len(renamed.fusions)} products fused by hand give the same machine code but for names of predicates"
        method: Method = "machine code equal but for names of predicates, pairs contracted"
        return method, renamed.returned, renamed.fusions, reason, count
    if renamed is not None:
        reason = "the text with every rounding stated gives the same machine code but for names of predicates"
        method = "machine code equal but for names of predicates, none contracted"
        return method, renamed.returned, (), reason, count
    reason = (
        f"ptxas may fuse the product of line {product} into line {consumer}, and none of {count} assemblies shows what "
        f"it did with this and {len(open_pairs) - 1} other pairs; compile with fp fusion off to be certain"
    )
    return "unsettled", text, (), reason, count


def _like(ptxas: Ptxas, original: str | bytes, attempt: _Attempt) -> bool:
    try:
        return ptxas.like(original, attempt.assembled, fuse=attempt.fuse)
    except AssemblyFailed:
        return False


def _attempts(program: Program, open_pairs: tuple[Pair, ...], stated: str) -> Iterator[_Attempt]:
    """Texts that leave no choice, in the order in which they are worth assembling."""
    yield _Attempt(stated, False, stated)
    guesses: list[tuple[Fusion, ...]] = [*choices(program), ()]
    for division in _DIVISIONS:
        for guess in guesses:
            returned = rewrite(program, guess)
            if guess:
                yield _Attempt(rewrite(program, guess, division=division), False, returned, guess)
            for products in (True, False):
                if (assembled := _careful(program, open_pairs, guess, division, products)) is not None:
                    yield _Attempt(assembled, True, returned, guess)


def _careful(
    program: Program, open_pairs: tuple[Pair, ...], fusions: tuple[Fusion, ...], division: Division, products: bool
) -> str | None:
    """States only the roundings that matter, of products or else of sums; None if that leaves a pair open.

    ptxas derives ranges from a plain add, not from one with `.rn`, and drops checks of a division that never fire.
    """
    statements = program.statements
    fused = {fusion.consumer for fusion in fusions}
    marked = {i for i, s in enumerate(statements) if products and s.contractible and s.base == "mul"}
    expand: set[int] = set()
    for pair in open_pairs:
        if pair.consumer in fused:
            continue
        product = statements[pair.product]
        if not (pair.scale or products) or (product.hidden_product and not expandable(product)):
            marked.add(pair.consumer)
        elif product.hidden_product:
            expand.add(pair.product)
        else:
            marked.add(pair.product)
    assembled = rewrite(program, fusions, round_only=frozenset(marked), expand=frozenset(expand), division=division)
    return None if pairs(scan(assembled)) else assembled


def _distinct(attempts: Iterable[_Attempt]) -> Iterator[_Attempt]:
    seen: set[tuple[str, bool]] = set()
    for attempt in attempts:
        if (key := (attempt.assembled, attempt.fuse)) not in seen:
            seen.add(key)
            yield attempt


def _lines(program: Program, pair: Pair) -> tuple[int, int]:
    return program.statements[pair.product].line, program.statements[pair.consumer].line
