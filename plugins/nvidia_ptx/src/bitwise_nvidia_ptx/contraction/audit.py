"""The contraction audit: find the module that states every rounding, and prove it by equality of machine code.

ptxas may fuse an `add`, `sub` or `mul` without `.rn` with others (`candidates` says which), so the text alone does not
determine the bits.  `audit` searches for a rewritten program whose text determines them and whose machine code equals
that of the original.  The search is heuristic; the proof rests on two premises:

1. *The rewritten text leaves ptxas no choice.*  Either each of its floating-point adds, subs and muls has a rounding
   modifier and it was assembled with `--fmad=false` (each is documented to prevent fusion, and was observed to prevent
   scaled products and fused divisions as well), or the analysis finds no candidate pair in it, except for products
   which the machine code is proved to round: those inside of `ex2.approx` (`machine_dataflow.rounds_exponentials`).
2. *Equal machine code computes equal results.*  Code, constant banks, initialised memory, shared sizes and relocations
   are compared byte for byte.  If no text gives the same bytes, a text is accepted whose code is proved to compute the
   same with other registers, in another order, and with constants and signs in other operands (`machine_dataflow`).

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
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from typing import TypeAlias

from bitwise_core.assembly.module import Module
from bitwise_core.execution.architecture import ContractionAudit, OpcodeTable
from bitwise_core.execution.domains.domain import Interrupted, Unsupported
from bitwise_core.execution.time_limit import TimeLimitExceeded, check_time
from bitwise_nvidia_ptx.assembler import NO_FUSION, AssemblyFailed, AssemblyInterrupted, Ptxas, code_digest
from bitwise_nvidia_ptx.contraction.candidates import Pair, candidate_pairs, leaves_choice
from bitwise_nvidia_ptx.contraction.divisor_bounds import likely_divisions
from bitwise_nvidia_ptx.contraction.fusion_guesses import Fusion, fusions_of_machine_code, likely_fusions
from bitwise_nvidia_ptx.contraction.program import Program, has_products
from bitwise_nvidia_ptx.contraction.rewrite import Division, Rewriting, expandable, has_reserved_names, rewrite
from bitwise_nvidia_ptx.contraction.saturations import stated_saturations
from bitwise_nvidia_ptx.installed_assemblers import PtxasNotFound
from bitwise_nvidia_ptx.open_sums import with_open_sums


class Method(StrEnum):
    """How the audit determined which products are fused."""

    NO_CANDIDATES = "no candidates"
    EQUAL = "machine code equal, none contracted"
    EQUAL_FUSED = "machine code equal, pairs contracted"
    SAME = "machine code with the same dataflow, none contracted"
    SAME_FUSED = "machine code with the same dataflow, pairs contracted"
    UNRESOLVED = "unresolved"


_Divisions: TypeAlias = tuple[Division | Mapping[int, Division], ...]

_DIVISIONS: _Divisions = (
    Division(),
    Division(tiny_first=True),
    Division(tiny=False, absolute=False),
    Division(tiny=False),
    Division(large=False, tiny=False),
    Division(large=False),
)
"""Expansions of an approximate division to try, in this order."""
_Settled: TypeAlias = dict[tuple[str, frozenset[str]], bool]
"""Whether ptxas has no choice in a text, but for the products of some instructions."""

_MAX_ASSEMBLIES = 14
_CONCURRENT = 2


@dataclass(frozen=True)
class Audit:
    """The result of the audit of one module.

    `rewriting` states every rounding (it has no edits if the audit is unresolved).  `pairs` are the lines (product,
    sum) that ptxas fused.  `reason` is a sentence: why the result holds, or why there is none.  `seconds` is wall time.
    `runs` counts the requested assemblies, including cached ones.  `assembler` describes the assembler, "" if none was
    needed.
    `interrupted`: an assembly did not finish or was killed, so that another audit may find more.  `assembles`: the
    assembler accepts the text.
    """

    rewriting: Rewriting
    method: Method
    pairs: tuple[tuple[int, int], ...]
    reason: str
    seconds: float
    runs: int
    assembler: str
    options: tuple[str, ...]
    interrupted: bool = False
    assembles: bool = True

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

    `interrupted`: one of them did not finish.  `assembles`: the assembler accepts the text.
    """

    method: Method
    returned: Rewriting
    fusions: tuple[Fusion, ...]
    reason: str
    count: int
    interrupted: bool = False
    assembles: bool = True


_NO_PRODUCT = "the assembler has no product to fuse into a sum"


def audit_contraction(opcodes: OpcodeTable, module: Module, text: str, entry: str | None) -> ContractionAudit:
    """Audit all functions of a module together; see `Arch.audit_contraction`.  Raises Unsupported.

    Where the audit is unresolved, the instructions into which ptxas may fuse products are marked (`open_sums`).  Clamps
    that are saturations in the machine code are stated first (`saturations`).
    """
    stated = stated_saturations(opcodes, module, text)
    if stated is not None:
        found = _audit_of_fusions(opcodes, stated.module, stated.text)
        return ContractionAudit(found.module, f"{found.method}; {stated.note}")
    return _audit_of_fusions(opcodes, module, text)


def _audit_of_fusions(opcodes: OpcodeTable, module: Module, text: str) -> ContractionAudit:
    """Audit the products of all functions of a module.  Raises Unsupported."""
    if not has_products(module):
        return ContractionAudit(module, _NO_PRODUCT)
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
    if not found.resolved and found.interrupted:
        raise Interrupted(found.reason)
    if not found.resolved and not found.assembles:
        raise Unsupported(found.reason)
    if not found.resolved:
        program = Program(module, opcodes)
        sums = {id(program.statements[pair.consumer].instruction) for pair in candidate_pairs(program)}
        method = f"{found.reason}; the results of {len(sums)} instructions are equal only to those of this text"
        return ContractionAudit(with_open_sums(module, sums), method)
    if found.method is Method.NO_CANDIDATES:
        return ContractionAudit(module, _NO_PRODUCT)
    return ContractionAudit(found.rewriting.only_fusions.module, f"{found.method} ({found.assembler})")


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
    assemblies in the search for equal bytes.  Raises PtxasNotFound if there are candidates and no assembler, and
    ValueError if there are candidates and neither `arch` nor `ptxas` is given, or if `text` is not that of the module.
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
        ptxas = Ptxas.locate(arch, text=text)
    outcome = _Search(stated, ptxas, cubin, runs).outcome(found)
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
        ptxas.description,
        options,
        outcome.interrupted,
        outcome.assembles,
    )


class _Search:
    """The search for a text that states every rounding and has the machine code of the original."""

    def __init__(self, stated: Rewriting, ptxas: Ptxas, cubin: bytes | None, runs: int) -> None:
        self.stated, self.ptxas, self.cubin, self.runs = stated, ptxas, cubin, runs
        self.original = stated.original if cubin is None else cubin
        self.count = 0
        self.interrupted = False
        self.tried: dict[tuple[str, bool], Attempt] = {}
        self.settled: _Settled = {}
        self.compared: set[tuple[str, bool]] = set()

    def outcome(self, open_pairs: tuple[Pair, ...]) -> _Outcome:
        """Return what was found.  `interrupted` counts only if nothing was.

        Raises TimeLimitExceeded with the line of the first product, if it was raised without one.
        """
        program = self.stated.program
        product, consumer = _lines(program, open_pairs[0])
        assembles = True
        exponentials = {pair for pair in open_pairs if program.statements[pair.product].base == "ex2"}
        try:
            for divisions in self._expansions():
                found = self._equal_code(open_pairs, divisions, frozenset())
                if found is None and exponentials and self.ptxas.rounds_exponentials(self.original):
                    if len(exponentials) == len(open_pairs):
                        reason = "the machine code fuses no square of an exponential"
                        return _Outcome(Method.SAME, self.stated, (), reason, self.count)
                    found = self._equal_code(open_pairs, divisions, frozenset({"ex2"}))
                if found is not None:
                    reason = f"{_stated_fusions(found)} gives the same machine code"
                    method = Method.EQUAL_FUSED if found.fusions else Method.EQUAL
                    return _Outcome(method, found.returned, found.fusions, reason, self.count)
                found = self._equal_dataflow(open_pairs, divisions)
                if found is not None:
                    reason = f"the machine code computes what {_stated_fusions(found)} computes"
                    method = Method.SAME_FUSED if found.fusions else Method.SAME
                    return _Outcome(method, found.returned, found.fusions, reason, self.count)
            reason = (
                f"ptxas may fuse the product of line {product} into line {consumer}, and none of {self.count} "
                f"assemblies shows what it did with this and {len(open_pairs) - 1} other pairs; compile with fp fusion "
                "off to be certain"
            )
        except AssemblyFailed as error:
            self.interrupted, reason, assembles = isinstance(error, AssemblyInterrupted), str(error), False
        except TimeLimitExceeded as error:
            raise (TimeLimitExceeded(error.seconds, product) if error.line is None else error) from None
        unchanged = Rewriting(program, self.stated.original, {})
        return _Outcome(Method.UNRESOLVED, unchanged, (), reason, self.count, self.interrupted, assembles)

    def _expansions(self) -> Iterator[_Divisions]:
        """Yield the expansions of divisions to try, one after another."""
        yield _DIVISIONS[:1]
        yield (likely_divisions(self.stated.program), *_DIVISIONS)

    def _new_attempts(
        self, open_pairs: tuple[Pair, ...], divisions: _Divisions, rounded: frozenset[str] = frozenset()
    ) -> Iterator[Attempt]:
        """Yield the attempts that were not yet made."""
        forms = attempts(
            self.stated, open_pairs, lambda: self.fusions_of_machine_code, divisions, rounded, self.settled
        )
        for attempt in forms:
            key = (attempt.assembled.text, attempt.fuse)
            if self.tried.setdefault(key, attempt) is attempt:
                yield attempt

    def _equal_code(
        self, open_pairs: tuple[Pair, ...], divisions: _Divisions, rounded: frozenset[str]
    ) -> Attempt | None:
        """Return an attempt whose machine code is equal.  Raises AssemblyFailed for the original."""
        pending = self._new_attempts(open_pairs, divisions, rounded)
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            if self.cubin is not None:
                original = _submit(pool, partial(code_digest, self.cubin))
            else:
                original = _submit(pool, partial(self.ptxas.digest, self.stated.original))
                self.count += not self.count
            while self.count < self.runs and (
                batch := list(itertools.islice(pending, min(_CONCURRENT - (self.count == 1), self.runs - self.count)))
            ):
                found = [
                    _submit(pool, partial(self.ptxas.digest, each.assembled.text, fuse=each.fuse)) for each in batch
                ]
                expected = original.result()
                check_time()
                self.count += len(batch)
                for attempt, future in zip(batch, found, strict=True):
                    try:
                        equal = future.result() == expected
                    except AssemblyFailed as error:
                        self.interrupted |= isinstance(error, AssemblyInterrupted)
                        del self.tried[attempt.assembled.text, attempt.fuse]
                        continue
                    if equal:
                        return attempt
            original.result()
        return None

    def _equal_dataflow(self, open_pairs: tuple[Pair, ...], divisions: _Divisions) -> Attempt | None:
        """Return an attempt whose machine code is proved to compute the same.  Raises AssemblyFailed."""
        tried = [key for key in self.tried if key not in self.compared]
        self.compared.update(tried)
        for key, equal in zip(tried, self.ptxas.equal_dataflow(self.original, tried), strict=True):
            if equal:
                return self.tried[key]
        for attempt in self._new_attempts(open_pairs, divisions):
            self.count += 1
            key = (attempt.assembled.text, attempt.fuse)
            self.compared.add(key)
            try:
                if next(self.ptxas.equal_dataflow(self.original, [key])):
                    return attempt
            except AssemblyFailed as error:
                self.interrupted |= isinstance(error, AssemblyInterrupted)
        return None

    @cached_property
    def fusions_of_machine_code(self) -> tuple[tuple[Fusion, ...], ...]:
        """The fusions that the line information of the text's machine code shows; none if it cannot be read.

        The second guess has products that come later in the text, too.  Raises AssemblyFailed.
        """
        program, text = self.stated.program, self.stated.original
        self.count += 1
        seen = self.ptxas.arithmetic_lines(text)
        if seen is None:
            return ()
        return tuple(fusions_of_machine_code(program, text, seen, later=later) for later in (False, True))


def _stated_fusions(attempt: Attempt) -> str:
    fusions = len(attempt.fusions)
    return f"explicit fusion of {fusions} products" if fusions else "the text with every rounding stated"


def _submit(pool: ThreadPoolExecutor, call: Callable[[], str]) -> Future[str]:
    """Run a call in the pool, with the time limit of this context."""
    return pool.submit(contextvars.copy_context().run, call)


def attempts(
    stated: Rewriting,
    open_pairs: tuple[Pair, ...],
    seen: Callable[[], tuple[tuple[Fusion, ...], ...]],
    divisions: _Divisions = _DIVISIONS,
    rounded: frozenset[str] = frozenset(),
    settled: _Settled | None = None,
) -> Iterator[Attempt]:
    """Yield rewritings that leave ptxas no choice, the most likely to match first.

    `seen` returns guesses of the fusions that the machine code shows, and is called if the likely ones do not match.
    `divisions` are the expansions of a division to try, in this order, or of each division by its index.  The machine
    code is known to round the products of instructions in `rounded`, so that those may be left open.  `settled` is kept
    between calls for one program: many guesses lead to one text.
    """
    settled = {} if settled is None else settled
    yield Attempt(stated, False, stated)
    if has_reserved_names(stated.program):
        return
    likely = likely_fusions(stated.program, stated.original)
    yield from _forms(stated, open_pairs, likely, divisions[0], rounded, settled)
    first, others = seen()[:1], seen()[1:]
    for division, guess in itertools.product(divisions, dict.fromkeys((*first, likely, (), *others))):
        yield from _forms(stated, open_pairs, guess, division, rounded, settled)


def _forms(
    stated: Rewriting,
    open_pairs: tuple[Pair, ...],
    guess: tuple[Fusion, ...],
    division: Division | Mapping[int, Division],
    rounded: frozenset[str],
    settled: _Settled,
) -> Iterator[Attempt]:
    """Yield the rewritings with these fusions that leave ptxas no choice."""
    program, text = stated.program, stated.original
    returned = rewrite(program, text, guess)
    if guess:
        yield Attempt(rewrite(program, text, guess, division=division), False, returned, guess)
    for products in (True, False):
        if (
            assembled := _sparse_rewriting(stated, open_pairs, guess, division, products, rounded, settled)
        ) is not None:
            yield Attempt(assembled, True, returned, guess)


def _sparse_rewriting(
    stated: Rewriting,
    open_pairs: tuple[Pair, ...],
    fusions: tuple[Fusion, ...],
    division: Division | Mapping[int, Division],
    products: bool,
    rounded: frozenset[str],
    settled: _Settled,
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
    stated_divisions = division.keys() if isinstance(division, Mapping) else frozenset[int]()
    for pair in open_pairs:
        product = statements[pair.product]
        if pair.consumer in fused or product.base in rounded or pair.product in stated_divisions:
            continue
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
    key = (assembled.text, rounded)
    if key not in settled:
        settled[key] = not leaves_choice(Program(assembled.module, program.opcodes, program), rounded)
    return assembled if settled[key] else None


def _lines(program: Program, pair: Pair) -> tuple[int, int]:
    return program.line(pair.product), program.line(pair.consumer)
