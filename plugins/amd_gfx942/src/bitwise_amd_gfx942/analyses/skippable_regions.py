"""Regions with no effect when the execution mask is empty: executing one is equivalent to branching around it.

Compilers branch around a region when no lane of a wave executes it (`s_cbranch_execz`), or to it when some lane does
(`s_cbranch_execnz`).  Where the execution mask depends on data, the region is executed under that mask instead of
branching.  This is equivalent if, with an empty mask, the region only writes scalar registers that are dead at its
exit, and the mask is still empty there.  The region may also end at a copy of the code at the branch's other target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitwise_amd_gfx942.analyses.control_flow import CONDITION_CODE, successors
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Instruction, Kernel, Operand, Register, Vector, once_a_kernel, registers_of
from bitwise_core.execution.architecture import Context, OpcodeTable, infos_of
from bitwise_core.execution.instruction_info import InstructionInfo

_ACTS_WITHOUT_LANES = (
    "s_barrier", "s_endpgm", "s_set", "s_swappc", "s_trap", "s_sendmsg", "v_writelane", "v_mfma", "v_smfmac",
    "s_getreg", "s_store", "s_atomic",
)  # fmt: skip
"""Opcodes that have an effect with an empty execution mask, other than scalar instructions that write registers."""

_EXEC = {"exec_lo", "exec_hi"}
_VCC = Vector((Register("vcc_lo"), Register("vcc_hi")))


def _is_scalar(name: str) -> bool:
    """Whether a register is scalar and not the execution mask."""
    return not (name[0] in "va" and name[1:].isdigit()) and name not in _EXEC


class LiveScalars:
    """Liveness of the scalar registers of a kernel, as bit sets in `before` by instruction index."""

    def __init__(self, kernel: Kernel, opcodes: OpcodeTable) -> None:
        self.kernel = kernel
        self.numbers: dict[str, int] = {}
        reads, writes = zip(
            *(self._uses(*each) for each in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True)),
            strict=True,
        )
        count = len(kernel.instructions)
        self.before = [0] * (count + 1)
        following = successors(kernel, opcodes)
        changed = True
        while changed:
            changed = False
            for index in range(count - 1, -1, -1):
                after = 0
                for each in following[index]:
                    after |= self.before[each]
                entering = reads[index] | (after & ~writes[index])
                if entering != self.before[index]:
                    self.before[index], changed = entering, True

    def _bit(self, name: str) -> int:
        """The bit of a register in the bit sets."""
        return 1 << self.numbers.setdefault(name, len(self.numbers))

    def _uses(self, instruction: Instruction, info: InstructionInfo) -> tuple[int, int]:
        """The bit sets of scalar registers that an instruction reads and of those that it overwrites completely."""
        name = form(instruction.opcode).name
        read = set(info.reads - CONDITION_CODE)
        if not info.reads.isdisjoint(CONDITION_CODE):
            read.add("scc")
        if name in ("s_setpc_b64", "s_swappc_b64"):
            read |= set(self.numbers)
        reads = sum(self._bit(each) for each in read if _is_scalar(each))
        writes = sum(self._bit(each) for each in info.writes if _is_scalar(each))
        return reads, writes

    def live(self, names: set[str], index: int) -> bool:
        """Whether one of these registers is live before the instruction at `index`."""
        return any(self.before[index] & self._bit(each) for each in names)


@once_a_kernel
def live_scalars(kernel: Kernel, opcodes: OpcodeTable) -> LiveScalars:
    """The liveness of a kernel's scalar registers."""
    return LiveScalars(kernel, opcodes)


@dataclass(frozen=True, slots=True)
class RegionExit:
    """The exit of a region for a wave with an empty mask: the instruction at which both paths join.

    `clobbered` holds the scalar registers that are live there and differ between the paths.
    """

    join: int
    clobbered: frozenset[str]


def skippable_region_exit(context: Context, branch: int, run: int, skip: int) -> RegionExit | None:
    """The exit of the region that starts at the instruction `run` and that a branch at `branch` skips to `skip`.

    The exit is the first instruction on the path from `run` whose continuation is the same as that of `skip`.  A wave
    with an empty mask may take either path: the results are the same, except for the clobbered scalar registers of
    the exit.  None where that is not proved.
    """
    kernel, opcodes = context.kernel, context.arch.opcodes
    infos = infos_of(kernel, opcodes)
    empty = _EmptyMasks(successors(kernel, opcodes))
    changed: set[str] = set()
    visited = {branch}
    index = run
    while not same_continuation(kernel, successors(kernel, opcodes), index, skip):
        if index in visited or index >= len(kernel.instructions):
            return None
        visited.add(index)
        instruction = kernel.instructions[index]
        name = form(instruction.opcode).name
        if name.startswith(("s_branch", "s_cbranch")):
            target = empty.target_of(index, name)
            if target is None:
                return None
            index = target
            continue
        if not empty.update(instruction, infos[index], name):
            return None
        changed |= {each for each in infos[index].writes if _is_scalar(each)}
        index += 1
    if not _always_reaches(kernel, successors(kernel, opcodes), branch, run, index):
        return None
    scalars = live_scalars(kernel, opcodes)
    return RegionExit(index, frozenset(each for each in changed if scalars.live({each}, index)))


def _always_reaches(kernel: Kernel, following: Sequence[tuple[int, ...]], branch: int, run: int, join: int) -> bool:
    """Whether all paths from `run` reach `join` without passing `branch` or an opcode of `_ACTS_WITHOUT_LANES`."""
    seen, work = {join}, [run]
    while work:
        index = work.pop()
        if index in seen:
            continue
        seen.add(index)
        if index == branch or index >= len(following) or not following[index]:
            return False
        if form(kernel.instructions[index].opcode).name.startswith(_ACTS_WITHOUT_LANES):
            return False
        work += following[index]
    return True


_MAX_COMPARED = 32
"""The maximum number of instruction pairs that `same_continuation` compares."""


def same_continuation(kernel: Kernel, following: Sequence[tuple[int, ...]], left: int, right: int) -> bool:
    """Whether execution from two instructions is the same: compilers duplicate the tail of a block."""
    instructions = kernel.instructions
    assumed: set[tuple[int, int]] = set()
    work = [(left, right)]
    while work:
        one, other = (_first_effective(kernel, following, each) for each in work.pop())
        if one == other or (one, other) in assumed:
            continue
        if len(assumed) >= _MAX_COMPARED or max(one, other) >= len(instructions):
            return False
        assumed.add((one, other))
        first, second = instructions[one], instructions[other]
        names = form(first.opcode).name, form(second.opcode).name
        if names[0].startswith("s_cbranch"):
            kinds = [_INVERTED_BRANCHES.get(each, (each, False)) for each in names]
            if kinds[0][0] != kinds[1][0]:
                return False
            targets = [
                following[each][::-1] if swapped else following[each]
                for each, (_, swapped) in zip((one, other), kinds, strict=True)
            ]
            work += list(zip(*targets, strict=True))
        elif (
            first.opcode != second.opcode
            or first.operands != second.operands
            or names[0] in ("s_getpc_b64", "s_swappc_b64")
        ):
            return False
        else:
            work += list(zip(following[one], following[other], strict=True))
    return True


_INVERTED_BRANCHES = {
    "s_cbranch_execnz": ("s_cbranch_execz", True),
    "s_cbranch_vccnz": ("s_cbranch_vccz", True),
    "s_cbranch_scc0": ("s_cbranch_scc1", True),
}
"""Branches as the branch on the opposite condition, whose successors are swapped."""


def _first_effective(kernel: Kernel, following: Sequence[tuple[int, ...]], index: int) -> int:
    """The first instruction from `index` that is not s_branch, s_nop or s_waitcnt."""
    visited = set()
    while index < len(kernel.instructions) and index not in visited:
        name = form(kernel.instructions[index].opcode).name
        if name not in ("s_branch", "s_nop", "s_waitcnt"):
            break
        visited.add(index)
        (index,) = following[index]
    return index


class _EmptyMasks:
    """The register pairs that hold an empty lane mask, given that the execution mask is empty at the start."""

    def __init__(self, following: Sequence[tuple[int, ...]]) -> None:
        self.following = following
        self.empty_pairs: set[Operand] = set()

    def _is_empty(self, operand: Operand) -> bool:
        return _is_exec(operand) or operand in self.empty_pairs

    def target_of(self, index: int, name: str) -> int | None:
        """The successor of a branch for a wave with an empty mask; None where it is unknown."""
        following = self.following[index]
        if name == "s_branch":
            return following[0]
        if name.startswith("s_cbranch_vcc") and not self._is_empty(_VCC):
            return None
        if name.startswith(("s_cbranch_vcc", "s_cbranch_exec")):
            return following[1] if name.endswith("nz") else following[0]
        return None

    def update(self, instruction: Instruction, info: InstructionInfo, name: str) -> bool:
        """Update the pairs for an instruction; return False where the execution mask may be non-empty after it."""
        operands = instruction.operands
        result = self._result_is_empty(operands, name)
        target = operands[0] if operands else None
        if "saveexec" in name:
            after = self._is_empty(operands[1]) or name.startswith(("s_and_save", "s_andn1_save"))
            self._forget(info)
            self.empty_pairs.add(operands[0])
            return after
        if target is not None and _is_exec(target):
            return result
        if name.startswith("v_cmpx"):
            return False
        self._forget(info)
        if result and isinstance(target, Vector):
            self.empty_pairs.add(target)
        return True

    def _result_is_empty(self, operands: tuple[Operand, ...], name: str) -> bool:
        if name.startswith("v_cmp_"):
            return True
        if name == "s_mov_b64":
            return self._is_empty(operands[1])
        if name == "s_and_b64":
            return self._is_empty(operands[1]) or self._is_empty(operands[2])
        if name == "s_andn2_b64":
            return self._is_empty(operands[1])
        return name in ("s_or_b64", "s_xor_b64") and self._is_empty(operands[1]) and self._is_empty(operands[2])

    def _forget(self, info: InstructionInfo) -> None:
        self.empty_pairs = {each for each in self.empty_pairs if not registers_of(each) & info.writes}


def _is_exec(operand: Operand) -> bool:
    return isinstance(operand, Vector) and operand.items[0] == Register("exec_lo")
