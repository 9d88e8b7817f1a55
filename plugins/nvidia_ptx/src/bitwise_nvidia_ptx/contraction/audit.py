"""The contraction audit: find the module that states every rounding, and prove it by equality of machine code.

ptxas may fuse an `add`, `sub` or `mul` without `.rn` with others (`candidates` says which), so the text alone does not
determine the bits.  `audit` searches for a rewritten program whose text determines them and whose machine code equals
that of the original.  The search is heuristic; the proof rests on two premises:

1. *The rewritten text leaves ptxas no choice.*  Either each of its floating-point adds, subs and muls has a rounding
   modifier and it was assembled with `--fmad=false` (each is documented to prevent fusion, and was observed to prevent
   scaled products and fused divisions as well), or the analysis finds no candidate pair in it.
2. *Equal machine code computes equal results.*  Code, constant banks, initialised memory, shared sizes and relocations
   are compared byte for byte.  If no text gives the same bytes, a text is accepted whose code has the same instructions
   in the same order and differs only in the names of predicate registers; `machine_code` proves that they hold the same
   values.

Such a text may replace an approximate instruction by the steps into which ptxas expands it.  If none of these steps is
fused, the returned module has the instruction itself; otherwise it has the steps with all range checks.  That the
checks which ptxas removed are never true is ptxas's own deduction.

A module without candidate pairs needs no assembler, nor does one assembled with `--fmad=false` (fp fusion off).  The
audit assumes that ptxas compiles correctly a text that leaves it no choice, and that it is the ptxas, with the options,
that built the kernel.  The kernel's own object file (`cubin`) replaces the latter assumption, and saves one run.
"""

from __future__ import annotations

import contextvars
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from bitwise_core.assembly.module import Module
from bitwise_core.execution.architecture import ContractionAudit, OpcodeTable
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.time_limit import Interrupted, check_time
from bitwise_nvidia_ptx.assembler import (
    NO_FUSION,
    AssemblyFailed,
    AssemblyInterrupted,
    Ptxas,
    PtxasNotFound,
    code_digest,
)
from bitwise_nvidia_ptx.contraction.candidates import Pair, candidate_pairs
from bitwise_nvidia_ptx.contraction.fusion_guesses import Fusion, fusion_guesses
from bitwise_nvidia_ptx.contraction.program import Program
from bitwise_nvidia_ptx.contraction.rewrite import Division, Rewriting, expandable, has_reserved_names, rewrite


class Method(StrEnum):
    """How the audit determined which products are fused."""

    NO_CANDIDATES = "no candidates"
    EQUAL = "machine code equal, none contracted"
    EQUAL_FUSED = "machine code equal, pairs contracted"
    SAME = "machine code with the same dataflow, none contracted"
    SAME_FUSED = "machine code with the same dataflow, pairs contracted"
    UNRESOLVED = "unresolved"


_DIVISIONS = (
    Division(),
    Division(tiny_first=True),
    Division(tiny=False, absolute=False),
    Division(tiny=False),
    Division(large=False, tiny=False),
    Division(large=False),
)
"""Expansions of an approximate division to try, in this order."""
_MAX_ASSEMBLIES = 14
_CONCURRENT = 2


@dataclass(frozen=True)
class Audit:
    """The result of the audit of one module.

    `rewriting` states every rounding (it has no edits if the audit is unresolved).  `pairs` are the lines (product,
    sum) that ptxas fused.  `reason` is a sentence: why the result holds, or why there is none.  `seconds` is wall time.
    `runs` counts the requested assemblies, including cached ones.  `ptxas_version` is "" if no assembler was needed.
    `interrupted`: an assembly did not finish or was killed, so that another audit may find more.
    """

    rewriting: Rewriting
    method: Method
    pairs: tuple[tuple[int, int], ...]
    reason: str
    seconds: float
    runs: int
    ptxas_version: str
    options: tuple[str, ...]
    interrupted: bool = False

    @property
    def resolved(self) -> bool:
        """Return whether `rewriting` states the roundings of the machine code."""
        return self.method is not Method.UNRESOLVED


@dataclass(frozen=True)
class Attempt:
    """A rewriting to assemble, the rewriting to return if its machine code matches, and the fusions of both.

    `fuse=False` assembles with `--fmad=false`.
    """

    assembled: Rewriting
    fuse: bool
    returned: Rewriting
    fusions: tuple[Fusion, ...] = ()


@dataclass(frozen=True)
class _Outcome:
    """The result of the search for a matching program; `count` is the number of requested assemblies.

    `interrupted`: one of them did not finish.
    """

    method: Method
    returned: Rewriting
    fusions: tuple[Fusion, ...]
    reason: str
    count: int
    interrupted: bool = False


def audit_contraction(opcodes: OpcodeTable, module: Module, text: str, entry: str | None) -> ContractionAudit:
    """Audit all functions of a module together; see `Arch.audit_contraction`.  Raises Unsupported."""
    try:
        found = audit(module, text, opcodes, arch=module.target)
    except PtxasNotFound as error:
        raise Interrupted(
            f"products may be fused into sums, and no assembler is found to audit that: {error}"
        ) from None
    except AssemblyInterrupted as error:
        raise Interrupted(f"products may be fused into sums, and the audit of that stopped: {error}") from None
    except AssemblyFailed as error:
        raise Unsupported(f"the text does not assemble: {error}") from None
    if not found.resolved:
        raise Interrupted(found.reason) if found.interrupted else Unsupported(found.reason)
    if found.method is Method.NO_CANDIDATES:
        return ContractionAudit(found.rewriting.module, "no product can be fused into a sum")
    return ContractionAudit(found.rewriting.module, f"{found.method} ({found.ptxas_version})")


def candidates(module: Module, opcodes: OpcodeTable) -> tuple[tuple[int, int], ...]:
    """Return the lines (product, consumer) of every pair that ptxas may fuse, as far as the analysis can tell."""
    program = Program(module, opcodes)
    return tuple(_lines(program, pair) for pair in candidate_pairs(program))


def audit(
    module: Module,
    text: str,
    opcodes: OpcodeTable,
    *,
    arch: str | None = None,
    ptxas: Ptxas | None = None,
    cubin: bytes | None = None,
    runs: int = _MAX_ASSEMBLIES,
) -> Audit:
    """Return the program that states the roundings of a module's machine code, or the reason why there is none.

    `module` was parsed from `text`; `opcodes` is the table of its architecture.  `ptxas` is located for `arch` if it is
    not given and needed.  `cubin` is the kernel's own object file, if available.  `runs` bounds the number of
    assemblies.  Raises PtxasNotFound if there are candidates and no assembler, and ValueError if there are candidates
    and neither `arch` nor `ptxas` is given, or if `text` is not that of the module.
    """
    begin = time.perf_counter()
    program = Program(module, opcodes)
    stated = rewrite(program, text)
    found = candidate_pairs(program)
    if not found:
        reason = "no product can reach an instruction that could be fused with it"
        return Audit(stated, Method.NO_CANDIDATES, (), reason, time.perf_counter() - begin, 0, "", ())
    if ptxas is not None and NO_FUSION in ptxas.options:
        reason = "fp fusion is off: ptxas runs with --fmad=false"
        return Audit(stated, Method.NO_CANDIDATES, (), reason, time.perf_counter() - begin, 0, "", ptxas.options)
    if ptxas is None:
        if arch is None:
            raise ValueError("the text has pairs that ptxas may fuse; give the architecture or a Ptxas")
        ptxas = Ptxas.locate(arch)
    outcome = _search(stated, found, ptxas, cubin, runs)
    lines = tuple((program.line(each.product), program.line(each.consumer)) for each in outcome.fusions)
    options = (*ptxas.options, ptxas.gpu)
    seconds = time.perf_counter() - begin
    return Audit(
        outcome.returned,
        outcome.method,
        lines,
        outcome.reason,
        seconds,
        outcome.count,
        ptxas.version,
        options,
        outcome.interrupted,
    )


def _search(stated: Rewriting, open_pairs: tuple[Pair, ...], ptxas: Ptxas, cubin: bytes | None, runs: int) -> _Outcome:
    program, text = stated.program, stated.original
    unchanged = Rewriting(program, text, {})
    product, consumer = _lines(program, open_pairs[0])
    count, interrupted = 0, False
    tried: list[Attempt] = []
    with ThreadPoolExecutor(_CONCURRENT) as pool:
        try:
            original = _submit(pool, partial(code_digest, cubin) if cubin is not None else partial(ptxas.digest, text))
            count += cubin is None
            pending = iter(_without_duplicates(attempts(stated, open_pairs)))
            while count < runs and (
                batch := list(itertools.islice(pending, min(_CONCURRENT - (count == 1), runs - count)))
            ):
                found = [_submit(pool, partial(ptxas.digest, each.assembled.text, fuse=each.fuse)) for each in batch]
                expected = original.result()
                check_time()
                count += len(batch)
                for attempt, future in zip(batch, found, strict=True):
                    try:
                        equal = future.result() == expected
                    except AssemblyFailed as error:
                        interrupted |= isinstance(error, AssemblyInterrupted)
                        continue
                    tried.append(attempt)
                    if equal and attempt.fusions:
                        reason = f"explicit fusion of {len(attempt.fusions)} products gives the same machine code"
                        return _Outcome(Method.EQUAL_FUSED, attempt.returned, attempt.fusions, reason, count)
                    if equal:
                        reason = "the text with every rounding stated gives the same machine code"
                        return _Outcome(Method.EQUAL, attempt.returned, (), reason, count)
        except AssemblyFailed as error:
            interrupted = isinstance(error, AssemblyInterrupted)
            return _Outcome(Method.UNRESOLVED, unchanged, (), str(error), count, interrupted)
    original_code = text if cubin is None else cubin
    proved = None
    try:
        pairs = [(attempt.assembled.text, attempt.fuse) for attempt in tried]
        alike = ptxas.equal_dataflow(original_code, pairs)
        proved = next((attempt for attempt, equal in zip(tried, alike, strict=True) if equal), None)
    except AssemblyFailed as error:
        interrupted |= isinstance(error, AssemblyInterrupted)
    if proved is not None and proved.fusions:
        reason = f"the machine code computes what explicit fusion of {len(proved.fusions)} products computes"
        return _Outcome(Method.SAME_FUSED, proved.returned, proved.fusions, reason, count)
    if proved is not None:
        reason = "the machine code computes what the text with every rounding stated computes"
        return _Outcome(Method.SAME, proved.returned, (), reason, count)
    reason = (
        f"ptxas may fuse the product of line {product} into line {consumer}, and none of {count} assemblies shows what "
        f"it did with this and {len(open_pairs) - 1} other pairs; compile with fp fusion off to be certain"
    )
    return _Outcome(Method.UNRESOLVED, unchanged, (), reason, count, interrupted)


def _submit(pool: ThreadPoolExecutor, call: Callable[[], str]) -> Future[str]:
    """Run a call in the pool, with the time limit of this context."""
    return pool.submit(contextvars.copy_context().run, call)


def attempts(stated: Rewriting, open_pairs: tuple[Pair, ...]) -> Iterator[Attempt]:
    """Yield rewritings that leave ptxas no choice, the most likely to match first."""
    yield Attempt(stated, False, stated)
    program, text = stated.program, stated.original
    if has_reserved_names(program):
        return
    guesses: list[tuple[Fusion, ...]] = [*fusion_guesses(program, text), ()]
    for division in _DIVISIONS:
        for guess in guesses:
            returned = rewrite(program, text, guess)
            if guess:
                yield Attempt(rewrite(program, text, guess, division=division), False, returned, guess)
            for products in (True, False):
                if (assembled := _sparse_rewriting(stated, open_pairs, guess, division, products)) is not None:
                    yield Attempt(assembled, True, returned, guess)


def _sparse_rewriting(
    stated: Rewriting, open_pairs: tuple[Pair, ...], fusions: tuple[Fusion, ...], division: Division, products: bool
) -> Rewriting | None:
    """Return a rewriting with `.rn` only on the products, or only on the sums, of open pairs.

    None if that leaves a pair open.

    ptxas derives value ranges from a plain add but not from one with `.rn`, and removes checks of a division that are
    never true by these ranges.  So fewer `.rn` can be necessary for equal machine code.
    """
    program, statements = stated.program, stated.program.statements
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
    assembled = rewrite(
        program,
        stated.original,
        fusions,
        round_only=frozenset(marked),
        expand=frozenset(expand),
        division=division,
    )
    return None if candidate_pairs(Program(assembled.module, program.opcodes)) else assembled


def _without_duplicates(tried: Iterable[Attempt]) -> Iterator[Attempt]:
    seen: set[tuple[str, bool]] = set()
    for attempt in tried:
        if (key := (attempt.assembled.text, attempt.fuse)) not in seen:
            seen.add(key)
            yield attempt


def _lines(program: Program, pair: Pair) -> tuple[int, int]:
    return program.line(pair.product), program.line(pair.consumer)
