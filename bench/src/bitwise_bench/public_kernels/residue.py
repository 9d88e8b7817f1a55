"""What a kernel finds in memory that nothing wrote: it may be anything, and must not change the bytes it returns."""

from __future__ import annotations

from functools import cache
from typing import Any

FILLINGS = (0x00, 0x3C, 0xFF)
"""The byte that memory holds which nothing wrote, in each run of a kernel that is alone on the GPU.

Words of them are zeros, small positive numbers, and NaNs, which a product with zero keeps.
"""

BEYOND_BYTES = 4096
"""Memory behind each buffer that holds the byte of a filling."""

_SHARED_WORDS = 227 * 256
_THREADS = 512
_REGISTERS = 116
"""Of each thread: those of a block are nearly all of a multiprocessor."""
_BLOCKS = 528
"""More than the multiprocessors of any GPU with sm_90: each of them runs one block or several."""


def filled(data: Any, filling: int) -> tuple[Any, Any]:
    """Return a copy of a tensor of bytes, and the memory behind it, which has `filling` in every place."""
    import torch

    count = data.numel()
    whole = torch.full((count + BEYOND_BYTES,), filling, dtype=torch.uint8, device=data.device)
    whole[:count].copy_(data)
    return whole[:count], whole[count:]


def leave(filling: int) -> None:
    """Write a byte to the shared memory and to registers of every multiprocessor, for the kernel that runs next.

    Raises DeviceError.
    """
    _kernel(filling).run({})


@cache
def _kernel(filling: int) -> Any:
    from bitwise_bench.gpu.driver import LoadedKernel, assemble
    from bitwise_core.execution.launch import Launch

    launch = Launch(file="residue.ptx", entry="residue", grid=(_BLOCKS, 1, 1), block=(_THREADS, 1, 1))
    return LoadedKernel(assemble(residue_text(filling), fp_fusion=False), launch, 0)


def residue_text(filling: int) -> str:
    """Return a kernel that writes a byte to all shared memory, and then loads it into many registers.

    The registers are stored after the last of them was loaded, so that the assembler keeps them apart.
    """
    word = int.from_bytes(bytes([filling]) * 4, "little")
    names = [f"%v{number}" for number in range(_REGISTERS)]
    loads = [f"    ld.volatile.shared.u32 {name}, [%at+{4 * place}];" for place, name in enumerate(names)]
    stores = [f"    st.volatile.shared.u32 [%at+{4 * place}], {name};" for place, name in enumerate(names)]
    return "\n".join(
        (
            ".version 8.0",
            ".target sm_90a",
            ".address_size 64",
            ".extern .shared .align 16 .b8 memory[];",
            ".visible .entry residue()",
            f".maxntid {_THREADS}, 1, 1",
            "{",
            f"    .reg .b32 %v<{_REGISTERS}>;",
            "    .reg .b32 %at, %first, %index;",
            "    .reg .pred %more;",
            "    mov.u32 %first, memory;",
            "    mov.u32 %index, %tid.x;",
            "    shl.b32 %index, %index, 2;",
            "$fill:",
            "    add.u32 %at, %first, %index;",
            f"    st.volatile.shared.u32 [%at], {word};",
            f"    add.u32 %index, %index, {4 * _THREADS};",
            f"    setp.lt.u32 %more, %index, {4 * _SHARED_WORDS};",
            "    @%more bra $fill;",
            "    bar.sync 0;",
            "    mov.u32 %at, memory;",
            *loads,
            *stores,
            "    ret;",
            "}",
            "",
        )
    )
