"""The analysis of one kernel."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import blake2b
from math import gcd

import numpy as np

from bitwise_core.assembly.module import AssemblyError, Module
from bitwise_core.checker.block_symmetry.grid import NotSymmetric
from bitwise_core.checker.block_symmetry.symmetry import GridSummary, check_representatives, summarise
from bitwise_core.checker.missing_tensors import missing_tensors
from bitwise_core.checker.parametric.given_launch import (
    may_wrap,
    shared_buffers,
    stores_distinct_elements,
    writes_shared_buffer,
)
from bitwise_core.checker.parametric.memory import UNSPECIFIED_NAN_STORED
from bitwise_core.checker.parametric.program_text import text_signature
from bitwise_core.checker.parametric.signature import Run, parametric_signature
from bitwise_core.checker.results import LARGE_GRID, NO_AUDIT, AnalysisResult, given_digests, given_note, places_of
from bitwise_core.checker.sources import Options, Source
from bitwise_core.checker.workers.collector_pause import PROCESS_COLLECTOR, CollectorPause
from bitwise_core.errors import InputError
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.assumptions import ANY_LANE, LOWEST_LANE
from bitwise_core.execution.buffers import formats_of_buffers, open_integers
from bitwise_core.execution.clusters import cluster_shape
from bitwise_core.execution.concrete import (
    PreparedLaunch,
    WorkLimitExceeded,
    checked_outputs,
    lines_read,
    prepare_launch,
    run_blocks,
)
from bitwise_core.execution.data_loops.iterations import LongLoop
from bitwise_core.execution.dependent_stores import outputs_by_dependence
from bitwise_core.execution.domains.domain import DataDependent, Interrupted, Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import Launch, ManifestError
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.races.colliding_lanes import StoreBesideLanes
from bitwise_core.execution.races.undetermined import (
    OLD_VALUE,
    Cause,
    ComputedStore,
    Nondeterministic,
    Race,
    Undetermined,
    UndeterminedValues,
)
from bitwise_core.execution.synchronised_blocks.grid_barriers import outputs_by_barriers
from bitwise_core.execution.synchronised_blocks.last_block import outputs_by_tickets
from bitwise_core.execution.synchronised_blocks.look_back import outputs_by_look_back
from bitwise_core.execution.synchronised_blocks.synchronised_launch import blocks_may_wait
from bitwise_core.execution.synchronised_blocks.turns import outputs_by_turns
from bitwise_core.execution.time_limit import TimeLimitExceeded, time_limit
from bitwise_core.execution.values.distinct import sorted_distinct
from bitwise_core.execution.values.sets.member_sets import MembersRepeat
from bitwise_core.execution.values.symbolic_vector import NAN_BITS, SymbolicVector
from bitwise_core.execution.values.term_hash import (
    nan_bits,
    with_architecture_nans,
)
from bitwise_core.execution.warp_order import SETTLED_BY_WARP_ORDER, may_be_ordered, outputs_by_warp_order
from bitwise_core.numerics import FloatFormat

MAXIMUM_LANES = 1 << 21
"""Launches of more threads are never executed in full."""

MAXIMUM_WORK = 200_000_000
"""Launches of at most this many thread steps may be executed in full; larger ones are decided by block symmetry."""

GIVEN_LAUNCH_TOO = (
    "in the given launch, integers may wrap around, two pointers address one buffer that the kernel writes, or it "
    "stores to an element twice: this launch was executed and compared, too"
)
"""The note of an analysis for every launch."""

FEW_LANES = 1 << 16
"""Launches of at most this many threads run in a few batches: block symmetry saves nothing there."""

MAXIMUM_WORK_OF_MANY_LANES = 4_000_000
"""Larger launches are executed in full at once in at most this many thread steps, else block symmetry is tried first.

Measured on pointwise kernels and reductions over 16 million elements: a proof takes 20 to 200 ms, whatever the grid.
"""

MOST_STORED_AT_ONCE = 1 << 21
"""Launches that store more elements are executed in full only where block symmetry proves nothing.

An element takes about 150 bytes until its launch has ended.
"""

MAXIMUM_CAUSES = 8
"""Of at most this many causes of an undetermined result, each is examined alone; of more, the kinds are."""

_DIGESTED = 1 << 16
"""How many numbers are added to a signature at once."""

MAXIMUM_CHECKED_WORK = 20_000_000
"""Launches of at most this many thread steps are executed to check a result for every launch."""

_WayToProve = Callable[[PreparedLaunch, frozenset[str], Mapping[str, int], Collection[Cause]], dict[int, Output] | None]
"""A proof that the causes of an undetermined result leave the same bytes in every order, or None."""


def prepare(source: Source, arch: Arch, options: Options) -> PreparedLaunch:
    """Parse and audit the text and build its program.  Raises Unsupported, AssemblyError, ManifestError."""
    if source.launch is None:
        raise Unsupported("the manifest has no launch of it")
    module, notes = parse_and_audit(source, source.launch.entry, arch, options)
    prepared = prepare_launch(module, arch, source.launch, (*notes, *given_note(source.launch)))
    return replace(prepared, text=source.text, assume=options.assume)


def parse_and_audit(source: Source, entry: str | None, arch: Arch, options: Options) -> tuple[Module, tuple[str, ...]]:
    """Parse a text and audit its contraction: the module with every fusion stated, and the notes of the audit.

    Raises Unsupported where the audit fails, AssemblyError for a malformed text, ManifestError for a wrong target or
    entry.
    """
    module: Module = arch.parse(source.text, source.name)
    if module.target not in arch.targets:
        raise ManifestError(f"is for the target {module.target}, but the requested architecture is {arch.name}")
    try:
        module.kernel(entry)
    except KeyError as error:
        raise ManifestError(str(error.args[0]).removeprefix(f"{source.name} ")) from None
    if not options.audit_contraction:
        return module, (NO_AUDIT,)
    if arch.audit_contraction is None:
        return module, ()
    audit = arch.audit_contraction(module, source.text, entry)
    return audit.module, (audit.method,)


MANY_CLASSES = 4
"""Where classes have fewer blocks on average, all blocks are executed together instead of one of each class alone."""

MAXIMUM_SUMMARIES = 6
"""The number of summaries of large grids that a session caches."""


class Session:
    """Analyses of kernels with the same buffers and options.

    `buffers` maps the name of each buffer to its number, the same for all kernels that are compared.  The summaries of
    the most recent large grids are cached for comparisons.  `collector` is paused during an analysis.  A session must
    be used by one thread at a time.
    """

    def __init__(
        self, buffers: Mapping[str, int], options: Options, collector: CollectorPause = PROCESS_COLLECTOR
    ) -> None:
        self.buffers, self.options, self.collector = buffers, options, collector
        self._summaries: OrderedDict[Hashable, GridSummary] = OrderedDict()

    def analyse(self, source: Source, arch: Arch) -> AnalysisResult:
        """Analyse one kernel.  Never raises because of a text or a launch: the reason is in `unknown`."""
        start = time.perf_counter()
        partial_result = _PartialResult()

        def stopped(
            reason: str,
            nondeterministic: bool = False,
            malformed: bool = False,
            interrupted: bool = False,
            error: Nondeterministic | ComputedStore | None = None,
        ) -> AnalysisResult:
            module = None if partial_result.prepared is None else partial_result.prepared.module
            return AnalysisResult(
                source.name,
                None,
                reason,
                nondeterministic,
                seconds=time.perf_counter() - start,
                malformed=malformed,
                interrupted=interrupted,
                tensors=given_digests(source, self.options),
                places=() if error is None else places_of(error.causes, module or partial_result.module),
                proved=isinstance(error, Nondeterministic) and error.proved,
                prepared=partial_result.prepared,
            )

        try:
            with self.collector, time_limit(self.options.time_limit):
                if self.options.every_launch:
                    self._analyse_every_launch(source, arch, partial_result)
                else:
                    self._analyse_launch(source, arch, partial_result)
                    if partial_result.outputs is not None:
                        self.collector.keep()
        except NotSymmetric as error:
            return stopped(
                "the grid is too large to be executed in full, and its blocks are not proved to be translations of "
                f"each other: {error}{self._missing_tensors(error, partial_result.prepared)}"
            )
        except (Race, Undetermined) as error:
            return stopped(str(error), error=error)
        except Nondeterministic as error:
            reason = f"the kernel's own result is not determined: {error}"
            return stopped(reason, nondeterministic=True, error=error)
        except AssemblyError as error:
            return stopped(str(error), malformed=True)
        except ManifestError as error:
            return stopped(f"{source.name}: {error}", malformed=True)
        except InputError as error:
            return stopped(str(error), malformed=True)
        except Unsupported as error:
            reason = f"{error}{self._missing_tensors(error, partial_result.prepared)}"
            place = error if isinstance(error, ComputedStore) else None
            return stopped(reason, interrupted=isinstance(error, Interrupted), error=place)
        except TimeLimitExceeded as error:
            return stopped(str(error), interrupted=True)
        except RecursionError:
            return stopped("the text is nested too deeply", interrupted=True)
        except MemoryError:
            return stopped("the analysis ran out of memory", interrupted=True)
        except Exception as error:
            # A bug in the analysis must not end the analyses of other kernels, and must never merge classes.
            return replace(
                stopped(f"internal error of the analysis, which is a bug ({type(error).__name__}: {error})"),
                failed=True,
            )
        return AnalysisResult(
            source.name,
            partial_result.signature,
            notes=partial_result.notes,
            seconds=time.perf_counter() - start,
            program_only=partial_result.program_only,
            tensors=given_digests(source, self.options),
            prepared=partial_result.prepared,
            outputs=partial_result.outputs,
        )

    def _missing_tensors(self, error: Exception, prepared: PreparedLaunch | None) -> str:
        """The end of a sentence that names the tensors whose contents would let the analysis of a launch continue."""
        if self.options.every_launch or prepared is None or not isinstance(error, DataDependent | NotSymmetric):
            return ""
        try:
            found = missing_tensors(prepared, self.buffers, self.options.assume, error)
        except Exception:
            # A hint must not change the reason of an Unknown.
            return ""
        names = () if found is None else sorted((*found.deciding, *found.further))
        return f"; give the contents of {' and '.join(names)} in the manifest" if names else ""

    def _analyse_launch(self, source: Source, arch: Arch, partial_result: _PartialResult) -> None:
        prepared = partial_result.prepared = prepare(source, arch, self.options)
        partial_result.notes = prepared.notes
        beside: StoreBesideLanes | None = None
        while True:
            try:
                self._analyse_prepared(source, arch, prepared, partial_result)
                partial_result.notes = (*partial_result.notes, *sorted(prepared.used))
                return
            except StoreBesideLanes as error:
                if {ANY_LANE, LOWEST_LANE} & prepared.assume:
                    raise
                # What colliding lanes leave may have no effect.
                beside = error
                prepared = replace(prepared, assume=prepared.assume | {ANY_LANE}, used=set())
                partial_result.prepared, partial_result.notes = prepared, prepared.notes
                self._summaries.pop((source.text, source.launch, arch.name), None)
            except Nondeterministic as error:
                raise (beside or error) from None
            except LongLoop as error:
                line = error.line
                if line is None or not self._may_be_function(prepared, error):
                    raise
                prepared = replace(prepared, function_loops=prepared.function_loops | {line})
                partial_result.prepared = prepared

    def _may_be_function(self, prepared: PreparedLaunch, error: LongLoop) -> bool:
        """Return whether a loop is followed as one function in another analysis: no open tensor of integers ends it."""
        if error.line in prepared.function_loops or not open_integers(prepared.launch):
            return False
        found = missing_tensors(prepared, self.buffers, self.options.assume, error)
        return found is not None and not found.deciding

    def _analyse_prepared(
        self, source: Source, arch: Arch, prepared: PreparedLaunch, partial_result: _PartialResult
    ) -> None:
        partial_result.outputs = concrete_outputs(prepared, self.buffers, self.options)
        if partial_result.outputs is None:
            if self.options.cross_architecture:
                raise Unsupported("the launch is too large for a comparison across architectures")
            try:
                divided = self._divided(source, arch, prepared)
                if MANY_CLASSES * len(divided.classes) > prepared.launch.blocks:
                    # What cannot be followed for all blocks may be for one block of each class.
                    with suppress(Unsupported):
                        partial_result.outputs = outputs_of_all_blocks(prepared, self.buffers, self.options)
                if partial_result.outputs is None:
                    self.summary(source, arch, prepared)
                    # The executions of a cached summary are those of its own launch.
                    prepared.used.update(divided.prepared.used)
            except (NotSymmetric, Race):
                partial_result.outputs = outputs_of_all_blocks(prepared, self.buffers, self.options)
                if partial_result.outputs is None:
                    raise
            except (Nondeterministic, Interrupted):
                raise
            except Unsupported:
                # Of few threads, the execution was ended by its work or by its stores.
                if prepared.launch.blocks * prepared.threads <= FEW_LANES:
                    partial_result.outputs = outputs_of_all_blocks(prepared, self.buffers, self.options)
                if partial_result.outputs is None:
                    raise
            if partial_result.outputs is None:
                partial_result.notes = (*prepared.notes, LARGE_GRID)
                return
        partial_result.signature = output_signature(partial_result.outputs)

    def _analyse_every_launch(self, source: Source, arch: Arch, partial_result: _PartialResult) -> None:
        if self.options.cross_architecture:
            raise Unsupported(
                "kernels of several architectures are compared for given launches only, not for every launch: list "
                "their launches in a manifest"
            )
        entry = source.entry if source.launch is None else source.launch.entry
        module, notes = parse_and_audit(source, entry, arch, self.options)
        partial_result.module = module
        cluster = None if source.launch is None else source.launch.cluster
        found = parametric_signature(module, module.kernel(entry), arch, cluster, self.options.assume)
        _check_open_nans(found.run, source.launch)
        partial_result.signature, partial_result.program_only = found.value, found.program_only
        partial_result.notes = (*notes, *found.notes)
        if source.launch is not None:
            stores_twice = self._reject_undetermined_launch(found.run, module, source.launch, arch, notes)
            if found.program_only is None:
                self._compare_given_launch(partial_result, found.run, source.launch, arch, notes, stores_twice)

    def _compare_given_launch(
        self,
        partial_result: _PartialResult,
        run: Run,
        launch: Launch,
        arch: Arch,
        notes: tuple[str, ...],
        stores_twice: bool,
    ) -> None:
        """Make the outputs of the given launch part of the signature where it does not fulfil an assumption.

        The function of a kernel is that of a launch whose pointers address different buffers, and whose indices are
        those of different elements.  Where two pointers address one buffer that the kernel writes, or where it
        `stores_twice` to an element, the kernel is executed, or else its text alone is compared.  Where indices may
        wrap around, it is executed if it takes little work.
        """
        module, signature = partial_result.module, partial_result.signature
        assert module is not None
        assert signature is not None
        wraps = may_wrap(run, launch)
        if not stores_twice and not wraps and not shared_buffers(launch):
            return
        outputs, violates = None, stores_twice
        try:
            prepared = replace(prepare_launch(module, arch, launch, notes), assume=self.options.assume)
            violates = violates or writes_shared_buffer(run, prepared, self.buffers)
            if not violates and not wraps:
                return
            outputs = outputs_of_all_blocks(prepared, self.buffers, self.options, MAXIMUM_CHECKED_WORK)
        except (Unsupported, WorkLimitExceeded):
            outputs = None
        except ManifestError:
            return
        if outputs is not None:
            digest = blake2b(signature + output_signature(outputs), digest_size=16)
            partial_result.signature = digest.digest()
            partial_result.notes = (*partial_result.notes, GIVEN_LAUNCH_TOO)
        if outputs is not None or not violates:
            return
        kernel = module.kernel(launch.entry)
        partial_result.signature = text_signature(module, kernel, arch, cluster_shape(kernel, launch.cluster))
        partial_result.program_only = (
            "only the program text is compared, up to names (two pointers of the launch address one buffer that the "
            "kernel writes, or it stores to an element twice)"
        )

    def _reject_undetermined_launch(
        self, run: Run, module: Module, launch: Launch, arch: Arch, notes: tuple[str, ...]
    ) -> bool:
        """Raise Race or Nondeterministic if the result of the kernel is not determined in its given launch.

        Return whether the launch was executed and stores to an element twice.

        The assumptions of the launch-parametric analysis, such as strides that are at least the length of a row, may
        not hold there.  The launch is executed, unless the addresses show that each element is stored once.  Launches
        that cannot be analysed, or only with much work, are not checked.
        """
        try:
            prepared = replace(prepare_launch(module, arch, launch, notes), assume=self.options.assume)
            if launch.blocks * prepared.threads <= MAXIMUM_LANES and not stores_distinct_elements(
                run, prepared, self.buffers
            ):
                domain = TermDomain(self.options.assume)
                memory, loaded = run_blocks(prepared, domain, self.buffers, work=MAXIMUM_CHECKED_WORK)
                checked_outputs(memory, loaded)
                return _stores_twice(memory)
        except Undetermined:
            return False
        except Nondeterministic:
            raise
        except (Unsupported, ManifestError, WorkLimitExceeded):
            return False
        return False

    def summary(self, source: Source, arch: Arch, prepared: PreparedLaunch | None = None) -> GridSummary:
        """The checked summary of a kernel's grid, cached for the most recent kernels.

        Raises NotSymmetric where the proof fails, Unsupported or Nondeterministic where a block has no determined
        result, AssemblyError and ManifestError as `prepare` does.
        """
        found = self._divided(source, arch, prepared)
        check_representatives(found, term_domain_factory(self.options.assume))
        return found

    def _divided(self, source: Source, arch: Arch, prepared: PreparedLaunch | None) -> GridSummary:
        """The summary of a kernel's grid before one block of each class was executed; raises as `summary`."""
        key = source.text, source.launch, arch.name
        if key in self._summaries:
            self._summaries.move_to_end(key)
            return self._summaries[key]
        found = summarise(prepared or prepare(source, arch, self.options), self.buffers)
        self._summaries[key] = found
        while len(self._summaries) > MAXIMUM_SUMMARIES:
            self._summaries.popitem(last=False)
        return found


@dataclass(slots=True)
class _PartialResult:
    """The results of an analysis so far."""

    signature: bytes | None = None
    notes: tuple[str, ...] = ()
    program_only: str | None = None
    prepared: PreparedLaunch | None = None
    outputs: dict[int, Output] | None = None
    module: Module | None = None


def analyse(source: Source, arch: Arch, buffers: Mapping[str, int], options: Options) -> AnalysisResult:
    """Analyse one kernel in a new session.  Never raises because of a text or a launch."""
    return Session(buffers, options).analyse(source, arch)


@cache
def term_domain_factory(assume: frozenset[str]) -> Callable[[], TermDomain]:
    """A factory of term domains under these assumptions.

    Equal assumptions give the same object, which identifies the domain in caches.
    """
    return partial(TermDomain, assume)


def outputs_of_all_blocks(
    ready: PreparedLaunch,
    buffers: Mapping[str, int],
    options: Options,
    work: int | None = None,
    most_stored: int | None = None,
) -> dict[int, Output] | None:
    """The final contents of every buffer after all blocks were executed, in at most `work` thread steps.

    None where the launch has too many threads, takes more steps, or stores more than `most_stored` elements.  Raises
    Unsupported.
    """
    if ready.launch.blocks * ready.threads > MAXIMUM_LANES:
        return None
    domain = TermDomain(options.assume)
    domain.stop_where_members_repeat()
    with suppress(MembersRepeat):
        return _outputs_in(domain, ready, buffers, options, work, most_stored)
    return _outputs_in(TermDomain(options.assume, follows_members=True), ready, buffers, options, work, most_stored)


def _outputs_in(
    domain: TermDomain,
    ready: PreparedLaunch,
    buffers: Mapping[str, int],
    options: Options,
    work: int | None,
    most_stored: int | None,
) -> dict[int, Output] | None:
    """Execute all blocks over a domain, see `outputs_of_all_blocks`.  Raises Unsupported and MembersRepeat."""
    try:
        memory, scratch = run_blocks(ready, domain, buffers, work=work, most_stored=most_stored)
    except WorkLimitExceeded:
        return None
    except StoreBesideLanes:
        raise
    except Nondeterministic as error:
        found = _outputs_of_every_order(error, ready, buffers, options)
        if found is None:
            raise
        return found
    try:
        return checked_outputs(memory, scratch, release=True)
    except Nondeterministic as error:
        found = _outputs_of_every_order(error, ready, buffers, options)
        if found is None:
            values = memory.undetermined
            found_error = _with_reaching_causes(error, values, scratch, ready, buffers, options)
            raise _with_settling_assumption(found_error, ready, options.assume, buffers) from None
        return found


def _check_open_nans(run: Run, launch: Launch | None) -> None:
    """Raise Unsupported where a number whose NaN has open bits is stored in a buffer that may be of another format.

    All NaNs of a buffer of the format count as one value.  Elsewhere their bits count: those that an assembler decides,
    and those of fp64, whose units, conversions included, pass on those of an operand.
    """
    arguments = () if launch is None else launch.args
    for (pointer, form), line in run.memory.open_nans.items():
        if pointer >= len(arguments) or arguments[pointer].dtype != form:
            raise Unsupported(UNSPECIFIED_NAN_STORED, line)


def _outputs_of_every_order(
    error: Nondeterministic, ready: PreparedLaunch, buffers: Mapping[str, int], options: Options
) -> dict[int, Output] | None:
    """The final contents of every buffer if they are proved to be the same in every order, else None.

    Tickets, flags or barriers of the grid may order the blocks, and stores may depend on the loads that they race with.
    """
    ways_to_prove: list[_WayToProve] = [outputs_by_dependence, outputs_by_warp_order]
    if blocks_may_wait(ready):
        by_blocks: list[_WayToProve] = [outputs_by_tickets, outputs_by_turns, outputs_by_barriers]
        ways_to_prove = [*by_blocks, *ways_to_prove, outputs_by_look_back]
    for outputs_by in ways_to_prove:
        found = outputs_by(ready, options.assume, buffers, error.causes)
        if found is not None:
            return found
    return None


def concrete_outputs(ready: PreparedLaunch, buffers: Mapping[str, int], options: Options) -> dict[int, Output] | None:
    """The final contents of every buffer after a launch; None where the launch is large.  Raises Unsupported."""
    in_full = options.cross_architecture or ready.launch.blocks * ready.threads <= FEW_LANES
    work = MAXIMUM_WORK if in_full else min(MAXIMUM_WORK, MAXIMUM_WORK_OF_MANY_LANES)
    most_stored = None if options.cross_architecture else MOST_STORED_AT_ONCE
    outputs = outputs_of_all_blocks(ready, buffers, options, work, most_stored)
    if outputs is None:
        return None
    if not options.cross_architecture:
        return outputs
    floating = formats_of_buffers(ready.launch, buffers)
    return {
        number: _mark_architecture_nans(each, floating.get(number), ready.arch.name) for number, each in outputs.items()
    }


def _with_reaching_causes(
    error: Nondeterministic,
    values: UndeterminedValues | None,
    scratch: frozenset[int],
    ready: PreparedLaunch,
    buffers: Mapping[str, int],
    options: Options,
) -> Nondeterministic:
    """The error with those of its causes that alone leave an output undetermined; all of them where none does.

    `values` are the undetermined values of the launch, and `scratch` its buffers whose contents are no output.
    """
    causes = error.causes
    if values is None or len(causes) < 2:
        return error

    start, sums, used = values.of_causes, values.sums, lines_read(ready) | values.updates

    def reaches(*chosen: Cause) -> bool:
        """Whether some output is undetermined where these causes are the only ones."""
        if any(sums.get(each, scratch) - scratch for each in chosen):
            return True  # the launch leaves such a sum
        if all(each.reason == OLD_VALUE and each.other is None and each.line not in used for each in chosen):
            return False  # nothing reads the old value
        try:
            domain, alone = TermDomain(options.assume), start(chosen)
            checked_outputs(*run_blocks(ready, domain, buffers, work=MAXIMUM_WORK, undetermined=alone))
        except (Unsupported, WorkLimitExceeded, TimeLimitExceeded):
            return True
        return False

    # Often no cause of a kind reaches an output, as of atomic operations whose results are not used.
    alike = [tuple(each for each in causes if each.kind is kind) for kind in {each.kind: None for each in causes}]
    harmless = {cause for group in alike if 1 < len(group) < len(causes) and not reaches(*group) for cause in group}
    left = tuple(cause for cause in causes if cause not in harmless)
    reaching = left if len(left) > MAXIMUM_CAUSES else tuple(cause for cause in left if reaches(cause))
    kept = reaching or causes
    reason = error.reason.replace(str(causes[0]), str(kept[0]))
    return Nondeterministic(reason, error.line, kept, proved=error.proved)


def _with_settling_assumption(
    error: Nondeterministic, ready: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int]
) -> Nondeterministic:
    """The error, which says so where an assumption that may be requested determines the result."""
    if not may_be_ordered(ready, assume, buffers, error.causes):
        return error
    reason = f"{error.reason} ({SETTLED_BY_WARP_ORDER})"
    return Nondeterministic(reason, error.line, error.causes, proved=error.proved)


def _mark_architecture_nans(output: Output, form: FloatFormat | None, architecture: str) -> Output:
    """The stored elements, with terms marked by the architecture where they depend on the bits of a NaN.

    The bits of a NaN that arithmetic produced are specific to the architecture wherever an operation reads them, and
    wherever they are stored, except in a floating-point element of the buffer's type: there all NaNs are one value.
    """
    stored = nan_bits(SymbolicVector(64, output.words, output.flags))
    if form is not None:
        stored = np.where(output.size == form.bits // 8, np.uint32(0), stored)
    own = ((output.flags | stored) & np.uint32(NAN_BITS)) != 0
    return replace(output, words=with_architecture_nans(output.words, own, architecture))


def _stores_twice(memory: GlobalMemory) -> bool:
    """Whether two stores of a run, or two threads in one, write one byte."""
    for accesses in memory.stores.values():
        granule = gcd(*(each.bits for each in accesses)) // 8
        units = np.concatenate(
            [each.address.ravel() + offset for each in accesses for offset in range(0, each.bits // 8, granule)]
        )
        if len(sorted_distinct(units)) < len(units):
            return True
    return False


def output_signature(outputs: Mapping[int, Output]) -> bytes:
    """The signature of the outputs of a launch: a digest of buffer, address, width and term of every element."""
    digest = blake2b(digest_size=16)
    for buffer in sorted(outputs):
        output = outputs[buffer]
        digest.update(buffer.to_bytes(8, "little"))
        for column in (output.address, output.size, *output.words):
            for start in range(0, column.size, _DIGESTED):
                digest.update(column[start : start + _DIGESTED].astype(np.uint64).data)
    return digest.digest()
