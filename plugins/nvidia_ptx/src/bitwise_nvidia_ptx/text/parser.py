"""Parse PTX text to `bitwise_core.assembly.module.Module`.

    parse(text, file) -> Module

The parser makes the names of inner `{ }` blocks unique in their function, so that a module has no blocks: register `t`
of block 3 is named `t$3`, `t0` of a family `t<4>` is `t$3$0`, labels, parameters and arrays are `name$3`.  The second
operand of `brx.idx` is its jump table, a vector of labels.  The first three operands of a call are its returns, its
target and its arguments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bitwise_core.assembly.module import (
    MAXIMUM_CALLERS,
    AssemblyError,
    ClusterDirectives,
    Guard,
    Instruction,
    Kernel,
    Module,
    Operand,
    Parameter,
    Register,
    SharedArray,
    SourceLine,
    Symbol,
    Vector,
    callers_in_comment,
)
from bitwise_nvidia_ptx.text import lexer
from bitwise_nvidia_ptx.text.declarations import INITIAL_LIMIT, declare_registers, parse_array, parse_parameter
from bitwise_nvidia_ptx.text.lexer import NAME, STRING, Body, Cursor, ParseError, split_body
from bitwise_nvidia_ptx.text.operands import parse_call_operands, parse_operands
from bitwise_nvidia_ptx.text.scope import Scope
from bitwise_nvidia_ptx.text.wide_literals import of_operand_types

_FLAGS = re.ASCII | re.VERBOSE
_SPACE = re.compile(r"\s*+", re.ASCII)
_VERSION = re.compile(r"\.version\s++([0-9]{1,4}+\.[0-9]{1,4}+)(?![\w.])\s*+", _FLAGS)
_TARGET = re.compile(r"\.target\s++([\w]++)((?:\s*+,\s*+\w++)*+)(?![\w.])\s*+", _FLAGS)
_ADDRESS_SIZE = re.compile(r"\.address_size\s++([0-9]{1,4}+)(?!\w)\s*+", _FLAGS)
_FILE = re.compile(rf"\.file\s++([0-9]{{1,9}}+)\s++({STRING})(?:\s*+,\s*+[0-9]++\s*+,\s*+[0-9]++)?+\s*+", _FLAGS)
_SECTION = re.compile(r"\.section\s++[\w.$]++\s*+\{[^{}]*+\}\s*+", _FLAGS)
_PRAGMA = re.compile(rf"\.pragma\s++{STRING}(?:\s*+,\s*+{STRING})*+\s*+;\s*+", _FLAGS)
_FUNCTION = re.compile(r"(?:\.(visible|weak|extern|common)\s++)?\.(entry|func)(?!\w)\s*+", _FLAGS)
_LIST = re.compile(r"\(([^()]*+)\)\s*+", _FLAGS)
_NAME = re.compile(rf"({NAME})\s*+", _FLAGS)
_PROPERTY = re.compile(
    r"""\.(?:
      (reqntid|maxntid|minnctapersm|maxnctapersm|maxnreg|reqnctapercluster|maxclusterrank|
       abi_preserve_control|abi_preserve)\s++([0-9]{1,9}+(?:\s*+,\s*+[0-9]{1,9}+){0,2}+)
    | (noreturn|explicitcluster|blocksareclusters|unique)
    )(?![\w.])\s*+""",
    _FLAGS,
)
_BODY = re.compile(r"\{", _FLAGS)
_END = re.compile(r";\s*+", _FLAGS)
_INLINED_AT = re.compile(r"inlined_at\s++([0-9]{1,9}+)\s++([0-9]{1,9}+)\s++([0-9]{1,9}+)(?!\w)", _FLAGS)
LONGEST_COMMENT = 4096
"""The part of a line behind its line directive in which callers are looked for, in characters."""
_ARRAY = re.compile(
    r"(?:\.(visible|weak|extern|common)\s++)?\.(shared|global|const)(?!\w)([^;(\"]*+);\s*+",
    _FLAGS,
)

_TYPE_OF_COMPARISON = re.compile(r"setp(\.[usbf](?:16|32|64)|\.f16x2|\.bf16(?:x2)?)((?:\.[a-z]+)+)")
"""setp with the type before the operator, which ptxas takes too, for example setp.u32.eq."""


class _FunctionDraft(NamedTuple):
    """A function after the first pass: its signature, its scope, and its body as items."""

    name: str
    line: int
    entry: bool
    parameters: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    attributes: dict[str, str]
    scope: Scope
    body: Body


class _Signature(NamedTuple):
    """What a function's declaration and definition must agree on: the kind, and the sizes of parameters and returns."""

    entry: bool
    parameters: tuple[int, ...]
    returns: tuple[int, ...]


class _ModuleParser:
    """The first pass over the text: module-level names, arrays, function signatures, and bodies as items.

    `raw` is the text with its comments.
    """

    def __init__(self, cursor: Cursor, raw: str) -> None:
        self.cursor, self.raw = cursor, raw
        self.names = Scope(None, 0, {}, set())
        self.signatures: dict[str, _Signature] = {}
        self.drafts: dict[str, _FunctionDraft] = {}
        self.arrays: dict[str, list[SharedArray]] = {"shared": [], "global": [], "const": []}
        self.files: dict[int, str] = {}
        self.initial = 0
        self.declared: dict[str, int] = {}

    def parse(self) -> None:
        """Parse the module-level text up to its end."""
        cursor = self.cursor
        while cursor.position < len(cursor.text):
            line = cursor.line
            if (match := cursor.take(_FILE)) is not None:
                self._file(match, line)
            elif cursor.take(_SECTION) is None and cursor.take(_PRAGMA) is None:
                if (match := cursor.take(_ARRAY)) is not None:
                    self._array(match, line)
                elif (match := cursor.take(_FUNCTION)) is not None:
                    self._function(match, line)
                else:
                    cursor.fail(
                        f"{cursor.rest()} is not a directive that a module may have here; "
                        "the text may be damaged or truncated, or this directive is not supported"
                    )

        for name, line in self.declared.items():
            if name not in self.drafts:
                cursor.fail(f"{name} is declared here and never defined; the text may be truncated", line)
        if not self.drafts:
            cursor.fail("the text defines no kernel and no function; it may be truncated")

    def _file(self, match: re.Match[str], line: int) -> None:
        index, path = int(match[1]), match[2][1:-1]
        if index in self.files:
            self.cursor.fail(f".file {index} is given twice", line)
        self.files[index] = re.split(r"[/\\]", path)[-1]

    def _array(self, match: re.Match[str], line: int) -> None:
        linkage, space, rest = match.groups()
        extern = linkage == "extern"
        with self.cursor.errors_at(line):
            found = parse_array(rest, self.names, initial=space != "shared" and not extern, open_ended=extern)
            self.initial += len(found.data or b"")
            if self.initial > INITIAL_LIMIT:
                raise ParseError(
                    f"the arrays up to here have {self.initial} bytes of initial values; "
                    f"at most {INITIAL_LIMIT} are supported"
                )
            self.arrays[space].append(found)

    def _parameters(self, scope: Scope) -> tuple[Parameter, ...]:
        cursor = self.cursor
        line, match = cursor.line, cursor.take(_LIST)
        found: list[Parameter] = []
        if match is None or not match[1].strip():
            return ()
        for text in match[1].split(","):
            start = line + text[: len(text) - len(text.lstrip())].count("\n")
            with cursor.errors_at(start):
                found.append(parse_parameter(text, scope))
            line += text.count("\n")
        return tuple(found)

    def _function(self, match: re.Match[str], line: int) -> None:
        cursor, entry = self.cursor, match[2] == "entry"
        scope = Scope(self.names, 0, {}, set())
        returns = self._parameters(scope)
        named = cursor.take(_NAME)
        if named is None or (entry and returns):
            cursor.fail(f"{cursor.rest()} is not the name of a function", line)
        name = named[1]
        parameters = self._parameters(scope)
        attributes = {"linkage": match[1]} if match[1] else {}
        while True:
            if (found := cursor.take(_PROPERTY)) is not None:
                attributes[found[1] or found[3]] = re.sub(r"\s", "", found[2] or "")
            elif cursor.take(_PRAGMA) is None:
                break
        signature = _Signature(entry, tuple([p.size for p in parameters]), tuple([p.size for p in returns]))
        if name not in self.signatures:
            with cursor.errors_at(line):
                self.names.symbol(name)
        if self.signatures.setdefault(name, signature) != signature or name in self.drafts:
            cursor.fail(f"{name} is defined twice, or declared differently elsewhere", line)
        if cursor.take(_END) is not None:
            if match[1] != "extern":
                self.declared.setdefault(name, line)
            return
        if cursor.take(_BODY) is None:
            cursor.fail(f"{cursor.rest()} follows the signature of {name}, where its body or a ';' should be")
        body = split_body(cursor, name)
        self.drafts[name] = _FunctionDraft(name, line, entry, parameters, returns, attributes, scope, body)


class _FunctionParser:
    """The second pass over one function: from items to instructions."""

    def __init__(self, draft: _FunctionDraft, module_parser: _ModuleParser) -> None:
        self.draft, self.files = draft, module_parser.files
        self.functions = module_parser.signatures
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, Vector] = {}
        self.shared: list[SharedArray] = []
        self.local: list[SharedArray] = []
        self.raw = module_parser.raw
        self.sources: dict[tuple[str, ...], SourceLine] = {}
        self.inlined: dict[tuple[int, ...], SourceLine] = {}
        self.branch_labels: set[str] = set()
        self.line = draft.line

    def parse(self) -> Kernel:
        """Return the function.  Raises ParseError, with `line` set to its line, for a name that does not resolve."""
        draft = self.draft
        if clash := draft.scope.taken & draft.scope.root.taken:
            raise ParseError(f"{min(clash)} is a parameter of {draft.name} and a name of the module; rename one")
        scope = self._block(draft.scope, 0)
        blocks, source = 0, None
        pragmas: list[str] = []
        instructions, labels = self.instructions, draft.body.labels
        for kind, line, fields, start, end in draft.body.items:
            self.line = line
            if kind == lexer.INSTRUCTION:
                instructions.append(self._instruction(fields, scope, line, source, (start, end)))
            elif kind == lexer.LOCATION:
                source = self._source(fields, end)
            elif kind == lexer.LABEL:
                found = scope.named[fields[0]]
                assert isinstance(found, Symbol)
                self.labels[found.name] = len(instructions)
            elif kind == lexer.OPEN:
                blocks += 1
                scope = Scope(scope, blocks, scope.registers, scope.taken)
                if blocks in labels:
                    self._block(scope, blocks)
            elif kind == lexer.CLOSE:
                assert scope.parent is not None
                scope = scope.parent
            elif kind == lexer.DECLARATION:
                self._declare(fields[0], fields[1], scope)
            elif kind == lexer.TABLE:
                self._table(fields, scope)
            elif kind == lexer.PRAGMA:
                pragmas.append(f"{fields[0]} at {len(instructions)}")
        return Kernel(
            name=draft.name,
            parameters=draft.parameters,
            instructions=tuple(instructions),
            labels=self.labels,
            registers=draft.scope.registers,
            line=draft.line,
            entry=draft.entry,
            returns=draft.returns,
            threads=_required_threads(draft.attributes),
            shared=tuple(self.shared),
            attributes=draft.attributes,
            local=tuple(self.local),
            span=draft.body.span,
            clusters=_cluster_directives(draft.attributes),
            pragmas=tuple(pragmas),
        )

    def _block(self, scope: Scope, number: int) -> Scope:
        for name, line, table in self.draft.body.labels.get(number, ()):
            self.line = line
            unique = scope.label(name)
            if not table:
                self.branch_labels.add(unique)
        return scope

    def _source(self, fields: tuple[str, ...], end: int) -> SourceLine:
        """Return the source line of a directive; its callers are in the rest of its line, which begins at `end`."""
        key = (*fields, self.raw[end : end + LONGEST_COMMENT].partition("\n")[0])
        found = self.sources.get(key)
        if found is None:
            index, line, column = place = tuple(map(int, fields))
            callers = callers_in_comment(key[-1]) or self._callers(key[-1])
            found = self.sources[key] = SourceLine(self._file(index), line, column, callers)
            self.inlined[place] = found
        return found

    def _callers(self, text: str) -> tuple[SourceLine, ...]:
        """Return the callers of an `inlined_at` attribute, which names the place of an earlier directive."""
        match = _INLINED_AT.search(text)
        if match is None:
            return ()
        index, line, column = place = tuple(map(int, match.groups()))
        known = self.inlined.get(place)
        caller = SourceLine(self._file(index), line, column)
        return (caller, *(known.callers if known is not None else ()))[:MAXIMUM_CALLERS]

    def _file(self, index: int) -> str:
        return self.files.get(index, f"<file {index}>")

    def _declare(self, space: str, rest: str, scope: Scope) -> None:
        if space == "reg":
            declare_registers(rest, scope)
        elif space == "shared":
            self.shared.append(parse_array(rest, scope, initial=False, open_ended=False))
        else:
            self.local.append(parse_array(rest, scope, initial=False, open_ended=False))

    def _table(self, fields: tuple[str, ...], scope: Scope) -> None:
        name, kind, entries = fields
        if kind == "branchtargets":
            targets = parse_operands(entries, scope)
            for target in targets:
                self._label(target, "a jump table")
            self.tables[self._symbol(name, scope)] = Vector(tuple(targets))

    def _symbol(self, name: str, scope: Scope) -> str:
        found = scope.named[name]
        assert isinstance(found, Symbol)
        return found.name

    def _label(self, target: Operand | None, what: str) -> None:
        if not isinstance(target, Symbol) or target.name not in self.branch_labels:
            raise ParseError(f"{what} needs a label of this function, and this operand is not one")

    def _instruction(
        self, fields: tuple[str, ...], scope: Scope, line: int, source: SourceLine | None, span: tuple[int, int]
    ) -> Instruction:
        negation, guarding, opcode, text = fields
        guard = None
        if guarding:
            register = scope.cache.get(guarding)
            if register is None:
                register = scope.cache[guarding] = scope.find(guarding)
            if not isinstance(register, Register) or not scope.is_predicate(register):
                raise ParseError(f"the guard {guarding} is not a predicate register")
            guard = Guard(register.name, bool(negation))
        base = opcode.partition(".")[0]
        found: tuple[Operand, ...]
        if base == "call":
            found = parse_call_operands(text, scope) if text.strip() else ()
            self._check_call(found)
        else:
            found = tuple(parse_operands(text, scope)) if text and not text.isspace() else ()
            if "(" in text:
                raise ParseError(f"{opcode} takes no operands in parentheses")
            if base == "bra":
                if len(found) != 1:
                    raise ParseError("bra takes one operand, the label")
                self._label(found[0], opcode)
            elif base == "brx":
                found = self._indexed(found)
            elif base == "setp":
                opcode = _TYPE_OF_COMPARISON.sub(r"setp\2\1", opcode)
        # Every literal of 64 bits has one of these.
        if "." in text or "e" in text or "E" in text or "0d" in text or "0D" in text:
            found = of_operand_types(opcode, found)
        return Instruction(opcode, found, guard, line, source, span)

    def _check_call(self, found: tuple[Operand, ...]) -> None:
        target = found[1] if len(found) > 1 else None
        if isinstance(target, Register):
            return
        if not isinstance(target, Symbol) or target.name not in self.functions or len(found) != 3:
            raise ParseError("this call needs a function that the module declares: call (returns), name, (arguments)")
        signature = self.functions[target.name]
        returns, arguments = found[0], found[2]
        assert isinstance(returns, Vector)
        assert isinstance(arguments, Vector)
        if (len(returns.items), len(arguments.items)) != (len(signature.returns), len(signature.parameters)):
            raise ParseError(
                f"{target.name} has {len(signature.returns)} returns and {len(signature.parameters)} parameters; "
                f"this call has {len(returns.items)} and {len(arguments.items)}"
            )

    def _indexed(self, found: tuple[Operand, ...]) -> tuple[Operand, ...]:
        table = found[1] if len(found) == 2 else None
        if not isinstance(table, Symbol) or table.name not in self.tables:
            raise ParseError("brx.idx takes an index and the name of a .branchtargets list that precedes it")
        return found[0], self.tables[table.name]


def _required_threads(attributes: dict[str, str]) -> tuple[int, int, int] | None:
    return _extents(attributes["reqntid"]) if "reqntid" in attributes else None


def _cluster_directives(attributes: dict[str, str]) -> ClusterDirectives | None:
    if attributes.keys().isdisjoint(("reqnctapercluster", "maxclusterrank", "explicitcluster", "blocksareclusters")):
        return None
    shape = _extents(attributes["reqnctapercluster"]) if "reqnctapercluster" in attributes else None
    largest = int(attributes["maxclusterrank"].split(",")[0]) if "maxclusterrank" in attributes else None
    return ClusterDirectives(shape, largest, "explicitcluster" in attributes, "blocksareclusters" in attributes)


def _extents(text: str) -> tuple[int, int, int]:
    x, y, z, *_ = [*map(int, text.split(",")), 1, 1]
    return x, y, z


def parse(text: str | bytes, file: str) -> Module:
    """Parse PTX text to a module; `file` names it in messages.

    Every register, symbol and label that an instruction uses is declared, every name is unique in its function, and
    inner blocks are dissolved (see the docstring of this Python module).  `Kernel.registers` has a register under its
    name, or under its name without the final digits.  A function that is declared and not defined is not in
    `functions`.  The span of an instruction ends before its semicolon; the span of a function is the text between its
    braces.  `_` is a Register of that name; `symbol+4` outside brackets is an Address.  `attributes` holds the linkage
    and the directives of the signature without their dots.  Time is linear in the text.

    Raises AssemblyError, and nothing else, for text that is longer than `lexer.SIZE_LIMIT`, empty, truncated, damaged,
    or uses a directive that is not supported.
    """
    decoded = lexer.decode(text, file)
    cursor = Cursor(lexer.without_comments(decoded, file), file)
    cursor.take(_SPACE)
    version = cursor.take(_VERSION)
    if version is None:
        cursor.fail(f"PTX starts with .version, and this starts with {cursor.rest()}")
    target = cursor.take(_TARGET)
    if target is None:
        cursor.fail(f".target follows .version, and this has {cursor.rest()}")
    line, size = cursor.line, cursor.take(_ADDRESS_SIZE)
    if size is not None and size[1] != "64":
        cursor.fail("only 64-bit addresses are supported; compile with .address_size 64", line)
    module_parser = _ModuleParser(cursor, decoded)
    module_parser.parse()
    functions: dict[str, Kernel] = {}
    for name, draft in module_parser.drafts.items():
        function_parser = _FunctionParser(draft, module_parser)
        try:
            functions[name] = function_parser.parse()
        except ParseError as refusal:
            raise AssemblyError(file, function_parser.line, str(refusal)) from None
    return Module(
        file=file,
        target=target[1],
        version=version[1],
        kernels=tuple([kernel for kernel in functions.values() if kernel.entry]),
        functions={name: kernel for name, kernel in functions.items() if not kernel.entry},
        shared=tuple(module_parser.arrays["shared"]),
        constants=tuple(module_parser.arrays["const"]),
        globals=tuple(module_parser.arrays["global"]),
    )
