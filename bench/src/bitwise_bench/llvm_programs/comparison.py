"""A random program that LLVM compiles for gfx942, executed by the plugin and computed by NumPy."""

from __future__ import annotations

import numpy as np

from bitwise_bench.llvm_programs.programs import Program, random_program
from bitwise_bench.llvm_programs.values import LANES, same
from bitwise_core import api
from bitwise_core.checker.sources import Source
from bitwise_core.execution.launch import Launch

ARCHITECTURE = "gfx942"


def compiled(program: Program) -> str:
    """Return the assembly text of a program, by the LLVM of the installed Triton."""
    from triton._C.libtriton import llvm

    llvm.init_targets()
    text: str = llvm.translate_to_asm(program.text, "amdgcn-amd-amdhsa", ARCHITECTURE, "", [], False, False)
    return text


def source_of(program: Program, text: str) -> Source:
    """Return a compiled program with its launch."""
    launch = {"file": "kernel.amdgcn", "grid": [1, 1, 1], "block": [LANES, 1, 1], "args": program.arguments()}
    return Source(name="kernel", text=text, launch=Launch.model_validate(launch))


def compared(seed: int) -> list[str]:
    """Return the outputs of a program that differ, with an element of each.  Raises BitwiseError if it does not run."""
    program = random_program(seed)
    return differences(program, compiled(program))


def differences(program: Program, text: str) -> list[str]:
    """Return the outputs of a compiled text that differ from those of a program.  Raises BitwiseError."""
    buffers = {name: content for name, (_, content) in program.inputs.items()}
    buffers |= {name: np.zeros_like(content) for name, (_, content) in program.outputs.items()}
    found = api.run(source_of(program, text), buffers, target=ARCHITECTURE)
    different = []
    for name, (kind, expected) in program.outputs.items():
        given = np.ascontiguousarray(expected)
        stored = found[name].view(given.dtype).reshape(given.shape)
        unequal = np.argwhere(~same(stored, given, kind))
        if unequal.size:
            at = tuple(unequal[0].tolist())
            place = f"{name}{list(at)} of type {kind}"
            different.append(f"{place} is {int(stored[at]):#x}, not {int(given[at]):#x}")
    return different
