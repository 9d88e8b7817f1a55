"""Machine code that the installed assembler makes of the kernels of tests."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from bitwise_nvidia_ptx.assembler.installed import PtxasNotFound, disassemblers
from bitwise_nvidia_ptx.assembler.ptxas import Ptxas
from bitwise_nvidia_ptx.machine_code.sass_listing import listed_functions


def listing(ptx: str, folder: Path) -> str:
    """Return the listing of the machine code of a text for sm_90a; `folder` takes the object file.

    Skips the test where no assembler with a disassembler is installed.
    """
    try:
        ptxas = Ptxas.locate("sm_90a")
        tool = disassemblers(ptxas.path)[0]
    except (PtxasNotFound, IndexError) as error:
        pytest.skip(f"no assembler with a disassembler: {error}")
    path = folder / "k.cubin"
    path.write_bytes(ptxas.assemble(ptx))
    return subprocess.run([tool, "-c", str(path)], check=True, capture_output=True, text=True).stdout


def mnemonics(kernels: Sequence[str], folder: Path) -> list[list[str]]:
    """Return the mnemonics of the machine code of each of some texts with one kernel `k`, assembled together."""
    head, mark, _ = kernels[0].partition(".visible .entry k(")
    entries = (each.partition(mark)[2] for each in kernels)
    together = head + "".join(f".visible .entry k{at}({each}" for at, each in enumerate(entries))
    functions = listed_functions(listing(together, folder))
    return [[each.mnemonic for each in functions[f"k{at}"].instructions] for at in range(len(kernels))]
