"""Preloaded kernel arguments: arguments that are in scalar registers when a kernel starts.

Firmware that supports preloading enters the kernel 256 bytes after its first instruction.  Other firmware enters at the
first instruction, where a prologue loads the same words and branches over the rest of the 256 bytes.  Both entries must
give the same registers: the loads of the prologue are compared with the descriptor.

Source: LLVM's AMDGPU usage guide, "Preloaded kernel arguments".
"""

from __future__ import annotations

from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Immediate, Kernel, Operand, Register, Symbol, Vector
from bitwise_core.execution.domains.domain import Unsupported

_WORD = 4


def check_kernarg_preload(kernel: Kernel, base: str, preloaded: dict[str, int]) -> None:
    """Check that the kernel's prologue loads the argument words that preloading puts into registers.

    `base` is the first register of the pair that points to the kernarg segment; `preloaded` maps a register to the
    index of its 32-bit word in the segment.  Raises Unsupported where they differ.
    """
    loaded: dict[str, int] = {}
    for index, each in enumerate(kernel.instructions):
        name = form(each.opcode).name
        if name.startswith("s_load_dword") and len(each.operands) == 3 and not form(each.opcode).modifiers:
            target, address, offset = each.operands
            if _first_register(address) == base and isinstance(offset, Immediate) and offset.value % _WORD == 0:
                loaded |= {register: offset.value // _WORD + k for k, register in enumerate(_register_names(target))}
                continue
        elif name in ("s_waitcnt", "s_nop"):
            continue
        elif name == "s_branch" and loaded == preloaded:
            label = each.operands[0]
            if isinstance(label, Symbol) and kernel.labels.get(label.name) == index + 1:
                return
        break
    raise Unsupported("the prologue of a kernel with preloaded arguments does not load the same arguments")


def _register_names(operand: Operand) -> list[str]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return [each.name for each in items if isinstance(each, Register)]


def _first_register(operand: Operand) -> str:
    return next(iter(_register_names(operand)), "")
