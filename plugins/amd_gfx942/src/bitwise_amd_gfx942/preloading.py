"""Arguments that are in scalar registers when a kernel starts.

Firmware that puts them there enters the kernel 256 bytes behind its beginning, other firmware at its beginning, where
instructions load the same words and branch over what is left of the 256 bytes.  Both must come to the same: what the
beginning loads is held against the descriptor.

Source: LLVM's AMDGPU usage guide, "Preloaded kernel arguments".
"""

from __future__ import annotations

from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Immediate, Kernel, Operand, Register, Symbol, Vector
from bitwise_core.execution.domains.domain import Unsupported

_WORD = 4


def check_preloaded(kernel: Kernel, base: str, preloaded: dict[str, int]) -> None:
    """Holds the beginning of a kernel against the words of its arguments that registers hold when it starts.

    `base` is the first register of the pair that points to the arguments.  Raises Unsupported where they differ.
    """
    loaded: dict[str, int] = {}
    for index, each in enumerate(kernel.instructions):
        name = form(each.opcode).name
        if name.startswith("s_load_dword") and len(each.operands) == 3 and not form(each.opcode).modifiers:
            target, place, offset = each.operands
            if _first(place) == base and isinstance(offset, Immediate) and offset.value % _WORD == 0:
                loaded |= {register: offset.value // _WORD + k for k, register in enumerate(_names(target))}
                continue
        elif name in ("s_waitcnt", "s_nop"):
            continue
        elif name == "s_branch" and loaded == preloaded:
            label = each.operands[0]
            if isinstance(label, Symbol) and kernel.labels.get(label.name) == index + 1:
                return
        break
    raise Unsupported("a kernel whose arguments are preloaded does not begin by loading the same ones")


def _names(operand: Operand) -> list[str]:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    return [each.name for each in items if isinstance(each, Register)]


def _first(operand: Operand) -> str:
    return next(iter(_names(operand)), "")
