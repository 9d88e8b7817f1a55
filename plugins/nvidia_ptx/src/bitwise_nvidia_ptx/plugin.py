"""The tools that the plugins of NVIDIA's architectures share."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.references import Deferred
from bitwise_core.plugins.tools import Tool

ASSEMBLERS = Deferred("bitwise_nvidia_ptx.tools:assemblers")


@hookimpl
def bitwise_tools() -> Iterable[Tool]:
    """The assemblers, and the disassembler."""
    return [
        Tool(
            "ptxas",
            "verdicts on PTX whose products may be fused into sums, and products of sm_90 in warpgroups",
            partial(ASSEMBLERS, "ptxas"),
        ),
        Tool(
            "ptxas-blackwell",
            "the same for sm_100 and later, with the assembler that Triton uses there",
            partial(ASSEMBLERS, "ptxas-blackwell"),
        ),
        Tool(
            "nvdisasm",
            "proofs that the assembler's fused products are those of the text, where the code differs",
            Deferred("bitwise_nvidia_ptx.tools:disassemblers"),
        ),
    ]
