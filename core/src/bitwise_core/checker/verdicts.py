"""Verdicts on two kernels: equal, different, unproved or unknown, with scope, conditions and assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from bitwise_core.checker.results import AnalysisResult, conflicting_tensors
from bitwise_core.checker.sources import Options
from bitwise_core.checker.wording import COMMON_NOTES, counted
from bitwise_core.execution.assumptions import CONDITIONS, conditions_of
from bitwise_core.execution.element_types import Array
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.decimals import apart, decimal, ulps

if TYPE_CHECKING:
    from bitwise_core.checker.trees.divergence import DivergenceTrace


class Outcome(StrEnum):
    """The outcome of a comparison of two kernels.

    EQUAL: bitwise equality is proved.  DIFFERENT: a counterexample was found and both kernels were run on it.
    UNPROVED: both kernels were analysed completely and their canonical forms differ; two different forms may still
    compute the same function.  UNKNOWN: the analysis of a kernel stopped.
    """

    EQUAL = "equal"
    DIFFERENT = "different"
    UNPROVED = "unproved"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Side:
    """The divergent node of one kernel: an expression, its operation, and its line.

    `line` is the line of the assembly, `source` the line of the kernel's own source file; None where unknown.  `calls`
    are the lines of the functions that this line calls, the outermost first.
    """

    node: str
    operation: str
    line: int | None = None
    source: str | None = None
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first divergence of two kernels: an output element, and the first node that shows the difference.

    `element` is the name of the element, as in `Y[0]`; `offset` is its byte offset in `buffer` and `size` its width in
    bytes.  `depth` is the distance of the divergent node from the root of the tree.  `left` and `right`
    are None where the trees cannot be shown, for the reason in `why_not`.  `meaning` explains the difference of the
    two nodes in a sentence.
    """

    element: str
    buffer: str
    offset: int
    size: int
    left: Side | None = None
    right: Side | None = None
    depth: int = 0
    why_not: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Counterexample:
    """An input on which two kernels return different bytes; both kernels were run on it.

    `arrays` holds the contents of every buffer before the launch, `path` the file they were written to, if any.
    `buffer` and `index` name the first element that differs; the kernels return the bit patterns `left` and `right` of
    `size` bytes there, of the floating-point format `format` (None: of another type).  `count` is the number of
    elements of the buffer that differ.  `drawn` names the distribution of the input, `notes` the assumptions of the two
    runs.
    """

    arrays: Mapping[str, Array]
    buffer: str
    index: int
    size: int
    left: int
    right: int
    count: int
    drawn: str
    notes: tuple[str, ...] = ()
    path: str | None = None
    format: str | None = None

    @property
    def element(self) -> str:
        """The name of the element, as in `Y[0]`."""
        return f"{self.buffer}[{self.index}]"

    @property
    def values(self) -> tuple[str, str]:
        """Both bit patterns, in hexadecimal."""
        digits = 2 * self.size
        return f"0x{self.left:0{digits}x}", f"0x{self.right:0{digits}x}"

    @property
    def decimals(self) -> tuple[str, str] | None:
        """Both values as decimals, None where the elements are no floating-point numbers of one element each."""
        form = FLOAT_FORMATS.get(self.format or "")
        if form is None or form.bits != 8 * self.size:
            return None
        return decimal(form, self.left), decimal(form, self.right)

    @property
    def ulps(self) -> int | None:
        """The distance of both values in units in the last place, None with a NaN or without decimals."""
        return None if self.decimals is None else ulps(FLOAT_FORMATS[str(self.format)], self.left, self.right)

    @property
    def sentence(self) -> str:
        """The counterexample in one sentence."""
        left, right = self.values
        words = f"{counted(self.count, 'element')} differ{'s' if self.count == 1 else ''} (input: {self.drawn})"
        if self.decimals is None:
            return f"{self.element} is {left} and {right}; {words}"
        one, other = self.decimals
        distance = apart(FLOAT_FORMATS[str(self.format)], self.left, self.right)
        return f"{self.element} is {one} ({left}) and {other} ({right}){distance and f', {distance}'}; {words}"

    def __repr__(self) -> str:
        return f"Counterexample({self.sentence})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a comparison of two kernels.

    `scope` is `launch` or `every launch`.  `notes` are the assumptions of the verdict, `conditions` the conditions on
    values under which it holds.  `tensors` holds the digests of the contents that the launches give, by buffer: the
    verdict holds for these contents.  `divergence` is the first divergence of the canonical forms; `counterexample` is
    an input on which the bytes differ.
    """

    outcome: Outcome
    reason: str
    scope: str
    notes: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    divergence: Divergence | None = None
    counterexample: Counterexample | None = None
    tensors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Verdict({', '.join(self.sentences())})"

    def _repr_html_(self) -> str:
        from html import escape

        head, *rest = (escape(each) for each in self.sentences())
        return f"<b>{head}</b>" + "".join(f"<br>{each}" for each in rest)

    def sentences(self) -> tuple[str, ...]:
        """The verdict in a few lines: outcome and scope, reason, counterexample or divergence, conditions."""
        scope = "every launch" if self.scope == "every launch" else "this launch"
        found = [f"{self.outcome.value} for {scope}", self.reason[:300]]
        if self.counterexample is not None:
            found.append(self.counterexample.sentence)
        elif self.divergence is not None:
            found.append(f"first divergence at {self.divergence.element}")
        if self.conditions:
            found.append(f"if {' and '.join(CONDITIONS[each] for each in self.conditions)}")
        return tuple(found)


EQUAL_TREES = "every output element has the same canonical dependence tree"
DIFFERENT_TREES = "the canonical dependence trees differ"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The analysis results of two kernels and the verdict; `trace` where the trees of a divergence can be built."""

    results: tuple[AnalysisResult, AnalysisResult]
    verdict: Verdict
    trace: DivergenceTrace | None = None


@dataclass(frozen=True, slots=True)
class LargeComparison:
    """The outcome of a comparison block by block, and the reason.

    `interrupted`: it stopped for a reason outside of the kernels, so that another run may go further.
    """

    outcome: Outcome
    reason: str
    interrupted: bool = False


def verdict(left: AnalysisResult, right: AnalysisResult, options: Options) -> Verdict:
    """The verdict on two results of the same buffers and options; large grids are compared by `comparison`."""
    return replace(_verdict(left, right, options), tensors=given_tensors((left, right)))


def given_tensors(results: Iterable[AnalysisResult]) -> dict[str, tuple[str, ...]]:
    """The digests of the contents that the launches of these results give, by buffer; usually one for each buffer."""
    found: dict[str, dict[str, None]] = {}
    for each in results:
        for name, digest in each.tensors.items():
            if digest is not None:
                found.setdefault(name, {})[digest] = None
    return {name: tuple(digests) for name, digests in found.items()}


def _verdict(left: AnalysisResult, right: AnalysisResult, options: Options) -> Verdict:
    notes = tuple(dict.fromkeys((*left.notes, *right.notes, *COMMON_NOTES)))
    conditions = conditions_of(options.assume)
    for each in (left, right):
        if each.unknown is not None:
            return Verdict(Outcome.UNKNOWN, f"{each.name}: {each.unknown}", options.scope, notes, conditions)
    conflict = conflicting_tensors(left.tensors, right.tensors)
    if conflict is not None:
        reason = f"{left.name} and {right.name} are launched on different tensors: {conflict}"
        return Verdict(Outcome.UNKNOWN, reason, options.scope, notes, conditions)
    if left.large or right.large:
        reason = "large grids have no signatures; compare the kernels block by block"
        return Verdict(Outcome.UNKNOWN, reason, options.scope, notes, conditions)
    if left.signature == right.signature:
        return Verdict(Outcome.EQUAL, EQUAL_TREES, options.scope, notes, conditions)
    for each in (left, right):
        if each.program_only is not None:
            return Verdict(Outcome.UNKNOWN, f"{each.name}: {each.program_only}", options.scope, notes, conditions)
    return Verdict(Outcome.UNPROVED, DIFFERENT_TREES, options.scope, notes, conditions)


def refuted(verdict: Verdict, counterexample: Counterexample) -> Verdict:
    """The verdict DIFFERENT that a counterexample proves; its scope is one launch, whatever scope was requested.

    The assumptions of a proof for every launch are none of two runs.
    """
    proof = () if verdict.scope == "every launch" else verdict.notes
    return replace(
        verdict,
        outcome=Outcome.DIFFERENT,
        reason="both kernels were run on one input, and their bytes differ",
        scope="launch",
        notes=tuple(dict.fromkeys((*proof, *counterexample.notes, *COMMON_NOTES))),
        counterexample=counterexample,
    )
