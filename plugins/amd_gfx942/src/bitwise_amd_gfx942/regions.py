"""Parts of a kernel that a wave may run though it would be skipped: nothing is left of them where no lane runs.

Compilers branch around code when no lane of a wave runs it (`s_cbranch_execz`).  Where the execution mask depends on
data, the code is read with that mask instead, which comes to the same if the code does nothing while no lane runs but
write scalar registers that nobody reads afterwards, and if the mask is then still empty.
"""

from __future__ import annotations

from bitwise_amd_gfx942.definitions import results, written
from bitwise_amd_gfx942.flow import reads_condition, successors, writes_condition
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.asm import Instruction, Kernel, Operand, Register, Symbol, Vector, registers_of

_ACTS_ALONE = (
    "s_barrier", "s_endpgm", "s_set", "s_swappc", "s_trap", "s_sendmsg", "v_writelane", "v_mfma", "v_smfmac",
    "s_getreg", "s_store", "s_atomic",
)  # fmt: skip
"""What acts though no lane runs, beside scalar instructions that write registers."""

_EXEC = {"exec_lo", "exec_hi"}


def _is_scalar(name: str) -> bool:
    return not (name[0] in "va" and name[1:].isdigit()) and name not in _EXEC


class Scalars:
    """Which scalar registers of a kernel are read again after each instruction."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.numbers: dict[str, int] = {}
        reads, writes = zip(*(self._uses(each) for each in kernel.instructions), strict=True)
        count = len(kernel.instructions)
        self.before = [0] * (count + 1)
        following = successors(kernel)
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

    def _uses(self, instruction: Instruction) -> tuple[int, int]:
        """The scalar registers that an instruction reads, and those that it writes whole."""
        name = form(instruction.opcode).name
        given = written(instruction)
        read = registers_of(*instruction.operands[results(instruction) :])
        if name.startswith(("s_addk", "s_mulk", "s_cmov", "s_bitset")):
            read |= given
        if name.startswith(("v_div_fmas", "s_cbranch_vcc")):
            read |= {"vcc_lo", "vcc_hi"}
        if name in ("s_setpc_b64", "s_swappc_b64"):
            read |= set(self.numbers)
        reads = sum(self._bit(each) for each in read if _is_scalar(each))
        writes = sum(self._bit(each) for each in given if _is_scalar(each))
        if reads_condition(instruction):
            reads |= self._bit("scc")
        if writes_condition(name):
            writes |= self._bit("scc")
        return reads, writes

    def live(self, names: set[str], place: int) -> bool:
        """Whether one of these registers is read from an instruction on before it is written."""
        return any(self.before[place] & self._bit(each) for each in names)


def passage(kernel: Kernel, branch: int, target: int) -> frozenset[str] | None:
    """The scalar registers that tell whether the instructions from a branch to its target were run or skipped.

    They are read afterwards, as far as can be told; all else is the same where no lane runs.  None where it is not.
    """
    if target <= branch:
        return None
    inside = range(branch + 1, target)
    places = set(kernel.labels.values())
    entered = {each for each in places if branch < each < target}
    for index, instruction in enumerate(kernel.instructions):
        for each in instruction.operands:
            if isinstance(each, Symbol) and each.name in kernel.labels:
                to = kernel.labels[each.name]
                if to in entered and index not in inside:
                    return None
                if index in inside and not branch < to <= target:
                    return None
    changed: set[str] = set()
    empty = _Empty()
    for index in inside:
        instruction = kernel.instructions[index]
        name = form(instruction.opcode).name
        if name.startswith(_ACTS_ALONE) or not empty.follows(instruction, name):
            return None
        changed |= {each for each in written(instruction) if _is_scalar(each)}
        if writes_condition(name):
            changed.add("scc")
    scalars = Scalars(kernel)
    return frozenset(each for each in changed if scalars.live({each}, target))


class _Empty:
    """The pairs of registers that hold no lane where the execution mask is empty at the start."""

    def __init__(self) -> None:
        self.pairs: set[Operand] = set()

    def _holds(self, operand: Operand) -> bool:
        return _is_exec(operand) or operand in self.pairs

    def follows(self, instruction: Instruction, name: str) -> bool:
        """Takes an instruction into account; False where the execution mask may hold a lane after it."""
        operands = instruction.operands
        result = self._result(operands, name)
        target = operands[0] if operands else None
        if "saveexec" in name:
            after = self._holds(operands[1]) or name.startswith(("s_and_save", "s_andn1_save"))
            self._forget(instruction)
            self.pairs.add(operands[0])
            return after
        if target is not None and _is_exec(target):
            return result
        if name.startswith("v_cmpx"):
            return False
        self._forget(instruction)
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

    def _forget(self, instruction: Instruction) -> None:
        gone = written(instruction)
        self.pairs = {each for each in self.pairs if not registers_of(each) & gone}


def _is_exec(operand: Operand) -> bool:
    return isinstance(operand, Vector) and operand.items[0] == Register("exec_lo")
