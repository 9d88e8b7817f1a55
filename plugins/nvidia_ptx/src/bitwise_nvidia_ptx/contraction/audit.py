"""The contraction audit: find the module that states every rounding, and prove it by equality of machine code.

ptxas may fuse an `add`, `sub` or `mul` without `.rn` with others (`candidates` says which), so the text alone does not
determine the bits.  `audit` searches for a rewritten program whose text determines them and whose machine code equals
that of the original.  The search is heuristic; the proof rests on two premises:

1. *The rewritten text leaves ptxas no choice.*  Either each of its floating-point adds, subs and muls has a rounding
   modifier and it was assembled with `--fmad=false` (each is documented to prevent fusion, and was observed to prevent
   scaled products and fused divisions as well), or the analysis finds no candidate pair in it, except for products
   which the machine code is proved to round: those inside of `ex2.approx`
   (`machine_code.dataflow.rounds_exponentials`).
2. *Equal machine code computes equal results.*  Code, constant banks, initialised memory, shared sizes and relocations
   are compared byte for byte.  If no text gives the same bytes, a text is accepted whose code is proved to compute the
   same with other registers, in another order, and with constants and signs in other operands
   (`machine_code.dataflow`).

Such a text may replace an approximate instruction by the steps into which ptxas expands it.  If none of these steps is
fused, the returned module has the instruction itself; otherwise it has the steps with all range checks.  That the
checks which ptxas removed are never true is ptxas's own deduction.

A module without candidate pairs needs no assembler, nor does one assembled with `--fmad=false` (fp fusion off).  The
audit assumes that ptxas compiles correctly a text that leaves it no choice, and that it is the ptxas, with the options,
that built the kernel.  The kernel's own object file (`cubin`) replaces the latter assumption, and saves one run.
"""

from __future__ import annotations

import contextvars
import hashlib
import itertools
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TypeAlias

from bitwise_core.assembly.module import Module
from bitwise_core.execution.architecture import ContractionAudit, OpcodeTable
from bitwise_core.execution.domains.domain import Interrupted, Unsupported
from bitwise_core.execution.time_limit import TimeLimitExceeded, check_time
from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound
from bitwise_nvidia_ptx.assembler.ptxas import NO_FUSION, AssemblyFailed, AssemblyInterrupted, Ptxas, code_digest
from bitwise_nvidia_ptx.assembler_choices.open_sums import with_open_sums
from bitwise_nvidia_ptx.contraction import candidates as candidates_module
from bitwise_nvidia_ptx.contraction import divisor_bounds, fusion_guesses
from bitwise_nvidia_ptx.contraction import program as program_module
from bitwise_nvidia_ptx.contraction import rewrite as rewrite_module
from bitwise_nvidia_ptx.contraction.candidates import Facts, Pair, candidate_pairs, leaves_choice
from bitwise_nvidia_ptx.contraction.divisor_bounds import likely_divisions
from bitwise_nvidia_ptx.contraction.fusion_guesses import Fusion, fusions_of_machine_code, likely_fusions
from bitwise_nvidia_ptx.contraction.program import Program, has_products
from bitwise_nvidia_ptx.contraction.rewrite import Division, Rewriting, expandable, has_reserved_names, rewrite
from bitwise_nvidia_ptx.contraction.saturations import stated_saturations


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


class _Rewritings:
    """The rewritings of one program, each made once: many guesses and divisions lead to one text."""

    def __init__(self, stated: Rewriting) -> None:
        self.stated = stated
        self._made: dict[Hashable, Rewriting] = {}
        self._steps: dict[int, Hashable] = {}
        self._facts: dict[Hashable, Facts] = {}
        self._determined: dict[tuple[str, frozenset[str]], bool] = {}

    def of(
        self,
        fusions: tuple[Fusion, ...],
        division: Division | Mapping[int, Division] | None = None,
        round_only: frozenset[int] | None = None,
        expand: frozenset[int] = frozenset(),
    ) -> Rewriting:
        """Return what `rewrite` does."""
        statements = self.stated.program.statements
        how: Hashable = tuple(sorted(division.items())) if isinstance(division, Mapping) else division
        if not isinstance(division, Mapping):
            expanded = {*expand, *(each.product for each in fusions)}
            if not any(statements[each].base == "div" for each in expanded):
                how = None  # no division is expanded
        key = (fusions, how, round_only, expand)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = rewrite(
                self.stated.program,
                self.stated.original,
                fusions,
                round_only=round_only,
                expand=expand,
                division=division,
            )
            self._steps[id(found)] = (fusions, how, expand)
        return found

    def leaves_choice(self, rewriting: Rewriting, rounded: frozenset[str]) -> bool:
        """Return whether ptxas has a choice in a text that `of` returned, but for the products of `rounded`."""
        key = (rewriting.text, rounded)
        found = self._determined.get(key)
        if found is None:
            program = self.stated.program
            changed = Program(rewriting.module, program.opcodes, program)
            # Texts with the same steps differ in rounding modifiers only.
            facts = self._facts.setdefault(self._steps[id(rewriting)], Facts(changed))
            found = self._determined[key] = leaves_choice(changed, rounded, facts)
        return found


_EXPONENTIAL = frozenset({"ex2"})
_NOTHING = "nothing"
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
        self.rewritings = _Rewritings(stated)
        self.compared: set[tuple[str, bool]] = set()

    def outcome(self, open_pairs: tuple[Pair, ...]) -> _Outcome:
        """Return what was found.  `interrupted` counts only if nothing was.

        A search that found a text before is not made again: its text is proved again.  Raises TimeLimitExceeded with
        the line of the first product, if it was raised without one.
        """
        try:
            return self._kept_outcome(open_pairs) or self._searched_outcome(open_pairs)
        except TimeLimitExceeded as error:
            product = self.stated.program.line(open_pairs[0].product)
            raise (TimeLimitExceeded(error.seconds, product) if error.line is None else error) from None

    def _searched_outcome(self, open_pairs: tuple[Pair, ...]) -> _Outcome:
        exponentials = self._exponentials(open_pairs)
        try:
            for divisions in self._expansions():
                found = self._equal_code(open_pairs, divisions, frozenset())
                if found is None and exponentials and self.ptxas.rounds_exponentials(self.original):
                    if len(exponentials) == len(open_pairs):
                        reason = "the machine code fuses no square of an exponential"
                        return _Outcome(Method.SAME, self.stated, (), reason, self.count)
                    found = self._equal_code(open_pairs, divisions, _EXPONENTIAL)
                if found is not None:
                    self._keep(found, "bytes")
                    return _found(found, "bytes", self.count)
                found = self._equal_dataflow(open_pairs, divisions)
                if found is not None:
                    self._keep(found, "dataflow")
                    return _found(found, "dataflow", self.count)
            if not self.interrupted:
                self._keep(None, "")
            return self._unresolved(open_pairs, self.count)
        except AssemblyFailed as error:
            self.interrupted = isinstance(error, AssemblyInterrupted)
            return self._without_result(str(error), self.count, assembles=False)

    def _unresolved(self, open_pairs: tuple[Pair, ...], count: int) -> _Outcome:
        product, consumer = _lines(self.stated.program, open_pairs[0])
        reason = (
            f"ptxas may fuse the product of line {product} into line {consumer}, and none of {count} assemblies shows "
            f"what it did with this and {len(open_pairs) - 1} other pairs; compile with fp fusion off to be certain"
        )
        return self._without_result(reason, count, assembles=True)

    def _without_result(self, reason: str, count: int, assembles: bool) -> _Outcome:
        unchanged = Rewriting(self.stated.program, self.stated.original, {})
        return _Outcome(Method.UNRESOLVED, unchanged, (), reason, count, self.interrupted, assembles)

    def _exponentials(self, open_pairs: tuple[Pair, ...]) -> set[Pair]:
        """The pairs whose product is inside of an approximate exponential."""
        return {pair for pair in open_pairs if self.stated.program.statements[pair.product].base == "ex2"}

    def _keep(self, found: Attempt | None, proof: str) -> None:
        """Keep what a whole search found, None for nothing."""
        name, fuse = (_NOTHING, "") if found is None else (_text_digest(found), str(found.fuse))
        answer = (name, fuse, proof, str(self.count))
        self.ptxas.keep_match(self.original, self._name, " ".join(answer))

    @property
    def _name(self) -> str:
        """What decides what a search finds, besides the assembler and the original."""
        return f"{_search_source()} {self.runs} {hashlib.sha256(self.stated.original.encode()).hexdigest()}"

    def _kept_outcome(self, open_pairs: tuple[Pair, ...]) -> _Outcome | None:
        """Return the outcome of an earlier search for the same text, if its attempt is proved again, else None.

        That nothing was found needs no proof: the audit is unresolved.
        """
        kept = (self.ptxas.kept_match(self.original, self._name) or "").split(" ")
        if len(kept) != 4 or not kept[3].isdecimal():
            return None
        name, fuse, proof, count = kept
        if name == _NOTHING:
            return self._unresolved(open_pairs, int(count))
        try:
            for attempt, rounded in self._unproved_attempts(open_pairs):
                same = (_text_digest(attempt), str(attempt.fuse)) == (name, fuse)
                if same and self._is_proved(attempt, rounded, proof):
                    return _found(attempt, proof, int(count))
        except AssemblyFailed:
            return None
        return None

    def _unproved_attempts(self, open_pairs: tuple[Pair, ...]) -> Iterator[tuple[Attempt, frozenset[str]]]:
        """Yield all attempts in the order of the search, also those that leave ptxas a choice, and what they require.

        That is, the instructions whose products the machine code must be known to round.
        """
        required = [frozenset[str](), *([_EXPONENTIAL] if self._exponentials(open_pairs) else [])]
        for divisions in self._expansions():
            for rounded in required:
                for attempt in self._attempts(open_pairs, divisions, rounded, proved=False):
                    yield attempt, rounded

    def _is_proved(self, attempt: Attempt, rounded: frozenset[str], proof: str) -> bool:
        """Return whether a text leaves ptxas no choice, and its machine code computes what that of the original does.

        Raises AssemblyFailed.
        """
        if attempt.fuse and self.rewritings.leaves_choice(attempt.assembled, rounded):
            return False
        if rounded and not self.ptxas.rounds_exponentials(self.original):
            return False
        text = attempt.assembled.text
        if proof == "dataflow":
            return next(self.ptxas.equal_dataflow(self.original, [(text, attempt.fuse)]))
        original = self.ptxas.digest(self.original) if isinstance(self.original, str) else code_digest(self.original)
        return self.ptxas.digest(text, fuse=attempt.fuse) == original

    def _expansions(self) -> Iterator[_Divisions]:
        """Yield the expansions of divisions to try, one after another."""
        yield _DIVISIONS[:1]
        yield (likely_divisions(self.stated.program), *_DIVISIONS)

    def _attempts(
        self, open_pairs: tuple[Pair, ...], divisions: _Divisions, rounded: frozenset[str], *, proved: bool
    ) -> Iterator[Attempt]:
        return attempts(
            self.stated,
            open_pairs,
            lambda: self.fusions_of_machine_code,
            divisions,
            rounded,
            self.rewritings,
            proved=proved,
        )

    def _new_attempts(
        self, open_pairs: tuple[Pair, ...], divisions: _Divisions, rounded: frozenset[str] = frozenset()
    ) -> Iterator[Attempt]:
        """Yield the attempts that were not yet made."""
        for attempt in self._attempts(open_pairs, divisions, rounded, proved=True):
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


def _found(attempt: Attempt, proof: str, count: int) -> _Outcome:
    """Return the outcome of a search that found an attempt: machine code with equal `bytes`, or an equal `dataflow`."""
    stated = _stated_fusions(attempt)
    if proof == "bytes":
        reason = f"{stated} gives the same machine code"
        method = Method.EQUAL_FUSED if attempt.fusions else Method.EQUAL
    else:
        reason = f"the machine code computes what {stated} computes"
        method = Method.SAME_FUSED if attempt.fusions else Method.SAME
    return _Outcome(method, attempt.returned, attempt.fusions, reason, count)


def _text_digest(attempt: Attempt) -> str:
    return hashlib.sha256(attempt.assembled.text.encode()).hexdigest()


@cache
def _search_source() -> str:
    """Return a digest of the modules that decide which text a search finds."""
    modules = (candidates_module, divisor_bounds, fusion_guesses, program_module, rewrite_module)
    paths = (Path(__file__), *(Path(str(each.__file__)) for each in modules))
    return hashlib.sha256(b"\0".join(each.read_bytes() for each in paths)).hexdigest()


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
    rewritings: _Rewritings | None = None,
    *,
    proved: bool = True,
) -> Iterator[Attempt]:
    """Yield rewritings that leave ptxas no choice, the most likely to match first.

    `seen` returns guesses of the fusions that the machine code shows, and is called if the likely ones do not match.
    `divisions` are the expansions of a division to try, in this order, or of each division by its index.  The machine
    code is known to round the products of instructions in `rounded`, so that those may be left open.  `rewritings` is
    kept between calls for one program.  Without `proved`, rewritings that leave ptxas a choice are among them.
    """
    rewritings = _Rewritings(stated) if rewritings is None else rewritings
    yield Attempt(stated, False, stated)
    if has_reserved_names(stated.program):
        return
    likely = likely_fusions(stated.program, stated.original)
    yield from _forms(rewritings, open_pairs, likely, divisions[0], rounded, proved)
    first, others = seen()[:1], seen()[1:]
    for division, guess in itertools.product(divisions, dict.fromkeys((*first, likely, (), *others))):
        yield from _forms(rewritings, open_pairs, guess, division, rounded, proved)


def _forms(
    rewritings: _Rewritings,
    open_pairs: tuple[Pair, ...],
    guess: tuple[Fusion, ...],
    division: Division | Mapping[int, Division],
    rounded: frozenset[str],
    proved: bool,
) -> Iterator[Attempt]:
    """Yield the rewritings with these fusions that leave ptxas no choice; without `proved`, also the others."""
    returned = rewritings.of(guess)
    if guess:
        yield Attempt(rewritings.of(guess, division), False, returned, guess)
    for products in (True, False):
        assembled = _sparse_rewriting(rewritings, open_pairs, guess, division, products, rounded)
        if not proved or not rewritings.leaves_choice(assembled, rounded):
            yield Attempt(assembled, True, returned, guess)


def _sparse_rewriting(
    rewritings: _Rewritings,
    open_pairs: tuple[Pair, ...],
    fusions: tuple[Fusion, ...],
    division: Division | Mapping[int, Division],
    products: bool,
    rounded: frozenset[str],
) -> Rewriting:
    """Return a rewriting with `.rn` only on the products, or only on the sums, of open pairs.

    ptxas derives value ranges from a plain add but not from one with `.rn`, and removes checks of a division that are
    never true by these ranges.  So fewer `.rn` can be necessary for equal machine code.
    """
    statements = rewritings.stated.program.statements
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
    return rewritings.of(fusions, division, frozenset(marked), frozenset(expand))


def _lines(program: Program, pair: Pair) -> tuple[int, int]:
    return program.line(pair.product), program.line(pair.consumer)
