"""Forms evaluated on bit patterns, through the ordinary reading and simulation of a kernel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitwise_bench.register_operations.forms import Form
from bitwise_bench.register_operations.kernels import FormsKernel
from bitwise_bench.register_operations.operands import CASES, Words
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.concrete import prepare_launch
from bitwise_core.execution.launch import Argument, Launch
from bitwise_core.execution.simulation import simulate


def evaluate(kernel: FormsKernel, arch: Arch) -> tuple[Mapping[Form, tuple[Words, ...]], tuple[str, ...]]:
    """Return the results of all forms of a kernel, and the notes on assumptions.

    Raises Unsupported if a form has no exact semantics.
    """
    module = arch.parse(kernel.text, "forms.ptx")
    launch = Launch(
        file="forms.ptx",
        entry="forms",
        grid=(1, 1, 1),
        block=(CASES, 1, 1),
        args=(Argument(kind="buffer", buffer="out"), Argument(kind="buffer", buffer="in")),
    )
    contents = {"out": np.zeros(kernel.output_size, dtype=np.uint8), "in": kernel.input_bytes}
    done = simulate(prepare_launch(module, arch, launch), contents)
    return kernel.results(done.after["out"]), done.notes
