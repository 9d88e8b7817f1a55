"""What the adversary needs from an instruction set: kernels of many programs, inputs, and material for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bitwise_bench.adversary import patterns
from bitwise_bench.adversary.instruction_sets.vocabulary import Vocabulary
from bitwise_bench.adversary.kernels import KernelText
from bitwise_bench.adversary.patterns import Array
from bitwise_bench.adversary.programs import STORES, Program
from bitwise_bench.adversary.rewriting import Rule
from bitwise_bench.adversary.sources import Material
from bitwise_core.execution.architecture import Arch
from bitwise_core.plugins import registry


@dataclass(frozen=True)
class Language:
    """An instruction set.

    `suffix` is that of its files, `threads` the number of threads in a block.  `write` makes one kernel of programs.
    `rules` are the functions that return the rules that hold and the near-misses, `stores` the keys of its stores.
    """

    name: str
    suffix: str
    threads: int
    architecture: str
    words: Vocabulary
    write: Callable[[Sequence[Program]], KernelText]
    rules: tuple[Callable[[], tuple[Rule, ...]], Callable[[], tuple[Rule, ...]]]
    stores: tuple[str, ...]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "material"}

    @property
    def arch(self) -> Arch:
        """The architecture that reads the texts."""
        return registry.default().arch(self.architecture)

    @cached_property
    def material(self) -> Material:
        """What programs are made of."""
        stores = {key: STORES[key] for key in self.stores}
        return Material(self.words, self.rules[0](), self.rules[1](), stores)

    def kernel(self, programs: Sequence[Program]) -> KernelText:
        """Return one kernel of all programs."""
        return self.write(programs)

    def inputs(self, kernel: KernelText, blocks: int, seed: int, *, finite: bool) -> dict[str, Array]:
        """Return the bytes of the input buffers of a kernel."""
        return patterns.inputs(
            self.words.leaves, kernel.loads, blocks * self.threads * kernel.repeats, seed, finite=finite
        )
