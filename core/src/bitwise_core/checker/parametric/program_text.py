"""The canonical text of a kernel, without names, comments and debug information.

Two kernels with the same canonical text are the same program, so they return the same bits for every launch, provided
that the result of the program is determined.  Instructions whose result depends on the order of threads, and
instructions that the architecture does not model, are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

from bitwise_core.assembly.module import (
    Immediate,
    Instruction,
    Kernel,
    Modified,
    Module,
    Negated,
    Operand,
    Paired,
    Register,
    SharedArray,
    Symbol,
    Vector,
    parts,
    registers_of,
    symbols_of,
)
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.clusters import Extents
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.program import Program, build


def text_signature(module: Module, kernel: Kernel, arch: Arch, cluster: tuple[int, int, int] | None = None) -> bytes:
    """16 bytes, equal for two kernels exactly when they are the same program up to names.

    `cluster` is the shape of the clusters of their launches, which must agree for programs that depend on it.  Raises
    Unsupported, also where `check_program` does.
    """
    check_program(module, kernel, arch)
    digest = blake2b(digest_size=16)
    clusters = [f"clusters of {cluster}"] if registers_of_clusters(module, kernel, arch) else []
    for part in (*_text_parts(module, kernel, arch), *clusters):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "little"))
        digest.update(encoded)
    return digest.digest()


def check_program(module: Module, kernel: Kernel, arch: Arch) -> None:
    """Check that the architecture models the kernel and its functions, without instructions that depend on an order.

    Raises Unsupported.
    """
    if arch.every_launch is None:
        raise Unsupported(f"kernels of {arch.name} have no launch-parametric analysis")
    if kernel.threads is None:
        raise Unsupported(
            f"the text of {kernel.name} does not state the number of threads in a block, which the launch-parametric "
            "analysis requires",
            kernel.line,
        )
    program = build(module, kernel, arch)
    _check_body(program, arch)
    for name in _reachable(module, kernel):
        _check_body(program.functions.get(name) or build(module, module.functions[name], arch), arch)


def _text_parts(module: Module, kernel: Kernel, arch: Arch) -> Iterator[str]:
    yield f"{arch.name} {kernel.threads} {sorted((k, v) for k, v in kernel.attributes.items())}"
    names: dict[str, str] = {}
    used: set[str] = set()
    if module.constants or module.globals:
        used.update(
            name
            for each in _all_instructions(module, kernel)
            for operand in each.operands
            for name in symbols_of(operand)
        )
    for space, group in (("shared", module.shared), ("constant", module.constants), ("global", module.globals)):
        for array in group:
            if array.name in used or space == "shared":
                yield _array(space, array, names)
    functions = _reachable(module, kernel)
    for name in functions:
        names.setdefault(name, f"function {len(names)}")
    program = build(module, kernel, arch)
    yield from _body(program, dict(names))
    for name in functions:
        called = program.functions.get(name) or build(module, module.functions[name], arch)
        yield from _body(called, dict(names))


def registers_of_clusters(module: Module, kernel: Kernel, arch: Arch) -> frozenset[str]:
    """The special registers that depend on the clusters of the launch and that a kernel or its functions read."""
    support = arch.every_launch
    if support is None or support.cluster_registers is None:
        return frozenset()
    read = {
        name
        for each in _all_instructions(module, kernel)
        for name in (*registers_of(*each.operands), *(() if each.guard is None else (each.guard.register,)))
    }
    return support.cluster_registers.names & read


def has_shared_memory(module: Module, kernel: Kernel) -> bool:
    """Whether a kernel or its functions have arrays in shared memory."""
    called = (module.functions[name].shared for name in _reachable(module, kernel))
    return any((module.shared, kernel.shared, *called))


def holds_ranks(module: Module, kernel: Kernel, shape: Extents | None) -> bool:
    """Whether the addresses of a kernel hold the ranks of blocks: shared addresses in clusters of several blocks do."""
    return shape is not None and shape != (1, 1, 1) and has_shared_memory(module, kernel)


def _array(space: str, array: SharedArray, names: dict[str, str]) -> str:
    names[array.name] = f"{space} {len(names)}"
    return f"{names[array.name]} {array.size} {array.align} {array.data!r}"


def _all_instructions(module: Module, kernel: Kernel) -> Iterator[Instruction]:
    yield from kernel.instructions
    for name in _reachable(module, kernel):
        yield from module.functions[name].instructions


def _reachable(module: Module, kernel: Kernel) -> list[str]:
    """The device functions that a kernel may call, in the order of their first use."""
    found: list[str] = []
    stack = [kernel] if module.functions else []
    while stack:
        for instruction in stack.pop().instructions:
            for part in (each for operand in instruction.operands for each in parts(operand)):
                if isinstance(part, Symbol) and part.name in module.functions and part.name not in found:
                    found.append(part.name)
                    stack.append(module.functions[part.name])
    return found


def _body(program: Program, names: dict[str, str]) -> Iterator[str]:
    kernel = program.kernel
    for index, parameter in enumerate((*kernel.parameters, *kernel.returns)):
        names[parameter.name] = f"parameter {index}"
        yield f"parameter {index} {parameter.size}"
    for array in (*kernel.shared, *kernel.local):
        yield _array("own", array, names)
    positions = sorted(set(kernel.labels.values()))
    for label, position in kernel.labels.items():
        names[label] = f"label {positions.index(position)}"
    label_positions = set(positions)
    formatter = _Formatter(kernel, names)
    yield f"entry {kernel.entry} {len(kernel.instructions)}"
    for index, instruction in enumerate(kernel.instructions):
        if index in label_positions:
            yield f"label {positions.index(index)}:"
        yield formatter.instruction(instruction)


def _check_body(program: Program, arch: Arch) -> None:
    """Raise Unsupported for instructions that `_check_instruction` rejects, and registers that no launch fixes."""
    assert arch.every_launch is not None
    kernel, checked = program.kernel, set[str]()
    for index, instruction in enumerate(kernel.instructions):
        _check_instruction(index, program, arch)
        new = registers_of(*instruction.operands) - checked - {"_"}
        if instruction.guard is not None and instruction.guard.register not in checked:
            new.add(instruction.guard.register)
        open_ones = [each for each in new if _declared_bits(kernel, each) is None and not arch.every_launch.fixed(each)]
        if open_ones:
            raise Unsupported(f"the special register {min(open_ones)} is not fixed by a launch", instruction.line)
        checked |= new


def _declared_bits(kernel: Kernel, name: str) -> int | None:
    """The declared width of a register; None for a special register."""
    return kernel.registers.get(name, kernel.registers.get(name.rstrip("0123456789")))


def _check_instruction(index: int, program: Program, arch: Arch) -> None:
    """Raise Unsupported where an instruction is not modelled or its result may not be determined."""
    line, info = program.kernel.instructions[index].line, program.infos[index]
    if index in program.refused:
        raise Unsupported(program.refused[index], line)
    if info.nondeterministic_result is not None and _result_is_used(index, program, arch):
        raise Unsupported(info.nondeterministic_result, line)
    if info.nondeterminism is not None:
        raise Unsupported(info.nondeterminism, line)
    if info.effects.overlaps(Effect.CLUSTER):
        reason = "blocks of a cluster depend on each other, and races between them are detected for a given launch only"
        raise Unsupported(reason, line)


def _result_is_used(index: int, program: Program, arch: Arch) -> bool:
    """Whether an instruction reads a register that this one writes.  A value that nothing reads has no effect."""
    writes = program.infos[index].writes
    # A guarded instruction reads the registers that it may leave unchanged, which is not a use of its result.
    unguarded = arch.opcodes.info(replace(program.kernel.instructions[index], guard=None))
    others = (info for position, info in enumerate(program.infos) if position != index)
    return not writes.isdisjoint(unguarded.reads) or any(not writes.isdisjoint(each.reads) for each in others)


class _Formatter:
    """Formats instructions with registers numbered in the order of their first use."""

    def __init__(self, kernel: Kernel, names: dict[str, str]) -> None:
        self.kernel, self.names = kernel, names
        self.registers: dict[str, str] = {}

    def register(self, name: str) -> str:
        """The number and width of a register, or the name of a special register."""
        found = "_" if name == "_" else self.registers.get(name)
        if found is None:
            bits = _declared_bits(self.kernel, name)
            found = self.registers[name] = name if bits is None else f"r{len(self.registers)} b{bits}"
        return found

    def instruction(self, instruction: Instruction) -> str:
        """One instruction as a line of text."""
        guard = instruction.guard
        guard_text = "" if guard is None else f"@{'!' if guard.negated else ''}{self.register(guard.register)} "
        return guard_text + instruction.opcode + " " + ", ".join(self.operand(each) for each in instruction.operands)

    def operand(self, operand: Operand) -> str:
        """One operand; names become numbers."""
        if isinstance(operand, Register):
            return self.register(operand.name)
        if isinstance(operand, Immediate):
            return f"{operand.kind} {operand.value}"
        if isinstance(operand, Symbol):
            return "_" if operand.name == "_" else self.names.get(operand.name, f"name {operand.name}")
        if isinstance(operand, Vector):
            return "{" + ", ".join(self.operand(item) for item in operand.items) + "}"
        if isinstance(operand, Negated):
            return "!" + self.register(operand.operand.name)
        if isinstance(operand, Paired):
            return f"{self.operand(operand.first)}|{self.operand(operand.second)}"
        if isinstance(operand, Modified):
            return f"{' '.join(operand.changes)}({self.operand(operand.operand)})"
        base = "absolute" if operand.base is None else self.operand(operand.base)
        return f"[{base} + {operand.offset}" + "".join(f", {self.operand(item)}" for item in operand.extra) + "]"
