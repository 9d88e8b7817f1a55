# ruff: noqa: E501 - a line of PTX or of a table is read as one
"""Small PTX kernels and their analysis, for tests of the semantics of each opcode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bitwise_conformance.suite.observed_programs import observed
from bitwise_core.execution.architecture import Arch, BitSupport, OpcodeTable
from bitwise_core.execution.concrete import checked_outputs, prepare_launch, run_blocks
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import POINTER_SHIFT, Argument, Launch
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.simulation import simulate_batch
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_nvidia_ptx.architecture import nvidia_arch

ARCH: Arch = nvidia_arch("sm_90", ("sm_90", "sm_90a"), OpcodeTable(), BitSupport())

REGISTERS = ".reg .pred %p<40>; .reg .b8 %b<40>; .reg .b16 %h<90>; .reg .b32 %r<90>; .reg .f32 %f<90>; .reg .f64 %g<40>; .reg .b64 %d<90>;"
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def text(body: str, *, threads: int = 32, before: str = "", shared: str = "") -> str:
    """Return a kernel k(out, in): %d0 holds the address of out, %d1 that of in, %r0 the thread index."""
    return f"""{HEAD}{before}
.visible .entry k(.param .u64 out, .param .u64 in) .reqntid {threads}
{{ {REGISTERS} {shared}
ld.param.u64 %d0, [out];
ld.param.u64 %d1, [in];
mov.u32 %r0, %tid.x;
{body}
ret;
}}
"""


def run(
    body: str,
    *,
    threads: int = 32,
    blocks: int = 1,
    before: str = "",
    shared: str = "",
    arch: Arch = ARCH,
    assume: frozenset[str] = frozenset(),
    dtype: str | None = None,
    loaded: str | None = None,
) -> tuple[GlobalMemory, frozenset[int]]:
    """Run the kernel over all blocks, and check every step against the declaration of its opcode.

    `dtype` and `loaded` are the types of the elements of the two buffers, if the launch states them.
    """
    module = arch.parse(text(body, threads=threads, before=before, shared=shared), "k.ptx")
    launch = Launch(
        file="k.ptx",
        entry="k",
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        args=(Argument(kind="buffer", buffer="out", dtype=dtype), Argument(kind="buffer", buffer="in", dtype=loaded)),
    )
    prepared, found = observed(prepare_launch(module, arch, launch))
    result = run_blocks(prepared, TermDomain(assume), {"out": 1, "in": 2})
    assert not found.wrong, "an instruction reads or writes operands that it does not declare"
    return result


def hashes(
    body: str,
    *,
    threads: int = 32,
    blocks: int = 1,
    before: str = "",
    shared: str = "",
    arch: Arch = ARCH,
    dtype: str | None = None,
) -> dict[int, tuple[int, int, int]]:
    """Return a map from offsets in the first buffer to the width in bytes and the hash of the final value."""
    launched = run(body, threads=threads, blocks=blocks, before=before, shared=shared, arch=arch, dtype=dtype)
    found = checked_outputs(*launched)[1]
    return {
        int(where) & ((1 << POINTER_SHIFT) - 1): (int(size), int(low), int(high))
        for where, size, low, high in zip(found.address, found.size, *found.words, strict=True)
    }


def simulated(
    body: str, contents: Sequence[Mapping[str, npt.NDArray[np.uint8]]], *, threads: int = 32, shared: str = ""
) -> list[bytes]:
    """Return the bytes of `out` after a run of one block on bit patterns, for each content of the two buffers."""
    module = ARCH.parse(text(body, threads=threads, shared=shared), "k.ptx")
    arguments = (Argument(kind="buffer", buffer="out"), Argument(kind="buffer", buffer="in"))
    launch = Launch(file="k.ptx", entry="k", grid=(1, 1, 1), block=(threads, 1, 1), args=arguments)
    return [bytes(each.after["out"]) for each in simulate_batch(prepare_launch(module, ARCH, launch), contents)]


def known(memory: GlobalMemory) -> dict[int, tuple[int, int]]:
    """Return a map from offsets in the first buffer to the width in bits and the final constant; others are omitted."""
    found: dict[int, tuple[int, int]] = {}
    for access in memory.stores.get(1, ()):
        assert access.value is not None
        shape = (1, access.address.size)
        words = np.broadcast_to(access.value.words, (2, *shape))[0, 0]
        where = L.constant_mask(access.value)
        mask = np.broadcast_to(where, shape)[0]
        for place, word, good in zip(access.address, words, mask, strict=True):
            offset = int(place) & ((1 << POINTER_SHIFT) - 1)
            if good:
                found[offset] = (access.bits, int(word))
            else:
                found.pop(offset, None)
    return found


def stored(
    body: str, *, bits: int = 32, threads: int = 32, blocks: int = 1, before: str = "", shared: str = ""
) -> list[int]:
    """Return the constant that each thread stores at its element of the first buffer."""
    found = known(run(body, threads=threads, blocks=blocks, before=before, shared=shared)[0])
    size = bits // 8
    return [found[index * size][1] for index in range(threads * blocks)]


def store(register: str, bits: int, slot: int = 0, count: int = 1) -> str:
    """Return instructions that store a register at element thread * count + slot of the first buffer."""
    size = bits // 8
    return (
        f"mul.lo.u32 %r80, %r0, {size * count}; cvt.u64.u32 %d80, %r80; add.s64 %d80, %d0, %d80; "
        f"st.global.b{bits} [%d80+{slot * size}], {register};"
    )


def table(values: Sequence[int], bits: int, register: str, predicate: str = "%p30") -> str:
    """Return instructions that set a register to values[thread]."""
    kind = f"b{bits}"
    lines = [f"mov.{kind} {register}, {values[0]};"]
    for index, value in enumerate(values[1:], start=1):
        lines.append(f"setp.eq.u32 {predicate}, %r0, {index}; @{predicate} mov.{kind} {register}, {value};")
    return "\n".join(lines)
