"""PTX for sm_90 as a language of the adversary."""

from __future__ import annotations

from collections.abc import Sequence

from bitwise_bench.adversary import patterns
from bitwise_bench.adversary.language import Array, Kernel
from bitwise_bench.adversary.programs import STORES, Program
from bitwise_bench.adversary.ptx_kernel import THREADS, KernelText, kernel_text
from bitwise_core.execution.architecture import Arch
from bitwise_core.plugins import registry

_TYPES = {store.buffer: store.dtype for store in STORES.values()}


class PtxLanguage:
    """See `language.Language`."""

    name = "ptx"
    suffix = ".ptx"
    threads = THREADS

    @property
    def arch(self) -> Arch:
        """See `language.Language`."""
        return registry.default().arch("sm_90")

    def kernel(self, programs: Sequence[Program]) -> KernelText:
        """See `language.Language`."""
        return kernel_text(programs)

    def inputs(self, kernel: Kernel, blocks: int, seed: int, *, finite: bool) -> dict[str, Array]:
        """See `language.Language`."""
        assert isinstance(kernel, KernelText)
        return patterns.inputs(kernel.loads, blocks, seed, finite=finite)

    def dtype(self, buffer: str) -> str:
        """See `language.Language`."""
        return _TYPES[buffer]
