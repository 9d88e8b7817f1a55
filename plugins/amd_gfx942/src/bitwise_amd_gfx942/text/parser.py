"""Parses a file into `bitwise_core.assembly.module.Module`: kernels with descriptors and parameters, functions.

s_nop computes nothing and is not kept, except in files that compute addresses relative to an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bitwise_amd_gfx942.text.calls import inline_calls
from bitwise_amd_gfx942.text.descriptor import Argument, parse_arguments, parse_descriptor
from bitwise_amd_gfx942.text.lines import LineError, split_instruction, without_comment
from bitwise_amd_gfx942.text.operands import OperandError, parse_operand
from bitwise_core.assembly.module import (
    AssemblyError,
    Immediate,
    Instruction,
    Kernel,
    Module,
    Operand,
    SourceLine,
    Symbol,
    callers_in_comment,
)

TARGETS = ("gfx942", "gfx950")
_TARGET = re.compile(r'\.amdgcn_target\s+"[^"]*-(gfx\w+)((?::[\w+-]+)*)"')
_LABEL = re.compile(r'("[^"]+"|[.$\w]+):(.*)')
_LOCATION = re.compile(r"\.loc\s+(\d{1,9})\s+(\d{1,9})(?:\s+(\d{1,9}))?(?:\s.*)?")
LONGEST_LINE = 4096
"""The part of a line directive in which callers are looked for, in characters."""
_FILE = re.compile(r'\.file\s+(\d{1,9})\s+"([^"]*)"(?:\s+"([^"]*)")?.*')
_BODY_DIRECTIVES = re.compile(
    r"\.(?:cfi_\w+(?:\s.*)?|p2align\s+\d+(?:\s*,\s*,\s*\d+)?|(?:globl|weak|hidden|protected|local|ident)(?:\s.*)?)"
)
"""The directives that may be inside a function, other than those that are parsed: they emit no code except s_nop.

`.p2align` has no value to fill with, and may have a largest number of bytes as its third operand.
"""

_DATA_DIRECTIVES = tuple(
    f".{name}{blank}" for name in ("byte", "short", "long", "quad", "uleb128", "sleb128", "ascii", "asciz", "string")
    for blank in (" ", "\t")
)  # fmt: skip
"""The beginnings of directives that emit data."""

_RELATIVE_TO = "s_getpc"
"""The beginning of the mnemonics that return the address of an instruction."""

FINAL_OPCODES = ("s_endpgm", "s_branch", "s_setpc_b64", "s_trap")

_WAIT_STATES = frozenset((Immediate(count),) for count in range(16))
"""The operands of s_nop."""

MAXIMUM_LINES = 1 << 14
"""How many lines that are instructions are kept between files."""

_LINES: dict[str, tuple[str, tuple[Operand, ...]]] = {}
"""Opcode and operands of such lines: kernels of one kind share most of theirs, and each is parsed once."""

_PAUSES: set[str] = set()
"""Such lines that only pause: emulated conversions have one of them in five."""

_SILENT: dict[str, bool] = {}
"""Lines that say nothing: anywhere, or (False) outside of text sections.  Tables of debuggers are mostly such lines."""

REGISTERS = {"v": 32, "a": 32, "s": 32}
"""The width in bits of each register prefix; registers need no declaration."""


def parse(text: str, file: str) -> Module:
    """Parse a file; the module of a file for another target has no kernels.  Raises AssemblyError."""
    found = _TARGET.search(text)
    if found is None or text[: found.start()].strip():
        raise AssemblyError(
            file, 1, f'the file does not begin with its target, as in .amdgcn_target "amdgcn-amd-amdhsa--{TARGETS[0]}"'
        )
    if found[1] not in TARGETS:
        return Module(file, found[1], "", (), {})
    if "\0" in text:
        raise AssemblyError(file, text[: text.index("\0")].count("\n") + 1, "the file contains a zero byte")
    return _Parser(file, text, found[1]).module()


class _Parser:
    """Parses the lines of a file in one pass; labels and instructions are accepted in text sections only."""

    def __init__(self, file: str, text: str, target: str) -> None:
        self.file = file
        self.target = target
        self.lines = text.split("\n")
        self.files: dict[int, str] = {}
        self.source: SourceLine | None = None
        self.sources: dict[str, SourceLine | None] = {}
        """The places that lines state, by the whole line; None: that of the line before."""
        self.bodies: dict[str, tuple[int, list[Instruction], dict[str, int]]] = {}
        self.functions: list[str] = []
        self.descriptors: dict[str, dict[str, str]] = {}
        self.parameters: dict[str, tuple[Argument, ...]] = {}
        self.current: str | None = None
        self.in_text = True
        self.is_relative = _RELATIVE_TO in text
        """Whether the file computes addresses relative to an instruction, which count every instruction between."""

    def module(self) -> Module:
        """Parse the file.  Raises AssemblyError."""
        rows = iter(enumerate(self.lines, 1))
        known, sources = _LINES, self.sources
        pauses = set() if self.is_relative else _PAUSES
        for number, raw in rows:
            found = known.get(raw)
            if found is not None and self.in_text and self.current is not None:
                opcode, operands = found
                self.bodies[self.current][1].append(Instruction(opcode, operands, None, number, self.source))
                continue
            if raw in pauses and self.in_text and self.current is not None:
                continue
            silent = _SILENT.get(raw)
            if silent or (silent is False and not self.in_text):
                continue
            if raw in sources:
                self.source = sources[raw] or self.source
                continue
            line = without_comment(raw)
            if not line or (not self.in_text and line.startswith(_DATA_DIRECTIVES) and not line.endswith(":")):
                if len(_SILENT) >= MAXIMUM_LINES:
                    _SILENT.clear()
                _SILENT[raw] = not line
                continue
            if line[0] == ".":
                if line.startswith((".text", ".section")):
                    name = line if line.startswith(".text") else "".join(line.split()[1:2])
                    self.in_text = name.startswith(".text")
                    continue
                if self._directive(number, line, raw, rows):
                    continue
            label = _LABEL.fullmatch(line) if ":" in line else None
            if label is not None:
                if self.in_text:
                    self._label(number, label[1].strip('"'))
                if label[2].strip():
                    raise AssemblyError(self.file, number, f"{label[2].strip()!r} follows a label on its line")
                continue
            if line[0] == ".":
                continue
            if not self.in_text or self.current is None:
                raise AssemblyError(self.file, number, f"{line!r} is outside a function")
            self._instruction(number, line, raw)
        return self._finished()

    def _directive(self, number: int, line: str, raw: str, rows: Iterator[tuple[int, str]]) -> bool:
        """Parse a directive with the lines that belong to it; return False for a line that is a label.

        `line` is the line `raw` without its comment.
        """
        word, _, rest = line.replace("\t", " ").partition(" ")
        if word == ".loc":
            self._location(number, line, raw)
        elif word == ".file":
            found = _FILE.fullmatch(line)
            if found:
                self.files[int(found[1])] = (found[2] if found[3] is None else found[3]).rpartition("/")[2]
        elif word == ".type":
            name, _, kind = rest.partition(",")
            if kind.strip() == "@function":
                self.functions.append(name.strip().strip('"'))
        elif word == ".size":
            self.current = None
        elif word == ".amdhsa_kernel":
            block = self._block(number, rows, ".end_amdhsa_kernel", "a kernel descriptor")
            self.descriptors[rest.strip().strip('"')] = dict(parse_descriptor(block, self.file))
        elif word == ".amdgpu_metadata":
            block = self._block(number, rows, ".end_amdgpu_metadata", "the metadata", strip=False)
            self.parameters.update(parse_arguments(block, self.file))
        else:
            if line.endswith(":"):
                return False
            if self.in_text and self.current is not None and not _BODY_DIRECTIVES.fullmatch(line):
                raise AssemblyError(
                    self.file, number, f"the directive {word} is inside a function, where it may emit instructions"
                )
        return True

    def _block(
        self, number: int, rows: Iterator[tuple[int, str]], end: str, what: str, *, strip: bool = True
    ) -> list[tuple[int, str]]:
        block: list[tuple[int, str]] = []
        for line_number, raw in rows:
            line = without_comment(raw)
            if line == end:
                return block
            if line:
                block.append((line_number, line if strip else raw.rstrip()))
        raise AssemblyError(self.file, number, f"the file is truncated inside {what}: {end} is missing")

    def _location(self, number: int, line: str, raw: str) -> None:
        found = _LOCATION.fullmatch(line)
        if found is None:
            raise AssemblyError(self.file, number, f"{line!r} is not a valid source location")
        place = int(found[1]), int(found[2]), int(found[3] or 0)
        known = None
        if place[1]:
            file = self.files.get(place[0], f"file {place[0]}")
            known = SourceLine(file, place[1], place[2], callers_in_comment(raw[:LONGEST_LINE]))
        self.sources[raw] = known
        self.source = known or self.source

    def _label(self, number: int, name: str) -> None:
        if name in self.functions:
            if name in self.bodies:
                raise AssemblyError(self.file, number, f"the function {name} is defined twice")
            self.bodies[name] = (number, [], {})
            self.current, self.source = name, None
            return
        if self.current is not None:
            _, instructions, labels = self.bodies[self.current]
            if name in labels:
                raise AssemblyError(self.file, number, f"the label {name} is defined twice")
            labels[name] = len(instructions)

    def _instruction(self, number: int, line: str, raw: str) -> None:
        """Parse an instruction; `line` is the line `raw` without its comment."""
        try:
            mnemonic, operands, modifiers = split_instruction(line.replace("\t", " "))
            parsed = tuple(parse_operand(each) for each in operands)
        except (LineError, OperandError) as error:
            raise AssemblyError(self.file, number, str(error)) from None
        assert self.current is not None
        opcode = ".".join((mnemonic, *modifiers))
        if len(_LINES) + len(_PAUSES) >= MAXIMUM_LINES:
            _LINES.clear()
            _PAUSES.clear()
        if not self.is_relative and opcode == "s_nop" and parsed in _WAIT_STATES:
            _PAUSES.add(raw)
            return
        _LINES[raw] = opcode, parsed
        self.bodies[self.current][1].append(Instruction(opcode, parsed, None, number, self.source))

    def _finished(self) -> Module:
        last = len(self.lines)
        for name in self.functions:
            if name not in self.bodies:
                raise AssemblyError(self.file, last, f"the file is truncated: the function {name} has no body")
        missing = [name for name in self.descriptors if name not in self.bodies]
        if missing:
            raise AssemblyError(self.file, last, f"the kernel {missing[0]} has a descriptor but no body")
        if not self.descriptors:
            raise AssemblyError(self.file, last, "the file is truncated or has no kernel: .amdhsa_kernel is missing")
        for name, (number, instructions, _) in self.bodies.items():
            if not instructions or not instructions[-1].opcode.startswith(FINAL_OPCODES):
                raise AssemblyError(
                    self.file,
                    number,
                    f"{name} is truncated: its last instruction neither ends the program nor branches",
                )
        kernels, functions = [], {}
        called = {name: body[1:] for name, body in self.bodies.items() if name not in self.descriptors}
        for name, (number, instructions, labels) in self.bodies.items():
            if name in self.descriptors:
                instructions, labels = inline_calls((instructions, labels), called)
            kernel = self._kernel(name, number, instructions, labels)
            if name in self.descriptors:
                kernels.append(kernel)
            else:
                functions[name] = kernel
        return Module(self.file, self.target, self._version(), tuple(kernels), functions)

    def _version(self) -> str:
        found = next((line for line in self.lines[:20] if ".amdhsa_code_object_version" in line), "")
        return found.split()[-1] if found else ""

    def _kernel(self, name: str, number: int, instructions: list[Instruction], labels: dict[str, int]) -> Kernel:
        named: set[str] = set()
        for each in instructions:
            if each.opcode.startswith(("s_branch", "s_cbranch")):
                target = each.operands[0] if len(each.operands) == 1 else None
                if not isinstance(target, Symbol) or target.name not in labels:
                    raise AssemblyError(self.file, each.line, f"{each.opcode} takes a label of {name} as its operand")
                named.add(target.name)
            elif each.opcode in ("s_swappc_b64", "s_setpc_b64"):
                named |= {one.name for one in each.operands if isinstance(one, Symbol)}
        attributes = dict(self.descriptors.get(name, {}))
        given: tuple[Argument, ...] = ()
        if attributes:
            if name not in self.parameters:
                raise AssemblyError(
                    self.file,
                    len(self.lines),
                    f"the file is truncated: the metadata has no entry for the kernel {name}",
                )
            given = self.parameters[name]
        explicit = [each for each in given if not each.hidden]
        attributes["offsets"] = " ".join(str(each.offset) for each in explicit)
        attributes["hidden"] = " ".join(
            f"{each.kind}:{each.offset}:{each.parameter.size}" for each in given if each.hidden
        )
        return Kernel(
            name,
            tuple(each.parameter for each in explicit),
            tuple(instructions),
            {label: index for label, index in labels.items() if label in named},
            REGISTERS,
            number,
            entry=name in self.descriptors,
            attributes=attributes,
        )
