"""How many solutions of logic files are described, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bitwise_rocblas_profiles.describe import Stagger, describe, types_of
from bitwise_rocblas_profiles.errors import Declined
from bitwise_rocblas_profiles.problem import Call
from bitwise_rocblas_profiles.tables import LogicFile

TILES, ITERATIONS = 4, 40


@dataclass(frozen=True, slots=True)
class Coverage:
    """The number of solutions, and of those that are not described by reason."""

    solutions: int
    declined: Counter[str]

    @property
    def described(self) -> int:
        """The number of solutions that are described."""
        return self.solutions - self.declined.total()

    def lines(self) -> Iterator[str]:
        """Yield the counts as sentences."""
        share = 100 * self.described / self.solutions if self.solutions else 0.0
        yield f"{self.described} of {self.solutions} solutions are described ({share:.1f} %)"
        for reason, count in self.declined.most_common():
            yield f"{count} are declined: {reason}"


def call_for(file: LogicFile, number: int) -> Call:
    """Return a call that uses all of a solution: several tiles each way, iterations in all slices, and a tail of k.

    There is no tail where the kernel has no loop for it.
    """
    bits, types = file.solutions[number].bits, types_of(file.problem)
    depth = bits["DepthU"]
    tail = 0 if bits["NoTailLoop"] else depth // 2
    return Call(
        TILES * bits["MacroTile0"] + 1, TILES * bits["MacroTile1"] + 1,
        depth * max(1, bits["GlobalSplitU"] or 1) * ITERATIONS + tail, types.a, types.b, types.d, types.compute,
        bool(file.problem["TransposeA"]), bool(file.problem["TransposeB"]), multiplied=types.multiplied,
    )  # fmt: skip


def coverage(files: Iterable[LogicFile], stagger: Stagger | None = None) -> Coverage:
    """Return how many solutions are described for `call_for` each of them."""
    solutions, declined = 0, Counter[str]()
    for file in files:
        for number, solution in enumerate(file.solutions):
            solutions += 1
            try:
                describe(solution, file, call_for(file, number), stagger)
            except Declined as error:
                declined[error.reason] += 1
    return Coverage(solutions, declined)
