"""The tools that the plugins of NVIDIA's architectures share."""

from __future__ import annotations

from collections.abc import Iterable

from bitwise_core.plugins.hookspecs import hookimpl
from bitwise_core.plugins.tools import Found, Tool, ToolMissing
from bitwise_nvidia_ptx.assembler import InstalledAssembler, installed_assemblers, version_of

_GET = "install Triton (pip install triton), the CUDA toolkit or the wheel nvidia-cuda-nvcc, or set BITWISE_PTXAS"


def assemblers(name: str) -> list[Found]:
    """Return the assemblers of a name, the one that is tried first with a note.  Raises ToolMissing."""
    installed = list(installed_assemblers(name))
    if not installed:
        raise ToolMissing(f"no {name} is found: {_GET}")
    return [Found(each.version or "does not run", each.path, _note(each, installed)) for each in installed]


def _note(each: InstalledAssembler, installed: list[InstalledAssembler]) -> str:
    built = next((other for other in installed if "of Triton" in other.origin), None)
    words = [each.origin]
    if each is installed[0]:
        words.append("tried first")
    if each is built:
        words.append("the one of Triton")
    elif built is not None and each is installed[0]:
        same = "the version of Triton's" if each.version == built.version else f"Triton's is {built.version}"
        words.append(same)
    return ", ".join(words)


def disassemblers() -> list[Found]:
    """Return the disassembler that goes with each assembler.  Raises ToolMissing."""
    users: dict[str, list[str]] = {}
    for each in installed_assemblers():
        if each.disassembler is not None:
            users.setdefault(each.disassembler, []).append(each.origin)
    if not users:
        raise ToolMissing("no nvdisasm is found beside ptxas, on PATH or in the wheel of Triton: install Triton")
    return [
        Found(version_of(path) or "does not run", path, f"with ptxas {', '.join(origins)}")
        for path, origins in users.items()
    ]


@hookimpl
def bitwise_tools() -> Iterable[Tool]:
    """The assemblers, and the disassembler."""
    return [
        Tool(
            "ptxas",
            "verdicts on PTX whose products may be fused into sums, and products of sm_90 in warpgroups",
            lambda: assemblers("ptxas"),
        ),
        Tool(
            "ptxas-blackwell",
            "the same for sm_100 and later, with the assembler that Triton uses there",
            lambda: assemblers("ptxas-blackwell"),
        ),
        Tool(
            "nvdisasm",
            "proofs that the assembler's fused products are those of the text, where the code differs",
            disassemblers,
        ),
    ]
