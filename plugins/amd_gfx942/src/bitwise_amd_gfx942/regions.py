"""Parts of a kernel that a wave may run though it would be skipped: nothing is left of them where no lane runs.

Compilers branch around code when no lane of a wave runs it (`s_cbranch_execz`), or to it when some lane does.  Where
the execution mask depends on data, the code is read with that mask instead, which comes to the same if the code does
nothing while no lane runs but write scalar registers that nobody reads afterwards, and if the mask is then still
empty.  The code may end before a copy of what it would have skipped to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitwise_amd_gfx942.flow import CONDITION_CODE, successors
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Instruction, Kernel, Operand, Register, Vector, once_a_kernel, registers_of
from bitwise_core.execution.architecture import Context, OpcodeTable, infos_of
from bitwise_core.execution.instruction_info import InstructionInfo

_ACTS_ALONE = (
    "s_barrier", "s_endpgm", "s_set", "s_swappc", "s_trap", "s_sendmsg", "v_writelane", "v_mfma", "v_smfmac",
    "s_getreg", "s_store", "s_atomic",
)  # fmt: skip
"""What acts though no lane runs, beside scalar instructions that write registers."""

_EXEC = {"exec_lo", "exec_hi"}
_VCC = Vector((Register("vcc_lo"), Register("vcc_hi")))


def _is_scalar(name: str) -> bool:
    return not (name[0] in "va" and name[1:].isdigit()) and name not in _EXEC


class Scalars:
    """Which scalar registers of a kernel are read again after each instruction."""

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
        return 1 << self.numbers.setdefault(name, len(self.numbers))

    def _uses(self, instruction: Instruction, info: InstructionInfo) -> tuple[int, int]:
        """The scalar registers that an instruction reads, and those that it writes whole."""
        name = form(instruction.opcode).name
        read = set(info.reads - CONDITION_CODE)
        if not info.reads.isdisjoint(CONDITION_CODE):
            read.add("scc")
        if name in ("s_setpc_b64", "s_swappc_b64"):
            read |= set(self.numbers)
        reads = sum(self._bit(each) for each in read if _is_scalar(each))
        writes = sum(self._bit(each) for each in info.writes if _is_scalar(each))
        return reads, writes

    def live(self, names: set[str], place: int) -> bool:
        """Whether one of these registers is read from an instruction on before it is written."""
        return any(self.before[place] & self._bit(each) for each in names)


@once_a_kernel
def scalars_of(kernel: Kernel, opcodes: OpcodeTable) -> Scalars:
    """Which scalar registers are read again."""
    return Scalars(kernel, opcodes)


@dataclass(frozen=True, slots=True)
class Passage:
    """Where a wave without lanes comes to, and the scalar registers that tell which way it came and are read later."""

    meeting: int
    lost: frozenset[str]


def passage(context: Context, branch: int, run: int, skip: int) -> Passage | None:
    """What lies between the instruction `run` and the place that does what is done from `skip` on.

    A wave in which no lane runs may go from the branch to either: all is the same in the end, but for the scalar
    registers named.  None where that cannot be told.
    """
    kernel, opcodes = context.kernel, context.arch.opcodes
    infos = infos_of(kernel, opcodes)
    empty = _Empty(successors(kernel, opcodes))
    changed: set[str] = set()
    passed = {branch}
    index = run
    while not alike(kernel, successors(kernel, opcodes), index, skip):
        if index in passed or index >= len(kernel.instructions):
            return None
        passed.add(index)
        instruction = kernel.instructions[index]
        name = form(instruction.opcode).name
        if name.startswith(("s_branch", "s_cbranch")):
            to = empty.goes_to(index, name)
            if to is None:
                return None
            index = to
            continue
        if not empty.follows(instruction, infos[index], name):
            return None
        changed |= {each for each in infos[index].writes if _is_scalar(each)}
        index += 1
    if not _stays(kernel, successors(kernel, opcodes), branch, run, index):
        return None
    scalars = scalars_of(kernel, opcodes)
    return Passage(index, frozenset(each for each in changed if scalars.live({each}, index)))


def _stays(kernel: Kernel, following: Sequence[tuple[int, ...]], branch: int, run: int, meeting: int) -> bool:
    """Whether every way on from `run` comes to `meeting`, not by the branch, and nothing there acts without lanes."""
    seen, work = {meeting}, [run]
    while work:
        index = work.pop()
        if index in seen:
            continue
        seen.add(index)
        if index == branch or index >= len(following) or not following[index]:
            return False
        if form(kernel.instructions[index].opcode).name.startswith(_ACTS_ALONE):
            return False
        work += following[index]
    return True


_FOLLOWED = 32
"""So many instructions of two places are compared at most."""


def alike(kernel: Kernel, following: Sequence[tuple[int, ...]], left: int, right: int) -> bool:
    """Whether what is done from two instructions on is the same: compilers lay out the end of a block twice."""
    instructions = kernel.instructions
    assumed: set[tuple[int, int]] = set()
    work = [(left, right)]
    while work:
        one, other = (_first(kernel, following, each) for each in work.pop())
        if one == other or (one, other) in assumed:
            continue
        if len(assumed) >= _FOLLOWED or max(one, other) >= len(instructions):
            return False
        assumed.add((one, other))
        first, second = instructions[one], instructions[other]
        names = form(first.opcode).name, form(second.opcode).name
        if names[0].startswith("s_cbranch"):
            kinds = [_OPPOSITES.get(each, (each, False)) for each in names]
            if kinds[0][0] != kinds[1][0]:
                return False
            ways = [
                following[each][::-1] if turned else following[each]
                for each, (_, turned) in zip((one, other), kinds, strict=True)
            ]
            work += list(zip(*ways, strict=True))
        elif (
            first.opcode != second.opcode
            or first.operands != second.operands
            or names[0] in ("s_getpc_b64", "s_swappc_b64")
        ):
            return False
        else:
            work += list(zip(following[one], following[other], strict=True))
    return True


_OPPOSITES = {
    "s_cbranch_execnz": ("s_cbranch_execz", True),
    "s_cbranch_vccnz": ("s_cbranch_vccz", True),
    "s_cbranch_scc0": ("s_cbranch_scc1", True),
}
"""Branches as others that go the other way."""


def _first(kernel: Kernel, following: Sequence[tuple[int, ...]], index: int) -> int:
    """The first instruction from one on that does something: no plain branch, no pause, no wait."""
    passed = set()
    while index < len(kernel.instructions) and index not in passed:
        name = form(kernel.instructions[index].opcode).name
        if name not in ("s_branch", "s_nop", "s_waitcnt"):
            break
        passed.add(index)
        (index,) = following[index]
    return index


class _Empty:
    """The pairs of registers that hold no lane where the execution mask is empty at the start."""

    def __init__(self, following: Sequence[tuple[int, ...]]) -> None:
        self.following = following
        self.pairs: set[Operand] = set()

    def _holds(self, operand: Operand) -> bool:
        return _is_exec(operand) or operand in self.pairs

    def goes_to(self, index: int, name: str) -> int | None:
        """Where a wave without lanes goes from a branch; None where that depends on more."""
        following = self.following[index]
        if name == "s_branch":
            return following[0]
        if name.startswith("s_cbranch_vcc") and not self._holds(_VCC):
            return None
        if name.startswith(("s_cbranch_vcc", "s_cbranch_exec")):
            return following[1] if name.endswith("nz") else following[0]
        return None

    def follows(self, instruction: Instruction, info: InstructionInfo, name: str) -> bool:
        """Takes an instruction into account; False where the execution mask may hold a lane after it."""
        operands = instruction.operands
        result = self._result(operands, name)
        target = operands[0] if operands else None
        if "saveexec" in name:
            after = self._holds(operands[1]) or name.startswith(("s_and_save", "s_andn1_save"))
            self._forget(info)
            self.pairs.add(operands[0])
            return after
        if target is not None and _is_exec(target):
            return result
        if name.startswith("v_cmpx"):
            return False
        self._forget(info)
        if result and isinstance(target, Vector):
            self.pairs.add(target)
        return True

    def _result(self, operands: tuple[Operand, ...], name: str) -> bool:
        if name.startswith("v_cmp_"):
            return True
        if name == "s_mov_b64":
            return self._holds(operands[1])
        if name == "s_and_b64":
            return self._holds(operands[1]) or self._holds(operands[2])
        if name == "s_andn2_b64":
            return self._holds(operands[1])
        return name in ("s_or_b64", "s_xor_b64") and self._holds(operands[1]) and self._holds(operands[2])

    def _forget(self, info: InstructionInfo) -> None:
        self.pairs = {each for each in self.pairs if not registers_of(each) & info.writes}


def _is_exec(operand: Operand) -> bool:
    return isinstance(operand, Vector) and operand.items[0] == Register("exec_lo")
