"""What can be told of a kernel's scalar state before it runs: where the scalar condition code is looked at again."""

from __future__ import annotations

from functools import lru_cache

from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.asm import Immediate, Instruction, Kernel, Register, Symbol, once_a_kernel, registers_of

_READS = frozenset({
    "s_addc_u32", "s_subb_u32", "s_cselect_b32", "s_cselect_b64", "s_cbranch_scc0", "s_cbranch_scc1", "s_cmov_b32",
    "s_cmov_b64", "s_cmovk_i32",
    "s_swappc_b64", "s_setpc_b64",  # what is called, or returned to, may look
})  # fmt: skip
_CONDITION = frozenset({"scc", "src_scc"})
_WRITES_NOTHING = (
    "s_mov", "s_cmov", "s_mul", "s_load", "s_buffer", "s_waitcnt", "s_nop", "s_brev", "s_ff", "s_flbit", "s_bfm",
    "s_sext", "s_bitset", "s_pack", "s_cselect", "s_branch", "s_cbranch", "s_endpgm", "s_barrier", "s_set", "s_get",
    "s_swappc", "s_sleep", "s_sendmsg", "s_store", "s_dcache", "s_icache", "s_wakeup", "s_trap", "s_inst",
)  # fmt: skip


def writes_condition(name: str) -> bool:
    """Whether the mnemonic, without its encoding, sets the scalar condition code."""
    return name.startswith("s_") and not name.startswith(_WRITES_NOTHING)


def reads_condition(instruction: Instruction) -> bool:
    """Whether the instruction looks at the scalar condition code."""
    if form(instruction.opcode).name in _READS:
        return True
    for operand in instruction.operands:
        if type(operand) is Register:
            if operand.name in _CONDITION:
                return True
        elif type(operand) is not Immediate and not registers_of(operand).isdisjoint(_CONDITION):
            return True
    return False


@once_a_kernel
def successors(kernel: Kernel) -> list[tuple[int, ...]]:
    """For each instruction, those that may be run after it; the number after the last one is the kernel's end."""
    return [_successors(kernel, index, each) for index, each in enumerate(kernel.instructions)]


def _successors(kernel: Kernel, index: int, instruction: Instruction) -> tuple[int, ...]:
    if not instruction.opcode.startswith("s_"):
        return (index + 1,)
    name = form(instruction.opcode).name
    if name in ("s_endpgm", "s_trap"):
        return ()
    if name in ("s_setpc_b64", "s_swappc_b64"):
        places = [each.name for each in instruction.operands if isinstance(each, Symbol)]
        return tuple(kernel.labels[each] for each in places if each in kernel.labels)
    if name.startswith(("s_branch", "s_cbranch")):
        target = instruction.operands[0]
        assert isinstance(target, Symbol)
        place = kernel.labels[target.name]
        return (place,) if name == "s_branch" else (place, index + 1)
    return (index + 1,)


@once_a_kernel
def condition_lives_after(kernel: Kernel) -> frozenset[int]:
    """The lines of the instructions after which the scalar condition code may still be looked at."""
    count = len(kernel.instructions)
    reads = [reads_condition(each) for each in kernel.instructions]
    writes = [_writes(each.opcode) for each in kernel.instructions]
    before = [False] * (count + 1)
    after = [False] * count
    following = successors(kernel)
    changed = True
    while changed:
        changed = False
        for index in range(count - 1, -1, -1):
            live = False
            for each in following[index]:
                live = live or before[each]
            entering = reads[index] or (live and not writes[index])
            if live != after[index] or entering != before[index]:
                after[index], before[index], changed = live, entering, True
    return frozenset(each.line for each, live in zip(kernel.instructions, after, strict=True) if live)


@lru_cache(maxsize=1 << 12)
def _writes(opcode: str) -> bool:
    return writes_condition(form(opcode).name)
