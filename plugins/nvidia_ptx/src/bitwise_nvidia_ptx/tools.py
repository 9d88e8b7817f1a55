"""The assemblers and disassemblers, as tools of `bitwise doctor`."""

from __future__ import annotations

from bitwise_core.plugins.tools import Found, ToolMissing
from bitwise_nvidia_ptx.assembler.installed import (
    NAMED,
    InstalledAssembler,
    installed_assemblers,
    unusable,
    version_of,
)

_GET = "install Triton (pip install triton), the CUDA toolkit or the wheel nvidia-cuda-nvcc, or set BITWISE_PTXAS"


def assemblers(name: str) -> list[Found]:
    """Return the assemblers of a name, the one that is tried first with a note.  Raises ToolMissing.

    A path in an environment variable that is no executable file comes before them: in BITWISE_PTXAS it is an error
    for kernels that need an assembler, and in others it is passed over.
    """
    installed, passed = list(installed_assemblers(name)), unusable(name)
    if not installed:
        wrong = "".join(f"; {path} ({origin}) is no executable file" for path, origin in passed)
        raise ToolMissing(f"no {name} is found{wrong}: {_GET}")
    return [
        *(Found("is no executable file", path, f"{origin}, {_consequence(origin)}") for path, origin in passed),
        *(Found(each.version or "does not run", each.path, _note(each, installed)) for each in installed),
    ]


def _consequence(origin: str) -> str:
    return "an error where an assembler is needed" if origin == f"of {NAMED}" else "passed over"


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
