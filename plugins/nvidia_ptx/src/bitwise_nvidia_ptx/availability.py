"""The first architecture that has an instruction, for the instructions that the opcode tables model.

Source: PTX ISA 8.7, the "Target ISA Notes" of each instruction.  The assembler rejects a text in which an instruction
is newer than the target.  Its semantics are then those of no machine, so the kernel is Unknown.
"""

from __future__ import annotations

import re
from functools import lru_cache

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.machine import Step
from bitwise_nvidia_ptx.addresses.arrays import storing_addresses
from bitwise_nvidia_ptx.addresses.numbers import reading_addresses
from bitwise_nvidia_ptx.addresses.stored import keeping_addresses
from bitwise_nvidia_ptx.assembler_choices.merges import unless_merged, unless_selected
from bitwise_nvidia_ptx.assembler_choices.open_sums import is_open, of_its_text, unmarked
from bitwise_nvidia_ptx.assembler_choices.selection_merges import is_guarded_move

SINCE: tuple[tuple[int, re.Pattern[str]], ...] = tuple(
    (capability, re.compile(pattern))
    for capability, pattern in (
        (86, r"(min|max)\..*xorsign"),
        (89, r".*\.(e4m3|e5m2)(x2)?\b"),
        (90, r"(stmatrix|mapa|getctarank|elect|griddepcontrol|setmaxnreg|multimem|tensormap|wgmma)\b"),
        (90, r"(cp|cp\.reduce)\.async\.bulk"),
        (90, r"(fence|membar)\.proxy\.(async|tensormap)|fence\.mbarrier_init|prefetch\.tensormap|(st|red)\.async"),
        (90, r"barrier\.cluster|.*\.shared::cluster\b|.*\.cluster(\.|$)"),
        (90, r"mbarrier\.(try_wait|expect_tx|complete_tx|arrive(_drop)?\.expect_tx)"),
        (90, r"(add|sub|mul|set|setp|ex2|tanh|atom|red)\..*bf16"),
        (90, r"cvt\.(?!.*\bbf16x2\b).*\bbf16\.(?!f32\b)|cvt\.(.*\.)?(?!f32\b)\w+\.bf16$"),
        (90, r"(add|min|max)\..*[us]16x2$|(min|max)\.relu\.s32$|cvt\.r[nz](\.\w+)*\.tf32\.f32$"),
        (100, r"cvt\.r[nz]\..*satfinite\..*tf32\.f32$"),
        (100, r"(add|sub|mul|fma)\..*f32x2$|(add|sub|fma)\..*f32\.b?f16$"),
        (100, r"cp\.async\.bulk\.tensor\..*tile::(gather4|scatter4)"),
        (100, r"redux\..*\.f32$|.*\.(e2m1|e2m3|e3m2|ue8m0|ue4m3)(x[24])?\b"),
        (120, r"mma\..*\.(kind::|block_scale|e2m1|e2m3|e3m2)"),
    )
)
"""The least compute capability of the opcodes that a pattern matches from their first letter, after sm_80; the
largest match counts."""


@lru_cache(maxsize=4096)
def least_capability(opcode: str) -> int:
    """Return the least compute capability (80 for sm_80) that has an opcode, as far as `SINCE` lists it; else 0."""
    return max((capability for capability, pattern in SINCE if pattern.match(opcode)), default=0)


class AvailableTable(OpcodeTable):
    """An opcode table that rejects instructions which the architecture does not have.

    What an instruction computes from the address of a buffer as a number is undetermined (`addresses.numbers`), also
    from a word of one that the kernel has stored (`addresses.stored`).  The address of an array that it stores is a
    number of its program alone (`addresses.arrays`), and so is the result of an instruction that the assembler may
    merge with others (`assembler_choices.merges`), or into which it may fuse a product, which no assembly shows
    (`assembler_choices.open_sums`).
    """

    def build(self, instruction: Instruction, context: Context) -> Step:
        """See `OpcodeTable.build`.  Raises UnknownInstruction for an instruction of later architectures."""
        if is_open(instruction):
            return of_its_text(self.build(unmarked(instruction), context), instruction, context)
        needed = least_capability(instruction.opcode)
        if needed > int(context.arch.name.removeprefix("sm_")):
            raise UnknownInstruction(instruction, f"needs sm_{needed} or later, and this is {context.arch.name}")
        step = super().build(instruction, context)
        if not is_guarded_move(instruction):
            step = unless_merged(step, instruction, context)
        step = storing_addresses(step, instruction, context)
        step = keeping_addresses(step, instruction, context.kernel, self)
        return reading_addresses(step, instruction, context.kernel, self)

    def with_guard(self, step: Step, instruction: Instruction, context: Context) -> Step:
        """See `OpcodeTable.with_guard`: for the assembler, a move under a guard selects in every lane."""
        return unless_selected(step, instruction, context)
